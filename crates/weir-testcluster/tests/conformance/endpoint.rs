//! A server under test, reached over HTTP with the credentials of a kubeconfig.

use std::time::Duration;

use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<String>,
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) code: u16,
    pub(crate) content_type: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

/// The connection.
pub(crate) struct Endpoint {
    client: Client,
    /// The longest a step may wait for its answer, its condition or its events.
    pub(crate) patience: Duration,
}

impl Endpoint {
    pub(crate) async fn new(kubeconfig: Kubeconfig, patience: Duration) -> Self {
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.read_timeout = None;
        // A refusal that asks to come back later is an answer like others.
        config.default_retry = false;
        Self { client: Client::try_from(config).unwrap(), patience }
    }

    async fn answer(&self, sent: &Sent) -> Result<Response<Body>, String> {
        let mut request = Request::builder().method(sent.method.clone()).uri(&sent.path);
        for (name, value) in &sent.headers {
            request = request.header(name, value);
        }
        let body = sent.body.clone().unwrap_or_default().into_bytes();
        let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
        match tokio::time::timeout(self.patience, self.client.send(request)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {:?}", self.patience)),
        }
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&self, sent: &Sent) -> Result<Received, String> {
        let answer = self.answer(sent).await?;
        let mut received = head(&answer);
        let bytes = tokio::time::timeout(self.patience, answer.into_body().collect())
            .await
            .map_err(|_| "the answer does not end".to_owned())?
            .map_err(|error| error.to_string())?
            .to_bytes();
        received.body = if received.content_type.contains("json") {
            serde_json::from_slice(&bytes).map_err(|error| format!("not JSON: {error}"))?
        } else {
            match String::from_utf8(bytes.to_vec()) {
                // Some JSON documents are sent as plain text.
                Ok(text) if text.starts_with('{') => {
                    serde_json::from_str(&text).unwrap_or(Value::String(text))
                }
                Ok(text) => Value::String(text),
                Err(_) => Value::String("<binary>".to_owned()),
            }
        };
        Ok(received)
    }

    /// Sends a request and reads events until there are `take`, or until the server ends the stream.
    pub(crate) async fn watch(&self, sent: &Sent, take: Option<usize>) -> Result<Received, String> {
        let answer = self.answer(sent).await?;
        let mut received = head(&answer);
        let mut stream = answer.into_body().into_data_stream();
        let mut pending = Vec::new();
        let mut events = Vec::new();
        let read = async {
            while take.is_none_or(|take| events.len() < take) {
                let Some(chunk) = stream.next().await else { break };
                pending.extend_from_slice(&chunk.map_err(|error| error.to_string())?);
                while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = pending.drain(..=end).collect();
                    events.push(serde_json::from_slice::<Value>(&line).map_err(|error| error.to_string())?);
                }
            }
            Ok::<(), String>(())
        };
        match tokio::time::timeout(self.patience, read).await {
            Ok(result) => result?,
            Err(_) => return Err(format!("{} events within {:?}: {events:?}", events.len(), self.patience)),
        }
        if let Some(take) = take {
            events.truncate(take);
        }
        if !pending.is_empty() && events.is_empty() {
            received.body = serde_json::from_slice(&pending).map_err(|error| error.to_string())?;
        } else {
            received.body = Value::Array(events);
        }
        Ok(received)
    }
}

fn head(answer: &Response<Body>) -> Received {
    let texts = |name: &str| -> Vec<String> {
        let values = answer.headers().get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    Received {
        code: answer.status().as_u16(),
        content_type: texts("content-type").first().cloned().unwrap_or_default(),
        warnings: texts("warning"),
        body: Value::Null,
    }
}
