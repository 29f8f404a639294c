//! Lark and Feishu: interactive cards.

use std::fmt::Write as _;

use serde_json::json;

use super::{Answer, Job, Method, ProviderError, Request, Step, once};
use crate::text::{cut_bytes, fit, is_error, object_title};

/// Lark refuses larger cards.
const CARD_BYTES_MAX: usize = 30 << 10;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = job.url("Lark hook")?;
        let event = &job.event;
        let (emoji, template) = if is_error(event) { ("🚨", "red") } else { ("💫", "turquoise") };
        let mut lines = String::new();
        for (key, value) in &event.metadata {
            let _ = writeln!(lines, "{}: {}", plain(key), job.shown(key, value, plain));
        }
        let title = format!("{emoji} {}", object_title(&event.involved_object));
        let message = plain(&event.message);
        let payload = fit(CARD_BYTES_MAX, |room| {
            let lines = cut_bytes(&lines, room / 3);
            let content = format!("**{}**\n\n{lines}", cut_bytes(&message, room * 2 / 3));
            json!({
            "msg_type": "interactive",
            "card": {
                "config": {"wide_screen_mode": true},
                "header": {"title": {"tag": "plain_text", "content": title}, "template": template},
                "elements": [{"tag": "div", "text": {"tag": "lark_md", "content": content}}],
            },
            })
        });
        Ok(Request::new(Method::Post, url, "sending to Lark failed").json(&payload).retried())
    })
}

/// Tags mention people; this shows them as they are written.
fn plain(text: &str) -> String {
    text.replace('<', "&#60;").replace('>', "&#62;")
}
