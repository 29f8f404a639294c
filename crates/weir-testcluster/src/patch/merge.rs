//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Lays the patch over the value; null removes.
pub(crate) fn apply(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else { return };
    for (name, over) in patch {
        if over.is_null() {
            map.remove(name);
        } else {
            apply(map.entry(name.clone()).or_insert(Value::Null), over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patches() {
        for (value, patch, want) in [
            (json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null}}), json!({"a": {"c": 2}})),
            (json!({"a": [1]}), json!({"a": [2, null]}), json!({"a": [2, null]})),
            (json!({"a": 1}), json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}})),
        ] {
            let mut out = value.clone();
            apply(&mut out, &patch);
            assert_eq!(out, want, "{value} + {patch}");
        }
    }
}
