//! HelmRepository: from a web server's `index.yaml` to a stored index.

mod decide;
mod error;
mod observe;
mod publish;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tracing::info;
use weir_api::source::HelmRepository;
use weir_artifact::digest::Digest;
use weir_artifact::storage::{Storage, object_directory};
use weir_runtime::{Conclusion, Ended, Notice, Pass, Reconciler, Run, Severity};
use weir_source::helm::{Fetched, Index, Repository, Validators};

use crate::source::Source as _;
use crate::source::status::{self as source_status, Before, Done};
use crate::source::storage;
use error::Error;

pub(crate) use decide::is_oci;
pub(crate) use observe::{AccessError, access, oci_access, timeout};

/// The reconciler of HelmRepositories.
pub struct HelmRepositories {
    client: kube::Client,
    storage: Arc<Storage>,
    index_bytes_max: u64,
    /// What servers said about the indexes that are stored, by object.
    known: Mutex<HashMap<String, Known>>,
    /// Indexes are large: one is read at a time.
    reading: Semaphore,
}

/// What a server said about an index.
#[derive(Clone)]
struct Known {
    url: String,
    revision: String,
    validators: Validators,
}

impl std::fmt::Debug for HelmRepositories {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HelmRepositories").field("storage", &self.storage).finish_non_exhaustive()
    }
}

/// What the server has, compared with what is stored.
enum Seen {
    Same(String),
    New { index: Index, revision: Digest },
}

impl Reconciler for HelmRepositories {
    type Object = HelmRepository;
    type Done = Done;
    type Error = Error;

    const OWNED_CONDITIONS: &'static [&'static str] = crate::source::status::UNVERIFIED_TYPES;

    async fn reconcile(&self, run: &Run<HelmRepository>, object: &HelmRepository) -> Result<Done, Error> {
        let before = Before::of(object);
        run.update(|working| source_status::begin(working, run.now()));
        if source_status::is_news(object) {
            run.show_progress();
        }
        storage::check(run, &self.storage).await?; // effect: collect, verify, announce what is missing
        let url = decide::url(object)?; // pure
        let access = observe::access(&self.client, object).await?; // read: Secrets
        if access.deprecated {
            info!(
                "warning: specifying TLS authentication data via `.spec.secretRef` is deprecated, please use \
                 `.spec.certSecretRef` instead"
            );
        }
        let repository = Repository::new(&url, access.http).map_err(Error::Client)?;
        match self.fetch(run, &repository, &url).await? {
            // read: the index, unless it is the stored one
            Seen::Same(revision) => {
                run.update(|working| {
                    source_status::fetched(working);
                    source_status::stored(working, &revision, run.now());
                });
                let unchanged = format!("artifact up-to-date with remote revision: '{revision}'");
                run.notice(&Notice::new(Severity::Trace, "ArtifactUpToDate", unchanged).without_event());
            }
            Seen::New { index, revision } => {
                run.update(source_status::fetched);
                let text = revision.to_string();
                let message = format!("new index revision '{text}'");
                if run.update(|working| source_status::new_revision(working, &text, &message, run.now())) {
                    run.show_progress();
                }
                self.publish_artifact(run, object, index, &revision).await?; // effect: store
            }
        }
        let message = status::stored_from(&run.snapshot());
        Ok(Done { before, message, unchanged: None, reason: None })
    }

    async fn finalize(&self, run: &Run<HelmRepository>, object: &HelmRepository) -> Result<(), Error> {
        self.known.lock().remove(&directory_of(object));
        Ok(storage::remove_all(run, &self.storage, directory_of(object)).await?)
    }

    fn conclude(&self, object: &mut HelmRepository, pass: Pass<'_, Done, Error>, ended: Ended) -> Conclusion {
        source_status::conclude(object, &pass, ended)
    }

    fn is_static(&self, object: &HelmRepository) -> bool {
        is_oci(object)
    }
}

impl HelmRepositories {
    /// A reconciler that reads Secrets with `client`, stores in `storage`, and takes indexes up to `index_bytes_max`.
    pub fn new(client: kube::Client, storage: Arc<Storage>, index_bytes_max: u64) -> Self {
        Self { client, storage, index_bytes_max, known: Mutex::default(), reading: Semaphore::new(1) }
    }

    async fn fetch(
        &self,
        run: &Run<HelmRepository>,
        repository: &Repository,
        url: &str,
    ) -> Result<Seen, Error> {
        let working = run.snapshot();
        let key = directory_of(&working);
        let current = working.artifact().map(|artifact| artifact.revision.clone());
        let known = self.known.lock().get(&key).cloned().filter(|known| {
            known.url == url && current.as_ref().is_some_and(|revision| *revision == known.revision)
        });
        let validators = known.as_ref().map(|known| &known.validators);
        let (bytes, validators) =
            match repository.index(validators, self.index_bytes_max).await.map_err(Error::Fetch)? {
                Fetched::Unchanged => return Ok(Seen::Same(current.unwrap_or_default())),
                Fetched::Index { bytes, validators } => (bytes, validators),
            };
        let seen = self.read(bytes, current).await?;
        let revision = match &seen {
            Seen::Same(revision) => revision.clone(),
            Seen::New { revision, .. } => revision.to_string(),
        };
        let mut known = self.known.lock();
        match validators {
            Some(validators) => {
                known.insert(key, Known { url: url.to_owned(), revision, validators });
            }
            None => {
                known.remove(&key);
            }
        }
        Ok(seen)
    }

    /// Reads an index if it is not the stored one.
    async fn read(&self, bytes: Bytes, current: Option<String>) -> Result<Seen, Error> {
        let _turn = self.reading.acquire().await.map_err(|_| Error::Aborted)?;
        let algorithm = self.storage.algorithm();
        let read = move || {
            let current = current.and_then(|revision| revision.parse::<Digest>().ok());
            if let Some(current) = current
                && current.algorithm().digest(&bytes) == current
            {
                return Ok(Seen::Same(current.to_string()));
            }
            let revision = algorithm.digest(&bytes);
            Ok(Seen::New { index: Index::parse(&bytes).map_err(Error::Index)?, revision })
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| Error::Aborted)?
    }

    async fn publish_artifact(
        &self,
        run: &Run<HelmRepository>,
        object: &HelmRepository,
        index: Index,
        revision: &Digest,
    ) -> Result<(), Error> {
        let order = publish::Order {
            path: format!("{}/index-{}.yaml", directory_of(object), revision.hex()),
            revision: revision.to_string(),
            index,
        };
        let storage = Arc::clone(&self.storage);
        let published = tokio::task::spawn_blocking(move || publish::publish(&storage, &order))
            .await
            .map_err(|_| Error::Aborted)??;
        if let Some(error) = &published.not_linked {
            let message = format!("failed to update status URL symlink: {}", weir_base::error::chain(error));
            run.notice(&Notice::new(Severity::Trace, "SymlinkUpdateFailed", message));
        }
        run.update(|working| status::published(working, published, run.now()));
        Ok(())
    }
}

fn directory_of(object: &HelmRepository) -> String {
    let meta = &object.metadata;
    object_directory(
        "helmrepository",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}
