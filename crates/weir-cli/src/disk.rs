//! A file put over the files of the machine.

use bytes::Bytes;
use weir_base::tree::{Entry, Files, Kind};

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

    fn real(&self, path: &str) -> Option<String> {
        if path == self.path { Some(path.to_owned()) } else { self.tree.real(path) }
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
