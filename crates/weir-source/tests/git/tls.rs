//! Own certificate authorities and client certificates.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use weir_base::redact::Secret;
use weir_source::connection::ClientCertificate;

use crate::Client;
use weir_testkit::git::Server;

struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    certificate: rcgen::Certificate,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap();
        Self { issuer: rcgen::Issuer::new(parameters, key), certificate }
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (parameters.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

/// Serves `router` over TLS; clients need a certificate of `authority` if `mutual`.
async fn serve(authority: &Authority, router: Router, mutual: bool) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (certificate, key) = authority.issue("localhost");
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.der().clone()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if mutual {
        builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap(),
        )
    } else {
        builder.with_no_client_auth()
    };
    let config = builder
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, router) = (acceptor.clone(), router.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper_util::service::TowerToHyperService::new(router);
                let stream = hyper_util::rt::TokioIo::new(stream);
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await;
            });
        }
    });
    format!("https://localhost:{port}/repo.git")
}

const MAIN: &[(&str, &str)] = &[("branch", "main")];

#[tokio::test]
async fn own_authorities_are_trusted_besides_those_of_the_system() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    let commit = repository.commit("first");
    let authority = Authority::new();
    let url = serve(&authority, server.router(), false).await;
    let mut client = Client::new(&url);
    client.timeout = Duration::from_secs(10);
    let error = client.error(MAIN).await;
    assert!(error.contains("certificate"), "{error}");
    client.credentials.certificate_authority = Some(authority.certificate.pem().into_bytes());
    assert_eq!(client.changed(MAIN).await.commit, commit);
    client.credentials.certificate_authority = Some(b"no certificate".to_vec());
    let error = client.error(MAIN).await;
    assert!(error.starts_with("failed to create Git client: "), "{error}");
}

#[tokio::test]
async fn client_certificates_are_presented() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    let commit = repository.commit("first");
    let authority = Authority::new();
    let url = serve(&authority, server.router(), true).await;
    let mut client = Client::new(&url);
    client.credentials.certificate_authority = Some(authority.certificate.pem().into_bytes());
    client.error(MAIN).await;
    let (certificate, key) = authority.issue("client");
    client.credentials.client_certificate = Some(ClientCertificate {
        certificate: certificate.pem().into_bytes(),
        private_key: Secret::new(key.serialize_pem()),
    });
    assert_eq!(client.changed(MAIN).await.commit, commit);
    client.credentials.client_certificate =
        Some(ClientCertificate { certificate: b"x".to_vec(), private_key: Secret::new("y") });
    assert!(client.error(MAIN).await.contains("failed to parse TLS certificate and key"));
}
