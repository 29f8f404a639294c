//! Secrets: reading them, and the forms several kinds share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use weir_base::redact::{RedactedUrl, Secret as Hidden};
use weir_source::connection::{ClientCertificate, Proxy};

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
    /// A user without password, or the reverse.
    #[error("secret '{namespace}/{name}': malformed basic auth - has '{present}' but missing '{missing}'")]
    HalfLogin {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// The key that is there.
        present: &'static str,
        /// The key that is not.
        missing: &'static str,
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

/// Why a certificate Secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A certificate without key, or the reverse.
    #[error("secret '{namespace}/{name}' contains '{present}' but missing '{missing}'")]
    Half {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
        /// The key that is there.
        present: &'static str,
        /// The key that is not.
        missing: &'static str,
    },
    /// Nothing in it is of use.
    #[error("secret '{namespace}/{name}' must contain either 'ca.crt' or both 'tls.crt' and 'tls.key'")]
    Empty {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
}

/// What a Secret says about TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certificates {
    /// PEM certificates to trust.
    pub(crate) authority: Option<Vec<u8>>,
    /// What to present.
    pub(crate) client: Option<ClientCertificate>,
}

/// The certificates of a Secret; there must be some.
pub(crate) fn certificates(
    data: &Data,
    namespace: &str,
    name: &str,
) -> Result<Certificates, CertificateError> {
    let found = optional_certificates(data, namespace, name)?;
    found.ok_or_else(|| CertificateError::Empty { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// The certificates of a Secret, if it has any.
pub(crate) fn optional_certificates(
    data: &Data,
    namespace: &str,
    name: &str,
) -> Result<Option<Certificates>, CertificateError> {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let bytes = |key: &str, legacy: &str| {
        data.get(key).or_else(|| data.get(legacy)).filter(|value| !value.is_empty())
    };
    let authority = bytes("ca.crt", "caFile").cloned();
    let client = match (bytes("tls.crt", "certFile"), bytes("tls.key", "keyFile")) {
        (Some(certificate), Some(key)) => Some(ClientCertificate {
            certificate: certificate.clone(),
            private_key: Hidden::new(String::from_utf8_lossy(key).into_owned()),
        }),
        (Some(_), None) => {
            return Err(CertificateError::Half { namespace, name, present: "tls.crt", missing: "tls.key" });
        }
        (None, Some(_)) => {
            return Err(CertificateError::Half { namespace, name, present: "tls.key", missing: "tls.crt" });
        }
        (None, None) => None,
    };
    let some = authority.is_some() || client.is_some();
    Ok(some.then_some(Certificates { authority, client }))
}

/// The user and the password of a Secret; both or none.
pub(crate) fn basic_auth(
    data: &Data,
    namespace: &str,
    name: &str,
) -> Result<Option<(String, Hidden)>, SecretError> {
    let text = |key: &str| data.get(key).map(|value| String::from_utf8_lossy(value).into_owned());
    let half = |present, missing| SecretError::HalfLogin {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        present,
        missing,
    };
    match (text("username"), text("password")) {
        (Some(user), Some(password)) => Ok(Some((user, Hidden::new(password)))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(half("username", "password")),
        (None, Some(_)) => Err(half("password", "username")),
    }
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

    fn data(entries: &[(&str, &str)]) -> Data {
        entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn tls_keys() {
        #[track_caller]
        fn check(entries: &[(&str, &str)], expected: Result<(bool, bool), &str>) {
            let found = certificates(&data(entries), "apps", "tls")
                .map(|found| (found.authority.is_some(), found.client.is_some()));
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
        }
        check(&[("ca.crt", "A")], Ok((true, false)));
        check(&[("caFile", "A"), ("certFile", "C"), ("keyFile", "K")], Ok((true, true)));
        check(&[("tls.crt", "C")], Err("secret 'apps/tls' contains 'tls.crt' but missing 'tls.key'"));
        check(&[], Err("secret 'apps/tls' must contain either 'ca.crt' or both 'tls.crt' and 'tls.key'"));
    }

    #[test]
    fn users_and_passwords() {
        let login = |entries| basic_auth(&data(entries), "apps", "login").map_err(|error| error.to_string());
        assert_eq!(login(&[]).unwrap(), None);
        assert_eq!(login(&[("username", "u"), ("password", "p")]).unwrap().unwrap().0, "u");
        assert_eq!(
            login(&[("username", "u")]).unwrap_err(),
            "secret 'apps/login': malformed basic auth - has 'username' but missing 'password'"
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
