//! HTTP clients with own certificates and proxies.

use std::time::Duration;

use weir_base::redact::{RedactedUrl, Secret};

/// A client certificate.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    /// PEM certificate chain.
    pub certificate: Vec<u8>,
    /// PEM private key.
    pub private_key: Secret,
}

/// A proxy.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// `http`, `https` or `socks5` address.
    pub address: RedactedUrl,
    /// The user, or empty.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// Why no client can be built.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// What should be certificates has none.
    #[error("failed to parse CA certificate")]
    CertificateAuthority(#[source] Option<reqwest::Error>),
    /// The client certificate or its key is broken.
    #[error("failed to parse TLS certificate and key")]
    ClientCertificate(#[source] reqwest::Error),
    /// The proxy address is not one.
    #[error("failed to configure proxy")]
    Proxy(#[source] reqwest::Error),
    /// The TLS set-up of the machine is broken.
    #[error("failed to set up TLS")]
    Tls(#[source] reqwest::Error),
}

/// A client that trusts `authority` besides the system, presents `certificate` and uses `proxy`;
/// `adjust` sets the rest.
///
/// On a machine without any trusted authority, plain HTTP works and TLS trusts nobody.
pub(crate) fn client(
    authority: Option<&[u8]>,
    certificate: Option<&ClientCertificate>,
    proxy: Option<&Proxy>,
    adjust: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client, ConnectionError> {
    match adjust(builder(authority, certificate, proxy)?).build() {
        Err(_) if authority.is_none() => {
            let builder = builder(authority, certificate, proxy)?.tls_certs_only([]);
            adjust(builder).build().map_err(ConnectionError::Tls)
        }
        built => built.map_err(ConnectionError::Tls),
    }
}

/// A client builder that trusts `authority` besides the system, presents `certificate` and uses
/// `proxy`.
fn builder(
    authority: Option<&[u8]>,
    certificate: Option<&ClientCertificate>,
    proxy: Option<&Proxy>,
) -> Result<reqwest::ClientBuilder, ConnectionError> {
    // An error means that a provider is installed, which is all we need.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(30))
        .pool_idle_timeout(Duration::from_secs(30));
    if let Some(pem) = authority {
        let certificates = reqwest::Certificate::from_pem_bundle(pem)
            .map_err(|error| ConnectionError::CertificateAuthority(Some(error)))?;
        if certificates.is_empty() {
            return Err(ConnectionError::CertificateAuthority(None));
        }
        builder = builder.tls_certs_merge(certificates);
    }
    if let Some(pair) = certificate {
        let mut pem = pair.private_key.expose().as_bytes().to_vec();
        pem.push(b'\n');
        pem.extend_from_slice(&pair.certificate);
        let identity = reqwest::Identity::from_pem(&pem).map_err(ConnectionError::ClientCertificate)?;
        builder = builder.identity(identity);
    }
    if let Some(proxy) = proxy {
        let mut to = reqwest::Proxy::all(proxy.address.expose().as_str()).map_err(ConnectionError::Proxy)?;
        if !proxy.username.is_empty() {
            to = to.basic_auth(&proxy.username, proxy.password.expose());
        }
        builder = builder.proxy(to);
    }
    Ok(builder)
}
