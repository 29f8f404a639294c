//! Slack and Rocket.Chat: messages with an attachment.

use serde_json::{Value, json};

use super::{Answer, Job, POST_FAILED, ProviderError, Request, Step, once};
use crate::text::{cut_characters, escape_html, is_error, object_title, without_mentions};

/// The method that answers 200 whatever happens.
const CHAT_POST_MESSAGE: &str = "https://slack.com/api/chat.postMessage";
/// Slack takes 40,000 characters in a message; the rest is for titles and metadata.
const TEXT_CHARACTERS_MAX: usize = 39_000;
/// Slack cuts longer fallbacks.
const FALLBACK_CHARACTERS_MAX: usize = 3000;

pub(super) fn slack(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let url = job.url("Slack hook")?;
    if let Some(answer) = answers.first().filter(|_| url.as_str() == CHAT_POST_MESSAGE) {
        return judge(answer);
    }
    once(answers, || {
        let event = &job.event;
        let username = match job.target.username.as_str() {
            "" => &event.reporting_controller,
            username => username,
        };
        let title = object_title(&event.involved_object);
        let first_line = event.message.split('\n').next().unwrap_or_default();
        let fallback = cut_characters(&format!("{title}: {first_line}"), FALLBACK_CHARACTERS_MAX);
        let text = cut_characters(&event.message, TEXT_CHARACTERS_MAX);
        let attachment = json!({
            "fallback": escape_html(&fallback),
            "color": if is_error(event) { "danger" } else { "good" },
            "author_name": title,
            "text": escape_html(&text),
            "mrkdwn_in": ["text"],
            "fields": fields(job, escape_html),
        });
        let payload = payload(&job.target.channel, username, &attachment);
        let request = Request::message(url, &payload);
        Ok(match job.target.token.expose() {
            "" => request,
            token => request.bearer(token),
        })
    })
}

/// `chat.postMessage` says in its answer whether it worked.
fn judge(answer: &Answer) -> Result<Step, ProviderError> {
    let refused = |answer: String| ProviderError::Refused { failed: POST_FAILED, answer };
    let Ok(value) = serde_json::from_slice::<Value>(&answer.body) else {
        return Err(refused("unable to unmarshal response body: it is not JSON".to_owned()));
    };
    if value.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(Step::Done);
    }
    let error = value.get("error").and_then(Value::as_str).unwrap_or_default();
    Err(refused(format!("Slack responded with error: {}", cut_characters(error, 256))))
}

pub(super) fn rocket(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = job.url("Rocket hook")?;
        let event = &job.event;
        let attachment = json!({
            "fallback": "",
            "color": if is_error(event) { "#FF0000" } else { "#0076D7" },
            "author_name": object_title(&event.involved_object),
            "text": without_mentions(&cut_characters(&event.message, TEXT_CHARACTERS_MAX)),
            "mrkdwn_in": ["text"],
            "fields": fields(job, without_mentions),
        });
        Ok(Request::message(url, &payload(&job.target.channel, &job.target.username, &attachment)))
    })
}

fn payload(channel: &str, username: &str, attachment: &Value) -> Value {
    json!({
        "channel": channel, "username": username, "icon_url": "", "icon_emoji": "",
        "attachments": [attachment],
    })
}

fn fields(job: &Job, plain: impl Fn(&str) -> String + Copy) -> Vec<Value> {
    let field = |(key, value): (&String, &String)| json!({"title": plain(key), "value": job.shown(key, value, plain), "short": false});
    job.event.metadata.iter().map(field).collect()
}
