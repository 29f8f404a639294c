//! OCI pulls against a registry in the test process, which can misbehave.
#![expect(clippy::unwrap_used, reason = "failing is what tests do")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use weir_artifact::digest::Algorithm;
use weir_base::error::chain;
use weir_source::oci::{Access, Image, OciError, Repository, Session, Target};

#[derive(Default)]
struct Registry {
    /// Path to content type and body.
    content: BTreeMap<String, (String, Vec<u8>)>,
    tags: Vec<String>,
    page_length: usize,
    /// The user and password tokens are given for.
    basic: Option<String>,
    /// Sends blobs elsewhere.
    blobs_at: Option<String>,
    head: bool,
    failures: u32,
    hang: bool,
    seen: Vec<(String, Option<String>)>,
}

type Shared = Arc<Mutex<Registry>>;

async fn answer(State(registry): State<Shared>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let authorization = parts.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let host = parts.headers["host"].to_str().unwrap().to_owned();
    if registry.lock().unwrap().hang {
        tokio::time::sleep(Duration::from_hours(1)).await;
    }
    let mut registry = registry.lock().unwrap();
    registry.seen.push((path.clone(), authorization.clone()));
    if path == "/token" {
        if registry.basic.is_some() && authorization != registry.basic {
            return (StatusCode::UNAUTHORIZED, "no").into_response();
        }
        return "{\"token\": \"t0\"}".into_response();
    }
    if registry.basic.is_some()
        && authorization.as_deref() != Some("Bearer t0")
        && !path.starts_with("/storage")
    {
        let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"s\"");
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    }
    if path == "/v2/" {
        return "{}".into_response();
    }
    if registry.failures > 0 {
        registry.failures -= 1;
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if path.ends_with("/tags/list") {
        let last = parts.uri.query().unwrap_or_default().split_once("last=").map(|(_, last)| last);
        let start = last.map_or(0, |last| registry.tags.iter().position(|tag| tag == last).unwrap() + 1);
        let page: Vec<_> = registry.tags.iter().skip(start).take(registry.page_length).collect();
        let mut headers = HeaderMap::new();
        if start + page.len() < registry.tags.len() {
            let link = format!("<{path}?n=2&last={}>; rel=\"next\"", page.last().unwrap());
            headers.insert("link", HeaderValue::from_str(&link).unwrap());
        }
        let body = format!("{{\"name\": \"app\", \"tags\": {page:?}}}");
        return (headers, body).into_response();
    }
    if let Some(at) = registry.blobs_at.clone().filter(|_| path.contains("/blobs/")) {
        let target = format!("{at}/storage{path}?signature=secret");
        return (StatusCode::TEMPORARY_REDIRECT, [("location", target)]).into_response();
    }
    let key = path.trim_start_matches("/storage");
    match registry.content.get(key) {
        Some(_) if parts.method == Method::HEAD && !registry.head => {
            StatusCode::METHOD_NOT_ALLOWED.into_response()
        }
        Some((kind, body)) => {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", HeaderValue::from_str(kind).unwrap());
            let digest = Algorithm::Sha256.digest(body).to_string();
            headers.insert(
                HeaderName::from_static("docker-content-digest"),
                HeaderValue::from_str(&digest).unwrap(),
            );
            (headers, body.clone()).into_response()
        }
        None => (
            StatusCode::NOT_FOUND,
            [("content-type", "application/json")],
            "{\"errors\": [{\"code\": \"MANIFEST_UNKNOWN\", \"message\": \"manifest unknown\"}]}",
        )
            .into_response(),
    }
}

struct Fixture {
    registry: Shared,
    address: String,
    layer: String,
    image: String,
    index: String,
}

async fn serve() -> (Shared, String) {
    let registry = Shared::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let router = Router::new().fallback(answer).with_state(Arc::clone(&registry));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (registry, address)
}

impl Fixture {
    async fn start() -> Self {
        let (registry, address) = serve().await;
        let digest = |bytes: &[u8]| Algorithm::Sha256.digest(bytes).to_string();
        let layer = b"layer".to_vec();
        let image = format!(
            "{{\"annotations\": {{\"a\": \"b\"}}, \"layers\": [{{\"mediaType\": \"x/y\", \"digest\": \"{}\", \"size\": 5}}]}}",
            digest(&layer)
        )
        .into_bytes();
        let index = format!(
            "{{\"manifests\": [{{\"digest\": \"sha256:{}\", \"platform\": {{\"os\": \"linux\", \"architecture\": \"arm64\"}}}}, \
             {{\"digest\": \"{}\", \"platform\": {{\"os\": \"linux\", \"architecture\": \"amd64\"}}}}]}}",
            "0".repeat(64),
            digest(&image)
        )
        .into_bytes();
        let (layer_digest, image_digest, index_digest) = (digest(&layer), digest(&image), digest(&index));
        {
            let mut inner = registry.lock().unwrap();
            inner.page_length = 2;
            inner.head = true;
            inner.tags = ["1.0.0", "1.1.0", "latest", "2.0.0", "v1.2.0"].map(str::to_owned).to_vec();
            let manifest = "application/vnd.oci.image.manifest.v1+json".to_owned();
            let mut add = |path: &str, body: &[u8]| {
                inner.content.insert(format!("/v2/org/app/{path}"), (manifest.clone(), body.to_vec()));
            };
            add(&format!("blobs/{layer_digest}"), &layer);
            add(&format!("manifests/{image_digest}"), &image);
            add(&format!("manifests/{index_digest}"), &index);
            add("manifests/latest", &image);
            add("manifests/v1.2.0", &index);
        }
        Self { registry, address, layer: layer_digest, image: image_digest, index: index_digest }
    }

    fn session_with(&self, access: &Access, timeout: Duration) -> Session {
        let repository = Repository::parse(&format!("oci://{}/org/app", self.address)).unwrap();
        Session::new(repository, access, timeout).unwrap()
    }

    fn session(&self) -> Session {
        self.session_with(&Access::default(), Duration::from_secs(20))
    }

    async fn pull(&self, session: &Session) -> Result<(Image, Vec<u8>), OciError> {
        let image = session.image(&self.image).await?;
        let blob = session.blob(&image.layers[0], 1000).await?;
        Ok((image, blob.to_vec()))
    }
}

fn target(semver: Option<&str>, tag: Option<&str>) -> Target {
    Target::new(None, semver, None, tag, None).unwrap()
}

#[tokio::test]
async fn tags_versions_digests_and_layers() {
    let fixture = Fixture::start().await;
    let session = fixture.session();
    let resolved = session.resolve(&target(None, None)).await.unwrap();
    assert_eq!(resolved, (Some("latest".to_owned()), fixture.image.clone()));
    let resolved = session.resolve(&target(Some("1.x"), None)).await.unwrap();
    assert_eq!(resolved, (Some("v1.2.0".to_owned()), fixture.index.clone()));
    let digest = Target::new(Some(&fixture.image), None, None, None, None).unwrap();
    assert_eq!(session.resolve(&digest).await.unwrap(), (None, fixture.image.clone()));
    fixture.registry.lock().unwrap().head = false;
    assert_eq!(session.digest_of("latest").await.unwrap(), fixture.image);

    let (image, blob) = fixture.pull(&session).await.unwrap();
    assert_eq!((image.annotations["a"].as_str(), blob.as_slice()), ("b", b"layer".as_slice()));
    let image = session.image(&fixture.index).await.unwrap();
    assert_eq!(image.layers[0].digest, fixture.layer);
}

#[tokio::test]
async fn tokens_are_fetched_with_the_credentials_of_the_host() {
    let fixture = Fixture::start().await;
    fixture.registry.lock().unwrap().basic = Some("Basic dTpo".to_owned());
    let mut access = Access::default();
    let error = fixture.session_with(&access, Duration::from_secs(20)).resolve(&target(None, None)).await;
    let text = chain(&error.unwrap_err());
    assert!(text.ends_with("/token: unexpected status code 401 Unauthorized"), "{text}");
    let config =
        format!("{{\"auths\": {{\"{}\": {{\"username\": \"u\", \"password\": \"h\"}}}}}}", fixture.address);
    access.keychain.add_config(config.as_bytes()).unwrap();
    let session = fixture.session_with(&access, Duration::from_secs(20));
    fixture.pull(&session).await.unwrap();
}

#[tokio::test]
async fn storage_on_another_host_gets_no_credentials() {
    let fixture = Fixture::start().await;
    let (storage, address) = serve().await;
    storage.lock().unwrap().content = fixture.registry.lock().unwrap().content.clone();
    {
        let mut registry = fixture.registry.lock().unwrap();
        registry.blobs_at = Some(format!("http://{address}"));
        registry.basic = Some("Basic dTpo".to_owned());
    }
    let mut access = Access::default();
    let config = format!("{{\"auths\": {{\"{}\": {{\"auth\": \"dTpo\"}}}}}}", fixture.address);
    access.keychain.add_config(config.as_bytes()).unwrap();
    let session = fixture.session_with(&access, Duration::from_secs(20));
    fixture.pull(&session).await.unwrap();
    let seen = storage.lock().unwrap().seen.clone();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].1, None);
    // A refusal there does not show the signed query.
    storage.lock().unwrap().content.clear();
    let text = chain(&fixture.pull(&session).await.unwrap_err());
    assert!(text.contains("MANIFEST_UNKNOWN: manifest unknown") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn altered_large_and_missing_content() {
    let fixture = Fixture::start().await;
    let session = fixture.session();
    let image = session.image(&fixture.image).await.unwrap();
    let error = session.blob(&image.layers[0], 3).await.unwrap_err();
    assert!(matches!(error, OciError::TooLarge { bytes_max: 3, .. }), "{error}");
    let path = format!("/v2/org/app/blobs/{}", fixture.layer);
    fixture.registry.lock().unwrap().content.get_mut(&path).unwrap().1 = b"other".to_vec();
    let error = session.blob(&image.layers[0], 1000).await.unwrap_err();
    assert!(matches!(error, OciError::DigestMismatch { .. }), "{error}");
    let error = session.resolve(&target(None, Some("none"))).await.unwrap_err();
    assert!(matches!(&error, OciError::Refused { status: StatusCode::NOT_FOUND, .. }), "{error}");
    let error = session.resolve(&target(Some("9.x"), None)).await.unwrap_err();
    assert_eq!(error.to_string(), "no match found for semver: 9.x");
}

#[tokio::test]
async fn busy_and_silent_registries() {
    let fixture = Fixture::start().await;
    fixture.registry.lock().unwrap().failures = 2;
    fixture.session().image(&fixture.image).await.unwrap();
    fixture.registry.lock().unwrap().hang = true;
    let session = fixture.session_with(&Access::default(), Duration::from_millis(300));
    let error = session.resolve(&target(None, None)).await.unwrap_err();
    assert_eq!(error.to_string(), "context deadline exceeded: the operation did not finish within 0.3s");
    let repository = Repository::parse("oci://127.0.0.1:1/app").unwrap();
    let session = Session::new(repository, &Access::default(), Duration::from_secs(5)).unwrap();
    let text = chain(&session.resolve(&target(None, None)).await.unwrap_err());
    assert!(text.starts_with("GET http://127.0.0.1:1/v2/: "), "{text}");
}

/// Adds a blob or manifest under its digest, and manifests under a tag too; gives the digest.
fn push(registry: &Shared, kind: &str, tag: Option<&str>, body: &[u8]) -> String {
    let digest = Algorithm::Sha256.digest(body).to_string();
    let place = if tag.is_some() { "manifests" } else { "blobs" };
    let mut registry = registry.lock().unwrap();
    for name in std::iter::once(digest.as_str()).chain(tag) {
        registry.content.insert(format!("/v2/app/{place}/{name}"), (kind.to_owned(), body.to_vec()));
    }
    digest
}

#[tokio::test]
async fn signatures_are_found_under_tags_and_through_referrers() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::SigningKey as _;
    use weir_source::cosign::{Policy, PublicKey, verify};

    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
    let (registry, address) = serve().await;
    let pair = rcgen::KeyPair::generate().unwrap();
    let policy = Policy::Keys(vec![PublicKey::from_pem(pair.public_key_pem().as_bytes()).unwrap()]);
    let session = || {
        let repository = Repository::parse(&format!("oci://{address}/app")).unwrap();
        Session::new(repository, &Access { insecure: true, ..Access::default() }, Duration::from_secs(20))
            .unwrap()
    };
    let found = async || {
        let result = verify(&session(), DIGEST, "example.com/app:1", &policy).await;
        result.map_err(|error| chain(&error))
    };
    assert_eq!(found().await.unwrap_err(), "no matching signatures were found for 'example.com/app:1'");

    // cosign 2: a tag made of the digest.
    let payload = format!("{{\"critical\":{{\"image\":{{\"docker-manifest-digest\":\"{DIGEST}\"}}}}}}");
    let layer = push(&registry, "application/octet-stream", None, payload.as_bytes());
    let manifest = |signature: &[u8]| {
        serde_json::json!({"schemaVersion": 2, "layers": [{
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": layer, "size": 1,
            "annotations": {"dev.cosignproject.cosign/signature": STANDARD.encode(signature)},
        }]})
        .to_string()
    };
    let tag = format!("{}.sig", DIGEST.replace(':', "-"));
    push(&registry, MANIFEST, Some(&tag), manifest(b"wrong").as_bytes());
    assert_eq!(
        found().await.unwrap_err(),
        "no matching signatures were found for 'example.com/app:1': the signature is not by a known key"
    );
    push(&registry, MANIFEST, Some(&tag), manifest(&pair.sign(payload.as_bytes()).unwrap()).as_bytes());
    assert_eq!(found().await, Ok(()));
    registry.lock().unwrap().content.clear();

    // cosign 3: a bundle that refers to the image, in a registry that does not list what refers.
    let statement = format!(
        "{{\"predicateType\":\"https://sigstore.dev/cosign/sign/v1\",\"subject\":[{{\"digest\":{{\"sha256\":\"{}\"}}}}]}}",
        DIGEST.trim_start_matches("sha256:")
    );
    let kind = "application/vnd.in-toto+json";
    let message = format!("DSSEv1 {} {kind} {} {statement}", kind.len(), statement.len());
    let bundle = serde_json::json!({"dsseEnvelope": {
        "payload": STANDARD.encode(&statement), "payloadType": kind,
        "signatures": [{"sig": STANDARD.encode(pair.sign(message.as_bytes()).unwrap())}],
    }})
    .to_string();
    let bundle_type = "application/vnd.dev.sigstore.bundle.v0.3+json";
    let layer = push(&registry, bundle_type, None, bundle.as_bytes());
    let manifest = serde_json::json!({"layers": [{"mediaType": bundle_type, "digest": layer, "size": 1}]});
    let manifest = push(&registry, MANIFEST, Some("unused"), manifest.to_string().as_bytes());
    let index = serde_json::json!({"manifests": [
        {"mediaType": MANIFEST, "digest": DIGEST, "size": 1, "artifactType": "application/spdx+json"},
        {"mediaType": MANIFEST, "digest": manifest, "size": 1, "artifactType": bundle_type},
    ]});
    let index_type = "application/vnd.oci.image.index.v1+json";
    push(&registry, index_type, Some(&DIGEST.replace(':', "-")), index.to_string().as_bytes());
    assert_eq!(found().await, Ok(()));
}
