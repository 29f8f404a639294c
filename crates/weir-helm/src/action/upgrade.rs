//! Upgrades a release to another chart or other values.

use serde_json::Value as Json;
use weir_apply::object::ObjectRef;
use weir_apply::write::Propagation;

use super::apply::{self, Method};
use super::install::new_record;
use super::objects::{existing, mark, read_writable};
use super::{ActionError, ContentFailed, Context, MakeContent, hooks, wait};
use crate::chart::Chart;
use crate::manifest::HookEvent;
use crate::release::{Info, Record, Status};
use crate::render::ReleaseInfo;
use crate::values::{Mode, Table, coalesce, coalesce_tables};

/// How a release is upgraded.
#[derive(Debug, Clone, Copy)]
pub struct Upgrade {
    /// How many revisions stay on record; 0 for all.
    pub history_max: usize,
    /// Whether objects that exist become part of the release, whoever they belong to.
    pub take_ownership: bool,
    /// Server-side apply, or create and patch; `None` as the last revision was made.
    pub server_side: Option<bool>,
    /// Whether objects are replaced instead of patched (not with server-side apply).
    pub replace: bool,
    /// Whether unknown fields are refused.
    pub strict: bool,
    /// Whether the values of the last revision are the defaults of the new one.
    pub reuse_values: bool,
    /// Whether what a failed upgrade created is deleted.
    pub clean_up_on_fail: bool,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
}

/// The revision that describes what is in the cluster: the last one if it is deployed, else the newest
/// deployed one, else the last one if it failed.
fn current(history: &[Record], name: &str) -> Result<Record, ActionError> {
    let missing = || ActionError::NoDeployedRelease(name.to_owned());
    let last = history.last().ok_or_else(missing)?;
    if last.info.status.is_pending() {
        return Err(ActionError::Pending);
    }
    let deployed = history.iter().rev().find(|record| record.info.status == Status::Deployed);
    match deployed {
        Some(deployed) => Ok(deployed.clone()),
        None if matches!(last.info.status, Status::Failed | Status::Superseded) => Ok(last.clone()),
        None => Err(missing()),
    }
}

/// Upgrades the release to `chart` with `values`; the record of the new revision.
///
/// # Errors
/// Before the record is stored, nothing has happened in the cluster. Later it says `failed` and the old
/// revision stays deployed.
pub async fn upgrade(
    context: &Context<'_>,
    options: Upgrade,
    mut chart: Chart,
    mut values: Table,
    make: &MakeContent<'_>,
) -> Result<Record, ActionError> {
    let name = context.storage.release().to_owned();
    if !super::is_release_name(&name) {
        return Err(ActionError::InvalidName(name));
    }
    let history = context.storage.history().await?;
    let old = current(&history, &name)?;
    let last = history.last().ok_or_else(|| ActionError::NoDeployedRelease(name.clone()))?;
    let server_side = options.server_side.unwrap_or_else(|| last.is_server_side());
    let version = last.version + 1;
    if options.reuse_values {
        reuse_values(&old, &mut chart, &mut values)?;
    }
    let info = ReleaseInfo {
        name: name.clone(),
        namespace: old.namespace.clone(),
        revision: version,
        is_upgrade: true,
    };
    let content = make(info, chart, values.clone()).await?;
    let mut record = new_record(&name, &old.namespace, version, &content, values, server_side);
    record.info = Info {
        first_deployed: old.info.first_deployed.clone(),
        last_deployed: context.now(),
        description: "Preparing upgrade".to_owned(),
        status: Status::PendingUpgrade,
        notes: content.notes,
        ..Info::default()
    };
    // Others than the one before count as deployed only if that could not be put on record when they were replaced.
    let stale: Vec<Record> = history
        .into_iter()
        .filter(|other| other.info.status == Status::Deployed && other.version != old.version)
        .collect();
    let (before, objects) = prepare(context, options, &old, &record).await?;
    context.storage.create(&record, options.history_max).await?;
    let method = Method {
        server_side,
        force_conflicts: server_side,
        replace: options.replace && !server_side,
        strict: options.strict,
        migrate: server_side && !old.is_server_side(),
        three_way_for_custom: false,
    };
    let mut created = Vec::new();
    let performed = perform(context, options, &mut record, &before, &objects, method, &mut created);
    match Box::pin(performed).await {
        Ok(()) => {
            for mut replaced in stale.into_iter().chain([old]) {
                replaced.info.status = Status::Superseded;
                context.record(&replaced).await;
            }
            record.info.status = Status::Deployed;
            "Upgrade complete".clone_into(&mut record.info.description);
            context.storage.update(&record).await?;
            Ok(record)
        }
        Err(error) => {
            context.fail(&mut record, "Upgrade", &error).await;
            if options.clean_up_on_fail {
                let errors = apply::delete_all(context, &created, Propagation::Background).await;
                if !errors.is_empty() {
                    let message = errors.join(", ");
                    return Err(ActionError::CleanUp { action: "upgrade", original: error.into(), message });
                }
            }
            Err(error)
        }
    }
}

/// What was there before, and what is to be there.
async fn prepare(
    context: &Context<'_>,
    options: Upgrade,
    old: &Record,
    record: &Record,
) -> Result<(Vec<Json>, Vec<Json>), ActionError> {
    let build = |whose| move |message| ActionError::Build { whose, message };
    let mut before = read_writable(context.cluster, &old.manifest, &old.namespace)
        .await
        .map_err(build("current release"))?;
    let mut objects = read_writable(context.cluster, &record.manifest, &record.namespace)
        .await
        .map_err(build("new release"))?;
    mark(&mut objects, &record.name, &record.namespace);
    let known = |item: &Json| {
        let reference = ObjectRef::of(item);
        before.iter().any(|known| ObjectRef::of(known) == reference)
    };
    let new: Vec<Json> = objects.iter().filter(|item| !known(item)).cloned().collect();
    let owner = (!options.take_ownership).then_some((record.name.as_str(), record.namespace.as_str()));
    let adopted = existing(context.cluster, &new, owner)
        .await
        .map_err(|message| ActionError::Conflict { action: "update", message })?;
    before.extend(adopted);
    Ok((before, objects))
}

async fn perform(
    context: &Context<'_>,
    options: Upgrade,
    record: &mut Record,
    before: &[Json],
    objects: &[Json],
    method: Method,
    created: &mut Vec<ObjectRef>,
) -> Result<(), ActionError> {
    if !options.disable_hooks {
        let stage = "pre-upgrade hooks failed: ";
        Box::pin(hooks::run(context, record, HookEvent::PreUpgrade, method.server_side, stage)).await?;
    }
    let updated = apply::update(context, before, objects, method).await;
    *created = updated.created;
    if let Some(error) = updated.error {
        return Err(error);
    }
    Box::pin(wait::ready(context, objects)).await?;
    if !options.disable_hooks {
        let stage = "post-upgrade hooks failed: ";
        Box::pin(hooks::run(context, record, HookEvent::PostUpgrade, method.server_side, stage)).await?;
    }
    Ok(())
}

/// Makes the values of the last revision the defaults: those of its chart completed with its own.
fn reuse_values(old: &Record, chart: &mut Chart, values: &mut Table) -> Result<(), ActionError> {
    let old_chart =
        Chart { metadata: old.chart.metadata.clone(), values: old.chart.values.clone(), ..Chart::default() };
    let defaults = coalesce(&old_chart, &old.config, Mode::Coalesce)
        .map_err(|error| ContentFailed(error.to_string()))?;
    coalesce_tables(values, old.config.clone(), Mode::Coalesce);
    chart.values = defaults;
    Ok(())
}
