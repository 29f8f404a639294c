//! Minimal patches, so that a write touches nothing but what changed.

use serde::Serialize;
use serde_json::{Map, Value};

/// The smallest JSON merge patch that turns `old` into `new`; none if they are equal.
///
/// Lists are replaced as a whole, as [RFC 7386](https://www.rfc-editor.org/rfc/rfc7386) demands. A `null` inside `new` cannot
/// be expressed and becomes a removal. Fields that neither value has, such as those of a newer API version, stay untouched.
pub fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return Some(without_nulls(new));
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| new.get(*key).is_none_or(Value::is_null)) {
        if !old[key].is_null() {
            patch.insert(key.clone(), Value::Null);
        }
    }
    for (key, value) in new.iter().filter(|(_, value)| !value.is_null()) {
        match old.get(key) {
            Some(before) => {
                if let Some(change) = merge_patch(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
            None => {
                patch.insert(key.clone(), without_nulls(value));
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// A merge patch of the status subresource that turns `old` into `new`; none if they are equal.
///
/// # Errors
/// Only if a value cannot be written as JSON.
pub fn status_patch<T: Serialize>(old: &T, new: &T) -> Result<Option<Value>, serde_json::Error> {
    let patch = merge_patch(&serde_json::to_value(old)?, &serde_json::to_value(new)?);
    Ok(patch.map(|patch| serde_json::json!({ "status": patch })))
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(old: &Value, new: &Value, expected: Option<&Value>) {
        assert_eq!(merge_patch(old, new).as_ref(), expected);
    }

    #[test]
    fn only_changed_fields() {
        check(&json!({}), &json!({}), None);
        check(&json!({"a": 1, "b": 2}), &json!({"a": 1, "b": 3}), Some(&json!({"b": 3})));
        check(&json!({"a": 1, "b": 2}), &json!({"a": 1}), Some(&json!({"b": null})));
        check(&json!({"a": 1}), &json!({"a": 1, "b": {"c": null, "d": 1}}), Some(&json!({"b": {"d": 1}})));
        check(
            &json!({"a": {"b": 1, "c": 2}}),
            &json!({"a": {"b": 1, "c": 3}}),
            Some(&json!({"a": {"c": 3}})),
        );
        check(&json!({"a": [1, 2]}), &json!({"a": [1, 2]}), None);
        check(&json!({"a": [1, 2]}), &json!({"a": [1, 3]}), Some(&json!({"a": [1, 3]})));
        check(&json!({"a": {"b": 1}}), &json!({"a": {}}), Some(&json!({"a": {"b": null}})));
        check(&json!({"a": {"b": 1}}), &json!({"a": 1}), Some(&json!({"a": 1})));
        check(&json!({"a": 1}), &json!({"a": {"b": 1}}), Some(&json!({"a": {"b": 1}})));
        check(&json!({"a": null}), &json!({}), None);
    }

    fn apply(target: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut result = target.as_object().cloned().unwrap_or_default();
        for (key, value) in patch {
            if value.is_null() {
                result.remove(key);
            } else {
                let before = result.get(key).cloned().unwrap_or(Value::Null);
                result.insert(key.clone(), apply(&before, value));
            }
        }
        Value::Object(result)
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..4).prop_map(Value::from),
            "[a-b]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn applying_the_patch_gives_the_new_value(old in tree(), new in tree()) {
            prop_assert_eq!(merge_patch(&old, &new).is_none(), old == new);
            if let Some(patch) = merge_patch(&old, &new) {
                prop_assert_eq!(apply(&old, &patch), new);
            }
        }
    }
}
