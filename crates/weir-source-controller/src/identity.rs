//! Identities of clouds: those of this process, and those of service accounts of the cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use weir_api::common::RegistryProvider;
use weir_base::clock::Clock;
use weir_base::redact::Secret;
use weir_cloud::aws::{self, AwsCredentials};
use weir_cloud::azure::{self, AzureCredentials};
use weir_cloud::gcp::{self, Federation};
use weir_cloud::github::GitHubApp;
use weir_cloud::registry::{self, AwsRegistry};
use weir_cloud::{AccessToken, CloudError, Environment, InvalidCredentials, Requests};

const AWS_ROLE: &str = "eks.amazonaws.com/role-arn";
const AWS_AUDIENCE: &str = "sts.amazonaws.com";
const GCP_ACCOUNT: &str = "iam.gke.io/gcp-service-account";
const GCP_PROVIDER: &str = "gcp.auth.fluxcd.io/workload-identity-provider";
const AZURE_CLIENT: &str = "azure.workload.identity/client-id";
const AZURE_TENANT: &str = "azure.workload.identity/tenant-id";
/// How long the token of a service account lasts, which is exchanged at once.
const TOKEN_SECONDS: i64 = 600;
/// A token is used for this share of its life.
const USED_LIFE_PERCENT: u32 = 80;
/// Temporary keys of AWS last at least a quarter of an hour.
const AWS_KEYS_LIFE: Duration = Duration::from_mins(10);

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The service account does not exist.
    #[error("serviceaccount '{0}' not found")]
    NoAccount(String),
    /// The service account cannot be read, or gives no token.
    #[error("failed to create kubernetes token for service account '{account}'")]
    Account {
        /// Its namespace and name.
        account: String,
        /// What the API server says.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server gave an empty token.
    #[error("the API server gave no token for service account '{0}'")]
    NoToken(String),
    /// The service account does not say whose identity it has.
    #[error("service account '{account}' has no annotation '{annotation}'")]
    NoAnnotation {
        /// Its namespace and name.
        account: String,
        /// What is missing.
        annotation: &'static str,
    },
    /// The cloud refuses.
    #[error(transparent)]
    Cloud(#[from] CloudError),
}

/// Whose identity is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Principal<'a> {
    /// The namespace of the object.
    pub(crate) namespace: &'a str,
    /// The service account the object names.
    pub(crate) account: Option<&'a str>,
    /// Whether only the identity of this process is meant.
    pub(crate) is_process: bool,
}

impl<'a> Principal<'a> {
    /// An object that may name a service account.
    pub(crate) fn object(namespace: &'a str, account: Option<&'a str>) -> Self {
        Self { namespace, account: account.filter(|name| !name.is_empty()), is_process: false }
    }

    /// This process, whatever the default service account is.
    pub(crate) fn process() -> Self {
        Self { namespace: "", account: None, is_process: true }
    }
}

/// What may be asked for, and where.
#[derive(Debug, Clone, Default)]
pub struct IdentityOptions {
    /// Whether objects may name service accounts.
    pub per_object: bool,
    /// The service account of objects that name none; empty for none.
    pub default_account: String,
    /// Tokens that are kept; 0 for none.
    pub cached_max: usize,
    /// How long they are kept at most.
    pub cached_for: Duration,
    /// What the environment says.
    pub environment: Environment,
    /// Where tokens for Google Cloud are exchanged.
    pub gcp: Federation,
}

/// Gives credentials of clouds and keeps them until most of their life is over.
pub struct Identities {
    client: kube::Client,
    clock: Arc<dyn Clock>,
    options: IdentityOptions,
    cached: Mutex<HashMap<String, (Cached, Timestamp)>>,
}

#[derive(Clone)]
enum Cached {
    Keys(AwsCredentials),
    Token(AccessToken),
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Identities").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Identities {
    /// Gives identities through a client of the API server.
    pub fn new(client: kube::Client, clock: Arc<dyn Clock>, options: IdentityOptions) -> Self {
        Self { client, clock, options, cached: Mutex::default() }
    }

    /// Whether objects may name service accounts.
    pub(crate) fn allows_accounts(&self) -> bool {
        self.options.per_object
    }

    /// The environment identities come from.
    pub(crate) fn environment(&self) -> &Environment {
        &self.options.environment
    }

    /// The service account to use, if not the identity of this process.
    fn account_of<'a>(&'a self, principal: Principal<'a>) -> Option<&'a str> {
        let account = principal.account.unwrap_or(&self.options.default_account);
        (self.options.per_object && !principal.is_process && !account.is_empty()).then_some(account)
    }

    /// Keys for AWS.
    pub(crate) async fn aws(
        &self,
        principal: Principal<'_>,
        requests: &Requests,
        token_endpoint: Option<&str>,
        region: &str,
    ) -> Result<AwsCredentials, IdentityError> {
        let account = self.account_of(principal);
        let key = self.key("aws", principal, &[token_endpoint.unwrap_or_default(), region]);
        if let Some(Cached::Keys(keys)) = self.kept(&key) {
            return Ok(keys);
        }
        let keys = match account {
            None => {
                aws::ambient_credentials(requests, &self.options.environment, token_endpoint, region).await?
            }
            Some(name) => {
                let account = self.find(principal.namespace, name).await?;
                let role = annotation(&account, AWS_ROLE)?;
                let token = self.account_token(principal.namespace, name, AWS_AUDIENCE).await?;
                let endpoint = token_endpoint.map_or_else(|| aws::token_service(region), str::to_owned);
                let session = format!("{name}.{}", principal.namespace);
                let session: String = session.chars().take(64).collect();
                aws::assume_role_with_web_identity(requests, &endpoint, &role, &session, &token)
                    .await
                    .map_err(|source| CloudError::Http {
                        what: "failed to assume the role of the service account",
                        source,
                    })?
            }
        };
        let until = self.clock.now().checked_add(AWS_KEYS_LIFE).ok();
        self.keep(key, Cached::Keys(keys.clone()), until);
        Ok(keys)
    }

    /// A token for Google Cloud.
    pub(crate) async fn gcp(
        &self,
        principal: Principal<'_>,
        requests: &Requests,
        scopes: &str,
    ) -> Result<AccessToken, IdentityError> {
        let key = self.key("gcp", principal, &[scopes]);
        if let Some(Cached::Token(token)) = self.kept(&key) {
            return Ok(token);
        }
        let now = self.clock.now();
        let token = match self.account_of(principal) {
            None => gcp::ambient_token(requests, &self.options.environment, scopes, now).await?,
            Some(name) => {
                let account = self.find(principal.namespace, name).await?;
                let provider = annotation(&account, GCP_PROVIDER)?;
                let audience = format!("//iam.googleapis.com/{provider}");
                let own = self.account_token(principal.namespace, name, &audience).await?;
                let target = annotation(&account, GCP_ACCOUNT).ok();
                gcp::federated_token(requests, &self.options.gcp, &audience, &own, target.as_deref(), now)
                    .await?
            }
        };
        self.keep(key, Cached::Token(token.clone()), used_until(&token, now));
        Ok(token)
    }

    /// A token for a resource of Azure.
    pub(crate) async fn azure(
        &self,
        principal: Principal<'_>,
        requests: &Requests,
        resource: &str,
    ) -> Result<AccessToken, IdentityError> {
        let key = self.key("azure", principal, &[resource]);
        if let Some(Cached::Token(token)) = self.kept(&key) {
            return Ok(token);
        }
        let now = self.clock.now();
        let environment = &self.options.environment;
        let credentials = match self.account_of(principal) {
            None => AzureCredentials::ambient(environment).await?,
            Some(name) => {
                let account = self.find(principal.namespace, name).await?;
                let (client, tenant) =
                    (annotation(&account, AZURE_CLIENT)?, annotation(&account, AZURE_TENANT)?);
                let own = self.account_token(principal.namespace, name, azure::EXCHANGE_AUDIENCE).await?;
                AzureCredentials::federated(environment.get("AZURE_AUTHORITY_HOST"), &tenant, &client, own)
            }
        };
        let metadata = environment.get("AZURE_POD_IDENTITY_AUTHORITY_HOST");
        let token = credentials.token(requests, resource, metadata, now).await?;
        self.keep(key, Cached::Token(token.clone()), used_until(&token, now));
        Ok(token)
    }

    /// A token of an installation of a GitHub App. `data` is what the App is made of; it is kept as a digest alone.
    pub(crate) async fn github(
        &self,
        app: &GitHubApp,
        data: &str,
        requests: &Requests,
    ) -> Result<AccessToken, IdentityError> {
        let key = format!("github\n{}", aws::hex_digest(data));
        if let Some(Cached::Token(token)) = self.kept(&key) {
            return Ok(token);
        }
        let now = self.clock.now();
        let token = app.token(requests, now).await?;
        self.keep(key, Cached::Token(token.clone()), used_until(&token, now));
        Ok(token)
    }

    /// The user and the password for a repository of AWS; `None` if the URL is not one of these.
    pub(crate) async fn code_commit(
        &self,
        principal: Principal<'_>,
        requests: &Requests,
        url: &url::Url,
    ) -> Result<Option<(String, Secret)>, IdentityError> {
        let Some(region) = aws::code_commit_region(url) else { return Ok(None) };
        let keys = self.aws(principal, requests, None, region).await?;
        Ok(aws::code_commit_login(&keys, url, self.clock.now()))
    }

    /// A user and a password for a registry of a cloud; `None` without a cloud.
    pub(crate) async fn registry(
        &self,
        provider: RegistryProvider,
        principal: Principal<'_>,
        requests: &Requests,
        host: &str,
    ) -> Result<Option<(String, Secret)>, IdentityError> {
        let foreign = |cloud: &str| {
            let text = format!("'{host}' is not a registry of {cloud}");
            IdentityError::Cloud(InvalidCredentials(text).into())
        };
        let login = match provider {
            RegistryProvider::Generic => return Ok(None),
            RegistryProvider::Aws => {
                let registry = AwsRegistry::at(host).ok_or_else(|| foreign("AWS"))?;
                let keys = self.aws(principal, requests, None, registry.region()).await?;
                registry.login(requests, &keys, None, self.clock.now()).await?
            }
            RegistryProvider::Azure => {
                let token = self.azure(principal, requests, azure::MANAGEMENT_RESOURCE).await?;
                registry::azure_login(requests, host, &token.secret, None).await?
            }
            RegistryProvider::Gcp => {
                if !registry::is_gcp(host) {
                    return Err(foreign("Google Cloud"));
                }
                let token = self.gcp(principal, requests, gcp::PLATFORM_SCOPE).await?;
                (registry::GCP_USER.to_owned(), token.secret)
            }
        };
        Ok(Some(login))
    }

    async fn find(&self, namespace: &str, name: &str) -> Result<ServiceAccount, IdentityError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let shown = format!("{namespace}/{name}");
        match api.get_opt(name).await {
            Ok(Some(account)) => Ok(account),
            Ok(None) => Err(IdentityError::NoAccount(shown)),
            Err(source) => Err(IdentityError::Account { account: shown, source: Box::new(source) }),
        }
    }

    async fn account_token(
        &self,
        namespace: &str,
        name: &str,
        audience: &str,
    ) -> Result<Secret, IdentityError> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(vec![audience.to_owned()]),
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let account = format!("{namespace}/{name}");
        let answer =
            api.create_token_request(name, &PostParams::default(), &request).await.map_err(|source| {
                IdentityError::Account { account: account.clone(), source: Box::new(source) }
            })?;
        let token = answer.status.unwrap_or_default().token.filter(|token| !token.is_empty());
        token.map(Secret::new).ok_or(IdentityError::NoToken(account))
    }

    fn key(&self, cloud: &str, principal: Principal<'_>, parts: &[&str]) -> String {
        let owner = self.account_of(principal).map(|name| format!("{}/{name}", principal.namespace));
        format!("{cloud}\n{}\n{}", owner.unwrap_or_default(), parts.join("\n"))
    }

    fn kept(&self, key: &str) -> Option<Cached> {
        let now = self.clock.now();
        self.cached.lock().get(key).filter(|(_, until)| *until > now).map(|(cached, _)| cached.clone())
    }

    fn keep(&self, key: String, value: Cached, until: Option<Timestamp>) {
        let now = self.clock.now();
        let Some(until) = until.filter(|_| self.options.cached_max > 0) else { return };
        let latest = now.checked_add(self.options.cached_for).unwrap_or(until);
        let mut cached = self.cached.lock();
        cached.retain(|_, (_, until)| *until > now);
        if cached.len() >= self.options.cached_max
            && let Some(first) =
                cached.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone())
        {
            cached.remove(&first);
        }
        cached.insert(key, (value, until.min(latest)));
    }
}

fn annotation(account: &ServiceAccount, name: &'static str) -> Result<String, IdentityError> {
    let meta = &account.metadata;
    let found = meta.annotations.as_ref().and_then(|annotations| annotations.get(name));
    found.filter(|value| !value.is_empty()).cloned().ok_or_else(|| IdentityError::NoAnnotation {
        account: format!(
            "{}/{}",
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default()
        ),
        annotation: name,
    })
}

/// When most of the life of a token is over; `None` if it does not say how long it lasts.
fn used_until(token: &AccessToken, now: Timestamp) -> Option<Timestamp> {
    let life = Duration::try_from(token.expires_at?.duration_since(now)).ok()?;
    now.checked_add(life * USED_LIFE_PERCENT / 100).ok()
}
