//! Waits for the objects of a release, and for hooks.

use std::time::Duration;

use serde_json::Value as Json;
use tokio::time::Instant;
use weir_apply::health::{CustomChecks, Target, Wait, WaitError, wait, wait_gone};
use weir_apply::object::ObjectRef;

use super::{ActionError, Context, WaitStrategy};
use crate::legacy;

/// How often objects are read that cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How often objects are read by the rules of Helm 3.
const LEGACY_INTERVAL: Duration = Duration::from_secs(2);

/// Waits until the objects of a release are ready, as the strategy says.
pub(super) async fn ready(context: &Context<'_>, objects: &[Json]) -> Result<(), ActionError> {
    let rules = context.wait;
    match rules.strategy {
        WaitStrategy::HooksOnly => Ok(()),
        WaitStrategy::Status => {
            let targets = objects
                .iter()
                .filter(|item| !is_paused(item) && (rules.jobs || !is_job(item)))
                .map(target)
                .collect();
            Ok(status(context, targets, rules.checks, true).await?)
        }
        WaitStrategy::Legacy => {
            let objects = objects.iter().filter(|item| rules.jobs || !is_job(item));
            legacy_ready(context, &objects.map(ObjectRef::of).collect::<Vec<_>>()).await
        }
    }
}

async fn status(
    context: &Context<'_>,
    targets: Vec<Target>,
    checks: &CustomChecks,
    fail_fast: bool,
) -> Result<(), WaitError> {
    if targets.is_empty() {
        return Ok(());
    }
    let options = Wait {
        checks,
        selector: None,
        timeout: context.wait.timeout,
        fail_fast,
        poll_interval: POLL_INTERVAL,
        clock: context.clock,
    };
    wait(context.cluster, targets, &options).await
}

fn target(item: &Json) -> Target {
    let may_vanish = is_job(item) && item["spec"].get("ttlSecondsAfterFinished").is_some();
    Target { may_vanish, ..Target::new(ObjectRef::of(item)) }
}

fn is_job(item: &Json) -> bool {
    ObjectRef::of(item).is_kind("batch", "Job")
}

fn is_paused(item: &Json) -> bool {
    ObjectRef::of(item).is_kind("apps", "Deployment") && item["spec"]["paused"] == true
}

/// Waits until the objects of a hook have done their work: Jobs and Pods until they have completed,
/// others with a rule of the user until that is met, everything else not at all.
pub(super) async fn completed(context: &Context<'_>, objects: &[Json]) -> Result<(), ActionError> {
    let mut runs = Vec::new();
    let mut targets = Vec::new();
    for item in objects {
        let reference = ObjectRef::of(item);
        if context.wait.checks.find(&reference).is_some() {
            targets.push(target(item));
        } else if reference.is_kind("batch", "Job") || reference.is_kind("", "Pod") {
            runs.push(reference);
        }
    }
    status(context, targets, context.wait.checks, false).await?;
    let deadline = Instant::now() + context.wait.timeout;
    for reference in runs {
        run_completed(context, &reference, deadline).await?;
    }
    Ok(())
}

async fn run_completed(
    context: &Context<'_>,
    reference: &ObjectRef,
    deadline: Instant,
) -> Result<(), ActionError> {
    use futures::StreamExt as _;
    let scope = weir_apply::cluster::WatchScope {
        kind: reference.clone(),
        namespace: Some(reference.namespace.clone()),
        labels: None,
        name: Some(reference.name.clone()),
        metadata_only: false,
    };
    let timed_out = |status: &str| {
        let subject = format!("{reference} status: '{status}'");
        ActionError::NotReady(format!("timeout waiting for: [{subject}]"))
    };
    if context.cluster.get(reference).await?.is_none() {
        return Ok(());
    }
    loop {
        let mut events = match tokio::time::timeout_at(deadline, context.cluster.watch(&scope)).await {
            Err(_) => return Err(timed_out("Unknown")),
            Ok(Ok(events)) => events,
            Ok(Err(error)) if error.is_transient() => {
                tokio::time::sleep(LEGACY_INTERVAL).await;
                continue;
            }
            Ok(Err(error)) => return Err(error.into()),
        };
        let mut seen = false;
        loop {
            let event = match tokio::time::timeout_at(deadline, events.next()).await {
                Err(_) => return Err(timed_out("InProgress")),
                Ok(None | Some(Err(_))) => break,
                Ok(Some(Ok(event))) => event,
            };
            match event {
                weir_apply::cluster::WatchEvent::Applied(live) => {
                    seen = true;
                    match run_state(reference, &live) {
                        Run::Succeeded => return Ok(()),
                        Run::Failed(message) => return Err(ActionError::NotReady(message)),
                        Run::Running => {}
                    }
                }
                // A Job that cleans up after itself, or a Pod somebody removed.
                weir_apply::cluster::WatchEvent::Deleted(_) if seen => return Ok(()),
                weir_apply::cluster::WatchEvent::Deleted(_) => {}
            }
        }
        if Instant::now() >= deadline {
            return Err(timed_out("InProgress"));
        }
    }
}

enum Run {
    Succeeded,
    Failed(String),
    Running,
}

fn run_state(reference: &ObjectRef, live: &Json) -> Run {
    let failed =
        |why: &str| Run::Failed(format!("resource {reference} not ready. status: Failed, message: {why}"));
    if reference.kind == "Pod" {
        return match live["status"]["phase"].as_str() {
            Some("Succeeded") => Run::Succeeded,
            Some("Failed") => failed(live["status"]["message"].as_str().unwrap_or("Pod failed")),
            _ => Run::Running,
        };
    }
    for condition in live["status"]["conditions"].as_array().into_iter().flatten() {
        if condition["status"] != "True" {
            continue;
        }
        match condition["type"].as_str() {
            Some("Complete") => return Run::Succeeded,
            Some("Failed") => return failed(condition["message"].as_str().unwrap_or("Job failed")),
            _ => {}
        }
    }
    if live["spec"]["suspend"] == true { Run::Succeeded } else { Run::Running }
}

async fn legacy_ready(context: &Context<'_>, objects: &[ObjectRef]) -> Result<(), ActionError> {
    let deadline = Instant::now() + context.wait.timeout;
    let mut position = 0;
    while let Some(reference) = objects.get(position) {
        let state = match tokio::time::timeout_at(deadline, context.cluster.get(reference)).await {
            Err(_) | Ok(Ok(None)) => legacy::State::NotYet,
            Ok(Err(error)) if error.is_transient() => legacy::State::NotYet,
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(Some(live))) => legacy::look_at(context.cluster, reference, &live).await?,
        };
        match state {
            legacy::State::Ready => {
                position += 1;
                continue;
            }
            legacy::State::Failed(message) => return Err(ActionError::NotReady(message)),
            legacy::State::NotYet => {}
        }
        if Instant::now() + LEGACY_INTERVAL >= deadline {
            return Err(ActionError::NotReady(format!(
                "resource not ready, name: {}, kind: {}, status: InProgress\ncontext deadline exceeded",
                reference.name, reference.kind
            )));
        }
        tokio::time::sleep(LEGACY_INTERVAL).await;
    }
    Ok(())
}

/// Waits until objects are gone.
pub(super) async fn gone(context: &Context<'_>, objects: &[ObjectRef]) -> Result<(), ActionError> {
    let result = wait_gone(context.cluster, objects, context.wait.timeout).await;
    result.map_err(|error| match error {
        WaitError::Timeout(left) => {
            let left: Vec<String> = left.iter().map(|unready| unready.object.to_string()).collect();
            ActionError::NotReady(format!(
                "{} termination timeout: context deadline exceeded",
                left.join(", ")
            ))
        }
        other @ WaitError::Failed(_) => ActionError::Wait(other),
    })
}
