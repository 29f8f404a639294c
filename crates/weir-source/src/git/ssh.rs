//! The SSH side of the Git protocol: one channel of one connection, in process.
//!
//! As with HTTP, gix reads and writes blockingly, and every wait has the deadline of the operation and ends when the
//! caller gives up. A server is talked to only if its key is known.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use russh::client::{self, Handle, Msg};
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, CryptoVec, Preferred, kex};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;
use weir_base::redact::Secret;

use super::TransportError;
use super::known_hosts::KnownHosts;
use super::transport::Waiting;
use crate::connection::Proxy;

/// How much of what the server says besides is shown.
const STDERR_BYTES_MAX: usize = 1024;
const PORT: u16 = 22;
const USER: &str = "git";

/// A key to log in with, and the keys of servers.
#[derive(Clone)]
pub struct SshCredentials {
    pub(super) identity: Arc<PrivateKey>,
    pub(super) known_hosts: Arc<KnownHosts>,
}

impl std::fmt::Debug for SshCredentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SshCredentials({})", self.identity.algorithm())
    }
}

/// A private key that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It is encrypted and no password was given.
    #[error("the private key is encrypted")]
    Encrypted,
    /// It cannot be read, or not with the password. The cause is left out: it may quote the key.
    #[error("unable to parse private key")]
    Unreadable,
}

impl SshCredentials {
    /// Reads a PEM private key, with the password if it is encrypted.
    ///
    /// # Errors
    /// The key is encrypted but no password was given, the password is wrong, or it is not a key.
    pub fn new(
        identity: &Secret,
        password: Option<&Secret>,
        known_hosts: KnownHosts,
    ) -> Result<Self, IdentityError> {
        let password = password.map(Secret::expose).filter(|password| !password.is_empty());
        // Some editors leave blanks or no line break at the end.
        let text = format!("{}\n", identity.expose().trim());
        let encrypted = text.contains("ENCRYPTED");
        let key = russh::keys::decode_secret_key(&text, password).map_err(|error| {
            let missing = matches!(error, russh::keys::Error::KeyIsEncrypted) || encrypted;
            if missing && password.is_none() { IdentityError::Encrypted } else { IdentityError::Unreadable }
        })?;
        Ok(Self { identity: Arc::new(key), known_hosts: Arc::new(known_hosts) })
    }
}

/// Which algorithms may be used; empty lists stand for the usual ones.
#[derive(Debug, Clone, Default)]
pub struct SshAlgorithms {
    key_exchange: Vec<kex::Name>,
    host_keys: Vec<Algorithm>,
}

/// A name of an algorithm that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsupported SSH {what} algorithm '{name}'")]
pub struct UnknownAlgorithm {
    what: &'static str,
    name: String,
}

impl SshAlgorithms {
    /// Reads the names of key exchange and host key algorithms, most preferred first.
    ///
    /// # Errors
    /// A name is not known.
    pub fn new(key_exchange: &[String], host_keys: &[String]) -> Result<Self, UnknownAlgorithm> {
        let unknown = |what, name: &str| UnknownAlgorithm { what, name: name.to_owned() };
        let names = |list: &[String]| -> Vec<String> {
            list.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
        };
        let key_exchange = names(key_exchange)
            .iter()
            .map(|name| kex::Name::try_from(name.as_str()).map_err(|()| unknown("key exchange", name)))
            .collect::<Result<_, _>>()?;
        let host_keys = names(host_keys)
            .iter()
            .map(|name| Algorithm::new(name).map_err(|_| unknown("host key", name)))
            .collect::<Result<_, _>>()?;
        Ok(Self { key_exchange, host_keys })
    }

    fn preferred(&self, known_hosts: &KnownHosts) -> Preferred {
        let mut preferred = Preferred::DEFAULT;
        if self.key_exchange.is_empty() {
            let mut all = preferred.kex.to_vec();
            // Servers of some companies offer nothing else.
            all.extend([kex::ECDH_SHA2_NISTP256, kex::ECDH_SHA2_NISTP384, kex::ECDH_SHA2_NISTP521]);
            preferred.kex = Cow::Owned(all);
        } else {
            let mut chosen = self.key_exchange.clone();
            chosen.extend([kex::EXTENSION_SUPPORT_AS_CLIENT, kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT]);
            preferred.kex = Cow::Owned(chosen);
        }
        let host_keys =
            if self.host_keys.is_empty() { known_hosts.algorithms() } else { self.host_keys.clone() };
        if !host_keys.is_empty() {
            preferred.key = Cow::Owned(host_keys);
        }
        preferred
    }
}

struct Handler {
    host: String,
    port: u16,
    known_hosts: Arc<KnownHosts>,
    refused: Arc<Mutex<Option<String>>>,
}

impl client::Handler for Handler {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKey) -> Result<bool, russh::Error> {
        match self.known_hosts.check(&self.host, self.port, key) {
            Ok(()) => Ok(true),
            Err(error) => {
                *self.refused.lock() = Some(error.to_string());
                Ok(false)
            }
        }
    }
}

/// An open channel to `git-upload-pack`.
pub(super) struct Opened {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) path: String,
    pub(super) host: (String, Option<u16>),
}

/// Connects, logs in and starts `git-upload-pack`. Blocks.
pub(super) fn open(
    waiting: &Waiting,
    url: &Url,
    user: &str,
    credentials: &SshCredentials,
    proxy: Option<&Proxy>,
    algorithms: &SshAlgorithms,
) -> Result<Opened, TransportError> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port().unwrap_or(PORT);
    let path = percent_encoding::percent_decode_str(url.path()).decode_utf8_lossy().into_owned();
    // A home directory is no path from the root.
    let path = if path.starts_with("/~") { path[1..].to_owned() } else { path };
    let user = if user.is_empty() { USER } else { user }.to_owned();
    let refused = Arc::new(Mutex::new(None));
    let handler = Handler {
        host: host.clone(),
        port,
        known_hosts: Arc::clone(&credentials.known_hosts),
        refused: Arc::clone(&refused),
    };
    let config = Arc::new(client::Config {
        preferred: algorithms.preferred(&credentials.known_hosts),
        nodelay: true,
        ..client::Config::default()
    });
    let failed = |error: &russh::Error| {
        let text = refused.lock().take().unwrap_or_else(|| weir_base::error::chain(error));
        TransportError::Ssh(format!("ssh: handshake failed: {text}"))
    };
    let connected = waiting.wait(connect(&host, port, proxy))?;
    let stream = connected.map_err(|text| TransportError::Ssh(format!("dial tcp {host}:{port}: {text}")))?;
    let mut handle =
        waiting.wait(client::connect_stream(config, stream, handler))?.map_err(|error| failed(&error))?;
    let accepted = waiting.wait(log_in(&mut handle, &user, &credentials.identity))?;
    if !accepted.map_err(|error| failed(&error))? {
        return Err(TransportError::Ssh(
            "ssh: handshake failed: ssh: unable to authenticate, attempted methods [none publickey], no supported \
             methods remain"
                .to_owned(),
        ));
    }
    let quoted = path.replace('\'', "'\\''");
    let (read, write) = waiting
        .wait(async {
            let channel = handle.channel_open_session().await?;
            // A server may refuse this; it then speaks an older version.
            channel.set_env(false, "GIT_PROTOCOL", "version=2").await?;
            channel.exec(true, format!("git-upload-pack '{quoted}'")).await?;
            Ok::<_, russh::Error>(channel.split())
        })?
        .map_err(|error| failed(&error))?;
    let connection = Arc::new(handle);
    let reader = Reader {
        waiting: waiting.clone(),
        channel: read,
        chunk: CryptoVec::new(),
        position: 0,
        received_bytes: 0,
        stderr: Vec::new(),
        ended: false,
        _connection: Arc::clone(&connection),
    };
    let writer = Writer { waiting: waiting.clone(), channel: write, _connection: connection };
    Ok(Opened { reader, writer, path, host: (host, url.port()) })
}

async fn log_in(
    handle: &mut Handle<Handler>,
    user: &str,
    key: &Arc<PrivateKey>,
) -> Result<bool, russh::Error> {
    let hashes = if key.algorithm().is_rsa() {
        match handle.best_supported_rsa_hash().await? {
            Some(hash) => vec![hash],
            // The server does not say: what is safe first.
            None => vec![Some(HashAlg::Sha512), Some(HashAlg::Sha256), None],
        }
    } else {
        vec![None]
    };
    for hash in hashes {
        let key = PrivateKeyWithHashAlg::new(Arc::clone(key), hash);
        if handle.authenticate_publickey(user, key).await?.success() {
            return Ok(true);
        }
    }
    Ok(false)
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A TCP connection, through a SOCKS 5 proxy if there is one.
async fn connect(host: &str, port: u16, proxy: Option<&Proxy>) -> Result<TcpStream, String> {
    let Some(proxy) = proxy else {
        return TcpStream::connect((host, port)).await.map_err(|error| error.to_string());
    };
    let address = proxy.address.expose();
    if address.scheme() != "socks5" {
        return Err("an SSH remote needs a proxy with the scheme socks5".to_owned());
    }
    let proxy_host = address.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let proxy_port = address.port().unwrap_or(1080);
    let mut stream =
        TcpStream::connect((proxy_host, proxy_port)).await.map_err(|error| format!("proxy: {error}"))?;
    socks5(&mut stream, host, port, proxy).await.map_err(|error| format!("proxy: {error}"))?;
    Ok(stream)
}

/// Asks a SOCKS 5 proxy for a connection (RFC 1928 and 1929).
async fn socks5(stream: &mut (impl Stream + ?Sized), host: &str, port: u16, proxy: &Proxy) -> io::Result<()> {
    const VERSION: u8 = 5;
    const NO_LOGIN: u8 = 0;
    const LOGIN: u8 = 2;
    let bad = |text: &'static str| io::Error::other(text);
    let short = |text: &str| u8::try_from(text.len()).map_err(|_| bad("a name is too long"));
    let with_login = !proxy.username.is_empty();
    let methods: &[u8] = if with_login { &[VERSION, 2, NO_LOGIN, LOGIN] } else { &[VERSION, 1, NO_LOGIN] };
    stream.write_all(methods).await?;
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).await?;
    match answer {
        [VERSION, NO_LOGIN] => {}
        [VERSION, LOGIN] if with_login => {
            let password = proxy.password.expose();
            let mut login = vec![1, short(&proxy.username)?];
            login.extend_from_slice(proxy.username.as_bytes());
            login.push(short(password)?);
            login.extend_from_slice(password.as_bytes());
            stream.write_all(&login).await?;
            stream.read_exact(&mut answer).await?;
            if answer[1] != 0 {
                return Err(bad("the login was refused"));
            }
        }
        _ => return Err(bad("no way to log in is supported")),
    }
    // The proxy looks up the name.
    let mut request = vec![VERSION, 1, 0, 3, short(host)?];
    request.extend_from_slice(host.as_bytes());
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    if head[0] != VERSION || head[1] != 0 {
        return Err(bad("the connection was refused"));
    }
    let length = match head[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(bad("the answer is malformed")),
    };
    let mut bound = vec![0; length + 2];
    stream.read_exact(&mut bound).await?;
    Ok(())
}

/// What the server sends.
pub(super) struct Reader {
    waiting: Waiting,
    channel: ChannelReadHalf,
    chunk: CryptoVec,
    position: usize,
    received_bytes: u64,
    stderr: Vec<u8>,
    ended: bool,
    /// Dropping it would close the connection.
    _connection: Arc<Handle<Handler>>,
}

impl Reader {
    /// Waits until there is something to read or the end.
    fn fill(&mut self) -> Result<(), TransportError> {
        while self.position >= self.chunk.len() && !self.ended {
            match self.waiting.wait(self.channel.wait())? {
                Some(ChannelMsg::Data { data }) => {
                    self.received_bytes += data.len() as u64;
                    self.waiting.check_size(self.received_bytes)?;
                    (self.chunk, self.position) = (data, 0);
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    let room = STDERR_BYTES_MAX.saturating_sub(self.stderr.len());
                    self.stderr.extend_from_slice(&data[..data.len().min(room)]);
                }
                Some(ChannelMsg::Failure) => {
                    return Err(TransportError::Ssh(
                        "ssh: the server does not run git-upload-pack".to_owned(),
                    ));
                }
                // What went wrong may still come behind the end of an empty answer.
                Some(ChannelMsg::Eof) if self.received_bytes == 0 => {}
                Some(ChannelMsg::Eof | ChannelMsg::Close) | None => self.ended = true,
                Some(_) => {}
            }
        }
        if self.ended && self.received_bytes == 0 {
            return Err(refusal(&String::from_utf8_lossy(&self.stderr)));
        }
        Ok(())
    }
}

/// What an answer that consists of complaints means.
fn refusal(stderr: &str) -> TransportError {
    let text = stderr.trim();
    let lower = text.to_lowercase();
    let unknown = ["not found", "does not exist", "does not appear to be a git repository", "no such"];
    if unknown.iter().any(|words| lower.contains(words)) {
        TransportError::RepositoryNotFound
    } else if lower.contains("permission") || lower.contains("denied") {
        TransportError::AuthorizationFailed(text.to_owned())
    } else if text.is_empty() {
        TransportError::Protocol("the server closed the connection without an answer".to_owned())
    } else {
        TransportError::Protocol(text.to_owned())
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Err(failure) = self.fill() {
            self.ended = true;
            return Err(self.waiting.keep(failure));
        }
        let available = &self.chunk[self.position.min(self.chunk.len())..];
        let length = available.len().min(buffer.len());
        buffer[..length].copy_from_slice(&available[..length]);
        self.position += length;
        Ok(length)
    }
}

/// What is sent to the server.
pub(super) struct Writer {
    waiting: Waiting,
    channel: ChannelWriteHalf<Msg>,
    _connection: Arc<Handle<Handler>>,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent =
            self.waiting.wait(self.channel.data(bytes)).map_err(|failure| self.waiting.keep(failure))?;
        match sent {
            Ok(()) => Ok(bytes.len()),
            Err(error) => Err(self.waiting.keep(TransportError::Ssh(format!("ssh: {error}")))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        #[track_caller]
        fn check(stderr: &str, expected: &str) {
            assert_eq!(refusal(stderr).to_string(), expected);
        }
        check("ERROR: Repository not found.\n", "repository not found");
        check("fatal: '/x' does not appear to be a git repository", "repository not found");
        check("Permission to a/b denied", "authorization failed: Permission to a/b denied");
        check("", "the server closed the connection without an answer");
        check("busy", "busy");
    }

    #[test]
    fn names_of_algorithms() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let algorithms =
            SshAlgorithms::new(&names(&["curve25519-sha256"]), &names(&["rsa-sha2-512", "ssh-ed25519"]))
                .unwrap();
        let preferred = algorithms.preferred(&KnownHosts::default());
        assert_eq!(preferred.kex[0].as_ref(), "curve25519-sha256");
        assert_eq!(preferred.kex.len(), 3);
        assert_eq!(preferred.key.len(), 2);
        assert_eq!(
            SshAlgorithms::new(&names(&["rot13"]), &[]).unwrap_err().to_string(),
            "unsupported SSH key exchange algorithm 'rot13'"
        );
    }

    #[test]
    fn broken_keys_are_not_shown() {
        let refused = |text: &str| {
            SshCredentials::new(&Secret::new(text), None, KnownHosts::default()).unwrap_err().to_string()
        };
        assert_eq!(refused("hunter2"), "unable to parse private key");
        assert_eq!(
            refused("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----"),
            "the private key is encrypted"
        );
    }

    #[tokio::test]
    async fn proxies_are_asked_by_name() {
        let proxy = |username: &str| Proxy {
            address: weir_base::redact::RedactedUrl::parse("socks5://p").unwrap(),
            username: username.to_owned(),
            password: Secret::new("pw"),
        };
        let (mut client, mut server) = tokio::io::duplex(1024);
        let script = tokio::spawn(async move {
            let mut hello = [0; 4];
            server.read_exact(&mut hello).await.unwrap();
            server.write_all(&[5, 2]).await.unwrap();
            let mut login = [0; 7];
            server.read_exact(&mut login).await.unwrap();
            server.write_all(&[1, 0]).await.unwrap();
            let mut request = [0; 8];
            server.read_exact(&mut request).await.unwrap();
            server.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
            (hello.to_vec(), login.to_vec(), request.to_vec())
        });
        socks5(&mut client, "h", 22, &proxy("me")).await.unwrap();
        let (hello, login, request) = script.await.unwrap();
        assert_eq!(hello, [5, 2, 0, 2]);
        assert_eq!(login, [1, 2, b'm', b'e', 2, b'p', b'w']);
        assert_eq!(request, [5, 1, 0, 3, 1, b'h', 0, 22]);
        let (mut client, mut server) = tokio::io::duplex(1024);
        server.write_all(&[5, 0xff]).await.unwrap();
        let error = socks5(&mut client, "h", 22, &proxy("")).await.unwrap_err();
        assert_eq!(error.to_string(), "no way to log in is supported");
    }
}
