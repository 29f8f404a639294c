//! The public keys of identity providers, fetched and held for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use weir_base::clock::Clock;

use super::jwt::{Key, Token};
use super::quoted;
use crate::address::{Guarded, names_forbidden};

/// How long keys are used before they are asked for again.
const KEYS_AGE_MAX: SignedDuration = SignedDuration::from_mins(5);
/// How old keys are at least before an unknown one makes them be asked for again: a caller who
/// invents key ids must not make us call the issuer with every request.
const KEYS_AGE_MIN: SignedDuration = SignedDuration::from_secs(10);
/// How many issuers are remembered.
const ISSUERS_MAX: usize = 256;
/// The longest time an issuer may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer of an issuer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The most redirects that are followed.
const REDIRECTS_MAX: usize = 3;
/// Where Google publishes the keys of its tokens.
const GOOGLE_KEYS: &str = "https://www.googleapis.com/oauth2/v3/certs";
/// What is taken of an issuer that does not say.
const DEFAULT_ALGORITHM: &str = "RS256";

/// Why a token could not be verified.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeyError {
    /// No client for requests.
    #[error("unable to set up requests to identity providers")]
    Client(#[source] Arc<reqwest::Error>),
    /// The issuer cannot be reached or does not answer.
    #[error("failed to fetch '{url}'")]
    Fetch {
        /// What was fetched.
        url: String,
        /// Why not.
        #[source]
        source: Arc<reqwest::Error>,
    },
    /// The issuer answers with an error.
    #[error("failed to fetch '{url}': status {status}")]
    Status {
        /// What was fetched.
        url: String,
        /// The answer.
        status: u16,
    },
    /// The issuer answers something else.
    #[error("failed to fetch '{url}': {message}")]
    Answer {
        /// What was fetched.
        url: String,
        /// What is wrong with it.
        message: String,
    },
    /// The issuer does not sign with this algorithm.
    #[error("token is signed with the unexpected algorithm {0}")]
    Algorithm(String),
    /// None of the issuer's keys signed the token.
    #[error("failed to verify token signature")]
    Signature,
}

/// Fetches and holds the keys of identity providers.
pub struct KeySource {
    client: reqwest::Client,
    google: String,
    issuers: Mutex<HashMap<String, Issuer>>,
}

/// The keys of one issuer; the lock makes those who wait for the same keys share one request.
type Issuer = Arc<tokio::sync::Mutex<Option<Held>>>;

#[derive(Clone)]
struct Held {
    at: Timestamp,
    keys: Arc<Vec<Key>>,
    algorithms: Arc<Vec<String>>,
}

impl std::fmt::Debug for KeySource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KeySource").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
    #[serde(default)]
    id_token_signing_alg_values_supported: Vec<String>,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

impl KeySource {
    /// A source that asks the real issuers.
    ///
    /// # Errors
    /// A machine without usable TLS.
    pub fn new() -> Result<Self, KeyError> {
        let client = reqwest::Client::builder()
            .timeout(ANSWER_TIMEOUT)
            .redirect(reqwest::redirect::Policy::custom(redirect))
            .dns_resolver(Arc::new(Guarded))
            .build();
        let client = client.map_err(|error| KeyError::Client(Arc::new(error)))?;
        Ok(Self { client, google: GOOGLE_KEYS.to_owned(), issuers: Mutex::default() })
    }

    /// The same with Google's keys at another address.
    #[must_use]
    pub fn with_google_keys(mut self, url: impl Into<String>) -> Self {
        self.google = url.into();
        self
    }

    /// Verifies that an issuer signed the token.
    pub(super) async fn verify(
        &self,
        token: &Token<'_>,
        issuer: &str,
        clock: &dyn Clock,
    ) -> Result<(), KeyError> {
        self.verify_with(token, issuer, clock, || self.discover(issuer)).await
    }

    /// Verifies that Google signed the token.
    pub(super) async fn verify_google(&self, token: &Token<'_>, clock: &dyn Clock) -> Result<(), KeyError> {
        // The name is no URL, so it is not the name of an issuer that a Receiver can give.
        self.verify_with(token, "google", clock, || async {
            let algorithms = vec![DEFAULT_ALGORITHM.to_owned()];
            Ok((self.key_set(&self.google).await?, algorithms))
        })
        .await
    }

    async fn verify_with<F>(
        &self,
        token: &Token<'_>,
        issuer: &str,
        clock: &dyn Clock,
        fetch: impl Fn() -> F,
    ) -> Result<(), KeyError>
    where
        F: Future<Output = Result<(Vec<Key>, Vec<String>), KeyError>>,
    {
        let entry = self.entry(issuer);
        let mut held = entry.lock().await;
        let age = |held: &Held| clock.now().duration_since(held.at);
        if let Some(known) = held.as_ref().filter(|held| age(held) < KEYS_AGE_MAX) {
            match known.verify(token) {
                // Perhaps the issuer has new keys.
                Err(KeyError::Signature) if age(known) >= KEYS_AGE_MIN => {}
                result => return result,
            }
        }
        let (keys, algorithms) = fetch().await?;
        let fresh = Held { at: clock.now(), keys: Arc::new(keys), algorithms: Arc::new(algorithms) };
        *held = Some(fresh.clone());
        drop(held);
        fresh.verify(token)
    }

    fn entry(&self, issuer: &str) -> Issuer {
        let mut issuers = self.issuers.lock();
        if issuers.len() >= ISSUERS_MAX && !issuers.contains_key(issuer) {
            issuers.clear();
        }
        Arc::clone(issuers.entry(issuer.to_owned()).or_default())
    }

    async fn discover(&self, issuer: &str) -> Result<(Vec<Key>, Vec<String>), KeyError> {
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let discovery: Discovery = self.fetch(&url).await?;
        if discovery.issuer != issuer {
            let message = format!("issuer did not match, want '{issuer}', got {}", quoted(&discovery.issuer));
            return Err(KeyError::Answer { url, message });
        }
        let mut algorithms = discovery.id_token_signing_alg_values_supported;
        if algorithms.is_empty() {
            algorithms.push(DEFAULT_ALGORITHM.to_owned());
        }
        if is_secure(issuer) && !is_secure(&discovery.jwks_uri) {
            let message = "the keys of an https issuer must be at an https address".to_owned();
            return Err(KeyError::Answer { url, message });
        }
        Ok((self.key_set(&discovery.jwks_uri).await?, algorithms))
    }

    async fn key_set(&self, url: &str) -> Result<Vec<Key>, KeyError> {
        let set: KeySet = self.fetch(url).await?;
        // A key of a kind nobody knows yet must not spoil the others.
        Ok(set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect())
    }

    async fn fetch<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, KeyError> {
        let failed = |error: reqwest::Error| KeyError::Fetch {
            url: url.to_owned(),
            source: Arc::new(error.without_url()),
        };
        if !reqwest::Url::parse(url).is_ok_and(|url| may_be_asked(&url)) {
            return Err(KeyError::Answer { url: url.to_owned(), message: FORBIDDEN.to_owned() });
        }
        let mut response = self.client.get(url).send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(KeyError::Status { url: url.to_owned(), status: response.status().as_u16() });
        }
        let answer = |message: String| KeyError::Answer { url: url.to_owned(), message };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(answer(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|error| answer(error.to_string()))
    }
}

const FORBIDDEN: &str = "the address is not one that may be asked";

fn is_secure(url: &str) -> bool {
    url.starts_with("https://")
}

/// Whether an address may be asked for keys: whoever may make Receivers names it, and must not reach the
/// services that tell a machine's own credentials.
fn may_be_asked(url: &reqwest::Url) -> bool {
    url.has_host() && matches!(url.scheme(), "http" | "https") && !names_forbidden(url)
}

fn redirect(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    let downgrade = attempt.url().scheme() != "https"
        && attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if attempt.previous().len() > REDIRECTS_MAX || downgrade || !may_be_asked(attempt.url()) {
        return attempt.error(FORBIDDEN);
    }
    attempt.follow()
}

impl Held {
    fn verify(&self, token: &Token<'_>) -> Result<(), KeyError> {
        if !self.algorithms.contains(&token.algorithm) {
            return Err(KeyError::Algorithm(quoted(&token.algorithm)));
        }
        let signed = self.keys.iter().any(|key| key.may_have_signed(token) && key.verifies(token));
        if signed { Ok(()) } else { Err(KeyError::Signature) }
    }
}
