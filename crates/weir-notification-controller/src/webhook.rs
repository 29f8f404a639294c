//! The webhook server: what the outside posts.
//!
//! The path finds the Receiver, the Receiver says how the request is proven, and a request that is proven asks the
//! objects the Receiver names to reconcile. What went wrong is in the log alone: who asks is told a status.

mod coalesce;
mod targets;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use kube::{Client, ResourceExt as _};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{Instrument as _, debug, error, info, info_span};
use weir_api::condition;
use weir_api::notification::{OidcProvider, Receiver};
use weir_base::clock::Clock;
use weir_base::error::chain;
use weir_notify::receiver::{Accepted, Checker, Credentials};
use weir_runtime::{Index, ObjectKey, Store};

use crate::filters::{ClaimsRules, Filters, Sent};
use crate::receiver::{CredentialsError, PATH_PREFIX, read_credentials};
use crate::server::{Answer, Handler, Request};
use coalesce::Coalescer;
use targets::{Target, Targets};

/// How long a request waits for the first list of Receivers after a start.
const START_WAIT: Duration = Duration::from_secs(10);
/// How many filters are evaluated at the same time: users write them, and they cannot be stopped.
const FILTERS_MAX: usize = 8;
/// The longest time the filters of a request may take.
const FILTERS_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes webhooks and asks for reconciles of what their Receiver names.
pub struct WebhookServer {
    client: Client,
    receivers: Store<Receiver>,
    by_path: Index<Receiver>,
    checker: Checker,
    credentials: Coalescer<ObjectKey, Result<Credentials, CredentialsError>>,
    targets: Targets,
    filters: Arc<Semaphore>,
    no_cross_namespace_refs: bool,
}

impl WebhookServer {
    /// A server for the Receivers of a store.
    pub fn new(
        client: Client,
        receivers: &Store<Receiver>,
        checker: Checker,
        clock: Arc<dyn Clock>,
        no_cross_namespace_refs: bool,
    ) -> Self {
        let by_path = receivers.index(|receiver: &Receiver| {
            let path = receiver.status.as_ref().and_then(|status| status.webhook_path.as_deref());
            path.map(fingerprint).into_iter().collect()
        });
        Self {
            targets: Targets::new(client.clone(), clock),
            client,
            receivers: receivers.clone(),
            by_path,
            checker,
            credentials: Coalescer::default(),
            filters: Arc::new(Semaphore::new(FILTERS_MAX)),
            no_cross_namespace_refs,
        }
    }

    /// The Receiver of a path.
    fn receiver(&self, target: &str) -> Option<Arc<Receiver>> {
        self.by_path.get(&fingerprint(target)).into_iter().next()
    }
}

/// Filters, and the request they look at.
struct Looking {
    filters: Arc<Filters>,
    sent: Arc<Sent>,
}

/// What Receivers are looked up by: how long a look-up takes tells something about this, and nothing about the path.
fn fingerprint(path: &str) -> String {
    hex::encode(Sha256::digest(path))
}

impl Handler for WebhookServer {
    async fn admit(&self, target: &str) -> Result<(), Answer> {
        if !target.starts_with(PATH_PREFIX) {
            return Err(Answer::text(StatusCode::NOT_FOUND, "404 page not found"));
        }
        if timeout(START_WAIT, self.receivers.synced()).await.is_err() {
            error!(
                logger = "receiver-server",
                error = "the first list has not been read in",
                "unable to list receivers"
            );
            return Err(Answer::status(StatusCode::INTERNAL_SERVER_ERROR));
        }
        self.receiver(target).map(drop).ok_or_else(|| Answer::status(StatusCode::NOT_FOUND))
    }

    async fn handle(&self, request: Request) -> Answer {
        let Some(receiver) = self.receiver(&request.target) else {
            return Answer::status(StatusCode::NOT_FOUND);
        };
        let span = info_span!(
            "webhook",
            logger = "receiver-server",
            "reconciler kind" = "Receiver",
            name = receiver.name_any(),
            namespace = receiver.namespace().unwrap_or_default(),
        );
        Answer::status(self.take(&receiver, &request).instrument(span).await)
    }
}

impl WebhookServer {
    async fn take(&self, receiver: &Receiver, request: &Request) -> StatusCode {
        let conditions =
            receiver.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        if receiver.spec.suspend || !condition::is_ready(conditions) {
            let why = if receiver.spec.suspend { "receiver is suspended" } else { "receiver is not ready" };
            error!(error = "unable to process request", "{why}");
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        let accepted = match self.check(receiver, request).await {
            Ok(accepted) => accepted,
            Err(message) => {
                error!(error = message, "unable to validate payload");
                return StatusCode::BAD_REQUEST;
            }
        };
        info!("{}", accepted.about);
        let looking = match looking(receiver, &accepted) {
            Ok(looking) => looking,
            Err(message) => {
                error!(error = message, "unable to create resource filters");
                return StatusCode::INTERNAL_SERVER_ERROR;
            }
        };
        let mut status = StatusCode::OK;
        for index in 0..receiver.spec.resources.len() {
            if let Err(message) = self.request_reconciliation(receiver, index, looking.as_ref()).await {
                error!(error = message, "unable to request reconciliation");
                status = StatusCode::INTERNAL_SERVER_ERROR;
            }
        }
        status
    }

    async fn check<'a>(&self, receiver: &Receiver, request: &'a Request) -> Result<Accepted<'a>, String> {
        let key = ObjectKey::of(receiver);
        let read = self.credentials.run(&key, read_credentials(&self.client, receiver)).await;
        let credentials = read.map_err(|error| format!("unable to read secret, error: {error}"))?;
        let rules = |provider: &OidcProvider, claims: &serde_json::Value| {
            let rules = ClaimsRules::new(provider).map_err(|error| error.to_string())?;
            rules.check(claims).map_err(|refused| refused.to_string())
        };
        let checked =
            self.checker.check(&receiver.spec, &credentials, &request.headers, &request.body, rules).await;
        checked.map_err(|rejected| chain(&rejected))
    }

    /// Asks the objects of one resource of a Receiver to reconcile.
    async fn request_reconciliation(
        &self,
        receiver: &Receiver,
        index: usize,
        looking: Option<&Looking>,
    ) -> Result<(), String> {
        let Some(resource) = receiver.spec.resources.get(index) else { return Ok(()) };
        let namespace = receiver.namespace().unwrap_or_default();
        let target = Target::new(resource, &namespace, self.no_cross_namespace_refs);
        let target = target.map_err(|error| error.to_string())?;
        let looking = looking.filter(|looking| looking.filters.concern(index));
        if looking.is_none()
            && let Some(annotated) = self.targets.annotate_named(&target).await
        {
            let name = annotated.map_err(|error| error.to_string())?;
            tell_annotated(&target, &[name]);
            return Ok(());
        }
        let found = self.targets.find(&target).await.map_err(|error| error.to_string())?;
        if found.is_empty() {
            let mut message = format!("no \"{}\" resources found", target.kind);
            if let Some(labels) = target.labels() {
                // Writing to a text does not fail.
                let _ = write!(
                    message,
                    " with matching labels \"{labels}\" in \"{}\" namespace",
                    target.namespace
                );
            }
            error!(error = message, "error annotating resources");
            return Ok(());
        }
        let mut names: Vec<String> = found.iter().map(targets::name).collect();
        if let Some(looking) = looking {
            let objects: Vec<_> = found.iter().map(|object| targets::as_resource(object, &target)).collect();
            let passes = self.evaluate(looking, index, objects).await?;
            let mut passes = passes.into_iter();
            names.retain(|name| {
                let pass = passes.next().unwrap_or_default();
                if !pass {
                    debug!(
                        "resource '{}/{name}.{}' NOT annotated because CEL expression returned false",
                        target.kind, target.namespace
                    );
                }
                pass
            });
        }
        let annotated = self.targets.annotate_all(&target, names).await.map_err(|error| error.to_string())?;
        tell_annotated(&target, &annotated);
        Ok(())
    }

    /// Evaluates filters where nothing else waits for them.
    async fn evaluate(
        &self,
        looking: &Looking,
        index: usize,
        objects: Vec<serde_json::Value>,
    ) -> Result<Vec<bool>, String> {
        let permit = Arc::clone(&self.filters).acquire_owned();
        let (filters, sent) = (Arc::clone(&looking.filters), Arc::clone(&looking.sent));
        let evaluated = async {
            let permit = permit.await.map_err(|error| error.to_string())?;
            let work = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                objects.iter().map(|object| filters.pass(index, &sent, object)).collect::<Result<Vec<_>, _>>()
            });
            let passes = work.await.map_err(|error| error.to_string())?;
            passes.map_err(|error| error.to_string())
        };
        timeout(FILTERS_TIMEOUT, evaluated)
            .await
            .unwrap_or_else(|_| Err("the filters take too long".to_owned()))
    }
}

/// The filters of a Receiver with what they look at; nothing if there are none.
fn looking(receiver: &Receiver, accepted: &Accepted<'_>) -> Result<Option<Looking>, String> {
    let filters = Filters::new(&receiver.spec).map_err(|error| error.to_string())?;
    if filters.is_empty() {
        return Ok(None);
    }
    let sent = Sent::new(&accepted.body, accepted.is_json, accepted.claims.as_ref());
    Ok(Some(Looking { filters: Arc::new(filters), sent: Arc::new(sent.map_err(|error| chain(&error))?) }))
}

fn tell_annotated(target: &Target, names: &[String]) {
    for name in names {
        info!("resource '{}/{name}.{}' annotated", target.kind, target.namespace);
    }
}

#[cfg(test)]
mod tests;
