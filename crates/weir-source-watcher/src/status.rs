//! What people see of an ArtifactGenerator: conditions, events, when the next run is. Pure.

use std::time::Duration;

use jiff::Timestamp;
use weir_api::FluxObject as _;
use weir_api::condition::{self, Stamp};
use weir_api::extensions::{ArtifactGenerator, ExternalArtifactReference};
use weir_api::names::condition::RECONCILING;
use weir_api::names::condition::{READY, STALLED};
use weir_api::names::reason::{PROGRESSING, PROGRESSING_WITH_RETRY, SUCCEEDED};
use weir_base::error::chain;
use weir_runtime::{Class, Classify as _, Conclusion, Ended, Failed, Notice, Pass, Requeue, Severity};

use crate::error::Error;

/// Sources are looked at again after this time, even if nothing was heard of them.
const INTERVAL: Duration = Duration::from_hours(1);
const DISABLED: &str = "ReconciliationDisabled";

/// A successful run.
#[derive(Debug)]
pub enum Done {
    /// Nothing had changed.
    Unchanged {
        /// How many artifacts there are.
        artifacts: usize,
    },
    /// Everything was built.
    Built {
        /// What was made.
        inventory: Vec<ExternalArtifactReference>,
        /// What the sources were.
        sources_digest: String,
        /// What is told about new artifacts.
        news: Option<String>,
    },
}

fn stamp(object: &ArtifactGenerator, now: Timestamp) -> Stamp {
    Stamp { generation: object.generation(), now: now.into() }
}

/// Says that work goes on.
pub(crate) fn begin(object: &mut ArtifactGenerator, now: Timestamp) {
    let (stamp, message) = (stamp(object, now), "Reconciliation in progress");
    let conditions = object.conditions_mut();
    condition::mark_unknown(conditions, READY, PROGRESSING, message, stamp);
    condition::mark_reconciling(conditions, PROGRESSING, message, stamp);
}

/// The end of a run.
pub(crate) fn conclude(
    object: &mut ArtifactGenerator,
    pass: &Pass<'_, Done, Error>,
    ended: Ended,
) -> Conclusion {
    let now = ended.now;
    match pass {
        Pass::Suspended => suspended(object, now),
        Pass::Finalized(Ok(())) => Conclusion::default(),
        Pass::Finalized(Err(failed)) | Pass::Reconciled(Err(failed)) => failure(object, failed, now),
        Pass::Reconciled(Ok(done)) => success(object, done, now),
    }
}

fn suspended(object: &mut ArtifactGenerator, now: Timestamp) -> Conclusion {
    let stamp = stamp(object, now);
    if object.conditions().is_empty() {
        let message = "Initialized with reconciliation suspended";
        condition::mark_true(object.conditions_mut(), READY, DISABLED, message, stamp);
    }
    Conclusion {
        requeue: Requeue::Never,
        notices: vec![Notice::new(Severity::Trace, DISABLED, "Reconciliation is disabled")],
    }
}

fn success(object: &mut ArtifactGenerator, done: &Done, now: Timestamp) -> Conclusion {
    let stamp = stamp(object, now);
    let mut notices = Vec::new();
    let requeue = match done {
        Done::Unchanged { artifacts } => {
            let message = format!("No drift detected, {artifacts} artifact(s) up to date");
            notices.push(Notice::new(Severity::Trace, READY, message).without_event());
            Requeue::After(INTERVAL)
        }
        Done::Built { inventory, sources_digest, news } => {
            let message = format!("reconciliation succeeded, generated {} artifact(s)", inventory.len());
            let status = object.status_mut();
            status.inventory.clone_from(inventory);
            status.observed_sources_digest = Some(sources_digest.clone());
            condition::mark_true(&mut status.conditions, READY, SUCCEEDED, &message, stamp);
            notices.push(Notice::new(Severity::Trace, READY, message));
            notices.extend(news.as_deref().map(|news| Notice::new(Severity::Info, READY, news)));
            Requeue::Interval(INTERVAL)
        }
    };
    let conditions = object.conditions_mut();
    condition::delete(conditions, RECONCILING);
    condition::delete(conditions, STALLED);
    Conclusion { requeue, notices }
}

fn failure(object: &mut ArtifactGenerator, failed: &Failed<Error>, now: Timestamp) -> Conclusion {
    let (class, reason, message) = (failed.class(), failed.reason().into_owned(), chain(failed));
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    condition::mark_false(conditions, READY, &reason, &message, stamp);
    match class {
        Class::Terminal => {
            condition::mark_stalled(conditions, &reason, &message, stamp);
            condition::delete(conditions, RECONCILING);
        }
        Class::Backoff | Class::RetryAfter(_) | Class::Waiting(_) | Class::Superseded => {
            condition::delete(conditions, STALLED);
            condition::mark_true(conditions, RECONCILING, PROGRESSING_WITH_RETRY, &message, stamp);
        }
    }
    Conclusion {
        requeue: Requeue::for_class(class),
        notices: vec![Notice::new(Severity::Error, reason, message)],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_api::condition::ConditionStatus;

    use super::*;
    use crate::error::ObserveError;

    fn object() -> ArtifactGenerator {
        serde_json::from_value(json!({
            "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator",
            "metadata": {"name": "g", "namespace": "apps", "generation": 2},
            "spec": {"sources": [], "artifacts": []},
        }))
        .unwrap()
    }

    fn ended() -> Ended {
        Ended { now: "2026-01-01T00:00:00Z".parse().unwrap(), elapsed: Duration::ZERO }
    }

    fn shown(object: &ArtifactGenerator) -> Vec<String> {
        let line = |condition: &weir_api::condition::Condition| {
            let status = match condition.status {
                ConditionStatus::True => "True",
                ConditionStatus::False => "False",
                ConditionStatus::Unknown => "Unknown",
            };
            format!("{}={status} {}: {}", condition.type_, condition.reason, condition.message)
        };
        object.conditions().iter().map(line).collect()
    }

    #[test]
    fn a_life() {
        let mut object = object();
        begin(&mut object, ended().now);
        assert_eq!(
            shown(&object),
            [
                "Reconciling=True Progressing: Reconciliation in progress",
                "Ready=Unknown Progressing: Reconciliation in progress",
            ]
        );
        let inventory = vec![ExternalArtifactReference {
            name: "app".to_owned(),
            namespace: "apps".to_owned(),
            digest: "sha256:1".to_owned(),
            filename: "1.tar.gz".to_owned(),
        }];
        let done = Done::Built {
            inventory: inventory.clone(),
            sources_digest: "sha256:2".to_owned(),
            news: Some("external artifacts reconciled: apps/app (sha256:1)".to_owned()),
        };
        let concluded = conclude(&mut object, &Pass::Reconciled(Ok(&done)), ended());
        assert_eq!(concluded.requeue, Requeue::Interval(INTERVAL));
        assert_eq!(concluded.notices[1].severity, Severity::Info);
        assert_eq!(
            shown(&object),
            ["Ready=True Succeeded: reconciliation succeeded, generated 1 artifact(s)"]
        );
        assert_eq!(object.status.as_ref().unwrap().inventory, inventory);
        let before = object.clone();
        let done = Done::Unchanged { artifacts: 1 };
        let concluded = conclude(&mut object, &Pass::Reconciled(Ok(&done)), ended());
        assert_eq!(concluded.requeue, Requeue::After(INTERVAL));
        assert_eq!(object.status, before.status);
    }

    #[test]
    fn failures() {
        let mut object = object();
        let failed = Failed::Error(Error::Invalid("duplicate source alias 'a' found".to_owned()));
        let concluded = conclude(&mut object, &Pass::Reconciled(Err(&failed)), ended());
        assert_eq!(concluded.requeue, Requeue::Never);
        assert_eq!(
            shown(&object),
            [
                "Stalled=True ValidationFailed: duplicate source alias 'a' found",
                "Ready=False ValidationFailed: duplicate source alias 'a' found",
            ]
        );
        let retry = Duration::from_secs(5);
        let source = ObserveError::NotReady("Bucket/apps/b".to_owned());
        let failed = Failed::Error(Error::Observe { source, retry });
        let concluded = conclude(&mut object, &Pass::Reconciled(Err(&failed)), ended());
        assert_eq!(concluded.requeue, Requeue::After(retry));
        assert_eq!(
            shown(&object),
            [
                "Reconciling=True ProgressingWithRetry: get sources failed: source 'Bucket/apps/b' is not ready",
                "Ready=False SourceFetchFailed: get sources failed: source 'Bucket/apps/b' is not ready",
            ]
        );
    }

    #[test]
    fn a_generator_that_is_switched_off() {
        let mut object = object();
        let concluded = conclude(&mut object, &Pass::Suspended, ended());
        assert_eq!(concluded.requeue, Requeue::Never);
        assert_eq!(concluded.notices[0].reason, "ReconciliationDisabled");
        assert_eq!(
            shown(&object),
            ["Ready=True ReconciliationDisabled: Initialized with reconciliation suspended"]
        );
    }
}
