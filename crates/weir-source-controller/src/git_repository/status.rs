//! What people see: conditions, artifact, events. Pure.

use jiff::Timestamp;
use weir_api::condition::{self, ConditionStatus, Stamp, Summary};
use weir_api::names::condition::{
    ARTIFACT_IN_STORAGE, ARTIFACT_OUTDATED, FETCH_FAILED, INCLUDE_UNAVAILABLE, READY, RECONCILING,
    SOURCE_VERIFIED, STALLED, STORAGE_OPERATION_FAILED,
};
use weir_api::names::reason::{PROGRESSING, PROGRESSING_WITH_RETRY, SUCCEEDED};
use weir_api::source::GitRepository;
use weir_api::{Condition, FluxObject as _};
use weir_base::error::chain;
use weir_runtime::{Class, Classify as _, Conclusion, Ended, Failed, Notice, Pass, Requeue, Severity};

use super::decide;
use super::error::Error;
use super::observe::Included;
use super::publish::Published;

/// The condition types of a GitRepository that are ours.
pub(super) const OWNED: &[&str] = &[
    READY,
    RECONCILING,
    STALLED,
    STORAGE_OPERATION_FAILED,
    FETCH_FAILED,
    INCLUDE_UNAVAILABLE,
    ARTIFACT_OUTDATED,
    ARTIFACT_IN_STORAGE,
    SOURCE_VERIFIED,
];

/// How they make up `Ready`, the most important first.
const SUMMARY: Summary<'_> = Summary {
    target: READY,
    types: &[
        STORAGE_OPERATION_FAILED,
        FETCH_FAILED,
        INCLUDE_UNAVAILABLE,
        ARTIFACT_OUTDATED,
        ARTIFACT_IN_STORAGE,
        SOURCE_VERIFIED,
        STALLED,
        RECONCILING,
    ],
    negative: &[
        STORAGE_OPERATION_FAILED,
        FETCH_FAILED,
        INCLUDE_UNAVAILABLE,
        ARTIFACT_OUTDATED,
        STALLED,
        RECONCILING,
    ],
    latest_generation: false,
};

/// Whose end is told as a recovery.
const FAILURES: [&str; 3] = [FETCH_FAILED, INCLUDE_UNAVAILABLE, STORAGE_OPERATION_FAILED];

const REVISION_KEY: &str = "source.toolkit.fluxcd.io/revision";
const DIGEST_KEY: &str = "source.toolkit.fluxcd.io/digest";

/// What the outcome is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Before {
    digest: Option<String>,
    failing: bool,
}

impl Before {
    pub(super) fn of(object: &GitRepository) -> Self {
        let artifact = object.status.as_ref().and_then(|status| status.artifact.as_ref());
        Self {
            digest: artifact.map(|artifact| artifact.digest.clone()),
            failing: is_failing(object.conditions()),
        }
    }
}

fn is_failing(conditions: &[Condition]) -> bool {
    FAILURES.iter().any(|type_| condition::is_true(conditions, type_))
}

/// A successful run.
#[derive(Debug)]
pub struct Done {
    pub(super) before: Before,
    pub(super) found: Found,
}

/// What a successful run found.
#[derive(Debug)]
pub(super) enum Found {
    /// The revision that was there before.
    Unchanged { revision: String },
    /// A commit whose artifact is stored.
    Stored { subject: String },
}

fn stamp(object: &GitRepository, now: Timestamp) -> Stamp {
    Stamp { generation: object.generation(), now: now.into() }
}

/// Says that work goes on. `Ready` becomes unknown if what is stored no longer is what should be, or
/// if nothing was known anyway.
fn progress(object: &mut GitRepository, drift: bool, message: &str, now: Timestamp) {
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    condition::mark_reconciling(conditions, PROGRESSING, message, stamp);
    if drift || condition::is_unknown(conditions, READY) {
        condition::mark_unknown(conditions, READY, PROGRESSING, message, stamp);
    }
}

/// The start of a run.
pub(super) fn begin(object: &mut GitRepository, now: Timestamp) {
    let observed = object.observed_generation().unwrap_or(-1);
    let generation = object.generation();
    if observed == generation {
        progress(object, false, "reconciliation in progress", now);
    } else {
        let message = format!("processing object: new generation {observed} -> {generation}");
        progress(object, false, &message, now);
    }
    let conditions = object.conditions_mut();
    condition::delete(conditions, STORAGE_OPERATION_FAILED);
    if condition::is_false(conditions, SOURCE_VERIFIED) {
        condition::delete(conditions, SOURCE_VERIFIED);
    }
}

/// Whether someone waits to see that work has begun: the specification changed or a run was asked
/// for.
pub(super) fn is_news(object: &GitRepository) -> bool {
    object.observed_generation() != Some(object.generation())
        || object.requested_at().is_some_and(|token| Some(token) != object.last_handled_reconcile_at())
}

/// There is no artifact.
pub(super) fn building(object: &mut GitRepository, message: &str, now: Timestamp) {
    progress(object, true, message, now);
    condition::delete(object.conditions_mut(), ARTIFACT_IN_STORAGE);
}

pub(super) fn includes_available(object: &mut GitRepository) {
    condition::delete(object.conditions_mut(), INCLUDE_UNAVAILABLE);
}

/// Says so if other artifacts are included than before; `true` if that should be seen at once.
pub(super) fn includes_differ(object: &mut GitRepository, includes: &[Included], now: Timestamp) -> bool {
    let before = object.status.as_ref().map(|status| status.included_artifacts.clone()).unwrap_or_default();
    if !decide::includes_differ(&before, includes) {
        return false;
    }
    let message = "included artifacts differ from last observed includes";
    if !before.is_empty() {
        let stamp = stamp(object, now);
        condition::mark_true(object.conditions_mut(), ARTIFACT_OUTDATED, "IncludeChange", message, stamp);
    }
    progress(object, true, &format!("building artifact: {message}"), now);
    true
}

pub(super) fn forget_outdated(object: &mut GitRepository) {
    condition::delete(object.conditions_mut(), ARTIFACT_OUTDATED);
}

pub(super) fn fetched(object: &mut GitRepository) {
    condition::delete(object.conditions_mut(), FETCH_FAILED);
}

/// The reference still stands for the stored revision.
pub(super) fn unchanged(object: &mut GitRepository, revision: &str, now: Timestamp) {
    fetched(object);
    mark_in_storage(object, revision, now);
}

/// Says so if another revision than the stored one was found; `true` if that should be seen at once.
pub(super) fn new_revision(object: &mut GitRepository, revision: &str, now: Timestamp) -> bool {
    let artifact = object.status.as_ref().and_then(|status| status.artifact.as_ref());
    if artifact.is_some_and(|artifact| artifact.revision == revision) {
        return false;
    }
    let message = format!("new upstream revision '{revision}'");
    if artifact.is_some() {
        let stamp = stamp(object, now);
        condition::mark_true(object.conditions_mut(), ARTIFACT_OUTDATED, "NewRevision", &message, stamp);
    }
    progress(object, true, &format!("building artifact: {message}"), now);
    true
}

/// The artifact of this revision was stored before.
pub(super) fn stored(object: &mut GitRepository, revision: &str, now: Timestamp) {
    forget_outdated(object);
    mark_in_storage(object, revision, now);
}

/// An artifact was stored; records what it was made of.
pub(super) fn published(object: &mut GitRepository, published: Published, now: Timestamp) {
    let spec = object.spec.clone();
    let revision = published.artifact.revision.clone();
    let status = object.status_mut();
    status.artifact = Some(published.artifact);
    status.included_artifacts = published.includes.into_iter().map(|include| include.artifact).collect();
    status.observed_ignore = spec.ignore;
    status.observed_recurse_submodules = spec.recurse_submodules;
    status.observed_include = spec.include;
    status.observed_sparse_checkout = spec.sparse_checkout;
    condition::delete(&mut status.conditions, STORAGE_OPERATION_FAILED);
    stored(object, &revision, now);
}

fn mark_in_storage(object: &mut GitRepository, revision: &str, now: Timestamp) {
    let message = format!("stored artifact for revision '{revision}'");
    let stamp = stamp(object, now);
    condition::mark_true(object.conditions_mut(), ARTIFACT_IN_STORAGE, SUCCEEDED, &message, stamp);
}

/// The end of a run.
pub(super) fn conclude(object: &mut GitRepository, pass: &Pass<'_, Done, Error>, ended: Ended) -> Conclusion {
    let now = ended.now;
    match pass {
        Pass::Suspended => {
            condition::delete(object.conditions_mut(), STALLED);
            observe_generation(object);
            summarize(object, now);
            Conclusion::default()
        }
        Pass::Finalized(Ok(())) => Conclusion::default(),
        Pass::Finalized(Err(failed)) | Pass::Reconciled(Err(failed)) => failure(object, failed, now),
        Pass::Reconciled(Ok(done)) => success(object, done, now),
    }
}

fn success(object: &mut GitRepository, done: &Done, now: Timestamp) -> Conclusion {
    let conditions = object.conditions_mut();
    condition::delete(conditions, RECONCILING);
    condition::delete(conditions, STALLED);
    observe_generation(object);
    summarize(object, now);
    let mut notices: Vec<Notice> = success_notice(object, done).into_iter().collect();
    if let Found::Unchanged { revision } = &done.found {
        let message = format!("no changes since last reconciliation: observed revision '{revision}'");
        notices.insert(0, Notice::new(Severity::Info, "GitOperationSucceeded", message).without_event());
    }
    let requeue = match condition::get(object.conditions(), READY) {
        Some(ready) if ready.status != ConditionStatus::True => {
            notices.push(
                Notice::new(Severity::Error, ready.reason.clone(), ready.message.clone()).without_event(),
            );
            Requeue::Backoff
        }
        _ => Requeue::Interval(object.spec.interval.to_std()),
    };
    Conclusion { requeue, notices }
}

/// A new artifact or the end of a failure is news; anything else is not.
fn success_notice(object: &GitRepository, done: &Done) -> Option<Notice> {
    let artifact = object.status.as_ref()?.artifact.as_ref()?;
    let reason = if done.before.digest.as_ref() != Some(&artifact.digest) {
        "NewArtifact"
    } else if done.before.failing && !is_failing(object.conditions()) {
        SUCCEEDED
    } else {
        return None;
    };
    let commit = match &done.found {
        Found::Unchanged { revision } => revision,
        Found::Stored { subject } => subject,
    };
    Some(
        Notice::new(Severity::Info, reason, format!("stored artifact for commit '{commit}'"))
            .with(REVISION_KEY, artifact.revision.as_str())
            .with(DIGEST_KEY, artifact.digest.as_str()),
    )
}

fn failure(object: &mut GitRepository, failed: &Failed<Error>, now: Timestamp) -> Conclusion {
    let (class, reason, message) = (failed.class(), failed.reason().into_owned(), chain(failed));
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    if let Failed::Error(error) = failed
        && let Some(type_) = error.condition()
    {
        condition::mark_true(conditions, type_, &reason, &message, stamp);
    }
    let mut notice = Notice::new(Severity::Error, reason.clone(), message.clone());
    match class {
        Class::Terminal => {
            condition::mark_stalled(conditions, &reason, &message, stamp);
            observe_generation(object);
        }
        Class::Waiting(_) => {
            condition::delete(conditions, STALLED);
            notice = Notice::new(Severity::Trace, reason, message);
        }
        Class::Backoff | Class::RetryAfter(_) | Class::Superseded => {
            condition::delete(conditions, STALLED);
            if matches!(failed, Failed::Error(Error::DamagedArtifact(_))) {
                notice = notice.without_event();
            }
        }
    }
    summarize(object, now);
    Conclusion { requeue: Requeue::for_class(class), notices: vec![notice] }
}

/// The generation counts as handled once there is anything to say about it.
fn observe_generation(object: &mut GitRepository) {
    if !object.conditions().is_empty() {
        object.set_observed_generation(object.generation());
    }
}

/// Derives `Ready`. Whoever still reconciles at the end of a run will try again.
fn summarize(object: &mut GitRepository, now: Timestamp) {
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    if let Some(message) =
        condition::get(conditions, RECONCILING).map(|reconciling| reconciling.message.clone())
    {
        condition::mark_true(conditions, RECONCILING, PROGRESSING_WITH_RETRY, &message, stamp);
    }
    condition::summarize(conditions, &SUMMARY, stamp);
    if let Some(unverified) = condition::get(conditions, SOURCE_VERIFIED)
        .filter(|verified| verified.status == ConditionStatus::False)
    {
        let (reason, message) = (unverified.reason.clone(), unverified.message.clone());
        condition::mark_false(conditions, READY, &reason, &message, stamp);
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
