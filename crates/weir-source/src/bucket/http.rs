//! Requests to object stores: repeated while the store is busy, within limits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, RETRY_AFTER};
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::{Access, BucketError};
use crate::connection::{self, ConnectionError};

const ATTEMPTS_MAX: u32 = 4;
const RETRY_WAIT: Duration = Duration::from_millis(300);
/// The longest wait a store can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// How much of an error answer is read.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// All but unreserved characters, as signatures want it.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const STRICT_PATH: &AsciiSet = &STRICT.remove(b'/');

/// A text as part of a query.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, STRICT).to_string()
}

/// A key as part of a path.
pub(super) fn encode_path(text: &str) -> String {
    utf8_percent_encode(text, STRICT_PATH).to_string()
}

/// `a=1&b=2` with everything encoded.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect::<Vec<_>>()
        .join("&")
}

/// A client that follows no redirects: requests are signed for one address.
pub(super) fn client(access: &Access) -> Result<reqwest::Client, ConnectionError> {
    connection::client(
        access.certificate_authority.as_deref(),
        access.client_certificate.as_ref(),
        access.proxy.as_ref(),
        |builder| builder.redirect(reqwest::redirect::Policy::none()).user_agent("flux/v2"),
    )
}

/// A URL for people.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) url: String,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text.
    pub(super) fn text(&self) -> Result<&str, BucketError> {
        std::str::from_utf8(&self.body).map_err(|_| self.unexpected("the answer is not UTF-8"))
    }

    pub(super) fn unexpected(&self, what: &'static str) -> BucketError {
        BucketError::Answer { url: self.url.clone(), what }
    }

    /// The refusal this answer is, with the code and the message its body has.
    pub(super) fn refusal(self, method: Method, code: String, message: &str) -> BucketError {
        let what = if message.is_empty() && !code.is_empty() {
            code.clone()
        } else if message.is_empty() {
            format!("unexpected status code {}", self.status)
        } else {
            weir_base::error::truncate(message.trim(), 512)
        };
        BucketError::Refused { method, url: self.url, status: self.status, code, what }
    }
}

/// Sends a request and reads the answer; both again while the store is busy or breaks off. `make` is asked for every
/// attempt, since signatures carry the time. The caller limits the time of the whole.
pub(super) async fn exchange(
    client: &reqwest::Client,
    bytes_max: u64,
    make: impl Fn() -> Result<reqwest::Request, BucketError>,
) -> Result<Answer, BucketError> {
    let mut wait = RETRY_WAIT;
    let mut attempt = 1;
    loop {
        let result = once(client, make()?, bytes_max).await;
        let pause = match &result {
            Ok(answer) if is_busy(answer.status) => answer
                .header(RETRY_AFTER.as_str())
                .and_then(|text| text.parse().ok())
                .map(Duration::from_secs),
            Err(BucketError::Network { source, .. }) if !source.is_builder() => None,
            Ok(_) | Err(_) => return result,
        };
        if attempt == ATTEMPTS_MAX {
            return result;
        }
        tokio::time::sleep(pause.unwrap_or(wait).min(RETRY_AFTER_MAX)).await;
        wait *= 3;
        attempt += 1;
    }
}

fn is_busy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

async fn once(
    client: &reqwest::Client,
    request: reqwest::Request,
    bytes_max: u64,
) -> Result<Answer, BucketError> {
    let (method, url) = (request.method().clone(), shown(request.url()));
    let network = |source: reqwest::Error| BucketError::Network {
        method: method.clone(),
        url: url.clone(),
        source: source.without_url(),
    };
    let mut response = client.execute(request).await.map_err(network)?;
    let status = response.status();
    let headers = response.headers().clone();
    let bytes_max = if status.is_success() { bytes_max } else { ERROR_BYTES_MAX };
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(network)? {
        if body.len() as u64 + chunk.len() as u64 > bytes_max {
            if status.is_success() {
                return Err(BucketError::TooLarge { url, bytes_max });
            }
            break;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { url, status, headers, body: body.freeze() })
}

/// The root element of an XML answer; `None` if it is not well-formed. Documents with a type definition are refused,
/// so entities cannot grow.
pub(super) fn xml(text: &str) -> Option<roxmltree::Document<'_>> {
    roxmltree::Document::parse(text.trim_start_matches('\u{feff}')).ok()
}

/// The text of a child element, or empty.
pub(super) fn child_text(node: roxmltree::Node<'_, '_>, name: &str) -> String {
    child(node, name).and_then(|child| child.text().map(str::to_owned)).unwrap_or_default()
}

/// A child element by its name without namespace.
pub(super) fn child<'a, 'input>(
    node: roxmltree::Node<'a, 'input>,
    name: &str,
) -> Option<roxmltree::Node<'a, 'input>> {
    node.children().find(|child| child.is_element() && child.tag_name().name() == name)
}

/// The code and the message of an error in XML.
pub(super) fn xml_error(body: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(body);
    xml(&text)
        .map(|document| {
            let root = document.root_element();
            (child_text(root, "Code"), child_text(root, "Message"))
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_paths_are_encoded_as_signatures_want_it() {
        assert_eq!(query(&[("prefix", "a b/c+d"), ("x", "ä~")]), "prefix=a%20b%2Fc%2Bd&x=%C3%A4~");
        assert_eq!(encode_path("a b/c+d=(e)"), "a%20b/c%2Bd%3D%28e%29");
        let url = Url::parse(&format!("https://x/{}", encode_path("a b/c+d=(e)'"))).unwrap();
        assert_eq!(url.path(), "/a%20b/c%2Bd%3D%28e%29%27");
        let url = Url::parse("https://user:s3cret@x/a?sig=s3cret").unwrap();
        assert_eq!(shown(&url), "https://x/a");
    }

    #[test]
    fn errors_in_xml() {
        let body = "\u{feff}<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>a &amp; b</Message></Error>";
        assert_eq!(xml_error(body.as_bytes()), ("NoSuchKey".to_owned(), "a & b".to_owned()));
        assert_eq!(xml_error(b"oops"), (String::new(), String::new()));
        let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaa\">]><Error><Code>&a;</Code></Error>";
        assert_eq!(xml_error(bomb.as_bytes()), (String::new(), String::new()));
    }
}
