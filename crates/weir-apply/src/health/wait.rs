//! Waits until objects are ready: by watching them, with slow polling behind it for what a watch
//! does not show.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use futures::stream::{self, BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::time::Instant;
use weir_base::clock::Clock;

use super::{Assessment, CustomChecks, Status, assess, field, is_failed_pod};
use crate::cluster::{Cluster, ClusterError, WatchEvent, WatchScope};
use crate::object::ObjectRef;

/// How many objects are read at the same time.
const READS_MAX: usize = 8;
/// From how many objects of one kind in one namespace on they are listed instead of read one by one.
const LIST_OBJECTS_MIN: usize = 3;
/// How many objects of one kind are watched one by one when no selector covers them all.
const SINGLE_WATCHES_MAX: usize = 20;
/// The first pause before a watch that ended is started again; it doubles up to the poll interval.
const WATCH_DELAY_MIN: Duration = Duration::from_millis(50);
/// After how many polls an object that is watched is read anyway.
const POLLS_PER_FULL_READ: u32 = 6;

/// An object to wait for.
#[derive(Debug, Clone)]
pub struct Target {
    /// The object.
    pub object: ObjectRef,
    /// The object as it was seen a moment ago, which saves the first read.
    pub known: Option<Value>,
    /// Whether its absence means success: a Job that cleans up after itself.
    pub may_vanish: bool,
}

impl Target {
    /// An object nothing is known about yet.
    pub fn new(object: ObjectRef) -> Self {
        Self { object, known: None, may_vanish: false }
    }
}

/// How to wait.
pub struct Wait<'a> {
    /// Custom rules.
    pub checks: &'a CustomChecks,
    /// A label selector that covers all targets, so that one watch per kind is enough.
    pub selector: Option<&'a str>,
    /// How long to wait at most.
    pub timeout: Duration,
    /// Whether one failed object ends the wait.
    pub fail_fast: bool,
    /// How often to read what is not watched.
    pub poll_interval: Duration,
    /// Tells the age of objects.
    pub clock: &'a dyn Clock,
}

/// One object that is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unready {
    /// The object.
    pub object: ObjectRef,
    /// Its status.
    pub status: Status,
    /// Why; may be empty.
    pub message: String,
}

impl fmt::Display for Unready {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} status: '{}'", self.object, self.status)?;
        if self.message.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.message) }
    }
}

/// Why the wait ended without success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// Time ran out.
    #[error("timeout waiting for: [{}]", list(.0))]
    Timeout(Vec<Unready>),
    /// Objects failed.
    #[error("failed early due to stalled resources: [{}]", list(.0))]
    Failed(Vec<Unready>),
}

fn list(unready: &[Unready]) -> String {
    unready.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

struct State {
    target: Target,
    assessment: Assessment,
    /// The version of the object that was assessed.
    version: String,
    watched: bool,
}

impl State {
    fn is_finished(&self) -> bool {
        matches!(self.assessment.status, Status::Current | Status::Failed)
    }

    fn unready(&self) -> Unready {
        Unready {
            object: self.target.object.clone(),
            status: self.assessment.status,
            message: self.assessment.message.clone(),
        }
    }
}

/// Waits until every target is ready.
///
/// # Errors
/// When a target failed (with `fail_fast`, or when none is left that could still get ready), or when
/// the timeout has passed; both name the objects concerned.
///
/// # Cancellation
/// Nothing is written; dropping the future ends the watches.
pub async fn wait(cluster: &dyn Cluster, targets: Vec<Target>, options: &Wait<'_>) -> Result<(), WaitError> {
    wait_for_versions(cluster, targets, options).await.map(|_| ())
}

/// Waits until every target is ready, and gives the versions in which they were.
///
/// An object that still has its version is still ready. A target that vanished has an empty one.
///
/// # Errors
/// As for [`wait`].
///
/// # Cancellation
/// Nothing is written; dropping the future ends the watches.
pub async fn wait_for_versions(
    cluster: &dyn Cluster,
    targets: Vec<Target>,
    options: &Wait<'_>,
) -> Result<Vec<(ObjectRef, String)>, WaitError> {
    let unknown = Assessment::new(Status::Unknown, "");
    let mut states: Vec<State> = targets
        .into_iter()
        .map(|target| State { target, assessment: unknown.clone(), version: String::new(), watched: false })
        .collect();
    wait_until_ready(cluster, &mut states, options).await?;
    Ok(states.into_iter().map(|state| (state.target.object, state.version)).collect())
}

async fn wait_until_ready(
    cluster: &dyn Cluster,
    states: &mut [State],
    options: &Wait<'_>,
) -> Result<(), WaitError> {
    let deadline = Instant::now() + options.timeout;
    for state in states.iter_mut() {
        if let Some(known) = state.target.known.take() {
            let assessment = assess(&known, options.checks, options.clock.now());
            record(state, assessment, resource_version(&known));
        }
    }
    let unknown: Vec<usize> = positions(states, |state| state.assessment.status == Status::Unknown);
    let late = tokio::time::timeout_at(deadline, read(cluster, options, states, unknown)).await.is_err();
    if let Some(verdict) = decide(states, options.fail_fast) {
        return verdict;
    }
    if late {
        return Err(timeout(states));
    }
    let mut events = watch_unfinished(cluster, options, states, deadline).await;
    // A watch that ended is started again soon, sooner than the next poll.
    let mut watch_again: Option<Instant> = None;
    let mut watch_delay = WATCH_DELAY_MIN;
    let mut polls = tokio::time::interval_at(Instant::now() + options.poll_interval, options.poll_interval);
    polls.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut poll_count: u32 = 0;
    loop {
        let reread: Vec<usize> = tokio::select! {
            biased;
            () = tokio::time::sleep_until(deadline) => return Err(timeout(states)),
            Some(event) = events.next(), if !events.is_empty() => {
                if event.is_err() {
                    watch_again.get_or_insert(Instant::now() + watch_delay);
                    watch_delay = (watch_delay * 2).min(options.poll_interval.max(WATCH_DELAY_MIN));
                } else {
                    watch_delay = WATCH_DELAY_MIN;
                }
                on_event(event, options, states)
            }
            () = sleep_until(watch_again) => {
                watch_again = None;
                events = watch_unfinished(cluster, options, states, deadline).await;
                Vec::new()
            }
            _ = polls.tick() => {
                poll_count += 1;
                if states.iter().any(|state| !state.is_finished() && !state.watched) {
                    watch_again = None;
                    events = watch_unfinished(cluster, options, states, deadline).await;
                }
                let all = poll_count.is_multiple_of(POLLS_PER_FULL_READ);
                positions(states, |state| {
                    state.assessment.status != Status::Current
                        && (all || !state.watched || needs_another_look(&state.target.object))
                })
            }
        };
        if !reread.is_empty()
            && tokio::time::timeout_at(deadline, read(cluster, options, states, reread)).await.is_err()
        {
            return Err(timeout(states));
        }
        if let Some(verdict) = decide(states, options.fail_fast) {
            return verdict;
        }
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Waits until every object is gone.
///
/// # Errors
/// The objects that are still there after `timeout`.
pub async fn wait_gone(
    cluster: &dyn Cluster,
    objects: &[ObjectRef],
    timeout: Duration,
) -> Result<(), WaitError> {
    const DELAY_MIN: Duration = Duration::from_millis(100);
    const DELAY_MAX: Duration = Duration::from_secs(2);
    let deadline = Instant::now() + timeout;
    for (position, object) in objects.iter().enumerate() {
        let mut delay = DELAY_MIN;
        loop {
            let answer = tokio::time::timeout_at(deadline, cluster.get(object)).await;
            let (status, message) = match answer {
                Ok(Ok(None)) => break,
                Ok(Err(error)) if error.is_no_match() => break,
                Ok(Ok(Some(_))) => (Status::Terminating, String::new()),
                Ok(Err(error)) => (Status::Unknown, error.to_string()),
                Err(_) => (Status::Unknown, String::new()),
            };
            if Instant::now() + delay >= deadline {
                let mut left = vec![Unready { object: object.clone(), status, message }];
                left.extend(objects[position + 1..].iter().map(|object| Unready {
                    object: object.clone(),
                    status: Status::Terminating,
                    message: String::new(),
                }));
                return Err(WaitError::Timeout(left));
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(DELAY_MAX);
        }
    }
    Ok(())
}

fn positions(states: &[State], wanted: impl Fn(&State) -> bool) -> Vec<usize> {
    states.iter().enumerate().filter(|(_, state)| wanted(state)).map(|(position, _)| position).collect()
}

fn timeout(states: &[State]) -> WaitError {
    WaitError::Timeout(
        states
            .iter()
            .filter(|state| state.assessment.status != Status::Current)
            .map(State::unready)
            .collect(),
    )
}

/// Whether the wait is over, and how.
fn decide(states: &[State], fail_fast: bool) -> Option<Result<(), WaitError>> {
    if states.iter().all(|state| state.assessment.status == Status::Current) {
        return Some(Ok(()));
    }
    let failed: Vec<Unready> =
        states.iter().filter(|state| state.assessment.status == Status::Failed).map(State::unready).collect();
    let hopeless = states.iter().all(State::is_finished);
    if !failed.is_empty() && (fail_fast || hopeless) {
        return Some(Err(WaitError::Failed(failed)));
    }
    None
}

/// Reads the objects at `positions` and assesses them, looking through to Pods where that matters.
async fn read(cluster: &dyn Cluster, options: &Wait<'_>, states: &mut [State], positions: Vec<usize>) {
    let objects: Vec<ObjectRef> =
        positions.iter().map(|position| states[*position].target.object.clone()).collect();
    let mut listed = list_together(cluster, options, &objects).await;
    let found: Vec<_> = objects.iter().map(|object| listed.remove(&key(object))).collect();
    let mut answers = stream::iter(positions.into_iter().zip(objects).zip(found))
        .map(|((position, object), found)| async move {
            let (assessment, version) = match found {
                Some(live) => (judge(cluster, options, &object, &live).await, resource_version(&live)),
                None => look_at(cluster, options, &object).await,
            };
            (position, assessment, version)
        })
        .buffer_unordered(READS_MAX);
    while let Some((position, assessment, version)) = answers.next().await {
        record(&mut states[position], assessment, version);
    }
}

/// Namespace, name, group and kind.
type Key = (String, String, String, String);

fn key(object: &ObjectRef) -> Key {
    let (namespace, name, group, kind) = object.identity();
    (namespace.to_owned(), name.to_owned(), group.to_owned(), kind.to_owned())
}

/// The live objects of kinds of which there are several: one request for all of a kind in a namespace.
///
/// What a list lacks, because its labels were changed or because it is gone, has to be read by itself.
async fn list_together(
    cluster: &dyn Cluster,
    options: &Wait<'_>,
    objects: &[ObjectRef],
) -> HashMap<Key, Value> {
    let mut live = HashMap::new();
    let Some(selector) = options.selector else { return live };
    let mut kinds: BTreeMap<ObjectRef, usize> = BTreeMap::new();
    for object in objects {
        *kinds.entry(ObjectRef { name: String::new(), ..object.clone() }).or_default() += 1;
    }
    let mut lists = stream::iter(kinds.into_iter().filter(|(_, count)| *count >= LIST_OBJECTS_MIN))
        .map(|(kind, _)| async move {
            let namespace = (!kind.namespace.is_empty()).then_some(kind.namespace.as_str());
            cluster.list(&kind, namespace, selector).await
        })
        .buffer_unordered(READS_MAX);
    while let Some(list) = lists.next().await {
        for object in list.into_iter().flatten() {
            live.insert(key(&ObjectRef::of(&object)), object);
        }
    }
    live
}

fn resource_version(live: &Value) -> String {
    crate::object::resource_version(live).to_owned()
}

fn record(state: &mut State, assessment: Assessment, version: String) {
    state.version = version;
    state.assessment = if assessment.status == Status::NotFound && state.target.may_vanish {
        Assessment::new(Status::Current, "Job is gone after it finished")
    } else {
        assessment
    };
}

async fn look_at(cluster: &dyn Cluster, options: &Wait<'_>, object: &ObjectRef) -> (Assessment, String) {
    match cluster.get(object).await {
        Ok(Some(live)) => (judge(cluster, options, object, &live).await, resource_version(&live)),
        Ok(None) => (Assessment::new(Status::NotFound, ""), String::new()),
        Err(error) => (Assessment::new(Status::Unknown, error.to_string()), String::new()),
    }
}

async fn judge(cluster: &dyn Cluster, options: &Wait<'_>, object: &ObjectRef, live: &Value) -> Assessment {
    let assessment = assess(live, options.checks, options.clock.now());
    if assessment.status != Status::InProgress
        || !needs_another_look(object)
        || options.checks.find(object).is_some()
    {
        return assessment;
    }
    match failed_pod(cluster, options, object, live).await {
        Ok(Some(pod)) => Assessment::new(Status::Failed, format!("{pod} failed")),
        Ok(None) => assessment,
        Err(error) => Assessment::new(Status::Unknown, error.to_string()),
    }
}

/// Whether failures show in the Pods before they show in the object itself.
fn needs_another_look(object: &ObjectRef) -> bool {
    // An unschedulable Pod fails by the passing of time alone.
    matches!(
        (object.group.as_str(), object.kind.as_str()),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet")
            | ("extensions", "Deployment" | "ReplicaSet")
            | ("", "Pod")
    )
}

/// The first failed Pod of what the workload is to be now; Pods of what it was before do not count.
async fn failed_pod(
    cluster: &dyn Cluster,
    options: &Wait<'_>,
    object: &ObjectRef,
    live: &Value,
) -> Result<Option<ObjectRef>, ClusterError> {
    let Some(selector) = field(live, &["spec", "selector"]).and_then(selector_text) else {
        return Ok(None);
    };
    let generation = |path: &[&str]| field(live, path).and_then(Value::as_i64);
    let observed = generation(&["status", "observedGeneration"]);
    if observed.is_some_and(|observed| Some(observed) != generation(&["metadata", "generation"])) {
        return Ok(None);
    }
    let pods = ObjectRef { version: "v1".to_owned(), kind: "Pod".to_owned(), ..ObjectRef::default() };
    let pods = cluster.list(&pods, Some(&object.namespace), &selector).await?;
    let now = options.clock.now();
    let failed: Vec<&Value> = pods.iter().filter(|pod| is_failed_pod(pod, now)).collect();
    if failed.is_empty() {
        return Ok(None);
    }
    let current = current_revision(cluster, object, live, &selector).await?;
    let is_current = |pod: &Value| {
        let Some((label, revision)) = &current else { return true };
        crate::object::label(pod, label).is_none_or(|found| found == revision)
    };
    Ok(failed.into_iter().find(|pod| is_current(pod)).map(ObjectRef::of))
}

/// The label and value that Pods of the current template carry, if that can be told.
async fn current_revision(
    cluster: &dyn Cluster,
    object: &ObjectRef,
    live: &Value,
    selector: &str,
) -> Result<Option<(&'static str, String)>, ClusterError> {
    const REVISION: &str = "deployment.kubernetes.io/revision";
    const TEMPLATE: &str = "pod-template-hash";
    match object.kind.as_str() {
        "StatefulSet" => {
            let revision = field(live, &["status", "updateRevision"]).and_then(Value::as_str);
            Ok(revision.map(|revision| ("controller-revision-hash", revision.to_owned())))
        }
        "Deployment" => {
            let Some(revision) = crate::object::annotation(live, REVISION) else { return Ok(None) };
            let kind = ObjectRef { kind: "ReplicaSet".to_owned(), ..object.clone() };
            let sets = cluster.list(&kind, Some(&object.namespace), selector).await?;
            let newest = sets.iter().find(|set| crate::object::annotation(set, REVISION) == Some(revision));
            let hash = newest.and_then(|set| crate::object::label(set, TEMPLATE));
            Ok(hash.map(|hash| (TEMPLATE, hash.to_owned())))
        }
        _ => Ok(None),
    }
}

/// A `LabelSelector` as text; `None` if it is empty or not understood.
fn selector_text(selector: &Value) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        for (key, value) in labels {
            parts.push(format!("{key}={}", value.as_str()?));
        }
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = expression.get("key")?.as_str()?;
        let values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        parts.push(match expression.get("operator")?.as_str()? {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

type Event = Result<WatchEvent, ()>;

/// Starts watches on everything that is not ready or failed yet.
async fn watch_unfinished(
    cluster: &dyn Cluster,
    options: &Wait<'_>,
    states: &mut [State],
    deadline: Instant,
) -> SelectAll<BoxStream<'static, Event>> {
    let mut scopes: Vec<(WatchScope, Vec<usize>)> = Vec::new();
    let unfinished = positions(states, |state| !state.is_finished());
    let kinds: BTreeSet<(String, String, String, String)> = unfinished
        .iter()
        .map(|position| {
            let object = &states[*position].target.object;
            (object.group.clone(), object.version.clone(), object.kind.clone(), object.namespace.clone())
        })
        .collect();
    for (group, version, kind, namespace) in kinds {
        let of_kind: Vec<usize> = unfinished
            .iter()
            .copied()
            .filter(|position| {
                let object = &states[*position].target.object;
                object.group == group
                    && object.version == version
                    && object.kind == kind
                    && object.namespace == namespace
            })
            .collect();
        let scope = |labels: Option<&str>, name: Option<&str>| WatchScope {
            kind: ObjectRef {
                group: group.clone(),
                version: version.clone(),
                kind: kind.clone(),
                ..ObjectRef::default()
            },
            namespace: (!namespace.is_empty()).then(|| namespace.clone()),
            labels: labels.map(str::to_owned),
            name: name.map(str::to_owned),
            metadata_only: false,
        };
        if options.selector.is_some() && of_kind.len() > 1 {
            scopes.push((scope(options.selector, None), of_kind));
        } else {
            for position in of_kind.into_iter().take(SINGLE_WATCHES_MAX) {
                let name = states[position].target.object.name.clone();
                scopes.push((scope(None, Some(&name)), vec![position]));
            }
        }
    }
    for state in states.iter_mut() {
        state.watched = false;
    }
    let mut events = SelectAll::new();
    for (scope, covered) in scopes {
        match tokio::time::timeout_at(deadline, cluster.watch(&scope)).await {
            Ok(Ok(stream)) => {
                for position in covered {
                    states[position].watched = true;
                }
                let ended = futures::future::ready(Err(())).into_stream();
                events.push(stream.map(|event| event.map_err(|_| ())).chain(ended).boxed());
            }
            Ok(Err(error)) => {
                tracing::debug!(kind = %scope.kind.group_kind(), error = %error, "unable to watch, polling instead");
            }
            Err(_) => break,
        }
    }
    events
}

/// Takes an event in; the objects that have to be read because of it.
fn on_event(event: Event, options: &Wait<'_>, states: &mut [State]) -> Vec<usize> {
    let (object, deleted) = match event {
        Ok(WatchEvent::Applied(object)) => (object, false),
        Ok(WatchEvent::Deleted(object)) => (object, true),
        Err(()) => {
            // A watch has ended: read at the next poll, and start watching again.
            for state in states.iter_mut() {
                state.watched = false;
            }
            return Vec::new();
        }
    };
    let reference = ObjectRef::of(&object);
    let Some(position) =
        states.iter().position(|state| state.target.object.identity() == reference.identity())
    else {
        return Vec::new();
    };
    if deleted {
        return vec![position];
    }
    let assessment = assess(&object, options.checks, options.clock.now());
    // A failure seen in the Pods is not undone by an event that does not look at them.
    let hides_failure =
        states[position].assessment.status == Status::Failed && assessment.status == Status::InProgress;
    if !hides_failure {
        record(&mut states[position], assessment, resource_version(&object));
    }
    Vec::new()
}
