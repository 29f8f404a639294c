//! The storage step of every run, and the publication of artifacts.

use std::io::Write;
use std::sync::Arc;

use weir_api::Artifact;
use weir_artifact::storage::{PublishError, Storage, StorageError, VerifyError};
use weir_base::error::chain;
use weir_runtime::{Notice, Object, Run, Severity};

use super::{Source, status};

/// Why the storage step failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A damaged artifact could not be removed.
    #[error("failed to remove artifact after digest mismatch")]
    Damaged(#[source] StorageError),
    /// Progress could not be written.
    #[error(transparent)]
    Publish(#[from] weir_runtime::PublishError),
    /// The process shuts down.
    #[error("the operation was aborted")]
    Aborted,
}

/// Why the artifacts of a deleted object were not removed.
#[derive(Debug)]
pub(crate) enum RemoveError {
    /// A file could not be removed.
    Storage(StorageError),
    /// The process shuts down.
    Aborted,
}

/// Removes all artifacts of an object that is being deleted, and what points to them.
pub(crate) async fn remove_all<K: Source + Object>(
    run: &Run<K>,
    storage: &Arc<Storage>,
    directory: String,
) -> Result<(), RemoveError> {
    let storage = Arc::clone(storage);
    let removed = tokio::task::spawn_blocking(move || storage.remove_directory(&directory))
        .await
        .map_err(|_| RemoveError::Aborted)?
        .map_err(RemoveError::Storage)?;
    if removed {
        run.notice(&Notice::new(
            Severity::Trace,
            "GarbageCollectionSucceeded",
            "garbage collected artifacts for deleted resource",
        ));
    }
    run.update(K::forget_artifact);
    Ok(())
}

/// Why an artifact was not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError<E: std::error::Error + 'static> {
    /// The directory of the object could not be made.
    #[error("failed to create artifact directory")]
    CreateDirectory(#[source] StorageError),
    /// The lock could not be taken.
    #[error("failed to acquire lock for artifact")]
    Lock(#[source] StorageError),
    /// The file could not be written.
    #[error(transparent)]
    Write(StorageError),
    /// The content could not be made.
    #[error(transparent)]
    Content(E),
}

struct Checked {
    collected: usize,
    present: bool,
    damage: Option<VerifyError>,
    not_removed: Option<StorageError>,
}

/// Collects what retention lets go and makes sure that the advertised artifact is what it says.
/// Without one, says so at once.
pub(crate) async fn check<K: Source + Object>(
    run: &Run<K>,
    storage: &Arc<Storage>,
) -> Result<(), CheckError> {
    let Some(artifact) = run.snapshot().artifact().cloned() else {
        run.update(|working| status::building(working, "building artifact", run.now()));
        run.show_progress();
        return Ok(());
    };
    let blocking = Arc::clone(storage);
    let checked = tokio::task::spawn_blocking(move || check_file(&blocking, &artifact))
        .await
        .map_err(|_| CheckError::Aborted)?;
    if checked.collected > 0 {
        let message = format!("garbage collected {} artifacts", checked.collected);
        run.notice(&Notice::new(Severity::Trace, "GarbageCollectionSucceeded", message));
    }
    if let Some(damage) = &checked.damage {
        let message = format!("failed to verify integrity of artifact: {}", chain(damage));
        run.notice(&Notice::new(Severity::Error, "ArtifactVerificationFailed", message));
    }
    if let Some(error) = checked.not_removed {
        return Err(CheckError::Damaged(error));
    }
    if checked.present {
        run.update(|working| {
            if let Some(artifact) = working.artifact_mut() {
                artifact.url = storage.url(&artifact.path);
            }
        });
        return Ok(());
    }
    run.update(|working| {
        working.forget_artifact();
        status::building(working, "building artifact: disappeared from storage", run.now());
    });
    Ok(run.publish().await?)
}

fn check_file(storage: &Storage, artifact: &Artifact) -> Checked {
    // What cannot be collected now is tried again at the next run.
    let collected = storage.collect_garbage(&artifact.path).unwrap_or_default();
    let mut checked = Checked { collected, present: false, damage: None, not_removed: None };
    if storage.exists(&artifact.path) {
        match storage.verify(&artifact.path, &artifact.digest) {
            Ok(()) => checked.present = true,
            Err(damage) => {
                checked.damage = Some(damage);
                checked.not_removed = storage.remove(&artifact.path).err();
            }
        }
    }
    checked
}

/// Stores what `write` produces under `path`. Blocks.
pub(crate) fn store<E: std::error::Error + 'static>(
    storage: &Storage,
    path: String,
    revision: String,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<Artifact, StoreError<E>> {
    storage.create_directory_for(&path).map_err(StoreError::CreateDirectory)?;
    let _lock = storage.lock(&path).map_err(StoreError::Lock)?;
    let stored = storage.publish(&path, write).map_err(|error| match error {
        PublishError::Storage(error) => StoreError::Write(error),
        PublishError::Content(error) => StoreError::Content(error),
    })?;
    Ok(Artifact {
        digest: stored.digest.to_string(),
        last_update_time: stored.written_at.into(),
        metadata: std::collections::BTreeMap::new(),
        revision,
        size: i64::try_from(stored.size_bytes).ok(),
        url: storage.url(&path),
        path,
    })
}
