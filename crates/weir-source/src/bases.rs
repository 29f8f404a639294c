//! What kustomizations refer to outside of their tree: single files over HTTP, and git repositories.
//!
//! [`Bases`] lives as long as its process and keeps what it fetched: a repository whose revision has not moved costs
//! one listing of references. [`Session`] is one build; it is what the build engine calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::time::Instant;
use weir_base::error::chain;
use weir_base::redact::RedactedUrl;
use weir_base::tree::{Files, LinkedTree};
use weir_kustomize::{Download, Remote, RemoteError, RepoSpec};

use crate::connection;
use crate::git::{Credentials, Git, GitError, Limits as GitLimits, Outcome, Request, Target, TransportError};

/// As the reference.
const REDIRECTS_MAX: usize = 10;
/// Submodules within submodules.
const SUBMODULE_LEVELS_MAX: usize = 8;
/// How much of a redirect chain and of an answer one file may take.
const FILE_TIMEOUT_MAX: Duration = Duration::from_mins(1);

/// What remote content may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The size of a file over HTTP.
    pub file_bytes_max: usize,
    /// The size of the files of a repository.
    pub tree_bytes_max: u64,
    /// The number of files and directories of a repository.
    pub tree_entries_max: usize,
    /// The size of all trees kept for later builds; the least recently used go first.
    pub kept_bytes_max: u64,
    /// The number of files and repositories one build may ask for.
    pub requests_max: usize,
}

impl Default for Limits {
    /// Files of 32 MiB, repositories of 256 MiB and 200,000 entries, 128 MiB kept, 500 requests for each build.
    fn default() -> Self {
        Self {
            file_bytes_max: 32 << 20,
            tree_bytes_max: 256 << 20,
            tree_entries_max: 200_000,
            kept_bytes_max: 128 << 20,
            requests_max: 500,
        }
    }
}

/// What a build may fetch besides files over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Repositories on other machines.
    pub repositories: bool,
    /// Repositories on this machine (`file://`).
    pub local_repositories: bool,
}

/// Fetches remote content for builds and keeps it for later ones.
///
/// Nothing is set up before the first build that needs something: no client, no directory.
#[derive(Debug)]
pub struct Bases {
    limits: Limits,
    tools: OnceLock<Result<Tools, String>>,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Tools {
    git: Git,
    client: reqwest::Client,
    /// Removed with its content when dropped.
    _cache: TempDir,
}

#[derive(Debug, Default)]
struct Kept {
    trees: HashMap<String, Tree>,
    uses: u64,
}

#[derive(Debug, Clone)]
struct Tree {
    revision: String,
    files: Arc<LinkedTree>,
    size_bytes: u64,
    used: u64,
}

impl Kept {
    fn get(&mut self, key: &str) -> Option<Tree> {
        self.uses += 1;
        let tree = self.trees.get_mut(key)?;
        tree.used = self.uses;
        Some(tree.clone())
    }

    fn put(&mut self, key: String, mut tree: Tree, bytes_max: u64) {
        self.uses += 1;
        tree.used = self.uses;
        self.trees.insert(key, tree);
        let mut total: u64 = self.trees.values().map(|tree| tree.size_bytes).sum();
        while total > bytes_max {
            let oldest = self.trees.iter().min_by_key(|(_, tree)| tree.used).map(|(key, _)| key.clone());
            let Some(tree) = oldest.and_then(|key| self.trees.remove(&key)) else { break };
            total -= tree.size_bytes;
        }
    }
}

impl Bases {
    /// Fetches within `limits`. Caches go to a temporary directory that is removed with the value returned.
    pub fn new(limits: Limits) -> Self {
        Self { limits, tools: OnceLock::new(), kept: Mutex::default() }
    }

    /// Fetches nothing: whatever a build needs is refused, and `why` says so.
    pub fn none(why: &str) -> Self {
        Self { limits: Limits::default(), tools: OnceLock::from(Err(why.to_owned())), kept: Mutex::default() }
    }

    /// The remote side of one build, which must run on a thread that may block. All waiting ends after `budget`.
    pub fn session(self: &Arc<Self>, runtime: Handle, access: Access, budget: Duration) -> Session {
        Session {
            bases: Arc::clone(self),
            runtime,
            access,
            budget,
            deadline: Instant::now() + budget,
            used: AtomicBool::new(false),
            fetched: Mutex::default(),
        }
    }

    fn tools(&self) -> Result<&Tools, RemoteError> {
        let made = self.tools.get_or_init(|| self.set_up());
        made.as_ref().map_err(|message| failed(format!("remote content cannot be fetched: {message}")))
    }

    fn set_up(&self) -> Result<Tools, String> {
        let cache = tempfile::Builder::new().prefix("kustomize-").tempdir().map_err(|error| chain(&error))?;
        let limits = GitLimits {
            pack_bytes_max: self.limits.tree_bytes_max,
            entries_max: self.limits.tree_entries_max,
            ..GitLimits::default()
        };
        let git = Git::new(cache.path().to_owned(), limits).map_err(|error| chain(&error))?;
        let client = connection::client(None, None, None, |builder| {
            builder.redirect(Policy::limited(REDIRECTS_MAX)).timeout(FILE_TIMEOUT_MAX)
        });
        Ok(Tools { git, client: client.map_err(|error| chain(&error))?, _cache: cache })
    }
}

/// What one build fetched. The same content is fetched once, so that a build sees one state of a repository.
#[derive(Debug)]
pub struct Session {
    bases: Arc<Bases>,
    runtime: Handle,
    access: Access,
    budget: Duration,
    deadline: Instant,
    used: AtomicBool,
    fetched: Mutex<Fetched>,
}

#[derive(Debug, Default)]
struct Fetched {
    requests: usize,
    files: HashMap<String, Result<Download, RemoteError>>,
    trees: HashMap<String, Result<Arc<LinkedTree>, RemoteError>>,
}

impl Session {
    /// Whether the build asked for anything remote, so that the same tree may give other objects next time.
    pub fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts a request.
    fn admit(&self) -> Result<(), RemoteError> {
        self.used.store(true, Ordering::Relaxed);
        let mut fetched = self.fetched.lock();
        fetched.requests += 1;
        let max = self.bases.limits.requests_max;
        if fetched.requests > max {
            return Err(failed(format!(
                "the kustomization refers to more than {max} remote files and bases"
            )));
        }
        Ok(())
    }

    /// What is left of the time, at most `wanted`.
    fn time(&self, wanted: Duration) -> Duration {
        wanted.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    fn download(&self, text: &str) -> Result<Download, RemoteError> {
        self.admit()?;
        let tools = self.bases.tools()?;
        let url = RedactedUrl::parse(text).map_err(|error| failed(format!("malformed URL: {error}")))?;
        let bytes_max = self.bases.limits.file_bytes_max;
        let time = self.time(FILE_TIMEOUT_MAX);
        let work = async {
            let unreachable =
                |error: reqwest::Error| failed(format!("Get \"{url}\": {}", chain(&error.without_url())));
            let mut response = tools.client.get(url.expose().clone()).send().await.map_err(unreachable)?;
            let status = response.status();
            if !status.is_success() {
                let reason = status.canonical_reason().unwrap_or_default();
                return Ok(Download::Status(status.as_u16(), reason.to_owned()));
            }
            let mut content = BytesMut::new();
            while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
                if content.len() + chunk.len() > bytes_max {
                    return Err(failed(format!("Get \"{url}\": the file is larger than {bytes_max} bytes")));
                }
                content.extend_from_slice(&chunk);
            }
            Ok(Download::Content(Bytes::from(content)))
        };
        let done = self.runtime.block_on(async { tokio::time::timeout(time, work).await });
        done.unwrap_or_else(|_| Err(failed(format!("Get \"{url}\": no answer within {}s", time.as_secs()))))
    }

    fn clone_repository(&self, spec: &RepoSpec, level: usize) -> Result<Arc<LinkedTree>, RemoteError> {
        self.admit()?;
        let shown = weir_base::redact::hide_passwords(&spec.clone_url);
        let scheme = spec.clone_url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("file") if self.access.local_repositories => return self.read_local(spec),
            Some("file") => {
                return Err(failed(format!(
                    "cannot clone '{shown}': repositories of the machine are not available here"
                )));
            }
            _ if !self.access.repositories => {
                return Err(failed(format!(
                    "cannot clone '{shown}': remote bases are disabled (--no-remote-bases); put the base into the \
                     source, or refer to single files"
                )));
            }
            Some("http" | "https") => {}
            _ => {
                return Err(failed(format!(
                    "cannot clone '{shown}': git over SSH needs a key, and bases have none; use an https:// URL"
                )));
            }
        }
        let tools = self.bases.tools()?;
        let reference = spec.reference.as_deref().unwrap_or("HEAD");
        let failure = |why: &str| failed(format!("failed to clone '{shown}' at '{reference}': {why}"));
        let url = RedactedUrl::parse(&spec.clone_url).map_err(|error| failure(&error.to_string()))?;
        let target = Target::fetched(reference);
        let key = format!("{} {}", url.expose(), reference);
        let kept = self.bases.kept.lock().get(&key);
        if let (Some(kept), Target::Commit { .. }) = (&kept, &target) {
            return Ok(Arc::clone(&kept.files));
        }
        let timeout = self.time(spec.timeout);
        let request = Request {
            cache_key: format!("base {}", url.expose()),
            url,
            credentials: Credentials::default(),
            target,
            known_revision: kept.as_ref().map(|kept| kept.revision.clone()),
            with_tag: false,
            with_submodules: false,
            timeout,
        };
        let outcome = self.runtime.block_on(tools.git.checkout(request)).map_err(|error| {
            if is_timeout(&error) {
                let seconds = timeout.as_secs();
                RemoteError {
                    message: format!("hit {seconds}s timeout cloning '{shown}' at '{reference}'"),
                    timeout: true,
                }
            } else {
                failure(&chain(&error))
            }
        })?;
        let checkout = match (outcome, kept) {
            (Outcome::Unchanged { .. }, Some(kept)) => return Ok(kept.files),
            (Outcome::Unchanged { .. } | Outcome::Empty, _) => {
                return Err(failure("the repository is empty"));
            }
            (Outcome::Changed(checkout), _) => *checkout,
        };
        let revision = checkout.revision.clone();
        let commit = checkout.commit.clone();
        let modules = checkout.worktree.submodules();
        let mut files = checkout
            .worktree
            .into_tree(self.bases.limits.tree_bytes_max)
            .map_err(|error| failure(&format!("commit {commit}: {}", chain(&error))))?;
        let complete = modules.is_empty() || !spec.submodules;
        if !complete {
            self.add_submodules(spec, &mut files, &modules, level)?;
        }
        let files = Arc::new(files);
        if complete {
            let tree = Tree { revision, size_bytes: files.size_bytes(), files: Arc::clone(&files), used: 0 };
            self.bases.kept.lock().put(key, tree, self.bases.limits.kept_bytes_max);
        }
        Ok(files)
    }

    /// Puts the files of submodules into their directories.
    fn add_submodules(
        &self,
        parent: &RepoSpec,
        files: &mut LinkedTree,
        modules: &[(String, String)],
        level: usize,
    ) -> Result<(), RemoteError> {
        let shown = weir_base::redact::hide_passwords(&parent.clone_url);
        if level >= SUBMODULE_LEVELS_MAX {
            return Err(failed(format!(
                "'{shown}': submodules are nested more than {SUBMODULE_LEVELS_MAX} levels"
            )));
        }
        let text = files.read(".gitmodules").unwrap_or_default();
        let urls = submodule_urls(&text);
        for (path, commit) in modules {
            // As with `git submodule update`: what `.gitmodules` does not name stays empty.
            let Some(url) = urls.get(path) else { continue };
            let clone_url = submodule_url(&parent.clone_url, url).ok_or_else(|| {
                failed(format!("'{shown}': the URL of submodule '{path}' leads out of the server"))
            })?;
            // As Git: a repository cannot make others read the disk.
            if !clone_url.starts_with("https://") && !clone_url.starts_with("http://") {
                let url = weir_base::redact::hide_passwords(&clone_url);
                return Err(failed(format!(
                    "submodule '{path}' of '{shown}': cannot clone '{url}': only http:// and https:// are supported"
                )));
            }
            let spec = RepoSpec {
                raw: clone_url.clone(),
                clone_url,
                path: String::new(),
                reference: Some(commit.clone()),
                timeout: parent.timeout,
                submodules: true,
            };
            let tree = self.clone_repository(&spec, level + 1).map_err(|error| RemoteError {
                message: format!("submodule '{path}' of '{shown}': {}", error.message),
                ..error
            })?;
            files.graft(path, &tree);
            let max = self.bases.limits.tree_bytes_max;
            if files.size_bytes() > max {
                return Err(failed(format!("'{shown}' and its submodules are larger than {max} bytes")));
            }
        }
        Ok(())
    }

    /// A repository on the disk of this machine.
    fn read_local(&self, spec: &RepoSpec) -> Result<Arc<LinkedTree>, RemoteError> {
        let reference = spec.reference.as_deref().unwrap_or("HEAD");
        let path = spec.clone_url.trim_start_matches("file://");
        crate::git::read_local(
            path.as_ref(),
            reference,
            self.bases.limits.tree_bytes_max,
            self.bases.limits.tree_entries_max,
        )
        .map(Arc::new)
        .map_err(|error| {
            failed(format!("failed to clone '{}' at '{reference}': {}", spec.clone_url, chain(&error)))
        })
    }
}

impl Remote for Session {
    fn file(&self, url: &str) -> Result<Download, RemoteError> {
        let known = self.fetched.lock().files.get(url).cloned();
        known.unwrap_or_else(|| {
            let result = self.download(url);
            self.fetched.lock().files.insert(url.to_owned(), result.clone());
            result
        })
    }

    fn repository(&self, spec: &RepoSpec) -> Result<Arc<dyn Files>, RemoteError> {
        let reference = spec.reference.as_deref().unwrap_or("HEAD");
        let key = format!("{} {reference} {}", spec.clone_url, spec.submodules);
        let known = self.fetched.lock().trees.get(&key).cloned();
        let result = known.unwrap_or_else(|| {
            let result = if self.time(self.budget).is_zero() {
                let message =
                    format!("remote content took longer than the {}s of the build", self.budget.as_secs());
                Err(RemoteError { message, timeout: true })
            } else {
                self.clone_repository(spec, 0)
            };
            self.fetched.lock().trees.insert(key, result.clone());
            result
        });
        result.map(|tree| tree as Arc<dyn Files>)
    }
}

fn failed(message: String) -> RemoteError {
    RemoteError { message, timeout: false }
}

fn is_timeout(error: &GitError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if matches!(error.downcast_ref(), Some(TransportError::DeadlineExceeded(_))) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The URL of each submodule by its path.
fn submodule_urls(text: &[u8]) -> HashMap<String, String> {
    let mut urls = HashMap::new();
    let (mut path, mut url) = (None, None);
    let text = String::from_utf8_lossy(text);
    for line in text.lines().map(str::trim).chain(["["]) {
        if line.starts_with('[') {
            if let (Some(path), Some(url)) = (path.take(), url.take()) {
                urls.insert(path, url);
            }
        } else if let Some((key, value)) = line.split_once('=') {
            let value = Some(value.trim().trim_matches('"').trim_end_matches('/').to_owned());
            match key.trim() {
                "path" => path = value,
                "url" => url = value,
                _ => {}
            }
        }
    }
    urls
}

/// Where a submodule is cloned from: relative URLs start at the parent's; `None` if they go too far up.
fn submodule_url(parent: &str, url: &str) -> Option<String> {
    if !url.starts_with("./") && !url.starts_with("../") {
        return Some(url.to_owned());
    }
    let mut base = parent.trim_end_matches('/');
    let mut rest = url;
    loop {
        if let Some(after) = rest.strip_prefix("./") {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("../") {
            base = base.rsplit_once('/').map(|(above, _)| above).filter(|above| !above.ends_with(":/"))?;
            rest = after;
        } else {
            return Some(format!("{base}/{rest}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submodules_are_read_from_their_file() {
        let urls = submodule_urls(
            b"[submodule \"a\"]\n\tpath = libs/a\n\turl = ../a.git\n# note\n[submodule \"b\"]\n url = https://host/b\n path=b\n",
        );
        assert_eq!(urls["libs/a"], "../a.git");
        assert_eq!(urls["b"], "https://host/b");
        assert_eq!(urls.len(), 2);
    }

    #[test]
    fn relative_urls_of_submodules_stay_on_their_server() {
        let check = |url, expected: Option<&str>| {
            assert_eq!(submodule_url("https://host/org/repo.git", url).as_deref(), expected, "{url}");
        };
        check("../other.git", Some("https://host/org/other.git"));
        check("../../x/y", Some("https://host/x/y"));
        check("../../../x", None);
        check("./sub", Some("https://host/org/repo.git/sub"));
        check("https://elsewhere/z", Some("https://elsewhere/z"));
    }

    #[test]
    fn the_trees_that_were_used_last_are_kept() {
        let tree = |size_bytes| Tree {
            revision: String::new(),
            files: Arc::new(LinkedTree::default()),
            size_bytes,
            used: 0,
        };
        let mut kept = Kept::default();
        kept.put("a".to_owned(), tree(4), 10);
        kept.put("b".to_owned(), tree(4), 10);
        assert!(kept.get("a").is_some());
        kept.put("c".to_owned(), tree(4), 10);
        assert!(kept.get("b").is_none());
        assert!(kept.get("a").is_some() && kept.get("c").is_some());
        kept.put("d".to_owned(), tree(11), 10);
        assert!(kept.trees.is_empty(), "what is larger than the limit is not kept");
    }
}
