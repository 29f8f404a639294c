//! Brings manifests into the form in which the API server will show them, so that a comparison
//! finds only real differences and the fields sent are those the reference sends.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::object::{self, ObjectRef};
use crate::quantity;

/// The object as it is sent to the API server.
///
/// - kinds built into Kubernetes lose unknown fields and get canonical quantities, port protocols
///   and Secret `data`; if they do not fit their type they are left for the API server to judge;
/// - `status` is dropped, except on CRDs, and so is `metadata.creationTimestamp`;
/// - `rbac.authorization.k8s.io/v1` Role and ClusterRole are left as they are;
/// - a CRD loses a conversion webhook `caBundle` that cannot be loaded.
///
/// # Errors
/// When the object is not a map with `apiVersion`, `kind` and a name.
pub fn normalise(mut object: Value) -> Result<Value, NormaliseError> {
    let reference = ObjectRef::of(&object);
    if reference.version.is_empty() || reference.kind.is_empty() || reference.name.is_empty() {
        return Err(NormaliseError { object: reference });
    }
    if reference.group == "rbac.authorization.k8s.io"
        && reference.version == "v1"
        && matches!(reference.kind.as_str(), "Role" | "ClusterRole")
    {
        return Ok(object);
    }
    if reference.is_kind("apiextensions.k8s.io", "CustomResourceDefinition") {
        drop_invalid_ca_bundle(&mut object);
    } else {
        for_each_quantity(&reference, &mut object);
        if let Some(typed) = builtin::round_trip(&reference, &object) {
            object = typed;
            complete(&reference, &mut object);
        }
        if let Some(map) = object.as_object_mut() {
            map.remove("status");
        }
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
    Ok(object)
}

/// An object without the fields every object needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object} normalization error: apiVersion, kind and metadata.name are required")]
pub struct NormaliseError {
    /// As much as is known of the object.
    pub object: ObjectRef,
}

/// Where the pod specification of a kind is, as path segments.
fn pod_spec(reference: &ObjectRef) -> Option<&'static [&'static str]> {
    match (reference.group.as_str(), reference.kind.as_str()) {
        ("", "Pod") => Some(&["spec"]),
        ("", "PodTemplate") => Some(&["template", "spec"]),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job") => Some(&["spec", "template", "spec"]),
        ("batch", "CronJob") => Some(&["spec", "jobTemplate", "spec", "template", "spec"]),
        _ => None,
    }
}

/// Paths of quantities below a pod specification; `[]` is every item, `*` every value.
const POD_QUANTITIES: &[&[&str]] = &[
    &["containers", "[]", "resources", "limits", "*"],
    &["containers", "[]", "resources", "requests", "*"],
    &["containers", "[]", "env", "[]", "valueFrom", "resourceFieldRef", "divisor"],
    &["initContainers", "[]", "resources", "limits", "*"],
    &["initContainers", "[]", "resources", "requests", "*"],
    &["initContainers", "[]", "env", "[]", "valueFrom", "resourceFieldRef", "divisor"],
    &["ephemeralContainers", "[]", "resources", "limits", "*"],
    &["ephemeralContainers", "[]", "resources", "requests", "*"],
    &["resources", "limits", "*"],
    &["resources", "requests", "*"],
    &["overhead", "*"],
    &["volumes", "[]", "emptyDir", "sizeLimit"],
    &["volumes", "[]", "downwardAPI", "items", "[]", "resourceFieldRef", "divisor"],
    &["volumes", "[]", "ephemeral", "volumeClaimTemplate", "spec", "resources", "limits", "*"],
    &["volumes", "[]", "ephemeral", "volumeClaimTemplate", "spec", "resources", "requests", "*"],
];

/// Paths of quantities in other built-in kinds.
fn own_quantities(reference: &ObjectRef) -> &'static [&'static [&'static str]] {
    match (reference.group.as_str(), reference.kind.as_str()) {
        ("", "PersistentVolumeClaim") => {
            &[&["spec", "resources", "limits", "*"], &["spec", "resources", "requests", "*"]]
        }
        ("", "PersistentVolume") => &[&["spec", "capacity", "*"]],
        ("", "ResourceQuota") => &[&["spec", "hard", "*"]],
        ("", "LimitRange") => &[
            &["spec", "limits", "[]", "default", "*"],
            &["spec", "limits", "[]", "defaultRequest", "*"],
            &["spec", "limits", "[]", "max", "*"],
            &["spec", "limits", "[]", "min", "*"],
            &["spec", "limits", "[]", "maxLimitRequestRatio", "*"],
        ],
        ("apps", "StatefulSet") => &[
            &["spec", "volumeClaimTemplates", "[]", "spec", "resources", "limits", "*"],
            &["spec", "volumeClaimTemplates", "[]", "spec", "resources", "requests", "*"],
        ],
        ("autoscaling", "HorizontalPodAutoscaler") => &[
            &["spec", "metrics", "[]", "*", "target", "averageValue"],
            &["spec", "metrics", "[]", "*", "target", "value"],
        ],
        _ => &[],
    }
}

fn for_each_quantity(reference: &ObjectRef, object: &mut Value) {
    for path in own_quantities(reference) {
        visit(object, path, &mut make_canonical);
    }
    if let Some(prefix) = pod_spec(reference) {
        visit(object, prefix, &mut |pod| {
            for path in POD_QUANTITIES {
                visit(pod, path, &mut make_canonical);
            }
        });
    }
}

fn make_canonical(value: &mut Value) {
    let canonical = match value {
        Value::String(text) => quantity::canonical(text),
        Value::Number(number) => quantity::canonical(&number.to_string()),
        _ => None,
    };
    if let Some(canonical) = canonical {
        *value = Value::String(canonical);
    }
}

/// Calls `change` on every value `path` leads to; `[]` stands for all items, `*` for all values of a map.
fn visit(value: &mut Value, path: &[&str], change: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else {
        change(value);
        return;
    };
    match (*first, value) {
        ("[]", Value::Array(items)) => items.iter_mut().for_each(|item| visit(item, rest, change)),
        ("*", Value::Object(map)) => map.values_mut().for_each(|child| visit(child, rest, change)),
        (key, Value::Object(map)) => {
            if let Some(child) = map.get_mut(key) {
                visit(child, rest, change);
            }
        }
        _ => {}
    }
}

/// Adds what the typed form of a kind always carries.
fn complete(reference: &ObjectRef, object: &mut Value) {
    let kind = reference.kind.as_str();
    if let Some(prefix) = pod_spec(reference) {
        let with_protocol = !matches!(kind, "ReplicationController" | "PodTemplate");
        visit(object, prefix, &mut |pod| {
            for list in ["containers", "initContainers", "ephemeralContainers"] {
                visit(pod, &[list, "[]"], &mut |container| {
                    add_empty(container, "resources");
                });
            }
            if with_protocol {
                visit(pod, &["containers", "[]", "ports", "[]"], &mut default_protocol);
            }
        });
    }
    match (reference.group.as_str(), kind) {
        ("", "Secret") => move_string_data(object),
        ("", "Service") => visit(object, &["spec", "ports", "[]"], &mut default_protocol),
        ("", "Namespace") => add_empty(object, "spec"),
        ("", "PersistentVolumeClaim") => {
            visit(object, &["spec"], &mut |spec| add_empty(spec, "resources"));
        }
        ("apps", "Deployment") => visit(object, &["spec"], &mut |spec| add_empty(spec, "strategy")),
        ("apps", "DaemonSet" | "StatefulSet") => {
            visit(object, &["spec"], &mut |spec| {
                add_empty(spec, "updateStrategy");
            });
            visit(object, &["spec", "volumeClaimTemplates", "[]"], &mut |claim| {
                add_empty(claim, "status");
                visit(claim, &["spec"], &mut |spec| add_empty(spec, "resources"));
            });
        }
        ("batch", "CronJob") => {
            visit(object, &["spec", "jobTemplate"], &mut |template| {
                add_empty(template, "metadata");
            });
            visit(object, &["spec", "jobTemplate", "spec", "template"], &mut |template| {
                add_empty(template, "metadata");
            });
        }
        ("batch", "Job") => visit(object, &["spec", "template"], &mut |template| {
            add_empty(template, "metadata");
        }),
        ("autoscaling", "HorizontalPodAutoscaler") if reference.version == "v2" => {
            remove_doubled_metrics(object);
        }
        _ => {}
    }
}

fn add_empty(value: &mut Value, key: &str) {
    if let Some(map) = value.as_object_mut() {
        map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    }
}

fn default_protocol(port: &mut Value) {
    let Some(port) = port.as_object_mut() else {
        return;
    };
    if port.get("protocol").and_then(Value::as_str).unwrap_or_default().is_empty() {
        port.insert("protocol".to_owned(), "TCP".into());
    }
}

fn move_string_data(secret: &mut Value) {
    let Some(secret) = secret.as_object_mut() else {
        return;
    };
    let Some(Value::Object(plain)) = secret.remove("stringData") else {
        return;
    };
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    let Some(data) = data.as_object_mut() else {
        return;
    };
    for (key, value) in plain {
        if let Value::String(text) = value {
            data.insert(key, STANDARD.encode(text).into());
        }
    }
}

/// Removes metrics that are empty or equal to an earlier one, which old API servers produced.
pub(crate) fn remove_doubled_metrics(autoscaler: &mut Value) {
    visit(autoscaler, &["spec", "metrics"], &mut |metrics| {
        if let Value::Array(metrics) = metrics {
            let mut seen: Vec<Value> = Vec::new();
            metrics.retain(|metric| {
                let empty = metric.as_object().is_some_and(Map::is_empty);
                if empty || seen.contains(metric) {
                    return false;
                }
                seen.push(metric.clone());
                true
            });
        }
    });
}

fn drop_invalid_ca_bundle(definition: &mut Value) {
    visit(definition, &["spec", "conversion", "webhook", "clientConfig"], &mut |config| {
        let Some(config) = config.as_object_mut() else {
            return;
        };
        let valid = match config.get("caBundle") {
            None => true,
            Some(Value::String(bundle)) => STANDARD.decode(bundle).is_ok_and(|pem| holds_certificate(&pem)),
            Some(_) => false,
        };
        if !valid {
            config.remove("caBundle");
        }
    });
}

/// Whether the text has at least one PEM block that is a certificate and decodes.
fn holds_certificate(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.split("-----BEGIN CERTIFICATE-----").skip(1).any(|rest| {
        rest.split_once("-----END CERTIFICATE-----").is_some_and(|(body, _)| {
            let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
            !body.is_empty() && STANDARD.decode(body).is_ok()
        })
    })
}

mod builtin {
    //! The kinds built into Kubernetes.

    use k8s_openapi::api::{
        admissionregistration, apps, autoscaling, batch, certificates, coordination, core, discovery,
        flowcontrol, networking, node, policy, rbac, scheduling, storage,
    };
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use crate::object::{self, ObjectRef};

    /// The object after a trip through its type, or `None` if it is of another kind or does not fit.
    pub(super) fn round_trip(reference: &ObjectRef, object: &Value) -> Option<Value> {
        macro_rules! kinds {
            ($($api_version:literal { $($kind:literal => $type:ty),+ $(,)? })+) => {
                match (object::text(object, "apiVersion"), reference.kind.as_str()) {
                    $($(($api_version, $kind) => typed::<$type>(object),)+)+
                    _ => None,
                }
            };
        }
        kinds! {
            "v1" {
                "ConfigMap" => core::v1::ConfigMap,
                "Endpoints" => core::v1::Endpoints,
                "LimitRange" => core::v1::LimitRange,
                "Namespace" => core::v1::Namespace,
                "PersistentVolume" => core::v1::PersistentVolume,
                "PersistentVolumeClaim" => core::v1::PersistentVolumeClaim,
                "Pod" => core::v1::Pod,
                "PodTemplate" => core::v1::PodTemplate,
                "ReplicationController" => core::v1::ReplicationController,
                "ResourceQuota" => core::v1::ResourceQuota,
                "Secret" => core::v1::Secret,
                "Service" => core::v1::Service,
                "ServiceAccount" => core::v1::ServiceAccount,
            }
            "apps/v1" {
                "DaemonSet" => apps::v1::DaemonSet,
                "Deployment" => apps::v1::Deployment,
                "ReplicaSet" => apps::v1::ReplicaSet,
                "StatefulSet" => apps::v1::StatefulSet,
            }
            "batch/v1" {
                "CronJob" => batch::v1::CronJob,
                "Job" => batch::v1::Job,
            }
            "autoscaling/v1" { "HorizontalPodAutoscaler" => autoscaling::v1::HorizontalPodAutoscaler }
            "autoscaling/v2" { "HorizontalPodAutoscaler" => autoscaling::v2::HorizontalPodAutoscaler }
            "networking.k8s.io/v1" {
                "Ingress" => networking::v1::Ingress,
                "IngressClass" => networking::v1::IngressClass,
                "NetworkPolicy" => networking::v1::NetworkPolicy,
            }
            "policy/v1" { "PodDisruptionBudget" => policy::v1::PodDisruptionBudget }
            "rbac.authorization.k8s.io/v1" {
                "ClusterRoleBinding" => rbac::v1::ClusterRoleBinding,
                "RoleBinding" => rbac::v1::RoleBinding,
            }
            "scheduling.k8s.io/v1" { "PriorityClass" => scheduling::v1::PriorityClass }
            "storage.k8s.io/v1" {
                "CSIDriver" => storage::v1::CSIDriver,
                "StorageClass" => storage::v1::StorageClass,
            }
            "node.k8s.io/v1" { "RuntimeClass" => node::v1::RuntimeClass }
            "coordination.k8s.io/v1" { "Lease" => coordination::v1::Lease }
            "discovery.k8s.io/v1" { "EndpointSlice" => discovery::v1::EndpointSlice }
            "certificates.k8s.io/v1" {
                "CertificateSigningRequest" => certificates::v1::CertificateSigningRequest,
            }
            "flowcontrol.apiserver.k8s.io/v1" {
                "FlowSchema" => flowcontrol::v1::FlowSchema,
                "PriorityLevelConfiguration" => flowcontrol::v1::PriorityLevelConfiguration,
            }
            "admissionregistration.k8s.io/v1" {
                "MutatingWebhookConfiguration" => admissionregistration::v1::MutatingWebhookConfiguration,
                "ValidatingAdmissionPolicy" => admissionregistration::v1::ValidatingAdmissionPolicy,
                "ValidatingAdmissionPolicyBinding" => admissionregistration::v1::ValidatingAdmissionPolicyBinding,
                "ValidatingWebhookConfiguration" => admissionregistration::v1::ValidatingWebhookConfiguration,
            }
        }
    }

    fn typed<T: DeserializeOwned + Serialize>(object: &Value) -> Option<Value> {
        let typed = T::deserialize(object).ok()?;
        serde_json::to_value(typed).ok()
    }
}

/// Whether an object is a core `Secret` that still carries SOPS metadata and did not opt out.
pub fn is_encrypted_secret(object: &Value, group: &str) -> bool {
    let reference = ObjectRef::of(object);
    reference.is_kind("", "Secret")
        && object.get("sops").is_some()
        && !object::annotation(object, &format!("{group}/decrypt"))
            .is_some_and(|value| value.eq_ignore_ascii_case("disabled"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn check(input: Value, expected: Value) {
        let normal = normalise(input).unwrap();
        assert_eq!(normal, expected);
        assert_eq!(normalise(normal.clone()).unwrap(), normal, "normalising twice changes nothing");
    }

    #[test]
    fn deployments_get_quantities_protocols_and_lose_unknown_fields() {
        check(
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "creationTimestamp": null},
                "spec": {"replicaz": 3, "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                        {"name": "web", "image": "web:1", "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
                         "resources": {"requests": {"cpu": 1, "memory": "1024Mi"}, "limits": {"cpu": 0.5}}}],
                        "initContainers": [{"name": "i", "ports": [{"containerPort": 1}]}]}}},
                "status": {"replicas": 1}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}, "strategy": {},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                        {"name": "web", "image": "web:1",
                         "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}],
                         "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "500m"}}}],
                        "initContainers": [{"name": "i", "ports": [{"containerPort": 1}], "resources": {}}]}}}}),
        );
    }

    #[test]
    fn string_data_becomes_data() {
        check(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
                "data": {"a": "b2xk", "b": "Yg=="}, "stringData": {"a": "new"}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "bmV3", "b": "Yg=="}}),
        );
    }

    #[test]
    fn objects_that_do_not_fit_their_type_are_left_for_the_server() {
        check(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": "many", "x": 1}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": "many", "x": 1}}),
        );
    }

    #[test]
    fn roles_and_custom_resources_keep_everything_but_status() {
        check(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [], "x": 1}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [], "x": 1}),
        );
        check(
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"cpu": "1000m"}, "status": {}}),
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"cpu": "1000m"}}),
        );
    }

    #[test]
    fn an_unusable_ca_bundle_is_removed_from_a_definition() {
        let definition = |bundle: &str| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "c"},
                "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}, "status": {"x": 1}})
        };
        let without = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "c"}, "spec": {"conversion": {"webhook": {"clientConfig": {}}}}, "status": {"x": 1}});
        check(definition("Cg=="), without.clone());
        check(definition("%%"), without);
        let pem = STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        check(definition(&pem), definition(&pem));
    }

    #[test]
    fn objects_need_a_name() {
        let error = normalise(json!({"apiVersion": "v1", "kind": "Service", "metadata": {}})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Service/ normalization error: apiVersion, kind and metadata.name are required"
        );
    }

    #[test]
    fn encrypted_secrets_are_recognised() {
        let group = "kustomize.toolkit.fluxcd.io";
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "sops": {"mac": "x"}});
        assert!(is_encrypted_secret(&secret, group));
        let mut opted_out = secret.clone();
        opted_out["metadata"]["annotations"] = json!({"kustomize.toolkit.fluxcd.io/decrypt": "Disabled"});
        assert!(!is_encrypted_secret(&opted_out, group));
        let mut other = secret;
        other["apiVersion"] = "example.com/v1".into();
        assert!(!is_encrypted_secret(&other, group));
    }
}
