//! One encrypted value: `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`.

use aes_gcm::aead::consts::{U12, U16, U32};
use aes_gcm::aead::{Aead, KeyInit, Nonce, Payload};
use aes_gcm::aes::Aes256;
use aes_gcm::{AesGcm, aead::array::ArraySize};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weir_manifest::Timestamp;

use crate::keys::DataKey;
use crate::tree::{Comment, Value};

/// Why a value cannot be decrypted. The text never shows the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    /// The text is not in the form of an encrypted value.
    #[error("Input string <redacted> does not match sops' data format")]
    NotEncrypted,
    /// A part of the value is not base64.
    #[error("Error base64-decoding {part}: illegal base64 data")]
    Base64 {
        /// `data`, `iv` or `tag`.
        part: &'static str,
    },
    /// A nonce of a length nobody writes.
    #[error("Could not decrypt with AES_GCM: a nonce of {0} bytes is not supported")]
    NonceLength(usize),
    /// The data key does not have 32 bytes.
    #[error("crypto/aes: invalid key size {0}")]
    KeySize(usize),
    /// The value was changed, moved to another key, or encrypted with another data key.
    #[error("Could not decrypt with AES_GCM: cipher: message authentication failed")]
    Authentication,
    /// The value is of a type that does not exist.
    #[error("Unknown datatype: {0}")]
    UnknownType(String),
    /// The decrypted text is not of its type.
    #[error("a value of type {0} cannot be read after decryption")]
    Content(&'static str),
}

struct Encrypted<'a> {
    data: Vec<u8>,
    nonce: Vec<u8>,
    tag: Vec<u8>,
    kind: &'a str,
}

fn parse(text: &str) -> Result<Encrypted<'_>, CipherError> {
    // Greedy as the pattern of the reference: every part reaches to the last place where the next one may begin.
    let read = || {
        let rest = text.strip_prefix("ENC[AES256_GCM,data:")?;
        let (rest, _) = rest.rsplit_once(']')?;
        let (rest, kind) = rest.rsplit_once(",type:")?;
        let (rest, tag) = rest.rsplit_once(",tag:")?;
        let (data, nonce) = rest.rsplit_once(",iv:")?;
        let filled = [data, nonce, tag, kind].iter().all(|part| !part.is_empty());
        (filled && !text.contains('\n')).then_some((data, nonce, tag, kind))
    };
    let (data, nonce, tag, kind) = read().ok_or(CipherError::NotEncrypted)?;
    let decode = |part, text: &str| STANDARD.decode(text).map_err(|_| CipherError::Base64 { part });
    Ok(Encrypted { data: decode("data", data)?, nonce: decode("iv", nonce)?, tag: decode("tag", tag)?, kind })
}

fn open<N: ArraySize>(
    key: &[u8],
    encrypted: &Encrypted<'_>,
    additional: &[u8],
) -> Result<Vec<u8>, CipherError> {
    let cipher = AesGcm::<Aes256, N>::new_from_slice(key).map_err(|_| CipherError::KeySize(key.len()))?;
    let nonce = Nonce::<AesGcm<Aes256, N>>::try_from(encrypted.nonce.as_slice())
        .map_err(|_| CipherError::NonceLength(encrypted.nonce.len()))?;
    let sealed = [encrypted.data.as_slice(), &encrypted.tag].concat();
    cipher.decrypt(&nonce, Payload { msg: &sealed, aad: additional }).map_err(|_| CipherError::Authentication)
}

/// The value behind an encrypted text; `place` is what it was bound to, for values their keys joined by colons.
pub(crate) fn decrypt(text: &str, key: &DataKey, place: &str) -> Result<Value, CipherError> {
    if text.is_empty() {
        return Ok(Value::text(""));
    }
    let encrypted = parse(text)?;
    let (key, place) = (key.expose(), place.as_bytes());
    let plain = match encrypted.nonce.len() {
        12 => open::<U12>(key, &encrypted, place),
        16 => open::<U16>(key, &encrypted, place),
        32 => open::<U32>(key, &encrypted, place),
        other => Err(CipherError::NonceLength(other)),
    }?;
    let text = || std::str::from_utf8(&plain).ok();
    match encrypted.kind {
        "str" => Ok(Value::Text(plain)),
        "bytes" => Ok(Value::Bytes(plain)),
        "comment" => Ok(Value::Comment(Comment { text: plain, inline: false })),
        "int" => text().and_then(|text| text.parse().ok()).map(Value::Int).ok_or(CipherError::Content("int")),
        "float" => {
            text().and_then(|text| text.parse().ok()).map(Value::Float).ok_or(CipherError::Content("float"))
        }
        "bool" => match text() {
            Some("1" | "t" | "T" | "TRUE" | "true" | "True") => Ok(Value::Bool(true)),
            Some("0" | "f" | "F" | "FALSE" | "false" | "False") => Ok(Value::Bool(false)),
            _ => Err(CipherError::Content("bool")),
        },
        "time" => text()
            .and_then(Timestamp::parse)
            .map(|time| Value::Time(time.to_string()))
            .ok_or(CipherError::Content("time")),
        other => Err(CipherError::UnknownType(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_cause_and_hide_the_value() {
        let key = DataKey::new(vec![0; 32]);
        let message = |text: &str| decrypt(text, &key, "a:").unwrap_err().to_string();
        assert_eq!(message("s3cret"), "Input string <redacted> does not match sops' data format");
        assert_eq!(
            message("ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]"),
            "Could not decrypt with AES_GCM: a nonce of 1 bytes is not supported"
        );
        assert_eq!(
            message("ENC[AES256_GCM,data:%,iv:AA==,tag:AA==,type:str]"),
            "Error base64-decoding data: illegal base64 data"
        );
        let nonce = STANDARD.encode([0; 32]);
        let tag = STANDARD.encode([0; 16]);
        assert_eq!(
            message(&format!("ENC[AES256_GCM,data:AA==,iv:{nonce},tag:{tag},type:str]")),
            "Could not decrypt with AES_GCM: cipher: message authentication failed"
        );
        let short = DataKey::new(vec![0; 5]);
        let text = format!("ENC[AES256_GCM,data:AA==,iv:{nonce},tag:{tag},type:str]");
        assert_eq!(decrypt(&text, &short, "").unwrap_err().to_string(), "crypto/aes: invalid key size 5");
    }

    #[test]
    fn empty_values_are_not_encrypted() {
        assert_eq!(decrypt("", &DataKey::new(Vec::new()), "a:"), Ok(Value::text("")));
    }
}
