//! Which Alerts an event concerns. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use regex::Regex;
use weir_api::notification::{Alert, EventSeverity, EventSource};
use weir_notify::event::Event;

/// How many compiled patterns are kept.
const PATTERNS_MAX: usize = 4096;

/// Regular expressions of Alerts, compiled once; `None` for those that do not compile.
#[derive(Debug, Default)]
pub(crate) struct Patterns(Mutex<HashMap<String, Option<Arc<Regex>>>>);

impl Patterns {
    fn get(&self, source: &str) -> Option<Arc<Regex>> {
        let mut held = self.0.lock();
        if let Some(pattern) = held.get(source) {
            return pattern.clone();
        }
        let pattern = Regex::new(source).ok().map(Arc::new);
        if held.len() >= PATTERNS_MAX {
            held.clear();
        }
        held.insert(source.to_owned(), pattern.clone());
        pattern
    }
}

/// What keeps an Alert from being judged as its author meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// A pattern that messages must match does not compile.
    Inclusion(String),
    /// A pattern that messages must not match does not compile.
    Exclusion(String),
}

impl Problem {
    /// What is told about it.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Inclusion(pattern) => format!("failed to compile inclusion regex: {pattern}"),
            Self::Exclusion(pattern) => format!("failed to compile exclusion regex: {pattern}"),
        }
    }
}

/// How the sources of an Alert relate to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// One matches.
    Yes,
    /// One matches if the object has these labels.
    IfLabels(Vec<&'a BTreeMap<String, String>>),
    /// None matches.
    No,
}

/// Whether an event is of a source of an Alert.
pub(crate) fn source<'a>(event: &Event, alert: &'a Alert, namespace: &str) -> Source<'a> {
    let mut labels = Vec::new();
    for source in alert.spec.event_sources.iter().filter(|source| names(event, alert, source, namespace)) {
        if source.match_labels.is_empty() {
            return Source::Yes;
        }
        labels.push(&source.match_labels);
    }
    if labels.is_empty() { Source::No } else { Source::IfLabels(labels) }
}

fn names(event: &Event, alert: &Alert, source: &EventSource, namespace: &str) -> bool {
    let object = &event.involved_object;
    let namespace = source.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(namespace);
    let severity = alert.spec.event_severity;
    object.namespace == namespace
        && object.kind == source.kind.as_str()
        && (severity == EventSeverity::Info || event.severity.as_str() == severity.as_str())
        && (source.name == "*" || source.name == object.name)
}

/// Whether an object with these labels has all of the wanted ones.
pub(crate) fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether the lists of an Alert let a message through, and what is wrong with them.
pub(crate) fn passes(message: &str, alert: &Alert, patterns: &Patterns) -> (bool, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut any = |list: &[String], problem: fn(String) -> Problem| {
        list.iter().any(|source| {
            if let Some(pattern) = patterns.get(source) {
                pattern.is_match(message)
            } else {
                problems.push(problem(source.clone()));
                false
            }
        })
    };
    let included =
        alert.spec.inclusion_list.is_empty() || any(&alert.spec.inclusion_list, Problem::Inclusion);
    let passes = included && !any(&alert.spec.exclusion_list, Problem::Exclusion);
    (passes, problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn alert(spec: &Value) -> Alert {
        let mut full =
            json!({"providerRef": {"name": "p"}, "eventSources": [{"kind": "Kustomization", "name": "*"}]});
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert",
            "metadata": {"name": "a", "namespace": "apps"}, "spec": full,
        }))
        .unwrap()
    }

    fn event(severity: &str) -> Event {
        serde_json::from_value(json!({
            "involvedObject": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "namespace": "apps", "name": "web"},
            "severity": severity, "timestamp": "2026-01-01T10:00:00Z", "message": "line one\nwaiting for db", "reason": "X",
        }))
        .unwrap()
    }

    #[track_caller]
    fn check_source(spec: &Value, severity: &str, expected: bool) {
        let alert = alert(spec);
        assert_eq!(source(&event(severity), &alert, "apps") == Source::Yes, expected, "{spec}");
    }

    #[test]
    fn sources_match_by_kind_namespace_name_and_severity() {
        check_source(&json!({}), "info", true);
        check_source(&json!({}), "error", true);
        check_source(&json!({"eventSeverity": "error"}), "info", false);
        check_source(&json!({"eventSeverity": "error"}), "error", true);
        let sources = |source: Value| json!({"eventSources": [{"kind": "HelmRelease", "name": "*"}, source]});
        check_source(&sources(json!({"kind": "Kustomization", "name": "web"})), "info", true);
        check_source(&sources(json!({"kind": "Kustomization", "name": "w*"})), "info", false);
        check_source(&sources(json!({"kind": "GitRepository", "name": "web"})), "info", false);
        check_source(
            &sources(json!({"kind": "Kustomization", "name": "*", "namespace": "other"})),
            "info",
            false,
        );
        check_source(
            &sources(json!({"kind": "Kustomization", "name": "*", "namespace": "*"})),
            "info",
            false,
        );
        let other_version = json!({"kind": "Kustomization", "name": "*", "apiVersion": "something/v9"});
        check_source(&sources(other_version), "info", true);
        check_source(&json!({"eventSources": []}), "info", false);
    }

    #[test]
    fn labels_are_asked_for_even_if_the_source_has_a_name() {
        let wanted =
            json!({"eventSources": [{"kind": "Kustomization", "name": "web", "matchLabels": {"team": "a"}}]});
        let alert = alert(&wanted);
        let found = source(&event("info"), &alert, "apps");
        let Source::IfLabels(labels) = found else { panic!("{found:?}") };
        let has = |key: &str, value: &str| {
            has_labels(&BTreeMap::from([(key.to_owned(), value.to_owned())]), labels[0])
        };
        assert!(has("team", "a") && !has("team", "b") && !has("other", "a"));
    }

    #[test]
    fn lists_of_patterns_judge_messages() {
        #[track_caller]
        fn check(spec: &Value, expected: bool, problems: &[&str]) {
            let (passed, found) = passes("line one\nwaiting for db", &alert(spec), &Patterns::default());
            let found: Vec<String> = found.iter().map(Problem::message).collect();
            assert_eq!(
                (passed, found.as_slice()),
                (expected, problems.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().as_slice()),
                "{spec}"
            );
        }
        check(&json!({}), true, &[]);
        check(&json!({"inclusionList": ["^waiting"]}), false, &[]);
        check(&json!({"inclusionList": ["nothing", "(?m)^waiting"]}), true, &[]);
        check(&json!({"exclusionList": ["waiting.*db"]}), false, &[]);
        check(&json!({"inclusionList": ["waiting"], "exclusionList": ["waiting"]}), false, &[]);
        check(&json!({"inclusionList": ["("]}), false, &["failed to compile inclusion regex: ("]);
        check(&json!({"exclusionList": ["(", "x"]}), true, &["failed to compile exclusion regex: ("]);
    }
}
