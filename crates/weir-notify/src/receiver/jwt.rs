//! Identity tokens (JSON Web Tokens, RFC 7519) and the keys they are signed with (RFC 7517). Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use super::quoted;

/// The longest token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// How much a token may begin to hold later than now.
const NOT_BEFORE_LEEWAY_SECONDS: f64 = 300.0;

/// Why a token proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    /// Not three parts, or parts that cannot be read.
    #[error("token is not a JWT")]
    Malformed,
    /// No `iss`.
    #[error("token is missing the 'iss' claim")]
    NoIssuer,
    /// An extension that must be understood and is not.
    #[error("token has critical header parameters")]
    Critical,
    /// Too old.
    #[error("token is expired")]
    Expired,
    /// Too new.
    #[error("token is not valid yet")]
    NotYet,
    /// Made for somebody else.
    #[error("token audience is {found}, want '{expected}'")]
    Audience {
        /// For whom it was made, quoted.
        found: String,
        /// For whom it should be made.
        expected: String,
    },
}

/// A token as it came; proven only once a [`Key`] verified it.
pub(super) struct Token<'a> {
    pub(super) algorithm: String,
    pub(super) key_id: Option<String>,
    claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

impl<'a> Token<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, TokenError> {
        let malformed = |()| TokenError::Malformed;
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(drop);
        let header = decode(header).map_err(malformed)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| TokenError::Malformed)?;
        if header.crit.is_some() {
            return Err(TokenError::Critical);
        }
        let claims = decode(claims).map_err(malformed)?;
        let claims: Value = serde_json::from_slice(&claims).map_err(|_| TokenError::Malformed)?;
        if !claims.is_object() {
            return Err(TokenError::Malformed);
        }
        let signature = decode(signature).map_err(malformed)?;
        let token = Self { algorithm: header.alg, key_id: header.kid, claims, signed, signature };
        token.issuer().ok_or(TokenError::NoIssuer)?;
        Ok(token)
    }

    pub(super) fn claims(&self) -> &Value {
        &self.claims
    }

    pub(super) fn issuer(&self) -> Option<&str> {
        self.claims["iss"].as_str().filter(|issuer| !issuer.is_empty())
    }

    /// Whether the token holds now.
    pub(super) fn check_times(&self, now: Timestamp) -> Result<(), TokenError> {
        let now = now.as_second() as f64;
        // A token without an end would hold for ever.
        if self.claims["exp"].as_f64().is_none_or(|end| now > end) {
            return Err(TokenError::Expired);
        }
        if self.claims["nbf"].as_f64().is_some_and(|start| start > now + NOT_BEFORE_LEEWAY_SECONDS) {
            return Err(TokenError::NotYet);
        }
        Ok(())
    }

    /// Whether the token was made for `expected`.
    pub(super) fn check_audience(&self, expected: &str) -> Result<(), TokenError> {
        let audience = &self.claims["aud"];
        let fits = match audience {
            Value::String(one) => one == expected,
            Value::Array(several) => several.iter().any(|one| one == expected),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        Err(TokenError::Audience { found: quoted(&audience.to_string()), expected: expected.to_owned() })
    }
}

/// A public key of an issuer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Key {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    use_: Option<String>,
    alg: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Key {
    /// Whether the key may have signed the token, by what both say.
    pub(super) fn may_have_signed(&self, token: &Token<'_>) -> bool {
        let named = token.key_id.is_none() || self.kid == token.key_id;
        let signs = self.use_.as_deref().is_none_or(|use_| use_ == "sig");
        named && signs && self.alg.as_deref().is_none_or(|algorithm| algorithm == token.algorithm)
    }

    /// Whether the key signed the token. The kind of key must fit the algorithm the token names, so a
    /// public key is never taken for a shared secret.
    pub(super) fn verifies(&self, token: &Token<'_>) -> bool {
        let decode = |part: &Option<String>| URL_SAFE_NO_PAD.decode(part.as_deref()?).ok();
        let message = token.signed.as_bytes();
        match (self.kty.as_str(), token.algorithm.as_str()) {
            ("RSA", algorithm) => {
                let parameters = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                let (Some(n), Some(e)) = (decode(&self.n), decode(&self.e)) else { return false };
                RsaPublicKeyComponents { n: &n, e: &e }.verify(parameters, message, &token.signature).is_ok()
            }
            ("EC", algorithm) => {
                let (parameters, length): (&dyn signature::VerificationAlgorithm, usize) =
                    match (algorithm, self.crv.as_deref()) {
                        ("ES256", Some("P-256")) => (&signature::ECDSA_P256_SHA256_FIXED, 32),
                        ("ES384", Some("P-384")) => (&signature::ECDSA_P384_SHA384_FIXED, 48),
                        _ => return false,
                    };
                let (Some(x), Some(y)) = (decode(&self.x), decode(&self.y)) else { return false };
                if x.len() != length || y.len() != length {
                    return false;
                }
                let point = [&[4], x.as_slice(), y.as_slice()].concat();
                UnparsedPublicKey::new(parameters, point).verify(message, &token.signature).is_ok()
            }
            ("OKP", "EdDSA") if self.crv.as_deref() == Some("Ed25519") => {
                let Some(x) = decode(&self.x) else { return false };
                UnparsedPublicKey::new(&signature::ED25519, x).verify(message, &token.signature).is_ok()
            }
            _ => false,
        }
    }
}
