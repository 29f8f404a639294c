//! GitRepository: from a Git reference to a stored artifact.

mod decide;
mod error;
mod observe;
mod publish;
mod status;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use weir_api::source::GitRepository;
use weir_artifact::storage::{Storage, object_directory};
use weir_runtime::{Conclusion, Ended, Notice, Pass, Reconciler, Run, Severity, Store};
use weir_source::git::{Checkout, Git, Outcome, Request};

use decide::Job;
use error::{Error, StorageFailure};
use observe::Included;

use crate::identity::Identities;
use crate::source::status::{self as source_status, Before, Done};
use crate::source::storage;

/// The reconciler of GitRepositories.
pub struct GitRepositories {
    /// Reads Secrets.
    pub client: kube::Client,
    /// Gives the identities of clouds and Apps.
    pub identities: Arc<Identities>,
    /// Where artifacts go.
    pub storage: Arc<Storage>,
    /// The Git client.
    pub git: Git,
    /// All GitRepositories, for includes.
    pub sources: Store<GitRepository>,
    /// The time between two looks at an include that is not available.
    pub requeue_dependency: Duration,
}

impl std::fmt::Debug for GitRepositories {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("GitRepositories").field("storage", &self.storage).finish_non_exhaustive()
    }
}

impl Reconciler for GitRepositories {
    type Object = GitRepository;
    type Done = Done;
    type Error = Error;

    const OWNED_CONDITIONS: &'static [&'static str] = status::OWNED;

    async fn reconcile(&self, run: &Run<GitRepository>, object: &GitRepository) -> Result<Done, Error> {
        let before = Before::of(object);
        run.update(|working| source_status::begin(working, run.now()));
        if source_status::is_news(object) {
            run.show_progress();
        }
        storage::check(run, &self.storage).await?; // effect: collect, verify, announce what is missing
        let job = self.observe(run, object).await?; // read: Secrets, includes; pure: credentials, target
        let checkout = match self.check_out(run, object, &job).await? {
            Outcome::Unchanged { revision } => {
                run.update(|working| status::unchanged(working, &revision, run.now()));
                let unchanged =
                    format!("no changes since last reconciliation: observed revision '{revision}'");
                let message = format!("stored artifact for commit '{revision}'");
                return Ok(Done { before, message, unchanged: Some(unchanged), reason: None });
            }
            Outcome::Empty => return Err(Error::Empty),
            Outcome::Changed(checkout) => *checkout,
        };
        run.update(source_status::fetched);
        decide::sparse_paths(object, &checkout)?; // pure
        if let Some(verify) = &object.spec.verify {
            let keys = observe::signing_keys(&self.client, object, &verify.secret_ref.name).await?; // read: Secret
            let message = verify::check(verify, &checkout, &keys, run.now())?; // pure
            run.update(|working| status::verified(working, verify.mode, &message, run.now()));
            run.notice(&Notice::new(Severity::Trace, "Succeeded", message));
        }
        let message = format!("stored artifact for commit '{}'", checkout.subject());
        Self::announce_revision(run, &checkout.revision);
        self.publish_artifact(run, object, checkout, job.includes).await?; // effect: archive, store
        Ok(Done { before, message, unchanged: None, reason: None })
    }

    async fn finalize(&self, run: &Run<GitRepository>, object: &GitRepository) -> Result<(), Error> {
        storage::remove_all(run, &self.storage, directory_of(object)).await?;
        self.git.forget(&cache_key(object)).await;
        Ok(())
    }

    fn conclude(&self, object: &mut GitRepository, pass: Pass<'_, Done, Error>, ended: Ended) -> Conclusion {
        source_status::conclude(object, &pass, ended)
    }
}

impl GitRepositories {
    /// Everything that decides what is fetched, and how.
    async fn observe(&self, run: &Run<GitRepository>, object: &GitRepository) -> Result<Job, Error> {
        let proxy = observe::proxy(&self.client, object).await?;
        let url = decide::url(object)?;
        let secret = observe::secret(&self.client, object).await?;
        let mut credentials = decide::credentials(object, &url, secret.as_ref(), proxy)?;
        Box::pin(observe::log_in(&self.identities, object, &url, secret.as_ref(), &mut credentials)).await?;
        let target = decide::target(object)?;
        let includes = observe::includes(&self.sources, object, self.requeue_dependency)?;
        let announce = run.update(|working| {
            status::forget_verification(working);
            status::includes_available(working);
            status::includes_differ(working, &includes, run.now())
        });
        if announce {
            run.show_progress();
        }
        run.update(status::forget_outdated);
        Ok(Job { url, credentials, target, includes })
    }

    async fn check_out(
        &self,
        run: &Run<GitRepository>,
        object: &GitRepository,
        job: &Job,
    ) -> Result<Outcome, Error> {
        let working = run.snapshot();
        let request = Request {
            cache_key: cache_key(object),
            url: job.url.clone(),
            credentials: job.credentials.clone(),
            target: job.target.clone(),
            known_revision: decide::known_revision(&working, &job.includes),
            with_tag: verify::wants_tag(object),
            with_submodules: object.spec.recurse_submodules,
            timeout: object.spec.timeout.to_std(),
        };
        Ok(self.git.checkout(request).await?)
    }

    /// Lets people see that a new revision is being built.
    fn announce_revision(run: &Run<GitRepository>, revision: &str) {
        let message = format!("new upstream revision '{revision}'");
        if run.update(|working| source_status::new_revision(working, revision, &message, run.now())) {
            run.show_progress();
        }
    }

    /// Includes, archives and stores, unless all of it is stored already.
    async fn publish_artifact(
        &self,
        run: &Run<GitRepository>,
        object: &GitRepository,
        checkout: Checkout,
        includes: Vec<Included>,
    ) -> Result<(), Error> {
        let revision = checkout.revision.clone();
        let working = run.snapshot();
        if decide::is_stored(&working, &revision, &includes) {
            run.update(|working| source_status::stored(working, &revision, run.now()));
            let message = format!("artifact up-to-date with remote revision: '{revision}'");
            run.notice(&Notice::new(Severity::Trace, "ArtifactUpToDate", message).without_event());
            return Ok(());
        }
        let order = publish::Order {
            path: format!("{}/{}.tar.gz", directory_of(object), checkout.commit),
            checkout,
            includes,
            ignore: object.spec.ignore.clone(),
            sparse: object.spec.sparse_checkout.clone(),
        };
        let storage = Arc::clone(&self.storage);
        let (artifact, includes) = blocking(move || publish::publish(&storage, order)).await??;
        run.update(|working| status::published(working, artifact, includes, run.now()));
        Ok(())
    }
}

fn directory_of(object: &GitRepository) -> String {
    let meta = &object.metadata;
    object_directory(
        "gitrepository",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// Objects of the same name that follow each other do not share what they fetched.
fn cache_key(object: &GitRepository) -> String {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    format!("{}/{uid}", directory_of(object).trim_start_matches("gitrepository/"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| StorageFailure::Aborted.into())
}
