//! Pulls from a real registry, Debian's `docker-registry`, with TLS and passwords.
#![expect(clippy::unwrap_used, reason = "failing is what tests do")]

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Certificate, Client, Method, StatusCode};
use weir_artifact::archive::archive_tree;
use weir_artifact::digest::Algorithm;
use weir_base::error::chain;
use weir_base::redact::Secret;
use weir_base::tree::MemoryTree;
use weir_source::oci::{Access, Keychain, OciError, Repository, Session, Target};
use weir_testkit::registry::Registry;

const LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn digest(bytes: &[u8]) -> String {
    Algorithm::Sha256.digest(bytes).to_string()
}

/// Uploads like any other client.
struct Push<'a> {
    client: Client,
    registry: &'a Registry,
}

impl<'a> Push<'a> {
    fn new(registry: &'a Registry) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authority = Certificate::from_pem(registry.authority.as_bytes()).unwrap();
        Self { client: Client::builder().tls_certs_only([authority]).build().unwrap(), registry }
    }

    async fn send(&self, method: Method, url: &str, kind: &str, body: Bytes) -> reqwest::Response {
        let url = if url.starts_with("https") {
            url.to_owned()
        } else {
            format!("https://{}{url}", self.registry.address)
        };
        let request = self.client.request(method, url).basic_auth("user", Some("s3cret"));
        let response = request.header("content-type", kind).body(body).send().await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        response
    }

    async fn blob(&self, bytes: &Bytes) {
        let started = self.send(Method::POST, "/v2/team/fleet/blobs/uploads/", "", Bytes::new()).await;
        let location = started.headers()["location"].to_str().unwrap().to_owned();
        let separator = if location.contains('?') { '&' } else { '?' };
        let url = format!("{location}{separator}digest={}", digest(bytes));
        let created = self.send(Method::PUT, &url, "application/octet-stream", bytes.clone()).await;
        assert_eq!(created.status(), StatusCode::CREATED);
    }

    /// Pushes an image with one file under a tag and returns its digest.
    async fn image(&self, tag: &str, content: &str) -> (String, Bytes) {
        let tree: MemoryTree = [("content", content.to_owned())].into_iter().collect();
        let (layer, config) = (archive_tree(&tree).unwrap(), Bytes::from_static(b"{}"));
        self.blob(&layer).await;
        self.blob(&config).await;
        let manifest = format!(
            "{{\"schemaVersion\":2,\"mediaType\":\"{MANIFEST}\",\"config\":{{\"mediaType\":\"application/json\",\
             \"digest\":\"{}\",\"size\":2}},\"layers\":[{{\"mediaType\":\"{LAYER}\",\"digest\":\"{}\",\"size\":{}}}]}}",
            digest(&config),
            digest(&layer),
            layer.len()
        );
        let path = format!("/v2/team/fleet/manifests/{tag}");
        self.send(Method::PUT, &path, MANIFEST, manifest.clone().into()).await;
        (digest(manifest.as_bytes()), layer)
    }
}

fn session(registry: &Registry, password: Option<&str>, knows_authority: bool) -> Session {
    let mut keychain = Keychain::default();
    if let Some(password) = password {
        keychain.add_login(&registry.address, "user".to_owned(), Secret::new(password));
    }
    // Another authority than that of the registry.
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert.pem();
    let authority = if knows_authority { registry.authority.clone() } else { other };
    let access =
        Access { keychain, certificate_authority: Some(authority.into_bytes()), ..Access::default() };
    let repository = Repository::parse(&format!("oci://{}/team/fleet", registry.address)).unwrap();
    Session::new(repository, &access, Duration::from_mins(2)).unwrap()
}

#[tokio::test]
async fn images_are_pulled_with_a_password_and_the_authority_of_the_registry() {
    let registry = Registry::start();
    let push = Push::new(&registry);
    let (first, _) = push.image("1.0.0", "one").await;
    let (second, layer) = push.image("1.1.0", "two").await;
    let session = session(&registry, Some("s3cret"), true);
    let target = Target::Tag("1.0.0".to_owned());
    assert_eq!(session.resolve(&target).await.unwrap(), (Some("1.0.0".to_owned()), first));
    let target = Target::new(None, Some("1.x"), None, None, None).unwrap();
    assert_eq!(session.resolve(&target).await.unwrap(), (Some("1.1.0".to_owned()), second.clone()));
    let image = session.image(&second).await.unwrap();
    assert_eq!(session.blob(&image.layers[0], 1 << 20).await.unwrap(), layer);
    // This registry has no list of what refers to an image, and no tag for it either.
    assert!(session.referrers(&second).await.unwrap().is_empty());
    let error = chain(&session.digest_of("2.0.0").await.unwrap_err());
    assert!(error.contains("MANIFEST_UNKNOWN"), "{error}");
}

#[tokio::test]
async fn strangers_and_impostors_are_refused() {
    let registry = Registry::start();
    Push::new(&registry).image("1.0.0", "one").await;
    for password in [None, Some("wr0ng")] {
        let error = session(&registry, password, true).digest_of("1.0.0").await.unwrap_err();
        assert!(
            matches!(error, OciError::Refused { status: StatusCode::UNAUTHORIZED, .. }),
            "{}",
            chain(&error)
        );
        assert!(!chain(&error).contains("wr0ng"));
    }
    // A certificate of another authority.
    assert!(session(&registry, Some("s3cret"), false).digest_of("1.0.0").await.is_err());
}
