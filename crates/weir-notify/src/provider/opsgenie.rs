//! Opsgenie alerts.

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{Answer, Job, ProviderError, Request, Step, once};
use crate::text::cut_characters;

/// The limits of the alert API.
const MESSAGE_CHARACTERS_MAX: usize = 130;
const DESCRIPTION_CHARACTERS_MAX: usize = 15_000;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = job.url("Opsgenie hook")?;
        let token = job.target.token.expose();
        if token.is_empty() {
            return Err(ProviderError::setting("empty Opsgenie apikey/token"));
        }
        let event = &job.event;
        let object = &event.involved_object;
        let mut details = event.metadata.clone();
        details.insert("severity".to_owned(), job.severity().to_owned());
        let alias = format!("{}/{}/{}", job.target.uid, object.identity(), event.reason);
        let payload = json!({
            "message": cut_characters(&format!("{}/{}", object.kind, object.name), MESSAGE_CHARACTERS_MAX),
            "alias": hex::encode(Sha256::digest(alias)),
            "description": cut_characters(&event.message, DESCRIPTION_CHARACTERS_MAX),
            "details": details,
        });
        Ok(Request::message(url, &payload).header("Authorization", format!("GenieKey {token}")))
    })
}
