//! Microsoft Teams: adaptive cards, and the cards of the former connectors.

use serde_json::{Value, json};

use super::{Answer, Job, ProviderError, Request, Step, once};
use crate::text::{cut_bytes, fit, is_error, object_title, summary_first};

/// Hosts of the former connectors.
const CONNECTOR_HOSTS: &str = ".webhook.office.com";
/// Teams refuses larger messages.
const CARD_BYTES_MAX: usize = 28 << 10;
const FACTS_MAX: usize = 16;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = job.url("MS Teams webhook")?;
        let is_connector = url.host_str().is_some_and(|host| host.ends_with(CONNECTOR_HOSTS));
        let card = if is_connector { message_card } else { adaptive_card };
        let payload = fit(CARD_BYTES_MAX, |room| card(job, room));
        Ok(Request::message(url, &payload))
    })
}

/// Cards show Markdown: links that look like other links are taken apart.
fn plain(text: &str) -> String {
    text.replace("](", "]\\(")
}

/// A quarter of the room is for metadata.
fn facts(job: &Job, key_name: &str, room: usize) -> Vec<Value> {
    let fact = |(key, value): (&String, &String)| {
        let value = cut_bytes(&job.shown(key, value, plain), room / 4 / FACTS_MAX);
        json!({key_name: cut_bytes(key, 256), "value": value})
    };
    summary_first(&job.event.metadata).take(FACTS_MAX).map(fact).collect()
}

fn adaptive_card(job: &Job, room: usize) -> Value {
    let mut message = json!({
        "type": "TextBlock", "text": cut_bytes(&plain(&job.event.message), room * 3 / 4), "wrap": true,
    });
    if is_error(&job.event) {
        message["color"] = "attention".into();
    }
    let mut set = json!({"type": "FactSet"});
    let facts = facts(job, "title", room);
    if !facts.is_empty() {
        set["facts"] = facts.into();
    }
    let title = json!({
        "type": "TextBlock", "text": object_title(&job.event.involved_object),
        "size": "large", "weight": "bolder", "wrap": true,
    });
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [{"type": "Container", "items": [title, message, set]}],
                "msteams": {"width": "Full"},
            },
        }],
    })
}

fn message_card(job: &Job, room: usize) -> Value {
    let title = object_title(&job.event.involved_object);
    json!({
        "@type": "MessageCard",
        "@context": "http://schema.org/extensions",
        "themeColor": if is_error(&job.event) { "FF0000" } else { "0076D7" },
        "summary": title,
        "sections": [{
            "activityTitle": cut_bytes(&plain(&job.event.message), room * 3 / 4),
            "activitySubtitle": title,
            "facts": facts(job, "name", room),
        }],
    })
}
