//! The requests of [`crate::cluster::Cluster`] are what server-side apply needs; this is the rest: creating, replacing and merging
//! single objects, and what a cluster serves.

use async_trait::async_trait;
use serde_json::Value;

use crate::cluster::{Cluster, ClusterError};
use crate::object::ObjectRef;

/// How a write is made.
#[derive(Debug, Clone, Copy)]
pub struct WriteOptions<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// Whether unknown and duplicate fields are refused instead of ignored.
    pub strict: bool,
}

/// How a patch is merged into an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeKind {
    /// By the merge keys of built-in kinds.
    Strategic,
    /// As JSON: lists are replaced.
    Json,
}

/// What becomes of the objects that a deleted object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted before.
    Foreground,
    /// They stay.
    Orphan,
}

impl Propagation {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// What a cluster is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterFacts {
    /// `gitVersion` of `/version`, such as `v1.33.4`.
    pub version: String,
    /// `major` of `/version`.
    pub major: String,
    /// `minor` of `/version`, on some platforms with a trailing `+`.
    pub minor: String,
    /// `group/version` and `group/version/Kind` of everything that is served, each once.
    pub api_versions: Vec<String>,
}

/// How much of a log is read.
#[derive(Debug, Clone, Copy)]
pub struct LogLimits {
    /// How many of the last lines.
    pub lines_max: usize,
    /// How many bytes.
    pub bytes_max: usize,
    /// Whether it is the log of the container before its last restart.
    pub previous: bool,
}

/// A cluster whose objects can be written one by one in every way.
///
/// Deadlines, repetition of transient failures and cancellation are as in [`Cluster`].
#[async_trait]
pub trait WriteCluster: Cluster {
    /// Creates an object; the object as it is then. One that exists is an error `AlreadyExists`.
    async fn create(&self, object: &Value, options: WriteOptions<'_>) -> Result<Value, ClusterError>;

    /// Replaces an object as a whole; the object as it is then.
    async fn replace(&self, object: &Value, options: WriteOptions<'_>) -> Result<Value, ClusterError>;

    /// Merges a patch into an object; the object as it is then.
    async fn merge(
        &self,
        object: &ObjectRef,
        patch: &Value,
        kind: MergeKind,
        options: WriteOptions<'_>,
    ) -> Result<Value, ClusterError>;

    /// Applies an object (server-side), taking over conflicting fields only if `force` says so.
    async fn apply_as(
        &self,
        object: &Value,
        force: bool,
        options: WriteOptions<'_>,
    ) -> Result<Value, ClusterError>;

    /// Deletes an object; one that is gone is an error `NotFound`.
    async fn delete_with(&self, object: &ObjectRef, propagation: Propagation) -> Result<(), ClusterError>;

    /// The end of what a container of a Pod wrote.
    async fn pod_log(
        &self,
        pod: &ObjectRef,
        container: &str,
        limits: LogLimits,
    ) -> Result<String, ClusterError>;

    /// The version of the cluster and what it serves; may be some seconds old.
    async fn facts(&self) -> Result<ClusterFacts, ClusterError>;
}
