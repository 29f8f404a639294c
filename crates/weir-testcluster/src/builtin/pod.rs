//! Pods: defaults, and what admission and the strategy of a real server add.

use serde_json::{Value, json};

use super::defaults::default_requests;
use super::quantity::Quantity;
use super::tree::{at, default, default_zero, items, items_mut, made, part, text};

/// Defaults of a pod.
pub(crate) fn default_pod(object: &mut Value) {
    let spec = made(object, "spec");
    for key in ["containers", "initContainers"] {
        items_mut(spec, key).for_each(default_requests);
    }
    default(spec, "enableServiceLinks", json!(true));
    if spec["hostNetwork"] == json!(true) {
        for key in ["containers", "initContainers"] {
            for container in items_mut(spec, key) {
                for port in items_mut(container, "ports") {
                    let number = port["containerPort"].clone();
                    default_zero(port, "hostPort", number);
                }
            }
        }
    }
    default_pod_spec(spec);
}

/// Defaults of a pod's or a template's specification.
pub(crate) fn default_pod_spec(spec: &mut Value) {
    default_zero(spec, "dnsPolicy", json!("ClusterFirst"));
    default_zero(spec, "restartPolicy", json!("Always"));
    default(spec, "securityContext", json!({}));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = json!(1);
    }
    default_zero(spec, "schedulerName", json!("default-scheduler"));
    // The deprecated name follows the one that replaced it.
    let account = spec["serviceAccountName"].clone();
    if account.as_str().is_some_and(|name| !name.is_empty()) {
        spec["serviceAccount"] = account;
    } else if let Some(account) =
        spec["serviceAccount"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
    {
        spec["serviceAccountName"] = json!(account);
    }
    for volume in items_mut(spec, "volumes") {
        default_pod_volume(volume);
    }
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        items_mut(spec, key).for_each(default_container);
    }
}

fn default_pod_volume(volume: &mut Value) {
    let sources = volume.as_object().map_or(0, |fields| fields.keys().filter(|key| *key != "name").count());
    if sources == 0 {
        volume["emptyDir"] = json!({});
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = part(volume, key) {
            default(source, "defaultMode", json!(420));
        }
    }
    if let Some(source) = part(volume, "downwardAPI") {
        default_downward_items(source);
    }
    if let Some(projected) = part(volume, "projected") {
        for source in items_mut(projected, "sources") {
            if let Some(token) = part(source, "serviceAccountToken") {
                default(token, "expirationSeconds", json!(3600));
            }
            if let Some(downward) = part(source, "downwardAPI") {
                default_downward_items(downward);
            }
        }
    }
    if let Some(spec) = part(volume, "ephemeral")
        .and_then(|source| part(source, "volumeClaimTemplate"))
        .and_then(|template| part(template, "spec"))
    {
        default(spec, "volumeMode", json!("Filesystem"));
    }
    default_volume_source(volume);
}

fn default_downward_items(source: &mut Value) {
    for item in items_mut(source, "items") {
        if let Some(field) = part(item, "fieldRef") {
            default_zero(field, "apiVersion", json!("v1"));
        }
        if let Some(field) = part(item, "resourceFieldRef") {
            default(field, "divisor", json!("0"));
        }
    }
}

/// Defaults of sources that volumes of pods and of clusters share.
pub(crate) fn default_volume_source(source: &mut Value) {
    if let Some(path) = part(source, "hostPath") {
        default(path, "type", json!(""));
    }
    if let Some(iscsi) = part(source, "iscsi") {
        default_zero(iscsi, "iscsiInterface", json!("default"));
    }
    if let Some(rbd) = part(source, "rbd") {
        default_zero(rbd, "pool", json!("rbd"));
        default_zero(rbd, "user", json!("admin"));
        default_zero(rbd, "keyring", json!("/etc/ceph/keyring"));
    }
    if let Some(disk) = part(source, "azureDisk") {
        default(disk, "cachingMode", json!("ReadWrite"));
        default(disk, "kind", json!("Shared"));
        default(disk, "fsType", json!("ext4"));
        default(disk, "readOnly", json!(false));
    }
    if let Some(scale) = part(source, "scaleIO") {
        default_zero(scale, "storageMode", json!("ThinProvisioned"));
        default_zero(scale, "fsType", json!("xfs"));
    }
}

fn default_container(container: &mut Value) {
    if text(container, "imagePullPolicy").is_empty() {
        let policy = if is_latest(text(container, "image")) { "Always" } else { "IfNotPresent" };
        container["imagePullPolicy"] = json!(policy);
    }
    default_zero(container, "terminationMessagePath", json!("/dev/termination-log"));
    default_zero(container, "terminationMessagePolicy", json!("File"));
    for port in items_mut(container, "ports") {
        default_zero(port, "protocol", json!("TCP"));
    }
    for variable in items_mut(container, "env") {
        let Some(source) = part(variable, "valueFrom") else { continue };
        if let Some(field) = part(source, "fieldRef") {
            default_zero(field, "apiVersion", json!("v1"));
        }
        if let Some(field) = part(source, "resourceFieldRef") {
            default(field, "divisor", json!("0"));
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = part(container, key) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = part(container, "lifecycle") {
        for key in ["postStart", "preStop"] {
            if let Some(handler) = part(lifecycle, key) {
                default_http(handler);
            }
        }
    }
}

fn default_probe(probe: &mut Value) {
    default_zero(probe, "timeoutSeconds", json!(1));
    default_zero(probe, "periodSeconds", json!(10));
    default_zero(probe, "successThreshold", json!(1));
    default_zero(probe, "failureThreshold", json!(3));
    default_http(probe);
    if let Some(grpc) = part(probe, "grpc") {
        default(grpc, "service", json!(""));
    }
}

fn default_http(handler: &mut Value) {
    if let Some(http) = part(handler, "httpGet") {
        default_zero(http, "path", json!("/"));
        default_zero(http, "scheme", json!("HTTP"));
    }
}

/// Whether an image has the tag `latest` or neither tag nor digest.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// What admission adds to a new pod: service account and token, tolerations, priority.
pub(crate) fn admit(object: &mut Value) {
    let seed = format!("{}/{}", text(&object["metadata"], "namespace"), text(&object["metadata"], "name"));
    let spec = made(object, "spec");
    if text(spec, "serviceAccountName").is_empty() {
        spec["serviceAccountName"] = json!("default");
        spec["serviceAccount"] = json!("default");
    }
    if spec["automountServiceAccountToken"] != json!(false) && spec["containers"].is_array() {
        mount_token(spec, &seed);
    }
    if !items(spec, "tolerations").iter().any(tolerates_all) {
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            let has = items(spec, "tolerations")
                .iter()
                .any(|t| text(t, "key") == key && matches!(text(t, "effect"), "NoExecute" | ""));
            if !has {
                let toleration = json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
                append(spec, "tolerations", toleration);
            }
        }
    }
    let priority = match text(spec, "priorityClassName") {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => 0,
    };
    default(spec, "priority", json!(priority));
    default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
}

fn tolerates_all(toleration: &Value) -> bool {
    text(toleration, "key").is_empty() && text(toleration, "operator") == "Exists"
}

fn append(spec: &mut Value, key: &str, item: Value) {
    match spec[key].as_array_mut() {
        Some(list) => list.push(item),
        None => spec[key] = json!([item]),
    }
}

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn mount_token(spec: &mut Value, seed: &str) {
    let name = items(spec, "volumes")
        .iter()
        .map(|volume| text(volume, "name"))
        .find(|name| name.starts_with("kube-api-access-"))
        .map_or_else(|| format!("kube-api-access-{}", suffix(seed)), str::to_owned);
    let mut used = false;
    for key in ["initContainers", "containers"] {
        for container in items_mut(spec, key) {
            if items(container, "volumeMounts").iter().any(|mount| text(mount, "mountPath") == TOKEN_PATH) {
                continue;
            }
            used = true;
            append(
                container,
                "volumeMounts",
                json!({ "name": name, "readOnly": true, "mountPath": TOKEN_PATH }),
            );
        }
    }
    if used && !items(spec, "volumes").iter().any(|volume| text(volume, "name") == name) {
        let field = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
        let sources = json!([
            { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": field }] } }
        ]);
        append(
            spec,
            "volumes",
            json!({ "name": name, "projected": { "defaultMode": 420, "sources": sources } }),
        );
    }
}

/// Five letters and digits as generated names end with; the same for the same seed, so that runs can be repeated.
pub(crate) fn suffix(seed: &str) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut state = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut next = || {
        state ^= state >> 33;
        state = state.wrapping_mul(0xff51_afd7_ed55_8ccd);
        char::from(LETTERS[((state >> 32) % 27) as usize])
    };
    (0..5).map(|_| next()).collect()
}

/// The quality of service class of a pod.
pub(crate) fn quality(spec: &Value) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for key in ["containers", "initContainers"] {
        for container in items(spec, key) {
            let resources = &container["resources"];
            for name in ["cpu", "memory"] {
                let read = |kind: &str| {
                    resources[kind][name]
                        .as_str()
                        .and_then(|text| Quantity::parse(text).ok())
                        .filter(|q| !q.is_zero())
                };
                let (request, limit) = (read("requests"), read("limits"));
                any |= request.is_some() || limit.is_some();
                guaranteed &= limit.is_some() && request == limit;
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// The specification without what updates may change.
pub(crate) fn frozen(spec: &Value, like: &Value) -> Value {
    let mut frozen = spec.clone();
    for key in ["containers", "initContainers"] {
        for (index, container) in items_mut(&mut frozen, key).enumerate() {
            container["image"] = at(like, &[key])[index]["image"].clone();
        }
    }
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        super::tree::copy(&mut frozen, like, key);
    }
    frozen
}
