//! Claims get volumes.

use serde_json::json;

use super::part::is_deleting;
use super::{Api, CLAIMS, VOLUMES};
use crate::builtin::tree::{at, text};

pub(crate) fn look_at_claim(api: &dyn Api, namespace: &str, name: &str) {
    let Some(claim) = api.get(CLAIMS, namespace, name) else { return };
    if is_deleting(&claim) {
        // Nothing protects a claim here: pods hold no files.
        api.amend(CLAIMS, namespace, name, &|claim| {
            if let Some(finalizers) = claim["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|finalizer| finalizer != "kubernetes.io/pvc-protection");
            }
        });
        return;
    }
    if text(&claim["status"], "phase") == "Bound"
        || at(&claim, &["metadata", "annotations", "testenv.weir.dev/pending"]) == "true"
    {
        return;
    }
    let spec = &claim["spec"];
    let wanted = text(spec, "volumeName");
    let volume_name = if wanted.is_empty() {
        format!("pvc-{}", text(&claim["metadata"], "uid"))
    } else {
        wanted.to_owned()
    };
    if api.get(VOLUMES, "", &volume_name).is_none() {
        if !wanted.is_empty() {
            return;
        }
        let volume = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": volume_name,
                "annotations": { "pv.kubernetes.io/provisioned-by": "testenv.weir.dev/volumes" }
            },
            "spec": {
                "accessModes": spec["accessModes"],
                "capacity": { "storage": at(spec, &["resources", "requests", "storage"]) },
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                    "uid": claim["metadata"]["uid"]
                },
                "csi": { "driver": "volumes.testenv.weir.dev", "volumeHandle": volume_name },
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": spec.get("storageClassName").cloned().unwrap_or_else(|| json!("")),
                "volumeMode": spec["volumeMode"]
            }
        });
        if api.create(VOLUMES, volume).is_err() {
            return;
        }
    }
    let Some(volume) = api.get(VOLUMES, "", &volume_name) else { return };
    api.amend(VOLUMES, "", &volume_name, &|volume| {
        volume["status"]["phase"] = json!("Bound");
        volume["spec"]["claimRef"] = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
            "uid": claim["metadata"]["uid"]
        });
    });
    api.amend(CLAIMS, namespace, name, &|claim| {
        claim["spec"]["volumeName"] = json!(volume_name);
        claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
        claim["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] = json!("yes");
        claim["status"] = json!({
            "phase": "Bound", "accessModes": volume["spec"]["accessModes"], "capacity": volume["spec"]["capacity"]
        });
    });
}
