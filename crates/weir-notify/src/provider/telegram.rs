//! Telegram.

use std::fmt::Write as _;

use serde_json::json;

use super::{Answer, Job, Method, ProviderError, Request, Step, once};
use crate::git_address::GitAddress;
use crate::text::{cut_characters, is_error};

/// The longest text, counted without its markup.
const TEXT_CHARACTERS_MAX: usize = 4096;
const VALUE_CHARACTERS_MAX: usize = 256;
const ENTRIES_MAX: usize = 6;
/// Characters that mean something in MarkdownV2.
const SPECIAL: &str = r"\.-_[]()~>`#+=|{}!*";

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let (channel, token) = (job.target.channel.as_str(), job.target.token.expose());
        if channel.is_empty() {
            return Err(ProviderError::setting("empty Telegram channel"));
        }
        if token.is_empty() {
            return Err(ProviderError::setting("empty Telegram token"));
        }
        let url = GitAddress::url(&job.endpoints.telegram, &[&format!("bot{token}"), "sendMessage"], &[]);
        let (chat, thread) = match channel.split_once(':') {
            Some((chat, thread)) => (chat, thread),
            None => (channel, ""),
        };
        let mut payload = json!({"chat_id": chat, "text": text(job), "parse_mode": "MarkdownV2"});
        if !thread.is_empty() {
            payload["message_thread_id"] = thread.into();
        }
        Ok(Request::new(Method::Post, url, "sendMessage failed").json(&payload).retried())
    })
}

fn text(job: &Job) -> String {
    let event = &job.event;
    let object = &event.involved_object;
    let emoji = if is_error(event) { "🚨" } else { "💫" };
    let heading = format!("{emoji} {}/{}/{}", object.kind.to_lowercase(), object.name, object.namespace);
    // Cut before anything is escaped: Telegram counts what is left when the markup is gone. It counts UTF-16
    // units, of which emoji have two.
    let (mut lines, mut room) = (String::new(), TEXT_CHARACTERS_MAX - 2);
    let mut take = |text: &str, max: usize| {
        let units = |text: &str| text.encode_utf16().count();
        let mut cut = cut_characters(text, max.min(room));
        while units(&cut) > max.min(room) {
            let length = cut.chars().count().saturating_sub(units(&cut) - max.min(room));
            cut = cut_characters(text, length);
        }
        room -= units(&cut);
        escape(&cut)
    };
    let heading = take(&heading, 512);
    for (key, value) in event.metadata.iter().take(ENTRIES_MAX) {
        let key = take(key, VALUE_CHARACTERS_MAX / 4);
        let value = take(value, VALUE_CHARACTERS_MAX);
        // The marks around them: "- ", ": " and the end of the line.
        let _ = take("     ", 5);
        let _ = writeln!(lines, "\\- *{key}*: {value}");
    }
    let message = take(&event.message, TEXT_CHARACTERS_MAX);
    format!("*{heading}*\n{message}\n{lines}")
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if SPECIAL.contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
