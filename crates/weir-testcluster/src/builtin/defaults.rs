//! The defaults that stored objects of built-in kinds show.

use serde_json::{Value, json};

use super::quantity::Quantity;
use super::tree::{at, default, default_zero, items_mut, made, part, remove, text, unset};
use super::{pod, shape};
use crate::GroupVersionKind;

/// Sets the defaults of a built-in kind and gives the object the form it is stored in. Other kinds stay as they are.
///
/// What a default needs from outside the object (addresses, ports, classes) is not set here: see
/// [`Services`](super::Services).
pub fn set_defaults(gvk: &GroupVersionKind, object: &mut Value) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::default_pod(object),
        ("", "PodTemplate") => default_template(object, "template"),
        ("", "ReplicationController") => default_replication_controller(object),
        ("", "Service") => default_service(object),
        ("", "Secret") => {
            super::prepare::fold_string_data(object);
            default_zero(object, "type", json!("Opaque"));
        }
        ("", "PersistentVolumeClaim") => default_claim(object),
        ("", "PersistentVolume") => default_volume(object),
        ("", "Namespace") => {
            let name = at(object, &["metadata", "name"]).clone();
            if name.as_str().is_some_and(|name| !name.is_empty()) {
                made(made(object, "metadata"), "labels")["kubernetes.io/metadata.name"] = name;
            }
            default_zero(made(object, "status"), "phase", json!("Active"));
        }
        ("", "Endpoints") => {
            for subset in items_mut(object, "subsets") {
                items_mut(subset, "ports").for_each(default_protocol);
            }
        }
        ("", "LimitRange") => default_limit_range(object),
        ("apps", kind) => default_workload(kind, object),
        ("batch", "Job") => default_job(object),
        ("batch", "CronJob") => default_cron_job(object),
        ("autoscaling", "HorizontalPodAutoscaler") => default_autoscaler(&gvk.version, object),
        ("networking.k8s.io", "IngressClass") => {
            if let Some(parameters) = part(made(object, "spec"), "parameters") {
                default(parameters, "scope", json!("Cluster"));
            }
        }
        ("networking.k8s.io", "NetworkPolicy") => default_network_policy(object),
        ("rbac.authorization.k8s.io", _) => default_binding(object),
        ("storage.k8s.io", "StorageClass") => {
            default(object, "reclaimPolicy", json!("Delete"));
            default(object, "volumeBindingMode", json!("Immediate"));
        }
        ("storage.k8s.io", "CSIDriver") => default_csi_driver(made(object, "spec")),
        ("scheduling.k8s.io", "PriorityClass") => {
            default(object, "preemptionPolicy", json!("PreemptLowerPriority"));
        }
        ("admissionregistration.k8s.io", _) => default_admission(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => default_definition(object),
        ("apiregistration.k8s.io", "APIService") => {
            if let Some(service) = part(made(object, "spec"), "service") {
                default(service, "port", json!(443));
            }
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in items_mut(object, "ports") {
                default(port, "name", json!(""));
                default_protocol(port);
            }
        }
        ("flowcontrol.apiserver.k8s.io", kind) => default_flow(kind, object),
        _ => {}
    }
    shape::encode(gvk, object);
}

fn default_protocol(port: &mut Value) {
    default_zero(port, "protocol", json!("TCP"));
}

/// Defaults of the pod template at a key.
pub(crate) fn default_template(object: &mut Value, key: &str) {
    if let Some(template) = part(object, key)
        && let Some(spec) = part(template, "spec")
    {
        pod::default_pod_spec(spec);
    }
}

fn default_replication_controller(object: &mut Value) {
    let labels = at(object, &["spec", "template", "metadata", "labels"]).clone();
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        default(made(object, "spec"), "selector", labels.clone());
        default(made(object, "metadata"), "labels", labels);
    }
    let spec = made(object, "spec");
    default(spec, "replicas", json!(1));
    default_template(spec, "template");
}

fn default_service(object: &mut Value) {
    let spec = made(object, "spec");
    default_zero(spec, "sessionAffinity", json!("None"));
    match text(spec, "sessionAffinity") {
        "None" => {
            remove(spec, "sessionAffinityConfig");
        }
        "ClientIP" => {
            let config = made(made(spec, "sessionAffinityConfig"), "clientIP");
            default(config, "timeoutSeconds", json!(10800));
        }
        _ => {}
    }
    default_zero(spec, "type", json!("ClusterIP"));
    for port in items_mut(spec, "ports") {
        default_protocol(port);
        let number = port["port"].clone();
        default_zero(port, "targetPort", number);
    }
    let kind = text(spec, "type").to_owned();
    let outside = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()));
    if outside {
        default_zero(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", json!(true));
        if let Some(balancer) = part(object, "status").and_then(|status| part(status, "loadBalancer")) {
            for ingress in items_mut(balancer, "ingress").filter(|ingress| !unset(ingress, "ip")) {
                default(ingress, "ipMode", json!("VIP"));
            }
        }
    }
}

fn default_claim(object: &mut Value) {
    default_zero(made(object, "status"), "phase", json!("Pending"));
    default(made(object, "spec"), "volumeMode", json!("Filesystem"));
}

fn default_volume(object: &mut Value) {
    default_zero(made(object, "status"), "phase", json!("Pending"));
    let spec = made(object, "spec");
    default_zero(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
    default(spec, "volumeMode", json!("Filesystem"));
    pod::default_volume_source(spec);
}

fn default_limit_range(object: &mut Value) {
    for limit in items_mut(made(object, "spec"), "limits").filter(|limit| limit["type"] == "Container") {
        let fill = |limit: &mut Value, into: &str, from: &str| {
            for (name, value) in limit[from].as_object().cloned().into_iter().flatten() {
                default(made(limit, into), &name, value);
            }
        };
        fill(limit, "default", "max");
        fill(limit, "defaultRequest", "default");
        fill(limit, "defaultRequest", "min");
    }
}

fn default_workload(kind: &str, object: &mut Value) {
    if kind == "ControllerRevision" {
        return;
    }
    let spec = made(object, "spec");
    match kind {
        "Deployment" => {
            default(spec, "replicas", json!(1));
            let strategy = made(spec, "strategy");
            default_zero(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                let rolling = made(strategy, "rollingUpdate");
                default(rolling, "maxUnavailable", json!("25%"));
                default(rolling, "maxSurge", json!("25%"));
            }
            default(spec, "revisionHistoryLimit", json!(10));
            default(spec, "progressDeadlineSeconds", json!(600));
        }
        "ReplicaSet" => default(spec, "replicas", json!(1)),
        "DaemonSet" => {
            let strategy = made(spec, "updateStrategy");
            default_zero(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                let rolling = made(strategy, "rollingUpdate");
                default(rolling, "maxUnavailable", json!(1));
                default(rolling, "maxSurge", json!(0));
            }
            default(spec, "revisionHistoryLimit", json!(10));
        }
        "StatefulSet" => {
            default_zero(spec, "podManagementPolicy", json!("OrderedReady"));
            let strategy = made(spec, "updateStrategy");
            default_zero(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                let rolling = made(strategy, "rollingUpdate");
                default(rolling, "partition", json!(0));
                default(rolling, "maxUnavailable", json!(1));
            }
            let retention = made(spec, "persistentVolumeClaimRetentionPolicy");
            default_zero(retention, "whenDeleted", json!("Retain"));
            default_zero(retention, "whenScaled", json!("Retain"));
            default(spec, "replicas", json!(1));
            default(spec, "revisionHistoryLimit", json!(10));
            for claim in items_mut(spec, "volumeClaimTemplates") {
                default_zero(claim, "apiVersion", json!("v1"));
                default_zero(claim, "kind", json!("PersistentVolumeClaim"));
                default_claim(claim);
            }
        }
        _ => return,
    }
    default_template(spec, "template");
}

fn default_job(object: &mut Value) {
    let labels = at(object, &["spec", "template", "metadata", "labels"]).clone();
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        default(made(object, "metadata"), "labels", labels);
    }
    let spec = made(object, "spec");
    let given = |spec: &Value, key: &str| spec.get(key).is_some_and(|value| !value.is_null());
    if !given(spec, "completions") && !given(spec, "parallelism") {
        spec["completions"] = json!(1);
    }
    default(spec, "parallelism", json!(1));
    let limit = if given(spec, "backoffLimitPerIndex") { i32::MAX } else { 6 };
    default(spec, "backoffLimit", json!(limit));
    default(spec, "completionMode", json!("NonIndexed"));
    default(spec, "suspend", json!(false));
    default(spec, "manualSelector", json!(false));
    let replacement = if given(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    default(spec, "podReplacementPolicy", json!(replacement));
    if let Some(policy) = part(spec, "podFailurePolicy") {
        for rule in items_mut(policy, "rules") {
            for condition in items_mut(rule, "onPodConditions") {
                default_zero(condition, "status", json!("True"));
            }
        }
    }
    default_template(spec, "template");
}

fn default_cron_job(object: &mut Value) {
    let spec = made(object, "spec");
    default_zero(spec, "concurrencyPolicy", json!("Allow"));
    default(spec, "suspend", json!(false));
    default(spec, "successfulJobsHistoryLimit", json!(3));
    default(spec, "failedJobsHistoryLimit", json!(1));
    if let Some(job) = part(spec, "jobTemplate").and_then(|template| part(template, "spec")) {
        default_template(job, "template");
    }
}

fn default_autoscaler(version: &str, object: &mut Value) {
    let other_metrics =
        !at(object, &["metadata", "annotations", "autoscaling.alpha.kubernetes.io/metrics"]).is_null();
    let spec = made(object, "spec");
    default(spec, "minReplicas", json!(1));
    if version == "v1" {
        if !other_metrics {
            default(spec, "targetCPUUtilizationPercentage", json!(80));
        }
        return;
    }
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        spec["metrics"] = json!([{
            "type": "Resource",
            "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 } }
        }]);
    }
    if let Some(behavior) = part(spec, "behavior") {
        let up = made(behavior, "scaleUp");
        default(up, "selectPolicy", json!("Max"));
        default(up, "stabilizationWindowSeconds", json!(0));
        default(
            up,
            "policies",
            json!([
                { "type": "Pods", "value": 4, "periodSeconds": 15 },
                { "type": "Percent", "value": 100, "periodSeconds": 15 }
            ]),
        );
        let down = made(behavior, "scaleDown");
        default(down, "selectPolicy", json!("Max"));
        default(down, "policies", json!([{ "type": "Percent", "value": 100, "periodSeconds": 15 }]));
    }
}

fn default_network_policy(object: &mut Value) {
    let spec = made(object, "spec");
    for direction in ["ingress", "egress"] {
        for rule in items_mut(spec, direction) {
            items_mut(rule, "ports").for_each(|port| default(port, "protocol", json!("TCP")));
        }
    }
    if spec["policyTypes"].as_array().is_none_or(Vec::is_empty) {
        let both = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
        spec["policyTypes"] = if both { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    }
}

fn default_binding(object: &mut Value) {
    let group = json!("rbac.authorization.k8s.io");
    if let Some(role) = part(object, "roleRef") {
        default_zero(role, "apiGroup", group.clone());
    }
    for subject in items_mut(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default_zero(subject, "apiGroup", group.clone());
        }
    }
}

fn default_csi_driver(spec: &mut Value) {
    default(spec, "attachRequired", json!(true));
    for key in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
        "preventPodSchedulingIfMissing",
    ] {
        default(spec, key, json!(false));
    }
    default(spec, "fsGroupPolicy", json!("ReadWriteOnceWithFSType"));
    if spec["volumeLifecycleModes"].as_array().is_none_or(Vec::is_empty) {
        spec["volumeLifecycleModes"] = json!(["Persistent"]);
    }
}

fn default_admission(object: &mut Value) {
    let kind = text(object, "kind").to_owned();
    for hook in items_mut(object, "webhooks") {
        default(hook, "failurePolicy", json!("Fail"));
        default(hook, "matchPolicy", json!("Equivalent"));
        default(hook, "namespaceSelector", json!({}));
        default(hook, "objectSelector", json!({}));
        default(hook, "timeoutSeconds", json!(10));
        if kind.starts_with("Mutating") {
            default(hook, "reinvocationPolicy", json!("Never"));
        }
        items_mut(hook, "rules").for_each(|rule| default(rule, "scope", json!("*")));
        if let Some(service) = part(hook, "clientConfig").and_then(|config| part(config, "service")) {
            default(service, "port", json!(443));
        }
    }
    let Some(spec) = part(object, "spec") else { return };
    if kind.ends_with("Policy") {
        default(spec, "failurePolicy", json!("Fail"));
        if let Some(constraints) = part(spec, "matchConstraints") {
            default_match(constraints);
        }
    }
    if kind.ends_with("Binding")
        && let Some(resources) = part(spec, "matchResources")
    {
        default_match(resources);
    }
}

fn default_match(constraints: &mut Value) {
    default(constraints, "matchPolicy", json!("Equivalent"));
    default(constraints, "namespaceSelector", json!({}));
    default(constraints, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        items_mut(constraints, key).for_each(|rule| default(rule, "scope", json!("*")));
    }
}

fn default_definition(object: &mut Value) {
    let spec = made(object, "spec");
    let names = made(spec, "names");
    let kind = text(names, "kind").to_owned();
    if !kind.is_empty() {
        default_zero(names, "singular", json!(kind.to_lowercase()));
        default_zero(names, "listKind", json!(format!("{kind}List")));
    }
    default(spec, "conversion", json!({ "strategy": "None" }));
    if let Some(service) = part(spec, "conversion")
        .and_then(|conversion| part(conversion, "webhook"))
        .and_then(|webhook| part(webhook, "clientConfig"))
        .and_then(|config| part(config, "service"))
    {
        default(service, "port", json!(443));
    }
}

fn default_flow(kind: &str, object: &mut Value) {
    let spec = made(object, "spec");
    if kind == "FlowSchema" {
        default_zero(spec, "matchingPrecedence", json!(1000));
        return;
    }
    if let Some(exempt) = part(spec, "exempt") {
        default(exempt, "nominalConcurrencyShares", json!(0));
        default(exempt, "lendablePercent", json!(0));
    }
    if let Some(limited) = part(spec, "limited") {
        default(limited, "nominalConcurrencyShares", json!(30));
        default(limited, "lendablePercent", json!(0));
        if let Some(response) = part(limited, "limitResponse")
            && response["type"] == "Queue"
        {
            let queuing = made(response, "queuing");
            default_zero(queuing, "handSize", json!(8));
            default_zero(queuing, "queues", json!(64));
            default_zero(queuing, "queueLengthLimit", json!(50));
        }
    }
}

/// Requests that nobody gave become the limits.
pub(crate) fn default_requests(container: &mut Value) {
    let Some(resources) = part(container, "resources") else { return };
    for (name, limit) in resources["limits"].as_object().cloned().into_iter().flatten() {
        if limit.as_str().is_some_and(|text| Quantity::parse(text).is_ok())
            && unset(&resources["requests"], &name)
        {
            made(resources, "requests")[name.as_str()] = limit;
        }
    }
}
