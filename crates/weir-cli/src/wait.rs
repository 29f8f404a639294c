//! Waiting for objects, within a deadline.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::error::Error;
use crate::kind::Kind;
use crate::kstatus::{self, State};
use crate::view;

/// Shortest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// What a look at an object says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is done.
    Done,
    /// It is not done; the text says why.
    Waiting(String),
    /// It failed; the text says why.
    Failed(String),
}

/// Looks at an object until `look` is content, and returns the object.
///
/// # Errors
/// [`Error::ReconcileFailed`] if it failed, [`Error::DeadlineExceeded`] when the time of the connection is over.
pub(crate) async fn until(
    connection: &Connection,
    kind: Kind,
    name: &str,
    look: impl Fn(&Value) -> Look,
) -> Result<Value, Error> {
    let start = Instant::now();
    let deadline = start + connection.timeout.to_std();
    let exceeded = |last: String| Error::DeadlineExceeded {
        subject: format!("{}/{}/{name}", kind.name(), connection.namespace),
        after: connection.timeout,
        last,
    };
    let mut last = "the API server did not answer".to_owned();
    loop {
        let object = match tokio::time::timeout_at(deadline, connection.get(kind, name)).await {
            Ok(object) => object?,
            Err(_) => return Err(exceeded(last)),
        };
        match look(&object) {
            Look::Done => return Ok(object),
            Look::Failed(message) => return Err(Error::ReconcileFailed { kind: kind.name(), message }),
            Look::Waiting(message) => last = message,
        }
        let pause = pause_after(start.elapsed(), connection.poll_interval_max);
        if Instant::now() + pause >= deadline {
            return Err(exceeded(last));
        }
        tokio::time::sleep(pause).await;
    }
}

/// The pause before the next look, so that waiting takes at most a quarter longer than what is waited for.
fn pause_after(elapsed: Duration, pause_max: Duration) -> Duration {
    (elapsed / 4).max(PAUSE_MIN).min(pause_max)
}

/// Whether the request that followed `last_handled` was handled, and how it ended.
///
/// A failure ends the wait even if the controller goes on trying: its Ready condition already says what is wrong. Waiting for
/// a dependency is no failure.
pub(crate) fn handled(object: &Value, last_handled: &str) -> Look {
    if view::text(object, "/status/lastHandledReconcileAt") == last_handled {
        return Look::Waiting("the request was not handled yet".to_owned());
    }
    let ready = view::condition(object, "Ready");
    let ready_text = |pointer: &str| ready.map_or("", |ready| view::text(ready, pointer));
    if ready_text("/status") == "False"
        && ready_text("/reason") != weir_api::names::reason::DEPENDENCY_NOT_READY
    {
        return Look::Failed(ready_text("/message").to_owned());
    }
    match kstatus::of(object) {
        (State::Failed, message) => Look::Failed(message),
        (State::Current, _) if ready_text("/status") == "True" => Look::Done,
        (State::Current | State::InProgress | State::Terminating, message) => Look::Waiting(message),
    }
}

/// Whether the object is ready for its current generation.
pub(crate) fn ready(kind: Kind, object: &Value) -> Look {
    if !view::is_static(kind, object) {
        let generation = view::number(object, "/metadata/generation");
        let observed = view::number(object, "/status/observedGeneration");
        let Some(ready) = view::condition(object, "Ready") else {
            return Look::Waiting("waiting to be reconciled".to_owned());
        };
        let seen = match view::number(ready, "/observedGeneration") {
            0 => observed,
            generation => generation,
        };
        if observed < 1 || seen != generation {
            return Look::Waiting(format!("generation {generation} was not reconciled yet"));
        }
    }
    match kstatus::of(object) {
        (State::Current, _) => Look::Done,
        (State::Failed, message) => Look::Failed(message),
        (State::InProgress | State::Terminating, message) => Look::Waiting(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(last_handled: &str, conditions: &[(&str, &str, &str)], observed: i64) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status, reason)| {
                json!({
                    "type": type_, "status": status, "reason": reason, "message": format!("{type_} {reason}"),
                    "observedGeneration": observed,
                })
            })
            .collect();
        json!({
            "metadata": {"generation": 2},
            "status": {
                "lastHandledReconcileAt": last_handled, "observedGeneration": observed, "conditions": conditions,
            },
        })
    }

    #[test]
    fn pauses_grow_with_the_wait() {
        #[track_caller]
        fn check(elapsed_ms: u64, expected_ms: u64) {
            let pause = pause_after(Duration::from_millis(elapsed_ms), Duration::from_secs(2));
            assert_eq!(pause, Duration::from_millis(expected_ms));
        }
        check(0, 50);
        check(400, 100);
        check(4_000, 1_000);
        check(60_000, 2_000);
    }

    #[test]
    fn a_request_ends_with_the_ready_condition() {
        #[track_caller]
        fn check(last_handled: &str, conditions: &[(&str, &str, &str)], expected: &Look) {
            assert_eq!(handled(&object(last_handled, conditions, 2), "old"), *expected);
        }
        let waiting = |text: &str| Look::Waiting(text.to_owned());
        let failed = |text: &str| Look::Failed(text.to_owned());
        check("old", &[("Ready", "True", "Succeeded")], &waiting("the request was not handled yet"));
        check("new", &[("Ready", "True", "Succeeded")], &Look::Done);
        check("new", &[("Ready", "False", "BuildFailed")], &failed("Ready BuildFailed"));
        check(
            "new",
            &[("Reconciling", "True", "ProgressingWithRetry"), ("Ready", "False", "BuildFailed")],
            &failed("Ready BuildFailed"),
        );
        check("new", &[("Ready", "False", "DependencyNotReady")], &waiting("Ready DependencyNotReady"));
        check(
            "new",
            &[("Reconciling", "True", "Progressing"), ("Ready", "Unknown", "Progressing")],
            &waiting("Reconciling Progressing"),
        );
        check(
            "new",
            &[("Stalled", "True", "InvalidURL"), ("Ready", "Unknown", "X")],
            &failed("Stalled InvalidURL"),
        );
        check("new", &[], &waiting("Resource is current"));
    }

    #[test]
    fn readiness_needs_the_current_generation() {
        #[track_caller]
        fn check(conditions: &[(&str, &str, &str)], observed: i64, expected: &Look) {
            assert_eq!(ready(Kind::Kustomization, &object("", conditions, observed)), *expected);
        }
        let waiting = |text: &str| Look::Waiting(text.to_owned());
        check(&[], 2, &waiting("waiting to be reconciled"));
        check(&[("Ready", "True", "Succeeded")], 2, &Look::Done);
        check(&[("Ready", "True", "Succeeded")], 1, &waiting("generation 2 was not reconciled yet"));
        check(&[("Ready", "True", "Succeeded")], -1, &waiting("generation 2 was not reconciled yet"));
        check(
            &[("Stalled", "True", "Bad"), ("Ready", "False", "Bad")],
            2,
            &Look::Failed("Stalled Bad".to_owned()),
        );
        assert_eq!(ready(Kind::Alert, &json!({"metadata": {"generation": 1}})), Look::Done);
    }
}
