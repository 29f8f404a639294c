//! In which state a release is, and what is to be done about it. Pure.

use serde_json::{Map, Value as Json};
use weir_api::helm::{DriftDetectionMode, HelmRelease, ReleaseSnapshot, RemediationStrategy};
use weir_helm::metadata::Metadata;
use weir_helm::release::{Record, Status};

use crate::{digest, history, spec};
use weir_runtime::FeatureGates;

/// The state of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Everything is as it should be.
    InSync,
    /// An action on it was cut off; the status it was left in.
    Locked(&'static str),
    /// There is no such release.
    Absent(&'static str),
    /// There is one, made by somebody else.
    Unmanaged(String),
    /// It is not what it should be.
    OutOfSync(&'static str),
    /// Its tests have not run.
    Untested,
    /// The last action on it failed, or a test did.
    Failed(&'static str),
}

/// The state cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to determine state for release with status '{0}'")]
pub struct UnknownState(&'static str);

/// Tells the state from the last record of the release; drift is not looked at.
///
/// # Errors
/// A record in a status that is never left behind.
pub fn determine(
    object: &HelmRelease,
    gates: &FeatureGates,
    last: Option<&Record>,
    chart: &Metadata,
    values: &Map<String, Json>,
) -> Result<State, UnknownState> {
    let Some(last) = last else { return Ok(State::Absent("no release in storage for object")) };
    let status = last.info.status;
    if status.is_pending() {
        return Ok(State::Locked(status.name()));
    }
    if status == Status::Uninstalling && was_uninstalling(object, last) {
        return Ok(State::Locked(status.name()));
    }
    let Some(latest) = object.status.as_ref().and_then(|status| status.history.first()) else {
        if status == Status::Uninstalled {
            return Ok(State::Absent("found uninstalled release in storage"));
        }
        return Ok(State::Unmanaged("found existing release in storage".to_owned()));
    };
    if let Err(reason) = history::verify(latest, last) {
        return Ok(State::Unmanaged(reason));
    }
    match status {
        Status::Failed => Ok(State::Failed("release is in a failed state")),
        Status::Uninstalled => Ok(State::Absent("found uninstalled release in storage")),
        Status::Deployed => Ok(deployed(object, gates, latest, last, chart, values)),
        Status::Unknown
        | Status::Superseded
        | Status::Uninstalling
        | Status::PendingInstall
        | Status::PendingUpgrade
        | Status::PendingRollback => Err(UnknownState(status.name())),
    }
}

/// Whether it was this controller that began to uninstall the release, and did not come to the end of it.
fn was_uninstalling(object: &HelmRelease, last: &Record) -> bool {
    use weir_api::FluxObject as _;
    let latest = object.status.as_ref().and_then(|status| status.history.first());
    let is_known = latest.is_some_and(|latest| history::verify(latest, last).is_ok());
    is_known
        || weir_api::condition::get(object.conditions(), weir_api::names::condition::RECONCILING)
            .is_some_and(|running| running.message.starts_with("Running 'uninstall' action"))
}

fn deployed(
    object: &HelmRelease,
    gates: &FeatureGates,
    latest: &ReleaseSnapshot,
    last: &Record,
    chart: &Metadata,
    values: &Map<String, Json>,
) -> State {
    let made_of = &last.chart.metadata;
    if (&made_of.name, &made_of.version) != (&chart.name, &chart.version) {
        return State::OutOfSync("release chart changed");
    }
    if !digest::is_of_values(&latest.config_digest, values) {
        return State::OutOfSync("release config values changed");
    }
    if !spec::is_observed(object)
        && let Some(reason) = rendering_changed(object)
    {
        return State::OutOfSync(reason);
    }
    if spec::tests_enabled(object) {
        if !history::is_tested(latest) {
            return State::Untested;
        }
        let counts = spec::active_retry(object, Some(gates)).is_none()
            && spec::active_remediation(object).is_some_and(|remediation| !remediation.ignore_test_failures);
        if counts && history::has_failed_test(latest) {
            return State::Failed("release has test in failed phase");
        }
    }
    State::InSync
}

/// Whether what is done to rendered manifests changed since they were.
fn rendering_changed(object: &HelmRelease) -> Option<&'static str> {
    let status = object.status.as_ref();
    let observed = |digest: Option<&String>| digest.map(String::as_str).unwrap_or_default().to_owned();
    let renderers = observed(status.and_then(|status| status.observed_post_renderers_digest.as_ref()));
    if renderers != digest::post_renderers(&object.spec.post_renderers) {
        return Some("postrenderers digest has changed");
    }
    let metadata = observed(status.and_then(|status| status.observed_common_metadata_digest.as_ref()));
    let wanted = digest::common_metadata(object.spec.common_metadata.as_ref());
    (metadata != wanted).then_some("common metadata digest has changed")
}

/// What is done about a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it is in sync.
    Nothing,
    /// An installation.
    Install,
    /// An upgrade.
    Upgrade,
    /// An upgrade; what the controller knew is forgotten first, since somebody else made the release.
    TakeOver,
    /// An upgrade that repeats a failed action.
    Retry,
    /// A run of the tests.
    Test,
    /// A rollback to the revision of a snapshot.
    Rollback(Box<ReleaseSnapshot>),
    /// An uninstallation of what failed.
    Uninstall,
    /// The end of an action that was cut off.
    Unlock,
    /// Nothing: there were too many failures.
    Exhausted,
    /// Nothing: there is no revision to go back to.
    NoTarget,
}

/// Decides what to do; `has_record` tells whether a revision is on record and of its snapshot.
pub fn next(
    object: &HelmRelease,
    gates: &FeatureGates,
    state: &State,
    forced: bool,
    has_record: impl Fn(&ReleaseSnapshot) -> bool,
) -> Next {
    match state {
        State::InSync if forced => Next::Upgrade,
        State::InSync => Next::Nothing,
        State::Locked(_) => Next::Unlock,
        State::Absent(_) => {
            let exhausted = is_remedied(object, gates) && spec::install_remediation(object).is_exhausted();
            if exhausted && !forced { Next::Exhausted } else { Next::Install }
        }
        State::Unmanaged(_) => Next::TakeOver,
        State::OutOfSync(_) => {
            let exhausted = is_remedied(object, gates) && spec::upgrade_remediation(object).is_exhausted();
            if exhausted && !forced { Next::Exhausted } else { Next::Upgrade }
        }
        State::Untested => Next::Test,
        State::Failed(_) => after_failure(object, gates, forced, has_record),
    }
}

/// Whether failures are counted and remedied, not only retried.
fn is_remedied(object: &HelmRelease, gates: &FeatureGates) -> bool {
    spec::active_retry(object, Some(gates)).is_none()
}

fn after_failure(
    object: &HelmRelease,
    gates: &FeatureGates,
    forced: bool,
    has_record: impl Fn(&ReleaseSnapshot) -> bool,
) -> Next {
    if spec::active_retry(object, Some(gates)).is_some() {
        return Next::Retry;
    }
    let Some(remediation) = spec::active_remediation(object) else { return Next::Upgrade };
    if remediation.failures <= 0 || forced {
        return Next::Upgrade;
    }
    if remediation.is_exhausted() && !remediation.remediate_last_failure {
        return Next::Exhausted;
    }
    match remediation.strategy {
        RemediationStrategy::Uninstall => Next::Uninstall,
        RemediationStrategy::Rollback => {
            let known = object.status.as_ref().map(|status| status.history.as_slice()).unwrap_or_default();
            match history::previous(known, remediation.ignore_test_failures) {
                None => Next::NoTarget,
                Some(target) if has_record(target) => Next::Rollback(Box::new(target.clone())),
                Some(_) => Next::Upgrade,
            }
        }
    }
}

/// Whether drift is looked for in this state.
pub fn looks_for_drift(object: &HelmRelease, state: &State) -> bool {
    *state == State::InSync && spec::drift_mode(object) != DriftDetectionMode::Disabled
}

/// Why the failures of the past no longer count; [`None`] if they do.
pub fn reset_reason(
    object: &HelmRelease,
    chart: &Metadata,
    values: &Map<String, Json>,
    reset_requested: bool,
) -> Option<&'static str> {
    use weir_api::FluxObject as _;
    let status = object.status.clone().unwrap_or_default();
    if status.last_attempted_generation != object.generation() {
        return Some("generation differs from last attempt");
    }
    if status.last_attempted_revision.unwrap_or_default() != chart.version {
        return Some("chart version differs from last attempt");
    }
    let attempted = status.last_attempted_config_digest.filter(|digest| !digest.is_empty()).or_else(|| {
        let checksum = status.last_attempted_values_checksum.filter(|checksum| !checksum.is_empty());
        checksum.map(|checksum| format!("sha1:{checksum}"))
    });
    if attempted.is_some_and(|digest| !digest::is_of_values(&digest, values)) {
        return Some("values differ from last attempt");
    }
    reset_requested.then_some("reset requested through annotation")
}

/// Why the release has to be uninstalled before anything else: it is to be somewhere else, or of another name.
pub fn target_changed(object: &HelmRelease, chart_name: &str) -> Option<&'static str> {
    let status = object.status.as_ref()?;
    let storage = status.storage_namespace.as_deref().filter(|namespace| !namespace.is_empty())?;
    let latest = status.history.first()?;
    if storage != spec::storage_namespace(object) {
        return Some("storage namespace");
    }
    if latest.namespace != spec::release_namespace(object) {
        return Some("release namespace");
    }
    if latest.name != spec::release_name(object) {
        return Some("release name");
    }
    (latest.chart_name != chart_name && spec::reinstalls_on_chart_name(object)).then_some("chart name")
}

#[cfg(test)]
mod tests;
