//! What a controller supplies for one kind.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;

use crate::{Classify, Failed, Object, Run};

/// What a controller supplies for one kind: functions, not a loop.
///
/// # Guarantees
/// - There is never more than one call of [`reconcile`](Self::reconcile) or
///   [`finalize`](Self::finalize) for the same object at a time.
/// - The object has the finalizer and is not suspended when `reconcile` is called.
/// - [`conclude`](Self::conclude) is called exactly once at the end of every run that was not
///   cancelled, whatever happened.
///
/// # Cancellation
/// On shutdown, lost lease or a passed [`deadline`](Self::deadline) the future is dropped at its
/// current `await`. It must leave a state which the next run repairs.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind.
    type Object: Object;
    /// What a successful reconcile found and did; [`conclude`](Self::conclude) turns it into status.
    type Done: Send;
    /// The error of this controller; what was applied before the error travels in it.
    type Error: Classify;

    /// Condition types this controller owns: its value wins over what others wrote. Conditions of
    /// other types are left alone.
    const OWNED_CONDITIONS: &'static [&'static str] = &["Ready", "Reconciling", "Stalled"];

    /// Makes the world agree with the object.
    ///
    /// `object` is the object as it was at the start of the run; status changes on the way go
    /// through [`Run::update`] and [`Run::publish`].
    fn reconcile(
        &self,
        run: &Run<Self::Object>,
        object: &Self::Object,
    ) -> impl Future<Output = Result<Self::Done, Self::Error>> + Send;

    /// Undoes what the object stands for before it goes; on success the driver removes the
    /// finalizer. Called for suspended objects too.
    fn finalize(
        &self,
        run: &Run<Self::Object>,
        object: &Self::Object,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Writes the outcome of the run into the status and decides what follows. Pure: no IO, and the
    /// time comes in `ended`.
    ///
    /// `object` is the working copy with everything [`Run::update`] changed. The driver sets
    /// `status.lastHandledReconcileAt` afterwards, so [`weir_api::request::handle_force`] still sees
    /// which request is new.
    fn conclude(
        &self,
        object: &mut Self::Object,
        pass: Pass<'_, Self::Done, Self::Error>,
        ended: Ended,
    ) -> Conclusion;

    /// The longest a run may take; `None` for no limit other than those inside `reconcile`.
    fn deadline(&self, object: &Self::Object) -> Option<Duration> {
        let _ = object;
        None
    }

    /// Whether the object is only read by others: it gets no finalizer, no status and no runs. What an
    /// earlier life left on it is removed once, after [`finalize`](Self::finalize).
    fn is_static(&self, object: &Self::Object) -> bool {
        let _ = object;
        false
    }

    /// Whether objects of this kind get the finalizer. Without it, `finalize` is never called.
    fn wants_finalizer(&self, object: &Self::Object) -> bool {
        let _ = object;
        true
    }
}

/// What kind of run ended, and how.
#[derive(Debug)]
pub enum Pass<'a, D, E: std::error::Error + 'static> {
    /// The object is suspended; nothing was done.
    Suspended,
    /// `reconcile` ran.
    Reconciled(Result<&'a D, &'a Failed<E>>),
    /// `finalize` ran; after success the finalizer is removed.
    Finalized(Result<(), &'a Failed<E>>),
}

/// When and for how long the run ran.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Now.
    pub now: Timestamp,
    /// Time since the start of the run.
    pub elapsed: Duration,
}

/// What follows from a run, besides the status.
#[derive(Debug, Default)]
pub struct Conclusion {
    /// When the object is looked at again.
    pub requeue: Requeue,
    /// Events and log lines to emit after the status is written.
    pub notices: Vec<Notice>,
}

/// When an object is looked at again if nothing happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Requeue {
    /// Only when it changes.
    #[default]
    Never,
    /// After the interval, with `--interval-jitter-percentage` applied. Resets the back-off.
    Interval(Duration),
    /// After exactly this time. Resets the back-off.
    After(Duration),
    /// With the object's exponential back-off; counts as one more failure.
    Backoff,
    /// Now, without counting a failure.
    Now,
}

impl Requeue {
    /// The requeue that goes with an error class.
    pub fn for_class(class: crate::Class) -> Self {
        match class {
            crate::Class::Backoff => Self::Backoff,
            crate::Class::RetryAfter(time) | crate::Class::Waiting(time) => Self::After(time),
            crate::Class::Terminal => Self::Never,
            crate::Class::Superseded => Self::Now,
        }
    }
}

/// How important a [`Notice`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A Normal Kubernetes event that is never sent to notification-controller; debug log.
    Trace,
    /// A Normal Kubernetes event, severity `info`.
    Info,
    /// A Warning Kubernetes event, severity `error`.
    Error,
}

/// One fact told to people: an event, a log line, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// How important it is.
    pub severity: Severity,
    /// The event reason, usually the reason of the `Ready` condition.
    pub reason: Cow<'static, str>,
    /// The event note and log message.
    pub message: String,
    /// The log message if it differs from the event note, which then is the `error` of an error line.
    pub log_message: Option<String>,
    /// Event metadata; keys in full (`kustomize.toolkit.fluxcd.io/revision`).
    pub metadata: BTreeMap<String, String>,
    /// Whether an event is emitted.
    pub event: bool,
    /// Whether the event is written to the API server too, not only sent to notification-controller.
    pub kubernetes: bool,
    /// Whether a log line is written.
    pub log: bool,
}

impl Notice {
    /// An event and a log line.
    pub fn new(severity: Severity, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            severity,
            reason: reason.into(),
            message: message.into(),
            log_message: None,
            metadata: BTreeMap::new(),
            event: true,
            kubernetes: true,
            log: true,
        }
    }

    /// The same with another log message.
    #[must_use]
    pub fn logged_as(mut self, message: impl Into<String>) -> Self {
        self.log_message = Some(message.into());
        self
    }

    /// The same without a log line.
    #[must_use]
    pub fn without_log(mut self) -> Self {
        self.log = false;
        self
    }

    /// The same for notification-controller only: for what it must hear every time, but what is not
    /// worth a write to the API server.
    #[must_use]
    pub fn for_receivers_only(mut self) -> Self {
        self.kubernetes = false;
        self
    }

    /// The same without an event.
    #[must_use]
    pub fn without_event(mut self) -> Self {
        self.event = false;
        self
    }

    /// The same with one more metadata entry.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }
}
