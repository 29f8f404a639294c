//! Field managers: whose traces on a live object are cleaned up or taken over.

use serde_json::{Map, Value, json};

use crate::object;

/// How a manager wrote its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Create, update or patch.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// A manager whose fields are taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// Prefix of the manager name.
    pub prefix: String,
    /// The operation it used.
    pub operation: Operation,
}

/// What is removed from live objects before they are applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CleanUp {
    /// Annotations to remove.
    pub annotations: Vec<String>,
    /// Labels to remove.
    pub labels: Vec<String>,
    /// Managers to take over.
    pub managers: Vec<TakenOver>,
}

impl CleanUp {
    /// The rules of the Kustomization controller; `overrides` are prefixes of further managers.
    pub fn kustomize(manager: &str, group: &str, overrides: &[String]) -> Self {
        let taken = |prefix: &str, operation| TakenOver { prefix: prefix.to_owned(), operation };
        let mut managers = vec![
            taken("kubectl", Operation::Apply),
            taken("kubectl", Operation::Update),
            taken("before-first-apply", Operation::Update),
            taken(manager, Operation::Update),
        ];
        for prefix in overrides {
            managers.push(taken(prefix, Operation::Apply));
            managers.push(taken(prefix, Operation::Update));
        }
        Self {
            annotations: vec![
                "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
                format!("{group}/checksum"),
                "fluxcd.io/sync-checksum".to_owned(),
            ],
            labels: vec!["fluxcd.io/sync-gc-mark".to_owned()],
            managers,
        }
    }

    /// The rule that turns what `manager` has written by other means into applied fields.
    pub fn own_updates(manager: &str) -> Self {
        let taken = TakenOver { prefix: manager.to_owned(), operation: Operation::Update };
        Self { annotations: Vec::new(), labels: Vec::new(), managers: vec![taken] }
    }

    /// The rule that takes over all fields of the managers with the given prefixes, and nothing else.
    pub fn managers(overrides: &[String]) -> Self {
        let managers = overrides
            .iter()
            .flat_map(|prefix| [Operation::Apply, Operation::Update].map(|operation| (prefix, operation)))
            .map(|(prefix, operation)| TakenOver { prefix: prefix.clone(), operation })
            .collect();
        Self { annotations: Vec::new(), labels: Vec::new(), managers }
    }

    /// The JSON patch that cleans `live` up; `None` when it is clean.
    ///
    /// `manager` is the field manager that takes over.
    pub fn patch(&self, live: &Value, manager: &str) -> Option<Value> {
        let mut operations = Vec::new();
        for (field, keys) in [("annotations", &self.annotations), ("labels", &self.labels)] {
            let Some(map) = object::metadata_map(live, field) else {
                continue;
            };
            for key in keys.iter().filter(|key| map.contains_key(key.as_str())) {
                operations
                    .push(json!({"op": "remove", "path": format!("/metadata/{field}/{}", escape(key))}));
            }
        }
        if let Some(entries) = self.taken_over(live, manager) {
            operations.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": entries}));
        }
        (!operations.is_empty()).then_some(Value::Array(operations))
    }

    fn takes_over(&self, entry: &Value) -> bool {
        let name = object::text(entry, "manager");
        let operation = object::text(entry, "operation");
        object::text(entry, "subresource").is_empty()
            && self.managers.iter().any(|taken| {
                taken.operation.as_str() == operation
                    && !taken.prefix.is_empty()
                    && name.starts_with(&taken.prefix)
            })
    }

    /// The managed fields after the take-over, or `None` when there is nothing to take over.
    fn taken_over(&self, live: &Value, manager: &str) -> Option<Vec<Value>> {
        let entries = live.get("metadata")?.get("managedFields")?.as_array()?;
        if !entries.iter().any(|entry| self.takes_over(entry)) {
            return None;
        }
        let own = |entry: &Value| {
            object::text(entry, "manager") == manager
                && object::text(entry, "operation") == "Apply"
                && object::text(entry, "subresource").is_empty()
        };
        let (taken, mut kept): (Vec<Value>, Vec<Value>) =
            entries.iter().cloned().partition(|entry| self.takes_over(entry) && !own(entry));
        let mut taken = taken.into_iter();
        let mut merged = if let Some(position) = kept.iter().position(own) {
            kept.remove(position)
        } else {
            let mut first = taken.next()?;
            first["manager"] = manager.into();
            first["operation"] = "Apply".into();
            first
        };
        for entry in taken {
            if let Some(fields) = entry.get("fieldsV1") {
                union(&mut merged["fieldsV1"], fields);
            }
        }
        kept.push(merged);
        Some(kept)
    }
}

/// Adds the fields of `other` to `fields` (both in `fieldsV1` form).
fn union(fields: &mut Value, other: &Value) {
    let Some(other) = other.as_object() else {
        return;
    };
    if !fields.is_object() {
        *fields = Value::Object(Map::new());
    }
    let Value::Object(fields) = fields else {
        return;
    };
    for (key, value) in other {
        match fields.get_mut(key) {
            Some(known) => union(known, value),
            None => {
                fields.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The JSON patch that moves every managed-fields entry to `api_version`; `None` when all are there.
pub fn migrate_api_version(live: &Value, api_version: &str) -> Option<Value> {
    let entries = live.get("metadata")?.get("managedFields")?.as_array()?;
    if entries.iter().all(|entry| object::text(entry, "apiVersion") == api_version) {
        return None;
    }
    let migrated: Vec<Value> = entries
        .iter()
        .cloned()
        .map(|mut entry| {
            entry["apiVersion"] = api_version.into();
            entry
        })
        .collect();
    Some(json!([{"op": "replace", "path": "/metadata/managedFields", "value": migrated}]))
}

/// Escapes a key for use in a JSON pointer.
pub(crate) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The managers other than `manager` that wrote to the object itself, most recent last.
pub fn other_managers<'a>(live: &'a Value, manager: &str) -> Vec<&'a str> {
    let Some(entries) =
        live.get("metadata").and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array)
    else {
        return Vec::new();
    };
    entries
        .iter()
        .filter(|entry| object::text(entry, "subresource").is_empty())
        .map(|entry| object::text(entry, "manager"))
        .filter(|name| !name.is_empty() && *name != manager)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANAGER: &str = "kustomize-controller";

    fn clean_up() -> CleanUp {
        CleanUp::kustomize(MANAGER, "kustomize.toolkit.fluxcd.io", &["legacy".to_owned()])
    }

    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn check(managed: Vec<Value>, expected: Option<Vec<Value>>) {
        let live = json!({"metadata": {"managedFields": managed}});
        let patch = clean_up().patch(&live, MANAGER);
        let expected = expected
            .map(|value| json!([{"op": "replace", "path": "/metadata/managedFields", "value": value}]));
        assert_eq!(patch, expected);
    }

    #[test]
    fn foreign_managers_are_left_alone() {
        check(
            vec![
                entry(MANAGER, "Apply", json!({"f:data": {}})),
                entry("helm", "Update", json!({"f:data": {"f:x": {}}})),
                entry("flux-client-side-apply", "Apply", json!({"f:data": {"f:y": {}}})),
            ],
            None,
        );
    }

    #[test]
    fn the_first_taken_manager_is_renamed_when_there_is_no_own_entry() {
        check(
            vec![
                entry("kubectl-client-side-apply", "Update", json!({"f:data": {"f:a": {}}})),
                entry("other", "Update", json!({"f:data": {"f:o": {}}})),
                entry("kubectl", "Apply", json!({"f:data": {"f:b": {}}, "f:metadata": {}})),
            ],
            Some(vec![
                entry("other", "Update", json!({"f:data": {"f:o": {}}})),
                entry(MANAGER, "Apply", json!({"f:data": {"f:a": {}, "f:b": {}}, "f:metadata": {}})),
            ]),
        );
    }

    #[test]
    fn the_own_entry_moves_to_the_end() {
        check(
            vec![
                entry(MANAGER, "Apply", json!({"f:data": {"f:a": {}}})),
                entry("legacy-tool", "Apply", json!({"f:data": {"f:l": {}}})),
                entry("manager", "Update", json!({"f:status": {}})),
            ],
            Some(vec![
                entry("manager", "Update", json!({"f:status": {}})),
                entry(MANAGER, "Apply", json!({"f:data": {"f:a": {}, "f:l": {}}})),
            ]),
        );
    }

    #[test]
    fn subresource_entries_are_never_taken() {
        let mut status = entry("kubectl-edit", "Update", json!({"f:status": {}}));
        status["subresource"] = "status".into();
        check(vec![status], None);
    }

    #[test]
    fn legacy_metadata_is_removed() {
        let live = json!({"metadata": {
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "keep": "me"},
            "labels": {"fluxcd.io/sync-gc-mark": "x"},
        }});
        assert_eq!(
            clean_up().patch(&live, MANAGER),
            Some(json!([
                {"op": "remove", "path": "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"},
                {"op": "remove", "path": "/metadata/labels/fluxcd.io~1sync-gc-mark"},
            ]))
        );
    }

    #[test]
    fn versions_migrate_all_entries() {
        let mut old = entry("x", "Update", json!({}));
        old["apiVersion"] = "v1beta1".into();
        let live = json!({"metadata": {"managedFields": [old, entry("y", "Apply", json!({}))]}});
        let patch = migrate_api_version(&live, "v1").unwrap();
        assert_eq!(
            patch,
            json!([{"op": "replace", "path": "/metadata/managedFields", "value": [
                entry("x", "Update", json!({})), entry("y", "Apply", json!({}))]}])
        );
        let migrated = json!({"metadata": {"managedFields": patch[0]["value"]}});
        assert_eq!(migrate_api_version(&migrated, "v1"), None);
    }
}
