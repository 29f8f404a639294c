//! What an object is called and how its metadata is read: objects are plain JSON values here.

use std::fmt;

use serde_json::{Map, Value};

/// Names one object of one API version in a cluster.
///
/// An empty `group` is the core group, an empty `namespace` means cluster scope.
/// Displays as the *subject* used in every message: `Kind/namespace/name` or `Kind/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ObjectRef {
    /// API group; empty for the core group.
    pub group: String,
    /// API version without the group, such as `v1`; empty when any served version will do.
    pub version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// The reference to `object`, read from its own fields; missing ones are empty.
    pub fn of(object: &Value) -> Self {
        let (group, version) = split_api_version(text(object, "apiVersion"));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text(object, "kind").to_owned(),
            namespace: metadata_text(object, "namespace").to_owned(),
            name: metadata_text(object, "name").to_owned(),
        }
    }

    /// A reference to an object of the core group, version `v1`.
    pub fn core(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: String::new(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The same object whatever its version: what decides identity in the inventory.
    pub fn identity(&self) -> (&str, &str, &str, &str) {
        (&self.namespace, &self.name, &self.group, &self.kind)
    }

    /// Whether group and kind are the given ones.
    pub fn is_kind(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }

    /// `Kind.group`, or `Kind` in the core group.
    pub fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(formatter, "{}/{}", self.kind, self.name)
        } else {
            write!(formatter, "{}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// Splits `group/version`; the core group is empty.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The string at a top-level field, or the empty string.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The string at `metadata.<field>`, or the empty string.
pub fn metadata_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The labels or annotations map of an object, if present.
pub fn metadata_map<'a>(object: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    object.get("metadata")?.get(field)?.as_object()
}

/// The value of a label, if present and a string.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    metadata_map(object, "labels")?.get(key)?.as_str()
}

/// The value of an annotation, if present and a string.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    metadata_map(object, "annotations")?.get(key)?.as_str()
}

/// `metadata.resourceVersion`, or the empty string for an object that does not exist yet.
pub fn resource_version(object: &Value) -> &str {
    metadata_text(object, "resourceVersion")
}

/// Adds entries to `metadata.labels` or `metadata.annotations`, replacing equal keys.
///
/// An object without a metadata map, or whose field is not a map, gets one.
pub fn set_metadata<'a>(
    object: &mut Value,
    field: &str,
    entries: impl IntoIterator<Item = (&'a str, &'a str)>,
) {
    let mut entries = entries.into_iter().peekable();
    if entries.peek().is_none() {
        return;
    }
    let Some(root) = object.as_object_mut() else {
        return;
    };
    let metadata = child_map(root, "metadata");
    let map = child_map(metadata, field);
    for (key, value) in entries {
        map.insert(key.to_owned(), Value::String(value.to_owned()));
    }
}

fn child_map<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let child = parent.entry(key.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    match child {
        Value::Object(map) => map,
        _ => unreachable!("the value was made a map just above"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subjects_are_kind_namespace_name() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "prod"}});
        let reference = ObjectRef::of(&object);
        assert_eq!(reference.to_string(), "Deployment/prod/web");
        assert_eq!(reference.api_version(), "apps/v1");
        assert_eq!(reference.group_kind(), "Deployment.apps");
        let namespace =
            ObjectRef::of(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}}));
        assert_eq!(namespace.to_string(), "Namespace/prod");
        assert_eq!(namespace.api_version(), "v1");
    }

    #[test]
    fn labels_are_added_to_objects_without_any() {
        let mut object = json!({"metadata": {"labels": null}});
        set_metadata(&mut object, "labels", [("a", "1")]);
        assert_eq!(object, json!({"metadata": {"labels": {"a": "1"}}}));
        set_metadata(&mut object, "annotations", []);
        assert_eq!(object, json!({"metadata": {"labels": {"a": "1"}}}));
    }
}
