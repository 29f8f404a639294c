//! Why a Kustomization is not reconciled, and what follows from it.

use std::borrow::Cow;
use std::time::Duration;

use weir_api::names::reason;
use weir_apply::apply::ApplyError;
use weir_apply::ignore::InvalidRule;
use weir_apply::normalise::NormaliseError;
use weir_apply::prune::PruneError;
use weir_artifact::fetch::FetchError;
use weir_runtime::{Class, Classify, PublishError, Trigger};

use crate::build::BuildError;
use crate::decide::go;

/// What went wrong; the text is the message of the `Ready` condition.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// An expression in the spec cannot be used.
    #[error("Reconciliation failed terminally due to configuration error: {0}")]
    InvalidExpression(String),
    /// The spec needs a feature gate that is off.
    #[error(
        "to use spec.decryption.serviceAccountName for decryption authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller"
    )]
    GateDisabled,
    /// The source may not be used.
    #[error("can't access '{source_name}', {why}")]
    AccessDenied {
        /// `Kind/namespace/name`.
        source_name: String,
        /// Why not.
        why: &'static str,
    },
    /// The source does not exist.
    #[error("{resource} \"{name}\" not found")]
    SourceNotFound {
        /// The plural name and group.
        resource: &'static str,
        /// The name.
        name: String,
        /// `Kind/name` or `Kind/namespace/name`, for the log.
        reference: String,
    },
    /// The source could not be read.
    #[error("unable to get source '{name}': {message}")]
    SourceUnreadable {
        /// `namespace/name`.
        name: String,
        /// The cause.
        message: String,
    },
    /// The source has no artifact yet.
    #[error("Source artifact not found, retrying in {}", go(*.0))]
    NoArtifact(Duration),
    /// The artifact is no longer served.
    #[error("Source is not ready, artifact not found, retrying in {}", go(*.0))]
    ArtifactGone(Duration),
    /// A dependency is not ready.
    #[error("{0}")]
    Dependency(String),
    /// The artifact could not be fetched.
    #[error("{}", weir_base::error::chain(&**.0))]
    Fetch(Box<FetchError>),
    /// The path is not in the artifact.
    #[error("kustomization path not found: stat {path}: no such file or directory ({artifact}){hint}")]
    NoPath {
        /// The path.
        path: String,
        /// The source and its revision.
        artifact: String,
        /// What may be meant, starting with `; `, or empty.
        hint: String,
    },
    /// The manifests could not be built.
    #[error(transparent)]
    Build(BuildError),
    /// The target cluster cannot be reached as asked.
    #[error("failed to build kube client: {0}")]
    Client(String),
    /// An object cannot be sent as it is.
    #[error(transparent)]
    Normalise(Box<NormaliseError>),
    /// A Secret would be applied encrypted.
    #[error("{0} is SOPS encrypted, configuring decryption is required for this secret to be reconciled")]
    EncryptedSecret(String),
    /// An ignore rule cannot be used.
    #[error(transparent)]
    IgnoreRule(#[from] InvalidRule),
    /// Applying failed.
    #[error("{source}\n{changes}")]
    Apply {
        /// The cause.
        source: Box<ApplyError>,
        /// What was changed before.
        changes: String,
    },
    /// Stale objects could not be deleted.
    #[error(transparent)]
    Prune(#[from] PruneError),
    /// Objects did not become healthy.
    #[error("health check failed after {}: {message}", go(*.elapsed))]
    Unhealthy {
        /// Which, and why.
        message: String,
        /// How long it was waited.
        elapsed: Duration,
    },
    /// Something newer arrived during the health checks.
    #[error("New reconciliation triggered by {0}")]
    HealthCheckCanceled(Trigger),
    /// The status could not be written.
    #[error("{}", weir_base::error::chain(.0))]
    Publish(#[from] PublishError),
    /// The objects of a deleted Kustomization could not be deleted.
    #[error("pruning for deleted resource failed")]
    Finalize(#[source] PruneError),
}

impl Cause {
    /// The reason of the `Ready` condition.
    pub fn ready_reason(&self) -> &'static str {
        match self {
            Self::InvalidExpression(_) => reason::INVALID_CEL_EXPRESSION,
            Self::GateDisabled => reason::FEATURE_GATE_DISABLED,
            Self::AccessDenied { .. } => reason::ACCESS_DENIED,
            Self::SourceNotFound { .. }
            | Self::SourceUnreadable { .. }
            | Self::NoArtifact(_)
            | Self::ArtifactGone(_)
            | Self::Fetch(_)
            | Self::NoPath { .. } => reason::ARTIFACT_FAILED,
            Self::Dependency(_) => reason::DEPENDENCY_NOT_READY,
            Self::Build(_) => reason::BUILD_FAILED,
            Self::Client(_)
            | Self::Normalise(_)
            | Self::EncryptedSecret(_)
            | Self::IgnoreRule(_)
            | Self::Apply { .. }
            | Self::Publish(_) => reason::RECONCILIATION_FAILED,
            Self::Prune(_) | Self::Finalize(_) => reason::PRUNE_FAILED,
            Self::Unhealthy { .. } => reason::HEALTH_CHECK_FAILED,
            Self::HealthCheckCanceled(_) => reason::HEALTH_CHECK_CANCELED,
        }
    }

    /// Whether no retry helps until something changes.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::InvalidExpression(_) | Self::GateDisabled | Self::AccessDenied { .. })
    }

    /// Whether the outcome goes into the history.
    pub fn is_recorded(&self) -> bool {
        matches!(
            self,
            Self::Normalise(_)
                | Self::EncryptedSecret(_)
                | Self::IgnoreRule(_)
                | Self::Apply { .. }
                | Self::Prune(_)
                | Self::Unhealthy { .. }
        )
    }

    fn class(&self, retry_interval: Duration, requeue_dependency: Duration) -> Class {
        match self {
            Self::InvalidExpression(_) | Self::GateDisabled | Self::AccessDenied { .. } => Class::Terminal,
            Self::NoArtifact(_) | Self::ArtifactGone(_) | Self::Dependency(_) => {
                Class::Waiting(requeue_dependency)
            }
            Self::SourceUnreadable { .. } | Self::Publish(_) | Self::Finalize(_) => Class::Backoff,
            Self::HealthCheckCanceled(_) => Class::Superseded,
            Self::SourceNotFound { .. }
            | Self::Fetch(_)
            | Self::NoPath { .. }
            | Self::Build(_)
            | Self::Client(_)
            | Self::Normalise(_)
            | Self::EncryptedSecret(_)
            | Self::IgnoreRule(_)
            | Self::Apply { .. }
            | Self::Prune(_)
            | Self::Unhealthy { .. } => Class::RetryAfter(retry_interval),
        }
    }
}

/// What is known about a run however it ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The revision of the artifact, once known.
    pub revision: String,
    /// The revision of what the artifact was made from, or empty.
    pub origin_revision: String,
    /// The digest of what was built, once it is.
    pub digest: Option<String>,
}

/// A failed run.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Error {
    /// What went wrong.
    pub cause: Cause,
    /// What was known.
    pub facts: Facts,
    class: Class,
}

impl Error {
    /// A failure, with the waits that may follow it.
    pub fn new(cause: Cause, facts: Facts, retry_interval: Duration, requeue_dependency: Duration) -> Self {
        let class = cause.class(retry_interval, requeue_dependency);
        Self { cause, facts, class }
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        self.class
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.cause.ready_reason())
    }
}
