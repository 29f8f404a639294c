//! What people see of any source: conditions, events, when the next run is. Pure.

use std::time::Duration;

use jiff::Timestamp;
use weir_api::condition::{self, ConditionStatus, Stamp, Summary};
use weir_api::names::condition::{
    ARTIFACT_IN_STORAGE, ARTIFACT_OUTDATED, FETCH_FAILED, READY, RECONCILING, SOURCE_VERIFIED, STALLED,
    STORAGE_OPERATION_FAILED,
};
use weir_api::names::reason::{NEW_ARTIFACT, PROGRESSING, PROGRESSING_WITH_RETRY, SUCCEEDED};
use weir_base::error::chain;
use weir_runtime::{Class, Classify as _, Conclusion, Ended, Failed, Notice, Pass, Requeue, Severity};

use super::{Source, SourceError};

const REVISION_KEY: &str = "source.toolkit.fluxcd.io/revision";
/// The interval of objects that need not have one.
const INTERVAL_DEFAULT: Duration = Duration::from_mins(1);
const DIGEST_KEY: &str = "source.toolkit.fluxcd.io/digest";

/// The condition types of sources of which nothing is verified.
pub(crate) const UNVERIFIED_TYPES: &[&str] = &[
    READY,
    RECONCILING,
    STALLED,
    STORAGE_OPERATION_FAILED,
    FETCH_FAILED,
    ARTIFACT_OUTDATED,
    ARTIFACT_IN_STORAGE,
];

/// What `Ready` of sources of which nothing is verified follows from.
pub(crate) const UNVERIFIED: Summary<'static> = Summary {
    target: READY,
    types: &[
        STORAGE_OPERATION_FAILED,
        FETCH_FAILED,
        ARTIFACT_OUTDATED,
        ARTIFACT_IN_STORAGE,
        STALLED,
        RECONCILING,
    ],
    negative: &[STORAGE_OPERATION_FAILED, FETCH_FAILED, ARTIFACT_OUTDATED, STALLED, RECONCILING],
    latest_generation: false,
};

/// What the outcome is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Before {
    digest: Option<String>,
    failing: bool,
}

impl Before {
    pub(crate) fn of<K: Source>(object: &K) -> Self {
        Self {
            digest: object.artifact().map(|artifact| artifact.digest.clone()),
            failing: is_failing(object),
        }
    }
}

fn is_failing<K: Source>(object: &K) -> bool {
    K::FAILURES.iter().any(|type_| condition::is_true(object.conditions(), type_))
}

/// A successful run.
#[derive(Debug)]
pub struct Done {
    pub(crate) before: Before,
    /// What is told if there is a new artifact or a failure has ended.
    pub(crate) message: String,
    /// What is logged if nothing has changed.
    pub(crate) unchanged: Option<String>,
    /// The reason of the event, where it is not that of most kinds.
    pub(crate) reason: Option<&'static str>,
}

pub(crate) fn stamp<K: Source>(object: &K, now: Timestamp) -> Stamp {
    Stamp { generation: object.generation(), now: now.into() }
}

/// Says that work goes on. `Ready` becomes unknown if what is stored no longer is what should be, or
/// if nothing was known anyway.
pub(crate) fn progress<K: Source>(object: &mut K, drift: bool, message: &str, now: Timestamp) {
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    condition::mark_reconciling(conditions, PROGRESSING, message, stamp);
    if drift || condition::is_unknown(conditions, READY) {
        condition::mark_unknown(conditions, READY, PROGRESSING, message, stamp);
    }
}

/// The start of a run.
pub(crate) fn begin<K: Source>(object: &mut K, now: Timestamp) {
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
pub(crate) fn is_news<K: Source>(object: &K) -> bool {
    object.observed_generation() != Some(object.generation())
        || object.requested_at().is_some_and(|token| Some(token) != object.last_handled_reconcile_at())
}

/// There is no artifact.
pub(crate) fn building<K: Source>(object: &mut K, message: &str, now: Timestamp) {
    progress(object, true, message, now);
    condition::delete(object.conditions_mut(), ARTIFACT_IN_STORAGE);
}

pub(crate) fn fetched<K: Source>(object: &mut K) {
    condition::delete(object.conditions_mut(), FETCH_FAILED);
}

/// Says so if another revision than the stored one was found; `true` if that should be seen at once.
pub(crate) fn new_revision<K: Source>(object: &mut K, revision: &str, message: &str, now: Timestamp) -> bool {
    if object.artifact().is_some_and(|artifact| artifact.revision == revision) {
        return false;
    }
    if object.artifact().is_some() {
        let stamp = stamp(object, now);
        condition::mark_true(object.conditions_mut(), ARTIFACT_OUTDATED, "NewRevision", message, stamp);
    }
    progress(object, true, &format!("building artifact: {message}"), now);
    true
}

/// The artifact of this revision is stored, and it is what should be.
pub(crate) fn stored<K: Source>(object: &mut K, revision: &str, now: Timestamp) {
    condition::delete(object.conditions_mut(), ARTIFACT_OUTDATED);
    mark_in_storage(object, revision, now);
}

pub(crate) fn mark_in_storage<K: Source>(object: &mut K, revision: &str, now: Timestamp) {
    let (message, stamp) = (K::stored_message(revision), stamp(object, now));
    condition::mark_true(object.conditions_mut(), ARTIFACT_IN_STORAGE, SUCCEEDED, &message, stamp);
}

/// The end of a run.
pub(crate) fn conclude<K: Source, E: SourceError>(
    object: &mut K,
    pass: &Pass<'_, Done, E>,
    ended: Ended,
) -> Conclusion {
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

fn success<K: Source>(object: &mut K, done: &Done, now: Timestamp) -> Conclusion {
    let conditions = object.conditions_mut();
    condition::delete(conditions, RECONCILING);
    condition::delete(conditions, STALLED);
    observe_generation(object);
    summarize(object, now);
    let mut notices = Vec::new();
    if let Some(message) = &done.unchanged {
        notices.push(Notice::new(Severity::Info, "GitOperationSucceeded", message.as_str()).without_event());
    }
    notices.extend(success_notice(object, done));
    let requeue = match condition::get(object.conditions(), READY) {
        Some(ready) if ready.status != ConditionStatus::True => {
            notices.push(
                Notice::new(Severity::Error, ready.reason.clone(), ready.message.clone()).without_event(),
            );
            Requeue::Backoff
        }
        _ => Requeue::Interval(object.interval().map_or(INTERVAL_DEFAULT, weir_api::GoDuration::to_std)),
    };
    Conclusion { requeue, notices }
}

/// A new artifact or the end of a failure is news; anything else is not.
fn success_notice<K: Source>(object: &K, done: &Done) -> Option<Notice> {
    let artifact = object.artifact()?;
    let reason = if done.before.digest.as_ref() != Some(&artifact.digest) {
        done.reason.unwrap_or(NEW_ARTIFACT)
    } else if done.before.failing && !is_failing(object) {
        done.reason.unwrap_or(SUCCEEDED)
    } else {
        return None;
    };
    Some(
        Notice::new(Severity::Info, reason, done.message.as_str())
            .with(REVISION_KEY, artifact.revision.as_str())
            .with(DIGEST_KEY, artifact.digest.as_str()),
    )
}

fn failure<K: Source, E: SourceError>(object: &mut K, failed: &Failed<E>, now: Timestamp) -> Conclusion {
    let (class, reason, message) = (failed.class(), failed.reason().into_owned(), chain(failed));
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    let mut is_event = true;
    if let Failed::Error(error) = failed {
        is_event = error.is_event();
        for type_ in error.ends() {
            condition::delete(conditions, type_);
        }
        if let Some(type_) = error.condition() {
            let (reason, message) = error.shown(&reason, &message);
            condition::mark_true(conditions, type_, &reason, &message, stamp);
        }
        if let Some(type_) = error.negates() {
            let reason = error.shown_false().unwrap_or(&reason);
            condition::mark_false(conditions, type_, reason, &message, stamp);
        }
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
        }
    }
    if !is_event {
        notice = notice.without_event();
    }
    summarize(object, now);
    Conclusion { requeue: Requeue::for_class(class), notices: vec![notice] }
}

/// The generation counts as handled once there is anything to say about it.
fn observe_generation<K: Source>(object: &mut K) {
    if !object.conditions().is_empty() {
        object.set_observed_generation(object.generation());
    }
}

/// Derives `Ready`. Whoever still reconciles at the end of a run will try again.
fn summarize<K: Source>(object: &mut K, now: Timestamp) {
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    if let Some(message) =
        condition::get(conditions, RECONCILING).map(|reconciling| reconciling.message.clone())
    {
        condition::mark_true(conditions, RECONCILING, PROGRESSING_WITH_RETRY, &message, stamp);
    }
    condition::summarize(conditions, &K::SUMMARY, stamp);
    if let Some(unverified) = condition::get(conditions, SOURCE_VERIFIED)
        .filter(|verified| verified.status == ConditionStatus::False)
    {
        let (reason, message) = (unverified.reason.clone(), unverified.message.clone());
        condition::mark_false(conditions, READY, &reason, &message, stamp);
    }
}
