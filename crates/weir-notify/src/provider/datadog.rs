//! Datadog events.

use serde_json::json;

use super::{Answer, Job, Method, ProviderError, Request, Step, once};
use crate::text::{cut_characters, is_error};

/// The limits of the events API.
const TITLE_CHARACTERS_MAX: usize = 500;
const TEXT_CHARACTERS_MAX: usize = 4000;
const TAG_CHARACTERS_MAX: usize = 200;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let token = job.target.token.expose();
        if token.is_empty() {
            return Err(ProviderError::setting("token cannot be empty"));
        }
        let mut url = job.url("DataDog")?;
        url.set_path("/api/v1/events");
        url.set_query(None);
        url.set_fragment(None);
        let event = &job.event;
        let object = &event.involved_object;
        let mut tags = vec![
            format!("flux_reporting_controller:{}", event.reporting_controller),
            format!("flux_reason:{}", event.reason),
            format!("kube_kind:{}", object.kind),
            format!("kube_name:{}", object.name),
            format!("kube_namespace:{}", object.namespace),
        ];
        tags.extend(event.metadata.iter().map(|(key, value)| format!("{key}:{value}")));
        let tag = |tag: String| cut_characters(&tag.to_lowercase(), TAG_CHARACTERS_MAX);
        let tags: Vec<String> = tags.into_iter().map(tag).collect();
        let title = format!("Events from the {} {}/{}", object.kind, object.name, object.namespace);
        let payload = json!({
            "title": cut_characters(&title, TITLE_CHARACTERS_MAX),
            "text": cut_characters(&event.message, TEXT_CHARACTERS_MAX),
            "tags": tags,
            "source_type_name": "fluxcd",
            "date_happened": job.seconds(),
            "alert_type": if is_error(event) { "error" } else { "info" },
        });
        let request = Request::new(Method::Post, url, "failed to post event to DataDog");
        Ok(request.json(&payload).header("Accept", "application/json").header("DD-API-KEY", token))
    })
}
