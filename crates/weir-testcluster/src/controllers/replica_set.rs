//! Replica sets: so many pods of one template.

use serde_json::{Value, json};

use super::part::{
    create_pod, delete_pod, ends, is_active, is_available, is_deleting, is_ready, name as name_of, number,
    owner_reference, pod_from, pods_of, set_condition, write_status,
};
use super::{Api, Controllers, REPLICA_SETS, Task};
use crate::builtin::tree::{at, items};

const COMPONENT: &str = "replicaset-controller";

pub(crate) fn look(controllers: &mut Controllers, api: &dyn Api, namespace: &str, name: &str) {
    let Some(set) = api.get(REPLICA_SETS, namespace, name) else { return };
    let pods = pods_of(api, &set);
    let mut active: Vec<&Value> = pods.iter().filter(|pod| is_active(pod)).collect();
    let wanted = set["spec"]["replicas"].as_i64().unwrap_or(1);
    let mut failure = None;
    if !is_deleting(&set) {
        let have = active.len() as i64;
        for index in have..wanted {
            let serial = controllers.next_serial();
            let suffix = crate::builtin::suffix(&format!(
                "{namespace}/{name}/{index}/{serial}/{}",
                set["metadata"]["uid"]
            ));
            let owner = owner_reference(REPLICA_SETS, &set);
            let mut pod = pod_from(&set["spec"]["template"], &owner, namespace, &format!("{name}-{suffix}"));
            pod["metadata"]["generateName"] = json!(format!("{name}-"));
            if let Err(error) = create_pod(controllers, api, (REPLICA_SETS, &set), pod, COMPONENT) {
                failure = Some(error).filter(|error| !ends(error));
                break;
            }
        }
        if have > wanted {
            // Pods that are not ready go first, then the youngest.
            active.sort_by_key(|pod| {
                let created = at(pod, &["metadata", "creationTimestamp"]).as_str().unwrap_or_default();
                (is_ready(pod), std::cmp::Reverse(created.to_owned()), name_of(pod).to_owned())
            });
            for pod in active.iter().take((have - wanted) as usize) {
                delete_pod(controllers, api, (REPLICA_SETS, &set), pod, COMPONENT);
            }
        }
    }
    update_status(controllers, api, namespace, name, failure.as_deref());
}

fn update_status(
    controllers: &mut Controllers,
    api: &dyn Api,
    namespace: &str,
    name: &str,
    failure: Option<&str>,
) {
    let Some(set) = api.get(REPLICA_SETS, namespace, name) else { return };
    let now = api.now();
    let pods = pods_of(api, &set);
    let labels = at(&set, &["spec", "template", "metadata", "labels"]);
    let seconds = number(&set["spec"], "minReadySeconds");
    let (mut replicas, mut labeled, mut ready, mut available) = (0, 0, 0, 0);
    for pod in pods.iter().filter(|pod| is_active(pod)) {
        replicas += 1;
        let own = at(pod, &["metadata", "labels"]);
        labeled += i64::from(
            labels.as_object().into_iter().flatten().all(|(key, value)| own[key.as_str()] == *value),
        );
        ready += i64::from(is_ready(pod));
        match is_available(pod, seconds, now) {
            Ok(()) => available += 1,
            Err(Some(due)) => controllers.later(due, Task::ReplicaSet, namespace, name),
            Err(None) => {}
        }
    }
    let terminating = pods.iter().filter(|pod| is_deleting(pod)).count();
    let mut conditions: Vec<Value> = items(&set["status"], "conditions")
        .iter()
        .filter(|condition| condition["type"] != "ReplicaFailure")
        .cloned()
        .collect();
    if let Some(message) = failure {
        let condition = json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message });
        let mut with_old = items(&set["status"], "conditions").to_vec();
        set_condition(&mut with_old, condition, now);
        conditions = with_old;
    }
    let mut status = json!({
        "replicas": replicas, "observedGeneration": set["metadata"]["generation"], "terminatingReplicas": terminating
    });
    for (key, value) in
        [("fullyLabeledReplicas", labeled), ("readyReplicas", ready), ("availableReplicas", available)]
    {
        if value > 0 {
            status[key] = json!(value);
        }
    }
    if !conditions.is_empty() {
        status["conditions"] = json!(conditions);
    }
    write_status(api, REPLICA_SETS, &set, &status);
}
