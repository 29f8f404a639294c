//! The file system of this machine as the tree charts are loaded from. Nothing is ever written.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_base::tree::{Entry, Files, Kind};

/// All files of the machine; paths start at its root.
pub(super) struct Machine;

fn full(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

impl Files for Machine {
    fn kind(&self, path: &str) -> Option<Kind> {
        let metadata = fs::metadata(full(path)).ok()?;
        if metadata.is_dir() { Some(Kind::Directory) } else { metadata.is_file().then_some(Kind::File) }
    }

    fn read(&self, path: &str) -> Option<Bytes> {
        fs::read(full(path)).ok().map(Bytes::from)
    }

    fn list(&self, path: &str) -> Option<Vec<Entry>> {
        let entries = fs::read_dir(full(path)).ok()?.filter_map(Result::ok).filter_map(|entry| {
            // Only a link says nothing about what it leads to.
            let kind = entry.file_type().ok()?;
            let directory = if kind.is_symlink() { entry.path().is_dir() } else { kind.is_dir() };
            Some(Entry { name: entry.file_name().into_string().ok()?, directory })
        });
        let mut entries: Vec<Entry> = entries.collect();
        entries.sort();
        Some(entries)
    }
}
