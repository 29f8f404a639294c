//! OpenPGP private keys.

use std::sync::Arc;

use pgp::composed::{Deserializable, Message, SignedSecretKey};
use pgp::types::Password;

use crate::keys::{DataKey, KeyError};

/// Why a keyring cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PgpError {
    /// The text is no armored keyring.
    #[error("failed to import armored key data into GnuPG keyring: {0}")]
    Malformed(String),
    /// The keyring has no private key.
    #[error("failed to import armored key data into GnuPG keyring: no private key in it")]
    Empty,
}

/// Private keys without passphrases that unlock what was encrypted with OpenPGP.
#[derive(Clone, Default)]
pub struct PgpKeys {
    keys: Vec<Arc<SignedSecretKey>>,
}

impl std::fmt::Debug for PgpKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "PgpKeys({})", self.keys.len())
    }
}

impl PgpKeys {
    /// Adds the private keys of an armored keyring.
    ///
    /// # Errors
    /// The text cannot be read, or has no private key.
    pub fn import(&mut self, armored: &[u8]) -> Result<(), PgpError> {
        let malformed = |error: pgp::errors::Error| PgpError::Malformed(error.to_string());
        let (keys, _) = SignedSecretKey::from_armor_many(armored).map_err(malformed)?;
        let before = self.keys.len();
        for key in keys {
            self.keys.push(Arc::new(key.map_err(malformed)?));
        }
        if self.keys.len() == before { Err(PgpError::Empty) } else { Ok(()) }
    }

    /// What was encrypted for one of the keys.
    ///
    /// # Errors
    /// None of them is a recipient, a key has a passphrase, or the text is damaged.
    pub fn unlock(&self, fingerprint: &str, encrypted: &str) -> Result<DataKey, KeyError> {
        let failed = |error: &dyn std::fmt::Display| {
            KeyError(format!(
                "could not decrypt data key with PGP key: failed to decrypt sops data key with pgp: {error}"
            ))
        };
        if self.keys.is_empty() {
            return Err(failed(&format!("no private key for {fingerprint}")));
        }
        let (message, _) = Message::from_armor(encrypted.as_bytes()).map_err(|error| failed(&error))?;
        let password = Password::empty();
        let keys: Vec<&SignedSecretKey> = self.keys.iter().map(|key| &**key).collect();
        let message = message
            .decrypt_with_keys(vec![&password], keys)
            .map_err(|error| failed(&format!("no private key for {fingerprint} ({error})")))?;
        let mut message = if message.is_compressed() {
            message.decompress().map_err(|error| failed(&error))?
        } else {
            message
        };
        let bytes = message.as_data_vec().map_err(|error| failed(&error))?;
        if bytes.is_empty() {
            return Err(failed(&"zero bytes returned"));
        }
        Ok(DataKey::new(bytes))
    }
}
