//! Google Cloud KMS.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_base::error::chain;
use weir_cloud::gcp::GcpCredentials;
use weir_sops::{DataKey, KeyError};

use crate::Keys;

const SCOPES: &str =
    "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/cloudkms";
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
    let token = credentials
        .token(&keys.requests, SCOPES, keys.clock.now())
        .await
        .map_err(|error| KeyError(format!("cannot create GCP KMS service: {}", chain(&error))))?;
    let base = keys.endpoints.gcp_kms.as_deref().unwrap_or("https://cloudkms.googleapis.com");
    let request = keys
        .requests
        .client()
        .post(format!("{base}/v1/{resource}:decrypt"))
        .bearer_auth(token.secret.expose())
        .json(&json!({"ciphertext": encrypted}));
    let answer = keys.requests.send_json(request).await.map_err(|error| failed(&error.to_string()))?;
    let plain = answer.get("plaintext").and_then(Value::as_str);
    plain
        .and_then(|text| STANDARD.decode(text).ok())
        .map(DataKey::new)
        .ok_or_else(|| failed("no plaintext in the answer"))
}
