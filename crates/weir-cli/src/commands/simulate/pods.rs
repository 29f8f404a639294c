//! Why pods do not become ready.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::view;

/// The most lines for one health check.
const LINES_MAX: usize = 8;

/// What the pods below the objects of a failed health check wait for, each told once.
pub(crate) fn waiting(all: &[Value], message: &str) -> Vec<String> {
    let owners: BTreeMap<&str, &Value> =
        all.iter().map(|object| (view::text(object, "/metadata/uid"), object)).collect();
    let mut lines = BTreeSet::new();
    for pod in all.iter().filter(|object| object["kind"] == "Pod") {
        let mut top = pod;
        while let Some(owner) = owners.get(view::text(top, "/metadata/ownerReferences/0/uid")) {
            top = owner;
        }
        let name = format!("{}/{}/{}", view::text(top, "/kind"), view::namespace(top), view::name(top));
        if !message.contains(&format!("{name} status:")) {
            continue;
        }
        for key in ["initContainerStatuses", "containerStatuses"] {
            for container in pod["status"][key].as_array().into_iter().flatten() {
                let state = &container["state"]["waiting"];
                let (reason, why) = (view::text(state, "/reason"), view::text(state, "/message"));
                if !reason.is_empty() && reason != "PodInitializing" {
                    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
                    lines.insert(format!(
                        "{name}: container {} waits: {reason}{why}",
                        view::text(container, "/name")
                    ));
                }
            }
        }
    }
    lines.into_iter().take(LINES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_tell_through_what_owns_them() {
        let object = |kind: &str, name: &str, owner: &str| {
            json!({"kind": kind, "metadata": {
                "name": name, "namespace": "n", "uid": name, "ownerReferences": [{"uid": owner}]
            }})
        };
        let mut pod = object("Pod", "web-1-a", "web-1");
        pod["status"]["containerStatuses"] = json!([
            {"name": "main", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": "secret not found"}}},
            {"name": "side", "state": {"running": {}}}
        ]);
        let all = [object("Deployment", "web", ""), object("ReplicaSet", "web-1", "web"), pod];
        let message = "timeout waiting for: [Deployment/n/web status: 'InProgress': Available: 0/1]";
        let told = ["Deployment/n/web: container main waits: CreateContainerConfigError: secret not found"];
        assert_eq!(waiting(&all, message), told);
        assert!(waiting(&all, "timeout waiting for: [Deployment/n/other status: 'InProgress']").is_empty());
    }
}
