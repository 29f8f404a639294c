//! Events: Kubernetes Event objects, and posts to notification-controller.
//!
//! Both go out in the background from bounded queues, so that neither a slow API server nor a slow
//! receiver holds up a reconcile. What does not fit is lost, counted and logged.

mod correlator;
mod kubernetes;
mod receiver;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, trace};
use weir_base::clock::Clock;

pub(crate) use kubernetes::send_to_kubernetes;
pub(crate) use receiver::{HttpPost, send_to_receiver};

use crate::metrics::Sink;
use crate::{Metrics, Notice, Severity};

/// The prefix of object annotations that are copied to every event of the object.
const ANNOTATION_PREFIX: &str = "event.toolkit.fluxcd.io/";
/// How many events may wait for each sender.
const QUEUE_MAX: usize = 1024;
/// How many senders write to the API server, and as many post to notification-controller. The
/// events of one object keep their order.
const SENDERS: usize = 4;
/// How often lost events are logged; all are counted.
const LOST_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// The longest note; longer ones are cut.
const MESSAGE_BYTES_MAX: usize = 32_768;

/// An event on its way.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) involved: ObjectReference,
    pub(crate) notice: Notice,
    pub(crate) at: Timestamp,
}

/// The receiving ends of a [`Recorder`]'s queues.
pub(crate) struct Queues {
    pub(crate) kubernetes: Vec<mpsc::Receiver<Recorded>>,
    pub(crate) receivers: Vec<mpsc::Receiver<Recorded>>,
}

/// Takes notices and never blocks. Cloning gives another handle to the same queues.
#[derive(Clone)]
pub struct Recorder {
    kubernetes: Vec<mpsc::Sender<Recorded>>,
    receivers: Vec<mpsc::Sender<Recorded>>,
    metrics: Metrics,
    lost_logged: Arc<Mutex<Option<Instant>>>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Recorder")
    }
}

impl Recorder {
    /// A recorder that only logs.
    pub(crate) fn log_only(metrics: Metrics, clock: Arc<dyn Clock>) -> Self {
        Self { kubernetes: Vec::new(), receivers: Vec::new(), metrics, lost_logged: Arc::default(), clock }
    }

    /// A recorder with queues to be emptied by the senders; those to a receiver only if there is one.
    pub(crate) fn with_queues(metrics: Metrics, clock: Arc<dyn Clock>, receiver: bool) -> (Self, Queues) {
        let channels = |count| (0..count).map(|_| mpsc::channel(QUEUE_MAX)).unzip();
        let (to_kubernetes, kubernetes) = channels(SENDERS);
        let (to_receivers, receivers) = channels(if receiver { SENDERS } else { 0 });
        let recorder = Self {
            kubernetes: to_kubernetes,
            receivers: to_receivers,
            metrics,
            lost_logged: Arc::default(),
            clock,
        };
        (recorder, Queues { kubernetes, receivers })
    }

    /// Logs the notice and queues its event. An event that does not fit into the queue is lost and
    /// counted, and every now and then logged.
    pub fn record<K: Resource<DynamicType = ()>>(&self, object: &K, notice: &Notice) {
        log(notice);
        if !notice.event {
            return;
        }
        let meta = object.meta();
        let mut notice = notice.clone();
        notice.message = weir_base::error::truncate(&notice.message, MESSAGE_BYTES_MAX);
        for (key, value) in meta.annotations.iter().flatten() {
            if key.starts_with(ANNOTATION_PREFIX) {
                notice.metadata.insert(key.clone(), value.clone());
            }
        }
        trace!(reason = %notice.reason, annotations = ?notice.metadata, "event: {}", notice.message);
        let involved =
            ObjectReference { resource_version: meta.resource_version.clone(), ..object.object_ref(&()) };
        self.queue(Recorded { involved, notice, at: self.clock.now() });
    }

    fn queue(&self, recorded: Recorded) {
        // Cluster-scoped objects never make notifications, nor does anything at trace.
        let notifies = recorded.notice.severity != Severity::Trace && recorded.involved.namespace.is_some();
        if notifies && let Some(sender) = of_object(&self.receivers, &recorded) {
            self.send(sender, recorded.clone(), Sink::Receiver);
        }
        if recorded.notice.kubernetes
            && let Some(sender) = of_object(&self.kubernetes, &recorded)
        {
            self.send(sender, recorded, Sink::Kubernetes);
        }
    }

    fn send(&self, sender: &mpsc::Sender<Recorded>, recorded: Recorded, sink: Sink) {
        if sender.try_send(recorded).is_ok() {
            return;
        }
        self.metrics.event_lost(sink);
        let now = Instant::now();
        let mut logged = self.lost_logged.lock();
        if logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOST_LOG_INTERVAL) {
            *logged = Some(now);
            error!(error = "the event queue is full", "unable to record event");
        }
    }
}

/// The sender for the events of an object: always the same one.
fn of_object<'a>(
    senders: &'a [mpsc::Sender<Recorded>],
    recorded: &Recorded,
) -> Option<&'a mpsc::Sender<Recorded>> {
    let count = u64::try_from(senders.len()).ok().filter(|count| *count > 0)?;
    let mut hasher = DefaultHasher::new();
    recorded.involved.uid.hash(&mut hasher);
    senders.get((hasher.finish() % count) as usize)
}

fn log(notice: &Notice) {
    if !notice.log {
        return;
    }
    let revision =
        notice.metadata.iter().find(|(key, _)| key.ends_with("/revision")).map(|(_, value)| value.as_str());
    match (notice.severity, &notice.log_message) {
        (Severity::Trace, message) => debug!(revision, "{}", message.as_ref().unwrap_or(&notice.message)),
        (Severity::Info, message) => info!(revision, "{}", message.as_ref().unwrap_or(&notice.message)),
        (Severity::Error, Some(message)) => error!(revision, error = notice.message, "{message}"),
        (Severity::Error, None) => error!(revision, error = notice.message, "Reconciler error"),
    }
}

/// The next queued event; `None` when nothing more comes. After `finish`, only what is queued.
async fn next(queue: &mut mpsc::Receiver<Recorded>, finish: &CancellationToken) -> Option<Recorded> {
    tokio::select! {
        biased;
        recorded = queue.recv() => recorded,
        () = finish.cancelled() => {
            queue.close();
            queue.recv().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use weir_base::clock::SystemClock;

    fn object(uid: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("apps".to_owned());
        object.metadata.name = Some("web".to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_loses_events_and_counts_them_without_blocking() {
        let metrics = Metrics::new();
        let (recorder, mut queues) = Recorder::with_queues(metrics.clone(), Arc::new(SystemClock), true);
        let notice = Notice::new(Severity::Info, "Progressing", "applied");
        // Nobody empties the queues: as with a receiver that hangs.
        for _ in 0..QUEUE_MAX + 3 {
            recorder.record(&object("1"), &notice);
        }
        let text = metrics.encode();
        for sink in ["kubernetes", "receiver"] {
            let want = format!("weir_runtime_events_lost_total{{sink=\"{sink}\"}} 3");
            assert!(text.contains(&want), "{text}");
        }
        let waiting: Vec<usize> = queues.receivers.iter().map(mpsc::Receiver::len).collect();
        assert_eq!(
            waiting.iter().filter(|count| **count > 0).count(),
            1,
            "one object, one queue: {waiting:?}"
        );
        queues.kubernetes.iter_mut().for_each(mpsc::Receiver::close);
    }

    #[tokio::test]
    async fn trace_events_are_never_posted() {
        let (recorder, queues) = Recorder::with_queues(Metrics::new(), Arc::new(SystemClock), true);
        recorder.record(&object("1"), &Notice::new(Severity::Trace, "ArtifactUpToDate", "same"));
        assert_eq!(queues.receivers.iter().map(mpsc::Receiver::len).sum::<usize>(), 0);
        assert_eq!(queues.kubernetes.iter().map(mpsc::Receiver::len).sum::<usize>(), 1);
    }
}
