//! Kinds of `kustomize.toolkit.fluxcd.io`.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::CommonMetadata;
use crate::common::CustomHealthCheck;
use crate::common::IgnoreRule;
use crate::common::Image;
use crate::common::Patch;
use crate::common::ResourceInventory;
use crate::common::ValuesSourceKind;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::history::Snapshot;
use crate::reference::DependencyReference;
use crate::reference::KubeConfigReference;
use crate::reference::LocalObjectReference;
use crate::reference::ObjectReference;
use crate::schema::string_enum;

/// What to build and apply, and how.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kustomize.toolkit.fluxcd.io",
    version = "v1",
    kind = "Kustomization",
    plural = "kustomizations",
    singular = "kustomization",
    namespaced,
    status = "KustomizationStatus",
    derive = "PartialEq",
    shortname = "ks",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-appliers",
    doc = "Builds manifests from an artifact, applies them and keeps them that way.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct KustomizationSpec {
    /// Origin and transformer annotations to add while building.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub build_metadata: Vec<BuildMetadata>,
    /// Labels and annotations set on every object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// Kustomize components to add, as paths relative to `path`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// How encrypted files are decrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decryption: Option<Decryption>,
    /// What happens to the managed objects when this object is deleted; as `prune` says when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Objects that must be ready first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,
    /// Deletes and creates again objects whose immutable fields changed.
    #[serde(default)]
    pub force: bool,
    /// CEL expressions that judge the health of custom kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
    /// Objects whose health decides about this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_checks: Vec<ObjectReference>,
    /// Fields of applied objects that are left to others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
    /// Skips components that do not exist instead of failing.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub ignore_missing_components: bool,
    /// Image names, tags and digests to replace in the built objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Time between two reconciliations; a small jitter is added by the controller.
    pub interval: GoDuration,
    /// Target cluster, when it is not the local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,
    /// Prefix for the names of all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub name_prefix: Option<String>,
    /// Suffix for the names of all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub name_suffix: Option<String>,
    /// Strategic merge or JSON patches to apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
    /// Directory inside the artifact; its root when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Variables to substitute after the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_build: Option<PostBuild>,
    /// Deletes objects that are no longer part of the source.
    pub prune: bool,
    /// Time until a failed reconciliation is repeated; `interval` when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,
    /// ServiceAccount impersonated for everything done to the managed objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The source object to use.
    pub source_ref: KustomizationSourceRef,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Namespace set on every namespaced object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
    /// Longest time for build, apply and health checks; `interval` when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Waits for the health of every applied object.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub wait: bool,
}

string_enum! {
    /// Annotations added while building.
    pub enum BuildMetadata {
        /// Written `originAnnotations`.
        OriginAnnotations = "originAnnotations",
        /// Written `transformerAnnotations`.
        TransformerAnnotations = "transformerAnnotations",
    }
}

/// How encrypted files are decrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decryption {
    /// Tool the files were encrypted with.
    pub provider: DecryptionProvider,
    /// Secret with private keys or key service credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount whose identity is used at key services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
}

string_enum! {
    /// Tool files were encrypted with.
    pub enum DecryptionProvider {
        /// Written `sops`.
        Sops = "sops",
    }
}

string_enum! {
    /// What happens to managed objects on deletion.
    pub enum DeletionPolicy {
        /// Written `MirrorPrune`.
        MirrorPrune = "MirrorPrune",
        /// Written `Delete`.
        Delete = "Delete",
        /// Written `WaitForTermination`.
        WaitForTermination = "WaitForTermination",
        /// Written `Orphan`.
        Orphan = "Orphan",
    }
}

/// Variables to substitute after the build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostBuild {
    /// Variables and their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub substitute: BTreeMap<String, String>,
    /// ConfigMaps and Secrets with variables; later ones win, and `substitute` wins over all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub substitute_from: Vec<SubstituteReference>,
    /// Whether substitution also runs when no variable is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substitute_strategy: Option<SubstituteStrategy>,
}

/// ConfigMap or Secret with variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubstituteReference {
    /// Kind of the referenced object.
    pub kind: ValuesSourceKind,
    /// Name of the referenced object, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Accepts that the referenced object does not exist.
    #[serde(default)]
    pub optional: bool,
}

string_enum! {
    /// When variables are substituted.
    pub enum SubstituteStrategy {
        /// Written `WithVariables`.
        WithVariables = "WithVariables",
        /// Written `Always`.
        Always = "Always",
    }
}

/// Source of a Kustomization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizationSourceRef {
    /// API version of the object; chosen by the controller when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: KustomizationSourceKind,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object; the namespace of the referring object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

string_enum! {
    /// Kinds a Kustomization can be built from.
    pub enum KustomizationSourceKind {
        /// Written `OCIRepository`.
        OCIRepository = "OCIRepository",
        /// Written `GitRepository`.
        GitRepository = "GitRepository",
        /// Written `Bucket`.
        Bucket = "Bucket",
        /// Written `ExternalArtifact`.
        ExternalArtifact = "ExternalArtifact",
    }
}

/// What was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizationStatus {
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The latest outcomes, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Snapshot>,
    /// Objects managed by this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// Revision of the original source of the applied artifact, when the artifact names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_origin_revision: Option<String>,
    /// Revision that was applied successfully last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,
    /// Revision of the latest attempt, successful or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
}
