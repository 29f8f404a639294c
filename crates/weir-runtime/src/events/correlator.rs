//! Makes few Event objects out of many notices, with the rules of Kubernetes' own event recorder:
//! a repeated event raises a count, many similar ones become one, and an object that floods is cut
//! off. Pure: time comes in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::Recorded;
use crate::Severity;
use crate::time::seconds;

/// How many different messages of one reason are kept apart within [`SIMILAR_WITHIN`].
const SIMILAR_MAX: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_mins(10);
/// How many events an object may have at once, and how fast more are allowed.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_mins(5);
/// How many entries each memory holds.
const ENTRIES_MAX: usize = 4096;

/// What to send to the API server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    /// A new Event.
    Create(Box<Event>),
    /// A change of an Event that was sent before; the whole Event in case it is gone by now.
    Bump { namespace: String, name: String, patch: Value, event: Box<Event> },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Involved {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

impl Involved {
    fn of(reference: &ObjectReference) -> Self {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Self {
            api_version: text(&reference.api_version),
            kind: text(&reference.kind),
            namespace: text(&reference.namespace),
            name: text(&reference.name),
            uid: text(&reference.uid),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SimilarKey {
    involved: Involved,
    type_: &'static str,
    reason: String,
}

/// All that must be equal for a count to go up; no message once similar ones are combined.
type SameKey = (SimilarKey, Option<String>);

#[derive(Debug, Default)]
struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

#[derive(Debug)]
struct Sent {
    name: String,
    count: i32,
    first: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Timestamp,
}

/// A map that forgets what was not used for longest.
#[derive(Debug)]
struct Memory<K, V> {
    entries: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    clock: u64,
}

impl<K: Clone + Eq + Hash, V> Memory<K, V> {
    fn new() -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }

    fn get_or_insert(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        let clock = self.clock;
        if let Some((used, _)) = self.entries.get(key) {
            self.order.remove(used);
        } else if self.entries.len() >= ENTRIES_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.order.insert(clock, key.clone());
        let (used, value) = self.entries.entry(key.clone()).or_insert_with(|| (clock, make()));
        *used = clock;
        value
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Correlator {
    component: String,
    host: String,
    similar: Memory<SimilarKey, Similar>,
    sent: Memory<SameKey, Sent>,
    buckets: Memory<Involved, Bucket>,
}

impl Correlator {
    pub(super) fn new(component: String, host: String) -> Self {
        Self { component, host, similar: Memory::new(), sent: Memory::new(), buckets: Memory::new() }
    }

    /// What to write for an event; `None` if the object has too many.
    pub(super) fn correlate(&mut self, recorded: &Recorded) -> Option<Write> {
        let now = recorded.at;
        let involved = Involved::of(&recorded.involved);
        let similar_key = SimilarKey {
            involved: involved.clone(),
            type_: type_of(recorded.notice.severity),
            reason: recorded.notice.reason.to_string(),
        };
        let similar = self.similar.get_or_insert(&similar_key, Similar::default);
        if since(similar.last, now) > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(recorded.notice.message.clone());
        let (same_key, message) = if similar.messages.len() < SIMILAR_MAX {
            let message = recorded.notice.message.clone();
            ((similar_key, Some(message.clone())), message)
        } else {
            similar.messages.pop_first();
            let message = format!("(combined from similar events): {}", recorded.notice.message);
            ((similar_key, None), message)
        };
        let name = format!("{}.{:x}", involved.name, u64::try_from(now.as_nanosecond()).unwrap_or_default());
        let sent = self.sent.get_or_insert(&same_key, || Sent { name, count: 0, first: now });
        sent.count = sent.count.saturating_add(1);
        let event = Box::new(Event {
            metadata: ObjectMeta {
                namespace: Some(namespace_of(&recorded.involved)),
                name: Some(sent.name.clone()),
                annotations: Some(recorded.notice.metadata.clone()).filter(|metadata| !metadata.is_empty()),
                ..ObjectMeta::default()
            },
            involved_object: recorded.involved.clone(),
            reason: Some(recorded.notice.reason.to_string()),
            message: Some(message.clone()),
            type_: Some(type_of(recorded.notice.severity).to_owned()),
            count: Some(sent.count),
            first_timestamp: Some(seconds(sent.first)),
            last_timestamp: Some(seconds(now)),
            source: Some(EventSource { component: Some(self.component.clone()), host: None }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(self.host.clone()),
            ..Event::default()
        });
        let count = sent.count;
        let sent_name = sent.name.clone();
        if !self.allow(&involved, now) {
            return None;
        }
        if count == 1 {
            return Some(Write::Create(event));
        }
        Some(Write::Bump {
            namespace: namespace_of(&recorded.involved),
            name: sent_name,
            patch: json!({"count": count, "lastTimestamp": seconds(now), "message": message}),
            event,
        })
    }

    fn allow(&mut self, involved: &Involved, now: Timestamp) -> bool {
        let bucket = self.buckets.get_or_insert(involved, || Bucket { tokens: BURST, at: now });
        let refilled = since(bucket.at, now).as_secs_f64() / REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + refilled).min(BURST);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

fn since(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

fn namespace_of(involved: &ObjectReference) -> String {
    involved.namespace.clone().unwrap_or_else(|| "default".to_owned())
}

fn type_of(severity: Severity) -> &'static str {
    match severity {
        Severity::Trace | Severity::Info => "Normal",
        Severity::Error => "Warning",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Notice;
    use jiff::SignedDuration;

    fn recorded(message: &str, at_seconds: i64) -> Recorded {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        Recorded {
            involved: ObjectReference {
                kind: Some("Kustomization".to_owned()),
                namespace: Some("flux-system".to_owned()),
                name: Some("apps".to_owned()),
                uid: Some("1".to_owned()),
                ..ObjectReference::default()
            },
            notice: Notice::new(Severity::Info, "Progressing", message)
                .with("example.com/revision", "main@sha1:1"),
            at: start + SignedDuration::from_secs(at_seconds),
        }
    }

    fn correlator() -> Correlator {
        Correlator::new("kustomize-controller".to_owned(), "pod-1".to_owned())
    }

    fn summary(write: Option<Write>) -> String {
        match write {
            None => "dropped".to_owned(),
            Some(Write::Create(event)) => format!("create {}", event.message.unwrap()),
            Some(Write::Bump { patch, .. }) => {
                format!("bump to {}: {}", patch["count"], patch["message"].as_str().unwrap())
            }
        }
    }

    #[test]
    fn a_new_event_has_the_fields_of_the_reference() {
        let Some(Write::Create(event)) = correlator().correlate(&recorded("applied", 0)) else {
            panic!("want a new event");
        };
        assert_eq!(
            serde_json::to_value(&event).unwrap(),
            json!({
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {
                    "namespace": "flux-system",
                    "name": "apps.18867251edfa0000",
                    "annotations": {"example.com/revision": "main@sha1:1"},
                },
                "involvedObject": {"kind": "Kustomization", "namespace": "flux-system", "name": "apps", "uid": "1"},
                "reason": "Progressing",
                "message": "applied",
                "type": "Normal",
                "count": 1,
                "firstTimestamp": "2026-01-01T00:00:00Z",
                "lastTimestamp": "2026-01-01T00:00:00Z",
                "source": {"component": "kustomize-controller"},
                "reportingComponent": "kustomize-controller",
                "reportingInstance": "pod-1",
            })
        );
    }

    #[test]
    fn a_repeated_event_raises_the_count() {
        let mut correlator = correlator();
        let summaries: Vec<String> =
            (0..3).map(|n| summary(correlator.correlate(&recorded("applied", n)))).collect();
        assert_eq!(summaries, ["create applied", "bump to 2: applied", "bump to 3: applied"]);
    }

    #[test]
    fn many_similar_events_are_combined() {
        let mut correlator = correlator();
        let summaries: Vec<String> =
            (0..12).map(|n| summary(correlator.correlate(&recorded(&format!("message {n}"), n)))).collect();
        assert_eq!(summaries[8], "create message 8");
        assert_eq!(summaries[9], "create (combined from similar events): message 9");
        assert_eq!(summaries[10], "bump to 2: (combined from similar events): message 10");
        // After ten quiet minutes they are told apart again.
        assert_eq!(summary(correlator.correlate(&recorded("message x", 700))), "create message x");
    }

    #[test]
    fn an_object_that_floods_is_cut_off() {
        let mut correlator = correlator();
        let written = (0..60).filter(|_| correlator.correlate(&recorded("again", 0)).is_some()).count();
        assert_eq!(written, 25);
        assert_eq!(summary(correlator.correlate(&recorded("again", 299))), "dropped");
        assert_eq!(summary(correlator.correlate(&recorded("again", 301))), "bump to 62: again");
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut memory = Memory::new();
        for number in 0..ENTRIES_MAX + 10 {
            *memory.get_or_insert(&number, || 0) += 1;
            memory.get_or_insert(&0, || 0);
        }
        assert_eq!(memory.entries.len(), ENTRIES_MAX);
        assert_eq!(memory.order.len(), ENTRIES_MAX);
        assert!(memory.entries.contains_key(&0), "what is used stays");
        assert!(!memory.entries.contains_key(&1), "what is not used goes");
    }
}
