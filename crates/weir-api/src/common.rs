//! Building blocks used by several kinds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::string_enum;

string_enum! {
    /// Source of registry credentials.
    #[derive(Default)]
    pub enum RegistryProvider {
        /// Written `generic`.
        #[default]
        Generic = "generic",
        /// Written `aws`.
        Aws = "aws",
        /// Written `azure`.
        Azure = "azure",
        /// Written `gcp`.
        Gcp = "gcp",
    }
}

/// Identity in a certificate of a keyless signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcIdentityMatch {
    /// Regular expression the certificate issuer must match.
    pub issuer: String,
    /// Regular expression the certificate subject must match.
    pub subject: String,
}

string_enum! {
    /// Tool a signature was made with.
    #[derive(Default)]
    pub enum VerificationProvider {
        /// Written `cosign`.
        #[default]
        Cosign = "cosign",
        /// Written `notation`.
        Notation = "notation",
    }
}

/// Labels and annotations to set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonMetadata {
    /// Annotations to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// CEL expressions that judge the health of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomHealthCheck {
    /// API version of the judged kind.
    pub api_version: String,
    /// True when the object is healthy.
    pub current: String,
    /// True when the object has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// True while the object is still changing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<String>,
    /// Judged kind; every kind of the group when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// Fields that are left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgnoreRule {
    /// JSON pointers of the fields to leave alone.
    pub paths: Vec<String>,
    /// Objects this applies to; all that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}

/// Selects objects by kind, name and metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Selector over annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation_selector: Option<String>,
    /// API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Kind, as a regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Selector over labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Name, as a regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace, as a regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// API version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Replacement of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Digest to use instead of a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Image name to look for.
    pub name: String,
    /// Image name to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
    /// Tag to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_tag: Option<String>,
}

/// A patch and the objects it applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// The patch: a strategic merge patch or a list of JSON patch operations.
    pub patch: String,
    /// Objects this applies to; all that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Selector>,
}

string_enum! {
    /// Kinds that can hold values.
    pub enum ValuesSourceKind {
        /// Written `Secret`.
        Secret = "Secret",
        /// Written `ConfigMap`.
        ConfigMap = "ConfigMap",
    }
}

/// List of managed objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInventory {
    /// The objects.
    pub entries: Vec<InventoryEntry>,
}

/// One managed object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryEntry {
    /// Identity as `namespace_name_group_kind`.
    pub id: String,
    /// API version of the kind.
    pub v: String,
}
