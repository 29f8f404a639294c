//! Where notices go: the log, Kubernetes events and notification-controller.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tokio::sync::mpsc;
use tracing::{debug, error, info};

use crate::{Notice, Severity};

/// The prefix of object annotations that are copied to every event of the object.
const ANNOTATION_PREFIX: &str = "event.toolkit.fluxcd.io/";

/// An event on its way to the API server and notification-controller.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) involved: ObjectReference,
    pub(crate) notice: Notice,
}

/// Takes notices and never blocks: events are sent in the background from a bounded queue.
///
/// Cloning gives another handle to the same queue.
#[derive(Debug, Clone)]
pub struct Recorder {
    sink: Option<mpsc::Sender<Recorded>>,
    lost: Arc<std::sync::atomic::AtomicU64>,
}

impl Recorder {
    /// A recorder that only logs.
    pub fn log_only() -> Self {
        Self {
            sink: None,
            lost: Arc::default(),
        }
    }

    /// A recorder and the queue it fills, of at most `capacity` events.
    pub(crate) fn with_queue(capacity: usize) -> (Self, mpsc::Receiver<Recorded>) {
        let (sender, receiver) = mpsc::channel(capacity);
        let recorder = Self {
            sink: Some(sender),
            lost: Arc::default(),
        };
        (recorder, receiver)
    }

    /// How many events were dropped because the queue was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Logs the notice and queues its event. If the queue is full the event is lost, counted and
    /// logged.
    pub fn record<K: Resource<DynamicType = ()>>(&self, object: &K, notice: &Notice) {
        if notice.log {
            match notice.severity {
                Severity::Trace => debug!("{}", notice.message),
                Severity::Info => info!("{}", notice.message),
                Severity::Error => error!(error = notice.reason.as_ref(), "{}", notice.message),
            }
        }
        let Some(sink) = self.sink.as_ref().filter(|_| notice.event) else {
            return;
        };
        let meta = object.meta();
        let mut notice = notice.clone();
        for (key, value) in meta.annotations.iter().flatten() {
            if key.starts_with(ANNOTATION_PREFIX) {
                notice.metadata.insert(key.clone(), value.clone());
            }
        }
        let involved = ObjectReference {
            resource_version: meta.resource_version.clone(),
            ..object.object_ref(&())
        };
        if sink.try_send(Recorded { involved, notice }).is_err() {
            let lost = self.lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            error!(lost, "unable to record event: the event queue is full");
        }
    }
}
