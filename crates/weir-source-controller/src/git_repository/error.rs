//! Why a GitRepository could not be reconciled, with the condition and reason Flux gives it.

use std::borrow::Cow;
use std::time::Duration;

use weir_api::names::condition::{
    FETCH_FAILED, INCLUDE_UNAVAILABLE, SOURCE_VERIFIED, STORAGE_OPERATION_FAILED,
};
use weir_artifact::storage::StorageError;
use weir_artifact::unpack::UnpackError;
use weir_cloud::InvalidCredentials;
use weir_runtime::{Class, Classify};
use weir_source::connection::ConnectionError;
use weir_source::git::{
    ArchiveError, GitError, IdentityError, IncludeError, KnownHostsError, SelectError, SignatureError,
};

use crate::identity::IdentityError as CloudIdentityError;
use crate::source::SourceError;
use crate::source::secrets::SecretError;
use crate::source::storage::{CheckError, RemoveError};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The proxy Secret cannot be used.
    #[error("failed to configure proxy options")]
    Proxy(#[source] SecretError),
    /// The URL cannot be parsed.
    #[error("failed to parse url '{url}'")]
    Url {
        /// The URL as written, without credentials.
        url: String,
        /// What is wrong with it.
        #[source]
        source: url::ParseError,
    },
    /// There is no Secret with the data of an App.
    #[error("secretRef with github app data must be specified when provider is set to github")]
    NoGithubApp {
        /// Whether only a change of the specification helps.
        is_terminal: bool,
    },
    /// An identity is asked for that the feature gate forbids.
    #[error(
        "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller"
    )]
    FeatureGate,
    /// The provider does not serve the URL.
    #[error("failed to configure authentication options: '{url}' is not a repository of {provider}")]
    ForeignUrl {
        /// The URL, without credentials.
        url: String,
        /// The provider.
        provider: &'static str,
    },
    /// The client that asks the provider cannot be built.
    #[error("failed to configure authentication options")]
    Connection(#[source] ConnectionError),
    /// The data of an App cannot be used.
    #[error("failed to configure authentication options")]
    App(#[source] InvalidCredentials),
    /// The provider gives no login.
    #[error("failed to configure authentication options: failed to get credentials from {provider}")]
    Provider {
        /// The provider.
        provider: &'static str,
        /// Why not.
        #[source]
        source: CloudIdentityError,
    },
    /// The Secret cannot be read.
    #[error(transparent)]
    Secret(SecretError),
    /// The Secret does not hold credentials that fit the URL.
    #[error("failed to configure authentication options")]
    Authentication(#[source] CredentialsError),
    /// The Secret is one for a provider.
    #[error("secretRef '{namespace}/{name}' has github app data but provider is not set to github")]
    GithubAppWithoutProvider {
        /// The namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// An included GitRepository does not exist.
    #[error(
        "could not get resource for include '{name}': gitrepositories.source.toolkit.fluxcd.io \"{name}\" not found"
    )]
    IncludeNotFound {
        /// Its name.
        name: String,
        /// When to look again.
        retry: Duration,
    },
    /// An included GitRepository has nothing stored.
    #[error("no artifact available for include '{name}'")]
    IncludeNotReady {
        /// Its name.
        name: String,
        /// When to look again.
        retry: Duration,
    },
    /// The reference cannot be resolved from what is written.
    #[error("failed to checkout and determine revision")]
    Target(#[source] SelectError),
    /// The Git client cannot be set up.
    #[error(transparent)]
    Client(GitError),
    /// Git failed.
    #[error("failed to checkout and determine revision")]
    Checkout(#[source] GitError),
    /// There is nothing in the repository.
    #[error("git repository is empty")]
    Empty,
    /// A path to keep does not exist.
    #[error("failed to sparse checkout directories : sparse checkout dir '{0}' does not exist in repository")]
    Sparse(String),
    /// The keys that may sign cannot be read.
    #[error("public keys secret error")]
    SigningKeys(#[source] SecretError),
    /// A tag must be signed but the reference is none.
    #[error("cannot verify tag object's signature if a tag reference is not specified")]
    NoTagReference,
    /// A tag is not signed.
    #[error("cannot verify signature of tag '{0}' since it is not signed")]
    UnsignedTag(String),
    /// The signature of a tag is not accepted.
    #[error("signature verification of tag '{tag}' failed")]
    TagSignature {
        /// The tag with its id.
        tag: String,
        /// Why not.
        #[source]
        source: SignatureError,
    },
    /// The signature of the commit is not accepted.
    #[error("signature verification of commit '{commit}' failed")]
    CommitSignature {
        /// The commit.
        commit: String,
        /// Why not.
        #[source]
        source: SignatureError,
    },
    /// The storage step failed.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// Storing failed.
    #[error(transparent)]
    Storage(#[from] StorageFailure),
    /// What a deleted object stored could not be removed.
    #[error("garbage collection for deleted resource failed")]
    GarbageCollection(#[source] StorageError),
}

/// Why credentials do not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// A password alone.
    #[error("invalid '{scheme}' auth option: 'password' requires 'username' to be set")]
    PasswordWithoutUsername {
        /// The scheme of the URL.
        scheme: String,
    },
    /// A certificate without key, or the reverse.
    #[error("secret contains '{present}' but missing '{missing}'")]
    HalfCertificate {
        /// The key that is there.
        present: &'static str,
        /// The key that is not.
        missing: &'static str,
    },
    /// A value that is not text.
    #[error("the value of key '{0}' is not valid UTF-8")]
    NotText(&'static str),
    /// A value that SSH cannot do without.
    #[error("invalid 'ssh' auth option: '{0}' is required")]
    SshRequires(&'static str),
    /// The private key needs a password.
    #[error("SSH identity key is encrypted but no 'password' field was provided in the secret '{0}'")]
    EncryptedIdentity(String),
    /// The private key cannot be used.
    #[error(transparent)]
    Identity(IdentityError),
    /// The keys of servers cannot be read.
    #[error(transparent)]
    KnownHosts(KnownHostsError),
    /// A scheme other than HTTP, HTTPS and SSH.
    #[error("unknown transport '{0}'")]
    Transport(String),
}

/// Why an artifact was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StorageFailure {
    /// The target of an include is outside the repository.
    #[error("{0}")]
    IllegalInclude(IncludeError),
    /// An include could not be copied.
    #[error("failed to copy '{name}' include from {from} to {to}")]
    CopyInclude {
        /// The included repository.
        name: String,
        /// What was to be copied.
        from: String,
        /// Where to.
        to: String,
        /// Why not.
        #[source]
        source: CopyError,
    },
    /// The directory of the object could not be made.
    #[error("failed to create artifact directory")]
    CreateDirectory(#[source] StorageError),
    /// The lock could not be taken.
    #[error("failed to acquire lock for artifact")]
    Lock(#[source] StorageError),
    /// The ignore files could not be read.
    #[error("failed to load source ignore patterns from repository")]
    Ignore(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The archive could not be written.
    #[error("unable to archive artifact to storage")]
    Archive(#[source] ArchiveFailure),
    /// The process shuts down.
    #[error("the operation was aborted")]
    Aborted,
}

/// Why an include could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The artifact is gone.
    #[error(transparent)]
    Read(StorageError),
    /// The artifact is broken.
    #[error(transparent)]
    Unpack(UnpackError),
    /// It does not fit in.
    #[error(transparent)]
    Place(IncludeError),
}

/// Why an archive could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveFailure {
    /// The storage failed.
    #[error(transparent)]
    Storage(StorageError),
    /// The files could not be read or packed.
    #[error(transparent)]
    Content(ArchiveError),
}

impl From<GitError> for Error {
    fn from(error: GitError) -> Self {
        match error {
            GitError::Client(_) => Self::Client(error),
            error => Self::Checkout(error),
        }
    }
}

impl SourceError for Error {
    fn is_event(&self) -> bool {
        !matches!(self, Self::Check(_))
    }

    fn condition(&self) -> Option<&'static str> {
        match self {
            Self::Proxy(_)
            | Self::Url { .. }
            | Self::NoGithubApp { .. }
            | Self::FeatureGate
            | Self::ForeignUrl { .. }
            | Self::Connection(_)
            | Self::App(_)
            | Self::Provider { .. }
            | Self::Secret(_)
            | Self::Authentication(_)
            | Self::GithubAppWithoutProvider { .. }
            | Self::Target(_)
            | Self::Client(_)
            | Self::Checkout(_)
            | Self::Empty
            | Self::Sparse(_) => Some(FETCH_FAILED),
            Self::IncludeNotFound { .. } | Self::IncludeNotReady { .. } => Some(INCLUDE_UNAVAILABLE),
            Self::Storage(failure) => match failure {
                StorageFailure::IllegalInclude(_)
                | StorageFailure::CopyInclude { .. }
                | StorageFailure::CreateDirectory(_)
                | StorageFailure::Archive(_) => Some(STORAGE_OPERATION_FAILED),
                StorageFailure::Lock(_) | StorageFailure::Ignore(_) | StorageFailure::Aborted => None,
            },
            Self::SigningKeys(_)
            | Self::NoTagReference
            | Self::UnsignedTag(_)
            | Self::TagSignature { .. }
            | Self::CommitSignature { .. }
            | Self::Check(_)
            | Self::GarbageCollection(_) => None,
        }
    }

    fn negates(&self) -> Option<&'static str> {
        match self {
            Self::SigningKeys(_)
            | Self::NoTagReference
            | Self::UnsignedTag(_)
            | Self::TagSignature { .. }
            | Self::CommitSignature { .. } => Some(SOURCE_VERIFIED),
            _ => None,
        }
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Url { .. }
            | Self::NoGithubApp { is_terminal: true }
            | Self::FeatureGate
            | Self::NoTagReference => Class::Terminal,
            Self::IncludeNotFound { retry, .. } | Self::IncludeNotReady { retry, .. } => {
                Class::Waiting(*retry)
            }
            Self::Proxy(_)
            | Self::Secret(_)
            | Self::Authentication(_)
            | Self::NoGithubApp { is_terminal: false }
            | Self::ForeignUrl { .. }
            | Self::Connection(_)
            | Self::App(_)
            | Self::Provider { .. }
            | Self::GithubAppWithoutProvider { .. }
            | Self::Target(_)
            | Self::Client(_)
            | Self::Checkout(_)
            | Self::Empty
            | Self::Sparse(_)
            | Self::SigningKeys(_)
            | Self::UnsignedTag(_)
            | Self::TagSignature { .. }
            | Self::CommitSignature { .. }
            | Self::Check(_)
            | Self::Storage(_)
            | Self::GarbageCollection(_) => Class::Backoff,
        }
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Proxy(_)
            | Self::Secret(_)
            | Self::Authentication(_)
            | Self::ForeignUrl { .. }
            | Self::Connection(_)
            | Self::App(_)
            | Self::Provider { .. } => "AuthenticationFailed",
            Self::FeatureGate => "FeatureGateDisabled",
            Self::Url { .. } => "URLInvalid",
            Self::NoGithubApp { .. } | Self::GithubAppWithoutProvider { .. } => {
                "InvalidProviderConfiguration"
            }
            Self::IncludeNotFound { .. } => "NotFound",
            Self::IncludeNotReady { .. } => "NoArtifact",
            Self::Target(_) | Self::Client(_) | Self::Checkout(_) | Self::Sparse(_) => "GitOperationFailed",
            Self::SigningKeys(_) => "VerificationError",
            Self::NoTagReference => "InvalidVerificationMode",
            Self::UnsignedTag(_) => "InvalidGitObject",
            Self::TagSignature { .. } => "InvalidTagSignature",
            Self::CommitSignature { .. } => "InvalidCommitSignature",
            Self::Empty => "EmptyGitRepository",
            Self::Check(_) => "Failed",
            Self::GarbageCollection(_) => "GarbageCollectionFailed",
            Self::Storage(failure) => match failure {
                StorageFailure::IllegalInclude(_) => "IllegalPath",
                StorageFailure::CopyInclude { .. } => "CopyFailure",
                StorageFailure::CreateDirectory(_) => "DirectoryCreationFailed",
                StorageFailure::Lock(_) | StorageFailure::Aborted => "Failed",
                StorageFailure::Ignore(_) => "SourceIgnoreError",
                StorageFailure::Archive(_) => "ArchiveOperationFailed",
            },
        })
    }
}

impl From<RemoveError> for Error {
    fn from(error: RemoveError) -> Self {
        match error {
            RemoveError::Storage(error) => Self::GarbageCollection(error),
            RemoveError::Aborted => StorageFailure::Aborted.into(),
        }
    }
}
