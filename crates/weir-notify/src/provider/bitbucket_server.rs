//! Bitbucket Server and Data Center: build statuses.

use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};
use url::Url;

use super::status::{self, States};
use super::{Answer, Job, Method, ProviderError, Request, Step};
use crate::git_address::GitAddress;
use crate::text::{cut_characters, status_name};

const STATES: States = States {
    service: "bitbucket server",
    success: "SUCCESSFUL",
    failure: "FAILED",
    progressing: None,
    description_characters_max: 255,
};
const NAME_CHARACTERS_MAX: usize = 255;

/// The server with its context path, the project, and the repository of an address.
fn repository(address: &str) -> Result<(Url, String, String), ProviderError> {
    let failed = |why: &str| ProviderError::setting(format!("could not parse git address: {why}"));
    let mut url = Url::parse(address).map_err(|_| failed("it is no URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        let why = format!("unsupported scheme type in address: {}. Must be http or https", url.scheme());
        return Err(failed(&why));
    }
    // Both fail only for URLs without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    let path = url.path().to_owned();
    let path = path.strip_suffix(".git").unwrap_or(&path);
    let (context, id) = path
        .rsplit_once("/scm/")
        .ok_or_else(|| failed("supplied provider address is not http(s) git clone url"))?;
    let (project, repository) = id
        .split_once('/')
        .filter(|(project, name)| !project.is_empty() && !name.is_empty() && !name.contains('/'))
        .ok_or_else(|| failed(&format!("invalid repository id \"{id}\"")))?;
    url.set_path(context);
    Ok((url, project.to_owned(), repository.to_owned()))
}

/// An answer below 400 is a success.
fn judge(answer: &Answer, failed: &'static str) -> Result<(), ProviderError> {
    if answer.status < 400 {
        return Ok(());
    }
    let text = reqwest::StatusCode::from_u16(answer.status).ok();
    let text = text.and_then(|status| status.canonical_reason()).unwrap_or_default();
    Err(ProviderError::Refused { failed, answer: format!("{} - {text}", answer.status) })
}

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    const GET: &str = "could not get existing commit status";
    const CREATE: &str = "could not post build commit status";
    let target = &job.target;
    let (server, project, repository) = repository(target.address.expose())?;
    status::id(job)?;
    let (token, username, password) = (target.token.expose(), &target.username, target.password.expose());
    if token.is_empty() && (username.is_empty() || password.is_empty()) {
        return Err(ProviderError::setting(
            "invalid credentials, expected to be one of username/password or API Token",
        ));
    }
    let Some(status) = status::of(job, &STATES)? else { return Ok(Step::Done) };
    let key = hex::encode(Sha1::digest(status.id));
    let name = format!("{} [{}]", status_name(&job.event.involved_object), status.description);
    let name = cut_characters(&name, NAME_CHARACTERS_MAX);
    let request = |method, query: &[(&str, &str)], failed| {
        let segments = [
            "rest",
            "api",
            "latest",
            "projects",
            &project,
            "repos",
            &repository,
            "commits",
            &status.commit,
            "builds",
        ];
        let request = Request::new(method, GitAddress::url(&server, &segments, query), failed)
            .header("X-Atlassian-Token", "no-check")
            .header("X-Requested-With", "XMLHttpRequest")
            .retried();
        if token.is_empty() { request.basic(username, password) } else { request.bearer(token) }
    };
    match answers {
        [] => Ok(request(Method::Get, &[("key", &key)], GET).into()),
        [held] => {
            if held.status != 404 {
                judge(held, GET)?;
            }
            if held.status == 200 {
                let held: Value = held.json(GET)?;
                let is = |field: &str, value: &str| held.get(field).and_then(Value::as_str) == Some(value);
                let same = is("key", &key) && is("state", status.state) && is("name", &name);
                if same && is("description", &status.description) {
                    return Ok(Step::Done);
                }
            }
            // The address without a user: it is shown in the browser.
            let mut url = target.address.expose().to_owned();
            if let Ok(mut parsed) = Url::parse(&url)
                && (!parsed.username().is_empty() || parsed.password().is_some())
            {
                let _ = parsed.set_username("");
                let _ = parsed.set_password(None);
                url = parsed.into();
            }
            let payload = json!({
                "key": key, "state": status.state, "url": url, "description": status.description, "name": name,
            });
            Ok(request(Method::Post, &[], CREATE).json(&payload).into())
        }
        [_, created, ..] => judge(created, CREATE).map(|()| Step::Done),
    }
}
