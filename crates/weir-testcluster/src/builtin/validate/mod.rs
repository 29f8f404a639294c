//! Refusals of objects of built-in kinds, in the words of a real server.

mod core;
mod meta;
mod others;
mod pod;
mod report;
mod workload;

use serde_json::Value;

use self::report::Report;
pub(crate) use self::workload::selects;
use crate::{Cause, GroupVersionKind};

/// What a real server refuses of a new object of a built-in kind, apart from its metadata. Empty: nothing.
///
/// Defaults must be set and the object prepared. The checks are those of what commonly goes wrong, not all.
pub fn validate_create(gvk: &GroupVersionKind, object: &Value) -> Vec<Cause> {
    let mut report = Report::default();
    if gvk.group == "batch" && gvk.kind == "Job" {
        workload::job_create(&mut report, object);
    }
    check(&mut report, gvk, object);
    report.causes
}

/// What a real server refuses of a changed object, apart from its metadata: what a new one must satisfy, and what must not change.
pub fn validate_update(gvk: &GroupVersionKind, new: &Value, old: &Value) -> Vec<Cause> {
    let mut report = Report::default();
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        // What was valid stays so; only a few fields of a pod can change.
        ("", "Pod") => pod::update(&mut report, new, old),
        ("", "ConfigMap") => {
            core::immutable_update(&mut report, new, old);
            check(&mut report, gvk, new);
        }
        ("", "Secret") => {
            core::secret_update(&mut report, new, old);
            check(&mut report, gvk, new);
        }
        ("", "Service") => {
            core::service_update(&mut report, new, old);
            check(&mut report, gvk, new);
        }
        ("", "PersistentVolumeClaim") => {
            check(&mut report, gvk, new);
            core::claim_update(&mut report, new, old);
        }
        ("", "PersistentVolume") => {
            check(&mut report, gvk, new);
            core::volume_update(&mut report, new, old);
        }
        ("apps", "StatefulSet") => {
            // Only what changed against the old one is refused for the rest.
            workload::apps_update(&mut report, &gvk.kind, new, old);
            if report.causes.is_empty() {
                check(&mut report, gvk, new);
            }
        }
        ("apps", kind) => {
            check(&mut report, gvk, new);
            workload::apps_update(&mut report, kind, new, old);
        }
        ("batch", "Job") => {
            check(&mut report, gvk, new);
            workload::job_update(&mut report, new, old);
        }
        ("networking.k8s.io", "IngressClass") => {
            check(&mut report, gvk, new);
            report.unchanged(&new["spec"], &old["spec"], "spec", "controller");
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            if new["addressType"] == old["addressType"] {
                check(&mut report, gvk, new);
            } else {
                report.invalid("addressType", &Value::Null, report::IMMUTABLE);
            }
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            check(&mut report, gvk, new);
            others::role_binding_update(&mut report, new, old);
        }
        ("storage.k8s.io", "StorageClass") => {
            check(&mut report, gvk, new);
            others::storage_class_update(&mut report, new, old);
        }
        ("scheduling.k8s.io", "PriorityClass") => others::priority_class_update(&mut report, new, old),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            check(&mut report, gvk, new);
            others::definition_update(&mut report, new, old);
        }
        ("node.k8s.io", "RuntimeClass") => {
            if new["handler"] != old["handler"] {
                report.invalid("handler", &Value::Null, report::IMMUTABLE);
            }
        }
        _ => check(&mut report, gvk, new),
    }
    report.causes
}

/// What a real server refuses of a changed status, apart from the object's metadata.
pub fn validate_status(gvk: &GroupVersionKind, new: &Value) -> Vec<Cause> {
    let mut report = Report::default();
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Service") => core::service_status(&mut report, new),
        ("networking.k8s.io", "Ingress") => core::load_balancer_status(&mut report, new),
        ("apps", kind) => workload::apps_status(&mut report, kind, new),
        _ => {}
    }
    report.causes
}

/// What a real server refuses of any object's metadata, for custom resources; names follow the common rule.
pub fn validate_metadata(gvk: &GroupVersionKind, object: &Value) -> Vec<Cause> {
    let mut report = Report::default();
    meta::check(&mut report, gvk, object);
    report.causes
}

fn check(report: &mut Report, gvk: &GroupVersionKind, object: &Value) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::spec(report, &object["spec"], "spec"),
        ("", "PodTemplate") => pod::template(report, &object["template"], "template"),
        ("", "ReplicationController") => workload::replication_controller(report, object),
        ("", "Service") => core::service(report, object),
        ("", "ConfigMap") => core::config_map(report, object),
        ("", "Secret") => core::secret(report, object),
        ("", "PersistentVolumeClaim") => core::claim(report, object),
        ("", "PersistentVolume") => core::volume(report, object),
        ("", "Endpoints") => core::endpoints(report, object),
        ("", "LimitRange") => core::limit_range(report, object),
        ("", "ResourceQuota") => core::quota(report, object),
        ("", "Event") => core::event(report, object),
        ("events.k8s.io", "Event") => core::new_event(report, object),
        ("apps", "Deployment") => workload::deployment(report, object),
        ("apps", "ReplicaSet") => workload::replica_set(report, object),
        ("apps", "StatefulSet") => workload::stateful_set(report, object),
        ("apps", "DaemonSet") => workload::daemon_set(report, object),
        ("apps", "ControllerRevision") => workload::controller_revision(report, object),
        ("batch", "Job") => workload::job(report, object),
        ("batch", "CronJob") => workload::cron_job(report, object),
        ("autoscaling", "HorizontalPodAutoscaler") => workload::autoscaler(report, object),
        ("policy", "PodDisruptionBudget") => workload::disruption_budget(report, object),
        ("networking.k8s.io", "Ingress") => others::ingress(report, object),
        ("networking.k8s.io", "IngressClass") => others::ingress_class(report, object),
        ("networking.k8s.io", "NetworkPolicy") => others::network_policy(report, object),
        ("discovery.k8s.io", "EndpointSlice") => others::endpoint_slice(report, object),
        ("rbac.authorization.k8s.io", "Role") => others::role(report, object, true),
        ("rbac.authorization.k8s.io", "ClusterRole") => others::role(report, object, false),
        ("rbac.authorization.k8s.io", "RoleBinding") => others::role_binding(report, object, true),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => others::role_binding(report, object, false),
        ("storage.k8s.io", "StorageClass") => others::storage_class(report, object),
        ("scheduling.k8s.io", "PriorityClass") => others::priority_class(report, object),
        ("coordination.k8s.io", "Lease") => others::lease(report, object),
        ("node.k8s.io", "RuntimeClass") => {
            report.present(object, "", "handler");
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => {
            others::webhooks(report, object);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => others::definition(report, object),
        ("certificates.k8s.io", "CertificateSigningRequest") => others::signing_request(report, object),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            others::priority_level(report, object);
        }
        ("apiregistration.k8s.io", "APIService") => others::api_service(report, object),
        _ => {}
    }
}
