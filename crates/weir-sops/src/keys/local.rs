//! The keys that need no service.

use async_trait::async_trait;

use crate::keys::{AgeIdentities, DataKey, KeyError, KeyService, MasterKey, PgpKeys, Place};

/// Private keys in memory.
#[derive(Debug, Clone, Default)]
pub struct LocalKeys {
    /// Keys of age and SSH.
    pub age: AgeIdentities,
    /// Keys of OpenPGP.
    pub pgp: PgpKeys,
}

#[async_trait]
impl KeyService for LocalKeys {
    async fn unlock(&self, key: &MasterKey) -> Result<DataKey, KeyError> {
        match &key.place {
            Place::Age { .. } => self.age.unlock(&key.encrypted),
            Place::Pgp { fingerprint } => self.pgp.unlock(fingerprint, &key.encrypted),
            Place::AwsKms { .. } => Err(KeyError("no credentials for AWS KMS".to_owned())),
            Place::GcpKms { .. } => Err(KeyError("no credentials for GCP KMS".to_owned())),
            Place::AzureKeyVault { .. } => Err(KeyError("no credentials for Azure Key Vault".to_owned())),
            Place::Vault { .. } => Err(KeyError("no token for Vault".to_owned())),
            Place::HuaweiKms { .. } => Err(KeyError("Huawei Cloud KMS is not supported".to_owned())),
        }
    }
}
