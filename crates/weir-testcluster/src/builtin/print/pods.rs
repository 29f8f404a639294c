//! What a table says of a pod.

use serde_json::{Value, json};

use super::super::tree::{at, items, text, unset};
use super::words::{condition, terminating};

/// What a table says of a pod.
pub(super) struct Look<'a> {
    pub(super) ready: usize,
    pub(super) containers: usize,
    pub(super) reason: String,
    pub(super) restarts: i64,
    pub(super) last_restart: Option<&'a Value>,
}

pub(super) fn pod_look(pod: &Value) -> Look<'_> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let sidecars: Vec<&str> = items(spec, "initContainers")
        .iter()
        .filter(|container| text(container, "restartPolicy") == "Always")
        .map(|container| text(container, "name"))
        .collect();
    let mut look = Look {
        ready: 0,
        containers: items(spec, "containers").len() + sidecars.len(),
        reason: text(status, if unset(status, "reason") { "phase" } else { "reason" }).to_owned(),
        restarts: 0,
        last_restart: None,
    };
    if condition(status, "PodScheduled")
        .is_some_and(|condition| text(condition, "reason") == "SchedulingGated")
    {
        "SchedulingGated".clone_into(&mut look.reason);
    }
    let initializing = init_look(pod, &sidecars, &mut look);
    if !initializing {
        container_look(status, &mut look);
    }
    if terminating(pod) {
        let lost = text(status, "reason") == "NodeLost";
        (if lost { "Unknown" } else { "Terminating" }).clone_into(&mut look.reason);
    }
    look
}

fn note_restart<'a>(container: &'a Value, look: &mut Look<'a>) {
    look.restarts += container["restartCount"].as_i64().unwrap_or_default();
    let time = at(container, &["lastState", "terminated", "finishedAt"]);
    let later = |old: &Value| time.as_str() > old.as_str();
    if !time.is_null() && look.last_restart.is_none_or(later) {
        look.last_restart = Some(time);
    }
}

fn init_look<'a>(pod: &'a Value, sidecars: &[&str], look: &mut Look<'a>) -> bool {
    let status = &pod["status"];
    let total = items(&pod["spec"], "initContainers").len();
    let mut initializing = false;
    let mut sidecar_restarts =
        Look { ready: 0, containers: 0, reason: String::new(), restarts: 0, last_restart: None };
    for (index, container) in items(status, "initContainerStatuses").iter().enumerate() {
        let sidecar = sidecars.contains(&text(container, "name"));
        note_restart(container, look);
        if sidecar {
            note_restart(container, &mut sidecar_restarts);
        }
        let state = &container["state"];
        let ended = &state["terminated"];
        if ended.is_object() && ended["exitCode"] == json!(0) {
            continue;
        }
        if sidecar && container["started"] == json!(true) {
            if container["ready"] == json!(true) {
                look.ready += 1;
            }
            continue;
        }
        let waiting = text(&state["waiting"], "reason");
        look.reason = if ended.is_object() {
            if unset(ended, "reason") {
                if unset(ended, "signal") {
                    format!("Init:ExitCode:{}", ended["exitCode"])
                } else {
                    format!("Init:Signal:{}", ended["signal"])
                }
            } else {
                format!("Init:{}", text(ended, "reason"))
            }
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{total}")
        };
        initializing = true;
        break;
    }
    if !initializing {
        look.restarts = sidecar_restarts.restarts;
        look.last_restart = sidecar_restarts.last_restart;
    }
    initializing && !condition(status, "Initialized").is_some_and(|condition| condition["status"] == "True")
}

fn container_look<'a>(status: &'a Value, look: &mut Look<'a>) {
    let mut running = false;
    for container in items(status, "containerStatuses").iter().rev() {
        note_restart(container, look);
        let state = &container["state"];
        let ended = &state["terminated"];
        if !unset(&state["waiting"], "reason") {
            text(&state["waiting"], "reason").clone_into(&mut look.reason);
        } else if ended.is_object() {
            look.reason = if !unset(ended, "reason") {
                text(ended, "reason").to_owned()
            } else if unset(ended, "signal") {
                format!("ExitCode:{}", ended["exitCode"])
            } else {
                format!("Signal:{}", ended["signal"])
            };
        } else if container["ready"] == json!(true) && state["running"].is_object() {
            running = true;
            look.ready += 1;
        }
    }
    if look.reason == "Completed" && running {
        let ready = condition(status, "Ready").is_some_and(|condition| condition["status"] == "True");
        (if ready { "Running" } else { "NotReady" }).clone_into(&mut look.reason);
    }
}
