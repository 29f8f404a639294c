//! Controller revisions: the templates that stateful and daemon sets have had.

use serde_json::{Value, json};

use super::part::{hash, is_controlled_by, name as name_of, owner_reference};
use super::{Api, REVISIONS, Table};
use crate::builtin::tree::{at, text};

/// Finds or makes the revision of an object's present template and returns its name.
pub(crate) fn current(api: &dyn Api, table: Table, object: &Value) -> String {
    let namespace = text(&object["metadata"], "namespace");
    let mut template = object["spec"]["template"].clone();
    template["$patch"] = json!("replace");
    let data = json!({ "spec": { "template": template } });
    let all: Vec<Value> =
        api.list(REVISIONS, namespace).into_iter().filter(|one| is_controlled_by(one, object)).collect();
    let highest = all.iter().filter_map(|one| one["revision"].as_i64()).max().unwrap_or_default();
    if let Some(found) = all.iter().find(|one| one["data"] == data) {
        if found["revision"] != json!(highest) {
            api.amend(REVISIONS, namespace, name_of(found), &|one| one["revision"] = json!(highest + 1));
        }
        return name_of(found).to_owned();
    }
    let hash = hash(&data);
    let name = format!("{}-{hash}", name_of(object));
    let mut labels = at(object, &["spec", "template", "metadata", "labels"]).clone();
    labels["controller.kubernetes.io/hash"] = json!(hash);
    let revision = json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels,
            "ownerReferences": [owner_reference(table, object)]
        },
        "revision": highest + 1,
        "data": data
    });
    let _ = api.create(REVISIONS, revision);
    let limit = object["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize;
    let mut old = all;
    old.sort_by_key(|one| one["revision"].as_i64());
    for one in old.iter().take(old.len().saturating_sub(limit)) {
        api.delete(REVISIONS, namespace, name_of(one), false);
    }
    name
}
