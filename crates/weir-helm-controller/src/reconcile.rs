//! Makes the release agree with a HelmRelease.

mod actions;

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
use weir_kms::Requests;
use weir_runtime::{Conclusion, Ended, Notice, Pass, Reconciler, Run, Trigger};

use crate::act::{Outcome, Work};
use crate::chart::{self, SourceKind};
use crate::clusters::Clusters;
use crate::digest::{self, Algorithm};
use crate::error::Error;
use crate::history;
use crate::observe::{self, Stores};
use crate::settings::Settings;
use crate::state::{self, Next, State};
use crate::status::{self, Done, Subject};
use crate::{finalize, recover, spec};

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
    /// Sends requests to the services that have keys of encrypted values.
    pub requests: Requests,
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
        status::conclude(object, &pass, ended, &self.settings.gates)
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
        if object.spec.rollback.as_ref().is_some_and(|rollback| rollback.recreate) {
            tracing::warn!("spec.rollback.recreate has no effect any more: remove it");
        }
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
        let given = observe::values(&*local, object, &self.requests, &self.clock).await?;
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
        let keep = self.settings.gates.enabled("DisableChartDigestTracking");
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
        let mut recovers = false;
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
            let mut next = state::next(&current, &self.settings.gates, &state, force, has_record);
            if matches!(next, Next::Exhausted | Next::NoTarget)
                && done.is_empty()
                && self.may_recover(object, job, records.last()).await
            {
                tracing::info!("trying again: the cause of the exhausted retries may have gone");
                recovers = true;
                next = state::next(&current, &self.settings.gates, &state, true, has_record);
            }
            if recovers && next == Next::Nothing {
                progress.update(&mut |object| clear_failures(object));
            }
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

    /// Whether a release that was given up is tried again in this run.
    async fn may_recover(&self, object: &HelmRelease, job: &Job, last: Option<&Record>) -> bool {
        let Some(due) = recover::due(object) else { return false };
        if !recover::is_on(object, &self.settings.gates) {
            return false;
        }
        let now = self.clock.now();
        if now >= due {
            return true;
        }
        let Some(last) = last else { return false };
        recover::is_healed(&*job.work.cluster, last, &job.work.checks, now).await
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
            Next::Install => self.install_or_upgrade(progress, job, ReleaseAction::Install, None).await,
            Next::Upgrade | Next::TakeOver => {
                self.install_or_upgrade(progress, job, ReleaseAction::Upgrade, last.as_ref()).await
            }
            Next::Retry => {
                progress.update(&mut |object| history::truncate_plainly(&mut object.status_mut().history));
                self.install_or_upgrade(progress, job, ReleaseAction::Upgrade, last.as_ref()).await
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
                if !self.settings.gates.enabled("CancelHealthCheckOnNewRevision") {
                    return Ok(action.await);
                }
                tokio::select! {
                    outcome = action => Ok(outcome),
                    trigger = progress.superseded() => Err(trigger),
                }
            })
            .await
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
