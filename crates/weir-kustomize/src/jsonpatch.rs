//! JSON patches (RFC 6902) with the habits of the library kustomize uses: a missing map key is added by
//! `replace`, negative indices count from the end, what stands before the first slash of a path is ignored.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::node::Node;

/// A decoded patch: a list of operation objects, looked at when they are applied.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonPatch(Vec<serde_json::Map<String, Value>>);

impl JsonPatch {
    /// Reads operations from JSON, or from the first YAML document of the text.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::message("empty json patch operations"));
        }
        let value = if text.starts_with('[') {
            serde_json::from_str(text).map_err(|error| Error::message(error.to_string()))?
        } else {
            crate::kustomization::read_config(text.as_bytes())?
        };
        match value {
            Value::Null => Ok(Self(Vec::new())),
            Value::Array(items) => {
                let operations = items
                    .into_iter()
                    .map(|item| match item {
                        Value::Object(object) => Ok(object),
                        Value::Null => Ok(serde_json::Map::new()),
                        _ => Err(Error::message(
                            "json: cannot unmarshal a patch operation that is not an object",
                        )),
                    })
                    .collect::<Result<_>>()?;
                Ok(Self(operations))
            }
            _ => Err(Error::message("json: cannot unmarshal object into Go value of type jsonpatch.Patch")),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies the operations to an object tree; all its numbers come out as 64-bit floats.
    pub(crate) fn apply(&self, object: &Node) -> Result<Node> {
        let mut document = object.to_json()?;
        for operation in &self.0 {
            apply_operation(&mut document, operation)?;
        }
        if !document.is_object() {
            return Err(Error::message(
                "json: cannot unmarshal array into Go value of type map[string]interface {}",
            ));
        }
        Ok(Node::from_patched_json(document))
    }
}

fn apply_operation(document: &mut Value, operation: &serde_json::Map<String, Value>) -> Result<()> {
    let kind = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
    let path = operation.get("path").and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let missing_path = || Error::message(format!("{kind} operation failed to decode path: missing value"));
    match kind {
        "add" => {
            let path = path.ok_or_else(missing_path)?;
            let (parent, key) = find(document, path).ok_or_else(|| {
                Error::message(format!(
                    "add operation does not apply: doc is missing path: \"{path}\": missing value"
                ))
            })?;
            add(parent, &key, value())
                .map_err(|error| error.within(format!("error in add for path: '{path}'")))
        }
        "remove" => {
            let path = path.ok_or_else(missing_path)?;
            let (parent, key) = find(document, path).ok_or_else(|| {
                Error::message(format!(
                    "remove operation does not apply: doc is missing path: \"{path}\": missing value"
                ))
            })?;
            remove(parent, &key)
                .map(drop)
                .map_err(|error| error.within(format!("error in remove for path: '{path}'")))
        }
        "replace" => replace(document, path.ok_or_else(missing_path)?, value()),
        "move" => {
            let from = from(operation, kind)?;
            let (parent, key) = find(document, from).ok_or_else(|| {
                Error::message(format!(
                    "move operation does not apply: doc is missing from path: {from}: missing value"
                ))
            })?;
            let taken = remove(parent, &key)
                .map_err(|error| error.within(format!("error in move for path: '{key}'")))?;
            let path = path.ok_or_else(missing_path)?;
            let (parent, key) = find(document, path).ok_or_else(|| {
                Error::message(format!(
                    "move operation does not apply: doc is missing destination path: {path}: missing value"
                ))
            })?;
            add(parent, &key, taken)
                .map_err(|error| error.within(format!("error in move for path: '{path}'")))
        }
        "copy" => {
            let from = from(operation, kind)?;
            let (parent, key) = find(document, from).ok_or_else(|| {
                Error::message(format!(
                    "copy operation does not apply: doc is missing from path: {from}: missing value"
                ))
            })?;
            let copied = get(parent, &key)
                .map_err(|error| error.within(format!("error in copy for from: '{from}'")))?
                .cloned()
                .unwrap_or(Value::Null);
            let path = path.ok_or_else(missing_path)?;
            let (parent, key) = find(document, path).ok_or_else(|| {
                Error::message(format!(
                    "copy operation does not apply: doc is missing destination path: {path}: missing value"
                ))
            })?;
            add(parent, &key, copied).map_err(|error| error.within("error while adding value during copy"))
        }
        "test" => test(document, path.ok_or_else(missing_path)?, &value()),
        other => Err(Error::message(format!("Unexpected kind: {other}"))),
    }
}

fn from<'a>(operation: &'a serde_json::Map<String, Value>, kind: &str) -> Result<&'a str> {
    operation.get("from").and_then(Value::as_str).ok_or_else(|| {
        Error::message(format!(
            "{kind} operation failed to decode from: operation, missing from field: missing value"
        ))
    })
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<()> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(Error::message("replace operation value must be object or array"));
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = find(document, path).ok_or_else(|| {
        Error::message(format!(
            "replace operation does not apply: doc is missing path: {path}: missing value"
        ))
    })?;
    let missing = || {
        Error::message(format!("replace operation does not apply: doc is missing key: {path}: missing value"))
    };
    match parent {
        Value::Object(object) => {
            object.insert(key, value);
            Ok(())
        }
        Value::Array(list) => {
            let index = index(&key, list.len()).map_err(|_| missing())?;
            *list.get_mut(index).ok_or_else(missing)? = value;
            Ok(())
        }
        _ => Err(missing()),
    }
}

fn test(document: &mut Value, path: &str, wanted: &Value) -> Result<()> {
    let failed = || Error::message(format!("testing value {path} failed: test failed"));
    if path.is_empty() {
        return if document == wanted { Ok(()) } else { Err(failed()) };
    }
    let (parent, key) = find(document, path).ok_or_else(|| {
        Error::message(format!("test operation does not apply: is missing path: {path}: missing value"))
    })?;
    let found =
        get(parent, &key).map_err(|error| error.within(format!("error in test for path: '{path}'")))?;
    if found.unwrap_or(&Value::Null) == wanted { Ok(()) } else { Err(failed()) }
}

/// The parent a path leads to and the last key; `None` if the parent does not exist.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut parts: Vec<String> = path.split('/').map(unescape).collect();
    if parts.len() < 2 {
        return None;
    }
    let key = parts.pop()?;
    let mut parent = document;
    for part in &parts[1..] {
        parent = match parent {
            Value::Object(object) => object.get_mut(part)?,
            Value::Array(list) => {
                let index = index(part, list.len()).ok()?;
                list.get_mut(index)?
            }
            _ => return None,
        };
    }
    (parent.is_object() || parent.is_array()).then_some((parent, key))
}

fn unescape(part: &str) -> String {
    let mut result = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(position) = rest.find('~') {
        result.push_str(&rest[..position]);
        let (character, width) = match rest.as_bytes().get(position + 1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        result.push(character);
        rest = &rest[position + width..];
    }
    result.push_str(rest);
    result
}

fn invalid_index(index: i64) -> Error {
    Error::message(format!("Unable to access invalid index: {index}: invalid index referenced"))
}

/// A list index; negative ones count from `length`.
fn index(key: &str, length: usize) -> Result<usize> {
    let number: i64 =
        key.parse().map_err(|_| Error::message(format!("value was not a proper array index: '{key}'")))?;
    let absolute = if number < 0 { number + length as i64 } else { number };
    usize::try_from(absolute).map_err(|_| invalid_index(number))
}

fn get<'a>(parent: &'a Value, key: &str) -> Result<Option<&'a Value>> {
    match parent {
        Value::Object(object) => Ok(object.get(key)),
        Value::Array(list) => {
            let index = index(key, list.len())?;
            list.get(index).map(Some).ok_or_else(|| invalid_index(index as i64))
        }
        _ => Ok(None),
    }
}

fn add(parent: &mut Value, key: &str, value: Value) -> Result<()> {
    match parent {
        Value::Object(object) => {
            object.insert(key.to_owned(), value);
        }
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => {
            let index = index(key, list.len() + 1)?;
            if index > list.len() {
                return Err(invalid_index(index as i64));
            }
            list.insert(index, value);
        }
        _ => {}
    }
    Ok(())
}

fn remove(parent: &mut Value, key: &str) -> Result<Value> {
    match parent {
        Value::Object(object) => object
            .remove(key)
            .ok_or_else(|| Error::message(format!("Unable to remove nonexistent key: {key}: missing value"))),
        Value::Array(list) => {
            let index = index(key, list.len())?;
            if index >= list.len() {
                return Err(invalid_index(index as i64));
            }
            Ok(list.remove(index))
        }
        _ => Ok(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(document: Value, operations: &Value, expected: Result<Value, &str>) {
        let patch = JsonPatch::parse(&operations.to_string()).unwrap();
        let result = patch.apply(&Node::from_json(document));
        match expected {
            Ok(value) => assert_eq!(result.unwrap().to_json().unwrap(), value),
            Err(text) => assert_eq!(result.unwrap_err().to_string(), text),
        }
    }

    #[test]
    fn operations_follow_the_reference() {
        check(
            json!({"a": [1, 2]}),
            &json!([{"op": "add", "path": "/a/1", "value": 9}]),
            Ok(json!({"a": [1, 9, 2]})),
        );
        check(
            json!({"a": [1]}),
            &json!([{"op": "add", "path": "/a/-", "value": 2}]),
            Ok(json!({"a": [1, 2]})),
        );
        check(
            json!({"a": [1]}),
            &json!([{"op": "add", "path": "/a/-1", "value": 2}]),
            Ok(json!({"a": [1, 2]})),
        );
        check(
            json!({"a": [1]}),
            &json!([{"op": "add", "path": "/a/5", "value": 2}]),
            Err("error in add for path: '/a/5': Unable to access invalid index: 5: invalid index referenced"),
        );
        check(
            json!({}),
            &json!([{"op": "add", "path": "/a/b", "value": 2}]),
            Err("add operation does not apply: doc is missing path: \"/a/b\": missing value"),
        );
        check(
            json!({"a": 1}),
            &json!([{"op": "replace", "path": "/b", "value": 2}]),
            Ok(json!({"a": 1, "b": 2})),
        );
        check(
            json!({"a": 1}),
            &json!([{"op": "remove", "path": "/b"}]),
            Err("error in remove for path: '/b': Unable to remove nonexistent key: b: missing value"),
        );
        check(json!({"a/b": 1}), &json!([{"op": "remove", "path": "/a~1b"}]), Ok(json!({})));
        check(json!({"a": 1}), &json!([{"op": "test", "path": "/b", "value": null}]), Ok(json!({"a": 1})));
        check(
            json!({"a": 1}),
            &json!([{"op": "test", "path": "/a", "value": 2}]),
            Err("testing value /a failed: test failed"),
        );
        check(json!({"a": 1}), &json!([{"op": "move", "from": "/a", "path": "/b"}]), Ok(json!({"b": 1})));
        check(json!({"a": 1}), &json!([{"op": "mix", "path": "/a"}]), Err("Unexpected kind: mix"));
        check(
            json!({"a": 9_007_199_254_740_993_i64}),
            &json!([]),
            Ok(json!({"a": 9_007_199_254_740_992_i64})),
        );
    }
}
