//! What is read before anything is decided: Secrets and included artifacts.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use weir_api::artifact::Artifact;
use weir_api::source::{GitRepository, GitRepositoryInclude};
use weir_base::redact::{RedactedUrl, Secret as Hidden};
use weir_runtime::{ObjectKey, Store};
use weir_source::git::Proxy;

use super::error::{Error, SecretError};

/// The longest proxy address.
const PROXY_ADDRESS_BYTES_MAX: usize = 2048;

/// The data of a Secret; the driver never logs it.
pub(super) type Data = BTreeMap<String, Vec<u8>>;

/// An artifact to include, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Included {
    pub(super) spec: GitRepositoryInclude,
    pub(super) artifact: Artifact,
}

/// The data of the Secret with the credentials, if the object names one.
pub(super) async fn secret(client: &kube::Client, object: &GitRepository) -> Result<Option<Data>, Error> {
    let Some(reference) = &object.spec.secret_ref else { return Ok(None) };
    let namespace = namespace_of(object);
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let secret = api.get(&reference.name).await.map_err(|source| {
        Error::Secret(SecretError::Get { namespace, name: reference.name.clone(), source: Box::new(source) })
    })?;
    Ok(Some(data_of(secret)))
}

/// The proxy, if the object names one.
pub(super) async fn proxy(client: &kube::Client, object: &GitRepository) -> Result<Option<Proxy>, Error> {
    let Some(reference) = &object.spec.proxy_secret_ref else { return Ok(None) };
    let (namespace, name) = (namespace_of(object), reference.name.clone());
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let found = api.get_opt(&name).await.map_err(|source| {
        Error::Proxy(SecretError::Get {
            namespace: namespace.clone(),
            name: name.clone(),
            source: Box::new(source),
        })
    })?;
    let Some(secret) = found else {
        return Err(Error::Proxy(SecretError::NotFound { namespace, name }));
    };
    parse_proxy(&data_of(secret), namespace, name).map(Some).map_err(Error::Proxy)
}

fn parse_proxy(data: &Data, namespace: String, name: String) -> Result<Proxy, SecretError> {
    let text = |key: &str| String::from_utf8_lossy(data.get(key).map_or(&[], Vec::as_slice)).into_owned();
    if !data.contains_key("address") {
        return Err(SecretError::MissingKey { namespace, name, key: "address" });
    }
    let address = text("address").trim().to_owned();
    let why = if address.is_empty() {
        "it is empty"
    } else if address.len() > PROXY_ADDRESS_BYTES_MAX {
        "it is too long"
    } else {
        match RedactedUrl::parse(&address) {
            Ok(url) if matches!(url.expose().scheme(), "http" | "https" | "socks5") => {
                return Ok(Proxy {
                    address: url,
                    username: text("username"),
                    password: Hidden::new(text("password")),
                });
            }
            Ok(_) => "the scheme must be http, https or socks5",
            Err(_) => "it is not a URL",
        }
    };
    Err(SecretError::ProxyAddress { namespace, name, why })
}

/// The artifacts to include, in the order of the specification.
pub(super) fn includes(
    sources: &Store<GitRepository>,
    object: &GitRepository,
    retry: Duration,
) -> Result<Vec<Included>, Error> {
    let namespace = namespace_of(object);
    object
        .spec
        .include
        .iter()
        .map(|spec| {
            let name = spec.repository.name.clone();
            let found = sources.get(&ObjectKey::new(namespace.as_str(), name.as_str()));
            let Some(source) = found else { return Err(Error::IncludeNotFound { name, retry }) };
            let artifact = source.status.as_ref().and_then(|status| status.artifact.clone());
            let artifact = artifact.ok_or(Error::IncludeNotReady { name, retry })?;
            Ok(Included { spec: spec.clone(), artifact })
        })
        .collect()
}

pub(super) fn namespace_of(object: &GitRepository) -> String {
    object.metadata.namespace.clone().unwrap_or_default()
}

fn data_of(secret: Secret) -> Data {
    secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entries: &[(&str, &str)], expected: Result<&str, &str>) {
        let data =
            entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let found = parse_proxy(&data, "apps".to_owned(), "proxy".to_owned());
        let found = found.map(|proxy| format!("{} {}", proxy.address, proxy.username));
        assert_eq!(
            found.map_err(|error| error.to_string()),
            expected.map(str::to_owned).map_err(str::to_owned)
        );
    }

    #[test]
    fn proxies() {
        check(&[("address", "http://proxy:3128\n")], Ok("http://proxy:3128/ "));
        check(
            &[("address", "socks5://proxy:1080"), ("username", "me"), ("password", "x")],
            Ok("socks5://proxy:1080 me"),
        );
        check(&[], Err("secret 'apps/proxy': key 'address' not found"));
        check(&[("address", "")], Err("secret 'apps/proxy': invalid proxy address: it is empty"));
        check(
            &[("address", "ftp://proxy")],
            Err("secret 'apps/proxy': invalid proxy address: the scheme must be http, https or socks5"),
        );
        check(&[("address", "proxy")], Err("secret 'apps/proxy': invalid proxy address: it is not a URL"));
    }
}
