//! Stateful sets: pods with numbers and claims of their own.

use serde_json::{Value, json};

use super::part::{
    create_pod, delete_pod, is_available, is_deleting, is_ready, name as name_of, number, owner_reference,
    pod_from, pods_of, write_status,
};
use super::{Api, CLAIMS, Controllers, STATEFUL_SETS, Task, revision};
use crate::builtin::tree::{at, items, made, text};

const COMPONENT: &str = "statefulset-controller";
const HASH: &str = "controller-revision-hash";

pub(crate) fn look(controllers: &mut Controllers, api: &dyn Api, namespace: &str, name: &str) {
    let Some(set) = api.get(STATEFUL_SETS, namespace, name) else { return };
    let update = revision::current(api, STATEFUL_SETS, &set);
    let known = text(&set["status"], "currentRevision").to_owned();
    let current = if known.is_empty() { update.clone() } else { known };
    if !is_deleting(&set) {
        reconcile(controllers, api, &set, &current, &update);
    }
    update_status(controllers, api, &set, &current, &update);
}

fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    name_of(pod).strip_prefix(name_of(set))?.strip_prefix('-')?.parse().ok()
}

fn reconcile(controllers: &mut Controllers, api: &dyn Api, set: &Value, current: &str, update: &str) {
    let namespace = text(&set["metadata"], "namespace");
    let spec = &set["spec"];
    let replicas = spec["replicas"].as_i64().unwrap_or(1);
    let start = number(&spec["ordinals"], "start");
    let parallel = text(spec, "podManagementPolicy") == "Parallel";
    let strategy = &spec["updateStrategy"];
    let partition = number(&strategy["rollingUpdate"], "partition");
    let now = api.now();
    let seconds = number(spec, "minReadySeconds");
    let mut pods: Vec<(i64, Value)> =
        pods_of(api, set).into_iter().filter_map(|pod| Some((ordinal(set, &pod)?, pod))).collect();
    pods.sort_by_key(|(ordinal, _)| *ordinal);
    // Pods that ended are made anew.
    for (_, pod) in &pods {
        if matches!(text(&pod["status"], "phase"), "Failed" | "Succeeded") && !is_deleting(pod) {
            delete_pod(controllers, api, (STATEFUL_SETS, set), pod, COMPONENT);
            return;
        }
    }
    for number in start..start + replicas {
        match pods.iter().find(|(ordinal, _)| *ordinal == number) {
            None => {
                let old = number < start + partition
                    && current != update
                    && text(strategy, "type") == "RollingUpdate";
                if !create(controllers, api, set, number, if old { current } else { update }) {
                    return;
                }
                if !parallel {
                    return;
                }
            }
            Some((_, pod)) => {
                let running = !is_deleting(pod) && is_available(pod, seconds, now).is_ok();
                if let Err(Some(due)) = is_available(pod, seconds, now) {
                    controllers.later(due, Task::StatefulSet, namespace, name_of(set));
                }
                if !running && !parallel {
                    // A pod of an old revision that cannot become ready is replaced, below.
                    let outdated = at(pod, &["metadata", "labels", HASH]) != update;
                    if is_deleting(pod) || !outdated {
                        return;
                    }
                    break;
                }
            }
        }
    }
    let beyond: Vec<&Value> =
        pods.iter().rev().filter(|(n, _)| *n >= start + replicas || *n < start).map(|(_, pod)| pod).collect();
    for pod in beyond {
        if is_deleting(pod) {
            if parallel {
                continue;
            }
            return;
        }
        delete_pod(controllers, api, (STATEFUL_SETS, set), pod, COMPONENT);
        if !parallel {
            return;
        }
    }
    if text(strategy, "type") == "OnDelete" {
        return;
    }
    // The rest is updated from the last to the first, one at a time.
    for (_, pod) in pods.iter().rev().filter(|(n, _)| (start + partition..start + replicas).contains(n)) {
        if is_deleting(pod) {
            return;
        }
        if at(pod, &["metadata", "labels", HASH]) != update {
            delete_pod(controllers, api, (STATEFUL_SETS, set), pod, COMPONENT);
            return;
        }
        if is_available(pod, seconds, now).is_err() {
            return;
        }
    }
}

fn create(controllers: &mut Controllers, api: &dyn Api, set: &Value, number: i64, revision: &str) -> bool {
    let namespace = text(&set["metadata"], "namespace");
    let pod_name = format!("{}-{number}", name_of(set));
    let stored;
    let template = if revision == revision_of_template(api, set, revision) {
        &set["spec"]["template"]
    } else {
        stored = template_of(api, namespace, revision);
        stored.as_ref().unwrap_or(&set["spec"]["template"])
    };
    let mut pod = pod_from(template, &owner_reference(STATEFUL_SETS, set), namespace, &pod_name);
    pod["metadata"]["generateName"] = json!(format!("{}-", name_of(set)));
    let labels = made(made(&mut pod, "metadata"), "labels");
    labels["statefulset.kubernetes.io/pod-name"] = json!(pod_name);
    labels["apps.kubernetes.io/pod-index"] = json!(number.to_string());
    labels[HASH] = json!(revision);
    pod["spec"]["hostname"] = json!(pod_name);
    if !text(&set["spec"], "serviceName").is_empty() {
        pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
    }
    let mut volumes = items(&pod["spec"], "volumes").to_vec();
    for claim in items(&set["spec"], "volumeClaimTemplates") {
        let template_name = name_of(claim);
        let claim_name = format!("{template_name}-{pod_name}");
        volumes.retain(|volume| text(volume, "name") != template_name);
        volumes.push(json!({ "name": template_name, "persistentVolumeClaim": { "claimName": claim_name } }));
        if api.get(CLAIMS, namespace, &claim_name).is_none() {
            let mut new = claim.clone();
            new["apiVersion"] = json!("v1");
            new["kind"] = json!("PersistentVolumeClaim");
            crate::builtin::tree::remove(&mut new, "status");
            let metadata = made(&mut new, "metadata");
            metadata["name"] = json!(claim_name);
            metadata["namespace"] = json!(namespace);
            for (key, value) in
                at(set, &["spec", "selector", "matchLabels"]).as_object().into_iter().flatten()
            {
                made(metadata, "labels")[key.as_str()] = value.clone();
            }
            let message =
                format!("create Claim {claim_name} Pod {pod_name} in StatefulSet {} success", name_of(set));
            if api.create(CLAIMS, new).is_ok() {
                let about = (STATEFUL_SETS, set);
                super::part::event(
                    controllers,
                    api,
                    about,
                    ("Normal", "SuccessfulCreate", &message),
                    COMPONENT,
                );
            }
        }
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = json!(volumes);
    }
    create_pod(controllers, api, (STATEFUL_SETS, set), pod, COMPONENT).is_ok()
}

/// The revision of the template the set has now, among those that are stored.
fn revision_of_template(api: &dyn Api, set: &Value, revision: &str) -> String {
    let stored = template_of(api, text(&set["metadata"], "namespace"), revision);
    if stored.as_ref() == Some(&set["spec"]["template"]) { revision.to_owned() } else { String::new() }
}

fn template_of(api: &dyn Api, namespace: &str, revision: &str) -> Option<Value> {
    let stored = api.get(super::REVISIONS, namespace, revision)?;
    let mut template = at(&stored, &["data", "spec", "template"]).clone();
    crate::builtin::tree::remove(&mut template, "$patch");
    Some(template)
}

fn update_status(controllers: &mut Controllers, api: &dyn Api, set: &Value, current: &str, update: &str) {
    let namespace = text(&set["metadata"], "namespace");
    let now = api.now();
    let seconds = number(&set["spec"], "minReadySeconds");
    let pods: Vec<Value> = pods_of(api, set);
    let has = |pod: &&Value, revision: &str| {
        at(pod, &["metadata", "labels", HASH]) == revision && !is_deleting(pod)
    };
    let ready = pods.iter().filter(|pod| is_ready(pod) && !is_deleting(pod)).count() as i64;
    let mut available = 0;
    for pod in &pods {
        match is_available(pod, seconds, now) {
            Ok(()) => available += 1,
            Err(Some(due)) => controllers.later(due, Task::StatefulSet, namespace, name_of(set)),
            Err(None) => {}
        }
    }
    let updated = pods.iter().filter(|pod| has(pod, update)).count() as i64;
    let replicas = set["spec"]["replicas"].as_i64().unwrap_or(1);
    // The update is the present state once every pod has it.
    let complete = updated == replicas && ready == replicas && pods.len() as i64 == replicas;
    let current = if complete { update } else { current };
    let current_count = pods.iter().filter(|pod| has(pod, current)).count() as i64;
    let mut status = json!({
        "observedGeneration": set["metadata"]["generation"],
        "replicas": pods.len(),
        "availableReplicas": available,
        "collisionCount": 0,
        "currentRevision": current,
        "updateRevision": update
    });
    for (key, value) in
        [("readyReplicas", ready), ("currentReplicas", current_count), ("updatedReplicas", updated)]
    {
        if value > 0 {
            status[key] = json!(value);
        }
    }
    let Some(set) = api.get(STATEFUL_SETS, namespace, name_of(set)) else { return };
    write_status(api, STATEFUL_SETS, &set, &status);
}
