//! A publisher for NATS: connect, say who we are, publish one message, and leave when the server has it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpStream;
use url::Url;
use weir_base::redact::Secret;

use crate::provider::ProviderError;
use crate::target::Target;

const CLIENT_NAME: &str = "NATS Provider Publisher";
const PORT: u16 = 4222;
/// The longest line a server sends; the list of its peers is the longest.
const LINE_BYTES_MAX: u64 = 256 << 10;

/// Why a message was not published. Texts show no credentials.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// No server could be reached.
    #[error("error publishing event to subject: error connecting to server: {0}")]
    Connect(String),
    /// The server does not speak NATS.
    #[error("error publishing event to subject: unexpected answer of the server")]
    Protocol,
    /// The server refused.
    #[error("error publishing event to subject: error publishing message to server: {0}")]
    Refused(String),
    /// The message is too long for the server.
    #[error("error publishing event to subject: the server takes at most {0} bytes")]
    TooLong(u64),
    /// The credentials cannot be used.
    #[error("error publishing event to subject: {0}")]
    Credentials(&'static str),
}

/// Checks server, subject and scheme.
pub(crate) fn check(target: &Target) -> Result<(), ProviderError> {
    if target.address.expose().is_empty() {
        return Err(ProviderError::Setting("NATS server (address) cannot be empty".to_owned()));
    }
    let subject = &target.channel;
    if subject.is_empty() {
        return Err(ProviderError::Setting("NATS subject (channel) cannot be empty".to_owned()));
    }
    // Anything else would be taken for further commands.
    if subject.chars().any(|character| character.is_whitespace() || character.is_control())
        || subject.split('.').any(str::is_empty)
        || subject.contains(['*', '>'])
    {
        return Err(ProviderError::Setting("invalid NATS subject (channel)".to_owned()));
    }
    servers(target.address.expose()).map(drop)
}

struct Server {
    host: String,
    port: u16,
    tls: bool,
    username: String,
    password: Option<String>,
}

fn servers(address: &str) -> Result<Vec<Server>, ProviderError> {
    let invalid =
        || ProviderError::Setting("invalid NATS server (address): want nats://host:port".to_owned());
    let server = |text: &str| {
        let text = text.trim();
        let full = if text.contains("://") { text.to_owned() } else { format!("nats://{text}") };
        let url = Url::parse(&full).map_err(|_| invalid())?;
        let tls = match url.scheme() {
            "nats" => false,
            "tls" => true,
            _ => return Err(invalid()),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(invalid)?;
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        Ok(Server {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(PORT),
            tls,
            username: decode(url.username()),
            password: url.password().map(decode),
        })
    };
    address.split(',').map(server).collect()
}

/// What a server says about itself.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Info {
    tls_required: bool,
    nonce: Option<String>,
    max_payload: u64,
}

/// Publishes one message; returns when the server has it.
pub(crate) async fn publish(target: &Target, payload: &[u8]) -> Result<(), NatsError> {
    let servers = servers(target.address.expose()).map_err(|error| NatsError::Connect(error.to_string()))?;
    let mut last = NatsError::Connect("no servers".to_owned());
    for server in servers {
        match publish_to(&server, target, payload).await {
            Err(error @ NatsError::Connect(_)) => last = error,
            done => return done,
        }
    }
    Err(last)
}

async fn publish_to(server: &Server, target: &Target, payload: &[u8]) -> Result<(), NatsError> {
    let connect = |error: std::io::Error| NatsError::Connect(error.to_string());
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(connect)?;
    let address = stream.peer_addr().map_err(connect)?;
    if crate::address::is_forbidden(address.ip()) {
        return Err(NatsError::Connect("events are not sent to link-local addresses".to_owned()));
    }
    let mut stream = BufReader::new(stream);
    let info = line(&mut stream).await?;
    let info: Info = info
        .strip_prefix("INFO ")
        .and_then(|info| serde_json::from_str(info).ok())
        .ok_or(NatsError::Protocol)?;
    if server.tls || info.tls_required {
        let stream = encrypt(stream.into_inner(), &server.host).await?;
        return talk(BufReader::new(stream), &info, server, target, payload, true).await;
    }
    talk(stream, &info, server, target, payload, false).await
}

async fn encrypt(
    stream: TcpStream,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, NatsError> {
    use rustls_platform_verifier::ConfigVerifierExt as _;
    let failed = |error: String| NatsError::Connect(error);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = rustls::ClientConfig::with_platform_verifier().map_err(|error| failed(error.to_string()))?;
    let name = rustls::pki_types::ServerName::try_from(host.to_owned())
        .map_err(|error| failed(error.to_string()))?;
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| failed(error.to_string()))
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: BufReader<S>,
    info: &Info,
    server: &Server,
    target: &Target,
    payload: &[u8],
    encrypted: bool,
) -> Result<(), NatsError> {
    let lost = |error: std::io::Error| NatsError::Refused(error.to_string());
    if info.max_payload > 0 && payload.len() as u64 > info.max_payload {
        return Err(NatsError::TooLong(info.max_payload));
    }
    let mut hello = json!({
        "verbose": false, "pedantic": false, "tls_required": encrypted, "name": CLIENT_NAME, "lang": "rust",
        "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "echo": true, "headers": false,
    });
    if let Value::Object(hello) = &mut hello {
        authorize(hello, info, server, target)?;
    }
    let hello = format!("CONNECT {hello}\r\nPING\r\n");
    stream.write_all(hello.as_bytes()).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    pong(&mut stream).await?;
    let head = format!("PUB {} {}\r\n", target.channel, payload.len());
    stream.write_all(head.as_bytes()).await.map_err(lost)?;
    stream.write_all(payload).await.map_err(lost)?;
    stream.write_all(b"\r\nPING\r\n").await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    pong(&mut stream).await
}

/// Reads up to the answer to a PING; by then the server has read what was before it.
async fn pong<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>) -> Result<(), NatsError> {
    loop {
        let line = line(stream).await?;
        if line == "PONG" {
            return Ok(());
        }
        if line == "PING" {
            let answer = async {
                stream.write_all(b"PONG\r\n").await?;
                stream.flush().await
            };
            answer.await.map_err(|error| NatsError::Refused(error.to_string()))?;
        } else if let Some(error) = line.strip_prefix("-ERR") {
            let error = error.trim().trim_matches('\'');
            return Err(NatsError::Refused(weir_base::error::truncate(error, 256)));
        } else if line != "+OK" && !line.starts_with("INFO ") {
            return Err(NatsError::Protocol);
        }
    }
}

async fn line<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Result<String, NatsError> {
    let mut bytes = Vec::new();
    let read = stream.take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes).await;
    read.map_err(|error| NatsError::Connect(error.to_string()))?;
    if !bytes.ends_with(b"\n") {
        return Err(NatsError::Protocol);
    }
    let text = String::from_utf8(bytes).map_err(|_| NatsError::Protocol)?;
    Ok(text.trim_end().to_owned())
}

/// Adds what authenticates: credentials file, key, login, in this order.
fn authorize(
    hello: &mut Map<String, Value>,
    info: &Info,
    server: &Server,
    target: &Target,
) -> Result<(), NatsError> {
    let data = |key: &str| {
        let value = target.data.get(key).filter(|value| !value.is_empty());
        value.map(|value| Secret::new(String::from_utf8_lossy(value)))
    };
    let nonce = info.nonce.as_deref().unwrap_or_default();
    let mut set = |key: &str, value: String| hello.insert(key.to_owned(), value.into());
    if let Some(file) = data("creds") {
        let (jwt, seed) = credentials(file.expose())?;
        let key = Key::from_seed(seed.expose())?;
        set("jwt", jwt.expose().to_owned());
        set("sig", key.sign(nonce));
    } else if let Some(seed) = data("nkey") {
        let key = Key::from_seed(seed.expose().trim())?;
        set("nkey", key.public());
        set("sig", key.sign(nonce));
    } else if !target.username.is_empty() && !target.password.expose().is_empty() {
        set("user", target.username.clone());
        set("pass", target.password.expose().to_owned());
    } else if let Some(password) = &server.password {
        set("user", server.username.clone());
        set("pass", password.clone());
    } else if !server.username.is_empty() {
        set("auth_token", server.username.clone());
    }
    Ok(())
}

/// The token and the seed in a credentials file.
fn credentials(file: &str) -> Result<(Secret, Secret), NatsError> {
    let block = |label: &str| {
        let (_, rest) = file.split_once(&format!("BEGIN {label}"))?;
        let (_, rest) = rest.split_once('\n')?;
        rest.lines().map(str::trim).find(|line| !line.is_empty()).map(Secret::new)
    };
    let missing = || NatsError::Credentials("the credentials file has no user JWT or no seed");
    Ok((block("NATS USER JWT").ok_or_else(missing)?, block("USER NKEY SEED").ok_or_else(missing)?))
}

/// A signing key.
struct Key {
    pair: Ed25519KeyPair,
    prefix: u8,
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key")
    }
}

impl Key {
    /// Reads a seed: base 32 of two bytes of prefix, the key, and a checksum.
    fn from_seed(seed: &str) -> Result<Self, NatsError> {
        const SEED: u8 = 18 << 3;
        let invalid = || NatsError::Credentials("error parsing nkey seed");
        let bytes = decode_base32(seed).filter(|bytes| bytes.len() == 36).ok_or_else(invalid)?;
        let (content, checksum) = bytes.split_at(34);
        if crc16(content).to_le_bytes() != checksum || content[0] & 0xf8 != SEED {
            return Err(invalid());
        }
        let prefix = (content[0] & 7) << 5 | (content[1] & 0xf8) >> 3;
        let pair = Ed25519KeyPair::from_seed_unchecked(&content[2..]).map_err(|_| invalid())?;
        Ok(Self { pair, prefix })
    }

    fn public(&self) -> String {
        let mut bytes = vec![self.prefix];
        bytes.extend_from_slice(self.pair.public_key().as_ref());
        bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
        encode_base32(&bytes)
    }

    fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.sign(nonce.as_bytes()))
    }
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn decode_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for character in text.bytes() {
        let value = BASE32.iter().position(|known| *known == character)?;
        held = held << 5 | u32::try_from(value).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

fn encode_base32(bytes: &[u8]) -> String {
    let (mut text, mut held, mut bits) = (String::new(), 0_u32, 0);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(BASE32[(held >> bits) as usize & 31] as char);
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(BASE32[(held << (5 - bits)) as usize & 31] as char);
    }
    text
}

/// The checksum of keys, CRC-16 with the polynomial of XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the documentation of nkeys.
    const SEED: &str = "SUAKYRHVIOREXV7EUZTBHUHL7NUMHPMAS7QMDU3GTIUWEI5LDNOXD43IZY";
    const PUBLIC: &str = "UAH42UG6PV552P5SWLWTBP3H3S5BHAVCO2IEKEXUANJXR75J63RQ5WM6";

    #[test]
    fn seeds_have_a_checksum() {
        let key = Key::from_seed(SEED).unwrap();
        let public = key.public();
        assert_eq!(public.len(), 56);
        assert!(public.starts_with('U'), "{public}");
        assert_eq!(decode_base32(&public).map(|bytes| encode_base32(&bytes)).as_deref(), Some(&*public));
        let mut broken = SEED.to_owned();
        broken.replace_range(10..11, "A");
        assert!(Key::from_seed(&broken).is_err());
        assert!(Key::from_seed(PUBLIC).is_err());
    }

    #[test]
    fn credentials_files_are_taken_apart() {
        let file = "-----BEGIN NATS USER JWT-----\neyJ0.e30.c2ln\n------END NATS USER JWT------\n\n*** keep it secret ***\n\n-----BEGIN USER NKEY SEED-----\nSUAX\n------END USER NKEY SEED------\n";
        let (jwt, seed) = credentials(file).unwrap();
        assert_eq!((jwt.expose(), seed.expose()), ("eyJ0.e30.c2ln", "SUAX"));
        assert!(credentials("nothing").is_err());
    }

    #[test]
    fn checksums_are_those_of_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
