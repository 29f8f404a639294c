//! ArtifactGenerator: from the artifacts of other sources to artifacts made of their files.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use weir_api::extensions::{ArtifactGenerator, ExternalArtifactReference};
use weir_api::source::ExternalArtifact;
use weir_artifact::fetch::Fetcher;
use weir_artifact::storage::{Storage, object_directory};
use weir_base::error::chain;
use weir_runtime::{Conclusion, Ended, Pass, Reconciler, Run};

use crate::build::{self, KIND};
use crate::copy::Sources;
use crate::decide::{self, ORIGIN_REVISION, Observed};
use crate::error::Error;
use crate::expand::{self, Request};
use crate::external;
use crate::observe::{self, Stores};
use crate::status::{self, Done};

/// The reconciler of ArtifactGenerators.
pub struct ArtifactGenerators {
    /// Writes ExternalArtifacts.
    pub client: kube::Client,
    /// Where artifacts go.
    pub storage: Arc<Storage>,
    /// Fetches the artifacts of sources.
    pub fetcher: Fetcher,
    /// The sources.
    pub stores: Stores,
    /// Whether sources are read from the API server each time.
    pub is_direct: bool,
    /// Whether sources must be in the namespace of the generator.
    pub no_cross_namespace_refs: bool,
    /// The time between two looks at a source that is not available.
    pub requeue_dependency: Duration,
    /// The longest time of a run.
    pub timeout: Duration,
}

impl std::fmt::Debug for ArtifactGenerators {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ArtifactGenerators").field("storage", &self.storage).finish_non_exhaustive()
    }
}

impl Reconciler for ArtifactGenerators {
    type Object = ArtifactGenerator;
    type Done = Done;
    type Error = Error;

    async fn reconcile(
        &self,
        run: &Run<ArtifactGenerator>,
        object: &ArtifactGenerator,
    ) -> Result<Done, Error> {
        decide::validate(object, self.no_cross_namespace_refs)?; // pure
        let observed =
            observe::sources(&self.client, &self.stores, object, self.is_direct, self.requeue_dependency)
                .await?; // read
        let digest = decide::sources_digest(&observed); // pure
        let existing = observe::external_artifacts(&self.client, object).await?; // read
        let drifts = decide::drift(object, &digest, &existing).is_some() || !self.is_stored(object).await?;
        if !drifts {
            return Ok(Done::Unchanged { artifacts: existing.len() });
        }
        run.update(|working| status::begin(working, run.now()));
        run.publish().await?;
        let sources = self.fetch(object, &observed).await?; // read: archives
        let requests = expand::requests(&object.spec, &sources).map_err(Error::Expand)?; // pure
        let sources = Arc::new(sources);
        let mut inventory = Vec::new();
        for request in &requests {
            let entry = self.publish(run, object, request, &sources, &observed, &existing).await?; // effect
            inventory.push(entry);
        }
        let before = object.status.as_ref().map(|status| status.inventory.clone()).unwrap_or_default();
        for orphan in decide::orphans(&before, &inventory) {
            self.remove(object, &orphan).await; // effect
        }
        self.collect_garbage(&inventory).await; // effect
        let news = decide::news(&before, &inventory);
        Ok(Done::Built { inventory, sources_digest: digest, news })
    }

    async fn finalize(&self, _: &Run<ArtifactGenerator>, object: &ArtifactGenerator) -> Result<(), Error> {
        for entry in object.status.iter().flat_map(|status| &status.inventory) {
            self.remove(object, entry).await;
        }
        Ok(())
    }

    fn conclude(
        &self,
        object: &mut ArtifactGenerator,
        pass: Pass<'_, Done, Error>,
        ended: Ended,
    ) -> Conclusion {
        status::conclude(object, &pass, ended)
    }

    fn deadline(&self, _: &ArtifactGenerator) -> Option<Duration> {
        Some(self.timeout)
    }
}

impl ArtifactGenerators {
    /// Whether every file of the inventory is there and is what it was. One that is not is removed.
    async fn is_stored(&self, object: &ArtifactGenerator) -> Result<bool, Error> {
        let inventory = object.status.as_ref().map(|status| status.inventory.clone()).unwrap_or_default();
        let storage = Arc::clone(&self.storage);
        blocking(move || {
            inventory.iter().all(|entry| {
                let path = build::path_of(&entry.namespace, &entry.name, &entry.filename);
                if !storage.exists(&path) {
                    return false;
                }
                let verified = storage.verify(&path, &entry.digest);
                if let Err(error) = &verified {
                    warn!(path, error = chain(error), "removing a damaged artifact");
                    if let Err(error) = storage.remove(&path) {
                        warn!(path, error = chain(&error), "failed to remove a damaged artifact");
                    }
                }
                verified.is_ok()
            })
        })
        .await
    }

    async fn fetch(&self, object: &ArtifactGenerator, observed: &[Observed]) -> Result<Sources, Error> {
        let mut sources = Sources::new();
        for (source, observed) in object.spec.sources.iter().zip(observed) {
            let tree = self.fetcher.fetch(&observed.artifact.url, &observed.artifact.digest).await;
            let tree = tree.map_err(|error| Error::Fetch {
                key: decide::source_key(object, source),
                source: error,
                retry: self.requeue_dependency,
            })?;
            sources.insert(source.alias.clone(), tree);
        }
        Ok(sources)
    }

    /// Builds and stores one artifact, and writes the object for it.
    async fn publish(
        &self,
        run: &Run<ArtifactGenerator>,
        object: &ArtifactGenerator,
        request: &Request,
        sources: &Arc<Sources>,
        observed: &[Observed],
        existing: &[ExternalArtifact],
    ) -> Result<ExternalArtifactReference, Error> {
        let namespace = decide::namespace_of(object).to_owned();
        let name = request.output.name.clone();
        let (storage, sources, output) =
            (Arc::clone(&self.storage), Arc::clone(sources), request.output.clone());
        let owner = namespace.clone();
        let built = blocking(move || build::build(&storage, &output, &sources, &owner)).await?;
        let mut artifact = built.map_err(|source| Error::Build { name: name.clone(), source })?;
        let before = existing.iter().find(|found| found.metadata.name.as_deref() == Some(&name));
        let before = before.and_then(|found| found.status.as_ref()?.artifact.as_ref());
        let output = &request.output;
        artifact.revision = decide::revision(output.revision.as_deref(), observed, &artifact, before);
        if let Some(origin) = decide::origin_revision(output.origin_revision.as_deref(), observed) {
            artifact.metadata.insert(ORIGIN_REVISION.to_owned(), origin);
        }
        external::apply(&self.client, object, request, &artifact, run.now())
            .await
            .map_err(|source| Error::Apply { name: name.clone(), source: Box::new(source) })?;
        let filename = artifact.path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(ExternalArtifactReference { name, namespace, digest: artifact.digest, filename })
    }

    /// Removes an object and what it published. What cannot be removed is only told: the generator may go or go on.
    async fn remove(&self, object: &ArtifactGenerator, entry: &ExternalArtifactReference) {
        let (storage, directory) =
            (Arc::clone(&self.storage), object_directory(KIND, &entry.namespace, &entry.name));
        if let Ok(Err(error)) = blocking(move || storage.remove_directory(&directory)).await {
            warn!(artifact = entry.name, error = chain(&error), "failed to remove artifact from storage");
        }
        if let Err(error) = external::delete(&self.client, object, entry).await {
            warn!(artifact = entry.name, error = chain(&error), "failed to delete ExternalArtifact");
        }
    }

    async fn collect_garbage(&self, inventory: &[ExternalArtifactReference]) {
        let (storage, inventory) = (Arc::clone(&self.storage), inventory.to_vec());
        let collected = blocking(move || {
            for entry in inventory {
                let path = build::path_of(&entry.namespace, &entry.name, &entry.filename);
                if let Err(error) = storage.collect_garbage(&path) {
                    warn!(path, error = chain(&error), "failed to garbage collect artifacts");
                }
            }
        });
        // It fails only when the process shuts down.
        let _ = collected.await;
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Aborted)
}
