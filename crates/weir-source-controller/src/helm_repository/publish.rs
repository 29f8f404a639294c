//! From an index to a stored artifact: blocking work.

use std::io;

use weir_api::Artifact;
use weir_artifact::storage::{Storage, StorageError};
use weir_source::helm::Index;

use super::error::Error;
use crate::source::storage::{self, StoreError};

/// What to store.
pub(super) struct Order {
    pub(super) path: String,
    pub(super) revision: String,
    pub(super) index: Index,
}

/// A stored artifact.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) artifact: Artifact,
    /// The address of the link to it.
    pub(super) url: Option<String>,
    /// Why there is none.
    pub(super) not_linked: Option<StorageError>,
}

/// Writes the index as JSON.
pub(super) fn publish(storage: &Storage, order: &Order) -> Result<Published, Error> {
    let stored = storage::store(storage, order.path.clone(), order.revision.clone(), |output| {
        order.index.write(output)
    });
    let artifact = stored.map_err(|error: StoreError<io::Error>| match error {
        StoreError::CreateDirectory(error) => Error::CreateDirectory(error),
        StoreError::Lock(error) => Error::Lock(error),
        StoreError::Write(error) => Error::Store(error),
        StoreError::Content(error) => Error::Write(error),
    })?;
    let (url, not_linked) = match storage.link_latest(&artifact.path, "index.yaml") {
        Ok(url) => (Some(url), None),
        Err(error) => (None, Some(error)),
    };
    Ok(Published { artifact, url, not_linked })
}
