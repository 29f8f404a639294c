//! Signatures of commits and tags: OpenPGP and SSH.

use pgp::composed::{Deserializable as _, DetachedSignature, SignedPublicKey};
use pgp::packet::{Signature, SignatureType};
use pgp::types::{Duration, KeyDetails as _, Timestamp, VerifyingKey};
use russh::keys::HashAlg;
use russh::keys::ssh_key::{PublicKey, SshSig};

/// What SSH signatures of Git are made for.
const NAMESPACE: &str = "git";
const PGP_BEGIN: &str = "-----BEGIN PGP SIGNATURE-----";
const SSH_BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
const X509_BEGIN: &str = "-----BEGIN SIGNED MESSAGE-----";

/// A commit or tag without its signature, and the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// What was signed.
    pub payload: Vec<u8>,
    /// The armored signature; empty if there is none.
    pub signature: String,
}

impl Signed {
    /// Splits a raw commit: the signature is a field of its head.
    pub fn commit(raw: &[u8]) -> Self {
        let (mut payload, mut signature) = (Vec::with_capacity(raw.len()), Vec::new());
        let mut rest = raw;
        let mut in_signature = false;
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
            let (line, after) = rest.split_at(end);
            if line == b"\n" {
                // The message is signed whatever it looks like.
                payload.extend_from_slice(rest);
                break;
            }
            if let Some(first) = line.strip_prefix(b"gpgsig ") {
                in_signature = true;
                signature.extend_from_slice(first);
            } else if let Some(more) = line.strip_prefix(b" ").filter(|_| in_signature) {
                signature.extend_from_slice(more);
            } else {
                in_signature = false;
                payload.extend_from_slice(line);
            }
            rest = after;
        }
        Self { payload, signature: String::from_utf8_lossy(&signature).into_owned() }
    }

    /// Splits a raw tag: the signature is the end of its message.
    pub fn tag(raw: &[u8]) -> Self {
        let text = String::from_utf8_lossy(raw);
        let begin = [PGP_BEGIN, SSH_BEGIN, X509_BEGIN]
            .iter()
            .filter_map(|begin| raw_position(raw, format!("\n{begin}").as_bytes()))
            .max();
        match begin {
            Some(newline) => Self {
                payload: raw[..=newline].to_vec(),
                signature: String::from_utf8_lossy(&raw[newline + 1..]).into_owned(),
            },
            None => Self { payload: text.into_owned().into_bytes(), signature: String::new() },
        }
    }
}

/// Where the last occurrence begins.
fn raw_position(raw: &[u8], wanted: &[u8]) -> Option<usize> {
    raw.windows(wanted.len()).rposition(|window| window == wanted)
}

/// The keys that may sign.
#[derive(Debug, Default)]
pub struct SigningKeys {
    pgp: Vec<String>,
    ssh: Vec<String>,
}

/// Why a signature is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature, or one of a kind that cannot be checked.
    #[error("unsupported signature type: {0}")]
    Unsupported(&'static str),
    /// There are only SSH keys.
    #[error("PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)")]
    NoPgpKeys,
    /// There are only PGP keys.
    #[error("SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)")]
    NoSshKeys,
    /// The signature cannot be read.
    #[error("unable to parse the signature")]
    Unreadable,
    /// None of the keys made the signature.
    #[error("unable to verify payload with any of the given key rings")]
    NoMatch,
}

impl SigningKeys {
    /// Adds one value of a Secret: `*.sshpub` is text as in `authorized_keys`, anything else an armored key ring.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        let text = String::from_utf8_lossy(value).into_owned();
        if name.to_ascii_lowercase().ends_with(".sshpub") { self.ssh.push(text) } else { self.pgp.push(text) }
    }

    /// The id of the key that made the signature.
    ///
    /// # Errors
    /// There is no signature, no key of its kind, or none of the keys made it, or none that is neither revoked nor
    /// expired.
    pub fn verify(&self, signed: &Signed, now: jiff::Timestamp) -> Result<String, SignatureError> {
        let signature = signed.signature.trim_start();
        if signature.starts_with(PGP_BEGIN) || signature.starts_with("-----BEGIN PGP MESSAGE-----") {
            if self.pgp.is_empty() {
                return Err(SignatureError::NoPgpKeys);
            }
            return self.verify_pgp(signature, &signed.payload, now.as_second());
        }
        if signature.starts_with(SSH_BEGIN) {
            if self.ssh.is_empty() {
                return Err(SignatureError::NoSshKeys);
            }
            return self.verify_ssh(signature, &signed.payload);
        }
        Err(SignatureError::Unsupported(match signature {
            "" => "empty",
            text if text.starts_with(X509_BEGIN) => "x509",
            _ => "unknown",
        }))
    }

    fn verify_pgp(&self, signature: &str, payload: &[u8], now: i64) -> Result<String, SignatureError> {
        let (signature, _) =
            DetachedSignature::from_string(signature).map_err(|_| SignatureError::Unreadable)?;
        let kind = signature.signature.typ();
        if !matches!(kind, Some(SignatureType::Binary | SignatureType::Text)) {
            return Err(SignatureError::Unreadable);
        }
        for ring in &self.pgp {
            // One broken ring does not spoil the others.
            let Ok((keys, _)) = SignedPublicKey::from_string_many(ring) else { continue };
            for key in keys.map_while(Result::ok) {
                if signs(&key, &signature, payload, now) {
                    let id = key.primary_key.legacy_key_id();
                    return Ok(hex::encode_upper(id));
                }
            }
        }
        Err(SignatureError::NoMatch)
    }

    fn verify_ssh(&self, signature: &str, payload: &[u8]) -> Result<String, SignatureError> {
        let signature = SshSig::from_pem(signature).map_err(|_| SignatureError::Unreadable)?;
        for text in &self.ssh {
            // A broken line spoils its value as a whole.
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            let keys: Result<Vec<PublicKey>, _> = lines.map(PublicKey::from_openssh).collect();
            for key in keys.unwrap_or_default() {
                if key.verify(NAMESPACE, payload, &signature).is_ok() {
                    return Ok(key.fingerprint(HashAlg::Sha256).to_string());
                }
            }
        }
        Err(SignatureError::NoMatch)
    }
}

/// Whether the key, or a subkey of it that may sign, made the signature, and neither is revoked or expired.
pub(crate) fn signs(key: &SignedPublicKey, signature: &DetachedSignature, payload: &[u8], now: i64) -> bool {
    let own = || {
        let of_users = key.details.users.iter().flat_map(|user| &user.signatures);
        key.details.direct_signatures.iter().chain(of_users)
    };
    if !key.details.revocation_signatures.is_empty()
        || has_expired(&signature.signature, now)
        || key.details.verify_bindings(&key.primary_key).is_err()
        || is_past(newest(own()), key.primary_key.created_at(), now)
    {
        return false;
    }
    if verifies(signature, &key.primary_key, payload) {
        return true;
    }
    let subkey = key.public_subkeys.iter().find(|subkey| verifies(signature, &subkey.key, payload));
    let Some(subkey) = subkey else { return false };
    let revoked =
        subkey.signatures.iter().any(|binding| binding.typ() == Some(SignatureType::SubkeyRevocation));
    let binding = newest(subkey.signatures.iter());
    // The binding proves that the subkey belongs to the key and may sign for it.
    !revoked
        && subkey.verify_bindings(&key.primary_key).is_ok()
        && binding.is_some_and(|binding| binding.key_flags().sign())
        && !is_past(binding, subkey.key.created_at(), now)
}

fn newest<'s>(signatures: impl Iterator<Item = &'s Signature>) -> Option<&'s Signature> {
    signatures.max_by_key(|signature| signature.created().map(Timestamp::as_secs))
}

/// Whether the time is over that a self-signature gives to its key.
fn is_past(signature: Option<&Signature>, created: Timestamp, now: i64) -> bool {
    let lasts = signature.and_then(Signature::key_expiration_time).map_or(0, Duration::as_secs);
    lasts != 0 && i64::from(created.as_secs()) + i64::from(lasts) <= now
}

fn has_expired(signature: &Signature, now: i64) -> bool {
    let created = signature.created().map_or(0, Timestamp::as_secs);
    let lasts = signature.signature_expiration_time().map_or(0, Duration::as_secs);
    lasts != 0 && i64::from(created) + i64::from(lasts) <= now
}

fn verifies(signature: &DetachedSignature, key: &impl VerifyingKey, payload: &[u8]) -> bool {
    signature.verify(key, payload).is_ok()
}
