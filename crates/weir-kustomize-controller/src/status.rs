//! The outcome of a run as conditions, history, events and the time of the next run. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use weir_api::common::{InventoryEntry, ResourceInventory};
use weir_api::history::{self, Outcome};
use weir_api::kustomize::Kustomization;
use weir_api::names::{condition as types, reason};
use weir_api::{FluxObject, GoDuration, condition};
use weir_apply::inventory::Inventory;
use weir_runtime::{Classify, Conclusion, Ended, Failed, Notice, Pass, Requeue, Severity};

use crate::decide::{self, GROUP, go};
use crate::error::{Cause, Error, Facts};

/// What a successful run found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What was applied.
    pub facts: Facts,
    /// Whether everything already was as it should be, and nobody had asked.
    pub nothing_new: bool,
}

/// When a condition is set, and for which generation.
pub fn stamp(object: &Kustomization, now: Timestamp) -> condition::Stamp {
    condition::Stamp { generation: object.generation(), now: now.into() }
}

/// Shows that work goes on, and where it is.
pub fn mark_progress(object: &mut Kustomization, message: &str, now: Timestamp) {
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    condition::mark_unknown(
        conditions,
        types::READY,
        reason::PROGRESSING,
        "Reconciliation in progress",
        stamp,
    );
    condition::mark_reconciling(conditions, reason::PROGRESSING, message, stamp);
}

/// Puts the inventory into the status.
pub fn set_inventory(object: &mut Kustomization, inventory: &Inventory) {
    let entries = inventory
        .entries()
        .into_iter()
        .map(|entry| InventoryEntry { id: entry.id, v: entry.version })
        .collect();
    object.status_mut().inventory = Some(ResourceInventory { entries });
}

/// An event about a run.
pub fn notice(severity: Severity, reason: &'static str, message: impl Into<String>, facts: &Facts) -> Notice {
    let mut notice = Notice::new(severity, reason, message);
    if !facts.revision.is_empty() {
        notice = notice.with(format!("{GROUP}/revision"), facts.revision.clone());
    }
    if !facts.origin_revision.is_empty() {
        notice = notice.with(format!("{GROUP}/originRevision"), facts.origin_revision.clone());
    }
    notice
}

/// Writes the outcome into the status and says what follows.
pub fn conclude(
    object: &mut Kustomization,
    pass: &Pass<'_, Done, Error>,
    ended: Ended,
    requeue_dependency: Duration,
) -> Conclusion {
    let conclusion = match *pass {
        Pass::Suspended => Conclusion::default(),
        Pass::Reconciled(Ok(done)) => succeeded(object, done, ended),
        Pass::Reconciled(Err(Failed::Error(error))) => failed(object, error, ended, requeue_dependency),
        Pass::Reconciled(Err(failure)) => broken(object, failure, ended),
        Pass::Finalized(Ok(())) => {
            let mut conclusion = Conclusion::default();
            if condition::is_ready(object.conditions()) && !object.spec.suspend {
                conclusion.notices.push(finished(object, &Facts::default(), ended).without_event());
            }
            conclusion
        }
        Pass::Finalized(Err(failure)) => finalize_failed(object, failure),
    };
    settle(object, ended.now);
    conclusion
}

/// What holds at the end of every run.
fn settle(object: &mut Kustomization, now: Timestamp) {
    let stamp = stamp(object, now);
    let generation = object.generation();
    if condition::is_true(object.conditions(), types::READY) {
        condition::delete(object.conditions_mut(), types::RECONCILING);
        object.set_observed_generation(generation);
    } else if condition::is_false(object.conditions(), types::READY) {
        let message =
            condition::get(object.conditions(), types::RECONCILING).map(|found| found.message.clone());
        if let Some(message) = message {
            let conditions = object.conditions_mut();
            condition::mark_true(
                conditions,
                types::RECONCILING,
                reason::PROGRESSING_WITH_RETRY,
                &message,
                stamp,
            );
        }
    }
}

fn succeeded(object: &mut Kustomization, done: &Done, ended: Ended) -> Conclusion {
    let stamp = stamp(object, ended.now);
    let facts = &done.facts;
    let status = object.status_mut();
    status.last_applied_revision = Some(facts.revision.clone());
    status.last_applied_origin_revision =
        (!facts.origin_revision.is_empty()).then(|| facts.origin_revision.clone());
    let message = format!("Applied revision: {}", facts.revision);
    let conditions = object.conditions_mut();
    condition::delete(conditions, types::STALLED);
    condition::mark_true(conditions, types::READY, reason::RECONCILIATION_SUCCEEDED, &message, stamp);
    let mut notice = finished(object, facts, ended);
    if done.nothing_new {
        // A run that found nothing to do writes nothing, but commit statuses are kept up.
        notice = notice.for_receivers_only();
    } else {
        record(object, facts, reason::RECONCILIATION_SUCCEEDED, ended);
    }
    Conclusion { requeue: Requeue::Interval(object.spec.interval.to_std()), notices: vec![notice] }
}

fn finished(object: &Kustomization, facts: &Facts, ended: Ended) -> Notice {
    let message =
        format!("Reconciliation finished in {}, next run in {}", go(ended.elapsed), object.spec.interval);
    notice(Severity::Info, reason::RECONCILIATION_SUCCEEDED, message, facts)
        .with(format!("{GROUP}/commit_status"), "update")
}

fn failed(
    object: &mut Kustomization,
    error: &Error,
    ended: Ended,
    requeue_dependency: Duration,
) -> Conclusion {
    let cause = &error.cause;
    let stamp = stamp(object, ended.now);
    let reason = cause.ready_reason();
    let message = cause.to_string();
    let generation = object.generation();
    if cause.is_terminal() {
        condition::mark_stalled(object.conditions_mut(), reason, &message, stamp);
        if matches!(cause, Cause::InvalidExpression(_)) {
            object.set_observed_generation(generation);
        }
    }
    condition::mark_false(object.conditions_mut(), types::READY, reason, &message, stamp);
    if cause.is_recorded() {
        record(object, &error.facts, reason, ended);
    }
    let told = |severity, message: String| notice(severity, reason, message, &error.facts);
    let notice = match cause {
        Cause::SourceNotFound { reference, .. } => {
            told(Severity::Info, format!("Source '{reference}' not found")).without_event()
        }
        Cause::NoArtifact(_)
        | Cause::ArtifactGone(_)
        | Cause::SourceUnreadable { .. }
        | Cause::Publish(_) => told(Severity::Info, message).without_event(),
        Cause::Dependency(_) => {
            let retry = go(requeue_dependency);
            told(Severity::Info, format!("Dependencies do not meet ready condition, retrying in {retry}"))
                .logged_as(message)
        }
        Cause::HealthCheckCanceled(trigger) => told(
            Severity::Info,
            format!("Health checks canceled due to new reconciliation triggered by {trigger}"),
        ),
        Cause::InvalidExpression(_) | Cause::GateDisabled | Cause::AccessDenied { .. } => {
            told(Severity::Error, message)
        }
        Cause::Fetch(_)
        | Cause::NoPath { .. }
        | Cause::Build(_)
        | Cause::Client(_)
        | Cause::Normalise(_)
        | Cause::EncryptedSecret(_)
        | Cause::IgnoreRule(_)
        | Cause::Apply { .. }
        | Cause::Prune(_)
        | Cause::Unhealthy { .. }
        | Cause::Finalize(_) => {
            let retry = go(decide::retry_interval(&object.spec));
            told(Severity::Error, message)
                .logged_as(format!("Reconciliation failed after {}, next try in {retry}", go(ended.elapsed)))
        }
    };
    Conclusion { requeue: Requeue::for_class(error.class()), notices: vec![notice] }
}

/// The run ended by a fault of the controller.
fn broken(object: &mut Kustomization, failure: &Failed<Error>, ended: Ended) -> Conclusion {
    let stamp = stamp(object, ended.now);
    let message = failure.to_string();
    condition::mark_false(
        object.conditions_mut(),
        types::READY,
        reason::RECONCILIATION_FAILED,
        &message,
        stamp,
    );
    let notice = Notice::new(Severity::Error, reason::RECONCILIATION_FAILED, message);
    Conclusion { requeue: Requeue::for_class(failure.class()), notices: vec![notice] }
}

fn finalize_failed(object: &Kustomization, failure: &Failed<Error>) -> Conclusion {
    let message = match failure {
        Failed::Error(Error { cause: Cause::Finalize(error), .. }) => {
            Notice::new(Severity::Error, last_reason(object), "pruning for deleted resource failed")
                .logged_as(format!("pruning for deleted resource failed: {error}"))
        }
        other => Notice::new(Severity::Error, last_reason(object), other.to_string()),
    };
    Conclusion { requeue: Requeue::Backoff, notices: vec![message] }
}

/// The reason of the `Ready` condition as it is, for events that do not change it.
pub fn last_reason(object: &Kustomization) -> String {
    condition::get(object.conditions(), types::READY)
        .map_or_else(|| "info".to_owned(), |ready| ready.reason.clone())
}

fn record(object: &mut Kustomization, facts: &Facts, outcome: &str, ended: Ended) {
    let Some(digest) = facts.digest.clone() else { return };
    let mut metadata = BTreeMap::from([("revision".to_owned(), facts.revision.clone())]);
    if !facts.origin_revision.is_empty() {
        metadata.insert("originRevision".to_owned(), facts.origin_revision.clone());
    }
    let duration = i64::try_from(ended.elapsed.as_nanos()).unwrap_or(i64::MAX);
    history::record(
        &mut object.status_mut().history,
        Outcome {
            digest,
            status: outcome.to_owned(),
            time: ended.now.into(),
            duration: GoDuration::from_nanos(duration),
            metadata,
        },
    );
}

#[cfg(test)]
mod tests;
