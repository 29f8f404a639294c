//! GitHub: commit statuses, repository dispatches, comments on pull requests.

use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::comment::{self, Service};
use super::status::{self, States, Status};
use super::{Answer, Job, Method, ProviderError, Request, Step, once};
use crate::git_address::GitAddress;
use crate::text::cut_characters;

const STATES: States = States {
    service: "github",
    success: "success",
    failure: "failure",
    progressing: None,
    description_characters_max: 140,
};
/// GitHub refuses longer event types.
const EVENT_TYPE_CHARACTERS_MAX: usize = 100;
const API_VERSION: &str = "2022-11-28";

/// Where the API is, the repository, and how requests are authenticated.
struct Api {
    base: Url,
    owner: String,
    repository: String,
    token: String,
    slug: Option<String>,
}

impl Api {
    fn new(job: &Job) -> Result<Self, ProviderError> {
        let target = &job.target;
        let (token, slug) = match (target.token_or_password().expose(), &job.access) {
            ("", Some(access)) => (access.token.expose(), access.app_slug.clone()),
            // The token of the app comes before the first request.
            ("", None) if target.data.contains_key("githubAppID") => ("", None),
            ("", None) => {
                return Err(ProviderError::setting("github token or github app details must be specified"));
            }
            (token, _) => (token, None),
        };
        let address = GitAddress::parse(target.address.expose())?;
        let [owner, repository] = address.parts()?;
        Ok(Self {
            base: base(&address.service, &job.endpoints.github),
            owner: owner.to_owned(),
            repository: repository.to_owned(),
            token: token.to_owned(),
            slug,
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
            .header("Accept", "application/vnd.github+json")
            .header("X-GitHub-Api-Version", API_VERSION)
            .bearer(&self.token)
    }
}

/// The API of a GitHub service.
pub(crate) fn base(service: &Url, public: &Url) -> Url {
    let host = service.host_str().unwrap_or_default();
    if host == "github.com" && service.port().is_none() {
        return public.clone();
    }
    if host.starts_with("api.") || host.contains(".api.") {
        return service.clone();
    }
    GitAddress::url(service, &["api", "v3"], &[])
}

#[derive(Deserialize)]
struct Held {
    context: Option<String>,
    state: Option<String>,
    description: Option<String>,
}

/// Whether the latest status with the same id says the same.
fn is_duplicate(held: &[Held], status: &Status<'_>) -> bool {
    held.iter()
        .find(|held| {
            held.context.as_deref() == Some(status.id) && held.state.is_some() && held.description.is_some()
        })
        .is_some_and(|held| {
            held.state.as_deref() == Some(status.state)
                && held.description.as_deref() == Some(&status.description)
        })
}

pub(super) fn status(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    const LIST: &str = "could not list commit statuses";
    const CREATE: &str = "could not create commit status";
    let api = Api::new(job)?;
    let Some(status) = status::of(job, &STATES)? else { return Ok(Step::Done) };
    match answers {
        [] => {
            let path = ["commits", &status.commit, "statuses"];
            Ok(api.request(Method::Get, &path, &[("per_page", "50")], LIST).into())
        }
        [held] if is_duplicate(&held.json::<Vec<Held>>(LIST)?, &status) => Ok(Step::Done),
        [_] => {
            let payload = json!({
                "state": status.state, "description": status.description, "context": status.id,
            });
            let path = ["statuses", &status.commit];
            Ok(api.request(Method::Post, &path, &[], CREATE).json(&payload).into())
        }
        [_, created, ..] => created.success(CREATE).map(|()| Step::Done),
    }
}

pub(super) fn dispatch(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let api = Api::new(job)?;
        let object = &job.event.involved_object;
        let payload = json!({
            "event_type": cut_characters(
                &format!("{}/{}.{}", object.kind, object.name, object.namespace),
                EVENT_TYPE_CHARACTERS_MAX,
            ),
            "client_payload": job.event,
        });
        let failed = "could not send github repository dispatch webhook";
        Ok(api.request(Method::Post, &["dispatches"], &[], failed).json(&payload))
    })
}

pub(super) fn comment(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let api = Api::new(job)?;
    let number = comment::number(job)?;
    let list = [("sort", "created"), ("direction", "asc"), ("per_page", "100")];
    let comments = ["issues", &number, "comments"];
    let service = Service {
        login: api.slug.as_ref().map(|slug| format!("{slug}[bot]")),
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
