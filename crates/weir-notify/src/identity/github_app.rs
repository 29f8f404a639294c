//! Installation tokens of GitHub Apps.

use std::time::Duration;

use serde_json::{Value, json};
use url::Url;
use weir_api::notification::ProviderType;
use weir_base::redact::Secret;
use weir_cloud::Signer;

use super::{Identities, IdentityError, ask, exchange, explanation};
use crate::git_address::GitAddress;
use crate::provider::{Access, Job};

const SERVICE: &str = "the GitHub App";
/// The clock of GitHub may be behind ours.
const BACKDATED_SECONDS: i64 = 30;
const ASSERTION_SECONDS: i64 = 120;

pub(super) async fn token(
    identities: &Identities,
    client: &reqwest::Client,
    job: &Job,
) -> Result<(Access, Duration), IdentityError> {
    let text = |key: &str| {
        let value = job.target.data.get(key).filter(|value| !value.is_empty());
        value.map(|value| String::from_utf8_lossy(value).trim().to_owned())
    };
    let missing = |key: &str| IdentityError::Settings(format!("github app: the secret has no '{key}'"));
    let app = text("githubAppID").ok_or_else(|| missing("githubAppID"))?;
    let key = text("githubAppPrivateKey").ok_or_else(|| missing("githubAppPrivateKey"))?;
    let base = match text("githubAppBaseURL") {
        Some(base) => Url::parse(&base)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| IdentityError::Settings("github app: 'githubAppBaseURL' is no URL".to_owned()))?,
        None => job.endpoints.github.clone(),
    };
    let signer =
        Signer::from_pem(&key).map_err(|error| IdentityError::Settings(format!("github app: {error}")))?;
    let now = identities.clock.now().as_second();
    let claims = json!({"iat": now - BACKDATED_SECONDS, "exp": now + ASSERTION_SECONDS, "iss": app});
    let assertion = signer
        .sign(&json!({"alg": "RS256", "typ": "JWT"}), &claims)
        .map_err(|error| IdentityError::Settings(format!("github app: {error}")))?;
    let request = |method: reqwest::Method, path: &[&str]| {
        client
            .request(method, GitAddress::url(&base, path, &[]))
            .header("Accept", "application/vnd.github+json")
            .bearer_auth(&assertion)
    };
    let installation = match (text("githubAppInstallationID"), text("githubAppInstallationOwner")) {
        (Some(id), _) => id,
        (None, Some(owner)) => installation(&request, &owner).await?,
        (None, None) => return Err(missing("githubAppInstallationOwner")),
    };
    let path = ["app", "installations", &installation, "access_tokens"];
    let answer = ask(SERVICE, request(reqwest::Method::POST, &path)).await?;
    let field = |name: &str| answer.get(name).and_then(Value::as_str);
    let token = field("token").ok_or(IdentityError::Unexpected(SERVICE))?;
    let expires = field("expires_at").and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let lifetime = expires.map_or(0, |expires| u64::try_from(expires.as_second() - now).unwrap_or_default());
    // Comments are recognised by the name of their author.
    let app_slug = if job.target.kind == ProviderType::Githubpullrequestcomment {
        let app = ask(SERVICE, request(reqwest::Method::GET, &["app"])).await?;
        Some(app.get("slug").and_then(Value::as_str).ok_or(IdentityError::Unexpected(SERVICE))?.to_owned())
    } else {
        None
    };
    Ok((Access { token: Secret::new(token), app_slug }, Duration::from_secs(lifetime)))
}

/// The installation of the app in an organisation or at a user.
async fn installation(
    request: &impl Fn(reqwest::Method, &[&str]) -> reqwest::RequestBuilder,
    owner: &str,
) -> Result<String, IdentityError> {
    for kind in ["orgs", "users"] {
        let (status, body) =
            exchange(SERVICE, request(reqwest::Method::GET, &[kind, owner, "installation"])).await?;
        match status {
            404 => {}
            200 => {
                let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
                let id = answer.get("id").and_then(Value::as_i64);
                return id.map(|id| id.to_string()).ok_or(IdentityError::Unexpected(SERVICE));
            }
            _ => {
                return Err(IdentityError::Refused { service: SERVICE, status, answer: explanation(&body) });
            }
        }
    }
    Err(IdentityError::Settings(format!("github app: it is not installed at '{owner}'")))
}
