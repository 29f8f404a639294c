//! Why an OCIRepository could not be reconciled, with the condition and reason Flux gives it.

use std::borrow::Cow;
use std::io;

use weir_api::names::condition::{FETCH_FAILED, SOURCE_VERIFIED, STORAGE_OPERATION_FAILED};
use weir_artifact::storage::StorageError;
use weir_artifact::unpack::UnpackError;
use weir_runtime::{Class, Classify};
use weir_source::oci::{KeychainError, OciError, UrlError};

use crate::identity::IdentityError;
use crate::source::SourceError;
use crate::source::secrets::{CertificateError, SecretError};
use crate::source::storage::{CheckError, RemoveError};
use crate::source::verify::VerifyError;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage step failed.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// There is no good signature.
    #[error("failed to verify the signature using provider '{tool}'")]
    Verify {
        /// The tool signatures are made with.
        tool: &'static str,
        /// Why not.
        #[source]
        source: Box<VerifyError>,
    },
    /// The pull Secrets cannot be used.
    #[error("failed to get credential")]
    Credential(#[source] CredentialError),
    /// The proxy Secret cannot be used.
    #[error("failed to get proxy address")]
    Proxy(#[source] SecretError),
    /// The cloud gives no login.
    #[error("failed to get credential from {provider}")]
    Provider {
        /// The cloud.
        provider: String,
        /// Why not.
        #[source]
        source: IdentityError,
    },
    /// An identity is asked for that the feature gate forbids.
    #[error(
        "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller"
    )]
    FeatureGate,
    /// The certificate Secret cannot be used.
    #[error("failed to generate transport for '{url}'")]
    Certificate {
        /// The URL of the repository.
        url: String,
        /// What is wrong.
        #[source]
        source: CertificateError,
    },
    /// The client cannot be built.
    #[error("failed to generate transport for '{url}'")]
    Transport {
        /// The URL of the repository.
        url: String,
        /// What is wrong.
        #[source]
        source: OciError,
    },
    /// The URL does not name a repository.
    #[error("URL validation failed for '{url}'")]
    Url {
        /// The URL of the repository.
        url: String,
        /// What is wrong with it.
        #[source]
        source: UrlError,
    },
    /// No tag can be chosen.
    #[error("failed to determine the artifact tag for '{url}'")]
    Tag {
        /// The URL of the repository.
        url: String,
        /// Why not.
        #[source]
        source: OciError,
    },
    /// The digest of the tag is not known.
    #[error("failed to determine artifact digest")]
    Digest(#[source] OciError),
    /// The manifest or layer cannot be pulled.
    #[error("failed to pull artifact from '{url}'")]
    Pull {
        /// The URL of the repository.
        url: String,
        /// Why not.
        #[source]
        source: OciError,
    },
    /// There are no layers.
    #[error("no layers found in artifact")]
    NoLayers,
    /// The wanted layer is not there.
    #[error("failed to find layer with media type '{0}' in artifact")]
    NoLayer(String),
    /// The layer is not an archive.
    #[error("failed to extract layer contents from artifact")]
    Extract(#[source] UnpackError),
    /// The directory of the object could not be made.
    #[error("failed to create artifact directory")]
    CreateDirectory(#[source] StorageError),
    /// The lock could not be taken.
    #[error("failed to acquire lock for artifact")]
    Lock(#[source] StorageError),
    /// The artifact could not be written to the storage.
    #[error("unable to archive artifact to storage")]
    Store(#[source] StorageError),
    /// The archive could not be made.
    #[error("unable to archive artifact to storage")]
    Archive(#[source] io::Error),
    /// What a deleted object stored could not be removed.
    #[error("garbage collection for deleted resource failed")]
    GarbageCollection(#[source] StorageError),
    /// The process shuts down.
    #[error("the operation was aborted")]
    Aborted,
}

/// Why pull Secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A Secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A Secret of another type.
    #[error("secret '{namespace}/{name}' has no docker config")]
    NoConfig {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// A Secret with a broken configuration.
    #[error("secret '{namespace}/{name}'")]
    Config {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// What is wrong with it.
        #[source]
        source: KeychainError,
    },
    /// The ServiceAccount does not exist.
    #[error("serviceaccount '{namespace}/{name}' not found")]
    NoServiceAccount {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// The ServiceAccount cannot be read.
    #[error("failed to get serviceaccount '{namespace}/{name}'")]
    ServiceAccount {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// What the API server says.
        #[source]
        source: Box<kube::Error>,
    },
}

impl SourceError for Error {
    fn condition(&self) -> Option<&'static str> {
        match self {
            Self::Credential(_)
            | Self::Proxy(_)
            | Self::Provider { .. }
            | Self::Certificate { .. }
            | Self::Transport { .. }
            | Self::Url { .. }
            | Self::Tag { .. }
            | Self::Digest(_)
            | Self::Pull { .. }
            | Self::NoLayers
            | Self::NoLayer(_)
            | Self::Extract(_) => Some(FETCH_FAILED),
            Self::CreateDirectory(_) | Self::Store(_) | Self::Archive(_) => Some(STORAGE_OPERATION_FAILED),
            Self::Verify { .. }
            | Self::FeatureGate
            | Self::Check(_)
            | Self::Lock(_)
            | Self::GarbageCollection(_)
            | Self::Aborted => None,
        }
    }

    fn is_event(&self) -> bool {
        !matches!(self, Self::Check(_))
    }

    fn negates(&self) -> Option<&'static str> {
        matches!(self, Self::Verify { .. }).then_some(SOURCE_VERIFIED)
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::FeatureGate | Self::Url { .. } => Class::Terminal,
            Self::Check(_)
            | Self::Verify { .. }
            | Self::Credential(_)
            | Self::Proxy(_)
            | Self::Provider { .. }
            | Self::Certificate { .. }
            | Self::Transport { .. }
            | Self::Tag { .. }
            | Self::Digest(_)
            | Self::Pull { .. }
            | Self::NoLayers
            | Self::NoLayer(_)
            | Self::Extract(_)
            | Self::CreateDirectory(_)
            | Self::Lock(_)
            | Self::Store(_)
            | Self::Archive(_)
            | Self::GarbageCollection(_)
            | Self::Aborted => Class::Backoff,
        }
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Check(_) | Self::Lock(_) | Self::Aborted => "Failed",
            Self::Verify { .. } => "VerificationError",
            Self::FeatureGate => "FeatureGateDisabled",
            Self::Credential(_)
            | Self::Proxy(_)
            | Self::Provider { .. }
            | Self::Certificate { .. }
            | Self::Transport { .. } => "AuthenticationFailed",
            Self::Url { .. } => "URLInvalid",
            Self::Tag { .. } => "ReadOperationFailed",
            Self::Digest(_) | Self::Pull { .. } => "OCIArtifactPullFailed",
            Self::NoLayers | Self::NoLayer(_) | Self::Extract(_) => "OCIArtifactLayerOperationFailed",
            Self::CreateDirectory(_) => "DirectoryCreationFailed",
            Self::Store(_) | Self::Archive(_) => "ArchiveOperationFailed",
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
