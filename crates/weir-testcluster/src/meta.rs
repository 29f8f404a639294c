//! Names, and what must hold for `metadata` of every kind.

use serde_json::{Map, Value, json};

use crate::builtin;
use crate::kinds::Kind;
use crate::status::{Cause, CauseReason};

pub(crate) fn text<'v>(object: &'v Value, name: &str) -> &'v str {
    object["metadata"][name].as_str().unwrap_or_default()
}

/// The metadata of an object, made when missing.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match object.get_mut("metadata") {
        Some(Value::Object(map)) => map,
        // Made above.
        _ => unreachable!("metadata was made above"),
    }
}

pub(crate) fn set(object: &mut Value, name: &str, value: Value) {
    metadata(object).insert(name.to_owned(), value);
}

/// Sets, or removes for null and empty values.
pub(crate) fn set_or_remove(object: &mut Value, name: &str, value: Option<Value>) {
    let metadata = metadata(object);
    match value {
        Some(value) => metadata.insert(name.to_owned(), value),
        None => metadata.remove(name),
    };
}

pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    crate::crd::schema::texts(&object["metadata"]["finalizers"])
}

pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    set_or_remove(object, "finalizers", (!finalizers.is_empty()).then(|| json!(finalizers)));
}

fn cause(field: &str, reason: CauseReason, value: Option<String>, detail: impl Into<String>) -> Cause {
    Cause { field: field.to_owned(), reason, value, detail: detail.into() }
}

/// What is wrong with the metadata of an object.
pub(crate) fn validate(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut found = builtin::validate_metadata(&kind.gvk, object);
    if crate::rules::is_definition(kind) {
        // The server's own finalizer has no domain.
        found.retain(|cause| {
            cause.value.as_deref().is_none_or(|value| !value.contains(crate::delete::CUSTOM_CLEANUP))
        });
    }
    if !kind.is_builtin() {
        // Custom resources are only warned about.
        found.retain(|cause| !cause.detail.starts_with("name is neither a standard finalizer name"));
    }
    if kind.namespaced && text(object, "namespace").is_empty() {
        found.push(cause("metadata.namespace", CauseReason::Required, None, ""));
    }
    if !kind.namespaced && !text(object, "namespace").is_empty() {
        found.push(cause("metadata.namespace", CauseReason::Forbidden, None, "not allowed on this type"));
    }
    found
}

/// What an update may not change in the metadata.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut found = Vec::new();
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        if new["metadata"][field] != old["metadata"][field] {
            found.push(cause(
                &format!("metadata.{field}"),
                CauseReason::Invalid,
                Some(new["metadata"][field].to_string()),
                "field is immutable",
            ));
        }
    }
    if old["metadata"]["deletionTimestamp"].is_string() {
        let before = finalizers(old);
        let fresh: Vec<String> = finalizers(new).into_iter().filter(|name| !before.contains(name)).collect();
        if !fresh.is_empty() {
            let list: Vec<String> = fresh.iter().map(|name| json!(name).to_string()).collect();
            found.push(cause(
                "metadata.finalizers",
                CauseReason::Forbidden,
                None,
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    list.join(", ")
                ),
            ));
        }
    }
    found
}
