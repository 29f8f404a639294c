//! Azure Key Vault.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha1::Digest;
use url::Url;
use weir_base::redact::Secret;
use weir_manifest::ReadOptions;
use weir_sops::{DataKey, KeyError};

use crate::jwt::{Signer, blocks};
use crate::{InvalidCredentials, Keys};

const AUTHORITY: &str = "https://login.microsoftonline.com/";
const METADATA: &str = "http://169.254.169.254";
const API_VERSION: &str = "7.4";
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
    ManagedIdentity {
        client: String,
    },
}

impl fmt::Debug for AzureCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Kind::Password { client, .. }
        | Kind::Certificate { client, .. }
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
            let chain = blocks(&pem, "CERTIFICATE");
            if chain.is_empty() {
                return Err(InvalidCredentials("found no certificate".to_owned()));
            }
            Kind::Certificate {
                authority,
                tenant: field("tenantId"),
                client: field("clientId"),
                signer: Box::new(Signer::from_pem(&pem)?),
                chain,
                sends_chain: value
                    .get("clientCertificateSendChain")
                    .and_then(Value::as_bool)
                    .unwrap_or(false),
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
            return Err(InvalidCredentials(
                "invalid data: requires a 'clientId' field, a combination of 'tenantId', 'clientId' and 'clientSecret', or 'tenantId', 'clientId' and 'clientCertificate'".to_owned(),
            ));
        };
        Ok(Self(Arc::new(kind)))
    }

    async fn token(&self, keys: &Keys, resource: &str) -> Result<Secret, String> {
        let scope = format!("{resource}/.default");
        let request = match &*self.0 {
            Kind::ManagedIdentity { client } => {
                let base = keys.endpoints.azure_metadata.as_deref().unwrap_or(METADATA);
                let query =
                    [("api-version", "2018-02-01"), ("resource", resource), ("client_id", client.as_str())];
                let url = format!("{base}/metadata/identity/oauth2/token");
                keys.requests.client().get(url).query(&query).header("Metadata", "true")
            }
            Kind::Password { authority, tenant, client, secret } => {
                let form = [
                    ("grant_type", "client_credentials"),
                    ("client_id", client.as_str()),
                    ("client_secret", secret.expose()),
                    ("scope", scope.as_str()),
                ];
                crate::http::form(keys.requests.client().post(token_url(authority, tenant)?), &form)
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
                let now = keys.clock.now().as_second();
                let claims = json!({
                    "aud": url.as_str(), "iss": client, "sub": client, "nbf": now, "iat": now,
                    "exp": now + ASSERTION_SECONDS, "jti": format!("{client}-{now}"),
                });
                let assertion = signer.sign(&header, &claims).map_err(|error| error.to_string())?;
                let form = [
                    ("grant_type", "client_credentials"),
                    ("client_id", client.as_str()),
                    ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
                    ("client_assertion", assertion.as_str()),
                    ("scope", scope.as_str()),
                ];
                crate::http::form(keys.requests.client().post(url), &form)
            }
        };
        let answer = keys.requests.send_json(request).await.map_err(|error| error.to_string())?;
        let token = answer.get("access_token").and_then(Value::as_str);
        token.map(Secret::new).ok_or_else(|| "no access token in the answer".to_owned())
    }
}

fn token_url(authority: &str, tenant: &str) -> Result<Url, String> {
    let is_name = tenant.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let url = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
    match Url::parse(&url) {
        Ok(url) if is_name => Ok(url),
        _ => Err("the authority or the tenant is not valid".to_owned()),
    }
}

/// What a token for a vault is good for: the domain of all vaults of the cloud.
fn resource(vault: &Url) -> String {
    let host = vault.host_str().unwrap_or_default();
    let domain = host.split_once('.').map_or(host, |(_, domain)| domain);
    format!("https://{domain}")
}

pub(crate) async fn unlock(
    keys: &Keys,
    credentials: &AzureCredentials,
    [vault, name, version]: [&str; 3],
    encrypted: &str,
) -> Result<DataKey, KeyError> {
    let failed = |error: &str| {
        KeyError(format!(
            "failed to decrypt sops data key with Azure Key Vault key '{vault}/keys/{name}/{version}': {error}"
        ))
    };
    let mut url = Url::parse(vault).map_err(|_| failed("the vault is no URL"))?;
    let token = credentials
        .token(keys, &resource(&url))
        .await
        .map_err(|error| KeyError(format!("failed to get Azure token credential to decrypt: {error}")))?;
    url.path_segments_mut()
        .map_err(|()| failed("the vault is no URL"))?
        .pop_if_empty()
        .extend(["keys", name, version, "decrypt"]);
    url.set_query(Some(&format!("api-version={API_VERSION}")));
    let body = json!({"alg": "RSA-OAEP-256", "value": encrypted});
    let request = keys.requests.client().post(url).bearer_auth(token.expose()).json(&body);
    let answer = keys.requests.send_json(request).await.map_err(|error| failed(&error.to_string()))?;
    let value = answer.get("value").and_then(Value::as_str);
    value
        .and_then(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok())
        .map(DataKey::new)
        .ok_or_else(|| failed("no value in the answer"))
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

    #[test]
    fn tokens_are_for_the_cloud_of_the_vault() {
        let check = |vault: &str, expected: &str| assert_eq!(resource(&Url::parse(vault).unwrap()), expected);
        check("https://test.vault.azure.net", "https://vault.azure.net");
        check("https://test.vault.azure.cn/", "https://vault.azure.cn");
    }
}
