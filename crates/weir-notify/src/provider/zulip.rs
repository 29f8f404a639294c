//! Zulip streams.

use super::{Answer, Job, Method, ProviderError, Request, Step, once};
use crate::text::markdown;

/// The longest content.
const CONTENT_CHARACTERS_MAX: usize = 10_000;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let mut url = job.url("Zulip endpoint")?;
        url.set_path("/api/v1/messages");
        let channel = &job.target.channel;
        let (stream, topic) = channel
            .split_once('/')
            .filter(|(stream, topic)| !stream.is_empty() && !topic.is_empty())
            .ok_or_else(|| {
                ProviderError::setting(format!(
                    "invalid Zulip channel format, expected <channel>/<topic>, got '{channel}'"
                ))
            })?;
        let content = markdown(&job.event, plain, CONTENT_CHARACTERS_MAX);
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        let form = form
            .append_pair("content", &content)
            .append_pair("to", stream)
            .append_pair("topic", topic)
            .append_pair("type", "stream")
            .finish();
        let mut request = Request::new(Method::Post, url, "sending to Zulip failed")
            .body("application/x-www-form-urlencoded", form.into_bytes())
            .retried();
        let (username, password) = (&job.target.username, job.target.password.expose());
        if !username.is_empty() || !password.is_empty() {
            request = request.basic(username, password);
        }
        Ok(request)
    })
}

/// `@**all**` and `@*group*` mention people.
fn plain(text: &str) -> String {
    text.replace("@*", "@\u{200b}*").replace("@_*", "@\u{200b}_*")
}
