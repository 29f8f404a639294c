//! Connections to Git servers: gix's transport trait on the shared HTTP client, or on an SSH channel.
//!
//! gix reads and writes blockingly; every wait here has the deadline of the operation and ends when
//! the caller gives up. Credentials are sent to the host of the repository only, redirects to a less
//! safe scheme are refused, and answers are bounded.

use std::any::Any;
use std::io::{self, BufRead, Cursor, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use gix_transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse, Transport,
};
use gix_transport::client::{blocking_io, git};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::ssh::{self, SshAlgorithms, SshCredentials};
use super::{Authorization, Credentials, GitError, Request, TransportError};
use crate::connection::{self, Proxy};

const REDIRECTS_MAX: usize = 5;
/// How much of an error answer is shown.
const DETAIL_BYTES_MAX: usize = 256;
/// Some servers look for `git/` to tell Git clients from browsers.
const AGENT: &str = concat!("git/2.0 (weir ", env!("CARGO_PKG_VERSION"), ")");

/// Builds the HTTP client for some credentials. User and password are not part of it.
pub(super) fn client(credentials: &Credentials) -> Result<reqwest::Client, GitError> {
    Ok(connection::client(
        credentials.certificate_authority.as_deref(),
        credentials.client_certificate.as_ref(),
        credentials.proxy.as_ref(),
        // Redirects are followed here, where it is known what they are for.
        |builder| builder.redirect(reqwest::redirect::Policy::none()),
    )?)
}

pub(super) fn needs_own_client(credentials: &Credentials) -> bool {
    credentials.certificate_authority.is_some()
        || credentials.client_certificate.is_some()
        || credentials.proxy.is_some()
}

/// A connection as gix sees it.
pub(super) type Connected = Box<dyn blocking_io::Transport + Send>;

/// One operation on one repository: its connection settings, its time and what went wrong.
#[derive(Clone)]
pub(super) struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    client: reqwest::Client,
    waiting: Waiting,
    /// The repository, without credentials.
    origin: Url,
    authorization: Option<HeaderValue>,
    ssh: Option<SshSettings>,
}

/// What a connection over SSH needs besides the URL.
struct SshSettings {
    user: String,
    credentials: SshCredentials,
    proxy: Option<Proxy>,
    algorithms: Arc<SshAlgorithms>,
}

/// How long an operation may take and how much it may read, and what went wrong.
#[derive(Clone)]
pub(super) struct Waiting(Arc<Limits>);

struct Limits {
    runtime: tokio::runtime::Handle,
    deadline: Instant,
    timeout: Duration,
    cancelled: CancellationToken,
    /// The first failure of this layer; gix buries it in its own errors.
    failure: Mutex<Option<TransportError>>,
    bytes_max: AtomicU64,
}

impl Waiting {
    /// Waits for a future within the time of the operation.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, TransportError> {
        self.0.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.0.cancelled.cancelled() => Err(TransportError::Cancelled),
                result = tokio::time::timeout_at(self.0.deadline, future) => {
                    result.map_err(|_| TransportError::DeadlineExceeded(self.0.timeout))
                }
            }
        })
    }

    /// Fails when more was received than allowed.
    pub(super) fn check_size(&self, received_bytes: u64) -> Result<(), TransportError> {
        let bytes_max = self.0.bytes_max.load(Ordering::Relaxed);
        if received_bytes > bytes_max { Err(TransportError::TooLarge(bytes_max)) } else { Ok(()) }
    }

    /// Keeps the failure for [`Session::failure`] and returns what gix wants to see.
    pub(super) fn keep(&self, failure: TransportError) -> io::Error {
        let error = io::Error::other(failure.to_string());
        self.0.failure.lock().get_or_insert(failure);
        error
    }
}

impl Session {
    pub(super) fn new(
        client: reqwest::Client,
        runtime: tokio::runtime::Handle,
        deadline: Instant,
        cancelled: CancellationToken,
        request: &Request,
        algorithms: &Arc<SshAlgorithms>,
    ) -> Self {
        let mut url = request.url.without_credentials();
        url.set_query(None);
        url.set_fragment(None);
        let ssh = request.credentials.ssh.clone().map(|credentials| SshSettings {
            user: percent_decode(request.url.expose().username()).unwrap_or_default(),
            credentials,
            proxy: request.credentials.proxy.clone(),
            algorithms: Arc::clone(algorithms),
        });
        let limits = Limits {
            runtime,
            deadline,
            timeout: request.timeout,
            cancelled,
            failure: Mutex::new(None),
            bytes_max: AtomicU64::new(u64::MAX),
        };
        Self {
            shared: Arc::new(Shared {
                client,
                waiting: Waiting(Arc::new(limits)),
                authorization: authorization(request),
                origin: url,
                ssh,
            }),
        }
    }

    /// A connection; answers larger than `bytes_max` are cut off.
    pub(super) fn connect(&self, bytes_max: u64) -> Result<Connected, TransportError> {
        self.limit(bytes_max);
        self.shared.waiting.0.failure.lock().take();
        if self.shared.origin.scheme() == "ssh" {
            return self.connect_ssh();
        }
        let url = gix::url::parse(self.shared.origin.as_str().trim_end_matches('/'))
            .map_err(|error| TransportError::Protocol(error.to_string()))?;
        let http = HttpClient { shared: Arc::clone(&self.shared), redirected: None };
        Ok(Box::new(Transport::new_http(http, url, gix_transport::Protocol::V2, false)))
    }

    fn connect_ssh(&self) -> Result<Connected, TransportError> {
        let Some(settings) = &self.shared.ssh else {
            return Err(TransportError::Ssh("ssh: no private key is given".to_owned()));
        };
        let opened = ssh::open(
            &self.shared.waiting,
            &self.shared.origin,
            &settings.user,
            &settings.credentials,
            settings.proxy.as_ref(),
            &settings.algorithms,
        )?;
        Ok(Box::new(git::blocking_io::Connection::new(
            opened.reader,
            opened.writer,
            gix_transport::Protocol::V2,
            opened.path,
            Some(opened.host),
            git::ConnectMode::Process,
            false,
        )))
    }

    /// Changes how large the answers on the current connection may get.
    pub(super) fn limit(&self, bytes_max: u64) {
        self.shared.waiting.0.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// What really happened when gix returned `error`.
    pub(super) fn failure(&self, error: &gix::Error) -> TransportError {
        if let Some(failure) = self.shared.waiting.0.failure.lock().take() {
            return failure;
        }
        let mut text = String::new();
        for cause in error.iter_errors() {
            let cause = cause.to_string();
            if !text.ends_with(&cause) {
                if !text.is_empty() {
                    text.push_str(": ");
                }
                text.push_str(&cause);
            }
        }
        TransportError::Protocol(text)
    }

    /// Whether the last failure was one of the network or the server's answer.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.waiting.0.failure.lock().is_some()
    }

    /// Fails when there is no time left or the caller gave up.
    pub(super) fn check_time(&self) -> Result<(), TransportError> {
        let limits = &self.shared.waiting.0;
        if limits.cancelled.is_cancelled() {
            Err(TransportError::Cancelled)
        } else if Instant::now() >= limits.deadline {
            Err(TransportError::DeadlineExceeded(limits.timeout))
        } else {
            Ok(())
        }
    }
}

fn authorization(request: &Request) -> Option<HeaderValue> {
    let text = match &request.credentials.authorization {
        Authorization::None => {
            let url = request.url.expose();
            if url.username().is_empty() && url.password().is_none() {
                return None;
            }
            let decode = |text| percent_decode(text).unwrap_or_default();
            basic(&decode(url.username()), &decode(url.password().unwrap_or_default()))
        }
        Authorization::Basic { username, password } => {
            // The URL fills in what the Secret leaves empty.
            let url = request.url.expose();
            let username = if username.is_empty() {
                percent_decode(url.username()).unwrap_or_default()
            } else {
                username.clone()
            };
            basic(&username, password.expose())
        }
        Authorization::Bearer(token) => format!("Bearer {}", token.expose()),
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn basic(username: &str, password: &str) -> String {
    let pair = format!("{username}:{password}");
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

impl Shared {
    /// Waits for a step of an HTTP exchange.
    fn wait<T>(
        &self,
        url: &Url,
        future: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, TransportError> {
        self.waiting
            .wait(future)?
            .map_err(|source| TransportError::Network { url: url.to_string(), source: source.without_url() })
    }

    /// Sends a request, follows safe redirects, and turns everything but a success into an error.
    /// The URL is the one that answered.
    fn send(
        &self,
        method: &Method,
        url: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<(Url, reqwest::Response), TransportError> {
        let mut url =
            Url::parse(url).map_err(|error| TransportError::Protocol(format!("invalid URL: {error}")))?;
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.client.request(method.clone(), url.clone());
            request = request.headers(headers.clone());
            if let Some(value) = &self.authorization
                && may_authenticate(&self.origin, &url)
            {
                request = request.header(AUTHORIZATION, value.clone());
            }
            if method == Method::POST {
                request = request.body(body.clone());
            }
            let response = self.wait(&url, request.send())?;
            let status = response.status();
            if status.is_redirection()
                && let Some(location) = response.headers().get(LOCATION)
            {
                url = redirect_target(&url, location, method, status)?;
                continue;
            }
            if status == StatusCode::OK {
                return Ok((url, response));
            }
            return Err(self.refusal(&url, response));
        }
        Err(TransportError::Redirect {
            from: self.origin.to_string(),
            to: url.to_string(),
            why: "there are too many of them",
        })
    }

    fn refusal(&self, url: &Url, mut response: reqwest::Response) -> TransportError {
        let status = response.status();
        let is_text = response
            .headers()
            .get(http::header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| kind.starts_with("text/plain"));
        let mut body = Vec::new();
        while is_text && body.len() < DETAIL_BYTES_MAX {
            match self.wait(url, response.chunk()) {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                _ => break,
            }
        }
        body.truncate(DETAIL_BYTES_MAX);
        let body = String::from_utf8_lossy(&body).trim().to_owned();
        match status {
            StatusCode::UNAUTHORIZED => TransportError::AuthenticationRequired(body),
            StatusCode::FORBIDDEN => TransportError::AuthorizationFailed(body),
            StatusCode::NOT_FOUND => TransportError::RepositoryNotFound,
            _ => TransportError::Status { url: url.to_string(), status: status.as_u16(), body },
        }
    }
}

/// The same host and port, or the step from `http` to `https` on the standard ports.
fn may_authenticate(origin: &Url, to: &Url) -> bool {
    let same_host = origin.host() == to.host();
    let ports = (origin.port_or_known_default(), to.port_or_known_default());
    same_host
        && ((origin.scheme() == to.scheme() && ports.0 == ports.1)
            || (origin.scheme() == "http"
                && to.scheme() == "https"
                && (ports.0 == ports.1 || ports == (Some(80), Some(443)))))
}

fn redirect_target(
    from: &Url,
    location: &HeaderValue,
    method: &Method,
    status: StatusCode,
) -> Result<Url, TransportError> {
    let text = String::from_utf8_lossy(location.as_bytes()).into_owned();
    let refused = |to: &str, why| TransportError::Redirect { from: from.to_string(), to: to.to_owned(), why };
    let mut to = from.join(&text).map_err(|_| refused(&text, "it is not a URL"))?;
    // Credentials come from the Secret alone.
    let _ = to.set_username("");
    let _ = to.set_password(None);
    match (from.scheme(), to.scheme()) {
        ("http", "http" | "https") | ("https", "https") => {}
        ("https", "http") => return Err(refused(to.as_str(), "it would leave TLS")),
        _ => return Err(refused(to.as_str(), "the scheme is not supported")),
    }
    let keeps_method = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    if method == Method::POST && !keeps_method {
        return Err(refused(to.as_str(), "a POST request would become a GET request"));
    }
    Ok(to)
}

/// gix's view of the HTTP client.
pub(super) struct HttpClient {
    shared: Arc<Shared>,
    /// The repository URL after a redirect of the first request.
    redirected: Option<String>,
}

impl HttpClient {
    fn headers(headers: impl IntoIterator<Item = impl AsRef<str>>) -> HeaderMap {
        let mut map = HeaderMap::new();
        for line in headers {
            if let Some((name, value)) = line.as_ref().split_once(':')
                && let Ok(name) = HeaderName::from_bytes(name.trim().as_bytes())
                && let Ok(value) = HeaderValue::from_str(value.trim())
            {
                map.insert(name, value);
            }
        }
        map.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        map
    }
}

impl Http for HttpClient {
    type Headers = Cursor<Vec<u8>>;
    type ResponseBody = Body;
    type PostBody = PostBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Cursor<Vec<u8>>, Body>> {
        let headers = Self::headers(headers);
        let (answered, response) = self
            .shared
            .send(&Method::GET, url, &headers, &Bytes::new())
            .map_err(|failure| gix::Error::from_error(self.shared.waiting.keep(failure)))?;
        if answered.as_str() != url {
            let tail = url.strip_prefix(base_url).unwrap_or_default();
            let Some(base) = answered.as_str().strip_suffix(tail).filter(|_| !tail.is_empty()) else {
                let failure = TransportError::Redirect {
                    from: url.to_owned(),
                    to: answered.to_string(),
                    why: "it does not lead to a Git repository",
                };
                return Err(gix::Error::from_error(self.shared.waiting.keep(failure)));
            };
            self.redirected = Some(base.to_owned());
        }
        let lines = header_lines(response.headers());
        let body = Body::ready(Arc::clone(&self.shared), answered, response);
        Ok(GetResponse { headers: Cursor::new(lines), body })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Cursor<Vec<u8>>, Body, PostBody>> {
        let pending = Arc::new(Mutex::new(Pending {
            url: url.to_owned(),
            headers: Self::headers(headers),
            body: Vec::new(),
        }));
        Ok(PostResponse {
            post_body: PostBody(Arc::clone(&pending)),
            // The content type is checked before there is an answer; the body checks the real one.
            headers: Cursor::new(b"content-type: application/x-git-upload-pack-result\n".to_vec()),
            body: Body {
                shared: Arc::clone(&self.shared),
                state: State::Pending(pending),
                chunk: Bytes::new(),
            },
        })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.redirected.clone()
    }
}

fn header_lines(headers: &HeaderMap) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in headers {
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value.as_bytes());
        lines.push(b'\n');
    }
    lines
}

/// A request that is sent when its answer is first read.
struct Pending {
    url: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Collects a request body.
pub(super) struct PostBody(Arc<Mutex<Pending>>);

impl Write for PostBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().body.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum State {
    Pending(Arc<Mutex<Pending>>),
    Answered { url: Url, response: Box<reqwest::Response>, received_bytes: u64 },
    Ended,
}

/// An answer, read as it comes.
pub(super) struct Body {
    shared: Arc<Shared>,
    state: State,
    chunk: Bytes,
}

impl Body {
    fn ready(shared: Arc<Shared>, url: Url, response: reqwest::Response) -> Self {
        let state = State::Answered { url, response: Box::new(response), received_bytes: 0 };
        Self { shared, state, chunk: Bytes::new() }
    }

    fn start(&self, pending: &Mutex<Pending>) -> Result<State, TransportError> {
        const RESULT: &str = "application/x-git-upload-pack-result";
        let (target, headers, body) = {
            let mut pending = pending.lock();
            let body = Bytes::from(std::mem::take(&mut pending.body));
            (pending.url.clone(), std::mem::take(&mut pending.headers), body)
        };
        let (url, response) = self.shared.send(&Method::POST, &target, &headers, &body)?;
        let kind = response
            .headers()
            .get(http::header::CONTENT_TYPE)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .unwrap_or_default();
        if kind != RESULT {
            return Err(TransportError::Protocol(format!(
                "the server answered with content type '{kind}' instead of '{RESULT}'"
            )));
        }
        Ok(State::Answered { url, response: Box::new(response), received_bytes: 0 })
    }

    fn next_chunk(&mut self) -> Result<Bytes, TransportError> {
        if let State::Pending(pending) = &self.state {
            let pending = Arc::clone(pending);
            self.state = State::Ended;
            self.state = self.start(&pending)?;
        }
        let State::Answered { url, response, received_bytes } = &mut self.state else {
            return Ok(Bytes::new());
        };
        loop {
            let chunk = self.shared.wait(url, response.chunk())?;
            let Some(chunk) = chunk else {
                self.state = State::Ended;
                return Ok(Bytes::new());
            };
            *received_bytes += chunk.len() as u64;
            self.shared.waiting.check_size(*received_bytes)?;
            if !chunk.is_empty() {
                return Ok(chunk);
            }
        }
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.is_empty() {
            self.chunk = match self.next_chunk() {
                Ok(chunk) => chunk,
                Err(failure) => {
                    self.state = State::Ended;
                    return Err(self.shared.waiting.keep(failure));
                }
            };
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, bytes: usize) {
        let _ = self.chunk.split_to(bytes.min(self.chunk.len()));
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let length = available.len().min(buffer.len());
        buffer[..length].copy_from_slice(&available[..length]);
        self.consume(length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_authenticates(origin: &str, to: &str, expected: bool) {
        let parse = |text| Url::parse(text).unwrap();
        assert_eq!(may_authenticate(&parse(origin), &parse(to)), expected, "{origin} {to}");
    }

    #[test]
    fn credentials_stay_with_their_host() {
        check_authenticates("https://a/r", "https://a/other", true);
        check_authenticates("http://a/r", "https://a/r", true);
        check_authenticates("http://a:8080/r", "http://a:8080/r", true);
        check_authenticates("https://a/r", "https://b/r", false);
        check_authenticates("https://a/r", "https://a:444/r", false);
        check_authenticates("https://a/r", "http://a/r", false);
        check_authenticates("http://a:8080/r", "https://a/r", false);
    }

    #[test]
    fn redirects_do_not_leave_tls() {
        let target = |from, to: &'static str, method: Method, status: u16| {
            redirect_target(
                &Url::parse(from).unwrap(),
                &HeaderValue::from_static(to),
                &method,
                StatusCode::from_u16(status).unwrap(),
            )
            .map(String::from)
        };
        assert_eq!(target("http://a/r", "/s", Method::GET, 301).unwrap(), "http://a/s");
        assert_eq!(target("http://a/r", "https://u:p@b/s", Method::GET, 302).unwrap(), "https://b/s");
        assert!(target("https://a/r", "http://a/r", Method::GET, 301).is_err());
        assert!(target("https://a/r", "file:///etc/passwd", Method::GET, 301).is_err());
        assert!(target("https://a/r", "https://a/s", Method::POST, 301).is_err());
        assert!(target("https://a/r", "https://a/s", Method::POST, 307).is_ok());
    }
}
