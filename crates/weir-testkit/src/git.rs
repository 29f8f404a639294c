//! A Git server: the real `git http-backend` behind a small CGI bridge that can misbehave.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

/// How the server misbehaves.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    /// The only `Authorization` header that is accepted.
    pub authorization: Option<String>,
    /// Answers with this status and text.
    pub refuse: Option<(u16, &'static str)>,
    /// Sends everything elsewhere.
    pub redirect: Option<(u16, String)>,
    /// Never answers requests whose path or body contains this.
    pub hang_on: Option<&'static str>,
    /// Sends only so many bytes of packs.
    pub cut_packs_at: Option<usize>,
    /// Replaces the content type of answers.
    pub content_type: Option<&'static str>,
    /// Speaks only the first version of the protocol.
    pub old_protocol: bool,
}

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The path of the URL.
    pub path: String,
    /// The header of that name.
    pub authorization: Option<String>,
    /// The body as text.
    pub body: String,
    /// How long the answer was.
    pub answer_bytes: usize,
}

/// A Git server on a free port, with a directory of its own.
#[derive(Debug)]
pub struct Server {
    /// Host and port.
    pub address: String,
    state: Arc<ServerState>,
    directory: TempDir,
}

#[derive(Debug)]
struct ServerState {
    root: PathBuf,
    behaviour: Mutex<Behaviour>,
    seen: Mutex<Vec<Seen>>,
}

impl Server {
    /// Starts a server without repositories.
    pub async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let state = Arc::new(ServerState {
            root: directory.path().join("srv"),
            behaviour: Mutex::default(),
            seen: Mutex::default(),
        });
        std::fs::create_dir(&state.root).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, state, directory }
    }

    /// The same server for another listener.
    pub fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(Arc::clone(&self.state))
    }

    /// The address of the repository.
    pub fn url(&self) -> String {
        format!("http://{}/repo.git", self.address)
    }

    /// Changes how the server misbehaves.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.state.behaviour.lock().unwrap() = behaviour;
    }

    /// The requests since the last call.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.seen.lock().unwrap())
    }

    /// An empty repository and a work tree to push from.
    pub fn repository(&self) -> Repository {
        let bare = self.state.root.join("repo.git");
        let work = self.directory.path().join("work");
        git(&self.state.root, &["init", "-q", "--bare", "-b", "main", bare.to_str().unwrap()]);
        git(self.directory.path(), &["init", "-q", "-b", "main", work.to_str().unwrap()]);
        let repository = Repository { work, bare };
        repository.git(&["remote", "add", "origin", repository.bare.to_str().unwrap()]);
        git(&repository.bare, &["config", "receive.denyDeleteCurrent", "ignore"]);
        repository
    }
}

/// A repository of a server.
#[derive(Debug)]
pub struct Repository {
    /// The work tree commits are made in.
    pub work: PathBuf,
    /// What the server serves.
    pub bare: PathBuf,
}

impl Repository {
    /// Runs Git in the work tree and returns what it prints.
    pub fn git(&self, arguments: &[&str]) -> String {
        git(&self.work, arguments)
    }

    /// Writes a file of the work tree.
    pub fn write(&self, path: &str, content: &str) {
        let path = self.work.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Commits everything, pushes the branch, and returns the commit id.
    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.git(&["push", "-q", "--force", "origin", "HEAD"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Tags as told, and pushes all tags.
    pub fn tag(&self, arguments: &[&str]) {
        self.git(&[&["tag"], arguments].concat());
        self.git(&["push", "-q", "--tags", "origin"]);
    }
}

/// Runs Git in a directory, with no configuration but its own, and returns what it prints.
pub fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .current_dir(directory)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "A")
        .env("GIT_AUTHOR_EMAIL", "a@example.com")
        .env("GIT_COMMITTER_NAME", "A")
        .env("GIT_COMMITTER_EMAIL", "a@example.com")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn answer(State(state): State<Arc<ServerState>>, request: Request) -> Response {
    let behaviour = state.behaviour.lock().unwrap().clone();
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    let path = parts.uri.path().to_owned();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let index = {
        let mut seen = state.seen.lock().unwrap();
        let authorization =
            parts.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
        seen.push(Seen { path: path.clone(), authorization, body: text.clone(), answer_bytes: 0 });
        seen.len() - 1
    };
    if let Some(hang_on) = behaviour.hang_on
        && (path.contains(hang_on) || text.contains(hang_on))
    {
        tokio::time::sleep(Duration::from_hours(1)).await;
    }
    if let Some((status, text)) = behaviour.refuse {
        return (StatusCode::from_u16(status).unwrap(), text).into_response();
    }
    if let Some((status, base)) = behaviour.redirect {
        let target = format!("{base}{path}?{query}");
        return (StatusCode::from_u16(status).unwrap(), [("location", target)]).into_response();
    }
    if behaviour.authorization.is_some()
        && behaviour.authorization.as_deref()
            != parts.headers.get("authorization").and_then(|value| value.to_str().ok())
    {
        return (StatusCode::UNAUTHORIZED, "who are you?").into_response();
    }
    let (headers, mut content) = backend(
        &state.root,
        parts.method.as_ref(),
        &path,
        &query,
        &parts.headers,
        &body,
        behaviour.old_protocol,
    )
    .await;
    if let Some(length) = behaviour.cut_packs_at
        && text.contains("want ")
    {
        content.truncate(length);
    }
    if let Some(seen) = state.seen.lock().unwrap().get_mut(index) {
        seen.answer_bytes = content.len();
    }
    let mut response = Response::new(Body::from(content));
    for (name, value) in headers {
        if name == "status" {
            *response.status_mut() = StatusCode::from_u16(value[..3].parse().unwrap()).unwrap();
        } else if name == "content-type" {
            let value = behaviour.content_type.map_or(value, str::to_owned);
            response.headers_mut().insert("content-type", HeaderValue::from_str(&value).unwrap());
        } else {
            response.headers_mut().insert(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(&value).unwrap(),
            );
        }
    }
    response
}

async fn backend(
    root: &Path,
    method: &str,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    body: &[u8],
    old_protocol: bool,
) -> (Vec<(String, String)>, Vec<u8>) {
    let header =
        |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let protocol = if old_protocol { String::new() } else { header("git-protocol") };
    let mut child = tokio::process::Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("GIT_PROTOCOL", protocol)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = body.to_vec();
    tokio::spawn(async move {
        // The backend may stop reading early.
        let _ = stdin.write_all(&body).await;
    });
    let output = child.wait_with_output().await.unwrap().stdout;
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let lines = String::from_utf8_lossy(&output[..end])
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    (lines, output[end + 4..].to_vec())
}
