//! Makes the release agree with a HelmRelease.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use weir_api::helm::{DriftDetectionMode, HelmRelease, ReleaseAction, ReleaseSnapshot, RemediationStrategy};
use weir_api::names::{annotation, condition as types, reason};
use weir_api::{Artifact, FluxObject, GoDuration, condition, request};
use weir_apply::health::{CustomChecks, Source as CheckSource};
use weir_apply::write::WriteCluster;
use weir_artifact::fetch::{FetchError, Fetcher};
use weir_base::clock::Clock;
use weir_helm::chart::Chart;
use weir_helm::metadata::Metadata;
use weir_helm::release::Record;
use weir_helm::values::Table;
use weir_runtime::{Conclusion, Ended, Notice, Pass, Reconciler, Run, Severity, Trigger};

use crate::act::{Outcome, Work};
use crate::chart::{self, SourceKind};
use crate::clusters::Clusters;
use crate::digest::{self, Algorithm};
use crate::error::Error;
use crate::history::{self, Actions};
use crate::observe::{self, Stores};
use crate::settings::Settings;
use crate::state::{self, Next, State};
use crate::status::{self, Done, Subject};
use crate::{drift, finalize, spec, values};

/// How many charts are kept in memory, and of how many the name and version are known.
const CHARTS_MAX: usize = 8;
const KNOWN_CHARTS_MAX: usize = 10_000;
/// How many times one run looks at the release again.
const ROUNDS_MAX: usize = 16;

/// Gives charts by the URL and digest of their artifact.
#[async_trait]
pub trait Charts: Send + Sync {
    /// The bytes of an artifact, proven to have the digest.
    async fn download(&self, url: &str, digest: &str) -> Result<Bytes, FetchError>;
}

#[async_trait]
impl Charts for Fetcher {
    async fn download(&self, url: &str, digest: &str) -> Result<Bytes, FetchError> {
        Fetcher::download(self, url, digest).await
    }
}

/// The part of a [`Run`] that a reconcile needs.
pub trait Progress: Send + Sync {
    /// Changes the status of the working copy.
    fn update(&self, change: &mut (dyn FnMut(&mut HelmRelease) + Send));
    /// The object with the status as it is in this run.
    fn snapshot(&self) -> HelmRelease;
    /// Writes the status.
    fn publish(&self) -> impl Future<Output = Result<(), Error>> + Send;
    /// Tells people.
    fn notice(&self, notice: Notice);
    /// The time.
    fn now(&self) -> Timestamp;
    /// Waits for a newer request for the same object.
    fn superseded(&self) -> impl Future<Output = Trigger> + Send;
    /// Waits for something outside without keeping others from working.
    fn without_worker<T: Send>(
        &self,
        future: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send;
}

impl Progress for Run<HelmRelease> {
    fn update(&self, change: &mut (dyn FnMut(&mut HelmRelease) + Send)) {
        Run::update(self, |object| change(object));
    }

    fn snapshot(&self) -> HelmRelease {
        Run::snapshot(self)
    }

    async fn publish(&self) -> Result<(), Error> {
        Ok(Run::publish(self).await?)
    }

    fn notice(&self, notice: Notice) {
        Run::notice(self, &notice);
    }

    fn now(&self) -> Timestamp {
        Run::now(self)
    }

    async fn superseded(&self) -> Trigger {
        Run::superseded(self).await
    }

    async fn without_worker<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        Run::without_worker(self, future).await
    }
}

/// Reconciles HelmReleases.
pub struct HelmReleaseReconciler {
    /// The watched objects.
    pub stores: Stores,
    /// Where releases are made.
    pub clusters: Arc<dyn Clusters>,
    /// Where charts come from.
    pub charts: Arc<dyn Charts>,
    /// Charts that were loaded lately.
    pub loaded: LoadedCharts,
    /// What the flags say.
    pub settings: Settings,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Reconciler for HelmReleaseReconciler {
    type Object = HelmRelease;
    type Done = Done;
    type Error = Error;

    const OWNED_CONDITIONS: &'static [&'static str] = &[
        types::RELEASED,
        types::REMEDIATED,
        types::TEST_SUCCESS,
        types::RECONCILING,
        types::READY,
        types::STALLED,
    ];

    async fn reconcile(&self, run: &Run<HelmRelease>, object: &HelmRelease) -> Result<Done, Error> {
        // Boxed: the state of a whole run is large for the stack of a worker.
        Box::pin(self.run(run, object)).await
    }

    async fn finalize(&self, run: &Run<HelmRelease>, object: &HelmRelease) -> Result<(), Error> {
        Box::pin(finalize::finalize(self, run, object)).await
    }

    fn conclude(&self, object: &mut HelmRelease, pass: Pass<'_, Done, Error>, ended: Ended) -> Conclusion {
        status::conclude(object, &pass, ended)
    }
}

/// Charts by the digest of their artifact: the last few whole, of many the name and version.
#[derive(Default)]
pub struct LoadedCharts(Mutex<Loaded>);

#[derive(Default)]
struct Loaded {
    charts: VecDeque<(String, Arc<Chart>)>,
    known: HashMap<String, (String, String)>,
}

impl LoadedCharts {
    fn get(&self, digest: &str) -> Option<Arc<Chart>> {
        let loaded = self.0.lock();
        loaded.charts.iter().find(|(known, _)| known == digest).map(|(_, chart)| Arc::clone(chart))
    }

    fn known(&self, digest: &str) -> Option<(String, String)> {
        self.0.lock().known.get(digest).cloned()
    }

    fn add(&self, digest: &str, chart: Arc<Chart>) {
        let mut loaded = self.0.lock();
        if loaded.known.len() >= KNOWN_CHARTS_MAX {
            loaded.known.clear();
        }
        let name = (chart.metadata.name.clone(), chart.metadata.version.clone());
        loaded.known.insert(digest.to_owned(), name);
        loaded.charts.retain(|(known, _)| known != digest);
        loaded.charts.push_back((digest.to_owned(), chart));
        while loaded.charts.len() > CHARTS_MAX {
            loaded.charts.pop_front();
        }
    }
}

/// What a release is to be made of.
pub(crate) struct Job {
    pub(crate) work: Work,
    artifact: Artifact,
    source_kind: SourceKind,
    /// Name and version of the chart, as it will be on record.
    metadata: Metadata,
    values: Table,
    oci_digest: String,
    config_digest: String,
}

impl Job {
    /// What events about the next release say.
    fn subject(&self) -> Subject {
        Subject {
            chart_version: self.metadata.version.clone(),
            app_version: self.metadata.app_version.clone(),
            config_digest: self.config_digest.clone(),
            oci_digest: self.oci_digest.clone(),
        }
    }
}

/// The kinds of action of which each runs once in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Release,
    Remediate,
    Test,
    Unlock,
    Drift,
}

impl HelmReleaseReconciler {
    /// One run.
    pub async fn run<P: Progress>(&self, progress: &P, object: &HelmRelease) -> Result<Done, Error> {
        if object.spec.chart.is_some() == object.spec.chart_ref.is_some() {
            return Err(Error::InvalidChartReference);
        }
        let checks = Arc::new(compile_checks(object)?);
        crate::template::reconcile(self, progress, object).await?;
        let job = Box::pin(self.prepare(progress, object, checks)).await?;
        let result = Box::pin(self.release(progress, object, &job)).await;
        if matches!(result, Ok(_) | Err(Error::Exhausted(_) | Error::NoTarget)) {
            progress.update(&mut |object| status::remove(object, types::RECONCILING));
        }
        result
    }

    /// Reads and decides everything that comes before the release itself.
    async fn prepare<P: Progress>(
        &self,
        progress: &P,
        object: &HelmRelease,
        checks: Arc<CustomChecks>,
    ) -> Result<Job, Error> {
        let local = self.clusters.local();
        observe::check_dependencies(&self.stores, &*local, &self.settings, object).await?;
        let name = chart::source_name(object).ok_or(Error::InvalidChartReference)?;
        let source = observe::source(&self.stores, &*local, &self.settings, object, &name).await?;
        let artifact = source
            .ready(&name)
            .map_err(|message| Error::SourceNotReady { message, retry: self.settings.requeue_dependency })?;
        let references = observe::references(&*local, object).await?;
        let given = values::compose(spec::namespace(object), object.spec.values.as_ref(), &references)
            .map_err(|error| Error::Values(error.to_string()))?;
        let (metadata, oci_digest) = self.metadata(artifact, name.kind).await?;
        let cluster = self.clusters.target(object).await.map_err(|error| Error::Client(error.to_string()))?;
        progress.update(&mut |object| clear_stale(object, self.clock.now()));
        if let Some(why) = state::target_changed(object, &metadata.name) {
            tracing::info!(
                "release target configuration changed ({why}): running uninstall for current release"
            );
            finalize::uninstall(self, progress, object, cluster).await?;
            progress.update(&mut |object| finalize::forget(object));
            return Err(Error::Again);
        }
        let config_digest = digest::values(Algorithm::Sha256, &given);
        let reset = request::handle(
            object.metadata.annotations.as_ref(),
            annotation::RESET_AT,
            object.last_handled_reconcile_at(),
            object.status.as_ref().and_then(|status| status.last_handled_reset_at.as_deref()),
        );
        let reset_reason = state::reset_reason(object, &metadata, &given, reset.act);
        progress.update(&mut |object| {
            let (generation, storage) = (object.generation(), spec::storage_namespace(object).to_owned());
            let status = object.status_mut();
            status.storage_namespace = Some(storage);
            status.last_handled_reset_at.clone_from(&reset.last_handled);
            if reset_reason.is_some() {
                (status.failures, status.install_failures, status.upgrade_failures) = (0, 0, 0);
            }
            status.last_attempted_generation = generation;
            status.last_attempted_revision = Some(metadata.version.clone());
            status.last_attempted_revision_digest.clone_from(&oci_digest);
            status.last_attempted_config_digest = Some(config_digest.clone());
            status.last_attempted_values_checksum = None;
            status.last_release_revision = None;
        });
        let work =
            self.work(object, cluster, checks, spec::storage_namespace(object), spec::release_name(object));
        Ok(Job {
            work,
            artifact: artifact.clone(),
            source_kind: name.kind,
            metadata,
            values: given,
            oci_digest: oci_digest.unwrap_or_default(),
            config_digest,
        })
    }

    /// What is needed to act on a release of the object.
    pub(crate) fn work(
        &self,
        object: &HelmRelease,
        cluster: Arc<dyn WriteCluster>,
        checks: Arc<CustomChecks>,
        storage_namespace: &str,
        release_name: String,
    ) -> Work {
        Work {
            object: Arc::new(object.clone()),
            settings: self.settings.clone(),
            cluster,
            checks,
            clock: Arc::clone(&self.clock),
            storage_namespace: storage_namespace.to_owned(),
            release_name,
        }
    }

    /// Name and version of the chart in an artifact, and the digest to put on record.
    async fn metadata(
        &self,
        artifact: &Artifact,
        kind: SourceKind,
    ) -> Result<(Metadata, Option<String>), Error> {
        let mut chart = match self.loaded.known(&artifact.digest) {
            Some((name, version)) => {
                Chart { metadata: Metadata { name, version, ..Metadata::default() }, ..Chart::default() }
            }
            None => Chart { metadata: self.chart(artifact).await?.metadata.clone(), ..Chart::default() },
        };
        let oci_digest = self.track_digest(&mut chart, artifact, kind)?;
        Ok((chart.metadata, oci_digest))
    }

    fn track_digest(
        &self,
        chart: &mut Chart,
        artifact: &Artifact,
        kind: SourceKind,
    ) -> Result<Option<String>, Error> {
        let keep = self.settings.gates.on("DisableChartDigestTracking");
        chart::track_digest(chart, kind, &artifact.revision, keep).map_err(Error::ChartVersion)
    }

    /// The chart in an artifact, as it was packaged.
    async fn chart(&self, artifact: &Artifact) -> Result<Arc<Chart>, Error> {
        if let Some(chart) = self.loaded.get(&artifact.digest) {
            return Ok(chart);
        }
        let bytes = self.charts.download(&artifact.url, &artifact.digest).await.map_err(|error| {
            if error.is_not_found() {
                Error::ArtifactGone(self.settings.requeue_dependency)
            } else {
                Error::Chart(weir_base::error::chain(&error))
            }
        })?;
        let loaded = tokio::task::spawn_blocking(move || Chart::from_archive(&bytes)).await;
        let chart = match loaded {
            Ok(Ok(chart)) => Arc::new(chart),
            Ok(Err(error)) => return Err(Error::Chart(error.to_string())),
            Err(error) => return Err(Error::Chart(error.to_string())),
        };
        self.loaded.add(&artifact.digest, Arc::clone(&chart));
        Ok(chart)
    }

    /// The chart as it goes on record.
    async fn release_chart(&self, job: &Job) -> Result<Chart, Error> {
        let mut chart = (*self.chart(&job.artifact).await?).clone();
        self.track_digest(&mut chart, &job.artifact, job.source_kind)?;
        Ok(chart)
    }

    /// Looks at the release and acts until it is as it should be, or nothing more can be done in this run.
    async fn release<P: Progress>(
        &self,
        progress: &P,
        object: &HelmRelease,
        job: &Job,
    ) -> Result<Done, Error> {
        let mut forced = Self::take_force_request(progress, object);
        let mut done: HashSet<Kind> = HashSet::new();
        for _ in 0..ROUNDS_MAX {
            let current = progress.snapshot();
            let mut records = job.work.storage().history().await.map_err(|error| {
                Error::State(format!("failed to retrieve last release from storage: {error}"))
            })?;
            let state =
                state::determine(&current, &self.settings.gates, records.last(), &job.metadata, &job.values)
                    .map_err(|error| Error::State(error.to_string()))?;
            tracing::debug!(state = ?state, "determined the state of the release");
            let force = std::mem::take(&mut forced);
            if state::looks_for_drift(&current, &state) && !force {
                match self.check_drift(progress, &current, job, records.last(), &mut done).await? {
                    Drift::None => {}
                    Drift::Handled => return Ok(Done),
                }
            }
            let has_record = |snapshot: &ReleaseSnapshot| {
                let record = records.iter().find(|record| record.version == snapshot.version);
                record.is_some_and(|record| history::verify(snapshot, record).is_ok())
            };
            let next = state::next(&current, &self.settings.gates, &state, force, has_record);
            let last = records.pop();
            drop(records);
            let Some((kind, name)) = kind_of(&next) else {
                return Self::end(progress, &current, &next);
            };
            if done.contains(&kind) {
                return self.repeated(progress, &current);
            }
            if matches!(next, Next::TakeOver) {
                progress.update(&mut |object| object.status_mut().history.clear());
            }
            if matches!(state, State::Untested) {
                let now = progress.now();
                progress.update(&mut |object| status::replace_remediated(object, now));
            }
            self.mark_running(progress, &current, kind, name).await?;
            let result = Box::pin(self.act(progress, job, &next, last)).await;
            if let Err(error) = result {
                if let Some(retry) = spec::active_retry(&progress.snapshot(), Some(&self.settings.gates)) {
                    return Self::retry_after(progress, retry);
                }
                return Err(error);
            }
            if kind == Kind::Remediate {
                return self.after_remediation(progress);
            }
            done.insert(kind);
        }
        Err(Error::Again)
    }

    fn take_force_request<P: Progress>(progress: &P, object: &HelmRelease) -> bool {
        let force = request::handle_force(
            object.metadata.annotations.as_ref(),
            object.last_handled_reconcile_at(),
            object.status.as_ref().and_then(|status| status.last_handled_force_at.as_deref()),
        );
        progress.update(&mut |object| {
            object.status_mut().last_handled_force_at.clone_from(&force.last_handled);
        });
        force.act
    }

    /// Nothing more is done: because there is no need, or because nothing helps.
    fn end<P: Progress>(progress: &P, current: &HelmRelease, next: &Next) -> Result<Done, Error> {
        let now = progress.now();
        match next {
            Next::Exhausted => {
                let action =
                    match current.status.as_ref().and_then(|status| status.last_attempted_release_action) {
                        Some(ReleaseAction::Upgrade) => spec::upgrade_remediation(current),
                        Some(ReleaseAction::Install) | None => spec::install_remediation(current),
                    };
                Err(Error::Exhausted(exhausted(action)))
            }
            Next::NoTarget => Err(Error::NoTarget),
            _ => {
                progress.update(&mut |object| {
                    if let Some(status) = &mut object.status {
                        history::truncate(&mut status.history, false);
                    }
                    status::replace_remediated(object, now);
                    status::recover_released(object, now);
                    if spec::drift_mode(object) != DriftDetectionMode::Disabled {
                        let message = "No drift detected against the cluster state";
                        status::mark(object, status::DRIFTED, false, "NoDriftDetected", message, now);
                    }
                    status::remove(object, types::RECONCILING);
                    status::summarize(object, now);
                });
                Ok(Done)
            }
        }
    }

    /// An action would run for the second time: it failed.
    fn repeated<P: Progress>(&self, progress: &P, current: &HelmRelease) -> Result<Done, Error> {
        if let Some(retry) = spec::active_retry(current, Some(&self.settings.gates)) {
            return Self::retry_after(progress, retry);
        }
        if spec::active_remediation(current).is_none_or(|remediation| !remediation.is_exhausted()) {
            let now = progress.now();
            progress.update(&mut |object| {
                let message = status::ready_message(object);
                status::mark_retrying(object, &message, now);
            });
            return Err(Error::Again);
        }
        Ok(Done)
    }

    fn retry_after<P: Progress>(progress: &P, retry: std::time::Duration) -> Result<Done, Error> {
        let now = progress.now();
        let message = format!("retrying after {}", GoDuration::from(retry));
        progress.update(&mut |object| status::mark_retrying(object, &message, now));
        Err(Error::RetryAfter(retry))
    }

    fn after_remediation<P: Progress>(&self, progress: &P) -> Result<Done, Error> {
        let current = progress.snapshot();
        if let Some(retry) = spec::active_retry(&current, Some(&self.settings.gates)) {
            return Self::retry_after(progress, retry);
        }
        let Some(remediation) = spec::active_remediation(&current) else { return Err(Error::Again) };
        let starts_over = remediation.action == ReleaseAction::Upgrade
            && remediation.strategy == RemediationStrategy::Uninstall;
        if !remediation.is_exhausted() || starts_over {
            return Err(Error::Again);
        }
        Err(Error::Exhausted(exhausted(remediation)))
    }

    async fn mark_running<P: Progress>(
        &self,
        progress: &P,
        current: &HelmRelease,
        kind: Kind,
        name: &str,
    ) -> Result<(), Error> {
        let now = progress.now();
        let gates = &self.settings.gates;
        let timeout = match name {
            "install" => spec::install(current, gates).timeout,
            "upgrade" => spec::upgrade(current, gates).timeout,
            "rollback" => spec::rollback(current, gates).timeout,
            "uninstall" => spec::uninstall(current, gates).timeout,
            "test" => spec::test(current, gates).timeout,
            _ => spec::timeout(current),
        };
        progress.update(&mut |object| {
            status::mark_running(object, name, timeout, kind == Kind::Release, now);
        });
        progress.publish().await
    }

    async fn act<P: Progress>(
        &self,
        progress: &P,
        job: &Job,
        next: &Next,
        last: Option<Record>,
    ) -> Result<(), Error> {
        match next {
            Next::Install => self.install_or_upgrade(progress, job, ReleaseAction::Install).await,
            Next::Upgrade | Next::TakeOver => {
                self.install_or_upgrade(progress, job, ReleaseAction::Upgrade).await
            }
            Next::Retry => {
                progress.update(&mut |object| history::truncate_plainly(&mut object.status_mut().history));
                self.install_or_upgrade(progress, job, ReleaseAction::Upgrade).await
            }
            Next::Test => self.test(progress, job).await,
            Next::Rollback(target) => self.rollback(progress, job, target).await,
            Next::Uninstall => self.uninstall_remediation(progress, job).await,
            Next::Unlock => match last {
                Some(last) => self.unlock(progress, job, last).await,
                None => Ok(()),
            },
            Next::Nothing | Next::Exhausted | Next::NoTarget => Ok(()),
        }
    }

    /// Runs an action without holding a worker; with the gate, until something newer comes.
    async fn perform<P: Progress>(
        &self,
        progress: &P,
        action: impl Future<Output = Outcome> + Send,
    ) -> Result<Outcome, Trigger> {
        progress
            .without_worker(async {
                if !self.settings.gates.on("CancelHealthCheckOnNewRevision") {
                    return Ok(action.await);
                }
                tokio::select! {
                    outcome = action => Ok(outcome),
                    trigger = progress.superseded() => Err(trigger),
                }
            })
            .await
    }

    async fn install_or_upgrade<P: Progress>(
        &self,
        progress: &P,
        job: &Job,
        action: ReleaseAction,
    ) -> Result<(), Error> {
        let chart = self.release_chart(job).await?;
        progress.update(&mut |object| {
            object.status_mut().last_attempted_release_action = Some(action);
            if action == ReleaseAction::Install {
                object.status_mut().history.clear();
            }
            status::remove(object, types::TEST_SUCCESS);
            status::remove(object, types::REMEDIATED);
        });
        let started = tokio::time::Instant::now();
        let (word, good, bad) = match action {
            ReleaseAction::Install => ("install", "InstallSucceeded", "InstallFailed"),
            ReleaseAction::Upgrade => ("upgrade", "UpgradeSucceeded", "UpgradeFailed"),
        };
        let outcome = match action {
            ReleaseAction::Install => self.perform(progress, job.work.install(&chart, &job.values)).await,
            ReleaseAction::Upgrade => self.perform(progress, job.work.upgrade(&chart, &job.values)).await,
        };
        let outcome = outcome.map_err(Error::Canceled)?;
        let elapsed = i64::try_from(started.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let now = progress.now();
        let actions = Actions { new: word, known: "" };
        progress.update(&mut |object| {
            let status = object.status_mut();
            status.last_attempted_release_action_duration = Some(GoDuration::from_nanos(elapsed));
            history::observe(
                &mut status.history,
                &outcome.written,
                self.settings.digest_algorithm,
                &job.oci_digest,
                actions,
            );
        });
        self.list_inventory(progress, job, &outcome.written).await;
        let object = &job.work.object;
        match outcome.result {
            Ok(()) => {
                let latest = latest(&progress.snapshot());
                let message =
                    latest.as_ref().map(|latest| status::succeeded(word, latest)).unwrap_or_default();
                progress.update(&mut |object| {
                    if spec::active_retry(object, Some(&self.settings.gates)).is_some() {
                        clear_failures(object);
                    }
                    status::mark(object, types::RELEASED, true, good, &message, now);
                    if spec::tests_enabled(object)
                        && let Some(latest) = latest.as_ref().filter(|latest| !history::is_tested(latest))
                    {
                        let message = format!(
                            "Helm release {} with chart {} is awaiting tests",
                            history::full_name(latest),
                            history::chart(latest)
                        );
                        let stamp = status::stamp(object, now);
                        let conditions = object.conditions_mut();
                        condition::mark_unknown(
                            conditions,
                            types::TEST_SUCCESS,
                            "AwaitingTests",
                            &message,
                            stamp,
                        );
                    }
                    status::summarize(object, now);
                });
                progress.notice(status::notice(Severity::Info, good, message, &job.subject()));
                Ok(())
            }
            Err(error) => {
                let message = format!(
                    "Helm {word} failed for release {}/{} with chart {}@{}: {}",
                    spec::release_namespace(object),
                    spec::full_release_name(object),
                    job.metadata.name,
                    job.metadata.version,
                    error.to_string().trim()
                );
                let stored = !outcome.written.is_empty();
                progress.update(&mut |object| {
                    let status = object.status_mut();
                    status.failures += 1;
                    if stored {
                        match action {
                            ReleaseAction::Install => status.install_failures += 1,
                            ReleaseAction::Upgrade => status.upgrade_failures += 1,
                        }
                    }
                    status::mark(object, types::RELEASED, false, bad, &message, now);
                    status::summarize(object, now);
                });
                progress.notice(status::notice(
                    Severity::Error,
                    bad,
                    with_log(&message, &outcome.log),
                    &job.subject(),
                ));
                if stored { Ok(()) } else { Err(Error::Action(error.to_string())) }
            }
        }
    }

    /// Lists the objects of the last written record in the status.
    async fn list_inventory<P: Progress>(&self, progress: &P, job: &Job, written: &[Record]) {
        let Some(record) = written.iter().max_by_key(|record| record.version) else { return };
        let chart = self.loaded.get(&job.artifact.digest);
        match crate::inventory::entries(&*job.work.cluster, record, chart.as_deref()).await {
            Ok(inventory) => progress.update(&mut |object| {
                object.status_mut().inventory = Some(inventory.clone());
            }),
            Err(error) => {
                let message = format!("failed to build inventory: {error}");
                progress.notice(Notice::new(Severity::Error, "InventoryBuildFailed", message));
            }
        }
    }

    async fn test<P: Progress>(&self, progress: &P, job: &Job) -> Result<(), Error> {
        let outcome = self.perform(progress, job.work.test()).await.map_err(Error::Canceled)?;
        let now = progress.now();
        let filter = spec::test_filter(&job.work.object);
        let version = latest(&progress.snapshot()).map(|latest| latest.version);
        let tested = outcome.written.iter().find(|record| Some(record.version) == version);
        progress.update(&mut |object| {
            let Some(record) = tested else { return };
            let status = object.status_mut();
            let action = Actions { new: "", known: "" };
            let kept = status.history.first().and_then(|latest| latest.action.clone());
            let written = std::slice::from_ref(record);
            history::observe(&mut status.history, written, self.settings.digest_algorithm, "", action);
            if let Some(latest) = status.history.first_mut() {
                latest.test_hooks = Some(history::test_hooks(record, &filter));
                latest.action = kept;
            }
        });
        let Some(latest) = latest(&progress.snapshot()) else { return Ok(()) };
        let release = format!("{} with chart {}", history::full_name(&latest), history::chart(&latest));
        match outcome.result {
            Ok(()) => {
                let count = latest.test_hooks.as_ref().map_or(0, std::collections::BTreeMap::len);
                let hooks = if count == 0 {
                    "no test hooks".to_owned()
                } else {
                    format!("{count} test hook(s) completed successfully")
                };
                let message = format!("Helm test succeeded for release {release}: {hooks}");
                progress.update(&mut |object| {
                    status::mark(object, types::TEST_SUCCESS, true, "TestSucceeded", &message, now);
                    status::summarize(object, now);
                });
                progress.notice(status::notice(Severity::Info, "TestSucceeded", message, &job.subject()));
                Ok(())
            }
            Err(error) => {
                let message = format!("Helm test failed for release {release}: {}", error.to_string().trim());
                let ran = history::is_tested(&latest);
                progress.update(&mut |object| {
                    let remediation = spec::active_remediation(object);
                    let status = object.status_mut();
                    status.failures += 1;
                    if let Some(remediation) = remediation.filter(|found| ran && !found.ignore_test_failures)
                    {
                        match remediation.action {
                            ReleaseAction::Install => status.install_failures += 1,
                            ReleaseAction::Upgrade => status.upgrade_failures += 1,
                        }
                    }
                    status::mark(object, types::TEST_SUCCESS, false, "TestFailed", &message, now);
                    status::summarize(object, now);
                });
                let text = with_log(&message, &outcome.log);
                progress.notice(status::notice(Severity::Error, "TestFailed", text, &job.subject()));
                if ran { Ok(()) } else { Err(Error::Action(error.to_string())) }
            }
        }
    }

    async fn rollback<P: Progress>(
        &self,
        progress: &P,
        job: &Job,
        target: &ReleaseSnapshot,
    ) -> Result<(), Error> {
        progress.update(&mut |object| {
            if let Some(status) = &mut object.status {
                history::truncate(&mut status.history, false);
            }
        });
        let latest = latest(&progress.snapshot());
        let matches = latest
            .as_ref()
            .is_some_and(|latest| (&latest.name, &latest.namespace) == (&target.name, &target.namespace));
        if !matches {
            return Err(Error::Action("release mismatch: the target is of another release".to_owned()));
        }
        let outcome =
            self.perform(progress, job.work.rollback(target.version)).await.map_err(Error::Canceled)?;
        let now = progress.now();
        let actions = Actions { new: "", known: "rollback" };
        progress.update(&mut |object| {
            let history = &mut object.status_mut().history;
            history::observe(history, &outcome.written, self.settings.digest_algorithm, "", actions);
        });
        self.list_inventory(progress, job, &outcome.written).await;
        let to = format!("{} with chart {}", history::full_name(target), history::chart(target));
        let subject = subject_of(target);
        match outcome.result {
            Ok(()) => {
                let message = format!("Helm rollback to previous release {to} succeeded");
                progress.update(&mut |object| {
                    status::mark(object, types::REMEDIATED, true, "RollbackSucceeded", &message, now);
                    status::summarize(object, now);
                });
                progress.notice(status::notice(Severity::Info, "RollbackSucceeded", message, &subject));
                Ok(())
            }
            Err(error) => {
                let message =
                    format!("Helm rollback to previous release {to} failed: {}", error.to_string().trim());
                progress.update(&mut |object| {
                    object.status_mut().failures += 1;
                    status::mark(object, types::REMEDIATED, false, "RollbackFailed", &message, now);
                    status::summarize(object, now);
                });
                let text = with_log(&message, &outcome.log);
                progress.notice(status::notice(Severity::Error, "RollbackFailed", text, &subject));
                if outcome.written.is_empty() { Err(Error::Action(error.to_string())) } else { Ok(()) }
            }
        }
    }

    async fn uninstall_remediation<P: Progress>(&self, progress: &P, job: &Job) -> Result<(), Error> {
        progress.update(&mut |object| {
            if let Some(status) = &mut object.status {
                history::truncate(&mut status.history, false);
            }
        });
        let Some(latest) = latest(&progress.snapshot()) else {
            return Err(Error::Action("no latest release to uninstall".to_owned()));
        };
        let outcome = self.perform(progress, job.work.uninstall()).await.map_err(Error::Canceled)?;
        let now = progress.now();
        let actions = Actions { new: "", known: "uninstall-remediation" };
        progress.update(&mut |object| {
            let history = &mut object.status_mut().history;
            history::observe(history, &outcome.written, self.settings.digest_algorithm, "", actions);
        });
        let release = format!("{} with chart {}", history::full_name(&latest), history::chart(&latest));
        let subject = subject_of(&latest);
        match outcome.result {
            Ok(()) => {
                let message = format!("Helm uninstall remediation for release {release} succeeded");
                progress.update(&mut |object| {
                    status::mark(object, types::REMEDIATED, true, "UninstallSucceeded", &message, now);
                });
                progress.notice(status::notice(Severity::Info, "UninstallSucceeded", message, &subject));
                Ok(())
            }
            Err(error) => {
                let message = format!(
                    "Helm uninstall remediation for release {release} failed: {}",
                    error.to_string().trim()
                );
                progress.update(&mut |object| {
                    object.status_mut().failures += 1;
                    status::mark(object, types::REMEDIATED, false, "UninstallFailed", &message, now);
                });
                let text = with_log(&message, &outcome.log);
                progress.notice(status::notice(Severity::Error, "UninstallFailed", text, &subject));
                if outcome.written.is_empty() { Err(Error::Action(error.to_string())) } else { Ok(()) }
            }
        }
    }

    async fn unlock<P: Progress>(&self, progress: &P, job: &Job, last: Record) -> Result<(), Error> {
        let state = last.info.status.name();
        let snapshot = history::snapshot(&last, self.settings.digest_algorithm, "", "");
        let known =
            latest(&progress.snapshot()).is_some_and(|latest| history::verify(&latest, &last).is_ok());
        let outcome = job.work.unlock(last).await;
        let now = progress.now();
        let release = format!("{} with chart {}", history::full_name(&snapshot), history::chart(&snapshot));
        if let Err(error) = outcome.result {
            let message = format!("Unlock of Helm release {release} in {state} state failed: {error}");
            progress.update(&mut |object| {
                object.status_mut().failures += 1;
                status::mark(object, types::RELEASED, false, "PendingRelease", &message, now);
                status::summarize(object, now);
            });
            progress.notice(status::notice(Severity::Error, "PendingRelease", message, &job.subject()));
            return Err(Error::Action(error.to_string()));
        }
        let message = format!("Unlocked Helm release {release} in {state} state");
        progress.update(&mut |object| {
            if known {
                let history = &mut object.status_mut().history;
                let actions = Actions { new: "", known: "" };
                history::observe(history, &outcome.written, self.settings.digest_algorithm, "", actions);
            }
            status::mark(object, types::RELEASED, false, "PendingRelease", &message, now);
            status::summarize(object, now);
        });
        progress.notice(status::notice(Severity::Info, "PendingRelease", message, &job.subject()));
        Ok(())
    }

    /// Compares the cluster with the last record, and corrects it if that is asked for.
    async fn check_drift<P: Progress>(
        &self,
        progress: &P,
        current: &HelmRelease,
        job: &Job,
        last: Option<&Record>,
        done: &mut HashSet<Kind>,
    ) -> Result<Drift, Error> {
        let (Some(last), Some(latest)) = (last, latest(current)) else { return Ok(Drift::None) };
        let found = drift::compare(&*job.work.cluster, current, last, &self.settings.override_managers)
            .await
            .map_err(Error::State)?;
        if !found.has_changes() {
            return Ok(Drift::None);
        }
        let now = progress.now();
        let release = history::full_name(&latest);
        let message = format!(
            "Cluster state of release {release} has drifted from the desired state:\n{}",
            found.summary()
        );
        progress.notice(Notice::new(Severity::Error, "DriftDetected", message.clone()));
        progress.update(&mut |object| {
            let stamp = status::stamp(object, now);
            let conditions = object.conditions_mut();
            condition::mark_true(conditions, status::DRIFTED, "DriftDetected", &message, stamp);
        });
        let corrects = spec::drift_mode(current) == DriftDetectionMode::Enabled;
        if !corrects || !done.insert(Kind::Drift) {
            progress.update(&mut |object| {
                status::remove(object, types::RECONCILING);
                status::summarize(object, now);
            });
            return Ok(Drift::Handled);
        }
        progress.update(&mut |object| {
            let stamp = status::stamp(object, now);
            let conditions = object.conditions_mut();
            condition::mark_reconciling(conditions, reason::PROGRESSING, "correcting cluster drift", stamp);
            condition::mark_unknown(
                conditions,
                types::READY,
                reason::PROGRESSING,
                "correcting cluster drift",
                stamp,
            );
        });
        progress.publish().await?;
        let corrected = drift::correct(&*job.work.cluster, found, spec::timeout(current)).await;
        let subject = subject_of(&latest);
        let (severity, reason, first, lines) = if corrected.errors.is_empty() {
            let first = format!("Cluster state of release {release} has been corrected:");
            (Severity::Info, "DriftCorrected", first, corrected.changes.clone())
        } else {
            let partially = if corrected.changes.is_empty() { "" } else { "partially " };
            let first = format!("Failed to {partially}correct cluster state of release {release}:");
            let lines = corrected.changes.iter().chain(&corrected.errors).cloned().collect();
            (Severity::Error, "DriftCorrectionFailed", first, lines)
        };
        let notice = status::notice(severity, reason, format!("{first}\n{}", lines.join("\n")), &subject);
        progress.notice(notice);
        if !corrected.errors.is_empty() {
            progress.update(&mut |object| status::summarize(object, now));
            return Err(Error::Action(corrected.errors.join("; ")));
        }
        // What was put right is looked at once more, and told to be right.
        Box::pin(self.check_drift(progress, &progress.snapshot(), job, Some(last), done)).await
    }
}

enum Drift {
    /// There is none.
    None,
    /// There is, and what can be done about it is done.
    Handled,
}

fn kind_of(next: &Next) -> Option<(Kind, &'static str)> {
    Some(match next {
        Next::Install => (Kind::Release, "install"),
        Next::Upgrade | Next::TakeOver | Next::Retry => (Kind::Release, "upgrade"),
        Next::Test => (Kind::Test, "test"),
        Next::Rollback(_) => (Kind::Remediate, "rollback"),
        Next::Uninstall => (Kind::Remediate, "uninstall"),
        Next::Unlock => (Kind::Unlock, "unlock"),
        Next::Nothing | Next::Exhausted | Next::NoTarget => return None,
    })
}

fn exhausted(remediation: spec::Remediation) -> String {
    format!("Failed to {} after {} attempt(s)", remediation.action, remediation.failures)
}

/// The latest snapshot.
pub(crate) fn latest(object: &HelmRelease) -> Option<ReleaseSnapshot> {
    object.status.as_ref()?.history.first().cloned()
}

/// What events about a release that is there say.
pub(crate) fn subject_of(snapshot: &ReleaseSnapshot) -> Subject {
    Subject {
        chart_version: snapshot.chart_version.clone(),
        app_version: snapshot.app_version.clone().unwrap_or_default(),
        config_digest: snapshot.config_digest.clone(),
        oci_digest: snapshot.oci_digest.clone().unwrap_or_default(),
    }
}

/// A message with what was logged on the way.
pub(crate) fn with_log(message: &str, log: &str) -> String {
    if log.is_empty() { message.to_owned() } else { format!("{message}\n\nLast Helm logs:\n\n{log}") }
}

/// Forgets all failures.
pub(crate) fn clear_failures(object: &mut HelmRelease) {
    let status = object.status_mut();
    (status.failures, status.install_failures, status.upgrade_failures) = (0, 0, 0);
}

/// Prerequisites that failed before are met: the object no longer says otherwise.
fn clear_stale(object: &mut HelmRelease, now: Timestamp) {
    const REASONS: &[&str] = &[
        reason::DEPENDENCY_NOT_READY,
        reason::ACCESS_DENIED,
        reason::ARTIFACT_FAILED,
        "SourceNotReady",
        "ValuesError",
        "ChartMutateError",
        "RESTClientError",
        "StateError",
        reason::INVALID_CEL_EXPRESSION,
    ];
    let stale = condition::get(object.conditions(), types::READY)
        .is_some_and(|ready| REASONS.contains(&ready.reason.as_str()));
    let stalled = condition::get(object.conditions(), types::STALLED)
        .is_some_and(|stalled| REASONS.contains(&stalled.reason.as_str()));
    if stalled {
        status::remove(object, types::STALLED);
    }
    if stale {
        let stamp = status::stamp(object, now);
        let conditions = object.conditions_mut();
        condition::mark_unknown(
            conditions,
            types::READY,
            reason::PROGRESSING,
            "reconciliation in progress",
            stamp,
        );
    }
}

/// The health rules of the spec.
fn compile_checks(object: &HelmRelease) -> Result<CustomChecks, Error> {
    let sources = object.spec.health_check_exprs.iter().map(|check| CheckSource {
        api_version: &check.api_version,
        kind: check.kind.as_deref().unwrap_or_default(),
        current: &check.current,
        in_progress: check.in_progress.as_deref().unwrap_or_default(),
        failed: check.failed.as_deref().unwrap_or_default(),
    });
    CustomChecks::compile(sources).map_err(|error| Error::InvalidExpression(error.to_string()))
}

#[cfg(test)]
mod tests;
