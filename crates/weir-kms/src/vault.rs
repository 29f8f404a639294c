//! The transit engine of HashiCorp Vault and OpenBao.

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use url::Url;
use weir_base::redact::Secret;
use weir_sops::{DataKey, KeyError};

use crate::{Keys, Requests};

/// Gives tokens for Vault servers.
#[async_trait]
pub trait VaultToken: Send + Sync {
    /// A token for the server at `address`, which is as the document has it.
    ///
    /// # Errors
    /// The server is not trusted, or refuses.
    async fn token(&self, address: &str) -> Result<Secret, KeyError>;
}

#[async_trait]
impl VaultToken for Secret {
    async fn token(&self, _: &str) -> Result<Secret, KeyError> {
        Ok(self.clone())
    }
}

/// `address`, and below it the API path made of the segments of `paths`.
fn url(address: &str, paths: &[&str]) -> Option<Url> {
    let mut url = Url::parse(address).ok()?;
    let segments = paths.iter().flat_map(|path| path.split('/')).filter(|part| !part.is_empty());
    let segments: Vec<&str> = segments.collect();
    if segments.iter().any(|segment| matches!(*segment, "." | "..")) {
        return None;
    }
    url.path_segments_mut().ok()?.pop_if_empty().push("v1").extend(segments);
    Some(url)
}

pub(crate) async fn unlock(
    keys: &Keys,
    tokens: &dyn VaultToken,
    [address, engine, name]: [&str; 3],
    encrypted: &str,
) -> Result<DataKey, KeyError> {
    let path = format!("{engine}/decrypt/{name}");
    let failed = |error: &str| {
        KeyError(format!("failed to decrypt sops data key from Vault transit backend '{path}': {error}"))
    };
    let url = url(address, &[engine, "decrypt", name]).ok_or_else(|| failed("the address is not valid"))?;
    let token = tokens.token(address).await?;
    let request = keys
        .requests
        .client()
        .put(url)
        .header("X-Vault-Token", token.expose())
        .header("X-Vault-Request", "true")
        .json(&json!({"ciphertext": encrypted}));
    let answer = keys.requests.send_json(request).await.map_err(|error| failed(&error.to_string()))?;
    let plain = answer.pointer("/data/plaintext").and_then(Value::as_str);
    let plain = plain.ok_or_else(|| failed("no decrypted data"))?;
    let bytes = STANDARD.decode(plain);
    bytes.map(DataKey::new).map_err(|_| failed("cannot decode base64 plaintext into data key bytes"))
}

/// Exchanges a Kubernetes token for a token of the server.
///
/// # Errors
/// The server cannot be reached, refuses, or gives none.
pub async fn login(
    requests: &Requests,
    address: &str,
    login_path: &str,
    role: &str,
    kubernetes_token: &Secret,
) -> Result<Secret, KeyError> {
    let url = url(address, &[login_path])
        .ok_or_else(|| KeyError(format!("failed to create Vault client for '{address}': not a URL")))?;
    let request = requests
        .client()
        .put(url)
        .header("X-Vault-Request", "true")
        .json(&json!({"role": role, "jwt": kubernetes_token.expose()}));
    let answer = requests.send_json(request).await.map_err(|error| {
        KeyError(format!(
            "failed to authenticate with Vault '{address}' at login path '{login_path}' as role '{role}': {error}"
        ))
    })?;
    let token =
        answer.pointer("/auth/client_token").and_then(Value::as_str).filter(|token| !token.is_empty());
    token.map(Secret::new).ok_or_else(|| {
        KeyError(format!("Vault '{address}' returned no token for login at '{login_path}' as role '{role}'"))
    })
}
