//! Google Cloud KMS.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_base::redact::Secret;
use weir_sops::{DataKey, KeyError};

use crate::jwt::Signer;
use crate::{HttpError, InvalidCredentials, Keys};

const SCOPES: &str =
    "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/cloudkms";
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
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
    /// Reads the JSON of a `sops.gcp-kms` entry.
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

    async fn token(&self, keys: &Keys) -> Result<Secret, String> {
        let (url, form) = match &*self.0 {
            Kind::Account { email, key_id, signer, token_url } => {
                let now = keys.clock.now().as_second();
                let assertion = signer
                    .sign(
                        &json!({"alg": "RS256", "typ": "JWT", "kid": key_id}),
                        &json!({
                            "iss": email, "scope": SCOPES, "aud": token_url,
                            "iat": now, "exp": now + ASSERTION_SECONDS,
                        }),
                    )
                    .map_err(|error| error.to_string())?;
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
        let request = crate::http::form(keys.requests.client().post(url), &form);
        let answer = keys.requests.send_json(request).await.map_err(|error| error.to_string())?;
        let token = answer.get("access_token").and_then(Value::as_str);
        token.map(Secret::new).ok_or_else(|| HttpError::Answer("no access token").to_string())
    }
}

pub(crate) async fn unlock(
    keys: &Keys,
    credentials: &GcpCredentials,
    resource: &str,
    encrypted: &str,
) -> Result<DataKey, KeyError> {
    let failed = |error: &str| KeyError(format!("failed to decrypt sops data key with GCP KMS key: {error}"));
    let is_name = resource.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.:".contains(&byte));
    if !is_name || resource.contains("..") {
        return Err(failed("the resource is not the name of a key"));
    }
    let token = credentials.token(keys).await.map_err(|error| {
        KeyError(format!("cannot create GCP KMS service: cannot get an access token: {error}"))
    })?;
    let base = keys.endpoints.gcp_kms.as_deref().unwrap_or("https://cloudkms.googleapis.com");
    let request = keys
        .requests
        .client()
        .post(format!("{base}/v1/{resource}:decrypt"))
        .bearer_auth(token.expose())
        .json(&json!({"ciphertext": encrypted}));
    let answer = keys.requests.send_json(request).await.map_err(|error| failed(&error.to_string()))?;
    let plain = answer.get("plaintext").and_then(Value::as_str);
    plain
        .and_then(|text| STANDARD.decode(text).ok())
        .map(DataKey::new)
        .ok_or_else(|| failed("no plaintext in the answer"))
}
