//! Makes the cluster agree with a Kustomization.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::Instant;
use weir_api::kustomize::Kustomization;
use weir_api::names::{condition as types, reason};
use weir_api::{Artifact, FluxObject, condition};
use weir_apply::apply::{
    Applied, ApplyError, Options as ApplyOptions, Planned, apply, dry_run, identity, wait_for_stage,
};
use weir_apply::change::Action;
use weir_apply::cluster::Cluster;
use weir_apply::dependencies::{self, DEPENDS_ON};
use weir_apply::health::{CustomChecks, Target, Wait, WaitError, wait_for_versions};
use weir_apply::ignore::Rules;
use weir_apply::inventory::Inventory;
use weir_apply::managers::CleanUp;
use weir_apply::object::ObjectRef;
use weir_apply::order::{Stage, stages};
use weir_apply::prune::prune;
use weir_artifact::fetch::{FetchError, Fetcher};
use weir_base::clock::Clock;
use weir_base::tree::MemoryTree;
use weir_kustomize::Substitution;
use weir_runtime::{Conclusion, Ended, ObjectKey, Pass, Reconciler, Run, Trigger};
use weir_source::bases::{Access, Bases};

use crate::build;
use crate::cache::{self, BuildKey, Builds, Kept};
use crate::clusters::Clusters;
use crate::decide::{self, GROUP, go};
use crate::decrypt;
use crate::drift::{DriftWatch, Untouched};
use crate::error::{Cause, Error, Facts};
use crate::finalize;
use crate::keyring::Keyring;
use crate::observe::{self, Stores, VariableSources};
use crate::progress::{Progress, Slow, Steps};
use crate::settings::Settings;
use crate::status::{self, Done};

/// The field manager of applied objects.
pub(crate) const MANAGER: &str = "kustomize-controller";
/// How often objects are read that cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long a wait for health goes on before it is shown.
const WAIT_SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Gives the files of artifacts.
#[async_trait]
pub trait Artifacts: Send + Sync {
    /// The files at a URL, proven to have a digest.
    async fn fetch(&self, url: &str, digest: &str) -> Result<Arc<MemoryTree>, FetchError>;
}

#[async_trait]
impl Artifacts for Fetcher {
    async fn fetch(&self, url: &str, digest: &str) -> Result<Arc<MemoryTree>, FetchError> {
        Fetcher::fetch(self, url, digest).await
    }
}

/// Reconciles Kustomizations.
pub struct KustomizationReconciler {
    /// The watched objects.
    pub stores: Stores,
    /// Where objects are applied.
    pub clusters: Arc<dyn Clusters>,
    /// Where artifacts come from.
    pub artifacts: Arc<dyn Artifacts>,
    /// What everybody may decrypt with.
    pub keyring: Keyring,
    /// What the flags say.
    pub settings: Settings,
    /// Who is told what was applied, to notice when it changes.
    pub drift: Option<Arc<DriftWatch>>,
    /// Where remote files and bases come from.
    pub bases: Arc<Bases>,
    /// What was built before, if it may be used again.
    pub builds: Option<Builds>,
    /// Bounds the runs that go on without a worker.
    pub slow: Slow,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Reconciler for KustomizationReconciler {
    type Object = Kustomization;
    type Done = Done;
    type Error = Error;

    const OWNED_CONDITIONS: &'static [&'static str] =
        &[types::READY, types::HEALTHY, types::RECONCILING, types::STALLED];

    async fn reconcile(&self, run: &Run<Kustomization>, object: &Kustomization) -> Result<Done, Error> {
        self.run(run, object).await
    }

    async fn finalize(&self, run: &Run<Kustomization>, object: &Kustomization) -> Result<(), Error> {
        if let Some(drift) = &self.drift {
            drift.forget(object);
        }
        if let Some(builds) = &self.builds {
            builds.forget(&ObjectKey::of(object));
        }
        let result = finalize::finalize(self, run, object).await;
        result.map_err(|cause| self.error(object, cause, Facts::default()))
    }

    fn conclude(&self, object: &mut Kustomization, pass: Pass<'_, Done, Error>, ended: Ended) -> Conclusion {
        status::conclude(object, &pass, ended, self.settings.requeue_dependency)
    }
}

/// What was decided before anything was fetched.
struct Job {
    artifact: Artifact,
    checks: CustomChecks,
    inventory: Inventory,
    timeout: Duration,
}

impl KustomizationReconciler {
    /// One run.
    pub async fn run<P: Progress>(&self, progress: &P, object: &Kustomization) -> Result<Done, Error> {
        let mut facts = Facts::default();
        // Boxed: the state of a whole run is large for the stack of a worker.
        let result = Box::pin(self.prepare_and_apply(progress, object, &mut facts)).await;
        result.map_err(|cause| self.error(object, cause, facts))
    }

    fn error(&self, object: &Kustomization, cause: Cause, facts: Facts) -> Error {
        let retry_interval = decide::retry_interval(&object.spec);
        Error::new(cause, facts, retry_interval, self.settings.requeue_dependency)
    }

    async fn prepare_and_apply<P: Progress>(
        &self,
        progress: &P,
        object: &Kustomization,
        facts: &mut Facts,
    ) -> Result<Done, Cause> {
        let Some(job) = self.prepare(object, facts).await? else {
            return Err(Cause::NoArtifact(self.settings.requeue_dependency));
        };
        let shown = decide::shows_progress(object, &job.artifact);
        let steps = Steps::new(progress, facts.clone(), job.timeout, shown);
        steps.next("Fetching manifests");
        let result = Box::pin(self.apply_job(&steps, object, &job, facts)).await;
        match result {
            Ok(changed) => {
                let nothing_new = !steps.are_shown() && !changed;
                Ok(Done { facts: facts.clone(), nothing_new })
            }
            Err(cause) => {
                steps.mark();
                Err(cause)
            }
        }
    }

    /// Reads and decides everything that needs no artifact; `None` if the source has none.
    async fn prepare(&self, object: &Kustomization, facts: &mut Facts) -> Result<Option<Job>, Cause> {
        let impersonates = object.spec.kube_config.is_some()
            || !decide::service_account(&object.spec, &self.settings).is_empty();
        let checks = decide::health_checks(&object.spec, impersonates)?;
        let asks_for_identity = object
            .spec
            .decryption
            .as_ref()
            .is_some_and(|decryption| decryption.service_account_name.is_some());
        if asks_for_identity && !self.settings.gates.enabled("ObjectLevelWorkloadIdentity") {
            return Err(Cause::GateDisabled);
        }
        let source = decide::source_name(object);
        decide::check_access(object, &source, &self.settings)?;
        let live = self.settings.gates.enabled("DirectSourceFetch");
        let Some(artifact) = observe::artifact(&self.stores, self.clusters.local(), &source, live).await?
        else {
            return Ok(None);
        };
        *facts = decide::facts(&artifact);
        if !object.spec.depends_on.is_empty() {
            let dependencies = observe::dependencies(&self.stores, self.clusters.local(), object).await;
            decide::check_dependencies(object, &dependencies, &artifact.revision, &self.settings.gates)?;
            tracing::debug!("All dependencies are ready, proceeding with reconciliation");
        }
        let annotations = object.metadata.annotations.as_ref();
        if let Some(text) = annotations.and_then(|annotations| annotations.get(DEPENDS_ON)) {
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            dependencies::check(self.clusters.local(), text, namespace).await.map_err(Cause::Dependency)?;
        }
        Ok(Some(Job {
            artifact,
            checks,
            inventory: decide::inventory(object),
            timeout: decide::timeout(&object.spec),
        }))
    }

    /// From the artifact to healthy objects; whether anything was written.
    async fn apply_job<P: Progress>(
        &self,
        steps: &Steps<'_, P>,
        object: &Kustomization,
        job: &Job,
        facts: &mut Facts,
    ) -> Result<bool, Cause> {
        let progress = steps.progress();
        let reading = observe::variable_sources(self.clusters.local(), object);
        let sources = self.slow.patiently(progress, reading).await;
        let variables_digest = sources.digest();
        let settled_key = variables_digest.as_deref().and_then(|digest| settled_key(object, job, digest));
        if !steps.are_shown()
            && let (Some(drift), Some(key)) = (&self.drift, &settled_key)
            && let Some(changed) = drift.settled(object, key)
        {
            tracing::debug!("nothing has changed since everything was compared");
            if !changed.is_empty() {
                let cluster = self.clusters.target(object).await?;
                let targets = changed.into_iter().map(Target::new).collect();
                let check = self.check_health(steps, object, job, &*cluster, targets, false);
                drift.still_healthy(object, Box::pin(check).await?);
            }
            return Ok(false);
        }
        let strict = self.settings.gates.enabled("StrictPostBuildSubstitutions");
        let build_key = variables_digest
            .filter(|_| self.builds.is_some())
            .and_then(|digest| cache::build_key(object, &job.artifact.digest, &digest, strict));
        let input = if let Some(kept) = self.kept(object, build_key.as_ref()) {
            Input::Kept(kept)
        } else {
            let files = self.slow.patiently(progress, self.fetch(&job.artifact)).await?;
            let directory = build::directory(&*files, object, &job.artifact.revision)?;
            Input::Files(files, directory)
        };
        let revision = job.artifact.revision.clone();
        progress.update(&mut |object| {
            object.status_mut().last_attempted_revision = Some(revision.clone());
        });
        steps.next("Building manifests");
        let cluster = self.target(progress, object).await?;
        let built = match input {
            Input::Kept(kept) => {
                Built { digest: kept.digest, objects: Ok(kept.objects), reads_remote: false }
            }
            Input::Files(files, directory) => {
                let build = Box::pin(self.build(object, files, directory, job.timeout, &sources));
                let built = self.slow.patiently_building(progress, build).await?;
                self.keep(object, build_key, &built);
                built
            }
        };
        facts.digest = Some(built.digest);
        let objects = built.objects?;

        steps.next("Detecting drift");
        let watched = self.drift.as_ref().filter(|_| object.spec.kube_config.is_none());
        // A run that nobody asked for, of what was compared before, looks only at what was touched since.
        let untouched = watched
            .filter(|_| !steps.are_shown())
            .and_then(|drift| drift.untouched(object, settled_key.as_ref()?));
        let untouched = untouched.unwrap_or_else(|| Untouched {
            objects: HashSet::new(),
            healthy: Vec::new(),
            since: Instant::now(),
        });
        let mut drift = watched.map(|drift| drift.begin(object));
        let mut run = Application {
            cluster: &*cluster,
            options: ApplyOptions {
                untouched: untouched.objects,
                applied_before: Some(job.inventory.objects.iter().map(identity).collect()),
                ..self.apply_options(object)?
            },
            object,
            inventory: job.inventory.clone(),
            applied: Applied::default(),
            slow: &self.slow,
            clock: &*self.clock,
        };
        let outcome = Box::pin(run.apply_stages(steps, objects)).await;
        if let Some(drift) = &mut drift {
            drift.record(&run.applied, outcome.is_ok());
        }
        if let Err(source) = outcome {
            self.await_definition(object, &source);
            return Err(match source {
                Cause::Apply { source, .. } => {
                    Cause::Apply { source, changes: run.applied.changes.changed_lines() }
                }
                other => other,
            });
        }
        let mut applied = run.applied;
        let mut changed = applied.changes.has_changes();
        let grouped = self.settings.gates.enabled("GroupChangeLog");
        if changed {
            let lines = applied.changes.changed_lines();
            let output = if grouped { applied.changes.grouped_lines() } else { lines.clone() };
            tracing::info!(revision, output, "server-side apply completed");
            steps.tell_quietly(lines);
        } else if !applied.changes.entries.is_empty() {
            let output = if grouped { applied.changes.grouped_lines() } else { applied.changes.all_lines() };
            tracing::debug!(revision, output, "server-side apply completed");
        }
        changed |= self.prune(steps, object, job, &*cluster, &applied).await?;
        drop(drift);
        let has_changes = applied.changes.has_changes();
        let targets = match health_targets(object, &*cluster, applied.take_targets()).await {
            Ok(targets) => targets,
            Err(message) => return Err(Self::unhealthy(steps, Instant::now(), message)),
        };
        let mut healthy = untouched.healthy;
        let is_known = |target: &Target| healthy.iter().any(|(object, _)| *object == target.object);
        let (known, targets): (Vec<Target>, Vec<Target>) = targets.into_iter().partition(is_known);
        healthy.retain(|(object, _)| known.iter().any(|target| target.object == *object));
        // Without targets there is nothing to be healthy; with known ones alone nothing has changed.
        if !targets.is_empty() || known.is_empty() {
            let check = self.check_health(steps, object, job, &*cluster, targets, has_changes);
            healthy.extend(Box::pin(check).await?);
        }
        if let (Some(drift), Some(key)) = (&self.drift, settled_key)
            && !built.reads_remote
        {
            drift.settle(object, key, healthy, untouched.since);
        }
        Ok(changed)
    }

    /// The cluster the objects live in.
    pub(crate) async fn target<P: Progress>(
        &self,
        progress: &P,
        object: &Kustomization,
    ) -> Result<Arc<dyn Cluster>, Cause> {
        // Handed out by reference: with the cluster as its result the future is not general enough.
        let mut target = None;
        let reaching = async { target = Some(self.clusters.target(object).await) };
        self.slow.patiently(progress, reaching).await;
        target.unwrap_or_else(|| Err(Cause::Client("the cluster was not asked for".to_owned())))
    }

    /// What was built before from the same inputs.
    fn kept(&self, object: &Kustomization, key: Option<&BuildKey>) -> Option<Kept> {
        self.builds.as_ref()?.find(&ObjectKey::of(object), key?)
    }

    /// Keeps a build that depends on nothing but what its key names.
    fn keep(&self, object: &Kustomization, key: Option<BuildKey>, built: &Built) {
        if let (Some(builds), Some(key), Ok(objects)) = (&self.builds, key, &built.objects)
            && !built.reads_remote
        {
            builds.keep(&ObjectKey::of(object), key, &built.digest, objects);
        }
    }

    /// A run that failed because a kind is not defined is repeated when it is.
    fn await_definition(&self, object: &Kustomization, cause: &Cause) {
        if let (Some(drift), Cause::Apply { source, .. }) = (&self.drift, cause)
            && let ApplyError::DryRun { object: refused, source, .. } = &**source
            && source.is_no_match()
        {
            drift.await_definition(object, &refused.group);
        }
    }

    async fn fetch(&self, artifact: &Artifact) -> Result<Arc<MemoryTree>, Cause> {
        self.artifacts.fetch(&artifact.url, &artifact.digest).await.map_err(|error| {
            if error.is_not_found() {
                Cause::ArtifactGone(self.settings.requeue_dependency)
            } else {
                Cause::Fetch(Box::new(error))
            }
        })
    }

    /// The objects to apply, and the digest of what was built. Builds on a thread of its own: a
    /// large build must not hold up other work.
    async fn build(
        &self,
        object: &Kustomization,
        files: Arc<MemoryTree>,
        directory: String,
        timeout: Duration,
        sources: &VariableSources,
    ) -> Result<Built, Cause> {
        let spec = Arc::new(object.clone());
        let mut prepared = {
            let (spec, directory) = (Arc::clone(&spec), directory.clone());
            off_thread(move || build::prepare(files, &directory, &spec).map_err(Cause::Build)).await?
        };
        let keys = self.keyring.keys(&self.clusters, object).await.map_err(Cause::Build)?.map(Arc::new);
        if let Some(keys) = &keys {
            let (keys, directory) = (Arc::clone(keys), directory.clone());
            prepared = off_thread(move || {
                let plain = wait_for(decrypt::sources(&prepared, &directory, &*keys));
                prepared.replace(plain.map_err(Cause::Build)?);
                Ok(prepared)
            })
            .await?;
        }
        let access = Access { repositories: !self.settings.no_remote_bases, local_repositories: false };
        let session = self.bases.session(tokio::runtime::Handle::current(), access, timeout);
        let (built, reads_remote) = off_thread(move || {
            let mut built = build::objects(&prepared, &directory, &session).map_err(Cause::Build)?;
            if let Some(keys) = &keys {
                wait_for(decrypt::objects(&mut built, &**keys)).map_err(Cause::Build)?;
            }
            Ok((built, session.was_used()))
        })
        .await?;
        let variables = match build::first_substituted(&spec.spec, &built) {
            None => None,
            Some(first) => Some(observe::variables(sources, object, first).map_err(Cause::Build)?),
        };
        let substitution = Substitution {
            strict: self.settings.gates.enabled("StrictPostBuildSubstitutions"),
            always: decide::always_substitutes(&object.spec),
        };
        off_thread(move || {
            let mut built = built;
            if let Some(variables) = variables {
                build::substitute(&mut built, &variables, substitution).map_err(Cause::Build)?;
            }
            let digest = build::digest(&built);
            Ok(Built { digest, objects: build::finish(&spec, built), reads_remote })
        })
        .await
    }

    fn apply_options(&self, object: &Kustomization) -> Result<ApplyOptions, Cause> {
        Ok(ApplyOptions {
            owner_group: GROUP.to_owned(),
            manager: MANAGER.to_owned(),
            force: object.spec.force,
            concurrency: self.settings.concurrent_ssa,
            custom_stage_kinds: self.settings.custom_stage_kinds.clone(),
            clean_up: CleanUp::kustomize(MANAGER, GROUP, &self.settings.override_managers),
            migrate_api_version: self.settings.gates.enabled("MigrateAPIVersion"),
            ignore: Rules::compile(&decide::ignore_rules(&object.spec))?,
            untouched: HashSet::new(),
            applied_before: None,
        })
    }

    /// Deletes what is no longer wanted; whether anything was deleted.
    async fn prune<P: Progress>(
        &self,
        steps: &Steps<'_, P>,
        object: &Kustomization,
        job: &Job,
        cluster: &dyn Cluster,
        applied: &Applied,
    ) -> Result<bool, Cause> {
        let inventory = Inventory::of_changes(&applied.changes);
        let stale = job.inventory.stale(&inventory);
        if !object.spec.prune || stale.is_empty() {
            steps.progress().update(&mut |object| status::set_inventory(object, &inventory));
            return Ok(false);
        }
        steps.show();
        // Until they are gone, stale objects stay listed.
        let with = |stale: &[ObjectRef]| {
            let mut inventory = inventory.clone();
            for object in stale {
                inventory.add(object);
            }
            inventory
        };
        let listed = with(&stale);
        steps.progress().update(&mut |object| status::set_inventory(object, &listed));
        let owner = decide::owner(object);
        let pruned = self.slow.patiently(steps.progress(), prune(cluster, &owner, stale)).await;
        let left = with(&pruned.remaining);
        steps.progress().update(&mut |object| status::set_inventory(object, &left));
        pruned.result()?;
        let lines = pruned.changes.all_lines();
        tracing::info!("garbage collection completed: {lines}");
        steps.tell_quietly(lines);
        Ok(pruned.changes.entries.iter().any(|entry| entry.action == Action::Deleted))
    }

    async fn check_health<P: Progress>(
        &self,
        steps: &Steps<'_, P>,
        object: &Kustomization,
        job: &Job,
        cluster: &dyn Cluster,
        targets: Vec<Target>,
        has_changes: bool,
    ) -> Result<Vec<(ObjectRef, String)>, Cause> {
        let progress = steps.progress();
        let started = Instant::now();
        if targets.is_empty() {
            progress.update(&mut |object| {
                condition::delete(object.conditions_mut(), types::HEALTHY);
            });
            return Ok(Vec::new());
        }
        let was_healthy = condition::is_true(object.conditions(), types::HEALTHY);
        let step = "Running health checks";
        steps.next(step);
        if steps.are_shown() {
            mark_checking(steps, job);
        }
        let selector = decide::owner(object).selector();
        let options = Wait {
            checks: &job.checks,
            selector: object.spec.wait.then_some(selector.as_str()),
            timeout: job.timeout,
            fail_fast: !self.settings.gates.enabled("DisableFailFastBehavior"),
            poll_interval: POLL_INTERVAL,
            clock: &*self.clock,
        };
        let waiting = async {
            let mut wait = std::pin::pin!(wait_for_versions(cluster, targets, &options));
            tokio::select! {
                biased;
                result = &mut wait => return result,
                () = tokio::time::sleep(WAIT_SHOWN_AFTER) => {}
            }
            steps.show();
            mark_checking(steps, job);
            wait.await
        };
        let result: Result<Result<Vec<(ObjectRef, String)>, WaitError>, Trigger> = progress
            .without_worker(async {
                if !self.settings.gates.enabled("CancelHealthCheckOnNewRevision") {
                    return Ok(waiting.await);
                }
                tokio::select! {
                    result = waiting => Ok(result),
                    trigger = progress.superseded() => Err(trigger),
                }
            })
            .await;
        match result {
            Err(trigger) => Err(Cause::HealthCheckCanceled(trigger)),
            Ok(Err(error)) => Err(Self::unhealthy(steps, started, error.to_string())),
            Ok(Ok(healthy)) => {
                let message = format!("Health check passed in {}", go(started.elapsed()));
                if steps.are_shown() || !was_healthy {
                    set_healthy(steps, true, reason::SUCCEEDED, &message);
                }
                let applied_before = object.status.as_ref().and_then(|s| s.last_applied_revision.as_deref());
                let new_revision = applied_before != Some(job.artifact.revision.as_str());
                if !was_healthy || (new_revision && has_changes) {
                    steps.tell(message);
                }
                Ok(healthy)
            }
        }
    }

    fn unhealthy<P: Progress>(steps: &Steps<'_, P>, started: Instant, message: String) -> Cause {
        set_healthy(steps, false, reason::HEALTH_CHECK_FAILED, &message);
        Cause::Unhealthy { message, elapsed: started.elapsed() }
    }
}

/// What came out of a build.
struct Built {
    /// The digest before the spec's last touches.
    digest: String,
    objects: Result<Vec<Value>, Cause>,
    /// Whether the same artifact may give other objects next time.
    reads_remote: bool,
}

/// Where the objects of a run come from.
enum Input {
    /// What was built before from the same inputs.
    Kept(Kept),
    /// The files of the artifact, and the directory to build.
    Files(Arc<MemoryTree>, String),
}

/// What a comparison holds for, and watching can stand in for comparing; `None` for other clusters, which are not
/// watched.
fn settled_key(object: &Kustomization, job: &Job, variables_digest: &str) -> Option<String> {
    let key = format!("{}/{}/{variables_digest}", object.generation(), job.artifact.digest);
    object.spec.kube_config.is_none().then_some(key)
}

/// Runs pure work where it does not keep others from working.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Cause> + Send + 'static,
) -> Result<T, Cause> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            let message = format!("recovered from kustomize build panic: {error}");
            Err(Cause::Build(build::BuildError::Kustomize(message)))
        }
    }
}

/// Waits, on a thread that may block, for work that is mostly computation.
fn wait_for<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Handle::current().block_on(work)
}

/// What is waited for: everything that was applied, or what the spec lists.
async fn health_targets(
    object: &Kustomization,
    cluster: &dyn Cluster,
    applied: Vec<Target>,
) -> Result<Vec<Target>, String> {
    let mut targets = if object.spec.wait {
        applied
    } else {
        let mut targets = Vec::new();
        for check in decide::listed_checks(&object.spec) {
            if check.namespace.is_empty() && cluster.is_namespaced(&check).await.unwrap_or(false) {
                return Err(format!(
                    "resource {} {} is namespace scoped, but namespace is not set",
                    check.group_kind(),
                    check.name
                ));
            }
            targets.push(Target::new(check));
        }
        targets
    };
    targets.retain(|target| !decide::is_self(object, &target.object));
    Ok(targets)
}

fn mark_checking<P: Progress>(steps: &Steps<'_, P>, job: &Job) {
    let message = format!(
        "Running health checks for revision {} with a timeout of {}",
        job.artifact.revision,
        go(job.timeout)
    );
    let now = steps.progress().now();
    steps.progress().update(&mut |object| {
        let stamp = status::stamp(object, now);
        let conditions = object.conditions_mut();
        condition::mark_unknown(conditions, types::HEALTHY, reason::PROGRESSING, &message, stamp);
    });
}

fn set_healthy<P: Progress>(steps: &Steps<'_, P>, healthy: bool, reason: &str, message: &str) {
    let now = steps.progress().now();
    steps.progress().update(&mut |object| {
        let stamp = status::stamp(object, now);
        let conditions = object.conditions_mut();
        if healthy {
            condition::mark_true(conditions, types::HEALTHY, reason, message, stamp);
        } else {
            condition::mark_false(conditions, types::HEALTHY, reason, message, stamp);
        }
    });
}

/// The application of one plan, and what is known about it so far.
struct Application<'a> {
    cluster: &'a dyn Cluster,
    options: ApplyOptions,
    object: &'a Kustomization,
    /// What was known before, and everything this run has set out to write.
    inventory: Inventory,
    applied: Applied,
    slow: &'a Slow,
    clock: &'a dyn Clock,
}

impl Application<'_> {
    async fn apply_stages<P: Progress>(
        &mut self,
        steps: &Steps<'_, P>,
        objects: Vec<Value>,
    ) -> Result<(), Cause> {
        for stage in stages(objects, &self.options.custom_stage_kinds) {
            self.apply_stage(steps, &stage).await?;
        }
        Ok(())
    }

    async fn apply_stage<P: Progress>(&mut self, steps: &Steps<'_, P>, stage: &Stage) -> Result<(), Cause> {
        let failed = |source| Cause::Apply { source: Box::new(source), changes: String::new() };
        let (slow, progress) = (self.slow, steps.progress());
        let planning = dry_run(self.cluster, &self.options, stage, &self.applied);
        let planned = slow.patiently(progress, planning).await.map_err(failed)?;
        if planned.iter().any(Planned::writes) {
            steps.show();
        }
        self.list(steps, &planned).await?;
        let applying = apply(self.cluster, &self.options, stage, planned, &mut self.applied);
        slow.patiently(progress, applying).await.map_err(failed)?;
        let waiting = wait_for_stage(self.cluster, stage, &self.applied, self.clock);
        slow.patiently(progress, waiting).await.map_err(failed)
    }

    /// Puts what is about to be written on record first, so that it is not forgotten whatever
    /// happens next.
    async fn list<P: Progress>(&mut self, steps: &Steps<'_, P>, planned: &[Planned]) -> Result<(), Cause> {
        let mut grows = false;
        for planned in planned.iter().filter(|planned| planned.entry.action != Action::Skipped) {
            grows |= planned.writes() && !self.inventory.contains(&planned.entry.object);
            self.inventory.add(&planned.entry.object);
        }
        let inventory = &self.inventory;
        steps.progress().update(&mut |object| status::set_inventory(object, inventory));
        if grows {
            tracing::debug!(name = self.object.metadata.name, "listing objects before they are created");
            steps.progress().publish().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
