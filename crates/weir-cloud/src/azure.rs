//! Azure: access tokens of applications, machines and federated identities.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha1::Digest;
use url::Url;
use weir_base::redact::Secret;
use weir_manifest::ReadOptions;

use crate::jwt::{Signer, pem_blocks};
use crate::{AccessToken, CloudError, Environment, HttpError, InvalidCredentials, Requests, after, failed};

const AUTHORITY: &str = "https://login.microsoftonline.com/";
const METADATA: &str = "http://169.254.169.254";
/// The audience of the tokens of other identity providers.
pub const EXCHANGE_AUDIENCE: &str = "api://AzureADTokenExchange";
/// What a token for storage accounts is good for.
pub const STORAGE_RESOURCE: &str = "https://storage.azure.com";
/// What a token for Azure DevOps is good for.
pub const DEVOPS_RESOURCE: &str = "499b84ac-1321-427f-aa17-267ca6975798";
/// What a token for the resource manager is good for; registries exchange it.
pub const MANAGEMENT_RESOURCE: &str = "https://management.azure.com";
/// How long an assertion may be used.
const ASSERTION_SECONDS: i64 = 600;

/// How a token for Azure is had.
#[derive(Clone)]
pub struct AzureCredentials(Arc<Kind>);

enum Kind {
    Password {
        authority: String,
        tenant: String,
        client: String,
        secret: Secret,
    },
    Certificate {
        authority: String,
        tenant: String,
        client: String,
        signer: Box<Signer>,
        chain: Vec<Vec<u8>>,
        sends_chain: bool,
    },
    Federated {
        authority: String,
        tenant: String,
        client: String,
        assertion: Secret,
    },
    ManagedIdentity {
        client: String,
    },
}

impl fmt::Debug for AzureCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Kind::Password { client, .. }
        | Kind::Certificate { client, .. }
        | Kind::Federated { client, .. }
        | Kind::ManagedIdentity { client }) = &*self.0;
        write!(formatter, "AzureCredentials({client})")
    }
}

/// The text of a file, which may be UTF-16 with a byte order mark.
fn decode(bytes: &[u8]) -> Option<String> {
    let wide = |bytes: &[u8], read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| read([pair[0], pair[1]])).collect();
        String::from_utf16(&units).ok()
    };
    match bytes {
        [0xFF, 0xFE, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        plain => String::from_utf8(plain.to_vec()).ok(),
    }
}

impl AzureCredentials {
    /// Reads the YAML or JSON of a `sops.azure-kv` entry, UTF-16 with a byte order mark included.
    ///
    /// Taken are, in this order: `tenantId`, `clientId` and `clientSecret`; these with `clientCertificate`
    /// instead; `tenant`, `appId` and `password`; `clientId` alone, for a managed identity.
    ///
    /// # Errors
    /// The text cannot be read, or has none of these.
    pub fn from_config(bytes: &[u8]) -> Result<Self, InvalidCredentials> {
        let unreadable =
            |why: &str| InvalidCredentials(format!("failed to unmarshal Azure authentication file: {why}"));
        let text = decode(bytes).ok_or_else(|| unreadable("neither UTF-8 nor UTF-16"))?;
        let value = weir_manifest::read_first_document(text.as_bytes(), "", ReadOptions::default())
            .map_err(|_| unreadable("neither YAML nor JSON"))?;
        let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let sends_chain = value.get("clientCertificateSendChain").and_then(Value::as_bool).unwrap_or(false);
        Self::from_fields(&field, sends_chain)?.ok_or_else(|| {
            InvalidCredentials(
                "invalid data: requires a 'clientId' field, a combination of 'tenantId', 'clientId' and 'clientSecret', or 'tenantId', 'clientId' and 'clientCertificate'".to_owned(),
            )
        })
    }

    /// Takes the same fields as [`AzureCredentials::from_config`] one by one, absent ones as empty texts; `None`
    /// if there is no combination of use.
    ///
    /// # Errors
    /// The certificate cannot be used.
    pub fn from_fields(
        field: &dyn Fn(&str) -> String,
        sends_chain: bool,
    ) -> Result<Option<Self>, InvalidCredentials> {
        let has = |names: &[&str]| names.iter().all(|name| !field(name).is_empty());
        let authority = if has(&["authorityHost"]) { field("authorityHost") } else { AUTHORITY.to_owned() };
        let kind = if has(&["tenantId", "clientId", "clientSecret"]) {
            Kind::Password {
                authority,
                tenant: field("tenantId"),
                client: field("clientId"),
                secret: Secret::new(field("clientSecret")),
            }
        } else if has(&["tenantId", "clientId", "clientCertificate"]) {
            if has(&["clientCertificatePassword"]) {
                let why = "certificates with a password are not supported, use PEM without one";
                return Err(InvalidCredentials(why.to_owned()));
            }
            let pem = field("clientCertificate");
            let chain = pem_blocks(&pem, "CERTIFICATE");
            if chain.is_empty() {
                return Err(InvalidCredentials("found no certificate".to_owned()));
            }
            Kind::Certificate {
                authority,
                tenant: field("tenantId"),
                client: field("clientId"),
                signer: Box::new(Signer::from_pem(&pem)?),
                chain,
                sends_chain,
            }
        } else if has(&["tenant", "appId", "password"]) {
            Kind::Password {
                authority,
                tenant: field("tenant"),
                client: field("appId"),
                secret: Secret::new(field("password")),
            }
        } else if has(&["clientId"]) {
            Kind::ManagedIdentity { client: field("clientId") }
        } else {
            return Ok(None);
        };
        Ok(Some(Self(Arc::new(kind))))
    }

    /// An application that trusts the token of another identity provider, for instance of the cluster.
    pub fn federated(authority: Option<&str>, tenant: &str, client: &str, assertion: Secret) -> Self {
        Self(Arc::new(Kind::Federated {
            authority: authority.unwrap_or(AUTHORITY).to_owned(),
            tenant: tenant.to_owned(),
            client: client.to_owned(),
            assertion,
        }))
    }

    /// The identity of this process: an application of the environment, a federated one, or the one of the
    /// machine, in this order.
    ///
    /// # Errors
    /// The token file cannot be read.
    pub async fn ambient(environment: &Environment) -> Result<Self, CloudError> {
        let variable = |name: &str| environment.get(name).unwrap_or_default().to_owned();
        let authority = environment.get("AZURE_AUTHORITY_HOST").unwrap_or(AUTHORITY);
        if let (Some(tenant), Some(client)) =
            (environment.get("AZURE_TENANT_ID"), environment.get("AZURE_CLIENT_ID"))
        {
            if let Some(secret) = environment.get("AZURE_CLIENT_SECRET") {
                return Ok(Self(Arc::new(Kind::Password {
                    authority: authority.to_owned(),
                    tenant: tenant.to_owned(),
                    client: client.to_owned(),
                    secret: Secret::new(secret),
                })));
            }
            if let Some(token) = environment.file("AZURE_FEDERATED_TOKEN_FILE").await? {
                return Ok(Self::federated(Some(authority), tenant, client, Secret::new(token)));
            }
        }
        Ok(Self(Arc::new(Kind::ManagedIdentity { client: variable("AZURE_CLIENT_ID") })))
    }

    /// A token for a resource, of which the default scope is asked for. `metadata` replaces the address of the
    /// machine's metadata service.
    ///
    /// # Errors
    /// The key cannot sign, or the token service refuses.
    pub async fn token(
        &self,
        requests: &Requests,
        resource: &str,
        metadata: Option<&str>,
        now: Timestamp,
    ) -> Result<AccessToken, CloudError> {
        let scope = format!("{resource}/.default");
        let request = match &*self.0 {
            Kind::ManagedIdentity { client } => {
                let base = metadata.unwrap_or(METADATA);
                let mut query = vec![("api-version", "2018-02-01"), ("resource", resource)];
                if !client.is_empty() {
                    query.push(("client_id", client.as_str()));
                }
                let url = format!("{base}/metadata/identity/oauth2/token");
                requests.client().get(url).query(&query).header("Metadata", "true")
            }
            Kind::Password { authority, tenant, client, secret } => {
                let form = [
                    ("grant_type", "client_credentials"),
                    ("client_id", client.as_str()),
                    ("client_secret", secret.expose()),
                    ("scope", scope.as_str()),
                ];
                crate::form(requests.client().post(token_url(authority, tenant)?), &form)
            }
            Kind::Certificate { authority, tenant, client, signer, chain, sends_chain } => {
                let url = token_url(authority, tenant)?;
                let mut header = json!({"alg": "RS256", "typ": "JWT"});
                if let Some(certificate) = chain.first() {
                    header["x5t"] = URL_SAFE_NO_PAD.encode(sha1::Sha1::digest(certificate)).into();
                }
                if *sends_chain {
                    header["x5c"] = chain.iter().map(|der| STANDARD.encode(der)).collect();
                }
                let seconds = now.as_second();
                let claims = json!({
                    "aud": url.as_str(), "iss": client, "sub": client, "nbf": seconds, "iat": seconds,
                    "exp": seconds + ASSERTION_SECONDS, "jti": format!("{client}-{seconds}"),
                });
                let assertion = signer.sign(&header, &claims)?;
                assertion_form(requests, url, client, &assertion, &scope)
            }
            Kind::Federated { authority, tenant, client, assertion } => {
                assertion_form(requests, token_url(authority, tenant)?, client, assertion.expose(), &scope)
            }
        };
        let failed = failed("cannot get an access token");
        let answer = requests.send_json(request).await.map_err(&failed)?;
        let text = answer.get("access_token").and_then(Value::as_str);
        let secret = text.map(Secret::new).ok_or_else(|| failed(HttpError::Answer("no access token")))?;
        // The metadata service writes the number as text.
        let seconds = answer.get("expires_in").and_then(|seconds| match seconds {
            Value::String(text) => text.parse().ok(),
            other => other.as_i64(),
        });
        Ok(AccessToken { secret, expires_at: seconds.and_then(|seconds| after(now, seconds)) })
    }
}

fn assertion_form(
    requests: &Requests,
    url: Url,
    client: &str,
    assertion: &str,
    scope: &str,
) -> reqwest::RequestBuilder {
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", client),
        ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
        ("client_assertion", assertion),
        ("scope", scope),
    ];
    crate::form(requests.client().post(url), &form)
}

fn token_url(authority: &str, tenant: &str) -> Result<Url, InvalidCredentials> {
    let is_name = !tenant.is_empty()
        && tenant.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let url = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
    match Url::parse(&url) {
        Ok(url) if is_name => Ok(url),
        _ => Err(InvalidCredentials("the authority or the tenant is not valid".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &str, expected: &str) {
        let wide: Vec<u8> =
            [0xFF, 0xFE].into_iter().chain(config.encode_utf16().flat_map(u16::to_le_bytes)).collect();
        for bytes in [config.as_bytes().to_vec(), wide] {
            let kind = match AzureCredentials::from_config(&bytes) {
                Ok(credentials) => match &*credentials.0 {
                    Kind::Password { .. } => "password".to_owned(),
                    Kind::Certificate { .. } => "certificate".to_owned(),
                    Kind::Federated { .. } => "federated".to_owned(),
                    Kind::ManagedIdentity { .. } => "managed identity".to_owned(),
                },
                Err(error) => error.to_string(),
            };
            assert_eq!(kind, expected);
        }
    }

    #[test]
    fn credentials_are_told_apart_by_their_fields() {
        check("tenantId: t\nclientId: c\nclientSecret: s\n", "password");
        check(r#"{"tenant": "t", "appId": "a", "password": "p"}"#, "password");
        check("clientId: c\n", "managed identity");
        check("tenantId: t\nclientId: c\nclientCertificate: x\n", "found no certificate");
        check(
            "tenantId: t\n",
            "invalid data: requires a 'clientId' field, a combination of 'tenantId', 'clientId' and 'clientSecret', or 'tenantId', 'clientId' and 'clientCertificate'",
        );
    }
}
