//! incident.io alert sources.

use serde_json::{Map, Value, json};

use super::{Answer, Job, ProviderError, Request, Step, once};
use crate::event::PROGRESSING;
use crate::text::{is_error, object_title};

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let url = job.url("incident.io alert source")?;
    let token = job.target.token.expose();
    if token.is_empty() {
        return Err(ProviderError::setting("empty incident.io API token"));
    }
    if job.event.reason == PROGRESSING {
        return Ok(Step::Done);
    }
    once(answers, || Ok(Request::message(url, &payload(job)).bearer(token)))
}

fn payload(job: &Job) -> Value {
    let event = &job.event;
    let mut metadata: Map<String, Value> =
        event.metadata.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    metadata.insert("severity".to_owned(), job.severity().into());
    metadata.insert("reason".to_owned(), event.reason.clone().into());
    if !event.reporting_controller.is_empty() {
        metadata.insert("reportingController".to_owned(), event.reporting_controller.clone().into());
    }
    let mut payload = json!({
        "title": format!("{}: {}", object_title(&event.involved_object), event.reason),
        "status": if is_error(event) { "firing" } else { "resolved" },
        "deduplication_key": event.involved_object.uid,
        "metadata": metadata,
    });
    if !event.message.is_empty() {
        payload["description"] = event.message.clone().into();
    }
    payload
}
