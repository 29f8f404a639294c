//! Conditions, events and what follows from a run. Pure.

use std::time::Duration;

use jiff::Timestamp;
use weir_api::condition::{self, Stamp};
use weir_api::helm::{HelmRelease, ReleaseSnapshot};
use weir_api::names::{condition as types, reason};
use weir_api::{FluxObject, GoDuration};
use weir_runtime::{Classify as _, Conclusion, Ended, Failed, FeatureGates, Notice, Pass, Requeue, Severity};

use crate::error::Error;
use crate::{digest, history, recover, spec};

const GROUP: &str = "helm.toolkit.fluxcd.io";

/// The condition that tells whether the cluster was found to differ from the release.
pub const DRIFTED: &str = "Drifted";

/// When a condition is set, and for which generation.
pub fn stamp(object: &HelmRelease, now: Timestamp) -> Stamp {
    Stamp { generation: object.generation(), now: now.into() }
}

/// What an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The version of the chart.
    pub chart_version: String,
    /// The version of the application.
    pub app_version: String,
    /// The digest of the values.
    pub config_digest: String,
    /// The digest of the artifact, or empty.
    pub oci_digest: String,
}

/// An event about an action.
pub fn notice(
    severity: Severity,
    reason: &'static str,
    message: impl Into<String>,
    subject: &Subject,
) -> Notice {
    let mut notice = Notice::new(severity, reason, message)
        .with(format!("{GROUP}/revision"), subject.chart_version.clone())
        .with(format!("{GROUP}/token"), subject.config_digest.clone());
    for (key, value) in [("app-version", &subject.app_version), ("oci-digest", &subject.oci_digest)] {
        if !value.is_empty() {
            notice = notice.with(format!("{GROUP}/{key}"), value.clone());
        }
    }
    notice
}

/// Shows that an action runs.
pub fn mark_running(
    object: &mut HelmRelease,
    action: &str,
    timeout: Duration,
    is_release: bool,
    now: Timestamp,
) {
    let message = format!("Running '{action}' action with timeout of {}", GoDuration::from(timeout));
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    condition::mark_reconciling(conditions, reason::PROGRESSING, &message, stamp);
    if is_release {
        condition::mark_unknown(conditions, types::READY, reason::PROGRESSING, &message, stamp);
    }
}

/// Sets a condition.
pub fn mark(object: &mut HelmRelease, type_: &str, good: bool, reason: &str, message: &str, now: Timestamp) {
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    if good {
        condition::mark_true(conditions, type_, reason, message, stamp);
    } else {
        condition::mark_false(conditions, type_, reason, message, stamp);
    }
}

/// Removes a condition.
pub fn remove(object: &mut HelmRelease, type_: &str) {
    condition::delete(object.conditions_mut(), type_);
}

/// Shows that a failed action will be repeated.
pub fn mark_retrying(object: &mut HelmRelease, message: &str, now: Timestamp) {
    let stamp = stamp(object, now);
    condition::mark_reconciling(object.conditions_mut(), reason::PROGRESSING_WITH_RETRY, message, stamp);
}

/// The message of the `Ready` condition.
pub fn ready_message(object: &HelmRelease) -> String {
    let ready = condition::get(object.conditions(), types::READY);
    ready.map(|ready| ready.message.clone()).unwrap_or_default()
}

/// Sums up in `Ready` what the other conditions say, and what was observed of the spec.
pub fn summarize(object: &mut HelmRelease, now: Timestamp) {
    let (renderers, metadata) = (
        digest::post_renderers(&object.spec.post_renderers),
        digest::common_metadata(object.spec.common_metadata.as_ref()),
    );
    let tests = spec::tests_enabled(object);
    if !tests {
        remove(object, types::TEST_SUCCESS);
    }
    let mut considered = vec![types::REMEDIATED];
    if tests && !spec::ignores_test_failures(object) {
        considered.push(types::TEST_SUCCESS);
    }
    considered.push(types::RELEASED);
    let stamp = stamp(object, now);
    // The first of the list decides, not the worst.
    let newest = considered
        .iter()
        .filter_map(|type_| condition::get(object.conditions(), type_))
        .map(|condition| condition.observed_generation)
        .max();
    let decisive = considered
        .iter()
        .filter_map(|type_| condition::get(object.conditions(), type_))
        .find(|condition| Some(condition.observed_generation) == newest)
        .cloned();
    let Some(decisive) = decisive else { return };
    let status = object.status_mut();
    status.observed_post_renderers_digest = (!renderers.is_empty()).then_some(renderers);
    status.observed_common_metadata_digest = (!metadata.is_empty()).then_some(metadata);
    let status =
        if decisive.type_ == types::REMEDIATED { condition::ConditionStatus::False } else { decisive.status };
    let conditions = object.conditions_mut();
    condition::set(conditions, types::READY, status, &decisive.reason, &decisive.message, stamp);
    if status == condition::ConditionStatus::True {
        condition::delete(conditions, types::STALLED);
    }
}

/// A remedied release that is in sync again counts as released.
pub fn replace_remediated(object: &mut HelmRelease, now: Timestamp) {
    let remediated = condition::get(object.conditions(), types::REMEDIATED).cloned();
    let Some(remediated) = remediated.filter(|found| found.status == condition::ConditionStatus::True) else {
        return;
    };
    let Some(latest) = object.status.as_ref().and_then(|status| status.history.first()).cloned() else {
        return;
    };
    let message = succeeded("upgrade", &latest);
    remove(object, types::REMEDIATED);
    mark(object, types::RELEASED, true, "UpgradeSucceeded", &message, now);
    if let Some(released) =
        object.conditions_mut().iter_mut().find(|condition| condition.type_ == types::RELEASED)
    {
        released.last_transition_time = remediated.last_transition_time;
    }
    summarize(object, now);
}

/// A release that is in sync although the last action is said to have failed counts as released.
pub fn recover_released(object: &mut HelmRelease, now: Timestamp) {
    let released = condition::get(object.conditions(), types::RELEASED).cloned();
    let ready = condition::is_true(object.conditions(), types::READY);
    let Some(released) = released else { return };
    let action = match released.reason.as_str() {
        "InstallFailed" => ("install", "InstallSucceeded"),
        "UpgradeFailed" => ("upgrade", "UpgradeSucceeded"),
        _ => return,
    };
    if ready && released.status == condition::ConditionStatus::True {
        return;
    }
    let Some(latest) = object.status.as_ref().and_then(|status| status.history.first()).cloned() else {
        return;
    };
    mark(object, types::RELEASED, true, action.1, &succeeded(action.0, &latest), now);
    summarize(object, now);
}

/// `Helm install succeeded for release …`
pub fn succeeded(action: &str, snapshot: &ReleaseSnapshot) -> String {
    format!(
        "Helm {action} succeeded for release {} with chart {}",
        history::full_name(snapshot),
        history::chart(snapshot)
    )
}

/// What a successful run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done;

/// Writes the outcome of a run into the status and says what follows.
pub fn conclude(
    object: &mut HelmRelease,
    pass: &Pass<'_, Done, Error>,
    ended: Ended,
    gates: &FeatureGates,
) -> Conclusion {
    let generation = object.generation();
    match *pass {
        Pass::Suspended => {
            object.set_observed_generation(generation);
            Conclusion::default()
        }
        Pass::Reconciled(Ok(Done)) => {
            object.set_observed_generation(generation);
            Conclusion { requeue: Requeue::Interval(object.spec.interval.to_std()), notices: Vec::new() }
        }
        Pass::Reconciled(Err(Failed::Error(error))) => failed(object, error, ended, gates),
        Pass::Finalized(Ok(())) => Conclusion::default(),
        Pass::Finalized(Err(Failed::Error(error))) => Conclusion {
            requeue: Requeue::Backoff,
            notices: vec![Notice::new(Severity::Error, "UninstallFailed", error.to_string()).without_event()],
        },
        Pass::Reconciled(Err(failure)) | Pass::Finalized(Err(failure)) => {
            let message = failure.to_string();
            mark(object, types::READY, false, "ReconcileError", &message, ended.now);
            Conclusion {
                requeue: Requeue::for_class(failure.class()),
                notices: vec![Notice::new(Severity::Error, "ReconcileError", message)],
            }
        }
    }
}

fn failed(object: &mut HelmRelease, error: &Error, ended: Ended, gates: &FeatureGates) -> Conclusion {
    let message = error.to_string();
    let now = ended.now;
    if let Some(reason) = error.ready_reason() {
        mark(object, types::READY, false, reason, &message, now);
    }
    let told = |severity, reason: &'static str, text: String| vec![Notice::new(severity, reason, text)];
    let stalled = |object: &mut HelmRelease, reason: &'static str, message: &str| {
        let stamp = stamp(object, now);
        condition::mark_stalled(object.conditions_mut(), reason, message, stamp);
    };
    let quiet = |severity, reason: &'static str, text: String| {
        vec![Notice::new(severity, reason, text).without_event()]
    };
    let notices = match error {
        Error::InvalidExpression(cause) => {
            stalled(object, reason::INVALID_CEL_EXPRESSION, &message);
            told(Severity::Error, reason::INVALID_CEL_EXPRESSION, cause.clone())
        }
        Error::AccessDenied(_) => {
            stalled(object, reason::ACCESS_DENIED, &message);
            told(Severity::Error, reason::ACCESS_DENIED, message.clone())
        }
        Error::Dependency { .. } => told(Severity::Info, reason::DEPENDENCY_NOT_READY, message.clone()),
        Error::Values(_) => told(Severity::Error, "ValuesError", message.clone()),
        Error::Chart(cause) => told(Severity::Error, reason::ARTIFACT_FAILED, cause.clone()),
        Error::Exhausted(_) => {
            stalled(object, "RetriesExceeded", &message);
            quiet(Severity::Error, "RetriesExceeded", message.clone())
        }
        Error::NoTarget => {
            stalled(object, "MissingRollbackTarget", &format!("Failed to perform remediation: {message}"));
            quiet(Severity::Error, "MissingRollbackTarget", message.clone())
        }
        Error::Canceled(trigger) => told(
            Severity::Info,
            reason::HEALTH_CHECK_CANCELED,
            format!("Health checks canceled due to new reconciliation triggered by {trigger}"),
        ),
        Error::SourceNotReady { .. } | Error::ArtifactGone(_) | Error::RetryAfter(_) | Error::Again => {
            quiet(Severity::Info, "ReconcileError", message.clone())
        }
        Error::Action(_) => {
            if condition::is_true(object.conditions(), types::READY) {
                mark(object, types::READY, false, "ReconcileError", &message, now);
            }
            quiet(Severity::Error, "ReconcileError", message.clone())
        }
        Error::InvalidChartReference
        | Error::Template(_)
        | Error::Source(_)
        | Error::ChartVersion(_)
        | Error::Client(_)
        | Error::State(_)
        | Error::Publish(_) => quiet(Severity::Error, "ReconcileError", message.clone()),
    };
    let generation = object.generation();
    if error.is_terminal() {
        remove(object, types::RECONCILING);
        if !matches!(error, Error::InvalidChartReference) {
            object.set_observed_generation(generation);
        }
    } else if matches!(error, Error::RetryAfter(_)) {
        object.set_observed_generation(generation);
    }
    // The same again waits for its turn, as after a failure, but is none.
    let requeue = match error {
        Error::Again => Requeue::Backoff,
        Error::Exhausted(_) | Error::NoTarget if recover::is_on(object, gates) => {
            Requeue::Interval(object.spec.interval.to_std())
        }
        _ => Requeue::for_class(error.class()),
    };
    Conclusion { requeue, notices }
}
