//! Whether a live object has reached what its specification asks for.
//!
//! The rules are those of kstatus as the reference uses them: deletion, generation, the
//! `Reconciling` and `Stalled` conditions, rules per kind, the `Ready` condition, else current.

mod custom;
mod kinds;
mod wait;

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

pub use custom::{CustomCheck, CustomChecks, InvalidCheck, Source};
pub use wait::{Target, Wait, WaitError, wait, wait_for_versions, wait_gone};

use crate::object::{self, ObjectRef};

/// How far an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// It is on its way.
    InProgress,
    /// It will not get there without a change.
    Failed,
    /// It is there.
    Current,
    /// It is being deleted.
    Terminating,
    /// It does not exist.
    NotFound,
    /// It could not be told.
    Unknown,
}

impl Status {
    /// The word used in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "InProgress",
            Self::Failed => "Failed",
            Self::Current => "Current",
            Self::Terminating => "Terminating",
            Self::NotFound => "NotFound",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A status and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    /// The status.
    pub status: Status,
    /// Why, for people; for [`Status::Unknown`] the error.
    pub message: String,
}

impl Assessment {
    fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

/// Assesses a live object by the rules above and, before them, the custom checks.
pub fn assess(live: &Value, checks: &CustomChecks, now: Timestamp) -> Assessment {
    let reference = ObjectRef::of(live);
    let job = reference.is_kind("batch", "Job");
    if job && !checks.before_jobs {
        return kinds::job(live);
    }
    if let Some(check) = checks.find(&reference) {
        return check.assess(live);
    }
    if job {
        return kinds::job(live);
    }
    assess_built_in(&reference, live, now)
}

fn assess_built_in(reference: &ObjectRef, live: &Value, now: Timestamp) -> Assessment {
    if !object::metadata_text(live, "deletionTimestamp").is_empty() {
        return Assessment::new(Status::Terminating, "Resource scheduled for deletion");
    }
    let generation = integer(live, &["metadata", "generation"]);
    let observed = integer(live, &["status", "observedGeneration"]);
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
    {
        return Assessment::new(
            Status::InProgress,
            format!(
                "{} generation is {generation}, but latest observed generation is {observed}",
                reference.kind
            ),
        );
    }
    for condition in conditions(live) {
        if object::text(condition, "status") != "True" {
            continue;
        }
        match object::text(condition, "type") {
            "Reconciling" => {
                return Assessment::new(Status::InProgress, object::text(condition, "message"));
            }
            "Stalled" => {
                return Assessment::new(Status::Failed, object::text(condition, "message"));
            }
            _ => {}
        }
    }
    if let Some(assessment) = kinds::assess(reference, live, now) {
        return assessment;
    }
    match condition(live, "Ready") {
        Some(ready) => {
            let status =
                if object::text(ready, "status") == "True" { Status::Current } else { Status::InProgress };
            Assessment::new(status, object::text(ready, "message"))
        }
        None => Assessment::new(Status::Current, "Resource is current"),
    }
}

/// Whether a Pod counts against the object that owns it: failed, not on its way out, and not merely
/// waiting for a node.
pub(crate) fn is_failed_pod(pod: &Value, now: Timestamp) -> bool {
    if !object::metadata_text(pod, "deletionTimestamp").is_empty() || kinds::is_unschedulable(pod) {
        return false;
    }
    assess(pod, &CustomChecks::default(), now).status == Status::Failed
}

/// The number at a path.
pub(crate) fn integer(value: &Value, path: &[&str]) -> Option<i64> {
    field(value, path)?.as_i64()
}

/// The value at a path.
pub(crate) fn field<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// `status.conditions`.
pub(crate) fn conditions(live: &Value) -> impl Iterator<Item = &Value> {
    field(live, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten()
}

/// The condition of a type.
pub(crate) fn condition<'a>(live: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(live).find(|condition| object::text(condition, "type") == kind)
}

#[cfg(test)]
mod tests;
