//! What all commit statuses share.

use crate::event::{PROGRESSING, Severity};
use crate::text::{commit_hash, cut_characters, describe};

use super::{Job, ProviderError};

/// The words of a service for the outcomes.
pub(super) struct States {
    pub(super) service: &'static str,
    pub(super) success: &'static str,
    pub(super) failure: &'static str,
    /// The word for work that goes on; without one, such events set no status.
    pub(super) progressing: Option<&'static str>,
    pub(super) description_characters_max: usize,
}

/// A status to set on a commit.
pub(super) struct Status<'a> {
    pub(super) id: &'a str,
    pub(super) commit: String,
    pub(super) state: &'static str,
    pub(super) description: String,
}

/// The id of the status, which every commit status must have.
pub(super) fn id(job: &Job) -> Result<&str, ProviderError> {
    match job.commit_status.as_str() {
        "" => Err(ProviderError::setting("commit status cannot be empty")),
        id => Ok(id),
    }
}

/// The status the event sets, if any.
pub(super) fn of<'a>(job: &'a Job, states: &States) -> Result<Option<Status<'a>>, ProviderError> {
    let id = id(job)?;
    let is_progress = job.event.reason == PROGRESSING;
    if is_progress && states.progressing.is_none() {
        return Ok(None);
    }
    let commit = commit_hash(&job.event)?;
    let state = match (&job.event.severity, states.progressing) {
        (_, Some(state)) if is_progress => state,
        (Severity::Info, _) => states.success,
        (Severity::Error, _) => states.failure,
        (Severity::Trace | Severity::Other(_), _) => return Err(ProviderError::State(states.service)),
    };
    let description = cut_characters(&describe(&job.event.reason), states.description_characters_max);
    Ok(Some(Status { id, commit, state, description }))
}
