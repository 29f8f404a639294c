//! SOPS documents: parsing, decryption and printing in all formats.
//!
//! [`Document::parse`] reads an encrypted file, [`Document::data_key`] asks a [`KeyService`] for its key,
//! [`Document::decrypt`] decrypts it, and [`Decrypted::emit`] prints it in any [`Format`], byte for byte as
//! SOPS does.
//!
//! # Invariants
//! Nothing here reads files, the environment or the network: keys that are elsewhere are reached through the
//! caller's [`KeyService`]. No error text shows a value, a key, or a line of a file. No input panics.

mod cipher;
mod flatten;
mod keys;
mod metadata;
mod rules;
mod shamir;
mod store;
mod tree;
mod walk;

pub use cipher::CipherError;
pub use flatten::FlattenError;
pub use keys::{
    AgeError, AgeIdentities, DataKey, DataKeyError, KeyError, KeyGroup, KeyService, LocalKeys, MasterKey,
    PgpError, PgpKeys, Place,
};
pub use metadata::MetadataError;
pub use store::{Format, FormatError};
pub use walk::WalkError;

use metadata::Metadata;
use tree::{Branch, Value};

/// Why an encrypted file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is not in its format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The metadata cannot be used.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// Why the checksum of a document does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// The checksum itself cannot be decrypted.
    #[error("failed to verify sops data integrity: {0}")]
    Unreadable(#[from] CipherError),
    /// The document was changed after it was encrypted.
    #[error("failed to verify sops data integrity: expected mac '{expected}', got '{computed}'")]
    Mismatch {
        /// What the document says.
        expected: String,
        /// What its values give.
        computed: String,
    },
}

/// Why data could not be decrypted. The text shows neither values nor keys.
#[derive(Debug, thiserror::Error)]
pub enum DecryptError {
    /// The data is no encrypted document of its format.
    #[error("failed to load encrypted {} data: {source}", .format.name())]
    Load {
        /// The format.
        format: Format,
        /// The cause.
        source: ParseError,
    },
    /// None of the keys unlocks it.
    #[error("cannot get sops data key: {0}")]
    Key(DataKeyError),
    /// A value cannot be decrypted.
    #[error("error decrypting sops tree: {0}")]
    Tree(WalkError),
    /// The plain data cannot be expressed in the wanted format.
    #[error("failed to emit encrypted {} file as decrypted {}: {source}", .from.name(), .to.name())]
    Emit {
        /// The format of the encrypted data.
        from: Format,
        /// The wanted format.
        to: Format,
        /// The cause.
        source: FormatError,
    },
}

/// The plain form of encrypted data, in another format if that is wanted. Its checksum is not compared.
///
/// # Errors
/// The data is no encrypted document, no key unlocks it, or the wanted format cannot express it.
pub async fn decrypt(
    data: &[u8],
    from: Format,
    to: Format,
    keys: &dyn KeyService,
) -> Result<Vec<u8>, DecryptError> {
    let document =
        Document::parse(data, from).map_err(|source| DecryptError::Load { format: from, source })?;
    let key = document.data_key(keys).await.map_err(DecryptError::Key)?;
    let decrypted = document.decrypt(&key).map_err(DecryptError::Tree)?;
    decrypted.emit(to).map_err(|source| DecryptError::Emit { from, to, source })
}

/// An encrypted file.
#[derive(Debug, Clone)]
pub struct Document {
    branches: Vec<Branch>,
    metadata: Metadata,
}

impl Document {
    /// Reads an encrypted file.
    ///
    /// # Errors
    /// The text is not in the format, or has no usable metadata.
    pub fn parse(data: &[u8], format: Format) -> Result<Self, ParseError> {
        let mut branches = format.load(data)?;
        let metadata = metadata::extract(&mut branches, format.layout())?;
        Ok(Self { branches, metadata })
    }

    /// The keys that can unlock the document.
    pub fn key_groups(&self) -> &[KeyGroup] {
        &self.metadata.groups
    }

    /// The key the values are encrypted with, unlocked through `service`: in every group one key after the
    /// other is tried until one works. Dropping the future stops asking.
    ///
    /// # Errors
    /// Too few groups could be unlocked; the text says which keys were tried and what was wrong.
    pub async fn data_key(&self, service: &dyn KeyService) -> Result<DataKey, DataKeyError> {
        keys::data_key(&self.metadata.groups, self.metadata.threshold, service).await
    }

    /// Decrypts all values. The checksum is computed, not compared: see [`Decrypted::verify`].
    ///
    /// # Errors
    /// The first value that cannot be decrypted, with the keys that lead to it.
    pub fn decrypt(self, key: &DataKey) -> Result<Decrypted, WalkError> {
        let Self { mut branches, metadata } = self;
        let computed = walk::decrypt(&mut branches, &metadata.rule, metadata.checks_only_encrypted, key)?;
        Ok(Decrypted { branches, metadata, computed })
    }
}

/// A decrypted file.
#[derive(Debug, Clone)]
pub struct Decrypted {
    branches: Vec<Branch>,
    metadata: Metadata,
    computed: String,
}

impl Decrypted {
    /// Proves that nothing was changed, added or removed since the file was encrypted.
    ///
    /// Controllers do not ask for this: a build may rightly change an encrypted document.
    ///
    /// # Errors
    /// The checksum does not hold.
    pub fn verify(&self, key: &DataKey) -> Result<(), ChecksumError> {
        let expected = match cipher::decrypt(&self.metadata.checksum, key, &self.metadata.last_modified)? {
            Value::Text(text) if text.is_empty() => "no MAC".to_owned(),
            Value::Text(text) => String::from_utf8_lossy(&text).into_owned(),
            _ => return Err(CipherError::Content("str").into()),
        };
        if expected == self.computed {
            return Ok(());
        }
        Err(ChecksumError::Mismatch { expected, computed: self.computed.clone() })
    }

    /// The text of the file in a format.
    ///
    /// # Errors
    /// The format cannot express the document.
    pub fn emit(&self, format: Format) -> Result<Vec<u8>, FormatError> {
        format.emit(&self.branches)
    }
}
