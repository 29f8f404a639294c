//! What is read before anything is decided: sources, and the objects that were made before.

use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use weir_api::Artifact;
use weir_api::extensions::{ArtifactGenerator, ArtifactGeneratorSource, ArtifactSourceKind};
use weir_api::source::{Bucket, ExternalArtifact, GitRepository, HelmChart, OCIRepository};
use weir_runtime::{Object, ObjectKey, Store, Watched};

use crate::decide::{self, Observed};
use crate::error::{Error, ObserveError};
use crate::external::GENERATOR_LABEL;

/// The kinds files come from.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Buckets.
    pub buckets: Store<Bucket>,
    /// Git repositories.
    pub git: Store<GitRepository>,
    /// OCI repositories.
    pub oci: Store<OCIRepository>,
    /// Charts.
    pub charts: Store<HelmChart>,
    /// Artifacts of other controllers, and of this one.
    pub external: Store<ExternalArtifact>,
}

/// A kind files come from.
pub(crate) trait ArtifactSource: Watched {
    /// Its artifact.
    fn artifact(&self) -> Option<&Artifact>;
}

macro_rules! artifact_source {
    ($($kind:ty),*) => {
        $(impl ArtifactSource for $kind {
            fn artifact(&self) -> Option<&Artifact> {
                self.status.as_ref()?.artifact.as_ref()
            }
        })*
    };
}

artifact_source!(Bucket, GitRepository, OCIRepository, HelmChart, ExternalArtifact);

/// The artifacts of all sources in the order of the specification.
pub(crate) async fn sources(
    client: &kube::Client,
    stores: &Stores,
    object: &ArtifactGenerator,
    is_direct: bool,
    retry: Duration,
) -> Result<Vec<Observed>, Error> {
    let mut observed = Vec::new();
    for source in &object.spec.sources {
        let artifact = match source.kind {
            ArtifactSourceKind::Bucket => find(client, &stores.buckets, object, source, is_direct).await,
            ArtifactSourceKind::GitRepository => find(client, &stores.git, object, source, is_direct).await,
            ArtifactSourceKind::OCIRepository => find(client, &stores.oci, object, source, is_direct).await,
            ArtifactSourceKind::HelmChart => find(client, &stores.charts, object, source, is_direct).await,
            ArtifactSourceKind::ExternalArtifact => {
                find(client, &stores.external, object, source, is_direct).await
            }
        };
        let artifact = artifact.map_err(|source| Error::Observe { source, retry })?;
        observed.push(Observed { alias: source.alias.clone(), artifact });
    }
    Ok(observed)
}

async fn find<K: ArtifactSource + Object>(
    client: &kube::Client,
    store: &Store<K>,
    object: &ArtifactGenerator,
    source: &ArtifactGeneratorSource,
    is_direct: bool,
) -> Result<Artifact, ObserveError> {
    let namespace = decide::source_namespace(object, source);
    let key = decide::source_key(object, source);
    let found = if is_direct {
        let api: Api<K> = Api::namespaced(client.clone(), namespace);
        let found = api.get_opt(&source.name).await;
        found.map_err(|source| ObserveError::Get { key: key.clone(), source: Box::new(source) })?
    } else {
        store.get(&ObjectKey::new(namespace, source.name.as_str())).map(|found| (*found).clone())
    };
    let found = found.ok_or_else(|| ObserveError::NotFound {
        plural: K::plural(&()).into_owned(),
        name: source.name.clone(),
    })?;
    found.artifact().cloned().ok_or(ObserveError::NotReady(key))
}

/// The objects this generator made, as they are now.
pub(crate) async fn external_artifacts(
    client: &kube::Client,
    object: &ArtifactGenerator,
) -> Result<Vec<ExternalArtifact>, Error> {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let api: Api<ExternalArtifact> = Api::namespaced(client.clone(), decide::namespace_of(object));
    let selector = format!("{GENERATOR_LABEL}={uid}");
    let found = api.list(&ListParams::default().labels(&selector)).await;
    found.map(|list| list.items).map_err(|error| Error::List(Box::new(error)))
}
