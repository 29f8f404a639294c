//! Access tokens of GitHub Apps, Azure and Google identities, kept until shortly before they expire.

mod azure;
mod github_app;
mod google;
mod tokens;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use url::Url;
use weir_base::clock::Clock;
use weir_base::redact::Secret;

pub use tokens::{CacheEvent, TokenLimits, Tokens};

use crate::delivery::{ClientError, Clients, client_for};
use crate::provider::{Access, Job, Need};

/// Answers of identity services have a few kilobytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How long one request for a token may take; the deadline of the delivery may be shorter.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no access token. Texts show no credentials.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The settings are not complete or cannot be used.
    #[error("{0}")]
    Settings(String),
    /// No client for the proxy or certificates.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The identity service could not be reached.
    #[error("failed to get token from {service}: {cause}")]
    Transport {
        /// The service.
        service: &'static str,
        /// Why.
        cause: String,
    },
    /// The identity service refused.
    #[error("failed to get token from {service}: status code {status}: {answer}")]
    Refused {
        /// The service.
        service: &'static str,
        /// The status.
        status: u16,
        /// What the service says about it.
        answer: String,
    },
    /// The answer is not what was expected.
    #[error("failed to get token from {0}: unexpected answer")]
    Unexpected(&'static str),
    /// The service account or its token cannot be had.
    #[error("failed to get token of service account '{account}': {cause}")]
    ServiceAccount {
        /// Namespace and name.
        account: String,
        /// Why.
        cause: String,
    },
}

/// Service accounts of the cluster.
#[async_trait]
pub trait ServiceAccounts: Send + Sync {
    /// The annotations of a service account.
    ///
    /// # Errors
    /// What the API server says.
    async fn annotations(&self, namespace: &str, name: &str) -> Result<BTreeMap<String, String>, String>;

    /// A token of a service account for an audience.
    ///
    /// # Errors
    /// What the API server says.
    async fn token(&self, namespace: &str, name: &str, audience: &str) -> Result<Secret, String>;
}

/// What the process knows about its own cloud identity, from its environment.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `AZURE_CLIENT_ID`.
    pub azure_client: Option<String>,
    /// `AZURE_TENANT_ID`.
    pub azure_tenant: Option<String>,
    /// `AZURE_FEDERATED_TOKEN_FILE`.
    pub azure_token_file: Option<PathBuf>,
    /// `AZURE_AUTHORITY_HOST`.
    pub azure_authority: Option<Url>,
    /// `GOOGLE_APPLICATION_CREDENTIALS`.
    pub google_credentials: Option<PathBuf>,
    /// The metadata service of Azure machines, in the place of the public address.
    pub azure_metadata: Option<Url>,
    /// The metadata service of Google machines (`GCE_METADATA_HOST`).
    pub google_metadata: Option<Url>,
    /// The token exchange of Google, in the place of the public one.
    pub google_exchange: Option<Url>,
    /// The impersonation service of Google, in the place of the public one.
    pub google_credentials_api: Option<Url>,
    /// `--default-service-account`, used for Providers without one of their own.
    pub default_service_account: String,
}

/// Gets access tokens.
pub struct Identities {
    environment: Environment,
    accounts: Option<Arc<dyn ServiceAccounts>>,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
    /// For metadata services of the machine, which are not reached through a proxy.
    metadata: reqwest::Client,
}

impl Identities {
    /// Identities of this process and, if given, of service accounts.
    ///
    /// # Errors
    /// The TLS set-up of the machine is broken.
    pub fn new(
        environment: Environment,
        accounts: Option<Arc<dyn ServiceAccounts>>,
        tokens: Tokens,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClientError> {
        // An error means that a provider is installed, which is all we need.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let metadata = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .tls_certs_only([])
            .build()
            .map_err(|_| ClientError::Tls)?;
        Ok(Self { environment, accounts, tokens, clock, metadata })
    }

    /// The access token a job needs.
    pub(crate) async fn access(
        &self,
        clients: &Clients,
        job: &Job,
        need: Need,
    ) -> Result<Access, IdentityError> {
        let target = &job.target;
        let now = self.clock.now();
        let key = self.cache_key(job, need);
        if let Some(access) = self.tokens.get(key, &target.namespace, &target.name, now) {
            return Ok(access);
        }
        let client = client_for(clients, &target.token_connection)?;
        let (access, lifetime) = match need {
            Need::GithubApp => github_app::token(self, &client, job).await?,
            Need::Azure(scope) => azure::token(self, &client, job, scope).await?,
            Need::Google => google::token(self, &client, job).await?,
        };
        self.tokens.put(key, access.clone(), now, lifetime);
        Ok(access)
    }

    /// What makes a token another one: the Provider, its credentials and what the token is for.
    fn cache_key(&self, job: &Job, need: Need) -> [u8; 32] {
        let target = &job.target;
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(format!("{need:?} {}", target.kind).as_bytes());
        for text in [&target.namespace, &target.name, &target.uid, &target.service_account] {
            part(text.as_bytes());
        }
        part(self.environment.default_service_account.as_bytes());
        part(target.token.expose().as_bytes());
        for (name, value) in target.data.iter().filter(|(name, _)| name.starts_with("githubApp")) {
            part(name.as_bytes());
            part(value);
        }
        hash.finalize().into()
    }

    /// The service account whose identity a Provider uses, if not that of this process.
    fn account<'a>(&'a self, job: &'a Job) -> Option<&'a str> {
        [job.target.service_account.as_str(), self.environment.default_service_account.as_str()]
            .into_iter()
            .find(|name| !name.is_empty())
    }

    async fn account_annotations(
        &self,
        job: &Job,
        name: &str,
    ) -> Result<BTreeMap<String, String>, IdentityError> {
        let accounts = self.accounts(job, name)?;
        accounts
            .annotations(&job.target.namespace, name)
            .await
            .map_err(|cause| account_error(job, name, cause))
    }

    async fn account_token(&self, job: &Job, name: &str, audience: &str) -> Result<Secret, IdentityError> {
        let accounts = self.accounts(job, name)?;
        let token = accounts.token(&job.target.namespace, name, audience).await;
        token.map_err(|cause| account_error(job, name, cause))
    }

    fn accounts(&self, job: &Job, name: &str) -> Result<&dyn ServiceAccounts, IdentityError> {
        self.accounts
            .as_deref()
            .ok_or_else(|| account_error(job, name, "service accounts are not available".into()))
    }
}

fn account_error(job: &Job, name: &str, cause: String) -> IdentityError {
    IdentityError::ServiceAccount { account: format!("{}/{name}", job.target.namespace), cause }
}

/// Sends a request to an identity service; the JSON of its answer.
async fn ask(service: &'static str, request: reqwest::RequestBuilder) -> Result<Value, IdentityError> {
    let (status, body) = exchange(service, request).await?;
    if !(200..300).contains(&status) {
        return Err(IdentityError::Refused { service, status, answer: explanation(&body) });
    }
    serde_json::from_slice(&body).map_err(|_| IdentityError::Unexpected(service))
}

async fn exchange(
    service: &'static str,
    request: reqwest::RequestBuilder,
) -> Result<(u16, Vec<u8>), IdentityError> {
    let transport = |error: reqwest::Error| IdentityError::Transport {
        service,
        cause: crate::delivery::describe(&error),
    };
    let mut response = request.timeout(REQUEST_TIMEOUT).send().await.map_err(transport)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(transport)? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(IdentityError::Unexpected(service));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((response.status().as_u16(), body))
}

/// The part of a refusal that is meant for people; nothing else of an answer is shown.
fn explanation(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let found = text("/error_description")
        .or_else(|| text("/error/message"))
        .or_else(|| text("/message"))
        .or_else(|| text("/error"));
    weir_base::error::truncate(found.unwrap_or("the service gives no reason"), 512)
}

/// A form as the body of a request.
fn form(request: reqwest::RequestBuilder, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    request.header("Content-Type", "application/x-www-form-urlencoded").body(body)
}

/// The token and its lifetime in an answer of an OAuth 2 service.
fn oauth(service: &'static str, answer: &Value) -> Result<(Access, Duration), IdentityError> {
    let token = answer.get("access_token").and_then(Value::as_str);
    let token = token.ok_or(IdentityError::Unexpected(service))?;
    // Some services write the number as a string.
    let lifetime = answer.get("expires_in");
    let lifetime = lifetime.and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
    let access = Access { token: Secret::new(token), app_slug: None };
    Ok((access, Duration::from_secs(lifetime.unwrap_or_default())))
}
