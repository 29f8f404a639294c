//! `--status-selector`: objects by the status of a condition.

use serde_json::Value;

use crate::error::Error;
use crate::view;

/// A condition type and the status it must, or must not, have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusSelector {
    type_: String,
    status: String,
    equal: bool,
}

impl StatusSelector {
    /// Reads `type=status` or `type!=status`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let (type_, status, equal) = match text.split_once("!=") {
            Some((type_, status)) => (type_, status, false),
            None => match text.split_once('=') {
                Some((type_, status)) => (type_, status, true),
                None => return Err(Error::StatusSelector(text.to_owned())),
            },
        };
        Ok(Self { type_: type_.to_owned(), status: status.to_owned(), equal })
    }

    /// Whether the object matches; an absent condition equals nothing. Case does not matter.
    ///
    /// Kinds without conditions count as ready.
    pub(crate) fn matches(&self, object: &Value, always_ready: bool) -> bool {
        let equal = if always_ready {
            self.type_.eq_ignore_ascii_case("ready") && self.status.eq_ignore_ascii_case("true")
        } else {
            view::conditions(object).any(|condition| {
                view::text(condition, "/type").eq_ignore_ascii_case(&self.type_)
                    && view::text(condition, "/status").eq_ignore_ascii_case(&self.status)
            })
        };
        equal == self.equal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn matches_conditions() {
        #[track_caller]
        fn check(selector: &str, status: Option<&str>, expected: bool) {
            let object = match status {
                Some(status) => json!({"status": {"conditions": [{"type": "Ready", "status": status}]}}),
                None => json!({}),
            };
            assert_eq!(
                StatusSelector::parse(selector).unwrap().matches(&object, false),
                expected,
                "{selector}"
            );
        }
        check("ready=true", Some("True"), true);
        check("Ready=False", Some("True"), false);
        check("ready!=true", Some("True"), false);
        check("ready!=true", Some("Unknown"), true);
        check("ready!=true", None, true);
        check("ready=true", None, false);
        check("Healthy=true", Some("True"), false);
    }

    #[test]
    fn kinds_without_conditions_are_ready() {
        let matches = |selector: &str| StatusSelector::parse(selector).unwrap().matches(&json!({}), true);
        assert!(matches("ready=true"));
        assert!(!matches("ready=false"));
        assert!(!matches("ready!=true"));
    }

    #[test]
    fn refuses_other_text() {
        let error = StatusSelector::parse("ready").unwrap_err().to_string();
        assert_eq!(error, "expected status selector in type=status or type!=status format, but found: ready");
    }
}
