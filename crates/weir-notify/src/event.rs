//! Events as controllers post them, and what happens to their metadata.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The group of annotations and metadata that users and tools set on objects for their events.
pub const EVENT_GROUP: &str = "event.toolkit.fluxcd.io";
/// The metadata key of the Git commit a change came from.
pub const COMMIT: &str = "commit";
/// The metadata key of the number of a pull or merge request.
pub const CHANGE_REQUEST: &str = "change_request";
/// The metadata key that marks events made for commit statuses.
pub const COMMIT_STATUS: &str = "commit_status";
/// The value of [`COMMIT_STATUS`].
pub const COMMIT_STATUS_UPDATE: &str = "update";
/// The metadata key of the source revision.
pub const REVISION: &str = "revision";
/// The metadata key of the revision an OCI artifact was made from.
pub const ORIGIN_REVISION: &str = "originRevision";
/// The metadata key of the token that tells repeated events apart.
pub const TOKEN: &str = "token";
/// The metadata key of the short text of an alert.
pub const SUMMARY: &str = "summary";
/// The reason of events about work that goes on.
pub const PROGRESSING: &str = "Progressing";

/// How important an event is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Severity {
    /// `trace`.
    Trace,
    /// `info`.
    Info,
    /// `error`.
    Error,
    /// Anything else; kept as it was sent.
    Other(String),
}

impl Severity {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Trace => "trace",
            Self::Info => "info",
            Self::Error => "error",
            Self::Other(text) => text,
        }
    }
}

impl From<String> for Severity {
    fn from(text: String) -> Self {
        match text.as_str() {
            "trace" => Self::Trace,
            "info" => Self::Info,
            "error" => Self::Error,
            _ => Self::Other(text),
        }
    }
}

impl Serialize for Severity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Severity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<String>::deserialize(deserializer).map(|text| Self::from(text.unwrap_or_default()))
    }
}

impl Default for Severity {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

/// The object an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InvolvedObject {
    /// The kind.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub kind: String,
    /// The namespace.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub namespace: String,
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub name: String,
    /// The unique id.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub uid: String,
    /// Group and version.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub api_version: String,
    /// The version of the object.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub resource_version: String,
    /// The part of the object.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub field_path: String,
}

impl InvolvedObject {
    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// `Kind/namespace/name`, as messages name the object.
    pub fn identity(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

/// An event of a controller about an object.
///
/// Written as JSON, the keys are in the order the reference writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// The object.
    pub involved_object: InvolvedObject,
    /// How important it is.
    pub severity: Severity,
    /// When it happened.
    #[serde(with = "timestamp")]
    pub timestamp: Option<jiff::Timestamp>,
    /// What happened, for people.
    #[serde(deserialize_with = "null_is_empty")]
    pub message: String,
    /// What happened, in one word.
    #[serde(deserialize_with = "null_is_empty")]
    pub reason: String,
    /// More about it; keys carry the group of their owner until [`Event::combine`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The controller that posted it.
    #[serde(deserialize_with = "null_is_empty")]
    pub reporting_controller: String,
    /// The instance of that controller.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_is_empty")]
    pub reporting_instance: String,
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// RFC 3339 with whole seconds in UTC, `null` when missing.
mod timestamp {
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes the field")]
    pub(super) fn serialize<S: Serializer>(
        time: &Option<jiff::Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.serialize_str(&super::rfc3339(*time)),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<jiff::Timestamp>, D::Error> {
        match Option::<String>::deserialize(deserializer)? {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(serde::de::Error::custom),
        }
    }
}

/// The time with whole seconds, in UTC.
pub(crate) fn rfc3339(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// What [`Event::combine`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Combined {
    /// The metadata without groups.
    pub metadata: BTreeMap<String, String>,
    /// Keys that more than one source has, with the names of these sources.
    pub conflicts: BTreeMap<String, Vec<&'static str>>,
}

impl Event {
    /// Removes metadata of foreign groups, and digests, as on receipt.
    pub fn clean_up(&mut self) {
        let own = format!("{}/", self.involved_object.group());
        let event = format!("{EVENT_GROUP}/");
        self.metadata.retain(|key, _| {
            if key.starts_with(&event) {
                return true;
            }
            let Some(rest) = key.strip_prefix(&own) else { return false };
            !rest.eq_ignore_ascii_case("checksum") && !rest.eq_ignore_ascii_case("digest")
        });
    }

    /// The value the object's own controller gave a metadata key, before [`combine`](Self::combine).
    pub fn own_metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(&format!("{}/{key}", self.involved_object.group())).map(String::as_str)
    }

    /// The value of a metadata key of the [`EVENT_GROUP`], before [`combine`](Self::combine).
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.get(&format!("{EVENT_GROUP}/{key}")).map(String::as_str)
    }

    /// What is the same for events that repeat each other: object, message, revisions and token.
    pub fn fingerprint(&self) -> [u8; 32] {
        let object = &self.involved_object;
        let mut hash = Sha256::new();
        hash.update("event");
        for (name, value) in [
            ("name", Some(object.name.as_str())),
            ("namespace", Some(object.namespace.as_str())),
            ("kind", Some(object.kind.as_str())),
            ("message", Some(self.message.as_str())),
            (ORIGIN_REVISION, self.own_metadata(ORIGIN_REVISION)),
            (REVISION, self.own_metadata(REVISION)),
            (TOKEN, self.own_metadata(TOKEN)),
        ] {
            if let Some(value) = value {
                hash.update("/");
                hash.update(name);
                hash.update("=");
                hash.update(value);
            }
        }
        hash.finalize().into()
    }

    /// The metadata as providers see it, from the event and an alert.
    ///
    /// The object's annotations come first, then `eventMetadata` and `summary` of the alert, then what the controller
    /// says; later sources win.
    pub fn combine(&self, alert: &BTreeMap<String, String>, summary: Option<&str>) -> Combined {
        let prefixed = |group: &str| {
            let prefix = format!("{group}/");
            self.metadata
                .iter()
                .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), value.clone())))
                .collect::<Vec<_>>()
        };
        let summary = summary.filter(|summary| !summary.is_empty());
        let sources = [
            ("involved object annotations", prefixed(EVENT_GROUP)),
            (
                "Alert object .spec.eventMetadata",
                alert.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            ),
            (
                "Alert object .spec.summary",
                summary.map(|text| (SUMMARY.to_owned(), text.to_owned())).into_iter().collect(),
            ),
            ("involved object controller metadata", prefixed(self.involved_object.group())),
        ];
        let mut combined = Combined::default();
        let mut seen: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
        for (source, entries) in sources {
            for (key, value) in entries {
                seen.entry(key.clone()).or_default().push(source);
                combined.metadata.insert(key, value);
            }
        }
        combined.conflicts = seen.into_iter().filter(|(_, sources)| sources.len() > 1).collect();
        combined
    }

    /// The JSON providers send, with `<`, `>` and `&` escaped as Go does it.
    pub fn to_json(&self) -> Vec<u8> {
        to_go_json(self)
    }
}

/// JSON as Go's encoder writes it: safe within HTML.
pub(crate) fn to_go_json<T: Serialize>(value: &T) -> Vec<u8> {
    // Structs of strings, numbers and lists always serialise.
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut escaped = Vec::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.extend_from_slice(br"\u003c"),
            '>' => escaped.extend_from_slice(br"\u003e"),
            '&' => escaped.extend_from_slice(br"\u0026"),
            '\u{2028}' => escaped.extend_from_slice(br"\u2028"),
            '\u{2029}' => escaped.extend_from_slice(br"\u2029"),
            other => escaped.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(metadata: &[(&str, &str)]) -> Event {
        Event {
            involved_object: InvolvedObject {
                kind: "Kustomization".to_owned(),
                namespace: "apps".to_owned(),
                name: "web".to_owned(),
                uid: "0c9c2e41-d2f9-4f9b-9f0c-4f9b9f0c4f9b".to_owned(),
                api_version: "kustomize.toolkit.fluxcd.io/v1".to_owned(),
                ..InvolvedObject::default()
            },
            severity: Severity::Info,
            timestamp: "2026-01-01T10:00:00.75Z".parse().ok(),
            message: "done".to_owned(),
            metadata: metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Event::default()
        }
    }

    #[test]
    fn metadata_of_others_and_digests_are_removed() {
        let mut event = event(&[
            ("kustomize.toolkit.fluxcd.io/revision", "main@sha1:1"),
            ("kustomize.toolkit.fluxcd.io/Digest", "sha256:1"),
            ("kustomize.toolkit.fluxcd.io/checksum", "1"),
            ("source.toolkit.fluxcd.io/revision", "other"),
            ("event.toolkit.fluxcd.io/digest", "kept"),
            ("plain", "x"),
        ]);
        event.clean_up();
        let keys: Vec<&str> = event.metadata.keys().map(String::as_str).collect();
        assert_eq!(keys, ["event.toolkit.fluxcd.io/digest", "kustomize.toolkit.fluxcd.io/revision"]);
    }

    #[test]
    fn repeated_events_have_the_same_fingerprint() {
        let one = event(&[("kustomize.toolkit.fluxcd.io/revision", "1")]);
        let fingerprint = hex::encode(one.fingerprint());
        let text = "event/name=web/namespace=apps/kind=Kustomization/message=done/revision=1";
        assert_eq!(fingerprint, hex::encode(Sha256::digest(text)));
        let severe = Event { severity: Severity::Error, reason: "Other".to_owned(), ..one.clone() };
        assert_eq!(severe.fingerprint(), one.fingerprint());
        let token = event(&[
            ("kustomize.toolkit.fluxcd.io/revision", "1"),
            ("kustomize.toolkit.fluxcd.io/token", "2"),
        ]);
        assert_ne!(token.fingerprint(), one.fingerprint());
    }

    #[test]
    fn later_sources_of_metadata_win() {
        let event = event(&[
            ("event.toolkit.fluxcd.io/summary", "annotation"),
            ("event.toolkit.fluxcd.io/team", "a"),
            ("event.toolkit.fluxcd.io/revision", "annotation"),
            ("kustomize.toolkit.fluxcd.io/revision", "controller"),
        ]);
        let alert =
            BTreeMap::from([("team".to_owned(), "b".to_owned()), ("env".to_owned(), "prod".to_owned())]);
        let combined = event.combine(&alert, Some("alert"));
        let expected = [("env", "prod"), ("revision", "controller"), ("summary", "alert"), ("team", "b")];
        let got: Vec<(&str, &str)> =
            combined.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(got, expected);
        assert_eq!(
            combined.conflicts["summary"],
            ["involved object annotations", "Alert object .spec.summary"]
        );
        assert_eq!(combined.conflicts.len(), 3);
    }

    #[test]
    fn the_wire_format_is_read_and_written() {
        let text = r#"{"involvedObject":{"kind":"Kustomization","namespace":"apps","name":"web","uid":"1","apiVersion":"kustomize.toolkit.fluxcd.io/v1","resourceVersion":"7"},"severity":"info","timestamp":"2026-01-01T10:00:00Z","message":"a \u003c b","reason":"ReconciliationSucceeded","metadata":{"kustomize.toolkit.fluxcd.io/revision":"main@sha1:1"},"reportingController":"kustomize-controller","reportingInstance":"pod-1"}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(event.message, "a < b");
        assert_eq!(String::from_utf8(event.to_json()).unwrap(), text);
        let loose = r#"{"involvedObject":null,"severity":null,"timestamp":null,"metadata":null,"unknown":1}"#;
        assert!(serde_json::from_str::<Event>(&loose.replace("\"involvedObject\":null,", "")).is_ok());
        assert!(serde_json::from_str::<Event>(r#"{"message":1}"#).is_err());
        assert!(serde_json::from_str::<Event>(r#"{"timestamp":"yesterday"}"#).is_err());
    }
}
