//! Requests with deadlines and answers with limits.

use std::time::Duration;

use serde_json::Value;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer that is read; real ones have a few kilobytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How much of a service's explanation is shown.
const EXPLANATION_BYTES_MAX: usize = 512;

/// Why a request got no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The service could not be reached.
    #[error("{0}")]
    Transport(String),
    /// The service refused.
    #[error("{status}: {explanation}")]
    Status {
        /// The status.
        status: u16,
        /// What the service says about it.
        explanation: String,
    },
    /// The answer is too large or not what was expected.
    #[error("unexpected answer: {0}")]
    Answer(&'static str),
}

/// Sends requests.
#[derive(Debug, Clone)]
pub struct Requests {
    client: reqwest::Client,
}

impl Requests {
    /// A client that trusts the authorities of the machine; on a machine without any, plain HTTP works and TLS
    /// trusts nobody.
    ///
    /// # Errors
    /// The TLS set-up of the machine is broken.
    pub fn new() -> Result<Self, HttpError> {
        // An error means that a provider is installed, which is all we need.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            reqwest::Client::builder()
                .timeout(TIMEOUT)
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
        };
        let client = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        client.map(|client| Self { client }).map_err(|error| transport(&error))
    }

    /// Sends with a client that was set up elsewhere, for instance with a proxy. It should follow no redirects.
    pub fn with_client(client: reqwest::Client) -> Self {
        Self { client }
    }

    /// The client, to build requests with.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Sends a request; the body of a successful answer.
    ///
    /// # Errors
    /// The service cannot be reached, refuses, or answers too much.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<Vec<u8>, HttpError> {
        let mut response = request.timeout(TIMEOUT).send().await.map_err(|error| transport(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| transport(&error))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(HttpError::Answer("too large"));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(body);
        }
        Err(HttpError::Status { status: status.as_u16(), explanation: explanation(&body) })
    }

    /// Sends a request; the JSON of a successful answer.
    ///
    /// # Errors
    /// As for [`Requests::send`], and when the answer is no JSON.
    pub async fn send_json(&self, request: reqwest::RequestBuilder) -> Result<Value, HttpError> {
        let body = self.send(request).await?;
        serde_json::from_slice(&body).map_err(|_| HttpError::Answer("not JSON"))
    }
}

/// A form as the body of a request.
pub fn form(request: reqwest::RequestBuilder, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    let body = body.extend_pairs(fields).finish();
    request.header("content-type", "application/x-www-form-urlencoded").body(body)
}

/// The error without its URL, whose query may hold secrets.
fn transport(error: &reqwest::Error) -> HttpError {
    use std::error::Error as _;
    let mut text = if error.is_timeout() {
        "request timed out".to_owned()
    } else if error.is_connect() {
        "connection failed".to_owned()
    } else {
        "request failed".to_owned()
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    HttpError::Transport(text)
}

/// The part of an error answer that is meant for people.
fn explanation(body: &[u8]) -> String {
    let fields = |value: &Value| {
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let list = value
            .get("errors")
            .and_then(Value::as_array)
            .map(|errors| errors.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; "));
        text("/error/message")
            .or_else(|| text("/error_description"))
            .or_else(|| text("/message"))
            .or_else(|| text("/Message"))
            .or_else(|| text("/error"))
            .or_else(|| text("/__type"))
            .or(list)
    };
    let found = serde_json::from_slice::<Value>(body).ok().and_then(|value| fields(&value));
    let found = found.or_else(|| {
        let text = String::from_utf8_lossy(body);
        let (_, rest) = text.split_once("<Message>")?;
        rest.split_once("</Message>").map(|(message, _)| message.to_owned())
    });
    let text = found.unwrap_or_else(|| "the service gives no reason".to_owned());
    weir_base::error::truncate(&text, EXPLANATION_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_of_all_services_are_found() {
        let check = |body: &str, expected: &str| assert_eq!(explanation(body.as_bytes()), expected);
        check(r#"{"__type":"AccessDeniedException","message":"no"}"#, "no");
        check(r#"{"__type":"InvalidCiphertextException"}"#, "InvalidCiphertextException");
        check(r#"{"error":{"code":403,"message":"denied"}}"#, "denied");
        check(r#"{"error":"invalid_client","error_description":"AADSTS7000215"}"#, "AADSTS7000215");
        check(r#"{"errors":["permission denied","more"]}"#, "permission denied; more");
        check("<ErrorResponse><Error><Message>who?</Message></Error></ErrorResponse>", "who?");
        check("anything", "the service gives no reason");
    }
}
