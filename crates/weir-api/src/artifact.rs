//! The artifact a source publishes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Time;

/// An archive of files at a revision, served inside the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Digest of the content, as `algorithm:hex`.
    #[schemars(regex(pattern = r"^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$"))]
    pub digest: String,
    /// Time the artifact was last changed.
    pub last_update_time: Time,
    /// Additional information as key and value pairs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Path below the root of the artifact store.
    pub path: String,
    /// Revision of the source, such as `main@sha1:…` or `6.5.0@sha256:…`.
    pub revision: String,
    /// Size of the archive in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Address at which the archive can be fetched inside the cluster.
    pub url: String,
}
