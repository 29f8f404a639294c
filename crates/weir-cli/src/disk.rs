//! The files of the machine as a tree for the build engine. Nothing is ever written.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_base::tree::{Entry, Files, Kind};

/// The file system below a directory.
pub(crate) struct Disk {
    root: PathBuf,
}

impl Disk {
    /// The whole file system: kustomizations refer to directories beside their own.
    pub(crate) fn whole() -> Self {
        Self { root: PathBuf::from("/") }
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }
}

impl Files for Disk {
    fn kind(&self, path: &str) -> Option<Kind> {
        let metadata = fs::metadata(self.path(path)).ok()?;
        if metadata.is_dir() {
            Some(Kind::Directory)
        } else if metadata.is_file() {
            Some(Kind::File)
        } else {
            None
        }
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
}

/// A tree with one file put over it.
pub(crate) struct WithFile<'a> {
    tree: &'a dyn Files,
    path: String,
    content: Bytes,
}

impl<'a> WithFile<'a> {
    /// `tree` with `content` at `path`; its directory must exist.
    pub(crate) fn new(tree: &'a dyn Files, path: String, content: String) -> Self {
        Self { tree, path, content: Bytes::from(content) }
    }
}

impl Files for WithFile<'_> {
    fn kind(&self, path: &str) -> Option<Kind> {
        if path == self.path { Some(Kind::File) } else { self.tree.kind(path) }
    }

    fn read(&self, path: &str) -> Option<Bytes> {
        if path == self.path { Some(self.content.clone()) } else { self.tree.read(path) }
    }

    fn list(&self, path: &str) -> Option<Vec<Entry>> {
        let mut entries = self.tree.list(path)?;
        let (directory, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        if path == directory {
            let entry = Entry { name: name.to_owned(), directory: false };
            if let Err(position) = entries.binary_search(&entry) {
                entries.insert(position, entry);
            }
        }
        Some(entries)
    }
}

/// The path of a directory of the machine in [`Disk::whole`]; none if there is no such directory.
pub(crate) fn directory(path: &Path) -> Option<String> {
    let absolute = fs::canonicalize(path).ok().filter(|path| path.is_dir())?;
    absolute.to_str().map(|path| path.trim_start_matches('/').to_owned())
}
