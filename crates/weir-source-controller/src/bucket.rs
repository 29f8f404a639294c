//! Bucket: from the objects of a store to a stored artifact.

mod decide;
mod error;
mod observe;
mod publish;
mod status;

use std::sync::Arc;
use std::time::Duration;

use weir_api::source::Bucket;
use weir_artifact::storage::{Storage, object_directory};
use weir_base::clock::Clock;
use weir_base::tree::MemoryTree;
use weir_runtime::{Conclusion, Ended, Notice, Pass, Reconciler, Run, Severity};
use weir_source::bucket::{Bucket as Remote, BucketError, Index};

use crate::identity::Identities;
use crate::source::status::{self as source_status, Before, Done};
use crate::source::storage;
use error::Error;

/// The reconciler of Buckets.
pub struct Buckets {
    /// Reads Secrets.
    pub client: kube::Client,
    /// Where artifacts go.
    pub storage: Arc<Storage>,
    /// Gives the identities of clouds.
    pub identities: Arc<Identities>,
    /// Signatures carry the time.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Buckets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Buckets").field("storage", &self.storage).finish_non_exhaustive()
    }
}

impl Reconciler for Buckets {
    type Object = Bucket;
    type Done = Done;
    type Error = Error;

    const OWNED_CONDITIONS: &'static [&'static str] = crate::source::status::UNVERIFIED_TYPES;

    async fn reconcile(&self, run: &Run<Bucket>, object: &Bucket) -> Result<Done, Error> {
        let before = Before::of(object);
        run.update(|working| source_status::begin(working, run.now()));
        if source_status::is_news(object) {
            run.show_progress();
        }
        storage::check(run, &self.storage).await?; // effect: collect, verify, announce what is missing
        decide::token_service(object)?; // pure
        let remote = Box::pin(observe::remote(self, object)).await?; // read: Secrets, identities
        let mut index = within(object, list(&remote, object)).await?; // read: keys and tags
        if let Some(revision) = decide::stored_revision(&run.snapshot(), &index) {
            run.update(|working| {
                source_status::fetched(working);
                source_status::stored(working, &revision, run.now());
            });
            up_to_date(run, &revision);
        } else {
            let fetched = within(object, download(&remote, &mut index)).await; // read: contents
            let revision = index.digest(self.storage.algorithm()).to_string();
            let message = format!("new upstream revision '{revision}'");
            if run.update(|working| source_status::new_revision(working, &revision, &message, run.now())) {
                run.show_progress();
            }
            let tree = fetched?;
            run.update(source_status::fetched);
            self.publish_artifact(run, object, tree, &revision).await?; // effect: archive, store
        }
        let message = status::message(object, &index);
        Ok(Done { before, message, unchanged: None, reason: None })
    }

    async fn finalize(&self, run: &Run<Bucket>, object: &Bucket) -> Result<(), Error> {
        Ok(storage::remove_all(run, &self.storage, directory_of(object)).await?)
    }

    fn conclude(&self, object: &mut Bucket, pass: Pass<'_, Done, Error>, ended: Ended) -> Conclusion {
        source_status::conclude(object, &pass, ended)
    }
}

impl Buckets {
    async fn publish_artifact(
        &self,
        run: &Run<Bucket>,
        object: &Bucket,
        tree: MemoryTree,
        revision: &str,
    ) -> Result<(), Error> {
        // What was downloaded may be what is stored, when tags changed only between listing and download.
        if run
            .snapshot()
            .status
            .and_then(|status| status.artifact)
            .is_some_and(|stored| stored.revision == revision)
        {
            run.update(|working| source_status::stored(working, revision, run.now()));
            up_to_date(run, revision);
            return Ok(());
        }
        let hash = revision.rsplit_once(':').map_or(revision, |(_, hash)| hash);
        let path = format!("{}/{hash}.tar.gz", directory_of(object));
        let (storage, revision) = (Arc::clone(&self.storage), revision.to_owned());
        let published =
            tokio::task::spawn_blocking(move || publish::publish(&storage, path, revision, &tree))
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

fn up_to_date(run: &Run<Bucket>, revision: &str) {
    let message = format!("artifact up-to-date with remote revision: '{revision}'");
    run.notice(&Notice::new(Severity::Trace, "ArtifactUpToDate", message).without_event());
}

/// Listing and downloading have a timeout each.
async fn within<T>(object: &Bucket, work: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
    let timeout: Duration = object.spec.timeout.to_std();
    tokio::time::timeout(timeout, Box::pin(work)).await.unwrap_or(Err(Error::Deadline(timeout)))
}

async fn list(remote: &Remote, object: &Bucket) -> Result<Index, Error> {
    let bucket = || object.spec.bucket_name.clone();
    match remote.exists().await {
        Ok(true) => {}
        Ok(false) => return Err(Error::NotFound(bucket())),
        Err(error) => return Err(Error::Exists { bucket: bucket(), source: Box::new(error) }),
    }
    let prefix = object.spec.prefix.as_deref().unwrap_or_default();
    let failed = |error: BucketError| Error::List { bucket: bucket(), source: Box::new(error) };
    remote.index(prefix, object.spec.ignore.as_deref()).await.map_err(failed)
}

async fn download(remote: &Remote, index: &mut Index) -> Result<MemoryTree, Error> {
    remote.fetch(index).await.map_err(|error| Error::Fetch(Box::new(error)))
}

fn directory_of(object: &Bucket) -> String {
    let meta = &object.metadata;
    object_directory(
        "bucket",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}
