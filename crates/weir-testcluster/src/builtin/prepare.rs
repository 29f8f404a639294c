//! What a real server does to a new or changed object between decoding and validation.

use serde_json::{Value, json};

use super::tree::{
    at, copy, default, generation, items, items_mut, made, remove, same, set_generation, text,
};
use super::{pod, shape};
use crate::GroupVersionKind;

/// Where a daemon set notes how often its template changed.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Prepares an object that is created: drops the status that only controllers write, begins the generation, and adds
/// what admission adds.
///
/// `metadata.uid`, `metadata.creationTimestamp`, name and namespace must be there already; defaults must be set.
pub fn prepare_create(gvk: &GroupVersionKind, object: &mut Value) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => {
            pod::admit(object);
            object["status"] = json!({ "phase": "Pending", "qosClass": pod::quality(&object["spec"]) });
        }
        ("", "Namespace") => {
            object["status"] = json!({ "phase": "Active" });
            let spec = made(object, "spec");
            if !items(spec, "finalizers").iter().any(|name| name == "kubernetes") {
                let mut finalizers = items(spec, "finalizers").to_vec();
                finalizers.push(json!("kubernetes"));
                spec["finalizers"] = Value::Array(finalizers);
            }
        }
        ("", "PersistentVolumeClaim") => {
            object["status"] = json!({ "phase": "Pending" });
            add_finalizer(object, "kubernetes.io/pvc-protection");
            let spec = made(object, "spec");
            if spec["dataSourceRef"].is_null() {
                copy_source(spec, "dataSource", "dataSourceRef");
            } else if spec["dataSource"].is_null() && spec["dataSourceRef"]["namespace"].is_null() {
                copy_source(spec, "dataSourceRef", "dataSource");
            }
        }
        ("", "PersistentVolume") => {
            let now = at(object, &["metadata", "creationTimestamp"]).clone();
            object["status"] = json!({ "phase": "Pending" });
            if !now.is_null() {
                object["status"]["lastPhaseTransitionTime"] = now;
            }
            add_finalizer(object, "kubernetes.io/pv-protection");
        }
        ("", "Node") => admit_node(object),
        ("apps", "DaemonSet") => {
            remove(object, "status");
            made(made(object, "metadata"), "annotations")[TEMPLATE_GENERATION] = json!("1");
        }
        ("apiregistration.k8s.io", "APIService") => {
            remove(object, "status");
            if !object["spec"]["service"].is_object() {
                object["status"]["conditions"] = json!([{
                    "type": "Available",
                    "status": "True",
                    "reason": "Local",
                    "message": "Local APIServices are always available",
                    "lastTransitionTime": at(object, &["metadata", "creationTimestamp"])
                }]);
            }
        }
        ("batch", "Job") => {
            remove(object, "status");
            select_pods_of_job(object);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let stored: Vec<Value> = items(&object["spec"], "versions")
                .iter()
                .filter(|version| version["storage"] == json!(true))
                .take(1)
                .map(|version| version["name"].clone())
                .collect();
            object["status"] =
                json!({ "storedVersions": if stored.is_empty() { Value::Null } else { json!(stored) } });
        }
        ("scheduling.k8s.io" | "storage.k8s.io" | "events.k8s.io", _) | ("", "Event") => {}
        _ if has_status(gvk) => {
            remove(object, "status");
        }
        _ => {}
    }
    if has_generation(gvk) {
        set_generation(object, 1);
    }
    shape::encode(gvk, object);
}

/// Prepares an object that is changed, with `subresource` empty, `status` or another name: keeps what this way of
/// writing may not change and counts the generation up when the wish changed.
pub fn prepare_update(gvk: &GroupVersionKind, new: &mut Value, old: &Value, subresource: &str) {
    if has_generation(gvk) {
        set_generation(new, generation(old));
    }
    match subresource {
        "" | "scale" => prepare_main(gvk, new, old),
        "status" => prepare_status(gvk, new, old),
        "finalize" if gvk.kind == "Namespace" => copy(new, old, "status"),
        "approval" if gvk.kind == "CertificateSigningRequest" => {
            copy(new, old, "spec");
            let conditions = at(new, &["status", "conditions"]).clone();
            copy(new, old, "status");
            made(new, "status")["conditions"] = conditions;
        }
        _ => {}
    }
    shape::encode(gvk, new);
}

fn prepare_main(gvk: &GroupVersionKind, new: &mut Value, old: &Value) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace") => {
            copy(new, old, "status");
            let finalizers = json!({ "finalizers": at(old, &["spec", "finalizers"]) });
            copy(made(new, "spec"), &finalizers, "finalizers");
        }
        ("storage.k8s.io", "VolumeAttachment") => copy(new, old, "status"),
        _ if has_status(gvk) => copy(new, old, "status"),
        _ => {}
    }
    if !has_generation(gvk) {
        if let Some(metadata) = new.get_mut("metadata") {
            copy(metadata, &old["metadata"], "generation");
        }
        return;
    }
    let wish = wish_of(gvk);
    let mut changed = wish.iter().any(|key| !same(&new[*key], &old[*key]));
    if gvk.kind == "Deployment" {
        changed |= !same(at(new, &["metadata", "annotations"]), at(old, &["metadata", "annotations"]));
    }
    if gvk.kind == "EndpointSlice" {
        changed |= !same(at(new, &["metadata", "labels"]), at(old, &["metadata", "labels"]));
    }
    if changed {
        set_generation(new, generation(old) + 1);
    }
    if gvk.kind == "DaemonSet" {
        let before = at(old, &["metadata", "annotations", TEMPLATE_GENERATION])
            .as_str()
            .and_then(|text| text.parse().ok());
        let template_changed = !same(at(new, &["spec", "template"]), at(old, &["spec", "template"]));
        let count = before.unwrap_or(1_i64) + i64::from(template_changed);
        made(made(new, "metadata"), "annotations")[TEMPLATE_GENERATION] = json!(count.to_string());
    }
}

fn prepare_status(gvk: &GroupVersionKind, new: &mut Value, old: &Value) {
    let keep: Vec<String> = old
        .as_object()
        .into_iter()
        .chain(new.as_object())
        .flatten()
        .map(|(key, _)| key.clone())
        .filter(|key| !matches!(key.as_str(), "status" | "metadata" | "apiVersion" | "kind"))
        .collect();
    for key in keep {
        copy(new, old, &key);
    }
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps", "Deployment") => copy(made(new, "metadata"), &old["metadata"], "labels"),
        ("apiextensions.k8s.io", _) => {
            // Only the managed fields of the metadata are those of the request.
            let managed = at(new, &["metadata", "managedFields"]).clone();
            copy(new, old, "metadata");
            if !managed.is_null() {
                made(new, "metadata")["managedFields"] = managed;
            }
        }
        _ => {}
    }
    if !has_generation(gvk)
        && let Some(metadata) = new.get_mut("metadata")
    {
        copy(metadata, &old["metadata"], "generation");
    }
}

/// Whether a real server counts the generation of this kind.
pub fn has_generation(gvk: &GroupVersionKind) -> bool {
    match gvk.group.as_str() {
        "" => matches!(gvk.kind.as_str(), "Pod" | "PodTemplate" | "ReplicationController"),
        "apps" => gvk.kind != "ControllerRevision",
        "batch"
        | "resource.k8s.io"
        | "autoscaling"
        | "networking.k8s.io"
        | "policy"
        | "discovery.k8s.io"
        | "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "flowcontrol.apiserver.k8s.io" => true,
        "scheduling.k8s.io" => gvk.kind == "PriorityClass",
        "storage.k8s.io" => matches!(gvk.kind.as_str(), "CSIStorageCapacity" | "VolumeAttributesClass"),
        _ => false,
    }
}

/// The fields whose change counts the generation up.
fn wish_of(gvk: &GroupVersionKind) -> &'static [&'static str] {
    match gvk.kind.as_str() {
        "PodTemplate" => &["template"],
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => &["webhooks"],
        "EndpointSlice" => &["endpoints", "ports", "addressType"],
        "PriorityClass" => &[],
        _ => &["spec"],
    }
}

fn has_status(gvk: &GroupVersionKind) -> bool {
    super::resource(gvk).is_some_and(|resource| resource.subresources.iter().any(|sub| sub.name == "status"))
}

fn add_finalizer(object: &mut Value, name: &str) {
    let metadata = made(object, "metadata");
    let mut finalizers = items(metadata, "finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == name) {
        finalizers.push(json!(name));
        metadata["finalizers"] = Value::Array(finalizers);
    }
}

/// A new node is not ready until its kubelet says so.
fn admit_node(object: &mut Value) {
    let ready = items(&object["status"], "conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True");
    let spec = made(object, "spec");
    let key = "node.kubernetes.io/not-ready";
    if !ready && !items(spec, "taints").iter().any(|taint| text(taint, "key") == key) {
        let mut taints = items(spec, "taints").to_vec();
        taints.push(json!({ "key": key, "effect": "NoSchedule" }));
        spec["taints"] = Value::Array(taints);
    }
}

/// The labels by which a job knows its pods, and the selector for them.
fn select_pods_of_job(object: &mut Value) {
    let uid = at(object, &["metadata", "uid"]).as_str().unwrap_or_default().to_owned();
    let name = text(&object["metadata"], "name").to_owned();
    let spec = made(object, "spec");
    if spec["manualSelector"] == json!(true) {
        return;
    }
    let labels = made(made(made(spec, "template"), "metadata"), "labels");
    let before = labels.clone();
    for (key, value) in [
        ("controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        default(labels, key, json!(value));
    }
    let after = labels.clone();
    let selector = made(made(spec, "selector"), "matchLabels");
    default(selector, "batch.kubernetes.io/controller-uid", json!(uid));
    // A job without labels of its own has those of its pods.
    let own = at(object, &["metadata", "labels"]);
    if same(own, &before) || same(own, &Value::Null) {
        made(object, "metadata")["labels"] = after;
    }
}

fn copy_source(spec: &mut Value, from: &str, to: &str) {
    if spec[from].is_object() {
        spec[to] = spec[from].clone();
    }
}

/// Moves the texts of a secret's `stringData` to its `data`, as decoding does.
pub(crate) fn fold_string_data(object: &mut Value) {
    use base64::Engine as _;
    let Some(Value::Object(texts)) = remove(object, "stringData") else { return };
    for (key, value) in texts {
        if let Some(value) = value.as_str() {
            let encoded = base64::engine::general_purpose::STANDARD.encode(value);
            made(object, "data")[key.as_str()] = json!(encoded);
        }
    }
}

/// Gives elements without a name of their own the marks that updates of services keep: ports known by name or number.
pub(crate) fn keep_node_ports(new: &mut Value, old: &Value) {
    let old_ports: Vec<Value> = items(&old["spec"], "ports").to_vec();
    for port in items_mut(made(new, "spec"), "ports") {
        if super::tree::unset(port, "nodePort")
            && let Some(before) =
                old_ports.iter().find(|o| o["port"] == port["port"] && o["protocol"] == port["protocol"])
            && !super::tree::unset(before, "nodePort")
        {
            port["nodePort"] = before["nodePort"].clone();
        }
    }
}
