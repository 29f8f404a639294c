//! When objects are ready by the rules of Helm 3.

use serde_json::Value as Json;
use weir_apply::cluster::{Cluster, ClusterError};
use weir_apply::object::{self, ObjectRef};

/// How far an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// It is ready, or nothing is known about its kind.
    Ready,
    /// Not yet.
    NotYet,
    /// It will not be.
    Failed(String),
}

impl From<bool> for State {
    fn from(ready: bool) -> Self {
        if ready { Self::Ready } else { Self::NotYet }
    }
}

/// Assesses a live object; Deployments and the like are looked through to what they own.
pub(crate) async fn look_at(
    cluster: &dyn Cluster,
    reference: &ObjectRef,
    live: &Json,
) -> Result<State, ClusterError> {
    match (reference.group.as_str(), reference.kind.as_str()) {
        ("apps", "Deployment") => deployment(cluster, reference, live).await,
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            if !is_observed(live) {
                return Ok(State::NotYet);
            }
            let pods = owned_pods(cluster, reference, live).await?;
            Ok(pods.iter().all(is_pod_ready).into())
        }
        _ => Ok(alone(reference, live)),
    }
}

/// The rules that need nothing but the object.
fn alone(reference: &ObjectRef, live: &Json) -> State {
    let status = &live["status"];
    match (reference.group.as_str(), reference.kind.as_str()) {
        ("", "Pod") => is_pod_ready(live).into(),
        ("batch", "Job") => {
            let limit = live["spec"]["backoffLimit"].as_i64().unwrap_or(6);
            if number(status, "failed") > limit {
                let ObjectRef { namespace, name, .. } = reference;
                return State::Failed(format!("job is failed: {namespace}/{name}"));
            }
            let completions = live["spec"]["completions"].as_i64();
            completions.is_none_or(|wanted| number(status, "succeeded") >= wanted).into()
        }
        ("", "PersistentVolumeClaim") => (status["phase"] == "Bound").into(),
        ("", "Service") => service(live).into(),
        ("apps", "DaemonSet") => daemon_set(live).into(),
        ("apps", "StatefulSet") => stateful_set(live).into(),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => (has_condition(live, "Established", "True")
            || has_condition(live, "NamesAccepted", "False"))
        .into(),
        _ => State::Ready,
    }
}

fn number(status: &Json, field: &str) -> i64 {
    status[field].as_i64().unwrap_or(0)
}

fn is_observed(live: &Json) -> bool {
    number(&live["status"], "observedGeneration") >= live["metadata"]["generation"].as_i64().unwrap_or(0)
}

fn has_condition(live: &Json, kind: &str, status: &str) -> bool {
    let conditions = live["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|found| found["type"] == kind && found["status"] == status)
}

fn is_pod_ready(pod: &Json) -> bool {
    has_condition(pod, "Ready", "True")
}

fn service(live: &Json) -> bool {
    let spec = &live["spec"];
    if spec["type"] == "ExternalName" {
        return true;
    }
    if spec["clusterIP"].as_str().is_none_or(str::is_empty) {
        return false;
    }
    if spec["type"] != "LoadBalancer" {
        return true;
    }
    let filled = |list: &Json| list.as_array().is_some_and(|list| !list.is_empty());
    filled(&spec["externalIPs"]) || filled(&live["status"]["loadBalancer"]["ingress"])
}

/// A number or a percentage of `total`.
fn scaled(value: &Json, total: i64, round_up: bool) -> i64 {
    let Some(percent) = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok()) else {
        return value.as_i64().unwrap_or(0);
    };
    let product = total.saturating_mul(percent);
    if round_up {
        product.div_euclid(100) + i64::from(product.rem_euclid(100) != 0)
    } else {
        product.div_euclid(100)
    }
}

fn daemon_set(live: &Json) -> bool {
    let status = &live["status"];
    if !is_observed(live) {
        return false;
    }
    let strategy = &live["spec"]["updateStrategy"];
    if strategy["type"] != "RollingUpdate" {
        return true;
    }
    let desired = number(status, "desiredNumberScheduled");
    let unavailable = scaled(&strategy["rollingUpdate"]["maxUnavailable"], desired, true);
    number(status, "updatedNumberScheduled") == desired
        && number(status, "numberReady") >= desired - unavailable
}

fn stateful_set(live: &Json) -> bool {
    let (spec, status) = (&live["spec"], &live["status"]);
    if !is_observed(live) {
        return false;
    }
    if spec["updateStrategy"]["type"] != "RollingUpdate" {
        return true;
    }
    let partition = spec["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
    let replicas = spec["replicas"].as_i64().unwrap_or(1);
    number(status, "updatedReplicas") >= replicas - partition
        && number(status, "readyReplicas") == replicas
        && (partition != 0 || status["currentRevision"] == status["updateRevision"])
}

async fn deployment(
    cluster: &dyn Cluster,
    reference: &ObjectRef,
    live: &Json,
) -> Result<State, ClusterError> {
    let spec = &live["spec"];
    if spec["paused"] == true {
        return Ok(State::Ready);
    }
    if !is_observed(live) {
        return Ok(State::NotYet);
    }
    let kind = ObjectRef {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        ..ObjectRef::default()
    };
    let sets = cluster.list(&kind, Some(&reference.namespace), &selector(live)).await?;
    let revision = object::annotation(live, "deployment.kubernetes.io/revision");
    let newest = sets.iter().find(|set| {
        is_owned(set, live) && object::annotation(set, "deployment.kubernetes.io/revision") == revision
    });
    let Some(newest) = newest else { return Ok(State::NotYet) };
    let replicas = spec["replicas"].as_i64().unwrap_or(1);
    let rolling = &spec["strategy"]["rollingUpdate"];
    let unavailable =
        if replicas == 0 { 0 } else { scaled(&rolling["maxUnavailable"], replicas, false).min(replicas) };
    Ok((number(&newest["status"], "readyReplicas") >= replicas - unavailable).into())
}

fn is_owned(item: &Json, owner: &Json) -> bool {
    let owners = item["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|reference| reference["uid"] == owner["metadata"]["uid"])
}

/// The selector of a workload; only what `matchLabels` says, which is a superset of the Pods.
fn selector(live: &Json) -> String {
    let labels = live["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.or_else(|| live["spec"]["selector"].as_object());
    let pairs = labels.into_iter().flatten();
    let pairs = pairs.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    pairs.collect::<Vec<_>>().join(",")
}

async fn owned_pods(
    cluster: &dyn Cluster,
    reference: &ObjectRef,
    live: &Json,
) -> Result<Vec<Json>, ClusterError> {
    let kind = ObjectRef { version: "v1".to_owned(), kind: "Pod".to_owned(), ..ObjectRef::default() };
    cluster.list(&kind, Some(&reference.namespace), &selector(live)).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(live: &Json, expected: &State) {
        assert_eq!(&alone(&ObjectRef::of(live), live), expected, "{live}");
    }

    #[test]
    fn each_kind_has_its_rule() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        check(&json!({"apiVersion": "v1", "kind": "Pod", "status": {"conditions": ready}}), &State::Ready);
        check(&json!({"apiVersion": "v1", "kind": "Pod"}), &State::NotYet);
        check(&json!({"apiVersion": "v1", "kind": "ConfigMap"}), &State::Ready);
        check(
            &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}),
            &State::NotYet,
        );
        check(
            &json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "ExternalName"}}),
            &State::Ready,
        );
        check(
            &json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "10.0.0.1"}}),
            &State::Ready,
        );
        check(
            &json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}}),
            &State::NotYet,
        );
        let job = |status: Json| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "b"}, "spec": {"completions": 1, "backoffLimit": 1}, "status": status});
        check(&job(json!({"succeeded": 1})), &State::Ready);
        check(&job(json!({"failed": 1})), &State::NotYet);
        check(&job(json!({"failed": 2})), &State::Failed("job is failed: b/a".to_owned()));
        let daemons = |ready: i64| {
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"generation": 2},
            "spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "30%"}}},
            "status": {"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": ready}})
        };
        check(&daemons(2), &State::Ready);
        check(&daemons(1), &State::NotYet);
        let set = |revision: &str| {
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "spec": {"replicas": 2, "updateStrategy": {"type": "RollingUpdate"}},
            "status": {"updatedReplicas": 2, "readyReplicas": 2, "currentRevision": revision, "updateRevision": "b"}})
        };
        check(&set("b"), &State::Ready);
        check(&set("a"), &State::NotYet);
    }
}
