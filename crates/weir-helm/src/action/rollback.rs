//! Brings a release back to an earlier revision.

use weir_apply::write::Propagation;

use super::apply::{self, Method};
use super::install::apply_method;
use super::objects::{mark, read_writable};
use super::{ActionError, Context, hooks, wait};
use crate::manifest::HookEvent;
use crate::release::{Info, Record, Status};

/// How a release is rolled back.
#[derive(Debug, Clone, Copy)]
pub struct Rollback {
    /// The revision to go back to.
    pub version: i64,
    /// How many revisions stay on record; 0 for all.
    pub history_max: usize,
    /// Server-side apply, or create and patch; `None` as the revision to go back to was made.
    pub server_side: Option<bool>,
    /// Whether objects are replaced instead of patched (not with server-side apply).
    pub replace: bool,
    /// Whether what a failed rollback created is deleted.
    pub clean_up_on_fail: bool,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
}

/// Rolls the release back; the record of the new revision, which has the content of the old one.
///
/// # Errors
/// Before the record is stored, nothing has happened in the cluster. Later it says `failed`, or
/// `pending-rollback` if a hook failed, as with Helm.
pub async fn rollback(context: &Context<'_>, options: Rollback) -> Result<Record, ActionError> {
    let history = context.storage.history().await?;
    let name = context.storage.release().to_owned();
    let mut current = history.last().cloned().ok_or_else(|| ActionError::NoDeployedRelease(name.clone()))?;
    let target = history
        .iter()
        .find(|record| record.version == options.version)
        .ok_or(ActionError::NoSuchVersion(options.version))?;
    let server_side = options.server_side.unwrap_or_else(|| target.is_server_side());
    let mut record = Record {
        info: Info {
            first_deployed: current.info.first_deployed.clone(),
            last_deployed: context.now(),
            description: format!("Rollback to {}", options.version),
            status: Status::PendingRollback,
            notes: target.info.notes.clone(),
            ..Info::default()
        },
        version: current.version + 1,
        namespace: current.namespace.clone(),
        apply_method: apply_method(server_side).to_owned(),
        ..target.clone()
    };
    drop(history);
    context.storage.create(&record, options.history_max).await?;
    let build = |whose| move |message| ActionError::Build { whose, message };
    let before = read_writable(context.cluster, &current.manifest, &current.namespace)
        .await
        .map_err(build("current release"))?;
    let mut objects = read_writable(context.cluster, &record.manifest, &record.namespace)
        .await
        .map_err(build("new release"))?;
    if !options.disable_hooks {
        Box::pin(hooks::run(context, &mut record, HookEvent::PreRollback, server_side, "")).await?;
    }
    mark(&mut objects, &name, &record.namespace);
    let method = Method {
        server_side,
        force_conflicts: server_side,
        replace: options.replace && !server_side,
        strict: false,
        migrate: true,
        three_way_for_custom: false,
    };
    let updated = apply::update(context, &before, &objects, method).await;
    if let Some(error) = updated.error {
        current.info.status = Status::Superseded;
        context.record(&current).await;
        context.fail(&mut record, "Rollback", &error).await;
        if options.clean_up_on_fail {
            let errors = apply::delete_all(context, &updated.created, Propagation::Background).await;
            if !errors.is_empty() {
                let message = errors.join(", ");
                return Err(ActionError::CleanUp { action: "rollback", original: error.into(), message });
            }
        }
        return Err(error);
    }
    if let Err(error) = wait::ready(context, &objects).await {
        context.record(&current).await;
        context.fail(&mut record, "Release", &error).await;
        return Err(ActionError::NotReady(format!("release {name} failed: {error}")));
    }
    if !options.disable_hooks {
        Box::pin(hooks::run(context, &mut record, HookEvent::PostRollback, server_side, "")).await?;
    }
    for mut deployed in context.storage.history().await? {
        if deployed.info.status == Status::Deployed {
            deployed.info.status = Status::Superseded;
            context.record(&deployed).await;
        }
    }
    record.info.status = Status::Deployed;
    context.storage.update(&record).await?;
    Ok(record)
}
