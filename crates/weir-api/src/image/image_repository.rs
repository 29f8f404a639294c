//! The ImageRepository kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::RegistryProvider;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::reference::AccessFrom;
use crate::reference::LocalObjectReference;
use crate::time::Time;

/// Image whose tags are scanned.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "image.toolkit.fluxcd.io",
    version = "v1",
    kind = "ImageRepository",
    plural = "imagerepositories",
    singular = "imagerepository",
    namespaced,
    status = "ImageRepositoryStatus",
    derive = "PartialEq",
    shortname = "imgrepo",
    shortname = "imagerepo",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-images",
    doc = "Scans the tags of an image.",
    printcolumn = r#"{"jsonPath": ".spec.image", "name": "Image", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.lastScanResult.tagCount", "name": "Tags", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.lastScanResult.scanTime", "name": "Last scan", "priority": 1, "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ImageRepositorySpec {
    /// Namespaces from which this object may be referenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_from: Option<AccessFrom>,
    /// Secret with `ca.crt` and, for client certificates, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Regular expressions; tags that match one are left out.
    #[serde(default = "default_exclusion_list")]
    #[schemars(length(max = 25))]
    pub exclusion_list: Vec<String>,
    /// Image name without scheme and tag.
    pub image: String,
    /// Allows plain HTTP instead of TLS.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub insecure: bool,
    /// Time between two reconciliations; a small jitter is added by the controller.
    pub interval: GoDuration,
    /// Where credentials come from when no Secret is given.
    #[serde(default)]
    pub provider: RegistryProvider,
    /// Secret with the `address` of a proxy and, if needed, its `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Secret in the namespace of this object that holds the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount in the namespace of this object whose identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Longest time for one registry operation; the interval when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::duration::SHORT_PATTERN))]
    pub timeout: Option<GoDuration>,
}

/// Tags that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageRepositoryStatus {
    /// Full image name with registry host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canonical_image_name: Option<String>,
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Result of the latest scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scan_result: Option<ScanResult>,
    /// Exclusions of the latest scan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_exclusion_list: Vec<String>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
}

/// Result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanResult {
    /// The highest tags in reverse order, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latest_tags: Vec<String>,
    /// Digest over all found tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Time of the scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_time: Option<Time>,
    /// Number of found tags.
    #[schemars(transform = crate::schema::without_format)]
    pub tag_count: i64,
}

fn default_exclusion_list() -> Vec<String> {
    vec!["^.*\\.sig$".to_owned()]
}
