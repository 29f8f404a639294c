//! Webhooks: whether a request is what it says, for every type of Receiver.
//!
//! [`Checker::check`] takes a complete request and the credentials of its Receiver. Whatever it cannot prove it
//! refuses: an empty token, which everybody knows, proves nothing. Comparisons with secrets take the same time whatever
//! differs. Nothing here looks at the order or number of requests: who can repeat a signed request can have the
//! objects of the Receiver reconciled once more, and that is all a request does.

mod cdevents;
mod jwt;
mod keys;
mod payload;
mod signature;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use serde_json::Value;
use weir_api::notification::{OidcProvider, ReceiverSpec, ReceiverType};
use weir_base::clock::Clock;

pub use keys::{KeyError, KeySource};

/// The longest text of a request that is repeated in a message.
const QUOTED_CHARACTERS_MAX: usize = 100;

/// What the Secret of a Receiver holds.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The bytes under `token`.
    pub token: Vec<u8>,
    /// The address under `email`, for `gcr`.
    pub email: String,
    /// The text under `audience`, for `gcr`.
    pub audience: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials")
    }
}

/// A request that is what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted<'a> {
    /// What it is about, for the log.
    pub about: String,
    /// The body that filters see.
    pub body: Cow<'a, [u8]>,
    /// Whether that body is JSON, by what the request says.
    pub is_json: bool,
    /// What the identity token of the sender says; for `generic-oidc`.
    pub claims: Option<Value>,
}

/// Why a request is refused; for the log alone.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// The Receiver has no token to check with.
    #[error("the receiver has no token")]
    NoToken,
    /// The signature of a `generic-hmac` request.
    #[error("unable to validate HMAC signature")]
    Hmac(#[source] SignatureError),
    /// The signature of a request that is signed as GitHub does.
    #[error("the {service} signature header is invalid")]
    Signed {
        /// Whose request it should be.
        service: &'static str,
        /// What is wrong.
        #[source]
        source: SignatureError,
    },
    /// The token in a header is not the token of the Receiver.
    #[error("the {0} header value does not match the receiver token")]
    Token(&'static str),
    /// No signature of Nexus.
    #[error("the Nexus signature is missing from header")]
    NexusSignatureMissing,
    /// Another signature than that of Nexus.
    #[error("invalid Nexus signature")]
    NexusSignature,
    /// An event that the Receiver does not list.
    #[error("the {service} event {event} is not authorised")]
    Event {
        /// Whose event.
        service: &'static str,
        /// The event, quoted.
        event: String,
    },
    /// A body that is not what the service sends.
    #[error("cannot decode {service} webhook payload")]
    Payload {
        /// Whose body it should be.
        service: &'static str,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// Not a CDEvent.
    #[error("unable to validate CDEvent event: {0}")]
    CdEvent(String),
    /// The Secret lacks what the type needs.
    #[error("invalid secret data: required field '{0}' for GCR receiver")]
    Incomplete(&'static str),
    /// Not the identity token of the one who may send.
    #[error("cannot authenticate {service} request: {message}")]
    Identity {
        /// Whose request it should be.
        service: &'static str,
        /// What is wrong.
        message: String,
    },
    /// The keys of the issuer cannot be had.
    #[error("failed to initialize OIDC provider for issuer {issuer}")]
    Keys {
        /// The issuer, quoted.
        issuer: String,
        /// Why not.
        #[source]
        source: KeyError,
    },
    /// The rules of the Receiver about the token.
    #[error("{0}")]
    Claims(String),
}

/// What is wrong with a signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A content type the service does not send.
    #[error("webhook request has unsupported Content-Type {0}")]
    ContentType(String),
    /// None.
    #[error("missing signature")]
    Missing,
    /// Not `algorithm=hex`.
    #[error("error parsing signature {0}")]
    Malformed(String),
    /// Another algorithm than `sha1`, `sha256` and `sha512`.
    #[error("unknown hash type prefix: {0}")]
    Algorithm(String),
    /// Not the signature of this body with this token.
    #[error("payload signature check failed")]
    Mismatch,
}

/// Checks requests. Holds the keys of identity providers for a while.
pub struct Checker {
    keys: KeySource,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Checker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Checker").finish_non_exhaustive()
    }
}

impl Checker {
    /// A checker that gets keys from `keys`.
    pub fn new(keys: KeySource, clock: Arc<dyn Clock>) -> Self {
        Self { keys, clock }
    }

    /// Proves that a request comes from who may send it and is what the Receiver takes.
    ///
    /// `rules` decides whether the verified claims of an identity token are those that the provider asks
    /// for; it is called for `generic-oidc` alone, and never with claims that nobody proved.
    ///
    /// # Errors
    /// What could not be proven. The text names no secret; what it repeats of the request is short and escaped.
    ///
    /// # Cancellation
    /// Nothing is left behind.
    pub async fn check<'a>(
        &self,
        receiver: &ReceiverSpec,
        credentials: &Credentials,
        headers: &HeaderMap,
        body: &'a [u8],
        rules: impl Fn(&OidcProvider, &Value) -> Result<(), String> + Send,
    ) -> Result<Accepted<'a>, Rejected> {
        match receiver.type_ {
            ReceiverType::GenericOidc => self.check_oidc(receiver, headers, body, rules).await,
            ReceiverType::Gcr => self.check_gcr(credentials, headers, body).await,
            type_ => check_shared_secret(type_, receiver, credentials, headers, body),
        }
    }

    async fn check_oidc<'a>(
        &self,
        receiver: &ReceiverSpec,
        headers: &HeaderMap,
        body: &'a [u8],
        rules: impl Fn(&OidcProvider, &Value) -> Result<(), String> + Send,
    ) -> Result<Accepted<'a>, Rejected> {
        let refused = |message: String| Rejected::Identity { service: "OIDC", message };
        let text = bearer(headers).ok_or_else(|| refused(MALFORMED_AUTHORIZATION.to_owned()))?;
        let token = jwt::Token::parse(text).map_err(|error| refused(error.to_string()))?;
        let issuer = token.issuer().unwrap_or_default();
        let provider = receiver.oidc_providers.iter().find(|provider| provider.issuer_url == issuer);
        let provider = provider
            .ok_or_else(|| refused(format!("no oidcProvider configured for issuer {}", quoted(issuer))))?;
        let keys = |source| Rejected::Keys { issuer: quoted(issuer), source };
        let audience = provider.audience.as_deref().filter(|audience| !audience.is_empty());
        let audience = audience.unwrap_or(DEFAULT_AUDIENCE);
        self.keys.verify(&token, &provider.issuer_url, &*self.clock).await.map_err(keys)?;
        token.check_times(self.clock.now()).map_err(|error| refused(error.to_string()))?;
        token.check_audience(audience).map_err(|error| refused(error.to_string()))?;
        rules(provider, token.claims()).map_err(Rejected::Claims)?;
        Ok(Accepted {
            about: format!("handling request with a token of issuer {}", quoted(issuer)),
            body: Cow::Borrowed(body),
            is_json: is_json(headers),
            claims: Some(token.claims().clone()),
        })
    }

    async fn check_gcr<'a>(
        &self,
        credentials: &Credentials,
        headers: &HeaderMap,
        body: &'a [u8],
    ) -> Result<Accepted<'a>, Rejected> {
        if credentials.token.is_empty() {
            return Err(Rejected::NoToken);
        }
        for (field, value) in [("email", &credentials.email), ("audience", &credentials.audience)] {
            if value.is_empty() {
                return Err(Rejected::Incomplete(field));
            }
        }
        let refused = |message: String| Rejected::Identity { service: "GCR", message };
        let text = bearer(headers).ok_or_else(|| refused(MALFORMED_AUTHORIZATION.to_owned()))?;
        let token = jwt::Token::parse(text).map_err(|error| refused(error.to_string()))?;
        let keys = |source| Rejected::Keys { issuer: quoted("https://accounts.google.com"), source };
        self.keys.verify_google(&token, &*self.clock).await.map_err(keys)?;
        token.check_times(self.clock.now()).map_err(|error| refused(error.to_string()))?;
        token.check_audience(&credentials.audience).map_err(|error| refused(error.to_string()))?;
        payload::check_google_account(token.claims(), &credentials.email).map_err(refused)?;
        payload::gcr(body)
    }
}

const MALFORMED_AUTHORIZATION: &str = "the Authorization header is missing or malformed";
/// The audience of tokens for Receivers that name none.
const DEFAULT_AUDIENCE: &str = "notification-controller";

fn check_shared_secret<'a>(
    type_: ReceiverType,
    receiver: &ReceiverSpec,
    credentials: &Credentials,
    headers: &HeaderMap,
    body: &'a [u8],
) -> Result<Accepted<'a>, Rejected> {
    let token = credentials.token.as_slice();
    if token.is_empty() {
        return Err(Rejected::NoToken);
    }
    let accept = |about: String| Accepted {
        about,
        body: Cow::Borrowed(body),
        is_json: is_json(headers),
        claims: None,
    };
    let event = |service: &'static str, header: &str| {
        let event = header_text(headers, header);
        let listed = |listed: &String| listed.to_lowercase() == event.to_lowercase();
        if receiver.events.is_empty() || receiver.events.iter().any(listed) {
            Ok(format!("handling {service} event: {}", shortened(&event)))
        } else {
            Err(Rejected::Event { service, event: quoted(&event) })
        }
    };
    match type_ {
        ReceiverType::Generic => Ok(accept("handling generic request".to_owned())),
        ReceiverType::GenericHmac => {
            let signature = header_text(headers, "x-signature");
            signature::check_hmac(&signature, token, body).map_err(Rejected::Hmac)?;
            Ok(accept("handling generic request with a valid signature".to_owned()))
        }
        ReceiverType::Github | ReceiverType::Bitbucket => {
            let (service, header) = match type_ {
                ReceiverType::Github => ("GitHub", "x-github-event"),
                _ => ("Bitbucket server", "x-event-key"),
            };
            let signed = signature::check_signed(headers, token, body)
                .map_err(|source| Rejected::Signed { service, source })?;
            Ok(Accepted { body: signed, is_json: true, ..accept(event(service, header)?) })
        }
        ReceiverType::Gitlab => {
            if !signature::is_token(headers, "x-gitlab-token", token) {
                return Err(Rejected::Token("X-Gitlab-Token"));
            }
            Ok(accept(event("GitLab", "x-gitlab-event")?))
        }
        ReceiverType::Harbor => {
            if !signature::is_token(headers, AUTHORIZATION.as_str(), token) {
                return Err(Rejected::Token("Harbor Authorization"));
            }
            Ok(accept("handling Harbor event".to_owned()))
        }
        ReceiverType::Nexus => {
            let signature = header_text(headers, "x-nexus-webhook-signature");
            if signature.is_empty() {
                return Err(Rejected::NexusSignatureMissing);
            }
            if !signature::is_nexus(&signature, token, body) {
                return Err(Rejected::NexusSignature);
            }
            payload::nexus(body).map(accept)
        }
        ReceiverType::Dockerhub => payload::docker_hub(body).map(accept),
        ReceiverType::Quay => payload::quay(body).map(accept),
        ReceiverType::Acr => payload::acr(body).map(accept),
        ReceiverType::Cdevents => {
            cdevents::validate(body).map_err(Rejected::CdEvent)?;
            let about = event("CDEvent", "ce-type")?;
            Ok(accept(about))
        }
        // Their requests are proven by identity tokens.
        ReceiverType::GenericOidc | ReceiverType::Gcr => Err(Rejected::NoToken),
    }
}

/// The first value of a header; empty without one.
fn header_text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let token = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?.trim();
    (!token.is_empty()).then_some(token)
}

/// Whether the request says that its body is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let text = header_text(headers, CONTENT_TYPE.as_str());
    text.split(',').any(|type_| media_type(type_) == "application/json")
}

/// A content type without its parameters.
fn media_type(text: &str) -> String {
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Text of a request, short enough for a log.
fn shortened(text: &str) -> String {
    let printable = |character: char| if character.is_control() { '\u{fffd}' } else { character };
    weir_base::error::truncate(text, QUOTED_CHARACTERS_MAX).chars().map(printable).collect()
}

/// Text of a request in quotes, short and escaped.
fn quoted(text: &str) -> String {
    format!("{:?}", weir_base::error::truncate(text, QUOTED_CHARACTERS_MAX))
}

#[cfg(test)]
mod tests;
