//! Sprig's keys and certificates, laid out as Go's `crypto/x509` does.

use std::any::Any;
use std::convert::Infallible;
use std::net::IpAddr;

use ed25519_dalek::Signer as _;
use rsa::Pkcs1v15Sign;
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey};
use rsa::pkcs8::{DecodePrivateKey, EncodePublicKey};
use rsa::rand_core::{TryCryptoRng, TryRng};
use sha2::{Digest, Sha256};

use super::der::{self, element, group, integer};
use super::{Outcome, argument, bytes, int, text};
use crate::base64;
use crate::error::Fault;
use crate::exec::Context;
use crate::format;
use crate::function::{Function, Param};
use crate::host::Host;
use crate::object::Object;
use crate::time::{Time, Zone};
use crate::value::Value;

use Param::{Int, List, String as Str};

const CERTIFICATE: Param = Param::Object("sprig.certificate");

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("genPrivateKey", &[Str], |context, arguments| {
        let kind = text(arguments, 0);
        Ok(Value::string(match &*kind {
            "" | "rsa" => Key::rsa(context, 4096)?.to_pem(),
            "ecdsa" => Key::p256(context).to_pem(),
            "ed25519" => Key::ed25519(context).to_pem(),
            "dsa" => "failed to generate private key: DSA keys are not supported".to_owned(),
            other => format!("Unknown type {other}"),
        }))
    }),
    Function::new("buildCustomCert", &[Str, Str], |_, arguments| {
        let certificate =
            base64::decode(bytes(arguments, 0)).map_err(|_| "unable to decode base64 certificate")?;
        let key = base64::decode(bytes(arguments, 1)).map_err(|_| "unable to decode base64 private key")?;
        let certificate = String::from_utf8_lossy(&certificate).into_owned();
        let key = String::from_utf8_lossy(&key).into_owned();
        let (_, content) = der::read_pem(&certificate).ok_or("unable to decode certificate")?;
        Parent::read(&content)
            .ok_or("error parsing certificate: decodedCert.Bytes: x509: malformed certificate")?;
        Key::from_pem(&key).map_err(|error| format!("error parsing private key: {error}"))?;
        Ok(Value::object(Certificate { certificate, key }))
    }),
    Function::new("genCA", &[Str, Int], |context, arguments| {
        let key = Key::rsa(context, 2048)?;
        authority(context, arguments, &key)
    }),
    Function::new("genCAWithKey", &[Str, Int, Str], |context, arguments| {
        let key = given_key(arguments, 2)?;
        authority(context, arguments, &key)
    }),
    Function::new("genSelfSignedCert", &[Str, List, List, Int], |context, arguments| {
        let key = Key::rsa(context, 2048)?;
        self_signed(context, arguments, &key)
    }),
    Function::new("genSelfSignedCertWithKey", &[Str, List, List, Int, Str], |context, arguments| {
        let key = given_key(arguments, 4)?;
        self_signed(context, arguments, &key)
    }),
    Function::new("genSignedCert", &[Str, List, List, Int, CERTIFICATE], |context, arguments| {
        let key = Key::rsa(context, 2048)?;
        signed(context, arguments, &key)
    }),
    Function::new("genSignedCertWithKey", &[Str, List, List, Int, CERTIFICATE, Str], |context, arguments| {
        let key = given_key(arguments, 5)?;
        signed(context, arguments, &key)
    }),
];

/// Randomness of the host for the key generators.
struct HostRandom<'a>(&'a mut dyn Host);

impl TryRng for HostRandom<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.0.random(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.0.random(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.random(bytes);
        Ok(())
    }
}

impl TryCryptoRng for HostRandom<'_> {}

/// A private key of one of the supported kinds.
enum Key {
    Rsa(Box<rsa::PrivateKey>),
    P256(Box<p256::ecdsa::SigningKey>),
    Ed25519(Box<ed25519_dalek::SigningKey>),
}

const OID_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const OID_EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const OID_ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const OID_RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const OID_ED25519: &[u8] = &[0x2b, 0x65, 0x70];

impl Key {
    fn rsa(context: &mut Context<'_>, bits: usize) -> Result<Self, Fault> {
        let mut random = HostRandom(context.host());
        match rsa::PrivateKey::new(&mut random, bits) {
            Ok(key) => Ok(Self::Rsa(Box::new(key))),
            Err(error) => Err(format!("error generating rsa key: {error}").into()),
        }
    }

    fn p256(context: &mut Context<'_>) -> Self {
        loop {
            let mut scalar = [0; 32];
            context.host().random(&mut scalar);
            // Almost every scalar is a key.
            if let Ok(key) = p256::ecdsa::SigningKey::from_slice(&scalar) {
                return Self::P256(Box::new(key));
            }
        }
    }

    fn ed25519(context: &mut Context<'_>) -> Self {
        let mut seed = [0; 32];
        context.host().random(&mut seed);
        Self::Ed25519(Box::new(ed25519_dalek::SigningKey::from_bytes(&seed)))
    }

    fn from_pem(text: &str) -> Result<Self, String> {
        let Some((label, content)) = der::read_pem(text) else {
            return Err("no PEM data in input".to_owned());
        };
        if label == "PRIVATE KEY" {
            if let Ok(key) = rsa::PrivateKey::from_pkcs8_der(&content) {
                return Ok(Self::Rsa(Box::new(key)));
            }
            if let Ok(key) = p256::SecretKey::from_pkcs8_der(&content) {
                return Ok(Self::P256(Box::new(key.into())));
            }
            // The seed is the last 32 bytes of the shortest form.
            let seed = content.last_chunk::<32>();
            if let Some(seed) = seed.filter(|_| content.len() == 48 && find(&content, OID_ED25519)) {
                return Ok(Self::Ed25519(Box::new(ed25519_dalek::SigningKey::from_bytes(seed))));
            }
            return Err("decoding PEM as PKCS#8: unsupported or malformed key".to_owned());
        }
        let Some(kind) = label.strip_suffix(" PRIVATE KEY") else {
            return Err(format!("no private key data in PEM block of type {label}"));
        };
        match kind {
            "RSA" => rsa::PrivateKey::from_pkcs1_der(&content)
                .map(|key| Self::Rsa(Box::new(key)))
                .map_err(|error| format!("parsing RSA private key from PEM: {error}")),
            "EC" => Self::from_sec1(&content)
                .ok_or_else(|| "parsing EC private key from PEM: unsupported or malformed key".to_owned()),
            "DSA" => Err("parsing DSA private key from PEM: DSA keys are not supported".to_owned()),
            other => Err(format!("invalid private key type {other}")),
        }
    }

    fn from_sec1(content: &[u8]) -> Option<Self> {
        let (_, inner, _, _) = der::split(content)?;
        let (_, scalar, _) = *der::children(inner)?.get(1)?;
        let key = p256::ecdsa::SigningKey::from_slice(scalar).ok()?;
        Some(Self::P256(Box::new(key)))
    }

    fn to_pem(&self) -> String {
        match self {
            Self::Rsa(key) => match key.to_pkcs1_der() {
                Ok(document) => der::pem("RSA PRIVATE KEY", document.as_bytes()),
                Err(error) => format!("failed to generate private key: {error}"),
            },
            Self::P256(key) => {
                let content = group(
                    der::SEQUENCE,
                    &[
                        integer(&[1]),
                        element(der::OCTET_STRING, &key.to_bytes()),
                        element(0xa0, &element(der::OBJECT, OID_P256)),
                        element(0xa1, &der::bits(&p256_point(key))),
                    ],
                );
                der::pem("EC PRIVATE KEY", &content)
            }
            Self::Ed25519(key) => {
                let content = group(
                    der::SEQUENCE,
                    &[
                        integer(&[0]),
                        element(der::SEQUENCE, &element(der::OBJECT, OID_ED25519)),
                        element(der::OCTET_STRING, &element(der::OCTET_STRING, key.as_bytes())),
                    ],
                );
                der::pem("PRIVATE KEY", &content)
            }
        }
    }

    /// The public key as a certificate holds it.
    fn public(&self) -> Result<Vec<u8>, String> {
        Ok(match self {
            Self::Rsa(key) => key
                .to_public_key()
                .to_public_key_der()
                .map_err(|error| format!("error creating certificate: {error}"))?
                .as_bytes()
                .to_vec(),
            Self::P256(key) => {
                let algorithm =
                    group(der::SEQUENCE, &[element(der::OBJECT, OID_EC), element(der::OBJECT, OID_P256)]);
                group(der::SEQUENCE, &[algorithm, der::bits(&p256_point(key))])
            }
            Self::Ed25519(key) => {
                let algorithm = element(der::SEQUENCE, &element(der::OBJECT, OID_ED25519));
                group(der::SEQUENCE, &[algorithm, der::bits(key.verifying_key().as_bytes())])
            }
        })
    }

    fn algorithm(&self) -> Vec<u8> {
        match self {
            Self::Rsa(_) => {
                group(der::SEQUENCE, &[element(der::OBJECT, OID_RSA_SHA256), element(der::NULL, &[])])
            }
            Self::P256(_) => element(der::SEQUENCE, &element(der::OBJECT, OID_ECDSA_SHA256)),
            Self::Ed25519(_) => element(der::SEQUENCE, &element(der::OBJECT, OID_ED25519)),
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Rsa(key) => key
                .sign(Pkcs1v15Sign::new::<Sha256>(), &Sha256::digest(message))
                .map_err(|error| format!("error creating certificate: {error}")),
            Self::P256(key) => {
                let signature: p256::ecdsa::DerSignature = key.sign(message);
                Ok(signature.as_bytes().to_vec())
            }
            Self::Ed25519(key) => Ok(key.sign(message).to_bytes().to_vec()),
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn p256_point(key: &p256::ecdsa::SigningKey) -> Vec<u8> {
    key.verifying_key().to_sec1_point(false).as_bytes().to_vec()
}

/// `sprig.certificate`
struct Certificate {
    certificate: String,
    key: String,
}

impl Object for Certificate {
    fn type_name(&self) -> &'static str {
        "sprig.certificate"
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![("Cert", Value::string(self.certificate.as_str())), ("Key", Value::string(self.key.as_str()))]
    }

    fn equal(&self, other: &dyn Object) -> bool {
        other
            .as_any()
            .downcast_ref::<Self>()
            .is_some_and(|other| (&self.certificate, &self.key) == (&other.certificate, &other.key))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What a new certificate takes from the one that signs it.
struct Parent {
    subject: Vec<u8>,
    public: Vec<u8>,
    key_id: Option<Vec<u8>>,
}

const OID_SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];

impl Parent {
    fn read(content: &[u8]) -> Option<Self> {
        let (der::SEQUENCE, outer, _, _) = der::split(content)? else { return None };
        let (der::SEQUENCE, body, _, _) = der::split(outer)? else { return None };
        let mut parts = der::children(body)?.into_iter().peekable();
        parts.next_if(|(tag, _, _)| *tag == 0xa0);
        // Serial number, algorithm, issuer and validity come before the subject.
        let (_, _, subject) = parts.nth(4)?;
        let (_, _, public) = parts.next()?;
        let mut key_id = None;
        if let Some((_, extensions, _)) = parts.find(|(tag, _, _)| *tag == 0xa3) {
            let (_, list, _, _) = der::split(extensions)?;
            for (_, extension, _) in der::children(list)? {
                let fields = der::children(extension)?;
                if fields.first().is_some_and(|(_, id, _)| *id == OID_SUBJECT_KEY_ID) {
                    let (_, value, _) = fields.last()?;
                    key_id = der::split(value).map(|(_, id, _, _)| id.to_vec());
                }
            }
        }
        Some(Self { subject: subject.to_vec(), public: public.to_vec(), key_id })
    }
}

/// What is to be certified.
struct Request {
    name: String,
    addresses: Vec<IpAddr>,
    hosts: Vec<String>,
    days: i64,
    authority: bool,
}

fn subject(name: &str) -> Vec<u8> {
    if name.is_empty() {
        return element(der::SEQUENCE, &[]);
    }
    let printable = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte));
    let tag = if printable { der::PRINTABLE_STRING } else { der::UTF8_STRING };
    let attribute =
        group(der::SEQUENCE, &[element(der::OBJECT, &[0x55, 0x04, 0x03]), element(tag, name.as_bytes())]);
    element(der::SEQUENCE, &element(der::SET, &attribute))
}

fn moment(seconds: i64) -> Vec<u8> {
    let time = Time::new(seconds, 0, Zone::Utc);
    // Two-digit years are for 1950 to 2049 only.
    if (-631_152_000..2_524_608_000).contains(&seconds) {
        element(der::UTC_TIME, time.format("060102150405Z").as_bytes())
    } else {
        element(der::GENERALIZED_TIME, time.format("20060102150405Z").as_bytes())
    }
}

fn extension(id: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    let mut parts = vec![element(der::OBJECT, &[0x55, 0x1d, id])];
    if critical {
        parts.push(element(der::BOOLEAN, &[0xff]));
    }
    parts.push(element(der::OCTET_STRING, value));
    group(der::SEQUENCE, &parts)
}

impl Request {
    fn new(arguments: &[Value]) -> Result<Self, Fault> {
        let entries = |index: usize| match argument(arguments, index) {
            Value::List(list) => list.items().to_vec(),
            _ => Vec::new(),
        };
        let mut addresses = Vec::new();
        for address in entries(1) {
            let Value::String(text) = &address else {
                let shown = format::display_text(&address);
                return Err(format!("error parsing ip: {shown} is not a string").into());
            };
            let parsed = text.as_str().and_then(|text| text.parse().ok());
            let Some(parsed) = parsed else { return Err(format!("error parsing ip: {text}").into()) };
            addresses.push(parsed);
        }
        let mut hosts = Vec::new();
        for host in entries(2) {
            let Value::String(text) = &host else {
                let shown = format::display_text(&host);
                return Err(format!("error processing alternate dns name: {shown} is not a string").into());
            };
            hosts.push(text.to_string());
        }
        let name = text(arguments, 0).into_owned();
        Ok(Self { name, addresses, hosts, days: int(arguments, 3), authority: false })
    }

    /// The certificate and its key, signed by `signer` in the name of `parent`, or by itself.
    fn certify(&self, context: &mut Context<'_>, key: &Key, parent: Option<(&Parent, &Key)>) -> Outcome {
        let (now, _) = context.host().now();
        let mut serial = [0; 16];
        context.host().random(&mut serial);
        let subject = subject(&self.name);
        let public = key.public()?;
        let signer = parent.map_or(key, |(_, signer)| signer);
        let issuer = parent.map_or(&subject, |(parent, _)| &parent.subject);
        if let Some((parent, signer)) = parent
            && signer.public()? != parent.public
        {
            return Err("error creating certificate: x509: provided PrivateKey doesn't match parent's \
                        PublicKey"
                .into());
        }
        let mut extensions = vec![
            extension(0x0f, true, if self.authority { &[3, 2, 2, 0xa4] } else { &[3, 2, 5, 0xa0] }),
            extension(
                0x25,
                false,
                &group(
                    der::SEQUENCE,
                    &[1, 2].map(|purpose| element(der::OBJECT, &[0x2b, 6, 1, 5, 5, 7, 3, purpose])),
                ),
            ),
            extension(
                0x13,
                true,
                &if self.authority {
                    element(der::SEQUENCE, &element(der::BOOLEAN, &[0xff]))
                } else {
                    element(der::SEQUENCE, &[])
                },
            ),
        ];
        if self.authority {
            // The identifier is taken from the key bits alone.
            let bits = der::split(&public)
                .and_then(|(_, inner, _, _)| der::children(inner))
                .and_then(|parts| parts.get(1).map(|(_, bits, _)| bits.to_vec()))
                .unwrap_or_default();
            let digest = Sha256::digest(bits.get(1..).unwrap_or_default());
            extensions.push(extension(0x0e, false, &element(der::OCTET_STRING, &digest[..20])));
        }
        if let Some((parent, _)) = parent
            && let Some(key_id) = &parent.key_id
            && *issuer != subject
        {
            extensions.push(extension(0x23, false, &element(der::SEQUENCE, &element(0x80, key_id))));
        }
        if !self.hosts.is_empty() || !self.addresses.is_empty() {
            let hosts = self.hosts.iter().map(|host| element(0x82, host.as_bytes()));
            let addresses = self.addresses.iter().map(|address| match address {
                IpAddr::V4(address) => element(0x87, &address.octets()),
                IpAddr::V6(address) => element(0x87, &address.octets()),
            });
            let names: Vec<Vec<u8>> = hosts.chain(addresses).collect();
            extensions.push(extension(0x11, self.name.is_empty(), &group(der::SEQUENCE, &names)));
        }
        let end =
            now.saturating_add(self.days.saturating_mul(86_400)).clamp(now - (1 << 36), now + (1 << 36));
        let body = group(
            der::SEQUENCE,
            &[
                element(0xa0, &integer(&[2])),
                integer(&serial),
                signer.algorithm(),
                issuer.clone(),
                group(der::SEQUENCE, &[moment(now), moment(end)]),
                subject.clone(),
                public,
                element(0xa3, &group(der::SEQUENCE, &extensions)),
            ],
        );
        let signature = signer.sign(&body)?;
        let whole = group(der::SEQUENCE, &[body, signer.algorithm(), der::bits(&signature)]);
        Ok(Value::object(Certificate { certificate: der::pem("CERTIFICATE", &whole), key: key.to_pem() }))
    }
}

fn given_key(arguments: &[Value], index: usize) -> Result<Key, Fault> {
    Key::from_pem(&text(arguments, index)).map_err(|error| format!("parsing private key: {error}").into())
}

fn authority(context: &mut Context<'_>, arguments: &[Value], key: &Key) -> Outcome {
    let request = Request {
        name: text(arguments, 0).into_owned(),
        addresses: Vec::new(),
        hosts: Vec::new(),
        days: int(arguments, 1),
        authority: true,
    };
    request.certify(context, key, None)
}

fn self_signed(context: &mut Context<'_>, arguments: &[Value], key: &Key) -> Outcome {
    Request::new(arguments)?.certify(context, key, None)
}

fn signed(context: &mut Context<'_>, arguments: &[Value], key: &Key) -> Outcome {
    let Value::Object(object) = argument(arguments, 4) else { return Ok(Value::Nil) };
    let Some(authority) = object.as_any().downcast_ref::<Certificate>() else {
        return Ok(Value::Nil);
    };
    let (_, content) = der::read_pem(&authority.certificate).ok_or("unable to decode certificate")?;
    let parent = Parent::read(&content)
        .ok_or("error parsing certificate: decodedSignerCert.Bytes: x509: malformed certificate")?;
    let signer =
        Key::from_pem(&authority.key).map_err(|error| format!("error parsing private key: {error}"))?;
    Request::new(arguments)?.certify(context, key, Some((&parent, &signer)))
}
