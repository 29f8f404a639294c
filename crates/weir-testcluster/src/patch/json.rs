//! JSON patch (RFC 6902) as the server's library reads it.

use serde_json::Value;

/// Why a patch was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is no JSON patch.
    Malformed(String),
    /// It does not fit the object.
    Failed(String),
}

/// Applies the operations one after the other; the value is undefined after a failure.
pub(crate) fn apply(value: &mut Value, patch: &Value) -> Result<(), Refused> {
    let malformed = |text: String| Refused::Malformed(text);
    let operations = patch.as_array().ok_or_else(|| {
        malformed("json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_owned())
    })?;
    for operation in operations {
        let text = |name: &str| operation[name].as_str().unwrap_or_default();
        let path = text("path");
        let failed = |what: &str| Refused::Failed(what.to_owned());
        match text("op") {
            "add" => add(value, path, operation.get("value").cloned().unwrap_or_default())?,
            "remove" => {
                remove(value, path).map_err(|()| {
                    failed(&format!(
                        "remove operation does not apply: doc is missing path: {path:?}: missing value"
                    ))
                })?;
            }
            "replace" => {
                // A field that is not there is added; an element is not.
                let new = operation.get("value").cloned().unwrap_or_default();
                let parent_is_there = split(path)
                    .is_some_and(|(parent, _)| value.pointer(parent).is_some_and(Value::is_object));
                if let Some(target) = find_mut(value, path) {
                    *target = new;
                } else if parent_is_there {
                    add(value, path, new)?;
                } else {
                    return Err(failed(&format!(
                        "replace operation does not apply: doc is missing path: {path}: missing value"
                    )));
                }
            }
            "test" => {
                let found = value.pointer(path);
                let want = operation.get("value").unwrap_or(&Value::Null);
                if found.unwrap_or(&Value::Null) != want {
                    return Err(failed(&format!("testing value {path} failed: test failed")));
                }
            }
            "copy" => {
                let from = text("from");
                let parent_is_there = split(from)
                    .is_some_and(|(parent, _)| value.pointer(parent).is_some_and(Value::is_object));
                let found = match value.pointer(from) {
                    Some(found) => found.clone(),
                    None if parent_is_there => Value::Null,
                    None => {
                        return Err(failed(&format!(
                            "copy operation does not apply: doc is missing from path: {from}: missing value"
                        )));
                    }
                };
                add(value, path, found)?;
            }
            "move" => {
                let found = remove(value, text("from"))
                    .map_err(|()| failed("move operation does not apply: doc is missing from path"))?;
                add(value, path, found)?;
            }
            other => return Err(failed(&format!("Unexpected kind: {other}"))),
        }
    }
    Ok(())
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// The parent's path and the last part.
fn split(path: &str) -> Option<(&str, String)> {
    path.rsplit_once('/').map(|(parent, last)| (parent, unescape(last)))
}

fn find_mut<'v>(value: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    value.pointer_mut(path)
}

fn add(value: &mut Value, path: &str, new: Value) -> Result<(), Refused> {
    let missing = || {
        Refused::Failed(format!("add operation does not apply: doc is missing path: {path:?}: missing value"))
    };
    let Some((parent, last)) = split(path) else {
        *value = new;
        return Ok(());
    };
    match find_mut(value, parent).ok_or_else(missing)? {
        Value::Object(map) => {
            map.insert(last, new);
        }
        Value::Array(items) => {
            let place = if last == "-" { items.len() } else { last.parse().map_err(|_| missing())? };
            if place > items.len() {
                return Err(Refused::Failed(format!(
                    "add operation does not apply: doc is missing path: {path:?}: Unable to access invalid index: {place}: invalid index referenced"
                )));
            }
            items.insert(place, new);
        }
        _ => return Err(missing()),
    }
    Ok(())
}

/// What was removed.
fn remove(value: &mut Value, path: &str) -> Result<Value, ()> {
    let (parent, last) = split(path).ok_or(())?;
    match find_mut(value, parent).ok_or(())? {
        Value::Object(map) => map.remove(&last).ok_or(()),
        Value::Array(items) => {
            let place: usize = last.parse().map_err(|_| ())?;
            if place < items.len() { Ok(items.remove(place)) } else { Err(()) }
        }
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn check(value: Value, patch: Value, want: Option<Value>) {
        let mut out = value;
        assert_eq!(apply(&mut out, &patch).ok().map(|()| out), want, "{patch}");
    }

    #[test]
    fn json_patches() {
        let start = json!({"a": {"b/c": 1}, "l": [1, 2]});
        let op = |op: &str, path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
        check(start.clone(), op("add", "/l/1", json!(9)), Some(json!({"a": {"b/c": 1}, "l": [1, 9, 2]})));
        check(start.clone(), op("add", "/l/-", json!(9)), Some(json!({"a": {"b/c": 1}, "l": [1, 2, 9]})));
        check(start.clone(), op("add", "/x/y", json!(9)), None);
        check(start.clone(), op("remove", "/a/b~1c", json!(null)), Some(json!({"a": {}, "l": [1, 2]})));
        check(
            start.clone(),
            op("replace", "/a/z", json!(1)),
            Some(json!({"a": {"b/c": 1, "z": 1}, "l": [1, 2]})),
        );
        check(start.clone(), op("replace", "/l/5", json!(1)), None);
        check(start.clone(), op("test", "/l/0", json!(2)), None);
        check(start.clone(), op("test", "/l/0", json!(1)), Some(start.clone()));
        check(
            start,
            json!([{"op": "move", "from": "/l", "path": "/m"}]),
            Some(json!({"a": {"b/c": 1}, "m": [1, 2]})),
        );
    }
}
