//! Secrets: reading them, and the forms several kinds share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use weir_base::redact::{RedactedUrl, Secret as Hidden};
use weir_source::connection::Proxy;

/// The longest proxy address.
const PROXY_ADDRESS_BYTES_MAX: usize = 2048;

/// The data of a Secret; the driver never logs it.
pub(crate) type Data = BTreeMap<String, Vec<u8>>;

/// Why a Secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read.
    #[error("failed to get secret '{namespace}/{name}'")]
    Get {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// What the API server says.
        #[source]
        source: Box<kube::Error>,
    },
    /// It does not exist.
    #[error("secret '{namespace}/{name}' not found")]
    NotFound {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// It lacks a key.
    #[error("secret '{namespace}/{name}': key '{key}' not found")]
    MissingKey {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// The key.
        key: &'static str,
    },
    /// A proxy address that is none.
    #[error("secret '{namespace}/{name}': invalid proxy address: {why}")]
    ProxyAddress {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// The data of a Secret. The text of a missing one is that of the API server.
pub(crate) async fn get(client: &kube::Client, namespace: &str, name: &str) -> Result<Secret, SecretError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    api.get(name).await.map_err(|source| SecretError::Get {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    })
}

/// The data of a Secret, with a short text for a missing one.
pub(crate) async fn find(client: &kube::Client, namespace: &str, name: &str) -> Result<Data, SecretError> {
    match get(client, namespace, name).await {
        Ok(secret) => Ok(data_of(secret)),
        Err(SecretError::Get { namespace, name, source }) if is_not_found(&source) => {
            Err(SecretError::NotFound { namespace, name })
        }
        Err(error) => Err(error),
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The proxy a Secret describes.
pub(crate) async fn proxy(client: &kube::Client, namespace: &str, name: &str) -> Result<Proxy, SecretError> {
    let data = find(client, namespace, name).await?;
    parse_proxy(&data, namespace, name)
}

fn parse_proxy(data: &Data, namespace: &str, name: &str) -> Result<Proxy, SecretError> {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
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

/// The decoded data of a Secret.
pub(crate) fn data_of(secret: Secret) -> Data {
    secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entries: &[(&str, &str)], expected: Result<&str, &str>) {
        let data =
            entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let found = parse_proxy(&data, "apps", "proxy");
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
