//! The one loop all controllers share.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Resource as _;
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, info, info_span};
use weir_api::FluxObject as _;
use weir_base::clock::Clock;
use weir_base::error::chain;

use crate::metrics::RunResult;
use crate::patch::{PatchError, Patcher, Published};
use crate::queue::{Next, Picked, Priority, Queue};
use crate::run::ProgressShown;
use crate::slots::{Slot, Slots};
use crate::{
    Change, Class, Classify as _, Conclusion, Ended, Failed, Metrics, Object, ObjectKey, Pass, Reconciler,
    Recorder, Requeue, Run, Severity, Store, Trigger,
};

/// How long runs may go on after the process was told to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// How the runs of one kind are made.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// How many objects run at the same time.
    pub concurrency: usize,
    /// The field manager of status and finalizer writes.
    pub field_manager: String,
    /// The finalizer put on objects.
    pub finalizer: String,
    /// The first delay after a failure; doubled by each further one.
    pub retry_delay_min: Duration,
    /// The longest delay after failures.
    pub retry_delay_max: Duration,
    /// By what part of itself an interval varies, between 0 and 1.
    pub interval_jitter: f64,
}

#[derive(Debug)]
struct Work {
    queue: Mutex<Queue>,
    changed: Notify,
}

/// Asks for runs of the objects of a controller. Cloning gives another handle to the same queue.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Work>);

impl Handle {
    /// Asks for a run now. Requests for the same object are merged; one that runs right now runs
    /// again afterwards, and learns about it through [`Run::superseded`].
    pub fn enqueue(&self, key: &ObjectKey, priority: Priority, trigger: &Trigger) {
        self.0.queue.lock().add(key, priority, trigger, Instant::now());
        self.0.changed.notify_one();
    }
}

/// What the metrics tell about a queue.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) depth: Vec<(Priority, usize)>,
    pub(crate) adds: u64,
    pub(crate) retries: u64,
    pub(crate) unfinished: Duration,
    pub(crate) longest: Duration,
}

impl Handle {
    /// A handle to a queue that nobody works on.
    pub(crate) fn idle() -> Self {
        let queue = Mutex::new(Queue::new(Duration::ZERO, Duration::ZERO));
        Self(Arc::new(Work { queue, changed: Notify::new() }))
    }

    pub(crate) fn state(&self) -> QueueState {
        let queue = self.0.queue.lock();
        let now = Instant::now();
        let running = || queue.running().map(|started| now.saturating_duration_since(started));
        QueueState {
            depth: queue.depth().collect(),
            adds: queue.adds,
            retries: queue.retries,
            unfinished: running().sum(),
            longest: running().max().unwrap_or_default(),
        }
    }
}

/// What a controller shares with the rest of its process.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) client: kube::Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

/// Runs a [`Reconciler`] over the objects of a [`Store`].
pub(crate) struct Controller<R: Reconciler> {
    reconciler: R,
    store: Store<R::Object>,
    options: ControllerOptions,
    around: Surroundings,
    /// The name in logs and metrics: the kind in lower case.
    name: String,
    work: Arc<Work>,
}

impl<R: Reconciler> Controller<R> {
    pub(crate) fn new(
        reconciler: R,
        store: Store<R::Object>,
        options: ControllerOptions,
        around: Surroundings,
    ) -> Self {
        let work = Arc::new(Work {
            queue: Mutex::new(Queue::new(options.retry_delay_min, options.retry_delay_max)),
            changed: Notify::new(),
        });
        let name = R::Object::kind(&()).to_lowercase();
        let controller = Self { reconciler, store, options, around, name, work };
        let metrics = &controller.around.metrics;
        metrics.add_controller(&controller.name, controller.options.concurrency, controller.handle());
        controller.follow_own_kind();
        controller
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.work))
    }

    /// Objects of the controller's own kind run when they are new, their spec changes, a request
    /// comes or they are being deleted; not when their status changes.
    fn follow_own_kind(&self) {
        let (handle, metrics) = (self.handle(), self.around.metrics.clone());
        self.store.on_change(move |change| {
            let key = ObjectKey::of(&**change.object());
            let priority = match change {
                Change::Added { initial: true, .. } => Priority::Periodic,
                Change::Added { .. } => Priority::User,
                Change::Updated { old, new } if concerns_us(&**old, &**new) => Priority::User,
                Change::Updated { .. } => return,
                Change::Deleted(_) => {
                    handle.0.queue.lock().forget(&key);
                    metrics.object_gone(&R::Object::kind(&()), &key);
                    return;
                }
            };
            handle.enqueue(&key, priority, &Trigger::of(&**change.object()));
        });
        for object in self.store.list() {
            let trigger = Trigger::of(&*object);
            self.handle().enqueue(&trigger.key.clone(), Priority::Periodic, &trigger);
        }
    }

    /// Runs until `stop`; then lets the runs in progress end for a while, and drops the rest.
    pub(crate) async fn run(self) {
        let slots = Slots::new(self.options.concurrency, self.around.stop.clone());
        let this = Arc::new(self);
        let mut runs = JoinSet::new();
        loop {
            while runs.try_join_next().is_some() {}
            let slot = tokio::select! {
                biased;
                () = this.around.stop.cancelled() => break,
                slot = slots.acquire() => slot,
            };
            let Some(picked) = this.next().await else {
                break;
            };
            let this = Arc::clone(&this);
            runs.spawn(async move { this.run_and_return(picked, slot).await });
        }
        while runs.join_next().await.is_some() {}
    }

    /// Waits for an object that is due; `None` on shutdown.
    async fn next(&self) -> Option<Picked> {
        loop {
            let next_due = {
                let mut queue = self.work.queue.lock();
                if let Some(picked) = queue.pick(Instant::now()) {
                    return Some(picked);
                }
                queue.next_due()
            };
            let due = async {
                match next_due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.around.stop.cancelled() => return None,
                () = self.work.changed.notified() => {}
                () = due => {}
            }
        }
    }

    async fn run_and_return(&self, picked: Picked, slot: Slot) {
        let key = picked.key.clone();
        let id = reconcile_id();
        let span = info_span!(
            "reconcile",
            controller = self.name,
            controllerGroup = %R::Object::group(&()),
            controllerKind = %R::Object::kind(&()),
            namespace = key.namespace(),
            name = key.name(),
            reconcileID = id,
        );
        let started = Instant::now();
        self.around.metrics.run_started(&self.name, picked.waited);
        let work = AssertUnwindSafe(self.run_one(picked, slot, id)).catch_unwind();
        let next = work.instrument(span.clone()).await.unwrap_or_else(|panic| {
            span.in_scope(|| error!(error = panic_text(&*panic), "the driver panicked"));
            Next::Backoff
        });
        self.around.metrics.run_ended(&self.name, started.elapsed(), result_of(next));
        if self.store.get(&key).is_some() {
            self.around.metrics.object_ran(&R::Object::kind(&()), &key, started.elapsed());
        } else {
            self.around.metrics.object_gone(&R::Object::kind(&()), &key);
        }
        self.work.queue.lock().done(&key, next, Instant::now());
        self.work.changed.notify_one();
    }

    /// One run of one object, from top to bottom.
    async fn run_one(&self, picked: Picked, slot: Slot, id: String) -> Next {
        let Some(object) = self.store.get(&picked.key) else {
            return Next::Idle;
        };
        let patcher = Patcher {
            client: self.around.client.clone(),
            field_manager: self.options.field_manager.clone(),
            owned_conditions: R::OWNED_CONDITIONS,
        };
        let deleting = object.meta().deletion_timestamp.is_some();
        let ours = self.has_finalizer(&object);
        if deleting && !ours {
            return Next::Idle;
        }
        let is_static = !deleting && self.reconciler.is_static(&object);
        if is_static && (object.is_suspended() || !ours && !has_status(&*object)) {
            return Next::Idle;
        }
        let object = if !is_static && !deleting && !ours && self.reconciler.wants_finalizer(&object) {
            match patcher.finalizer(&*object, &self.options.finalizer, true).await {
                Ok(Some(written)) => {
                    self.store.apply_written(written.clone());
                    Arc::new(written)
                }
                Ok(None) => object,
                Err(error) => return write_failed(&error),
            }
        } else {
            object
        };
        let published = match Published::of(&*object) {
            Ok(published) => published,
            Err(error) => return write_failed(&error),
        };
        let run = Run {
            key: picked.key,
            id,
            started: Instant::now(),
            clock: Arc::clone(&self.around.clock),
            working: Mutex::new((*object).clone()),
            start: Arc::clone(&object),
            published: tokio::sync::Mutex::new(published),
            progress: ProgressShown::since(Instant::now()),
            patcher,
            store: self.store.clone(),
            recorder: self.around.recorder.clone(),
            slot,
            requeued: picked.requeued,
        };
        if is_static {
            return self.make_static(&run, &object).await;
        }
        let (conclusion, finalized) = if deleting {
            let Some(result) = self.guard(&run, self.reconciler.finalize(&run, &object)).await else {
                return Next::Idle;
            };
            let conclusion = self.conclude(&run, Pass::Finalized(result.as_ref().copied()));
            self.tell_failure(result.as_ref().err(), &conclusion);
            (conclusion, result.is_ok())
        } else if object.is_suspended() && !is_asked_once(&*object) {
            info!("Reconciliation is suspended for this object");
            (self.conclude(&run, Pass::Suspended), false)
        } else {
            let Some(result) = self.guard(&run, self.reconciler.reconcile(&run, &object)).await else {
                return Next::Idle;
            };
            let mut conclusion = self.conclude(&run, Pass::Reconciled(result.as_ref()));
            self.tell_failure(result.as_ref().err(), &conclusion);
            if object.is_suspended() {
                conclusion.requeue = Requeue::Never;
            }
            (conclusion, false)
        };
        self.write_down(&run, conclusion, finalized).await
    }

    /// Removes what an object that others only read has left of an earlier life.
    async fn make_static(&self, run: &Run<R::Object>, object: &R::Object) -> Next {
        match self.guard(run, self.reconciler.finalize(run, object)).await {
            None => return Next::Idle,
            Some(Err(failed)) => {
                error!(error = chain(&failed), "Reconciler error");
                return Next::Backoff;
            }
            Some(Ok(())) => {}
        }
        run.update(|working| *working.status_mut() = Default::default());
        if let Err(error) = run.publish().await {
            return write_failed(&error.0);
        }
        match self.remove_finalizer(run).await {
            Ok(()) => Next::Idle,
            Err(error) => write_failed(&error),
        }
    }

    fn has_finalizer(&self, object: &R::Object) -> bool {
        let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
        finalizers.contains(&self.options.finalizer)
    }

    /// Runs the controller's code with its deadline and without letting a panic out. `None` if the
    /// run was cancelled.
    async fn guard<T>(
        &self,
        run: &Run<R::Object>,
        work: impl Future<Output = Result<T, R::Error>> + Send,
    ) -> Option<Result<T, Failed<R::Error>>> {
        let limit = self.reconciler.deadline(&run.start).unwrap_or(Duration::MAX);
        let guarded = async {
            match timeout(limit, run.shown_while(AssertUnwindSafe(work).catch_unwind())).await {
                Ok(Ok(result)) => result.map_err(Failed::Error),
                Ok(Err(panic)) => Err(Failed::Panicked(panic_text(&*panic))),
                Err(_) => Err(Failed::DeadlineExceeded(limit)),
            }
        };
        let stopped = async {
            self.around.stop.cancelled().await;
            sleep(SHUTDOWN_GRACE).await;
        };
        tokio::select! {
            biased;
            result = guarded => Some(result),
            () = run.slot.aborted() => None,
            () = stopped => None,
        }
    }

    /// Lets the controller put the outcome into the status.
    fn conclude(&self, run: &Run<R::Object>, pass: Pass<'_, R::Done, R::Error>) -> Conclusion {
        let ended = Ended { now: self.around.clock.now(), elapsed: run.elapsed() };
        run.update(|object| {
            let conclusion = self.reconciler.conclude(object, pass, ended);
            if let Some(token) = object.requested_at().map(str::to_owned) {
                object.set_last_handled_reconcile_at(token);
            }
            conclusion
        })
    }

    /// Counts a failure, and logs it unless the controller does.
    fn tell_failure(&self, failed: Option<&Failed<R::Error>>, conclusion: &Conclusion) {
        let Some(failed) = failed else { return };
        match failed {
            Failed::Panicked(_) => self.around.metrics.panicked(&self.name),
            Failed::DeadlineExceeded(_) => self.around.metrics.timed_out(&self.name),
            Failed::Error(error) if error.class() == Class::Terminal => {
                self.around.metrics.terminal_error(&self.name);
            }
            Failed::Error(_) => {}
        }
        let told = conclusion.notices.iter().any(|notice| notice.log && notice.severity == Severity::Error);
        if !told && matches!(failed.class(), Class::Backoff | Class::RetryAfter(_) | Class::Terminal) {
            error!(error = chain(failed), "Reconciler error");
        }
    }

    /// Writes the outcome, tells people, and decides when the next run is.
    async fn write_down(&self, run: &Run<R::Object>, conclusion: Conclusion, finalized: bool) -> Next {
        let written = if finalized {
            self.remove_finalizer(run).await
        } else {
            run.publish().await.map_err(|error| error.0)
        };
        let concluded = run.snapshot();
        for notice in &conclusion.notices {
            self.around.recorder.record(&concluded, notice);
        }
        match written {
            Ok(()) if finalized => Next::Idle,
            Ok(()) => self.next_of(conclusion.requeue),
            Err(error) => write_failed(&error),
        }
    }

    async fn remove_finalizer(&self, run: &Run<R::Object>) -> Result<(), PatchError> {
        let finalizer = &self.options.finalizer;
        match run.patcher.finalizer(&*run.start, finalizer, false).await {
            Ok(Some(written)) => self.store.apply_written(written),
            Ok(None) | Err(PatchError::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn next_of(&self, requeue: Requeue) -> Next {
        match requeue {
            Requeue::Never => Next::Idle,
            Requeue::Interval(time) => {
                Next::After(jittered(time, self.options.interval_jitter), Priority::Periodic)
            }
            Requeue::After(time) => Next::After(time, Priority::Retry),
            Requeue::Backoff => Next::Backoff,
            Requeue::Now => Next::Now,
        }
    }
}

/// Whether anything was ever written about the object.
fn has_status<K: Object>(object: &K) -> bool {
    object.status().is_some_and(|status| *status != K::Status::default())
}

/// Whether a suspended object runs this once.
fn is_asked_once<K: Object>(object: &K) -> bool {
    let annotations = object.meta().annotations.as_ref();
    weir_api::request::is_asked_once(annotations, object.last_handled_reconcile_at())
}

/// The end of a run whose outcome could not be written.
fn write_failed(error: &PatchError) -> Next {
    if let PatchError::Gone { .. } = error {
        debug!("the object is gone");
        return Next::Idle;
    }
    error!(error = chain(error), "Reconciler error");
    Next::Backoff
}

/// How the metrics name what happens next.
fn result_of(next: Next) -> RunResult {
    match next {
        Next::Idle => RunResult::Success,
        Next::After(..) => RunResult::RequeueAfter,
        Next::Backoff => RunResult::Error,
        Next::Now => RunResult::Requeue,
    }
}

/// Whether a change of an object of the controller's own kind asks for a run.
fn concerns_us<K: Object>(old: &K, new: &K) -> bool {
    let (before, after) = (old.meta(), new.meta());
    before.generation != after.generation
        || before.deletion_timestamp.is_none() && after.deletion_timestamp.is_some()
        || weir_api::request::is_newly_requested(before.annotations.as_ref(), after.annotations.as_ref())
}

/// `time`, up to `part` of itself shorter or longer.
fn jittered(time: Duration, part: f64) -> Duration {
    if part <= 0.0 {
        return time;
    }
    time.mul_f64(1.0 + part * rand::rng().random_range(-1.0..1.0))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown panic".to_owned())
}

/// A random version 4 UUID.
fn reconcile_id() -> String {
    let bits: u128 = rand::rng().random();
    let bits = bits & !(0xf000_u128 << 64) | (0x4000_u128 << 64);
    let bits = bits & !(0xc000_u128 << 48) | (0x8000_u128 << 48);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        bits >> 96,
        (bits >> 80) & 0xffff,
        (bits >> 64) & 0xffff,
        (bits >> 48) & 0xffff,
        bits & 0xffff_ffff_ffff
    )
}
