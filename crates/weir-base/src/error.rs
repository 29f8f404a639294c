//! How errors are shown to people: the whole chain of causes on one line.

use std::error::Error;
use std::fmt;

/// Displays an error followed by its causes, separated by `: `.
///
/// A cause whose text is already contained at the end of what was printed is not repeated.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = self.0.to_string();
        let mut source = self.0.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !printed.ends_with(&text) {
                printed.push_str(": ");
                printed.push_str(&text);
            }
            source = cause.source();
        }
        formatter.write_str(&printed)
    }
}

/// The error and its causes in one string; see [`Chain`].
pub fn chain(error: &(dyn Error + 'static)) -> String {
    Chain(error).to_string()
}

/// Cuts `text` to at most `bytes_max` bytes on a character boundary, the last three being `...`.
pub fn truncate(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mut end = bytes_max.saturating_sub(3);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;

    #[test]
    fn causes_follow_the_error() {
        assert_eq!(chain(&Outer(Inner)), "outer: inner");
    }

    #[test]
    fn truncation_keeps_characters_whole() {
        assert_eq!(truncate("abcdef", 6), "abcdef");
        assert_eq!(truncate("abcdefg", 6), "abc...");
        assert_eq!(truncate("äöüäöü", 8), "äö...");
    }
}
