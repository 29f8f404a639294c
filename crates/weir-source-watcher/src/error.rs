//! Why an ArtifactGenerator could not be reconciled, with the reason people see.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use weir_artifact::fetch::FetchError;
use weir_artifact::storage::StorageError;
use weir_runtime::{Class, Classify, PublishError};

use crate::copy::CopyError;
use crate::expand::ExpandError;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Progress could not be written.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The specification makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A source is in another namespace.
    #[error("cross-namespace references are not allowed: source '{0}'")]
    AccessDenied(String),
    /// A source is not there.
    #[error("get sources failed")]
    Observe {
        /// Why not.
        #[source]
        source: ObserveError,
        /// When it is looked for again.
        retry: Duration,
    },
    /// The content of a source cannot be had.
    #[error("fetch sources failed: failed to fetch source '{key}'")]
    Fetch {
        /// The source.
        key: String,
        /// Why not.
        #[source]
        source: FetchError,
        /// When it is tried again.
        retry: Duration,
    },
    /// The path pattern does not become artifacts.
    #[error("failed to expand path pattern")]
    Expand(#[source] ExpandError),
    /// An artifact cannot be built.
    #[error("{name} build failed")]
    Build {
        /// The artifact.
        name: String,
        /// Why not.
        #[source]
        source: BuildError,
    },
    /// An object for an artifact cannot be written.
    #[error("{name} reconcile failed")]
    Apply {
        /// The artifact.
        name: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// The objects that were made cannot be listed.
    #[error("failed to list ExternalArtifacts")]
    List(#[source] Box<kube::Error>),
    /// The process shuts down.
    #[error("the operation was aborted")]
    Aborted,
}

/// Why a source is not there.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// It does not exist.
    #[error("{plural}.source.toolkit.fluxcd.io \"{name}\" not found")]
    NotFound {
        /// The kind, as the API server names it.
        plural: String,
        /// The name.
        name: String,
    },
    /// It has no artifact.
    #[error("source '{0}' is not ready")]
    NotReady(String),
    /// It cannot be read.
    #[error("unable to get source '{key}'")]
    Get {
        /// The source.
        key: String,
        /// What the API server says.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Why an artifact cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Something cannot be copied.
    #[error("failed to apply copy operations")]
    Copy(#[from] CopyError),
    /// A file has a name that the digest of the content cannot hold.
    #[error("failed to hash staging dir: filenames with newlines are not supported")]
    Newline,
    /// The directory of the artifact cannot be made.
    #[error("failed to create artifact directory")]
    CreateDirectory(#[source] StorageError),
    /// The lock cannot be taken.
    #[error("failed to acquire artifact lock")]
    Lock(#[source] StorageError),
    /// The artifact cannot be stored.
    #[error("failed to create artifact")]
    Store(#[source] StorageError),
    /// The archive cannot be made.
    #[error("failed to create artifact")]
    Archive(#[source] io::Error),
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Invalid(_) | Self::AccessDenied(_) | Self::Expand(_) => Class::Terminal,
            Self::Observe { retry, .. } | Self::Fetch { retry, .. } => Class::RetryAfter(*retry),
            Self::Publish(_) | Self::Build { .. } | Self::Apply { .. } | Self::List(_) | Self::Aborted => {
                Class::Backoff
            }
        }
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Publish(_) => "PatchOperationFailed",
            Self::Invalid(_) => "ValidationFailed",
            Self::AccessDenied(_) => "AccessDenied",
            Self::Observe { .. } | Self::Fetch { .. } => "SourceFetchFailed",
            Self::Expand(_) | Self::Build { .. } => "BuildFailed",
            Self::Apply { .. } | Self::List(_) | Self::Aborted => "ReconciliationFailed",
        })
    }
}
