//! The event server: what controllers post becomes notifications.
//!
//! A request goes through `limiter` (repeated events), `matching` (which Alerts it concerns), `dispatch` (what is
//! sent where) and ends in `outbox`, from which deliveries go out on their own.

mod dispatch;
mod limiter;
mod matching;
mod metrics;
mod outbox;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use kube::ResourceExt as _;
use tokio::time::timeout;
use tracing::{Instrument as _, debug, error, info, info_span};
use weir_api::notification::Alert;
use weir_base::clock::Clock;
use weir_notify::event::{Event, TOKEN};
use weir_runtime::{Notice, Recorder, Runtime, Severity};

use crate::server::{Answer, Handler, Request};
use crate::settings::Settings;
use crate::wiring::Stores;
use dispatch::{Dispatched, Dispatcher};
use limiter::{Limiter, Verdict, rfc1123};
use matching::{Patterns, Source};

pub use dispatch::SetupError;

/// How long an event may take from its arrival to the outbox.
const DISPATCH_TIMEOUT: Duration = Duration::from_secs(15);

/// Makes every metric about deliveries have a series, for the reference page.
pub(crate) fn touch_metrics(metrics: &weir_runtime::Metrics) {
    metrics::DeliveryMetrics::new(metrics).touch();
}

/// Takes the events that controllers post.
pub struct EventServer {
    limiter: Limiter,
    clock: Arc<dyn Clock>,
    inner: Arc<Inner>,
}

struct Inner {
    stores: Stores,
    patterns: Patterns,
    dispatcher: Dispatcher,
    recorder: Recorder,
}

impl EventServer {
    /// The event server of a process.
    ///
    /// # Errors
    /// The TLS set-up of the machine is broken.
    pub fn new(runtime: &mut Runtime, settings: &Settings, stores: &Stores) -> Result<Self, SetupError> {
        let dispatcher = Dispatcher::new(runtime, settings, stores)?;
        Ok(Self {
            limiter: Limiter::new(settings.rate_limit_interval),
            clock: runtime.clock(),
            inner: Arc::new(Inner {
                stores: stores.clone(),
                patterns: Patterns::default(),
                dispatcher,
                recorder: runtime.recorder(),
            }),
        })
    }
}

impl Handler for EventServer {
    async fn handle(&self, request: Request) -> Answer {
        let mut event: Event = match serde_json::from_slice(&request.body) {
            Ok(event) => event,
            Err(error) => {
                error!(logger = "event-server", error = %error, "decoding the request body failed");
                return Answer::status(StatusCode::BAD_REQUEST);
            }
        };
        event.clean_up();
        let object = &event.involved_object;
        let span = info_span!(
            "event",
            logger = "event-server",
            kind = %object.kind,
            namespace = %object.namespace,
            name = %object.name
        );
        let verdict = self.limiter.take(event.fingerprint(), self.clock.now());
        if !verdict.allowed {
            span.in_scope(|| debug!("Discarding event, rate limiting duplicate events"));
            let mut answer = Answer::text(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests");
            limit_headers(&mut answer, verdict);
            return answer;
        }
        // On its own: an emitter that hangs up gets no second chance, its next try is a repeated event.
        let inner = Arc::clone(&self.inner);
        let work = async move {
            if timeout(DISPATCH_TIMEOUT, inner.process(event)).await.is_err() {
                error!(error = "not dispatched in time", "failed to dispatch notification");
            }
        };
        if tokio::spawn(work.instrument(span)).await.is_err() {
            error!(
                logger = "event-server",
                error = "the handler panicked",
                "failed to dispatch notification"
            );
        }
        let mut answer = Answer::status(StatusCode::ACCEPTED);
        limit_headers(&mut answer, verdict);
        answer
    }
}

fn limit_headers(answer: &mut Answer, verdict: Verdict) {
    let reset = rfc1123(verdict.reset);
    for (name, value, wanted) in [
        ("x-ratelimit-limit", "1", true),
        ("x-ratelimit-remaining", "0", true),
        ("x-ratelimit-reset", &reset, true),
        ("retry-after", &reset, !verdict.allowed),
    ] {
        if wanted && let Ok(value) = HeaderValue::from_str(value) {
            answer.headers.insert(name, value);
        }
    }
}

impl Inner {
    async fn process(&self, mut event: Event) {
        // Right after the start the Alerts may not have been read in yet.
        self.stores.alerts.synced().await;
        self.stores.providers.synced().await;
        let token = format!("{}/{TOKEN}", event.involved_object.group());
        event.metadata.remove(&token);
        let alerts = self.alerts_for(&event).await;
        if alerts.is_empty() {
            info!("discarding event, no alerts found for the involved object");
            return;
        }
        info!(message = %event.message, "dispatching event");
        let event = Arc::new(event);
        let (mut without_commit, mut without_request) = (Vec::new(), Vec::new());
        for alert in alerts {
            let name = format!("{}/{}", alert.namespace().unwrap_or_default(), alert.name_any());
            match self.dispatcher.dispatch(&event, &alert).await {
                Ok(Dispatched::Queued | Dispatched::Dropped) => {}
                Ok(Dispatched::NoCommit) => without_commit.push(name),
                Ok(Dispatched::NoChangeRequest) => without_request.push(name),
                Err(failed) => {
                    let failed = weir_base::error::chain(&failed);
                    error!(alert = %name, error = %failed, "failed to dispatch notification");
                    let object = event.involved_object.identity();
                    let message = format!("failed to dispatch notification for {object}: {failed}");
                    dispatch::tell(&self.recorder, &alert, "NotificationDispatchFailed", message);
                }
            }
        }
        if !without_commit.is_empty() {
            info!(
                alerts = ?without_commit,
                "event dropped for commit status providers due to missing commit metadata key"
            );
        }
        if !without_request.is_empty() {
            info!(
                alerts = ?without_request,
                "event dropped for change request providers due to missing change request metadata key"
            );
        }
    }

    /// The Alerts an event concerns, by namespace and name.
    async fn alerts_for(&self, event: &Event) -> Vec<Arc<Alert>> {
        let mut found = Vec::new();
        // The labels of the object are asked for once, if at all.
        let mut labels = Labels::NotAsked;
        for alert in self.stores.alerts.list() {
            if alert.spec.suspend {
                continue;
            }
            let namespace = alert.namespace().unwrap_or_default();
            let matches = match matching::source(event, &alert, &namespace) {
                Source::No => false,
                Source::Yes => true,
                Source::IfLabels(wanted) => {
                    if matches!(labels, Labels::NotAsked) {
                        labels = self.dispatcher.labels(event).await.map_or(Labels::Unknown, Labels::Known);
                    }
                    match &labels {
                        Labels::Known(known) => {
                            wanted.iter().any(|wanted| matching::has_labels(known, wanted))
                        }
                        Labels::NotAsked | Labels::Unknown => {
                            let object = event.involved_object.identity();
                            let message = format!("error getting source object {object}");
                            dispatch::tell(&self.recorder, &alert, "SourceFetchFailed", message);
                            false
                        }
                    }
                }
            };
            if !matches {
                continue;
            }
            let (passes, problems) = matching::passes(&event.message, &alert, &self.patterns);
            for problem in problems {
                error!(alert = %alert.name_any(), error = %problem.message(), "invalid alert");
                dispatch::tell(&self.recorder, &alert, "InvalidConfig", problem.message());
            }
            if passes {
                found.push(alert);
            }
        }
        found.sort_by_key(|alert| (alert.namespace(), alert.name_any()));
        found
    }
}

/// The labels of the object of an event.
enum Labels {
    NotAsked,
    Known(BTreeMap<String, String>),
    Unknown,
}

/// A Warning event without a log line.
fn warning(reason: &'static str, message: String) -> Notice {
    Notice::new(Severity::Error, reason, message).without_log()
}

#[cfg(test)]
mod tests;
