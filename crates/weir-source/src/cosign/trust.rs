//! What is trusted without a key of one's own: certificate authorities, transparency logs, and identities.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use regex::Regex;
use rustls::pki_types::{CertificateDer, UnixTime};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use webpki::ring::{
    ECDSA_P256_SHA256, ECDSA_P256_SHA384, ECDSA_P384_SHA256, ECDSA_P384_SHA384, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::der::Certificate;
use super::keys::PublicKey;

/// 1.3.6.1.5.5.7.3.3
const CODE_SIGNING: &[u8] = &[0x2B, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x03];
/// 1.3.6.1.4.1.11129.2.4.2
const TIMESTAMPS: &[u8] = &[0x2B, 0x06, 0x01, 0x04, 0x01, 0xD6, 0x79, 0x02, 0x04, 0x02];

/// Why a trusted root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It is not JSON of the right form.
    #[error("failed to parse trusted root")]
    Format(#[source] serde_json::Error),
    /// A key or certificate in it is broken.
    #[error("failed to parse trusted root: {0}")]
    Content(&'static str),
    /// A regular expression of an identity is broken.
    #[error("invalid identity expression")]
    Identity(#[source] Box<regex::Error>),
}

/// Who may sign.
#[derive(Debug, Clone)]
pub struct Identity {
    issuer: Regex,
    subject: Regex,
}

impl Identity {
    /// Takes regular expressions for the issuer and the subject; they match anywhere in the text.
    ///
    /// # Errors
    /// One is broken.
    pub fn new(issuer: &str, subject: &str) -> Result<Self, RootError> {
        let parse = |text: &str| Regex::new(text).map_err(|error| RootError::Identity(Box::new(error)));
        Ok(Self { issuer: parse(issuer)?, subject: parse(subject)? })
    }

    fn matches(&self, issuer: &str, subjects: &[String]) -> bool {
        self.issuer.is_match(issuer) && subjects.iter().any(|subject| self.subject.is_match(subject))
    }
}

/// A time span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

impl Span {
    fn contains(self, seconds: i64) -> bool {
        self.start.is_none_or(|start| start.as_second() <= seconds)
            && self.end.is_none_or(|end| seconds <= end.as_second())
    }
}

#[derive(Debug, Clone)]
struct Log {
    key: PublicKey,
    valid: Span,
}

#[derive(Debug, Clone)]
struct Authority {
    /// From the one that signs to the root.
    chain: Vec<CertificateDer<'static>>,
    valid: Span,
}

/// The authorities and logs that are trusted: the `trusted_root.json` of Sigstore.
#[derive(Debug, Clone)]
pub struct TrustedRoot {
    authorities: Vec<Authority>,
    logs: Vec<Log>,
    certificate_logs: Vec<Log>,
}

mod form {
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Root {
        #[serde(default)]
        pub(super) tlogs: Vec<Log>,
        #[serde(default)]
        pub(super) certificate_authorities: Vec<Authority>,
        #[serde(default)]
        pub(super) ctlogs: Vec<Log>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Log {
        pub(super) public_key: Key,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Key {
        pub(super) raw_bytes: String,
        #[serde(default)]
        pub(super) valid_for: Span,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Authority {
        pub(super) cert_chain: Chain,
        #[serde(default)]
        pub(super) valid_for: Span,
    }

    #[derive(Deserialize)]
    pub(super) struct Chain {
        #[serde(default)]
        pub(super) certificates: Vec<Certificate>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Certificate {
        pub(super) raw_bytes: String,
    }

    #[derive(Deserialize, Default)]
    pub(super) struct Span {
        pub(super) start: Option<String>,
        pub(super) end: Option<String>,
    }
}

impl TrustedRoot {
    /// Reads a `trusted_root.json`. Logs with keys of a kind that is not supported are left out.
    ///
    /// # Errors
    /// It is of another form, or has no authority or no log.
    pub fn parse(json: &[u8]) -> Result<Self, RootError> {
        let root: form::Root = serde_json::from_slice(json).map_err(RootError::Format)?;
        let decode =
            |text: &str| STANDARD.decode(text).map_err(|_| RootError::Content("a value is not base64"));
        let span = |span: &form::Span| -> Result<Span, RootError> {
            let time = |text: &Option<String>| match text {
                None => Ok(None),
                Some(text) => text.parse().map(Some).map_err(|_| RootError::Content("a time is malformed")),
            };
            Ok(Span { start: time(&span.start)?, end: time(&span.end)? })
        };
        let logs = |logs: &[form::Log]| -> Result<Vec<Log>, RootError> {
            let mut found = Vec::new();
            for log in logs {
                let valid = span(&log.public_key.valid_for)?;
                if let Ok(key) = PublicKey::from_der(&decode(&log.public_key.raw_bytes)?) {
                    found.push(Log { key, valid });
                }
            }
            Ok(found)
        };
        let authorities = root.certificate_authorities.iter().map(|authority| {
            let chain = authority.cert_chain.certificates.iter();
            let chain = chain.map(|certificate| decode(&certificate.raw_bytes).map(CertificateDer::from));
            Ok(Authority { chain: chain.collect::<Result<_, _>>()?, valid: span(&authority.valid_for)? })
        });
        let authorities = authorities.collect::<Result<Vec<_>, RootError>>()?;
        let root = Self { authorities, logs: logs(&root.tlogs)?, certificate_logs: logs(&root.ctlogs)? };
        if root.authorities.iter().all(|authority| authority.chain.is_empty()) {
            return Err(RootError::Content("there is no certificate authority"));
        }
        if root.logs.is_empty() {
            return Err(RootError::Content("there is no transparency log"));
        }
        Ok(root)
    }

    /// Whether a log promised to include an entry.
    pub(super) fn check_promise(&self, entry: &Entry) -> Result<(), Distrust> {
        let log = self.logs.iter().find(|log| log.key.id()[..] == entry.log_id[..]);
        let log = log.ok_or(Distrust("the entry is of a transparency log that is not trusted"))?;
        if !log.valid.contains(entry.integrated_time) {
            return Err(Distrust("the transparency log was not trusted at that time"));
        }
        // Keys in order and no spaces.
        let text = json!({
            "body": STANDARD.encode(&entry.body),
            "integratedTime": entry.integrated_time,
            "logID": hex::encode(&entry.log_id),
            "logIndex": entry.log_index,
        });
        if log.key.verifies(text.to_string().as_bytes(), &entry.promise) {
            Ok(())
        } else {
            Err(Distrust("the transparency log did not sign the entry"))
        }
    }

    /// Whether a trusted authority gave the certificate to someone who may sign, and said so in public.
    pub(super) fn check_certificate(
        &self,
        der: &[u8],
        given: &[Vec<u8>],
        seconds: i64,
        identities: &[Identity],
    ) -> Result<PublicKey, Distrust> {
        let malformed = Distrust("the certificate is malformed");
        let certificate = Certificate::parse(der).ok_or(malformed)?;
        if !certificate.may(CODE_SIGNING) {
            return Err(Distrust("the certificate is not one for signing"));
        }
        let issuer_key = self.issuer_of(der, given, seconds)?;
        self.check_timestamps(&certificate, &issuer_key, seconds)?;
        let issuer = certificate.issuer().unwrap_or_default();
        let subjects = certificate.subjects().ok_or(malformed)?;
        if !identities.is_empty() && !identities.iter().any(|one| one.matches(&issuer, &subjects)) {
            return Err(Distrust("none of the expected identities matched what was in the certificate"));
        }
        PublicKey::from_der(certificate.public_key)
            .map_err(|_| Distrust("the key of the certificate is not supported"))
    }

    /// The key of the authority that issued the certificate.
    fn issuer_of(&self, der: &[u8], given: &[Vec<u8>], seconds: i64) -> Result<Vec<u8>, Distrust> {
        let untrusted =
            Distrust("the certificate is not from a trusted authority, or was not valid at that time");
        let leaf = CertificateDer::from(der);
        let leaf = EndEntityCert::try_from(&leaf).map_err(|_| untrusted)?;
        let time = u64::try_from(seconds).map_err(|_| untrusted)?;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(time));
        let algorithms = [
            ECDSA_P256_SHA256,
            ECDSA_P256_SHA384,
            ECDSA_P384_SHA256,
            ECDSA_P384_SHA384,
            RSA_PKCS1_2048_8192_SHA256,
            RSA_PKCS1_2048_8192_SHA384,
            RSA_PKCS1_2048_8192_SHA512,
        ];
        for authority in self.authorities.iter().filter(|authority| authority.valid.contains(seconds)) {
            let Some((root, between)) = authority.chain.split_last() else { continue };
            let Ok(anchor) = anchor_from_trusted_cert(root) else { continue };
            let mut intermediates: Vec<CertificateDer<'_>> = between.to_vec();
            intermediates.extend(given.iter().map(|der| CertificateDer::from(der.as_slice())));
            let anchors = [anchor];
            // Authorities need not say what they are for.
            let usage = KeyUsage::required_if_present(CODE_SIGNING);
            let path = leaf.verify_for_usage(&algorithms, &anchors, &intermediates, time, usage, None, None);
            let Ok(path) = path else { continue };
            let issuer = match path.intermediate_certificates().next() {
                Some(issuer) => issuer.der().to_vec(),
                None => root.to_vec(),
            };
            let issuer = Certificate::parse(&issuer).ok_or(untrusted)?;
            return Ok(issuer.public_key.to_vec());
        }
        Err(untrusted)
    }

    /// Whether a certificate log promised to include the certificate. Roots that name no such logs do not ask for it.
    fn check_timestamps(
        &self,
        certificate: &Certificate<'_>,
        issuer_key: &[u8],
        seconds: i64,
    ) -> Result<(), Distrust> {
        if self.certificate_logs.is_empty() {
            return Ok(());
        }
        let missing = Distrust("the certificate has no timestamp of a trusted certificate log");
        let value = certificate.extension(TIMESTAMPS).ok_or(missing)?;
        let list = super::der::only(value, super::der::OCTETS).ok_or(missing)?.content;
        let signed = certificate.signed_without(TIMESTAMPS);
        for timestamp in timestamps(list).ok_or(missing)? {
            let Some(log) = self.certificate_logs.iter().find(|log| log.key.id()[..] == *timestamp.log_id)
            else {
                continue;
            };
            // Version 1, a timestamp of a certificate, of one before this extension was added.
            let mut text = vec![0, 0];
            text.extend_from_slice(timestamp.time);
            text.extend_from_slice(&[0, 1]);
            text.extend_from_slice(&Sha256::digest(issuer_key));
            let length = (signed.len() as u32).to_be_bytes();
            text.extend_from_slice(&length[1..]);
            text.extend_from_slice(&signed);
            text.extend_from_slice(&(timestamp.extensions.len() as u16).to_be_bytes());
            text.extend_from_slice(timestamp.extensions);
            if log.valid.contains(seconds) && log.key.verifies(&text, timestamp.signature) {
                return Ok(());
            }
        }
        Err(missing)
    }
}

struct CertificateTimestamp<'a> {
    log_id: &'a [u8],
    time: &'a [u8],
    extensions: &'a [u8],
    signature: &'a [u8],
}

/// The list of RFC 6962, section 3.3.
fn timestamps(list: &[u8]) -> Option<Vec<CertificateTimestamp<'_>>> {
    fn take<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = input.split_at_checked(length)?;
        *input = rest;
        Some(taken)
    }
    fn vector<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
        let length = take(input, 2)?;
        take(input, usize::from(u16::from_be_bytes([length[0], length[1]])))
    }
    let mut list = list;
    let mut list = vector(&mut list)?;
    let mut found = Vec::new();
    while !list.is_empty() {
        let mut one = vector(&mut list)?;
        if take(&mut one, 1)? != [0] {
            continue;
        }
        let log_id = take(&mut one, 32)?;
        let time = take(&mut one, 8)?;
        let extensions = vector(&mut one)?;
        // The algorithms of digest and signature; the key knows them.
        take(&mut one, 2)?;
        found.push(CertificateTimestamp { log_id, time, extensions, signature: vector(&mut one)? });
    }
    Some(found)
}

/// Why a signature is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Distrust(pub(super) &'static str);

/// An entry of a transparency log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) body: Vec<u8>,
    pub(super) integrated_time: i64,
    pub(super) log_id: Vec<u8>,
    pub(super) log_index: i64,
    pub(super) promise: Vec<u8>,
}

impl Entry {
    /// Whether the entry is about this signature of this content by this certificate.
    pub(super) fn check_about(
        &self,
        content: &[u8],
        signature: &[u8],
        certificate: &[u8],
    ) -> Result<(), Distrust> {
        #[derive(Deserialize)]
        struct Body {
            kind: String,
            spec: Value,
        }
        let other = Distrust("the entry of the transparency log is about something else");
        let body: Body = serde_json::from_slice(&self.body).map_err(|_| other)?;
        let text = |pointer: &str| body.spec.pointer(pointer).and_then(Value::as_str);
        let digest = hex::encode(Sha256::digest(content));
        let (found_digest, found_signature, found_key) = match body.kind.as_str() {
            "hashedrekord" => {
                (text("/data/hash/value"), text("/signature/content"), text("/signature/publicKey/content"))
            }
            "dsse" => {
                (text("/payloadHash/value"), text("/signatures/0/signature"), text("/signatures/0/verifier"))
            }
            _ => return Err(other),
        };
        let decode = |text: Option<&str>| text.and_then(|text| STANDARD.decode(text).ok());
        let pem = decode(found_key).unwrap_or_default();
        let key = weir_cloud::pem_blocks(&String::from_utf8_lossy(&pem), "CERTIFICATE").into_iter().next();
        let same = found_digest == Some(digest.as_str())
            && decode(found_signature).as_deref() == Some(signature)
            && key.as_deref() == Some(certificate);
        if same { Ok(()) } else { Err(other) }
    }
}
