//! Reading and writing parts of objects.

use serde_json::{Map, Value, json};

/// The text at a key; empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The value at a path of keys; null where there is none.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, key| &value[*key])
}

/// The elements of the list at a key.
pub(crate) fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The fields of the object at a key.
pub(crate) fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// Whether the value at a key is absent, null, empty text or zero: what a Go type without a pointer cannot tell apart.
pub(crate) fn unset(value: &Value, key: &str) -> bool {
    match value.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(_) => false,
    }
}

/// The elements of the list at a key, to be changed.
pub(crate) fn items_mut<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The object at a key, to be changed, if it is there.
pub(crate) fn part<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    value.get_mut(key).filter(|inner| inner.is_object())
}

/// The object at a key, made where it is absent.
pub(crate) fn made<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let inner = &mut value[key];
    if inner.is_null() {
        *inner = Value::Object(Map::new());
    }
    inner
}

/// Sets what is absent or null.
pub(crate) fn default(value: &mut Value, key: &str, content: Value) {
    if value.is_object() && value.get(key).is_none_or(Value::is_null) {
        value[key] = content;
    }
}

/// Sets what is absent, null, empty or zero.
pub(crate) fn default_zero(value: &mut Value, key: &str, content: Value) {
    if value.is_object() && unset(value, key) {
        value[key] = content;
    }
}

/// Removes a key.
pub(crate) fn remove(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut().and_then(|fields| fields.remove(key))
}

/// Gives `value` the same content at a key as `from` has, which may be none.
pub(crate) fn copy(value: &mut Value, from: &Value, key: &str) {
    match from.get(key) {
        Some(content) if !content.is_null() => {
            if value.is_object() {
                value[key] = content.clone();
            }
        }
        _ => {
            remove(value, key);
        }
    }
}

/// Whether two values are the same where absent, null and empty count as equal.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(key, value)| same(value, b.get(key).unwrap_or(&Value::Null)))
                && b.iter().all(|(key, value)| a.contains_key(key) || same(&Value::Null, value))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Null, other) | (other, Value::Null) => match other {
            Value::Null => true,
            Value::Object(fields) => fields.values().all(|inner| same(&Value::Null, inner)),
            Value::Array(items) => items.is_empty(),
            _ => false,
        },
        (a, b) => a == b,
    }
}

/// The generation of an object.
pub(crate) fn generation(value: &Value) -> i64 {
    at(value, &["metadata", "generation"]).as_i64().unwrap_or_default()
}

/// Writes the generation of an object.
pub(crate) fn set_generation(value: &mut Value, generation: i64) {
    made(value, "metadata")["generation"] = json!(generation);
}
