//! Values of custom resources against their schema, in the server's words.

use std::fmt::Write as _;

use serde_json::Value;

use super::cel;
use crate::schema::{ListType, Schema, Type};
use crate::status::{Cause, CauseReason};

/// Everything that is wrong with the object. `old` is the state before an update.
pub(crate) fn validate(value: &Value, old: Option<&Value>, schema: &Schema) -> Vec<Cause> {
    let mut found = Vec::new();
    walk(value, schema, &mut String::new(), true, &mut found);
    if let Some(old) = old {
        found.retain(|cause| !is_unchanged(cause, value, old));
    }
    if found.is_empty() {
        cel::check(value, old, schema, &mut found);
        if let Some(old) = old {
            found.retain(|cause| !is_unchanged(cause, value, old));
        }
    }
    found
}

/// Whether a mistake is one of a value that the update leaves as it was: such a mistake is tolerated. Lists count as a
/// whole.
fn is_unchanged(cause: &Cause, new: &Value, old: &Value) -> bool {
    let mut path = cause.field.split('[').next().unwrap_or_default();
    if cause.reason == CauseReason::Required && path.len() == cause.field.len() {
        // What is missing is missing in the value around it.
        path = path.rsplit_once('.').map_or("", |(parent, _)| parent);
    }
    if path.is_empty() || path == "<nil>" {
        return false;
    }
    let at =
        |object: &Value| path.split('.').try_fold(object.clone(), |value, name| value.get(name).cloned());
    matches!((at(new), at(old)), (Some(new), Some(old)) if new == old)
}

pub(crate) fn cause(
    field: &str,
    reason: CauseReason,
    value: Option<String>,
    detail: impl Into<String>,
) -> Cause {
    Cause { field: field.to_owned(), reason, value, detail: detail.into() }
}

/// A mistake that is not tied to a field.
fn nowhere(detail: String) -> Cause {
    cause("<nil>", CauseReason::Invalid, Some("\"\"".to_owned()), detail)
}

/// A value as messages show it.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn fits(value: &Value, ty: Type) -> bool {
    match ty {
        Type::Any => true,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::IntOrString => value.is_string() || value.is_i64() || value.is_u64(),
    }
}

fn type_word(ty: Type) -> &'static str {
    match ty {
        Type::Any => "any",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
    }
}

fn walk(value: &Value, schema: &Schema, path: &mut String, root: bool, found: &mut Vec<Cause>) {
    if value.is_null() && (schema.nullable || schema.ty == Type::Any) {
        return;
    }
    if !fits(value, schema.ty) {
        let word = type_name(value);
        let detail = format!("{path} in body must be of type {}: \"{word}\"", type_word(schema.ty));
        found.push(cause(path, CauseReason::TypeInvalid, Some(format!("\"{word}\"")), detail));
        if schema.ty == Type::Integer && value.is_number() {
            found.push(nowhere(format!("Checked value must be of type integer (default format) in {path}")));
        }
        return;
    }
    let too_big = match (&*schema.format, value.as_i64()) {
        ("int32", Some(number)) => i32::try_from(number).is_err(),
        _ => false,
    };
    if too_big && schema.ty == Type::Integer {
        found.push(nowhere(format!("Checked value must be of type integer with format int32 in {path}")));
    }
    if let Some(rules) = &schema.rules {
        check_rules(value, &rules.node, path, found);
    }
    let length = path.len();
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                for name in ["apiVersion", "kind"] {
                    if map.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                        found.push(cause(&join(path, name), CauseReason::Required, None, ""));
                    }
                }
            }
            if let Some(fields) = &schema.fields {
                for name in &fields.required {
                    if !map.contains_key(&**name) {
                        let field = join(path, name);
                        found.push(cause(&field, CauseReason::Required, None, ""));
                    }
                }
            }
            for (name, below) in map {
                let Some(type_of) = schema.field(name) else { continue };
                if root && name == "metadata" {
                    if let Some(fields) = &type_of.fields {
                        for (name, below) in below.as_object().into_iter().flatten() {
                            if let Some(rules) =
                                fields.properties.get(name.as_str()).and_then(|field| field.rules.as_ref())
                            {
                                check_rules(below, &rules.node, &mut format!("metadata.{name}"), found);
                            }
                        }
                    }
                    continue;
                }
                if root && matches!(name.as_str(), "apiVersion" | "kind") {
                    continue;
                }
                push(path, name, schema.named_field(name).is_some());
                walk(below, type_of, path, false, found);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            check_list(items, schema, path, found);
            if let Some(type_of) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    let _ = write!(path, "[{index}]");
                    walk(item, type_of, path, false, found);
                    path.truncate(length);
                }
            }
        }
        _ => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn push(path: &mut String, name: &str, _is_field: bool) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn check_list(items: &[Value], schema: &Schema, path: &str, found: &mut Vec<Cause>) {
    match &schema.list {
        ListType::Atomic => {}
        ListType::Set => {
            for (index, item) in items.iter().enumerate() {
                if items[..index].contains(item) {
                    let field = format!("{path}[{index}]");
                    found.push(cause(&field, CauseReason::Duplicate, Some(show(item)), ""));
                }
            }
        }
        ListType::Map(keys) => {
            let of = |item: &Value| -> serde_json::Map<String, Value> {
                keys.iter()
                    .filter_map(|key| {
                        let given = item.get(&**key).cloned();
                        let value = given.or_else(|| {
                            schema.items.as_ref().and_then(|items| items.named_field(key)?.default.clone())
                        });
                        Some((key.to_string(), value?))
                    })
                    .collect()
            };
            for (index, item) in items.iter().enumerate() {
                let id = of(item);
                if items[..index].iter().any(|other| of(other) == id) {
                    let field = format!("{path}[{index}]");
                    found.push(cause(
                        &field,
                        CauseReason::Duplicate,
                        Some(Value::Object(id).to_string()),
                        "",
                    ));
                }
            }
        }
    }
}

fn check_rules(value: &Value, rules: &Value, path: &mut String, found: &mut Vec<Cause>) {
    let mut invalid = |reason: CauseReason, value: Option<String>, detail: String| {
        found.push(cause(path, reason, value, detail));
    };
    let whole = |name: &str| rules[name].as_u64();
    if let Some(number) = value.as_f64() {
        let shown = show(value);
        if let Some(limit) = rules["minimum"].as_f64() {
            let exclusive = rules["exclusiveMinimum"] == true;
            if number < limit || exclusive && number <= limit {
                let word = if exclusive { "greater than" } else { "greater than or equal to" };
                let detail = format!("{path} in body should be {word} {}", rules["minimum"]);
                invalid(CauseReason::Invalid, Some(shown.clone()), detail);
            }
        }
        if let Some(limit) = rules["maximum"].as_f64() {
            let exclusive = rules["exclusiveMaximum"] == true;
            if number > limit || exclusive && number >= limit {
                let word = if exclusive { "less than" } else { "less than or equal to" };
                let detail = format!("{path} in body should be {word} {}", rules["maximum"]);
                invalid(CauseReason::Invalid, Some(shown.clone()), detail);
            }
        }
        if let Some(factor) = rules["multipleOf"].as_f64()
            && factor > 0.0
            && (number / factor).fract() != 0.0
        {
            let detail = format!("{path} in body should be a multiple of {}", rules["multipleOf"]);
            invalid(CauseReason::Invalid, Some(shown), detail);
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if let Some(limit) = whole("maxLength").filter(|limit| length > *limit) {
            let detail = format!("may not be more than {limit} bytes");
            invalid(CauseReason::TooLong, None, detail);
        }
        if let Some(limit) = whole("minLength").filter(|limit| length < *limit) {
            let detail = format!("{path} in body should be at least {limit} chars long");
            invalid(CauseReason::Invalid, Some(show(value)), detail);
        }
        if let Some(pattern) = rules["pattern"].as_str()
            && !matches_pattern(pattern, text)
        {
            let detail = format!("{path} in body should match '{pattern}'");
            invalid(CauseReason::Invalid, Some(show(value)), detail);
        }
        if let Some(format) = rules["format"].as_str()
            && !fits_format(format, text)
        {
            let detail = format!("{path} in body must be of type {format}: {}", show(value));
            invalid(CauseReason::TypeInvalid, Some(show(value)), detail);
        }
    }
    if let Some(items) = value.as_array() {
        let length = items.len() as u64;
        if let Some(limit) = whole("minItems").filter(|limit| length < *limit) {
            let detail = format!("{path} in body should have at least {limit} items");
            invalid(CauseReason::Invalid, Some(length.to_string()), detail);
        }
        if let Some(limit) = whole("maxItems").filter(|limit| length > *limit) {
            let detail = format!("must have at most {limit} item{}", if limit == 1 { "" } else { "s" });
            invalid(CauseReason::TooMany, Some(length.to_string()), detail);
        }
    }
    if let Some(map) = value.as_object() {
        let length = map.len() as u64;
        if let Some(limit) = whole("minProperties").filter(|limit| length < *limit) {
            let detail = format!("{path} in body should have at least {limit} properties");
            invalid(CauseReason::Invalid, Some(length.to_string()), detail);
        }
        if let Some(limit) = whole("maxProperties").filter(|limit| length > *limit) {
            let detail = format!("must have at most {limit} item{}", if limit == 1 { "" } else { "s" });
            invalid(CauseReason::TooMany, Some(length.to_string()), detail);
        }
    }
    if let Some(allowed) = rules["enum"].as_array()
        && !allowed.contains(value)
    {
        let list: Vec<String> = allowed.iter().map(show).collect();
        let detail = format!("supported values: {}", list.join(", "));
        invalid(CauseReason::NotSupported, Some(show(value)), detail);
    }
    check_branches(value, rules, path, found);
}

/// `allOf`, `anyOf`, `oneOf` and `not`.
fn check_branches(value: &Value, rules: &Value, path: &str, found: &mut Vec<Cause>) {
    let holds = |node: &Value| {
        let mut below = Vec::new();
        let schema = super::schema::convert(node);
        walk(value, &schema, &mut path.to_owned(), false, &mut below);
        below
    };
    let mut say = |detail: String| found.push(nowhere(detail));
    let branches = |name: &str| rules[name].as_array();
    if let Some(all) = branches("allOf") {
        let failed: Vec<Cause> = all.iter().flat_map(holds).collect();
        if !failed.is_empty() {
            say(format!("\"{path}\" must validate all the schemas (allOf)"));
            found.extend(failed);
            return;
        }
    }
    if let Some(any) = branches("anyOf") {
        let results: Vec<Vec<Cause>> = any.iter().map(holds).collect();
        if !results.iter().any(Vec::is_empty) {
            say(format!("\"{path}\" must validate at least one schema (anyOf)"));
            // The branch that came closest tells what is missing.
            if let Some(best) = results.into_iter().min_by_key(Vec::len) {
                found.extend(best);
            }
            return;
        }
    }
    if let Some(one) = branches("oneOf") {
        let results: Vec<Vec<Cause>> = one.iter().map(holds).collect();
        let good = results.iter().filter(|result| result.is_empty()).count();
        if good != 1 {
            let what = if good == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {good} valid alternatives")
            };
            say(format!("\"{path}\" must validate one and only one schema (oneOf). {what}"));
            if let (0, Some(best)) = (good, results.into_iter().min_by_key(Vec::len)) {
                found.extend(best);
            }
            return;
        }
    }
    if rules["not"].is_object() && holds(&rules["not"]).is_empty() {
        say(format!("\"{path}\" must not validate the schema (not)"));
    }
}

fn matches_pattern(pattern: &str, text: &str) -> bool {
    use std::collections::HashMap;
    use std::sync::OnceLock;

    use parking_lot::Mutex;
    use regex::Regex;

    static KNOWN: OnceLock<Mutex<HashMap<String, Option<Regex>>>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    let mut known = known.lock();
    let regex = known.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
    // A pattern that is no regular expression here restricts nothing.
    regex.as_ref().is_none_or(|regex| regex.is_match(text))
}

/// Formats that a server checks; unknown ones fit always.
fn fits_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uuid" => {
            let bare = text.replace('-', "");
            bare.len() == 32 && bare.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        "email" => text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty()),
        "uri" => text.contains("://") || text.starts_with('/'),
        "hostname" => {
            !text.is_empty() && text.len() <= 255 && !text.contains(|c: char| c.is_whitespace() || c == '_')
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn check(schema: Value, value: Value, want: &[&str]) {
        let schema = super::super::schema::convert(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["r"], "properties": {"r": {"type": "string"}, "f": schema}}}}),
        );
        let found = validate(&json!({"spec": {"r": "", "f": value}}), None, &schema);
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
    }

    #[test]
    fn rules_and_their_messages() {
        check(
            json!({"type": "integer"}),
            json!("x"),
            &["spec.f: Invalid value: \"string\": spec.f in body must be of type integer: \"string\""],
        );
        check(
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            &["spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 1"],
        );
        check(
            json!({"type": "string", "pattern": "^a$"}),
            json!("b"),
            &["spec.f: Invalid value: \"b\": spec.f in body should match '^a$'"],
        );
        check(
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            &["spec.f: Unsupported value: \"c\": supported values: \"a\", \"b\""],
        );
        check(
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "a"]),
            &["spec.f[1]: Duplicate value: \"a\""],
        );
        check(json!({"type": "string", "nullable": true}), json!(null), &[]);
        check(json!({"x-kubernetes-int-or-string": true}), json!("5%"), &[]);
    }

    #[test]
    fn required_fields() {
        let schema = super::super::schema::convert(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["r"], "properties": {"r": {"type": "string"}}}}}),
        );
        let found = validate(&json!({"spec": {}}), None, &schema);
        assert_eq!(found[0].to_string(), "spec.r: Required value");
    }
}
