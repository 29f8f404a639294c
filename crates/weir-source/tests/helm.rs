//! Chart repositories on a web server in the test process, which can misbehave.
#![expect(clippy::unwrap_used, clippy::panic, reason = "failing is what tests do")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;
use weir_base::error::chain;
use weir_base::redact::Secret;
use weir_source::helm::{Access, Fetched, HelmError, Repository, Validators};

#[derive(Default)]
struct Web {
    content: BTreeMap<String, Vec<u8>>,
    /// Path to target.
    redirects: BTreeMap<String, String>,
    etag: Option<String>,
    gzip: bool,
    authorization: Option<String>,
    hang: bool,
    /// Path with query, and the `authorization` header.
    seen: Vec<(String, Option<String>)>,
}

type Shared = Arc<Mutex<Web>>;

async fn answer(State(web): State<Shared>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let path = parts.uri.path().to_owned();
    let target = parts.uri.path_and_query().unwrap().to_string();
    if web.lock().unwrap().hang {
        std::future::pending::<()>().await;
    }
    let mut web = web.lock().unwrap();
    web.seen.push((target, header("authorization")));
    if let Some(to) = web.redirects.get(&path) {
        return (StatusCode::FOUND, [("location", to.clone())]).into_response();
    }
    if web.authorization.is_some() && header("authorization") != web.authorization {
        return (StatusCode::UNAUTHORIZED, "no").into_response();
    }
    if web.etag.is_some() && header("if-none-match") == web.etag {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    let Some(body) = web.content.get(&path).cloned() else { return StatusCode::NOT_FOUND.into_response() };
    let mut response = if web.gzip && header("accept-encoding").is_some_and(|value| value.contains("gzip")) {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&body).unwrap();
        ([("content-encoding", "gzip")], encoder.finish().unwrap()).into_response()
    } else {
        body.into_response()
    };
    if let Some(etag) = &web.etag {
        response.headers_mut().insert("etag", etag.parse().unwrap());
    }
    response
}

async fn serve() -> (Shared, String) {
    let web = Shared::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().fallback(answer).with_state(Arc::clone(&web));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (web, format!("http://127.0.0.1:{port}"))
}

fn access() -> Access {
    Access {
        login: None,
        pass_credentials: false,
        certificate_authority: None,
        client_certificate: None,
        timeout: Duration::from_secs(20),
    }
}

/// `me:secret`.
const BASIC: &str = "Basic bWU6c2VjcmV0";

fn login() -> Access {
    Access { login: Some(("me".to_owned(), Secret::new("secret"))), ..access() }
}

fn put(web: &Shared, path: &str, body: &[u8]) {
    web.lock().unwrap().content.insert(path.to_owned(), body.to_vec());
}

fn seen(web: &Shared) -> Vec<(String, Option<String>)> {
    std::mem::take(&mut web.lock().unwrap().seen)
}

fn index(fetched: Fetched) -> (Vec<u8>, Option<Validators>) {
    match fetched {
        Fetched::Index { bytes, validators } => (bytes.to_vec(), validators),
        Fetched::Unchanged => panic!("no index"),
    }
}

#[tokio::test]
async fn an_index_is_fetched_once_and_then_asked_about() {
    let (web, url) = serve().await;
    put(&web, "/charts/index.yaml", b"apiVersion: v1\n");
    web.lock().unwrap().etag = Some("\"1\"".to_owned());
    let repository = Repository::new(&format!("{url}/charts?a=b"), access()).unwrap();
    let (bytes, validators) = index(repository.index(None, 100).await.unwrap());
    assert_eq!(bytes, b"apiVersion: v1\n");
    let validators = validators.unwrap();
    assert!(matches!(repository.index(Some(&validators), 100).await.unwrap(), Fetched::Unchanged));
    assert_eq!(seen(&web), vec![("/charts/index.yaml?a=b".to_owned(), None); 2]);
    web.lock().unwrap().etag = Some("\"2\"".to_owned());
    let (_, changed) = index(repository.index(Some(&validators), 100).await.unwrap());
    assert_ne!(changed, Some(validators));
}

#[tokio::test]
async fn compressed_indexes_are_unpacked_within_the_limit() {
    let (web, url) = serve().await;
    put(&web, "/index.yaml", &vec![b'#'; 100_000]);
    web.lock().unwrap().gzip = true;
    let repository = Repository::new(&url, access()).unwrap();
    assert_eq!(index(repository.index(None, 100_000).await.unwrap()).0.len(), 100_000);
    let error = repository.index(None, 99_999).await.unwrap_err();
    assert_eq!(chain(&error), "index exceeds the maximum index file size of 99999 bytes");
    web.lock().unwrap().gzip = false;
    assert!(matches!(repository.index(None, 99_999).await, Err(HelmError::IndexTooLarge(99_999))));
    put(&web, "/c.tgz", &[0; 10]);
    assert!(matches!(repository.chart("c.tgz", 9).await, Err(HelmError::ChartTooLarge(9))));
    assert_eq!(repository.chart("c.tgz", 10).await.unwrap().len(), 10);
}

#[tokio::test]
async fn credentials_stay_with_the_repository() {
    let (web, url) = serve().await;
    let (other, other_url) = serve().await;
    web.lock().unwrap().authorization = Some(BASIC.to_owned());
    put(&web, "/index.yaml", b"x");
    put(&web, "/c.tgz", b"chart");
    put(&other, "/c.tgz", b"chart");
    let repository = Repository::new(&url, login()).unwrap();
    repository.index(None, 100).await.unwrap();
    repository.chart("c.tgz", 100).await.unwrap();
    assert!(seen(&web).iter().all(|(_, header)| header.as_deref() == Some(BASIC)));
    repository.chart(&format!("{other_url}/c.tgz"), 100).await.unwrap();
    assert_eq!(seen(&other), [("/c.tgz".to_owned(), None)]);
    // Another host gets them only if that is asked for.
    let trusting = Repository::new(&url, Access { pass_credentials: true, ..login() }).unwrap();
    trusting.chart(&format!("{other_url}/c.tgz"), 100).await.unwrap();
    assert_eq!(seen(&other), [("/c.tgz".to_owned(), Some(BASIC.to_owned()))]);
    // A redirect never gets them.
    web.lock().unwrap().redirects.insert("/away.tgz".to_owned(), format!("{other_url}/c.tgz"));
    trusting.chart("away.tgz", 100).await.unwrap();
    assert_eq!(seen(&other), [("/c.tgz".to_owned(), None)]);
    // Half a login is none.
    let half = Access { login: Some(("me".to_owned(), Secret::new(""))), ..access() };
    let error = Repository::new(&url, half).unwrap().index(None, 100).await.unwrap_err();
    assert_eq!(chain(&error), format!("failed to fetch {url}/index.yaml : 401 Unauthorized"));
}

#[tokio::test]
async fn errors_have_no_secrets() {
    let (web, url) = serve().await;
    let repository = Repository::new(&format!("{url}/charts?token=hunter2"), login()).unwrap();
    let error = chain(&repository.index(None, 100).await.unwrap_err());
    assert_eq!(error, format!("failed to fetch {url}/charts/index.yaml : 404 Not Found"));
    web.lock().unwrap().redirects.insert("/loop".to_owned(), "/loop?token=hunter2".to_owned());
    web.lock().unwrap().redirects.insert("/file".to_owned(), "file:///etc/passwd".to_owned());
    let error = chain(&repository.chart("/loop", 100).await.unwrap_err());
    assert!(error.ends_with("redirect refused: there are too many of them"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let error = chain(&repository.chart("/file", 100).await.unwrap_err());
    assert!(error.ends_with("redirect refused: the scheme is not supported"), "{error}");
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let gone = Repository::new(&format!("http://me:hunter2@{closed}/?token=hunter2"), access()).unwrap();
    let error = chain(&gone.index(None, 100).await.unwrap_err());
    assert!(error.starts_with(&format!("Get \"http://{closed}/index.yaml\": ")), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up() {
    let (web, url) = serve().await;
    web.lock().unwrap().hang = true;
    let repository =
        Repository::new(&url, Access { timeout: Duration::from_millis(50), ..access() }).unwrap();
    let error = repository.index(None, 100).await.unwrap_err();
    assert_eq!(chain(&error), "context deadline exceeded: no answer within 0.05s");
}

/// Serves over TLS with a certificate of a new authority, whose PEM is returned.
async fn serve_tls(web: Shared) -> (String, Vec<u8>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(parameters, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = parameters.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().fallback(answer).with_state(web);
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
    (format!("https://localhost:{port}"), authority.pem().into_bytes())
}

#[tokio::test]
async fn tls_needs_a_trusted_authority_and_is_not_left() {
    let (plain, plain_url) = serve().await;
    put(&plain, "/c.tgz", b"chart");
    let web = Shared::default();
    put(&web, "/index.yaml", b"x");
    web.lock().unwrap().redirects.insert("/c.tgz".to_owned(), format!("{plain_url}/c.tgz"));
    let (url, authority) = serve_tls(Arc::clone(&web)).await;
    let trusting = Access { certificate_authority: Some(authority), ..login() };
    let repository = Repository::new(&url, trusting).unwrap();
    repository.index(None, 100).await.unwrap();
    let error = chain(&repository.chart("c.tgz", 100).await.unwrap_err());
    assert!(error.ends_with("redirect refused: it would leave TLS"), "{error}");
    assert!(seen(&plain).is_empty());
    let error = Repository::new(&url, access()).unwrap().index(None, 100).await.unwrap_err();
    assert!(matches!(error, HelmError::Network { .. }), "{error}");
}
