//! Recording of the golden cases: what the reference answers is committed next to the input.
//!
//! A case is an archive `tests/golden/<name>.txtar`: the input below `in/`, the answer in `want.yaml` or
//! `want.error`. The directory built is `in`, or the one named by a comment line `root: <path>`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::{archive, reference_version, say, theirs};

const CASES: &str = "crates/weir-kustomize/tests/golden";

/// Checks that the recorded answers are current, or records them.
pub(crate) fn run(root: &Path, record: bool) -> anyhow::Result<()> {
    let directory = root.join(CASES);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&directory)
        .with_context(|| directory.display().to_string())?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txtar"))
        .collect();
    paths.sort();
    let version = reference_version()?;
    let mut stale = 0;
    let mut cases = 0;
    for path in &paths {
        let old = std::fs::read_to_string(path)?;
        let new = recorded(&old, &mut cases)?;
        if old == new {
            continue;
        }
        stale += 1;
        say(&format!("{} {}", if record { "recorded" } else { "stale" }, path.display()));
        if record {
            std::fs::write(path, new)?;
        }
    }
    let version_file = directory.join("VERSION");
    if record {
        std::fs::write(version_file, format!("kustomize {version}\n"))?;
    } else if stale > 0 {
        bail!("{stale} files are stale; run cargo xtask golden --record and read every change");
    }
    say(&format!("{cases} cases in {} files, kustomize {version}", paths.len()));
    Ok(())
}

/// The text of a file of cases with the answers of the reference.
fn recorded(text: &str, cases: &mut usize) -> anyhow::Result<String> {
    let mut result = String::new();
    for case in split_cases(text) {
        *cases += 1;
        let files = archive::parse(case);
        let input: Vec<(String, String)> =
            files.iter().filter(|(name, _)| !name.starts_with("want.")).cloned().collect();
        let scratch = tempfile::tempdir()?;
        archive::unpack(&input, scratch.path())?;
        let built = case.lines().find_map(|line| line.strip_prefix("root: ")).unwrap_or(".");
        let answer = theirs(&scratch.path().join(built))?;
        let comment_end = case.find("-- ").unwrap_or(case.len());
        result.push_str(&case[..comment_end]);
        for (name, content) in &input {
            for part in ["-- ", name, " --\n", content] {
                result.push_str(part);
            }
        }
        match answer {
            Ok(output) => {
                result.push_str("-- want.yaml --\n");
                result.push_str(&output);
            }
            Err(error) => {
                let scratch_path = scratch.path().to_string_lossy();
                let canonical = scratch.path().canonicalize()?;
                let error =
                    error.replace(&*canonical.to_string_lossy(), "/case").replace(&*scratch_path, "/case");
                result.push_str("-- want.error --\n");
                result.push_str(&error);
                result.push('\n');
            }
        }
    }
    Ok(result)
}

/// The cases of a file: each starts with a line `=== name`.
pub(crate) fn split_cases(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text
        .match_indices("=== ")
        .map(|(position, _)| position)
        .filter(|position| *position == 0 || text.as_bytes()[position - 1] == b'\n')
        .collect();
    starts.push(text.len());
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}
