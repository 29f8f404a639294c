//! The ResourceSetInputProvider kind.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::reference::LabelSelectorRequirement;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;
use crate::time::Time;

/// Where inputs come from.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fluxcd.controlplane.io",
    version = "v1",
    kind = "ResourceSetInputProvider",
    plural = "resourcesetinputproviders",
    singular = "resourcesetinputprovider",
    namespaced,
    status = "ResourceSetInputProviderStatus",
    derive = "PartialEq",
    shortname = "rsip",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    doc = "Provides inputs for ResourceSets.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "spec.url must be empty when spec.type is 'Static'", "rule": "self.type != 'Static' || !has(self.url)"},
        {"message": "spec.url must be empty when spec.type is 'ExternalArtifact'", "rule": "self.type != 'ExternalArtifact' || !has(self.url)"},
        {"message": "spec.url must not be empty when spec.type is not 'Static' or 'ExternalArtifact'", "rule": "self.type == 'Static' || self.type == 'ExternalArtifact' || has(self.url)"},
        {"message": "spec.url must start with 'http://' or 'https://' when spec.type is a Git provider", "rule": "!self.type.startsWith('Git') || self.url.startsWith('http')"},
        {"message": "spec.url must start with 'http://' or 'https://' when spec.type is an AzureDevOps provider", "rule": "!self.type.startsWith('AzureDevOps') || self.url.startsWith('http://') || self.url.startsWith('https://')"},
        {"message": "spec.url must start with 'https://' when spec.type is a AWSCodeCommit provider", "rule": "!self.type.startsWith('AWSCodeCommit') || self.url.startsWith('https://')"},
        {"message": "spec.url must start with 'oci://' when spec.type is an OCI provider", "rule": "!self.type.endsWith('ArtifactTag') || self.url.startsWith('oci')"},
        {"message": "spec.url must include the repository path after the registry host when spec.type is an OCI provider", "rule": "!self.type.endsWith('ArtifactTag') || !self.url.startsWith('oci://') || self.url.substring(6).contains('/')"},
        {"message": "spec.url must start with 'http://' or 'https://' when spec.type is 'ExternalService'", "rule": "self.type != 'ExternalService' || self.url.startsWith('http')"},
        {"message": "spec.insecure can only be set when spec.type is 'ExternalService' or 'OCIArtifactTag'", "rule": "!has(self.insecure) || !self.insecure || self.type == 'ExternalService' || self.type == 'OCIArtifactTag'"},
        {"message": "spec.url must use 'https://' unless spec.insecure is true", "rule": "self.type != 'ExternalService' || !self.url.startsWith('http://') || (has(self.insecure) && self.insecure)"},
        {"message": "cannot specify spec.serviceAccountName when spec.type is not one of AzureDevOps*, AWSCodeCommit*, *ArtifactTag or ExternalArtifact", "rule": "!has(self.serviceAccountName) || self.type.startsWith('AzureDevOps') || self.type.startsWith('AWSCodeCommit') || self.type.endsWith('ArtifactTag') || self.type == 'ExternalArtifact'"},
        {"message": "cannot specify spec.certSecretRef when spec.type is one of Static, ExternalArtifact, AzureDevOps*, AWSCodeCommit*, ACRArtifactTag, ECRArtifactTag or GARArtifactTag", "rule": "!has(self.certSecretRef) || !(self.type == 'Static' || self.type == 'ExternalArtifact' || self.type.startsWith('AzureDevOps') || self.type.startsWith('AWSCodeCommit') || (self.type.endsWith('ArtifactTag') && self.type != 'OCIArtifactTag'))"},
        {"message": "cannot specify spec.secretRef when spec.type is one of Static, ExternalArtifact, AWSCodeCommit*, ACRArtifactTag, ECRArtifactTag or GARArtifactTag", "rule": "!has(self.secretRef) || !(self.type == 'Static' || self.type == 'ExternalArtifact' || self.type.startsWith('AWSCodeCommit') || (self.type.endsWith('ArtifactTag') && self.type != 'OCIArtifactTag'))"},
        {"message": "spec.selectors must be set when spec.type is 'ExternalArtifact'", "rule": "self.type != 'ExternalArtifact' || (has(self.selectors) && size(self.selectors) > 0)"},
        {"message": "spec.selectors must not be set when spec.type is not 'ExternalArtifact'", "rule": "self.type == 'ExternalArtifact' || !has(self.selectors)"},
    ]))]
pub struct ResourceSetInputProviderSpec {
    /// Secret with `ca.crt` and, for client certificates, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Values added to every exported set; exported ones win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::any_map")]
    pub default_values: BTreeMap<String, Value>,
    /// Which results are exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<InputFilter>,
    /// Allows plain HTTP instead of TLS.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub insecure: bool,
    /// When results are looked up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<Schedule>,
    /// Secret in the namespace of this object that holds the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ExternalArtifacts to export.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<ArtifactSelector>,
    /// ServiceAccount in the namespace of this object whose identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Which changed results are held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<InputSkip>,
    /// Kind of provider.
    pub type_: InputProviderType,
    /// Address of the repository, registry or service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^((http|https|oci)://.*){0,1}$"))]
    pub url: Option<String>,
}

/// Which results are exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputFilter {
    /// Regular expression; branches that match are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_branch: Option<String>,
    /// Regular expression; environments that match are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_environment: Option<String>,
    /// Regular expression; tags that match are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_tag: Option<String>,
    /// Regular expression branches must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_branch: Option<String>,
    /// Regular expression environments must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_environment: Option<String>,
    /// Regular expression tags must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_tag: Option<String>,
    /// Labels requests must carry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Largest number of results.
    #[serde(default = "default_limit")]
    #[schemars(range(max = 10000), transform = crate::schema::without_format)]
    pub limit: i64,
    /// Version range tags must be in, newest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
}

/// When results are looked up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// Cron expression at which the schedule fires.
    pub cron: String,
    /// Time zone of the cron expression.
    #[serde(default = "default_time_zone")]
    pub time_zone: String,
    /// Time after each start in which runs are allowed; no limit when zero.
    #[serde(default = "default_window")]
    pub window: GoDuration,
}

/// Selects ExternalArtifacts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "name is mutually exclusive with matchLabels and matchExpressions", "rule": "!has(self.name) || (!has(self.matchLabels) && !has(self.matchExpressions))"},
    ]))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ArtifactSelector {
    /// Label requirements that must all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
    /// Labels that must all be present with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the object; the namespace of the referring object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Which changed results are held back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputSkip {
    /// Labels that hold a changed request back; a leading `!` holds back requests without the label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

string_enum! {
    /// Where inputs come from.
    pub enum InputProviderType {
        /// Written `Static`.
        Static = "Static",
        /// Written `GitHubBranch`.
        GitHubBranch = "GitHubBranch",
        /// Written `GitHubTag`.
        GitHubTag = "GitHubTag",
        /// Written `GitHubPullRequest`.
        GitHubPullRequest = "GitHubPullRequest",
        /// Written `GitLabBranch`.
        GitLabBranch = "GitLabBranch",
        /// Written `GitLabTag`.
        GitLabTag = "GitLabTag",
        /// Written `GitLabMergeRequest`.
        GitLabMergeRequest = "GitLabMergeRequest",
        /// Written `GitLabEnvironment`.
        GitLabEnvironment = "GitLabEnvironment",
        /// Written `AzureDevOpsBranch`.
        AzureDevOpsBranch = "AzureDevOpsBranch",
        /// Written `AzureDevOpsTag`.
        AzureDevOpsTag = "AzureDevOpsTag",
        /// Written `AzureDevOpsPullRequest`.
        AzureDevOpsPullRequest = "AzureDevOpsPullRequest",
        /// Written `AWSCodeCommitBranch`.
        AWSCodeCommitBranch = "AWSCodeCommitBranch",
        /// Written `AWSCodeCommitTag`.
        AWSCodeCommitTag = "AWSCodeCommitTag",
        /// Written `AWSCodeCommitPullRequest`.
        AWSCodeCommitPullRequest = "AWSCodeCommitPullRequest",
        /// Written `GiteaBranch`.
        GiteaBranch = "GiteaBranch",
        /// Written `GiteaTag`.
        GiteaTag = "GiteaTag",
        /// Written `GiteaPullRequest`.
        GiteaPullRequest = "GiteaPullRequest",
        /// Written `OCIArtifactTag`.
        OCIArtifactTag = "OCIArtifactTag",
        /// Written `ACRArtifactTag`.
        ACRArtifactTag = "ACRArtifactTag",
        /// Written `ECRArtifactTag`.
        ECRArtifactTag = "ECRArtifactTag",
        /// Written `GARArtifactTag`.
        GARArtifactTag = "GARArtifactTag",
        /// Written `ExternalService`.
        ExternalService = "ExternalService",
        /// Written `ExternalArtifact`.
        ExternalArtifact = "ExternalArtifact",
    }
}

/// Inputs that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSetInputProviderStatus {
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The exported sets of values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_map_list")]
    pub exported_inputs: Vec<BTreeMap<String, Value>>,
    /// Digest over the exported sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exported_revision: Option<String>,
    /// Value of the last handled force request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_force_at: Option<String>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// When the next scheduled run begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_schedule: Option<NextSchedule>,
}

/// The next scheduled run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextSchedule {
    /// Cron expression at which the schedule fires.
    pub cron: String,
    /// Time zone of the cron expression.
    #[serde(default = "default_time_zone")]
    pub time_zone: String,
    /// Start of the next run.
    pub when: Time,
    /// Time after each start in which runs are allowed; no limit when zero.
    #[serde(default = "default_window")]
    pub window: GoDuration,
}

const fn default_limit() -> i64 {
    100
}

fn default_time_zone() -> String {
    "UTC".to_owned()
}

const fn default_window() -> GoDuration {
    GoDuration::from_secs(0)
}
