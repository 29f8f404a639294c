//! The nodes of the cluster, which are always ready.

use serde_json::json;

use super::part::shown;
use super::{Api, NODES};

/// The names of the nodes.
const NAMES: [&str; 2] = ["node-a", "node-b"];

/// Makes the nodes that are not there yet.
pub(crate) fn bootstrap(api: &dyn Api) {
    for (index, name) in NAMES.into_iter().enumerate() {
        if api.get(NODES, "", name).is_some() {
            continue;
        }
        let now = shown(api.now());
        let address = format!("192.0.2.{}", index + 1);
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now
            })
        };
        let amount = json!({ "cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "1000" });
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux",
                    "beta.kubernetes.io/arch": "amd64"
                }
            },
            "spec": { "podCIDR": format!("10.244.{index}.0/24"), "podCIDRs": [format!("10.244.{index}.0/24")] },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": address }, { "type": "Hostname", "address": name }],
                "capacity": amount,
                "allocatable": amount,
                "conditions": [
                    condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                    condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                    condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                    condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
                ],
                "nodeInfo": {
                    "architecture": "amd64", "operatingSystem": "linux", "osImage": "none", "kernelVersion": "none",
                    "containerRuntimeVersion": "none://0", "kubeletVersion": crate::builtin::version()["gitVersion"],
                    "kubeProxyVersion": "", "machineID": name, "systemUUID": name, "bootID": name
                }
            }
        });
        let _ = api.create(NODES, node);
    }
}
