//! HTTP clients, one per proxy and certificates.

use std::collections::HashMap;
use std::error::Error as _;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use weir_base::redact::Secret;

use crate::address::Guarded;
use crate::target::Connection;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection waits for the next event.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
const IDLE_CONNECTIONS_MAX: usize = 4;
/// How many clients are kept; the one not used for the longest time goes.
const CLIENTS_MAX: usize = 128;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// What should be certificates are none.
    #[error("failed to get TLS config: failed to parse CA certificate")]
    Authority,
    /// The client certificate or its key is broken.
    #[error("failed to get TLS config: failed to parse TLS certificate and key")]
    Certificate,
    /// The proxy cannot be used.
    #[error("failed to get proxy URL: the proxy cannot be used")]
    Proxy,
    /// The TLS set-up of the machine is broken.
    #[error("failed to set up TLS")]
    Tls,
}

/// HTTP clients, made when they are first needed.
#[derive(Default)]
pub struct Clients {
    held: Mutex<Held>,
    /// Whether link-local addresses are left out; off only in tests of what lies behind.
    any_address: bool,
}

#[derive(Default)]
struct Held {
    clients: HashMap<[u8; 32], (reqwest::Client, u64)>,
    uses: u64,
}

impl Clients {
    /// Without any clients yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The client of a connection.
    ///
    /// # Errors
    /// The certificates or the proxy cannot be used.
    pub fn get(&self, connection: &Connection) -> Result<reqwest::Client, ClientError> {
        let key = fingerprint(connection);
        {
            let mut held = self.held.lock();
            held.uses += 1;
            let uses = held.uses;
            if let Some((client, used)) = held.clients.get_mut(&key) {
                *used = uses;
                return Ok(client.clone());
            }
        }
        // Reading the authorities of the system takes a while, so nobody waits for it with the lock.
        let client = build(connection, self.any_address)?;
        let mut held = self.held.lock();
        if held.clients.len() >= CLIENTS_MAX {
            let oldest = held.clients.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                held.clients.remove(&oldest);
            }
        }
        let uses = held.uses;
        held.clients.insert(key, (client.clone(), uses));
        Ok(client)
    }
}

fn fingerprint(connection: &Connection) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: Option<&[u8]>| {
        hash.update([u8::from(bytes.is_some())]);
        let bytes = bytes.unwrap_or_default();
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(connection.proxy.as_ref().map(|proxy| proxy.expose().as_str().as_bytes()));
    let tls = connection.tls.as_ref();
    part(tls.and_then(|tls| tls.authority.as_deref()));
    let client = tls.and_then(|tls| tls.client.as_ref());
    part(client.map(|(certificate, _)| certificate.as_slice()));
    part(client.map(|(_, key)| key.expose().as_bytes()));
    hash.finalize().into()
}

fn build(connection: &Connection, any_address: bool) -> Result<reqwest::Client, ClientError> {
    match builder(connection, any_address)?.build() {
        // A machine without any authority: plain HTTP works, and TLS trusts nobody.
        Err(_) if connection.tls.as_ref().is_none_or(|tls| tls.authority.is_none()) => {
            builder(connection, any_address)?.tls_certs_only([]).build().map_err(|_| ClientError::Tls)
        }
        built => built.map_err(|_| ClientError::Tls),
    }
}

fn builder(connection: &Connection, any_address: bool) -> Result<reqwest::ClientBuilder, ClientError> {
    // An error means that a provider is installed, which is all we need.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .redirect(reqwest::redirect::Policy::none())
        .http1_title_case_headers()
        .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")));
    if !any_address {
        builder = builder.dns_resolver(Guarded);
    }
    if let Some(tls) = &connection.tls {
        if let Some(pem) = &tls.authority {
            let authorities =
                reqwest::Certificate::from_pem_bundle(pem).map_err(|_| ClientError::Authority)?;
            builder = builder.tls_certs_only(authorities);
        }
        if let Some((certificate, key)) = &tls.client {
            let identity = identity(certificate, key).map_err(|_| ClientError::Certificate)?;
            builder = builder.identity(identity);
        }
    }
    if let Some(proxy) = &connection.proxy {
        let proxy = reqwest::Proxy::all(proxy.expose().as_str()).map_err(|_| ClientError::Proxy)?;
        builder = builder.proxy(proxy);
    }
    Ok(builder)
}

/// The client certificate and its key in PEM.
pub(crate) fn identity(certificate: &[u8], key: &Secret) -> Result<reqwest::Identity, reqwest::Error> {
    let mut pem = key.expose().as_bytes().to_vec();
    pem.push(b'\n');
    pem.extend_from_slice(certificate);
    reqwest::Identity::from_pem(&pem)
}

/// What went wrong on the way, without the URL, which may hold secrets.
pub(crate) fn describe(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "the request timed out".to_owned()
    } else if error.is_connect() {
        "connection failed".to_owned()
    } else {
        "the request failed".to_owned()
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Layers repeat each other.
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_kept_per_connection() {
        let clients = Clients::new();
        let proxied = |port: u16| Connection {
            proxy: weir_base::redact::RedactedUrl::parse(&format!("http://u:p@127.0.0.1:{port}")).ok(),
            tls: None,
        };
        clients.get(&Connection::default()).unwrap();
        clients.get(&Connection::default()).unwrap();
        clients.get(&proxied(1)).unwrap();
        assert_eq!(clients.held.lock().clients.len(), 2);
        assert_ne!(fingerprint(&proxied(1)), fingerprint(&proxied(2)));
    }
}
