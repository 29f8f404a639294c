//! The FluxInstance kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::CommonMetadata;
use crate::common::Patch;
use crate::common::ResourceInventory;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::history::Snapshot;
use crate::schema::string_enum;

/// The installation of the controllers.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fluxcd.controlplane.io",
    version = "v1",
    kind = "FluxInstance",
    plural = "fluxinstances",
    singular = "fluxinstance",
    namespaced,
    status = "FluxInstanceStatus",
    derive = "PartialEq",
    category = "fluxcd",
    category = "fluxcd-appliers",
    doc = "Installs and upgrades the controllers.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.lastAttemptedRevision", "name": "Revision", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": ".spec.storage must be set when .spec.sharding.storage is 'persistent'", "rule": "!has(self.sharding) || !has(self.sharding.storage) || self.sharding.storage != 'persistent' || has(self.storage)"},
    ]))]
pub struct FluxInstanceSpec {
    /// Properties of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<InstanceCluster>,
    /// Labels and annotations set on every object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// Controllers to install; the four basic ones when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Component>,
    /// Version and origin of the controllers.
    pub distribution: InstanceDistribution,
    /// Changes to the manifests of the controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kustomize: Option<InstanceKustomize>,
    /// Moves stored objects to the newest API versions after an upgrade.
    #[serde(default = "default_true")]
    pub migrate_resources: bool,
    /// Additional instances of the controllers, each for a part of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharding: Option<InstanceSharding>,
    /// Persistent storage for artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<InstanceStorage>,
    /// Source the cluster is synchronised from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<InstanceSync>,
    /// Waits until the controllers are ready.
    #[serde(default = "default_true")]
    pub wait: bool,
}

/// Properties of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": ".objectLevelWorkloadIdentity must be set to true when .multitenantWorkloadIdentity is set to true", "rule": "(has(self.objectLevelWorkloadIdentity) && self.objectLevelWorkloadIdentity) || !has(self.multitenantWorkloadIdentity) || !self.multitenantWorkloadIdentity"},
    ]))]
pub struct InstanceCluster {
    /// DNS domain of the cluster.
    #[serde(default = "default_domain")]
    pub domain: String,
    /// Locks tenants into their namespaces.
    #[serde(default)]
    pub multitenant: bool,
    /// Locks tenants also out of the identities of the controllers.
    #[serde(default)]
    pub multitenant_workload_identity: bool,
    /// Installs network policies.
    #[serde(default = "default_true")]
    pub network_policy: bool,
    /// Lets each object use its own identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_level_workload_identity: Option<bool>,
    /// Size profile that decides about resources and concurrency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ClusterSize>,
    /// ServiceAccount tenants use for decryption by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_default_decryption_service_account: Option<String>,
    /// ServiceAccount tenants use for remote clusters by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_default_kube_config_service_account: Option<String>,
    /// ServiceAccount tenants are impersonated as by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_default_service_account: Option<String>,
    /// Kind of cluster.
    #[serde(default)]
    pub type_: ClusterType,
}

string_enum! {
    /// Size profile of an installation.
    pub enum ClusterSize {
        /// Written `small`.
        Small = "small",
        /// Written `medium`.
        Medium = "medium",
        /// Written `large`.
        Large = "large",
    }
}

string_enum! {
    /// Kind of cluster.
    #[derive(Default)]
    pub enum ClusterType {
        /// Written `kubernetes`.
        #[default]
        Kubernetes = "kubernetes",
        /// Written `openshift`.
        Openshift = "openshift",
        /// Written `aws`.
        Aws = "aws",
        /// Written `azure`.
        Azure = "azure",
        /// Written `gcp`.
        Gcp = "gcp",
    }
}

string_enum! {
    /// A controller.
    pub enum Component {
        /// Written `source-controller`.
        SourceController = "source-controller",
        /// Written `kustomize-controller`.
        KustomizeController = "kustomize-controller",
        /// Written `helm-controller`.
        HelmController = "helm-controller",
        /// Written `notification-controller`.
        NotificationController = "notification-controller",
        /// Written `image-reflector-controller`.
        ImageReflectorController = "image-reflector-controller",
        /// Written `image-automation-controller`.
        ImageAutomationController = "image-automation-controller",
        /// Written `source-watcher`.
        SourceWatcher = "source-watcher",
    }
}

/// Version and origin of the controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceDistribution {
    /// OCI artifact with the manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^oci://.*$"))]
    pub artifact: Option<String>,
    /// Secret with the credentials for the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_pull_secret: Option<String>,
    /// Secret with the credentials for the images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<String>,
    /// Registry of the images.
    pub registry: String,
    /// Variant of the images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<DistributionVariant>,
    /// Version or version range to install.
    pub version: String,
}

string_enum! {
    /// Variant of the controller images.
    pub enum DistributionVariant {
        /// Written `upstream-alpine`.
        UpstreamAlpine = "upstream-alpine",
        /// Written `enterprise-alpine`.
        EnterpriseAlpine = "enterprise-alpine",
        /// Written `enterprise-distroless`.
        EnterpriseDistroless = "enterprise-distroless",
        /// Written `enterprise-distroless-fips`.
        EnterpriseDistrolessFips = "enterprise-distroless-fips",
    }
}

/// Changes to the manifests of the controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceKustomize {
    /// Strategic merge or JSON patches to apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
}

/// Distribution of objects over several instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSharding {
    /// Label that assigns objects to shards.
    #[serde(default = "default_key")]
    pub key: String,
    /// Names of the shards.
    #[schemars(length(min = 1))]
    pub shards: Vec<String>,
    /// Storage of the shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<ShardStorage>,
}

string_enum! {
    /// Storage of shards.
    pub enum ShardStorage {
        /// Written `ephemeral`.
        Ephemeral = "ephemeral",
        /// Written `persistent`.
        Persistent = "persistent",
    }
}

/// Persistent storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStorage {
    /// Storage class.
    pub class: String,
    /// Size of the volume.
    pub size: String,
}

/// Source a cluster is synchronised from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "sync.provider 'gcp' is only supported for OCIRepository and Bucket", "rule": "!has(self.provider) || self.provider != 'gcp' || self.kind == 'OCIRepository' || self.kind == 'Bucket'"},
        {"message": "sync.provider 'github' is only supported for GitRepository", "rule": "!has(self.provider) || self.provider != 'github' || self.kind == 'GitRepository'"},
    ]))]
pub struct InstanceSync {
    /// Time between two checks of the source.
    #[serde(default = "default_interval")]
    #[schemars(default = "default_interval_text")]
    pub interval: GoDuration,
    /// Kind of the source.
    pub kind: SyncSourceKind,
    /// Name of the source and the Kustomization; the namespace when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = [
    {"message": "Sync name is immutable", "rule": "self == oldSelf"},
]))]
    pub name: Option<String>,
    /// Directory inside the source.
    pub path: String,
    /// Where credentials come from when no Secret is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<SyncProvider>,
    /// Secret with the credentials for the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<String>,
    /// Branch or reference name, tag or bucket name.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Address of the source.
    pub url: String,
}

string_enum! {
    /// Kinds a cluster can be synchronised from.
    pub enum SyncSourceKind {
        /// Written `OCIRepository`.
        OCIRepository = "OCIRepository",
        /// Written `GitRepository`.
        GitRepository = "GitRepository",
        /// Written `Bucket`.
        Bucket = "Bucket",
    }
}

string_enum! {
    /// Source of credentials for the synchronisation.
    pub enum SyncProvider {
        /// Written `generic`.
        Generic = "generic",
        /// Written `aws`.
        Aws = "aws",
        /// Written `azure`.
        Azure = "azure",
        /// Written `gcp`.
        Gcp = "gcp",
        /// Written `github`.
        Github = "github",
    }
}

/// State of the installation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxInstanceStatus {
    /// Installed images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentImage>,
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The latest outcomes, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Snapshot>,
    /// Objects managed by this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// Revision that was applied successfully last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,
    /// Digest of the manifests artifact used last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_artifact_revision: Option<String>,
    /// Revision of the latest attempt, successful or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// Value of the last handled force request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_force_at: Option<String>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

/// Image of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentImage {
    /// Image digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Name of the controller.
    pub name: String,
    /// Image name.
    pub repository: String,
    /// Image tag.
    pub tag: String,
}

const fn default_true() -> bool {
    true
}

fn default_domain() -> String {
    "cluster.local".to_owned()
}

fn default_key() -> String {
    "sharding.fluxcd.io/key".to_owned()
}

const fn default_interval() -> GoDuration {
    GoDuration::from_secs(60)
}

/// The default as the definition spells it.
const fn default_interval_text() -> &'static str {
    "1m"
}
