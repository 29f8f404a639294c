//! Takes a release away.

use serde_json::Value as Json;
use weir_apply::object::{self, ObjectRef};
use weir_apply::write::Propagation;

use super::objects::read_manifest;
use super::{ActionError, Context, WaitStrategy, apply, hooks, wait};
use crate::manifest::{self, HookEvent, Order, SplitRule};
use crate::release::{Record, Status};

/// The annotation with which objects ask to be kept.
pub(super) const POLICY: &str = "helm.sh/resource-policy";

/// How a release is uninstalled.
#[derive(Debug, Clone, Copy)]
pub struct Uninstall {
    /// Whether its records stay.
    pub keep_history: bool,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// What becomes of the objects that its objects own.
    pub propagation: Propagation,
}

/// Uninstalls the release; its last record as it is then.
///
/// # Errors
/// If objects cannot be deleted, the record says `uninstalling`; if something fails afterwards, it says
/// `uninstalled` or is gone.
pub async fn uninstall(context: &Context<'_>, options: Uninstall) -> Result<Record, ActionError> {
    let name = context.storage.release().to_owned();
    let history = context.storage.history().await?;
    let versions: Vec<i64> = history.iter().map(|record| record.version).collect();
    let Some(mut record) = history.into_iter().next_back() else {
        return Err(ActionError::NotFound(name));
    };
    if record.info.status == Status::Uninstalled {
        if options.keep_history {
            return Err(ActionError::AlreadyDeleted(name));
        }
        purge(context, &versions).await?;
        return Ok(record);
    }
    record.info.status = Status::Uninstalling;
    record.info.deleted = context.now();
    "Deletion in progress (or silently failed)".clone_into(&mut record.info.description);
    if !options.disable_hooks {
        Box::pin(hooks::run(context, &mut record, HookEvent::PreDelete, true, "")).await?;
    }
    context.record(&record).await;
    let objects = deletable(context, &record).await?;
    let failures = apply::delete_all(context, &objects, options.propagation).await;
    if !failures.is_empty() {
        (context.log)(format!("uninstall: Failed to delete release: {}", failures.join("; ")));
        return Err(ActionError::DeleteFailed(name));
    }
    let mut errors = Vec::new();
    if context.wait.strategy != WaitStrategy::HooksOnly
        && let Err(error) = wait::gone(context, &objects).await
    {
        errors.push(error.to_string());
    }
    if !options.disable_hooks
        && let Err(error) = Box::pin(hooks::run(context, &mut record, HookEvent::PostDelete, true, "")).await
    {
        errors.push(error.to_string());
    }
    record.info.status = Status::Uninstalled;
    "Uninstallation complete".clone_into(&mut record.info.description);
    if options.keep_history {
        context.record(&record).await;
        supersede_others(context, &record).await?;
    } else if let Err(error) = purge(context, &versions).await {
        errors.push(format!("uninstall: Failed to purge the release: {error}"));
    }
    if errors.is_empty() { Ok(record) } else { Err(ActionError::Uninstall(errors)) }
}

async fn supersede_others(context: &Context<'_>, record: &Record) -> Result<(), ActionError> {
    for mut other in context.storage.history().await? {
        if other.info.status == Status::Deployed && other.version != record.version {
            other.info.status = Status::Superseded;
            context.record(&other).await;
        }
    }
    Ok(())
}

async fn purge(context: &Context<'_>, versions: &[i64]) -> Result<(), ActionError> {
    for version in versions {
        context.storage.delete(*version).await?;
    }
    Ok(())
}

/// The objects to delete, in order; those that ask to be kept, in whatever way, are not among them.
async fn deletable(context: &Context<'_>, record: &Record) -> Result<Vec<ObjectRef>, ActionError> {
    let files = [("manifest".to_owned(), record.manifest.clone())].into();
    let corrupted = |error: String| {
        ActionError::Apply(format!(
            "corrupted release record. You must manually delete the resources: {error}"
        ))
    };
    let sorted = manifest::sort(&files, SplitRule::default(), Order::Uninstall)
        .map_err(|error| corrupted(error.to_string()))?;
    let mut objects: Vec<Json> = Vec::new();
    for document in &sorted.manifests {
        // A kind that is no longer served has no objects left.
        match read_manifest(context.cluster, &document.content, &record.namespace).await {
            Ok(found) => objects.extend(found),
            Err(message) if message.contains("no matches for kind") => (context.log)(message),
            Err(message) => return Err(corrupted(message)),
        }
    }
    objects.retain(|item| {
        let kept = object::annotation(item, POLICY).is_some();
        if kept {
            let reference = ObjectRef::of(item);
            (context.log)(format!(
                "keeping [{}] {} due to its resource policy",
                reference.kind, reference.name
            ));
        }
        !kept
    });
    Ok(objects.iter().map(ObjectRef::of).collect())
}
