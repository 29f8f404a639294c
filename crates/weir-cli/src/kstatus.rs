//! Whether an object has reached its desired state, read from its conditions as kstatus does.

use serde_json::Value;

use crate::view;

/// The state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It is being deleted.
    Terminating,
    /// It has not reached its desired state yet.
    InProgress,
    /// It will not reach its desired state by itself.
    Failed,
    /// It has reached its desired state.
    Current,
}

/// The state of an object and a text that explains it.
pub(crate) fn of(object: &Value) -> (State, String) {
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return (State::Terminating, "Resource scheduled for deletion".to_owned());
    }
    let generation = view::number(object, "/metadata/generation");
    if let Some(observed) = object.pointer("/status/observedGeneration").and_then(Value::as_i64)
        && observed != generation
    {
        let kind = view::text(object, "/kind");
        return (
            State::InProgress,
            format!("{kind} generation is {generation}, but latest observed generation is {observed}"),
        );
    }
    for condition in view::conditions(object).filter(|condition| view::text(condition, "/status") == "True") {
        let state = match view::text(condition, "/type") {
            "Reconciling" => State::InProgress,
            "Stalled" => State::Failed,
            _ => continue,
        };
        return (state, view::text(condition, "/message").to_owned());
    }
    match view::condition(object, "Ready") {
        Some(ready) if view::text(ready, "/status") != "True" => {
            (State::InProgress, view::text(ready, "/message").to_owned())
        }
        _ => (State::Current, "Resource is current".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(status: &Value, state: State, message: &str) {
        let object = json!({"kind": "Kustomization", "metadata": {"generation": 2}, "status": status});
        assert_eq!(of(&object), (state, message.to_owned()));
    }

    fn condition(type_: &str, status: &str) -> Value {
        json!({"type": type_, "status": status, "message": type_.to_lowercase()})
    }

    #[test]
    fn conditions_decide() {
        check(&json!({}), State::Current, "Resource is current");
        check(
            &json!({"observedGeneration": 1}),
            State::InProgress,
            "Kustomization generation is 2, but latest observed generation is 1",
        );
        check(&json!({"conditions": [condition("Ready", "True")]}), State::Current, "Resource is current");
        check(&json!({"conditions": [condition("Ready", "False")]}), State::InProgress, "ready");
        check(&json!({"conditions": [condition("Ready", "Unknown")]}), State::InProgress, "ready");
        check(
            &json!({"observedGeneration": 2, "conditions": [condition("Stalled", "True"), condition("Ready", "False")]}),
            State::Failed,
            "stalled",
        );
        check(
            &json!({"conditions": [condition("Reconciling", "True"), condition("Ready", "True")]}),
            State::InProgress,
            "reconciling",
        );
        check(
            &json!({"conditions": [condition("Reconciling", "False"), condition("Ready", "True")]}),
            State::Current,
            "Resource is current",
        );
    }

    #[test]
    fn deletion_wins() {
        let object = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(of(&object).0, State::Terminating);
    }
}
