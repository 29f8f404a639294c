//! Applies one stage: look at what is there, ask the API server what would change, then write only
//! what does.

use std::collections::HashSet;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use tokio::time::Instant;
use weir_base::clock::Clock;

use crate::change::{Action, ChangeSet, Entry};
use crate::cluster::{ApplyMode, Cluster, ClusterError};
use crate::drift;
use crate::health::{CustomChecks, Target, Wait, WaitError, wait, wait_gone};
use crate::ignore::{Rules, UnsettledPath, settle};
use crate::managers::{CleanUp, migrate_api_version};
use crate::mask;
use crate::object::{self, ObjectRef};
use crate::order::{CustomStageKinds, Stage};
use crate::policy;

/// How long to wait for a definition to be served after its CRD is established.
const SERVED_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for an object that is being recreated to disappear.
const RECREATE_TIMEOUT: Duration = Duration::from_mins(2);
/// How long the objects of an awaited stage may take.
pub const STAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// How objects are applied.
#[derive(Debug)]
pub struct Options {
    /// Prefix of the label and annotation keys that control applying.
    pub owner_group: String,
    /// The field manager.
    pub manager: String,
    /// Whether objects with immutable changes are recreated.
    pub force: bool,
    /// How many objects are looked at in parallel.
    pub concurrency: usize,
    /// Kinds of the custom stage.
    pub custom_stage_kinds: CustomStageKinds,
    /// What is cleaned up on live objects.
    pub clean_up: CleanUp,
    /// Whether managed fields are moved to the API version of the manifest.
    pub migrate_api_version: bool,
    /// Fields left out of the comparison.
    pub ignore: Rules,
    /// Objects that are known to be as desired, because they were compared before and are watched since; they are
    /// neither read nor compared.
    pub untouched: HashSet<Identity>,
    /// Objects that were applied before; `None` if that is not known. Others are not expected to exist, and are read
    /// only if a dry-run does not show that they do not.
    pub applied_before: Option<HashSet<Identity>>,
}

/// An object whatever its version: group, kind, namespace, name.
pub type Identity = (String, String, String, String);

/// The identity of an object.
pub fn identity(object: &ObjectRef) -> Identity {
    (object.group.clone(), object.kind.clone(), object.namespace.clone(), object.name.clone())
}

impl Options {
    /// What the Kustomization controller does by default.
    pub fn kustomize() -> Self {
        let group = "kustomize.toolkit.fluxcd.io";
        let manager = "kustomize-controller";
        Self {
            owner_group: group.to_owned(),
            manager: manager.to_owned(),
            force: false,
            concurrency: 4,
            custom_stage_kinds: CustomStageKinds::new(),
            clean_up: CleanUp::kustomize(manager, group, &[]),
            migrate_api_version: false,
            ignore: Rules::default(),
            untouched: HashSet::new(),
            applied_before: None,
        }
    }
}

/// Why objects could not be applied; every text names the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The namespace of a namespaced object is missing from its manifest.
    #[error("{object} namespace not specified: {source}")]
    NoNamespace {
        /// The object.
        object: ObjectRef,
        /// The answer.
        source: ClusterError,
    },
    /// The namespace of the object does not exist.
    #[error("{object} not found: {source}")]
    NotFound {
        /// The object.
        object: ObjectRef,
        /// The answer.
        source: ClusterError,
    },
    /// The API server would refuse the object.
    #[error("{object} dry-run failed{}: {source}{hint}", in_parentheses(source.reason()))]
    DryRun {
        /// The object.
        object: ObjectRef,
        /// The answer.
        source: ClusterError,
        /// What may help, starting with `; `, or empty.
        hint: &'static str,
    },
    /// An object that has to be recreated could not be deleted.
    #[error("{object} immutable field detected, failed to delete object: {source}")]
    Recreate {
        /// The object.
        object: ObjectRef,
        /// The answer.
        source: ClusterError,
    },
    /// An object that has to be recreated did not disappear.
    #[error("{object} immutable field detected, object not deleted in time: {source}")]
    NotGone {
        /// The object.
        object: ObjectRef,
        /// What is left.
        source: WaitError,
    },
    /// Traces of other managers could not be cleaned up.
    #[error("{object} metadata.managedFields cleanup failed: {source}")]
    CleanUp {
        /// The object.
        object: ObjectRef,
        /// The answer.
        source: ClusterError,
    },
    /// The managed fields could not be moved to another version.
    #[error("{object} failed to migrate API version: {source}")]
    MigrateVersion {
        /// The object.
        object: ObjectRef,
        /// The answer.
        source: ClusterError,
    },
    /// An ignored field could not be settled.
    #[error("{object} {source}")]
    Ignore {
        /// The object.
        object: ObjectRef,
        /// The cause.
        source: UnsettledPath,
    },
    /// The API server refused the object.
    #[error("{object} apply failed: {source}")]
    Apply {
        /// The object.
        object: ObjectRef,
        /// The answer.
        source: ClusterError,
    },
    /// Definitions did not become ready.
    #[error(transparent)]
    Stage(#[from] WaitError),
}

fn in_parentheses(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

/// One object, compared with what is live.
#[derive(Debug, Clone)]
pub struct Planned {
    /// What will have happened to it.
    pub entry: Entry,
    /// What is sent if it is written.
    payload: Value,
    /// The live object, if there is one and it is not to be written.
    live: Option<Value>,
}

impl Planned {
    /// Whether applying it writes.
    pub fn writes(&self) -> bool {
        matches!(self.entry.action, Action::Created | Action::Configured)
    }
}

/// What has been applied so far. Travels with every error, so that nothing applied is forgotten.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// What happened to each object, in order.
    pub changes: ChangeSet,
    /// Each object that was not skipped as it was last seen, in the order of `changes`.
    pub live: Vec<Value>,
    /// Objects that were known to be as desired.
    pub untouched: Vec<ObjectRef>,
    /// Group and kind of the definitions applied.
    definitions: HashSet<(String, String)>,
    /// Jobs that clean up after themselves.
    vanishing: HashSet<ObjectRef>,
}

impl Applied {
    /// Everything that was not skipped, to wait for.
    ///
    /// Takes the objects as last seen out, so that the first look costs no request.
    pub fn take_targets(&mut self) -> Vec<Target> {
        let untouched = self.untouched.iter().map(|object| Target {
            may_vanish: self.vanishing.contains(object),
            ..Target::new(object.clone())
        });
        let untouched: Vec<Target> = untouched.collect();
        std::mem::take(&mut self.live)
            .into_iter()
            .map(|live| {
                let object = ObjectRef::of(&live);
                let may_vanish = self.vanishing.contains(&object);
                Target { object, known: Some(live), may_vanish }
            })
            .chain(untouched)
            .collect()
    }
}

/// Compares the objects of a stage with the live ones, without writing them.
///
/// Does write in two cases, as the reference does: traces of other managers are cleaned up, and
/// objects that must be recreated are deleted.
///
/// # Errors
/// The first object that would be refused; nothing of the stage is applied then.
pub async fn dry_run(
    cluster: &dyn Cluster,
    options: &Options,
    stage: &Stage,
    applied: &Applied,
) -> Result<Vec<Planned>, ApplyError> {
    // By position: a closure over references would not be general enough for callers on other threads.
    stream::iter(0..stage.objects.len())
        .map(|position| plan(cluster, options, &stage.objects[position], applied))
        .buffered(options.concurrency.max(1))
        .try_collect()
        .await
}

async fn plan(
    cluster: &dyn Cluster,
    options: &Options,
    desired: &Value,
    applied: &Applied,
) -> Result<Planned, ApplyError> {
    let object = ObjectRef::of(desired);
    if options.untouched.contains(&identity(&object)) {
        let entry = Entry { object, action: Action::Unchanged };
        return Ok(Planned { entry, payload: Value::Null, live: None });
    }
    let group = options.owner_group.as_str();
    let mode = ApplyMode { manager: &options.manager, dry_run: true };
    let expected = options.applied_before.as_ref().is_none_or(|before| before.contains(&identity(&object)));
    let mut early = None;
    if !expected && !policy::skips_apply(group, desired, None) {
        match dry_run_served(cluster, desired, mode, &object, applied).await {
            Ok(new) if object::resource_version(&new).is_empty() => {
                let entry = Entry { object: ObjectRef::of(&new), action: Action::Created };
                return Ok(Planned { entry, payload: desired.clone(), live: None });
            }
            answer => early = Some(answer),
        }
    }
    // A failed read shows again in the dry-run, with a better text.
    let mut live = cluster.get(&object).await.ok().flatten();
    if policy::skips_apply(group, desired, live.as_ref()) {
        let entry = Entry { object: live.as_ref().map_or(object, ObjectRef::of), action: Action::Skipped };
        return Ok(Planned { entry, payload: Value::Null, live: None });
    }
    let mut cleaned = false;
    if options.migrate_api_version
        && let Some(operations) =
            live.as_ref().and_then(|live| migrate_api_version(live, &object.api_version()))
    {
        let migrated = cluster.patch(&object, &operations, &options.manager).await;
        live =
            Some(migrated.map_err(|source| ApplyError::MigrateVersion { object: object.clone(), source })?);
        cleaned = true;
    }
    let mut dry_run = match early {
        Some(answer) if !cleaned => answer,
        _ => dry_run_served(cluster, desired, mode, &object, applied).await,
    };
    // An item that someone put into a list with kubectl may clash with ours, such as a Service port of the
    // same name. Taken over, it goes with the dry-run; the reference is stuck here.
    if dry_run.as_ref().is_err_and(ClusterError::is_invalid)
        && let Some(cleaned_up) = clean_up(cluster, options, desired, live.as_ref()).await?
    {
        live = Some(cleaned_up);
        cleaned = true;
        dry_run = cluster.apply(desired, mode).await;
    }
    if let (Err(error), Some(existing)) = (&dry_run, &live)
        && error.is_immutable()
        && (options.force || policy::forces(group, desired, existing))
    {
        remove_for_recreation(cluster, existing).await?;
        live = None;
        dry_run = cluster.apply(desired, mode).await;
    }
    let dry_run = dry_run.map_err(|error| {
        refused(object.clone(), mask::error(desired, error), live.is_some(), options.force)
    })?;
    if let Some(cleaned_up) = clean_up(cluster, options, desired, live.as_ref()).await? {
        live = Some(cleaned_up);
        cleaned = true;
    }
    let action = match &live {
        _ if object::resource_version(&dry_run).is_empty() => Action::Created,
        Some(existing) if !cleaned && !drift::differs(existing, &dry_run, &options.ignore) => {
            Action::Unchanged
        }
        Some(_) | None => Action::Configured,
    };
    let payload = match &live {
        Some(existing) if action == Action::Configured => {
            let paths = options.ignore.paths(&dry_run);
            settle(desired, existing, &dry_run, &paths, &options.manager)
                .map_err(|source| ApplyError::Ignore { object: object.clone(), source })?
        }
        _ if action == Action::Unchanged => Value::Null,
        _ => desired.clone(),
    };
    let entry = Entry { object: ObjectRef::of(&dry_run), action };
    let live = if action == Action::Unchanged { live } else { None };
    Ok(Planned { entry, payload, live })
}

/// Removes the traces of other managers from the live object; `None` when there are none, or they may stay.
async fn clean_up(
    cluster: &dyn Cluster,
    options: &Options,
    desired: &Value,
    live: Option<&Value>,
) -> Result<Option<Value>, ApplyError> {
    let Some(operations) = live
        .filter(|existing| !policy::merges(&options.owner_group, desired, existing))
        .and_then(|existing| options.clean_up.patch(existing, &options.manager))
    else {
        return Ok(None);
    };
    let object = ObjectRef::of(desired);
    match cluster.patch(&object, &operations, &options.manager).await {
        Ok(cleaned_up) => Ok(Some(cleaned_up)),
        Err(source) => Err(ApplyError::CleanUp { object, source }),
    }
}

/// The dry-run; for a kind whose CRD was applied just before, after a while if it is not served yet.
async fn dry_run_served(
    cluster: &dyn Cluster,
    desired: &Value,
    mode: ApplyMode<'_>,
    object: &ObjectRef,
    applied: &Applied,
) -> Result<Value, ClusterError> {
    const DELAY: Duration = Duration::from_millis(200);
    let deadline = Instant::now() + SERVED_TIMEOUT;
    loop {
        match cluster.apply(desired, mode).await {
            Err(error)
                if (error.is_no_match() || error.is_not_found())
                    && applied.definitions.contains(&(object.group.clone(), object.kind.clone()))
                    && Instant::now() + DELAY < deadline =>
            {
                tokio::time::sleep(DELAY).await;
            }
            answer => return answer,
        }
    }
}

async fn remove_for_recreation(cluster: &dyn Cluster, existing: &Value) -> Result<(), ApplyError> {
    let object = ObjectRef::of(existing);
    match cluster.delete(&object).await {
        Ok(()) => {}
        Err(error) if error.is_not_found() => return Ok(()),
        Err(source) => return Err(ApplyError::Recreate { object, source }),
    }
    wait_gone(cluster, std::slice::from_ref(&object), RECREATE_TIMEOUT)
        .await
        .map_err(|source| ApplyError::NotGone { object, source })
}

fn refused(object: ObjectRef, source: ClusterError, existed: bool, force: bool) -> ApplyError {
    if source.is_not_found() {
        return if object.namespace.is_empty() {
            ApplyError::NoNamespace { object, source }
        } else {
            ApplyError::NotFound { object, source }
        };
    }
    let immutable = matches!(&source, ClusterError::Api { message, .. } if message.contains("immutable"));
    let hint = if source.is_no_match() {
        "; its CustomResourceDefinition must be installed first"
    } else if existed && immutable && !force {
        "; to recreate it set the annotation kustomize.toolkit.fluxcd.io/force: enabled"
    } else {
        ""
    };
    ApplyError::DryRun { object, source, hint }
}

/// Writes what a dry-run showed to differ, in order, and adds everything to `applied`.
///
/// # Errors
/// The first object that is refused. `applied` then holds what was written before, and everything
/// that did not need to be.
///
/// # Cancellation
/// What was written but is not yet in `applied` is found by the next run.
pub async fn apply(
    cluster: &dyn Cluster,
    options: &Options,
    stage: &Stage,
    planned: Vec<Planned>,
    applied: &mut Applied,
) -> Result<(), ApplyError> {
    let mode = ApplyMode { manager: &options.manager, dry_run: false };
    for (planned, desired) in planned.into_iter().zip(&stage.objects) {
        let object = planned.entry.object.clone();
        let live = if planned.writes() {
            let written = cluster.apply(&planned.payload, mode).await;
            Some(written.map_err(|error| ApplyError::Apply {
                object: object.clone(),
                source: mask::error(&planned.payload, error),
            })?)
        } else {
            planned.live
        };
        if object.is_kind("apiextensions.k8s.io", "CustomResourceDefinition") {
            let text =
                |path: &str| desired.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            applied.definitions.insert((text("/spec/group"), text("/spec/names/kind")));
        }
        if object.is_kind("batch", "Job") && desired.pointer("/spec/ttlSecondsAfterFinished").is_some() {
            applied.vanishing.insert(object.clone());
        }
        if live.is_none() && planned.entry.action == Action::Unchanged {
            applied.untouched.push(object.clone());
        }
        applied.changes.push(object, planned.entry.action);
        applied.live.extend(live);
    }
    Ok(())
}

/// Waits until the objects of an awaited stage are ready; returns at once for other stages.
///
/// # Errors
/// The objects that are not ready after [`STAGE_TIMEOUT`].
pub async fn wait_for_stage(
    cluster: &dyn Cluster,
    stage: &Stage,
    applied: &Applied,
    clock: &dyn Clock,
) -> Result<(), ApplyError> {
    if !stage.kind.is_awaited() {
        return Ok(());
    }
    let members: HashSet<ObjectRef> = stage
        .objects
        .iter()
        .map(|object| ObjectRef { namespace: String::new(), ..ObjectRef::of(object) })
        .collect();
    let is_member =
        |object: &ObjectRef| members.contains(&ObjectRef { namespace: String::new(), ..object.clone() });
    let targets: Vec<Target> = applied
        .changes
        .entries
        .iter()
        .filter(|entry| is_member(&entry.object) && !applied.untouched.contains(&entry.object))
        .map(|entry| {
            let known =
                applied.live.iter().find(|live| ObjectRef::of(live).identity() == entry.object.identity());
            Target { object: entry.object.clone(), known: known.cloned(), may_vanish: false }
        })
        .collect();
    let options = Wait {
        checks: &CustomChecks::default(),
        selector: None,
        timeout: STAGE_TIMEOUT,
        fail_fast: false,
        poll_interval: Duration::from_secs(2),
        clock,
    };
    wait(cluster, targets, &options).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
