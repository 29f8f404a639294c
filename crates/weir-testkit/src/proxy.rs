//! A proxy that breaks what goes through it: requests and answers of HTTP, and bytes of everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What goes wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is never an answer.
    Hang,
    /// The connection is reset before the answer.
    Reset,
    /// Half of the body comes, and then nothing more.
    Stall,
    /// Half of the body comes, and then the connection is reset.
    ResetMidway,
    /// Half of the body comes, and then the connection is closed in good order.
    Truncate,
    /// A bit in the middle of the body, or of the pack in it, is another one.
    Corrupt,
    /// Another status, with a `Retry-After` of no seconds.
    Refuse(u16),
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Hang,
        Self::Reset,
        Self::Stall,
        Self::ResetMidway,
        Self::Truncate,
        Self::Corrupt,
        Self::Refuse(429),
        Self::Refuse(500),
        Self::Refuse(503),
    ];
}

/// What goes wrong with which requests: those that have this text in their first line or their body.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The text.
    pub on: &'static str,
    /// What goes wrong.
    pub fault: Fault,
}

#[derive(Debug, Default)]
struct Plan {
    rule: Mutex<Option<Rule>>,
    /// The text all requests must have in a header.
    required: Mutex<Option<String>>,
    hits: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

/// A proxy in front of an HTTP server. Every request has a connection of its own.
#[derive(Debug, Clone)]
pub struct HttpProxy {
    /// Host and port.
    pub address: String,
    plan: Arc<Plan>,
}

impl HttpProxy {
    /// Starts a proxy that breaks nothing, in front of the server at `upstream`.
    pub async fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (plan, upstream) = (Arc::new(Plan::default()), upstream.to_owned());
        let shared = Arc::clone(&plan);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (plan, upstream) = (Arc::clone(&shared), upstream.clone());
                // A client that goes away is no failure.
                tokio::spawn(async move { drop(relay(stream, &upstream, &plan).await) });
            }
        });
        Self { address, plan }
    }

    /// Changes what goes wrong.
    pub fn set(&self, rule: Option<Rule>) {
        *self.plan.rule.lock() = rule;
    }

    /// From now on, requests without this text in their head are refused with 401.
    pub fn require(&self, text: &str) {
        *self.plan.required.lock() = Some(text.to_owned());
    }

    /// How many requests a rule was applied to.
    pub fn hits(&self) -> usize {
        self.plan.hits.load(Ordering::Relaxed)
    }

    /// The first lines of all requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.plan.requests.lock())
    }
}

async fn relay(mut client: TcpStream, upstream: &str, plan: &Plan) -> std::io::Result<()> {
    let Some((head, body)) = read_message(&mut client).await? else { return Ok(()) };
    let text = String::from_utf8_lossy(&head).into_owned();
    let line = text.lines().next().unwrap_or_default().to_owned();
    plan.requests.lock().push(line.clone());
    let required = plan.required.lock().clone();
    if required.is_some_and(|required| !text.contains(&required)) {
        let refusal = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"x\"\r\n\
            content-length: 0\r\nconnection: close\r\n\r\n";
        return client.write_all(refusal.as_bytes()).await;
    }
    let rule = *plan.rule.lock();
    let fault =
        rule.filter(|rule| line.contains(rule.on) || String::from_utf8_lossy(&body).contains(rule.on));
    if fault.is_some() {
        plan.hits.fetch_add(1, Ordering::Relaxed);
    }
    match fault.map(|rule| rule.fault) {
        Some(Fault::Hang) => return hold(client).await,
        Some(Fault::Reset) => return client.set_zero_linger(),
        Some(Fault::Refuse(status)) => {
            let refusal = format!(
                "HTTP/1.1 {status} No\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            return client.write_all(refusal.as_bytes()).await;
        }
        _ => {}
    }
    let mut server = TcpStream::connect(upstream).await?;
    let mut lines: Vec<&str> =
        text.trim_end().lines().filter(|line| !line.to_lowercase().starts_with("connection:")).collect();
    lines.push("connection: close");
    server.write_all(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes()).await?;
    server.write_all(&body).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    let start = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    let middle = start + (answer.len() - start) / 2;
    match fault.map(|rule| rule.fault) {
        Some(Fault::Stall) => {
            client.write_all(&answer[..middle]).await?;
            hold(client).await
        }
        Some(Fault::ResetMidway) => {
            client.write_all(&answer[..middle]).await?;
            client.set_zero_linger()
        }
        Some(Fault::Truncate) => client.write_all(&answer[..middle]).await,
        Some(Fault::Corrupt) if middle < answer.len() => {
            // Half of a small answer with a pack is chatter about it.
            let pack = answer.windows(4).position(|window| window == b"PACK").map(|at| at + 20);
            let at = pack.filter(|at| *at < answer.len()).unwrap_or(middle);
            answer[at] ^= 1;
            client.write_all(&answer).await
        }
        _ => client.write_all(&answer).await,
    }
}

/// Keeps a connection open until the client gives up.
async fn hold(mut client: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    while client.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// The head and the body of a request; `None` if the connection is closed before.
async fn read_message(stream: &mut TcpStream) -> std::io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut buffer).await? {
            0 => return Ok(None),
            // A greeting of TLS, which is not spoken here.
            _ if bytes.is_empty() && buffer[0] == 0x16 => return Ok(None),
            length => bytes.extend_from_slice(&buffer[..length]),
        }
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8_lossy(&bytes).to_lowercase();
    let length: usize = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0);
    while body.len() < length {
        match stream.read(&mut buffer).await? {
            0 => return Ok(None),
            read => body.extend_from_slice(&buffer[..read]),
        }
    }
    Ok(Some((bytes, body)))
}

/// What goes wrong with a connection.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// The bytes of the server that still come.
    pub after_bytes: usize,
    /// Whether the connection then stays open, and silent.
    pub hangs: bool,
}

/// A proxy in front of any server.
#[derive(Debug, Clone)]
pub struct TcpProxy {
    /// Where it listens on the loopback.
    pub port: u16,
    cut: Arc<Mutex<Option<Cut>>>,
}

impl TcpProxy {
    /// Starts a proxy that breaks nothing, in front of the server at `upstream`.
    pub async fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, upstream) = (Arc::new(Mutex::new(None)), upstream.to_owned());
        let shared = Arc::clone(&cut);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (cut, upstream) = (*shared.lock(), upstream.clone());
                tokio::spawn(async move { drop(pass(stream, &upstream, cut).await) });
            }
        });
        Self { port, cut }
    }

    /// Changes what goes wrong with new connections.
    pub fn set(&self, cut: Option<Cut>) {
        *self.cut.lock() = cut;
    }
}

async fn pass(mut client: TcpStream, upstream: &str, cut: Option<Cut>) -> std::io::Result<()> {
    let mut server = TcpStream::connect(upstream).await?;
    let Some(cut) = cut else {
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
        return Ok(());
    };
    let mut left = cut.after_bytes;
    let (mut to_server, mut to_client) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    while left > 0 {
        tokio::select! {
            read = client.read(&mut to_server) => match read? {
                0 => return Ok(()),
                length => server.write_all(&to_server[..length]).await?,
            },
            read = server.read(&mut to_client) => match read? {
                0 => return Ok(()),
                length => {
                    let length = length.min(left);
                    client.write_all(&to_client[..length]).await?;
                    left -= length;
                }
            },
        }
    }
    if cut.hangs { hold(client).await } else { client.set_zero_linger() }
}
