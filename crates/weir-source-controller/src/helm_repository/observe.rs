//! What is read before anything is decided: the Secrets of a HelmRepository.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use weir_api::common::RegistryProvider;
use weir_api::source::HelmRepository;
use weir_base::redact::Secret as Hidden;
use weir_source::bucket;
use weir_source::connection::ConnectionError;
use weir_source::helm;
use weir_source::oci::{self, Keychain, KeychainError};

use crate::identity::{Identities, IdentityError, Principal};
use crate::source::secrets::{self, CertificateError, Certificates, Data, SecretError};

/// The time of a request where the object does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_mins(1);
const DOCKER_CONFIG: &str = ".dockerconfigjson";
const DOCKER_CONFIG_TYPE: &str = "kubernetes.io/dockerconfigjson";

/// Why the Secrets of a HelmRepository cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The certificate Secret cannot be read.
    #[error("failed to get TLS authentication secret '{secret}'")]
    TlsSecret {
        /// Its namespace and name.
        secret: String,
        /// What the API server says.
        #[source]
        source: Box<kube::Error>,
    },
    /// The certificates are broken.
    #[error("failed to construct Helm client's TLS config")]
    Tls(#[source] CertificateError),
    /// The login Secret cannot be read.
    #[error("failed to get authentication secret '{secret}'")]
    LoginSecret {
        /// Its namespace and name.
        secret: String,
        /// What the API server says.
        #[source]
        source: Box<kube::Error>,
    },
    /// A Secret cannot be read, for another cause.
    #[error(transparent)]
    Secret(SecretError),
    /// The login is broken.
    #[error("failed to detect authentication methods")]
    Login(#[source] SecretError),
    /// There is no login for the registry.
    #[error(
        "failed to configure login options: no auth config for '{registry}' in the docker-registry Secret '{name}'"
    )]
    NoRegistry {
        /// The registry.
        registry: String,
        /// The Secret.
        name: String,
    },
    /// The login for registries is broken.
    #[error("failed to configure login options")]
    DockerConfig(#[source] KeychainError),
    /// The identity of a cloud is asked for.
    #[error("failed to get credential from '{provider}'")]
    Provider {
        /// The cloud.
        provider: String,
        /// Why not.
        #[source]
        source: Box<IdentityError>,
    },
    /// The client that asks the cloud cannot be built.
    #[error("failed to get credential from '{provider}'")]
    Client {
        /// The cloud.
        provider: String,
        /// Why not.
        #[source]
        source: ConnectionError,
    },
}

/// How to reach a repository on a web server.
pub(crate) struct HttpAccess {
    pub(crate) http: helm::Access,
    /// Whether certificates came from where they should not.
    pub(crate) deprecated: bool,
}

/// How to reach the repository of an object.
pub(crate) async fn access(
    client: &kube::Client,
    object: &HelmRepository,
) -> Result<HttpAccess, AccessError> {
    let mut certificates = certificates(client, object).await?;
    let mut deprecated = false;
    let mut login = None;
    if let Some((secret, name)) = login_secret(client, object).await? {
        let (namespace, data) = (namespace_of(object), secrets::data_of(secret));
        login = secrets::basic_auth(&data, namespace, &name).map_err(AccessError::Login)?;
        if certificates.is_none() {
            certificates =
                secrets::optional_certificates(&data, namespace, &name).map_err(AccessError::Tls)?;
            deprecated = certificates.is_some();
        }
    }
    let certificates = certificates.unwrap_or_default();
    let http = helm::Access {
        login,
        pass_credentials: object.spec.pass_credentials,
        certificate_authority: certificates.authority,
        client_certificate: certificates.client,
        timeout: timeout(object),
    };
    Ok(HttpAccess { http, deprecated })
}

/// How to reach the registry of an object.
pub(crate) async fn oci_access(
    client: &kube::Client,
    identities: &Identities,
    object: &HelmRepository,
    registry: &str,
) -> Result<oci::Access, AccessError> {
    let certificates = certificates(client, object).await?.unwrap_or_default();
    let mut keychain = Keychain::default();
    if let Some((secret, name)) = login_secret(client, object).await? {
        let is_config = secret.type_.as_deref() == Some(DOCKER_CONFIG_TYPE);
        let data = secrets::data_of(secret);
        add_login(&mut keychain, &data, is_config, registry, namespace_of(object), &name)?;
    } else {
        Box::pin(add_cloud_login(identities, object, registry, &mut keychain)).await?;
    }
    Ok(oci::Access {
        keychain,
        certificate_authority: certificates.authority,
        client_certificate: certificates.client,
        plain_http: object.spec.insecure,
        ..oci::Access::default()
    })
}

/// The login the cloud gives this process.
async fn add_cloud_login(
    identities: &Identities,
    object: &HelmRepository,
    registry: &str,
    keychain: &mut Keychain,
) -> Result<(), AccessError> {
    let (cloud, provider) = (object.spec.provider, || object.spec.provider.to_string());
    if cloud == RegistryProvider::Generic {
        return Ok(());
    }
    let requests = bucket::Access::default()
        .requests()
        .map_err(|source| AccessError::Client { provider: provider(), source })?;
    let login = identities.registry(cloud, Principal::process(), &requests, registry).await;
    let login =
        login.map_err(|source| AccessError::Provider { provider: provider(), source: Box::new(source) })?;
    if let Some((user, password)) = login {
        keychain.add_login(registry, user, password);
    }
    Ok(())
}

fn add_login(
    keychain: &mut Keychain,
    data: &Data,
    is_config: bool,
    registry: &str,
    namespace: &str,
    name: &str,
) -> Result<(), AccessError> {
    if is_config {
        let config = data.get(DOCKER_CONFIG).map(Vec::as_slice).unwrap_or_default();
        keychain.add_config(config).map_err(AccessError::DockerConfig)?;
        if !keychain.knows(registry) {
            let (registry, name) = (registry.to_owned(), name.to_owned());
            return Err(AccessError::NoRegistry { registry, name });
        }
        return Ok(());
    }
    let login: Option<(String, Hidden)> =
        secrets::basic_auth(data, namespace, name).map_err(AccessError::Login)?;
    if let Some((user, password)) = login {
        keychain.add_login(registry, user, password);
    }
    Ok(())
}

pub(crate) fn timeout(object: &HelmRepository) -> Duration {
    object.spec.timeout.map_or(TIMEOUT_DEFAULT, weir_api::GoDuration::to_std)
}

fn namespace_of(object: &HelmRepository) -> &str {
    object.metadata.namespace.as_deref().unwrap_or_default()
}

async fn certificates(
    client: &kube::Client,
    object: &HelmRepository,
) -> Result<Option<Certificates>, AccessError> {
    let Some(reference) = &object.spec.cert_secret_ref else { return Ok(None) };
    let (namespace, name) = (namespace_of(object), &reference.name);
    let secret = secrets::get(client, namespace, name).await.map_err(|error| match error {
        SecretError::Get { source, .. } => {
            AccessError::TlsSecret { secret: format!("{namespace}/{name}"), source }
        }
        error => AccessError::Secret(error),
    })?;
    secrets::certificates(&secrets::data_of(secret), namespace, name).map(Some).map_err(AccessError::Tls)
}

async fn login_secret(
    client: &kube::Client,
    object: &HelmRepository,
) -> Result<Option<(Secret, String)>, AccessError> {
    let Some(reference) = &object.spec.secret_ref else { return Ok(None) };
    let (namespace, name) = (namespace_of(object), reference.name.clone());
    match secrets::get(client, namespace, &name).await {
        Ok(secret) => Ok(Some((secret, name))),
        Err(SecretError::Get { source, .. }) => {
            Err(AccessError::LoginSecret { secret: format!("{namespace}/{name}"), source })
        }
        Err(error) => Err(AccessError::Secret(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(entries: &[(&str, &str)]) -> Data {
        entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn logins_of_registries() {
        let login = |entries: &[(&str, &str)], is_config| {
            let mut keychain = Keychain::default();
            add_login(&mut keychain, &data(entries), is_config, "example.com:5000", "apps", "login")
                .map(|()| keychain.knows("example.com:5000"))
                .map_err(|error| weir_base::error::chain(&error))
        };
        assert_eq!(login(&[("username", "u"), ("password", "p")], false), Ok(true));
        assert_eq!(login(&[], false), Ok(false));
        let config = [(DOCKER_CONFIG, "{\"auths\": {\"example.com:5000\": {\"auth\": \"dTpw\"}}}")];
        assert_eq!(login(&config, true), Ok(true));
        let config = [(DOCKER_CONFIG, "{\"auths\": {\"example.org\": {\"auth\": \"dTpw\"}}}")];
        assert_eq!(
            login(&config, true).unwrap_err(),
            "failed to configure login options: no auth config for 'example.com:5000' in the docker-registry \
             Secret 'login'"
        );
        assert_eq!(
            login(&[("password", "p")], false).unwrap_err(),
            "failed to detect authentication methods: secret 'apps/login': malformed basic auth - has 'password' \
             but missing 'username'"
        );
    }
}
