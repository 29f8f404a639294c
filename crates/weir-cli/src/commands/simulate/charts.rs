//! Charts from a directory, served as a Helm repository and as a registry.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::error::Error;
use crate::local::LocalError;
use crate::view;

/// The largest archive that is taken.
const ARCHIVE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Folders within folders.
const DEPTH_MAX: usize = 8;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// One archive.
#[derive(Debug, Clone)]
struct Chart {
    /// What its `Chart.yaml` says.
    facts: Value,
    archive: Bytes,
}

/// Charts by name and version.
#[derive(Debug, Clone, Default)]
pub(crate) struct Charts {
    all: BTreeMap<(String, String), Chart>,
}

impl Charts {
    /// All archives (`.tgz`) below a directory.
    ///
    /// # Errors
    /// The directory cannot be read. An archive that is no chart is passed over.
    pub(crate) fn read(directory: &Path) -> Result<Self, Error> {
        let mut charts = Self::default();
        let failed = |source| Error::File { path: directory.display().to_string(), source };
        let mut folders = vec![(directory.to_owned(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            for entry in std::fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let path = entry.path();
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() && depth < DEPTH_MAX {
                    folders.push((path, depth + 1));
                } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "tgz") {
                    charts.add(&path).map_err(failed)?;
                }
            }
        }
        Ok(charts)
    }

    fn add(&mut self, path: &PathBuf) -> std::io::Result<()> {
        if std::fs::metadata(path)?.len() > ARCHIVE_BYTES_MAX {
            return Ok(());
        }
        let archive = Bytes::from(std::fs::read(path)?);
        if let Some(facts) = facts(&archive) {
            let key = (view::text(&facts, "/name").to_owned(), view::text(&facts, "/version").to_owned());
            self.all.insert(key, Chart { facts, archive });
        }
        Ok(())
    }

    /// The names of all charts.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.all.keys().map(|(name, _)| name.clone()).collect();
        names.dedup();
        names
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    fn index(&self) -> String {
        let mut entries: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for ((name, version), chart) in &self.all {
            let mut entry = chart.facts.clone();
            entry["urls"] = json!([format!("files/{name}/{version}.tgz")]);
            entry["digest"] = json!(digest(&chart.archive));
            entry["created"] = json!("2020-01-01T00:00:00Z");
            entries.entry(name).or_default().push(entry);
        }
        weir_manifest::to_yaml(&json!({
            "apiVersion": "v1", "entries": entries, "generated": "2020-01-01T00:00:00Z"
        }))
    }

    /// The chart of a registry's tag: tags have `_` where versions have `+`.
    fn tagged(&self, name: &str, tag: &str) -> Option<&Chart> {
        self.all.get(&(name.to_owned(), tag.replace('_', "+")))
    }

    fn manifest(chart: &Chart) -> String {
        let config = chart.facts.to_string();
        json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {
                "mediaType": CONFIG, "size": config.len(), "digest": format!("sha256:{}", digest(config.as_bytes()))
            },
            "layers": [{
                "mediaType": LAYER, "size": chart.archive.len(),
                "digest": format!("sha256:{}", digest(&chart.archive))
            }],
        })
        .to_string()
    }

    /// What a registry answers: its media type and the body.
    fn registry(&self, path: &str) -> Option<(&'static str, Bytes)> {
        let (repository, kind, last) = {
            let mut parts = path.rsplitn(3, '/');
            let (last, kind, repository) = (parts.next()?, parts.next()?, parts.next()?);
            (repository, kind, last)
        };
        let name = repository.rsplit('/').next()?;
        let of_name = || self.all.iter().filter(|((known, _), _)| known == name);
        match (kind, last) {
            ("tags", "list") => {
                let tags: Vec<String> =
                    of_name().map(|((_, version), _)| version.replace('+', "_")).collect();
                let body = json!({"name": repository, "tags": tags}).to_string();
                Some(("application/json", body.into()))
            }
            ("manifests", reference) => {
                let manifest = match self.tagged(name, reference) {
                    Some(chart) => Some(Self::manifest(chart)),
                    None => of_name()
                        .map(|(_, chart)| Self::manifest(chart))
                        .find(|text| reference == format!("sha256:{}", digest(text.as_bytes()))),
                };
                Some((MANIFEST, manifest?.into()))
            }
            ("blobs", wanted) => of_name().find_map(|(_, chart)| {
                let config = Bytes::from(chart.facts.to_string());
                [config, chart.archive.clone()]
                    .into_iter()
                    .find(|blob| wanted == format!("sha256:{}", digest(blob)))
                    .map(|blob| ("application/octet-stream", blob))
            }),
            _ => None,
        }
    }
}

/// `Chart.yaml` of an archive.
fn facts(archive: &[u8]) -> Option<Value> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    for entry in archive.entries().ok()? {
        let mut entry = entry.ok()?;
        let path = entry.path().ok()?.into_owned();
        let mut parts = path.components();
        parts.next();
        if parts.as_path() == Path::new("Chart.yaml") {
            let mut text = Vec::new();
            entry.by_ref().take(1024 * 1024).read_to_end(&mut text).ok()?;
            let facts = weir_manifest::read_documents(&text, "Chart.yaml").ok()?.into_iter().next()?;
            return (facts["name"].is_string() && facts["version"].is_string()).then_some(facts);
        }
    }
    None
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    use std::fmt::Write as _;
    sha2::Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The server of a cache. It stops when this is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves charts on a free loopback port.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn start(charts: Charts) -> Result<Self, LocalError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(LocalError::Listen)?;
        let address = listener.local_addr().map_err(LocalError::Listen)?;
        let router = Router::new()
            .route("/charts/index.yaml", get(index))
            .route("/charts/files/{name}/{file}", get(file))
            .route("/v2/", get(|| async { "{}" }))
            .route("/v2/{*path}", get(registry).head(registry))
            .with_state(Arc::new(charts));
        let task = tokio::spawn(async move {
            // It ends with the process.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, task })
    }

    /// The Helm repository.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/charts", self.address)
    }

    /// The registry; the last part of a repository's path names the chart.
    pub(crate) fn registry(&self) -> String {
        format!("oci://{}/charts", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn index(State(charts): State<Arc<Charts>>) -> Response {
    ([(header::CONTENT_TYPE, "application/yaml")], charts.index()).into_response()
}

async fn file(
    State(charts): State<Arc<Charts>>,
    UrlPath((name, file)): UrlPath<(String, String)>,
) -> Response {
    let version = file.trim_end_matches(".tgz").to_owned();
    match charts.all.get(&(name, version)) {
        Some(chart) => ([(header::CONTENT_TYPE, "application/gzip")], chart.archive.clone()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn registry(State(charts): State<Arc<Charts>>, UrlPath(path): UrlPath<String>) -> Response {
    match charts.registry(&path) {
        Some((media_type, body)) => {
            let digest = format!("sha256:{}", digest(&body));
            (
                [
                    (header::CONTENT_TYPE, media_type.to_owned()),
                    (header::HeaderName::from_static("docker-content-digest"), digest),
                ],
                body,
            )
                .into_response()
        }
        None => (StatusCode::NOT_FOUND, "{\"errors\":[{\"code\":\"NAME_UNKNOWN\"}]}").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn archive(name: &str, version: &str) -> Vec<u8> {
        let text = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, format!("{name}/Chart.yaml"), text.as_bytes()).unwrap();
        builder.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn archives_become_a_repository_and_a_registry() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("more")).unwrap();
        std::fs::write(directory.path().join("a.tgz"), archive("web", "1.0.0")).unwrap();
        std::fs::write(directory.path().join("more/b.tgz"), archive("web", "1.1.0+x")).unwrap();
        std::fs::write(directory.path().join("broken.tgz"), b"no archive").unwrap();
        let charts = Charts::read(directory.path()).unwrap();
        assert_eq!((charts.len(), charts.names()), (2, vec!["web".to_owned()]));
        let index = charts.index();
        assert!(index.contains("files/web/1.1.0+x.tgz"), "{index}");
        let (_, tags) = charts.registry("charts/team/web/tags/list").unwrap();
        assert_eq!(tags, r#"{"name":"charts/team/web","tags":["1.0.0","1.1.0_x"]}"#);
        let (media, manifest) = charts.registry("charts/web/manifests/1.1.0_x").unwrap();
        assert_eq!(media, MANIFEST);
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let layer = manifest["layers"][0]["digest"].as_str().unwrap();
        let (_, blob) = charts.registry(&format!("charts/web/blobs/{layer}")).unwrap();
        assert_eq!(facts(&blob).unwrap()["version"], "1.1.0+x");
        assert!(charts.registry("charts/web/manifests/9").is_none());
    }
}
