//! Sentry: errors as events, everything else as transactions.

use serde_json::{Map, Value, json};
use url::Url;

use super::{Answer, Job, Method, ProviderError, Request, Step, once};
use crate::event::{Severity, rfc3339, to_go_json};
use crate::text::cut_characters;

const CLIENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));
/// Sentry cuts or drops what is longer.
const MESSAGE_CHARACTERS_MAX: usize = 8192;
const TRANSACTION_CHARACTERS_MAX: usize = 200;
const TAG_KEY_CHARACTERS_MAX: usize = 32;
const TAG_VALUE_CHARACTERS_MAX: usize = 200;
/// The environment the clients of Sentry name if none is set.
const ENVIRONMENT_DEFAULT: &str = "production";

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let (url, key) = project(job.target.address.expose())?;
    let (kind, payload) = match &job.event.severity {
        Severity::Error => ("event", error(job)),
        Severity::Info => ("transaction", transaction(job)),
        Severity::Trace | Severity::Other(_) => return Ok(Step::Done),
    };
    once(answers, || {
        let payload = to_go_json(&payload);
        let head = json!({"event_id": event_id(job), "sent_at": rfc3339(job.now)});
        let item = json!({"type": kind, "length": payload.len()});
        let mut body = format!("{head}\n{item}\n").into_bytes();
        body.extend_from_slice(&payload);
        body.push(b'\n');
        let authorization = format!("Sentry sentry_version=7, sentry_client={CLIENT}, sentry_key={key}");
        let request = Request::new(Method::Post, url, "sending to Sentry failed");
        Ok(request
            .body("application/x-sentry-envelope", body)
            .header("X-Sentry-Auth", authorization)
            .retried())
    })
}

/// The endpoint and the key of a DSN, `https://key@host/path/project`.
fn project(dsn: &str) -> Result<(Url, String), ProviderError> {
    if dsn.is_empty() {
        return Err(ProviderError::setting("DSN cannot be empty"));
    }
    let invalid = |why: &str| ProviderError::setting(format!("[Sentry] DsnParseError: {why}"));
    let mut url = Url::parse(dsn).map_err(|_| invalid("invalid url"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(invalid("invalid scheme"));
    }
    let key = url.username().to_owned();
    if key.is_empty() {
        return Err(invalid("empty username"));
    }
    let path = url.path().trim_matches('/').to_owned();
    let (prefix, project) = path.rsplit_once('/').unwrap_or(("", &path));
    if project.is_empty() {
        return Err(invalid("empty project id"));
    }
    let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
    url.set_path(&format!("{prefix}/api/{project}/envelope/"));
    url.set_query(None);
    // Both fail only for URLs without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Ok((url, key))
}

fn event_id(job: &Job) -> String {
    hex::encode(&job.random[..16])
}

fn environment(job: &Job) -> &str {
    if job.target.channel.is_empty() { ENVIRONMENT_DEFAULT } else { &job.target.channel }
}

fn title(job: &Job) -> String {
    let object = &job.event.involved_object;
    let title = format!("{}: {}/{}", object.kind, object.namespace, object.name);
    cut_characters(&title, TRANSACTION_CHARACTERS_MAX)
}

fn sdk() -> Value {
    json!({"name": "weir", "version": env!("CARGO_PKG_VERSION")})
}

fn error(job: &Job) -> Value {
    let event = &job.event;
    json!({
        "event_id": event_id(job),
        "timestamp": job.time(),
        "platform": "other",
        "level": "error",
        "server_name": event.reporting_controller,
        "transaction": title(job),
        "environment": environment(job),
        "message": cut_characters(&event.message, MESSAGE_CHARACTERS_MAX),
        "contexts": {"metadata": event.metadata},
        "sdk": sdk(),
    })
}

fn transaction(job: &Job) -> Value {
    let event = &job.event;
    let object = &event.involved_object;
    let mut tags = Map::new();
    let own = [
        ("flux_involved_object_kind", &object.kind),
        ("flux_involved_object_namespace", &object.namespace),
        ("flux_involved_object_name", &object.name),
        ("flux_reporting_controller", &event.reporting_controller),
        ("flux_reporting_instance", &event.reporting_instance),
        ("flux_reason", &event.reason),
    ];
    let metadata = event.metadata.iter().map(|(key, value)| (key.as_str(), value));
    for (key, value) in own.into_iter().chain(metadata) {
        let value = cut_characters(value, TAG_VALUE_CHARACTERS_MAX).replace('\n', " ");
        tags.insert(cut_characters(key, TAG_KEY_CHARACTERS_MAX), value.into());
    }
    let (trace, span) = (hex::encode(&job.random[..16]), hex::encode(&job.random[16..]));
    json!({
        "event_id": event_id(job),
        "type": "transaction",
        "platform": "other",
        "transaction": title(job),
        "transaction_info": {"source": "custom"},
        "environment": environment(job),
        "message": cut_characters(&event.message, MESSAGE_CHARACTERS_MAX),
        "contexts": {"trace": {"trace_id": trace, "span_id": span, "op": "event"}},
        "tags": tags,
        "timestamp": job.time(),
        "start_timestamp": job.time(),
        "spans": [{
            "trace_id": trace, "span_id": span, "op": "event", "tags": tags,
            "start_timestamp": job.time(), "timestamp": job.time(),
        }],
        "sdk": sdk(),
    })
}
