//! From a layer to a stored artifact: blocking work.

use std::collections::BTreeMap;
use std::io;

use weir_api::Artifact;
use weir_api::source::LayerOperation;
use weir_artifact::storage::{Storage, StorageError};
use weir_artifact::unpack::{Limits, Symlinks, unpack};
use weir_source::ignore;

use super::error::Error;
use crate::source::storage::{self, StoreError};

/// What to store.
pub(super) struct Order {
    pub(super) path: String,
    pub(super) revision: String,
    pub(super) layer: bytes::Bytes,
    pub(super) operation: LayerOperation,
    pub(super) ignore: Option<String>,
    pub(super) annotations: BTreeMap<String, String>,
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

/// Unpacks and archives the layer, or copies it, and stores the result.
pub(super) fn publish(storage: &Storage, order: Order) -> Result<Published, Error> {
    let Order { path, revision, layer, operation, ignore, annotations } = order;
    let stored = match operation {
        LayerOperation::Copy => storage::store(storage, path, revision, |output| output.write_all(&layer)),
        LayerOperation::Extract => {
            let tree = unpack(&layer, Limits::default(), Symlinks::Skip).map_err(Error::Extract)?;
            drop(layer);
            let rules = ignore::rules_of(&tree, ignore.as_deref());
            storage::store(storage, path, revision, |output| ignore::write_archive(&tree, &rules, output))
        }
    };
    let mut artifact = stored.map_err(|error: StoreError<io::Error>| match error {
        StoreError::CreateDirectory(error) => Error::CreateDirectory(error),
        StoreError::Lock(error) => Error::Lock(error),
        StoreError::Write(error) => Error::Store(error),
        StoreError::Content(error) => Error::Archive(error),
    })?;
    artifact.metadata = annotations;
    let (url, not_linked) = match storage.link_latest(&artifact.path, "latest.tar.gz") {
        Ok(url) => (Some(url), None),
        Err(error) => (None, Some(error)),
    };
    Ok(Published { artifact, url, not_linked })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use weir_artifact::archive::archive_tree;
    use weir_artifact::digest::Algorithm;
    use weir_artifact::storage::Options;
    use weir_base::clock::SystemClock;
    use weir_base::tree::MemoryTree;

    use super::*;

    #[test]
    fn layers_are_archived_anew_or_copied() {
        let directory = tempfile::TempDir::new().unwrap();
        let options = Options {
            root: directory.path().to_owned(),
            host: "sc.".to_owned(),
            retention_ttl: Duration::from_mins(1),
            retention_records: 2,
            algorithm: Algorithm::Sha256,
        };
        let storage = Storage::open(options, Arc::new(SystemClock)).unwrap();
        let tree: MemoryTree =
            [("a.yaml", "1"), ("logo.png", "2"), (".sourceignore", "*.png")].into_iter().collect();
        let layer = archive_tree(&tree).unwrap();
        let order = |operation, layer: &bytes::Bytes| Order {
            path: "ocirepository/apps/r/sha256:1.tar.gz".to_owned(),
            revision: "latest@sha256:1".to_owned(),
            layer: layer.clone(),
            operation,
            ignore: Some("!logo.png\nb".to_owned()),
            annotations: [("a".to_owned(), "b".to_owned())].into(),
        };
        let published = publish(&storage, order(LayerOperation::Copy, &layer)).unwrap();
        assert_eq!(published.artifact.digest, Algorithm::Sha256.digest(&layer).to_string());
        assert_eq!(published.artifact.metadata["a"], "b");
        assert_eq!(published.url.as_deref(), Some("http://sc./ocirepository/apps/r/latest.tar.gz"));
        let published = publish(&storage, order(LayerOperation::Extract, &layer)).unwrap();
        let stored = storage.read(&published.artifact.path).unwrap();
        let stored = unpack(&stored, Limits::default(), Symlinks::Refuse).unwrap();
        assert_eq!(
            stored.files().map(|(path, _)| path).collect::<Vec<_>>(),
            [".sourceignore", "a.yaml", "logo.png"]
        );
        let broken = bytes::Bytes::from_static(b"no archive");
        let error = publish(&storage, order(LayerOperation::Extract, &broken)).unwrap_err();
        assert!(matches!(error, Error::Extract(_)), "{error}");
    }
}
