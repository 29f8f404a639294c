//! The keys by which SSH servers are known, in the format of OpenSSH's `known_hosts`.

use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PublicKey};
use sha1::Sha1;

/// Why a server is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostKeyError {
    /// No line is about the server.
    #[error("knownhosts: key is unknown")]
    Unknown,
    /// The server has another key than the lines say.
    #[error("knownhosts: key mismatch")]
    Mismatch,
    /// A line says that the key must not be used any more.
    #[error("knownhosts: key is revoked")]
    Revoked,
}

/// Lines of a `known_hosts` file.
#[derive(Debug, Clone, Default)]
pub struct KnownHosts(Vec<Line>);

/// A text that is not a `known_hosts` file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("knownhosts: line {line}: {what}")]
pub struct KnownHostsError {
    line: usize,
    what: &'static str,
}

#[derive(Debug, Clone)]
struct Line {
    marker: Marker,
    hosts: Vec<Host>,
    key: PublicKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    None,
    CertificateAuthority,
    Revoked,
}

#[derive(Debug, Clone)]
enum Host {
    Pattern { text: String, negated: bool },
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

impl KnownHosts {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// A line that is neither empty, a comment, nor hosts with a key.
    pub fn parse(text: &str) -> Result<Self, KnownHostsError> {
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let failed = |what| KnownHostsError { line: index + 1, what };
            let mut words = line.split_whitespace().peekable();
            let marker = match words.peek() {
                Some(&"@cert-authority") => Marker::CertificateAuthority,
                Some(&"@revoked") => Marker::Revoked,
                Some(word) if word.starts_with('@') => return Err(failed("unknown marker")),
                _ => Marker::None,
            };
            if marker != Marker::None {
                words.next();
            }
            let (Some(hosts), Some(kind), Some(key)) = (words.next(), words.next(), words.next()) else {
                return Err(failed("missing host pattern or key"));
            };
            let hosts = hosts.split(',').map(host).collect::<Option<Vec<_>>>();
            let hosts = hosts.ok_or_else(|| failed("invalid hashed host name"))?;
            let key = PublicKey::from_openssh(&format!("{kind} {key}")).map_err(|_| failed("invalid key"))?;
            lines.push(Line { marker, hosts, key });
        }
        Ok(Self(lines))
    }

    /// Whether the server at this address may have this key.
    ///
    /// # Errors
    /// It is not known, known by other keys, or the key is revoked.
    pub fn check(&self, host: &str, port: u16, key: &PublicKey) -> Result<(), HostKeyError> {
        let address = address(host, port);
        let same = |line: &Line| line.key.key_data() == key.key_data();
        if self.0.iter().any(|line| line.marker == Marker::Revoked && same(line)) {
            return Err(HostKeyError::Revoked);
        }
        let mut known =
            self.0.iter().filter(|line| line.marker == Marker::None && line.is_for(&address)).peekable();
        if known.peek().is_none() {
            return Err(HostKeyError::Unknown);
        }
        if known.any(same) { Ok(()) } else { Err(HostKeyError::Mismatch) }
    }

    /// The algorithms of all keys, those to prefer first.
    pub(super) fn algorithms(&self) -> Vec<Algorithm> {
        let keys = || self.0.iter().filter(|line| line.marker != Marker::Revoked).map(|line| &line.key);
        let ecdsa = |curve| Algorithm::Ecdsa { curve };
        let mut algorithms: Vec<Algorithm> = [
            Algorithm::Ed25519,
            ecdsa(EcdsaCurve::NistP256),
            ecdsa(EcdsaCurve::NistP384),
            ecdsa(EcdsaCurve::NistP521),
        ]
        .into_iter()
        .filter(|algorithm| keys().any(|key| key.algorithm() == *algorithm))
        .collect();
        if keys().any(|key| key.algorithm().is_rsa()) {
            algorithms.extend(
                [Some(HashAlg::Sha512), Some(HashAlg::Sha256), None].map(|hash| Algorithm::Rsa { hash }),
            );
        }
        algorithms
    }
}

impl Line {
    fn is_for(&self, address: &str) -> bool {
        let mut found = false;
        for host in &self.hosts {
            match host {
                Host::Pattern { text, negated } => {
                    if matches(text.as_bytes(), address.as_bytes()) {
                        if *negated {
                            return false;
                        }
                        found = true;
                    }
                }
                Host::Hashed { salt, hash } => {
                    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(salt) else { continue };
                    mac.update(address.as_bytes());
                    found |= mac.verify_slice(hash).is_ok();
                }
            }
        }
        found
    }
}

fn host(text: &str) -> Option<Host> {
    if let Some(hashed) = text.strip_prefix("|1|") {
        let decode = |text| base64::engine::general_purpose::STANDARD.decode(text).ok();
        let (salt, hash) = hashed.split_once('|')?;
        return Some(Host::Hashed { salt: decode(salt)?, hash: decode(hash)? });
    }
    let (negated, text) = text.strip_prefix('!').map_or((false, text), |text| (true, text));
    // The standard port may be written out.
    let text = match text.strip_prefix('[').and_then(|text| text.strip_suffix("]:22")) {
        Some(host) => host,
        None => text,
    };
    Some(Host::Pattern { text: text.to_lowercase(), negated })
}

/// The form in which addresses are written in the file.
fn address(host: &str, port: u16) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_lowercase();
    if port == 22 { host } else { format!("[{host}]:{port}") }
}

/// `*` stands for any text, `?` for one character.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    // Where to go on after the last star if what follows it does not match.
    let mut retry = None;
    while position < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at, position));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[position] => {
                at += 1;
                position += 1;
            }
            _ => match retry {
                Some((star, start)) => {
                    retry = Some((star, start + 1));
                    at = star + 1;
                    position = start + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    const TWO: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfuCHKVTjquxvt6CM6tdG4SLp1Btn/nOeHHE5UOzRdf";

    fn key(text: &str) -> PublicKey {
        PublicKey::from_openssh(text).unwrap()
    }

    #[track_caller]
    fn check(lines: &str, host: &str, port: u16, expected: &Result<(), HostKeyError>) {
        let hosts = KnownHosts::parse(lines).unwrap();
        assert_eq!(&hosts.check(host, port, &key(ONE)), expected, "{lines}");
    }

    #[test]
    fn hosts_are_known_by_name_pattern_and_port() {
        check(&format!("# note\n\ngithub.com {ONE} comment here\n"), "github.com", 22, &Ok(()));
        check(&format!("GitHub.com {ONE}"), "github.COM", 22, &Ok(()));
        check(&format!("a,github.com {ONE}"), "github.com", 22, &Ok(()));
        check(&format!("*.example.com {ONE}"), "git.example.com", 22, &Ok(()));
        check(&format!("git?.example.com {ONE}"), "git1.example.com", 22, &Ok(()));
        check(&format!("*,!bad.com {ONE}"), "bad.com", 22, &Err(HostKeyError::Unknown));
        check(&format!("github.com {ONE}"), "github.com", 2222, &Err(HostKeyError::Unknown));
        check(&format!("[github.com]:2222 {ONE}"), "github.com", 2222, &Ok(()));
        check(&format!("[github.com]:22 {ONE}"), "github.com", 22, &Ok(()));
        check(&format!("[::1]:2222 {ONE}"), "[::1]", 2222, &Ok(()));
    }

    #[test]
    fn other_keys_are_refused() {
        check(&format!("github.com {TWO}"), "github.com", 22, &Err(HostKeyError::Mismatch));
        check(&format!("github.com {TWO}\ngithub.com {ONE}"), "github.com", 22, &Ok(()));
        check(&format!("gitlab.com {ONE}"), "github.com", 22, &Err(HostKeyError::Unknown));
        check("", "github.com", 22, &Err(HostKeyError::Unknown));
        let revoked = format!("github.com {ONE}\n@revoked * {ONE}");
        check(&revoked, "github.com", 22, &Err(HostKeyError::Revoked));
        // An authority signs keys of hosts; it is no such key itself.
        check(&format!("@cert-authority * {ONE}"), "github.com", 22, &Err(HostKeyError::Unknown));
    }

    #[test]
    fn hashed_names() {
        let salt = b"12345678901234567890";
        let mut mac = Hmac::<Sha1>::new_from_slice(salt).unwrap();
        mac.update(b"github.com");
        let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let line = format!("|1|{}|{} {ONE}", encode(salt), encode(&mac.finalize().into_bytes()));
        check(&line, "github.com", 22, &Ok(()));
        check(&line, "gitlab.com", 22, &Err(HostKeyError::Unknown));
    }

    #[test]
    fn broken_lines_are_named() {
        let refused = |text: &str| KnownHosts::parse(text).unwrap_err().to_string();
        assert_eq!(refused("\ngithub.com ssh-ed25519"), "knownhosts: line 2: missing host pattern or key");
        assert_eq!(refused("github.com ssh-ed25519 AAAA"), "knownhosts: line 1: invalid key");
        assert_eq!(refused(&format!("@other a {ONE}")), "knownhosts: line 1: unknown marker");
        assert_eq!(refused(&format!("|1|x {ONE}")), "knownhosts: line 1: invalid hashed host name");
    }

    #[test]
    fn the_algorithms_offered_are_those_of_the_known_keys() {
        let hosts = KnownHosts::parse(&format!("github.com {ONE}")).unwrap();
        assert_eq!(hosts.algorithms(), [Algorithm::Ed25519]);
        assert!(KnownHosts::default().algorithms().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn stars_match_anything(text in "[a-c.]{0,12}", cut in 0usize..12) {
            let cut = cut.min(text.len());
            let pattern = format!("{}*{}", &text[..cut], &text[cut..]);
            proptest::prop_assert!(matches(pattern.as_bytes(), text.as_bytes()));
            proptest::prop_assert!(matches(b"*", text.as_bytes()));
        }
    }
}
