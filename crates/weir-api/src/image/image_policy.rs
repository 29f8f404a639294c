//! The ImagePolicy kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::reference::NamespacedObjectReference;
use crate::schema::string_enum;

/// How a tag is chosen.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "image.toolkit.fluxcd.io",
    version = "v1",
    kind = "ImagePolicy",
    plural = "imagepolicies",
    singular = "imagepolicy",
    namespaced,
    status = "ImagePolicyStatus",
    derive = "PartialEq",
    shortname = "imgpol",
    shortname = "imagepol",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-images",
    doc = "Chooses a tag of an image.",
    printcolumn = r#"{"jsonPath": ".status.latestRef.name", "name": "Image", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.latestRef.tag", "name": "Tag", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "spec.interval is only accepted when spec.digestReflectionPolicy is set to 'Always'", "rule": "!has(self.interval) || (has(self.digestReflectionPolicy) && self.digestReflectionPolicy == 'Always')"},
        {"message": "spec.interval must be set when spec.digestReflectionPolicy is set to 'Always'", "rule": "has(self.interval) || !has(self.digestReflectionPolicy) || self.digestReflectionPolicy != 'Always'"},
    ]))]
pub struct ImagePolicySpec {
    /// Whether the digest of the chosen tag is looked up.
    #[serde(default)]
    pub digest_reflection_policy: DigestReflectionPolicy,
    /// Which tags take part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_tags: Option<TagFilter>,
    /// ImageRepository whose tags are used.
    pub image_repository_ref: NamespacedObjectReference,
    /// Time between two digest look-ups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// How the newest tag is chosen.
    pub policy: ImagePolicyChoice,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
}

string_enum! {
    /// When digests are looked up.
    #[derive(Default)]
    pub enum DigestReflectionPolicy {
        /// Written `Always`.
        Always = "Always",
        /// Written `IfNotPresent`.
        IfNotPresent = "IfNotPresent",
        /// Written `Never`.
        #[default]
        Never = "Never",
    }
}

/// Which tags take part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TagFilter {
    /// Replacement that turns a matching tag into the compared value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extract: Option<String>,
    /// Regular expression tags must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
}

/// How the newest tag is chosen; exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePolicyChoice {
    /// Chooses by alphabetical order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alphabetical: Option<AlphabeticalPolicy>,
    /// Chooses by numerical order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numerical: Option<NumericalPolicy>,
    /// Chooses by semantic version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<SemverPolicy>,
}

/// Choice by alphabetical order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlphabeticalPolicy {
    /// Sort order; the last item wins.
    #[serde(default)]
    pub order: SortOrder,
}

string_enum! {
    /// Sort order.
    #[derive(Default)]
    pub enum SortOrder {
        /// Written `asc`.
        #[default]
        Asc = "asc",
        /// Written `desc`.
        Desc = "desc",
    }
}

/// Choice by numerical order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumericalPolicy {
    /// Sort order; the last item wins.
    #[serde(default)]
    pub order: SortOrder,
}

/// Choice by semantic version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SemverPolicy {
    /// Version range; the highest matching version is chosen.
    pub range: String,
}

/// The chosen tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePolicyStatus {
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The chosen image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_ref: Option<ImageRef>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
    /// The image chosen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_previous_ref: Option<ImageRef>,
}

/// An image with tag and digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageRef {
    /// Digest of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Image name.
    pub name: String,
    /// Tag of the image.
    pub tag: String,
}
