//! The keys and credentials a Kustomization may decrypt with.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value;
use tokio::sync::Mutex;
use weir_api::kustomize::Kustomization;
use weir_apply::cluster::Cluster;
use weir_apply::object::ObjectRef;
use weir_base::clock::Clock;
use weir_base::redact::Secret;
use weir_kms::{Endpoints, Keys, Requests, VaultToken, vault_login};
use weir_manifest::ReadOptions;
use weir_sops::{AgeIdentities, KeyError};

use crate::build::BuildError;
use crate::clusters::Clusters;

/// The key of the ConfigMap that lists Vault servers.
const VAULT_CONFIG_KEY: &str = "config.yaml";

/// What every Kustomization may decrypt with, besides its own keys.
#[derive(Clone)]
pub struct Keyring {
    /// The namespace of the controller, if it is known.
    pub namespace: Option<String>,
    /// The Secret with age keys for Kustomizations that name none; empty for none.
    pub age_secret: String,
    /// The ConfigMap with the Vault servers that may be logged in to; empty for none.
    pub vault_config_map: String,
    /// The service account whose identity is used at Vault if a Kustomization names none; empty for the controller's.
    pub default_service_account: String,
    /// Age keys of the process, used if no others were imported.
    pub process_age: AgeIdentities,
    /// The Vault token of the process.
    pub process_vault_token: Option<Secret>,
    /// Sends requests to key services.
    pub requests: Requests,
    /// Where the key services are.
    pub endpoints: Endpoints,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Keyring {
    /// The keys of a Kustomization; `None` if it does not decrypt.
    ///
    /// # Errors
    /// [`BuildError::Keys`]: the Secret does not exist, or has an entry that cannot be used.
    pub async fn keys(
        &self,
        clusters: &Arc<dyn Clusters>,
        object: &Kustomization,
    ) -> Result<Option<Keys>, BuildError> {
        let Some(decryption) = &object.spec.decryption else { return Ok(None) };
        let mut keys = Keys::new(self.requests.clone(), Arc::clone(&self.clock));
        keys.endpoints = self.endpoints.clone();
        let own = object.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(reference) = &decryption.secret_ref {
            let entries = read_secret(clusters.local(), own, &reference.name, "decryption").await?;
            let place = format!("sops decryption Secret '{own}/{}'", reference.name);
            for (name, content) in &entries {
                keys.import(name, content).map_err(|error| failed_import(name, &place, &error))?;
            }
        } else if let Some(namespace) = self.namespace.as_deref().filter(|_| !self.age_secret.is_empty()) {
            let entries =
                read_secret(clusters.local(), namespace, &self.age_secret, "age decryption").await?;
            let place = format!("sops SOPS age decryption Secret '{namespace}/{}'", self.age_secret);
            for (name, content) in entries.iter().filter(|(name, _)| name.ends_with(".agekey")) {
                keys.import(name, content).map_err(|error| failed_import(name, &place, &error))?;
            }
        }
        if keys.local.age.is_empty() {
            keys.local.age = self.process_age.clone();
        }
        if keys.vault.is_none() {
            keys.vault = match self.namespace.as_deref() {
                Some(namespace) if !self.vault_config_map.is_empty() => {
                    let account = decryption.service_account_name.as_deref().filter(|name| !name.is_empty());
                    let account = account.unwrap_or(&self.default_service_account);
                    Some(Arc::new(VaultLogin {
                        clusters: Arc::clone(clusters),
                        requests: self.requests.clone(),
                        config_map: (namespace.to_owned(), self.vault_config_map.clone()),
                        account: (!account.is_empty()).then(|| (own.to_owned(), account.to_owned())),
                        tokens: Mutex::default(),
                    }))
                }
                _ => self.process_vault_token.clone().map(|token| Arc::new(token) as Arc<dyn VaultToken>),
            };
        }
        Ok(Some(keys))
    }
}

fn failed_import(name: &str, place: &str, error: &KeyError) -> BuildError {
    BuildError::Keys(format!("failed to import '{name}' data from {place}: {error}"))
}

/// The entries of a Secret, in the order of their names.
async fn read_secret(
    local: &dyn Cluster,
    namespace: &str,
    name: &str,
    what: &str,
) -> Result<Vec<(String, Vec<u8>)>, BuildError> {
    let secret = match local.get(&ObjectRef::core("Secret", namespace, name)).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return Err(BuildError::Keys(format!("secrets \"{name}\" not found"))),
        Err(error) => {
            let message = format!("cannot get sops {what} Secret '{namespace}/{name}': {error}");
            return Err(BuildError::Keys(message));
        }
    };
    let entries = secret.get("data").and_then(Value::as_object).into_iter().flatten();
    Ok(entries
        .filter_map(|(key, value)| Some((key.clone(), STANDARD.decode(value.as_str()?).ok()?)))
        .collect())
}

/// Logs in to Vault servers with the identity of a service account.
struct VaultLogin {
    clusters: Arc<dyn Clusters>,
    requests: Requests,
    /// Namespace and name.
    config_map: (String, String),
    /// Namespace and name; `None` for the account of the controller.
    account: Option<(String, String)>,
    /// The tokens of this run, by address.
    tokens: Mutex<HashMap<String, Secret>>,
}

#[async_trait]
impl VaultToken for VaultLogin {
    async fn token(&self, address: &str) -> Result<Secret, KeyError> {
        // Held while logging in: two documents need one login.
        let mut tokens = self.tokens.lock().await;
        if let Some(token) = tokens.get(address) {
            return Ok(token.clone());
        }
        let login_path = self.login_path(address).await?;
        let account = self.account.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let identity =
            self.clusters.service_account_token(account, &[address.to_owned()]).await.map_err(|error| {
                KeyError(format!("failed to issue Kubernetes token for Vault authentication: {error}"))
            })?;
        let role = role(identity.expose())
            .map_err(|error| KeyError(format!("failed to derive Vault role for authentication: {error}")))?;
        let token = vault_login(&self.requests, address, &login_path, &role, &identity).await?;
        tokens.insert(address.to_owned(), token.clone());
        Ok(token)
    }
}

impl VaultLogin {
    /// Where to log in; the list is also the list of servers that are trusted.
    async fn login_path(&self, address: &str) -> Result<String, KeyError> {
        let (namespace, name) = &self.config_map;
        let unreadable =
            |error: &str| KeyError(format!("failed to get Vault ConfigMap '{namespace}/{name}': {error}"));
        let map = match self.clusters.local().get(&ObjectRef::core("ConfigMap", namespace, name)).await {
            Ok(Some(map)) => map,
            Ok(None) => return Err(unreadable(&format!("configmaps \"{name}\" not found"))),
            Err(error) => return Err(unreadable(&error.to_string())),
        };
        let text = map.get("data").and_then(|data| data.get(VAULT_CONFIG_KEY)).and_then(Value::as_str);
        let text = text.ok_or_else(|| {
            KeyError(format!("Vault ConfigMap '{namespace}/{name}' is missing the '{VAULT_CONFIG_KEY}' key"))
        })?;
        let config = weir_manifest::read_first_document(text.as_bytes(), "", ReadOptions::default())
            .map_err(|error| {
                KeyError(format!(
                    "failed to parse '{VAULT_CONFIG_KEY}' in Vault ConfigMap '{namespace}/{name}': {error}"
                ))
            })?;
        let instances = config.get("instances").and_then(Value::as_array).into_iter().flatten();
        let field = |instance: &Value, name: &str| {
            instance.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        instances
            .filter(|instance| field(instance, "address") == address)
            .map(|instance| field(instance, "loginPath"))
            .rfind(|path| !path.is_empty())
            .ok_or_else(|| {
                KeyError(format!(
                    "no Vault login path configured for address '{address}' in ConfigMap '{namespace}/{name}'"
                ))
            })
    }
}

/// The role of a service account at Vault, from the subject of its token: `<namespace>_<name>`.
fn role(token: &str) -> Result<String, &'static str> {
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("not a JWT");
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| "failed to decode token payload")?;
    let claims: Value = serde_json::from_slice(&payload).map_err(|_| "failed to unmarshal token payload")?;
    claims
        .get("sub")
        .and_then(Value::as_str)
        .and_then(|subject| subject.strip_prefix("system:serviceaccount:"))
        .and_then(|rest| rest.split_once(':'))
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
        .map(|(namespace, name)| format!("{namespace}_{name}"))
        .ok_or("unexpected token subject")
}

#[cfg(test)]
mod tests;
