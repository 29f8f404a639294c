//! Git repositories over HTTP(S) and SSH: which commit a reference stands for, and its files.
//!
//! One request is a listing of the references of interest and, only if the revision differs from
//! the one known, a fetch of that single commit without history. Objects are kept in a bare cache
//! per source, so that the next fetch transfers what changed. There is no work tree: files are read
//! from the object database straight into the archive.

mod cache;
mod error;
mod fetch;
mod known_hosts;
mod select;
mod ssh;
mod submodule;
mod transport;
mod verify;
mod worktree;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_base::redact::{RedactedUrl, Secret};

use crate::connection::{ClientCertificate, Proxy};

pub use error::{GitError, TransportError};
pub use known_hosts::{HostKeyError, KnownHosts, KnownHostsError};
pub use select::{Reference, SelectError, Target};
pub use ssh::{IdentityError, SshAlgorithms, SshCredentials, UnknownAlgorithm};
pub use submodule::SubmoduleError;
pub(crate) use verify::signs;
pub use verify::{SignatureError, Signed, SigningKeys};
pub use worktree::{ArchiveError, IncludeError, TreeError, Worktree};

/// How much a repository may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The size of a reference listing.
    pub list_bytes_max: u64,
    /// The size of a transferred pack.
    pub pack_bytes_max: u64,
    /// The number of files and directories of a commit.
    pub entries_max: usize,
    /// The size of all caches together; the least recently used go first.
    pub cache_bytes_max: u64,
    /// The number of packs in a cache; it is built anew beyond that.
    pub cache_packs_max: usize,
}

impl Default for Limits {
    /// 64 MiB of references, packs of 4 GiB, a million entries, 2 GiB of caches with 24 packs each.
    fn default() -> Self {
        Self {
            list_bytes_max: 64 << 20,
            pack_bytes_max: 4 << 30,
            entries_max: 1_000_000,
            cache_bytes_max: 2 << 30,
            cache_packs_max: 24,
        }
    }
}

/// How to present oneself to a server.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// User and password, or token.
    pub authorization: Authorization,
    /// PEM certificates of authorities to trust besides those of the system.
    pub certificate_authority: Option<Vec<u8>>,
    /// PEM client certificate and private key.
    pub client_certificate: Option<ClientCertificate>,
    /// A proxy that replaces those of the environment.
    pub proxy: Option<Proxy>,
    /// What `ssh` URLs need instead of all but the proxy.
    pub ssh: Option<SshCredentials>,
}

/// User and password, or token. Sent without being asked for, and never to another host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Anonymous.
    #[default]
    None,
    /// Basic authentication.
    Basic {
        /// The user; may be empty.
        username: String,
        /// The password or token.
        password: Secret,
    },
    /// A bearer token.
    Bearer(Secret),
}

/// What to check out from where.
#[derive(Debug, Clone)]
pub struct Request {
    /// Names the cache: requests with the same key share objects and run one after the other.
    pub cache_key: String,
    /// The repository.
    pub url: RedactedUrl,
    /// How to present oneself.
    pub credentials: Credentials,
    /// The reference.
    pub target: Target,
    /// The revision that needs no fetch.
    pub known_revision: Option<String>,
    /// Whether the tag object is wanted too, where the reference is a tag.
    pub with_tag: bool,
    /// Whether submodules are fetched too.
    pub with_submodules: bool,
    /// The longest the whole operation may take.
    pub timeout: Duration,
}

/// Why a repository of this machine cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It is not a repository.
    #[error("not a Git repository: {0}")]
    Open(String),
    /// There is no such reference or commit.
    #[error("couldn't find remote ref {0}")]
    Reference(String),
    /// Its files cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// The files of a commit of the repository at `path` on this machine. `reference` is what
/// [`Target::fetched`] takes. Blocks.
///
/// # Errors
/// There is no such repository or commit, or it is larger than the limits.
pub fn read_local(
    path: &std::path::Path,
    reference: &str,
    bytes_max: u64,
    entries_max: usize,
) -> Result<weir_base::tree::LinkedTree, LocalError> {
    fetch::read_local(path, reference, bytes_max, entries_max)
}

/// What a checkout found.
#[derive(Debug)]
pub enum Outcome {
    /// The reference still stands for the known revision.
    Unchanged {
        /// That revision.
        revision: String,
    },
    /// There is no reference at all in the repository.
    Empty,
    /// The files of another revision.
    Changed(Box<Checkout>),
}

/// A commit and its files.
#[derive(Debug)]
pub struct Checkout {
    /// The revision, such as `main@sha1:…`.
    pub revision: String,
    /// The commit id in hex.
    pub commit: String,
    /// The commit message.
    pub message: String,
    /// The commit as it is stored, which is what signatures are over.
    pub raw_commit: Vec<u8>,
    /// The tag the reference stands for.
    pub tag: Option<Tag>,
    /// The files.
    pub worktree: Worktree,
}

/// A tag and, if it was asked for and the tag is annotated, its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// The name, without `refs/tags/`.
    pub name: String,
    /// The id of the tag object, or of the commit, in hex.
    pub id: String,
    /// The tag object as it is stored.
    pub raw: Option<Vec<u8>>,
}

impl Checkout {
    /// The first line of the message, cut to fifty characters.
    pub fn subject(&self) -> String {
        const CHARACTERS_MAX: usize = 50;
        let subject = self.message.split('\n').next().unwrap_or_default();
        match subject.char_indices().nth(CHARACTERS_MAX) {
            Some((end, _)) => format!("{}...", &subject[..end]),
            None => subject.to_owned(),
        }
    }
}

/// A Git client with its caches.
#[derive(Debug, Clone)]
pub struct Git {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    caches: Arc<cache::Caches>,
    limits: Limits,
    /// The client for requests without own certificates or proxy.
    client: reqwest::Client,
    algorithms: Arc<SshAlgorithms>,
}

impl Git {
    /// A client that keeps its caches in `cache_root`, which is created if needed.
    ///
    /// Errors: the directory cannot be created, or the TLS set-up of the machine is broken.
    pub fn new(cache_root: PathBuf, limits: Limits) -> Result<Self, GitError> {
        let caches = Arc::new(cache::Caches::open(cache_root, limits)?);
        let client = transport::client(&Credentials::default())?;
        Ok(Self { inner: Arc::new(Inner { caches, limits, client, algorithms: Arc::default() }) })
    }

    /// The same with other SSH algorithms.
    #[must_use]
    pub fn with_algorithms(self, algorithms: SshAlgorithms) -> Self {
        let inner = Inner {
            caches: Arc::clone(&self.inner.caches),
            limits: self.inner.limits,
            client: self.inner.client.clone(),
            algorithms: Arc::new(algorithms),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Finds the commit of the target and, unless it is the known revision, its files.
    ///
    /// Errors carry the text Flux users know. On cancellation the transfer is broken off; the cache
    /// stays usable.
    pub async fn checkout(&self, request: Request) -> Result<Outcome, GitError> {
        let deadline = Instant::now() + request.timeout;
        let own = request.clone();
        let mut outcome = self.checkout_one(request, deadline).await?;
        if let Outcome::Changed(checkout) = &mut outcome
            && own.with_submodules
        {
            self.fetch_submodules(&own, &mut checkout.worktree, deadline, 1).await?;
        }
        Ok(outcome)
    }

    /// Fetches the submodules of a repository and theirs in turn.
    ///
    /// Credentials go only to submodules on the host of the repository they are in.
    fn fetch_submodules<'a>(
        &'a self,
        parent: &'a Request,
        worktree: &'a mut Worktree,
        deadline: Instant,
        level: usize,
    ) -> Pin<Box<dyn Future<Output = Result<(), GitError>> + Send + 'a>> {
        Box::pin(async move {
            if worktree.links().is_empty() {
                return Ok(());
            }
            if level > submodule::LEVELS_MAX {
                return Err(SubmoduleError::TooDeep.into());
            }
            let text = worktree
                .text(submodule::FILE)
                .map_err(|source| GitError::Tree { commit: submodule::FILE.to_owned(), source })?;
            let urls = submodule::parse(&text.unwrap_or_default());
            for (path, commit) in worktree.links().clone() {
                let url = urls.get(&path).ok_or_else(|| SubmoduleError::NoUrl(path.clone()))?;
                let parent_url = parent.url.expose();
                let url =
                    submodule::resolve(parent_url, url).ok_or_else(|| SubmoduleError::Url(path.clone()))?;
                let mut credentials = parent.credentials.clone();
                if !submodule::shares_credentials(parent_url, &url) {
                    credentials = Credentials { proxy: credentials.proxy, ..Credentials::default() };
                }
                let request = Request {
                    cache_key: format!("{}/{path}", parent.cache_key),
                    url: RedactedUrl::from(url),
                    credentials,
                    target: Target::commit(commit),
                    known_revision: None,
                    with_tag: false,
                    with_submodules: true,
                    timeout: parent.timeout,
                };
                let failed = |source| GitError::Submodule { path: path.clone(), source: Box::new(source) };
                let outcome = self.checkout_one(request.clone(), deadline).await.map_err(failed)?;
                let Outcome::Changed(mut checkout) = outcome else { return Err(GitError::Aborted) };
                self.fetch_submodules(&request, &mut checkout.worktree, deadline, level + 1)
                    .await
                    .map_err(failed)?;
                worktree.attach(&path, checkout.worktree);
                if worktree.len() > self.inner.limits.entries_max {
                    return Err(GitError::Tree {
                        commit: commit.to_string(),
                        source: worktree::TreeError::TooManyEntries(self.inner.limits.entries_max),
                    });
                }
            }
            Ok(())
        })
    }

    async fn checkout_one(&self, request: Request, deadline: Instant) -> Result<Outcome, GitError> {
        let cancelled = CancellationToken::new();
        // Dropping this future stops the blocking task at its next read.
        let _guard = cancelled.clone().drop_guard();
        let lease = self.inner.caches.lease(&request.cache_key);
        let lease = tokio::time::timeout_at(deadline, lease)
            .await
            .map_err(|_| GitError::transport(&request, TransportError::DeadlineExceeded(request.timeout)))?;
        let over_http = request.url.expose().scheme() != "ssh";
        let client = if over_http && transport::needs_own_client(&request.credentials) {
            transport::client(&request.credentials)?
        } else {
            self.inner.client.clone()
        };
        let inner = Arc::clone(&self.inner);
        let task = tokio::task::spawn_blocking(move || {
            let session = transport::Session::new(
                client,
                tokio::runtime::Handle::current(),
                deadline,
                cancelled,
                &request,
                &inner.algorithms,
            );
            fetch::checkout(&request, &session, lease, &inner.limits)
        });
        task.await.map_err(|_| GitError::Aborted)?
    }

    /// Removes the cache of a source that is gone.
    pub async fn forget(&self, cache_key: &str) {
        let lease = self.inner.caches.lease(cache_key).await;
        // Errors leave files behind that the size limit of the caches will collect.
        let _ = tokio::task::spawn_blocking(move || lease.clear()).await;
    }
}
