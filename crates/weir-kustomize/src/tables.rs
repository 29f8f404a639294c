//! The field spec tables every kustomization starts with, and how `configurations` and `crds` add to them.

use std::sync::{Arc, OnceLock};

use crate::error::{Context as _, Result};
use crate::fieldspec::{FieldSpec, FieldSpecs, merge_all};
use crate::id::Gvk;
use crate::order;

/// Objects that can be referred to by name, and the fields that do so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameReference {
    pub(crate) target: Gvk,
    pub(crate) referrers: FieldSpecs,
}

/// All tables in force for one kustomization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(crate) name_prefix: FieldSpecs,
    pub(crate) name_suffix: FieldSpecs,
    pub(crate) namespace: FieldSpecs,
    pub(crate) common_labels: FieldSpecs,
    pub(crate) labels: FieldSpecs,
    pub(crate) template_labels: FieldSpecs,
    pub(crate) common_annotations: FieldSpecs,
    pub(crate) name_reference: Vec<NameReference>,
    pub(crate) var_reference: FieldSpecs,
    pub(crate) images: FieldSpecs,
    pub(crate) replicas: FieldSpecs,
}

impl Tables {
    /// The builtin tables, shared.
    pub(crate) fn builtin() -> Arc<Self> {
        static BUILTIN: OnceLock<Arc<Tables>> = OnceLock::new();
        Arc::clone(BUILTIN.get_or_init(|| {
            let mut tables = builtin();
            tables.sort();
            Arc::new(tables)
        }))
    }

    /// Both together; what is already covered is not added again.
    ///
    /// # Errors
    /// An entry of `new` contradicts one that covers it.
    pub(crate) fn merged(old: &Arc<Self>, new: &Arc<Self>) -> Result<Arc<Self>> {
        if Arc::ptr_eq(old, new) || old == new || **new == Self::default() {
            return Ok(Arc::clone(old));
        }
        if **old == Self::default() {
            return Ok(Arc::clone(new));
        }
        let mut merged = Self::clone(old);
        for (name, table, more) in [
            ("NamePrefix", &mut merged.name_prefix, &new.name_prefix),
            ("NameSuffix", &mut merged.name_suffix, &new.name_suffix),
            ("NameSpace", &mut merged.namespace, &new.namespace),
            ("CommonAnnotations", &mut merged.common_annotations, &new.common_annotations),
            ("CommonLabels", &mut merged.common_labels, &new.common_labels),
            ("Labels", &mut merged.labels, &new.labels),
            ("TemplateLabels", &mut merged.template_labels, &new.template_labels),
            ("VarReference", &mut merged.var_reference, &new.var_reference),
            ("Images", &mut merged.images, &new.images),
            ("Replicas", &mut merged.replicas, &new.replicas),
        ] {
            merge_all(table, more).context(|| format!("failed to merge {name} fieldSpec"))?;
        }
        for reference in &new.name_reference {
            merged
                .add_name_reference(reference)
                .context(|| "failed to merge NameReference fieldSpec".to_owned())?;
        }
        merged.sort();
        Ok(Arc::new(merged))
    }

    pub(crate) fn add_name_reference(&mut self, new: &NameReference) -> Result<()> {
        if let Some(old) = self.name_reference.iter_mut().find(|old| old.target == new.target) {
            return merge_all(&mut old.referrers, &new.referrers);
        }
        self.name_reference.push(new.clone());
        Ok(())
    }

    fn sort(&mut self) {
        for table in [
            &mut self.name_prefix,
            &mut self.name_suffix,
            &mut self.namespace,
            &mut self.common_labels,
            &mut self.labels,
            &mut self.template_labels,
            &mut self.common_annotations,
            &mut self.var_reference,
            &mut self.images,
            &mut self.replicas,
        ] {
            table.sort_by_cached_key(|spec| order::table_key(&spec.gvk));
        }
        self.name_reference.sort_by_cached_key(|reference| order::table_key(&reference.target));
    }
}

/// The kinds that hold a pod, and where.
const POD_HOLDERS: [(&str, &str, &str); 9] = [
    ("Pod", "v1", "spec"),
    ("PodTemplate", "", "template/spec"),
    ("Deployment", "", "spec/template/spec"),
    ("ReplicaSet", "", "spec/template/spec"),
    ("DaemonSet", "", "spec/template/spec"),
    ("StatefulSet", "", "spec/template/spec"),
    ("Job", "", "spec/template/spec"),
    ("CronJob", "", "spec/jobTemplate/spec/template/spec"),
    ("ReplicationController", "", "spec/template/spec"),
];

fn spec(group: &str, version: &str, kind: &str, path: &str, create: bool) -> FieldSpec {
    FieldSpec::new(Gvk::new(group, version, kind), path, create)
}

fn of_kind(kind: &str, path: &str) -> FieldSpec {
    spec("", "", kind, path, false)
}

fn builtin() -> Tables {
    let name = || vec![spec("", "", "", "metadata/name", false)];
    let metadata_labels = metadata_labels();
    let mut common_labels = selector_labels();
    common_labels.extend(metadata_labels.clone());
    Tables {
        name_prefix: name(),
        name_suffix: name(),
        namespace: vec![
            spec("", "", "Namespace", "metadata/name", true),
            spec("apiregistration.k8s.io", "", "APIService", "spec/service/namespace", true),
            spec(
                "apiextensions.k8s.io",
                "",
                "CustomResourceDefinition",
                "spec/conversion/webhook/clientConfig/service/namespace",
                false,
            ),
        ],
        common_labels,
        labels: Vec::new(),
        template_labels: metadata_labels,
        common_annotations: common_annotations(),
        name_reference: name_references(),
        var_reference: var_references(),
        images: [
            "spec/containers[]/image",
            "spec/initContainers[]/image",
            "spec/volumes[]/image/reference",
            "spec/template/spec/containers[]/image",
            "spec/template/spec/initContainers[]/image",
            "spec/template/spec/volumes[]/image/reference",
        ]
        .into_iter()
        .map(|path| spec("", "", "", path, true))
        .collect(),
        replicas: ["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"]
            .into_iter()
            .map(|kind| spec("", "", kind, "spec/replicas", true))
            .collect(),
    }
}

fn selector_labels() -> FieldSpecs {
    let mut table = vec![
        spec("", "v1", "Service", "spec/selector", true),
        spec("", "v1", "ReplicationController", "spec/selector", true),
        spec("", "", "Deployment", "spec/selector/matchLabels", true),
        spec("", "", "ReplicaSet", "spec/selector/matchLabels", true),
        spec("", "", "DaemonSet", "spec/selector/matchLabels", true),
        spec("apps", "", "StatefulSet", "spec/selector/matchLabels", true),
        spec("batch", "", "Job", "spec/selector/matchLabels", false),
        spec("batch", "", "CronJob", "spec/jobTemplate/spec/selector/matchLabels", false),
        spec("policy", "", "PodDisruptionBudget", "spec/selector/matchLabels", false),
    ];
    for path in ["spec", "spec/ingress/from", "spec/egress/to"] {
        table.push(spec(
            "networking.k8s.io",
            "",
            "NetworkPolicy",
            &format!("{path}/podSelector/matchLabels"),
            false,
        ));
    }
    for kind in ["Deployment", "StatefulSet"] {
        for affinity in ["podAffinity", "podAntiAffinity"] {
            for term in [
                "preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm",
                "requiredDuringSchedulingIgnoredDuringExecution",
            ] {
                table.push(spec(
                    "apps",
                    "",
                    kind,
                    &format!("spec/template/spec/affinity/{affinity}/{term}/labelSelector/matchLabels"),
                    false,
                ));
            }
        }
        table.push(spec(
            "apps",
            "",
            kind,
            "spec/template/spec/topologySpreadConstraints/labelSelector/matchLabels",
            false,
        ));
    }
    table
}

fn metadata_labels() -> FieldSpecs {
    vec![
        spec("", "", "", "metadata/labels", true),
        spec("", "v1", "ReplicationController", "spec/template/metadata/labels", true),
        spec("", "", "Deployment", "spec/template/metadata/labels", true),
        spec("", "", "ReplicaSet", "spec/template/metadata/labels", true),
        spec("", "", "DaemonSet", "spec/template/metadata/labels", true),
        spec("apps", "", "StatefulSet", "spec/template/metadata/labels", true),
        spec("apps", "", "StatefulSet", "spec/volumeClaimTemplates[]/metadata/labels", true),
        spec("batch", "", "Job", "spec/template/metadata/labels", true),
        spec("batch", "", "CronJob", "spec/jobTemplate/metadata/labels", true),
        spec("batch", "", "CronJob", "spec/jobTemplate/spec/template/metadata/labels", true),
    ]
}

fn common_annotations() -> FieldSpecs {
    vec![
        spec("", "", "", "metadata/annotations", true),
        spec("", "v1", "ReplicationController", "spec/template/metadata/annotations", true),
        spec("", "", "Deployment", "spec/template/metadata/annotations", true),
        spec("", "", "ReplicaSet", "spec/template/metadata/annotations", true),
        spec("", "", "DaemonSet", "spec/template/metadata/annotations", true),
        spec("", "", "StatefulSet", "spec/template/metadata/annotations", true),
        spec("batch", "", "Job", "spec/template/metadata/annotations", true),
        spec("batch", "", "CronJob", "spec/jobTemplate/metadata/annotations", true),
        spec("batch", "", "CronJob", "spec/jobTemplate/spec/template/metadata/annotations", true),
    ]
}

/// Field specs for `paths` within the pod of each of `kinds`.
fn in_pods(kinds: &[&str], paths: &[&str]) -> FieldSpecs {
    POD_HOLDERS
        .iter()
        .filter(|(kind, ..)| kinds.contains(kind))
        .flat_map(|(kind, version, pod)| {
            paths.iter().map(move |path| spec("", version, kind, &format!("{pod}/{path}"), false))
        })
        .collect()
}

fn name_references() -> Vec<NameReference> {
    const CONFIG_HOLDERS: [&str; 8] =
        ["Pod", "PodTemplate", "Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job", "CronJob"];
    const ACCOUNT_HOLDERS: [&str; 7] =
        ["Pod", "StatefulSet", "Deployment", "ReplicationController", "CronJob", "Job", "DaemonSet"];
    const RBAC: &str = "rbac.authorization.k8s.io";
    let reference =
        |group, version, kind, referrers| NameReference { target: Gvk::new(group, version, kind), referrers };
    let mut references = Vec::new();
    for kind in ["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"] {
        references.push(reference(
            "",
            "",
            kind,
            vec![of_kind("HorizontalPodAutoscaler", "spec/scaleTargetRef/name")],
        ));
    }

    let mut config_map = in_pods(
        &CONFIG_HOLDERS,
        &[
            "volumes/configMap/name",
            "containers/env/valueFrom/configMapKeyRef/name",
            "initContainers/env/valueFrom/configMapKeyRef/name",
            "containers/envFrom/configMapRef/name",
            "initContainers/envFrom/configMapRef/name",
            "volumes/projected/sources/configMap/name",
        ],
    );
    config_map.extend([
        of_kind("Node", "spec/configSource/configMap"),
        of_kind("Role", "rules/resourceNames"),
        of_kind("ClusterRole", "rules/resourceNames"),
        of_kind("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/fastcgi-params-configmap"),
    ]);
    references.push(reference("", "v1", "ConfigMap", config_map));

    let mut secret = in_pods(
        &CONFIG_HOLDERS,
        &[
            "volumes/secret/secretName",
            "containers/env/valueFrom/secretKeyRef/name",
            "initContainers/env/valueFrom/secretKeyRef/name",
            "containers/envFrom/secretRef/name",
            "initContainers/envFrom/secretRef/name",
            "imagePullSecrets/name",
            "volumes/projected/sources/secret/name",
        ],
    );
    secret.extend([
        of_kind("Ingress", "spec/tls/secretName"),
        of_kind("Ingress", "metadata/annotations/ingress.kubernetes.io\\/auth-secret"),
        of_kind("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-secret"),
        of_kind("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-tls-secret"),
        of_kind("ServiceAccount", "imagePullSecrets/name"),
        of_kind("StorageClass", "parameters/secretName"),
        of_kind("StorageClass", "parameters/adminSecretName"),
        of_kind("StorageClass", "parameters/userSecretName"),
        of_kind("StorageClass", "parameters/secretRef"),
        of_kind("Role", "rules/resourceNames"),
        of_kind("ClusterRole", "rules/resourceNames"),
        spec(
            "serving.knative.dev",
            "v1",
            "Service",
            "spec/template/spec/containers/env/valueFrom/secretKeyRef/name",
            false,
        ),
        of_kind("PersistentVolume", "spec/azureFile/secretName"),
    ]);
    references.push(reference("", "v1", "Secret", secret));

    let webhooks = "admissionregistration.k8s.io";
    references.push(reference(
        "",
        "v1",
        "Service",
        vec![
            spec("apps", "", "StatefulSet", "spec/serviceName", false),
            of_kind("Ingress", "spec/rules/http/paths/backend/serviceName"),
            of_kind("Ingress", "spec/backend/serviceName"),
            of_kind("Ingress", "spec/rules/http/paths/backend/service/name"),
            of_kind("Ingress", "spec/defaultBackend/service/name"),
            spec("apiregistration.k8s.io", "", "APIService", "spec/service/name", false),
            spec(webhooks, "", "ValidatingWebhookConfiguration", "webhooks/clientConfig/service", false),
            spec(webhooks, "", "MutatingWebhookConfiguration", "webhooks/clientConfig/service", false),
        ],
    ));
    references.push(reference(RBAC, "", "Role", vec![spec(RBAC, "", "RoleBinding", "roleRef/name", false)]));
    references.push(reference(
        RBAC,
        "",
        "ClusterRole",
        vec![
            spec(RBAC, "", "RoleBinding", "roleRef/name", false),
            spec(RBAC, "", "ClusterRoleBinding", "roleRef/name", false),
        ],
    ));
    let mut account = vec![
        spec(RBAC, "", "RoleBinding", "subjects", false),
        spec(RBAC, "", "ClusterRoleBinding", "subjects", false),
    ];
    account.extend(in_pods(&ACCOUNT_HOLDERS, &["serviceAccountName"]));
    references.push(reference("", "v1", "ServiceAccount", account));
    references.push(reference(
        "",
        "v1",
        "PersistentVolumeClaim",
        in_pods(&ACCOUNT_HOLDERS, &["volumes/persistentVolumeClaim/claimName"]),
    ));
    references.push(reference(
        "",
        "v1",
        "PersistentVolume",
        vec![
            of_kind("PersistentVolumeClaim", "spec/volumeName"),
            spec(RBAC, "", "ClusterRole", "rules/resourceNames", false),
        ],
    ));
    references.push(reference(
        "storage.k8s.io",
        "v1",
        "StorageClass",
        vec![
            of_kind("PersistentVolume", "spec/storageClassName"),
            of_kind("PersistentVolumeClaim", "spec/storageClassName"),
            of_kind("StatefulSet", "spec/volumeClaimTemplates/spec/storageClassName"),
        ],
    ));
    references.push(reference(
        "scheduling.k8s.io",
        "v1",
        "PriorityClass",
        in_pods(&ACCOUNT_HOLDERS, &["priorityClassName"]),
    ));
    // The group of this row is wrong in kustomize, so it never applies; kept for equal behaviour.
    references.push(reference(
        "networking.k8s.io/v1",
        "v1",
        "IngressClass",
        vec![of_kind("Ingress", "spec/ingressClassName")],
    ));
    references.push(reference(
        webhooks,
        "",
        "ValidatingAdmissionPolicy",
        vec![spec(webhooks, "", "ValidatingAdmissionPolicyBinding", "spec/policyName", false)],
    ));
    references
}

fn var_references() -> FieldSpecs {
    let mut paths = Vec::new();
    for containers in ["containers", "initContainers"] {
        for field in ["args", "command", "env/value", "volumeMounts/mountPath"] {
            paths.push(format!("{containers}/{field}"));
        }
    }
    let mut table = FieldSpecs::new();
    for (kind, _, pod) in POD_HOLDERS {
        if matches!(kind, "PodTemplate" | "ReplicationController") {
            continue;
        }
        table.extend(paths.iter().map(|path| of_kind(kind, &format!("{pod}/{path}"))));
        table.push(match kind {
            "CronJob" => of_kind(kind, "spec/jobTemplate/spec/template/volumes/nfs/server"),
            "StatefulSet" => of_kind(kind, "spec/volumeClaimTemplates/spec/nfs/server"),
            _ => of_kind(kind, &format!("{pod}/volumes/nfs/server")),
        });
    }
    table.extend([
        of_kind("Deployment", "spec/template/metadata/annotations"),
        of_kind("Ingress", "spec/rules/host"),
        of_kind("Ingress", "spec/tls/hosts"),
        of_kind("Ingress", "spec/tls/secretName"),
        of_kind("Service", "spec/ports/port"),
        of_kind("Service", "spec/ports/targetPort"),
        of_kind("PersistentVolume", "spec/nfs/server"),
        of_kind("", "metadata/labels"),
        of_kind("", "metadata/annotations"),
    ]);
    table
}
