//! What a simulation rendered, and what changed between two.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::view;

/// Labels of objects that a Kustomization or a HelmRelease applied.
const APPLIED: [&str; 2] = ["kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"];
/// Lines around a change.
const CONTEXT_LINES: usize = 3;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Added,
    Changed,
    Removed,
}

impl Kind {
    /// As reports write it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// The change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// `Kind/namespace/name`, with the group where there is one.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    /// A unified diff without secrets.
    pub(crate) diff: String,
}

/// The objects that controllers applied, without what the cluster added to them.
pub(crate) fn rendered(objects: &[Value]) -> BTreeMap<String, Value> {
    let applied = |object: &&Value| {
        let labels = &object["metadata"]["labels"];
        APPLIED.iter().any(|label| labels[*label].is_string())
    };
    named(objects.iter().filter(applied))
}

/// Objects by what they are called, without what a cluster adds to them.
pub(crate) fn named<'a>(objects: impl IntoIterator<Item = &'a Value>) -> BTreeMap<String, Value> {
    objects.into_iter().map(|object| (id(object), clean(object))).collect()
}

/// The changes as one diff.
pub(crate) fn text(changes: &[Change]) -> String {
    let told =
        changes.iter().map(|change| format!("► {} {}\n{}\n", change.id, change.kind.word(), change.diff));
    told.collect()
}

fn id(object: &Value) -> String {
    let (group, _) = weir_manifest::split_api_version(view::text(object, "/apiVersion"));
    let kind = view::text(object, "/kind");
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    match view::namespace(object) {
        "" => format!("{kind}/{}", view::name(object)),
        namespace => format!("{kind}/{namespace}/{}", view::name(object)),
    }
}

fn clean(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(map) = object.as_object_mut() else { return object };
    map.remove("status");
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
            "ownerReferences",
            "finalizers",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            metadata.remove(name);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| {
                !name.starts_with("deployment.kubernetes.io/")
                    && !name.starts_with("deprecated.daemonset.template.generation")
                    && name != "kubectl.kubernetes.io/last-applied-configuration"
            });
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    // What the cluster gives to services and claims differs from run to run.
    match map.get("kind").and_then(Value::as_str) {
        Some("Service") => {
            if let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) {
                if spec.get("clusterIP").is_some_and(|ip| ip != "None") {
                    spec.remove("clusterIP");
                    spec.remove("clusterIPs");
                }
                for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Some(port) = port.as_object_mut() {
                        port.remove("nodePort");
                    }
                }
                spec.remove("healthCheckNodePort");
            }
        }
        Some("PersistentVolumeClaim") => {
            if let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("volumeName");
            }
        }
        _ => {}
    }
    object
}

/// The changes from one set of objects to another, by name.
pub(crate) fn compare(base: &BTreeMap<String, Value>, head: &BTreeMap<String, Value>) -> Vec<Change> {
    let ids: BTreeSet<&String> = base.keys().chain(head.keys()).collect();
    let mut changes = Vec::new();
    for id in ids {
        let (old, new) = (base.get(id), head.get(id));
        if old == new {
            continue;
        }
        let kind = match (old, new) {
            (None, _) => Kind::Added,
            (_, None) => Kind::Removed,
            _ => Kind::Changed,
        };
        let (old, new) = masked(old, new);
        let text =
            |value: &Value| if value.is_null() { String::new() } else { weir_manifest::to_yaml(value) };
        let (old, new) = (text(&old), text(&new));
        let diff = similar::TextDiff::from_lines(&old, &new);
        let diff = diff.unified_diff().context_radius(CONTEXT_LINES).to_string();
        changes.push(Change { id: id.clone(), kind, diff });
    }
    changes
}

/// Both states with the data of Secrets replaced: what is equal stays recognisable as equal, and no more.
fn masked(old: Option<&Value>, new: Option<&Value>) -> (Value, Value) {
    let (mut old, mut new) = (old.cloned().unwrap_or_default(), new.cloned().unwrap_or_default());
    let is_secret = |object: &Value| object["kind"] == "Secret" && object["apiVersion"] == "v1";
    if !is_secret(&old) && !is_secret(&new) {
        return (old, new);
    }
    for field in ["data", "stringData"] {
        let (before, after) = (old[field].clone(), new[field].clone());
        let mask = |own: &Value, other: &Value, word: &str| -> Value {
            let fields: Map<String, Value> = own
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| {
                    let shown = match other.get(key) {
                        Some(there) if there != value => format!("*** ({word})"),
                        _ => "***".to_owned(),
                    };
                    (key.clone(), json!(shown))
                })
                .collect();
            Value::Object(fields)
        };
        if before.is_object() {
            old[field] = mask(&before, &after, "before");
        }
        if after.is_object() {
            new[field] = mask(&after, &before, "after");
        }
        for object in [&mut old, &mut new] {
            if object[field].is_null()
                && let Some(map) = object.as_object_mut()
            {
                map.remove(field);
            }
        }
    }
    (old, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, more: &Value) -> Value {
        let mut object = json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {
                "name": name, "namespace": "n", "uid": "1", "resourceVersion": "7",
                "labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}
            },
            "status": {"x": 1}
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key.as_str()] = value.clone();
        }
        object
    }

    #[test]
    fn changes_are_those_of_what_was_applied() {
        let base = rendered(&[
            object("ConfigMap", "same", &json!({"data": {"a": "1"}})),
            object("ConfigMap", "old", &json!({})),
            object("ConfigMap", "edited", &json!({"data": {"a": "1"}})),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of the cluster"}}),
        ]);
        assert_eq!(base.len(), 3);
        let head = rendered(&[
            object("ConfigMap", "same", &json!({"data": {"a": "1"}, "status": {"x": 2}})),
            object("ConfigMap", "new", &json!({})),
            object("ConfigMap", "edited", &json!({"data": {"a": "2"}})),
        ]);
        let changes = compare(&base, &head);
        let seen: Vec<(&str, Kind)> = changes.iter().map(|change| (&*change.id, change.kind)).collect();
        assert_eq!(
            seen,
            [
                ("ConfigMap/n/edited", Kind::Changed),
                ("ConfigMap/n/new", Kind::Added),
                ("ConfigMap/n/old", Kind::Removed)
            ]
        );
        assert!(changes[0].diff.contains("-  a: \"1\"\n+  a: \"2\"\n"), "{}", changes[0].diff);
    }

    #[test]
    fn secrets_are_never_shown() {
        let data = |value: &str| json!({"data": {"password": value, "same": "c2FtZQ=="}});
        let base = rendered(&[object("Secret", "s", &data("b25l"))]);
        let head = rendered(&[object("Secret", "s", &data("dHdv"))]);
        let changes = compare(&base, &head);
        let diff = &changes[0].diff;
        assert!(diff.contains("-  password: '*** (before)'\n+  password: '*** (after)'"), "{diff}");
        assert!(!diff.contains("b25l") && !diff.contains("dHdv") && !diff.contains("c2FtZQ"), "{diff}");
        let added = compare(&BTreeMap::new(), &head);
        assert!(!added[0].diff.contains("dHdv"), "{}", added[0].diff);
    }
}
