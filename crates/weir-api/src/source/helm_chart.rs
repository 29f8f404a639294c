//! The HelmChart kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::common::OidcIdentityMatch;
use crate::common::VerificationProvider;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;

/// Which chart to fetch, and how.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "HelmChart",
    plural = "helmcharts",
    singular = "helmchart",
    namespaced,
    status = "HelmChartStatus",
    derive = "PartialEq",
    shortname = "hc",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    doc = "Fetches or packages a Helm chart and publishes it as an artifact.",
    printcolumn = r#"{"jsonPath": ".spec.chart", "name": "Chart", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".spec.version", "name": "Version", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".spec.sourceRef.kind", "name": "Source Kind", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".spec.sourceRef.name", "name": "Source Name", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "spec.verify is only supported when spec.sourceRef.kind is 'HelmRepository'", "rule": "!has(self.verify) || self.sourceRef.kind == 'HelmRepository'"},
    ]))]
pub struct HelmChartSpec {
    /// Name of the chart, or its path inside the source.
    pub chart: String,
    /// Skips values files that do not exist instead of failing.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub ignore_missing_values_files: bool,
    /// Time between two reconciliations; a small jitter is added by the controller.
    pub interval: GoDuration,
    /// What counts as a change: a new chart version or any new source revision.
    #[serde(default)]
    pub reconcile_strategy: ReconcileStrategy,
    /// Source that holds the chart.
    pub source_ref: HelmChartSourceRef,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Values files inside the source, merged in this order over each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// Signature check that must succeed before the content is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<HelmChartVerification>,
    /// Version or version range.
    #[serde(default = "default_version")]
    pub version: String,
}

string_enum! {
    /// What counts as a change of a chart.
    #[derive(Default)]
    pub enum ReconcileStrategy {
        /// Written `ChartVersion`.
        #[default]
        ChartVersion = "ChartVersion",
        /// Written `Revision`.
        Revision = "Revision",
    }
}

/// Source of a chart in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartSourceRef {
    /// API version of the object; chosen by the controller when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: ChartSourceKind,
    /// Name of the object.
    pub name: String,
}

string_enum! {
    /// Kinds that can hold a chart.
    pub enum ChartSourceKind {
        /// Written `HelmRepository`.
        HelmRepository = "HelmRepository",
        /// Written `GitRepository`.
        GitRepository = "GitRepository",
        /// Written `Bucket`.
        Bucket = "Bucket",
    }
}

/// Signature check of a chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["provider"]))]
pub struct HelmChartVerification {
    /// Accepted identities for keyless signatures; one match is enough.
    #[serde(rename = "matchOIDCIdentity", default, skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<OidcIdentityMatch>,
    /// Tool the signature was made with.
    #[serde(default)]
    pub provider: VerificationProvider,
    /// Secret with the accepted public keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
}

/// The chart that was fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartStatus {
    /// The latest artifact produced from this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Chart name of the current artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_chart_name: Option<String>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
    /// Source revision the current artifact was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_source_artifact_revision: Option<String>,
    /// Values files used for the current artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_values_files: Vec<String>,
    /// Address at which the latest artifact is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

fn default_version() -> String {
    "*".to_owned()
}
