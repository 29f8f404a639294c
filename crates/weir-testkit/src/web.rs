//! Files at paths, as chart repositories and registries have them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use parking_lot::Mutex;
use sha2::Digest as _;
use tokio::net::TcpListener;

/// What is served, by path: the content type and the bytes. Every answer names the digest of its content as
/// registries do.
#[derive(Debug, Clone, Default)]
pub struct Site(Arc<Mutex<BTreeMap<String, (String, Bytes)>>>);

/// The SHA-256 digest of `bytes`, as registries write it.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}

impl Site {
    /// Puts a file at a path.
    pub fn put(&self, path: &str, kind: &str, content: impl Into<Bytes>) {
        self.0.lock().insert(path.to_owned(), (kind.to_owned(), content.into()));
    }

    /// Puts an image with one layer into the repository `name`, under `tag` and its digest, which is returned.
    pub fn put_image(
        &self,
        name: &str,
        tag: &str,
        layer_type: &str,
        config_type: &str,
        layer: &Bytes,
    ) -> String {
        let (config, manifest_type) = ("{}", "application/vnd.oci.image.manifest.v1+json");
        let (layer_digest, config_digest) = (digest(layer), digest(config.as_bytes()));
        let manifest = format!(
            "{{\"schemaVersion\":2,\"mediaType\":\"{manifest_type}\",\"config\":{{\"mediaType\":\"{config_type}\",\
             \"digest\":\"{config_digest}\",\"size\":2}},\"layers\":[{{\"mediaType\":\"{layer_type}\",\
             \"digest\":\"{layer_digest}\",\"size\":{}}}]}}",
            layer.len()
        );
        let image = digest(manifest.as_bytes());
        self.put(&format!("/v2/{name}/blobs/{layer_digest}"), "application/octet-stream", layer.clone());
        self.put(&format!("/v2/{name}/blobs/{config_digest}"), "application/octet-stream", config);
        self.put(&format!("/v2/{name}/manifests/{image}"), manifest_type, manifest.clone());
        self.put(&format!("/v2/{name}/manifests/{tag}"), manifest_type, manifest);
        image
    }

    /// Serves the files on a free port and returns host and port.
    pub async fn serve(&self) -> String {
        self.put("/v2/", "application/json", "{}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }
}

async fn answer(State(site): State<Site>, request: Request) -> Response {
    let Some((kind, content)) = site.0.lock().get(request.uri().path()).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [("content-type", kind), ("docker-content-digest", digest(&content))];
    if request.method() == Method::HEAD {
        let length = content.len().to_string();
        return (headers, [("content-length", length)]).into_response();
    }
    (headers, content).into_response()
}
