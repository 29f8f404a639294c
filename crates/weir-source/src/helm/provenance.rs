//! Provenance files: clear-signed OpenPGP messages with the metadata of a chart and the digest of its archive.

use std::collections::BTreeMap;
use std::io::Cursor;

use pgp::composed::{
    ArmorOptions, CleartextSignedMessage, DetachedSignature, PublicOrSecret, SignedPublicKey, SignedSecretKey,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::types::{KeyDetails as _, Password, SecretParams, Timestamp};
use sha2::{Digest as _, Sha256};
use weir_base::redact::Secret;
use weir_manifest::ReadOptions;

use crate::git::signs;

/// Who signed an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// The users of the key.
    pub users: Vec<String>,
    /// The fingerprint of the key in hex.
    pub fingerprint: String,
}

/// Why an archive is not as it was signed, or cannot be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProvenanceError {
    /// The file is no clear-signed message.
    #[error("signature block not found")]
    NoSignature,
    /// None of the keys made the signature, or the key is revoked or expired.
    #[error("openpgp: signature made by unknown entity")]
    UnknownSigner,
    /// The message does not say anything about archives.
    #[error("message block must have at least two parts")]
    NoSums,
    /// The digests cannot be read.
    #[error("the digests in the message cannot be read: {0}")]
    Sums(String),
    /// Nothing is said about this archive.
    #[error("provenance does not contain a SHA for a file named {0:?}")]
    NotListed(String),
    /// Another archive was signed.
    #[error("sha256 sum does not match for {name}: {signed:?} != {found:?}")]
    Changed {
        /// The file.
        name: String,
        /// The digest in the message.
        signed: String,
        /// The digest of the archive.
        found: String,
    },
    /// No key of that name.
    #[error("private key not found")]
    NoKey,
    /// Several keys have the text in their names.
    #[error("more than one key contain the id {0:?}")]
    Ambiguous(String),
    /// Only the public part is there.
    #[error("provided key is not a private key. Try providing a keyring with secret keys")]
    NotPrivate,
    /// The passphrase is wrong, or the key is of a kind that cannot sign.
    #[error("failed to sign: {0}")]
    Signing(String),
}

fn keys(ring: &[u8]) -> Vec<PublicOrSecret> {
    PublicOrSecret::from_reader_many(Cursor::new(ring))
        .map(|(keys, _)| keys.map_while(Result::ok).collect())
        .unwrap_or_default()
}

fn public(key: PublicOrSecret) -> SignedPublicKey {
    match key {
        PublicOrSecret::Public(key) => key,
        PublicOrSecret::Secret(key) => key.to_public_key(),
    }
}

fn users(key: &SignedPublicKey) -> Vec<String> {
    key.details.users.iter().map(|user| String::from_utf8_lossy(user.id.id()).into_owned()).collect()
}

fn digest(archive: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(archive)))
}

/// Checks that one of the keys in `ring` signed the archive under this name; `now` counts seconds since 1970.
///
/// # Errors
/// The signature is missing or not one of those keys', or it is about other bytes or another name.
pub fn verify(
    archive: &[u8],
    provenance: &[u8],
    name: &str,
    ring: &[u8],
    now: i64,
) -> Result<Signer, ProvenanceError> {
    let text = String::from_utf8_lossy(provenance);
    let (message, _) =
        CleartextSignedMessage::from_string(&text).map_err(|_| ProvenanceError::NoSignature)?;
    let payload = message.signed_text();
    let signatures: Vec<DetachedSignature> =
        message.signatures().iter().cloned().map(DetachedSignature::new).collect();
    let signer = keys(ring)
        .into_iter()
        .map(public)
        .find(|key| signatures.iter().any(|signature| signs(key, signature, payload.as_bytes(), now)))
        .ok_or(ProvenanceError::UnknownSigner)?;
    let found = digest(archive);
    match sums(&payload.replace("\r\n", "\n"))?.remove(name) {
        None => Err(ProvenanceError::NotListed(name.to_owned())),
        Some(signed) if signed != found => {
            Err(ProvenanceError::Changed { name: name.to_owned(), signed, found })
        }
        Some(_) => Ok(Signer {
            users: users(&signer),
            fingerprint: hex::encode_upper(signer.primary_key.fingerprint().as_bytes()),
        }),
    }
}

/// The digests of files a message holds.
fn sums(message: &str) -> Result<BTreeMap<String, String>, ProvenanceError> {
    let (_, sums) = message.split_once("\n...\n").ok_or(ProvenanceError::NoSums)?;
    let document = weir_manifest::read_first_document(sums.as_bytes(), "", ReadOptions::default())
        .map_err(|error| ProvenanceError::Sums(error.to_string()))?;
    let files = document.get("files").and_then(serde_json::Value::as_object).cloned().unwrap_or_default();
    let text = |value: serde_json::Value| value.as_str().map(str::to_owned);
    Ok(files.into_iter().filter_map(|(name, sum)| Some((name, text(sum)?))).collect())
}

/// The text of a provenance file for an archive: `metadata` is the `Chart.yaml` as it is packaged.
///
/// The key is the one in `ring` whose user is `key`, or the only one whose user has it as a part. `passphrase` is asked
/// for, with the name of the user, if the key is locked. `now` counts seconds since 1970.
///
/// # Errors
/// There is no such secret key, or it cannot be unlocked.
pub fn sign<E: From<ProvenanceError>>(
    archive: &[u8],
    name: &str,
    metadata: &str,
    ring: &[u8],
    key: &str,
    now: u32,
    passphrase: impl FnOnce(&str) -> Result<Secret, E>,
) -> Result<String, E> {
    let chosen = choose(keys(ring), key)?;
    let locked = matches!(chosen.primary_key.secret_params(), SecretParams::Encrypted(_));
    let password = if locked {
        let owner = users(&chosen.to_public_key()).into_iter().next();
        let secret = passphrase(owner.as_deref().unwrap_or("Unknown"))?;
        Password::from(secret.expose())
    } else {
        Password::empty()
    };
    let sums = weir_manifest::to_yaml(&serde_json::json!({ "files": { name: digest(archive) } }));
    let text = format!("{metadata}\n...\n{sums}");
    // Blanks before a line break are not part of what is signed.
    let text: Vec<&str> = text.split('\n').map(str::trim_end).collect();
    Ok(clear_sign(&text.join("\n"), &chosen, now, &password)
        .map_err(|error| ProvenanceError::Signing(error.to_string()))?)
}

fn choose(keys: Vec<PublicOrSecret>, wanted: &str) -> Result<SignedSecretKey, ProvenanceError> {
    let named = |key: &PublicOrSecret| match key {
        PublicOrSecret::Public(key) => users(key),
        PublicOrSecret::Secret(key) => users(&key.to_public_key()),
    };
    let mut partly = Vec::new();
    let mut exact = None;
    for key in keys {
        let names = named(&key);
        if names.iter().any(|name| name == wanted) {
            exact = Some(key);
            break;
        }
        if names.iter().any(|name| name.contains(wanted)) {
            partly.push(key);
        }
    }
    let key = match exact {
        Some(key) => key,
        None if partly.len() > 1 => return Err(ProvenanceError::Ambiguous(wanted.to_owned())),
        None => partly.pop().ok_or(ProvenanceError::NoKey)?,
    };
    match key {
        PublicOrSecret::Secret(key) => Ok(key),
        PublicOrSecret::Public(_) => Err(ProvenanceError::NotPrivate),
    }
}

fn clear_sign(
    text: &str,
    key: &SignedSecretKey,
    now: u32,
    password: &Password,
) -> Result<String, pgp::errors::Error> {
    let primary = &key.primary_key;
    let mut config = SignatureConfig::v4(SignatureType::Text, primary.algorithm(), HashAlgorithm::Sha512);
    config.hashed_subpackets = vec![
        Subpacket::regular(SubpacketData::SignatureCreationTime(Timestamp::from_secs(now)))?,
        Subpacket::regular(SubpacketData::IssuerFingerprint(primary.fingerprint()))?,
    ];
    config.unhashed_subpackets =
        vec![Subpacket::regular(SubpacketData::IssuerKeyId(primary.legacy_key_id()))?];
    let message = CleartextSignedMessage::new(text, config, primary, password)?;
    message.to_armored_string(ArmorOptions::default())
}
