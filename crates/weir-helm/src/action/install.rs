//! Installs a chart as a release.

use serde_json::json;
use weir_apply::write::WriteOptions;

use super::apply::{self, Method};
use super::objects::{existing, mark, read_writable};
use super::{ActionError, Context, MakeContent, go_time, hooks, is_release_name, wait};
use crate::chart::Chart;
use crate::content::Content;
use crate::manifest::HookEvent;
use crate::release::{Info, Record, RecordHook, Status};
use crate::render::ReleaseInfo;
use crate::values::Table;

/// How a release is installed.
pub struct Install<'a> {
    /// The namespace of the release.
    pub namespace: &'a str,
    /// Whether the namespace is created.
    pub create_namespace: bool,
    /// Whether the name may be that of a release that failed or is uninstalled.
    pub replace: bool,
    /// Whether objects that exist become part of the release, whoever they belong to.
    pub take_ownership: bool,
    /// Server-side apply, or create and patch.
    pub server_side: bool,
    /// Whether unknown fields are refused.
    pub strict: bool,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
}

/// Installs `chart` with `values`; the record of what was installed.
///
/// # Errors
/// Before the record is stored, nothing has happened in the cluster. Later the record says `failed`, or
/// what was last going on if the process died.
pub async fn install(
    context: &Context<'_>,
    options: &Install<'_>,
    chart: Chart,
    values: Table,
    make: &MakeContent<'_>,
) -> Result<Record, ActionError> {
    let name = context.storage.release().to_owned();
    if !is_release_name(&name) {
        return Err(ActionError::InvalidName(name));
    }
    let history = context.storage.history().await?;
    if let Some(last) = history.last() {
        let reusable = matches!(last.info.status, Status::Uninstalled | Status::Failed);
        if !(options.replace && reusable) {
            return Err(ActionError::NameInUse);
        }
    }
    let info = ReleaseInfo {
        name: name.clone(),
        namespace: options.namespace.to_owned(),
        revision: 1,
        is_upgrade: false,
    };
    let content = make(info, chart, values.clone()).await?;
    let version = history.last().map_or(1, |last| last.version + 1);
    let now = go_time(context.clock.now());
    let mut record = new_record(&name, options.namespace, version, &content, values, options.server_side);
    record.info = Info {
        first_deployed: now.clone(),
        last_deployed: now,
        description: "Initial install underway".to_owned(),
        status: Status::PendingInstall,
        notes: content.notes,
        ..Info::default()
    };
    let mut objects = read_writable(context.cluster, &record.manifest, options.namespace)
        .await
        .map_err(|message| ActionError::Build { whose: "release", message })?;
    mark(&mut objects, &name, options.namespace);
    let owner = (!options.take_ownership).then_some((name.as_str(), options.namespace));
    let adopted = existing(context.cluster, &objects, owner)
        .await
        .map_err(|message| ActionError::Conflict { action: "install", message })?;
    if options.create_namespace {
        create_namespace(context, options.namespace, options.server_side).await?;
    }
    context.storage.create(&record, 0).await?;
    // After the new one is on record: a release whose last revision is superseded is of no known state.
    if let Some(mut last) = history.into_iter().next_back() {
        last.info.status = Status::Superseded;
        context.record(&last).await;
    }
    if let Err(error) = Box::pin(perform(context, options, &mut record, &adopted, &objects)).await {
        context.fail(&mut record, "Release", &error).await;
        return Err(error);
    }
    record.info.status = Status::Deployed;
    "Install complete".clone_into(&mut record.info.description);
    context.record(&record).await;
    Ok(record)
}

async fn perform(
    context: &Context<'_>,
    options: &Install<'_>,
    record: &mut Record,
    adopted: &[serde_json::Value],
    objects: &[serde_json::Value],
) -> Result<(), ActionError> {
    if !options.disable_hooks {
        let stage = "failed pre-install: ";
        Box::pin(hooks::run(context, record, HookEvent::PreInstall, options.server_side, stage)).await?;
    }
    let method = Method {
        server_side: options.server_side,
        force_conflicts: false,
        replace: false,
        strict: options.strict,
        migrate: true,
        three_way_for_custom: options.take_ownership && !options.server_side,
    };
    if adopted.is_empty() {
        apply::create(context, objects, method).await?;
    } else {
        let method = Method { force_conflicts: options.server_side, ..method };
        if let Some(error) = apply::update(context, adopted, objects, method).await.error {
            return Err(error);
        }
    }
    Box::pin(wait::ready(context, objects)).await?;
    if !options.disable_hooks {
        let stage = "failed post-install: ";
        Box::pin(hooks::run(context, record, HookEvent::PostInstall, options.server_side, stage)).await?;
    }
    Ok(())
}

/// A record of `content`, without its times and status.
pub(super) fn new_record(
    name: &str,
    namespace: &str,
    version: i64,
    content: &Content,
    values: Table,
    server_side: bool,
) -> Record {
    Record {
        name: name.to_owned(),
        chart: (&content.chart).into(),
        config: values,
        manifest: content.manifest.clone(),
        hooks: content.sorted.hooks.iter().map(RecordHook::from).collect(),
        version,
        namespace: namespace.to_owned(),
        apply_method: apply_method(server_side).to_owned(),
        ..Record::default()
    }
}

/// The word in records.
pub(super) fn apply_method(server_side: bool) -> &'static str {
    if server_side { "ssa" } else { "csa" }
}

async fn create_namespace(
    context: &Context<'_>,
    namespace: &str,
    server_side: bool,
) -> Result<(), ActionError> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace, "labels": {"name": namespace}},
    });
    let options = WriteOptions { manager: context.manager, strict: true };
    let answer = if server_side {
        context.cluster.apply_as(&object, false, options).await
    } else {
        context.cluster.create(&object, options).await
    };
    match answer {
        Err(error) if error.reason() != "AlreadyExists" => Err(error.into()),
        _ => Ok(()),
    }
}
