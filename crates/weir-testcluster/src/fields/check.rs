//! Whether a configuration fits its schema, said in the words of server-side apply.

use std::fmt::Write as _;

use serde_json::Value;

use super::walk::element_of;
use crate::edit::go_map;
use crate::schema::{ListType, Schema, Type};

/// Everything of the configuration that its type does not know, as `.path: mistake`.
pub(crate) fn check(value: &Value, schema: Option<&Schema>) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, schema, &mut String::new(), &mut found);
    found
}

fn walk(value: &Value, schema: Option<&Schema>, path: &mut String, found: &mut Vec<String>) {
    let Some(schema) = schema else { return };
    if value.is_null() {
        return;
    }
    let wrong = |expected: &str| {
        let got = match (expected, value) {
            ("map" | "list", other) => format!("&{{{}}}", go_map(other)),
            ("numeric (int or float)", Value::String(_)) => "string".to_owned(),
            ("numeric (int or float)", Value::Bool(_)) => "boolean".to_owned(),
            (_, other) => go_value(other),
        };
        format!("{path}: expected {expected}, got {got}")
    };
    match (schema.ty, value) {
        (Type::String, Value::String(_))
        | (Type::Integer | Type::Number, Value::Number(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::IntOrString | Type::Any, _) => {}
        (Type::String, _) => found.push(wrong("string")),
        (Type::Integer | Type::Number, _) => found.push(wrong("numeric (int or float)")),
        (Type::Boolean, _) => found.push(wrong("boolean")),
        (Type::Object, Value::Object(map)) => {
            let length = path.len();
            for (name, below) in map {
                path.push('.');
                path.push_str(name);
                match schema.field(name) {
                    Some(type_of) => walk(below, Some(type_of), path, found),
                    None if schema.preserve_unknown || schema.fields.is_none() => {}
                    None => found.push(format!("{path}: field not declared in schema")),
                }
                path.truncate(length);
            }
        }
        (Type::Object, _) => found.push(wrong("map")),
        (Type::Array, Value::Array(items)) => {
            let length = path.len();
            let mut seen = std::collections::BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                if schema.list == ListType::Atomic {
                    let _ = write!(path, "[{index}]");
                } else if let Some(element) = element_of(item, schema, index) {
                    if !seen.insert(element.clone()) {
                        found.push(format!("{path}: duplicate entries for key {element}"));
                    }
                    path.push_str(&element.to_string());
                } else {
                    if let ListType::Map(keys) = &schema.list {
                        let key = keys.first().map_or("", |key| key);
                        found.push(format!(
                            "{path}: element {index}: associative list with keys has an element that omits key field \"{key}\" (and doesn't have default value)"
                        ));
                    }
                    continue;
                }
                walk(item, schema.items.as_deref(), path, found);
                path.truncate(length);
            }
        }
        (Type::Array, _) => found.push(wrong("list")),
    }
}

/// A value as Go's `%v` prints it in these messages.
fn go_value(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => format!("&{{{}}}", go_map(value)),
        Value::Null => "&value.valueUnstructured{Value:interface {}(nil)}".to_owned(),
        scalar => format!("&value.valueUnstructured{{Value:{scalar}}}"),
    }
}
