//! The FluxReport kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// State of the installation at a point in time.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fluxcd.controlplane.io",
    version = "v1",
    kind = "FluxReport",
    plural = "fluxreports",
    singular = "fluxreport",
    namespaced,
    status = "FluxReportStatus",
    derive = "PartialEq",
    category = "fluxcd",
    doc = "Reports the state of the installation.",
    printcolumn = r#"{"jsonPath": ".spec.distribution.entitlement", "name": "Entitlement", "priority": 10, "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].lastTransitionTime", "name": "LastUpdated", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct FluxReportSpec {
    /// The cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ReportCluster>,
    /// The controllers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ReportComponent>,
    /// The installed distribution.
    pub distribution: ReportDistribution,
    /// The operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<ReportOperator>,
    /// Counts by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reconcilers: Vec<ReportReconciler>,
    /// State of the cluster synchronisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<ReportSync>,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportCluster {
    /// Number of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::without_format)]
    pub nodes: Option<i64>,
    /// Operating system and architecture.
    pub platform: String,
    /// Version of the API server.
    pub server_version: String,
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportComponent {
    /// Image with tag and digest.
    pub image: String,
    /// Name of the controller.
    pub name: String,
    /// Whether it is ready.
    pub ready: bool,
    /// State in words.
    pub status: String,
}

/// A distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportDistribution {
    /// Who the distribution is issued to.
    pub entitlement: String,
    /// What manages the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// State in words.
    pub status: String,
    /// Installed version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// An operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportOperator {
    /// API version of the operator.
    pub api_version: String,
    /// Platform the process runs on.
    pub platform: String,
    /// Version of the operator.
    pub version: String,
}

/// Counts of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportReconciler {
    /// API version of the kind.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// The counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<ReportReconcilerStats>,
}

/// Counts of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportReconcilerStats {
    /// Objects that are not ready.
    #[schemars(transform = crate::schema::without_format)]
    pub failing: i64,
    /// Objects that are reconciled.
    #[schemars(transform = crate::schema::without_format)]
    pub running: i64,
    /// Objects that are suspended.
    #[schemars(transform = crate::schema::without_format)]
    pub suspended: i64,
    /// Size of all artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_size: Option<String>,
}

/// State of the cluster synchronisation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportSync {
    /// Name of the Kustomization, as `kind/namespace/name`.
    pub id: String,
    /// Path inside the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether it is ready.
    pub ready: bool,
    /// Address of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// State in words.
    pub status: String,
}

/// State of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FluxReportStatus {
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
