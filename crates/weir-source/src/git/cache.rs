//! Bare object caches on disk, one per source.
//!
//! A cache may vanish or be damaged at any time: everything in it can be fetched again.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use gix::ObjectId;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedMutexGuard;

use super::{GitError, Limits};

/// Which repository a cache was filled from.
const ORIGIN_FILE: &str = "origin";
/// The commits whose parents are missing, in the format of Git.
const SHALLOW_FILE: &str = "shallow";
/// The commits that were fetched, oldest first.
const COMMITS_FILE: &str = "commits";

#[derive(Debug)]
pub(super) struct Caches {
    root: PathBuf,
    limits: Limits,
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Caches {
    pub(super) fn open(root: PathBuf, limits: Limits) -> Result<Self, GitError> {
        fs::create_dir_all(&root).map_err(|source| GitError::Cache { path: root.clone(), source })?;
        Ok(Self { root, limits, locks: Mutex::default() })
    }

    /// Waits until nobody else uses the cache.
    pub(super) async fn lease(self: &Arc<Self>, key: &str) -> Lease {
        let lock = self.lock_of(key);
        let guard = lock.lock_owned().await;
        Lease { caches: Arc::clone(self), directory: self.root.join(file_name(key)), _guard: guard }
    }

    fn lock_of(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(file_name(key)).or_default())
    }

    /// Removes caches nobody uses, least recently used first, until all together fit.
    fn evict(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        let mut caches: Vec<(SystemTime, u64, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let used = fs::metadata(entry.path().join(ORIGIN_FILE)).ok()?.modified().ok()?;
                Some((used, size_bytes(&entry.path()), entry.path()))
            })
            .collect();
        let mut total: u64 = caches.iter().map(|(_, size, _)| size).sum();
        caches.sort();
        for (_, size, path) in caches {
            if total <= self.limits.cache_bytes_max {
                break;
            }
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let lock = Arc::clone(self.locks.lock().entry(name.unwrap_or_default()).or_default());
            if let Ok(_guard) = lock.try_lock()
                && fs::remove_dir_all(&path).is_ok()
            {
                total -= size;
            }
        }
    }
}

/// The right to use a cache until dropped.
#[derive(Debug)]
pub(super) struct Lease {
    caches: Arc<Caches>,
    directory: PathBuf,
    _guard: OwnedMutexGuard<()>,
}

impl Lease {
    /// Makes the cache ready for objects of the repository at `url`; objects of another one go.
    pub(super) fn prepare(&self, url: &str) -> Result<(), GitError> {
        let failed = |source| GitError::Cache { path: self.directory.clone(), source };
        let origin = hex::encode(Sha256::digest(url.as_bytes()));
        let same = fs::read_to_string(self.directory.join(ORIGIN_FILE)).is_ok_and(|text| text == origin);
        if !same || self.pack_count() > self.caches.limits.cache_packs_max {
            self.clear().map_err(failed)?;
        }
        fs::create_dir_all(self.packs()).map_err(failed)?;
        // Also marks the time of use.
        fs::write(self.directory.join(ORIGIN_FILE), origin).map_err(failed)?;
        // What a killed process left behind; we are the only user now.
        let _ = fs::remove_file(self.directory.join(SHALLOW_FILE).with_extension("lock"));
        for entry in fs::read_dir(self.packs()).map_err(failed)?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with("pack-") {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Removes all objects.
    pub(super) fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The object database as it is now.
    pub(super) fn objects(&self) -> io::Result<gix::odb::Handle> {
        gix::odb::at(self.directory.join("objects"), gix::hash::Kind::Sha1)
    }

    pub(super) fn packs(&self) -> PathBuf {
        self.directory.join("objects/pack")
    }

    pub(super) fn shallow_file(&self) -> PathBuf {
        self.directory.join(SHALLOW_FILE)
    }

    /// Records commits that were fetched.
    pub(super) fn remember(&self, commits: &[ObjectId]) -> io::Result<()> {
        let mut lines = fs::read_to_string(self.directory.join(COMMITS_FILE)).unwrap_or_default();
        for commit in commits {
            lines.push_str(&commit.to_string());
            lines.push('\n');
        }
        fs::write(self.directory.join(COMMITS_FILE), lines)
    }

    /// Commits that were fetched with all their files, newest last.
    pub(super) fn known_commits(&self) -> Vec<ObjectId> {
        fs::read_to_string(self.directory.join(COMMITS_FILE))
            .unwrap_or_default()
            .lines()
            .filter_map(|line| ObjectId::from_hex(line.as_bytes()).ok())
            .collect()
    }

    /// Keeps all caches together within their size.
    pub(super) fn evict_others(&self) {
        self.caches.evict();
    }

    fn pack_count(&self) -> usize {
        fs::read_dir(self.packs()).map_or(0, |entries| {
            entries
                .flatten()
                .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "pack"))
                .count()
        })
    }
}

/// A directory name for a key: readable, and unique through a digest.
fn file_name(key: &str) -> String {
    let readable: String = key
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character } else { '-' })
        .take(60)
        .collect();
    format!("{readable}-{}", &hex::encode(Sha256::digest(key.as_bytes()))[..16])
}

fn size_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
