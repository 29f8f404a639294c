//! Patches of all types: read, applied, and refused in the server's words.

use serde_json::{Value, json};

use crate::GroupVersionKind;
use crate::body;
use crate::call::{Call, FieldValidation};
use crate::error::{ApiError, Subject};
use crate::kinds::Kind;
use crate::meta;
use crate::patch;
use crate::status::{Cause, CauseReason};

/// What a request does to an object.
pub(crate) enum Edit {
    Put(Value),
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

/// Tells about keys that YAML has twice, each by its line.
pub(crate) fn warn_duplicates(call: &Call, text: &str) {
    for line in text.lines().filter(|line| line.starts_with("  ")) {
        call.warn(line.trim());
    }
}

/// Reads a patch.
pub(crate) fn read_patch(call: &Call, strategic: bool) -> Result<Edit, ApiError> {
    let options = Subject { group: "meta.k8s.io", word: "PatchOptions", name: "" };
    let cause = |field: &str, reason, detail: &str| Cause {
        field: field.to_owned(),
        reason,
        value: None,
        detail: detail.to_owned(),
    };
    let media = body::media_type(&call.content_type);
    let is_apply = media == "application/apply-patch+yaml";
    if is_apply && call.query.get("fieldManager").is_empty() {
        let cause = cause("fieldManager", CauseReason::Required, "is required for apply patch");
        return Err(ApiError::invalid(options, &[cause]));
    }
    if !is_apply && call.query.has("force") {
        let cause = cause("force", CauseReason::Forbidden, "may not be specified for non-apply patch");
        return Err(ApiError::invalid(options, &[cause]));
    }
    if call.query.get("fieldManager").len() > 128 {
        let cause = cause("fieldManager", CauseReason::TooLong, "may not be more than 128 bytes");
        return Err(ApiError::invalid(options, &[cause]));
    }
    let json = || {
        body::read_json(&call.body, "")
            .map(|decoded| decoded.value)
            .map_err(|_| ApiError::bad_request("invalid JSON patch"))
    };
    let unfit = |found: &Value, wanted: &str| {
        let word = match found {
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) | Value::Null => "bool",
        };
        ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {word} into Go value of type {wanted}"
        ))
    };
    let object = |value: Value| {
        if value.is_object() { Ok(value) } else { Err(unfit(&value, "map[string]interface {}")) }
    };
    let list = |value: Value| {
        if value.is_array() { Ok(value) } else { Err(unfit(&value, "[]handlers.jsonPatchOp")) }
    };
    match media.as_str() {
        "application/json-patch+json" => Ok(Edit::Json(list(json()?)?)),
        "application/merge-patch+json" => Ok(Edit::Merge(object(json()?)?)),
        "application/strategic-merge-patch+json" if strategic => Ok(Edit::Strategic(object(json()?)?)),
        "application/apply-patch+yaml" => {
            let decoded = body::read_yaml(&call.body, "").map_err(|error| {
                ApiError::bad_request(format!(
                    "error decoding patch: error converting YAML to JSON: {}",
                    error.message
                ))
            })?;
            if !decoded.yaml_duplicates.is_empty() {
                match call.field_validation() {
                    FieldValidation::Ignore => {}
                    FieldValidation::Warn => warn_duplicates(call, &decoded.yaml_duplicates),
                    FieldValidation::Strict => {
                        return Err(ApiError::bad_request(format!(
                            "error decoding patch: error converting YAML to JSON: {}",
                            decoded.yaml_duplicates
                        )));
                    }
                }
            }
            Ok(Edit::Apply(decoded.value))
        }
        other if !other.ends_with("-patch+json") && !other.starts_with("application/apply-patch") => {
            Err(ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
                .with_details(json!({})))
        }
        _ => {
            let mut accepted = vec!["application/json-patch+json", "application/merge-patch+json"];
            if strategic {
                accepted.push("application/strategic-merge-patch+json");
            }
            accepted.push("application/apply-patch+yaml");
            Err(ApiError::unsupported_media_type(&accepted))
        }
    }
}

/// The object with a patch applied that is no apply.
pub(crate) fn patched(
    kind: &Kind,
    edit: &Edit,
    mut object: Value,
    call: &Call,
    _subresource: &str,
) -> Result<Value, ApiError> {
    match edit {
        Edit::Merge(over) => patch::merge::apply(&mut object, over),
        Edit::Strategic(over) => {
            patch::strategic::apply(&mut object, over, kind.schema())
                .map_err(|error| ApiError::new(error.code, error.reason, error.message))?;
        }
        Edit::Json(operations) => match patch::json::apply(&mut object, operations) {
            Ok(()) => {}
            Err(patch::json::Refused::Malformed(text)) => return Err(ApiError::bad_request(text)),
            Err(patch::json::Refused::Failed(_)) => {
                return Err(ApiError::new(
                    422,
                    "Invalid",
                    "the server rejected our request due to an error in our request",
                )
                .with_details(json!({})));
            }
        },
        Edit::Put(_) | Edit::Apply(_) => {}
    }
    if kind.is_builtin() {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let word = object["kind"].as_str().unwrap_or_default();
        if !word.is_empty() && word != kind.gvk.kind {
            return Err(patch_error(edit, &object, &kind_mismatch(&kind.gvk, api_version, word)));
        }
    }
    check_kind(&kind.gvk, kind.is_builtin(), &mut object)?;
    let namespace = meta::text(&object, "namespace");
    if kind.namespaced && !namespace.is_empty() && namespace != call.target.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !kind.namespaced {
        meta::set_or_remove(&mut object, "namespace", None);
    }
    let name = meta::text(&object, "name");
    if !name.is_empty() && name != call.target.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.target.name
        )));
    }
    Ok(object)
}

/// Whether the object says that it is of this kind; a built-in one need not say it.
pub(crate) fn check_kind(gvk: &GroupVersionKind, builtin: bool, object: &mut Value) -> Result<(), ApiError> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let wanted = gvk.api_version();
    if !builtin && kind.is_empty() {
        let text = object.to_string();
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{text}' ({text})",
            gvk.kind
        )));
    }
    if !api_version.is_empty() && api_version != wanted && (!builtin || kind.is_empty() || kind == gvk.kind) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({wanted})"
        )));
    }
    if !kind.is_empty() && kind != gvk.kind {
        if !builtin {
            let cause = Cause {
                field: "kind".to_owned(),
                reason: CauseReason::Invalid,
                value: Some(json!(kind).to_string()),
                detail: format!("must be {}", gvk.kind),
            };
            let name = meta::text(object, "name");
            return Err(ApiError::invalid(Subject { group: &gvk.group, word: &kind, name }, &[cause]));
        }
        let version = api_version.rsplit('/').next().unwrap_or_default();
        return Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {}",
            gvk.kind,
            kind_mismatch(gvk, &api_version, &kind)
        )));
    }
    object["apiVersion"] = json!(wanted);
    object["kind"] = json!(gvk.kind);
    Ok(())
}

/// Why an object of another kind is not this one.
pub(crate) fn kind_mismatch(gvk: &GroupVersionKind, api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if crate::builtin::resource(&GroupVersionKind::new(group, version, kind)).is_none() {
        return format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        );
    }
    let package = gvk.group.split('.').next().filter(|word| !word.is_empty()).unwrap_or("core");
    format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", gvk.kind)
}

/// What a strategic patch says of a value of the wrong kind: its result is converted, not decoded.
pub(crate) fn restore_text(what: &str) -> String {
    let Some((kind, rest)) =
        what.strip_prefix("json: cannot unmarshal ").and_then(|rest| rest.split_once(' '))
    else {
        return what.to_owned();
    };
    let found = match kind {
        "array" => "slice",
        "object" => "map",
        other => other,
    };
    let wanted = rest.rsplit(" of type ").next().unwrap_or_default();
    if wanted.starts_with("map[") {
        format!("cannot restore map from {found}")
    } else if wanted.starts_with("[]") {
        format!("cannot restore slice from {found}")
    } else {
        what.to_owned()
    }
}

/// A patch whose result is no object of the kind.
pub(crate) fn patch_error(edit: &Edit, result: &Value, what: &str) -> ApiError {
    let shown = match edit {
        Edit::Strategic(patch) => go_map(patch),
        _ => go_object(result),
    };
    let cause = Cause {
        field: "patch".to_owned(),
        reason: CauseReason::Invalid,
        value: Some(json!(shown).to_string()),
        detail: what.to_owned(),
    };
    ApiError::invalid(Subject { group: "", word: "", name: "" }, &[cause])
}

/// An object with its metadata in the order of the Go type.
pub(crate) fn go_object(object: &Value) -> String {
    const ORDER: &[&str] = &[
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    let Some(map) = object.as_object().filter(|map| map["kind"] == "ConfigMap" || map["kind"] == "Secret")
    else {
        return object.to_string();
    };
    let fields: Vec<String> = map
        .iter()
        .map(|(name, value)| {
            let text = match value {
                Value::Object(metadata) if name == "metadata" => {
                    let known: Vec<String> = ORDER
                        .iter()
                        .filter_map(|name| Some(format!("{}:{}", json!(name), metadata.get(*name)?)))
                        .collect();
                    format!("{{{}}}", known.join(","))
                }
                other => other.to_string(),
            };
            format!("{}:{text}", json!(name))
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// A map as Go's `%+v` prints it.
pub(crate) fn go_map(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields: Vec<String> =
                map.iter().map(|(name, value)| format!("{name}:{}", go_map(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_map).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}
