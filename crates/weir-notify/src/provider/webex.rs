//! Webex.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::{Answer, Job, ProviderError, Request, Step, once};
use crate::text::{cut_bytes, escape_html, is_error, object_title};

/// Webex refuses longer messages.
const MARKDOWN_BYTES_MAX: usize = 7439;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = job.url("Webex hook")?;
        let mut payload = Map::new();
        if !job.target.channel.is_empty() {
            payload.insert("roomId".to_owned(), job.target.channel.clone().into());
        }
        payload.insert("markdown".to_owned(), markdown(job).into());
        Ok(Request::message(url, &Value::Object(payload)).bearer(job.target.token.expose()))
    })
}

fn markdown(job: &Job) -> String {
    let event = &job.event;
    let emoji = if is_error(event) { "💣" } else { "✅" };
    let head = format!("{emoji} **{}**\n", object_title(&event.involved_object));
    let mut tail = "\n".to_owned();
    for (key, value) in &event.metadata {
        let _ = writeln!(tail, ">**{}**: {}", escape_html(key), job.shown(key, value, escape_html));
    }
    let tail = cut_bytes(&tail, MARKDOWN_BYTES_MAX / 2);
    let room = MARKDOWN_BYTES_MAX.saturating_sub(head.len() + tail.len());
    format!("{head}{}{tail}", cut_bytes(&escape_html(&event.message), room))
}
