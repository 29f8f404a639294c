//! What happens to the managed objects when their Kustomization is deleted.

use weir_api::kustomize::{DeletionPolicy, Kustomization};
use weir_apply::change::Action;
use weir_apply::health::wait_gone;
use weir_apply::object::ObjectRef;
use weir_apply::prune::prune;
use weir_runtime::{Notice, Severity};

use crate::decide;
use crate::error::Cause;
use crate::progress::Progress;
use crate::reconcile::KustomizationReconciler;
use crate::status::last_reason;

/// Deletes the managed objects if the deletion policy says so.
///
/// # Errors
/// When the target cluster cannot be reached or an object cannot be deleted; the Kustomization then
/// stays, and the deletion is tried again.
pub async fn finalize<P: Progress>(
    controller: &KustomizationReconciler,
    progress: &P,
    object: &Kustomization,
) -> Result<(), Cause> {
    let inventory = decide::inventory(object);
    if !decide::deletes_objects(&object.spec) || inventory.objects.is_empty() {
        return Ok(());
    }
    let tell = |severity, message: String| {
        progress.notice(Notice::new(severity, last_reason(object), message));
    };
    let account = decide::service_account(&object.spec, &controller.settings);
    if !account.is_empty() {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let account = ObjectRef::core("ServiceAccount", namespace, account);
        if !matches!(controller.clusters.local().get(&account).await, Ok(Some(_))) {
            // Without the account nothing can be deleted, and the Kustomization would stay for ever.
            let subjects: Vec<String> = inventory.objects.iter().map(ObjectRef::to_string).collect();
            tell(Severity::Error, format!("unable to prune objects: \n{}", subjects.join("\n")));
            return Ok(());
        }
    }
    let slow = &controller.slow;
    let cluster = controller.target(progress, object).await?;
    let owner = decide::owner(object);
    let pruned = slow.patiently(progress, prune(&*cluster, &owner, inventory.objects)).await;
    pruned.result().map_err(Cause::Finalize)?;
    if !pruned.changes.entries.is_empty() {
        tell(Severity::Info, pruned.changes.all_lines());
    }
    if object.spec.deletion_policy == Some(DeletionPolicy::WaitForTermination) {
        let deleted = pruned.changes.entries.iter().filter(|entry| entry.action == Action::Deleted);
        let deleted: Vec<ObjectRef> = deleted.map(|entry| entry.object.clone()).collect();
        let timeout = decide::timeout(&object.spec);
        let gone = progress.without_worker(wait_gone(&*cluster, &deleted, timeout)).await;
        if let Err(error) = gone {
            tell(Severity::Error, format!("failed to wait for resources termination: {error}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
