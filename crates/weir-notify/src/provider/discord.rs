//! Discord, by the endpoint that takes messages in the format of Slack.

use serde_json::json;

use super::{Answer, Job, ProviderError, Request, Step, once};
use crate::text::{cut_characters, is_error, object_title, without_mentions};

/// The limits of Discord's embeds, which attachments become.
const TEXT_CHARACTERS_MAX: usize = 4096;
const AUTHOR_CHARACTERS_MAX: usize = 256;
const FIELDS_MAX: usize = 25;
const TITLE_CHARACTERS_MAX: usize = 256;
const VALUE_CHARACTERS_MAX: usize = 1024;
const TOTAL_CHARACTERS_MAX: usize = 6000;
/// Room for at least this much of the message if there is a lot of metadata.
const TEXT_CHARACTERS_MIN: usize = 1024;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let mut url = job.url("Discord hook")?;
        if !url.path().ends_with("/slack") {
            let path = format!("{}/slack", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        let event = &job.event;
        let username = match job.target.username.as_str() {
            "" => &event.reporting_controller,
            username => username,
        };
        let title = cut_characters(&object_title(&event.involved_object), AUTHOR_CHARACTERS_MAX);
        let mut room = TOTAL_CHARACTERS_MAX - title.chars().count();
        let mut fields = Vec::new();
        for (key, value) in event.metadata.iter().take(FIELDS_MAX) {
            let key = cut_characters(key, TITLE_CHARACTERS_MAX);
            let value = cut_characters(&job.shown(&key, value, without_mentions), VALUE_CHARACTERS_MAX);
            let taken = key.chars().count() + value.chars().count();
            if room < taken + TEXT_CHARACTERS_MIN {
                break;
            }
            room -= taken;
            fields.push(json!({"title": key, "value": value, "short": false}));
        }
        let text = cut_characters(&without_mentions(&event.message), TEXT_CHARACTERS_MAX.min(room));
        let payload = json!({
            "channel": "", "username": username, "icon_url": "", "icon_emoji": "",
            "attachments": [{
                "fallback": "",
                "color": if is_error(event) { "danger" } else { "good" },
                "author_name": title,
                "text": text,
                "mrkdwn_in": ["text"],
                "fields": fields,
            }],
        });
        Ok(Request::message(url, &payload))
    })
}
