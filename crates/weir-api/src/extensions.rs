//! Kinds of `source.extensions.fluxcd.io`.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::CommonMetadata;
use crate::condition::Condition;
use crate::schema::string_enum;

/// Artifacts to compose from other sources.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.extensions.fluxcd.io",
    version = "v1beta1",
    kind = "ArtifactGenerator",
    plural = "artifactgenerators",
    singular = "artifactgenerator",
    namespaced,
    status = "ArtifactGeneratorStatus",
    derive = "PartialEq",
    shortname = "ag",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    doc = "Composes artifacts from other sources.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "artifact names must be valid Kubernetes object names when pathPattern is not set", "rule": "has(self.pathPattern) && size(self.pathPattern) > 0 || self.artifacts.all(a, a.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))"},
    ]))]
pub struct ArtifactGeneratorSpec {
    /// Artifacts to produce.
    #[schemars(length(min = 1, max = 1000))]
    pub artifacts: Vec<OutputArtifact>,
    /// Labels and annotations set on the produced objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// Pattern over the files of a source; one artifact is made for each match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"), length(max = 1024))]
    pub path_pattern: Option<String>,
    /// Sources to take files from.
    #[schemars(length(min = 1, max = 1000))]
    pub sources: Vec<ArtifactGeneratorSource>,
}

/// An artifact to produce.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputArtifact {
    /// Copies to make, in this order.
    #[schemars(length(min = 1))]
    pub copy: Vec<CopyOperation>,
    /// Name of the ExternalArtifact.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Source, as `@alias`, whose origin revision is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"), length(max = 64))]
    pub origin_revision: Option<String>,
    /// Source, as `@alias`, whose revision is used; a digest of the content when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"), length(max = 64))]
    pub revision: Option<String>,
}

/// Files to copy into an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopyOperation {
    /// Patterns of files to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub exclude: Vec<String>,
    /// Files to copy, as `@alias/pattern`.
    #[schemars(regex(pattern = r"^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"), length(min = 1, max = 1024))]
    pub from: String,
    /// What happens when the destination exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<CopyStrategy>,
    /// Destination, as `@artifact/path`.
    #[schemars(regex(pattern = r"^@(artifact)/(.*)$"), length(min = 1, max = 1024))]
    pub to: String,
}

string_enum! {
    /// What happens when the destination of a copy exists.
    pub enum CopyStrategy {
        /// Written `Overwrite`.
        Overwrite = "Overwrite",
        /// Written `Merge`.
        Merge = "Merge",
        /// Written `Extract`.
        Extract = "Extract",
    }
}

/// Source to take files from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactGeneratorSource {
    /// Name used for this source in copies.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$"), length(max = 63))]
    pub alias: String,
    /// Kind of the object.
    pub kind: ArtifactSourceKind,
    /// Name of the object.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"), length(max = 253))]
    pub name: String,
    /// Namespace of the object; the namespace of the referring object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

string_enum! {
    /// Kinds files can be taken from.
    pub enum ArtifactSourceKind {
        /// Written `Bucket`.
        Bucket = "Bucket",
        /// Written `GitRepository`.
        GitRepository = "GitRepository",
        /// Written `OCIRepository`.
        OCIRepository = "OCIRepository",
        /// Written `HelmChart`.
        HelmChart = "HelmChart",
        /// Written `ExternalArtifact`.
        ExternalArtifact = "ExternalArtifact",
    }
}

/// Artifacts that were composed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactGeneratorStatus {
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// ExternalArtifacts produced by this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<ExternalArtifactReference>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Digest over the revisions of all sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_sources_digest: Option<String>,
}

/// An artifact that was produced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactReference {
    /// Digest of the archive.
    pub digest: String,
    /// File name in the artifact store.
    pub filename: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object; the namespace of the referring object when empty.
    pub namespace: String,
}
