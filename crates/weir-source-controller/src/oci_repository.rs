//! OCIRepository: from a tag, version range or digest to a stored artifact.

mod decide;
mod error;
mod observe;
mod publish;
mod status;

use std::sync::Arc;

use weir_api::source::OCIRepository;
use weir_artifact::storage::{Storage, object_directory};
use weir_runtime::{Conclusion, Ended, Notice, Pass, Reconciler, Run, Severity};
use weir_source::cosign;
use weir_source::oci::{Image, Session};

use crate::identity::Identities;
use crate::source::status::{self as source_status, Before, Done};
use crate::source::{storage, verify};
use decide::Resolved;
use error::Error;

/// The largest layer in bytes.
const LAYER_BYTES_MAX: u64 = 1 << 30;

/// The reconciler of OCIRepositories.
pub struct OciRepositories {
    /// Reads Secrets and ServiceAccounts.
    pub client: kube::Client,
    /// Gives the identities of clouds.
    pub identities: Arc<Identities>,
    /// Where artifacts go.
    pub storage: Arc<Storage>,
}

impl std::fmt::Debug for OciRepositories {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OciRepositories").field("storage", &self.storage).finish_non_exhaustive()
    }
}

impl Reconciler for OciRepositories {
    type Object = OCIRepository;
    type Done = Done;
    type Error = Error;

    const OWNED_CONDITIONS: &'static [&'static str] = status::OWNED;

    async fn reconcile(&self, run: &Run<OCIRepository>, object: &OCIRepository) -> Result<Done, Error> {
        let before = Before::of(object);
        run.update(|working| source_status::begin(working, run.now()));
        if source_status::is_news(object) {
            run.show_progress();
        }
        storage::check(run, &self.storage).await?; // effect: collect, verify, announce what is missing
        let access = observe::access(&self.client, &self.identities, object).await?; // read: Secrets, identities
        let repository = decide::repository(object)?; // pure
        let session = Session::new(repository, &access, object.spec.timeout.to_std())
            .map_err(|source| Error::Transport { url: object.spec.url.clone(), source })?;
        let resolved = Self::resolve(&session, object).await?; // read: tags, digest
        self.verify(run, object, &session, &resolved).await?; // read: signatures
        if decide::is_stored(&run.snapshot(), &resolved.revision) {
            run.update(|working| {
                source_status::fetched(working);
                source_status::stored(working, &resolved.revision, run.now());
            });
            let unchanged = format!("artifact up-to-date with remote revision: '{}'", resolved.revision);
            run.notice(&Notice::new(Severity::Trace, "ArtifactUpToDate", unchanged).without_event());
        } else {
            let pulled = self.pull(&session, object, &resolved).await; // read: manifest, layer
            let message = format!("new revision '{}' for '{}'", resolved.revision, resolved.reference);
            if run.update(|working| {
                source_status::new_revision(working, &resolved.revision, &message, run.now())
            }) {
                run.show_progress();
            }
            let (image, layer) = pulled?;
            run.update(source_status::fetched);
            self.publish_artifact(run, object, &resolved, image, layer).await?; // effect: archive, store
        }
        Ok(Done { before, message: status::stored_from(&run.snapshot()), unchanged: None, reason: None })
    }

    async fn finalize(&self, run: &Run<OCIRepository>, object: &OCIRepository) -> Result<(), Error> {
        Ok(storage::remove_all(run, &self.storage, directory_of(object)).await?)
    }

    fn conclude(&self, object: &mut OCIRepository, pass: Pass<'_, Done, Error>, ended: Ended) -> Conclusion {
        source_status::conclude(object, &pass, ended)
    }
}

impl OciRepositories {
    /// The revision the specification stands for at the moment.
    async fn resolve(session: &Session, object: &OCIRepository) -> Result<Resolved, Error> {
        let url = || object.spec.url.clone();
        let target =
            decide::target(object).map_err(|source| Error::Tag { url: url(), source: source.into() })?;
        let tag = session.choose(&target).await.map_err(|source| Error::Tag { url: url(), source })?;
        let target = decide::with_tag(target, tag);
        let (tag, digest) = session.resolve(&target).await.map_err(Error::Digest)?;
        Ok(Resolved::new(&object.spec.url, tag, digest))
    }

    /// Makes sure that somebody who may signed the image; tells so, or what else is the case.
    async fn verify(
        &self,
        run: &Run<OCIRepository>,
        object: &OCIRepository,
        session: &Session,
        resolved: &Resolved,
    ) -> Result<(), Error> {
        let Some(wanted) = decide::wanted(object) else {
            run.update(status::not_verified);
            return Ok(());
        };
        if !decide::is_unverified(&run.snapshot(), &resolved.revision) {
            return Ok(());
        }
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let work = async {
            let policy = verify::policy(&self.client, namespace, &wanted).await?;
            cosign::verify(session, &resolved.digest, &resolved.reference, &policy).await?;
            Ok::<(), verify::VerifyError>(())
        };
        if let Err(source) = Box::pin(work).await {
            // People see which revision it is about.
            let message = format!("new revision '{}' for '{}'", resolved.revision, resolved.reference);
            run.update(|working| {
                source_status::new_revision(working, &resolved.revision, &message, run.now())
            });
            return Err(Error::Verify { tool: wanted.tool(), source: Box::new(source) });
        }
        run.update(|working| status::verified(working, &resolved.revision, run.now()));
        Ok(())
    }

    /// The manifest and the bytes of the selected layer.
    async fn pull(
        &self,
        session: &Session,
        object: &OCIRepository,
        resolved: &Resolved,
    ) -> Result<(Image, bytes::Bytes), Error> {
        let failed = |source| Error::Pull { url: object.spec.url.clone(), source };
        let image = session.image(&resolved.digest).await.map_err(failed)?;
        let layer = decide::layer(object, &image)?;
        let bytes = session.blob(layer, LAYER_BYTES_MAX).await.map_err(failed)?;
        Ok((image, bytes))
    }

    async fn publish_artifact(
        &self,
        run: &Run<OCIRepository>,
        object: &OCIRepository,
        resolved: &Resolved,
        image: Image,
        layer: bytes::Bytes,
    ) -> Result<(), Error> {
        let order = publish::Order {
            path: format!("{}/{}.tar.gz", directory_of(object), resolved.digest),
            revision: resolved.revision.clone(),
            layer,
            operation: decide::operation(object),
            ignore: object.spec.ignore.clone(),
            annotations: image.annotations,
        };
        let storage = Arc::clone(&self.storage);
        let published = tokio::task::spawn_blocking(move || publish::publish(&storage, order))
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

fn directory_of(object: &OCIRepository) -> String {
    let meta = &object.metadata;
    object_directory(
        "ocirepository",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}
