//! How a run tells what it is doing while it does it.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use weir_api::kustomize::Kustomization;
use weir_api::names::reason;
use weir_runtime::{Notice, Run, Severity, Trigger};

use crate::error::{Cause, Facts};
use crate::status;

/// The part of a [`Run`] that the steps need.
pub trait Progress: Send + Sync {
    /// Changes the status of the working copy.
    fn update(&self, change: &mut (dyn FnMut(&mut Kustomization) + Send));
    /// Has the status written every now and then while the run goes on.
    fn show_progress(&self);
    /// Writes the status.
    fn publish(&self) -> impl Future<Output = Result<(), Cause>> + Send;
    /// Tells people.
    fn notice(&self, notice: Notice);
    /// The time.
    fn now(&self) -> Timestamp;
    /// Waits for a newer request for the same object.
    fn superseded(&self) -> impl Future<Output = Trigger> + Send;
    /// Waits for something outside without keeping others from working.
    fn without_worker<T: Send>(
        &self,
        future: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send;
}

impl Progress for Run<Kustomization> {
    fn update(&self, change: &mut (dyn FnMut(&mut Kustomization) + Send)) {
        Run::update(self, |object| change(object));
    }

    fn show_progress(&self) {
        Run::show_progress(self);
    }

    async fn publish(&self) -> Result<(), Cause> {
        Ok(Run::publish(self).await?)
    }

    fn notice(&self, notice: Notice) {
        Run::notice(self, &notice);
    }

    fn now(&self) -> Timestamp {
        Run::now(self)
    }

    async fn superseded(&self) -> Trigger {
        Run::superseded(self).await
    }

    async fn without_worker<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        Run::without_worker(self, future).await
    }
}

/// How long a step may take before the run gives its worker up.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How many runs may go on without a worker; more keep theirs, so that a slow API server is not asked for ever more.
const SLOW_MAX: usize = 128;
/// How many builds may go on without a worker.
const SLOW_BUILDS_MAX: usize = 8;

/// Lets runs that are held up outside go on without a worker: one that hangs must not keep others from working.
pub struct Slow {
    waits: Semaphore,
    builds: Semaphore,
}

impl Default for Slow {
    fn default() -> Self {
        Self { waits: Semaphore::new(SLOW_MAX), builds: Semaphore::new(SLOW_BUILDS_MAX) }
    }
}

impl Slow {
    /// Does `work`, which waits for something outside: with the worker of the run for a moment, then without.
    pub async fn patiently<T: Send>(
        &self,
        progress: &impl Progress,
        work: impl Future<Output = T> + Send,
    ) -> T {
        Self::within(&self.waits, progress, work).await
    }

    /// The same for a build, which may have to wait for remote bases. Fewer at a time: a build also takes memory.
    pub async fn patiently_building<T: Send>(
        &self,
        progress: &impl Progress,
        work: impl Future<Output = T> + Send,
    ) -> T {
        Self::within(&self.builds, progress, work).await
    }

    async fn within<T: Send>(
        slow: &Semaphore,
        progress: &impl Progress,
        work: impl Future<Output = T> + Send,
    ) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            result = &mut work => return result,
            () = tokio::time::sleep(SLOW_AFTER) => {}
        }
        match slow.try_acquire() {
            Ok(_permit) => progress.without_worker(work).await,
            Err(_) => work.await,
        }
    }
}

/// Where a run is. Quiet while it finds nothing to do.
pub struct Steps<'a, P> {
    progress: &'a P,
    shown: AtomicBool,
    step: Mutex<String>,
    facts: Facts,
    timeout: String,
}

impl<'a, P: Progress> Steps<'a, P> {
    /// Steps that are shown from the start, or from [`show`](Self::show) on.
    pub fn new(progress: &'a P, facts: Facts, timeout: Duration, shown: bool) -> Self {
        if shown {
            progress.show_progress();
        }
        Self {
            progress,
            shown: AtomicBool::new(shown),
            step: Mutex::new(String::new()),
            facts,
            timeout: crate::decide::go(timeout),
        }
    }

    /// The run itself.
    pub fn progress(&self) -> &'a P {
        self.progress
    }

    /// Whether steps are shown.
    pub fn are_shown(&self) -> bool {
        self.shown.load(Ordering::Relaxed)
    }

    /// The next step: `Fetching manifests`, `Building manifests`, …
    pub fn next(&self, step: &str) {
        *self.step.lock() =
            format!("{step} for revision {} with a timeout of {}", self.facts.revision, self.timeout);
        if self.are_shown() {
            self.mark();
        }
    }

    /// Shows the step, from now on.
    pub fn show(&self) {
        if !self.shown.swap(true, Ordering::Relaxed) {
            self.progress.show_progress();
            self.mark();
        }
    }

    /// Puts the step into the conditions of the working copy.
    pub fn mark(&self) {
        let step = self.step.lock().clone();
        let now = self.progress.now();
        self.progress.update(&mut |object| status::mark_progress(object, &step, now));
    }

    /// An event about what was just done.
    pub fn tell(&self, message: impl Into<String>) {
        self.progress.notice(status::notice(Severity::Info, reason::PROGRESSING, message, &self.facts));
    }

    /// The same without a log line, for what is logged in another form.
    pub fn tell_quietly(&self, message: impl Into<String>) {
        let notice = status::notice(Severity::Info, reason::PROGRESSING, message, &self.facts);
        self.progress.notice(notice.without_log());
    }
}
