//! Creates, updates and deletes the objects of a release.

use futures::{StreamExt as _, stream};
use serde_json::Value as Json;
use weir_apply::cluster::ClusterError;
use weir_apply::managers::CleanUp;
use weir_apply::object::{self, ObjectRef};
use weir_apply::write::{MergeKind, Propagation, WriteOptions};

use super::objects::{kind_title, same};
use super::{ActionError, Context, merge};

/// How many objects of one kind are written at the same time.
const WRITES_MAX: usize = 8;

/// How objects are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method {
    /// Server-side apply, or create and patch.
    pub(super) server_side: bool,
    /// Whether fields of others are taken over.
    pub(super) force_conflicts: bool,
    /// Whether objects are replaced instead of patched (not with server-side apply).
    pub(super) replace: bool,
    /// Whether unknown fields are refused.
    pub(super) strict: bool,
    /// Whether fields that a client-side apply of ours owns become those of server-side apply.
    pub(super) migrate: bool,
    /// Whether custom resources are merged with their live state.
    pub(super) three_way_for_custom: bool,
}

/// What an update did before it failed or ended.
#[derive(Default)]
pub(super) struct Updated {
    /// What it created.
    pub(super) created: Vec<ObjectRef>,
    /// What went wrong.
    pub(super) error: Option<ActionError>,
}

/// Creates objects, kind by kind.
pub(super) async fn create(
    context: &Context<'_>,
    objects: &[Json],
    method: Method,
) -> Result<(), ActionError> {
    let mut errors = Vec::new();
    for group in objects.chunk_by(|left, right| left["kind"] == right["kind"]) {
        let writes: Vec<_> = group.iter().map(|item| create_one(context, item, method)).collect();
        let mut answers = stream::iter(writes).buffered(WRITES_MAX);
        while let Some(answer) = answers.next().await {
            if let Err(error) = answer {
                errors.push(error);
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(ActionError::Apply(errors.join("\n"))) }
}

async fn create_one(context: &Context<'_>, item: &Json, method: Method) -> Result<(), String> {
    let options = WriteOptions { manager: context.manager, strict: method.strict };
    let reference = ObjectRef::of(item);
    if method.server_side && !reference.name.is_empty() {
        return apply_one(context, item, method.force_conflicts, options).await;
    }
    let answer = context.cluster.create(item, options).await;
    answer.map(|_| ()).map_err(|error| error.to_string())
}

async fn apply_one(
    context: &Context<'_>,
    item: &Json,
    force: bool,
    options: WriteOptions<'_>,
) -> Result<(), String> {
    let Err(error) = context.cluster.apply_as(item, force, options).await else {
        return Ok(());
    };
    let reference = ObjectRef::of(item);
    let (namespace, name) = (&reference.namespace, &reference.name);
    let kind = kind_title(&reference);
    let error = weir_apply::mask::error(item, error);
    Err(match &error {
        ClusterError::Api { code: 415, .. } => {
            format!("server-side apply not available on the server: {error}")
        }
        _ if error.reason() == "Conflict" => {
            format!("conflict occurred while applying object {namespace}/{name} {kind}: {error}")
        }
        _ => format!("server-side apply failed for object {namespace}/{name} {kind}: {error}"),
    })
}

/// Makes `target` what is there, and deletes what of `original` is not in it.
///
/// `original` is what was there before: from the last manifest, and adopted objects as they live.
pub(super) async fn update(
    context: &Context<'_>,
    original: &[Json],
    target: &[Json],
    method: Method,
) -> Updated {
    let mut updated = Updated::default();
    let mut errors = Vec::new();
    for item in target {
        let reference = ObjectRef::of(item);
        let live = match context.cluster.get(&reference).await {
            Ok(live) => live,
            Err(error) => {
                let text = format!("could not get information about the resource: {error}");
                updated.error = Some(ActionError::Apply(text));
                return updated;
            }
        };
        let Some(live) = live else {
            updated.created.push(reference);
            if let Err(error) = create_one(context, item, method).await {
                updated.error = Some(ActionError::Apply(format!("failed to create resource: {error}")));
                return updated;
            }
            continue;
        };
        let before = original.iter().find(|known| same(known, item)).unwrap_or(&live);
        if let Err(error) = update_one(context, before, &live, item, method).await {
            errors.push(error);
        }
    }
    if errors.is_empty() {
        errors = delete_stale(context, original, target).await;
    }
    if !errors.is_empty() {
        updated.error = Some(ActionError::Apply(errors.join(" && ")));
    }
    updated
}

async fn update_one(
    context: &Context<'_>,
    before: &Json,
    live: &Json,
    item: &Json,
    method: Method,
) -> Result<(), String> {
    let options = WriteOptions { manager: context.manager, strict: method.strict };
    let reference = ObjectRef::of(item);
    if method.server_side {
        if method.migrate
            && let Some(operations) = CleanUp::own_updates(context.manager).patch(live, context.manager)
        {
            context.cluster.patch(&reference, &operations, context.manager).await.map_err(|error| {
                format!(
                    "failed to patch object to upgrade CSA field manager {}/{} {}: {error}",
                    reference.namespace,
                    reference.name,
                    kind_title(&reference)
                )
            })?;
        }
        return apply_one(context, item, method.force_conflicts, options).await;
    }
    let options = WriteOptions { strict: false, ..options };
    if method.replace {
        let mut whole = item.clone();
        whole["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
        let answer = context.cluster.replace(&whole, options).await;
        return answer.map(|_| ()).map_err(|error| format!("failed to replace object: {error}"));
    }
    let (patch, kind) = if merge::is_built_in(&reference) {
        (merge::strategic(before, item, live), MergeKind::Strategic)
    } else if method.three_way_for_custom {
        (merge::three_way(before, item, live), MergeKind::Json)
    } else {
        (merge::two_way(before, item), MergeKind::Json)
    };
    if patch.as_object().is_none_or(serde_json::Map::is_empty) {
        return Ok(());
    }
    let answer = context.cluster.merge(&reference, &patch, kind, options).await;
    answer.map(|_| ()).map_err(|error| {
        let error = weir_apply::mask::error(item, error);
        format!("cannot patch {:?} with kind {}: {error}", reference.name, reference.kind)
    })
}

/// Deletes what is no longer wanted; the errors.
async fn delete_stale(context: &Context<'_>, original: &[Json], target: &[Json]) -> Vec<String> {
    let mut errors = Vec::new();
    let stale: Vec<&Json> =
        original.iter().filter(|item| !target.iter().any(|wanted| same(item, wanted))).collect();
    for item in stale {
        let reference = ObjectRef::of(item);
        let Ok(Some(live)) = context.cluster.get(&reference).await else { continue };
        if object::annotation(&live, super::uninstall::POLICY) == Some("keep") {
            (context.log)(format!(
                "Skipping delete of {} {:?} in namespace {:?} due to annotation [{}=keep]",
                reference.kind,
                reference.name,
                reference.namespace,
                super::uninstall::POLICY
            ));
            continue;
        }
        match context.cluster.delete_with(&reference, Propagation::Background).await {
            Err(error) if !error.is_not_found() => errors.push(format!(
                "failed to delete resource namespace={}, name={}, kind={}: {error}",
                reference.namespace, reference.name, reference.kind
            )),
            _ => {}
        }
    }
    errors
}

/// Deletes objects, kind by kind; the errors. What is gone already is fine.
pub(super) async fn delete_all(
    context: &Context<'_>,
    objects: &[ObjectRef],
    propagation: Propagation,
) -> Vec<String> {
    let mut errors = Vec::new();
    for group in objects.chunk_by(|left, right| left.kind == right.kind) {
        let writes: Vec<_> =
            group.iter().map(|reference| context.cluster.delete_with(reference, propagation)).collect();
        let mut answers = stream::iter(writes).buffered(WRITES_MAX);
        while let Some(answer) = answers.next().await {
            if let Err(error) = answer
                && !error.is_not_found()
                && !error.is_no_match()
            {
                errors.push(error.to_string());
            }
        }
    }
    errors
}
