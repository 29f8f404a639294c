//! Client-side patches: what was, what is wanted, what is there. Pure.

use serde_json::{Map, Value as Json, json};
use weir_apply::object::ObjectRef;

/// Groups whose kinds Helm knows by type, and patches by their merge keys.
const BUILT_IN_GROUPS: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Lists that are merged by a key of their items: the name of the field, what it is a field of (empty for
/// anything), and the key. Facts of the published API schema.
const MERGE_KEYS: &[(&str, &str, &str)] = &[
    ("conditions", "", "type"),
    ("containers", "", "name"),
    ("env", "", "name"),
    ("ephemeralContainers", "", "name"),
    ("hostAliases", "", "ip"),
    ("imagePullSecrets", "", "name"),
    ("initContainers", "", "name"),
    ("matchConditions", "", "name"),
    ("ownerReferences", "", "uid"),
    ("ports", "containers", "containerPort"),
    ("ports", "ephemeralContainers", "containerPort"),
    ("ports", "initContainers", "containerPort"),
    ("ports", "spec", "port"),
    ("resourceClaims", "spec", "name"),
    ("secrets", "", "name"),
    ("topologySpreadConstraints", "", "topologyKey"),
    ("volumeDevices", "", "devicePath"),
    ("volumeMounts", "", "mountPath"),
    ("volumes", "spec", "name"),
    ("webhooks", "", "name"),
];

/// Lists of scalars that are merged as sets.
const SETS: &[&str] = &["finalizers"];

/// Whether Helm patches objects of this kind by their merge keys.
pub(super) fn is_built_in(reference: &ObjectRef) -> bool {
    BUILT_IN_GROUPS.contains(&reference.group.as_str())
}

fn merge_key(field: &str, parent: &str) -> Option<&'static str> {
    MERGE_KEYS
        .iter()
        .find(|(name, of, _)| *name == field && (of.is_empty() || *of == parent))
        .map(|(_, _, key)| *key)
}

/// The strategic merge patch that brings `live` to `wanted`, and takes away what `before` had.
pub(super) fn strategic(before: &Json, wanted: &Json, live: &Json) -> Json {
    Json::Object(strategic_map(before, wanted, live, ""))
}

fn strategic_map(before: &Json, wanted: &Json, live: &Json, parent: &str) -> Map<String, Json> {
    let empty = Map::new();
    let map = |value: &Json| value.as_object().unwrap_or(&empty).clone();
    let (before, wanted, live) = (map(before), map(wanted), map(live));
    let mut patch = Map::new();
    for (field, value) in &wanted {
        if value.is_null() {
            if live.get(field).is_some_and(|live| !live.is_null()) {
                patch.insert(field.clone(), Json::Null);
            }
            continue;
        }
        let old = before.get(field).unwrap_or(&Json::Null);
        match (live.get(field), value) {
            (Some(now @ Json::Object(_)), Json::Object(_)) => {
                let inner = strategic_map(old, value, now, field);
                if !inner.is_empty() {
                    patch.insert(field.clone(), Json::Object(inner));
                }
            }
            (Some(Json::Array(now)), Json::Array(items)) => {
                let before = old.as_array().map_or(&[][..], Vec::as_slice);
                strategic_list(field, parent, before, items, now, &mut patch);
            }
            (Some(now), value) if same_value(now, value) => {}
            _ => {
                patch.insert(field.clone(), value.clone());
            }
        }
    }
    for field in before.keys() {
        if !wanted.contains_key(field) && live.contains_key(field) {
            patch.insert(field.clone(), Json::Null);
        }
    }
    patch
}

fn strategic_list(
    field: &str,
    parent: &str,
    before: &[Json],
    wanted: &[Json],
    live: &[Json],
    patch: &mut Map<String, Json>,
) {
    if SETS.contains(&field) {
        let missing: Vec<&Json> = wanted.iter().filter(|item| !live.contains(item)).collect();
        let dropped: Vec<&Json> =
            before.iter().filter(|item| !wanted.contains(item) && live.contains(item)).collect();
        if !dropped.is_empty() {
            patch.insert(format!("$deleteFromPrimitiveList/{field}"), json!(dropped));
        }
        if !missing.is_empty() {
            patch.insert(field.to_owned(), json!(missing));
        }
        return;
    }
    let keyed = |items: &[Json], key: &str| items.iter().all(|item| item.get(key).is_some());
    let Some(key) = merge_key(field, parent).filter(|key| keyed(wanted, key) && keyed(live, key)) else {
        if live != wanted {
            patch.insert(field.to_owned(), Json::Array(wanted.to_vec()));
        }
        return;
    };
    let find =
        |items: &[Json], wanted: &Json| items.iter().find(|item| item.get(key) == wanted.get(key)).cloned();
    let mut changes = Vec::new();
    for item in wanted {
        match find(live, item) {
            None => changes.push(item.clone()),
            Some(now) => {
                let old = find(before, item).unwrap_or(Json::Null);
                let mut inner = strategic_map(&old, item, &now, field);
                if !inner.is_empty() {
                    inner.insert(key.to_owned(), item[key].clone());
                    changes.push(Json::Object(inner));
                }
            }
        }
    }
    for item in before {
        if find(wanted, item).is_none() && find(live, item).is_some() {
            changes.push(json!({"$patch": "delete", key: item[key]}));
        }
    }
    if !changes.is_empty() {
        let order: Vec<Json> = wanted.iter().map(|item| json!({key: item[key]})).collect();
        patch.insert(format!("$setElementOrder/{field}"), Json::Array(order));
        patch.insert(field.to_owned(), Json::Array(changes));
    }
}

/// Whether two values are the same to the API server; numbers of manifests may be floats.
fn same_value(left: &Json, right: &Json) -> bool {
    left == right
        || matches!((left.as_f64(), right.as_f64()), (Some(left), Some(right)) if left.to_bits() == right.to_bits())
}

/// The JSON merge patch from `before` to `wanted`.
pub(super) fn two_way(before: &Json, wanted: &Json) -> Json {
    let (Json::Object(before), Json::Object(wanted)) = (before, wanted) else {
        return wanted.clone();
    };
    let mut patch = Map::new();
    for (field, value) in wanted {
        match before.get(field) {
            Some(old) if old == value => {}
            Some(old @ Json::Object(_)) if value.is_object() => {
                let inner = two_way(old, value);
                if inner.as_object().is_some_and(|inner| !inner.is_empty()) {
                    patch.insert(field.clone(), inner);
                }
            }
            _ => {
                patch.insert(field.clone(), value.clone());
            }
        }
    }
    for field in before.keys() {
        if !wanted.contains_key(field) {
            patch.insert(field.clone(), Json::Null);
        }
    }
    Json::Object(patch)
}

/// The JSON merge patch that brings `live` to `wanted`, and takes away what `before` had.
pub(super) fn three_way(before: &Json, wanted: &Json, live: &Json) -> Json {
    let mut patch = additions(wanted, live);
    deletions(before, wanted, live, &mut patch);
    Json::Object(patch)
}

fn additions(wanted: &Json, live: &Json) -> Map<String, Json> {
    let mut patch = Map::new();
    for (field, value) in wanted.as_object().into_iter().flatten() {
        match live.get(field) {
            Some(now) if same_value(now, value) => {}
            Some(now @ Json::Object(_)) if value.is_object() => {
                let inner = additions(value, now);
                if !inner.is_empty() {
                    patch.insert(field.clone(), Json::Object(inner));
                }
            }
            _ => {
                patch.insert(field.clone(), value.clone());
            }
        }
    }
    patch
}

fn deletions(before: &Json, wanted: &Json, live: &Json, patch: &mut Map<String, Json>) {
    for (field, old) in before.as_object().into_iter().flatten() {
        let Some(now) = live.get(field) else { continue };
        match wanted.get(field) {
            None => {
                patch.insert(field.clone(), Json::Null);
            }
            Some(value) if old.is_object() && value.is_object() => {
                let mut inner = match patch.remove(field) {
                    Some(Json::Object(inner)) => inner,
                    Some(other) => {
                        patch.insert(field.clone(), other);
                        continue;
                    }
                    None => Map::new(),
                };
                deletions(old, value, now, &mut inner);
                if !inner.is_empty() {
                    patch.insert(field.clone(), Json::Object(inner));
                }
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(patch: &Json, expected: &Json) {
        assert_eq!(patch, expected, "\n{patch:#}");
    }

    #[test]
    fn nothing_to_do_gives_an_empty_patch() {
        let object = json!({"spec": {"replicas": 1.0, "containers": [{"name": "a", "image": "x"}]}});
        let live = json!({"spec": {"replicas": 1, "containers": [{"name": "a", "image": "x", "ready": true}], "more": 1}});
        check(&strategic(&object, &object, &live), &json!({}));
        check(&two_way(&object, &object), &json!({}));
        check(
            &three_way(&json!({"a": {"b": 1}}), &json!({"a": {"b": 1}}), &json!({"a": {"b": 1, "c": 2}})),
            &json!({}),
        );
    }

    #[test]
    fn drift_is_undone_and_what_others_added_stays() {
        let wanted = json!({"spec": {"replicas": 2, "labels": {"a": "1"}}});
        let live = json!({"spec": {"replicas": 5, "labels": {"a": "1", "other": "x"}}});
        check(&strategic(&wanted, &wanted, &live), &json!({"spec": {"replicas": 2}}));
        check(&three_way(&wanted, &wanted, &live), &json!({"spec": {"replicas": 2}}));
        // Custom resources are compared with what was, not with what is there.
        check(&two_way(&wanted, &wanted), &json!({}));
    }

    #[test]
    fn what_was_ours_goes() {
        let before = json!({"spec": {"a": 1, "b": {"c": 1, "d": 2}}});
        let wanted = json!({"spec": {"b": {"c": 1}}});
        let live = json!({"spec": {"a": 1, "b": {"c": 1, "d": 2, "e": 3}}});
        let expected = json!({"spec": {"a": null, "b": {"d": null}}});
        check(&strategic(&before, &wanted, &live), &expected);
        check(&three_way(&before, &wanted, &live), &expected);
        check(&two_way(&before, &wanted), &expected);
    }

    #[test]
    fn list_items_are_merged_by_key() {
        let before =
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "gone", "image": "1"}]}});
        let wanted =
            json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "new", "image": "1"}]}});
        let live = json!({"spec": {"containers": [
            {"name": "a", "image": "1", "pull": "Always"}, {"name": "gone", "image": "1"}, {"name": "injected"}
        ]}});
        check(
            &strategic(&before, &wanted, &live),
            &json!({"spec": {
                "$setElementOrder/containers": [{"name": "a"}, {"name": "new"}],
                "containers": [
                    {"name": "a", "image": "2"},
                    {"name": "new", "image": "1"},
                    {"$patch": "delete", "name": "gone"}
                ]
            }}),
        );
    }

    #[test]
    fn ports_have_the_key_of_their_place_and_finalizers_are_a_set() {
        let wanted =
            json!({"spec": {"ports": [{"port": 80, "targetPort": 1}]}, "metadata": {"finalizers": ["a"]}});
        let live = json!({"spec": {"ports": [{"port": 80, "targetPort": 2, "nodePort": 3}]}, "metadata": {"finalizers": ["b", "old"]}});
        let before = json!({"metadata": {"finalizers": ["old"]}});
        check(
            &strategic(&before, &wanted, &live),
            &json!({
                "metadata": {"$deleteFromPrimitiveList/finalizers": ["old"], "finalizers": ["a"]},
                "spec": {"$setElementOrder/ports": [{"port": 80}], "ports": [{"port": 80, "targetPort": 1}]}
            }),
        );
    }

    #[test]
    fn lists_without_a_key_are_replaced() {
        let wanted = json!({"spec": {"args": ["a"]}});
        let live = json!({"spec": {"args": ["a", "b"]}});
        check(&strategic(&wanted, &wanted, &live), &wanted);
    }
}
