//! One run of one object.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use weir_base::clock::Clock;

use crate::patch::{PatchError, Patcher, Published};
use crate::slots::Slot;
use crate::{Notice, Object, ObjectKey, Recorder, Store};

/// How long a status stays as it was written while a run with progress to show goes on.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// What made an object run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// The kind of the object that changed.
    pub kind: String,
    /// The object that changed.
    pub key: ObjectKey,
}

impl Trigger {
    /// The trigger that stands for an object.
    pub fn of<K: kube::Resource<DynamicType = ()>>(object: &K) -> Self {
        Self { kind: K::kind(&()).into_owned(), key: ObjectKey::of(object) }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.kind, self.key)
    }
}

/// Whether people can watch a run, and when they last saw something new.
#[derive(Debug)]
pub(crate) struct ProgressShown {
    wanted: AtomicBool,
    written: Mutex<Instant>,
}

impl ProgressShown {
    /// Nothing is shown yet.
    pub(crate) fn since(start: Instant) -> Self {
        Self { wanted: AtomicBool::new(false), written: Mutex::new(start) }
    }
}

/// A progress status could not be written; the run should end with it.
#[derive(Debug, thiserror::Error)]
#[error("failed to update status")]
pub struct PublishError(#[from] pub(crate) PatchError);

/// One run of one object: what `reconcile` and `finalize` may do to the outside of the object.
///
/// All methods take `&self`, so parts of a run can go on at the same time.
pub struct Run<K: Object> {
    pub(crate) key: ObjectKey,
    pub(crate) id: String,
    pub(crate) started: Instant,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) start: Arc<K>,
    pub(crate) working: Mutex<K>,
    pub(crate) published: tokio::sync::Mutex<Published>,
    pub(crate) progress: ProgressShown,
    pub(crate) patcher: Patcher,
    pub(crate) store: Store<K>,
    pub(crate) recorder: Recorder,
    pub(crate) slot: Slot,
    pub(crate) requeued: watch::Receiver<Option<Trigger>>,
}

impl<K: Object> Run<K> {
    /// The object's key.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The `reconcileID` of this run, as in the logs.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The object as it was at the start of the run.
    pub fn object(&self) -> &Arc<K> {
        &self.start
    }

    /// The value of `reconcile.fluxcd.io/requestedAt` if it has not been handled yet.
    pub fn request(&self) -> Option<&str> {
        self.start.requested_at().filter(|token| Some(*token) != self.start.last_handled_reconcile_at())
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Time since the start of the run.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Changes the status of the working copy. Nothing is written until [`publish`](Self::publish)
    /// or the end of the run. Changes outside `status` are not written.
    pub fn update<T>(&self, change: impl FnOnce(&mut K) -> T) -> T {
        change(&mut self.working.lock())
    }

    /// A copy of the object with the status as this run has it now.
    pub fn snapshot(&self) -> K {
        self.working.lock().clone()
    }

    /// From now on the status is written every two seconds while the run goes on, so that people can watch it. A run
    /// that ends sooner writes its outcome alone.
    pub fn show_progress(&self) {
        self.progress.wanted.store(true, Ordering::Relaxed);
    }

    /// Runs `work`, showing progress if that was asked for.
    ///
    /// A write that was started is finished before this returns, so that the next one knows what
    /// is there. One that fails is left to the end of the run.
    pub(crate) async fn shown_while<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            let next = *self.progress.written.lock() + PROGRESS_INTERVAL;
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = sleep_until(next) => {}
            }
            if *self.progress.written.lock() + PROGRESS_INTERVAL > Instant::now() {
                continue;
            }
            *self.progress.written.lock() = Instant::now();
            if !self.progress.wanted.load(Ordering::Relaxed) {
                continue;
            }
            let mut publish = std::pin::pin!(self.publish());
            let mut result = None;
            loop {
                tokio::select! {
                    published = &mut publish => {
                        if let Err(error) = published {
                            tracing::debug!(error = %error, "unable to show progress");
                        }
                        break;
                    }
                    ended = &mut work, if result.is_none() => result = Some(ended),
                }
            }
            if let Some(result) = result {
                return result;
            }
        }
    }

    /// Writes the status as it is now, if it differs from what was last written: facts that must be
    /// on record before the next step. For progress that people can watch, see
    /// [`show_progress`](Self::show_progress).
    ///
    /// # Errors
    /// When the API server refuses; the run should end with this error.
    ///
    /// # Cancellation
    /// The write either happened or not; the next publish compares again.
    pub async fn publish(&self) -> Result<(), PublishError> {
        let mut published = self.published.lock().await;
        let working = self.snapshot();
        if let Some(written) = self.patcher.status(&self.key, &mut published, &working).await? {
            self.store.apply_written(written);
            *self.progress.written.lock() = Instant::now();
        }
        Ok(())
    }

    /// Emits an event (and log line) now, in the middle of the run. Never blocks.
    pub fn notice(&self, notice: &Notice) {
        self.recorder.record(&*self.start, notice);
    }

    /// Waits for `future` without holding one of the `--concurrent` workers: others run meanwhile.
    /// For waits on the outside, such as health checks. The object still counts as running.
    ///
    /// # Cancellation
    /// On shutdown the run ends here; the call does not return.
    pub async fn without_worker<T>(&self, future: impl Future<Output = T> + Send) -> T {
        self.slot.without_worker(future).await
    }

    /// Completes when the object is enqueued again while this run goes on: its spec changed, a
    /// request came, or something it watches changed. Completes at once if that already happened.
    pub async fn superseded(&self) -> Trigger {
        let mut requeued = self.requeued.clone();
        let trigger = match requeued.wait_for(Option::is_some).await {
            Ok(trigger) => (*trigger).clone(),
            Err(_) => None,
        };
        match trigger {
            Some(trigger) => trigger,
            // The queue is gone: the process is about to end.
            None => std::future::pending().await,
        }
    }
}

impl<K: Object> fmt::Debug for Run<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Run({} {})", K::kind(&()), self.key)
    }
}
