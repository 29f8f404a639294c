//! PagerDuty: events that open and close incidents, and change events.

use serde_json::{Value, json};

use super::{Answer, Job, Method, ProviderError, Request, Step};
use crate::event::{PROGRESSING, Severity};
use crate::text::{cut_characters, describe, is_error, status_name};

/// The longest summary.
const SUMMARY_CHARACTERS_MAX: usize = 1024;

const EVENT: &str = "failed sending event";
const CHANGE: &str = "failed sending change event";

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let mut url = job.url("PagerDuty endpoint")?;
    url.set_query(None);
    url.set_fragment(None);
    if job.event.reason == PROGRESSING {
        return Ok(Step::Done);
    }
    let request =
        |url, failed, payload: &Value| Request::new(Method::Post, url, failed).json(payload).retried();
    match answers {
        [] => {
            url.set_path("/v2/enqueue");
            Ok(request(url, EVENT, &incident(job)).into())
        }
        [event] => {
            event.success(EVENT)?;
            if job.event.severity != Severity::Info {
                return Ok(Step::Done);
            }
            url.set_path("/v2/change/enqueue");
            Ok(request(url, CHANGE, &change(job)).into())
        }
        [_, change, ..] => change.success(CHANGE).map(|()| Step::Done),
    }
}

fn summary(job: &Job) -> String {
    let text = format!("{}: {}", describe(&job.event.reason), status_name(&job.event.involved_object));
    cut_characters(&text, SUMMARY_CHARACTERS_MAX)
}

fn source(job: &Job) -> String {
    format!("Flux {}", job.event.reporting_controller)
}

fn details(job: &Job) -> Value {
    json!({"message": job.event.message, "metadata": job.event.metadata})
}

fn incident(job: &Job) -> Value {
    let object = &job.event.involved_object;
    let mut incident = json!({"routing_key": job.target.channel, "event_action": "resolve"});
    if !object.uid.is_empty() {
        incident["dedup_key"] = object.uid.clone().into();
    }
    if is_error(&job.event) {
        incident["event_action"] = "trigger".into();
        incident["payload"] = json!({
            "summary": summary(job),
            "source": source(job),
            "severity": "error",
            "timestamp": job.time(),
            "component": object.name,
            "group": object.kind,
            "custom_details": details(job),
        });
    }
    incident
}

fn change(job: &Job) -> Value {
    let payload = json!({
        "summary": summary(job), "source": source(job), "timestamp": job.time(), "custom_details": details(job),
    });
    json!({"routing_key": job.target.channel, "payload": payload})
}
