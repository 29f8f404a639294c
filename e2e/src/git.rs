//! Git repositories over smart HTTP on a loopback port.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{StatusCode, header};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How often the server was asked for what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GitRequests {
    /// Capability advertisements, the first request of every connection.
    pub advertisements: u64,
    /// Listings of refs.
    pub ref_listings: u64,
    /// Transfers of objects.
    pub fetches: u64,
}

struct Shared {
    root: PathBuf,
    requests: Mutex<GitRequests>,
}

/// Serves the repositories below a directory through `git http-backend`.
pub struct GitServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl GitServer {
    /// Starts a server on a free loopback port for repositories below `root`.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(root: &Path) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { root: root.to_owned(), requests: Mutex::default() });
        let router = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, shared, server })
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new, empty repository with the branch `main`.
    ///
    /// # Errors
    /// `git` cannot make it.
    pub fn create(&self, name: &str) -> Result<Repository> {
        let (git, work) =
            (self.shared.root.join(format!("{name}.git")), self.shared.root.join(format!("{name}.work")));
        std::fs::create_dir_all(&work)?;
        let repository = Repository { git, work, url: format!("http://{}/{name}.git", self.address) };
        repository.git(&["init", "--quiet", "--initial-branch=main"])?;
        repository.git(&["config", "uploadpack.allowAnySHA1InWant", "true"])?;
        Ok(repository)
    }

    /// What was asked so far.
    pub fn requests(&self) -> GitRequests {
        *self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A repository and its files.
#[derive(Debug, Clone)]
pub struct Repository {
    git: PathBuf,
    work: PathBuf,
    url: String,
}

impl Repository {
    /// Where it is served.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Writes a file; it is part of the next commit.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &str, content: &str) -> Result<()> {
        let file = self.work.join(path);
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(&file, content).with_context(|| format!("write '{path}'"))
    }

    /// Removes a file or folder; the next commit is without it.
    ///
    /// # Errors
    /// It is not there.
    pub fn remove(&self, path: &str) -> Result<()> {
        let path = self.work.join(path);
        if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }
            .with_context(|| format!("remove '{}'", path.display()))
    }

    /// Makes the files exactly these.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn replace(&self, files: &BTreeMap<String, String>) -> Result<()> {
        std::fs::remove_dir_all(&self.work)?;
        std::fs::create_dir_all(&self.work)?;
        files.iter().try_for_each(|(path, content)| self.write(path, content))
    }

    /// Commits all files to `main` and returns the revision as a source reports it, `main@sha1:…`.
    ///
    /// # Errors
    /// `git` refuses.
    pub fn commit(&self, message: &str) -> Result<String> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message])?;
        Ok(format!("main@sha1:{}", self.git(&["rev-parse", "HEAD"])?.trim()))
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        let output = git_command()
            .args(arguments)
            .current_dir(&self.work)
            .env("GIT_DIR", &self.git)
            .env("GIT_WORK_TREE", &self.work)
            .output()
            .context("run git; is it installed?")?;
        if !output.status.success() {
            bail!("git {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// `git` without the configuration of this machine.
fn git_command() -> Command {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "e2e").env(format!("GIT_{role}_EMAIL"), "e2e@example.com");
    }
    command
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match cgi(&shared, request).await {
        Ok(response) => response,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "git server: {error:#}");
            (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
        }
    }
}

/// Answers a request with the CGI program that comes with Git.
async fn cgi(shared: &Shared, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await?;
    let header = |name: header::HeaderName| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    count(shared, parts.uri.path(), &body);
    let mut command = tokio::process::Command::from(git_command());
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", &shared.root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("PATH_INFO", parts.uri.path())
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header(header::CONTENT_TYPE))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header(header::CONTENT_ENCODING))
        .env("GIT_PROTOCOL", header(header::HeaderName::from_static("git-protocol")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut backend = command.spawn().context("run git http-backend; is git installed?")?;
    let mut input = backend.stdin.take().context("no standard input")?;
    let writer = tokio::spawn(async move { input.write_all(&body).await });
    let output = backend.wait_with_output().await?;
    let _ = writer.await; // the backend may have stopped reading before the end
    let split = output.stdout.windows(4).position(|window| window == b"\r\n\r\n").with_context(|| {
        format!("no answer from git http-backend: {}", String::from_utf8_lossy(&output.stderr).trim())
    })?;
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output.stdout[..split]).lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name.eq_ignore_ascii_case("status") {
            response = response.status(value.split(' ').next().unwrap_or("500").parse::<u16>()?);
        } else {
            response = response.header(name, value);
        }
    }
    Ok(response.body(Body::from(Bytes::from(output.stdout).slice(split + 4..)))?)
}

fn count(shared: &Shared, path: &str, body: &[u8]) {
    let contains = |text: &[u8]| body.windows(text.len()).any(|window| window == text);
    let mut requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
    if path.ends_with("/info/refs") {
        requests.advertisements += 1;
    } else if contains(b"command=ls-refs") {
        requests.ref_listings += 1;
    } else {
        requests.fetches += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_repository_can_be_cloned_and_requests_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let server = GitServer::start(root.path()).await.unwrap();
        let repository = server.create("example").unwrap();
        repository.write("folder/file.yaml", "kind: Test\n").unwrap();
        let revision = repository.commit("A state").unwrap();
        let url = repository.url().to_owned();
        let clone = root.path().join("clone");
        let target = clone.clone();
        let run = move || git_command().args(["clone", "--quiet", &url]).arg(target).status().unwrap();
        assert!(tokio::task::spawn_blocking(run).await.unwrap().success());
        assert_eq!(std::fs::read_to_string(clone.join("folder/file.yaml")).unwrap(), "kind: Test\n");
        assert_eq!(revision.len(), "main@sha1:".len() + 40);
        assert_eq!(server.requests(), GitRequests { advertisements: 1, ref_listings: 1, fetches: 1 });
    }
}
