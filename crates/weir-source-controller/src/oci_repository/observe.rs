//! What is read before anything is decided: Secrets and the ServiceAccount.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use weir_api::source::OCIRepository;
use weir_base::redact::Secret as Hidden;
use weir_source::connection::ClientCertificate;
use weir_source::oci::{Access, Keychain};

use super::error::{CertificateError, CredentialError, Error};
use crate::source::secrets::{self, Data};

/// How to reach the registry.
pub(super) async fn access(client: &kube::Client, object: &OCIRepository) -> Result<Access, Error> {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let keychain = keychain(client, object, &namespace).await.map_err(Error::Credential)?;
    let proxy = match &object.spec.proxy_secret_ref {
        Some(reference) => {
            Some(secrets::proxy(client, &namespace, &reference.name).await.map_err(Error::Proxy)?)
        }
        None => None,
    };
    let mut access = Access { keychain, proxy, insecure: object.spec.insecure, ..Access::default() };
    if let Some(reference) = &object.spec.cert_secret_ref {
        let failed = |source| Error::Certificate { url: object.spec.url.clone(), source };
        let data =
            secrets::find(client, &namespace, &reference.name).await.map_err(|error| failed(error.into()))?;
        add_certificates(&mut access, &data, &namespace, &reference.name).map_err(failed)?;
    }
    Ok(access)
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

fn add_certificates(
    access: &mut Access,
    data: &Data,
    namespace: &str,
    name: &str,
) -> Result<(), CertificateError> {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let bytes = |key: &str, legacy: &str| {
        data.get(key).or_else(|| data.get(legacy)).filter(|value| !value.is_empty())
    };
    access.certificate_authority = bytes("ca.crt", "caFile").cloned();
    match (bytes("tls.crt", "certFile"), bytes("tls.key", "keyFile")) {
        (Some(certificate), Some(key)) => {
            access.client_certificate = Some(ClientCertificate {
                certificate: certificate.clone(),
                private_key: Hidden::new(String::from_utf8_lossy(key).into_owned()),
            });
        }
        (Some(_), None) => {
            return Err(CertificateError::Half { namespace, name, present: "tls.crt", missing: "tls.key" });
        }
        (None, Some(_)) => {
            return Err(CertificateError::Half { namespace, name, present: "tls.key", missing: "tls.crt" });
        }
        (None, None) if access.certificate_authority.is_none() => {
            return Err(CertificateError::Empty { namespace, name });
        }
        (None, None) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(entries: &[(&str, &str)]) -> Data {
        entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn certificates() {
        #[track_caller]
        fn check(entries: &[(&str, &str)], expected: Result<(bool, bool), &str>) {
            let mut access = Access::default();
            let found = add_certificates(&mut access, &data(entries), "apps", "tls")
                .map(|()| (access.certificate_authority.is_some(), access.client_certificate.is_some()));
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
        }
        check(&[("ca.crt", "A")], Ok((true, false)));
        check(&[("caFile", "A"), ("certFile", "C"), ("keyFile", "K")], Ok((true, true)));
        check(&[("tls.crt", "C")], Err("secret 'apps/tls' contains 'tls.crt' but missing 'tls.key'"));
        check(&[], Err("secret 'apps/tls' must contain either 'ca.crt' or both 'tls.crt' and 'tls.key'"));
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
