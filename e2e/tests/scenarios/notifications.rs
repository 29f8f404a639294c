//! From `git push` to the commit status and the chat message, with nothing polled.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use e2e::{DEADLINE, KUSTOMIZE, NOTIFICATION, NOTIFICATION_BETA, Scenario, eventually, scenario, text};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TOKEN: &str = "a token only the Git server knows";
const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  version: \"";

/// A request a service got, and when.
struct Delivered {
    at: Instant,
    method: String,
    path: String,
    authorization: String,
    body: Value,
}

#[derive(Default)]
struct Services(Mutex<Vec<Delivered>>);

impl Services {
    /// GitHub's API below `/api/v3` and a chat's incoming webhook at `/chat`.
    async fn start() -> Result<(String, Arc<Self>)> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let services = Arc::new(Self::default());
        let router = Router::new().fallback(deliver).with_state(Arc::clone(&services));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((address, services))
    }

    /// When a request was delivered that fits.
    fn find(&self, fits: impl Fn(&Delivered) -> bool) -> Option<Instant> {
        let delivered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        delivered.iter().find(|delivered| fits(delivered)).map(|delivered| delivered.at)
    }

    fn all(&self) -> Vec<String> {
        let delivered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        delivered.iter().map(|found| format!("{} {} {}", found.method, found.path, found.body)).collect()
    }
}

async fn deliver(State(services): State<Arc<Services>>, request: Request) -> axum::response::Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let authorization = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    let reads = parts.method == http::Method::GET;
    let delivered = Delivered {
        at: Instant::now(),
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        authorization: authorization.unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    services.0.lock().unwrap_or_else(PoisonError::into_inner).push(delivered);
    if reads {
        return (StatusCode::OK, "[]").into_response();
    }
    (StatusCode::CREATED, "{}").into_response()
}

fn named(s: &Scenario, api_version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": { "name": name, "namespace": s.namespace }, "spec": spec,
    })
}

/// What GitHub posts after a push, and its signature.
fn push(revision: &str) -> Result<(String, String)> {
    let body = json!({
        "ref": "refs/heads/main", "after": revision.rsplit(':').next(),
        "repository": { "full_name": "acme/fleet" },
    })
    .to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(TOKEN.as_bytes())?;
    mac.update(body.as_bytes());
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    Ok((body, signature))
}

async fn post_push(url: &str, revision: &str) -> Result<u16> {
    let (body, signature) = push(revision)?;
    e2e::post(
        url,
        &[
            ("content-type", "application/json"),
            ("x-github-event", "push"),
            ("x-hub-signature-256", &signature),
        ],
        &body,
    )
    .await
}

#[test]
fn a_push_is_applied_and_told_without_polling() {
    scenario("notifications", |s: Arc<Scenario>| async move {
        let (services, delivered) = Services::start().await?;
        let repository = s.git.create("fleet")?;
        repository.write("apps/settings.yaml", &format!("{CONFIG}1\"\n"))?;
        let revision = repository.commit("The first version")?;

        let webhooks = s.start_notification().await?;
        s.start_controllers().await?;
        for (name, data) in
            [("webhook", json!({ "token": TOKEN })), ("github", json!({ "token": "ghp_mock" }))]
        {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": name, "namespace": s.namespace }, "stringData": data,
            });
            s.cluster.apply(&secret).await?;
        }
        let provider =
            |spec: Value| named(&s, NOTIFICATION_BETA, "Provider", text(&spec, "/type").as_str(), &spec);
        let github = json!({
            "type": "github", "address": format!("{services}/acme/fleet"), "secretRef": { "name": "github" },
        });
        let chat = json!({ "type": "slack", "address": format!("{services}/chat"), "channel": "ops" });
        let receiver = json!({
            "type": "github", "events": ["ping", "push"], "secretRef": { "name": "webhook" },
            "resources": [{ "kind": "GitRepository", "name": "fleet" }],
        });
        s.cluster.apply(&provider(github)).await?;
        s.cluster.apply(&provider(chat)).await?;
        for name in ["github", "slack"] {
            let alert = json!({
                "providerRef": { "name": name }, "eventSources": [{ "kind": "Kustomization", "name": "apps" }],
            });
            s.cluster.apply(&named(&s, NOTIFICATION_BETA, "Alert", name, &alert)).await?;
        }
        s.cluster.apply(&named(&s, NOTIFICATION, "Receiver", "fleet", &receiver)).await?;
        s.git_repository("fleet", repository.url(), &json!({})).await?;
        s.kustomization("apps", "./apps", &json!({ "spec": { "targetNamespace": s.namespace } })).await?;
        s.wait_ready("Kustomization", "apps", &revision).await?;
        let path = eventually(DEADLINE, "the Receiver has a path", || async {
            let object = s.toolkit("Receiver", "fleet").await?;
            let path = text(&object, "/status/webhookPath");
            ensure!(path.starts_with("/hook/"), "{}", object["status"]);
            Ok(path)
        })
        .await?;

        repository.write("apps/settings.yaml", &format!("{CONFIG}2\"\n"))?;
        let pushed = Instant::now();
        let revision = repository.commit("The second version")?;
        let commit = revision.rsplit(':').next().unwrap_or_default().to_owned();
        let url = format!("{webhooks}{path}");
        let status = post_push(&url, &revision).await?;
        ensure!(status == 200, "the webhook is answered with {status}");
        let answered = pushed.elapsed();
        let since = |at: Instant| at.saturating_duration_since(pushed);
        let annotated = s.toolkit("GitRepository", "fleet").await?;
        let token = text(&annotated, "/metadata/annotations/reconcile.fluxcd.io~1requestedAt");
        ensure!(token.contains(" m=+"), "annotated with '{token}'");
        let fetched = wait_fetched(&s, &revision).await?;
        s.wait_ready("Kustomization", "apps", &revision).await?;
        let applied = Instant::now();
        let settings = s.cluster.get("v1", "ConfigMap", Some(&s.namespace), "settings").await?;
        ensure!(text(&settings, "/data/version") == "2", "{settings}");
        let told = |what: &'static str, fits: Box<dyn Fn(&Delivered) -> bool + Send + Sync>| {
            let delivered = Arc::clone(&delivered);
            async move {
                eventually(DEADLINE, what, || async {
                    delivered.find(&fits).ok_or_else(|| anyhow::anyhow!("there are {:#?}", delivered.all()))
                })
                .await
            }
        };
        let path = format!("/api/v3/repos/acme/fleet/statuses/{commit}");
        let statused = told(
            "a commit status",
            Box::new(move |found| {
                found.path == path
                    && found.authorization == "Bearer ghp_mock"
                    && found.body["state"] == "success"
                    && text(&found.body, "/context").starts_with("kustomization/apps/")
            }),
        )
        .await?;
        let chatted = told(
            "a chat message",
            Box::new(move |found| found.path == "/chat" && found.body.to_string().contains(&commit)),
        )
        .await?;
        s.report(&format!(
            "push to commit status {:?}, to chat message {:?}: webhook answered {:?}, artifact {:?}, applied and healthy {:?}",
            since(statused), since(chatted), answered, since(fetched), since(applied),
        ))?;

        // A request nobody signed, and one to a path nobody knows.
        let refused =
            e2e::post(&url, &[("content-type", "application/json"), ("x-github-event", "push")], "{}")
                .await?;
        ensure!(refused == 400, "unsigned: {refused}");
        let unknown = e2e::post(&format!("{webhooks}/hook/{}", "0".repeat(64)), &[], "{}").await?;
        ensure!(unknown == 404, "unknown path: {unknown}");
        let object = s.cluster.get(KUSTOMIZE, "Kustomization", Some(&s.namespace), "apps").await?;
        ensure!(text(&object, "/status/lastAppliedRevision") == revision);
        Ok(())
    });
}

/// When the artifact of a revision was seen first.
async fn wait_fetched(s: &Scenario, revision: &str) -> Result<Instant> {
    tokio::time::timeout(DEADLINE + Duration::from_secs(1), s.wait_ready("GitRepository", "fleet", revision))
        .await??;
    Ok(Instant::now())
}

const FLOOD_CONNECTIONS: usize = 50;
const FLOOD_REQUESTS: usize = 10_000;

#[test]
fn a_flood_of_webhooks_is_answered() {
    scenario("webhooks", |s: Arc<Scenario>| async move {
        let webhooks = s.start_notification().await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "webhook", "namespace": s.namespace }, "stringData": { "token": TOKEN },
        });
        s.cluster.apply(&secret).await?;
        // Nobody reconciles the repository here: what is measured are the webhooks.
        s.git_repository("fleet", "http://127.0.0.1:1/fleet", &json!({})).await?;
        let receiver = json!({
            "type": "github", "secretRef": { "name": "webhook" },
            "resources": [{ "kind": "GitRepository", "name": "fleet" }],
        });
        s.cluster.apply(&named(&s, NOTIFICATION, "Receiver", "fleet", &receiver)).await?;
        let path = eventually(DEADLINE, "the Receiver has a path", || async {
            let path = text(&s.toolkit("Receiver", "fleet").await?, "/status/webhookPath");
            ensure!(path.starts_with("/hook/"));
            Ok(path)
        })
        .await?;
        let (body, signature) = push("main@sha1:0123")?;
        let address = webhooks.trim_start_matches("http://").to_owned();
        let before = s.notification_api.counts();
        let started = Instant::now();
        let clients = (0..FLOOD_CONNECTIONS).map(|client| {
            let request = |signature: &str| {
                format!(
                    "POST {path} HTTP/1.1\r\nHost: webhooks\r\nContent-Type: application/json\r\n\
                     X-GitHub-Event: push\r\nX-Hub-Signature-256: {signature}\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )
            };
            let (good, bad) = (request(&signature), request("sha256=00"));
            let address = address.clone();
            tokio::spawn(async move { flood(&address, &good, &bad, client).await })
        });
        let mut times = Vec::new();
        for client in clients.collect::<Vec<_>>() {
            times.extend(client.await??);
        }
        let elapsed = started.elapsed();
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 1000).copied().unwrap_or_default();
        let notification = s.notification.lock().await;
        let memory =
            notification.as_ref().and_then(|running| running.memory_kib("VmHWM:")).unwrap_or_default();
        s.report(&format!(
            "{} webhooks over {FLOOD_CONNECTIONS} connections in {elapsed:?}, one in ten unsigned, no error: p50 {:?}, p99 {:?}, \
             slowest {:?}; {memory} KiB at most; API server: {}",
            times.len(), at(500), at(990), at(1000).max(times.last().copied().unwrap_or_default()),
            s.notification_api.counts().since(&before),
        ))?;
        ensure!(times.len() == FLOOD_REQUESTS, "{} answers", times.len());
        Ok(())
    });
}

/// Sends one client's share over one connection; every tenth is not signed.
async fn flood(address: &str, good: &str, bad: &str, client: usize) -> Result<Vec<Duration>> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let mut times = Vec::new();
    for number in 0..FLOOD_REQUESTS / FLOOD_CONNECTIONS {
        let signed = !(number + client).is_multiple_of(10);
        let asked = Instant::now();
        stream.write_all(if signed { good } else { bad }.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            ensure!(stream.read_buf(&mut answer).await? > 0, "the connection was closed");
        }
        times.push(asked.elapsed());
        let expected = if signed { "HTTP/1.1 200" } else { "HTTP/1.1 400" };
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.starts_with(expected), "want {expected}, got {answer}");
    }
    Ok(times)
}
