//! What all comments on pull and merge requests share.

use serde_json::Value;

use super::{Answer, Job, ProviderError, Request, Step};
use crate::event::CHANGE_REQUEST;
use crate::text::markdown;

/// The shortest limit of the services is that of GitHub.
const BODY_CHARACTERS_MAX: usize = 65_000;

/// The requests of a service, and where its answers hold what.
pub(super) struct Service<'a> {
    /// The user the comments are written as, if it is known.
    pub(super) login: Option<String>,
    /// Asks who the user is.
    pub(super) user: Request,
    /// Where the answer to that has the name of the user.
    pub(super) user_pointer: &'a str,
    /// Lists comments, the oldest first.
    pub(super) list: Request,
    /// Where a comment has the name of its author.
    pub(super) author_pointer: &'a str,
    /// Writes a comment.
    pub(super) create: &'a dyn Fn(&str) -> Request,
    /// Replaces the comment with the id.
    pub(super) update: &'a dyn Fn(&str, &str) -> Request,
}

/// The number of the pull or merge request.
pub(super) fn number(job: &Job) -> Result<String, ProviderError> {
    let text = job.event.metadata.get(CHANGE_REQUEST).map(String::as_str).unwrap_or_default();
    let number: Result<i64, _> = text.parse();
    number.map(|number| number.to_string()).map_err(|_| ProviderError::ChangeRequest(text.to_owned()))
}

/// What is found again in the comment of the object, invisible to readers.
fn marker(job: &Job, key: &str) -> String {
    format!("<!-- {key}:{}/{} -->", job.target.uid, job.event.involved_object.identity())
}

/// Texts of events can neither forge a marker nor hide what follows.
fn plain(text: &str) -> String {
    text.replace("<!--", "&lt;!--")
}

pub(super) fn next(
    job: &Job,
    answers: &[Answer],
    key: &str,
    service: &Service<'_>,
    plain_line: impl Fn(&str) -> String,
) -> Result<Step, ProviderError> {
    if job.target.uid.is_empty() {
        return Err(ProviderError::setting("provider UID cannot be empty"));
    }
    let (login, answers) = match (&service.login, answers) {
        (Some(login), answers) => (login.clone(), answers),
        (None, []) => return Ok(service.user.clone().into()),
        (None, [user, rest @ ..]) => {
            let failed = service.user.failed;
            let user: Value = user.json(failed)?;
            let login = user.pointer(service.user_pointer).and_then(Value::as_str);
            (login.ok_or(ProviderError::Unexpected(failed))?.to_owned(), rest)
        }
    };
    let [comments, rest @ ..] = answers else { return Ok(service.list.clone().into()) };
    let comments: Vec<Value> = comments.json(service.list.failed)?;
    let marker = marker(job, key);
    let is_ours = |comment: &&Value| {
        let author = comment.pointer(service.author_pointer).and_then(Value::as_str);
        let body = comment.get("body").and_then(Value::as_str).unwrap_or_default();
        author == Some(&login) && body.contains(&marker)
    };
    let id = comments.iter().find(is_ours).and_then(|comment| comment.get("id")).and_then(Value::as_i64);
    let text = markdown(&job.event, |text| plain_line(&plain(text)), BODY_CHARACTERS_MAX);
    let body = format!("{marker}\n\n{text}");
    let write = match id {
        Some(id) => (service.update)(&id.to_string(), &body),
        None => (service.create)(&body),
    };
    match rest {
        [] => Ok(write.into()),
        [written, ..] => written.success(write.failed).map(|()| Step::Done),
    }
}
