//! Tokens of Google identities.

use std::time::Duration;

use serde_json::{Value, json};
use url::Url;
use weir_base::redact::Secret;
use weir_cloud::Requests;
use weir_cloud::gcp::GcpCredentials;

use super::{Identities, IdentityError, ask, form, oauth};
use crate::git_address::GitAddress;
use crate::provider::{Access, Job};

const SERVICE: &str = "Google Cloud";
const METADATA: &str = "http://metadata.google.internal/";
const EXCHANGE: &str = "https://sts.googleapis.com/v1/token";
const CREDENTIALS_API: &str = "https://iamcredentials.googleapis.com/";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const PROVIDER_ANNOTATION: &str = "gcp.auth.fluxcd.io/workload-identity-provider";
const ACCOUNT_ANNOTATION: &str = "iam.gke.io/gcp-service-account";
/// Tokens for keys are good for an hour.
const KEY_TOKEN_LIFETIME: Duration = Duration::from_hours(1);

/// A token for the credentials in the Secret, for the Provider's service account, for the credentials of this process,
/// or of its machine.
pub(super) async fn token(
    identities: &Identities,
    client: &reqwest::Client,
    job: &Job,
) -> Result<(Access, Duration), IdentityError> {
    let json = job.target.token.expose();
    if !json.is_empty() {
        return of_credentials(identities, client, json.as_bytes()).await;
    }
    if let Some(account) = identities.account(job) {
        return of_service_account(identities, client, job, account).await;
    }
    if let Some(file) = &identities.environment.google_credentials {
        let json = tokio::fs::read(file).await.map_err(|error| {
            IdentityError::Settings(format!("google: cannot read GOOGLE_APPLICATION_CREDENTIALS: {error}"))
        })?;
        return of_credentials(identities, client, &json).await;
    }
    let path = ["computeMetadata", "v1", "instance", "service-accounts", "default", "token"];
    let answer = metadata(identities, &path).await?;
    oauth(SERVICE, &serde_json::from_slice(&answer).unwrap_or_default())
}

async fn of_credentials(
    identities: &Identities,
    client: &reqwest::Client,
    json: &[u8],
) -> Result<(Access, Duration), IdentityError> {
    let failed = |error: String| IdentityError::Settings(format!("google: {error}"));
    let credentials = GcpCredentials::from_json(json).map_err(|error| failed(error.to_string()))?;
    let requests = Requests::with_client(client.clone());
    let token = credentials.token(&requests, SCOPE, identities.clock.now()).await;
    let token = token.map_err(|error| failed(weir_base::error::chain(&error)))?;
    Ok((Access { token: token.secret, app_slug: None }, KEY_TOKEN_LIFETIME))
}

/// The token of a service account becomes one of the pool, and that one of the Google account it stands for.
async fn of_service_account(
    identities: &Identities,
    client: &reqwest::Client,
    job: &Job,
    account: &str,
) -> Result<(Access, Duration), IdentityError> {
    let invalid = |_| IdentityError::Unexpected(SERVICE);
    let annotations = identities.account_annotations(job, account).await?;
    let (token_audience, exchange_audience) = match annotations.get(PROVIDER_ANNOTATION) {
        Some(provider) => {
            let audience = format!("https://iam.googleapis.com/{}", provider.trim_start_matches('/'));
            (audience, format!("//iam.googleapis.com/{}", provider.trim_start_matches('/')))
        }
        None => gke(identities).await?,
    };
    let subject = identities.account_token(job, account, &token_audience).await?;
    let url = match &identities.environment.google_exchange {
        Some(url) => url.clone(),
        None => Url::parse(EXCHANGE).map_err(invalid)?,
    };
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("audience", exchange_audience.as_str()),
        ("scope", SCOPE),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("subject_token", subject.expose()),
    ];
    let (access, lifetime) = oauth(SERVICE, &ask(SERVICE, form(client.post(url), &fields)).await?)?;
    let Some(email) = annotations.get(ACCOUNT_ANNOTATION).filter(|email| !email.is_empty()) else {
        return Ok((access, lifetime));
    };
    let base = match &identities.environment.google_credentials_api {
        Some(url) => url.clone(),
        None => Url::parse(CREDENTIALS_API).map_err(invalid)?,
    };
    let method = format!("{email}:generateAccessToken");
    let url = GitAddress::url(&base, &["v1", "projects", "-", "serviceAccounts", &method], &[]);
    let request = client
        .post(url)
        .bearer_auth(access.token.expose())
        .header("Content-Type", "application/json")
        .body(json!({"scope": [SCOPE]}).to_string());
    let answer = ask(SERVICE, request).await?;
    let field = |name: &str| answer.get(name).and_then(Value::as_str);
    let token = field("accessToken").ok_or(IdentityError::Unexpected(SERVICE))?;
    let expires = field("expireTime").and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let now = identities.clock.now().as_second();
    let lifetime = expires.map_or(0, |expires| u64::try_from(expires.as_second() - now).unwrap_or_default());
    Ok((Access { token: Secret::new(token), app_slug: None }, Duration::from_secs(lifetime)))
}

/// The pool of the cluster and the audience of its tokens, from the metadata service of GKE.
async fn gke(identities: &Identities) -> Result<(String, String), IdentityError> {
    let get = async |path: &[&str]| {
        let segments: Vec<&str> = ["computeMetadata", "v1"].into_iter().chain(path.iter().copied()).collect();
        let text = metadata(identities, &segments).await?;
        String::from_utf8(text).map_err(|_| IdentityError::Unexpected(SERVICE))
    };
    let project = get(&["project", "project-id"]).await?;
    let location = get(&["instance", "attributes", "cluster-location"]).await?;
    let name = get(&["instance", "attributes", "cluster-name"]).await?;
    let pool = format!("{project}.svc.id.goog");
    let cluster = format!(
        "https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{name}"
    );
    Ok((pool.clone(), format!("identitynamespace:{pool}:{cluster}")))
}

async fn metadata(identities: &Identities, path: &[&str]) -> Result<Vec<u8>, IdentityError> {
    let base = match &identities.environment.google_metadata {
        Some(base) => base.clone(),
        None => Url::parse(METADATA).map_err(|_| IdentityError::Unexpected(SERVICE))?,
    };
    let request = identities.metadata.get(GitAddress::url(&base, path, &[]));
    let (status, body) = super::exchange(SERVICE, request.header("Metadata-Flavor", "Google")).await?;
    if status != 200 {
        return Err(IdentityError::Refused { service: SERVICE, status, answer: super::explanation(&body) });
    }
    Ok(body)
}
