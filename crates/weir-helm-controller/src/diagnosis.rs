//! What the Pods behind a failed action say: their state, their events, the end of their logs.
//!
//! Bounded in requests, time and text. Values of Secrets, and what looks like a credential, are masked.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use regex::Regex;
use serde_json::Value as Json;
use weir_apply::health::{CustomChecks, Status, assess};
use weir_apply::object::{self, ObjectRef};
use weir_apply::write::{LogLimits, WriteCluster};
use weir_helm::release::Record;

/// How many workloads, and Pods of each, are looked at.
const WORKLOADS_MAX: usize = 3;
const PODS_MAX: usize = 2;
/// How many events and lines of a log are shown of a Pod.
const EVENTS_MAX: usize = 3;
const LOG_LINES_MAX: usize = 10;
const LOG_BYTES_MAX: usize = 4 << 10;
const LINE_BYTES_MAX: usize = 300;
/// How long the whole text may get.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// How long the looking may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter values of Secrets are not masked: they are too likely part of something else.
const SECRET_BYTES_MIN: usize = 6;
const MASK: &str = "*****";

static CREDENTIAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"(?i)((?:password|passwd|secret|token|api[_-]?key|authorization)["']?\s*[:=]\s*["']?(?:bearer\s+|basic\s+)?)[^\s"',;]+|(://[^/\s:@]*:)[^@\s]+@"#,
    )
    .ok()
});

/// What is to be said about the workloads of a record that are not ready; empty if there is nothing.
pub(crate) async fn explain(
    cluster: &dyn WriteCluster,
    record: &Record,
    checks: &CustomChecks,
    now: Timestamp,
) -> String {
    let looked = tokio::time::timeout(TIMEOUT, Box::pin(look(cluster, record, checks, now))).await;
    let text = mask(&looked.unwrap_or_default(), &secrets(record));
    weir_base::error::truncate(text.trim_end(), TEXT_BYTES_MAX)
}

/// A text of others without values of the Secrets of a record and what looks like a credential.
pub(crate) fn masked(text: &str, record: Option<&Record>) -> String {
    if text.is_empty() {
        return String::new();
    }
    mask(text, &record.map(secrets).unwrap_or_default())
}

async fn look(cluster: &dyn WriteCluster, record: &Record, checks: &CustomChecks, now: Timestamp) -> String {
    let mut text = String::new();
    let failed_hooks = record.hooks.iter().filter(|hook| hook.last_run.phase == "Failed");
    let texts = failed_hooks.map(|hook| hook.manifest.as_str()).chain([record.manifest.as_str()]);
    let candidates =
        texts.flat_map(|text| weir_manifest::read_documents(text.as_bytes(), "").unwrap_or_default());
    let candidates: Vec<Json> = candidates.filter(is_workload).collect();
    let mut shown = 0;
    for mut item in candidates {
        if shown == WORKLOADS_MAX {
            break;
        }
        if object::metadata_text(&item, "namespace").is_empty() {
            item["metadata"]["namespace"] = record.namespace.as_str().into();
        }
        let reference = ObjectRef::of(&item);
        let Ok(Some(live)) = cluster.get(&reference).await else { continue };
        if assess(&live, checks, now).status == Status::Current {
            continue;
        }
        let pods = pods(cluster, &reference, &live).await;
        if pods.is_empty() {
            continue;
        }
        shown += 1;
        let _ = writeln!(text, "{reference}:");
        for pod in pods.iter().take(PODS_MAX) {
            describe(cluster, pod, &mut text).await;
        }
    }
    text
}

fn is_workload(item: &Json) -> bool {
    let reference = ObjectRef::of(item);
    reference.is_kind("batch", "Job")
        || reference.is_kind("", "Pod")
        || ["Deployment", "StatefulSet", "DaemonSet"].iter().any(|kind| reference.is_kind("apps", kind))
}

/// The Pods of a workload that are not well, the youngest first.
async fn pods(cluster: &dyn WriteCluster, reference: &ObjectRef, live: &Json) -> Vec<Json> {
    if reference.kind == "Pod" {
        return vec![live.clone()];
    }
    let labels = live["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let mut selector: Vec<String> =
        labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    if selector.is_empty() && reference.kind == "Job" {
        selector.push(format!("job-name={}", reference.name));
    }
    if selector.is_empty() {
        return Vec::new();
    }
    let kind = ObjectRef::core("Pod", &reference.namespace, "");
    let found = cluster.list(&kind, Some(&reference.namespace), &selector.join(",")).await;
    let mut found: Vec<Json> = found.unwrap_or_default().into_iter().filter(is_unwell).collect();
    found.sort_by_key(|pod| std::cmp::Reverse(object::metadata_text(pod, "creationTimestamp").to_owned()));
    found
}

fn is_unwell(pod: &Json) -> bool {
    let ready = |condition: &Json| condition["type"] == "Ready" && condition["status"] == "True";
    let conditions = pod["status"]["conditions"].as_array();
    pod["status"]["phase"] != "Succeeded" && !conditions.is_some_and(|list| list.iter().any(ready))
}

/// One Pod: what its containers wait for or died of, its last warnings, and the log of the first such container.
async fn describe(cluster: &dyn WriteCluster, pod: &Json, text: &mut String) {
    let name = object::metadata_text(pod, "name");
    let namespace = object::metadata_text(pod, "namespace");
    let phase = pod["status"]["phase"].as_str().unwrap_or("Unknown");
    let _ = writeln!(text, "  Pod {name}: {phase}");
    let mut logged = None;
    for field in ["initContainerStatuses", "containerStatuses"] {
        for status in pod["status"][field].as_array().into_iter().flatten() {
            let container = status["name"].as_str().unwrap_or_default();
            let died = [&status["state"]["terminated"], &status["lastState"]["terminated"]]
                .into_iter()
                .find(|ended| ended.is_object() && ended["exitCode"] != 0);
            let waits = &status["state"]["waiting"];
            if died.is_none() && !waits.is_object() {
                continue;
            }
            let _ = write!(text, "    container {container}:");
            if waits.is_object() {
                let _ = write!(text, " waiting: {}", reason(waits));
            }
            if let Some(died) = died {
                let _ = write!(text, " terminated: {}, exit code {}", reason(died), died["exitCode"]);
            }
            text.push('\n');
            let restarted = status["restartCount"].as_i64().is_some_and(|count| count > 0);
            if died.is_some() && logged.is_none() {
                logged =
                    Some((container.to_owned(), restarted && !status["state"]["terminated"].is_object()));
            }
        }
    }
    let _ = write!(text, "{}", events(cluster, namespace, name).await);
    let Some((container, previous)) = logged else { return };
    let limits = LogLimits { lines_max: LOG_LINES_MAX, bytes_max: LOG_BYTES_MAX, previous };
    let reference = ObjectRef::core("Pod", namespace, name);
    let Ok(log) = cluster.pod_log(&reference, &container, limits).await else { return };
    for line in log.lines() {
        let _ = writeln!(text, "    log {container}: {}", cut(line));
    }
}

fn reason(state: &Json) -> String {
    let reason = state["reason"].as_str().unwrap_or("no reason given");
    match state["message"].as_str().map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {}", cut(message)),
        None => reason.to_owned(),
    }
}

/// The last warnings about a Pod.
async fn events(cluster: &dyn WriteCluster, namespace: &str, pod: &str) -> String {
    let found = cluster.list(&ObjectRef::core("Event", namespace, ""), Some(namespace), "").await;
    let about = |event: &Json| {
        let subject = &event["involvedObject"];
        event["type"] == "Warning" && subject["kind"] == "Pod" && subject["name"] == pod
    };
    let mut found: Vec<Json> = found.unwrap_or_default().into_iter().filter(about).collect();
    let time = |event: &Json| {
        ["lastTimestamp", "eventTime", "firstTimestamp"]
            .iter()
            .find_map(|field| event[*field].as_str().map(ToOwned::to_owned))
    };
    found.sort_by_key(time);
    let last = &found[found.len().saturating_sub(EVENTS_MAX)..];
    let mut text = String::new();
    for event in last {
        let message = event["message"].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "    event {}: {}",
            event["reason"].as_str().unwrap_or_default(),
            cut(message.lines().next().unwrap_or_default())
        );
    }
    text
}

fn cut(line: &str) -> String {
    weir_base::error::truncate(line, LINE_BYTES_MAX)
}

/// The values of the Secrets of a record.
fn secrets(record: &Record) -> Vec<String> {
    let documents = weir_manifest::read_documents(record.manifest.as_bytes(), "").unwrap_or_default();
    let mut values = Vec::new();
    for item in documents.iter().filter(|item| ObjectRef::of(item).is_kind("", "Secret")) {
        for (_, value) in item["stringData"].as_object().into_iter().flatten() {
            values.extend(value.as_str().map(ToOwned::to_owned));
        }
        for (_, value) in item["data"].as_object().into_iter().flatten() {
            let decoded = value.as_str().and_then(|text| STANDARD.decode(text).ok());
            values.extend(decoded.and_then(|bytes| String::from_utf8(bytes).ok()));
        }
    }
    values.retain(|value| value.trim().len() >= SECRET_BYTES_MIN);
    // Longer ones first: one may be part of another.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values
}

fn mask(text: &str, secrets: &[String]) -> String {
    let mut masked = text.to_owned();
    for secret in secrets {
        masked = masked.replace(secret.trim(), MASK);
    }
    match &*CREDENTIAL {
        Some(pattern) => pattern
            .replace_all(&masked, |found: &regex::Captures<'_>| match (found.get(1), found.get(2)) {
                (Some(name), _) => format!("{}{MASK}", name.as_str()),
                (_, Some(user)) => format!("{}{MASK}@", user.as_str()),
                (None, None) => MASK.to_owned(),
            })
            .into_owned(),
        None => masked,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_apply::memory::MemoryCluster;

    use super::*;

    const MANIFEST: &str = "
apiVersion: v1
kind: Secret
metadata: {name: web}
stringData: {password: correct-horse}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}}
";

    fn record() -> Record {
        Record { manifest: MANIFEST.to_owned(), namespace: "apps".to_owned(), ..Record::default() }
    }

    fn world() -> MemoryCluster {
        let cluster = MemoryCluster::new();
        cluster.put(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "apps", "generation": 1},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1},
        }));
        cluster.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "namespace": "apps", "labels": {"app": "web"}},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "app", "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                "lastState": {"terminated": {"reason": "Error", "exitCode": 2}},
            }]},
        }));
        for (reason, kind) in [("BackOff", "Warning"), ("Pulled", "Normal")] {
            cluster.put(json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": reason, "namespace": "apps"},
                "involvedObject": {"kind": "Pod", "name": "web-1"}, "type": kind, "reason": reason,
                "message": "back-off restarting", "lastTimestamp": "2026-01-01T00:00:00Z",
            }));
        }
        cluster
    }

    #[tokio::test]
    async fn the_state_the_events_and_the_log_of_a_failing_pod_are_told() {
        let cluster = world();
        let mut log = (0..20).fold(String::new(), |log, number| log + &format!("line {number}\n"));
        log.push_str("cannot log in with correct-horse\nDB_PASSWORD=hunter22 postgres://me:pw@db/x\n");
        cluster.write_log(&ObjectRef::core("Pod", "apps", "web-1"), "app", &log);
        let text = explain(&cluster, &record(), &CustomChecks::default(), Timestamp::UNIX_EPOCH).await;
        let expected = "Deployment/apps/web:
  Pod web-1: Running
    container app: waiting: CrashLoopBackOff: back-off 40s terminated: Error, exit code 2
    event BackOff: back-off restarting
    log app: line 12";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.ends_with(
                "log app: cannot log in with *****\n    log app: DB_PASSWORD=***** postgres://me:*****@db/x"
            ),
            "{text}"
        );
    }

    #[tokio::test]
    async fn the_text_is_bounded() {
        let cluster = world();
        cluster.write_log(&ObjectRef::core("Pod", "apps", "web-1"), "app", &"x".repeat(10_000));
        let text = explain(&cluster, &record(), &CustomChecks::default(), Timestamp::UNIX_EPOCH).await;
        assert!(text.len() < 1000, "{}", text.len());
    }

    #[tokio::test]
    async fn nothing_is_said_about_what_is_well() {
        let cluster = MemoryCluster::new();
        let text = explain(&cluster, &record(), &CustomChecks::default(), Timestamp::UNIX_EPOCH).await;
        assert_eq!(text, "");
    }

    #[test]
    fn credentials_are_masked() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(mask(text, &[]), expected);
        }
        check("token: abc def", "token: ***** def");
        check(r#"{"api_key":"abc"}"#, r#"{"api_key":"*****"}"#);
        check("Authorization: Bearer abc.def", "Authorization: Bearer *****");
        check("passwords are fine", "passwords are fine");
        check("https://user:pw@host/", "https://user:*****@host/");
    }
}
