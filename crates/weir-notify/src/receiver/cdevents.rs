//! CDEvents of version 0.4: which events there are and what they must say.

use serde_json::{Map, Value};

use super::quoted;

/// A field the content of an event must have.
#[derive(Clone, Copy)]
enum Field {
    /// A text that is not empty.
    Text(&'static str),
    /// A text out of some.
    OneOf(&'static str, &'static [&'static str]),
    /// A reference: an object with an `id`.
    Reference(&'static str),
}

const ENVIRONMENT: Field = Field::Reference("environment");
const ARTIFACT: Field = Field::Text("artifactId");
const URI: Field = Field::Text("uri");

/// Subject, predicate and version of each event, with what its content must have.
const EVENTS: &[(&str, &str, &str, &[Field])] = &[
    ("artifact", "deleted", "0.1.0", &[]),
    ("artifact", "downloaded", "0.1.0", &[]),
    ("artifact", "packaged", "0.2.0", &[Field::Reference("change")]),
    ("artifact", "published", "0.2.0", &[]),
    ("artifact", "signed", "0.2.0", &[Field::Text("signature")]),
    ("branch", "created", "0.2.0", &[]),
    ("branch", "deleted", "0.2.0", &[]),
    ("build", "finished", "0.2.0", &[]),
    ("build", "queued", "0.2.0", &[]),
    ("build", "started", "0.2.0", &[]),
    ("change", "abandoned", "0.2.0", &[]),
    ("change", "created", "0.3.0", &[]),
    ("change", "merged", "0.2.0", &[]),
    ("change", "reviewed", "0.2.0", &[]),
    ("change", "updated", "0.2.0", &[]),
    ("environment", "created", "0.2.0", &[]),
    ("environment", "deleted", "0.2.0", &[]),
    ("environment", "modified", "0.2.0", &[]),
    ("incident", "detected", "0.2.0", &[ENVIRONMENT]),
    ("incident", "reported", "0.2.0", &[ENVIRONMENT, Field::Text("ticketURI")]),
    ("incident", "resolved", "0.2.0", &[ENVIRONMENT]),
    ("pipelinerun", "finished", "0.2.0", &[]),
    ("pipelinerun", "queued", "0.2.0", &[]),
    ("pipelinerun", "started", "0.2.0", &[]),
    ("repository", "created", "0.2.0", &[Field::Text("name"), Field::Text("url")]),
    ("repository", "deleted", "0.2.0", &[]),
    ("repository", "modified", "0.2.0", &[]),
    ("service", "deployed", "0.2.0", &[ENVIRONMENT, ARTIFACT]),
    ("service", "published", "0.2.0", &[]),
    ("service", "removed", "0.2.0", &[]),
    ("service", "rolledback", "0.2.0", &[ENVIRONMENT, ARTIFACT]),
    ("service", "upgraded", "0.2.0", &[ENVIRONMENT, ARTIFACT]),
    ("taskrun", "finished", "0.2.0", &[]),
    ("taskrun", "started", "0.2.0", &[]),
    ("testcaserun", "finished", "0.2.0", &[Field::Text("outcome"), ENVIRONMENT]),
    ("testcaserun", "queued", "0.2.0", &[ENVIRONMENT]),
    ("testcaserun", "skipped", "0.1.0", &[]),
    ("testcaserun", "started", "0.2.0", &[ENVIRONMENT]),
    (
        "testoutput",
        "published",
        "0.2.0",
        &[Field::OneOf("outputType", &["report", "video", "image", "log", "other"]), Field::Text("format")],
    ),
    ("testsuiterun", "finished", "0.2.0", &[Field::Text("outcome"), ENVIRONMENT]),
    ("testsuiterun", "queued", "0.2.0", &[ENVIRONMENT]),
    ("testsuiterun", "started", "0.2.0", &[ENVIRONMENT]),
    ("ticket", "closed", "0.1.0", &[URI, Field::Text("resolution")]),
    ("ticket", "created", "0.1.0", &[URI, Field::Text("summary"), Field::Text("creator")]),
    ("ticket", "updated", "0.1.0", &[URI]),
];

/// Checks that a body is a CDEvent.
pub(super) fn validate(body: &[u8]) -> Result<(), String> {
    let event: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let context = object(&event, "context")?;
    let subject = object(&event, "subject")?;
    for field in ["version", "id", "source", "type"] {
        text(context, "context", field)?;
    }
    let time = text(context, "context", "timestamp")?;
    if time.parse::<jiff::Timestamp>().is_err() {
        return Err(format!("context.timestamp {} is no time", quoted(time)));
    }
    text(subject, "subject", "id")?;
    let content = subject.get("content").and_then(Value::as_object);
    let content = content.ok_or_else(|| "subject.content is missing".to_owned())?;
    let type_ = text(context, "context", "type")?;
    if type_.starts_with("dev.cdeventsx.") {
        // An event of somebody's own: `dev.cdeventsx.tool-subject.predicate.version`.
        let rest = type_.trim_start_matches("dev.cdeventsx.");
        let valid = rest.split('.').count() == 5 && rest.split('.').all(|part| !part.is_empty());
        return if valid { Ok(()) } else { Err(format!("invalid type {}", quoted(type_))) };
    }
    let known = EVENTS.iter().find(|(subject, predicate, version, _)| {
        type_ == format!("dev.cdevents.{subject}.{predicate}.{version}")
    });
    let (kind, _, _, fields) = known.ok_or_else(|| format!("unknown event type {}", quoted(type_)))?;
    // Subjects are written in camel case (`pipelineRun`), types in lower case.
    let subject_type = text(subject, "subject", "type")?;
    if subject_type.to_lowercase() != *kind {
        return Err(format!("subject.type {} does not fit {}", quoted(subject_type), quoted(type_)));
    }
    fields.iter().try_for_each(|field| check(content, *field))
}

fn check(content: &Map<String, Value>, field: Field) -> Result<(), String> {
    match field {
        Field::Text(name) => text(content, "subject.content", name).map(drop),
        Field::OneOf(name, values) => {
            let value = text(content, "subject.content", name)?;
            if values.contains(&value) {
                Ok(())
            } else {
                Err(format!("subject.content.{name} must be one of {}", values.join(", ")))
            }
        }
        Field::Reference(name) => {
            let reference = content.get(name).and_then(Value::as_object);
            let reference = reference.ok_or_else(|| format!("subject.content.{name} is missing"))?;
            text(reference, &format!("subject.content.{name}"), "id").map(drop)
        }
    }
}

fn object<'a>(event: &'a Value, name: &str) -> Result<&'a Map<String, Value>, String> {
    event.get(name).and_then(Value::as_object).ok_or_else(|| format!("{name} is missing"))
}

fn text<'a>(object: &'a Map<String, Value>, path: &str, name: &str) -> Result<&'a str, String> {
    let text = object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.ok_or_else(|| format!("{path}.{name} is missing"))
}
