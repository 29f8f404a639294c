//! Azure Event Hubs, by its HTTPS interface.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use url::Url;

use super::{Answer, Job, Method, ProviderError, Request, Step, once};
use crate::git_address::GitAddress;
use crate::target::Target;

/// What an access token must be good for.
pub(super) const SCOPE: &str = "https://eventhubs.azure.net//.default";
/// How long a signature is good for.
const SIGNATURE_SECONDS: i64 = 300;

/// Whether the address is a connection string with a key.
pub(super) fn is_signed(target: &Target) -> bool {
    target.address.expose().contains("SharedAccessKey")
}

fn invalid(why: &str) -> ProviderError {
    ProviderError::setting(format!("invalid authentication options: {why}"))
}

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let target = &job.target;
        let (has_token, has_account) =
            (!target.token.expose().is_empty(), !target.service_account.is_empty());
        let address = target.address.expose();
        if address.is_empty() {
            return Err(invalid("endpoint URL cannot be empty"));
        }
        let (hub, authorization) = if is_signed(target) {
            if has_account {
                return Err(invalid(
                    "serviceAccountName and SAS authentication cannot be set at the same time",
                ));
            }
            if has_token {
                return Err(invalid("jwt token and SAS authentication cannot be set at the same time"));
            }
            let connection = ConnectionString::parse(address)?;
            let authorization = connection.sign(job.now.as_second())?;
            (connection.hub, authorization)
        } else {
            if has_account && has_token {
                return Err(invalid(
                    "serviceAccountName and jwt token authentication cannot be set at the same time",
                ));
            }
            let access = job.access.as_ref().map_or("", |access| access.token.expose());
            let token = if has_token { target.token.expose() } else { access };
            (named(job, address)?, format!("Bearer {token}"))
        };
        let base = job.endpoints.event_hub.as_ref().map_or(hub.clone(), |base| {
            let mut url = base.clone();
            url.set_path(hub.path());
            url
        });
        let url = GitAddress::url(&base, &["messages"], &[("api-version", "2014-01")]);
        let request = Request::new(Method::Post, url, "failed to send msg");
        Ok(request
            .body("application/json", job.event.to_json())
            .header("Authorization", authorization)
            .retried())
    })
}

/// The hub of a namespace, the address being its name and the channel that of the namespace.
fn named(job: &Job, hub: &str) -> Result<Url, ProviderError> {
    let namespace = &job.target.channel;
    let suffix = if namespace.contains(".servicebus.") { "" } else { &job.endpoints.event_hub_suffix };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let host = format!("{namespace}{suffix}");
    if namespace.is_empty() || !host.bytes().all(is_host) {
        return Err(ProviderError::setting("the channel is not the name of an Event Hubs namespace"));
    }
    let url = Url::parse(&format!("https://{host}/"));
    let url =
        url.map_err(|_| ProviderError::setting("the channel is not the name of an Event Hubs namespace"))?;
    Ok(GitAddress::url(&url, &[hub], &[]))
}

struct ConnectionString {
    hub: Url,
    key_name: String,
    key: String,
}

impl ConnectionString {
    fn parse(text: &str) -> Result<Self, ProviderError> {
        let failed =
            |why: &str| ProviderError::setting(format!("failed to create a eventhub using SAS: {why}"));
        let field = |name: &str| {
            let find = |part: &str| {
                let (key, value) = part.split_once('=')?;
                key.trim().eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            };
            text.split(';').find_map(find).filter(|value| !value.is_empty())
        };
        let missing = |name: &str| failed(&format!("the connection string has no {name}"));
        let endpoint = field("Endpoint").ok_or_else(|| missing("Endpoint"))?;
        let host = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, host)| host);
        let hub = field("EntityPath").ok_or_else(|| missing("EntityPath"))?;
        let base = Url::parse(&format!("https://{host}"));
        let base = base.map_err(|_| failed("the Endpoint of the connection string is no URL"))?;
        Ok(Self {
            hub: GitAddress::url(&base, &[&hub], &[]),
            key_name: field("SharedAccessKeyName").ok_or_else(|| missing("SharedAccessKeyName"))?,
            key: field("SharedAccessKey").ok_or_else(|| missing("SharedAccessKey"))?,
        })
    }

    fn sign(&self, now: i64) -> Result<String, ProviderError> {
        let escape =
            |text: &str| -> String { url::form_urlencoded::byte_serialize(text.as_bytes()).collect() };
        let resource = escape(self.hub.as_str());
        let expiry = now + SIGNATURE_SECONDS;
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.as_bytes())
            .map_err(|_| ProviderError::setting("the key of the connection string cannot sign"))?;
        mac.update(format!("{resource}\n{expiry}").as_bytes());
        let signature = escape(&STANDARD.encode(mac.finalize().into_bytes()));
        let name = escape(&self.key_name);
        Ok(format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}"))
    }
}
