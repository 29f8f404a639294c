//! OpenTelemetry: one span per event, over OTLP/HTTP.

use sha2::{Digest as _, Sha256};
use url::Url;

use super::{Answer, Job, Method, ProviderError, Request, Step, once};
use crate::event::REVISION;
use crate::text::is_error;

const TRACER: &str = "flux:notification-controller";
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.34.0";
const PATH: &str = "/v1/traces";
const KIND_INTERNAL: u64 = 1;
const STATUS_OK: u64 = 1;
const STATUS_ERROR: u64 = 2;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let url = url(job.target.address.expose())?;
    if job.event.involved_object.kind == "HelmRepository" {
        return Ok(Step::Done);
    }
    once(answers, || {
        let mut request = Request::new(Method::Post, url, "sending to the OTLP endpoint failed")
            .body("application/x-protobuf", export(job))
            .retried();
        let (username, token) = (&job.target.username, job.target.token_or_password().expose());
        if !token.is_empty() {
            let login = !username.is_empty();
            request = if login { request.basic(username, token) } else { request.bearer(token) };
        }
        for (name, value) in &job.target.headers {
            request = request.header(name, value.expose());
        }
        Ok(request)
    })
}

/// The endpoint: everything but `https` is plain HTTP, and without a path it is the usual one.
fn url(address: &str) -> Result<Url, ProviderError> {
    let invalid = ProviderError::Address { what: "OTLP endpoint" };
    let (scheme, rest) = address.split_once("://").ok_or_else(|| invalid.clone())?;
    let scheme = if scheme.eq_ignore_ascii_case("https") { "https" } else { "http" };
    let mut url = Url::parse(&format!("{scheme}://{rest}")).map_err(|_| invalid)?;
    if url.path() == "/" {
        url.set_path(PATH);
    }
    Ok(url)
}

/// What the trace is about: the app and its artifact, or the revision.
fn revision(job: &Job) -> String {
    let metadata = &job.event.metadata;
    match (metadata.get("app-version"), metadata.get("oci-digest"), metadata.get(REVISION)) {
        (Some(version), Some(digest), _) => format!("{version}@{digest}"),
        (_, _, Some(revision)) => revision.clone(),
        _ => "unknown".to_owned(),
    }
}

fn nanoseconds(time: jiff::Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}

fn export(job: &Job) -> Vec<u8> {
    let (event, alert) = (&job.event, &job.alert);
    let object = &event.involved_object;
    let service = format!("{}/{}", alert.namespace, alert.name);
    let resource = Message::default()
        .attribute(1, "service.name", &service)
        .attribute(1, "service.namespace", &alert.namespace)
        .attribute(1, "service.instance.id", &alert.uid);
    let trace = Sha256::digest(format!("{}:{}", alert.uid, revision(job)));
    let start = event.timestamp.unwrap_or(job.now);
    let mut span = Message::default()
        .bytes(1, &trace[..16])
        .bytes(2, &job.random[..8])
        .text(5, &format!("{}: {}/{}", object.kind, object.namespace, object.name))
        .number(6, KIND_INTERNAL)
        .fixed(7, nanoseconds(start))
        .fixed(8, nanoseconds(job.now))
        .attribute(9, "object.uid", &object.uid)
        .attribute(9, "object.kind", &object.kind)
        .attribute(9, "object.name", &object.name)
        .attribute(9, "object.namespace", &object.namespace);
    for (key, value) in &event.metadata {
        span = span.attribute(9, key, value);
    }
    let status = if is_error(event) {
        Message::default().text(2, &event.message).number(3, STATUS_ERROR)
    } else {
        Message::default().number(3, STATUS_OK)
    };
    let span = span.message(15, &status);
    let scope = Message::default().text(1, TRACER);
    let spans = Message::default().message(1, &scope).message(2, &span);
    let resource_spans = Message::default().message(1, &resource).message(2, &spans).text(3, SCHEMA);
    Message::default().message(1, &resource_spans).0
}

/// A protobuf message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.key(field, 0);
        self.varint(value);
        self
    }

    fn fixed(mut self, field: u64, value: u64) -> Self {
        self.key(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    fn message(self, field: u64, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// A `KeyValue` with a string.
    fn attribute(self, field: u64, key: &str, value: &str) -> Self {
        let any = Self::default().text(1, value);
        self.message(field, &Self::default().text(1, key).message(2, &any))
    }
}
