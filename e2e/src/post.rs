//! Plain HTTP requests.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Posts a body to a `http://` address and returns the status of the answer.
///
/// # Errors
/// Nobody listens, or the answer is none.
pub async fn post(url: &str, headers: &[(&str, &str)], body: &str) -> Result<u16> {
    let rest = url.strip_prefix("http://").with_context(|| format!("'{url}' is not http"))?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        write!(request, "{name}: {value}\r\n")?;
    }
    let mut stream = TcpStream::connect(host).await.with_context(|| format!("connect to '{host}'"))?;
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.with_context(|| format!("'{url}' answers '{answer}'"))
}
