//! GitLab: commit statuses, notes on merge requests.

use serde::Deserialize;
use serde_json::json;

use super::comment::{self, Service};
use super::status::{self, States};
use super::{Answer, Job, Method, ProviderError, Request, Step};
use crate::git_address::GitAddress;

const STATES: States = States {
    service: "gitlab",
    success: "success",
    failure: "failed",
    progressing: None,
    description_characters_max: 255,
};

struct Api {
    address: GitAddress,
    token: String,
}

impl Api {
    fn new(job: &Job) -> Result<Self, ProviderError> {
        let token = job.target.token_or_password().expose();
        if token.is_empty() {
            return Err(ProviderError::setting("gitlab token cannot be empty"));
        }
        let address = GitAddress::parse(job.target.address.expose())?;
        if address.repository.is_empty() {
            return Err(ProviderError::setting("invalid repository id ''"));
        }
        Ok(Self { address, token: token.to_owned() })
    }

    fn project(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        failed: &'static str,
    ) -> Request {
        let segments = ["projects", &self.address.repository];
        let segments: Vec<&str> = segments.into_iter().chain(path.iter().copied()).collect();
        self.request(method, &segments, query, failed)
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        failed: &'static str,
    ) -> Request {
        let segments: Vec<&str> = ["api", "v4"].into_iter().chain(path.iter().copied()).collect();
        Request::new(method, GitAddress::url(&self.address.service, &segments, query), failed)
            .header("Accept", "application/json")
            .header("Private-Token", self.token.as_str())
            .retried()
    }
}

#[derive(Deserialize)]
struct Held {
    #[serde(default)]
    sha: String,
    #[serde(default)]
    status: String,
    description: Option<String>,
    #[serde(default)]
    name: String,
}

pub(super) fn status(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    const LIST: &str = "unable to list commit status";
    const CREATE: &str = "unable to set commit status";
    let api = Api::new(job)?;
    let Some(status) = status::of(job, &STATES)? else { return Ok(Step::Done) };
    match answers {
        [] => {
            let path = ["repository", "commits", &status.commit, "statuses"];
            Ok(api.project(Method::Get, &path, &[("name", status.id)], LIST).into())
        }
        [held] => {
            let held: Vec<Held> = held.json(LIST)?;
            let is_same = |held: &Held| {
                held.sha == status.commit
                    && held.status == status.state
                    && held.description.as_deref() == Some(&status.description)
                    && held.name == status.id
            };
            if held.iter().any(is_same) {
                return Ok(Step::Done);
            }
            let payload =
                json!({"state": status.state, "name": status.id, "description": status.description});
            Ok(api.project(Method::Post, &["statuses", &status.commit], &[], CREATE).json(&payload).into())
        }
        [_, created, ..] => created.success(CREATE).map(|()| Step::Done),
    }
}

pub(super) fn comment(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let api = Api::new(job)?;
    let number = comment::number(job)?;
    let list = [("sort", "asc"), ("order_by", "created_at"), ("per_page", "100")];
    let notes = ["merge_requests", &number, "notes"];
    let service = Service {
        login: None,
        user: api.request(Method::Get, &["user"], &[], "failed to get authenticated user info"),
        user_pointer: "/username",
        list: api.project(Method::Get, &notes, &list, "failed to list merge request notes"),
        author_pointer: "/author/username",
        create: &|body| {
            let failed = "failed to create merge request note";
            api.project(Method::Post, &notes, &[], failed).json(&json!({"body": body}))
        },
        update: &|id, body| {
            let failed = "failed to update merge request note";
            let path = ["merge_requests", &number, "notes", id];
            api.project(Method::Put, &path, &[], failed).json(&json!({"body": body}))
        },
    };
    comment::next(job, answers, "flux-mr-comment-key", &service, without_commands)
}

/// Lines that begin with `/` would be commands: `/merge`, `/close`.
fn without_commands(text: &str) -> String {
    let line = |line: &str| match line.trim_start().strip_prefix('/') {
        Some(rest) => format!("\\/{rest}"),
        None => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}
