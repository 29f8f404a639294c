//! Events: Kubernetes Event objects, and posts to notification-controller.
//!
//! Both go out in the background from bounded queues, so that neither a slow API server nor a slow
//! receiver holds up a reconcile. What does not fit is lost, counted and logged.

mod correlator;
mod kubernetes;
mod receiver;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, trace};
use weir_base::clock::Clock;

pub(crate) use kubernetes::send_to_kubernetes;
pub(crate) use receiver::{HttpPost, send_to_receiver};

use crate::metrics::Sink;
use crate::{Metrics, Notice, Severity};

/// The prefix of object annotations that are copied to every event of the object.
const ANNOTATION_PREFIX: &str = "event.toolkit.fluxcd.io/";
/// How many events may wait for the API server.
const KUBERNETES_QUEUE_MAX: usize = 1024;
/// How many events may wait for each sender to notification-controller.
const RECEIVER_QUEUE_MAX: usize = 512;
/// How many senders post to notification-controller. The events of one object keep their order.
const RECEIVER_SENDERS: usize = 4;
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
    pub(crate) kubernetes: mpsc::Receiver<Recorded>,
    pub(crate) receivers: Vec<mpsc::Receiver<Recorded>>,
}

/// Takes notices and never blocks. Cloning gives another handle to the same queues.
#[derive(Clone)]
pub struct Recorder {
    kubernetes: Option<mpsc::Sender<Recorded>>,
    receivers: Vec<mpsc::Sender<Recorded>>,
    metrics: Metrics,
    clock: std::sync::Arc<dyn Clock>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Recorder")
    }
}

impl Recorder {
    /// A recorder that only logs.
    pub(crate) fn log_only(metrics: Metrics, clock: std::sync::Arc<dyn Clock>) -> Self {
        Self { kubernetes: None, receivers: Vec::new(), metrics, clock }
    }

    /// A recorder with queues to be emptied by the senders; those to a receiver only if there is one.
    pub(crate) fn with_queues(
        metrics: Metrics,
        clock: std::sync::Arc<dyn Clock>,
        receiver: bool,
    ) -> (Self, Queues) {
        let (sender, kubernetes) = mpsc::channel(KUBERNETES_QUEUE_MAX);
        let senders = if receiver { RECEIVER_SENDERS } else { 0 };
        let (senders, receivers) = (0..senders).map(|_| mpsc::channel(RECEIVER_QUEUE_MAX)).unzip();
        let recorder = Self { kubernetes: Some(sender), receivers: senders, metrics, clock };
        (recorder, Queues { kubernetes, receivers })
    }

    /// Logs the notice and queues its event. An event that does not fit into the queue is lost,
    /// counted and logged.
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
        if notifies && !self.receivers.is_empty() {
            let mut hasher = DefaultHasher::new();
            recorded.involved.uid.hash(&mut hasher);
            let sender = &self.receivers[(hasher.finish() % self.receivers.len() as u64) as usize];
            if sender.try_send(recorded.clone()).is_err() {
                self.lost(Sink::Receiver);
            }
        }
        if let Some(sender) = &self.kubernetes
            && sender.try_send(recorded).is_err()
        {
            self.lost(Sink::Kubernetes);
        }
    }

    fn lost(&self, sink: Sink) {
        self.metrics.event_lost(sink);
        error!(error = "the event queue is full", "unable to record event");
    }
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
