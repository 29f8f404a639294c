//! The GitRepository kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;

/// What to fetch from a Git repository, and how.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "GitRepository",
    plural = "gitrepositories",
    singular = "gitrepository",
    namespaced,
    status = "GitRepositoryStatus",
    derive = "PartialEq",
    shortname = "gitrepo",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    doc = "Fetches a Git repository and publishes it as an artifact.",
    printcolumn = r#"{"jsonPath": ".spec.url", "name": "URL", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "serviceAccountName can only be set when provider is 'azure' or 'aws'", "rule": "!has(self.serviceAccountName) || (has(self.provider) && (self.provider == 'azure' || self.provider == 'aws'))"},
    ]))]
pub struct GitRepositorySpec {
    /// Patterns in gitignore syntax that replace the default exclusions of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Artifacts of other GitRepositories to place inside this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<GitRepositoryInclude>,
    /// Time between two reconciliations; a small jitter is added by the controller.
    pub interval: GoDuration,
    /// Where credentials come from when no Secret is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<GitProvider>,
    /// Secret with the `address` of a proxy and, if needed, its `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Also fetches Git submodules, with the credentials of this object.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub recurse_submodules: bool,
    /// Branch, tag, version range, reference name or commit; branch `master` when empty.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRepositoryRef>,
    /// Secret in the namespace of this object that holds the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount in the namespace of this object whose identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Directories to keep; everything else is left out of the artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sparse_checkout: Vec<String>,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Longest time one operation may take.
    #[serde(default = "default_timeout")]
    #[schemars(default = "default_timeout_text", regex(pattern = crate::duration::SHORT_PATTERN))]
    pub timeout: GoDuration,
    /// Address of the repository: `http`, `https` or `ssh`.
    #[schemars(regex(pattern = r"^(http|https|ssh)://.*$"))]
    pub url: String,
    /// OpenPGP or SSH signature check of commits and tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<GitRepositoryVerification>,
}

/// An artifact placed inside another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryInclude {
    /// Directory inside the included artifact; its root when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_path: Option<String>,
    /// GitRepository in the same namespace.
    pub repository: LocalObjectReference,
    /// Directory it is placed at; the name of the repository when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_path: Option<String>,
}

string_enum! {
    /// Source of Git credentials.
    #[derive(Default)]
    pub enum GitProvider {
        /// Written `generic`.
        #[default]
        Generic = "generic",
        /// Written `aws`.
        Aws = "aws",
        /// Written `azure`.
        Azure = "azure",
        /// Written `github`.
        Github = "github",
    }
}

/// What to check out of a Git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryRef {
    /// Branch to check out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Commit to check out; wins over everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Full reference name such as `refs/pull/420/head`; wins over branch, tag and version range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version range over tags; wins over the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    /// Tag to check out; wins over the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Signature check of Git objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryVerification {
    /// Which Git objects must be signed.
    #[serde(default)]
    pub mode: GitVerificationMode,
    /// Secret with the accepted public keys.
    pub secret_ref: LocalObjectReference,
}

string_enum! {
    /// Which Git objects must be signed.
    #[derive(Default)]
    pub enum GitVerificationMode {
        /// Former spelling of `HEAD`.
        LegacyHead = "head",
        /// Written `HEAD`.
        #[default]
        Head = "HEAD",
        /// Written `Tag`.
        Tag = "Tag",
        /// Written `TagAndHEAD`.
        TagAndHEAD = "TagAndHEAD",
    }
}

/// What was fetched from a Git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryStatus {
    /// The latest artifact produced from this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Artifacts included in the current artifact, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included_artifacts: Vec<Artifact>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
    /// Value of `spec.ignore` used for the current artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// Value of `spec.include` used for the current artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_include: Vec<GitRepositoryInclude>,
    /// Value of `spec.recurseSubmodules` used for the current artifact.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub observed_recurse_submodules: bool,
    /// Value of `spec.sparseCheckout` used for the current artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_sparse_checkout: Vec<String>,
    /// Verification mode that was used for the current artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_verification_mode: Option<String>,
}

const fn default_timeout() -> GoDuration {
    GoDuration::from_secs(60)
}

/// The default as the definition spells it.
const fn default_timeout_text() -> &'static str {
    "60s"
}
