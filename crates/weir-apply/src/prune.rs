//! Deletes what an owner no longer wants, and nothing else.

use crate::change::{Action, ChangeSet};
use crate::cluster::{Cluster, ClusterError};
use crate::object::ObjectRef;
use crate::order::apply_order;
use crate::policy::{self, Owner};

/// What pruning did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// What happened to each object, in order.
    pub changes: ChangeSet,
    /// What could not be deleted, to be tried again.
    pub remaining: Vec<ObjectRef>,
    /// Why.
    pub errors: Vec<PruneFailure>,
}

/// One object that could not be deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PruneFailure {
    /// It could not be read.
    #[error("{object} query failed: {source}")]
    Query {
        /// The object.
        object: ObjectRef,
        /// The answer.
        source: ClusterError,
    },
    /// It could not be deleted.
    #[error("{object} delete failed: {source}")]
    Delete {
        /// The object.
        object: ObjectRef,
        /// The answer.
        source: ClusterError,
    },
}

/// Some objects could not be deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("delete failed, errors: {};", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(";"))]
pub struct PruneError(pub Vec<PruneFailure>);

impl Pruned {
    /// The failures as one error.
    ///
    /// # Errors
    /// When something could not be deleted.
    pub fn result(&self) -> Result<(), PruneError> {
        if self.errors.is_empty() { Ok(()) } else { Err(PruneError(self.errors.clone())) }
    }
}

/// Deletes `stale` objects in reverse apply order.
///
/// An object is left alone (`skipped`) unless its live labels name exactly this owner, and when it
/// asks to be kept. What is already gone, or whose kind is no longer served, counts as deleted.
/// Every object is tried, whatever happens to the others. Deletion is not awaited.
///
/// # Cancellation
/// Objects not yet looked at stay stale and are found again by the next run.
pub async fn prune(cluster: &dyn Cluster, owner: &Owner, mut stale: Vec<ObjectRef>) -> Pruned {
    stale.sort_by(|left, right| apply_order(right, left));
    let mut pruned = Pruned::default();
    for object in stale {
        match delete_owned(cluster, owner, &object).await {
            Ok(action) => pruned.changes.push(object, action),
            Err(failure) => {
                pruned.changes.push(object.clone(), Action::Unknown);
                pruned.remaining.push(object);
                pruned.errors.push(failure);
            }
        }
    }
    pruned
}

async fn delete_owned(
    cluster: &dyn Cluster,
    owner: &Owner,
    object: &ObjectRef,
) -> Result<Action, PruneFailure> {
    let live = match cluster.get(object).await {
        Ok(Some(live)) => live,
        Ok(None) => return Ok(Action::Deleted),
        Err(error) if error.is_no_match() => return Ok(Action::Deleted),
        Err(source) => {
            return Err(PruneFailure::Query { object: object.clone(), source });
        }
    };
    if !owner.owns(&live) || policy::keeps(&owner.group, &live) {
        return Ok(Action::Skipped);
    }
    match cluster.delete(object).await {
        Ok(()) => Ok(Action::Deleted),
        Err(error) if error.is_not_found() => Ok(Action::Deleted),
        Err(source) => Err(PruneFailure::Delete { object: object.clone(), source }),
    }
}

#[cfg(test)]
mod tests;
