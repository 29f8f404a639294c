//! Deployments: replica sets that take over from each other.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::part::{
    after, condition, event, hash, is_controlled_by, is_deleting, name as name_of, number, owner_reference,
    resolve, shown, time, write_status,
};
use super::{Api, Controllers, DEPLOYMENTS, REPLICA_SETS, Task};
use crate::builtin::tree::{at, items, made, remove, same, text, unset};

const COMPONENT: &str = "deployment-controller";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
const HASH: &str = "pod-template-hash";

pub(crate) fn look(controllers: &mut Controllers, api: &dyn Api, namespace: &str, name: &str) {
    let Some(deployment) = api.get(DEPLOYMENTS, namespace, name) else { return };
    if !is_deleting(&deployment) {
        let mut rollout = Rollout { controllers: &mut *controllers, api, deployment: &deployment };
        if deployment["spec"]["paused"] == json!(true) {
            rollout.scale_only();
        } else if text(&deployment["spec"]["strategy"], "type") == "Recreate" {
            rollout.recreate();
        } else {
            rollout.roll();
        }
    }
    let Some(deployment) = api.get(DEPLOYMENTS, namespace, name) else { return };
    update_status(controllers, api, &deployment);
}

struct Rollout<'a> {
    controllers: &'a mut Controllers,
    api: &'a dyn Api,
    deployment: &'a Value,
}

/// The replica sets of a deployment, oldest first.
fn sets_of(api: &dyn Api, deployment: &Value) -> Vec<Value> {
    let namespace = text(&deployment["metadata"], "namespace");
    let mut sets: Vec<Value> = api
        .list(REPLICA_SETS, namespace)
        .into_iter()
        .filter(|set| is_controlled_by(set, deployment))
        .collect();
    sets.sort_by_key(|set| (revision(set), name_of(set).to_owned()));
    sets
}

fn revision(object: &Value) -> i64 {
    at(object, &["metadata", "annotations", REVISION])
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// The replica set of the template that is wanted now.
fn is_newest(set: &Value, deployment: &Value) -> bool {
    let mut template = set["spec"]["template"].clone();
    if let Some(labels) = template["metadata"].get_mut("labels") {
        remove(labels, HASH);
    }
    same(&template, &deployment["spec"]["template"])
}

fn wanted(deployment: &Value) -> i64 {
    deployment["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// How many pods more, and how many fewer, there may be than wanted.
fn margins(deployment: &Value) -> (i64, i64) {
    let total = wanted(deployment);
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    if text(&deployment["spec"]["strategy"], "type") == "Recreate" {
        return (0, total);
    }
    let surge = resolve(&rolling["maxSurge"], total, true);
    let unavailable = resolve(&rolling["maxUnavailable"], total, false);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable.min(total)) }
}

impl Rollout<'_> {
    fn namespace(&self) -> &str {
        text(&self.deployment["metadata"], "namespace")
    }

    /// Finds or makes the replica set of the template; it starts with `replicas` pods.
    fn newest(&mut self, sets: &[Value], replicas: i64, make: bool) -> Option<Value> {
        let found = sets.iter().find(|set| is_newest(set, self.deployment)).cloned();
        let highest =
            sets.iter().filter(|set| found.as_ref() != Some(*set)).map(revision).max().unwrap_or_default();
        let next = highest + 1;
        if let Some(set) = found {
            let revision = if revision(&set) > highest { revision(&set) } else { next };
            self.mark(&set, revision);
            return self.api.get(REPLICA_SETS, self.namespace(), name_of(&set));
        }
        if !make {
            return None;
        }
        let deployment = self.deployment;
        let template_hash =
            hash(&json!([deployment["spec"]["template"], number(&deployment["status"], "collisionCount")]));
        let mut template = deployment["spec"]["template"].clone();
        made(made(&mut template, "metadata"), "labels")[HASH] = json!(template_hash);
        let mut selector = deployment["spec"]["selector"].clone();
        made(&mut selector, "matchLabels")[HASH] = json!(template_hash);
        let (surge, _) = margins(deployment);
        let mut annotations = json!({});
        for (key, value) in at(deployment, &["metadata", "annotations"]).as_object().into_iter().flatten() {
            if key != "kubectl.kubernetes.io/last-applied-configuration" && key != REVISION {
                annotations[key.as_str()] = value.clone();
            }
        }
        annotations[REVISION] = json!(next.to_string());
        annotations[DESIRED] = json!(wanted(deployment).to_string());
        annotations[MAX] = json!((wanted(deployment) + surge).to_string());
        let mut spec = json!({ "replicas": replicas, "selector": selector, "template": template });
        if !unset(&deployment["spec"], "minReadySeconds") {
            spec["minReadySeconds"] = deployment["spec"]["minReadySeconds"].clone();
        }
        let set_name = format!("{}-{template_hash}", name_of(deployment));
        let set = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": set_name,
                "namespace": self.namespace(),
                "labels": at(&template, &["metadata", "labels"]),
                "annotations": annotations,
                "ownerReferences": [owner_reference(DEPLOYMENTS, deployment)]
            },
            "spec": spec
        });
        match self.api.create(REPLICA_SETS, set) {
            Ok(set) => {
                self.mark(&set, next);
                if replicas > 0 {
                    self.say(&format!("Scaled up replica set {set_name} from 0 to {replicas}"));
                }
                self.api.get(REPLICA_SETS, self.namespace(), &set_name)
            }
            Err(error) => {
                let message = format!("Failed to create new replica set {set_name:?}: {error}");
                event(
                    self.controllers,
                    self.api,
                    (DEPLOYMENTS, deployment),
                    ("Warning", "ReplicaSetCreateError", &message),
                    COMPONENT,
                );
                None
            }
        }
    }

    /// Writes the revision on the replica set and on the deployment.
    fn mark(&self, set: &Value, revision: i64) {
        let (surge, _) = margins(self.deployment);
        let total = wanted(self.deployment);
        let seconds = self.deployment["spec"]["minReadySeconds"].clone();
        self.api.amend(REPLICA_SETS, self.namespace(), name_of(set), &|set| {
            let annotations = made(made(set, "metadata"), "annotations");
            annotations[REVISION] = json!(revision.to_string());
            annotations[DESIRED] = json!(total.to_string());
            annotations[MAX] = json!((total + surge).to_string());
            if !seconds.is_null() && set["spec"]["minReadySeconds"] != seconds {
                set["spec"]["minReadySeconds"] = seconds.clone();
            }
        });
        if at(self.deployment, &["metadata", "annotations", REVISION]) != &json!(revision.to_string()) {
            self.api.amend(DEPLOYMENTS, self.namespace(), name_of(self.deployment), &|deployment| {
                made(made(deployment, "metadata"), "annotations")[REVISION] = json!(revision.to_string());
            });
        }
    }

    fn say(&mut self, message: &str) {
        let about = (DEPLOYMENTS, self.deployment);
        event(self.controllers, self.api, about, ("Normal", "ScalingReplicaSet", message), COMPONENT);
    }

    fn scale(&mut self, set: &Value, replicas: i64) {
        let from = number(&set["spec"], "replicas");
        if from == replicas {
            return;
        }
        let (surge, _) = margins(self.deployment);
        let total = wanted(self.deployment);
        self.api.amend(REPLICA_SETS, self.namespace(), name_of(set), &|set| {
            set["spec"]["replicas"] = json!(replicas);
            let generation = number(&set["metadata"], "generation");
            set["metadata"]["generation"] = json!(generation + 1);
            let annotations = made(made(set, "metadata"), "annotations");
            annotations[DESIRED] = json!(total.to_string());
            annotations[MAX] = json!((total + surge).to_string());
        });
        let direction = if replicas > from { "up" } else { "down" };
        self.say(&format!("Scaled {direction} replica set {} from {from} to {replicas}", name_of(set)));
    }

    /// A paused deployment follows its number, not its template.
    fn scale_only(&mut self) {
        let sets = sets_of(self.api, self.deployment);
        let alive: Vec<&Value> = sets.iter().filter(|set| number(&set["spec"], "replicas") > 0).collect();
        let target =
            alive.last().copied().or_else(|| sets.iter().rev().find(|set| is_newest(set, self.deployment)));
        if let Some(set) = target {
            let others: i64 = alive
                .iter()
                .filter(|other| name_of(other) != name_of(set))
                .map(|s| number(&s["spec"], "replicas"))
                .sum();
            let set = set.clone();
            self.scale(&set, (wanted(self.deployment) - others).max(0));
        }
    }

    fn recreate(&mut self) {
        let sets = sets_of(self.api, self.deployment);
        let old: Vec<Value> = sets.iter().filter(|set| !is_newest(set, self.deployment)).cloned().collect();
        for set in old.iter().filter(|set| number(&set["spec"], "replicas") > 0) {
            self.scale(set, 0);
        }
        let alive = old.iter().any(|set| !super::part::pods_of(self.api, set).is_empty());
        if alive {
            return;
        }
        let total = wanted(self.deployment);
        if let Some(set) = self.newest(&sets, total, true) {
            self.scale(&set, total);
        }
        self.clean_up();
    }

    fn roll(&mut self) {
        let sets = sets_of(self.api, self.deployment);
        let old: Vec<Value> = sets
            .iter()
            .filter(|set| !is_newest(set, self.deployment) && number(&set["spec"], "replicas") > 0)
            .cloned()
            .collect();
        let total = wanted(self.deployment);
        let (surge, unavailable) = margins(self.deployment);
        let old_count: i64 = old.iter().map(|set| number(&set["spec"], "replicas")).sum();
        let room = (total + surge - old_count).clamp(0, total);
        let Some(newest) = self.newest(&sets, room, true) else { return };
        let have = number(&newest["spec"], "replicas");
        if have > total {
            self.scale(&newest, total);
        } else if have < total {
            let grown = have + (total + surge - old_count - have).clamp(0, total - have);
            self.scale(&newest, grown);
        }
        self.scale_down(&newest, &old, total - unavailable);
        self.clean_up();
    }

    /// Old replica sets shrink by what may be missing.
    fn scale_down(&mut self, newest: &Value, old: &[Value], minimum: i64) {
        let newest_now =
            self.api.get(REPLICA_SETS, self.namespace(), name_of(newest)).unwrap_or_else(|| newest.clone());
        let newest_wanted = number(&newest_now["spec"], "replicas");
        let newest_missing = newest_wanted - number(&newest_now["status"], "availableReplicas");
        let all: i64 = newest_wanted + old.iter().map(|set| number(&set["spec"], "replicas")).sum::<i64>();
        let mut spare = all - minimum - newest_missing;
        if spare <= 0 {
            return;
        }
        let mut left: Vec<(Value, i64)> =
            old.iter().map(|set| (set.clone(), number(&set["spec"], "replicas"))).collect();
        // Pods that are not available anyway go first.
        for (set, replicas) in &mut left {
            let broken = (*replicas - number(&set["status"], "availableReplicas")).clamp(0, spare);
            *replicas -= broken;
            spare -= broken;
        }
        let available: i64 = number(&newest_now["status"], "availableReplicas")
            + old.iter().map(|set| number(&set["status"], "availableReplicas")).sum::<i64>();
        let mut more = (available - minimum).max(0).min(spare.max(0));
        for (_, replicas) in &mut left {
            let taken = (*replicas).min(more);
            *replicas -= taken;
            more -= taken;
        }
        for (set, replicas) in left {
            self.scale(&set, replicas);
        }
    }

    /// Replica sets beyond the history that is kept go.
    fn clean_up(&self) {
        let limit = self.deployment["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize;
        let old: Vec<Value> = sets_of(self.api, self.deployment)
            .into_iter()
            .filter(|set| !is_newest(set, self.deployment))
            .filter(|set| {
                number(&set["spec"], "replicas") == 0
                    && number(&set["status"], "replicas") == 0
                    && !is_deleting(set)
            })
            .collect();
        for set in old.iter().take(old.len().saturating_sub(limit)) {
            self.api.delete(REPLICA_SETS, self.namespace(), name_of(set), false);
        }
    }
}

fn update_status(controllers: &mut Controllers, api: &dyn Api, deployment: &Value) {
    let now = api.now();
    let sets = sets_of(api, deployment);
    let sum = |key: &str| sets.iter().map(|set| number(&set["status"], key)).sum::<i64>();
    let newest = sets.iter().find(|set| is_newest(set, deployment));
    let total = wanted(deployment);
    let (replicas, ready, available) = (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
    let updated = newest.map_or(0, |set| number(&set["status"], "replicas"));
    let unavailable = (total.max(replicas) - available).max(0);
    let mut status = json!({ "observedGeneration": deployment["metadata"]["generation"], "terminatingReplicas": sum("terminatingReplicas") });
    for (key, value) in [
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", unavailable),
    ] {
        if value > 0 {
            status[key] = json!(value);
        }
    }
    if !unset(&deployment["status"], "collisionCount") {
        status["collisionCount"] = deployment["status"]["collisionCount"].clone();
    }
    let mut conditions = items(&deployment["status"], "conditions").to_vec();
    let (_, margin) = margins(deployment);
    let enough = available >= total - margin;
    let (truth, reason, message) = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    put(&mut conditions, "Available", truth, reason, message, now);
    let failure = sets.iter().find_map(|set| condition(set, "ReplicaFailure"));
    conditions.retain(|condition| condition["type"] != "ReplicaFailure");
    if let Some(failure) = failure {
        put(
            &mut conditions,
            "ReplicaFailure",
            "True",
            text(failure, "reason"),
            text(failure, "message"),
            now,
        );
    }
    let complete = updated == total && replicas == total && available >= total;
    progress(controllers, deployment, &mut conditions, newest, (complete, &status), now);
    status["conditions"] = json!(conditions);
    write_status(api, DEPLOYMENTS, deployment, &status);
}

/// The condition that says whether a rollout goes on, has ended or hangs.
fn progress(
    controllers: &mut Controllers,
    deployment: &Value,
    conditions: &mut Vec<Value>,
    newest: Option<&Value>,
    (complete, status): (bool, &Value),
    now: Timestamp,
) {
    let Some(seconds) =
        deployment["spec"]["progressDeadlineSeconds"].as_i64().filter(|s| *s < i64::from(i32::MAX))
    else {
        return;
    };
    let current = conditions.iter().find(|condition| condition["type"] == "Progressing").cloned();
    let reason_now = current.as_ref().map_or("", |condition| text(condition, "reason")).to_owned();
    if deployment["spec"]["paused"] == json!(true) {
        if reason_now != "DeploymentPaused" {
            put(conditions, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now);
        }
        return;
    }
    let subject = match newest {
        Some(set) => format!("ReplicaSet {:?}", name_of(set)),
        None => format!("Deployment {:?}", name_of(deployment)),
    };
    if complete {
        if reason_now != "NewReplicaSetAvailable"
            || !text(&current.unwrap_or_default(), "message").starts_with(&subject)
        {
            let message = format!("{subject} has successfully progressed.");
            put(conditions, "Progressing", "True", "NewReplicaSetAvailable", &message, now);
        }
        return;
    }
    let old = &deployment["status"];
    let moved = number(status, "updatedReplicas") > number(old, "updatedReplicas")
        || number(old, "replicas") - number(old, "updatedReplicas")
            > number(status, "replicas") - number(status, "updatedReplicas")
        || number(status, "readyReplicas") > number(old, "readyReplicas")
        || number(status, "availableReplicas") > number(old, "availableReplicas");
    let fresh = current.as_ref().is_none_or(|condition| {
        reason_now == "DeploymentPaused"
            || (reason_now == "NewReplicaSetAvailable" && !text(condition, "message").starts_with(&subject))
            || (reason_now == "ProgressDeadlineExceeded" && !text(condition, "message").starts_with(&subject))
    });
    if fresh && newest.is_some() {
        let message = format!("Created new replica set {:?}", newest.map_or("", |set| name_of(set)));
        put(conditions, "Progressing", "True", "NewReplicaSetCreated", &message, now);
    } else if moved {
        let message = format!("{subject} is progressing.");
        put(conditions, "Progressing", "True", "ReplicaSetUpdated", &message, now);
    }
    if reason_now == "NewReplicaSetAvailable" && !fresh {
        // A rollout that had ended is not timed: its pods fail later.
        return;
    }
    let Some(current) = conditions.iter().find(|condition| condition["type"] == "Progressing").cloned()
    else {
        return;
    };
    if text(&current, "reason") == "ProgressDeadlineExceeded" {
        return;
    }
    let due = after(time(&current["lastUpdateTime"]).unwrap_or(now), seconds);
    if due <= now {
        let message = format!("{subject} has timed out progressing.");
        put(conditions, "Progressing", "False", "ProgressDeadlineExceeded", &message, now);
    } else {
        let namespace = text(&deployment["metadata"], "namespace");
        controllers.later(due, Task::Deployment, namespace, name_of(deployment));
    }
}

fn put(conditions: &mut Vec<Value>, kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
    let old = conditions.iter().find(|condition| condition["type"] == kind);
    let unchanged = old
        .is_some_and(|old| old["status"] == status && old["reason"] == reason && old["message"] == message);
    if unchanged && reason != "ReplicaSetUpdated" {
        return;
    }
    let condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastUpdateTime": shown(now)
    });
    super::part::set_condition(conditions, condition, now);
}
