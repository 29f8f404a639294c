//! Why a HelmRepository could not be reconciled, with the condition and reason Flux gives it.

use std::borrow::Cow;
use std::io;

use weir_api::names::condition::{FETCH_FAILED, STORAGE_OPERATION_FAILED};
use weir_artifact::storage::StorageError;
use weir_runtime::{Class, Classify};
use weir_source::helm::{HelmError, IndexError};

use super::observe::AccessError;
use crate::source::SourceError;
use crate::source::storage::{CheckError, RemoveError};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage step failed.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The URL is one of a registry.
    #[error(
        "invalid Helm repository URL: 'oci' URL scheme cannot be used with 'default' HelmRepository type"
    )]
    OciUrl,
    /// The URL cannot be parsed.
    #[error("invalid Helm repository URL")]
    Url(#[source] url::ParseError),
    /// A Secret cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The client cannot be built.
    #[error("failed to construct Helm client")]
    Client(#[source] HelmError),
    /// The index cannot be fetched.
    #[error("failed to fetch Helm repository index: failed to cache index to temporary file")]
    Fetch(#[source] HelmError),
    /// The index cannot be read.
    #[error("failed to load Helm repository from index YAML: failed to load index")]
    Index(#[source] IndexError),
    /// The directory of the object could not be made.
    #[error("failed to create artifact directory")]
    CreateDirectory(#[source] StorageError),
    /// The lock could not be taken.
    #[error("failed to acquire lock for artifact")]
    Lock(#[source] StorageError),
    /// The index could not be written to the storage.
    #[error("unable to save artifact to storage")]
    Store(#[source] StorageError),
    /// The index could not be written to the storage.
    #[error("unable to save artifact to storage")]
    Write(#[source] io::Error),
    /// What a deleted object stored could not be removed.
    #[error("garbage collection for deleted resource failed")]
    GarbageCollection(#[source] StorageError),
    /// The process shuts down.
    #[error("the operation was aborted")]
    Aborted,
}

impl SourceError for Error {
    fn condition(&self) -> Option<&'static str> {
        match self {
            Self::OciUrl
            | Self::Url(_)
            | Self::Access(_)
            | Self::Client(_)
            | Self::Fetch(_)
            | Self::Index(_) => Some(FETCH_FAILED),
            Self::CreateDirectory(_) | Self::Store(_) | Self::Write(_) => Some(STORAGE_OPERATION_FAILED),
            Self::Check(_) | Self::Lock(_) | Self::GarbageCollection(_) | Self::Aborted => None,
        }
    }

    fn is_event(&self) -> bool {
        !matches!(self, Self::Check(_))
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::OciUrl | Self::Url(_) | Self::Client(_) => Class::Terminal,
            Self::Check(_)
            | Self::Access(_)
            | Self::Fetch(_)
            | Self::Index(_)
            | Self::CreateDirectory(_)
            | Self::Lock(_)
            | Self::Store(_)
            | Self::Write(_)
            | Self::GarbageCollection(_)
            | Self::Aborted => Class::Backoff,
        }
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Check(_) | Self::Lock(_) | Self::Aborted | Self::Client(_) | Self::Fetch(_) => "Failed",
            Self::OciUrl | Self::Url(_) => "URLInvalid",
            Self::Access(_) => "AuthenticationFailed",
            Self::Index(_) => "IndexationFailed",
            Self::CreateDirectory(_) => "DirectoryCreationFailed",
            Self::Store(_) | Self::Write(_) => "ArchiveOperationFailed",
            Self::GarbageCollection(_) => "GarbageCollectionFailed",
        })
    }
}

impl From<RemoveError> for Error {
    fn from(error: RemoveError) -> Self {
        match error {
            RemoveError::Storage(error) => Self::GarbageCollection(error),
            RemoveError::Aborted => Self::Aborted,
        }
    }
}
