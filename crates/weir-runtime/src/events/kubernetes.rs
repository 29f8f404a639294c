//! Writes Event objects.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::error;
use weir_base::error::chain;

use super::Recorded;
use super::correlator::{Correlator, Write};
use crate::Metrics;
use crate::metrics::Sink;

/// How often an event is tried if the API server does not answer.
const ATTEMPTS_MAX: u32 = 3;
const RETRY_WAIT: Duration = Duration::from_secs(2);

/// Writes queued events until the queue ends, or until it is empty after `finish`.
pub(crate) async fn send_to_kubernetes(
    mut queue: mpsc::Receiver<Recorded>,
    client: kube::Client,
    component: String,
    host: String,
    metrics: Metrics,
    finish: CancellationToken,
) {
    let mut correlator = Correlator::new(component, host);
    while let Some(recorded) = super::next(&mut queue, &finish).await {
        let Some(write) = correlator.correlate(&recorded) else {
            metrics.event_lost(Sink::Kubernetes);
            continue;
        };
        if let Err(error) = send(&client, &write).await {
            metrics.event_lost(Sink::Kubernetes);
            error!(error = chain(&error), "unable to record event");
        }
    }
}

async fn send(client: &kube::Client, write: &Write) -> Result<(), kube::Error> {
    let mut attempt = 1;
    loop {
        let result = match write {
            Write::Create(event) => create(client, event).await,
            Write::Bump { namespace, name, patch, event } => {
                let api: Api<Event> = Api::namespaced(client.clone(), namespace);
                match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                    // The API server forgets events after an hour.
                    Err(kube::Error::Api(status)) if status.code == 404 => create(client, event).await,
                    result => result.map(drop),
                }
            }
        };
        match result {
            // An answer that says no stays no, but trouble on the way may pass.
            Err(error) if attempt < ATTEMPTS_MAX && may_pass(&error) => {
                attempt += 1;
                sleep(RETRY_WAIT).await;
            }
            result => return result,
        }
    }
}

async fn create(client: &kube::Client, event: &Event) -> Result<(), kube::Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), event).await {
        // Our own write whose answer was lost.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(drop),
    }
}

fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Notice, Severity};
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ObjectReference;
    use kube::client::Body;
    use parking_lot::Mutex;
    use std::collections::VecDeque;
    use std::sync::Arc;

    /// What is sent when the server answers with these status codes, then with success.
    async fn requests(events: usize, codes: &[u16]) -> (Vec<String>, Metrics) {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let codes: Arc<Mutex<VecDeque<u16>>> = Arc::new(Mutex::new(codes.iter().copied().collect()));
        let sink = Arc::clone(&seen);
        let service = tower::service_fn(move |request: Request<Body>| {
            sink.lock().push(format!("{} {}", request.method(), request.uri().path()));
            let code = codes.lock().pop_front().unwrap_or(200);
            let body = if code == 200 {
                serde_json::to_vec(&Event::default()).unwrap()
            } else {
                format!(
                    r#"{{"kind":"Status","status":"Failure","code":{code},"message":"no","reason":"no"}}"#
                )
                .into_bytes()
            };
            async move {
                Ok::<_, std::convert::Infallible>(
                    Response::builder().status(code).body(Body::from(body)).unwrap(),
                )
            }
        });
        let (sender, queue) = mpsc::channel(16);
        for number in 0..events {
            let recorded = Recorded {
                involved: ObjectReference {
                    namespace: Some("apps".to_owned()),
                    name: Some("web".to_owned()),
                    ..ObjectReference::default()
                },
                notice: Notice::new(Severity::Info, "Succeeded", "done"),
                at: jiff::Timestamp::from_second(number as i64 + 1).unwrap(),
            };
            sender.send(recorded).await.unwrap();
        }
        let finish = CancellationToken::new();
        finish.cancel();
        let metrics = Metrics::new();
        let client = kube::Client::new(service, "default");
        let (component, host) = ("example-controller".to_owned(), "pod".to_owned());
        send_to_kubernetes(queue, client, component, host, metrics.clone(), finish).await;
        let seen = seen.lock().clone();
        (seen, metrics)
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_event_is_patched() {
        let (seen, _) = requests(2, &[]).await;
        assert_eq!(
            seen,
            ["POST /api/v1/namespaces/apps/events", "PATCH /api/v1/namespaces/apps/events/web.3b9aca00"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_event_is_made_again() {
        let (seen, _) = requests(2, &[200, 404]).await;
        assert_eq!(seen.len(), 3);
        assert_eq!(seen[2], "POST /api/v1/namespaces/apps/events");
    }

    #[tokio::test(start_paused = true)]
    async fn server_errors_are_tried_again_a_few_times() {
        let (seen, metrics) = requests(1, &[500, 503]).await;
        assert_eq!(seen.len(), 3);
        assert!(!metrics.encode().contains("events_lost_total{"));
        let (seen, metrics) = requests(1, &[500, 500, 500]).await;
        assert_eq!(seen.len(), 3);
        assert!(metrics.encode().contains("weir_runtime_events_lost_total{sink=\"kubernetes\"} 1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_event_is_not_tried_again() {
        let (seen, _) = requests(1, &[403]).await;
        assert_eq!(seen.len(), 1);
    }
}
