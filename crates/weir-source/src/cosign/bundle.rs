//! Signatures in the forms they lie in a registry: those of cosign 2 in annotations of a layer, and bundles.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::trust::Entry;

const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const BUNDLE: &str = "dev.sigstore.cosign/bundle";
const STATEMENT_TYPE: &str = "application/vnd.in-toto+json";
/// What a statement says that stands for a signature, and not for an attestation.
const SIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// A signature of the digest of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Signature {
    /// The bytes that are signed.
    pub(super) message: Vec<u8>,
    /// The bytes the transparency log knows by their digest.
    pub(super) content: Vec<u8>,
    /// The signature itself.
    pub(super) bytes: Vec<u8>,
    /// Who signed, if not a key that is known.
    pub(super) certificate: Option<Vec<u8>>,
    /// Authorities between the certificate and the trusted ones.
    pub(super) chain: Vec<Vec<u8>>,
    /// What the transparency log says about it.
    pub(super) entry: Option<Entry>,
}

/// A signature of cosign 2: a layer with its annotations. `None` if it is not one of the digest.
pub(super) fn of_layer(
    payload: &[u8],
    annotations: &BTreeMap<String, String>,
    digest: &str,
) -> Option<Signature> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Bundle {
        signed_entry_timestamp: String,
        payload: Payload,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Payload {
        body: String,
        integrated_time: i64,
        log_index: i64,
        #[serde(rename = "logID")]
        log_id: String,
    }
    let document: Value = serde_json::from_slice(payload).ok()?;
    let signed = document.pointer("/critical/image/docker-manifest-digest")?.as_str()?;
    if signed != digest {
        return None;
    }
    let pem = |name: &str| {
        annotations.get(name).map(|pem| weir_cloud::pem_blocks(pem, "CERTIFICATE")).unwrap_or_default()
    };
    let entry = annotations.get(BUNDLE).and_then(|text| {
        let bundle: Bundle = serde_json::from_str(text).ok()?;
        Some(Entry {
            body: STANDARD.decode(&bundle.payload.body).ok()?,
            integrated_time: bundle.payload.integrated_time,
            log_id: hex::decode(&bundle.payload.log_id).ok()?,
            log_index: bundle.payload.log_index,
            promise: STANDARD.decode(&bundle.signed_entry_timestamp).ok()?,
        })
    });
    Some(Signature {
        message: payload.to_vec(),
        content: payload.to_vec(),
        bytes: STANDARD.decode(annotations.get(SIGNATURE)?).ok()?,
        certificate: pem(CERTIFICATE).into_iter().next(),
        chain: pem(CHAIN),
        entry,
    })
}

/// A signature in a bundle, as cosign 3 makes them. `None` if it is not one of the digest.
pub(super) fn of_bundle(json: &[u8], digest: &str) -> Option<Signature> {
    let bundle: Value = serde_json::from_slice(json).ok()?;
    let text = |pointer: &str| bundle.pointer(pointer).and_then(Value::as_str);
    let bytes = |pointer: &str| STANDARD.decode(text(pointer)?).ok();
    let payload = bytes("/dsseEnvelope/payload")?;
    let kind = text("/dsseEnvelope/payloadType")?;
    if kind != STATEMENT_TYPE || !is_statement_about(&payload, digest) {
        return None;
    }
    let mut message = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    message.extend_from_slice(&payload);
    let certificate = bytes("/verificationMaterial/certificate/rawBytes")
        .or_else(|| bytes("/verificationMaterial/x509CertificateChain/certificates/0/rawBytes"));
    // Numbers of 64 bits are written as text.
    let number = |pointer: &str| match bundle.pointer(pointer)? {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    };
    let entry = || {
        let field = |name: &str| format!("/verificationMaterial/tlogEntries/0/{name}");
        Some(Entry {
            body: bytes(&field("canonicalizedBody"))?,
            integrated_time: number(&field("integratedTime"))?,
            log_id: bytes(&field("logId/keyId"))?,
            log_index: number(&field("logIndex"))?,
            promise: bytes(&field("inclusionPromise/signedEntryTimestamp"))?,
        })
    };
    Some(Signature {
        message,
        content: payload,
        bytes: bytes("/dsseEnvelope/signatures/0/sig")?,
        certificate,
        chain: Vec::new(),
        entry: entry(),
    })
}

fn is_statement_about(payload: &[u8], digest: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Statement {
        #[serde(default)]
        predicate_type: String,
        #[serde(default)]
        subject: Vec<Subject>,
    }
    #[derive(Deserialize)]
    struct Subject {
        #[serde(default)]
        digest: BTreeMap<String, String>,
    }
    let Ok(statement) = serde_json::from_slice::<Statement>(payload) else { return false };
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    statement.predicate_type == SIGN_PREDICATE
        && statement
            .subject
            .iter()
            .any(|subject| subject.digest.get(algorithm).is_some_and(|found| found == hex))
}
