//! The way out: jobs become requests on the network.
//!
//! One [`Sender`] serves all deliveries. Clients are kept per proxy and certificates, so that connections are used
//! again; a delivery has one deadline for everything it does.

mod client;
mod redirect;
mod retry;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use weir_api::GoDuration;

pub use client::{ClientError, Clients};
pub(crate) use client::{describe, identity};
pub use redirect::RedirectError;

use crate::identity::{Identities, IdentityError};
use crate::nats::{self, NatsError};
use crate::provider::{self, Answer, Job, Method, ProviderError, Request, Step};
use crate::target::Connection;

/// The most requests a delivery makes; no service needs more.
const REQUESTS_MAX: usize = 8;
/// The largest list that is read; longer ones are an error.
const LIST_BYTES_MAX: usize = 8 << 20;
/// How much of the answer to anything else is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Why an event was not delivered. Texts show no credentials.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The settings or the event do not fit, or the service refused.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// No access token.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No client for these certificates or this proxy.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The service could not be reached.
    #[error("{failed}: failed to execute request: {cause}")]
    Transport {
        /// What was tried.
        failed: &'static str,
        /// Why it failed.
        cause: String,
    },
    /// The service sends requests elsewhere.
    #[error("{failed}: failed to execute request: {cause}")]
    Redirect {
        /// What was tried.
        failed: &'static str,
        /// Why the request is not sent on.
        cause: RedirectError,
    },
    /// The answer is longer than any that makes sense.
    #[error("{failed}: the answer has more than 8 MiB")]
    TooLong {
        /// What was tried.
        failed: &'static str,
    },
    /// The deadline has passed.
    #[error("failed to execute request: not delivered within {}", GoDuration::from(*.0))]
    Deadline(Duration),
    /// The service does not come to an end.
    #[error("the service wants more than {REQUESTS_MAX} requests")]
    Endless,
    /// A NATS server could not be reached or refused.
    #[error(transparent)]
    Nats(#[from] NatsError),
}

impl DeliveryError {
    /// Whether the settings are to blame, rather than the service.
    pub fn is_setting(&self) -> bool {
        match self {
            Self::Provider(error) => error.is_setting(),
            Self::Identity(_) | Self::Client(_) => true,
            Self::Transport { .. }
            | Self::Redirect { .. }
            | Self::TooLong { .. }
            | Self::Deadline(_)
            | Self::Endless
            | Self::Nats(_) => false,
        }
    }
}

/// Delivers jobs.
pub struct Sender {
    clients: Clients,
    identities: Identities,
}

impl Sender {
    /// A sender with clients and identities.
    pub fn new(clients: Clients, identities: Identities) -> Arc<Self> {
        Arc::new(Self { clients, identities })
    }

    /// Delivers one event within the time its target allows.
    ///
    /// # Errors
    /// See [`DeliveryError`].
    ///
    /// # Cancellation
    /// The request under way may or may not have been received.
    pub async fn deliver(&self, mut job: Job) -> Result<(), DeliveryError> {
        let limit = job.target.timeout;
        let deadline = Instant::now() + limit;
        match timeout_at(deadline, self.work(&mut job, deadline)).await {
            Ok(done) => done,
            Err(_) => Err(DeliveryError::Deadline(limit)),
        }
    }

    async fn work(&self, job: &mut Job, deadline: Instant) -> Result<(), DeliveryError> {
        // The settings are checked before a token is asked for.
        let first = provider::next(job, &[])?;
        if job.target.kind == weir_api::notification::ProviderType::Nats {
            return Ok(nats::publish(&job.target, &job.event.to_json()).await?);
        }
        if first == Step::Done {
            return Ok(());
        }
        if let Some(need) = provider::need(&job.target) {
            job.access = Some(self.identities.access(&self.clients, job, need).await?);
        }
        let client = self.clients.get(&job.target.connection)?;
        let mut answers = Vec::new();
        while answers.len() < REQUESTS_MAX {
            match provider::next(job, &answers)? {
                Step::Done => return Ok(()),
                Step::Send(request) => answers.push(send(&client, &request, deadline).await?),
            }
        }
        Err(DeliveryError::Endless)
    }
}

/// Sends a request, again if it says so, and reads the answer.
async fn send(
    client: &reqwest::Client,
    request: &Request,
    deadline: Instant,
) -> Result<Answer, DeliveryError> {
    let mut attempt = 0;
    loop {
        let outcome = redirect::follow(client, request).await;
        let wait = match &outcome {
            _ if !request.retries => None,
            Ok(response) => retry::after_status(response, attempt),
            Err(redirect::FollowError::Transport(error)) => retry::after_error(error, attempt),
            Err(redirect::FollowError::Redirect(_)) => None,
        };
        match wait {
            // Better the answer we have than none at all.
            Some(wait) if wait < deadline.saturating_duration_since(Instant::now()) => {
                drop(outcome);
                tokio::time::sleep(wait).await;
                attempt += 1;
            }
            _ => {
                let response = outcome.map_err(|error| match error {
                    redirect::FollowError::Transport(error) => {
                        DeliveryError::Transport { failed: request.failed, cause: describe(&error) }
                    }
                    redirect::FollowError::Redirect(cause) => {
                        DeliveryError::Redirect { failed: request.failed, cause }
                    }
                })?;
                return read(response, request).await;
            }
        }
    }
}

async fn read(mut response: reqwest::Response, request: &Request) -> Result<Answer, DeliveryError> {
    let status = response.status().as_u16();
    let is_list = request.method == Method::Get && response.status().is_success();
    let max = if is_list { LIST_BYTES_MAX } else { ANSWER_BYTES_MAX };
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = max - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    if is_list {
                        return Err(DeliveryError::TooLong { failed: request.failed });
                    }
                    break;
                }
            }
            Ok(None) => break,
            // The status says what matters, unless the answer itself is wanted.
            Err(_) if !is_list => break,
            Err(error) => {
                let cause = describe(&error);
                return Err(DeliveryError::Transport { failed: request.failed, cause });
            }
        }
    }
    Ok(Answer { status, body })
}

/// A client for a connection, for token services too.
pub(crate) fn client_for(clients: &Clients, connection: &Connection) -> Result<reqwest::Client, ClientError> {
    clients.get(connection)
}
