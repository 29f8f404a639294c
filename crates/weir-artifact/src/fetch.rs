//! The consumer side: artifacts by URL and digest, as file trees in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::RETRY_AFTER;
use parking_lot::Mutex;
use url::Url;
use weir_base::tree::MemoryTree;

use crate::digest::{Digest, ParseError};
use crate::unpack::{Limits, Symlinks, UnpackError, unpack};

/// The longest wait a `Retry-After` header can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(2);

/// How artifacts are fetched.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often a failed download is repeated.
    pub retries: u32,
    /// The wait before the first repetition; it doubles from one to the next.
    pub retry_wait_min: Duration,
    /// The longest wait between repetitions.
    pub retry_wait_max: Duration,
    /// How long one download may take; `None` for as long as something arrives.
    pub attempt_timeout: Option<Duration>,
    /// Replaces the host (and port) of artifact URLs.
    pub host_override: Option<String>,
    /// Replaces the host (and port) of artifact URLs whose host begins with `source-watcher`, before
    /// [`Options::host_override`].
    pub watcher_host_override: Option<String>,
    /// The largest archive that is downloaded.
    pub download_bytes_max: u64,
    /// What unpacking may cost.
    pub limits: Limits,
    /// How much memory trees may take that nobody uses at the moment.
    pub cache_bytes_max: u64,
}

impl Default for Options {
    /// 9 retries with waits of 5 to 30 seconds, archives up to 512 MiB, 32 MiB of unused trees.
    fn default() -> Self {
        Self {
            retries: 9,
            retry_wait_min: Duration::from_secs(5),
            retry_wait_max: Duration::from_secs(30),
            attempt_timeout: None,
            host_override: None,
            watcher_host_override: None,
            download_bytes_max: 512 << 20,
            limits: Limits::default(),
            cache_bytes_max: 32 << 20,
        }
    }
}

/// Why an artifact could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL cannot be parsed.
    #[error("failed to create a new request: invalid artifact URL '{url}'")]
    InvalidUrl {
        /// The URL.
        url: String,
        /// What is wrong with it.
        #[source]
        source: url::ParseError,
    },
    /// The server does not have the file (any more): the artifact was probably replaced.
    #[error("file not found")]
    NotFound {
        /// The URL.
        url: String,
    },
    /// The server answered with an error.
    #[error("failed to download archive from {url} (status: {status})")]
    Status {
        /// The URL.
        url: String,
        /// The answer.
        status: StatusCode,
    },
    /// The server could not be reached, or broke the transfer off.
    #[error("failed to download archive: GET {url} giving up after {attempts} attempt(s)")]
    Transfer {
        /// The URL.
        url: String,
        /// How often it was tried.
        attempts: u32,
        /// What went wrong last.
        #[source]
        source: reqwest::Error,
    },
    /// The archive is larger than allowed.
    #[error("artifact is greater than the max download size of {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// The digest cannot be parsed.
    #[error("failed to verify archive: failed to parse digest '{digest}'")]
    InvalidDigest {
        /// The digest.
        digest: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// What was downloaded is not what was announced.
    #[error(
        "failed to verify archive: computed digest doesn't match provided '{wanted}': got '{found}' after {length_bytes} bytes"
    )]
    DigestMismatch {
        /// The announced digest.
        wanted: Digest,
        /// The digest of the downloaded bytes.
        found: Digest,
        /// How many there were.
        length_bytes: u64,
    },
    /// The archive is broken or exceeds the limits.
    #[error("failed to extract archive")]
    Unpack(#[source] UnpackError),
    /// Unpacking ended without a result, which only happens when the process shuts down.
    #[error("unpacking was aborted")]
    Aborted,
}

impl FetchError {
    /// Whether the artifact was probably replaced and its source should be read again.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// Fetches artifacts; clones share connections and trees.
#[derive(Clone)]
pub struct Fetcher {
    client: reqwest::Client,
    options: Arc<Options>,
    cache: Arc<Mutex<Cache>>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Fetcher").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// A fetcher with its own connections and cache. Fails only if the TLS set-up of the machine is
    /// broken.
    pub fn new(options: Options) -> Result<Self, reqwest::Error> {
        install_crypto_provider();
        let builder = || {
            reqwest::Client::builder()
                .connect_timeout(Duration::from_secs(30))
                .read_timeout(Duration::from_mins(1))
                .pool_idle_timeout(Duration::from_secs(30))
        };
        // Without any trusted authority on the machine, plain HTTP still works.
        let client = builder().build().or_else(|_| builder().tls_certs_only([]).build())?;
        Ok(Self { client, options: Arc::new(options), cache: Arc::default() })
    }

    /// The tree in the archive at `url` whose digest is `digest`.
    ///
    /// Runs for the same digest share one download and one tree. The digest is verified before
    /// anything is unpacked. Cancelling is safe at any time.
    pub async fn fetch(&self, url: &str, digest: &str) -> Result<Arc<MemoryTree>, FetchError> {
        let wanted = parse_digest(digest)?;
        let gate = match self.cache.lock().find(&wanted) {
            Lookup::Tree(tree) => return Ok(tree),
            Lookup::Gate(gate) => gate,
        };
        let _turn = gate.lock().await;
        // Someone else may have fetched it while we waited.
        if let Lookup::Tree(tree) = self.cache.lock().find(&wanted) {
            return Ok(tree);
        }
        let archive = self.download_verified(url, &wanted).await?;
        let limits = self.options.limits;
        let tree = tokio::task::spawn_blocking(move || unpack(&archive, limits, Symlinks::Skip))
            .await
            .map_err(|_| FetchError::Aborted)?
            .map_err(FetchError::Unpack)?;
        let tree = Arc::new(tree);
        self.cache.lock().insert(&wanted, &tree, self.options.cache_bytes_max);
        Ok(tree)
    }

    /// The bytes at `url`, whose digest is `digest`. They are not cached.
    pub async fn download(&self, url: &str, digest: &str) -> Result<Bytes, FetchError> {
        self.download_verified(url, &parse_digest(digest)?).await
    }

    async fn download_verified(&self, url: &str, wanted: &Digest) -> Result<Bytes, FetchError> {
        let url = self.effective_url(url)?;
        let bytes = self.download_with_retries(&url).await?;
        let length_bytes = bytes.len() as u64;
        let algorithm = wanted.algorithm();
        let (bytes, found) = tokio::task::spawn_blocking(move || {
            let found = algorithm.digest(&bytes);
            (bytes, found)
        })
        .await
        .map_err(|_| FetchError::Aborted)?;
        if found == *wanted {
            Ok(bytes)
        } else {
            Err(FetchError::DigestMismatch { wanted: wanted.clone(), found, length_bytes })
        }
    }

    fn effective_url(&self, url: &str) -> Result<Url, FetchError> {
        let invalid = |source| FetchError::InvalidUrl { url: url.to_owned(), source };
        let mut parsed = Url::parse(url).map_err(invalid)?;
        let watcher =
            self.options.watcher_host_override.as_ref().filter(|_| url.contains("//source-watcher"));
        if let Some(host) = watcher.or(self.options.host_override.as_ref()) {
            let other = Url::parse(&format!("{}://{host}", parsed.scheme())).map_err(invalid)?;
            parsed
                .set_host(other.host_str())
                .map_err(|source| FetchError::InvalidUrl { url: host.clone(), source })?;
            // Fails only for URLs without a host.
            let _ = parsed.set_port(other.port());
        }
        Ok(parsed)
    }

    async fn download_with_retries(&self, url: &Url) -> Result<Bytes, FetchError> {
        let mut wait = self.options.retry_wait_min;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let failure = match self.download_once(url).await {
                Ok(bytes) => return Ok(bytes),
                Err(failure) => failure,
            };
            let (error, asked) = match failure {
                Failure::Final(error) => return Err(error),
                Failure::Status(status, asked) => {
                    (FetchError::Status { url: url.to_string(), status }, asked)
                }
                Failure::Transfer(source) => {
                    // The URL is in our text already.
                    let source = source.without_url();
                    (FetchError::Transfer { url: url.to_string(), attempts, source }, None)
                }
            };
            if attempts > self.options.retries {
                return Err(error);
            }
            tracing::debug!(%url, attempts, error = %weir_base::error::chain(&error), "retrying artifact download");
            tokio::time::sleep(asked.unwrap_or(wait)).await;
            wait = (wait * 2).min(self.options.retry_wait_max);
        }
    }

    async fn download_once(&self, url: &Url) -> Result<Bytes, Failure> {
        let mut request = self.client.get(url.clone());
        if let Some(timeout) = self.options.attempt_timeout {
            request = request.timeout(timeout);
        }
        let mut response = request.send().await.map_err(Failure::Transfer)?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND {
            return Err(Failure::Final(FetchError::NotFound { url: url.to_string() }));
        }
        let may_change = status == StatusCode::TOO_MANY_REQUESTS
            || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED);
        if may_change {
            let asked = response
                .headers()
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok())
                .map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
            return Err(Failure::Status(status, asked));
        }
        if status != StatusCode::OK {
            return Err(Failure::Final(FetchError::Status { url: url.to_string(), status }));
        }
        let bytes_max = self.options.download_bytes_max;
        let announced = response.content_length().unwrap_or(0);
        if announced > bytes_max {
            return Err(Failure::Final(FetchError::TooLarge { bytes_max }));
        }
        // The header may lie: the announced length only saves growing the buffer.
        let mut bytes = BytesMut::with_capacity(announced.min(16 << 20) as usize);
        while let Some(chunk) = response.chunk().await.map_err(Failure::Transfer)? {
            if bytes.len() as u64 + chunk.len() as u64 > bytes_max {
                return Err(Failure::Final(FetchError::TooLarge { bytes_max }));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }
}

enum Failure {
    Final(FetchError),
    Status(StatusCode, Option<Duration>),
    Transfer(reqwest::Error),
}

/// A digest without an algorithm is SHA-256.
fn parse_digest(digest: &str) -> Result<Digest, FetchError> {
    let full = if digest.is_empty() || digest.contains(':') {
        digest.to_owned()
    } else {
        format!("sha256:{digest}")
    };
    full.parse().map_err(|source| FetchError::InvalidDigest { digest: digest.to_owned(), source })
}

fn install_crypto_provider() {
    // An error means that one is installed, which is all we need.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
pub(crate) fn test_client() -> reqwest::Client {
    install_crypto_provider();
    reqwest::Client::new()
}

/// Trees by digest: weak references to those in use, strong ones to the most recent within a bound.
#[derive(Default)]
struct Cache {
    slots: HashMap<Digest, Slot>,
    recent: VecDeque<(Digest, Arc<MemoryTree>, u64)>,
    recent_bytes: u64,
}

#[derive(Default)]
struct Slot {
    tree: Weak<MemoryTree>,
    gate: Arc<tokio::sync::Mutex<()>>,
}

enum Lookup {
    Tree(Arc<MemoryTree>),
    Gate(Arc<tokio::sync::Mutex<()>>),
}

impl Cache {
    fn find(&mut self, digest: &Digest) -> Lookup {
        let slot = self.slots.entry(digest.clone()).or_default();
        if let Some(tree) = slot.tree.upgrade() {
            if let Some(position) = self.recent.iter().position(|(other, ..)| other == digest)
                && let Some(entry) = self.recent.remove(position)
            {
                self.recent.push_back(entry);
            }
            return Lookup::Tree(tree);
        }
        Lookup::Gate(Arc::clone(&slot.gate))
    }

    fn insert(&mut self, digest: &Digest, tree: &Arc<MemoryTree>, bytes_max: u64) {
        self.slots.retain(|_, slot| {
            // A slot lives while its tree is used or someone waits for it.
            slot.tree.strong_count() > 0 || Arc::strong_count(&slot.gate) > 1
        });
        self.slots.entry(digest.clone()).or_default().tree = Arc::downgrade(tree);
        let cost = cost_bytes(tree);
        if cost > bytes_max {
            return;
        }
        self.recent.push_back((digest.clone(), Arc::clone(tree), cost));
        self.recent_bytes += cost;
        while self.recent_bytes > bytes_max {
            let Some((_, _, cost)) = self.recent.pop_front() else {
                break;
            };
            self.recent_bytes -= cost;
        }
    }
}

/// File contents plus an estimate of what the index takes.
fn cost_bytes(tree: &MemoryTree) -> u64 {
    let entries = tree.files().count() + tree.directories().count();
    tree.size_bytes() + 200 * entries as u64
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
