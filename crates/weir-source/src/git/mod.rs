//! Git repositories over HTTP(S): which commit a reference stands for, and its files.
//!
//! One request is a listing of the references of interest and, only if the revision differs from
//! the one known, a fetch of that single commit without history. Objects are kept in a bare cache
//! per source, so that the next fetch transfers what changed. There is no work tree: files are read
//! from the object database straight into the archive.

mod cache;
mod error;
mod fetch;
mod select;
mod transport;
mod worktree;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_base::redact::{RedactedUrl, Secret};

use crate::connection::{ClientCertificate, Proxy};

pub use error::{GitError, TransportError};
pub use select::{Reference, SelectError, Target};
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
    /// The files.
    pub worktree: Worktree,
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
}

impl Git {
    /// A client that keeps its caches in `cache_root`, which is created if needed.
    ///
    /// Errors: the directory cannot be created, or the TLS set-up of the machine is broken.
    pub fn new(cache_root: PathBuf, limits: Limits) -> Result<Self, GitError> {
        let caches = Arc::new(cache::Caches::open(cache_root, limits)?);
        let client = transport::client(&Credentials::default())?;
        Ok(Self { inner: Arc::new(Inner { caches, limits, client }) })
    }

    /// Finds the commit of the target and, unless it is the known revision, its files.
    ///
    /// Errors carry the text Flux users know. On cancellation the transfer is broken off; the cache
    /// stays usable.
    pub async fn checkout(&self, request: Request) -> Result<Outcome, GitError> {
        let deadline = Instant::now() + request.timeout;
        let cancelled = CancellationToken::new();
        // Dropping this future stops the blocking task at its next read.
        let _guard = cancelled.clone().drop_guard();
        let lease = self.inner.caches.lease(&request.cache_key);
        let lease = tokio::time::timeout_at(deadline, lease)
            .await
            .map_err(|_| GitError::transport(&request, TransportError::DeadlineExceeded(request.timeout)))?;
        let client = if transport::needs_own_client(&request.credentials) {
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
