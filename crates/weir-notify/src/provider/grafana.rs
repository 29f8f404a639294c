//! Grafana annotations.

use serde_json::json;

use super::{Answer, Job, ProviderError, Request, Step, once};
use crate::text::object_title;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = job.url("Grafana")?;
        let event = &job.event;
        let object = &event.involved_object;
        let mut tags = vec!["flux".to_owned(), event.reporting_controller.clone()];
        let plain = |text: &str| text.replace(':', "|");
        tags.extend(event.metadata.iter().map(|(key, value)| format!("{}: {}", plain(key), plain(value))));
        tags.push(format!("kind: {}", object.kind));
        tags.push(format!("name: {}", object.name));
        tags.push(format!("namespace: {}", object.namespace));
        let payload = json!({"when": job.seconds(), "text": object_title(object), "tags": tags});
        Ok(authorized(Request::message(url, &payload), job, false))
    })
}

/// The request with the token or the login of the target; `prefers_login` if it has both.
pub(super) fn authorized(request: Request, job: &Job, prefers_login: bool) -> Request {
    let token = job.target.token.expose();
    let (username, password) = (&job.target.username, job.target.password.expose());
    let has_login = !username.is_empty() && !password.is_empty();
    if has_login && (prefers_login || token.is_empty()) {
        request.basic(username, password)
    } else if token.is_empty() {
        request
    } else {
        request.bearer(token)
    }
}
