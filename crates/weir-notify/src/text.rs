//! Words for people: names of objects, descriptions of reasons, lists of metadata, and cutting what is too long.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::event::{CHANGE_REQUEST, COMMIT, Event, InvolvedObject, ORIGIN_REVISION, REVISION, Severity};

/// Invisible; breaks up what a chat service would take for a mention.
const ZERO_WIDTH_SPACE: char = '\u{200b}';
/// What stands at the end of a text that was cut.
const CUT_MARK: &str = "…";

/// `kind/name.namespace`, the kind in lower case.
pub(crate) fn object_title(object: &InvolvedObject) -> String {
    format!("{}/{}.{}", object.kind.to_lowercase(), object.name, object.namespace)
}

/// `kind/name`, in lower case.
pub(crate) fn status_name(object: &InvolvedObject) -> String {
    format!("{}/{}", object.kind, object.name).to_lowercase()
}

/// The reason as words in lower case: `HTTPServerFailed` is `http server failed`.
pub(crate) fn describe(reason: &str) -> String {
    #[derive(Clone, Copy, PartialEq)]
    enum Class {
        Lower,
        Upper,
        Digit,
        Other,
    }
    let class = |character: char| match character {
        _ if character.is_lowercase() => Class::Lower,
        _ if character.is_uppercase() => Class::Upper,
        _ if character.is_numeric() => Class::Digit,
        _ => Class::Other,
    };
    let mut runs: Vec<(Class, String)> = Vec::new();
    for character in reason.chars() {
        match runs.last_mut() {
            Some((last, run)) if *last == class(character) => run.push(character),
            _ => runs.push((class(character), character.to_string())),
        }
    }
    // The capital letter before small ones begins their word.
    for index in 1..runs.len() {
        if runs[index - 1].0 == Class::Upper
            && runs[index].0 == Class::Lower
            && let Some(capital) = runs[index - 1].1.pop()
        {
            runs[index].1.insert(0, capital);
        }
    }
    let words: Vec<String> = runs.into_iter().map(|(_, run)| run).filter(|run| !run.is_empty()).collect();
    words.join(" ").to_lowercase()
}

/// Why there is no commit to set a status on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    /// The event has no revision.
    #[error("missing revision metadata")]
    Missing,
    /// The revision names no commit.
    #[error("failed to extract commit hash from '{0}' revision")]
    NoHash(String),
}

/// The hash of the commit the event is about.
pub(crate) fn commit_hash(event: &Event) -> Result<String, RevisionError> {
    let revision = [COMMIT, ORIGIN_REVISION, REVISION]
        .iter()
        .find_map(|key| event.metadata.get(*key))
        .ok_or(RevisionError::Missing)?;
    let separator = if revision.contains(':') { ':' } else { '/' };
    let hash = revision.rsplit(separator).next().unwrap_or_default();
    // The hash becomes part of a path, so nothing but a hash is let through.
    if hash.len() == 40 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(hash.to_owned());
    }
    Err(RevisionError::NoHash(revision.clone()))
}

/// Whether the event is shown as a failure; everything but an error is not.
pub(crate) fn is_error(event: &Event) -> bool {
    event.severity == Severity::Error
}

/// What comments and Zulip messages say, in Markdown. `plain` is applied to the message and to the values.
pub(crate) fn markdown(
    event: &Event,
    plain: impl Fn(&str) -> String,
    message_characters_max: usize,
) -> String {
    let emoji = if is_error(event) { "⚠️" } else { "ℹ️" };
    let mut lines = String::new();
    for (key, value) in event.metadata.iter().filter(|(key, _)| *key != CHANGE_REQUEST) {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "* `{key}`: {}", plain(value));
    }
    let head = format!("## Flux Status\n\n{emoji} {}\n\n", event.involved_object.identity());
    let tail = format!("\n\nMetadata:\n{}", cut_characters(&lines, message_characters_max / 2));
    let room = message_characters_max.saturating_sub(head.chars().count() + tail.chars().count());
    format!("{head}{}{tail}", cut_characters(&plain(&event.message), room))
}

/// At most `max` characters, the last one being an ellipsis if something was cut.
pub(crate) fn cut_characters(text: &str, max: usize) -> String {
    if text.len() <= max || text.chars().count() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max.saturating_sub(1)).collect();
    if max > 0 {
        cut.push_str(CUT_MARK);
    }
    cut
}

/// At most `max` bytes on a character boundary, ending with an ellipsis if something was cut.
pub(crate) fn cut_bytes(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub(CUT_MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT_MARK}", &text[..end])
}

/// What `build` makes of a number of bytes for texts, with the largest number that keeps its JSON within `bytes_max`.
pub(crate) fn fit(bytes_max: usize, build: impl Fn(usize) -> serde_json::Value) -> serde_json::Value {
    let mut room = bytes_max;
    loop {
        let built = build(room);
        if room < 256 || crate::event::to_go_json(&built).len() <= bytes_max {
            return built;
        }
        room = room * 3 / 4;
    }
}

/// The text with an invisible character behind every `@`, so that it mentions nobody.
pub(crate) fn without_mentions(text: &str) -> String {
    let mut quiet = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        quiet.push(character);
        if character == '@' && characters.peek().is_some_and(|next| !next.is_whitespace()) {
            quiet.push(ZERO_WIDTH_SPACE);
        }
    }
    quiet
}

/// The text with `&`, `<` and `>` as HTML entities.
pub(crate) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Metadata in the order it is shown: the summary first, the rest by key.
pub(crate) fn summary_first(metadata: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    let summary = metadata.get_key_value(crate::event::SUMMARY);
    summary.into_iter().chain(metadata.iter().filter(|(key, _)| *key != crate::event::SUMMARY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_become_words() {
        let check = |reason: &str, expected: &str| assert_eq!(describe(reason), expected);
        check("ReconciliationSucceeded", "reconciliation succeeded");
        check("HTTPServer", "http server");
        check("Progressing", "progressing");
        check("V2Upgrade", "v 2 upgrade");
        check("GitOperationFailed", "git operation failed");
        check("A", "a");
        check("", "");
        check("snake_case", "snake _ case");
    }

    #[test]
    fn commits_are_found_in_revisions() {
        const HASH: &str = "5394cb7f48332b2de7c17dd8b8384bbc84b7e738";
        #[track_caller]
        fn check(metadata: &[(&str, &str)], expected: Result<&str, &str>) {
            let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let event = Event { metadata: metadata.collect(), ..Event::default() };
            let got = commit_hash(&event).map_err(|error| error.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), expected);
        }
        check(&[("revision", &format!("main@sha1:{HASH}"))], Ok(HASH));
        check(&[("revision", &format!("main/{HASH}"))], Ok(HASH));
        check(&[("revision", HASH)], Ok(HASH));
        check(&[("revision", "1.0.0"), ("commit", HASH)], Ok(HASH));
        let origin = format!("main@sha1:{HASH}");
        check(&[("revision", "v1@sha256:12"), ("originRevision", &origin)], Ok(HASH));
        check(&[], Err("missing revision metadata"));
        check(&[("revision", "1.0.0")], Err("failed to extract commit hash from '1.0.0' revision"));
        let sha256 = format!("main@sha256:{}", "a".repeat(64));
        check(
            &[("revision", &sha256)],
            Err(&format!("failed to extract commit hash from '{sha256}' revision")),
        );
        let path = format!("x:{}", "../".repeat(13) + "a");
        assert!(
            commit_hash(&Event { metadata: [("revision".to_owned(), path)].into(), ..Event::default() })
                .is_err()
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut_characters("äöü", 3), "äöü");
        assert_eq!(cut_characters("äöüß", 3), "äö…");
        assert_eq!(cut_bytes("äöü", 6), "äöü");
        assert_eq!(cut_bytes("äöüß", 7), "äö…");
        assert_eq!(cut_bytes("äöüß", 6), "ä…");
    }

    #[test]
    fn mentions_are_broken_up() {
        assert_eq!(without_mentions("@all @ b a@b @"), "@\u{200b}all @ b a@\u{200b}b @");
    }
}
