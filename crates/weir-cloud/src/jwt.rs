//! Signed assertions, with which a private key is exchanged for an access token.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::Value;

use crate::InvalidCredentials;

/// A private RSA key that signs assertions.
pub struct Signer(RsaKeyPair);

impl std::fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Signer")
    }
}

impl Signer {
    /// Reads a private key in PEM, PKCS #8 or PKCS #1.
    ///
    /// # Errors
    /// There is no RSA key.
    pub fn from_pem(pem: &str) -> Result<Self, InvalidCredentials> {
        let invalid = || InvalidCredentials("the private key is not an RSA key in PEM".to_owned());
        if let Some(der) = pem_blocks(pem, "PRIVATE KEY").pop() {
            return RsaKeyPair::from_pkcs8(&der).map(Self).map_err(|_| invalid());
        }
        let der = pem_blocks(pem, "RSA PRIVATE KEY").pop().ok_or_else(invalid)?;
        RsaKeyPair::from_der(&der).map(Self).map_err(|_| invalid())
    }

    /// Header and claims, signed with RS256.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn sign(&self, header: &Value, claims: &Value) -> Result<String, InvalidCredentials> {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(header), part(claims));
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| InvalidCredentials("the private key cannot sign".to_owned()))?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// The contents of all blocks with a label.
pub fn pem_blocks(pem: &str, label: &str) -> Vec<Vec<u8>> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let mut found = Vec::new();
    let mut rest = pem;
    while let Some((_, behind)) = rest.split_once(&begin) {
        let Some((content, behind)) = behind.split_once(&end) else { break };
        let content: String = content.split_ascii_whitespace().collect();
        if let Ok(der) = STANDARD.decode(content) {
            found.push(der);
        }
        rest = behind;
    }
    found
}
