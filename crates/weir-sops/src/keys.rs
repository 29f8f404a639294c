//! Data keys, and the keys that unlock them.

mod age;
mod local;
mod pgp;
mod report;

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use zeroize::Zeroizing;

pub use age::{AgeError, AgeIdentities};
pub use local::LocalKeys;
pub use pgp::{PgpError, PgpKeys};

use crate::shamir;

/// The key the values of one document are encrypted with: never shown, wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKey(Zeroizing<Vec<u8>>);

impl DataKey {
    /// Takes the key in.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The key itself.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for DataKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// Where the key is that can unlock a data key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An age or SSH key.
    Age {
        /// The public key.
        recipient: String,
    },
    /// An OpenPGP key.
    Pgp {
        /// The fingerprint of the key or subkey.
        fingerprint: String,
    },
    /// AWS KMS.
    AwsKms {
        /// The ARN of the key.
        arn: String,
        /// The role to assume first, or empty.
        role: String,
        /// What the ciphertext is bound to.
        context: BTreeMap<String, String>,
        /// A profile of the machine that encrypted; not used.
        profile: String,
    },
    /// Google Cloud KMS.
    GcpKms {
        /// `projects/…/locations/…/keyRings/…/cryptoKeys/…`
        resource: String,
    },
    /// Huawei Cloud KMS.
    HuaweiKms {
        /// The identifier of the key.
        key: String,
    },
    /// Azure Key Vault.
    AzureKeyVault {
        /// The URL of the vault.
        vault: String,
        /// The name of the key.
        name: String,
        /// Its version.
        version: String,
    },
    /// The transit engine of HashiCorp Vault or OpenBao.
    Vault {
        /// The URL of the server.
        address: String,
        /// The path of the engine.
        engine: String,
        /// The name of the key.
        name: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Age { recipient } => formatter.write_str(recipient),
            Self::Pgp { fingerprint } => formatter.write_str(fingerprint),
            Self::GcpKms { resource } => formatter.write_str(resource),
            Self::HuaweiKms { key } => formatter.write_str(key),
            Self::AzureKeyVault { vault, name, version } => {
                write!(formatter, "{vault}/keys/{name}/{version}")
            }
            Self::Vault { address, engine, name } => {
                write!(formatter, "{address}/v1/{engine}/keys/{name}")
            }
            Self::AwsKms { arn, role, context, profile } => {
                formatter.write_str(arn)?;
                if !role.is_empty() {
                    write!(formatter, "+{role}")?;
                }
                let context: Vec<String> =
                    context.iter().map(|(key, value)| format!("{key}:{value}")).collect();
                match (context.is_empty(), profile.is_empty()) {
                    (_, false) => write!(formatter, "|{}|{profile}", context.join(",")),
                    (false, true) => write!(formatter, "|{}", context.join(",")),
                    (true, true) => Ok(()),
                }
            }
        }
    }
}

/// A key, and the data key or the part of it that was encrypted with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterKey {
    /// Where the key is.
    pub place: Place,
    /// The encrypted data key, as the document has it.
    pub encrypted: String,
}

/// Keys that unlock the same part of a data key; any one of them is enough.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyGroup {
    /// The keys, in the order in which they are tried.
    pub keys: Vec<MasterKey>,
}

/// Why a key service did not unlock a data key. The text is shown to users: no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub String);

/// Unlocks data keys.
#[async_trait]
pub trait KeyService: Send + Sync {
    /// What was encrypted with a key.
    ///
    /// # Errors
    /// The key is not there, or the service refuses or cannot be reached.
    async fn unlock(&self, key: &MasterKey) -> Result<DataKey, KeyError>;
}

/// Why the data key of a document could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataKeyError {
    /// Too few groups have a key that works.
    #[error("{}", report::missing(*.required, .groups))]
    Locked {
        /// How many groups have to be unlocked; 0 if there is but one.
        required: usize,
        /// For every group, what was wrong with each of its keys; `None` for unlocked ones.
        groups: Vec<Option<Vec<(String, KeyError)>>>,
    },
    /// The parts of the groups do not belong together.
    #[error("could not get data key from shamir parts: the parts do not belong together")]
    Parts,
}

/// The data key that `groups` protect.
pub(crate) async fn data_key(
    groups: &[KeyGroup],
    threshold: usize,
    service: &dyn KeyService,
) -> Result<DataKey, DataKeyError> {
    let mut parts = Vec::new();
    let mut failures = Vec::new();
    for group in groups {
        match unlock_group(group, service).await {
            Ok(part) => {
                parts.push(part);
                failures.push(None);
            }
            Err(errors) => failures.push(Some(errors)),
        }
    }
    let needed = if groups.len() > 1 { threshold } else { 1 };
    if parts.len() < needed {
        return Err(DataKeyError::Locked { required: threshold, groups: failures });
    }
    if groups.len() > 1 {
        return shamir::combine(&parts).map(DataKey::new).ok_or(DataKeyError::Parts);
    }
    parts.pop().ok_or(DataKeyError::Locked { required: threshold, groups: failures })
}

async fn unlock_group(
    group: &KeyGroup,
    service: &dyn KeyService,
) -> Result<DataKey, Vec<(String, KeyError)>> {
    let mut errors = Vec::new();
    for key in &group.keys {
        match service.unlock(key).await {
            Ok(part) => return Ok(part),
            Err(error) => errors.push((key.place.to_string(), error)),
        }
    }
    Err(errors)
}
