//! From objects to a stored artifact: blocking work.

use std::io;

use weir_api::Artifact;
use weir_artifact::storage::{Storage, StorageError};
use weir_base::tree::MemoryTree;
use weir_source::ignore::{Rules, write_archive};

use super::error::Error;
use crate::source::storage::{self, StoreError};

/// A stored artifact.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) artifact: Artifact,
    /// The address of the link to it.
    pub(super) url: Option<String>,
    /// Why there is none.
    pub(super) not_linked: Option<StorageError>,
}

/// Archives all files, stores the archive and points the link to the latest one at it.
pub(super) fn publish(
    storage: &Storage,
    path: String,
    revision: String,
    tree: &MemoryTree,
) -> Result<Published, Error> {
    let everything = Rules::default();
    let stored = storage::store(storage, path, revision, |output| write_archive(tree, &everything, output));
    let artifact = stored.map_err(|error: StoreError<io::Error>| match error {
        StoreError::CreateDirectory(error) => Error::CreateDirectory(error),
        StoreError::Lock(error) => Error::Lock(error),
        StoreError::Write(error) => Error::Store(error),
        StoreError::Content(error) => Error::Archive(error),
    })?;
    let (url, not_linked) = match storage.link_latest(&artifact.path, "latest.tar.gz") {
        Ok(url) => (Some(url), None),
        Err(error) => (None, Some(error)),
    };
    Ok(Published { artifact, url, not_linked })
}
