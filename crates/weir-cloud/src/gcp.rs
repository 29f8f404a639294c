//! Google Cloud: access tokens of service accounts, users, machines and federated identities.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use weir_base::redact::Secret;

use crate::jwt::Signer;
use crate::{AccessToken, CloudError, Environment, HttpError, InvalidCredentials, Requests, after, failed};

const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
const EXCHANGE_URL: &str = "https://sts.googleapis.com/v1/token";
const IMPERSONATION_HOST: &str = "https://iamcredentials.googleapis.com";
const METADATA_HOST: &str = "metadata.google.internal";
/// The scope of everything a service account may do.
pub const PLATFORM_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// How long an assertion may be used.
const ASSERTION_SECONDS: i64 = 3600;

/// The credentials of a service account or of a user.
#[derive(Clone)]
pub struct GcpCredentials(Arc<Kind>);

enum Kind {
    Account { email: String, key_id: String, signer: Box<Signer>, token_url: String },
    User { client: String, client_secret: Secret, refresh_token: Secret },
}

impl fmt::Debug for GcpCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Account { email, .. } => write!(formatter, "GcpCredentials({email})"),
            Kind::User { client, .. } => write!(formatter, "GcpCredentials({client})"),
        }
    }
}

impl GcpCredentials {
    /// Reads the JSON of a service account key or of a user's credentials.
    ///
    /// # Errors
    /// The text is no JSON, of a type that is not supported, or has no usable key.
    pub fn from_json(text: &[u8]) -> Result<Self, InvalidCredentials> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|_| InvalidCredentials("the credentials are not JSON".to_owned()))?;
        let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = match field("type").as_str() {
            "service_account" => {
                let token_url = field("token_uri");
                Kind::Account {
                    email: field("client_email"),
                    key_id: field("private_key_id"),
                    signer: Box::new(Signer::from_pem(&field("private_key"))?),
                    token_url: if token_url.is_empty() { TOKEN_URL.to_owned() } else { token_url },
                }
            }
            "authorized_user" => Kind::User {
                client: field("client_id"),
                client_secret: Secret::new(field("client_secret")),
                refresh_token: Secret::new(field("refresh_token")),
            },
            "" => return Err(InvalidCredentials("missing 'type' field in credentials".to_owned())),
            other => {
                return Err(InvalidCredentials(format!("credentials of type '{other}' are not supported")));
            }
        };
        Ok(Self(Arc::new(kind)))
    }

    /// An access token for scopes, which are separated by spaces.
    ///
    /// # Errors
    /// The key cannot sign, or the token service refuses.
    pub async fn token(
        &self,
        requests: &Requests,
        scopes: &str,
        now: Timestamp,
    ) -> Result<AccessToken, CloudError> {
        let (url, form) = match &*self.0 {
            Kind::Account { email, key_id, signer, token_url } => {
                let seconds = now.as_second();
                let assertion = signer.sign(
                    &json!({"alg": "RS256", "typ": "JWT", "kid": key_id}),
                    &json!({
                        "iss": email, "scope": scopes, "aud": token_url,
                        "iat": seconds, "exp": seconds + ASSERTION_SECONDS,
                    }),
                )?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned();
                (token_url.as_str(), vec![("grant_type", grant), ("assertion", assertion)])
            }
            Kind::User { client, client_secret, refresh_token } => (
                TOKEN_URL,
                vec![
                    ("grant_type", "refresh_token".to_owned()),
                    ("client_id", client.clone()),
                    ("client_secret", client_secret.expose().to_owned()),
                    ("refresh_token", refresh_token.expose().to_owned()),
                ],
            ),
        };
        let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let request = crate::form(requests.client().post(url), &form);
        let failed = failed("cannot get an access token");
        let answer = requests.send_json(request).await.map_err(&failed)?;
        token_of(&answer, now).map_err(failed)
    }
}

fn token_of(answer: &Value, now: Timestamp) -> Result<AccessToken, HttpError> {
    let text = answer.get("access_token").and_then(Value::as_str);
    let secret = text.map(Secret::new).ok_or(HttpError::Answer("no access token"))?;
    let seconds = answer.get("expires_in").and_then(Value::as_i64);
    Ok(AccessToken { secret, expires_at: seconds.and_then(|seconds| after(now, seconds)) })
}

/// An access token of this process: of the key file the environment names, or of the machine.
///
/// # Errors
/// What the environment points to gives none.
pub async fn ambient_token(
    requests: &Requests,
    environment: &Environment,
    scopes: &str,
    now: Timestamp,
) -> Result<AccessToken, CloudError> {
    if let Some(key) = environment.file("GOOGLE_APPLICATION_CREDENTIALS").await? {
        return GcpCredentials::from_json(key.as_bytes())?.token(requests, scopes, now).await;
    }
    let host = environment.get("GCE_METADATA_HOST").unwrap_or(METADATA_HOST);
    let request = requests
        .client()
        .get(format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token"))
        .query(&[("scopes", scopes.replace(' ', ","))])
        .header("metadata-flavor", "Google");
    let failed = failed("cannot get an access token from the metadata service");
    let answer = requests.send_json(request).await.map_err(&failed)?;
    token_of(&answer, now).map_err(failed)
}

/// Where tokens of other identity providers are exchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Federation {
    /// The address of the token service.
    pub exchange_url: String,
    /// The address of the service that impersonates service accounts.
    pub impersonation_host: String,
}

impl Default for Federation {
    /// The public services.
    fn default() -> Self {
        Self { exchange_url: EXCHANGE_URL.to_owned(), impersonation_host: IMPERSONATION_HOST.to_owned() }
    }
}

/// An access token for the token of another identity provider, for instance of the cluster; that of the service
/// account `account` if one is given.
///
/// # Errors
/// A service refuses.
pub async fn federated_token(
    requests: &Requests,
    federation: &Federation,
    audience: &str,
    identity: &Secret,
    account: Option<&str>,
    now: Timestamp,
) -> Result<AccessToken, CloudError> {
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("audience", audience),
        ("scope", PLATFORM_SCOPE),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("subject_token", identity.expose()),
    ];
    let request = crate::form(requests.client().post(&federation.exchange_url), &fields);
    let exchange = failed("failed to exchange the token of the service account");
    let answer = requests.send_json(request).await.map_err(&exchange)?;
    let token = token_of(&answer, now).map_err(&exchange)?;
    let Some(account) = account else { return Ok(token) };
    let is_name = account.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte));
    if !is_name {
        return Err(InvalidCredentials(format!("'{account}' is not the name of a service account")).into());
    }
    let url = format!(
        "{}/v1/projects/-/serviceAccounts/{account}:generateAccessToken",
        federation.impersonation_host
    );
    let body = json!({"scope": [PLATFORM_SCOPE]});
    let request = requests.client().post(url).bearer_auth(token.secret.expose()).json(&body);
    let impersonate = failed("failed to impersonate the service account");
    let answer = requests.send_json(request).await.map_err(&impersonate)?;
    let text = answer.get("accessToken").and_then(Value::as_str);
    let secret = text.map(Secret::new).ok_or_else(|| impersonate(HttpError::Answer("no access token")))?;
    let expires_at =
        answer.get("expireTime").and_then(Value::as_str).and_then(|time| time.parse::<Timestamp>().ok());
    Ok(AccessToken { secret, expires_at })
}
