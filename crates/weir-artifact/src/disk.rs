//! A directory of the machine as a file tree. Nothing is ever written.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_base::tree::{Entry, Files, Kind};

/// The file system below a directory, read when it is asked for. Symbolic links are followed wherever they lead.
#[derive(Debug, Clone)]
pub struct DiskTree {
    root: PathBuf,
}

impl DiskTree {
    /// The files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The whole file system.
    pub fn whole() -> Self {
        Self::new("/")
    }

    /// The path of a directory of the machine in [`DiskTree::whole`]; `None` if there is no such directory.
    pub fn directory(path: &Path) -> Option<String> {
        let absolute = fs::canonicalize(path).ok().filter(|path| path.is_dir())?;
        absolute.to_str().map(|path| path.trim_start_matches('/').to_owned())
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }
}

impl Files for DiskTree {
    fn kind(&self, path: &str) -> Option<Kind> {
        let metadata = fs::metadata(self.path(path)).ok()?;
        if metadata.is_dir() { Some(Kind::Directory) } else { metadata.is_file().then_some(Kind::File) }
    }

    fn read(&self, path: &str) -> Option<Bytes> {
        fs::read(self.path(path)).ok().map(Bytes::from)
    }

    fn list(&self, path: &str) -> Option<Vec<Entry>> {
        let mut entries: Vec<Entry> = fs::read_dir(self.path(path))
            .ok()?
            .filter_map(Result::ok)
            .filter_map(|entry| {
                let directory = fs::metadata(entry.path()).ok()?.is_dir();
                Some(Entry { name: entry.file_name().into_string().ok()?, directory })
            })
            .collect();
        entries.sort();
        Some(entries)
    }

    /// What a link leads to; `None` if that is outside of the tree.
    fn real(&self, path: &str) -> Option<String> {
        let real = fs::canonicalize(self.path(path)).ok()?;
        let root = fs::canonicalize(&self.root).ok()?;
        real.strip_prefix(root).ok()?.to_str().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("tree");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/x.yaml"), "1").unwrap();
        symlink("a", root.join("link")).unwrap();
        symlink("../..", root.join("a/out")).unwrap();
        symlink("nothing", root.join("gone")).unwrap();
        let tree = DiskTree::new(&root);
        assert_eq!(tree.read("link/x.yaml").as_deref(), Some(b"1".as_slice()));
        assert_eq!(tree.real("link/b").as_deref(), Some("a/b"));
        assert_eq!(tree.real("a/out"), None);
        assert_eq!(tree.kind("gone"), None);
        let names: Vec<String> = tree.list("").unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["a", "link"]);
    }
}
