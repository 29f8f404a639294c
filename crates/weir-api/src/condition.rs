//! Conditions: their type and the rules by which a list of them changes.
//!
//! The rules are those of Flux, which differ from the usual Kubernetes ones in that `lastTransitionTime` follows
//! status, reason *and* message, and in the order of the list.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::condition::{READY, RECONCILING, STALLED};
use crate::schema::{is_zero, string_enum};
use crate::time::Time;

/// Longest message in bytes; longer ones are cut.
pub const MESSAGE_BYTES_MAX: usize = 32_768;

string_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// It is not known.
        Unknown = "Unknown",
    }
}

/// One observed aspect of the state of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Time status, reason or message last changed.
    pub last_transition_time: Time,
    /// Text for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Generation of the object the condition was set for.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Reason of the last transition, in CamelCase.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub type_: String,
}

impl Condition {
    /// Whether both say the same, whenever and for whichever generation they were set.
    pub fn has_same_state(&self, other: &Self) -> bool {
        self.type_ == other.type_
            && self.status == other.status
            && self.reason == other.reason
            && self.message == other.message
    }
}

/// What every condition set in a run carries: the generation of the object and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Generation of the object the run works on.
    pub generation: i64,
    /// The time of the change.
    pub now: Time,
}

/// The condition of this type, if there is one.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The status of the condition of this type; unknown if there is none.
pub fn status(conditions: &[Condition], type_: &str) -> ConditionStatus {
    get(conditions, type_).map_or(ConditionStatus::Unknown, |condition| condition.status)
}

/// Whether the condition of this type is true.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    status(conditions, type_) == ConditionStatus::True
}

/// Whether the condition of this type is there and false.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    status(conditions, type_) == ConditionStatus::False
}

/// Whether the condition of this type is unknown or absent.
pub fn is_unknown(conditions: &[Condition], type_: &str) -> bool {
    status(conditions, type_) == ConditionStatus::Unknown
}

/// Whether the object says it is ready and neither stalled nor reconciling.
pub fn is_ready(conditions: &[Condition]) -> bool {
    is_true(conditions, READY) && !is_stalled(conditions) && !is_reconciling(conditions)
}

/// Whether no retry will help until something changes.
pub fn is_stalled(conditions: &[Condition]) -> bool {
    is_true(conditions, STALLED) && !is_true(conditions, RECONCILING)
}

/// Whether work is going on.
pub fn is_reconciling(conditions: &[Condition]) -> bool {
    is_true(conditions, RECONCILING) && !is_true(conditions, STALLED)
}

/// Sets a condition and orders the list; says whether anything but the observed generation changed.
///
/// The transition time of an equal condition is kept. The message is cut to [`MESSAGE_BYTES_MAX`].
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    stamp: Stamp,
) -> bool {
    let mut condition = Condition {
        last_transition_time: stamp.now,
        message: cut(message),
        observed_generation: stamp.generation,
        reason: reason.to_owned(),
        status,
        type_: type_.to_owned(),
    };
    let changed = if let Some(old) = conditions.iter_mut().find(|condition| condition.type_ == type_) {
        let same = old.has_same_state(&condition);
        if same {
            condition.last_transition_time = old.last_transition_time;
        }
        *old = condition;
        !same
    } else {
        conditions.push(condition);
        true
    };
    sort(conditions);
    changed
}

/// Sets a condition to true. See [`set`].
pub fn mark_true(
    conditions: &mut Vec<Condition>,
    type_: &str,
    reason: &str,
    message: &str,
    stamp: Stamp,
) -> bool {
    set(conditions, type_, ConditionStatus::True, reason, message, stamp)
}

/// Sets a condition to false. See [`set`].
pub fn mark_false(
    conditions: &mut Vec<Condition>,
    type_: &str,
    reason: &str,
    message: &str,
    stamp: Stamp,
) -> bool {
    set(conditions, type_, ConditionStatus::False, reason, message, stamp)
}

/// Sets a condition to unknown. See [`set`].
pub fn mark_unknown(
    conditions: &mut Vec<Condition>,
    type_: &str,
    reason: &str,
    message: &str,
    stamp: Stamp,
) -> bool {
    set(conditions, type_, ConditionStatus::Unknown, reason, message, stamp)
}

/// Says that work is going on; an object that works is not stalled.
pub fn mark_reconciling(conditions: &mut Vec<Condition>, reason: &str, message: &str, stamp: Stamp) -> bool {
    let was_stalled = delete(conditions, STALLED);
    mark_true(conditions, RECONCILING, reason, message, stamp) || was_stalled
}

/// Says that no retry will help; an object that is stalled does not work.
pub fn mark_stalled(conditions: &mut Vec<Condition>, reason: &str, message: &str, stamp: Stamp) -> bool {
    let was_reconciling = delete(conditions, RECONCILING);
    mark_true(conditions, STALLED, reason, message, stamp) || was_reconciling
}

/// Removes the condition of this type; says whether there was one.
pub fn delete(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// Puts conditions into the order of the API: Stalled, Reconciling, Ready, then the newest generation first, then by type.
pub fn sort(conditions: &mut [Condition]) {
    conditions.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.type_.cmp(&b.type_)));
}

fn rank(condition: &Condition) -> (u8, Reverse<i64>) {
    match condition.type_.as_str() {
        STALLED => (0, Reverse(0)),
        RECONCILING => (1, Reverse(0)),
        READY => (2, Reverse(0)),
        _ => (3, Reverse(condition.observed_generation)),
    }
}

/// Cuts by bytes as Flux does, but never inside a character: the result may be up to three bytes shorter.
fn cut(message: &str) -> String {
    if message.len() <= MESSAGE_BYTES_MAX {
        return message.to_owned();
    }
    format!("{}...", &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX - 3)])
}

/// How several conditions are summarised in one.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// Type of the condition that is written.
    pub target: &'a str,
    /// Types that take part; the first ones decide about reason and message.
    pub types: &'a [&'a str],
    /// Types for which true is bad.
    pub negative: &'a [&'a str],
    /// Only conditions of the newest generation among them count.
    pub latest_generation: bool,
}

/// Sets the target condition to what the worst of the other conditions says; does nothing if none of them exists.
///
/// From worst to best: true but negative, false but positive, true, false but negative, unknown. The status is turned around
/// if the deciding condition and the target differ in polarity.
pub fn summarize(conditions: &mut Vec<Condition>, summary: &Summary<'_>, stamp: Stamp) -> bool {
    let negative = |type_: &str| summary.negative.contains(&type_);
    let mut scope: Vec<&Condition> = conditions
        .iter()
        .filter(|condition| {
            condition.type_ != summary.target && summary.types.contains(&condition.type_.as_str())
        })
        .collect();
    if summary.latest_generation {
        let newest = scope.iter().map(|condition| condition.observed_generation).max();
        scope.retain(|condition| Some(condition.observed_generation) == newest);
    }
    let priority = |condition: &Condition| match (condition.status, negative(&condition.type_)) {
        (ConditionStatus::True, true) => 0,
        (ConditionStatus::False, false) => 1,
        (ConditionStatus::True, false) => 2,
        (ConditionStatus::False, true) => 3,
        (ConditionStatus::Unknown, _) => 4_u8,
    };
    let position = |condition: &Condition| {
        summary.types.iter().position(|type_| *type_ == condition.type_).unwrap_or(usize::MAX)
    };
    let Some(decisive) = scope.into_iter().min_by_key(|condition| (priority(condition), position(condition)))
    else {
        return false;
    };
    let turned = negative(&decisive.type_) != negative(summary.target);
    let status = match (decisive.status, turned) {
        (ConditionStatus::True, true) => ConditionStatus::False,
        (ConditionStatus::False, true) => ConditionStatus::True,
        (status, _) => status,
    };
    let (reason, message) = (decisive.reason.clone(), decisive.message.clone());
    set(conditions, summary.target, status, &reason, &message, stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T01:00:00Z";

    fn stamp(generation: i64, time: &str) -> Stamp {
        Stamp { generation, now: time.parse().unwrap() }
    }

    /// `Type=Status@generation`, separated by spaces; the reason is the type.
    fn list(text: &str) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for item in text.split_whitespace() {
            let (type_, rest) = item.split_once('=').unwrap();
            let (status, generation) = rest.split_once('@').unwrap_or((rest, "1"));
            let status = *ConditionStatus::ALL.iter().find(|known| known.as_str() == status).unwrap();
            set(&mut conditions, type_, status, type_, "", stamp(generation.parse().unwrap(), EARLY));
        }
        conditions
    }

    fn types(conditions: &[Condition]) -> String {
        conditions.iter().map(|condition| condition.type_.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn transition_time_follows_status_reason_and_message_but_not_generation() {
        #[track_caller]
        fn check(status: ConditionStatus, reason: &str, message: &str, expected: &str) {
            let mut conditions = Vec::new();
            mark_true(&mut conditions, READY, "Succeeded", "done", stamp(1, EARLY));
            let changed = set(&mut conditions, READY, status, reason, message, stamp(2, LATE));
            assert_eq!(conditions[0].last_transition_time.to_string(), expected);
            assert_eq!(conditions[0].observed_generation, 2);
            assert_eq!(changed, expected == LATE);
        }
        check(ConditionStatus::True, "Succeeded", "done", EARLY);
        check(ConditionStatus::False, "Succeeded", "done", LATE);
        check(ConditionStatus::True, "Failed", "done", LATE);
        check(ConditionStatus::True, "Succeeded", "done again", LATE);
    }

    #[test]
    fn list_order() {
        let conditions =
            list("Zebra=True@3 Apple=True@2 Banana=True@3 Ready=True Reconciling=True@9 Stalled=True");
        assert_eq!(types(&conditions), "Stalled Reconciling Ready Banana Zebra Apple");
    }

    #[test]
    fn stalled_and_reconciling_exclude_each_other() {
        let mut conditions = list("Ready=False");
        assert!(mark_stalled(&mut conditions, "InvalidURL", "bad", stamp(1, EARLY)));
        assert_eq!(types(&conditions), "Stalled Ready");
        assert!(mark_reconciling(&mut conditions, "Progressing", "working", stamp(1, EARLY)));
        assert_eq!(types(&conditions), "Reconciling Ready");
        assert!(!mark_reconciling(&mut conditions, "Progressing", "working", stamp(1, LATE)));
    }

    #[test]
    fn predicates() {
        #[track_caller]
        fn check(text: &str, ready: bool, stalled: bool, reconciling: bool) {
            let conditions = list(text);
            assert_eq!(
                (is_ready(&conditions), is_stalled(&conditions), is_reconciling(&conditions)),
                (ready, stalled, reconciling)
            );
        }
        check("", false, false, false);
        check("Ready=True", true, false, false);
        check("Ready=False", false, false, false);
        check("Ready=True Reconciling=True", false, false, true);
        check("Ready=True Stalled=True", false, true, false);
        check("Ready=True Stalled=True Reconciling=True", true, false, false);
        check("Ready=True Stalled=False Reconciling=False", true, false, false);
        assert!(is_unknown(&[], READY));
        assert!(is_unknown(&list("Ready=Unknown"), READY));
        assert!(!is_false(&[], READY));
    }

    #[test]
    fn long_messages_are_cut() {
        let mut conditions = Vec::new();
        mark_true(&mut conditions, READY, "Succeeded", &"x".repeat(MESSAGE_BYTES_MAX), stamp(1, EARLY));
        assert!(!conditions[0].message.ends_with("..."));
        mark_true(&mut conditions, READY, "Succeeded", &"x".repeat(MESSAGE_BYTES_MAX + 1), stamp(1, EARLY));
        assert_eq!(conditions[0].message.len(), MESSAGE_BYTES_MAX);
        assert!(conditions[0].message.ends_with("x..."));
        mark_true(&mut conditions, READY, "Succeeded", &"ü".repeat(MESSAGE_BYTES_MAX), stamp(1, EARLY));
        assert!(conditions[0].message.len() <= MESSAGE_BYTES_MAX);
    }

    #[test]
    fn summary_follows_the_worst_condition() {
        #[track_caller]
        fn check(text: &str, latest_generation: bool, expected: Option<(&str, &str)>) {
            let mut conditions = list(text);
            let summary = Summary {
                target: READY,
                types: &["Stored", "Fetched", "FetchFailed", "StorageFailed"],
                negative: &["FetchFailed", "StorageFailed"],
                latest_generation,
            };
            summarize(&mut conditions, &summary, stamp(5, LATE));
            let ready = get(&conditions, READY).map(|ready| (ready.status.as_str(), ready.reason.as_str()));
            assert_eq!(ready, expected, "{text}");
        }
        check("", false, None);
        check("Other=True", false, None);
        check("Stored=True", false, Some(("True", "Stored")));
        check("Stored=False", false, Some(("False", "Stored")));
        check("Stored=True Fetched=True", false, Some(("True", "Stored")));
        check("Fetched=False Stored=True", false, Some(("False", "Fetched")));
        check("FetchFailed=True Stored=False", false, Some(("False", "FetchFailed")));
        check("StorageFailed=True FetchFailed=True", false, Some(("False", "FetchFailed")));
        check("FetchFailed=False", false, Some(("True", "FetchFailed")));
        check("FetchFailed=Unknown", false, Some(("Unknown", "FetchFailed")));
        check("FetchFailed=Unknown Stored=True", false, Some(("True", "Stored")));
        check("FetchFailed=True@1 Stored=True@2", true, Some(("True", "Stored")));
        check("FetchFailed=True@1 Stored=True@2", false, Some(("False", "FetchFailed")));
    }

    #[test]
    fn json_form() {
        let conditions = list("Ready=True@0");
        assert_eq!(
            serde_json::to_value(&conditions).unwrap(),
            serde_json::json!([{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": EARLY,
            }])
        );
    }
}
