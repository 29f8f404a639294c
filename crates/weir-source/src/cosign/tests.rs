//! A whole world of signers: authorities, logs and certificates made for the test, and everything that can be wrong.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber, SigningKey as _, date_time_ymd,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::bundle::{of_bundle, of_layer};
use super::der::{Certificate, OCTETS, encode};
use super::*;

const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
/// 2026-01-15T00:00:00Z, within the life of the certificates.
const TIME: i64 = 1_768_435_200;
const SCT: [u64; 10] = [1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];
const SUBJECT: &str = "https://example.com/org/app/.workflow@refs/heads/main";
const ISSUER: &str = "https://token.example.com";

fn ca(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    parameters.not_before = date_time_ymd(2025, 1, 1);
    parameters.not_after = date_time_ymd(2035, 1, 1);
    parameters
}

/// What the signer gets a certificate for.
fn leaf(extensions: Vec<CustomExtension>) -> CertificateParams {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.serial_number = Some(SerialNumber::from(7_u64));
    parameters.not_before = date_time_ymd(2026, 1, 1);
    parameters.not_after = date_time_ymd(2026, 2, 1);
    parameters.subject_alt_names = vec![SanType::URI(SUBJECT.try_into().unwrap())];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    let issuer =
        CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, 8], encode(0x0C, ISSUER.as_bytes()));
    parameters.custom_extensions = vec![issuer];
    parameters.custom_extensions.extend(extensions);
    parameters
}

struct World {
    root: Value,
    signer: KeyPair,
    certificate: Vec<u8>,
    log: KeyPair,
}

impl World {
    fn new() -> Self {
        let (root_key, middle_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let root = ca("root").self_signed(&root_key).unwrap();
        let root_issuer = Issuer::new(ca("root"), root_key);
        let middle = ca("between").signed_by(&middle_key, &root_issuer).unwrap();
        let middle_spki = middle_key.subject_public_key_info();
        let middle_issuer = Issuer::new(ca("between"), middle_key);
        let (log, certificate_log) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let signer = KeyPair::generate().unwrap();
        // The certificate log signs the certificate before its signature is part of it.
        let before = leaf(Vec::new()).signed_by(&signer, &middle_issuer).unwrap();
        let signed = Certificate::parse(before.der()).unwrap().signed_without(b"none");
        let mut text = vec![0, 0];
        text.extend_from_slice(&(TIME as u64 * 1000).to_be_bytes());
        text.extend_from_slice(&[0, 1]);
        text.extend_from_slice(&Sha256::digest(&middle_spki));
        text.extend_from_slice(&(signed.len() as u32).to_be_bytes()[1..]);
        text.extend_from_slice(&signed);
        text.extend_from_slice(&[0, 0]);
        let signature = certificate_log.sign(&text).unwrap();
        let mut one = vec![0];
        one.extend_from_slice(&Sha256::digest(certificate_log.subject_public_key_info()));
        one.extend_from_slice(&(TIME as u64 * 1000).to_be_bytes());
        one.extend_from_slice(&[0, 0, 4, 3]);
        one.extend_from_slice(&(signature.len() as u16).to_be_bytes());
        one.extend_from_slice(&signature);
        let mut list = ((one.len() + 2) as u16).to_be_bytes().to_vec();
        list.extend_from_slice(&(one.len() as u16).to_be_bytes());
        list.extend_from_slice(&one);
        let timestamps = CustomExtension::from_oid_content(&SCT, encode(OCTETS, &list));
        let certificate = leaf(vec![timestamps]).signed_by(&signer, &middle_issuer).unwrap();
        let span = json!({"start": "2025-06-01T00:00:00Z"});
        let key = |key: &KeyPair| json!({"publicKey": {"rawBytes": STANDARD.encode(key.subject_public_key_info()), "validFor": span}});
        let chain = [middle.der(), root.der()].map(|der| json!({"rawBytes": STANDARD.encode(der)}));
        Self {
            root: json!({
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [key(&log)],
                "ctlogs": [key(&certificate_log)],
                "certificateAuthorities": [{"certChain": {"certificates": chain}, "validFor": span}],
            }),
            signer,
            certificate: certificate.der().to_vec(),
            log,
        }
    }

    fn policy(&self, change: impl FnOnce(&mut Value), identities: &[(&str, &str)]) -> Policy {
        let mut root = self.root.clone();
        change(&mut root);
        let root = TrustedRoot::parse(root.to_string().as_bytes()).unwrap();
        let identities = identities.iter().map(|(issuer, subject)| Identity::new(issuer, subject).unwrap());
        Policy::Keyless { root: Box::new(root), identities: identities.collect() }
    }

    fn pem(&self) -> String {
        format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            STANDARD.encode(&self.certificate)
        )
    }

    /// The promise of the log to include an entry.
    fn promise(&self, body: &Value, time: i64) -> (String, String) {
        let body = STANDARD.encode(body.to_string());
        let id = hex::encode(Sha256::digest(self.log.subject_public_key_info()));
        let text =
            format!("{{\"body\":\"{body}\",\"integratedTime\":{time},\"logID\":\"{id}\",\"logIndex\":5}}");
        (body, STANDARD.encode(self.log.sign(text.as_bytes()).unwrap()))
    }

    /// A signature of cosign 2 with its annotations.
    fn layer(&self, payload: &[u8], time: i64) -> BTreeMap<String, String> {
        let signature = STANDARD.encode(self.signer.sign(payload).unwrap());
        let entry = json!({
            "apiVersion": "0.0.1", "kind": "hashedrekord",
            "spec": {
                "data": {"hash": {"algorithm": "sha256", "value": hex::encode(Sha256::digest(payload))}},
                "signature": {"content": signature, "publicKey": {"content": STANDARD.encode(self.pem())}},
            },
        });
        let (body, promise) = self.promise(&entry, time);
        let id = hex::encode(Sha256::digest(self.log.subject_public_key_info()));
        let bundle = json!({
            "SignedEntryTimestamp": promise,
            "Payload": {"body": body, "integratedTime": time, "logIndex": 5, "logID": id},
        });
        [
            ("dev.cosignproject.cosign/signature", signature),
            ("dev.sigstore.cosign/certificate", self.pem()),
            ("dev.sigstore.cosign/bundle", bundle.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// A bundle of cosign 3.
    fn bundle(&self, predicate: &str, subject: &str) -> Value {
        let payload = json!({
            "_type": "https://in-toto.io/Statement/v1", "predicateType": predicate, "predicate": {},
            "subject": [{"digest": {"sha256": subject.trim_start_matches("sha256:")}}],
        })
        .to_string();
        let kind = "application/vnd.in-toto+json";
        let message = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let signature = STANDARD.encode(self.signer.sign(message.as_bytes()).unwrap());
        let entry = json!({
            "apiVersion": "0.0.1", "kind": "dsse",
            "spec": {
                "payloadHash": {"algorithm": "sha256", "value": hex::encode(Sha256::digest(&payload))},
                "signatures": [{"signature": signature, "verifier": STANDARD.encode(self.pem())}],
            },
        });
        let (body, promise) = self.promise(&entry, TIME);
        let id = STANDARD.encode(Sha256::digest(self.log.subject_public_key_info()));
        json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": STANDARD.encode(&self.certificate)},
                "tlogEntries": [{
                    "logIndex": "5", "logId": {"keyId": id}, "integratedTime": TIME.to_string(),
                    "inclusionPromise": {"signedEntryTimestamp": promise}, "canonicalizedBody": body,
                }],
            },
            "dsseEnvelope": {
                "payload": STANDARD.encode(payload), "payloadType": kind, "signatures": [{"sig": signature}],
            },
        })
    }
}

fn payload(digest: &str) -> Vec<u8> {
    json!({
        "critical": {
            "identity": {"docker-reference": "example.com/app"},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string()
    .into_bytes()
}

#[test]
fn keys_sign_images() {
    let world = World::new();
    let other = KeyPair::generate().unwrap();
    let key = |pair: &KeyPair| PublicKey::from_pem(pair.public_key_pem().as_bytes()).unwrap();
    let policy = Policy::Keys(vec![key(&other), key(&world.signer)]);
    let annotations = world.layer(&payload(DIGEST), TIME);
    let signature = of_layer(&payload(DIGEST), &annotations, DIGEST).unwrap();
    assert_eq!(check(&signature, &policy), Ok(()));
    assert!(check(&signature, &Policy::Keys(vec![key(&other)])).is_err());
    // The payload must be about the image, and be what was signed.
    let changed = DIGEST.replace('1', "2");
    assert_eq!(of_layer(&payload(&changed), &annotations, DIGEST), None);
    let signature = of_layer(&payload(&changed), &annotations, &changed).unwrap();
    assert!(check(&signature, &policy).is_err());
    let bundle = world.bundle("https://sigstore.dev/cosign/sign/v1", DIGEST).to_string();
    assert_eq!(check(&of_bundle(bundle.as_bytes(), DIGEST).unwrap(), &policy), Ok(()));
    assert_eq!(of_bundle(bundle.as_bytes(), &changed), None);
    // An attestation is not a signature.
    let attestation = world.bundle("https://spdx.dev/Document", DIGEST).to_string();
    assert_eq!(of_bundle(attestation.as_bytes(), DIGEST), None);
}

#[track_caller]
fn refused(signature: &Signature, policy: &Policy, expected: &str) {
    assert_eq!(check(signature, policy).unwrap_err().to_string(), expected);
}

#[test]
fn identities_sign_images() {
    let world = World::new();
    let same = |_: &mut Value| {};
    let annotations = world.layer(&payload(DIGEST), TIME);
    let signature = of_layer(&payload(DIGEST), &annotations, DIGEST).unwrap();
    let bundle = world.bundle("https://sigstore.dev/cosign/sign/v1", DIGEST);
    let bundled = of_bundle(bundle.to_string().as_bytes(), DIGEST).unwrap();
    for signature in [&signature, &bundled] {
        assert_eq!(check(signature, &world.policy(same, &[])), Ok(()));
        let wanted =
            [("^nobody$", ".*"), ("^https://token\\.example\\.com$", "^https://example.com/org/.*$")];
        assert_eq!(check(signature, &world.policy(same, &wanted)), Ok(()));
    }
    let anyone = world.policy(same, &[]);
    refused(
        &signature,
        &world.policy(same, &[(ISSUER, "^https://example.com/another/")]),
        "none of the expected identities matched what was in the certificate",
    );
    // A signature that the log recorded when the certificate had ended.
    let late = world.layer(&payload(DIGEST), TIME + 40 * 86_400);
    refused(
        &of_layer(&payload(DIGEST), &late, DIGEST).unwrap(),
        &anyone,
        "the certificate is not from a trusted authority, or was not valid at that time",
    );
    // A log, an authority and a certificate log that are not trusted.
    let stranger = World::new();
    refused(
        &signature,
        &world.policy(|root| root["tlogs"] = stranger.root["tlogs"].clone(), &[]),
        "the entry is of a transparency log that is not trusted",
    );
    refused(
        &signature,
        &world.policy(
            |root| root["certificateAuthorities"] = stranger.root["certificateAuthorities"].clone(),
            &[],
        ),
        "the certificate is not from a trusted authority, or was not valid at that time",
    );
    refused(
        &signature,
        &world.policy(|root| root["ctlogs"] = stranger.root["ctlogs"].clone(), &[]),
        "the certificate has no timestamp of a trusted certificate log",
    );
    // A log that was not trusted yet.
    let later = json!({"start": "2027-01-01T00:00:00Z"});
    refused(
        &signature,
        &world.policy(|root| root["tlogs"][0]["publicKey"]["validFor"] = later, &[]),
        "the transparency log was not trusted at that time",
    );
    // Parts of a signature that belong to another one.
    let mut mixed = signature.clone();
    mixed.entry = bundled.entry.clone();
    refused(&mixed, &anyone, "the entry of the transparency log is about something else");
    let mut mixed = signature.clone();
    if let Some(entry) = &mut mixed.entry {
        entry.integrated_time += 1;
    }
    refused(&mixed, &anyone, "the transparency log did not sign the entry");
    let bare = Signature { entry: None, ..signature.clone() };
    refused(&bare, &anyone, "the signature has no promise of a transparency log");
    let bare = Signature { certificate: None, ..signature };
    refused(&bare, &anyone, "the signature has no certificate");
}

#[test]
fn roots_that_cannot_be_used() {
    #[track_caller]
    fn check(root: &Value, expected: &str) {
        let error = TrustedRoot::parse(root.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let world = World::new();
    check(&json!("x"), "failed to parse trusted root");
    check(&json!({}), "failed to parse trusted root: there is no certificate authority");
    let mut root = world.root.clone();
    root["tlogs"] = json!([]);
    check(&root, "failed to parse trusted root: there is no transparency log");
    let mut root = world.root.clone();
    root["tlogs"][0]["publicKey"]["rawBytes"] = json!("?");
    check(&root, "failed to parse trusted root: a value is not base64");
    assert!(Identity::new("(", "x").is_err());
}
