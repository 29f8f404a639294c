//! Azure Key Vault.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use url::Url;
use weir_base::error::chain;
use weir_cloud::azure::AzureCredentials;
use weir_sops::{DataKey, KeyError};

use crate::Keys;

const API_VERSION: &str = "7.4";

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
    let metadata = keys.endpoints.azure_metadata.as_deref();
    let token =
        credentials.token(&keys.requests, &resource(&url), metadata, keys.clock.now()).await.map_err(
            |error| KeyError(format!("failed to get Azure token credential to decrypt: {}", chain(&error))),
        )?;
    url.path_segments_mut()
        .map_err(|()| failed("the vault is no URL"))?
        .pop_if_empty()
        .extend(["keys", name, version, "decrypt"]);
    url.set_query(Some(&format!("api-version={API_VERSION}")));
    let body = json!({"alg": "RSA-OAEP-256", "value": encrypted});
    let request = keys.requests.client().post(url).bearer_auth(token.secret.expose()).json(&body);
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

    #[test]
    fn tokens_are_for_the_cloud_of_the_vault() {
        let check = |vault: &str, expected: &str| assert_eq!(resource(&Url::parse(vault).unwrap()), expected);
        check("https://test.vault.azure.net", "https://vault.azure.net");
        check("https://test.vault.azure.cn/", "https://vault.azure.cn");
    }
}
