//! The Alert kind.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::LocalObjectReference;
use crate::schema::string_enum;

/// Which events are sent where.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "notification.toolkit.fluxcd.io",
    version = "v1beta3",
    kind = "Alert",
    plural = "alerts",
    singular = "alert",
    namespaced,
    derive = "PartialEq",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-notifications",
    doc = "Sends events to a provider.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct AlertSpec {
    /// Metadata added to each event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub event_metadata: BTreeMap<String, String>,
    /// Lowest severity that is sent.
    #[serde(default)]
    pub event_severity: EventSeverity,
    /// Objects whose events are sent.
    pub event_sources: Vec<EventSource>,
    /// Regular expressions; events whose message matches one are not sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusion_list: Vec<String>,
    /// Regular expressions; only events whose message matches one are sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inclusion_list: Vec<String>,
    /// Provider in the same namespace that receives the events.
    pub provider_ref: LocalObjectReference,
    /// Short text added to each event; the `eventMetadata` key `summary` replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub summary: Option<String>,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
}

string_enum! {
    /// Severity of events.
    #[derive(Default)]
    pub enum EventSeverity {
        /// Written `info`.
        #[default]
        Info = "info",
        /// Written `error`.
        Error = "error",
    }
}

/// Objects whose events are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventSource {
    /// API version of the object; chosen by the controller when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object.
    pub kind: EventSourceKind,
    /// Labels the object must have when the name is `*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Name of the object, or `*` for all.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the object; the namespace of the referring object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
}

string_enum! {
    /// Kinds that emit events and can be reconciled by receivers.
    pub enum EventSourceKind {
        /// Written `Bucket`.
        Bucket = "Bucket",
        /// Written `GitRepository`.
        GitRepository = "GitRepository",
        /// Written `Kustomization`.
        Kustomization = "Kustomization",
        /// Written `HelmRelease`.
        HelmRelease = "HelmRelease",
        /// Written `HelmChart`.
        HelmChart = "HelmChart",
        /// Written `HelmRepository`.
        HelmRepository = "HelmRepository",
        /// Written `ImageRepository`.
        ImageRepository = "ImageRepository",
        /// Written `ImagePolicy`.
        ImagePolicy = "ImagePolicy",
        /// Written `ImageUpdateAutomation`.
        ImageUpdateAutomation = "ImageUpdateAutomation",
        /// Written `OCIRepository`.
        OCIRepository = "OCIRepository",
        /// Written `ArtifactGenerator`.
        ArtifactGenerator = "ArtifactGenerator",
        /// Written `ExternalArtifact`.
        ExternalArtifact = "ExternalArtifact",
        /// Written `FluxInstance`.
        FluxInstance = "FluxInstance",
        /// Written `ResourceSet`.
        ResourceSet = "ResourceSet",
        /// Written `ResourceSetInputProvider`.
        ResourceSetInputProvider = "ResourceSetInputProvider",
    }
}
