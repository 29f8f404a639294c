//! Whether a live object differs from what applying its manifest would give.

use serde_json::{Map, Value};

use crate::ignore::{self, Rules};
use crate::normalise::remove_doubled_metrics;
use crate::object::{self, ObjectRef};

/// Whether the dry-run result differs from the live object in anything that counts.
///
/// Labels, annotations and everything outside `metadata` and `status` count; managed fields,
/// generation, owner references and finalizers do not, nor do fields that `rules` ignore.
pub fn differs(live: &Value, dry_run: &Value, rules: &Rules) -> bool {
    let paths = rules.paths(dry_run);
    let (mut live, mut dry_run) = (comparable(live), comparable(dry_run));
    for path in paths {
        ignore::remove(&mut live, path);
        ignore::remove(&mut dry_run, path);
    }
    live != dry_run
}

/// The parts of an object that are compared.
fn comparable(object: &Value) -> Value {
    let mut rest = Map::new();
    if let Some(map) = object.as_object() {
        for (key, value) in map {
            if key != "metadata" && key != "status" {
                rest.insert(key.clone(), value.clone());
            }
        }
    }
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        if let Some(map) = object::metadata_map(object, field).filter(|map| !map.is_empty()) {
            metadata.insert(field.to_owned(), Value::Object(map.clone()));
        }
    }
    rest.insert("metadata".to_owned(), Value::Object(metadata));
    let mut value = Value::Object(rest);
    let reference = ObjectRef::of(object);
    if reference.is_kind("autoscaling", "HorizontalPodAutoscaler") {
        remove_doubled_metrics(&mut value);
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ignore::Rule;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn check(live: Value, dry_run: Value, expected: bool) {
        assert_eq!(differs(&live, &dry_run, &Rules::default()), expected);
    }

    #[test]
    fn only_labels_annotations_and_the_body_count() {
        let base = json!({"kind": "ConfigMap", "metadata": {"labels": {"a": "1"}}, "data": {"k": "v"}});
        check(base.clone(), base.clone(), false);
        check(
            json!({"kind": "ConfigMap", "metadata": {"labels": {"a": "1"}, "annotations": {}, "generation": 1,
                "resourceVersion": "1", "finalizers": ["x"]}, "data": {"k": "v"}, "status": {"a": 1}}),
            json!({"kind": "ConfigMap", "metadata": {"labels": {"a": "1"}, "generation": 2}, "data": {"k": "v"}}),
            false,
        );
        check(
            base.clone(),
            json!({"kind": "ConfigMap", "metadata": {"labels": {"a": "2"}}, "data": {"k": "v"}}),
            true,
        );
        check(
            base.clone(),
            json!({"kind": "ConfigMap", "metadata": {"labels": {"a": "1"}}, "data": {}}),
            true,
        );
        check(
            base,
            json!({"kind": "ConfigMap", "metadata": {"labels": {"a": "1"}, "annotations": {"x": ""}}, "data": {"k": "v"}}),
            true,
        );
    }

    #[test]
    fn doubled_metrics_are_no_drift() {
        let metric = json!({"type": "Resource", "resource": {"name": "cpu"}});
        let autoscaler = |metrics: Value| json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {"metrics": metrics}});
        check(autoscaler(json!([metric, metric, {}])), autoscaler(json!([metric])), false);
    }

    #[test]
    fn ignored_fields_do_not_count() {
        let rules = Rules::compile(&[Rule { paths: vec!["/spec/replicas".into()], target: None }]).unwrap();
        assert!(!differs(&json!({"spec": {"replicas": 1}}), &json!({"spec": {"replicas": 2}}), &rules));
        assert!(differs(
            &json!({"spec": {"replicas": 1, "x": 1}}),
            &json!({"spec": {"replicas": 2}}),
            &rules
        ));
    }
}
