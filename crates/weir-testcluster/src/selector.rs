//! Label and field selectors.

use crate::error::ApiError;

/// One requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
    /// The number at the key is greater.
    Greater(String, i64),
    Less(String, i64),
}

impl Requirement {
    fn matches<'l>(&self, labels: &impl Fn(&str) -> Option<&'l str>) -> bool {
        let number = |key: &str| labels(key).and_then(|text| text.parse::<i64>().ok());
        match self {
            Self::In(key, values) => labels(key).is_some_and(|value| values.iter().any(|v| v == value)),
            Self::NotIn(key, values) => labels(key).is_none_or(|value| values.iter().all(|v| v != value)),
            Self::Exists(key) => labels(key).is_some(),
            Self::Missing(key) => labels(key).is_none(),
            Self::Greater(key, limit) => number(key).is_some_and(|value| value > *limit),
            Self::Less(key, limit) => number(key).is_some_and(|value| value < *limit),
        }
    }
}

/// A label selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From its text, as in `app=web,tier in (a, b),!legacy`.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let wrong = |what: &str| ApiError::bad_request(format!("unable to parse requirement: {what}"));
        let no_number = |value: &str| {
            wrong(&format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            ))
        };
        let mut out = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if part.is_empty() {
                if text.trim().is_empty() {
                    continue;
                }
                return Err(wrong("found ',', expected: !, identifier, or 'end of string'"));
            }
            let requirement = if let Some(key) = part.strip_prefix('!') {
                Requirement::Missing(key.trim().to_owned())
            } else if let Some((key, value)) = part.split_once("!=") {
                Requirement::NotIn(key.trim().to_owned(), vec![value.trim().to_owned()])
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                Requirement::In(key.trim().to_owned(), vec![value.trim().to_owned()])
            } else if let Some((key, value)) = part.split_once('>') {
                let limit = value.trim().parse().map_err(|_| no_number(value.trim()))?;
                Requirement::Greater(key.trim().to_owned(), limit)
            } else if let Some((key, value)) = part.split_once('<') {
                let limit = value.trim().parse().map_err(|_| no_number(value.trim()))?;
                Requirement::Less(key.trim().to_owned(), limit)
            } else if let Some((head, rest)) = part.split_once('(') {
                let values = rest.strip_suffix(')').ok_or_else(|| wrong("found '', expected: ',' or ')'"))?;
                let values = values.split(',').map(|value| value.trim().to_owned()).collect();
                let mut words = head.split_whitespace();
                match (words.next(), words.next(), words.next()) {
                    (Some(key), Some("in"), None) => Requirement::In(key.to_owned(), values),
                    (Some(key), Some("notin"), None) => Requirement::NotIn(key.to_owned(), values),
                    (_, word, _) => {
                        return Err(wrong(&format!(
                            "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                            word.unwrap_or_default()
                        )));
                    }
                }
            } else {
                let mut words = part.split_whitespace();
                match (words.next(), words.next()) {
                    (_, Some("in" | "notin")) => return Err(wrong("found '' expected: '('")),
                    (_, Some(word)) => {
                        return Err(wrong(&format!(
                            "found '{word}', expected: in, notin, =, ==, !=, gt, lt"
                        )));
                    }
                    _ => Requirement::Exists(part.to_owned()),
                }
            };
            if let Requirement::In(_, values) | Requirement::NotIn(_, values) = &requirement
                && values.iter().any(|value| value.contains('='))
            {
                return Err(ApiError::bad_request("found '=', expected: ',' or 'end of string'"));
            }
            check(&requirement)?;
            out.push(requirement);
        }
        Ok(Self(out))
    }

    /// Whether labels fit; `labels` finds the value of a key.
    pub(crate) fn matches<'l>(&self, labels: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(&labels))
    }
}

fn check(requirement: &Requirement) -> Result<(), ApiError> {
    let (key, values): (&str, &[String]) = match requirement {
        Requirement::In(key, values) | Requirement::NotIn(key, values) => (key, values),
        Requirement::Exists(key)
        | Requirement::Missing(key)
        | Requirement::Greater(key, _)
        | Requirement::Less(key, _) => (key, &[]),
    };
    let name = key.rsplit('/').next().unwrap_or_default();
    let good = |text: &str| {
        text.len() <= 63
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && text.bytes().next().is_none_or(|b| b.is_ascii_alphanumeric())
            && text.bytes().last().is_none_or(|b| b.is_ascii_alphanumeric())
    };
    if name.is_empty() || !good(name) {
        return Err(ApiError::bad_request(format!(
            "unable to parse requirement: <nil>: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )));
    }
    match values.iter().find(|value| !good(value)) {
        Some(value) => Err(ApiError::bad_request(format!(
            "unable to parse requirement: values[0][{key}]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        ))),
        None => Ok(()),
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                out.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

/// A field selector: pairs of path, wanted value, and whether they shall be equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(pub(crate) Vec<(String, String, bool)>);

impl FieldSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut out = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value, equal) = if let Some((key, value)) = part.split_once("!=") {
                (key, value, false)
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (key, value, true)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            out.push((key.to_owned(), value.to_owned(), equal));
        }
        Ok(Self(out))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name that the selector asks for, if it asks for one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _, equal)| key == "metadata.name" && *equal)
            .map(|(_, value, _)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let parsed = LabelSelector::parse(selector).unwrap();
        let find = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        assert_eq!(parsed.matches(find), expected, "{selector} on {labels:?}");
    }

    #[test]
    fn label_selectors() {
        let labels = &[("app", "web"), ("tier", "a"), ("n", "5")];
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier!=b", true),
            ("app in (x, web)", true),
            ("app notin (x,web)", false),
            ("other notin (x)", true),
            ("!other", true),
            ("!app", false),
            ("app", true),
            ("n>4,n<6", true),
            ("n>5", false),
        ] {
            check(selector, labels, expected);
        }
    }

    #[test]
    fn selectors_that_cannot_be_read() {
        for text in ["a=b,", "a in b", "a=-b", "(x)", "a in (b"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
        assert!(FieldSelector::parse("metadata.name").is_err());
    }
}
