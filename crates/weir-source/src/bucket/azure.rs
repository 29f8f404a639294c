//! Azure Blob Storage.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use sha2::Sha256;
use url::Url;
use weir_base::clock::Clock;
use weir_base::redact::Secret;

use super::http::{Answer, child, child_text, encode_path, exchange, query, xml, xml_error};
use super::{Access, BucketError, Fetched, Listed, OBJECTS_MAX};

const API_VERSION: &str = "2021-12-02";
const PAGE_BYTES_MAX: u64 = 32 << 20;

/// How requests are let in.
#[derive(Debug, Clone)]
pub enum AzureLogin {
    /// Not at all.
    Anonymous,
    /// An access token.
    Token(Secret),
    /// The key of the account, in base64.
    AccountKey {
        /// The account.
        account: String,
        /// The key.
        key: Secret,
    },
    /// The query of a shared access signature, without `?`.
    SharedAccess(Secret),
}

/// A container of Azure Blob Storage.
pub struct Azure {
    client: reqwest::Client,
    endpoint: Url,
    container: String,
    login: AzureLogin,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Azure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Azure({})", self.container)
    }
}

/// The account a service belongs to: the first label of its host, which has at least three.
pub fn account_of(endpoint: &str) -> Option<String> {
    let url = Url::parse(endpoint).ok()?;
    let host = url.host_str()?;
    (host.split('.').count() >= 3).then(|| host.split('.').next().unwrap_or_default().to_owned())
}

impl Azure {
    /// Prepares requests; nothing is sent yet.
    ///
    /// # Errors
    /// The endpoint is no URL, or a certificate or the proxy cannot be used.
    pub fn new(
        endpoint: &str,
        container: &str,
        login: AzureLogin,
        access: &Access,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BucketError> {
        let invalid = |why| BucketError::Endpoint { endpoint: endpoint_shown(endpoint), why };
        let url = Url::parse(endpoint).map_err(|_| invalid("it is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(invalid("it is neither an http nor an https URL"));
        }
        let client = super::http::client(access)?;
        Ok(Self { client, endpoint: url, container: container.to_owned(), login, clock })
    }

    /// The URL of the container or of an object. A query of the endpoint is kept, as far as the signature does not
    /// say otherwise.
    fn url(&self, key: Option<&str>, own: &[(&str, &str)]) -> Url {
        let mut url = self.endpoint.clone();
        let mut path = format!("{}/{}", url.path().trim_end_matches('/'), encode_path(&self.container));
        if let Some(key) = key {
            path.push('/');
            path.push_str(&encode_path(key));
        }
        url.set_path(&path);
        let mut parts = vec![query(own)];
        let signature = match &self.login {
            AzureLogin::SharedAccess(signature) => signature.expose(),
            AzureLogin::Anonymous | AzureLogin::Token(_) | AzureLogin::AccountKey { .. } => "",
        };
        let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
        let taken: Vec<String> = signature.split('&').map(name).collect();
        let kept = self.endpoint.query().unwrap_or_default().split('&');
        parts.extend(kept.filter(|pair| !taken.contains(&name(pair))).map(str::to_owned));
        parts.push(signature.to_owned());
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        url.set_query((!parts.is_empty()).then(|| parts.join("&")).as_deref());
        url
    }

    async fn send(
        &self,
        key: Option<&str>,
        own: &[(&str, &str)],
        bytes_max: u64,
    ) -> Result<Answer, BucketError> {
        let url = self.url(key, own);
        exchange(&self.client, bytes_max, || {
            let mut request = reqwest::Request::new(Method::GET, url.clone());
            for (name, value) in headers(&self.login, &url, self.clock.now()) {
                let mut value = HeaderValue::from_str(&value).map_err(|_| BucketError::Answer {
                    url: super::http::shown(&url),
                    what: "the credentials have characters that headers cannot have",
                })?;
                value.set_sensitive(name == "authorization");
                request.headers_mut().insert(name, value);
            }
            Ok(request)
        })
        .await
    }

    /// Tokens and signatures for a container often do not allow to read its properties, but always to list it.
    pub(super) async fn exists(&self) -> Result<bool, BucketError> {
        let own = [("comp", "list"), ("maxresults", "1"), ("restype", "container")];
        let answer = self.send(None, &own, PAGE_BYTES_MAX).await?;
        if answer.status.is_success() {
            return Ok(true);
        }
        let (code, message) = error_of(&answer);
        // A signature for a container that is not there counts as a wrong one.
        let is_missing = matches!(code.as_str(), "ContainerNotFound" | "ResourceNotFound")
            || (code == "AuthenticationFailed" && matches!(self.login, AzureLogin::SharedAccess(_)));
        if is_missing { Ok(false) } else { Err(answer.refusal(Method::GET, code, &message)) }
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Listed>, BucketError> {
        let mut found = Vec::new();
        let mut next = String::new();
        loop {
            let mut own = vec![("comp", "list"), ("restype", "container")];
            if !prefix.is_empty() {
                own.push(("prefix", prefix));
            }
            if !next.is_empty() {
                own.push(("marker", &next));
            }
            let answer = self.send(None, &own, PAGE_BYTES_MAX).await?;
            if !answer.status.is_success() {
                let (code, message) = error_of(&answer);
                return Err(answer.refusal(Method::GET, code, &message));
            }
            let (page, marker) = page(&answer)?;
            found.extend(page);
            if found.len() > OBJECTS_MAX {
                return Err(BucketError::TooMany(OBJECTS_MAX));
            }
            if marker.is_empty() {
                return Ok(found);
            }
            if marker == next {
                return Err(answer.unexpected("the listing does not say how it goes on"));
            }
            next = marker;
        }
    }

    pub(super) async fn get(&self, key: &str, bytes_max: u64) -> Result<Option<Fetched>, BucketError> {
        let answer = self.send(Some(key), &[], bytes_max).await?;
        if answer.status.is_success() {
            let etag = quoted(answer.header("etag").unwrap_or_default());
            return Ok(Some(Fetched { data: answer.body, etag }));
        }
        let (code, message) = error_of(&answer);
        if answer.status == StatusCode::NOT_FOUND && code != "ContainerNotFound" {
            return Ok(None);
        }
        Err(answer.refusal(Method::GET, code, &message))
    }
}

/// The endpoint for people: a shared access signature in its query is not shown.
fn endpoint_shown(endpoint: &str) -> String {
    endpoint.split('?').next().unwrap_or_default().to_owned()
}

fn error_of(answer: &Answer) -> (String, String) {
    let (code, message) = xml_error(&answer.body);
    let code = answer.header("x-ms-error-code").map_or(code, str::to_owned);
    // The first line; the rest is identifiers of the request.
    let message = message.lines().next().unwrap_or_default().to_owned();
    let message = if message.is_empty() { code.clone() } else { message };
    (code, message)
}

fn page(answer: &Answer) -> Result<(Vec<Listed>, String), BucketError> {
    let document = xml(answer.text()?)
        .filter(|document| document.root_element().tag_name().name() == "EnumerationResults")
        .ok_or_else(|| answer.unexpected("the answer is not a listing"))?;
    let root = document.root_element();
    let mut found = Vec::new();
    for blob in child(root, "Blobs").into_iter().flat_map(|blobs| blobs.children()) {
        if blob.tag_name().name() != "Blob" {
            continue;
        }
        let properties = child(blob, "Properties");
        let property = |name| properties.map(|node| child_text(node, name)).unwrap_or_default();
        // Accounts with a hierarchy list directories, too.
        if property("ResourceType") == "directory" {
            continue;
        }
        let mut key = child_text(blob, "Name");
        let is_encoded = child(blob, "Name")
            .and_then(|name| name.attribute("Encoded"))
            .is_some_and(|value| value == "true");
        if is_encoded {
            key = percent_encoding::percent_decode_str(&key)
                .decode_utf8()
                .map_err(|_| answer.unexpected("a name is not UTF-8"))?
                .into_owned();
        }
        found.push(Listed { key, etag: quoted(&property("Etag")) });
    }
    Ok((found, child_text(root, "NextMarker")))
}

/// The tag as a download gives it: listings leave the quotes out.
fn quoted(etag: &str) -> String {
    if etag.is_empty() || etag.contains('"') { etag.to_owned() } else { format!("\"{etag}\"") }
}

/// The headers of a request, with its authorization.
fn headers(login: &AzureLogin, url: &Url, now: Timestamp) -> Vec<(&'static str, String)> {
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let mut headers = vec![("x-ms-date", date), ("x-ms-version", API_VERSION.to_owned())];
    match login {
        AzureLogin::Anonymous | AzureLogin::SharedAccess(_) => {}
        AzureLogin::Token(token) => headers.push(("authorization", format!("Bearer {}", token.expose()))),
        AzureLogin::AccountKey { account, key } => {
            let signature = signature(account, key, url, &headers);
            headers.push(("authorization", format!("SharedKey {account}:{signature}")));
        }
    }
    headers
}

/// The signature of a `GET` without body.
fn signature(account: &str, key: &Secret, url: &Url, headers: &[(&str, String)]) -> String {
    // Eleven standard headers, none of which is sent.
    let mut text = format!("GET\n{}", "\n".repeat(11));
    for (name, value) in headers {
        let _ = writeln!(text, "{name}:{value}");
    }
    let _ = write!(text, "/{account}{}", url.path());
    let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        parameters.entry(name.to_lowercase()).or_default().push(value.into_owned());
    }
    for (name, mut values) in parameters {
        values.sort();
        let _ = write!(text, "\n{name}:{}", values.join(","));
    }
    // A key that is not base64 gives a signature the service refuses.
    let key = STANDARD.decode(key.expose().trim()).unwrap_or_default();
    Hmac::<Sha256>::new_from_slice(&key)
        .map(|mut mac| {
            mac.update(text.as_bytes());
            STANDARD.encode(mac.finalize().into_bytes())
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use weir_base::clock::SystemClock;

    use super::*;

    #[test]
    fn addresses_keep_the_query_of_the_endpoint() {
        #[track_caller]
        fn check(endpoint: &str, login: AzureLogin, expected: &str) {
            let store =
                Azure::new(endpoint, "fleet", login, &Access::default(), Arc::new(SystemClock)).unwrap();
            assert_eq!(store.url(Some("a b/c"), &[("x", "1")]).as_str(), expected);
        }
        let shared = |text: &str| AzureLogin::SharedAccess(Secret::new(text));
        check(
            "https://acc.blob.core.windows.net",
            AzureLogin::Anonymous,
            "https://acc.blob.core.windows.net/fleet/a%20b/c?x=1",
        );
        check("http://127.0.0.1:1/acc/", AzureLogin::Anonymous, "http://127.0.0.1:1/acc/fleet/a%20b/c?x=1");
        check(
            "https://acc.blob.core.windows.net?sp=old&y=2",
            shared("sp=r&sig=a%2Bb"),
            "https://acc.blob.core.windows.net/fleet/a%20b/c?x=1&y=2&sp=r&sig=a%2Bb",
        );
    }

    #[test]
    fn accounts() {
        assert_eq!(account_of("https://acc.blob.core.windows.net").as_deref(), Some("acc"));
        assert_eq!(account_of("https://localhost"), None);
        assert_eq!(account_of("x"), None);
        assert_eq!(quoted("0x8D"), "\"0x8D\"");
        assert_eq!(quoted("\"0x8D\""), "\"0x8D\"");
    }
}
