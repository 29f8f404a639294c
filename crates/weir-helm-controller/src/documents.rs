//! Documents that schemas of charts refer to by URL, fetched as Helm fetches them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::runtime::Handle;
use weir_helm::schema::Documents;

/// The longest wait for one document.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The largest document.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Documents from the network, for rendering on a thread that may block; none of them with `offline`.
pub(crate) fn documents(handle: Handle, offline: bool) -> Documents {
    if offline {
        return Documents::Ignored;
    }
    Documents::Fetched(Arc::new(move |url| {
        if url.starts_with("urn:") {
            // Names that lead nowhere allow anything.
            return Ok(Json::Bool(true));
        }
        handle.block_on(fetch(url)).map_err(|why| format!("failed to load '{url}': {why}"))
    }))
}

async fn fetch(url: &str) -> Result<Json, String> {
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return Err("only http and https are supported".to_owned());
    }
    let client = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .build()
        .map_err(|error| weir_base::error::chain(&error))?;
    let sent = client.get(url).send().await.and_then(reqwest::Response::error_for_status);
    let mut answer = sent.map_err(|error| weir_base::error::chain(&error.without_url()))?;
    let mut body = Vec::new();
    while let Some(part) =
        answer.chunk().await.map_err(|error| weir_base::error::chain(&error.without_url()))?
    {
        if body.len() + part.len() > BYTES_MAX {
            return Err(format!("it is larger than {BYTES_MAX} bytes"));
        }
        body.extend_from_slice(&part);
    }
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use weir_helm::schema::validate_single;

    use super::*;

    #[tokio::test]
    async fn documents_come_over_http_or_say_why_not() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let length = socket.read(&mut request).await.unwrap();
                let found = request[..length].starts_with(b"GET /number.json");
                let (status, body) =
                    if found { ("200 OK", r#"{"type":"integer"}"#) } else { ("404 Not Found", "") };
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let handle = Handle::current();
        let check = move |reference: String, offline: bool| {
            let schema = format!(r#"{{"properties":{{"a":{{"$ref":"{reference}"}}}}}}"#);
            let values = serde_json::json!({"a": "x"}).as_object().unwrap().clone();
            validate_single(schema.as_bytes(), &values, &documents(handle.clone(), offline))
                .err()
                .unwrap_or_default()
        };
        let found = tokio::task::spawn_blocking(move || {
            [
                check(format!("{base}/number.json"), false),
                check(format!("{base}/gone.json"), false),
                check(format!("{base}/gone.json"), true),
                check("urn:example:any".to_owned(), false),
                check("file:///etc/hostname".to_owned(), false),
            ]
        });
        let [wrong, gone, offline, name, file] = found.await.unwrap();
        assert_eq!(wrong, "- at '/a': got string, want integer\n");
        assert!(gone.contains("404 Not Found"), "{gone}");
        assert_eq!((offline.as_str(), name.as_str()), ("", ""));
        assert!(file.contains("only http and https are supported"), "{file}");
    }
}
