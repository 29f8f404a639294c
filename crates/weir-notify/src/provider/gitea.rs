//! Gitea and Forgejo: commit statuses, comments on pull requests.

use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::comment::{self, Service};
use super::status::{self, States};
use super::{Answer, Job, Method, ProviderError, Request, Step};
use crate::git_address::GitAddress;

const STATES: States = States {
    service: "gitea",
    success: "success",
    failure: "failure",
    progressing: Some("pending"),
    description_characters_max: 255,
};

struct Api {
    base: Url,
    owner: String,
    repository: String,
    token: String,
}

impl Api {
    fn new(job: &Job) -> Result<Self, ProviderError> {
        let token = job.target.token_or_password().expose();
        if token.is_empty() {
            return Err(ProviderError::setting("gitea token cannot be empty"));
        }
        let address = GitAddress::parse(job.target.address.expose())?;
        let [owner, repository] = address.parts()?;
        Ok(Self {
            base: GitAddress::url(&address.service, &["api", "v1"], &[]),
            owner: owner.to_owned(),
            repository: repository.to_owned(),
            token: token.to_owned(),
        })
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        failed: &'static str,
    ) -> Request {
        let segments = ["repos", &self.owner, &self.repository];
        let segments: Vec<&str> = segments.into_iter().chain(path.iter().copied()).collect();
        self.plain(method, &segments, query, failed)
    }

    fn plain(&self, method: Method, path: &[&str], query: &[(&str, &str)], failed: &'static str) -> Request {
        Request::new(method, GitAddress::url(&self.base, path, query), failed)
            .header("Accept", "application/json")
            .header("Authorization", format!("token {}", self.token))
    }
}

#[derive(Deserialize)]
struct Held {
    #[serde(default)]
    context: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    description: String,
}

pub(super) fn status(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    const LIST: &str = "could not list commit statuses";
    const CREATE: &str = "could not create commit status";
    let api = Api::new(job)?;
    let Some(status) = status::of(job, &STATES)? else { return Ok(Step::Done) };
    match answers {
        [] => {
            let path = ["commits", &status.commit, "statuses"];
            Ok(api.request(Method::Get, &path, &[("page", "1"), ("limit", "50")], LIST).into())
        }
        [held] => {
            let held: Vec<Held> = held.json(LIST)?;
            let latest = held.iter().find(|held| {
                held.context == status.id && !held.status.is_empty() && !held.description.is_empty()
            });
            if latest
                .is_some_and(|held| held.status == status.state && held.description == status.description)
            {
                return Ok(Step::Done);
            }
            let payload = json!({
                "state": status.state, "target_url": "", "description": status.description,
                "context": status.id,
            });
            Ok(api.request(Method::Post, &["statuses", &status.commit], &[], CREATE).json(&payload).into())
        }
        [_, created, ..] => created.success(CREATE).map(|()| Step::Done),
    }
}

pub(super) fn comment(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let api = Api::new(job)?;
    let number = comment::number(job)?;
    let comments = ["issues", &number, "comments"];
    let list = [("page", "1"), ("limit", "100")];
    let service = Service {
        login: None,
        user: api.plain(Method::Get, &["user"], &[], "failed to get authenticated user info"),
        user_pointer: "/login",
        list: api.request(Method::Get, &comments, &list, "failed to list pull request comments"),
        author_pointer: "/user/login",
        create: &|body| {
            let failed = "failed to create pull request comment";
            api.request(Method::Post, &comments, &[], failed).json(&json!({"body": body}))
        },
        update: &|id, body| {
            let failed = "failed to update pull request comment";
            let path = ["issues", "comments", id];
            api.request(Method::Patch, &path, &[], failed).json(&json!({"body": body}))
        },
    };
    comment::next(job, answers, "flux-pr-comment-key", &service, str::to_owned)
}
