//! Which values of a document are encrypted.

use regex::Regex;

/// The suffix that applies when a document names no rule.
const DEFAULT_UNENCRYPTED_SUFFIX: &str = "_unencrypted";

/// How a document says which of its values are encrypted.
#[derive(Debug, Clone)]
pub(crate) enum Rule {
    UnencryptedSuffix(String),
    EncryptedSuffix(String),
    UnencryptedRegex(Option<Regex>),
    EncryptedRegex(Option<Regex>),
    UnencryptedCommentRegex(Option<Regex>),
    EncryptedCommentRegex(Option<Regex>),
}

impl Default for Rule {
    fn default() -> Self {
        Self::UnencryptedSuffix(DEFAULT_UNENCRYPTED_SUFFIX.to_owned())
    }
}

/// A pattern; one that is not valid matches nothing, as in the reference.
pub(crate) fn pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}

fn matches(pattern: Option<&Regex>, text: &str) -> bool {
    pattern.is_some_and(|pattern| pattern.is_match(text))
}

impl Rule {
    /// Whether a value is encrypted, by the keys above it and the comments before it and before what it is in.
    pub(crate) fn encrypts(&self, path: &[&str], comments: &[Vec<String>], is_comment: bool) -> bool {
        let any_key = |test: &dyn Fn(&str) -> bool| path.iter().any(|key| test(key));
        match self {
            Self::UnencryptedSuffix(suffix) => !any_key(&|key| key.ends_with(suffix.as_str())),
            Self::EncryptedSuffix(suffix) => any_key(&|key| key.ends_with(suffix.as_str())),
            Self::UnencryptedRegex(regex) => !any_key(&|key| matches(regex.as_ref(), key)),
            Self::EncryptedRegex(regex) => any_key(&|key| matches(regex.as_ref(), key)),
            Self::UnencryptedCommentRegex(regex) => {
                !comments.iter().flatten().any(|comment| matches(regex.as_ref(), comment))
            }
            Self::EncryptedCommentRegex(regex) => {
                // The comment that matches is itself in the clear.
                let own = comments.last().map_or(0, Vec::len);
                comments.iter().enumerate().any(|(level, lines)| {
                    lines.iter().enumerate().any(|(line, comment)| {
                        let is_own = is_comment && level + 1 == comments.len() && line + 1 == own;
                        !is_own && matches(regex.as_ref(), comment)
                    })
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: &Rule, path: &[&str], comments: &[&[&str]], expected: bool) {
        let comments: Vec<Vec<String>> =
            comments.iter().map(|lines| lines.iter().map(|line| (*line).to_owned()).collect()).collect();
        assert_eq!(rule.encrypts(path, &comments, false), expected);
    }

    #[test]
    fn keys_decide_at_any_depth() {
        check(&Rule::default(), &["a", "b"], &[], true);
        check(&Rule::default(), &["a_unencrypted", "b"], &[], false);
        check(&Rule::EncryptedSuffix("_x".into()), &["a", "b_x", "c"], &[], true);
        check(&Rule::EncryptedSuffix("_x".into()), &["a_xy"], &[], false);
        check(&Rule::EncryptedRegex(pattern("^(data|stringData)$")), &["data", "a"], &[], true);
        check(&Rule::EncryptedRegex(pattern("^(data|stringData)$")), &["metadata", "a"], &[], false);
        check(&Rule::UnencryptedRegex(pattern("^kind$")), &["kind"], &[], false);
        check(&Rule::UnencryptedRegex(pattern("(")), &["kind"], &[], true);
        check(&Rule::EncryptedRegex(pattern("(")), &["kind"], &[], false);
    }

    #[test]
    fn comments_decide_for_what_follows_them() {
        let rule = Rule::EncryptedCommentRegex(pattern("secret"));
        check(&rule, &["a"], &[&["secret"], &[]], true);
        check(&rule, &["a"], &[&["public"]], false);
        let lines = vec![vec!["secret".to_owned()]];
        assert!(!rule.encrypts(&["a"], &lines, true), "the comment itself is in the clear");
        check(&Rule::UnencryptedCommentRegex(pattern("public")), &["a"], &[&["public"]], false);
        check(&Rule::UnencryptedCommentRegex(pattern("public")), &["a"], &[&["secret"]], true);
    }
}
