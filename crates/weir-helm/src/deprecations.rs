//! Kinds of Kubernetes that are, or will be, no longer served.

/// Kinds of one version that share their fate.
struct Group {
    api_version: &'static str,
    /// The minor version of Kubernetes 1 that deprecates them.
    deprecated_minor: u32,
    /// The one that serves them no more.
    removed_minor: u32,
    /// What to use instead, if there is something.
    replacement: &'static str,
    /// The kinds; `A>B` where the replacement has another name.
    kinds: &'static str,
}

#[rustfmt::skip]
const GROUPS: &[Group] = &[
    Group { api_version: "admission.k8s.io/v1beta1", deprecated_minor: 19, removed_minor: 22, replacement: "admission.k8s.io/v1", kinds: "AdmissionReview" },
    Group { api_version: "admissionregistration.k8s.io/v1alpha1", deprecated_minor: 35, removed_minor: 38, replacement: "", kinds: "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingAdmissionPolicyBindingList MutatingAdmissionPolicyList" },
    Group { api_version: "admissionregistration.k8s.io/v1alpha1", deprecated_minor: 29, removed_minor: 32, replacement: "", kinds: "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingAdmissionPolicyBindingList ValidatingAdmissionPolicyList" },
    Group { api_version: "admissionregistration.k8s.io/v1beta1", deprecated_minor: 37, removed_minor: 40, replacement: "admissionregistration.k8s.io/v1", kinds: "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingAdmissionPolicyBindingList MutatingAdmissionPolicyList" },
    Group { api_version: "admissionregistration.k8s.io/v1beta1", deprecated_minor: 16, removed_minor: 22, replacement: "admissionregistration.k8s.io/v1", kinds: "MutatingWebhookConfiguration MutatingWebhookConfigurationList ValidatingWebhookConfiguration ValidatingWebhookConfigurationList" },
    Group { api_version: "admissionregistration.k8s.io/v1beta1", deprecated_minor: 31, removed_minor: 34, replacement: "", kinds: "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingAdmissionPolicyBindingList ValidatingAdmissionPolicyList" },
    Group { api_version: "apps/v1beta1", deprecated_minor: 8, removed_minor: 16, replacement: "apps/v1", kinds: "ControllerRevision ControllerRevisionList Deployment DeploymentList DeploymentRollback StatefulSet StatefulSetList" },
    Group { api_version: "apps/v1beta1", deprecated_minor: 8, removed_minor: 16, replacement: "autoscaling/v1", kinds: "Scale" },
    Group { api_version: "apps/v1beta2", deprecated_minor: 9, removed_minor: 16, replacement: "apps/v1", kinds: "ControllerRevision ControllerRevisionList DaemonSet DaemonSetList Deployment DeploymentList ReplicaSet ReplicaSetList StatefulSet StatefulSetList" },
    Group { api_version: "apps/v1beta2", deprecated_minor: 9, removed_minor: 16, replacement: "autoscaling/v1", kinds: "Scale" },
    Group { api_version: "authentication.k8s.io/v1alpha1", deprecated_minor: 29, removed_minor: 32, replacement: "", kinds: "SelfSubjectReview" },
    Group { api_version: "authentication.k8s.io/v1beta1", deprecated_minor: 30, removed_minor: 33, replacement: "", kinds: "SelfSubjectReview" },
    Group { api_version: "authentication.k8s.io/v1beta1", deprecated_minor: 19, removed_minor: 22, replacement: "authentication.k8s.io/v1", kinds: "TokenReview" },
    Group { api_version: "authorization.k8s.io/v1beta1", deprecated_minor: 19, removed_minor: 22, replacement: "authorization.k8s.io/v1", kinds: "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview" },
    Group { api_version: "batch/v1beta1", deprecated_minor: 21, removed_minor: 25, replacement: "batch/v1", kinds: "CronJob CronJobList" },
    Group { api_version: "certificates.k8s.io/v1alpha1", deprecated_minor: 34, removed_minor: 37, replacement: "", kinds: "ClusterTrustBundle ClusterTrustBundleList" },
    Group { api_version: "certificates.k8s.io/v1beta1", deprecated_minor: 19, removed_minor: 22, replacement: "certificates.k8s.io/v1", kinds: "CertificateSigningRequest CertificateSigningRequestList" },
    Group { api_version: "certificates.k8s.io/v1beta1", deprecated_minor: 37, removed_minor: 40, replacement: "", kinds: "ClusterTrustBundle ClusterTrustBundleList" },
    Group { api_version: "certificates.k8s.io/v1beta1", deprecated_minor: 38, removed_minor: 41, replacement: "", kinds: "PodCertificateRequest PodCertificateRequestList" },
    Group { api_version: "coordination.k8s.io/v1alpha2", deprecated_minor: 35, removed_minor: 38, replacement: "", kinds: "LeaseCandidate LeaseCandidateList" },
    Group { api_version: "coordination.k8s.io/v1beta1", deprecated_minor: 19, removed_minor: 22, replacement: "coordination.k8s.io/v1", kinds: "Lease LeaseList" },
    Group { api_version: "coordination.k8s.io/v1beta1", deprecated_minor: 36, removed_minor: 39, replacement: "", kinds: "LeaseCandidate LeaseCandidateList" },
    Group { api_version: "discovery.k8s.io/v1beta1", deprecated_minor: 21, removed_minor: 25, replacement: "discovery.k8s.io/v1", kinds: "EndpointSlice EndpointSliceList>EndpointSlice" },
    Group { api_version: "events.k8s.io/v1beta1", deprecated_minor: 22, removed_minor: 25, replacement: "", kinds: "Event EventList" },
    Group { api_version: "extensions/v1beta1", deprecated_minor: 8, removed_minor: 16, replacement: "apps/v1", kinds: "DaemonSet DaemonSetList Deployment DeploymentList ReplicaSet ReplicaSetList" },
    Group { api_version: "extensions/v1beta1", deprecated_minor: 8, removed_minor: 16, replacement: "", kinds: "DeploymentRollback" },
    Group { api_version: "extensions/v1beta1", deprecated_minor: 14, removed_minor: 22, replacement: "networking.k8s.io/v1", kinds: "Ingress IngressList" },
    Group { api_version: "extensions/v1beta1", deprecated_minor: 9, removed_minor: 16, replacement: "networking.k8s.io/v1", kinds: "NetworkPolicy NetworkPolicyList" },
    Group { api_version: "extensions/v1beta1", deprecated_minor: 2, removed_minor: 16, replacement: "", kinds: "Scale" },
    Group { api_version: "flowcontrol.apiserver.k8s.io/v1beta1", deprecated_minor: 23, removed_minor: 26, replacement: "flowcontrol.apiserver.k8s.io/v1beta3", kinds: "FlowSchema FlowSchemaList PriorityLevelConfiguration PriorityLevelConfigurationList" },
    Group { api_version: "flowcontrol.apiserver.k8s.io/v1beta2", deprecated_minor: 26, removed_minor: 29, replacement: "flowcontrol.apiserver.k8s.io/v1beta3", kinds: "FlowSchema FlowSchemaList PriorityLevelConfiguration PriorityLevelConfigurationList" },
    Group { api_version: "flowcontrol.apiserver.k8s.io/v1beta3", deprecated_minor: 29, removed_minor: 32, replacement: "flowcontrol.apiserver.k8s.io/v1", kinds: "FlowSchema FlowSchemaList PriorityLevelConfiguration PriorityLevelConfigurationList" },
    Group { api_version: "networking.k8s.io/v1beta1", deprecated_minor: 34, removed_minor: 37, replacement: "", kinds: "IPAddress IPAddressList ServiceCIDR ServiceCIDRList" },
    Group { api_version: "networking.k8s.io/v1beta1", deprecated_minor: 19, removed_minor: 22, replacement: "networking.k8s.io/v1", kinds: "Ingress IngressClass>IngressClassList IngressClassList IngressList" },
    Group { api_version: "node.k8s.io/v1beta1", deprecated_minor: 22, removed_minor: 25, replacement: "", kinds: "RuntimeClass RuntimeClassList" },
    Group { api_version: "policy/v1beta1", deprecated_minor: 22, removed_minor: 25, replacement: "", kinds: "Eviction" },
    Group { api_version: "policy/v1beta1", deprecated_minor: 21, removed_minor: 25, replacement: "policy/v1", kinds: "PodDisruptionBudget PodDisruptionBudgetList" },
    Group { api_version: "rbac.authorization.k8s.io/v1beta1", deprecated_minor: 17, removed_minor: 22, replacement: "rbac.authorization.k8s.io/v1", kinds: "ClusterRole ClusterRoleBinding ClusterRoleBindingList ClusterRoleList Role RoleBinding RoleBindingList RoleList" },
    Group { api_version: "resource.k8s.io/v1alpha3", deprecated_minor: 36, removed_minor: 39, replacement: "", kinds: "DeviceTaintRule DeviceTaintRuleList" },
    Group { api_version: "resource.k8s.io/v1alpha3", deprecated_minor: 39, removed_minor: 42, replacement: "", kinds: "ResourcePoolStatusRequest ResourcePoolStatusRequestList" },
    Group { api_version: "resource.k8s.io/v1beta1", deprecated_minor: 35, removed_minor: 38, replacement: "", kinds: "DeviceClass DeviceClassList ResourceClaim ResourceClaimList ResourceClaimTemplate ResourceClaimTemplateList ResourceSlice ResourceSliceList" },
    Group { api_version: "resource.k8s.io/v1beta2", deprecated_minor: 36, removed_minor: 39, replacement: "", kinds: "DeviceClass DeviceClassList ResourceClaim ResourceClaimList ResourceClaimTemplate ResourceClaimTemplateList ResourceSlice ResourceSliceList" },
    Group { api_version: "resource.k8s.io/v1beta2", deprecated_minor: 39, removed_minor: 42, replacement: "", kinds: "DeviceTaintRule DeviceTaintRuleList" },
    Group { api_version: "scheduling.k8s.io/v1beta1", deprecated_minor: 14, removed_minor: 22, replacement: "scheduling.k8s.io/v1", kinds: "PriorityClass PriorityClassList" },
    Group { api_version: "storage.k8s.io/v1alpha1", deprecated_minor: 21, removed_minor: 24, replacement: "storage.k8s.io/v1beta1", kinds: "CSIStorageCapacity CSIStorageCapacityList" },
    Group { api_version: "storage.k8s.io/v1alpha1", deprecated_minor: 21, removed_minor: 24, replacement: "storage.k8s.io/v1", kinds: "VolumeAttachment VolumeAttachmentList" },
    Group { api_version: "storage.k8s.io/v1alpha1", deprecated_minor: 32, removed_minor: 35, replacement: "storage.k8s.io/v1", kinds: "VolumeAttributesClass VolumeAttributesClassList" },
    Group { api_version: "storage.k8s.io/v1beta1", deprecated_minor: 19, removed_minor: 22, replacement: "storage.k8s.io/v1", kinds: "CSIDriver CSIDriverList StorageClass StorageClassList VolumeAttachment VolumeAttachmentList" },
    Group { api_version: "storage.k8s.io/v1beta1", deprecated_minor: 17, removed_minor: 22, replacement: "storage.k8s.io/v1", kinds: "CSINode CSINodeList>CSINode" },
    Group { api_version: "storage.k8s.io/v1beta1", deprecated_minor: 24, removed_minor: 27, replacement: "storage.k8s.io/v1", kinds: "CSIStorageCapacity CSIStorageCapacityList" },
    Group { api_version: "storage.k8s.io/v1beta1", deprecated_minor: 34, removed_minor: 37, replacement: "storage.k8s.io/v1", kinds: "VolumeAttributesClass VolumeAttributesClassList" },
    Group { api_version: "storagemigration.k8s.io/v1beta1", deprecated_minor: 38, removed_minor: 41, replacement: "", kinds: "StorageVersionMigration StorageVersionMigrationList" },
];

/// The warning about a kind that Kubernetes 1.`minor` deprecates.
pub(crate) fn warning(api_version: &str, kind: &str, (major, minor): (u32, u32)) -> Option<String> {
    for group in GROUPS.iter().filter(|group| group.api_version == api_version) {
        for entry in group.kinds.split(' ') {
            let (name, new_name) = entry.split_once('>').unwrap_or((entry, entry));
            if name != kind || (major, minor) < (1, group.deprecated_minor) {
                continue;
            }
            let mut text = format!(
                "{api_version} {kind} is deprecated in v1.{}+, unavailable in v1.{}+",
                group.deprecated_minor, group.removed_minor
            );
            if !group.replacement.is_empty() {
                text.extend(["; use ", group.replacement, " ", new_name]);
            }
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::warning;

    #[test]
    fn warnings_name_the_replacement() {
        assert_eq!(
            warning("extensions/v1beta1", "Ingress", (1, 36)).unwrap(),
            "extensions/v1beta1 Ingress is deprecated in v1.14+, unavailable in v1.22+; use networking.k8s.io/v1 Ingress"
        );
        assert_eq!(
            warning("policy/v1beta1", "Eviction", (1, 36)).unwrap(),
            "policy/v1beta1 Eviction is deprecated in v1.22+, unavailable in v1.25+"
        );
        assert_eq!(warning("extensions/v1beta1", "Ingress", (1, 13)), None);
        assert_eq!(warning("apps/v1", "Deployment", (1, 36)), None);
    }
}
