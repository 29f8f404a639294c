//! Objects of one kind in its several served versions.

use serde_json::{Value, json};

use super::tree::{at, copy, items, made, remove, text, unset};
use crate::GroupVersionKind;

/// Gives an object of a built-in kind the form of another served version of that kind.
///
/// Only kinds whose versions differ are changed: HorizontalPodAutoscalers, and Events of the core group and of
/// `events.k8s.io`. The field `apiVersion` is always set.
pub fn convert(from: &GroupVersionKind, to: &GroupVersionKind, object: &mut Value) {
    match (from.kind.as_str(), from.version.as_str(), to.version.as_str()) {
        ("HorizontalPodAutoscaler", "v1", "v2") => *object = to_newest("v1", object),
        ("HorizontalPodAutoscaler", "v2", "v1") => to_old(object),
        ("Event", ..) if from.group != to.group => {
            let pairs = [
                ("involvedObject", "regarding"),
                ("message", "note"),
                ("source", "deprecatedSource"),
                ("firstTimestamp", "deprecatedFirstTimestamp"),
                ("lastTimestamp", "deprecatedLastTimestamp"),
                ("count", "deprecatedCount"),
                ("reportingComponent", "reportingController"),
            ];
            for (core, new) in pairs {
                let (old, new) = if to.group.is_empty() { (new, core) } else { (core, new) };
                if let Some(value) = remove(object, old) {
                    object[new] = value;
                }
            }
            if !to.group.is_empty() {
                // The newer form leaves them out where they are empty.
                for key in ["reportingController", "reportingInstance"] {
                    if text(object, key).is_empty() {
                        remove(object, key);
                    }
                }
            }
        }
        _ => {}
    }
    object["apiVersion"] = json!(to.api_version());
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// An autoscaler in the form of version 2, which holds all there is.
pub(crate) fn to_newest(version: &str, object: &Value) -> Value {
    let mut new = object.clone();
    if version != "v1" {
        return new;
    }
    let annotation = |key: &str| {
        let text = at(object, &["metadata", "annotations", key]).as_str()?;
        serde_json::from_str::<Value>(text).ok()
    };
    let mut metrics: Vec<Value> = annotation(METRICS)
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(metric_to_new)
        .collect();
    let spec = made(&mut new, "spec");
    if let Some(utilization) = remove(spec, "targetCPUUtilizationPercentage") {
        let target = json!({ "type": "Utilization", "averageUtilization": utilization });
        metrics.insert(0, json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } }));
    }
    if !metrics.is_empty() {
        spec["metrics"] = Value::Array(metrics);
    }
    if let Some(behavior) = annotation(BEHAVIOR) {
        spec["behavior"] = behavior;
    }
    let status = made(&mut new, "status");
    if let Some(current) = remove(status, "currentCPUUtilizationPercentage") {
        let current = json!({ "averageUtilization": current, "averageValue": "0" });
        status["currentMetrics"] =
            json!([{ "type": "Resource", "resource": { "name": "cpu", "current": current } }]);
    }
    if let Some(conditions) = annotation(CONDITIONS) {
        status["conditions"] = conditions;
    }
    for key in [METRICS, CURRENT, BEHAVIOR, CONDITIONS] {
        if let Some(annotations) = new["metadata"].get_mut("annotations") {
            remove(annotations, key);
        }
    }
    new
}

/// A metric of the annotation, whose targets are written the old way.
fn metric_to_new(old: &Value) -> Value {
    let kind = text(old, "type");
    let mut key = kind.to_owned();
    if let Some(first) = key.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    let source = &old[key.as_str()];
    let mut new = json!({});
    let mut target = json!({});
    for (old_key, new_key, form) in [
        ("targetAverageUtilization", "averageUtilization", "Utilization"),
        ("targetAverageValue", "averageValue", "AverageValue"),
        ("targetValue", "value", "Value"),
    ] {
        if !unset(source, old_key) {
            target["type"] = json!(form);
            target[new_key] = source[old_key].clone();
        }
    }
    copy(&mut new, source, "name");
    copy(&mut new, source, "container");
    if !source["metricName"].is_null() {
        new["metric"] = json!({ "name": source["metricName"] });
    }
    if !source["target"].is_null() {
        new["describedObject"] = source["target"].clone();
    }
    new["target"] = target;
    let mut metric = json!({ "type": kind });
    metric[key.as_str()] = new;
    metric
}

fn metric_to_old(new: &Value) -> Value {
    let kind = text(new, "type");
    let mut key = kind.to_owned();
    if let Some(first) = key.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    let source = &new[key.as_str()];
    let mut old = json!({});
    for (old_key, new_key) in [
        ("targetAverageUtilization", "averageUtilization"),
        ("targetAverageValue", "averageValue"),
        ("targetValue", "value"),
    ] {
        if !unset(&source["target"], new_key) {
            old[old_key] = source["target"][new_key].clone();
        }
    }
    copy(&mut old, source, "name");
    copy(&mut old, source, "container");
    if !source["metric"].is_null() {
        old["metricName"] = source["metric"]["name"].clone();
    }
    if !source["describedObject"].is_null() {
        old["target"] = source["describedObject"].clone();
    }
    let mut metric = json!({ "type": kind });
    metric[key.as_str()] = old;
    metric
}

fn to_old(object: &mut Value) {
    let is_cpu = |metric: &Value| {
        text(metric, "type") == "Resource"
            && text(&metric["resource"], "name") == "cpu"
            && !metric["resource"]["target"]["averageUtilization"].is_null()
    };
    let mut others = Vec::new();
    let mut cpu = None;
    for metric in items(&object["spec"], "metrics") {
        if cpu.is_none() && is_cpu(metric) {
            cpu = Some(metric["resource"]["target"]["averageUtilization"].clone());
        } else {
            others.push(metric_to_old(metric));
        }
    }
    let spec = made(object, "spec");
    remove(spec, "metrics");
    if let Some(cpu) = cpu {
        spec["targetCPUUtilizationPercentage"] = cpu;
    }
    let behavior = remove(spec, "behavior");
    let status = made(object, "status");
    let current = items(status, "currentMetrics")
        .iter()
        .find(|metric| text(&metric["resource"], "name") == "cpu")
        .map(|metric| metric["resource"]["current"]["averageUtilization"].clone());
    remove(status, "currentMetrics");
    if let Some(current) = current.filter(|current| !current.is_null()) {
        status["currentCPUUtilizationPercentage"] = current;
    }
    let conditions = remove(status, "conditions");
    let mut note = |key: &str, value: Value| {
        made(made(object, "metadata"), "annotations")[key] = json!(value.to_string());
    };
    if !others.is_empty() {
        note(METRICS, Value::Array(others));
    }
    if let Some(behavior) = behavior {
        note(BEHAVIOR, behavior);
    }
    if let Some(conditions) = conditions {
        note(CONDITIONS, conditions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autoscalers_go_to_the_old_version_and_back() {
        let gvk = |version: &str| GroupVersionKind::new("autoscaling", version, "HorizontalPodAutoscaler");
        let memory = json!({ "type": "Resource", "resource": { "name": "memory", "target": { "type": "AverageValue", "averageValue": "1Gi" } } });
        let cpu = json!({ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 60 } } });
        let before = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "a", "annotations": {} },
            "spec": { "maxReplicas": 3, "metrics": [cpu, memory] }, "status": {}
        });
        let mut object = before.clone();
        convert(&gvk("v2"), &gvk("v1"), &mut object);
        assert_eq!(object["spec"], json!({ "maxReplicas": 3, "targetCPUUtilizationPercentage": 60 }));
        assert_eq!(object["apiVersion"], "autoscaling/v1");
        convert(&gvk("v1"), &gvk("v2"), &mut object);
        assert_eq!(object, before);
    }

    #[test]
    fn events_change_their_names() {
        let mut event = json!({ "apiVersion": "v1", "kind": "Event", "message": "a", "involvedObject": { "kind": "Pod" }, "count": 2 });
        let (core, new) =
            (GroupVersionKind::new("", "v1", "Event"), GroupVersionKind::new("events.k8s.io", "v1", "Event"));
        convert(&core, &new, &mut event);
        assert_eq!(
            event,
            json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "a", "regarding": { "kind": "Pod" }, "deprecatedCount": 2 })
        );
        convert(&new, &core, &mut event);
        assert_eq!(event["message"], "a");
    }
}
