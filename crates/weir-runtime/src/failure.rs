//! The four kinds of error the driver understands.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

/// What an error means for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Try again with the object's exponential back-off (`--min-retry-delay`, `--max-retry-delay`).
    Backoff,
    /// Try again after a fixed time, such as the object's retry interval.
    RetryAfter(Duration),
    /// Not a failure: something else must happen first. Look again after this time.
    Waiting(Duration),
    /// No retry will help until the object (or what it watches) changes; `Stalled=True`.
    Terminal,
    /// A newer revision or request has arrived; run again now.
    Superseded,
}

/// An error of a reconcile, as the driver sees it.
///
/// The text of the error becomes the condition message and the event note; see
/// [`weir_base::error::chain`] for how causes are added.
pub trait Classify: Error + Send + Sync + 'static {
    /// What it means for the next attempt.
    fn class(&self) -> Class;
    /// The reason for the `Ready` condition and the event (`BuildFailed`, `ArtifactFailed`, …).
    fn reason(&self) -> Cow<'_, str>;
}

/// Why a run did not succeed: the controller's own error, or one the driver found.
#[derive(Debug, thiserror::Error)]
pub enum Failed<E: Error + 'static> {
    /// The controller returned an error.
    #[error(transparent)]
    Error(E),
    /// The controller's code panicked. The run ends, the process goes on.
    #[error("panic during reconcile: {0}")]
    Panicked(String),
    /// [`Reconciler::deadline`](crate::Reconciler::deadline) passed.
    #[error("reconcile did not finish within {}", weir_api::GoDuration::from(*.0))]
    DeadlineExceeded(Duration),
}

impl<E: Classify> Classify for Failed<E> {
    fn class(&self) -> Class {
        match self {
            Self::Error(error) => error.class(),
            Self::Panicked(_) | Self::DeadlineExceeded(_) => Class::Backoff,
        }
    }

    fn reason(&self) -> Cow<'_, str> {
        match self {
            Self::Error(error) => error.reason(),
            Self::Panicked(_) | Self::DeadlineExceeded(_) => Cow::Borrowed("ReconciliationFailed"),
        }
    }
}
