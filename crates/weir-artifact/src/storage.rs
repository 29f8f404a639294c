//! The directory artifacts are published to.
//!
//! Layout: `<root>/<kind>/<namespace>/<name>/<file>`. A file appears under its name only when it is
//! complete (it is renamed into place), so readers and crashes never see half an artifact. What a
//! killed process leaves behind, a temporary file next to the artifact, is collected by age.
//!
//! All functions here block on the file system: call them from a blocking task.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use weir_base::clock::Clock;

use crate::digest::{Algorithm, Digest, Hasher, ParseError, digest_reader};
use crate::probe::{Probe, Step};

/// A garbage collection stops looking after this many files.
const GARBAGE_FILES_MAX: usize = 1000;
/// A garbage collection stops after this time.
const GARBAGE_TIME_MAX: Duration = Duration::from_secs(5);
/// Digests that can be asked for by address; the oldest are forgotten first.
const DIGEST_INDEX_MAX: usize = 10_000;

/// How a [`Storage`] works.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory; it must exist.
    pub root: PathBuf,
    /// The host (and port) in artifact URLs; may start with `http://` or `https://`.
    pub host: String,
    /// Superseded files older than this are garbage.
    pub retention_ttl: Duration,
    /// How many files younger than the time-to-live are kept, the current one included.
    pub retention_records: usize,
    /// The algorithm of the digests of new artifacts.
    pub algorithm: Algorithm,
}

/// A published file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its length.
    pub size_bytes: u64,
    /// When it was written.
    pub written_at: Timestamp,
}

/// Why a storage operation failed. The texts name paths relative to the root.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The storage root is not a directory.
    #[error("invalid dir path: {}", .0.display())]
    InvalidRoot(PathBuf),
    /// A path that would leave the storage.
    #[error("invalid artifact path '{0}'")]
    InvalidPath(String),
    /// The directory of the artifact cannot be made.
    #[error("failed to create directory of '{path}'")]
    CreateDirectory {
        /// The artifact.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The lock of the artifact cannot be taken.
    #[error("failed to acquire lock for artifact '{path}'")]
    Lock {
        /// The artifact.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The artifact cannot be written.
    #[error("failed to write artifact '{path}'")]
    Write {
        /// The artifact.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The artifact cannot be read.
    #[error("failed to read artifact '{path}'")]
    Read {
        /// The artifact.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The link to the latest artifact cannot be made.
    #[error("failed to update link '{path}'")]
    Link {
        /// The link.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Something cannot be removed.
    #[error("failed to remove '{path}'")]
    Remove {
        /// The file or directory.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// Why a stored file is not what its digest says.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// There is no digest to compare with.
    #[error("artifact has no digest")]
    NoDigest,
    /// The digest cannot be parsed.
    #[error("failed to parse artifact digest '{digest}'")]
    Parse {
        /// The text.
        digest: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// The file has another content.
    #[error("computed digest doesn't match '{0}'")]
    Mismatch(Digest),
    /// The file cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why [`Storage::publish`] failed.
#[derive(Debug, thiserror::Error)]
pub enum PublishError<E: std::error::Error + 'static> {
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The caller's function failed.
    #[error(transparent)]
    Content(E),
}

/// Where an object keeps its artifacts, relative to the root: `<kind>/<namespace>/<name>`.
pub fn object_directory(kind: &str, namespace: &str, name: &str) -> String {
    format!("{}/{namespace}/{name}", kind.to_lowercase())
}

/// The host to put into artifact URLs: `advertised` if given, else derived from the address the
/// file server listens on. `None` if that address has no port.
pub fn advertised_host(
    advertised: &str,
    listen_address: &str,
    host_name: impl FnOnce() -> String,
) -> Option<String> {
    if !advertised.is_empty() {
        return Some(advertised.to_owned());
    }
    let (host, port) = listen_address.rsplit_once(':')?;
    if port.is_empty() || (host.contains(':') && !host.starts_with('[')) {
        return None;
    }
    let host = match host {
        "" => "localhost".to_owned(),
        "0.0.0.0" => host_name(),
        other => other.to_owned(),
    };
    Some(format!("{host}:{port}"))
}

/// A directory of artifacts.
pub struct Storage {
    options: Options,
    clock: Arc<dyn Clock>,
    by_digest: Mutex<DigestIndex>,
    probe: Probe,
}

#[derive(Default)]
struct DigestIndex {
    paths: HashMap<String, String>,
    order: std::collections::VecDeque<String>,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Storage").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Storage {
    /// Opens the storage; its root must exist.
    pub fn open(mut options: Options, clock: Arc<dyn Clock>) -> Result<Self, StorageError> {
        if !options.root.is_dir() {
            return Err(StorageError::InvalidRoot(options.root));
        }
        // Links are absolute and the file server compares real paths.
        options.root =
            fs::canonicalize(&options.root).map_err(|_| StorageError::InvalidRoot(options.root.clone()))?;
        Ok(Self { options, clock, by_digest: Mutex::default(), probe: Probe::default() })
    }

    /// The same, with faults: `probe` is asked before every step that changes the disk.
    #[must_use]
    pub fn with_probe(mut self, probe: Probe) -> Self {
        self.probe = probe;
        self
    }

    /// The root with all links resolved.
    pub fn root(&self) -> &Path {
        &self.options.root
    }

    /// The algorithm of the digests of new artifacts.
    pub fn algorithm(&self) -> Algorithm {
        self.options.algorithm
    }

    /// The URL consumers fetch `path` from.
    pub fn url(&self, path: &str) -> String {
        let host = &self.options.host;
        let path = path.trim_start_matches('/');
        if host.starts_with("http://") || host.starts_with("https://") {
            format!("{host}/{path}")
        } else {
            format!("http://{host}/{path}")
        }
    }

    /// The file `path` stands for; fails for paths that would leave the root.
    pub fn local_path(&self, path: &str) -> Result<PathBuf, StorageError> {
        let invalid = || StorageError::InvalidPath(path.to_owned());
        if path.is_empty() || path.contains('\0') {
            return Err(invalid());
        }
        let mut local = self.options.root.clone();
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            if matches!(part, "" | "." | "..") {
                return Err(invalid());
            }
            local.push(part);
            let is_directory = parts.peek().is_some();
            if is_directory && fs::symlink_metadata(&local).is_ok_and(|meta| meta.is_symlink()) {
                return Err(invalid());
            }
        }
        Ok(local)
    }

    /// Whether there is a regular file at `path`; a link does not count.
    pub fn exists(&self, path: &str) -> bool {
        self.local_path(path)
            .ok()
            .and_then(|local| fs::symlink_metadata(local).ok())
            .is_some_and(|meta| meta.is_file())
    }

    /// Reads the whole file at `path` and compares its digest with `digest`.
    pub fn verify(&self, path: &str, digest: &str) -> Result<(), VerifyError> {
        if digest.is_empty() {
            return Err(VerifyError::NoDigest);
        }
        let wanted: Digest =
            digest.parse().map_err(|source| VerifyError::Parse { digest: digest.to_owned(), source })?;
        let local = self.local_path(path)?;
        let found = fs::File::open(local)
            .and_then(|file| digest_reader(wanted.algorithm(), io::BufReader::new(file)))
            .map_err(|source| StorageError::Read { path: path.to_owned(), source })?
            .0;
        if found != wanted {
            return Err(VerifyError::Mismatch(wanted));
        }
        self.remember(&wanted, path);
        Ok(())
    }

    /// The content of the file at `path`.
    pub fn read(&self, path: &str) -> Result<Bytes, StorageError> {
        let local = self.local_path(path)?;
        fs::read(local)
            .map(Bytes::from)
            .map_err(|source| StorageError::Read { path: path.to_owned(), source })
    }

    /// A part of the file at `path`.
    pub fn read_range(&self, path: &str, range: std::ops::Range<usize>) -> Result<Vec<u8>, StorageError> {
        use std::os::unix::fs::FileExt as _;
        let local = self.local_path(path)?;
        let failed = |source| StorageError::Read { path: path.to_owned(), source };
        let file = fs::File::open(local).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if range.end as u64 > length {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut bytes = vec![0; range.len()];
        file.read_exact_at(&mut bytes, range.start as u64).map_err(failed)?;
        Ok(bytes)
    }

    /// Makes the directory that will hold `path`.
    pub fn create_directory_for(&self, path: &str) -> Result<(), StorageError> {
        let local = self.local_path(path)?;
        let parent = local.parent().unwrap_or(&self.options.root);
        self.probe
            .ask(Step::MakeDirectory, parent)
            .and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(parent))
            .map_err(|source| StorageError::CreateDirectory { path: path.to_owned(), source })
    }

    /// Waits for the lock of the artifact at `path`; it is held until the returned value is dropped.
    pub fn lock(&self, path: &str) -> Result<Lock, StorageError> {
        let failed = |source| StorageError::Lock { path: path.to_owned(), source };
        let local = self.local_path(&format!("{path}.lock"))?;
        self.probe.ask(Step::Lock, &local).map_err(failed)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(local).map_err(failed)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| failed(error.into()))?;
        Ok(Lock { _file: file })
    }

    /// Publishes what `write` produces as the file at `path`, replacing an existing one.
    ///
    /// The directory must exist (see [`Storage::create_directory_for`]) and the caller holds the
    /// lock. Nothing is left behind on an error.
    pub fn publish<E: std::error::Error + 'static>(
        &self,
        path: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<Stored, PublishError<E>> {
        let failed = |source| StorageError::Write { path: path.to_owned(), source };
        let local = self.local_path(path)?;
        let mut temporary = local.clone().into_os_string();
        temporary.push(format!("{:016x}", rand::random::<u64>()));
        let temporary = Temporary(PathBuf::from(temporary));
        self.probe.ask(Step::Create, &temporary.0).map_err(failed)?;
        let file =
            OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary.0).map_err(failed)?;
        let mut output = Measured {
            output: BufWriter::with_capacity(
                64 << 10,
                Probed { output: file, probe: &self.probe, path: &temporary.0 },
            ),
            hasher: self.options.algorithm.hasher(),
            length: 0,
        };
        write(&mut output).map_err(PublishError::Content)?;
        output.output.flush().map_err(failed)?;
        let (digest, size_bytes) = (output.hasher.finish(), output.length);
        drop(output.output);
        self.probe.ask(Step::Protect, &temporary.0).map_err(failed)?;
        fs::set_permissions(&temporary.0, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        self.probe.ask(Step::Publish, &local).map_err(failed)?;
        // Nobody but a person puts a directory there; it would be in the way for ever.
        if local.is_dir() && !local.is_symlink() {
            fs::remove_dir_all(&local).map_err(failed)?;
        }
        fs::rename(&temporary.0, &local).map_err(failed)?;
        self.remember(&digest, path);
        Ok(Stored { digest, size_bytes, written_at: self.clock.now() })
    }

    /// Points the link `name` next to `path` at it and returns the URL of the link.
    pub fn link_latest(&self, path: &str, name: &str) -> Result<String, StorageError> {
        let local = self.local_path(path)?;
        let link_path = match path.rsplit_once('/') {
            Some((directory, _)) => format!("{directory}/{name}"),
            None => name.to_owned(),
        };
        let link = self.local_path(&link_path)?;
        let mut temporary = link.clone().into_os_string();
        temporary.push(".tmp");
        let failed = |source| StorageError::Link { path: link_path.clone(), source };
        remove_if_present(Path::new(&temporary)).map_err(failed)?;
        self.probe.ask(Step::Link, &link).map_err(failed)?;
        symlink(local, &temporary).map_err(failed)?;
        self.probe.ask(Step::PublishLink, &link).map_err(failed)?;
        fs::rename(&temporary, link).map_err(failed)?;
        Ok(format!("http://{}/{link_path}", self.options.host))
    }

    /// Removes the file at `path` if it is there.
    pub fn remove(&self, path: &str) -> Result<(), StorageError> {
        let local = self.local_path(path)?;
        self.remove_file(&local).map_err(|source| StorageError::Remove { path: path.to_owned(), source })
    }

    /// Removes superseded files from the directory of the artifact at `current`, with their locks,
    /// and returns how many artifacts went.
    ///
    /// A file other than the current one goes when it was written longer ago than the
    /// time-to-live; of the younger ones, the oldest go until no more than the number of records
    /// is left. Links stay.
    pub fn collect_garbage(&self, current: &str) -> Result<usize, StorageError> {
        let local = self.local_path(current)?;
        let Some(directory) = local.parent() else {
            return Ok(0);
        };
        let started = Instant::now();
        let files = self.files_by_age(directory, started)?;
        let mut removed = 0;
        for file in garbage(&files, &local, self.options.retention_ttl, self.options.retention_records) {
            if started.elapsed() > GARBAGE_TIME_MAX {
                break;
            }
            let failed = |source| StorageError::Remove { path: self.relative(file), source };
            self.remove_file(file).map_err(failed)?;
            let mut lock = file.as_os_str().to_owned();
            lock.push(".lock");
            remove_if_present(Path::new(&lock)).map_err(failed)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Removes everything an object has stored; `false` if there was nothing.
    pub fn remove_directory(&self, directory: &str) -> Result<bool, StorageError> {
        let local = self.local_path(directory)?;
        match self.probe.ask(Step::Remove, &local).and_then(|()| fs::remove_dir_all(local)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(StorageError::Remove { path: directory.to_owned(), source }),
        }
    }

    /// The path of an artifact with this digest that was published or verified by this process.
    pub(crate) fn find_digest(&self, digest: &str) -> Option<String> {
        self.by_digest.lock().paths.get(digest).cloned()
    }

    fn remember(&self, digest: &Digest, path: &str) {
        let mut index = self.by_digest.lock();
        let digest = digest.to_string();
        if index.paths.insert(digest.clone(), path.to_owned()).is_none() {
            index.order.push_back(digest);
            if index.order.len() > DIGEST_INDEX_MAX
                && let Some(oldest) = index.order.pop_front()
            {
                index.paths.remove(&oldest);
            }
        }
    }

    /// Regular files but locks, oldest first, with their age.
    fn files_by_age(
        &self,
        directory: &Path,
        started: Instant,
    ) -> Result<Vec<(Duration, PathBuf)>, StorageError> {
        let now = SystemTime::from(self.clock.now());
        let failed = |source| StorageError::Read { path: self.relative(directory), source };
        let mut files = Vec::new();
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            other => other.map_err(failed)?,
        };
        for entry in entries {
            if files.len() >= GARBAGE_FILES_MAX || started.elapsed() > GARBAGE_TIME_MAX {
                break;
            }
            let entry = entry.map_err(failed)?;
            // A file may go while we look: another run of the same object is not possible, but an
            // administrator is.
            let Ok(meta) = entry.metadata() else { continue };
            let path = entry.path();
            if meta.is_file() && path.extension().is_none_or(|extension| extension != "lock") {
                let modified = meta.modified().map_err(failed)?;
                files.push((now.duration_since(modified).unwrap_or_default(), path));
            }
        }
        files.sort_by(|left, right| right.cmp(left));
        Ok(files)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.probe.ask(Step::Remove, path)?;
        remove_if_present(path)
    }

    fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.options.root).unwrap_or(path).display().to_string()
    }
}

/// Which of `files` (oldest first, with their age) are garbage.
fn garbage<'a>(
    files: &'a [(Duration, PathBuf)],
    current: &Path,
    ttl: Duration,
    records: usize,
) -> Vec<&'a Path> {
    let mut garbage = Vec::new();
    let mut young = Vec::new();
    for (age, path) in files.iter().filter(|(_, path)| path != current) {
        if *age > ttl {
            garbage.push(path.as_path());
        } else {
            young.push(path.as_path());
        }
    }
    let left = files.len() - garbage.len();
    garbage.extend(young.into_iter().take(left.saturating_sub(records)));
    garbage
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The lock of an artifact; dropping it releases the lock. The lock file stays.
#[derive(Debug)]
pub struct Lock {
    _file: fs::File,
}

/// Removes the file when dropped; after a successful rename there is nothing to remove.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A file whose writes may fail.
struct Probed<'a> {
    output: fs::File,
    probe: &'a Probe,
    path: &'a Path,
}

impl Write for Probed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.probe.ask(Step::Write, self.path)?;
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

struct Measured<W> {
    output: W,
    hasher: Hasher,
    length: u64,
}

impl<W: Write> Write for Measured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;
