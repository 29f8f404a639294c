//! The HTTP client of chart repositories.

use std::io::Read as _;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, ETAG, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, LOCATION,
};
use http::{HeaderMap, StatusCode};
use reqwest::Response;
use tokio::time::Instant;
use url::Url;
use weir_base::redact::Secret;

use crate::connection::{self, ClientCertificate, ConnectionError};
use crate::oci::{Descriptor, HELM_CHART_CONTENT, Image};

const REDIRECTS_MAX: usize = 10;
/// The media type charts had before the registered one.
const LEGACY_CHART_CONTENT: &str = "application/tar+gzip";
const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";

/// How to reach a chart repository.
#[derive(Debug, Clone)]
pub struct Access {
    /// The user and the password; sent only if both are given.
    pub login: Option<(String, Secret)>,
    /// Sends them to other hosts as well when charts lie there.
    pub pass_credentials: bool,
    /// PEM certificates of authorities to trust besides those of the system.
    pub certificate_authority: Option<Vec<u8>>,
    /// PEM client certificate and private key.
    pub client_certificate: Option<ClientCertificate>,
    /// The longest time of one request with its answer.
    pub timeout: Duration,
}

/// Why a repository could not be read. No text has credentials or queries of URLs.
#[derive(Debug, thiserror::Error)]
pub enum HelmError {
    /// The URL of the repository is none.
    #[error("invalid Helm repository URL")]
    Url(#[source] url::ParseError),
    /// A scheme that is no web server's.
    #[error("scheme \"{0}\" not supported")]
    Scheme(String),
    /// The client cannot be built.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The server cannot be reached or broke off.
    #[error("Get \"{url}\"")]
    Network {
        /// The URL.
        url: String,
        /// The details.
        #[source]
        source: reqwest::Error,
    },
    /// The server refused.
    #[error("failed to fetch {url} : {status}")]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: StatusCode,
    },
    /// The server leads somewhere it must not.
    #[error("{url}: redirect refused: {why}")]
    Redirect {
        /// The URL that answered.
        url: String,
        /// What is wrong with the target.
        why: &'static str,
    },
    /// More bytes than allowed.
    #[error("index exceeds the maximum index file size of {0} bytes")]
    IndexTooLarge(u64),
    /// More bytes than allowed.
    #[error("chart exceeds the maximum chart file size of {0} bytes")]
    ChartTooLarge(u64),
    /// The answer claims to be compressed but is not.
    #[error("{0}: the answer is not gzip")]
    Compression(String),
    /// The time of the request is up.
    #[error("context deadline exceeded: no answer within {}s", .0.as_secs_f64())]
    DeadlineExceeded(Duration),
}

/// What the server said about an index, to ask whether it has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
}

impl Validators {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let validators =
            Self { etag: headers.get(ETAG).cloned(), last_modified: headers.get(LAST_MODIFIED).cloned() };
        (validators != Self::default()).then_some(validators)
    }
}

/// The answer to a request for the index.
#[derive(Debug)]
pub enum Fetched {
    /// It has not changed since the validators were given.
    Unchanged,
    /// Its bytes.
    Index {
        /// The content.
        bytes: Bytes,
        /// What to ask with next time, if the server can be asked.
        validators: Option<Validators>,
    },
}

/// A chart repository on a web server.
pub struct Repository {
    client: reqwest::Client,
    base: Url,
    access: Access,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Repository({})", shown(&self.base))
    }
}

impl Repository {
    /// Prepares the client. Nothing is sent yet.
    pub fn new(url: &str, access: Access) -> Result<Self, HelmError> {
        let url = super::normalize_url(url).map_err(HelmError::Url)?;
        let base = Url::parse(&url).map_err(HelmError::Url)?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(HelmError::Scheme(base.scheme().to_owned()));
        }
        let client = connection::client(
            access.certificate_authority.as_deref(),
            access.client_certificate.as_ref(),
            None,
            |builder| builder.redirect(reqwest::redirect::Policy::none()).user_agent("flux/v2"),
        )?;
        Ok(Self { client, base, access })
    }

    /// The index, unless it has not changed.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or sends more than `bytes_max`.
    pub async fn index(&self, known: Option<&Validators>, bytes_max: u64) -> Result<Fetched, HelmError> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/index.yaml", self.base.path().trim_end_matches('/')));
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if let Some(known) = known {
            if let Some(etag) = &known.etag {
                headers.insert(IF_NONE_MATCH, etag.clone());
            }
            if let Some(time) = &known.last_modified {
                headers.insert(IF_MODIFIED_SINCE, time.clone());
            }
        }
        let deadline = Instant::now() + self.access.timeout;
        let (url, response) = self.get(url, &headers, deadline).await?;
        if response.status() == StatusCode::NOT_MODIFIED && known.is_some() {
            return Ok(Fetched::Unchanged);
        }
        Self::accept(&url, &response)?;
        let validators = Validators::of(response.headers());
        let compressed = response.headers().get(CONTENT_ENCODING).is_some_and(|value| value == "gzip");
        let too_large = || HelmError::IndexTooLarge(bytes_max);
        let bytes = self.read(&url, response, bytes_max, deadline).await?.ok_or_else(too_large)?;
        let bytes = if compressed {
            let mut plain = Vec::new();
            flate2::read::MultiGzDecoder::new(&bytes[..])
                .take(bytes_max.saturating_add(1))
                .read_to_end(&mut plain)
                .map_err(|_| HelmError::Compression(shown(&url)))?;
            if plain.len() as u64 > bytes_max {
                return Err(too_large());
            }
            Bytes::from(plain)
        } else {
            bytes
        };
        Ok(Fetched::Index { bytes, validators })
    }

    /// The package of a chart, by a URL of the index, which may be relative to the repository.
    ///
    /// # Errors
    /// As for [`Repository::index`].
    pub async fn chart(&self, reference: &str, bytes_max: u64) -> Result<Bytes, HelmError> {
        let url = self.resolve(reference)?;
        let deadline = Instant::now() + self.access.timeout;
        let (url, response) = self.get(url, &HeaderMap::new(), deadline).await?;
        Self::accept(&url, &response)?;
        let bytes = self.read(&url, response, bytes_max, deadline).await?;
        bytes.ok_or(HelmError::ChartTooLarge(bytes_max))
    }

    /// The URL a reference stands for. The query of the repository is carried over to relative ones.
    fn resolve(&self, reference: &str) -> Result<Url, HelmError> {
        let mut url = match Url::parse(reference) {
            Ok(url) => url,
            Err(url::ParseError::RelativeUrlWithoutBase) => {
                let mut base = self.base.clone();
                base.set_query(None);
                let mut url = base.join(reference).map_err(HelmError::Url)?;
                url.set_query(self.base.query());
                url
            }
            Err(error) => return Err(HelmError::Url(error)),
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(HelmError::Scheme(url.scheme().to_owned()));
        }
        url.set_fragment(None);
        Ok(url)
    }

    /// Sends a request and follows redirects.
    async fn get(
        &self,
        mut url: Url,
        headers: &HeaderMap,
        deadline: Instant,
    ) -> Result<(Url, Response), HelmError> {
        let first = url.clone();
        let trusted = self.access.pass_credentials || same_origin(&self.base, &first);
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.client.get(url.clone()).headers(headers.clone());
            if let Some((user, password)) = &self.access.login
                && trusted
                && same_origin(&first, &url)
                && !user.is_empty()
                && !password.expose().is_empty()
            {
                request = request.header(AUTHORIZATION, basic(user, password));
            }
            let response = within(self.access.timeout, deadline, request.send())
                .await?
                .map_err(|source| network(&url, source))?;
            let status = response.status();
            let location = response.headers().get(LOCATION).filter(|_| status.is_redirection());
            let Some(location) = location.filter(|_| status != StatusCode::NOT_MODIFIED) else {
                return Ok((url, response));
            };
            let refused = |why| HelmError::Redirect { url: shown(&url), why };
            let target = std::str::from_utf8(location.as_bytes()).ok().and_then(|text| url.join(text).ok());
            let mut target = target.ok_or_else(|| refused("the target is not a URL"))?;
            match (url.scheme(), target.scheme()) {
                ("http", "http" | "https") | ("https", "https") => {}
                ("https", "http") => return Err(refused("it would leave TLS")),
                _ => return Err(refused("the scheme is not supported")),
            }
            // Credentials come from the Secret alone.
            let _ = target.set_username("");
            let _ = target.set_password(None);
            url = target;
        }
        Err(HelmError::Redirect { url: shown(&first), why: "there are too many of them" })
    }

    fn accept(url: &Url, response: &Response) -> Result<(), HelmError> {
        match response.status() {
            StatusCode::OK => Ok(()),
            status => Err(HelmError::Status { url: shown(url), status }),
        }
    }

    /// The body; `None` if it is too large.
    async fn read(
        &self,
        url: &Url,
        mut response: Response,
        bytes_max: u64,
        deadline: Instant,
    ) -> Result<Option<Bytes>, HelmError> {
        if response.content_length().is_some_and(|length| length > bytes_max) {
            return Ok(None);
        }
        let mut body = BytesMut::with_capacity(response.content_length().unwrap_or_default() as usize);
        loop {
            let chunk = within(self.access.timeout, deadline, response.chunk())
                .await?
                .map_err(|source| network(url, source))?;
            let Some(chunk) = chunk else { return Ok(Some(body.freeze())) };
            if body.len() as u64 + chunk.len() as u64 > bytes_max {
                return Ok(None);
            }
            body.extend_from_slice(&chunk);
        }
    }
}

/// The layer with the package of a chart in a registry.
///
/// # Errors
/// The image is not a chart.
pub fn chart_layer(image: &Image) -> Result<&Descriptor, &'static str> {
    if image.config().is_none_or(|config| config.media_type != CHART_CONFIG) {
        return Err("could not load config with mediatype application/vnd.cncf.helm.config.v1+json");
    }
    let is_chart = |layer: &&Descriptor| {
        layer.media_type == HELM_CHART_CONTENT || layer.media_type == LEGACY_CHART_CONTENT
    };
    image
        .layers
        .iter()
        .find(is_chart)
        .ok_or("manifest does not contain a layer with mediatype application/vnd.cncf.helm.chart.content.v1.tar+gzip")
}

async fn within<T>(
    timeout: Duration,
    deadline: Instant,
    future: impl Future<Output = T>,
) -> Result<T, HelmError> {
    tokio::time::timeout_at(deadline, future).await.map_err(|_| HelmError::DeadlineExceeded(timeout))
}

fn same_origin(left: &Url, right: &Url) -> bool {
    left.scheme() == right.scheme()
        && left.host() == right.host()
        && left.port_or_known_default() == right.port_or_known_default()
}

fn basic(user: &str, password: &Secret) -> HeaderValue {
    use base64::Engine as _;
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{}", password.expose()));
    let mut value =
        HeaderValue::from_str(&format!("Basic {pair}")).unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

fn network(url: &Url, source: reqwest::Error) -> HelmError {
    HelmError::Network { url: shown(url), source: source.without_url() }
}

/// A URL for people, without what may be secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(url: &str) -> Repository {
        let access = Access {
            login: None,
            pass_credentials: false,
            certificate_authority: None,
            client_certificate: None,
            timeout: Duration::from_secs(1),
        };
        Repository::new(url, access).unwrap()
    }

    #[test]
    fn urls_of_charts() {
        for (base, reference, expected) in [
            ("https://a/charts", "b-1.tgz", "https://a/charts/b-1.tgz"),
            ("https://a/charts/", "/b-1.tgz", "https://a/b-1.tgz"),
            ("https://a/charts?token=x", "sub/b-1.tgz", "https://a/charts/sub/b-1.tgz?token=x"),
            ("https://a/charts", "http://b/c.tgz?y=1", "http://b/c.tgz?y=1"),
        ] {
            assert_eq!(repository(base).resolve(reference).unwrap().as_str(), expected);
        }
        let error = repository("https://a").resolve("file:///etc/passwd").unwrap_err();
        assert_eq!(error.to_string(), "scheme \"file\" not supported");
        assert!(matches!(repository("https://a").resolve("oci://b/c"), Err(HelmError::Scheme(_))));
    }

    #[test]
    fn secrets_in_urls_are_not_shown() {
        let url = Url::parse("https://u:p@a/b?token=x").unwrap();
        assert_eq!(shown(&url), "https://a/b");
        assert_eq!(format!("{:?}", repository("https://u:p@a/b")), "Repository(https://a/b/)");
    }
}
