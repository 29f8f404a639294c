//! What is read before anything is decided: Secrets and the ServiceAccount.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use weir_api::common::RegistryProvider;
use weir_api::source::OCIRepository;
use weir_source::bucket;
use weir_source::connection::Proxy;
use weir_source::oci::{Access, Keychain, OciError, Repository};

use super::error::{CredentialError, Error};
use crate::identity::{Identities, Principal};
use crate::source::secrets::{self, Data};

/// How to reach the registry.
pub(super) async fn access(
    client: &kube::Client,
    identities: &Identities,
    object: &OCIRepository,
) -> Result<Access, Error> {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let mut keychain = keychain(client, object, &namespace).await.map_err(Error::Credential)?;
    let proxy = match &object.spec.proxy_secret_ref {
        Some(reference) => {
            Some(secrets::proxy(client, &namespace, &reference.name).await.map_err(Error::Proxy)?)
        }
        None => None,
    };
    if keychain.is_empty() {
        Box::pin(add_cloud_login(identities, object, &namespace, proxy.clone(), &mut keychain)).await?;
    }
    let mut access = Access { keychain, proxy, insecure: object.spec.insecure, ..Access::default() };
    if let Some(reference) = &object.spec.cert_secret_ref {
        let failed = |source| Error::Certificate { url: object.spec.url.clone(), source };
        let data =
            secrets::find(client, &namespace, &reference.name).await.map_err(|error| failed(error.into()))?;
        let certificates = secrets::certificates(&data, &namespace, &reference.name).map_err(failed)?;
        access.certificate_authority = certificates.authority;
        access.client_certificate = certificates.client;
    }
    Ok(access)
}

/// The login of a cloud, where there are no pull Secrets.
async fn add_cloud_login(
    identities: &Identities,
    object: &OCIRepository,
    namespace: &str,
    proxy: Option<Proxy>,
    keychain: &mut Keychain,
) -> Result<(), Error> {
    let provider = object.spec.provider;
    // An URL that is none is told as such later.
    let Ok(repository) = Repository::parse(&object.spec.url) else { return Ok(()) };
    if provider == RegistryProvider::Generic {
        return Ok(());
    }
    let principal = Principal::object(namespace, object.spec.service_account_name.as_deref());
    if principal.account.is_some() && !identities.allows_accounts() {
        return Err(Error::FeatureGate);
    }
    let transport = |source| Error::Transport { url: object.spec.url.clone(), source };
    let access = bucket::Access { proxy, ..bucket::Access::default() };
    let requests = access.requests().map_err(|error| transport(OciError::Connection(error)))?;
    let login = identities.registry(provider, principal, &requests, &repository.registry);
    let login = tokio::time::timeout(object.spec.timeout.to_std(), login);
    let login =
        login.await.map_err(|_| transport(OciError::DeadlineExceeded(object.spec.timeout.to_std())))?;
    let login = login.map_err(|source| Error::Provider { provider: provider.to_string(), source })?;
    if let Some((user, password)) = login {
        keychain.add_login(&repository.registry, user, password);
    }
    Ok(())
}

async fn keychain(
    client: &kube::Client,
    object: &OCIRepository,
    namespace: &str,
) -> Result<Keychain, CredentialError> {
    let mut names = Vec::new();
    if let Some(reference) = &object.spec.secret_ref {
        names.push(reference.name.clone());
    }
    if let Some(name) = object.spec.service_account_name.as_deref().filter(|name| !name.is_empty()) {
        let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        match api.get_opt(&name).await {
            Ok(Some(account)) => {
                let references = account.image_pull_secrets.unwrap_or_default();
                names.extend(references.into_iter().map(|reference| reference.name));
            }
            Ok(None) => return Err(CredentialError::NoServiceAccount { namespace, name }),
            Err(source) => {
                return Err(CredentialError::ServiceAccount { namespace, name, source: Box::new(source) });
            }
        }
    }
    let mut keychain = Keychain::default();
    for name in names {
        let data = secrets::find(client, namespace, &name).await?;
        add_logins(&mut keychain, &data, namespace, &name)?;
    }
    Ok(keychain)
}

fn add_logins(
    keychain: &mut Keychain,
    data: &Data,
    namespace: &str,
    name: &str,
) -> Result<(), CredentialError> {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let added = if let Some(config) = data.get(".dockerconfigjson") {
        keychain.add_config(config)
    } else if let Some(config) = data.get(".dockercfg") {
        keychain.add_legacy_config(config)
    } else {
        return Err(CredentialError::NoConfig { namespace, name });
    };
    added.map_err(|source| CredentialError::Config { namespace, name, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(entries: &[(&str, &str)]) -> Data {
        entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn pull_secrets() {
        let mut keychain = Keychain::default();
        let config = [(".dockerconfigjson", "{\"auths\": {}}")];
        add_logins(&mut keychain, &data(&config), "apps", "login").unwrap();
        let error = add_logins(&mut keychain, &data(&[("username", "u")]), "apps", "login").unwrap_err();
        assert_eq!(error.to_string(), "secret 'apps/login' has no docker config");
    }
}
