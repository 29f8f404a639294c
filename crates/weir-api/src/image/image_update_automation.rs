//! The ImageUpdateAutomation kind.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::image::ImageRef;
use crate::reference::LabelSelector;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;
use crate::source::GitRepositoryRef;
use crate::time::Time;

/// Where and how images are updated.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "image.toolkit.fluxcd.io",
    version = "v1",
    kind = "ImageUpdateAutomation",
    plural = "imageupdateautomations",
    singular = "imageupdateautomation",
    namespaced,
    status = "ImageUpdateAutomationStatus",
    derive = "PartialEq",
    shortname = "iua",
    shortname = "imgupd",
    shortname = "imgauto",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-images",
    doc = "Writes chosen image tags back to Git.",
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.lastAutomationRunTime", "name": "Last run", "priority": 1, "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ImageUpdateAutomationSpec {
    /// How changes are committed and pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSpec>,
    /// Time between two reconciliations; a small jitter is added by the controller.
    pub interval: GoDuration,
    /// ImagePolicies that take part; all of the namespace when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_selector: Option<LabelSelector>,
    /// Repository to update.
    pub source_ref: ImageUpdateSourceRef,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// How files are changed.
    #[serde(default = "default_update")]
    pub update: UpdateStrategy,
}

/// How changes are committed and pushed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSpec {
    /// What to check out; the reference of the source when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkout: Option<GitCheckoutSpec>,
    /// Author, message and signature of commits.
    pub commit: GitCommitSpec,
    /// Where to push; the checked out branch when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<GitPushSpec>,
}

/// What to check out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitCheckoutSpec {
    /// What to check out.
    #[serde(rename = "ref")]
    pub reference: GitRepositoryRef,
}

/// How commits look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitCommitSpec {
    /// Author of the commits.
    pub author: CommitUser,
    /// Template of the commit message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_template: Option<String>,
    /// Values for the message template.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub message_template_values: BTreeMap<String, String>,
    /// Key commits are signed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_key: Option<SigningKey>,
}

/// Author of commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitUser {
    /// E-mail address of the author.
    pub email: String,
    /// Name of the author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Key for signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SigningKey {
    /// Secret with the private key and, if needed, its passphrase.
    pub secret_ref: LocalObjectReference,
    /// Kind of key; OpenPGP when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<SigningKeyType>,
}

string_enum! {
    /// Kind of signing key.
    pub enum SigningKeyType {
        /// Written `gpg`.
        Gpg = "gpg",
        /// Written `ssh`.
        Ssh = "ssh",
    }
}

/// Where to push.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitPushSpec {
    /// Branch to push to; created when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Push options sent to the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// Additional refspec to push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refspec: Option<String>,
}

/// Repository to update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["kind", "name"]))]
pub struct ImageUpdateSourceRef {
    /// API version of the object; chosen by the controller when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the source.
    #[serde(default)]
    pub kind: ImageUpdateSourceKind,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object; the namespace of the referring object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

string_enum! {
    /// Kinds that can be updated.
    #[derive(Default)]
    pub enum ImageUpdateSourceKind {
        /// Written `GitRepository`.
        #[default]
        GitRepository = "GitRepository",
    }
}

/// How files are changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// Directory to update; the root when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How places to update are found.
    #[serde(default)]
    pub strategy: UpdateStrategyName,
}

string_enum! {
    /// How places to update are found.
    #[derive(Default)]
    pub enum UpdateStrategyName {
        /// Written `Setters`.
        #[default]
        Setters = "Setters",
    }
}

/// What was updated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageUpdateAutomationStatus {
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Time of the latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_automation_run_time: Option<Time>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Commit of the latest push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_push_commit: Option<String>,
    /// Time of the latest push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_push_time: Option<Time>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
    /// Images of the policies seen by the latest run, by policy name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub observed_policies: BTreeMap<String, ImageRef>,
    /// Source revision seen by the latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_source_revision: Option<String>,
}

fn default_update() -> UpdateStrategy {
    UpdateStrategy { path: None, strategy: UpdateStrategyName::Setters }
}
