//! The registry API: tags, manifests and blobs, with token authentication.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LINK, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use reqwest::Response;
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;
use weir_artifact::digest::{Algorithm, Digest};

use super::{Keychain, Repository, SelectError, Target, choose_tag};
use crate::connection::{self, ClientCertificate, ConnectionError, Proxy};

const MANIFEST_BYTES_MAX: u64 = 4 << 20;
const ANSWER_BYTES_MAX: u64 = 16 << 20;
const TAGS_MAX: usize = 1_000_000;
const ATTEMPTS_MAX: u32 = 3;
const RETRY_WAIT: Duration = Duration::from_millis(300);
const REDIRECTS_MAX: usize = 10;

const MANIFEST_TYPES: &str = "application/vnd.oci.image.manifest.v1+json, \
    application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.docker.distribution.manifest.list.v2+json";

/// How to reach a registry.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Users and passwords.
    pub keychain: Keychain,
    /// PEM certificates of authorities to trust besides those of the system.
    pub certificate_authority: Option<Vec<u8>>,
    /// PEM client certificate and private key.
    pub client_certificate: Option<ClientCertificate>,
    /// A proxy that replaces those of the environment.
    pub proxy: Option<Proxy>,
    /// Allows plain HTTP and, without an own authority or certificate, any certificate.
    pub insecure: bool,
    /// Speaks nothing but plain HTTP.
    pub plain_http: bool,
}

/// Why an exchange with a registry failed.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// The client cannot be built.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The registry cannot be reached or broke off.
    #[error("{method} {url}")]
    Network {
        /// The request method.
        method: Method,
        /// The URL, without query.
        url: String,
        /// The details.
        #[source]
        source: reqwest::Error,
    },
    /// The registry refused.
    #[error("{method} {url}: {what}")]
    Refused {
        /// The request method.
        method: Method,
        /// The URL, without query.
        url: String,
        /// The status.
        status: StatusCode,
        /// The errors in the answer, or the status.
        what: String,
    },
    /// An answer that is not what the API promises.
    #[error("{url}: {what}")]
    Answer {
        /// The URL, without query.
        url: String,
        /// What is wrong.
        what: &'static str,
    },
    /// More bytes than allowed.
    #[error("{url}: the answer is larger than {bytes_max} bytes")]
    TooLarge {
        /// The URL, without query.
        url: String,
        /// The limit.
        bytes_max: u64,
    },
    /// Other bytes than the digest names.
    #[error("{url}: the content has digest '{found}' instead of '{wanted}'")]
    DigestMismatch {
        /// The URL, without query.
        url: String,
        /// The digest asked for.
        wanted: Digest,
        /// The digest of the answer.
        found: Digest,
    },
    /// A digest that is not one.
    #[error("invalid digest '{0}'")]
    InvalidDigest(String),
    /// No tag can be chosen.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The time of the operation is up.
    #[error("context deadline exceeded: the operation did not finish within {}s", .0.as_secs_f64())]
    DeadlineExceeded(Duration),
}

/// One operation on one repository.
pub struct Session {
    client: reqwest::Client,
    base: Mutex<Option<Url>>,
    schemes: &'static [&'static str],
    repository: Repository,
    keychain: Keychain,
    authorization: Mutex<Option<HeaderValue>>,
    deadline: Instant,
    timeout: Duration,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Session({})", self.repository)
    }
}

/// A content descriptor.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: String,
    /// Its length.
    #[serde(default)]
    pub size: u64,
    /// What a manifest stands for, or empty.
    #[serde(default)]
    pub artifact_type: String,
    /// The annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// The manifest of an image: what it consists of.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Image {
    /// The layers in order.
    #[serde(default)]
    pub layers: Vec<Descriptor>,
    /// The annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    #[serde(default)]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    config: Option<Descriptor>,
}

impl Image {
    /// The configuration.
    pub fn config(&self) -> Option<&Descriptor> {
        self.config.as_ref()
    }
}

impl Session {
    /// Prepares an operation that may take `timeout` in all. Nothing is sent yet.
    pub fn new(repository: Repository, access: &Access, timeout: Duration) -> Result<Self, OciError> {
        let own = access.certificate_authority.is_some() || access.client_certificate.is_some();
        let trust_all = access.insecure && !own;
        let client = connection::client(
            access.certificate_authority.as_deref(),
            access.client_certificate.as_ref(),
            access.proxy.as_ref(),
            |builder| {
                let builder = builder.redirect(redirects()).user_agent("flux/v2");
                if trust_all { builder.tls_danger_accept_invalid_certs(true) } else { builder }
            },
        )?;
        let host =
            repository.registry.rsplit_once(':').map_or(repository.registry.as_str(), |(host, _)| host);
        let local =
            matches!(host, "localhost" | "127.0.0.1" | "[::1]") || host.rsplit('.').next() == Some("local");
        Ok(Self {
            client,
            base: Mutex::new(None),
            schemes: if access.plain_http {
                &["http"]
            } else if access.insecure || local {
                &["https", "http"]
            } else {
                &["https"]
            },
            repository,
            keychain: access.keychain.clone(),
            authorization: Mutex::new(None),
            deadline: Instant::now() + timeout,
            timeout,
        })
    }

    /// The tag and digest (or digest alone) the target stands for.
    pub async fn resolve(&self, target: &Target) -> Result<(Option<String>, String), OciError> {
        match target {
            Target::Digest(digest) => {
                let _: Digest = digest.parse().map_err(|_| OciError::InvalidDigest(digest.clone()))?;
                Ok((None, digest.clone()))
            }
            Target::Tag(tag) => Ok((Some(tag.clone()), self.digest_of(tag).await?)),
            Target::Semver { .. } => {
                let tag = self.choose(target).await?;
                let digest = self.digest_of(&tag).await?;
                Ok((Some(tag), digest))
            }
        }
    }

    /// The tag of a version range; the tag itself for others.
    pub async fn choose(&self, target: &Target) -> Result<String, OciError> {
        match target {
            Target::Semver { expression, constraint, filter, is_chart } => {
                let tags = self.tags().await?;
                Ok(choose_tag(&tags, expression, constraint, filter.as_ref(), *is_chart)?)
            }
            Target::Tag(text) | Target::Digest(text) => Ok(text.clone()),
        }
    }

    /// All tags.
    pub async fn tags(&self) -> Result<Vec<String>, OciError> {
        #[derive(Deserialize)]
        struct Page {
            tags: Option<Vec<String>>,
        }
        let mut tags = Vec::new();
        let mut path = format!("/v2/{}/tags/list?n=1000", self.repository.name);
        loop {
            let response = self.request(&Method::GET, &path, "application/json").await?;
            let url = shown(response.url());
            let next = response.headers().get(LINK).and_then(|value| next_page(value.to_str().ok()?));
            let body = self.read(response, ANSWER_BYTES_MAX).await?;
            let page: Page = serde_json::from_slice(&body).map_err(|_| OciError::Answer {
                url: url.clone(),
                what: "the answer is not a list of tags",
            })?;
            let page = page.tags.unwrap_or_default();
            // A page without tags ends the list even if it links to itself.
            let ended = page.is_empty();
            tags.extend(page);
            if tags.len() > TAGS_MAX {
                return Err(OciError::Answer { url, what: "there are too many tags" });
            }
            match next {
                Some(next) if !ended => path = next,
                _ => return Ok(tags),
            }
        }
    }

    /// The digest of the manifest a tag points to.
    pub async fn digest_of(&self, tag: &str) -> Result<String, OciError> {
        let path = format!("/v2/{}/manifests/{tag}", self.repository.name);
        if let Ok(response) = self.request(&Method::HEAD, &path, MANIFEST_TYPES).await
            && let Some(digest) = response.headers().get("docker-content-digest")
            && let Ok(digest) = digest.to_str()
            && digest.parse::<Digest>().is_ok()
        {
            return Ok(digest.to_owned());
        }
        let response = self.request(&Method::GET, &path, MANIFEST_TYPES).await?;
        let body = self.read(response, MANIFEST_BYTES_MAX).await?;
        Ok(Algorithm::Sha256.digest(&body).to_string())
    }

    /// What refers to the manifest with this digest: as the registry says, or, where it does not know, as the index
    /// under the tag for that does.
    pub async fn referrers(&self, digest: &str) -> Result<Vec<Descriptor>, OciError> {
        let path = format!("/v2/{}/referrers/{digest}", self.repository.name);
        match self.request(&Method::GET, &path, "application/vnd.oci.image.index.v1+json").await {
            Ok(response) => {
                let url = shown(response.url());
                let body = self.read(response, MANIFEST_BYTES_MAX).await?;
                let index: Image = serde_json::from_slice(&body)
                    .map_err(|_| OciError::Answer { url, what: "the answer is not an index" })?;
                Ok(index.manifests)
            }
            Err(OciError::Refused { status, .. }) if is_missing(status) => {
                let index = self.tagged(&digest.replace(':', "-")).await?;
                Ok(index.map(|index| index.manifests).unwrap_or_default())
            }
            Err(error) => Err(error),
        }
    }

    /// The manifest under a tag; `None` if there is no such tag.
    pub async fn tagged(&self, tag: &str) -> Result<Option<Image>, OciError> {
        let path = format!("/v2/{}/manifests/{tag}", self.repository.name);
        let response = match self.request(&Method::GET, &path, MANIFEST_TYPES).await {
            Ok(response) => response,
            Err(OciError::Refused { status: StatusCode::NOT_FOUND, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let url = shown(response.url());
        let body = self.read(response, MANIFEST_BYTES_MAX).await?;
        let image = serde_json::from_slice(&body)
            .map_err(|_| OciError::Answer { url, what: "the answer is not an image manifest" })?;
        Ok(Some(image))
    }

    /// The image with this digest; of an index, the one for linux/amd64.
    pub async fn image(&self, digest: &str) -> Result<Image, OciError> {
        let image = self.manifest(digest).await?;
        if image.manifests.is_empty() {
            return Ok(image);
        }
        let child = image.manifests.iter().find(|child| {
            child
                .platform
                .as_ref()
                .is_none_or(|platform| platform.os == "linux" && platform.architecture == "amd64")
        });
        match child {
            Some(child) => self.manifest(&child.digest).await,
            None => Err(OciError::Answer {
                url: digest.to_owned(),
                what: "no child with platform linux/amd64 in index",
            }),
        }
    }

    async fn manifest(&self, digest: &str) -> Result<Image, OciError> {
        let path = format!("/v2/{}/manifests/{digest}", self.repository.name);
        let (url, body) = self.verified(&path, digest, MANIFEST_TYPES, MANIFEST_BYTES_MAX).await?;
        serde_json::from_slice(&body)
            .map_err(|_| OciError::Answer { url, what: "the answer is not an image manifest" })
    }

    /// The bytes of a layer, at most `bytes_max` of them.
    pub async fn blob(&self, layer: &Descriptor, bytes_max: u64) -> Result<Bytes, OciError> {
        let path = format!("/v2/{}/blobs/{}", self.repository.name, layer.digest);
        Ok(self.verified(&path, &layer.digest, "*/*", bytes_max).await?.1)
    }

    async fn verified(
        &self,
        path: &str,
        digest: &str,
        accept: &str,
        bytes_max: u64,
    ) -> Result<(String, Bytes), OciError> {
        let wanted: Digest = digest.parse().map_err(|_| OciError::InvalidDigest(digest.to_owned()))?;
        let response = self.request(&Method::GET, path, accept).await?;
        let url = shown(response.url());
        let body = self.read(response, bytes_max).await?;
        let found = wanted.algorithm().digest(&body);
        if found == wanted { Ok((url, body)) } else { Err(OciError::DigestMismatch { url, wanted, found }) }
    }

    /// Sends a request with whatever authentication the registry asks for.
    async fn request(&self, method: &Method, path: &str, accept: &str) -> Result<Response, OciError> {
        let base = self.base().await?;
        let url = base.join(path).map_err(|_| OciError::Answer {
            url: shown(&base),
            what: "the registry links to something that is not a URL",
        })?;
        if url.host() != base.host() || url.port_or_known_default() != base.port_or_known_default() {
            return Err(OciError::Answer { url: shown(&url), what: "the registry links to another host" });
        }
        let response = self.send(method, &url, accept).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return self.accepted(method, response).await;
        }
        let challenge = response
            .headers()
            .get(WWW_AUTHENTICATE)
            .and_then(|value| value.to_str().ok())
            .and_then(Challenge::parse);
        let Some(challenge) = challenge else { return self.accepted(method, response).await };
        let Some(authorization) = self.answer(&challenge).await? else {
            return self.accepted(method, response).await;
        };
        *self.authorization.lock() = Some(authorization);
        let response = self.send(method, &url, accept).await?;
        self.accepted(method, response).await
    }

    /// The address of the registry, with the scheme it speaks.
    async fn base(&self) -> Result<Url, OciError> {
        if let Some(base) = self.base.lock().clone() {
            return Ok(base);
        }
        let mut failure = None;
        for scheme in self.schemes {
            let text = format!("{scheme}://{}", self.repository.registry);
            let base = Url::parse(&text)
                .map_err(|_| OciError::Answer { url: text, what: "the registry is not a host" })?;
            // With nothing to choose from, the first request is the one that is wanted.
            if self.schemes.len() == 1 {
                *self.base.lock() = Some(base.clone());
                return Ok(base);
            }
            let ping = base.join("/v2/").unwrap_or_else(|_| base.clone());
            match self.send_once(&Method::GET, &ping, "*/*").await {
                Ok(_) => {
                    *self.base.lock() = Some(base.clone());
                    return Ok(base);
                }
                Err(error @ OciError::Network { .. }) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or(OciError::DeadlineExceeded(self.timeout)))
    }

    /// Sends a request, several times if the registry is busy.
    async fn send(&self, method: &Method, url: &Url, accept: &str) -> Result<Response, OciError> {
        let mut wait = RETRY_WAIT;
        for attempt in 1.. {
            let result = self.send_once(method, url, accept).await;
            let busy = match &result {
                Ok(response) => matches!(response.status().as_u16(), 408 | 429 | 500 | 502 | 503 | 504),
                Err(OciError::Network { .. }) => true,
                Err(_) => false,
            };
            if !busy || attempt == ATTEMPTS_MAX {
                return result;
            }
            self.within(async {
                tokio::time::sleep(wait).await;
            })
            .await?;
            wait *= 3;
        }
        Err(OciError::DeadlineExceeded(self.timeout))
    }

    async fn send_once(&self, method: &Method, url: &Url, accept: &str) -> Result<Response, OciError> {
        let mut request = self.client.request(method.clone(), url.clone()).header(ACCEPT, accept);
        if let Some(value) = self.authorization.lock().clone() {
            request = request.header(AUTHORIZATION, value);
        }
        self.within(request.send()).await?.map_err(|source| network(method, url, source))
    }

    async fn within<T>(&self, future: impl Future<Output = T>) -> Result<T, OciError> {
        tokio::time::timeout_at(self.deadline, future)
            .await
            .map_err(|_| OciError::DeadlineExceeded(self.timeout))
    }

    async fn accepted(&self, method: &Method, response: Response) -> Result<Response, OciError> {
        #[derive(Deserialize)]
        struct Errors {
            #[serde(default)]
            errors: Vec<One>,
        }
        #[derive(Deserialize)]
        struct One {
            #[serde(default)]
            code: String,
            #[serde(default)]
            message: String,
        }
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let url = shown(response.url());
        let is_json = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| kind.starts_with("application/json"));
        let body =
            if is_json { self.read(response, 64 << 10).await.unwrap_or_default() } else { Bytes::new() };
        let errors = serde_json::from_slice::<Errors>(&body).map(|answer| answer.errors).unwrap_or_default();
        let what = if errors.is_empty() {
            format!("unexpected status code {status}")
        } else {
            let lines: Vec<String> =
                errors.iter().map(|one| format!("{}: {}", one.code, one.message)).collect();
            weir_base::error::truncate(&lines.join("; "), 512)
        };
        Err(OciError::Refused { method: method.clone(), url, status, what })
    }

    async fn read(&self, mut response: Response, bytes_max: u64) -> Result<Bytes, OciError> {
        let url = response.url().clone();
        let mut body = BytesMut::new();
        loop {
            let chunk =
                self.within(response.chunk()).await?.map_err(|source| network(&Method::GET, &url, source))?;
            let Some(chunk) = chunk else { return Ok(body.freeze()) };
            if body.len() as u64 + chunk.len() as u64 > bytes_max {
                return Err(OciError::TooLarge { url: shown(&url), bytes_max });
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// What to send for a challenge; `None` if there is nothing to send.
    async fn answer(&self, challenge: &Challenge) -> Result<Option<HeaderValue>, OciError> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let credentials = self.keychain.find(&self.repository.registry, &self.repository.name);
        match challenge {
            Challenge::Basic => Ok(credentials.and_then(|(username, password)| {
                use base64::Engine as _;
                let pair = format!("{username}:{}", password.expose());
                let text = base64::engine::general_purpose::STANDARD.encode(pair);
                secret_header(&format!("Basic {text}"))
            })),
            Challenge::Bearer { realm, service } => {
                let scope = format!("repository:{}:pull", self.repository.name);
                let mut query: Vec<(&str, &str)> = vec![("scope", &scope)];
                if let Some(service) = service {
                    query.push(("service", service));
                }
                let Ok(mut url) = Url::parse(realm) else { return Ok(None) };
                url.query_pairs_mut().extend_pairs(query);
                let secure = self.base.lock().as_ref().is_some_and(|base| base.scheme() == "https");
                if secure && url.scheme() != "https" {
                    return Err(OciError::Answer {
                        url: shown(&url),
                        what: "the registry asks to get a token without TLS",
                    });
                }
                let mut request = self.client.get(url.clone());
                if let Some((username, password)) = credentials {
                    request = request.basic_auth(username, Some(password.expose()));
                }
                let response = self
                    .within(request.send())
                    .await?
                    .map_err(|source| network(&Method::GET, &url, source))?;
                let response = self.accepted(&Method::GET, response).await?;
                let body = self.read(response, 1 << 20).await?;
                let token: Token = serde_json::from_slice(&body)
                    .map_err(|_| OciError::Answer { url: shown(&url), what: "the answer is not a token" })?;
                Ok(token
                    .token
                    .or(token.access_token)
                    .and_then(|token| secret_header(&format!("Bearer {token}"))))
            }
        }
    }
}

/// Older registries answer in one of these ways to what they do not know.
fn is_missing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 404 | 405)
}

/// Not from TLS to plain HTTP. The client drops credentials when a redirect leads to another host.
fn redirects() -> reqwest::redirect::Policy {
    reqwest::redirect::Policy::custom(|attempt| {
        let leaves_tls =
            attempt.previous().iter().any(|url| url.scheme() == "https") && attempt.url().scheme() != "https";
        if leaves_tls || attempt.previous().len() > REDIRECTS_MAX { attempt.stop() } else { attempt.follow() }
    })
}

fn network(method: &Method, url: &Url, source: reqwest::Error) -> OciError {
    OciError::Network { method: method.clone(), url: shown(url), source: source.without_url() }
}

/// A URL for people: queries of storage redirects hold signatures.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// `</v2/name/tags/list?n=1000&last=x>; rel="next"`.
fn next_page(link: &str) -> Option<String> {
    let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
    parameters.contains("rel=\"next\"").then(|| target.to_owned())
}

#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let parameter = |name: &str| {
            let mut rest = rest;
            loop {
                let (key, after) = rest.split_once('=')?;
                let (value, after) = match after.strip_prefix('"') {
                    Some(quoted) => quoted.split_once('"')?,
                    None => after.split_once(',').unwrap_or((after, "")),
                };
                if key.trim_matches([',', ' ']).eq_ignore_ascii_case(name) {
                    return Some(value.to_owned());
                }
                rest = after;
            }
        };
        Some(Self::Bearer { realm: parameter("realm")?, service: parameter("service") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        for (header, expected) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://a/token\",service=\"b\",scope=\"c\"",
                bearer("https://a/token", Some("b")),
            ),
            ("bearer scope=\"x,y\", realm=\"https://a/token\"", bearer("https://a/token", None)),
            ("Bearer service=b", None),
            ("Negotiate", None),
        ] {
            assert_eq!(Challenge::parse(header), expected, "{header}");
        }
    }

    #[test]
    fn pages() {
        assert_eq!(
            next_page("</v2/a/tags/list?last=b>; rel=\"next\"").as_deref(),
            Some("/v2/a/tags/list?last=b")
        );
        assert_eq!(next_page("</x>; rel=\"prev\""), None);
        assert_eq!(next_page("x"), None);
    }
}
