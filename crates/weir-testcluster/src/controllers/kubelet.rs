//! Pods: a scheduler and a kubelet that play what the pods' annotations say.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cron::read_duration_ms;
use super::part::{after_ms, is_deleting, set_condition, shown, time, write_status};
use super::{Api, CLAIMS, CONFIG_MAPS, Controllers, NAMESPACES, NODES, PODS, SECRETS, Task};
use crate::builtin::tree::{at, items, text, unset};

/// From a pod's binding until it is ready, when nothing else is said.
const READY_AFTER_MS: i64 = 200;
/// How long pods that end run, when nothing else is said.
const RUN_FOR_MS: i64 = 300;
/// The first wait of a crash loop; each is twice as long as the one before.
const BACKOFF_MS: i64 = 10_000;
const BACKOFF_MS_MAX: i64 = 300_000;

/// What a pod has gone through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    bound: Timestamp,
    deleted: Option<Timestamp>,
}

/// What a pod is to do.
struct Script {
    ready_after_ms: Option<i64>,
    fail: Option<String>,
    fail_after_ms: Option<i64>,
    run_for_ms: i64,
    exit_code: i64,
    terminate_after_ms: i64,
    pending: bool,
    invalid: Option<String>,
}

impl Script {
    fn read(api: &dyn Api, pod: &Value) -> Self {
        let namespace = api.get(NAMESPACES, "", text(&pod["metadata"], "namespace"));
        let find = |key: &str| {
            let key = format!("testenv.weir.dev/{key}");
            let own = at(pod, &["metadata", "annotations"])[key.as_str()].as_str();
            let shared = namespace
                .as_ref()
                .and_then(|namespace| at(namespace, &["metadata", "annotations"])[key.as_str()].as_str());
            own.or(shared).map(str::to_owned)
        };
        let mut invalid = None;
        let mut span = |key: &str| {
            let text = find(key)?;
            let read = read_duration_ms(&text);
            if read.is_none() {
                invalid = Some(format!("testenv.weir.dev/{key}: cannot read {text:?} as a duration"));
            }
            read
        };
        let fail_after_ms = span("fail-after");
        let run_for_ms = span("run-for").unwrap_or(RUN_FOR_MS);
        let terminate_after_ms = span("terminate-after").unwrap_or_default();
        let ready_after_ms = match find("ready-after").as_deref() {
            Some("never") => None,
            Some(_) => span("ready-after"),
            None => Some(READY_AFTER_MS),
        };
        let exit_code = match find("exit-code").map(|text| text.parse()) {
            None => 0,
            Some(Ok(code)) => code,
            Some(Err(_)) => {
                invalid = Some("testenv.weir.dev/exit-code: not a number".to_owned());
                0
            }
        };
        Self {
            ready_after_ms,
            fail: find("fail").filter(|reason| !reason.is_empty()),
            fail_after_ms,
            run_for_ms,
            exit_code,
            terminate_after_ms,
            pending: find("pending").as_deref() == Some("true"),
            invalid,
        }
    }
}

/// Whether a pod waits for something else than time.
pub(crate) fn waits(pod: &Value) -> bool {
    text(&pod["status"], "phase") == "Pending" && !is_deleting(pod)
}

pub(crate) fn look(controllers: &mut Controllers, api: &dyn Api, namespace: &str, name: &str) {
    let Some(pod) = api.get(PODS, namespace, name) else { return };
    let uid = text(&pod["metadata"], "uid").to_owned();
    let now = api.now();
    let script = Script::read(api, &pod);
    if is_deleting(&pod) {
        let known = controllers.pods.entry(uid.clone()).or_insert(Life { bound: now, deleted: None });
        let deleted = *known.deleted.get_or_insert(now);
        let due = after_ms(deleted, script.terminate_after_ms);
        if due > now {
            controllers.later(due, Task::Pod, namespace, name);
        } else {
            controllers.pods.remove(&uid);
            api.delete(PODS, namespace, name, true);
        }
        return;
    }
    if matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed")
        || !items(&pod["spec"], "schedulingGates").is_empty()
    {
        return;
    }
    if !unset(&pod["spec"], "nodeName") && api.get(NODES, "", text(&pod["spec"], "nodeName")).is_none() {
        // No kubelet runs pods of a node that is not there.
        return;
    }
    let pod = if unset(&pod["spec"], "nodeName") {
        match schedule(api, &pod, &script) {
            Some(node) => {
                bind(api, &pod, &node);
                // The time that the pod shows has no fractions.
                controllers.pods.insert(uid.clone(), Life { bound: now, deleted: None });
                match api.get(PODS, namespace, name) {
                    Some(pod) => pod,
                    None => return,
                }
            }
            None => return,
        }
    } else {
        pod
    };
    let bound = controllers
        .pods
        .entry(uid)
        .or_insert_with(|| Life { bound: time(&pod["status"]["startTime"]).unwrap_or(now), deleted: None })
        .bound;
    let scene = play(api, &pod, &script, bound, now);
    if let Some(due) = scene.due {
        controllers.later(due, Task::Pod, namespace, name);
    }
    write_status(api, PODS, &pod, &status(&pod, &scene, bound, now));
}

/// The node a pod goes to; where there is none yet, the pod says why.
fn schedule(api: &dyn Api, pod: &Value, script: &Script) -> Option<String> {
    let mut reason = None;
    if script.pending {
        reason = Some("0/2 nodes are available: the pod is annotated as pending.".to_owned());
    }
    for volume in items(&pod["spec"], "volumes") {
        let claim = text(&volume["persistentVolumeClaim"], "claimName");
        if claim.is_empty() {
            continue;
        }
        match api.get(CLAIMS, text(&pod["metadata"], "namespace"), claim) {
            None => {
                reason = Some(format!("0/2 nodes are available: persistentvolumeclaim {claim:?} not found."));
            }
            Some(found) if text(&found["status"], "phase") != "Bound" => {
                reason = Some(
                    "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.".to_owned(),
                );
            }
            Some(_) => {}
        }
    }
    let found = api.list(NODES, "").into_iter().find(|node| reason.is_none() && fits(pod, node));
    if let Some(node) = found {
        return Some(text(&node["metadata"], "name").to_owned());
    }
    let message = reason.unwrap_or_else(|| {
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.".to_owned()
    });
    let mut conditions = items(&pod["status"], "conditions").to_vec();
    let condition =
        json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message });
    set_condition(&mut conditions, condition, api.now());
    let mut status = pod["status"].clone();
    status["conditions"] = json!(conditions);
    write_status(api, PODS, pod, &status);
    None
}

/// Whether a pod may go to a node.
pub(crate) fn fits(pod: &Value, node: &Value) -> bool {
    let labels = at(node, &["metadata", "labels"]);
    let selector = &pod["spec"]["nodeSelector"];
    let selected =
        selector.as_object().into_iter().flatten().all(|(key, value)| labels[key.as_str()] == *value);
    let required = at(
        pod,
        &[
            "spec",
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        ],
    );
    let terms = required.as_array().map(Vec::as_slice).unwrap_or_default();
    let for_daemons = items(&pod["spec"], "tolerations")
        .iter()
        .any(|toleration| text(toleration, "key") == "node.kubernetes.io/unschedulable");
    let open = node["spec"]["unschedulable"] != json!(true) || for_daemons;
    selected && open && (terms.is_empty() || terms.iter().any(|term| term_fits(term, node)))
}

fn term_fits(term: &Value, node: &Value) -> bool {
    let labels = at(node, &["metadata", "labels"]);
    let fits = |expression: &Value, value: &Value| {
        let listed = items(expression, "values").contains(value);
        match text(expression, "operator") {
            "In" => !value.is_null() && listed,
            "NotIn" => !listed,
            "Exists" => !value.is_null(),
            "DoesNotExist" => value.is_null(),
            _ => false,
        }
    };
    items(term, "matchExpressions")
        .iter()
        .all(|expression| fits(expression, &labels[text(expression, "key")]))
        && items(term, "matchFields").iter().all(|expression| fits(expression, &node["metadata"]["name"]))
}

fn bind(api: &dyn Api, pod: &Value, node: &str) {
    let now = api.now();
    let (namespace, name) = (text(&pod["metadata"], "namespace"), text(&pod["metadata"], "name"));
    api.amend(PODS, namespace, name, &|pod| {
        pod["spec"]["nodeName"] = json!(node);
        let mut conditions = items(&pod["status"], "conditions").to_vec();
        set_condition(&mut conditions, json!({ "type": "PodScheduled", "status": "True" }), now);
        pod["status"]["conditions"] = json!(conditions);
        pod["status"]["startTime"] = shown(now);
    });
}

/// What a pod is at one moment.
#[derive(Default)]
struct Scene {
    phase: &'static str,
    ready: bool,
    waiting: Option<(String, String)>,
    ended: Option<i64>,
    restarts: i64,
    last_end: Option<Timestamp>,
    last_code: i64,
    since: Option<Timestamp>,
    due: Option<Timestamp>,
}

fn play(api: &dyn Api, pod: &Value, script: &Script, bound: Timestamp, now: Timestamp) -> Scene {
    let waiting = |reason: &str, message: &str| Scene {
        phase: "Pending",
        waiting: Some((reason.to_owned(), message.to_owned())),
        ..Scene::default()
    };
    if let Some(message) = &script.invalid {
        return waiting("InvalidAnnotation", message);
    }
    if let Some(message) = missing(api, pod) {
        return waiting("CreateContainerConfigError", &message);
    }
    if let Some(reason) = &script.fail {
        let begins = script.fail_after_ms.map_or(bound, |delay| after_ms(bound, delay));
        if begins <= now {
            return failing(reason, begins, now);
        }
        let mut scene = run(pod, script, bound, now);
        scene.due = Some(scene.due.map_or(begins, |due| due.min(begins)));
        return scene;
    }
    run(pod, script, bound, now)
}

/// Containers that wait with a reason for ever, or crash again and again.
fn failing(reason: &str, begins: Timestamp, now: Timestamp) -> Scene {
    let message = match reason {
        "CrashLoopBackOff" => "back-off restarting failed container",
        "ImagePullBackOff" => "Back-off pulling image",
        "ErrImagePull" => "failed to pull image",
        _ => "",
    };
    let mut scene = Scene {
        phase: if reason == "CrashLoopBackOff" { "Running" } else { "Pending" },
        waiting: Some((reason.to_owned(), message.to_owned())),
        ..Scene::default()
    };
    if reason == "CrashLoopBackOff" {
        crash_loop(&mut scene, begins, now, 1);
    }
    scene
}

/// How often a crash loop that began at a time has restarted.
fn crash_loop(scene: &mut Scene, begins: Timestamp, now: Timestamp, code: i64) {
    let (mut next, mut wait) = (begins, BACKOFF_MS);
    let mut last = begins;
    while next <= now {
        scene.restarts += 1;
        last = next;
        next = after_ms(next, wait);
        wait = (wait * 2).min(BACKOFF_MS_MAX);
    }
    scene.last_end = Some(last);
    scene.last_code = code;
    scene.due = Some(next);
}

fn run(pod: &Value, script: &Script, bound: Timestamp, now: Timestamp) -> Scene {
    let Some(delay) = script.ready_after_ms else {
        return Scene {
            phase: "Pending",
            waiting: Some(("ContainerCreating".to_owned(), String::new())),
            ..Scene::default()
        };
    };
    let started = after_ms(bound, delay);
    if started > now {
        return Scene {
            phase: "Pending",
            waiting: Some(("ContainerCreating".to_owned(), String::new())),
            due: Some(started),
            ..Scene::default()
        };
    }
    let policy = text(&pod["spec"], "restartPolicy");
    let running = Scene { phase: "Running", ready: true, since: Some(started), ..Scene::default() };
    if policy == "Always" || policy.is_empty() {
        return running;
    }
    let ends = after_ms(started, script.run_for_ms);
    if ends > now {
        return Scene { due: Some(ends), ..running };
    }
    if script.exit_code != 0 && policy == "OnFailure" {
        let mut scene = Scene {
            phase: "Running",
            waiting: Some(("CrashLoopBackOff".to_owned(), "back-off restarting failed container".to_owned())),
            ..Scene::default()
        };
        crash_loop(&mut scene, ends, now, script.exit_code);
        return scene;
    }
    Scene {
        phase: if script.exit_code == 0 { "Succeeded" } else { "Failed" },
        ended: Some(script.exit_code),
        since: Some(started),
        last_end: Some(ends),
        ..Scene::default()
    }
}

/// A ConfigMap or Secret that the pod needs and that is not there.
fn missing(api: &dyn Api, pod: &Value) -> Option<String> {
    let namespace = text(&pod["metadata"], "namespace");
    let mut maps: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut secrets: BTreeSet<(&str, &str)> = BTreeSet::new();
    let spec = &pod["spec"];
    let optional = |source: &Value| source["optional"] == json!(true);
    let containers = || items(spec, "containers").iter().chain(items(spec, "initContainers"));
    for container in containers() {
        for source in items(container, "envFrom") {
            let (map, secret) = (&source["configMapRef"], &source["secretRef"]);
            if map.is_object() && !optional(map) {
                maps.insert((text(map, "name"), ""));
            }
            if secret.is_object() && !optional(secret) {
                secrets.insert((text(secret, "name"), ""));
            }
        }
        for variable in items(container, "env") {
            let (map, secret) =
                (&variable["valueFrom"]["configMapKeyRef"], &variable["valueFrom"]["secretKeyRef"]);
            if map.is_object() && !optional(map) {
                maps.insert((text(map, "name"), text(map, "key")));
            }
            if secret.is_object() && !optional(secret) {
                secrets.insert((text(secret, "name"), text(secret, "key")));
            }
        }
    }
    for volume in items(spec, "volumes") {
        let mut sources = vec![(&volume["configMap"], &volume["secret"])];
        sources.extend(
            items(&volume["projected"], "sources")
                .iter()
                .map(|source| (&source["configMap"], &source["secret"])),
        );
        for (map, secret) in sources {
            if map.is_object() && !optional(map) && text(map, "name") != "kube-root-ca.crt" {
                maps.insert((text(map, "name"), ""));
            }
            if secret.is_object() && !optional(secret) {
                let key = if unset(secret, "secretName") { "name" } else { "secretName" };
                secrets.insert((text(secret, key), ""));
            }
        }
    }
    for (kind, table, wanted) in [("configmap", CONFIG_MAPS, &maps), ("secret", SECRETS, &secrets)] {
        for (name, key) in wanted {
            match api.get(table, namespace, name) {
                None => return Some(format!("{kind} {name:?} not found")),
                Some(found)
                    if !key.is_empty()
                        && found["data"][*key].is_null()
                        && found["binaryData"][*key].is_null() =>
                {
                    let kind = if kind == "secret" { "Secret" } else { "ConfigMap" };
                    return Some(format!("couldn't find key {key} in {kind} {namespace}/{name}"));
                }
                Some(_) => {}
            }
        }
    }
    None
}

fn status(pod: &Value, scene: &Scene, bound: Timestamp, now: Timestamp) -> Value {
    let old = &pod["status"];
    let mut conditions = items(old, "conditions").to_vec();
    let truth = |set: bool| if set { "True" } else { "False" };
    let ended = scene.ended.is_some();
    let created = scene.phase != "Pending"
        || scene.waiting.as_ref().is_none_or(|(reason, _)| reason != "ContainerCreating");
    let mut note = |kind: &str, set: bool, reason: &str, message: &str| {
        let mut condition = json!({ "type": kind, "status": truth(set) });
        if !set || ended {
            if !reason.is_empty() {
                condition["reason"] = json!(reason);
            }
            if !message.is_empty() {
                condition["message"] = json!(message);
            }
        }
        set_condition(&mut conditions, condition, now);
    };
    let names: Vec<&str> =
        items(&pod["spec"], "containers").iter().map(|container| text(container, "name")).collect();
    let unready = format!("containers with unready status: [{}]", names.join(" "));
    let (reason, message) = match scene.ended {
        Some(0) => ("PodCompleted", ""),
        Some(_) => ("PodFailed", ""),
        None => ("ContainersNotReady", unready.as_str()),
    };
    note("PodReadyToStartContainers", created && !ended, "", "");
    note("Initialized", true, if scene.ended == Some(0) { "PodCompleted" } else { "" }, "");
    note("Ready", scene.ready, reason, message);
    note("ContainersReady", scene.ready, reason, message);
    note("PodScheduled", true, "", "");
    let mut status = json!({
        "phase": scene.phase,
        "conditions": conditions,
        "qosClass": old["qosClass"],
        "startTime": if old["startTime"].is_null() { shown(bound) } else { old["startTime"].clone() },
        "hostIP": "192.0.2.1",
        "hostIPs": [{ "ip": "192.0.2.1" }],
        "observedGeneration": pod["metadata"]["generation"]
    });
    if created {
        let ip = if unset(old, "podIP") { address(pod) } else { text(old, "podIP").to_owned() };
        status["podIP"] = json!(ip);
        status["podIPs"] = json!([{ "ip": ip }]);
    }
    let containers = |key: &str, init: bool| -> Vec<Value> {
        items(&pod["spec"], key)
            .iter()
            .map(|container| {
                let mut status = container_status(container, scene, init, bound);
                if status["state"].get("waiting").is_none() {
                    let (uid, name) = (text(&pod["metadata"], "uid"), text(container, "name"));
                    status["containerID"] = json!(format!("testenv://{uid}/{name}"));
                }
                status
            })
            .collect()
    };
    status["containerStatuses"] = json!(containers("containers", false));
    let init = containers("initContainers", true);
    if !init.is_empty() {
        status["initContainerStatuses"] = json!(init);
    }
    status
}

/// An address that stays the same for the same pod.
fn address(pod: &Value) -> String {
    let uid = text(&pod["metadata"], "uid");
    let number =
        uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("10.244.{}.{}", (number >> 8) & 0xff, (number & 0xff).clamp(1, 254))
}

fn container_status(container: &Value, scene: &Scene, init: bool, bound: Timestamp) -> Value {
    let sidecar = text(container, "restartPolicy") == "Always";
    let mut status = json!({
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": scene.ready,
        "restartCount": scene.restarts,
        "started": scene.ready,
        "state": {},
        "lastState": {}
    });
    let ended = |code: i64, from: Timestamp, to: Timestamp| {
        json!({
            "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "startedAt": shown(from),
            "finishedAt": shown(to)
        })
    };
    let since = scene.since.unwrap_or(bound);
    if init && !sidecar {
        status["restartCount"] = json!(0);
        // Init containers have ended before the others begin.
        if let Some((reason, _)) = scene.waiting.as_ref().filter(|_| scene.phase == "Pending") {
            status["state"]["waiting"] =
                json!({ "reason": if reason == "ContainerCreating" { "PodInitializing" } else { reason } });
            status["ready"] = json!(false);
        } else {
            status["state"]["terminated"] = ended(0, bound, since);
            status["ready"] = json!(true);
        }
        status["started"] = json!(false);
        return status;
    }
    if let Some((reason, message)) = &scene.waiting {
        status["state"]["waiting"] = json!({ "reason": reason });
        if !message.is_empty() {
            status["state"]["waiting"]["message"] = json!(message);
        }
        if let Some(last) = scene.last_end {
            status["lastState"]["terminated"] = ended(scene.last_code, last, last);
        }
    } else if let Some(code) = scene.ended {
        status["state"]["terminated"] = ended(code, since, scene.last_end.unwrap_or(since));
    } else {
        status["state"]["running"] = json!({ "startedAt": shown(since) });
    }
    status
}
