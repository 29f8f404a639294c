//! The settings of a Provider with what its Secrets hold, checked and ready for use.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use url::Url;
use weir_api::notification::{ProviderSpec, ProviderType};
use weir_base::redact::{RedactedUrl, Secret};

/// The data of a Secret.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// How long a delivery may take, all retries included, if the Provider does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);
/// The longest address.
const ADDRESS_BYTES_MAX: usize = 2048;

/// Where events go: a Provider and its Secrets.
pub struct Target {
    /// The type of the Provider.
    pub kind: ProviderType,
    /// The namespace of the Provider.
    pub namespace: String,
    /// The name of the Provider.
    pub name: String,
    /// The unique id of the Provider.
    pub uid: String,
    /// The address, which often is a secret itself.
    pub address: Secret,
    /// The channel.
    pub channel: String,
    /// The user.
    pub username: String,
    /// The password of the user.
    pub password: Secret,
    /// The token.
    pub token: Secret,
    /// Headers of the Secret.
    pub headers: BTreeMap<String, Secret>,
    /// Everything in the Secret.
    pub data: SecretData,
    /// The service account whose identity is used.
    pub service_account: String,
    /// How long a delivery may take, all retries included.
    pub timeout: Duration,
    /// How the service is reached.
    pub connection: Connection,
    /// How identity services are reached.
    pub token_connection: Connection,
    /// Deprecated fields in use, to be named in the log.
    pub deprecated: Vec<&'static str>,
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Target({}/{} {})", self.namespace, self.name, self.kind.as_str())
    }
}

/// How a service is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connection {
    /// The proxy, in the place of the one of the environment.
    pub proxy: Option<RedactedUrl>,
    /// Certificates in PEM, in the place of the ones of the system.
    pub tls: Option<Tls>,
}

/// Certificates in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The authorities to trust, in the place of those of the system.
    pub authority: Option<Vec<u8>>,
    /// The client certificate chain and its key.
    pub client: Option<(Vec<u8>, Secret)>,
}

/// The Secrets a Provider refers to.
#[derive(Default)]
pub struct Secrets {
    /// Of `secretRef`.
    pub main: Option<SecretData>,
    /// Of `proxySecretRef`.
    pub proxy: Option<SecretData>,
    /// Of `certSecretRef`.
    pub certificates: Option<SecretData>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secrets")
    }
}

/// Why a Provider's Secrets cannot be used. No text shows a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The address in the Secret is too long.
    #[error("invalid address in secret: address exceeds maximum length of {ADDRESS_BYTES_MAX} bytes")]
    AddressLength,
    /// The deprecated proxy in the Secret is no URL.
    #[error("invalid 'proxy' in secret '{0}'")]
    Proxy(String),
    /// `headers` is no map of strings.
    #[error("failed to read headers from secret: {0}")]
    Headers(&'static str),
    /// A header that HTTP does not allow.
    #[error("failed to read headers from secret: '{0}' has a name or value that is not allowed in HTTP")]
    Header(String),
    /// The Secret of the proxy cannot be used.
    #[error("failed to get proxy URL: {0}")]
    ProxySecret(String),
    /// The certificates cannot be used.
    #[error("failed to get TLS config: {0}")]
    Tls(String),
    /// `spec.proxy` is no URL.
    #[error("unable to parse proxy URL")]
    SpecProxy,
}

/// Whether events become statuses of commits.
pub fn is_commit_status(kind: ProviderType) -> bool {
    use ProviderType::{Azuredevops, Bitbucket, Bitbucketserver, Gitea, Github, Gitlab};
    matches!(kind, Github | Gitlab | Gitea | Bitbucketserver | Bitbucket | Azuredevops)
}

/// Whether events become comments on pull or merge requests.
pub fn is_change_request(kind: ProviderType) -> bool {
    use ProviderType::{Giteapullrequestcomment, Githubpullrequestcomment, Gitlabmergerequestcomment};
    matches!(kind, Githubpullrequestcomment | Giteapullrequestcomment | Gitlabmergerequestcomment)
}

/// Whether events go to a webhook as they are.
pub fn is_generic(kind: ProviderType) -> bool {
    matches!(kind, ProviderType::Generic | ProviderType::GenericHmac)
}

/// Whether the type uses certificates of the Provider.
fn honours_tls(kind: ProviderType) -> bool {
    use ProviderType::{Azureeventhub, Discord, Googlechat, Googlepubsub, Lark, Nats, Telegram};
    !matches!(kind, Discord | Googlechat | Telegram | Lark | Nats | Googlepubsub | Azureeventhub)
}

/// Whether the address is that of github.com, for which no certificates are used.
fn is_public_github(kind: ProviderType, address: &str) -> bool {
    use ProviderType::{Github, Githubdispatch, Githubpullrequestcomment};
    matches!(kind, Github | Githubdispatch | Githubpullrequestcomment)
        && crate::git_address::GitAddress::parse(address)
            .is_ok_and(|address| address.service.host_str() == Some("github.com"))
}

/// Whether the identity of the controller itself may be used. The service that knows it is never trusted because of a
/// certificate authority that somebody's Provider brings along: a proxy of theirs could then take the identity.
fn takes_cloud_identities(kind: ProviderType) -> bool {
    matches!(kind, ProviderType::Azuredevops | ProviderType::Azureeventhub | ProviderType::Googlepubsub)
}

/// Whether messages go through the proxy of the Provider; for the others it is for tokens alone, or ignored.
fn honours_proxy(kind: ProviderType) -> bool {
    use ProviderType::{
        Azuredevops, Azureeventhub, Bitbucket, Bitbucketserver, Github, Githubdispatch,
        Githubpullrequestcomment, Gitlab, Gitlabmergerequestcomment, Googlepubsub, Lark, Matrix, Nats,
        Sentry,
    };
    let ignored = matches!(
        kind,
        Sentry | Lark | Matrix | Nats | Bitbucket | Bitbucketserver | Gitlab | Gitlabmergerequestcomment
    );
    let tokens_alone = matches!(
        kind,
        Azuredevops | Azureeventhub | Github | Githubdispatch | Githubpullrequestcomment | Googlepubsub
    );
    !ignored && !tokens_alone
}

impl Target {
    /// The settings of a Provider.
    ///
    /// # Errors
    /// A Secret cannot be used; see [`TargetError`].
    pub fn new(
        [namespace, name, uid]: [&str; 3],
        spec: &ProviderSpec,
        secrets: &Secrets,
    ) -> Result<Self, TargetError> {
        let kind = spec.type_;
        let mut target = Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            address: Secret::new(spec.address.as_deref().unwrap_or_default()),
            channel: spec.channel.clone().unwrap_or_default(),
            username: spec.username.clone().unwrap_or_default(),
            password: Secret::new(""),
            token: Secret::new(""),
            headers: BTreeMap::new(),
            data: SecretData::new(),
            service_account: spec.service_account_name.clone().unwrap_or_default(),
            timeout: spec.timeout.map_or(TIMEOUT_DEFAULT, weir_api::GoDuration::to_std),
            connection: Connection::default(),
            token_connection: Connection::default(),
            deprecated: Vec::new(),
        };
        let mut proxy = None;
        if let Some(address) = spec.proxy.as_deref().filter(|address| !address.is_empty()) {
            target
                .deprecated
                .push("warning: spec.proxy is deprecated, please use spec.proxySecretRef instead");
            proxy = Some(RedactedUrl::parse(address).map_err(|_| TargetError::SpecProxy)?);
        }
        if let Some(data) = &secrets.main {
            proxy = target.read(data)?.or(proxy);
        }
        if let Some(data) = &secrets.proxy {
            proxy = Some(proxy_of(data)?);
        }
        let authorization = secrets.main.as_ref().map(Authorization::read);
        if let Some(data) = &secrets.certificates {
            target.connection.tls = Some(tls_of(data)?.ok_or_else(|| {
                TargetError::Tls("the secret has neither 'ca.crt' nor 'tls.crt' and 'tls.key'".to_owned())
            })?);
        } else if is_commit_status(kind)
            && let Some(authorization) = &authorization
        {
            let authorization = authorization.as_ref().map_err(|error| TargetError::Tls(error.clone()))?;
            target.connection.tls.clone_from(&authorization.tls);
        }
        if let Some(Ok(authorization)) = authorization {
            target.token = authorization.token;
            if let Some((username, password)) = authorization.login {
                target.username = username;
                target.password = password;
            }
        }
        let tls = target.connection.tls.clone().filter(|_| !takes_cloud_identities(kind));
        target.token_connection = Connection { proxy: proxy.clone(), tls };
        if !honours_tls(kind) || is_public_github(kind, target.address.expose()) {
            target.connection.tls = None;
        }
        if honours_proxy(kind) {
            target.connection.proxy = proxy;
        }
        Ok(target)
    }

    /// Takes what is not a credential from the Secret; the deprecated proxy in it.
    fn read(&mut self, data: &SecretData) -> Result<Option<RedactedUrl>, TargetError> {
        self.data = data.clone();
        if let Some(address) = data.get("address") {
            if address.len() > ADDRESS_BYTES_MAX {
                return Err(TargetError::AddressLength);
            }
            self.address = Secret::new(String::from_utf8_lossy(address).trim());
        }
        if let Some(headers) = data.get("headers") {
            self.headers = headers_of(headers)?;
        }
        let Some(proxy) = data.get("proxy") else { return Ok(None) };
        self.deprecated.push(
            "warning: specifying proxy with 'proxy' key in the referenced secret is deprecated, use spec.proxySecretRef with 'address' key instead",
        );
        let proxy = String::from_utf8_lossy(proxy);
        let invalid = || TargetError::Proxy(format!("{}/{}", self.namespace, self.name));
        RedactedUrl::parse(proxy.trim()).map(Some).map_err(|_| invalid())
    }

    /// The token, or the password where types take it instead.
    pub(crate) fn token_or_password(&self) -> &Secret {
        if self.token.expose().is_empty() { &self.password } else { &self.token }
    }

    /// `text` without the credentials of this target.
    pub fn redact(&self, text: &str) -> String {
        let mut text = weir_base::redact::hide_passwords(text).into_owned();
        let mut hide = |secret: &str| {
            let secret = secret.trim();
            // Short ones would take words apart and give away more than they hide.
            if secret.len() >= 4 && text.contains(secret) {
                text = text.replace(secret, "*****");
            }
        };
        hide(self.token.expose());
        hide(self.password.expose());
        for header in self.headers.values() {
            hide(header.expose());
        }
        if self.data.contains_key("address") {
            hide(self.address.expose());
            if let Ok(url) = Url::parse(self.address.expose()) {
                hide(&url[url::Position::BeforePath..]);
            }
        }
        for key in ["creds", "nkey", "githubAppPrivateKey"] {
            if let Some(value) = self.data.get(key).and_then(|value| std::str::from_utf8(value).ok()) {
                hide(value);
            }
        }
        text
    }
}

/// What authenticates, read in one go: if any part is malformed, none is used.
struct Authorization {
    token: Secret,
    login: Option<(String, Secret)>,
    tls: Option<Tls>,
}

impl Authorization {
    fn read(data: &SecretData) -> Result<Self, String> {
        let text = |key: &str| data.get(key).map(|value| String::from_utf8_lossy(value).into_owned());
        let given = |key: &str| data.contains_key(key);
        let login = match (text("username"), text("password")) {
            (Some(username), Some(password)) => Some((username, Secret::new(password))),
            (Some(_), None) => {
                return Err("malformed basic auth - has 'username' but missing 'password'".to_owned());
            }
            (None, Some(_)) => {
                return Err("malformed basic auth - has 'password' but missing 'username'".to_owned());
            }
            (None, None) => None,
        };
        if given("githubAppID") {
            for key in ["githubAppPrivateKey"] {
                if !given(key) {
                    return Err(format!("malformed GitHub App - missing '{key}'"));
                }
            }
            let owner = given("githubAppInstallationOwner") || given("githubAppInstallationID");
            if !owner {
                return Err(
                    "malformed GitHub App - missing 'githubAppInstallationOwner' or 'githubAppInstallationID'"
                        .to_owned(),
                );
            }
        }
        let tls = tls_of(data).map_err(|error| match error {
            TargetError::Tls(message) => message,
            other => other.to_string(),
        })?;
        Ok(Self { token: Secret::new(text("token").unwrap_or_default()), login, tls })
    }
}

/// The headers in YAML. Names and values are those HTTP allows.
fn headers_of(yaml: &[u8]) -> Result<BTreeMap<String, Secret>, TargetError> {
    let value = weir_manifest::read_first_document(yaml, "", weir_manifest::ReadOptions::default())
        .map_err(|_| TargetError::Headers("not YAML"))?;
    let map = match value {
        serde_json::Value::Null => return Ok(BTreeMap::new()),
        serde_json::Value::Object(map) => map,
        _ => return Err(TargetError::Headers("not a map")),
    };
    let mut headers = BTreeMap::new();
    for (name, value) in map {
        let value = match value {
            serde_json::Value::String(value) => value,
            serde_json::Value::Null => String::new(),
            _ => return Err(TargetError::Headers("a value is not a string")),
        };
        let allowed = reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
            && reqwest::header::HeaderValue::from_str(&value).is_ok();
        if !allowed {
            return Err(TargetError::Header(name));
        }
        headers.insert(name, Secret::new(value));
    }
    Ok(headers)
}

fn proxy_of(data: &SecretData) -> Result<RedactedUrl, TargetError> {
    let failed = |message: &str| TargetError::ProxySecret(message.to_owned());
    let text = |key: &str| data.get(key).map(|value| String::from_utf8_lossy(value).into_owned());
    let address = text("address")
        .filter(|address| !address.is_empty())
        .ok_or_else(|| failed("key 'address' not found"))?;
    if address.len() > ADDRESS_BYTES_MAX {
        return Err(failed("the address exceeds the maximum length of 2048 bytes"));
    }
    let mut url = Url::parse(&address).map_err(|_| failed("the address is no URL"))?;
    if !matches!(url.scheme(), "http" | "https" | "socks5") || url.host_str().is_none() {
        return Err(failed("the scheme of the address must be http, https or socks5"));
    }
    if let Some(username) = text("username").filter(|username| !username.is_empty()) {
        let unusable = |()| failed("the address cannot carry a user");
        url.set_username(&username).map_err(unusable)?;
        url.set_password(text("password").as_deref()).map_err(unusable)?;
    }
    Ok(RedactedUrl::from(url))
}

/// The certificates in a Secret; the keys of TLS Secrets win over the ones used before.
fn tls_of(data: &SecretData) -> Result<Option<Tls>, TargetError> {
    let either = |key: &str, legacy: &str| {
        data.get(key).or_else(|| data.get(legacy)).filter(|value| !value.is_empty())
    };
    let authority = either("ca.crt", "caFile");
    let (certificate, key) = (either("tls.crt", "certFile"), either("tls.key", "keyFile"));
    let failed = |message: &str| TargetError::Tls(message.to_owned());
    if let Some(pem) = authority {
        let usable = reqwest::Certificate::from_pem_bundle(pem).is_ok_and(|found| !found.is_empty());
        if !usable {
            return Err(failed("failed to parse CA certificate"));
        }
    }
    let client = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let key = String::from_utf8_lossy(key).into_owned();
            Some((certificate.clone(), Secret::new(key)))
        }
        (None, None) => None,
        (Some(_), None) => return Err(failed("the secret has 'tls.crt' but not 'tls.key'")),
        (None, Some(_)) => return Err(failed("the secret has 'tls.key' but not 'tls.crt'")),
    };
    if let Some((certificate, key)) = &client {
        crate::delivery::identity(certificate, key)
            .map_err(|_| failed("failed to parse TLS certificate and key"))?;
    }
    let tls = Tls { authority: authority.cloned(), client };
    Ok((tls.authority.is_some() || tls.client.is_some()).then_some(tls))
}
