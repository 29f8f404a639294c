//! Matrix rooms.

use std::fmt::Write as _;

use serde_json::json;
use sha1::{Digest as _, Sha1};
use url::Url;

use super::{Answer, Job, Method, ProviderError, Request, Step, once};
use crate::text::{cut_bytes, is_error, object_title, without_mentions};

/// Matrix refuses events of more than 64 KiB, JSON escapes included.
const MESSAGE_BYTES_MAX: usize = 24 * 1024;
const METADATA_BYTES_MAX: usize = 8 * 1024;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = url(job)?;
        let event = &job.event;
        let emoji = if is_error(event) { "🚨" } else { "💫" };
        let mut lines = String::new();
        for (key, value) in &event.metadata {
            let _ = writeln!(lines, "- {key}: {}", job.shown(key, value, without_mentions));
        }
        let body = format!(
            "{emoji} {}\n{}\n{}",
            object_title(&event.involved_object),
            cut_bytes(&without_mentions(&event.message), MESSAGE_BYTES_MAX),
            cut_bytes(&lines, METADATA_BYTES_MAX)
        );
        let payload = json!({"body": body, "msgtype": "m.text"});
        let mut request = Request::message(url, &payload).bearer(job.target.token.expose());
        request.method = Method::Put;
        Ok(request)
    })
}

/// The room is put in as it is written, but cannot leave its place in the path.
fn url(job: &Job) -> Result<Url, ProviderError> {
    let server = job.url("Matrix homeserver")?;
    let room = &job.target.channel;
    if room.is_empty()
        || room.contains(['/', '?', '#', '\\']) && !room.starts_with('#')
        || room.contains("..")
    {
        return Err(ProviderError::setting("invalid Matrix room id: the channel must be the id of a room"));
    }
    let transaction = hex::encode(Sha1::digest(job.event.to_json()));
    let base = server.as_str().trim_end_matches('/');
    // `#alias` would otherwise end the path.
    let room = room.replace('#', "%23");
    let text = format!("{base}/_matrix/client/r0/rooms/{room}/send/m.room.message/{transaction}");
    Url::parse(&text).map_err(|_| ProviderError::Address { what: "Matrix homeserver" })
}
