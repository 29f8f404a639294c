//! The ExternalArtifact kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::condition::Condition;
use crate::reference::ObjectReference;

/// Origin of an artifact made by another controller.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "ExternalArtifact",
    plural = "externalartifacts",
    singular = "externalartifact",
    namespaced,
    status = "ExternalArtifactStatus",
    derive = "PartialEq",
    shortname = "ea",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    doc = "An artifact published by another controller.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".spec.sourceRef.name", "name": "Source", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactSpec {
    /// Object that produces this artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<ObjectReference>,
}

/// An artifact made by another controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactStatus {
    /// The artifact as its producer published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
