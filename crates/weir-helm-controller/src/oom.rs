//! Ends the process in order before the kernel kills it for want of memory.
//!
//! A release that is being made when a process is killed stays `pending` until the next run unlocks it; a process that
//! is told to stop lets short actions end, gives the lease back and is started again with fresh memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limit and use of the memory of a container, in control groups of version 2 and of version 1.
const PLACES: [(&str, &str); 2] =
    [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")];
const ROOT: &str = "/sys/fs/cgroup";
/// Version 1 has no word for "no limit": it gives a number that no machine has.
const UNLIMITED_BYTES_MIN: u64 = 1 << 60;

/// Why the memory cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OomError {
    /// There are no files of control groups where they are looked for.
    #[error("failed to find the memory limit of the container below '{0}'")]
    NotFound(PathBuf),
    /// A file cannot be read.
    #[error("failed to read '{path}'")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file holds no number.
    #[error("failed to parse '{path}': {text:?} is not a number of bytes")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What it holds.
        text: String,
    },
}

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watch {
    current: PathBuf,
    limit_bytes: u64,
    interval: Duration,
}

impl Watch {
    /// Watches the files named, or those found; ends the process at `percent` of the limit. `None` if there is no limit.
    ///
    /// # Errors
    /// There is nothing to read, or it is no number.
    pub(crate) fn new(
        max_path: &str,
        current_path: &str,
        percent: u8,
        interval: Duration,
    ) -> Result<Option<Self>, OomError> {
        Self::below(Path::new(ROOT), max_path, current_path, percent, interval)
    }

    fn below(
        root: &Path,
        max_path: &str,
        current_path: &str,
        percent: u8,
        interval: Duration,
    ) -> Result<Option<Self>, OomError> {
        let found = PLACES.iter().find(|(max, _)| root.join(max).exists());
        let path = |given: &str, found: Option<&str>| match (given, found) {
            ("", Some(found)) => Ok(root.join(found)),
            ("", None) => Err(OomError::NotFound(root.to_owned())),
            (given, _) => Ok(PathBuf::from(given)),
        };
        let max = path(max_path, found.map(|(max, _)| *max))?;
        let current = path(current_path, found.map(|(_, current)| *current))?;
        let Some(max_bytes) = bytes(&max)? else { return Ok(None) };
        bytes(&current)?;
        let limit_bytes = max_bytes / 100 * u64::from(percent) + max_bytes % 100 * u64::from(percent) / 100;
        Ok(Some(Self { current, limit_bytes, interval }))
    }

    /// Ends when the memory in use has reached the threshold.
    pub(crate) async fn reached(&self) {
        let mut looks = tokio::time::interval(self.interval);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            match bytes(&self.current) {
                Ok(Some(used)) if used >= self.limit_bytes => {
                    tracing::info!(
                        used,
                        threshold = self.limit_bytes,
                        "memory in use has reached the threshold, shutting down"
                    );
                    return;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(
                        error = weir_base::error::chain(&error),
                        "unable to read the memory in use"
                    );
                }
            }
        }
    }
}

/// The number in a file; `None` if it says that there is no limit.
fn bytes(path: &Path) -> Result<Option<u64>, OomError> {
    let text = fs::read_to_string(path).map_err(|source| OomError::Read { path: path.to_owned(), source })?;
    let text = text.trim();
    if text == "max" {
        return Ok(None);
    }
    match text.parse() {
        Ok(bytes) if bytes >= UNLIMITED_BYTES_MIN => Ok(None),
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => Err(OomError::Parse { path: path.to_owned(), text: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(500);

    fn files(entries: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in entries {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn limits_of_both_versions_are_found() {
        #[track_caller]
        fn check(entries: &[(&str, &str)], percent: u8, expected: Option<u64>) {
            let directory = files(entries);
            let watch = Watch::below(directory.path(), "", "", percent, INTERVAL).unwrap();
            assert_eq!(watch.map(|watch| watch.limit_bytes), expected);
        }
        check(&[("memory.max", "1000\n"), ("memory.current", "1\n")], 95, Some(950));
        check(&[("memory.max", "1073741824\n"), ("memory.current", "1\n")], 100, Some(1 << 30));
        check(&[("memory.max", "max\n"), ("memory.current", "1\n")], 95, None);
        let first = [("memory/memory.limit_in_bytes", "200"), ("memory/memory.usage_in_bytes", "1")];
        check(&first, 50, Some(100));
        let unlimited =
            [("memory/memory.limit_in_bytes", "9223372036854771712"), ("memory/memory.usage_in_bytes", "1")];
        check(&unlimited, 50, None);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let empty = files(&[]);
        let error = Watch::below(empty.path(), "", "", 95, INTERVAL).unwrap_err();
        assert!(matches!(error, OomError::NotFound(_)), "{error}");
        let odd = files(&[("memory.max", "a lot"), ("memory.current", "1")]);
        let error = Watch::below(odd.path(), "", "", 95, INTERVAL).unwrap_err();
        assert!(error.to_string().ends_with("\"a lot\" is not a number of bytes"), "{error}");
        let named = files(&[("limit", "100")]);
        let limit = named.path().join("limit").display().to_string();
        let gone = named.path().join("gone").display().to_string();
        let error = Watch::below(empty.path(), &limit, &gone, 95, INTERVAL).unwrap_err();
        assert!(matches!(error, OomError::Read { .. }), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_the_threshold_is_reached() {
        let directory = files(&[("memory.max", "1000"), ("memory.current", "949")]);
        let watch = Watch::below(directory.path(), "", "", 95, INTERVAL).unwrap().unwrap();
        let early = tokio::time::timeout(Duration::from_mins(1), watch.reached()).await;
        assert!(early.is_err());
        // A look that fails is no reason to end.
        fs::write(directory.path().join("memory.current"), "?").unwrap();
        assert!(tokio::time::timeout(Duration::from_mins(1), watch.reached()).await.is_err());
        fs::write(directory.path().join("memory.current"), "950").unwrap();
        tokio::time::timeout(Duration::from_mins(1), watch.reached()).await.unwrap();
    }
}
