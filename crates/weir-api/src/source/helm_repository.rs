//! The HelmRepository kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::common::RegistryProvider;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::reference::AccessFrom;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;

/// Where Helm charts are found.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "HelmRepository",
    plural = "helmrepositories",
    singular = "helmrepository",
    namespaced,
    status = "HelmRepositoryStatus",
    derive = "PartialEq",
    shortname = "helmrepo",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    doc = "Fetches the index of a chart repository.",
    printcolumn = r#"{"jsonPath": ".spec.url", "name": "URL", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct HelmRepositorySpec {
    /// Namespaces from which this object may be referenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_from: Option<AccessFrom>,
    /// Secret with `ca.crt` and, for client certificates, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Allows plain HTTP instead of TLS.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub insecure: bool,
    /// Time between two reconciliations; a small jitter is added by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// Sends the credentials also to other hosts that serve the charts.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub pass_credentials: bool,
    /// Where credentials come from when no Secret is given.
    #[serde(default)]
    pub provider: RegistryProvider,
    /// Secret in the namespace of this object that holds the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Longest time one operation may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::duration::SHORT_PATTERN))]
    pub timeout: Option<GoDuration>,
    /// Kind of repository: an index file or an OCI registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<HelmRepositoryType>,
    /// Address of the chart repository: `http`, `https` or `oci`.
    #[schemars(regex(pattern = r"^(http|https|oci)://.*$"))]
    pub url: String,
}

string_enum! {
    /// Kind of chart repository.
    #[derive(Default)]
    pub enum HelmRepositoryType {
        /// Written `default`.
        #[default]
        Default = "default",
        /// Written `oci`.
        Oci = "oci",
    }
}

/// What was fetched from a chart repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmRepositoryStatus {
    /// The latest artifact produced from this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
    /// Address at which the latest index is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
