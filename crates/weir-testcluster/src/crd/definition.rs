//! Reading definitions, and the conditions that a server writes into their status.

use std::sync::Arc;

use serde_json::{Value, json};

use super::schema::{root, texts};
use super::{CustomColumn, CustomVersion, ScalePaths};
use crate::schema::Schema;
use crate::status::{Cause, CauseReason};

/// Fills in what a definition leaves out.
pub(crate) fn set_defaults(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if names.get("singular").and_then(Value::as_str).is_none_or(str::is_empty) {
            names.insert("singular".into(), json!(kind.to_lowercase()));
        }
        if names.get("listKind").and_then(Value::as_str).is_none_or(str::is_empty) && !kind.is_empty() {
            names.insert("listKind".into(), json!(format!("{kind}List")));
        }
    }
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
}

/// The versions that a definition serves.
pub(crate) fn versions(definition: &Value) -> Vec<CustomVersion> {
    let spec = &definition["spec"];
    let names = if definition["status"]["acceptedNames"]["kind"].is_string() {
        &definition["status"]["acceptedNames"]
    } else {
        &spec["names"]
    };
    let text = |node: &Value, name: &str| node[name].as_str().unwrap_or_default().to_owned();
    let list = spec["versions"].as_array().into_iter().flatten();
    list.filter(|version| version["served"] == true)
        .map(|version| {
            let written = version["schema"]["openAPIV3Schema"].clone();
            let group = text(spec, "group");
            let name = text(version, "name");
            let kind = text(names, "kind");
            let schema = if written.is_object() {
                root(&written)
            } else {
                Schema { preserve_unknown: true, ..root(&json!({"type": "object"})) }
            };
            let scale = &version["subresources"]["scale"];
            let path = |name: &str| -> Vec<String> {
                let text = scale[name].as_str().unwrap_or_default();
                text.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect()
            };
            let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
            let warning = text(version, "deprecationWarning");
            let deprecation = (version["deprecated"] == true).then(|| {
                if warning.is_empty() { format!("{group}/{name} {kind} is deprecated") } else { warning }
            });
            CustomVersion {
                kind,
                plural: text(names, "plural"),
                singular: text(names, "singular"),
                list_kind: text(names, "listKind"),
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                schema: Some(Arc::new(schema)),
                has_status: version["subresources"]["status"].is_object(),
                scale: scale.is_object().then(|| ScalePaths {
                    spec: path("specReplicasPath"),
                    status: path("statusReplicasPath"),
                    selector: scale["labelSelectorPath"].is_string().then(|| path("labelSelectorPath")),
                }),
                columns: columns
                    .map(|column| CustomColumn {
                        name: text(column, "name"),
                        kind: text(column, "type"),
                        format: text(column, "format"),
                        description: text(column, "description"),
                        priority: column["priority"].as_i64().unwrap_or_default(),
                        json_path: text(column, "jsonPath"),
                    })
                    .collect(),
                stored: version["storage"] == true,
                varies: spec["versions"].as_array().is_some_and(|versions| versions.len() > 1)
                    || definition["metadata"]["generation"].as_i64().unwrap_or_default() > 1,
                selectable: version["selectableFields"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
                    .collect(),
                deprecation,
                written_schema: written,
                group,
                version: name,
            }
        })
        .collect()
}

/// What is wrong with a definition.
pub(crate) fn validate(definition: &Value) -> Vec<Cause> {
    let spec = &definition["spec"];
    let mut found = Vec::new();
    let mut say = |field: &str, reason: CauseReason, value: Option<String>, detail: String| {
        found.push(Cause { field: field.to_owned(), reason, value, detail });
    };
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    let group = spec["group"].as_str().unwrap_or_default();
    let wanted = format!("{plural}.{group}");
    if name != wanted {
        say(
            "metadata.name",
            CauseReason::Invalid,
            Some(json!(name).to_string()),
            "must be spec.names.plural+\".\"+spec.group".to_string(),
        );
    }
    if group.is_empty() {
        say("spec.group", CauseReason::Required, None, String::new());
    } else if !group.contains('.') {
        say(
            "spec.group",
            CauseReason::Invalid,
            Some(json!(group).to_string()),
            "should be a domain with at least one dot".to_owned(),
        );
    }
    match spec["scope"].as_str() {
        Some("Cluster" | "Namespaced") => {}
        None => say("spec.scope", CauseReason::Required, None, String::new()),
        Some(other) => say(
            "spec.scope",
            CauseReason::NotSupported,
            Some(json!(other).to_string()),
            "supported values: \"Cluster\", \"Namespaced\"".to_owned(),
        ),
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        if spec["names"][field].as_str().is_none_or(str::is_empty) {
            say(&format!("spec.names.{field}"), CauseReason::Required, None, String::new());
        }
    }
    let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
    if versions.is_empty() {
        say("spec.versions", CauseReason::Required, None, "must have at least one version".to_owned());
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 && !versions.is_empty() {
        let list: Vec<String> = versions
            .iter()
            .map(|version| {
                format!(
                    "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                    version["name"],
                    version["served"] == true,
                    version["storage"] == true,
                    version["deprecated"] == true
                )
            })
            .collect();
        let shown = Some(format!("[{}]", list.join(",")));
        say(
            "spec.versions",
            CauseReason::Invalid,
            shown,
            "must have exactly one version marked as storage version".to_owned(),
        );
    }
    if spec["versions"].is_array() && texts(&definition["status"]["storedVersions"]).is_empty() {
        say(
            "status.storedVersions",
            CauseReason::Invalid,
            Some("null".to_owned()),
            "must have at least one stored version".to_owned(),
        );
    }
    // Versions that all have the same schema are blamed together.
    let same = versions.iter().all(|version| version["schema"] == versions[0]["schema"]);
    for (index, version) in versions.iter().enumerate() {
        let at = format!("spec.versions[{index}]");
        if same && index > 0 {
            break;
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        if !schema.is_object() {
            say(&format!("{at}.schema.openAPIV3Schema"), CauseReason::Required, None, String::new());
        } else if schema["type"] != "object" {
            let field = format!("{at}.schema.openAPIV3Schema.type");
            if schema["type"].is_string() {
                say(
                    &field,
                    CauseReason::Invalid,
                    Some(schema["type"].to_string()),
                    "must be object at the root".to_owned(),
                );
            } else {
                say(&field, CauseReason::Required, None, "must not be empty at the root".to_owned());
            }
        } else {
            let at = if same { "spec.validation".to_owned() } else { format!("{at}.schema") };
            structural(schema, &format!("{at}.openAPIV3Schema"), true, &mut say);
        }
    }
    found
}

/// Takes a mistake: where it is, of what kind, the value and the details.
type Say<'a> = dyn FnMut(&str, CauseReason, Option<String>, String) + 'a;

/// Whether each node has a type, and each CEL rule can be read.
fn structural(node: &Value, at: &str, root: bool, say: &mut Say<'_>) {
    if node["type"] == "array" && !node["items"].is_object() {
        say(&format!("{at}.items"), CauseReason::Required, None, "must be specified".to_owned());
    }
    if let Some(default) = node.get("default").filter(|_| !root) {
        let schema = super::schema::convert(node);
        for cause in super::validate::validate(default, None, &schema) {
            say(&format!("{at}.default"), cause.reason, cause.value, cause.detail);
        }
    }
    let flexible =
        node["x-kubernetes-int-or-string"] == true || node["x-kubernetes-preserve-unknown-fields"] == true;
    if !node["type"].is_string() && !flexible {
        say(
            &format!("{at}.type"),
            CauseReason::Required,
            None,
            "must not be empty for specified object fields".to_owned(),
        );
    }
    for (index, rule) in node["x-kubernetes-validations"].as_array().into_iter().flatten().enumerate() {
        let text = rule["rule"].as_str().unwrap_or_default();
        let undefined = || {
            let name = super::cel::undefined_field(text, node)?;
            Some(format!("undefined field '{name}'"))
        };
        if let Some(error) = super::cel::compile_error(text).or_else(undefined) {
            say(
                &format!("{at}.x-kubernetes-validations[{index}].rule"),
                CauseReason::Invalid,
                Some(rule.to_string()),
                format!("compilation failed: {error}"),
            );
        }
    }
    for (name, below) in node["properties"].as_object().into_iter().flatten() {
        structural(below, &format!("{at}.properties[{name}]"), false, say);
    }
    if node["items"].is_object() {
        structural(&node["items"], &format!("{at}.items"), false, say);
    }
    if node["additionalProperties"].is_object() {
        structural(&node["additionalProperties"], &format!("{at}.additionalProperties"), false, say);
    }
}

/// What a definition may not change once its names are accepted.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    if !is_established(old) {
        return Vec::new();
    }
    let fields: [(&str, &[&str]); 3] = [
        ("spec.scope", &["spec", "scope"]),
        ("spec.group", &["spec", "group"]),
        ("spec.names.plural", &["spec", "names", "plural"]),
    ];
    fields
        .into_iter()
        .filter_map(|(field, path)| {
            let at = |object: &Value| path.iter().fold(object.clone(), |value, name| value[*name].clone());
            (at(new) != at(old)).then(|| Cause {
                field: field.to_owned(),
                reason: CauseReason::Invalid,
                value: Some(at(new).to_string()),
                detail: "field is immutable".to_owned(),
            })
        })
        .collect()
}

/// The status of a definition whose names are free, or why they are not.
///
/// `taken` says which of its names another definition or a built-in kind of the group has.
pub(crate) fn establish(definition: &mut Value, taken: Option<(&str, &str)>, now: &str) -> bool {
    let before = definition["status"].clone();
    let names = definition["spec"]["names"].clone();
    let storage = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .and_then(|version| version["name"].as_str())
        .unwrap_or_default()
        .to_owned();
    let mut stored = texts(&definition["status"]["storedVersions"]);
    if !storage.is_empty() && !stored.contains(&storage) {
        stored.push(storage);
    }
    let established_before = condition(&before, "Established").is_some_and(|c| c["status"] == "True");
    let mut conditions = vec![match taken {
        None => ("NamesAccepted", "True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, why)) => ("NamesAccepted", "False", reason, why.to_owned()),
    }];
    if taken.is_none() || established_before {
        conditions.push((
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted".to_owned(),
        ));
    } else {
        conditions.push(("Established", "False", "NotAccepted", "not all names are accepted".to_owned()));
    }
    let mut list: Vec<Value> = before["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, status, reason, message) in conditions {
        let at = list.iter().position(|entry| entry["type"] == kind);
        let since = at
            .filter(|&at| list[at]["status"] == status)
            .map_or_else(|| json!(now), |at| list[at]["lastTransitionTime"].clone());
        let entry = json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
        });
        match at {
            Some(at) => list[at] = entry,
            None => list.push(entry),
        }
    }
    let accepted = if taken.is_none() || !before["acceptedNames"]["kind"].is_string() && taken.is_none() {
        names
    } else {
        let kept = before["acceptedNames"].clone();
        if kept["kind"].as_str().is_some_and(|kind| !kind.is_empty()) {
            kept
        } else {
            json!({"plural": names["plural"], "kind": ""})
        }
    };
    let after = json!({"acceptedNames": accepted, "conditions": list, "storedVersions": stored});
    let changed = before != after;
    definition["status"] = after;
    changed
}

/// The condition of a type.
pub(crate) fn condition<'v>(status: &'v Value, kind: &str) -> Option<&'v Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Whether a definition's kinds are served.
pub(crate) fn is_established(definition: &Value) -> bool {
    condition(&definition["status"], "Established").is_some_and(|condition| condition["status"] == "True")
}
