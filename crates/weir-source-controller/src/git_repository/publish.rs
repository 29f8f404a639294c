//! Blocking work on the storage.

use weir_api::artifact::Artifact;
use weir_artifact::storage::{PublishError, Storage, StorageError, VerifyError};
use weir_artifact::unpack::{Limits, Symlinks, unpack};
use weir_source::git::{Checkout, IncludeError};

use super::error::{ArchiveFailure, CopyError, StorageFailure};
use super::observe::Included;

/// What was found in the storage.
pub(super) struct Checked {
    /// How many superseded artifacts went.
    pub(super) collected: usize,
    /// Whether the artifact is there and what its digest says.
    pub(super) present: bool,
    /// Why it is not what its digest says; it is removed then.
    pub(super) damage: Option<VerifyError>,
    /// Why it was not removed.
    pub(super) not_removed: Option<StorageError>,
}

/// Collects garbage next to the artifact and verifies it.
pub(super) fn check(storage: &Storage, artifact: &Artifact) -> Checked {
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

/// What to store.
pub(super) struct Order {
    pub(super) path: String,
    pub(super) checkout: Checkout,
    pub(super) includes: Vec<Included>,
    pub(super) ignore: Option<String>,
    pub(super) sparse: Vec<String>,
}

/// A stored artifact with what it was made of.
pub(super) struct Published {
    pub(super) artifact: Artifact,
    pub(super) includes: Vec<Included>,
}

/// Completes the files, archives and stores them.
pub(super) fn publish(storage: &Storage, order: Order) -> Result<Published, StorageFailure> {
    let Order { path, mut checkout, includes, ignore, sparse } = order;
    if !sparse.is_empty() {
        checkout.worktree.keep_only(&sparse);
    }
    for include in &includes {
        place(storage, &mut checkout, include)?;
    }
    storage.create_directory_for(&path).map_err(StorageFailure::CreateDirectory)?;
    let _lock = storage.lock(&path).map_err(StorageFailure::Lock)?;
    let rules = checkout
        .worktree
        .rules(ignore.as_deref())
        .map_err(|error| StorageFailure::Ignore(Box::new(error)))?;
    let stored = storage.publish(&path, |output| checkout.worktree.write_archive(&rules, output)).map_err(
        |error| {
            StorageFailure::Archive(match error {
                PublishError::Storage(error) => ArchiveFailure::Storage(error),
                PublishError::Content(error) => ArchiveFailure::Content(error),
            })
        },
    )?;
    let artifact = Artifact {
        digest: stored.digest.to_string(),
        last_update_time: stored.written_at.into(),
        metadata: std::collections::BTreeMap::new(),
        revision: checkout.revision,
        size: i64::try_from(stored.size_bytes).ok(),
        url: storage.url(&path),
        path,
    };
    Ok(Published { artifact, includes })
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
