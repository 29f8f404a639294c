//! Redirects, followed by hand so that nothing secret goes to another host.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Response};
use url::Url;

use crate::address::names_forbidden;
use crate::provider::{Method, Request};

/// As many as other clients follow.
const REDIRECTS_MAX: usize = 10;

/// Why a redirect is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// A circle, or a very long way.
    #[error("stopped after {REDIRECTS_MAX} redirects")]
    TooMany,
    /// The body would go to another host.
    #[error("the service redirects the message to another host; set its address instead")]
    OtherHost,
    /// Not a URL of HTTP.
    #[error("the service redirects to something that is not an http or https URL")]
    Location,
    /// An address of the machine itself.
    #[error("events are not sent to link-local addresses")]
    LinkLocal,
}

pub(super) enum FollowError {
    Transport(reqwest::Error),
    Redirect(RedirectError),
}

/// The answer to a request, redirects followed.
///
/// Headers and body go on to the same host, also when it moves from HTTP to HTTPS. Another host gets a bare GET if the
/// status asks for one, and nothing otherwise.
pub(super) async fn follow(client: &Client, request: &Request) -> Result<Response, FollowError> {
    let mut method = request.method;
    let mut url = request.url.clone();
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        // Both were checked when the request was made.
        if let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    let mut body = Some(request.body.clone()).filter(|body| !body.is_empty());
    for _ in 0..=REDIRECTS_MAX {
        if names_forbidden(&url) {
            return Err(FollowError::Redirect(RedirectError::LinkLocal));
        }
        let mut builder = client.request(http_method(method), url.clone()).headers(headers.clone());
        if let Some(body) = &body {
            builder = builder.body(body.clone());
        }
        let response = builder.send().await.map_err(FollowError::Transport)?;
        let becomes_get = match response.status().as_u16() {
            301..=303 => method != Method::Get,
            307 | 308 => false,
            _ => return Ok(response),
        };
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let Some(location) = location else { return Ok(response) };
        let next = url.join(location).map_err(|_| FollowError::Redirect(RedirectError::Location))?;
        if !matches!(next.scheme(), "http" | "https") {
            return Err(FollowError::Redirect(RedirectError::Location));
        }
        if becomes_get {
            method = Method::Get;
            body = None;
            headers.remove(reqwest::header::CONTENT_TYPE);
        }
        if !is_same_host(&url, &next) {
            if method != Method::Get || body.is_some() {
                return Err(FollowError::Redirect(RedirectError::OtherHost));
            }
            headers.clear();
        }
        url = next;
    }
    Err(FollowError::Redirect(RedirectError::TooMany))
}

fn is_same_host(from: &Url, to: &Url) -> bool {
    let upgrade = from.scheme() == "http"
        && to.scheme() == "https"
        && from.port_or_known_default() == Some(80)
        && to.port_or_known_default() == Some(443);
    let same = from.scheme() == to.scheme() && from.port_or_known_default() == to.port_or_known_default();
    from.host() == to.host() && (same || upgrade)
}

fn http_method(method: Method) -> reqwest::Method {
    match method {
        Method::Get => reqwest::Method::GET,
        Method::Post => reqwest::Method::POST,
        Method::Put => reqwest::Method::PUT,
        Method::Patch => reqwest::Method::PATCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_with_scheme_and_port() {
        let check = |from: &str, to: &str, expected: bool| {
            assert_eq!(
                is_same_host(&Url::parse(from).unwrap(), &Url::parse(to).unwrap()),
                expected,
                "{from} {to}"
            );
        };
        check("https://a/x", "https://a/y", true);
        check("http://a/x", "https://a/x", true);
        check("https://a/x", "http://a/x", false);
        check("https://a/x", "https://a:8443/x", false);
        check("http://a:8080/x", "https://a/x", false);
        check("https://a/x", "https://b.a/x", false);
    }
}
