//! From a checkout to a stored artifact: blocking work.

use weir_api::Artifact;
use weir_artifact::storage::Storage;
use weir_artifact::unpack::{Limits, Symlinks, unpack};
use weir_source::git::{Checkout, IncludeError};

use super::error::{ArchiveFailure, CopyError, StorageFailure};
use super::observe::Included;
use crate::source::storage::{self, StoreError};

/// What to store.
pub(super) struct Order {
    pub(super) path: String,
    pub(super) checkout: Checkout,
    pub(super) includes: Vec<Included>,
    pub(super) ignore: Option<String>,
    pub(super) sparse: Vec<String>,
}

/// Completes the files, archives and stores them.
pub(super) fn publish(storage: &Storage, order: Order) -> Result<(Artifact, Vec<Included>), StorageFailure> {
    let Order { path, mut checkout, includes, ignore, sparse } = order;
    if !sparse.is_empty() {
        checkout.worktree.keep_only(&sparse);
    }
    for include in &includes {
        place(storage, &mut checkout, include)?;
    }
    let rules = checkout
        .worktree
        .rules(ignore.as_deref())
        .map_err(|error| StorageFailure::Ignore(Box::new(error)))?;
    let revision = checkout.revision.clone();
    let artifact =
        storage::store(storage, path, revision, |output| checkout.worktree.write_archive(&rules, output))
            .map_err(|error| match error {
                StoreError::CreateDirectory(error) => StorageFailure::CreateDirectory(error),
                StoreError::Lock(error) => StorageFailure::Lock(error),
                StoreError::Write(error) => StorageFailure::Archive(ArchiveFailure::Storage(error)),
                StoreError::Content(error) => StorageFailure::Archive(ArchiveFailure::Content(error)),
            })?;
    Ok((artifact, includes))
}

fn place(storage: &Storage, checkout: &mut Checkout, include: &Included) -> Result<(), StorageFailure> {
    let name = &include.spec.repository.name;
    let from = include.spec.from_path.as_deref().unwrap_or_default();
    let to = include.spec.to_path.as_deref().filter(|path| !path.is_empty()).unwrap_or(name);
    let failed = |source| StorageFailure::CopyInclude {
        name: name.clone(),
        from: from.to_owned(),
        to: to.to_owned(),
        source,
    };
    let archive = storage.read(&include.artifact.path).map_err(|error| failed(CopyError::Read(error)))?;
    let tree = unpack(&archive, Limits::default(), Symlinks::Skip)
        .map_err(|error| failed(CopyError::Unpack(error)))?;
    checkout.worktree.include(&tree, from, to).map_err(|error| match error {
        IncludeError::IllegalPath(_) => StorageFailure::IllegalInclude(error),
        IncludeError::NotFound(_) | IncludeError::Occupied(_) => failed(CopyError::Place(error)),
    })
}
