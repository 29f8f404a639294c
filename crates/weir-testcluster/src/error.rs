//! Refusals, and the `Status` objects that tell them.

use serde_json::{Map, Value, json};

use crate::status::Cause;

/// A refused or failed request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) code: u16,
    /// As in `NotFound`; empty for none.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
    /// Answered as text instead of a `Status`.
    pub(crate) plain: bool,
}

/// What a refusal is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) group: &'a str,
    /// The plural, or the kind for `Invalid`.
    pub(crate) word: &'a str,
    pub(crate) name: &'a str,
}

impl Subject<'_> {
    /// As in `deployments.apps`.
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.word.to_owned() } else { format!("{}.{}", self.word, self.group) }
    }

    fn details(&self) -> Map<String, Value> {
        let mut out = Map::new();
        for (key, text) in [("name", self.name), ("group", self.group), ("kind", self.word)] {
            if !text.is_empty() {
                out.insert(key.to_owned(), json!(text));
            }
        }
        out
    }
}

impl ApiError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, plain: false }
    }

    fn about(mut self, subject: Subject<'_>) -> Self {
        self.details = Some(Value::Object(subject.details()));
        self
    }

    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The path is none of the server's.
    pub(crate) fn no_such_path() -> Self {
        Self { plain: true, ..Self::new(404, "NotFound", "404 page not found\n") }
    }

    pub(crate) fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    pub(crate) fn not_found(subject: Subject<'_>) -> Self {
        Self::new(404, "NotFound", format!("{} {:?} not found", subject.qualified(), subject.name))
            .about(subject)
    }

    pub(crate) fn already_exists(subject: Subject<'_>) -> Self {
        let message = format!("{} {:?} already exists", subject.qualified(), subject.name);
        Self::new(409, "AlreadyExists", message).about(subject)
    }

    pub(crate) fn conflict(subject: Subject<'_>, cause: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {:?}: {cause}", subject.qualified(), subject.name);
        Self::new(409, "Conflict", message).about(subject)
    }

    /// Somebody else wrote in between.
    pub(crate) fn modified(subject: Subject<'_>) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn forbidden(subject: Subject<'_>, cause: &str) -> Self {
        let message = if subject.name.is_empty() {
            format!("{} is forbidden: {cause}", subject.qualified())
        } else {
            format!("{} {:?} is forbidden: {cause}", subject.qualified(), subject.name)
        };
        Self::new(403, "Forbidden", message).about(subject)
    }

    /// Refused fields; the subject's word is the kind.
    pub(crate) fn invalid(subject: Subject<'_>, causes: &[Cause]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for cause in causes {
            let text = cause.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let all = match texts.as_slice() {
            [only] => only.clone(),
            _ => format!("[{}]", texts.join(", ")),
        };
        let message = format!("{} {:?} is invalid: {all}", subject.qualified(), subject.name);
        let mut details = subject.details();
        let list = causes.iter().map(
            |cause| json!({"reason": cause.reason.word(), "message": cause.message(), "field": cause.field}),
        );
        details.insert("causes".to_owned(), list.collect());
        Self::new(422, "Invalid", message).with_details(Value::Object(details))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_details(json!({}))
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    pub(crate) fn not_acceptable() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    }

    /// As a `Status` object.
    pub(crate) fn status(&self) -> Value {
        let mut out = Map::new();
        out.insert("kind".into(), json!("Status"));
        out.insert("apiVersion".into(), json!("v1"));
        out.insert("metadata".into(), json!({}));
        out.insert("status".into(), json!("Failure"));
        out.insert("message".into(), json!(self.message));
        if !self.reason.is_empty() {
            out.insert("reason".into(), json!(self.reason));
        }
        if let Some(details) = &self.details {
            out.insert("details".into(), details.clone());
        }
        out.insert("code".into(), json!(self.code));
        Value::Object(out)
    }
}
