//! The server on a port: TLS, certificates, and the kubeconfig for clients.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::auth::Identity;
use crate::cluster::TestCluster;
use crate::service::{Peer, Service};

/// A handshake that takes longer is given up.
const HANDSHAKE_SECONDS_MAX: u64 = 10;

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make certificates")]
    Certificate(#[source] rcgen::Error),
    /// TLS refuses the certificates.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    /// TLS refuses our authority.
    #[error("cannot set up the check of client certificates")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// A server on a port. It stops when this is dropped.
pub struct Running {
    address: SocketAddr,
    kubeconfig: String,
    stop: watch::Sender<bool>,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Stops to listen and ends all connections.
    pub fn shutdown(&self) {
        self.stop.send_replace(true);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown();
    }
}

struct Issued {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, "kubernetes");
        let certificate = parameters.self_signed(&key)?;
        Ok(Self {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(parameters, key),
        })
    }

    fn issue(&self, parameters: &CertificateParams) -> Result<Issued, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(Issued { certificate: certificate.der().clone(), pem: certificate.pem(), key })
    }

    fn server(&self, address: SocketAddr) -> Result<Issued, rcgen::Error> {
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut parameters = CertificateParams::new(names.map(str::to_owned).to_vec())?;
        parameters.subject_alt_names.push(SanType::IpAddress(address.ip()));
        parameters.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        self.issue(&parameters)
    }

    fn client(&self, identity: &Identity) -> Result<Issued, rcgen::Error> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.distinguished_name.push(DnType::CommonName, identity.user.as_str());
        for group in &identity.groups {
            parameters.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        self.issue(&parameters)
    }
}

impl TestCluster {
    /// Serves the cluster on an address; port 0 takes a free one. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When the address is not free, or TLS cannot be set up.
    pub async fn serve(&self, address: SocketAddr) -> Result<Running, ServeError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
        let address = listener.local_addr().map_err(|source| ServeError::Listen { address, source })?;
        let authority = Authority::new().map_err(ServeError::Certificate)?;
        let server = authority.server(address).map_err(ServeError::Certificate)?;
        let administrator = Identity::user("kubernetes-admin", &["system:masters"]);
        let client = authority.client(&administrator).map_err(ServeError::Certificate)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).map_err(ServeError::Tls)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(ServeError::Verifier)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server.key.serialize_der()));
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ServeError::Tls)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![server.certificate.clone()], key)
            .map_err(ServeError::Tls)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut known = HashMap::new();
        let mut identity = administrator;
        identity.groups.push("system:authenticated".to_owned());
        known.insert(client.certificate.to_vec(), identity);
        let (stop, stopped) = watch::channel(false);
        let cluster = self.clone();
        let mut ended = stopped.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = cluster.run_due() => {}
                _ = ended.changed() => {}
            }
        });
        let kubeconfig = kubeconfig(address, &authority.pem, &client);
        tokio::spawn(accept(
            listener,
            TlsAcceptor::from(Arc::new(tls)),
            self.service_for_connections(),
            Arc::new(known),
            stopped,
        ));
        Ok(Running { address, kubeconfig, stop })
    }
}

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    service: Service,
    known: Arc<HashMap<Vec<u8>, Identity>>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let connection = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        // A connection that is gone before it is accepted concerns nobody.
        let Ok((connection, _)) = connection else { continue };
        let _ = connection.set_nodelay(true);
        let (tls, service, known, mut stopped) =
            (tls.clone(), service.clone(), known.clone(), stopped.clone());
        tokio::spawn(async move {
            let limit = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
            let Ok(Ok(stream)) = tokio::time::timeout(limit, tls.accept(connection)).await else { return };
            let peer = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|list| list.first())
                .and_then(|certificate| known.get(certificate.as_ref()).cloned());
            let peer = Peer(peer);
            let service = service.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(peer.clone());
                request
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            tokio::pin!(serving);
            tokio::select! {
                // The client sees the error itself.
                _ = &mut serving => {}
                _ = stopped.changed() => {}
            }
        });
    }
}

fn kubeconfig(address: SocketAddr, authority: &str, client: &Issued) -> String {
    let encode = |text: &str| STANDARD.encode(text);
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "weir", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": encode(authority),
        }}],
        "users": [{"name": "weir", "user": {
            "client-certificate-data": encode(&client.pem),
            "client-key-data": encode(&client.key.serialize_pem()),
        }}],
        "contexts": [{"name": "weir", "context": {"cluster": "weir", "user": "weir"}}],
        "current-context": "weir",
    });
    weir_manifest::to_yaml(&config)
}
