//! The one thing this crate needs from the outside: a cluster to read from and write to.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::object::ObjectRef;

/// Why a request to a cluster failed. The text is the API server's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// The API server answered with a failure.
    #[error("{message}")]
    Api {
        /// HTTP status code.
        code: u16,
        /// Machine-readable reason, such as `Invalid`; may be empty.
        reason: String,
        /// The message.
        message: String,
    },
    /// The API server does not serve this kind (its CRD may be missing).
    #[error("no matches for kind \"{kind}\" in version \"{api_version}\"")]
    NoMatch {
        /// The kind.
        kind: String,
        /// Group and version.
        api_version: String,
    },
    /// No answer came in time.
    #[error("{request} timed out after {}s", .after.as_secs())]
    TimedOut {
        /// Verb and subject.
        request: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The request could not be sent, or its answer not read.
    #[error("{request}: {message}")]
    Transport {
        /// Verb and subject.
        request: String,
        /// The cause.
        message: String,
    },
}

impl ClusterError {
    /// The API server's answer for an object or path that does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::Api { code: 404, reason: "NotFound".to_owned(), message: message.into() }
    }

    /// The reason of the API server, or the empty string.
    pub fn reason(&self) -> &str {
        match self {
            Self::Api { reason, .. } => reason,
            Self::NoMatch { .. } | Self::TimedOut { .. } | Self::Transport { .. } => "",
        }
    }

    /// Whether the object, or its namespace, does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api { code: 404, .. })
    }

    /// Whether the API server does not serve the kind.
    pub fn is_no_match(&self) -> bool {
        matches!(self, Self::NoMatch { .. })
    }

    /// Whether recreating the object may help: a conflict, anything invalid, or an immutable field.
    ///
    /// Deliberately as wide as in the reference.
    pub fn is_immutable(&self) -> bool {
        match self {
            Self::Api { code: 409 | 422, .. } => true,
            Self::Api { message, .. } => {
                message.contains("is immutable") || message.contains("immutable field")
            }
            Self::NoMatch { .. } | Self::TimedOut { .. } | Self::Transport { .. } => false,
        }
    }

    /// Whether the API server finds a value of the object invalid.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Api { code: 422, .. })
    }

    /// Whether the same request may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Api { code, .. } => matches!(code, 429 | 502..=504),
            Self::Transport { .. } => true,
            Self::NoMatch { .. } | Self::TimedOut { .. } => false,
        }
    }
}

/// How an object is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplyMode<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// Whether the API server only tells what it would do.
    pub dry_run: bool,
}

/// What a watch is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchScope {
    /// Group, version and kind; name and namespace of the reference are not looked at.
    pub kind: ObjectRef,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// A label selector.
    pub labels: Option<String>,
    /// One name.
    pub name: Option<String>,
    /// Whether only `metadata` is sent.
    pub metadata_only: bool,
}

/// What a watch reports.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// The object exists, or changed.
    Applied(Value),
    /// The object is gone, or left the selector.
    Deleted(Value),
}

/// A stream of watch events; it ends when the server ends it, and does not resume by itself.
pub type Events = BoxStream<'static, Result<WatchEvent, ClusterError>>;

/// Reads and writes objects under one identity.
///
/// Every method has a deadline of its own and may be cancelled at any await: a request already
/// sent is then carried out or not, which the next run finds out.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// The live object, or `None`.
    async fn get(&self, object: &ObjectRef) -> Result<Option<Value>, ClusterError>;

    /// The live objects of a kind in one namespace (or all), selected by labels.
    async fn list(
        &self,
        kind: &ObjectRef,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>, ClusterError>;

    /// Applies an object (server-side, taking over conflicting fields); the object as it is then.
    async fn apply(&self, object: &Value, mode: ApplyMode<'_>) -> Result<Value, ClusterError>;

    /// Applies a JSON patch; the object as it is then.
    async fn patch(
        &self,
        object: &ObjectRef,
        operations: &Value,
        manager: &str,
    ) -> Result<Value, ClusterError>;

    /// Deletes an object with background propagation; one that is gone is an error `NotFound`.
    async fn delete(&self, object: &ObjectRef) -> Result<(), ClusterError>;

    /// What exists, as `Applied` events, and then every change.
    async fn watch(&self, scope: &WatchScope) -> Result<Events, ClusterError>;

    /// Whether objects of this kind live in namespaces.
    async fn is_namespaced(&self, kind: &ObjectRef) -> Result<bool, ClusterError>;

    /// As [`Cluster::is_namespaced`], but an error `NoMatch` for a version that is not served, even if another
    /// version of the kind is.
    async fn is_version_namespaced(&self, kind: &ObjectRef) -> Result<bool, ClusterError> {
        self.is_namespaced(kind).await
    }
}
