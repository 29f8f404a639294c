//! Digests shortened for people.

const SHORTENED: usize = 8;

/// The text with every run of 40 to 128 lower-case hex digits between word boundaries cut to 8 digits.
pub(crate) fn shorten(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_digest =
            (40..=128).contains(&word.len()) && word.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        result.push_str(if is_digest { &word[..SHORTENED] } else { word });
        let gap = after.find(is_word).unwrap_or(after.len());
        result.push_str(&after[..gap]);
        rest = &after[gap..];
    }
    result
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(shorten(text), expected);
    }

    #[test]
    fn cuts_digests_and_nothing_else() {
        let sha1 = "0123456789abcdef0123456789abcdef01234567";
        let sha256 = "0123456789abcdef".repeat(4);
        check("", "");
        check(&format!("main@sha1:{sha1}"), "main@sha1:01234567");
        check(&format!("Applied revision: 6.5.0@sha256:{sha256}"), "Applied revision: 6.5.0@sha256:01234567");
        check(&format!("{sha1} und {sha1}ä"), "01234567 und 01234567ä");
        check(&sha1[1..], &sha1[1..]);
        check(&format!("g{sha1}"), &format!("g{sha1}"));
        check(&format!("{sha1}_x"), &format!("{sha1}_x"));
        check(&sha1.to_uppercase(), &sha1.to_uppercase());
        check(&"a".repeat(129), &"a".repeat(129));
    }
}
