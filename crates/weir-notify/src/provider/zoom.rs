//! Zoom Team Chat: incoming webhooks.

use serde_json::{Value, json};

use super::{Answer, Job, ProviderError, Request, Step, once};
use crate::text::{cut_characters, object_title};

/// Zoom refuses longer messages.
const TEXT_CHARACTERS_MAX: usize = 4096;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let mut url = job.url("Zoom incoming webhook")?;
        let token = job.target.token.expose();
        if token.is_empty() {
            return Err(ProviderError::setting("empty Zoom verification token"));
        }
        if !url.query_pairs().any(|(name, value)| name == "format" && !value.is_empty()) {
            let others: Vec<(String, String)> =
                url.query_pairs().into_owned().filter(|(name, _)| name != "format").collect();
            url.query_pairs_mut().clear().extend_pairs(others).append_pair("format", "full");
        }
        let event = &job.event;
        let message = cut_characters(&event.message, TEXT_CHARACTERS_MAX);
        let mut body = vec![json!({"type": "message", "text": message})];
        let item = |(key, value): (&String, &String)| json!({"key": key, "value": value});
        let items: Vec<Value> = event.metadata.iter().map(item).collect();
        if !items.is_empty() {
            body.push(json!({"type": "fields", "items": items}));
        }
        let head = json!({
            "text": object_title(&event.involved_object), "sub_head": {"text": job.severity()},
        });
        let payload = json!({"content": {"head": head, "body": body}});
        Ok(Request::message(url, &payload).header("Authorization", token))
    })
}
