//! GitHub Apps: tokens of their installations.

use jiff::Timestamp;
use serde_json::{Value, json};
use weir_base::redact::Secret;

use crate::jwt::Signer;
use crate::{AccessToken, CloudError, HttpError, InvalidCredentials, Requests, failed};

const API: &str = "https://api.github.com";

/// The installation whose token is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installation {
    /// By its number.
    Id(String),
    /// The one of an organisation or a user.
    Owner(String),
}

/// An App and one of its installations.
#[derive(Debug)]
pub struct GitHubApp {
    id: String,
    signer: Signer,
    installation: Installation,
    api: String,
}

impl GitHubApp {
    /// Takes the App's number, its private key in PEM, the installation, and the address of an own server.
    ///
    /// # Errors
    /// The key is none, or a number or the address is not what it should be.
    pub fn new(
        id: &str,
        private_key: &Secret,
        installation: Installation,
        base_url: Option<&str>,
    ) -> Result<Self, InvalidCredentials> {
        let invalid = |what: &str| InvalidCredentials(format!("invalid GitHub App data: {what}"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(id) {
            return Err(invalid("the App ID is not a number"));
        }
        match &installation {
            Installation::Id(id) if !is_number(id) => {
                return Err(invalid("the installation ID is not a number"));
            }
            Installation::Owner(owner)
                if !owner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) =>
            {
                return Err(invalid("the installation owner is not the name of an account"));
            }
            Installation::Id(_) | Installation::Owner(_) => {}
        }
        let api = match base_url {
            None => API.to_owned(),
            Some(text) => {
                let url = url::Url::parse(text).map_err(|_| invalid("the base URL is no URL"))?;
                if !matches!(url.scheme(), "http" | "https") {
                    return Err(invalid("the base URL is neither http nor https"));
                }
                text.trim_end_matches('/').to_owned()
            }
        };
        Ok(Self { id: id.to_owned(), signer: Signer::from_pem(private_key.expose())?, installation, api })
    }

    /// A token of the installation; it is used as the password of `x-access-token`.
    ///
    /// # Errors
    /// The server refuses, or has no such installation.
    pub async fn token(&self, requests: &Requests, now: Timestamp) -> Result<AccessToken, CloudError> {
        let seconds = now.as_second();
        let claims = json!({"iat": seconds - 30, "exp": seconds + 120, "iss": self.id});
        let assertion = self.signer.sign(&json!({"alg": "RS256", "typ": "JWT"}), &claims)?;
        let id = match &self.installation {
            Installation::Id(id) => id.clone(),
            Installation::Owner(owner) => self.find_installation(requests, &assertion, owner).await?,
        };
        let url = format!("{}/app/installations/{id}/access_tokens", self.api);
        let request = headers(requests.client().post(url), &assertion);
        let failed = failed("failed to get an installation token of the GitHub App");
        let answer = requests.send_json(request).await.map_err(&failed)?;
        let text = answer.get("token").and_then(Value::as_str);
        let secret = text.map(Secret::new).ok_or_else(|| failed(HttpError::Answer("no token")))?;
        let expires_at = answer.get("expires_at").and_then(Value::as_str).and_then(|time| time.parse().ok());
        Ok(AccessToken { secret, expires_at })
    }

    async fn find_installation(
        &self,
        requests: &Requests,
        assertion: &str,
        owner: &str,
    ) -> Result<String, CloudError> {
        let failed = failed("failed to find the installation of the GitHub App");
        let mut missing = HttpError::Answer("no installation");
        for kind in ["orgs", "users"] {
            let url = format!("{}/{kind}/{owner}/installation", self.api);
            match requests.send_json(headers(requests.client().get(url), assertion)).await {
                Ok(answer) => {
                    let id = answer.get("id").and_then(Value::as_i64);
                    return id
                        .map(|id| id.to_string())
                        .ok_or_else(|| failed(HttpError::Answer("no installation")));
                }
                Err(error @ HttpError::Status { status: 404, .. }) => missing = error,
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(missing))
    }
}

fn headers(request: reqwest::RequestBuilder, assertion: &str) -> reqwest::RequestBuilder {
    request
        .bearer_auth(assertion)
        .header("accept", "application/vnd.github+json")
        .header("x-github-api-version", "2022-11-28")
}
