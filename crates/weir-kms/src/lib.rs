//! Data keys of SOPS unlocked by key services on the network.
//!
//! [`Keys`] asks the service each key names: AWS KMS, Google Cloud KMS, Azure Key Vault, or the transit engine
//! of Vault and OpenBao. Every service is a handful of signed HTTP requests, so none of the vendors' client
//! libraries is used.
//!
//! # Invariants
//! Credentials go to the service they belong to and nowhere else; no error text shows one. Every request has a
//! deadline, and every answer a size limit.

mod aws;
mod azure;
mod gcp;
mod vault;

use std::sync::Arc;

use async_trait::async_trait;
use weir_base::clock::Clock;
use weir_base::redact::Secret;
use weir_sops::{DataKey, KeyError, KeyService, LocalKeys, MasterKey, Place};

pub use vault::{VaultToken, login as vault_login};
pub use weir_cloud::aws::AwsCredentials;
pub use weir_cloud::azure::AzureCredentials;
pub use weir_cloud::gcp::GcpCredentials;
pub use weir_cloud::{HttpError, InvalidCredentials, Requests};

/// Where the services are; the default is the public ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// AWS KMS, in the place of the one of the key's region.
    pub aws_kms: Option<String>,
    /// AWS STS, in the place of the one of the key's region.
    pub aws_sts: Option<String>,
    /// Google Cloud KMS.
    pub gcp_kms: Option<String>,
    /// The metadata service of Azure machines.
    pub azure_metadata: Option<String>,
}

/// Keys in memory, and credentials for the services that have the others.
#[derive(Clone)]
pub struct Keys {
    /// Keys that need no service.
    pub local: LocalKeys,
    /// Credentials for AWS.
    pub aws: Option<AwsCredentials>,
    /// Credentials for Google Cloud.
    pub gcp: Option<GcpCredentials>,
    /// Credentials for Azure.
    pub azure: Option<AzureCredentials>,
    /// Gives tokens for Vault servers.
    pub vault: Option<Arc<dyn VaultToken>>,
    /// Where the services are.
    pub endpoints: Endpoints,
    /// Sends requests.
    pub requests: Requests,
    /// Signatures carry the time.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { local, aws, gcp, azure, vault, endpoints, .. } = self;
        formatter
            .debug_struct("Keys")
            .field("local", local)
            .field("aws", aws)
            .field("gcp", gcp)
            .field("azure", azure)
            .field("vault", &vault.is_some())
            .field("endpoints", endpoints)
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// No keys and no credentials.
    pub fn new(requests: Requests, clock: Arc<dyn Clock>) -> Self {
        Self {
            local: LocalKeys::default(),
            aws: None,
            gcp: None,
            azure: None,
            vault: None,
            endpoints: Endpoints::default(),
            requests,
            clock,
        }
    }

    /// Takes over one entry of a decryption Secret by its name: age and OpenPGP keys, credentials for the services. What
    /// its name does not mark as one of these is left alone.
    ///
    /// # Errors
    /// The entry cannot be used.
    pub fn import(&mut self, name: &str, content: &[u8]) -> Result<(), KeyError> {
        let text = String::from_utf8_lossy(content);
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        match (name, extension) {
            ("sops.vault-token", _) => self.vault = Some(Arc::new(Secret::new(text.trim()))),
            ("sops.aws-kms", _) => self.aws = Some(AwsCredentials::from_yaml(content).map_err(unusable)?),
            ("sops.azure-kv", _) => {
                self.azure = Some(AzureCredentials::from_config(content).map_err(unusable)?);
            }
            ("sops.gcp-kms", _) => self.gcp = Some(GcpCredentials::from_json(content).map_err(unusable)?),
            (_, "asc") => self.local.pgp.import(content).map_err(unusable)?,
            (_, "agekey") => self.local.age.import(&text).map_err(unusable)?,
            _ => {}
        }
        Ok(())
    }
}

fn unusable(error: impl std::fmt::Display) -> KeyError {
    KeyError(error.to_string())
}

#[async_trait]
impl KeyService for Keys {
    async fn unlock(&self, key: &MasterKey) -> Result<DataKey, KeyError> {
        match &key.place {
            Place::AwsKms { arn, role, context, .. } => match &self.aws {
                Some(credentials) => {
                    let request = aws::Request { arn, role, context, encrypted: &key.encrypted };
                    aws::unlock(self, credentials, &request).await
                }
                None => self.local.unlock(key).await,
            },
            Place::GcpKms { resource } => match &self.gcp {
                Some(credentials) => gcp::unlock(self, credentials, resource, &key.encrypted).await,
                None => self.local.unlock(key).await,
            },
            Place::AzureKeyVault { vault, name, version } => match &self.azure {
                Some(credentials) => {
                    azure::unlock(self, credentials, [vault, name, version], &key.encrypted).await
                }
                None => self.local.unlock(key).await,
            },
            Place::Vault { address, engine, name } => match &self.vault {
                Some(token) => vault::unlock(self, &**token, [address, engine, name], &key.encrypted).await,
                None => self.local.unlock(key).await,
            },
            Place::Age { .. } | Place::Pgp { .. } | Place::HuaweiKms { .. } => self.local.unlock(key).await,
        }
    }
}

#[cfg(test)]
mod tests;
