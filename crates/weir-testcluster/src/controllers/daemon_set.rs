//! Daemon sets: one pod on each node.

use serde_json::{Value, json};

use super::part::{
    create_pod, delete_pod, is_available, is_deleting, is_ready, name as name_of, number, owner_reference,
    pod_from, pods_of, resolve, write_status,
};
use super::{Api, Controllers, DAEMON_SETS, NODES, Task, kubelet, revision};
use crate::builtin::tree::{at, items, made, text};

const COMPONENT: &str = "daemonset-controller";
const HASH: &str = "controller-revision-hash";

pub(crate) fn look(controllers: &mut Controllers, api: &dyn Api, namespace: &str, name: &str) {
    let Some(set) = api.get(DAEMON_SETS, namespace, name) else { return };
    let full = revision::current(api, DAEMON_SETS, &set);
    let hash = full.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).unwrap_or(&full).to_owned();
    let mut probe = json!({ "spec": set["spec"]["template"]["spec"] });
    tolerate(&mut probe);
    let nodes: Vec<String> = api
        .list(NODES, "")
        .iter()
        .filter(|node| kubelet::fits(&probe, node))
        .map(|node| text(&node["metadata"], "name").to_owned())
        .collect();
    if !is_deleting(&set) {
        reconcile(controllers, api, &set, &hash, &nodes);
    }
    update_status(controllers, api, &set, &hash, nodes.len());
}

/// The node a pod of a daemon set is meant for.
fn node_of(pod: &Value) -> String {
    if !text(&pod["spec"], "nodeName").is_empty() {
        return text(&pod["spec"], "nodeName").to_owned();
    }
    let terms = at(
        pod,
        &[
            "spec",
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        ],
    );
    terms[0]["matchFields"][0]["values"][0].as_str().unwrap_or_default().to_owned()
}

fn tolerate(pod: &mut Value) {
    let spec = made(pod, "spec");
    let mut tolerations = items(spec, "tolerations").to_vec();
    for (key, effect) in [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ] {
        tolerations.push(json!({ "key": key, "operator": "Exists", "effect": effect }));
    }
    spec["tolerations"] = json!(tolerations);
}

fn reconcile(controllers: &mut Controllers, api: &dyn Api, set: &Value, hash: &str, nodes: &[String]) {
    let namespace = text(&set["metadata"], "namespace");
    let pods = pods_of(api, set);
    for pod in &pods {
        let ended = matches!(text(&pod["status"], "phase"), "Failed" | "Succeeded");
        if (ended || !nodes.contains(&node_of(pod))) && !is_deleting(pod) {
            delete_pod(controllers, api, (DAEMON_SETS, set), pod, COMPONENT);
        }
    }
    for node in nodes {
        if pods.iter().any(|pod| node_of(pod) == *node) {
            continue;
        }
        let serial = controllers.next_serial();
        let suffix = crate::builtin::suffix(&format!("{namespace}/{}/{node}/{serial}", name_of(set)));
        let owner = owner_reference(DAEMON_SETS, set);
        let mut pod =
            pod_from(&set["spec"]["template"], &owner, namespace, &format!("{}-{suffix}", name_of(set)));
        pod["metadata"]["generateName"] = json!(format!("{}-", name_of(set)));
        let labels = made(made(&mut pod, "metadata"), "labels");
        labels[HASH] = json!(hash);
        labels["pod-template-generation"] = json!(number(&set["metadata"], "generation").to_string());
        tolerate(&mut pod);
        let affinity = made(made(&mut pod["spec"], "affinity"), "nodeAffinity");
        let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
        if create_pod(controllers, api, (DAEMON_SETS, set), pod, COMPONENT).is_err() {
            return;
        }
    }
    let strategy = &set["spec"]["updateStrategy"];
    if text(strategy, "type") == "OnDelete" {
        return;
    }
    let total = nodes.len() as i64;
    let allowed = resolve(&strategy["rollingUpdate"]["maxUnavailable"], total, true).max(1);
    let now = api.now();
    let seconds = number(&set["spec"], "minReadySeconds");
    let available =
        pods.iter().filter(|pod| !is_deleting(pod) && is_available(pod, seconds, now).is_ok()).count() as i64;
    let mut spare = allowed - (total - available);
    for pod in pods.iter().filter(|pod| !is_deleting(pod) && at(pod, &["metadata", "labels", HASH]) != hash) {
        let broken = is_available(pod, seconds, now).is_err();
        if broken || spare > 0 {
            delete_pod(controllers, api, (DAEMON_SETS, set), pod, COMPONENT);
            spare -= i64::from(!broken);
        }
    }
}

fn update_status(controllers: &mut Controllers, api: &dyn Api, set: &Value, hash: &str, desired: usize) {
    let namespace = text(&set["metadata"], "namespace");
    let now = api.now();
    let seconds = number(&set["spec"], "minReadySeconds");
    let pods: Vec<Value> = pods_of(api, set).into_iter().filter(|pod| !is_deleting(pod)).collect();
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let updated = pods.iter().filter(|pod| at(pod, &["metadata", "labels", HASH]) == hash).count();
    let mut available = 0;
    for pod in &pods {
        match is_available(pod, seconds, now) {
            Ok(()) => available += 1,
            Err(Some(due)) => controllers.later(due, Task::DaemonSet, namespace, name_of(set)),
            Err(None) => {}
        }
    }
    let mut status = json!({
        "observedGeneration": set["metadata"]["generation"],
        "currentNumberScheduled": pods.len(),
        "desiredNumberScheduled": desired,
        "numberMisscheduled": 0,
        "numberReady": ready
    });
    let missing = desired.saturating_sub(available);
    for (key, value) in
        [("updatedNumberScheduled", updated), ("numberAvailable", available), ("numberUnavailable", missing)]
    {
        if value > 0 {
            status[key] = json!(value);
        }
    }
    let Some(set) = api.get(DAEMON_SETS, namespace, name_of(set)) else { return };
    write_status(api, DAEMON_SETS, &set, &status);
}
