//! Collecting refusals, and the checks that many kinds share.

use serde_json::Value;

use crate::builtin::tree::{entries, items, text, unset};
use crate::{Cause, CauseReason};

/// The refusals found so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) causes: Vec<Cause>,
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(crate) const IMMUTABLE: &str = "field is immutable";
pub(crate) const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
pub(crate) const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

impl Report {
    pub(crate) fn add(&mut self, field: &str, reason: CauseReason, value: Option<String>, detail: &str) {
        self.causes.push(Cause { field: field.to_owned(), reason, value, detail: detail.to_owned() });
    }

    pub(crate) fn required(&mut self, field: &str, detail: &str) {
        self.add(field, CauseReason::Required, None, detail);
    }

    pub(crate) fn forbidden(&mut self, field: &str, detail: &str) {
        self.add(field, CauseReason::Forbidden, None, detail);
    }

    pub(crate) fn invalid(&mut self, field: &str, value: &Value, detail: &str) {
        self.add(field, CauseReason::Invalid, Some(shown(value)), detail);
    }

    pub(crate) fn invalid_text(&mut self, field: &str, value: &str, detail: &str) {
        self.add(field, CauseReason::Invalid, Some(format!("{value:?}")), detail);
    }

    pub(crate) fn duplicate(&mut self, field: &str, value: &str) {
        self.add(field, CauseReason::Duplicate, Some(format!("{value:?}")), "");
    }

    pub(crate) fn not_supported(&mut self, field: &str, value: &Value, allowed: &[&str]) {
        let words: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
        let detail = format!("supported values: {}", words.join(", "));
        self.add(field, CauseReason::NotSupported, Some(shown(value)), &detail);
    }

    /// The text at a key must be one of the words; absent is fine.
    pub(crate) fn one_of(&mut self, value: &Value, path: &str, key: &str, allowed: &[&str]) {
        if let Some(given) = value.get(key).filter(|given| !given.is_null())
            && !given.as_str().is_some_and(|text| allowed.contains(&text))
        {
            self.not_supported(&join(path, key), given, allowed);
        }
    }

    /// The number at a key must not be negative; absent is fine.
    pub(crate) fn not_negative(&mut self, value: &Value, path: &str, key: &str) {
        if value[key].as_i64().is_some_and(|number| number < 0) {
            self.invalid(&join(path, key), &value[key], NOT_NEGATIVE);
        }
    }

    /// The text at a key must not be empty.
    pub(crate) fn present(&mut self, value: &Value, path: &str, key: &str) -> bool {
        let given = !unset(value, key);
        if !given {
            self.required(&join(path, key), "");
        }
        given
    }

    /// The field must not have changed.
    pub(crate) fn unchanged(&mut self, new: &Value, old: &Value, path: &str, key: &str) {
        if !crate::builtin::tree::same(&new[key], &old[key]) {
            self.invalid(&join(path, key), &new[key], IMMUTABLE);
        }
    }

    /// An address that may be outside.
    pub(crate) fn address(&mut self, field: &str, value: &str) -> bool {
        let valid = value.parse::<std::net::IpAddr>().is_ok();
        if !valid {
            self.invalid_text(field, value, ADDRESS);
        }
        valid
    }

    pub(crate) fn outside_address(&mut self, field: &str, value: &str) {
        let Ok(address) = value.parse::<std::net::IpAddr>() else {
            return self.invalid_text(field, value, ADDRESS);
        };
        if address.is_unspecified() {
            self.invalid_text(field, value, &format!("may not be unspecified ({value})"));
        }
        if address.is_loopback() {
            self.invalid_text(field, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
        }
    }

    /// A port number or the name of one.
    pub(crate) fn port(&mut self, field: &str, value: &Value) {
        match value {
            Value::String(name) => self.port_name(field, name),
            number if number.as_i64().is_some_and(|n| (1..=65535).contains(&n)) => {}
            number => self.invalid(field, number, PORT_RANGE),
        }
    }

    pub(crate) fn port_name(&mut self, field: &str, name: &str) {
        for problem in port_name_problems(name) {
            self.invalid_text(field, name, &problem);
        }
    }

    /// Labels or a selector's map.
    pub(crate) fn labels(&mut self, value: &Value, path: &str) {
        for (key, content) in value.as_object().into_iter().flatten() {
            for problem in qualified_name_problems(key) {
                self.invalid_text(path, key, &problem);
            }
            let content = content.as_str().unwrap_or_default();
            for problem in label_value_problems(content) {
                self.invalid_text(path, content, &problem);
            }
        }
    }

    /// A label selector.
    pub(crate) fn selector(&mut self, selector: &Value, path: &str) -> bool {
        let before = self.causes.len();
        self.labels(&selector["matchLabels"], &join(path, "matchLabels"));
        for (index, expression) in items(selector, "matchExpressions").iter().enumerate() {
            let path = format!("{path}.matchExpressions[{index}]");
            let given = !items(expression, "values").is_empty();
            match text(expression, "operator") {
                "In" | "NotIn" if !given => {
                    self.required(
                        &join(&path, "values"),
                        "must be specified when `operator` is 'In' or 'NotIn'",
                    );
                }
                "Exists" | "DoesNotExist" if given => {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    self.forbidden(&join(&path, "values"), detail);
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => self.invalid_text(&join(&path, "operator"), other, "not a valid selector operator"),
            }
            for problem in qualified_name_problems(text(expression, "key")) {
                self.invalid_text(&join(&path, "key"), text(expression, "key"), &problem);
            }
            for (at, value) in items(expression, "values").iter().filter_map(Value::as_str).enumerate() {
                for problem in label_value_problems(value) {
                    self.invalid_text(&format!("{path}.values[{at}]"), value, &problem);
                }
            }
        }
        self.causes.len() == before
    }

    /// A number or a percentage, for instance of pods.
    pub(crate) fn number_or_percent(&mut self, value: &Value, path: &str, key: &str) {
        let field = join(path, key);
        match &value[key] {
            Value::String(percent) if !is_percent(percent) => self.invalid_text(&field, percent, PERCENT),
            number if number.as_i64().is_some_and(|n| n < 0) => self.invalid(&field, number, NOT_NEGATIVE),
            _ => {}
        }
    }

    /// A percentage of at most a hundred.
    pub(crate) fn percent_at_most_hundred(&mut self, value: &Value, path: &str, key: &str) {
        if let Some(percent) = value[key].as_str().filter(|text| is_percent(text))
            && percent.trim_end_matches('%').parse::<u64>().is_ok_and(|n| n > 100)
        {
            self.invalid_text(&join(path, key), percent, "must not be greater than 100%");
        }
    }

    /// Keys of a map of files.
    pub(crate) fn config_keys(&mut self, value: &Value, path: &str) {
        for (key, _) in entries(value, path) {
            let field = format!("{path}[{key}]");
            for problem in config_key_problems(key) {
                self.invalid_text(&field, key, &problem);
            }
        }
    }

    /// A name that must be a DNS subdomain.
    pub(crate) fn subdomain(&mut self, field: &str, name: &str) {
        for problem in subdomain_problems(name) {
            self.invalid_text(field, name, &problem);
        }
    }

    /// A name that must be a DNS label.
    pub(crate) fn label(&mut self, field: &str, name: &str) {
        for problem in label_problems(name) {
            self.invalid_text(field, name, &problem);
        }
    }
}

/// A value as messages show it. A selector is shown in the order of its type.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Object(fields)
            if fields.contains_key("matchExpressions") && fields.contains_key("matchLabels") =>
        {
            format!(
                "{{\"matchLabels\":{},\"matchExpressions\":[{}]}}",
                fields["matchLabels"],
                items(value, "matchExpressions").iter().map(shown).collect::<Vec<_>>().join(",")
            )
        }
        Value::Object(fields) if fields.contains_key("operator") && fields.contains_key("key") => {
            let values =
                fields.get("values").map_or_else(String::new, |values| format!(",\"values\":{values}"));
            format!("{{\"key\":{},\"operator\":{}{values}}}", fields["key"], fields["operator"])
        }
        Value::Object(fields) if fields.contains_key("apiVersion") && fields.contains_key("uid") => {
            let order = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
            let part = |key: &&str| fields.get(*key).map(|value| format!("\"{key}\":{value}"));
            format!("{{{}}}", order.iter().filter_map(part).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// A path with one more field.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn is_percent(text: &str) -> bool {
    text.strip_suffix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn is_label(name: &str) -> bool {
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let edge = |b: Option<u8>| b.is_some_and(|b| b != b'-');
    name.bytes().all(inside) && edge(name.bytes().next()) && edge(name.bytes().last())
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

pub(crate) fn subdomain_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    if !is_subdomain(name) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

pub(crate) fn label_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push("must be no more than 63 characters".to_owned());
    }
    if !is_label(name) {
        problems.push(if name.contains('.') && is_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            LABEL.to_owned()
        });
    }
    problems
}

pub(crate) fn label_1035_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push("must be no more than 63 characters".to_owned());
    }
    if !(is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())) {
        problems.push(LABEL_1035.to_owned());
    }
    problems
}

fn is_name(name: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    name.bytes().all(inside) && edge(name.bytes().next()) && edge(name.bytes().last())
}

pub(crate) fn qualified_name_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(subdomain_problems(prefix).into_iter().map(|p| format!("prefix part {p}")));
            }
            *name
        }
        _ => return vec![LABEL_KEY.to_owned()],
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        problems.push(QUALIFIED_NAME.to_owned());
    }
    problems
}

pub(crate) fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

pub(crate) fn port_name_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters".to_owned());
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') || name.is_empty() {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    } else {
        if !name.bytes().any(|b| b.is_ascii_alphabetic()) {
            problems.push("must contain at least one letter (a-z)".to_owned());
        }
        if name.contains("--") {
            problems.push("must not contain consecutive hyphens".to_owned());
        }
        if name.starts_with('-') || name.ends_with('-') {
            problems.push("must not begin or end with a hyphen".to_owned());
        }
    }
    problems
}

pub(crate) fn config_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        problems.push(CONFIG_KEY.to_owned());
    }
    if key == "." {
        problems.push("must not be '.'".to_owned());
    } else if key == ".." {
        problems.push("must not be '..'".to_owned());
    } else if key.starts_with("..") {
        problems.push("must not start with '..'".to_owned());
    }
    problems
}

/// Whether an address with a prefix length can be read.
pub(crate) fn parse_network(text: &str) -> Option<(std::net::IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address: std::net::IpAddr = address.parse().ok()?;
    let length: u8 = length.parse().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}
