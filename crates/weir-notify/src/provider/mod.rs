//! Services that events are sent to: one file per service or family of services.
//!
//! [`next`] is the whole of it: the next request of a delivery, as a function of the [`Job`] and the answers so far.

mod alertmanager;
mod azure_devops;
mod bitbucket;
mod bitbucket_server;
mod comment;
mod datadog;
mod discord;
mod event_hub;
mod generic;
mod gitea;
mod github;
mod gitlab;
mod google_chat;
mod grafana;
mod incident_io;
mod lark;
mod matrix;
mod opsgenie;
mod otel;
mod pagerduty;
mod pub_sub;
mod sentry;
mod slack;
mod status;
mod teams;
mod telegram;
mod webex;
mod zoom;
mod zulip;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use url::Url;
use weir_api::notification::ProviderType;
use weir_base::redact::Secret;

use crate::event::{Event, to_go_json};
use crate::git_address::GitAddressError;
use crate::target::Target;
use crate::text::{RevisionError, cut_characters};

/// How much of an answer is shown in an error.
const ANSWER_CHARACTERS_MAX: usize = 1024;

/// One event for one target, with everything the requests are made from.
pub struct Job {
    /// Where it goes.
    pub target: Arc<Target>,
    /// The event with combined metadata.
    pub event: Event,
    /// Keys of the metadata whose value the author of the Alert wrote. In chats their markup is left alone.
    pub authored: BTreeSet<String>,
    /// The Alert.
    pub alert: AlertIdentity,
    /// What tells the commit status apart from others of the same commit.
    pub commit_status: String,
    /// When the delivery began.
    pub now: jiff::Timestamp,
    /// Random bytes for services that want ids.
    pub random: [u8; 24],
    /// The access token, for services that need one from elsewhere.
    pub access: Option<Access>,
    /// Where the public services are.
    pub endpoints: Endpoints,
}

/// The Alert an event is sent for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertIdentity {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The unique id.
    pub uid: String,
}

/// A token from an identity service.
#[derive(Debug, Clone)]
pub struct Access {
    /// The token.
    pub token: Secret,
    /// The name of the GitHub App in URLs.
    pub app_slug: Option<String>,
}

/// What a delivery needs before its first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A token of the GitHub App in the Secret.
    GithubApp,
    /// A token of the Azure identity for a scope.
    Azure(&'static str),
    /// A token of the Google identity.
    Google,
}

/// Services with one public address, to be exchanged in tests and by environment variables of their SDKs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// The API of Bitbucket Cloud.
    pub bitbucket: Url,
    /// The API of GitHub.
    pub github: Url,
    /// Google Pub/Sub.
    pub pub_sub: Url,
    /// The bots of Telegram.
    pub telegram: Url,
    /// The suffix of Event Hubs namespaces.
    pub event_hub_suffix: String,
    /// Event Hubs, in the place of the host of the namespace.
    pub event_hub: Option<Url>,
}

impl Default for Endpoints {
    fn default() -> Self {
        let url = |text: &str| -> Url {
            #[expect(clippy::unwrap_used, reason = "the addresses below are URLs; a test reads them")]
            Url::parse(text).unwrap()
        };
        Self {
            bitbucket: url("https://api.bitbucket.org/2.0/"),
            github: url("https://api.github.com/"),
            pub_sub: url("https://pubsub.googleapis.com/"),
            telegram: url("https://api.telegram.org/"),
            event_hub_suffix: ".servicebus.windows.net".to_owned(),
            event_hub: None,
        }
    }
}

/// HTTP methods in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
}

impl Method {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
        }
    }
}

/// A request. `Debug` shows neither path, headers nor body.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The URL; paths and queries of webhooks are secrets.
    pub url: Url,
    /// Names and values; names are in the case they are written.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether trouble on the way and of the server is waited out.
    pub retries: bool,
    /// What goes before an error of this request.
    pub failed: &'static str,
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.url.host_str().unwrap_or_default();
        write!(formatter, "Request({} {}://{host})", self.method.as_str(), self.url.scheme())
    }
}

impl Request {
    fn new(method: Method, url: Url, failed: &'static str) -> Self {
        Self { method, url, headers: Vec::new(), body: Vec::new(), retries: false, failed }
    }

    /// A message posted to a webhook as JSON.
    fn message<T: serde::Serialize>(url: Url, payload: &T) -> Self {
        let mut request = Self::new(Method::Post, url, POST_FAILED).json(payload);
        request.retries = true;
        request
    }

    fn json<T: serde::Serialize>(self, payload: &T) -> Self {
        self.body("application/json", to_go_json(payload))
    }

    fn body(mut self, content_type: &str, body: Vec<u8>) -> Self {
        self.body = body;
        self.header("Content-Type", content_type)
    }

    /// Sets a header, in the place of one of the same name.
    fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(held, _)| !held.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    fn bearer(self, token: &str) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }

    fn basic(self, username: &str, password: &str) -> Self {
        let login = STANDARD.encode(format!("{username}:{password}"));
        self.header("Authorization", format!("Basic {login}"))
    }

    fn retried(mut self) -> Self {
        self.retries = true;
        self
    }
}

/// What messages to webhooks fail with.
const POST_FAILED: &str = "postMessage failed";

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, as far as it was read.
    pub body: Vec<u8>,
}

impl Answer {
    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Nothing, if the answer is a success.
    fn success(&self, failed: &'static str) -> Result<(), ProviderError> {
        if self.is_success() {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&self.body);
        Err(ProviderError::Status {
            failed,
            status: self.status,
            answer: cut_characters(shown.trim_end(), ANSWER_CHARACTERS_MAX),
        })
    }

    /// The JSON of a successful answer.
    fn json<T: DeserializeOwned>(&self, failed: &'static str) -> Result<T, ProviderError> {
        self.success(failed)?;
        // The answer may be anything; nothing of it is shown.
        serde_json::from_slice(&self.body).map_err(|_| ProviderError::Unexpected(failed))
    }
}

/// What is next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send this and come back with the answer.
    Send(Box<Request>),
    /// Nothing.
    Done,
}

impl From<Request> for Step {
    fn from(request: Request) -> Self {
        Self::Send(Box::new(request))
    }
}

/// Why an event is not delivered. Texts show no credentials and no addresses of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The address is not a URL of HTTP.
    #[error("invalid {what} URL: it must be an absolute http or https URL")]
    Address {
        /// What the address is of.
        what: &'static str,
    },
    /// A setting is missing or wrong.
    #[error("{0}")]
    Setting(String),
    /// The address names no repository.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// There is no commit to set a status on.
    #[error(transparent)]
    Revision(#[from] RevisionError),
    /// The severity has no counterpart.
    #[error("can't convert to {0} state")]
    State(&'static str),
    /// The change request is no number.
    #[error("invalid \"change_request\" metadata value \"{0}\": it must be a number")]
    ChangeRequest(String),
    /// A header that HTTP does not allow.
    #[error("the value of header '{0}' is not allowed in HTTP")]
    Header(String),
    /// The service refused.
    #[error("{failed}: request failed: request failed with status code {status}: {answer}")]
    Status {
        /// What was tried.
        failed: &'static str,
        /// The status.
        status: u16,
        /// The beginning of the answer.
        answer: String,
    },
    /// The service says in its answer that it refused.
    #[error("{failed}: request failed: {answer}")]
    Refused {
        /// What was tried.
        failed: &'static str,
        /// What the service says.
        answer: String,
    },
    /// The answer is not what the service's documentation promises.
    #[error("{0}: unexpected answer of the service")]
    Unexpected(&'static str),
}

/// An address that names no repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct RepositoryError(GitAddressError);

impl From<GitAddressError> for ProviderError {
    fn from(error: GitAddressError) -> Self {
        Self::Repository(RepositoryError(error))
    }
}

impl ProviderError {
    fn setting(text: impl Into<String>) -> Self {
        Self::Setting(text.into())
    }

    /// Whether the settings are to blame, which is found out before anything is sent.
    pub fn is_setting(&self) -> bool {
        match self {
            Self::Address { .. } | Self::Setting(_) | Self::Repository(_) => true,
            Self::Revision(_)
            | Self::State(_)
            | Self::ChangeRequest(_)
            | Self::Header(_)
            | Self::Status { .. }
            | Self::Refused { .. }
            | Self::Unexpected(_) => false,
        }
    }
}

impl Job {
    fn severity(&self) -> &str {
        self.event.severity.as_str()
    }

    /// The address as a URL of HTTP.
    fn url(&self, what: &'static str) -> Result<Url, ProviderError> {
        let address = self.target.address.expose();
        match Url::parse(address) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
            _ => Err(ProviderError::Address { what }),
        }
    }

    /// A metadata value as a chat shows it: what is not from the Alert's author goes through `plain`.
    fn shown(&self, key: &str, value: &str, plain: impl Fn(&str) -> String) -> String {
        if self.authored.contains(key) { value.to_owned() } else { plain(value) }
    }

    /// The time of the event, in RFC 3339.
    fn time(&self) -> String {
        self.event.timestamp.map_or_else(|| ZERO_TIME.to_owned(), crate::event::rfc3339)
    }

    /// The time of the event, in Unix seconds.
    fn seconds(&self) -> i64 {
        self.event.timestamp.map_or(ZERO_TIME_SECONDS, jiff::Timestamp::as_second)
    }
}

/// Go's zero time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";
const ZERO_TIME_SECONDS: i64 = -62_135_596_800;

/// What must be had before the first request of a delivery to this target.
pub fn need(target: &Target) -> Option<Need> {
    let has_token = !target.token.expose().is_empty();
    match target.kind {
        ProviderType::Github | ProviderType::Githubdispatch | ProviderType::Githubpullrequestcomment => {
            let has_app = target.data.contains_key("githubAppID");
            (target.token_or_password().expose().is_empty() && has_app).then_some(Need::GithubApp)
        }
        ProviderType::Azuredevops => (!has_token).then_some(Need::Azure(azure_devops::SCOPE)),
        ProviderType::Azureeventhub => {
            (!has_token && !event_hub::is_signed(target)).then_some(Need::Azure(event_hub::SCOPE))
        }
        ProviderType::Googlepubsub => Some(Need::Google),
        _ => None,
    }
}

/// The next request of a delivery, from the answers to those before.
///
/// # Errors
/// The settings or the event do not fit, or the service refused; see [`ProviderError`].
pub fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    let step = match job.target.kind {
        ProviderType::Generic => generic::next(job, answers, false),
        ProviderType::GenericHmac => generic::next(job, answers, true),
        ProviderType::Slack => slack::slack(job, answers),
        ProviderType::Rocket => slack::rocket(job, answers),
        ProviderType::Discord => discord::next(job, answers),
        ProviderType::Msteams => teams::next(job, answers),
        ProviderType::Googlechat => google_chat::next(job, answers),
        ProviderType::Webex => webex::next(job, answers),
        ProviderType::Telegram => telegram::next(job, answers),
        ProviderType::Lark => lark::next(job, answers),
        ProviderType::Matrix => matrix::next(job, answers),
        ProviderType::Zulip => zulip::next(job, answers),
        ProviderType::Zoom => zoom::next(job, answers),
        ProviderType::Opsgenie => opsgenie::next(job, answers),
        ProviderType::Pagerduty => pagerduty::next(job, answers),
        ProviderType::IncidentIo => incident_io::next(job, answers),
        ProviderType::Alertmanager => alertmanager::next(job, answers),
        ProviderType::Grafana => grafana::next(job, answers),
        ProviderType::Sentry => sentry::next(job, answers),
        ProviderType::Datadog => datadog::next(job, answers),
        ProviderType::Googlepubsub => pub_sub::next(job, answers),
        ProviderType::Azureeventhub => event_hub::next(job, answers),
        ProviderType::Otel => otel::next(job, answers),
        ProviderType::Github => github::status(job, answers),
        ProviderType::Githubdispatch => github::dispatch(job, answers),
        ProviderType::Githubpullrequestcomment => github::comment(job, answers),
        ProviderType::Gitlab => gitlab::status(job, answers),
        ProviderType::Gitlabmergerequestcomment => gitlab::comment(job, answers),
        ProviderType::Gitea => gitea::status(job, answers),
        ProviderType::Giteapullrequestcomment => gitea::comment(job, answers),
        ProviderType::Bitbucket => bitbucket::next(job, answers),
        ProviderType::Bitbucketserver => bitbucket_server::next(job, answers),
        ProviderType::Azuredevops => azure_devops::next(job, answers),
        // Not HTTP; see `crate::nats`.
        ProviderType::Nats => crate::nats::check(&job.target).map(|()| Step::Done),
    }?;
    if let Step::Send(request) = &step {
        for (name, value) in &request.headers {
            if reqwest::header::HeaderValue::from_str(value).is_err() {
                return Err(ProviderError::Header(name.clone()));
            }
        }
    }
    Ok(step)
}

/// A delivery of one request that is a success with any 2xx.
fn once(
    answers: &[Answer],
    request: impl FnOnce() -> Result<Request, ProviderError>,
) -> Result<Step, ProviderError> {
    let request = request()?;
    match answers.first() {
        None => Ok(request.into()),
        Some(answer) => answer.success(request.failed).map(|()| Step::Done),
    }
}
