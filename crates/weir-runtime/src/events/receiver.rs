//! Posts events to notification-controller.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::error;
use weir_base::error::chain;

use super::Recorded;
use crate::metrics::Sink;
use crate::{Metrics, Severity};

/// The longest one attempt may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often an event is tried.
const ATTEMPTS_MAX: u32 = 5;
/// The wait after the first failed attempt; doubled after each further one.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// An event as notification-controller reads it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Payload<'a> {
    involved_object: &'a ObjectReference,
    severity: &'static str,
    timestamp: String,
    message: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: &'a BTreeMap<String, String>,
    reporting_controller: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reporting_instance: &'a str,
}

/// An event was not delivered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    /// The receiver did not answer.
    #[error("no connection to the event receiver")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The receiver did not answer in time.
    #[error("the event receiver did not answer within {}", weir_api::GoDuration::from(ATTEMPT_TIMEOUT))]
    Timeout,
    /// The receiver has a problem.
    #[error("the event receiver answered with status {0}")]
    Status(u16),
}

/// Sends one request and tells the status of the answer.
pub(crate) trait Post: Send + Sync + 'static {
    fn post(&self, body: Vec<u8>) -> impl Future<Output = Result<u16, PostError>> + Send;
}

/// Posts over HTTP.
#[derive(Debug)]
pub(crate) struct HttpPost {
    client: reqwest::Client,
    url: reqwest::Url,
}

impl HttpPost {
    pub(crate) fn new(client: reqwest::Client, url: reqwest::Url) -> Self {
        Self { client, url }
    }
}

impl Post for HttpPost {
    async fn post(&self, body: Vec<u8>) -> Result<u16, PostError> {
        let request =
            self.client.post(self.url.clone()).header("Content-Type", "application/json").body(body);
        let response =
            request.send().await.map_err(|error| PostError::Connection(error.without_url().into()))?;
        Ok(response.status().as_u16())
    }
}

/// Posts queued events until the queue ends, or until it is empty after `finish`.
pub(crate) async fn send_to_receiver<P: Post>(
    mut queue: mpsc::Receiver<Recorded>,
    post: Arc<P>,
    controller: String,
    instance: String,
    metrics: Metrics,
    finish: CancellationToken,
) {
    while let Some(recorded) = super::next(&mut queue, &finish).await {
        let body = payload(&recorded, &controller, &instance);
        if let Err(error) = deliver(&*post, &body).await {
            metrics.event_lost(Sink::Receiver);
            error!(error = chain(&error), "unable to record event");
        }
    }
}

fn payload(recorded: &Recorded, controller: &str, instance: &str) -> Vec<u8> {
    let seconds = Timestamp::from_second(recorded.at.as_second()).unwrap_or(recorded.at);
    let payload = Payload {
        involved_object: &recorded.involved,
        severity: match recorded.notice.severity {
            Severity::Trace => "trace",
            Severity::Info => "info",
            Severity::Error => "error",
        },
        timestamp: seconds.to_string(),
        message: &recorded.notice.message,
        reason: &recorded.notice.reason,
        metadata: &recorded.notice.metadata,
        reporting_controller: controller,
        reporting_instance: instance,
    };
    // A struct of strings always serialises.
    serde_json::to_vec(&payload).unwrap_or_default()
}

async fn deliver(post: &impl Post, body: &[u8]) -> Result<(), PostError> {
    let mut wait = RETRY_WAIT;
    let mut attempt = 1;
    loop {
        let error = match timeout(ATTEMPT_TIMEOUT, post.post(body.to_vec())).await {
            // Not implemented does not get better. A duplicate (429) was delivered before.
            Ok(Ok(status)) if status < 500 || status == 501 => return Ok(()),
            Ok(Ok(status)) => PostError::Status(status),
            Ok(Err(error)) => error,
            Err(_) => PostError::Timeout,
        };
        if attempt == ATTEMPTS_MAX {
            return Err(error);
        }
        attempt += 1;
        sleep(wait).await;
        wait *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Notice;
    use parking_lot::Mutex;
    use tokio::time::Instant;

    /// Answers with these codes in turn, the last one for ever; 0 hangs.
    struct Receiver {
        codes: Vec<u16>,
        bodies: Mutex<Vec<Vec<u8>>>,
    }

    impl Receiver {
        fn new(codes: &[u16]) -> Arc<Self> {
            Arc::new(Self { codes: codes.to_vec(), bodies: Mutex::default() })
        }

        fn posts(&self) -> usize {
            self.bodies.lock().len()
        }
    }

    impl Post for Receiver {
        async fn post(&self, body: Vec<u8>) -> Result<u16, PostError> {
            let number = {
                let mut bodies = self.bodies.lock();
                bodies.push(body);
                bodies.len() - 1
            };
            match self.codes[number.min(self.codes.len() - 1)] {
                0 => std::future::pending().await,
                code => Ok(code),
            }
        }
    }

    fn recorded() -> Recorded {
        Recorded {
            involved: ObjectReference {
                api_version: Some("kustomize.toolkit.fluxcd.io/v1".to_owned()),
                kind: Some("Kustomization".to_owned()),
                namespace: Some("flux-system".to_owned()),
                name: Some("apps".to_owned()),
                uid: Some("1".to_owned()),
                resource_version: Some("7".to_owned()),
                ..ObjectReference::default()
            },
            notice: Notice::new(Severity::Error, "BuildFailed", "no such file")
                .with("kustomize.toolkit.fluxcd.io/revision", "main@sha1:4f2c"),
            at: "2026-01-01T10:00:00.987Z".parse().unwrap(),
        }
    }

    async fn send(receiver: &Arc<Receiver>, events: usize) -> (Duration, Metrics) {
        let (sender, queue) = mpsc::channel(16);
        for _ in 0..events {
            sender.send(recorded()).await.unwrap();
        }
        drop(sender);
        let metrics = Metrics::new();
        let started = Instant::now();
        send_to_receiver(
            queue,
            Arc::clone(receiver),
            "kustomize-controller".to_owned(),
            "pod-1".to_owned(),
            metrics.clone(),
            CancellationToken::new(),
        )
        .await;
        (started.elapsed(), metrics)
    }

    #[tokio::test(start_paused = true)]
    async fn the_payload_is_what_notification_controller_reads() {
        let receiver = Receiver::new(&[202]);
        send(&receiver, 1).await;
        let body: serde_json::Value = serde_json::from_slice(&receiver.bodies.lock()[0]).unwrap();
        assert_eq!(
            body,
            serde_json::json!({
                "involvedObject": {
                    "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
                    "kind": "Kustomization",
                    "namespace": "flux-system",
                    "name": "apps",
                    "uid": "1",
                    "resourceVersion": "7",
                },
                "severity": "error",
                "timestamp": "2026-01-01T10:00:00Z",
                "message": "no such file",
                "reason": "BuildFailed",
                "metadata": {"kustomize.toolkit.fluxcd.io/revision": "main@sha1:4f2c"},
                "reportingController": "kustomize-controller",
                "reportingInstance": "pod-1",
            })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_of_the_receiver_is_waited_out() {
        let receiver = Receiver::new(&[500, 503, 200]);
        let (elapsed, metrics) = send(&receiver, 1).await;
        assert_eq!((receiver.posts(), elapsed), (3, Duration::from_secs(3)));
        assert!(!metrics.encode().contains("events_lost_total{"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_receiver_is_given_up_and_the_next_event_is_tried() {
        let receiver = Receiver::new(&[500]);
        let (elapsed, metrics) = send(&receiver, 2).await;
        assert_eq!((receiver.posts(), elapsed), (10, Duration::from_secs(30)));
        assert!(metrics.encode().contains("weir_runtime_events_lost_total{sink=\"receiver\"} 2"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_receiver_costs_five_seconds_per_attempt() {
        let receiver = Receiver::new(&[0]);
        let (elapsed, _) = send(&receiver, 1).await;
        assert_eq!((receiver.posts(), elapsed), (5, Duration::from_secs(5 * 5 + 15)));
    }

    #[tokio::test(start_paused = true)]
    async fn duplicates_and_refusals_are_not_tried_again() {
        for code in [429, 400, 501] {
            let receiver = Receiver::new(&[code]);
            send(&receiver, 1).await;
            assert_eq!(receiver.posts(), 1, "{code}");
        }
    }
}
