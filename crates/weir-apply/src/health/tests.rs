//! One row per rule.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_base::clock::{Clock, FixedClock};

use super::*;
use crate::cluster::ClusterError;
use crate::memory::{MemoryCluster, Verb};
use crate::object::ObjectRef;

const NOW: &str = "2026-03-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
fn object(api_version: &str, kind: &str, rest: Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "n"}});
    for (key, value) in rest.as_object().unwrap() {
        if key == "metadata" {
            for (key, value) in value.as_object().unwrap() {
                object["metadata"][key] = value.clone();
            }
        } else {
            object[key] = value.clone();
        }
    }
    object
}

#[track_caller]
fn check(api_version: &str, kind: &str, rest: Value, expected: Status) {
    let live = object(api_version, kind, rest);
    let assessment = assess(&live, &CustomChecks::default(), now());
    assert_eq!(assessment.status, expected, "{live}: {}", assessment.message);
}

#[test]
fn generic_rules_in_order() {
    let widget = |rest, expected| check("example.com/v1", "Widget", rest, expected);
    widget(json!({}), Status::Current);
    widget(
        json!({"metadata": {"deletionTimestamp": NOW}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        Status::Terminating,
    );
    widget(json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}), Status::InProgress);
    widget(json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2}}), Status::Current);
    widget(json!({"metadata": {"generation": 2}}), Status::Current);
    let conditions = |list: Value| json!({"status": {"conditions": list}});
    widget(
        conditions(json!([{"type": "Reconciling", "status": "True"}, {"type": "Stalled", "status": "True"}])),
        Status::InProgress,
    );
    widget(
        conditions(json!([{"type": "Stalled", "status": "True"}, {"type": "Reconciling", "status": "True"}])),
        Status::Failed,
    );
    widget(
        conditions(json!([{"type": "Reconciling", "status": "False"}, {"type": "Ready", "status": "True"}])),
        Status::Current,
    );
    widget(conditions(json!([{"type": "Ready", "status": "False"}])), Status::InProgress);
    widget(conditions(json!([{"type": "Ready", "status": "Unknown"}])), Status::InProgress);
    widget(conditions(json!([{"type": "Other", "status": "False"}])), Status::Current);
}

#[test]
fn kinds_that_are_always_ready() {
    for (api_version, kind) in
        [("v1", "ConfigMap"), ("v1", "Secret"), ("batch/v1", "CronJob"), ("policy/v1", "PodDisruptionBudget")]
    {
        check(api_version, kind, json!({}), Status::Current);
    }
    check(
        "policy/v1",
        "PodDisruptionBudget",
        json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}),
        Status::InProgress,
    );
}

#[test]
fn services_and_claims() {
    check("v1", "Service", json!({"spec": {"type": "ClusterIP"}}), Status::Current);
    check("v1", "Service", json!({"spec": {"type": "LoadBalancer"}}), Status::InProgress);
    check(
        "v1",
        "Service",
        json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}}),
        Status::Current,
    );
    check("v1", "PersistentVolumeClaim", json!({"status": {"phase": "Bound"}}), Status::Current);
    check("v1", "PersistentVolumeClaim", json!({"status": {"phase": "Pending"}}), Status::InProgress);
    check("v1", "PersistentVolumeClaim", json!({}), Status::InProgress);
}

#[test]
fn definitions() {
    let definition = |list: Value, expected| {
        check(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({"status": {"conditions": list}}),
            expected,
        );
    };
    definition(json!([]), Status::InProgress);
    definition(
        json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]),
        Status::Current,
    );
    definition(
        json!([{"type": "NamesAccepted", "status": "False"}, {"type": "Established", "status": "True"}]),
        Status::Failed,
    );
    definition(
        json!([{"type": "Established", "status": "False", "reason": "Installing"}]),
        Status::InProgress,
    );
    definition(json!([{"type": "Established", "status": "False", "reason": "NotAccepted"}]), Status::Failed);
}

#[test]
fn jobs_are_ready_when_complete_or_suspended() {
    let job = |rest, expected| check("batch/v1", "Job", rest, expected);
    job(json!({}), Status::InProgress);
    job(json!({"status": {"active": 1, "startTime": NOW}}), Status::InProgress);
    job(json!({"spec": {"suspend": true}}), Status::Current);
    job(json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}), Status::Current);
    job(json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}), Status::Failed);
    job(json!({"status": {"conditions": [{"type": "Complete", "status": "False"}]}}), Status::InProgress);
    job(json!({"metadata": {"deletionTimestamp": NOW}}), Status::InProgress);
}

#[test]
fn pods() {
    let pod = |rest, expected| check("v1", "Pod", rest, expected);
    pod(json!({}), Status::InProgress);
    pod(json!({"status": {"phase": "Succeeded"}}), Status::Current);
    pod(json!({"status": {"phase": "Failed"}}), Status::Current);
    pod(
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        Status::Current,
    );
    pod(json!({"status": {"phase": "Running"}}), Status::InProgress);
    pod(
        json!({"status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
        Status::Failed,
    );
    pod(json!({"status": {"phase": "Pending"}}), Status::InProgress);
    let unschedulable = |created: &str| {
        json!({"metadata": {"creationTimestamp": created}, "status": {"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
    };
    pod(unschedulable("2026-03-01T11:59:50Z"), Status::InProgress);
    pod(unschedulable("2026-03-01T11:59:40Z"), Status::Failed);
    pod(json!({"status": {"phase": "Odd"}}), Status::Unknown);
}

fn ready_deployment() -> Value {
    json!({"spec": {"replicas": 2, "progressDeadlineSeconds": 600}, "status": {"replicas": 2, "updatedReplicas": 2,
        "availableReplicas": 2, "readyReplicas": 2, "conditions": [
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            {"type": "Available", "status": "True"}]}})
}

#[track_caller]
fn check_changed(
    api_version: &str,
    kind: &str,
    ready: &Value,
    pointer: &str,
    value: Value,
    expected: Status,
) {
    let mut rest = ready.clone();
    *rest.pointer_mut(pointer).unwrap() = value;
    check(api_version, kind, rest, expected);
}

#[test]
fn deployments() {
    let ready = ready_deployment();
    check("apps/v1", "Deployment", ready.clone(), Status::Current);
    let changed = |pointer, value, expected| {
        check_changed("apps/v1", "Deployment", &ready, pointer, value, expected);
    };
    changed("/spec/replicas", json!(3), Status::InProgress);
    changed("/status/updatedReplicas", json!(1), Status::InProgress);
    changed("/status/replicas", json!(3), Status::InProgress);
    changed("/status/availableReplicas", json!(1), Status::InProgress);
    changed("/status/readyReplicas", json!(1), Status::InProgress);
    changed("/status/conditions/0/reason", json!("ReplicaSetUpdated"), Status::InProgress);
    changed("/status/conditions/0/reason", json!("ProgressDeadlineExceeded"), Status::Failed);
    changed("/status/conditions/1/status", json!("False"), Status::InProgress);
    let mut no_deadline = ready.clone();
    no_deadline["spec"]["progressDeadlineSeconds"] = json!(2_147_483_647);
    no_deadline["status"]["conditions"] = json!([{"type": "Available", "status": "True"}]);
    check("apps/v1", "Deployment", no_deadline, Status::Current);
    check("apps/v1", "Deployment", json!({}), Status::InProgress);
    check(
        "apps/v1",
        "Deployment",
        json!({"spec": {"replicas": 0}, "status": {"conditions": [{"type": "Available", "status": "True"}]}}),
        Status::Current,
    );
}

#[test]
fn stateful_sets() {
    let ready = json!({"spec": {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}},
        "status": {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "currentReplicas": 3,
            "currentRevision": "a", "updateRevision": "a"}});
    let set = |rest, expected| check("apps/v1", "StatefulSet", rest, expected);
    set(ready.clone(), Status::Current);
    set(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}), Status::Current);
    let changed = |pointer, value, expected| {
        check_changed("apps/v1", "StatefulSet", &ready, pointer, value, expected);
    };
    changed("/status/replicas", json!(2), Status::InProgress);
    changed("/status/replicas", json!(4), Status::InProgress);
    changed("/status/readyReplicas", json!(2), Status::InProgress);
    changed("/status/updatedReplicas", json!(2), Status::InProgress);
    let mut partitioned = ready.clone();
    partitioned["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(2);
    partitioned["status"]["updatedReplicas"] = json!(1);
    set(partitioned, Status::Current);
    let mut whole = ready;
    whole["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    set(whole.clone(), Status::Current);
    check_changed("apps/v1", "StatefulSet", &whole, "/status/currentReplicas", json!(2), Status::InProgress);
    check_changed("apps/v1", "StatefulSet", &whole, "/status/updateRevision", json!("b"), Status::InProgress);
}

#[test]
fn daemon_sets() {
    let ready = json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 2,
        "currentNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2}});
    check("apps/v1", "DaemonSet", ready.clone(), Status::Current);
    check("apps/v1", "DaemonSet", json!({"status": {"desiredNumberScheduled": 0}}), Status::InProgress);
    check(
        "apps/v1",
        "DaemonSet",
        json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}),
        Status::InProgress,
    );
    check(
        "apps/v1",
        "DaemonSet",
        json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 0}}),
        Status::Current,
    );
    for key in ["currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"] {
        check_changed(
            "apps/v1",
            "DaemonSet",
            &ready,
            &format!("/status/{key}"),
            json!(1),
            Status::InProgress,
        );
    }
}

#[test]
fn replica_sets() {
    let ready = json!({"spec": {"replicas": 1}, "status": {"replicas": 1, "fullyLabeledReplicas": 1,
        "availableReplicas": 1, "readyReplicas": 1, "conditions": [{"type": "ReplicaFailure", "status": "False"}]}});
    check("apps/v1", "ReplicaSet", ready.clone(), Status::Current);
    for key in ["fullyLabeledReplicas", "availableReplicas", "readyReplicas"] {
        check_changed(
            "apps/v1",
            "ReplicaSet",
            &ready,
            &format!("/status/{key}"),
            json!(0),
            Status::InProgress,
        );
    }
    check_changed("apps/v1", "ReplicaSet", &ready, "/status/replicas", json!(2), Status::InProgress);
    check_changed(
        "apps/v1",
        "ReplicaSet",
        &ready,
        "/status/conditions/0/status",
        json!("True"),
        Status::InProgress,
    );
}

#[track_caller]
fn check_custom(before_jobs: bool, live: &Value, expected: Status) {
    let mut checks = CustomChecks::compile([
        Source { api_version: "example.com/v1", current: "status.phase == 'Up'", ..Source::default() },
        Source {
            api_version: "example.com/v1beta1",
            kind: "Widget",
            current: "status.ready",
            in_progress: "status.busy",
            failed: "status.broken",
        },
        Source { api_version: "batch/v1", kind: "Job", current: "true", ..Source::default() },
    ])
    .unwrap();
    checks.before_jobs = before_jobs;
    let assessment = assess(live, &checks, now());
    assert_eq!(assessment.status, expected, "{live}: {}", assessment.message);
}

#[test]
fn custom_rules() {
    let widget = |rest| object("example.com/v2", "Widget", rest);
    check_custom(
        false,
        &widget(json!({"status": {"busy": true, "broken": true, "ready": true}})),
        Status::InProgress,
    );
    check_custom(
        false,
        &widget(json!({"status": {"busy": false, "broken": true, "ready": true}})),
        Status::Failed,
    );
    check_custom(
        false,
        &widget(json!({"status": {"busy": false, "broken": false, "ready": true}})),
        Status::Current,
    );
    check_custom(
        false,
        &widget(json!({"status": {"busy": false, "broken": false, "ready": false}})),
        Status::InProgress,
    );
    check_custom(false, &widget(json!({})), Status::Unknown);
    check_custom(
        false,
        &widget(
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "busy": false, "broken": false, "ready": true}}),
        ),
        Status::InProgress,
    );
    let other = object(
        "example.com/v1",
        "Gadget",
        json!({"status": {"phase": "Up"}, "metadata": {"deletionTimestamp": NOW}}),
    );
    check_custom(false, &other, Status::Current);
    let job = object("batch/v1", "Job", json!({}));
    check_custom(false, &job, Status::InProgress);
    check_custom(true, &job, Status::Current);
}

#[test]
fn custom_rules_must_be_complete_and_unique() {
    let rule = |kind, current| Source { api_version: "example.com/v1", kind, current, ..Source::default() };
    let error = CustomChecks::compile([rule("A", "true"), rule("A", "false")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "duplicate custom health check for GroupKind A.example.com at healthchecks[1]"
    );
    assert!(CustomChecks::compile([rule("A", "")]).is_err());
    assert!(CustomChecks::compile([rule("A", "status.")]).is_err());
    assert!(CustomChecks::compile([rule("A", "true"), rule("", "true")]).is_ok());
}

const CLOCK: FixedClock = FixedClock(Timestamp::UNIX_EPOCH);

async fn run(cluster: &MemoryCluster, targets: Vec<Target>, fail_fast: bool) -> Result<(), WaitError> {
    let checks = CustomChecks::default();
    let clock: &dyn Clock = &CLOCK;
    let options = Wait {
        checks: &checks,
        selector: None,
        timeout: Duration::from_secs(30),
        fail_fast,
        poll_interval: Duration::from_secs(5),
        clock,
    };
    wait(cluster, targets, &options).await
}

fn target(live: &Value) -> Target {
    Target::new(ObjectRef::of(live))
}

fn named(mut live: Value, name: &str) -> Value {
    live["metadata"]["name"] = name.into();
    live
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_when_the_last_object_turns_ready() {
    let cluster = Arc::new(MemoryCluster::new());
    let pending = object("apps/v1", "Deployment", json!({}));
    cluster.put(pending.clone());
    let later = Arc::clone(&cluster);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        later.put(object("apps/v1", "Deployment", ready_deployment()));
    });
    let started = tokio::time::Instant::now();
    run(&cluster, vec![target(&pending)], true).await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_millis(1200), "by watch, not by poll");
}

#[tokio::test(start_paused = true)]
async fn polling_takes_over_when_watching_is_refused() {
    let cluster = Arc::new(MemoryCluster::new());
    let pending = object("apps/v1", "Deployment", json!({}));
    cluster.put(pending.clone());
    let forbidden = ClusterError::Api { code: 403, reason: "Forbidden".into(), message: "no watch".into() };
    cluster.fail(Verb::Watch, "*", forbidden, 100);
    let later = Arc::clone(&cluster);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        later.put(object("apps/v1", "Deployment", ready_deployment()));
    });
    let started = tokio::time::Instant::now();
    run(&cluster, vec![target(&pending)], true).await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn known_objects_cost_no_request() {
    let cluster = MemoryCluster::new();
    let live = object("v1", "ConfigMap", json!({}));
    let known = Target { known: Some(live.clone()), ..target(&live) };
    run(&cluster, vec![known], true).await.unwrap();
    assert_eq!(cluster.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn many_objects_of_a_kind_are_listed_instead_of_read() {
    let cluster = MemoryCluster::new();
    let put = |name: &str, labels: Value| {
        let mut live = named(object("v1", "ConfigMap", json!({})), name);
        live["metadata"]["labels"] = labels;
        cluster.put(live.clone());
        target(&live)
    };
    let owned = json!({"owner": "a"});
    let targets =
        vec![put("a", owned.clone()), put("b", owned.clone()), put("c", owned), put("d", json!({}))];
    let checks = CustomChecks::default();
    let options = Wait {
        checks: &checks,
        selector: Some("owner=a"),
        timeout: Duration::from_secs(30),
        fail_fast: true,
        poll_interval: Duration::from_secs(5),
        clock: &CLOCK,
    };
    cluster.take_requests();
    wait(&cluster, targets.clone(), &options).await.unwrap();
    let verbs: Vec<Verb> = cluster.take_requests().into_iter().map(|(verb, _)| verb).collect();
    assert_eq!(verbs, [Verb::List, Verb::Get], "one list, and one read of what it lacks");
    wait(&cluster, targets[..2].to_vec(), &options).await.unwrap();
    let verbs: Vec<Verb> = cluster.take_requests().into_iter().map(|(verb, _)| verb).collect();
    assert_eq!(verbs, [Verb::Get, Verb::Get]);
}

#[tokio::test(start_paused = true)]
async fn time_runs_out_and_every_unready_object_is_named() {
    let cluster = MemoryCluster::new();
    cluster.put(object(
        "example.com/v1",
        "Widget",
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "message": "warming up"}]}}),
    ));
    let ready = object("v1", "ConfigMap", json!({}));
    cluster.put(ready.clone());
    let missing = named(ready.clone(), "gone");
    let widget = object("example.com/v1", "Widget", json!({}));
    let error =
        run(&cluster, vec![target(&widget), target(&ready), target(&missing)], true).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "timeout waiting for: [Widget/n/x status: 'InProgress': warming up, ConfigMap/n/gone status: 'NotFound']"
    );
}

#[tokio::test(start_paused = true)]
async fn failures_end_the_wait_early_unless_told_otherwise() {
    let cluster = MemoryCluster::new();
    let failed = object(
        "batch/v1",
        "Job",
        json!({"status": {"conditions": [{"type": "Failed", "status": "True", "message": "boom"}]}}),
    );
    let pending = named(object("batch/v1", "Job", json!({})), "slow");
    cluster.put(failed.clone());
    cluster.put(pending.clone());
    let targets = || vec![target(&failed), target(&pending)];
    let started = tokio::time::Instant::now();
    let error = run(&cluster, targets(), true).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed early due to stalled resources: [Job/n/x status: 'Failed': Job Failed: boom]"
    );
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(matches!(run(&cluster, targets(), false).await, Err(WaitError::Timeout(_))));
    let only_failed = run(&cluster, vec![target(&failed)], false).await;
    assert!(matches!(only_failed, Err(WaitError::Failed(_))), "nothing is left that could get ready");
}

#[tokio::test(start_paused = true)]
async fn a_crashing_pod_fails_its_deployment() {
    let cluster = MemoryCluster::new();
    let deployment =
        object("apps/v1", "Deployment", json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}}));
    cluster.put(deployment.clone());
    let pod = |rest: Value| {
        let mut pod = named(object("v1", "Pod", rest), "web-1");
        pod["metadata"]["labels"] = json!({"app": "web"});
        pod
    };
    let crash = json!({"status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
    let mut deleted = crash.clone();
    deleted["metadata"] = json!({"deletionTimestamp": NOW});
    cluster.put(pod(deleted));
    assert!(matches!(run(&cluster, vec![target(&deployment)], true).await, Err(WaitError::Timeout(_))));
    cluster.put(pod(crash));
    let error = run(&cluster, vec![target(&deployment)], true).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed early due to stalled resources: [Deployment/n/x status: 'Failed': Pod/n/web-1 failed]"
    );
}

#[tokio::test(start_paused = true)]
async fn jobs_that_clean_up_after_themselves_may_vanish() {
    let cluster = MemoryCluster::new();
    let job = object("batch/v1", "Job", json!({}));
    run(&cluster, vec![Target { may_vanish: true, ..target(&job) }], true).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn read_errors_are_shown() {
    let cluster = MemoryCluster::new();
    cluster.set_unknown("example.com", "Widget", true);
    let widget = object("example.com/v1", "Widget", json!({}));
    let error = run(&cluster, vec![target(&widget)], true).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "timeout waiting for: [Widget/n/x status: 'Unknown': no matches for kind \"Widget\" in version \"example.com/v1\"]"
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_for_objects_to_go() {
    let cluster = Arc::new(MemoryCluster::new());
    let live = object("v1", "ConfigMap", json!({}));
    cluster.put(live.clone());
    let reference = ObjectRef::of(&live);
    let error =
        wait_gone(&*cluster, std::slice::from_ref(&reference), Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.to_string(), "timeout waiting for: [ConfigMap/n/x status: 'Terminating']");
    let later = Arc::clone(&cluster);
    let taken = reference.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        later.take(&taken);
    });
    wait_gone(&*cluster, &[reference], Duration::from_secs(5)).await.unwrap();
}
