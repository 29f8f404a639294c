//! Tells which keys were tried and what was wrong with them, in the layout of SOPS.

use crate::keys::KeyError;

const REASON_COLUMNS_MAX: usize = 60;
const SUMMARY_COLUMNS_MAX: usize = 75;

/// The report about a data key that could not be had.
pub(crate) fn missing(required: usize, groups: &[Option<Vec<(String, KeyError)>>]) -> String {
    let sections: Vec<String> =
        groups.iter().enumerate().map(|(number, errors)| section(number, errors.as_deref())).collect();
    let unlocked = groups.iter().filter(|errors| errors.is_none()).count();
    let summary = if required == 0 {
        "Recovery failed because no master key was able to decrypt the file. In order for SOPS to recover the file, at least one key has to be successful, but none were.".to_owned()
    } else {
        format!(
            "Recovery failed because the file was encrypted with a Shamir threshold of {required}, but only {unlocked} part(s) were successfully recovered, one for each successful key group. In order for SOPS to recover the file, at least {required} groups have to be successful. In order for a group to be successful, decryption has to succeed with any of the keys in that key group."
        )
    };
    format!(
        "Failed to get the data key required to decrypt the SOPS file.\n\n{}\n\n{}",
        sections.join("\n\n"),
        wrap(&summary, SUMMARY_COLUMNS_MAX)
    )
}

fn section(number: usize, errors: Option<&[(String, KeyError)]>) -> String {
    let Some(errors) = errors else { return format!("Group {number}: SUCCESS") };
    let keys: Vec<String> = errors
        .iter()
        .map(|(key, error)| {
            let reason = indent(&wrap(&error.to_string(), REASON_COLUMNS_MAX), "  | ");
            let reason = format!("-{}", reason.strip_prefix(' ').unwrap_or(&reason));
            format!("{key}: FAILED\n{}", indent(&reason, "  "))
        })
        .collect();
    format!("Group {number}: FAILED\n{}", indent(&keys.join("\n\n"), "  "))
}

fn indent(text: &str, with: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| if line.is_empty() { String::new() } else { format!("{with}{line}") })
        .collect();
    lines.join("\n")
}

/// Breaks lines between words so that they fit; longer words stand alone.
fn wrap(text: &str, columns_max: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            wrapped.push('\n');
        }
        let mut column = 0;
        for word in line.split(' ') {
            let width = word.chars().count();
            if column > 0 {
                if column + 1 + width > columns_max {
                    wrapped.push('\n');
                    column = 0;
                } else {
                    wrapped.push(' ');
                    column += 1;
                }
            }
            wrapped.push_str(word);
            column += width;
        }
    }
    wrapped
}
