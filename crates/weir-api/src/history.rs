//! The history of outcomes in a status.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;
use crate::time::Time;

/// Number of snapshots a status keeps.
pub const SNAPSHOTS_MAX: usize = 5;

/// An outcome and how often it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Digest of what was reconciled.
    pub digest: String,
    /// Time of the first run with this outcome.
    pub first_reconciled: Time,
    /// Time of the latest run with this outcome.
    pub last_reconciled: Time,
    /// How long the latest run took.
    #[schemars(with = "String")]
    pub last_reconciled_duration: GoDuration,
    /// Reason of the outcome.
    pub last_reconciled_status: String,
    /// Additional information as key and value pairs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Number of runs with this outcome.
    pub total_reconciliations: i64,
}

/// What one run has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Digest of what was reconciled.
    pub digest: String,
    /// Reason of the outcome.
    pub status: String,
    /// End of the run.
    pub time: Time,
    /// How long it took.
    pub duration: GoDuration,
    /// Additional information as key and value pairs.
    pub metadata: BTreeMap<String, String>,
}

/// Records an outcome: an equal digest and status is counted and moved to the front, anything else is put in front.
///
/// At most [`SNAPSHOTS_MAX`] snapshots remain.
pub fn record(history: &mut Vec<Snapshot>, outcome: Outcome) {
    let same = history.iter().position(|snapshot| {
        snapshot.digest == outcome.digest && snapshot.last_reconciled_status == outcome.status
    });
    let (first_reconciled, count) = match same {
        Some(index) => {
            let old = history.remove(index);
            (old.first_reconciled, old.total_reconciliations)
        }
        None => (outcome.time, 0),
    };
    history.insert(
        0,
        Snapshot {
            digest: outcome.digest,
            first_reconciled,
            last_reconciled: outcome.time,
            last_reconciled_duration: outcome.duration,
            last_reconciled_status: outcome.status,
            metadata: outcome.metadata,
            total_reconciliations: count.saturating_add(1),
        },
    );
    history.truncate(SNAPSHOTS_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `digest:status` in, `digest:status x count` out, newest first.
    #[track_caller]
    fn check(outcomes: &str, expected: &str) {
        let mut history = Vec::new();
        for (second, item) in outcomes.split_whitespace().enumerate() {
            let (digest, status) = item.split_once(':').unwrap();
            record(
                &mut history,
                Outcome {
                    digest: digest.to_owned(),
                    status: status.to_owned(),
                    time: jiff::Timestamp::from_second(second as i64).unwrap().into(),
                    duration: GoDuration::from_millis(20),
                    metadata: BTreeMap::from([("run".to_owned(), second.to_string())]),
                },
            );
        }
        let seen: Vec<String> = history
            .iter()
            .map(|s| format!("{}:{}x{}", s.digest, s.last_reconciled_status, s.total_reconciliations))
            .collect();
        assert_eq!(seen.join(" "), expected);
    }

    #[test]
    fn counts_equal_outcomes_and_keeps_five() {
        check("a:ok", "a:okx1");
        check("a:ok a:ok", "a:okx2");
        check("a:ok a:failed a:ok", "a:okx2 a:failedx1");
        check("a:ok b:ok a:ok a:ok", "a:okx3 b:okx1");
        check("a:ok b:ok c:ok d:ok e:ok f:ok", "f:okx1 e:okx1 d:okx1 c:okx1 b:okx1");
    }

    #[test]
    fn keeps_the_first_time_and_replaces_metadata() {
        let mut history = Vec::new();
        for second in [10, 20] {
            record(
                &mut history,
                Outcome {
                    digest: "a".to_owned(),
                    status: "ok".to_owned(),
                    time: jiff::Timestamp::from_second(second).unwrap().into(),
                    duration: GoDuration::from_secs(second),
                    metadata: BTreeMap::from([(second.to_string(), String::new())]),
                },
            );
        }
        assert_eq!(
            serde_json::to_value(&history).unwrap(),
            serde_json::json!([{
                "digest": "a", "firstReconciled": "1970-01-01T00:00:10Z", "lastReconciled": "1970-01-01T00:00:20Z",
                "lastReconciledDuration": "20s", "lastReconciledStatus": "ok", "metadata": {"20": ""},
                "totalReconciliations": 2,
            }])
        );
    }
}
