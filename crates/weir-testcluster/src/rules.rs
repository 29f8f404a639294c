//! What a kind asks of its objects, built-in or custom.

use serde_json::{Value, json};

use crate::GroupVersionKind;
use crate::builtin;
use crate::crd::{definition, schema, validate};
use crate::kinds::Kind;
use crate::status::Cause;

/// Whether objects of the kind are definitions of custom resources.
pub(crate) fn is_definition(kind: &Kind) -> bool {
    kind.plural == "customresourcedefinitions" && kind.gvk.group == "apiextensions.k8s.io"
}

/// Gives the object the form it is stored in and returns the paths of the unknown fields that went.
///
/// # Errors
/// Why the object cannot be read as this kind.
pub(crate) fn decode(kind: &Kind, object: &mut Value) -> Result<Vec<String>, String> {
    match &kind.custom {
        None => builtin::decode(&kind.gvk, object).map_err(|text| {
            let intro = format!("cannot be handled as a {}: ", kind.gvk.kind);
            text.split_once(&intro).map_or(text.clone(), |(_, cause)| cause.to_owned())
        }),
        Some(version) => {
            let mut unknown = match object.get_mut("metadata") {
                Some(metadata) => decode_metadata(metadata)?,
                None => Vec::new(),
            };
            if let Some(schema) = &version.schema {
                unknown.extend(schema::prune(object, schema));
            }
            Ok(unknown)
        }
    }
}

/// Metadata outside of built-in kinds is read by the type that all kinds share.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn decode_metadata(metadata: &mut Value) -> Result<Vec<String>, String> {
    let mut carrier = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata.take()});
    let outcome = builtin::decode(&GroupVersionKind::new("", "v1", "ConfigMap"), &mut carrier);
    *metadata = carrier["metadata"].take();
    outcome.map_err(|text| {
        let cause = text.rsplit("cannot be handled as a ConfigMap: ").next().unwrap_or_default();
        cause.replace("ObjectMeta.metadata.", "ObjectMeta.")
    })
}

/// Fills in defaults.
pub(crate) fn set_defaults(kind: &Kind, object: &mut Value) {
    match &kind.custom {
        None => {
            builtin::set_defaults(&kind.gvk, object);
            if is_definition(kind) {
                definition::set_defaults(object);
            }
        }
        Some(version) => {
            if let Some(schema) = &version.schema {
                schema::set_defaults(object, schema);
            }
        }
    }
}

/// What the server does to an object before it is created.
pub(crate) fn prepare_create(kind: &Kind, object: &mut Value) {
    match &kind.custom {
        None => builtin::prepare_create(&kind.gvk, object),
        Some(version) => {
            if version.has_status
                && let Some(map) = object.as_object_mut()
            {
                map.remove("status");
                // A default of the status comes when the stored object is read.
                if let Some(schema) = &version.schema {
                    schema::set_defaults(object, schema);
                }
            }
            object["metadata"]["generation"] = json!(1);
        }
    }
}

/// What the server does to an object before it is updated, by itself or by a subresource.
pub(crate) fn prepare_update(kind: &Kind, new: &mut Value, old: &Value, subresource: &str) {
    let Some(version) = &kind.custom else {
        builtin::prepare_update(&kind.gvk, new, old, subresource);
        return;
    };
    let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
    if subresource == "status" {
        let status = new.get("status").cloned();
        let managed = new["metadata"].get("managedFields").cloned();
        *new = old.clone();
        replace(new, "status", status);
        if let Some(metadata) = new.get_mut("metadata") {
            replace(metadata, "managedFields", managed);
        }
        return;
    }
    if version.has_status {
        replace(new, "status", old.get("status").cloned());
    }
    let differs = {
        let (new, old) = (new.as_object(), old.as_object());
        let relevant = |name: &str| name != "metadata" && !(version.has_status && name == "status");
        let part = |map: Option<&serde_json::Map<String, Value>>| -> Vec<(String, Value)> {
            map.into_iter()
                .flatten()
                .filter(|(n, _)| relevant(n))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect()
        };
        part(new) != part(old)
    };
    new["metadata"]["generation"] = json!(generation + i64::from(differs));
}

fn replace(object: &mut Value, name: &str, value: Option<Value>) {
    if let Some(map) = object.as_object_mut() {
        match value {
            Some(value) => map.insert(name.to_owned(), value),
            None => map.remove(name),
        };
    }
}

/// Everything that is wrong with a new object, apart from its metadata.
pub(crate) fn validate_create(kind: &Kind, object: &Value) -> Vec<Cause> {
    match &kind.custom {
        None if is_definition(kind) => definition::validate(object),
        None => builtin::validate_create(&kind.gvk, object),
        Some(version) => {
            version.schema.as_ref().map(|schema| validate::validate(object, None, schema)).unwrap_or_default()
        }
    }
}

/// Everything that is wrong with a change.
pub(crate) fn validate_update(kind: &Kind, new: &Value, old: &Value, subresource: &str) -> Vec<Cause> {
    match &kind.custom {
        None if is_definition(kind) => {
            let found = definition::validate_update(new, old);
            if !subresource.is_empty() || !found.is_empty() { found } else { definition::validate(new) }
        }
        None if subresource == "status" => builtin::validate_status(&kind.gvk, new),
        None => builtin::validate_update(&kind.gvk, new, old),
        Some(version) => version
            .schema
            .as_ref()
            .map(|schema| {
                let mut found = validate::validate(new, Some(old), schema);
                if subresource == "status" {
                    // What was wrong with the rest is not the business of the status.
                    found.retain(|cause| cause.field.starts_with("status"));
                }
                found
            })
            .unwrap_or_default(),
    }
}

/// The object in another version of its kind.
pub(crate) fn convert(from: &GroupVersionKind, to: &GroupVersionKind, object: &mut Value) {
    if from != to {
        builtin::convert(from, to, object);
        object["apiVersion"] = json!(to.api_version());
        object["kind"] = json!(to.kind);
    }
}

/// Whether two versions of a kind differ in more than their name.
pub(crate) fn has_conversion(from: &GroupVersionKind, _to: &GroupVersionKind) -> bool {
    matches!(from.kind.as_str(), "HorizontalPodAutoscaler" | "Event")
}

/// Whether objects of the kind are namespaces.
pub(crate) fn is_namespace(kind: &Kind) -> bool {
    kind.plural == "namespaces" && kind.gvk.group.is_empty()
}

/// Gives a stored custom resource what its version's schema says now.
pub(crate) fn refresh(kind: &Kind, object: &mut Value) {
    if let Some(schema) = kind.custom.as_ref().and_then(|version| version.schema.as_ref()) {
        schema::prune(object, schema);
        schema::set_defaults(object, schema);
    }
}
