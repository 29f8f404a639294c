//! Google Chat: cards.

use serde_json::{Value, json};

use super::{Answer, Job, ProviderError, Request, Step, once};
use crate::text::{cut_bytes, escape_html, is_error, object_title};

/// Google Chat refuses cards of more than 32 KB.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;
const VALUE_BYTES_MAX: usize = 1024;
const WIDGETS_MAX: usize = 10;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = job.url("Google Chat hook")?;
        Ok(Request::message(url, &payload(job)))
    })
}

/// Escaped, and cut before that, so that no entity is torn.
fn plain(text: &str, max: usize) -> String {
    let mut end = max;
    loop {
        let escaped = escape_html(&cut_bytes(text, end));
        if escaped.len() <= max {
            return escaped;
        }
        end = end.saturating_sub((escaped.len() - max).max(8));
    }
}

fn payload(job: &Job) -> Value {
    let event = &job.event;
    let mut text = plain(&event.message, MESSAGE_BYTES_MAX);
    if is_error(event) {
        text = format!("<font color=\"#ff0000\">{text}</font>");
    }
    let message = json!({"textParagraph": {"text": text}, "keyValue": null});
    let mut sections = vec![json!({"header": "", "widgets": [message]})];
    let widget = |(key, value): (&String, &String)| {
        let content = job.shown(key, value, |value| plain(value, VALUE_BYTES_MAX));
        json!({
            "textParagraph": null,
            "keyValue": {
                "topLabel": cut_bytes(key, VALUE_BYTES_MAX / 4), "content": content, "contentMultiline": false,
                "bottomLabel": null, "icon": null,
            },
        })
    };
    let widgets: Vec<Value> = event.metadata.iter().take(WIDGETS_MAX).map(widget).collect();
    if !widgets.is_empty() {
        sections.push(json!({"header": "", "widgets": widgets}));
    }
    let header = json!({
        "title": object_title(&event.involved_object), "subtitle": event.reporting_controller,
        "imageUrl": null, "imageStyle": null,
    });
    json!({"cards": [{"header": header, "sections": sections}]})
}
