//! Public keys and what they verify.

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest as _, Sha256};

use super::der::{BITS, OID, SEQUENCE, all, only};

/// Why a public key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is no public key in PEM.
    #[error("PEM decoding failed")]
    Pem,
    /// The key is malformed.
    #[error("the public key is malformed")]
    Malformed,
    /// The key is of a kind that is not supported.
    #[error(
        "unsupported public key type: ECDSA on P-256 and P-384, RSA from 2048 bits and Ed25519 are supported"
    )]
    Unsupported,
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    kind: Kind,
    bytes: Vec<u8>,
    /// The SHA-256 digest of the key with its algorithm.
    id: [u8; 32],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    P256,
    P384,
    Rsa,
    Ed25519,
}

impl PublicKey {
    /// Reads the first public key of a PEM text.
    ///
    /// # Errors
    /// There is none, or it is of a kind that is not supported.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let text = String::from_utf8_lossy(pem);
        let der = weir_cloud::pem_blocks(&text, "PUBLIC KEY").into_iter().next().ok_or(KeyError::Pem)?;
        Self::from_der(&der)
    }

    /// Reads a public key with its algorithm.
    pub(super) fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        const EC: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];
        const P256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07];
        const P384: &[u8] = &[0x2B, 0x81, 0x04, 0x00, 0x22];
        const RSA: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01];
        const EDWARDS: &[u8] = &[0x2B, 0x65, 0x70];
        let parts = only(der, SEQUENCE).and_then(|key| all(key.content)).ok_or(KeyError::Malformed)?;
        let [algorithm, key] = parts.as_slice() else { return Err(KeyError::Malformed) };
        let algorithm = all(algorithm.content).ok_or(KeyError::Malformed)?;
        let name = algorithm.first().filter(|name| name.tag == OID).ok_or(KeyError::Malformed)?.content;
        let curve = algorithm.get(1).filter(|curve| curve.tag == OID).map(|curve| curve.content);
        let kind = match (name, curve) {
            (EC, Some(P256)) => Kind::P256,
            (EC, Some(P384)) => Kind::P384,
            (RSA, _) => Kind::Rsa,
            (EDWARDS, _) => Kind::Ed25519,
            _ => return Err(KeyError::Unsupported),
        };
        // The first byte says how many bits at the end do not count: none.
        let bytes = match key.content.split_first() {
            Some((0, bytes)) if key.tag == BITS && !bytes.is_empty() => bytes.to_vec(),
            _ => return Err(KeyError::Malformed),
        };
        Ok(Self { kind, bytes, id: Sha256::digest(der).into() })
    }

    /// The SHA-256 digest of the key with its algorithm, by which logs are named.
    pub(super) fn id(&self) -> [u8; 32] {
        self.id
    }

    /// Whether the signature of a message is one of this key.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithms: &[&'static dyn VerificationAlgorithm] = match self.kind {
            Kind::P256 => &[&ECDSA_P256_SHA256_ASN1],
            // Which digest goes with the larger curve changed from one version of the signer to the next.
            Kind::P384 => &[&ECDSA_P384_SHA256_ASN1, &ECDSA_P384_SHA384_ASN1],
            Kind::Rsa => &[&RSA_PKCS1_2048_8192_SHA256],
            Kind::Ed25519 => &[&ED25519],
        };
        algorithms.iter().any(|algorithm| {
            UnparsedPublicKey::new(*algorithm, &self.bytes).verify(message, signature).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{PublicKeyData as _, SigningKey as _};

    use super::*;

    #[test]
    fn keys_of_all_kinds_verify_what_they_signed() {
        for algorithm in
            [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
        {
            let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let key = PublicKey::from_pem(pair.public_key_pem().as_bytes()).unwrap();
            assert_eq!(key, PublicKey::from_der(&pair.subject_public_key_info()).unwrap());
            let signature = pair.sign(b"message").unwrap();
            assert!(key.verifies(b"message", &signature));
            assert!(!key.verifies(b"another", &signature));
            assert!(!key.verifies(b"message", b""));
        }
        assert_eq!(PublicKey::from_pem(b"no key"), Err(KeyError::Pem));
        let broken = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
        assert_eq!(PublicKey::from_pem(broken.as_bytes()), Err(KeyError::Malformed));
    }
}
