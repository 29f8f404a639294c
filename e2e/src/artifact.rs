//! A server of made-up artifacts, for sources whose status a scenario writes itself.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::Result;
use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Serves one archive.
pub struct ArtifactServer {
    address: SocketAddr,
    digest: String,
    server: JoinHandle<()>,
}

impl ArtifactServer {
    /// Serves an archive of these files on a free loopback port.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(files: &[(&str, &str)]) -> Result<Self> {
        let mut archive =
            tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (path, content) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, content.as_bytes())?;
        }
        let mut encoder = archive.into_inner()?;
        encoder.flush()?;
        let bytes = encoder.finish()?;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/artifact.tar.gz", get(move || async move { bytes }));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, digest, server })
    }

    /// The digest of what is served.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// `status.artifact` of a source that offers this archive under a digest, which may be a lie.
    pub fn status(&self, revision: &str, digest: &str) -> Value {
        json!({
            "url": format!("http://{}/artifact.tar.gz", self.address),
            "path": "artifact.tar.gz",
            "revision": revision,
            "digest": digest,
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        })
    }
}

impl Drop for ArtifactServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}
