//! Charts in repositories and registries: finding a version and downloading it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_api::Artifact;
use weir_api::common::RegistryProvider;
use weir_api::source::{HelmRepository, HelmRepositorySpec};
use weir_artifact::storage::{Storage, StorageError};
use weir_base::error::chain;
use weir_base::version::Version;
use weir_runtime::Store;
use weir_source::cosign::{self, CosignError, Policy};
use weir_source::helm::{
    ChartVersion, Fetched, HelmError, Index, IndexError, LookupError, Repository, Table, chart_layer, choose,
    choose_tag, normalize_url,
};
use weir_source::oci::{self, OciError, Session, UrlError};

use super::error::Error;
use super::tables::Tables;
use crate::helm_repository::{access, is_oci, oci_access, timeout};
use crate::identity::Identities;
use crate::source::Source as _;

/// Why a repository did not give a chart.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The stored index cannot be read.
    #[error("failed to load index")]
    Index(#[source] StorageError),
    /// The index of a repository that is not stored cannot be read.
    #[error("failed to load index")]
    Parse(#[from] IndexError),
    /// No version was found.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The web server failed.
    #[error(transparent)]
    Http(#[from] HelmError),
    /// The URL does not name a registry.
    #[error("invalid OCI registry URL")]
    Url(#[from] UrlError),
    /// The registry failed.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// The registry has something else.
    #[error("{0}")]
    Registry(String),
    /// The index names no place to download from.
    #[error("chart '{0}' has no downloadable URLs")]
    NoUrl(String),
    /// The process shuts down.
    #[error("the operation was aborted")]
    Aborted,
}

impl RemoteError {
    /// Whether the repository is fine and just does not have what was asked for.
    pub(super) fn is_reference(&self) -> bool {
        match self {
            Self::Lookup(LookupError::NoTag(_) | LookupError::Broken) => false,
            Self::Lookup(_) => true,
            _ => false,
        }
    }
}

/// Makes clients for repositories.
pub(super) struct Remotes {
    pub(super) client: kube::Client,
    pub(super) identities: Arc<Identities>,
    pub(super) storage: Arc<Storage>,
    pub(super) tables: Arc<Tables>,
    /// All HelmRepositories, for dependencies.
    pub(super) repositories: Store<HelmRepository>,
    pub(super) index_bytes_max: u64,
    pub(super) chart_bytes_max: u64,
}

/// A repository or registry that can be asked for charts.
pub(super) enum Remote {
    Http {
        repository: Box<Repository>,
        /// The stored index.
        artifact: Option<Artifact>,
        storage: Arc<Storage>,
        tables: Arc<Tables>,
        index_bytes_max: u64,
        chart_bytes_max: u64,
    },
    Registry {
        url: String,
        access: Box<oci::Access>,
        timeout: Duration,
        chart_bytes_max: u64,
    },
}

impl Remotes {
    /// The repository an object describes.
    pub(super) async fn of_object(&self, object: &HelmRepository, chart: &str) -> Result<Remote, Error> {
        let url = normalize_url(&object.spec.url)
            .map_err(|error| Error::Client(RemoteError::Http(HelmError::Url(error))))?;
        if is_oci(object) || url.starts_with("oci://") {
            let repository = oci::Repository::parse(&format!("{url}/{chart}"))
                .map_err(|error| Error::Client(RemoteError::Url(error)))?;
            let access = oci_access(&self.client, &self.identities, object, &repository.registry).await?;
            return Ok(Remote::Registry {
                url,
                access: Box::new(access),
                timeout: timeout(object),
                chart_bytes_max: self.chart_bytes_max,
            });
        }
        let access = access(&self.client, object).await?;
        let repository =
            Repository::new(&url, access.http).map_err(|error| Error::Client(RemoteError::Http(error)))?;
        Ok(Remote::Http {
            repository: Box::new(repository),
            artifact: object.artifact().filter(|artifact| self.storage.exists(&artifact.path)).cloned(),
            storage: Arc::clone(&self.storage),
            tables: Arc::clone(&self.tables),
            index_bytes_max: self.index_bytes_max,
            chart_bytes_max: self.chart_bytes_max,
        })
    }

    /// The repository of a dependency: that of an object with the same URL in the namespace, or without any login.
    pub(super) async fn of_url(&self, url: &str, namespace: &str, chart: &str) -> Result<Remote, Error> {
        let normal =
            normalize_url(url).map_err(|error| Error::Client(RemoteError::Http(HelmError::Url(error))))?;
        let same = |object: &Arc<HelmRepository>| {
            object.metadata.namespace.as_deref() == Some(namespace)
                && normalize_url(&object.spec.url).is_ok_and(|other| other == normal)
        };
        let mut known: Vec<_> = self.repositories.list().into_iter().filter(same).collect();
        known.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
        if let Some(object) = known.first() {
            return self.of_object(object, chart).await;
        }
        self.of_object(&anonymous(&normal), chart).await
    }
}

/// A repository without login.
fn anonymous(url: &str) -> HelmRepository {
    let spec = HelmRepositorySpec {
        access_from: None,
        cert_secret_ref: None,
        insecure: false,
        interval: None,
        pass_credentials: false,
        provider: RegistryProvider::Generic,
        secret_ref: None,
        suspend: false,
        timeout: None,
        type_: None,
        url: url.to_owned(),
    };
    HelmRepository::new("", spec)
}

impl Remote {
    /// The version to take of a chart.
    pub(super) async fn find(&self, chart: &str, range: &str) -> Result<ChartVersion, RemoteError> {
        match self {
            Self::Http { repository, artifact, storage, tables, index_bytes_max, .. } => {
                let versions = match artifact.clone() {
                    Some(artifact) => {
                        let (storage, tables) = (Arc::clone(storage), Arc::clone(tables));
                        let chart = chart.to_owned();
                        blocking(move || tables.versions(&storage, &artifact, &chart)).await??
                    }
                    None => Self::download_versions(repository, *index_bytes_max, chart.to_owned()).await?,
                };
                Ok(choose(&versions, chart, range)?.clone())
            }
            Self::Registry { url, .. } => {
                let version = if Version::parse_complete(range).is_ok() {
                    range.to_owned()
                } else {
                    self.choose_tag(chart, range).await?
                };
                let urls = Some(vec![format!("{url}/{chart}:{version}")]);
                Ok(ChartVersion { name: chart.to_owned(), version, urls, ..ChartVersion::default() })
            }
        }
    }

    async fn download_versions(
        repository: &Repository,
        bytes_max: u64,
        chart: String,
    ) -> Result<Vec<ChartVersion>, RemoteError> {
        let Fetched::Index { bytes, .. } = repository.index(None, bytes_max).await? else {
            return Err(LookupError::Broken.into());
        };
        blocking(move || {
            let index = Index::parse(&bytes)?;
            drop(bytes);
            let mut text = Vec::new();
            index.write(&mut text).map_err(|_| LookupError::Broken)?;
            let text = std::str::from_utf8(&text).map_err(|_| LookupError::Broken)?;
            let place = Table::of(text)?.place(&chart).ok_or(LookupError::NoChart)?;
            Ok(ChartVersion::list(&text[place])?)
        })
        .await?
    }

    fn session(&self, chart: &str) -> Result<Session, RemoteError> {
        match self {
            Self::Registry { url, access, timeout, .. } => {
                let repository = oci::Repository::parse(&format!("{url}/{chart}"))?;
                Ok(Session::new(repository, access, *timeout)?)
            }
            Self::Http { .. } => Err(RemoteError::Registry("not a registry".to_owned())),
        }
    }

    async fn choose_tag(&self, chart: &str, range: &str) -> Result<String, RemoteError> {
        let tags = self.session(chart)?.tags().await.map_err(|error| {
            RemoteError::Registry(format!("could not get tags for {chart:?}: {}", chain(&error)))
        })?;
        if tags.is_empty() {
            let text = format!("unable to locate any tags in provided repository: {chart}");
            return Err(RemoteError::Registry(text));
        }
        Ok(choose_tag(&tags, range)?)
    }

    /// The digest of a chart in a registry that somebody who may signed. The error is empty for web servers, whose charts
    /// have no such signatures.
    pub(super) async fn verify(
        &self,
        version: &ChartVersion,
        policy: &Policy,
    ) -> Result<String, Option<CosignError>> {
        let Self::Registry { url, access, timeout, .. } = self else { return Err(None) };
        let registry = |error: OciError| Some(CosignError::Registry(error));
        let name = format!("{url}/{}", version.name);
        let Ok(repository) = oci::Repository::parse(&name) else { return Err(None) };
        let session = Session::new(repository, access, *timeout).map_err(registry)?;
        let tag = version.version.replace('+', "_");
        let digest = session.digest_of(&tag).await.map_err(registry)?;
        let reference = format!("{}:{tag}", name.trim_start_matches("oci://"));
        cosign::verify(&session, &digest, &reference, policy).await?;
        Ok(digest)
    }

    /// The package of a chart version; of a registry, that with the digest if one is given.
    pub(super) async fn download(
        &self,
        version: &ChartVersion,
        digest: Option<String>,
    ) -> Result<Bytes, RemoteError> {
        match self {
            Self::Http { repository, chart_bytes_max, .. } => {
                let url = version.urls.iter().flatten().next();
                let url = url.ok_or_else(|| RemoteError::NoUrl(version.name.clone()))?;
                Ok(repository.chart(url, *chart_bytes_max).await?)
            }
            Self::Registry { url, chart_bytes_max, .. } => {
                let session = self.session(&version.name)?;
                // Tags cannot hold a plus sign.
                let digest = match digest {
                    Some(digest) => digest,
                    None => session.digest_of(&version.version.replace('+', "_")).await?,
                };
                let image = session.image(&digest).await?;
                let layer = chart_layer(&image).map_err(|why| {
                    RemoteError::Registry(format!("failed to get '{url}/{}': {why}", version.name))
                })?;
                Ok(session.blob(layer, *chart_bytes_max).await?)
            }
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RemoteError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| RemoteError::Aborted)
}
