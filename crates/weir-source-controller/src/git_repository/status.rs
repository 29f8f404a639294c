//! What people see of a GitRepository besides what all sources show. Pure.

use jiff::Timestamp;
use weir_api::condition::{self, Summary};
use weir_api::names::condition::{
    ARTIFACT_IN_STORAGE, ARTIFACT_OUTDATED, FETCH_FAILED, INCLUDE_UNAVAILABLE, READY, RECONCILING,
    SOURCE_VERIFIED, STALLED, STORAGE_OPERATION_FAILED,
};
use weir_api::names::reason::SUCCEEDED;
use weir_api::source::{GitRepository, GitVerificationMode};
use weir_api::{Artifact, FluxObject as _};

use super::observe::Included;
use super::{decide, verify};
use crate::source::Source;
use crate::source::status::{fetched, mark_in_storage, progress, stamp, stored};

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

impl Source for GitRepository {
    const SUMMARY: Summary<'static> = Summary {
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
    const FAILURES: &'static [&'static str] = &[FETCH_FAILED, INCLUDE_UNAVAILABLE, STORAGE_OPERATION_FAILED];

    fn artifact(&self) -> Option<&Artifact> {
        self.status.as_ref()?.artifact.as_ref()
    }

    fn artifact_mut(&mut self) -> Option<&mut Artifact> {
        self.status.as_mut()?.artifact.as_mut()
    }

    fn forget_artifact(&mut self) {
        if let Some(status) = &mut self.status {
            status.artifact = None;
        }
    }

    fn stored_message(revision: &str) -> String {
        format!("stored artifact for revision '{revision}'")
    }
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

/// Without a check there is nothing to say about it.
pub(super) fn forget_verification(object: &mut GitRepository) {
    if object.spec.verify.is_none() {
        condition::delete(object.conditions_mut(), SOURCE_VERIFIED);
        if let Some(status) = &mut object.status {
            status.source_verification_mode = None;
        }
    }
}

/// The signatures are those of known keys.
pub(super) fn verified(object: &mut GitRepository, mode: GitVerificationMode, message: &str, now: Timestamp) {
    let stamp = stamp(object, now);
    let mode = verify::current(mode);
    object.status_mut().source_verification_mode = Some(mode.to_string());
    condition::mark_true(object.conditions_mut(), SOURCE_VERIFIED, SUCCEEDED, message, stamp);
}

pub(super) fn forget_outdated(object: &mut GitRepository) {
    condition::delete(object.conditions_mut(), ARTIFACT_OUTDATED);
}

/// The reference still stands for the stored revision.
pub(super) fn unchanged(object: &mut GitRepository, revision: &str, now: Timestamp) {
    fetched(object);
    mark_in_storage(object, revision, now);
}

/// An artifact was stored; records what it was made of.
pub(super) fn published(
    object: &mut GitRepository,
    artifact: Artifact,
    includes: Vec<Included>,
    now: Timestamp,
) {
    let spec = object.spec.clone();
    let revision = artifact.revision.clone();
    let status = object.status_mut();
    status.artifact = Some(artifact);
    status.included_artifacts = includes.into_iter().map(|include| include.artifact).collect();
    status.observed_ignore = spec.ignore;
    status.observed_recurse_submodules = spec.recurse_submodules;
    status.observed_include = spec.include;
    status.observed_sparse_checkout = spec.sparse_checkout;
    condition::delete(&mut status.conditions, STORAGE_OPERATION_FAILED);
    stored(object, &revision, now);
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
