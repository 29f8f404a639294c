//! Runs the hooks of an event.

use serde_json::Value as Json;
use weir_apply::object::ObjectRef;
use weir_apply::write::{LogLimits, Propagation};

use super::apply::{self, Method};
use super::objects::{read_manifest, read_writable};
use super::{ActionError, Context, wait};
use crate::manifest::HookEvent;
use crate::release::Record;

const BEFORE: &str = "before-hook-creation";
const SUCCEEDED: &str = "hook-succeeded";
const FAILED: &str = "hook-failed";
/// How much of the output of a hook is logged.
const LOG_LIMITS: LogLimits = LogLimits { lines_max: 50, bytes_max: 16 << 10, previous: false };

/// Runs the hooks of `event` one after the other, by weight and then by name.
///
/// What each hook did is put into `record`, and on record before the hook is waited for.
///
/// # Errors
/// The first hook that fails; `stage` is put before its text.
pub(super) async fn run(
    context: &Context<'_>,
    record: &mut Record,
    event: HookEvent,
    server_side: bool,
    stage: &'static str,
) -> Result<(), ActionError> {
    let mut order: Vec<usize> = (0..record.hooks.len())
        .filter(|index| record.hooks[*index].events.iter().any(|name| name == event.name()))
        .collect();
    order.sort_by(|left, right| {
        let (left, right) = (&record.hooks[*left], &record.hooks[*right]);
        left.weight.cmp(&right.weight).then_with(|| left.name.cmp(&right.name))
    });
    let told = |message: String| ActionError::Hook { stage, message };
    for (position, index) in order.iter().copied().enumerate() {
        if record.hooks[index].delete_policies.is_empty() {
            record.hooks[index].delete_policies.push(BEFORE.to_owned());
        }
        let result = Box::pin(run_one(context, record, index, event, server_side)).await;
        if let Err(failure) = result {
            if failure.ran {
                clean_up_after_failure(context, record, &order[..position], index).await;
            }
            return Err(told(failure.message));
        }
    }
    for index in order.iter().rev() {
        delete_by_policy(context, record, *index, SUCCEEDED)
            .await
            .map_err(|error| told(error.to_string()))?;
    }
    Ok(())
}

struct HookFailure {
    message: String,
    /// Whether it was there and failed, not only could not be made.
    ran: bool,
}

async fn run_one(
    context: &Context<'_>,
    record: &mut Record,
    index: usize,
    event: HookEvent,
    server_side: bool,
) -> Result<(), HookFailure> {
    let not_made = |message: String| HookFailure { message, ran: false };
    delete_by_policy(context, record, index, BEFORE).await.map_err(|error| not_made(error.to_string()))?;
    let (path, manifest) = (record.hooks[index].path.clone(), record.hooks[index].manifest.clone());
    let objects = read_writable(context.cluster, &manifest, &record.namespace).await.map_err(|error| {
        not_made(format!("unable to build kubernetes object for {} hook {path}: {error}", event.name()))
    })?;
    let run = &mut record.hooks[index].last_run;
    run.started_at = context.now();
    run.completed_at.clear();
    "Running".clone_into(&mut run.phase);
    context.record(record).await;
    let method = Method {
        server_side,
        force_conflicts: false,
        replace: false,
        strict: true,
        migrate: false,
        three_way_for_custom: false,
    };
    let made = apply::create(context, &objects, method).await;
    let result = match made {
        Err(error) => Err(not_made(format!("warning: Hook {} {path} failed: {error}", event.name()))),
        Ok(()) => wait::completed(context, &objects)
            .await
            .map_err(|error| HookFailure { message: error.to_string(), ran: true }),
    };
    let policy = if result.is_ok() { SUCCEEDED } else { FAILED };
    if record.hooks[index].output_log_policies.iter().any(|known| known == policy) {
        log_output(context, &objects).await;
    }
    let run = &mut record.hooks[index].last_run;
    run.completed_at = context.now();
    if result.is_ok() { "Succeeded" } else { "Failed" }.clone_into(&mut run.phase);
    result
}

/// Logs what the Pods of a hook wrote. What cannot be read is no reason to fail.
async fn log_output(context: &Context<'_>, objects: &[Json]) {
    for item in objects {
        let reference = ObjectRef::of(item);
        let pods = if reference.is_kind("", "Pod") {
            context.cluster.get(&reference).await.map(|pod| pod.into_iter().collect())
        } else if reference.is_kind("batch", "Job") {
            let labels = format!("job-name={}", reference.name);
            let kind = ObjectRef::core("Pod", &reference.namespace, "");
            context.cluster.list(&kind, Some(&reference.namespace), &labels).await
        } else {
            continue;
        };
        for mut pod in pods.unwrap_or_default() {
            (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
            let pod_reference = ObjectRef::of(&pod);
            let containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
            for container in containers.iter().filter_map(|container| container["name"].as_str()) {
                match context.cluster.pod_log(&pod_reference, container, LOG_LIMITS).await {
                    Ok(text) => {
                        for line in text.lines() {
                            tracing::info!(pod = pod_reference.name, container, line, "output of a hook");
                            (context.log)(format!("{}/{container}: {line}", pod_reference.name));
                        }
                    }
                    Err(error) => {
                        tracing::info!(pod = pod_reference.name, container, error = %error, "the output of a hook cannot be read");
                    }
                }
            }
        }
    }
}

async fn clean_up_after_failure(context: &Context<'_>, record: &Record, succeeded: &[usize], failed: usize) {
    let mut errors = Vec::new();
    errors.extend(delete_by_policy(context, record, failed, FAILED).await.err());
    for index in succeeded {
        errors.extend(delete_by_policy(context, record, *index, SUCCEEDED).await.err());
    }
    for error in errors {
        (context.log)(format!("error deleting the hook resource on hook failure: {error}"));
    }
}

/// Deletes what a hook left if its policy names `policy`; definitions of kinds are never deleted.
async fn delete_by_policy(
    context: &Context<'_>,
    record: &Record,
    index: usize,
    policy: &str,
) -> Result<(), ActionError> {
    let hook = &record.hooks[index];
    if hook.kind == "CustomResourceDefinition" || !hook.delete_policies.iter().any(|known| known == policy) {
        return Ok(());
    }
    let objects =
        read_manifest(context.cluster, &hook.manifest, &record.namespace).await.map_err(|error| {
            ActionError::Apply(format!(
                "unable to build kubernetes object for deleting hook {}: {error}",
                hook.path
            ))
        })?;
    let references: Vec<ObjectRef> = objects.iter().map(ObjectRef::of).collect();
    let errors = apply::delete_all(context, &references, Propagation::Background).await;
    if !errors.is_empty() {
        return Err(ActionError::Apply(errors.join("; ")));
    }
    wait::gone(context, &references).await
}
