//! Bitbucket Cloud: build statuses.

use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use super::status::{self, States};
use super::{Answer, Job, Method, ProviderError, Request, Step};
use crate::git_address::GitAddress;
use crate::text::{cut_characters, status_name};

const STATES: States = States {
    service: "bitbucket",
    success: "SUCCESSFUL",
    failure: "FAILED",
    progressing: None,
    description_characters_max: 255,
};

const NAME_CHARACTERS_MAX: usize = 255;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    const GET: &str = "could not get commit status";
    const CREATE: &str = "could not create commit status";
    let token = job.target.token.expose();
    if token.is_empty() {
        return Err(ProviderError::setting("bitbucket token cannot be empty"));
    }
    status::id(job)?;
    let (username, password) = token
        .split_once(':')
        .filter(|(_, password)| !password.contains(':'))
        .ok_or_else(|| ProviderError::setting("invalid token format, expected to be <user>:<password>"))?;
    let address = GitAddress::parse(job.target.address.expose())?;
    let [owner, repository] = address.parts()?;
    let Some(status) = status::of(job, &STATES)? else { return Ok(Step::Done) };
    let key = hex::encode(Sha1::digest(status.id));
    let request = |method, last: &[&str], failed| {
        let segments = ["repositories", owner, repository, "commit", &status.commit, "statuses", "build"];
        let segments: Vec<&str> = segments.into_iter().chain(last.iter().copied()).collect();
        Request::new(method, GitAddress::url(&job.endpoints.bitbucket, &segments, &[]), failed)
            .header("Accept", "application/json")
            .basic(username, password)
    };
    match answers {
        [] => Ok(request(Method::Get, &[&key], GET).into()),
        [held] => {
            if held.status != 404 {
                let held: Value = held.json(GET)?;
                let is = |field: &str, value: &str| held.get(field).and_then(Value::as_str) == Some(value);
                if is("state", status.state) && is("description", &status.description) {
                    return Ok(Step::Done);
                }
            }
            let payload = json!({
                "state": status.state,
                "key": key,
                "name": cut_characters(&status_name(&job.event.involved_object), NAME_CHARACTERS_MAX),
                "description": status.description,
                "url": "https://bitbucket.org",
            });
            Ok(request(Method::Post, &[], CREATE).json(&payload).into())
        }
        [_, created, ..] => created.success(CREATE).map(|()| Step::Done),
    }
}
