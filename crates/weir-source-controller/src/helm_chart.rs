//! HelmChart: from a chart in a repository, a registry or another source to a stored package.

mod build;
mod decide;
mod dependencies;
mod error;
mod remote;
mod status;
mod tables;

use std::sync::Arc;

use weir_api::source::{Bucket, ChartSourceKind, GitRepository, HelmChart, HelmRepository};
use weir_artifact::storage::{Storage, object_directory};
use weir_artifact::unpack::{Limits, Symlinks, unpack};
use weir_base::tree::MemoryTree;
use weir_runtime::{Conclusion, Ended, Notice, ObjectKey, Pass, Reconciler, Run, Severity, Store};
use weir_source::helm::ChartVersion;

use crate::helm_repository::is_oci;
use crate::identity::Identities;
use crate::source::Source as _;
use crate::source::status::{self as source_status, Before, Done};
use crate::source::{storage, verify};
use build::{Build, Content};
use error::{BuildFailure, Cause, Error, Reason};
use remote::{Remote, Remotes};

/// The kinds charts come from.
#[derive(Debug, Clone)]
pub struct ChartSources {
    /// Chart repositories.
    pub helm: Store<HelmRepository>,
    /// Git repositories.
    pub git: Store<GitRepository>,
    /// Buckets.
    pub bucket: Store<Bucket>,
}

/// The reconciler of HelmCharts.
pub struct HelmCharts {
    storage: Arc<Storage>,
    sources: ChartSources,
    remotes: Remotes,
}

impl std::fmt::Debug for HelmCharts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HelmCharts").field("storage", &self.storage).finish_non_exhaustive()
    }
}

impl Reconciler for HelmCharts {
    type Object = HelmChart;
    type Done = Done;
    type Error = Error;

    const OWNED_CONDITIONS: &'static [&'static str] = status::OWNED;

    async fn reconcile(&self, run: &Run<HelmChart>, object: &HelmChart) -> Result<Done, Error> {
        let before = Before::of(object);
        run.update(|working| source_status::begin(working, run.now()));
        if source_status::is_news(object) {
            run.show_progress();
        }
        storage::check(run, &self.storage).await?; // effect: collect, verify, announce what is missing
        let built = self.build(run, object).await?; // read: the chart and what it needs
        let summary = built.summary();
        if object.spec.verify.is_none() {
            run.update(status::not_verified);
        }
        if run.update(|working| status::observed(working, &built, run.now())) {
            run.show_progress();
        }
        if built.resolved_dependencies > 0 {
            let message = format!("resolved {} chart dependencies", built.resolved_dependencies);
            run.notice(&Notice::new(Severity::Trace, "ResolvedDependencies", message));
        }
        let reason = built.reason();
        self.publish_artifact(run, object, built).await?; // effect: store
        Ok(Done { before, message: summary, unchanged: None, reason: Some(reason) })
    }

    async fn finalize(&self, run: &Run<HelmChart>, object: &HelmChart) -> Result<(), Error> {
        Ok(storage::remove_all(run, &self.storage, directory_of(object)).await?)
    }

    fn conclude(&self, object: &mut HelmChart, pass: Pass<'_, Done, Error>, ended: Ended) -> Conclusion {
        source_status::conclude(object, &pass, ended)
    }
}

impl HelmCharts {
    /// A reconciler that stores in `storage`, reads indexes of up to `index_bytes_max` bytes where none is stored, and
    /// fetches charts of up to `chart_bytes_max`.
    pub fn new(
        client: kube::Client,
        identities: Arc<Identities>,
        storage: Arc<Storage>,
        sources: ChartSources,
        index_bytes_max: u64,
        chart_bytes_max: u64,
    ) -> Self {
        let remotes = Remotes {
            client,
            identities,
            storage: Arc::clone(&storage),
            tables: Arc::default(),
            repositories: sources.helm.clone(),
            index_bytes_max,
            chart_bytes_max,
        };
        Self { storage, sources, remotes }
    }

    async fn build(&self, run: &Run<HelmChart>, object: &HelmChart) -> Result<Build, Error> {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let key = ObjectKey::new(namespace, object.spec.source_ref.name.clone());
        let unavailable =
            || Error::SourceUnavailable { kind: object.spec.source_ref.kind, name: key.name().to_owned() };
        let artifact = match object.spec.source_ref.kind {
            ChartSourceKind::HelmRepository => {
                let repository = self.sources.helm.get(&key).ok_or_else(unavailable)?;
                if is_oci(&repository) {
                    return self.build_remote(run, object, &repository).await;
                }
                let artifact = self.available(object, repository.artifact())?;
                run.update(|working| status::source_seen(working, &artifact.revision));
                return self.build_remote(run, object, &repository).await;
            }
            ChartSourceKind::GitRepository => {
                let source = self.sources.git.get(&key).ok_or_else(unavailable)?;
                self.available(object, source.artifact())?
            }
            ChartSourceKind::Bucket => {
                let source = self.sources.bucket.get(&key).ok_or_else(unavailable)?;
                self.available(object, source.status.as_ref().and_then(|status| status.artifact.as_ref()))?
            }
        };
        if let Some(built) = decide::unchanged(object, &run.snapshot(), &artifact.revision) {
            return Ok(built);
        }
        run.update(|working| status::source_seen(working, &artifact.revision));
        self.build_local(run, object, &artifact).await
    }

    /// The artifact of a source, if it is there.
    fn available(
        &self,
        object: &HelmChart,
        artifact: Option<&weir_api::Artifact>,
    ) -> Result<weir_api::Artifact, Error> {
        artifact.filter(|artifact| self.storage.exists(&artifact.path)).cloned().ok_or_else(|| {
            let source = &object.spec.source_ref;
            Error::NoArtifact { kind: source.kind, name: source.name.clone() }
        })
    }

    /// A chart of a repository or registry.
    async fn build_remote(
        &self,
        run: &Run<HelmChart>,
        object: &HelmChart,
        repository: &HelmRepository,
    ) -> Result<Build, Error> {
        decide::chart_name(&object.spec.chart)?;
        let remote = self.remotes.of_object(repository, &object.spec.chart).await?;
        let found = remote.find(&object.spec.chart, &object.spec.version).await.map_err(|error| {
            let reason = if error.is_reference() { Reason::ChartReference } else { Reason::ChartPull };
            Error::remote(reason, Cause::FindRemote(Box::new(error)))
        })?;
        let version = decide::version(&found.version, &decide::remote_metadata(object))?;
        let digest = self.verify(run, object, &remote, &found).await?;
        if let Some(built) = decide::cached(object, &run.snapshot(), &found.name, &version) {
            return Ok(built);
        }
        let bytes = remote
            .download(&found, digest)
            .await
            .map_err(|error| Error::remote(Reason::ChartPull, Cause::DownloadRemote(Box::new(error))))?;
        let (name, files) = (found.name, object.spec.values_files.clone());
        blocking(move || build::from_package(bytes, name, version, &files)).await?.map_err(Error::Build)
    }

    /// Makes sure that somebody who may signed the chart. The digest of what was verified is what is downloaded.
    async fn verify(
        &self,
        run: &Run<HelmChart>,
        object: &HelmChart,
        remote: &Remote,
        found: &ChartVersion,
    ) -> Result<Option<String>, Error> {
        let Some(wanted) = decide::wanted(object) else { return Ok(None) };
        let failed = |cause| Error::Build(BuildFailure::new(Reason::Verification, cause));
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let policy = verify::policy(&self.remotes.client, namespace, &wanted).await;
        let policy = policy.map_err(|error| failed(Cause::Verify(Box::new(error))))?;
        let verified = Box::pin(remote.verify(found, &policy)).await;
        let digest = verified.map_err(|error| match error {
            Some(error) => failed(Cause::Verify(Box::new(error.into()))),
            None => failed(Cause::NoSignatures),
        })?;
        run.update(|working| status::verified(working, &found.version, run.now()));
        Ok(Some(digest))
    }

    /// A chart that lies in another source.
    async fn build_local(
        &self,
        run: &Run<HelmChart>,
        object: &HelmChart,
        artifact: &weir_api::Artifact,
    ) -> Result<Build, Error> {
        let tree = self.unpack(artifact.path.clone()).await?;
        let metadata = decide::local_metadata(object, &artifact.revision);
        let path = object.spec.chart.clone();
        let (tree, seen) = blocking(move || {
            let seen = build::look(&tree, &path);
            (tree, seen)
        })
        .await?;
        let seen = seen.map_err(Error::Build)?;
        let version = decide::version(&seen.version, &metadata)?;
        if let Some(built) = decide::cached(object, &run.snapshot(), &seen.name, &version) {
            return Ok(built);
        }
        let order = build::Order {
            chart: seen,
            version,
            repackage: !metadata.is_empty() || !decide::values_files(object).is_empty(),
            values_files: object.spec.values_files.clone(),
            merge_values: !decide::values_files(object).is_empty(),
            ignore_missing: object.spec.ignore_missing_values_files,
        };
        let (tree, loaded) = blocking(move || {
            let loaded = build::load(&tree, order);
            (tree, loaded)
        })
        .await?;
        let mut loaded = loaded.map_err(Error::Build)?;
        if loaded.is_directory {
            let namespace = object.metadata.namespace.clone().unwrap_or_default();
            loaded.resolved_dependencies =
                dependencies::add_missing(&self.remotes, &namespace, &tree, &loaded.path, &mut loaded.chart)
                    .await
                    .map_err(|cause| Error::Build(BuildFailure::new(Reason::DependencyBuild, cause)))?;
        }
        drop(tree);
        blocking(move || build::package(loaded)).await?.map_err(Error::Build)
    }

    async fn unpack(&self, path: String) -> Result<MemoryTree, Error> {
        let storage = Arc::clone(&self.storage);
        blocking(move || {
            let bytes = storage.read(&path).map_err(Error::OpenSource)?;
            unpack(&bytes, Limits::default(), Symlinks::Skip).map_err(Error::Unpack)
        })
        .await?
    }

    async fn publish_artifact(
        &self,
        run: &Run<HelmChart>,
        object: &HelmChart,
        built: Build,
    ) -> Result<(), Error> {
        let bytes = match &built.content {
            Content::Stored => {
                let unchanged = format!("artifact up-to-date with remote revision: '{}'", built.version);
                run.notice(&Notice::new(Severity::Trace, "ArtifactUpToDate", unchanged).without_event());
                run.update(|working| status::stored(working, &built, run.now()));
                return Ok(());
            }
            Content::Package(bytes) => bytes.clone(),
        };
        let path = format!("{}/{}-{}.tgz", directory_of(object), built.name, built.version);
        let (storage, revision) = (Arc::clone(&self.storage), built.version.clone());
        let (artifact, url) = blocking(move || build::store(&storage, path, revision, &bytes)).await??;
        let url = match url {
            Ok(url) => Some(url),
            Err(error) => {
                let message =
                    format!("failed to update status URL symlink: {}", weir_base::error::chain(&error));
                run.notice(&Notice::new(Severity::Trace, "SymlinkUpdateFailed", message));
                None
            }
        };
        run.update(|working| status::published(working, artifact, url, &built, run.now()));
        Ok(())
    }
}

fn directory_of(object: &HelmChart) -> String {
    let meta = &object.metadata;
    object_directory(
        "helmchart",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Aborted)
}

/// The source a chart comes from, as `Kind/namespace/name`.
pub(crate) fn source_key(object: &HelmChart) -> String {
    let source = &object.spec.source_ref;
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    format!("{}/{namespace}/{}", source.kind, source.name)
}
