//! Why a HelmRelease is not reconciled, and what follows from it.

use std::borrow::Cow;
use std::time::Duration;

use weir_api::GoDuration;
use weir_api::names::reason;
use weir_runtime::{Class, Classify, PublishError, Trigger};

/// What went wrong; the text is the message of the `Ready` condition where the cause sets it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither or both of `spec.chart` and `spec.chartRef` are there.
    #[error("invalid Chart reference")]
    InvalidChartReference,
    /// An expression of the spec cannot be used.
    #[error("Reconciliation failed terminally due to configuration error: {0}")]
    InvalidExpression(String),
    /// The HelmChart cannot be written or deleted.
    #[error("{0}")]
    Template(String),
    /// A dependency is not ready.
    #[error("{message}")]
    Dependency {
        /// Which, and why.
        message: String,
        /// When to look again.
        retry: Duration,
    },
    /// The source may not be used.
    #[error("{0}")]
    AccessDenied(String),
    /// The source cannot be read.
    #[error("could not get Source object: {0}")]
    Source(String),
    /// The source is not ready.
    #[error("{message}")]
    SourceNotReady {
        /// Which, and why.
        message: String,
        /// When to look again.
        retry: Duration,
    },
    /// The values cannot be put together.
    #[error("{0}")]
    Values(String),
    /// The artifact is no longer served.
    #[error("Source not ready: artifact not found. Retrying in {}", GoDuration::from(*.0))]
    ArtifactGone(Duration),
    /// The chart cannot be loaded.
    #[error("Could not load chart: {0}")]
    Chart(String),
    /// The version of the chart does not go with its artifact.
    #[error("{0}")]
    ChartVersion(String),
    /// The cluster of the release cannot be reached as asked.
    #[error("{0}")]
    Client(String),
    /// The state of the release cannot be told.
    #[error("Could not determine release state: {0}")]
    State(String),
    /// An action failed without a trace on record, or an uninstallation failed.
    #[error("{0}")]
    Action(String),
    /// A failed action is repeated after a while.
    #[error("retrying after {}", GoDuration::from(*.0))]
    RetryAfter(Duration),
    /// The same again, at once.
    #[error("requeue")]
    Again,
    /// There were too many failures.
    #[error("{0}")]
    Exhausted(String),
    /// There is no revision to go back to.
    #[error("missing target release for rollback: cannot remediate failed release")]
    NoTarget,
    /// Something newer arrived while the objects were waited for.
    #[error("New reconciliation triggered by {0}")]
    Canceled(Trigger),
    /// The status could not be written.
    #[error("{}", weir_base::error::chain(.0))]
    Publish(#[from] PublishError),
}

impl Error {
    /// The reason of the `Ready` condition; `None` where it says something else already.
    pub fn ready_reason(&self) -> Option<&'static str> {
        match self {
            Self::InvalidExpression(_) => Some(reason::INVALID_CEL_EXPRESSION),
            Self::Dependency { .. } => Some(reason::DEPENDENCY_NOT_READY),
            Self::AccessDenied(_) => Some(reason::ACCESS_DENIED),
            Self::Source(_) | Self::ArtifactGone(_) | Self::Chart(_) => Some(reason::ARTIFACT_FAILED),
            Self::SourceNotReady { .. } => Some("SourceNotReady"),
            Self::Values(_) => Some("ValuesError"),
            Self::ChartVersion(_) => Some("ChartMutateError"),
            Self::Client(_) => Some("RESTClientError"),
            Self::State(_) => Some("StateError"),
            Self::Canceled(_) => Some(reason::HEALTH_CHECK_CANCELED),
            Self::InvalidChartReference
            | Self::Template(_)
            | Self::Action(_)
            | Self::RetryAfter(_)
            | Self::Again
            | Self::Exhausted(_)
            | Self::NoTarget
            | Self::Publish(_) => None,
        }
    }

    /// Whether no retry helps until something changes.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::InvalidChartReference
                | Self::InvalidExpression(_)
                | Self::AccessDenied(_)
                | Self::Exhausted(_)
                | Self::NoTarget
        )
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::InvalidChartReference
            | Self::InvalidExpression(_)
            | Self::AccessDenied(_)
            | Self::Exhausted(_)
            | Self::NoTarget => Class::Terminal,
            Self::Dependency { retry, .. }
            | Self::SourceNotReady { retry, .. }
            | Self::ArtifactGone(retry) => Class::Waiting(*retry),
            Self::RetryAfter(retry) => Class::RetryAfter(*retry),
            Self::Canceled(_) | Self::Again => Class::Superseded,
            Self::Template(_)
            | Self::Source(_)
            | Self::Values(_)
            | Self::Chart(_)
            | Self::ChartVersion(_)
            | Self::Client(_)
            | Self::State(_)
            | Self::Action(_)
            | Self::Publish(_) => Class::Backoff,
        }
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.ready_reason().unwrap_or("ReconcileError"))
    }
}
