//! The rules of kinds that have their own.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Assessment, Status, condition, conditions, field, integer};
use crate::object::{self, ObjectRef};

/// How long a Pod may wait for a node before it counts as failed.
const UNSCHEDULABLE_GRACE: SignedDuration = SignedDuration::from_secs(15);
/// `progressDeadlineSeconds` that stands for none.
const NO_DEADLINE_SECONDS: i64 = i32::MAX as i64;

fn current(message: impl Into<String>) -> Assessment {
    Assessment::new(Status::Current, message)
}

fn in_progress(message: impl Into<String>) -> Assessment {
    Assessment::new(Status::InProgress, message)
}

fn failed(message: impl Into<String>) -> Assessment {
    Assessment::new(Status::Failed, message)
}

/// The assessment of a kind with rules of its own, or `None`.
pub(super) fn assess(reference: &ObjectRef, live: &Value, now: Timestamp) -> Option<Assessment> {
    Some(match (reference.group.as_str(), reference.kind.as_str()) {
        ("", "ConfigMap" | "Secret") | ("batch", "CronJob") | ("policy", "PodDisruptionBudget") => {
            current("Resource is always ready")
        }
        ("", "Service") => service(live),
        ("", "PersistentVolumeClaim") => claim(live),
        ("", "Pod") => pod(live, now),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(live),
        ("apps" | "extensions", "Deployment") => deployment(live),
        ("apps", "StatefulSet") => stateful_set(live),
        ("apps" | "extensions", "DaemonSet") => daemon_set(live),
        ("apps" | "extensions", "ReplicaSet") => replica_set(live),
        _ => return None,
    })
}

fn service(live: &Value) -> Assessment {
    let text = |key: &str| field(live, &["spec", key]).and_then(Value::as_str).unwrap_or_default();
    if text("type") == "LoadBalancer" && text("clusterIP").is_empty() {
        return in_progress("ClusterIP not set. Service type: LoadBalancer");
    }
    current("Service is ready")
}

fn claim(live: &Value) -> Assessment {
    match field(live, &["status", "phase"]).and_then(Value::as_str).unwrap_or_default() {
        "Bound" => current("PVC is Bound"),
        phase => in_progress(format!("PVC is not Bound. phase: {phase}")),
    }
}

fn definition(live: &Value) -> Assessment {
    for condition in conditions(live) {
        let (status, message) = (object::text(condition, "status"), object::text(condition, "message"));
        match (object::text(condition, "type"), status) {
            ("NamesAccepted", "False") => return failed(message),
            ("Established", "False") if object::text(condition, "reason") != "Installing" => {
                return failed(message);
            }
            ("Established", "True") => return current("CRD is established"),
            _ => {}
        }
    }
    in_progress("Install in progress")
}

/// A Job is ready when it has completed, or is suspended.
pub(super) fn job(live: &Value) -> Assessment {
    if field(live, &["spec", "suspend"]).and_then(Value::as_bool) == Some(true) {
        return current("Job is suspended");
    }
    for condition in conditions(live) {
        if object::text(condition, "status") != "True" {
            continue;
        }
        match object::text(condition, "type") {
            "Complete" => return current("Job Completed"),
            "Failed" => {
                return failed(format!("Job Failed: {}", object::text(condition, "message")));
            }
            _ => {}
        }
    }
    in_progress("Job in progress")
}

fn pod(live: &Value, now: Timestamp) -> Assessment {
    match field(live, &["status", "phase"]).and_then(Value::as_str).unwrap_or_default() {
        "Succeeded" => current("Pod has completed successfully"),
        "Failed" => current("Pod has completed, but not successfully"),
        "Running" => {
            if condition(live, "Ready").is_some_and(|ready| object::text(ready, "status") == "True") {
                return current("Pod is Ready");
            }
            match crash_looping(live) {
                Some(container) => failed(format!("Container in CrashLoop state: {container}")),
                None => in_progress("Pod is running but is not Ready"),
            }
        }
        "Pending" => {
            if is_unschedulable(live) {
                let age = object::metadata_text(live, "creationTimestamp")
                    .parse::<Timestamp>()
                    .map_or(SignedDuration::ZERO, |created| now.duration_since(created));
                if age > UNSCHEDULABLE_GRACE {
                    return failed("Pod could not be scheduled");
                }
                return in_progress("Pod has not been scheduled");
            }
            in_progress("Pod is in the Pending phase")
        }
        "" => in_progress("Pod phase not available"),
        phase => Assessment::new(Status::Unknown, format!("unknown pod phase {phase}")),
    }
}

/// Whether a Pod has no node because none fits.
pub(super) fn is_unschedulable(pod: &Value) -> bool {
    condition(pod, "PodScheduled").is_some_and(|scheduled| {
        object::text(scheduled, "status") == "False" && object::text(scheduled, "reason") == "Unschedulable"
    })
}

fn crash_looping(live: &Value) -> Option<&str> {
    field(live, &["status", "containerStatuses"])?.as_array()?.iter().find_map(|container| {
        let reason = field(container, &["state", "waiting", "reason"])?.as_str()?;
        (reason == "CrashLoopBackOff").then(|| object::text(container, "name"))
    })
}

/// Counts of a workload; those of the status are zero while absent.
struct Replicas<'a>(&'a Value);

impl Replicas<'_> {
    fn wanted(&self) -> i64 {
        integer(self.0, &["spec", "replicas"]).unwrap_or(1)
    }

    fn status(&self, key: &str) -> i64 {
        integer(self.0, &["status", key]).unwrap_or(0)
    }
}

fn deployment(live: &Value) -> Assessment {
    let progressing = condition(live, "Progressing");
    if progressing.is_some_and(|condition| object::text(condition, "reason") == "ProgressDeadlineExceeded") {
        return failed("Progress deadline exceeded");
    }
    let replicas = Replicas(live);
    let wanted = replicas.wanted();
    let (total, updated) = (replicas.status("replicas"), replicas.status("updatedReplicas"));
    let (available, ready) = (replicas.status("availableReplicas"), replicas.status("readyReplicas"));
    if wanted > total {
        return in_progress(format!("replicas: {total}/{wanted}"));
    }
    if wanted > updated {
        return in_progress(format!("Updated: {updated}/{wanted}"));
    }
    if total > wanted {
        return in_progress(format!("Pending termination: {}", total - wanted));
    }
    if updated > available {
        return in_progress(format!("Available: {available}/{updated}"));
    }
    if wanted > ready {
        return in_progress(format!("Ready: {ready}/{wanted}"));
    }
    let has_deadline = integer(live, &["spec", "progressDeadlineSeconds"])
        .is_some_and(|seconds| seconds != NO_DEADLINE_SECONDS);
    let rolled_out = progressing.is_some_and(|condition| {
        object::text(condition, "status") == "True"
            && object::text(condition, "reason") == "NewReplicaSetAvailable"
    });
    if has_deadline && !rolled_out {
        return in_progress("ReplicaSet not Available");
    }
    if condition(live, "Available").is_none_or(|available| object::text(available, "status") != "True") {
        return in_progress("Deployment not Available");
    }
    current(format!("Deployment is available. Replicas: {total}"))
}

fn stateful_set(live: &Value) -> Assessment {
    let strategy = field(live, &["spec", "updateStrategy", "type"]).and_then(Value::as_str);
    if strategy == Some("OnDelete") {
        return current("StatefulSet is using the ondelete update strategy");
    }
    let replicas = Replicas(live);
    let wanted = replicas.wanted();
    let (total, ready) = (replicas.status("replicas"), replicas.status("readyReplicas"));
    if wanted > total {
        return in_progress(format!("Replicas: {total}/{wanted}"));
    }
    if wanted > ready {
        return in_progress(format!("Ready: {ready}/{wanted}"));
    }
    if total > wanted {
        return in_progress(format!("Pending termination: {}", total - wanted));
    }
    let partition = integer(live, &["spec", "updateStrategy", "rollingUpdate", "partition"]);
    if let Some(partition) = partition.filter(|partition| *partition != -1) {
        let updated = replicas.status("updatedReplicas");
        if updated < wanted - partition {
            return in_progress(format!("updated: {updated}/{}", wanted - partition));
        }
        return current(format!("Partition rollout complete. updated: {updated}"));
    }
    let current_replicas = replicas.status("currentReplicas");
    if wanted > current_replicas {
        return in_progress(format!("current: {current_replicas}/{wanted}"));
    }
    let revision = |key: &str| field(live, &["status", key]).and_then(Value::as_str).unwrap_or_default();
    if revision("currentRevision") != revision("updateRevision") {
        return in_progress("Waiting for updated revision to match current");
    }
    current(format!("All replicas scheduled as expected. Replicas: {total}"))
}

fn daemon_set(live: &Value) -> Assessment {
    let generation = integer(live, &["metadata", "generation"]);
    let observed = integer(live, &["status", "observedGeneration"]);
    let (Some(_), Some(_)) = (generation, observed) else {
        return in_progress("Observed generation is missing");
    };
    let Some(desired) = integer(live, &["status", "desiredNumberScheduled"]) else {
        return in_progress("Missing .status.desiredNumberScheduled");
    };
    let replicas = Replicas(live);
    for (key, word) in [
        ("currentNumberScheduled", "Current"),
        ("updatedNumberScheduled", "Updated"),
        ("numberAvailable", "Available"),
        ("numberReady", "Ready"),
    ] {
        let count = replicas.status(key);
        if desired > count {
            return in_progress(format!("{word}: {count}/{desired}"));
        }
    }
    current(format!("All replicas scheduled as expected. Replicas: {desired}"))
}

fn replica_set(live: &Value) -> Assessment {
    if condition(live, "ReplicaFailure").is_some_and(|failure| object::text(failure, "status") == "True") {
        return in_progress("Replica Failure condition. Check Pods");
    }
    let replicas = Replicas(live);
    let wanted = replicas.wanted();
    for (key, word) in
        [("fullyLabeledReplicas", "Labelled"), ("availableReplicas", "Available"), ("readyReplicas", "Ready")]
    {
        let count = replicas.status(key);
        if wanted > count {
            return in_progress(format!("{word}: {count}/{wanted}"));
        }
    }
    let total = replicas.status("replicas");
    if total > wanted {
        return in_progress(format!("Pending termination: {}", total - wanted));
    }
    current(format!("ReplicaSet is available. Replicas: {total}"))
}
