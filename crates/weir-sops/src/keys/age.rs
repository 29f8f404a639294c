//! age identities.

use std::io::Read;
use std::sync::Arc;

use age::armor::ArmoredReader;
use age::{Decryptor, Identity};

use crate::keys::{DataKey, KeyError};

/// The largest data key that is read; real ones have 32 or 33 bytes.
const DATA_KEY_BYTES_MAX: u64 = 1024;
/// The identity types of age's post-quantum recipients, plugins, and plain keys.
const HYBRID_PREFIX: &str = "AGE-SECRET-KEY-PQ-1";
const PLUGIN_PREFIX: &str = "AGE-PLUGIN-";

/// Why identities cannot be used. The text never shows one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// A line is no identity.
    #[error("failed to parse and add to age identities: unknown identity type (line {0})")]
    Unknown(usize),
    /// A line begins like an identity but is damaged.
    #[error("failed to parse and add to age identities: malformed secret key (line {0})")]
    Malformed(usize),
    /// A post-quantum identity.
    #[error(
        "failed to parse and add to age identities: post-quantum identities are not supported (line {0})"
    )]
    Hybrid(usize),
    /// An identity of a plugin.
    #[error("failed to parse and add to age identities: identities of plugins are not supported (line {0})")]
    Plugin(usize),
    /// A private SSH key that cannot be read.
    #[error("malformed SSH identity")]
    Ssh,
    /// A private SSH key with a passphrase, which nobody can enter.
    #[error("the SSH key is password protected, which is unsupported")]
    SshPassphrase,
}

/// Private keys that unlock what was encrypted with age.
#[derive(Clone, Default)]
pub struct AgeIdentities {
    identities: Vec<Arc<dyn Identity + Send + Sync>>,
}

impl std::fmt::Debug for AgeIdentities {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AgeIdentities({})", self.identities.len())
    }
}

impl AgeIdentities {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// Adds the identities of a key file: one a line; empty lines and comments do not count. A private SSH
    /// key may stand in the place of the lines.
    ///
    /// # Errors
    /// The first line that is no identity; then none is added.
    pub fn import(&mut self, text: &str) -> Result<(), AgeError> {
        if text.trim_start().starts_with("-----BEGIN ") {
            return self.import_ssh(text);
        }
        let mut imported: Vec<Arc<dyn Identity + Send + Sync>> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let number = number + 1;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with(HYBRID_PREFIX) {
                return Err(AgeError::Hybrid(number));
            }
            if line.starts_with(PLUGIN_PREFIX) {
                return Err(AgeError::Plugin(number));
            }
            if !line.starts_with("AGE-SECRET-KEY-1") {
                return Err(AgeError::Unknown(number));
            }
            let identity: age::x25519::Identity =
                line.trim_end().parse().map_err(|_| AgeError::Malformed(number))?;
            imported.push(Arc::new(identity));
        }
        self.identities.extend(imported);
        Ok(())
    }

    /// Adds a private SSH key without a passphrase, `ssh-ed25519` or `ssh-rsa`.
    ///
    /// # Errors
    /// The key cannot be read, is of another type, or has a passphrase.
    pub fn import_ssh(&mut self, text: &str) -> Result<(), AgeError> {
        let identity =
            age::ssh::Identity::from_buffer(text.trim_start().as_bytes(), None).map_err(|_| AgeError::Ssh)?;
        match &identity {
            age::ssh::Identity::Unencrypted(_) => {
                self.identities.push(Arc::new(identity));
                Ok(())
            }
            age::ssh::Identity::Encrypted(_) => Err(AgeError::SshPassphrase),
            age::ssh::Identity::Unsupported(_) => Err(AgeError::Ssh),
        }
    }

    /// What was encrypted for one of the identities.
    ///
    /// # Errors
    /// None of them is a recipient, or the text is damaged.
    pub fn unlock(&self, encrypted: &str) -> Result<DataKey, KeyError> {
        if self.identities.is_empty() {
            return Err(KeyError("failed to load age identities: there are none".to_owned()));
        }
        let failed = |error: &dyn std::fmt::Display| {
            KeyError(format!("failed to create reader for decrypting sops data key with age: {error}"))
        };
        let decryptor = Decryptor::new_buffered(ArmoredReader::new(encrypted.as_bytes()))
            .map_err(|error| failed(&error))?;
        let identities = self.identities.iter().map(|identity| &**identity as &dyn Identity);
        let reader = decryptor.decrypt(identities).map_err(|error| match error {
            age::DecryptError::NoMatchingKeys => failed(&"no identity matched any of the recipients"),
            other => failed(&other),
        })?;
        let mut bytes = Vec::new();
        reader.take(DATA_KEY_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        Ok(DataKey::new(bytes))
    }
}
