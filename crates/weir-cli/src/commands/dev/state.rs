//! What a development cluster leaves on disk, and how other invocations find it.

use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::DevError;

/// The directory of one development cluster.
#[derive(Debug, Clone)]
pub(crate) struct State {
    root: PathBuf,
}

/// Proof that this process is the one that runs the cluster.
pub(crate) struct Owned {
    file: File,
}

impl State {
    /// The directory given, or the one of this user.
    pub(crate) fn new(given: Option<&Path>) -> Result<Self, DevError> {
        let root = match given {
            Some(path) => {
                std::path::absolute(path).map_err(|source| DevError::State { path: path.into(), source })?
            }
            None => default_root(|name| std::env::var_os(name)).ok_or(DevError::NoHome)?,
        };
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub(crate) fn snapshot(&self) -> PathBuf {
        self.root.join("objects")
    }

    pub(crate) fn artifacts(&self) -> PathBuf {
        self.root.join("artifacts")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("controllers.log")
    }

    fn lock_path(&self) -> PathBuf {
        self.root.join("lock")
    }

    fn failed(&self, source: std::io::Error) -> DevError {
        DevError::State { path: self.root.clone(), source }
    }

    /// Makes the directory and takes it for this process.
    ///
    /// # Errors
    /// Another process has it, or it cannot be written.
    pub(crate) fn take(&self) -> Result<Owned, DevError> {
        fs::create_dir_all(self.artifacts()).map_err(|source| self.failed(source))?;
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(self.lock_path())
            .map_err(|source| self.failed(source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DevError::Running { pid: read_pid(&mut file) }),
            Err(TryLockError::Error(source)) => return Err(self.failed(source)),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(std::process::id().to_string().as_bytes()))
            .map_err(|source| self.failed(source))?;
        Ok(Owned { file })
    }

    /// The process that runs the cluster, if one does.
    pub(crate) fn running(&self) -> Result<Option<i32>, DevError> {
        let mut file = match File::options().read(true).write(true).open(self.lock_path()) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.failed(source)),
        };
        match file.try_lock() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(read_pid(&mut file)),
            Err(TryLockError::Error(source)) => Err(self.failed(source)),
        }
    }

    /// Asks the process that runs the cluster to stop.
    pub(crate) fn stop(&self, pid: i32) -> Result<(), DevError> {
        let pid = Pid::from_raw(pid).ok_or(DevError::NotRunning)?;
        kill_process(pid, Signal::TERM).map_err(|source| self.failed(source.into()))
    }

    /// Writes the kubeconfig, readable for this user alone.
    pub(crate) fn write_kubeconfig(&self, text: &str) -> Result<(), DevError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.kubeconfig();
        let result = File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        result.map_err(|source| DevError::State { path, source })
    }

    /// Forgets all objects and artifacts.
    pub(crate) fn forget(&self) -> Result<(), DevError> {
        let _owned = self.take()?;
        match fs::remove_file(self.snapshot()) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => return Err(self.failed(source)),
            _ => {}
        }
        fs::remove_dir_all(self.artifacts()).map_err(|source| self.failed(source))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // The lock goes with the file; an empty file names no process.
        let _ = self.file.set_len(0);
    }
}

fn read_pid(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    text.trim().parse().ok()
}

fn default_root(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("weir/dev"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_owns_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::new(Some(directory.path())).unwrap();
        assert_eq!(state.running().unwrap(), None);
        let owned = state.take().unwrap();
        assert_eq!(state.running().unwrap(), Some(std::process::id().cast_signed()));
        assert!(matches!(state.take(), Err(DevError::Running { pid: Some(_) })));
        assert!(matches!(state.forget(), Err(DevError::Running { .. })));
        drop(owned);
        assert_eq!(state.running().unwrap(), None);
        state.forget().unwrap();
        assert!(!state.artifacts().exists());
    }

    #[test]
    fn the_directory_is_that_of_the_user() {
        let root = |list: &[(&str, &str)]| {
            default_root(|name| {
                list.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
            })
        };
        assert_eq!(root(&[("HOME", "/h")]).unwrap(), Path::new("/h/.local/state/weir/dev"));
        assert_eq!(root(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]).unwrap(), Path::new("/s/weir/dev"));
        assert_eq!(root(&[]), None);
    }
}
