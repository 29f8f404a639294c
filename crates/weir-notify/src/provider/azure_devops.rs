//! Azure DevOps: commit statuses.

use serde::Deserialize;
use serde_json::json;

use super::status::{self, States};
use super::{Answer, Job, Method, ProviderError, Request, Step};
use crate::event::SUMMARY;
use crate::git_address::GitAddress;

/// What an access token must be good for.
pub(super) const SCOPE: &str = "499b84ac-1321-427f-aa17-267ca6975798/.default";
const GENRE: &str = "fluxcd";
const API_VERSION: &str = "7.1-preview.1";
const STATES: States = States {
    service: "azure devops",
    success: "succeeded",
    failure: "error",
    progressing: None,
    description_characters_max: 1024,
};

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    value: Vec<Held>,
}

#[derive(Deserialize)]
struct Held {
    state: Option<String>,
    description: Option<String>,
    context: Option<Context>,
}

#[derive(Deserialize)]
struct Context {
    genre: Option<String>,
    name: Option<String>,
}

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    const LIST: &str = "could not list commit statuses";
    const CREATE: &str = "could not create commit status";
    let address = GitAddress::parse(job.target.address.expose())?;
    status::id(job)?;
    let [organisation, project, _, repository] = address.parts()?;
    let token = match (job.target.token.expose(), &job.access) {
        ("", Some(access)) => access.token.expose(),
        (token, _) => token,
    };
    let Some(status) = status::of(job, &STATES)? else { return Ok(Step::Done) };
    let genre = match job.event.metadata.get(SUMMARY) {
        Some(summary) => format!("{GENRE}:{summary}"),
        None => GENRE.to_owned(),
    };
    let organisation = organisation.to_lowercase();
    let request = |method, failed| {
        let segments = [
            &organisation,
            project,
            "_apis",
            "git",
            "repositories",
            repository,
            "commits",
            &status.commit,
            "statuses",
        ];
        Request::new(method, GitAddress::url(&address.service, &segments, &[]), failed)
            .header("Accept", format!("application/json;api-version={API_VERSION}"))
            .basic("", token)
    };
    match answers {
        [] => Ok(request(Method::Get, LIST).into()),
        [held] => {
            let held: List = held.json(LIST)?;
            let is_same_context = |held: &&Held| {
                held.state.is_some()
                    && held.description.is_some()
                    && held.context.as_ref().is_some_and(|context| {
                        context.name.as_deref() == Some(status.id)
                            && context.genre.as_deref() == Some(genre.as_str())
                    })
            };
            let latest = held.value.iter().find(is_same_context);
            if latest.is_some_and(|held| {
                held.state.as_deref() == Some(status.state)
                    && held.description.as_deref() == Some(&status.description)
            }) {
                return Ok(Step::Done);
            }
            let payload = json!({
                "state": status.state,
                "description": status.description,
                "context": {"genre": genre, "name": status.id},
            });
            let content_type = format!("application/json;api-version={API_VERSION}");
            let body = crate::event::to_go_json(&payload);
            Ok(request(Method::Post, CREATE).body(&content_type, body).into())
        }
        [_, created, ..] => created.success(CREATE).map(|()| Step::Done),
    }
}
