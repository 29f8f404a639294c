//! Logins for the container registries of clouds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use weir_base::redact::Secret;

use crate::aws::{AwsCredentials, Scope, post};
use crate::{CloudError, HttpError, InvalidCredentials, Requests, failed};

/// The user name that goes with the refresh tokens of Azure.
const AZURE_USER: &str = "00000000-0000-0000-0000-000000000000";
/// The user name that goes with the access tokens of Google Cloud.
pub const GCP_USER: &str = "oauth2accesstoken";

/// A registry of AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AwsRegistry {
    /// One of an account.
    Private {
        /// Where it is.
        region: String,
        /// The service that gives logins for it.
        endpoint: String,
    },
    /// The one for everybody.
    Public,
}

impl AwsRegistry {
    /// The registry at a host; `None` if that is none of AWS.
    pub fn at(host: &str) -> Option<Self> {
        if host == "public.ecr.aws" {
            return Some(Self::Public);
        }
        let (account, rest) = host.split_once(".dkr.")?;
        let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        let (service, rest) = rest.split_once('.')?;
        let (region, domain) = rest.split_once('.')?;
        let is_ecr = matches!(service, "ecr" | "ecr-fips");
        let is_aws = matches!(domain, "amazonaws.com" | "amazonaws.com.cn");
        let is_region = region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (is_account && is_ecr && is_aws && is_region && !region.is_empty()).then(|| Self::Private {
            region: region.to_owned(),
            endpoint: format!("https://api.{service}.{region}.{domain}/"),
        })
    }

    /// The region requests are signed for.
    pub fn region(&self) -> &str {
        match self {
            Self::Private { region, .. } => region,
            Self::Public => "us-east-1",
        }
    }

    /// A user and a password. `endpoint` replaces the address of the service.
    ///
    /// # Errors
    /// The service refuses.
    pub async fn login(
        &self,
        requests: &Requests,
        credentials: &AwsCredentials,
        endpoint: Option<&str>,
        now: Timestamp,
    ) -> Result<(String, Secret), CloudError> {
        let (service, target, own, pointer) = match self {
            Self::Private { endpoint, .. } => (
                "ecr",
                "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
                endpoint.as_str(),
                "/authorizationData/0/authorizationToken",
            ),
            Self::Public => (
                "ecr-public",
                "SpencerFrontendService.GetAuthorizationToken",
                "https://api.ecr-public.us-east-1.amazonaws.com/",
                "/authorizationData/authorizationToken",
            ),
        };
        let failed = failed("failed to get a login for the registry");
        let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", target)];
        let scope = Scope { region: self.region(), service };
        let endpoint = endpoint.unwrap_or(own);
        let request =
            post(requests, credentials, &scope, endpoint, &headers, "{}".to_owned(), now).map_err(&failed)?;
        let answer = requests.send_json(request).await.map_err(&failed)?;
        let login = || {
            let token = STANDARD.decode(answer.pointer(pointer)?.as_str()?).ok()?;
            let text = String::from_utf8(token).ok()?;
            let (user, password) = text.split_once(':')?;
            Some((user.to_owned(), Secret::new(password)))
        };
        login().ok_or_else(|| failed(HttpError::Answer("no login")))
    }
}

/// A user and a password for a registry of Azure, for an access token of the resource manager. `base` replaces the
/// address of the registry.
///
/// # Errors
/// The host is none of Azure, or the registry refuses.
pub async fn azure_login(
    requests: &Requests,
    host: &str,
    token: &Secret,
    base: Option<&str>,
) -> Result<(String, Secret), CloudError> {
    let is_azure = [".azurecr.io", ".azurecr.cn", ".azurecr.us", ".azurecr.de"]
        .iter()
        .any(|domain| host.strip_suffix(domain).is_some_and(|name| !name.is_empty() && !name.contains('/')));
    if !is_azure {
        return Err(InvalidCredentials(format!("'{host}' is not a registry of Azure")).into());
    }
    let url = format!("{}/oauth2/exchange", base.map_or_else(|| format!("https://{host}"), str::to_owned));
    let fields = [("grant_type", "access_token"), ("service", host), ("access_token", token.expose())];
    let failed = failed("failed to get a login for the registry");
    let request = crate::form(requests.client().post(url), &fields);
    let answer = requests.send_json(request).await.map_err(&failed)?;
    let token = answer.get("refresh_token").and_then(Value::as_str);
    let token = token.ok_or_else(|| failed(HttpError::Answer("no refresh token")))?;
    Ok((AZURE_USER.to_owned(), Secret::new(token)))
}

/// Whether the host is a registry of Google Cloud; its tokens go to no other.
pub fn is_gcp(host: &str) -> bool {
    host == "gcr.io" || host.ends_with(".gcr.io") || host.ends_with(".pkg.dev")
}
