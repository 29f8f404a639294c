//! Google Pub/Sub.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Answer, Job, Method, ProviderError, Request, Step};
use crate::git_address::GitAddress;

const FAILED: &str = "error publishing to GCP Pub/Sub topic";

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let (project, topic) = (job.target.address.expose(), job.target.channel.as_str());
    if project.is_empty() {
        return Err(ProviderError::setting("GCP project ID cannot be empty"));
    }
    if topic.is_empty() {
        return Err(ProviderError::setting("GCP Pub/Sub topic ID cannot be empty"));
    }
    if let Some(answer) = answers.first() {
        return answer.success(FAILED).map(|()| Step::Done).map_err(|error| match error {
            ProviderError::Status { status, answer, .. } => ProviderError::Refused {
                failed: FAILED,
                answer: format!("projects/{project}/topics/{topic}: status code {status}: {answer}"),
            },
            other => other,
        });
    }
    let segments = ["v1", "projects", project, "topics", &format!("{topic}:publish")];
    let url = GitAddress::url(&job.endpoints.pub_sub, &segments, &[]);
    let mut message = json!({"data": STANDARD.encode(job.event.to_json())});
    let attributes: Map<String, Value> =
        job.target.headers.iter().map(|(name, value)| (name.clone(), value.expose().into())).collect();
    if !attributes.is_empty() {
        message["attributes"] = attributes.into();
    }
    let request = Request::new(Method::Post, url, FAILED).json(&json!({"messages": [message]})).retried();
    Ok(match &job.access {
        Some(access) => request.bearer(access.token.expose()),
        None => request,
    }
    .into())
}
