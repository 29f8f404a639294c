//! [`Cluster`] in memory: enough of an API server to run the rules of this crate without one.
//!
//! It merges applied objects by field (lists are replaced as a whole), remembers what each field
//! manager applied last so that fields it no longer sends disappear, bumps `resourceVersion` and
//! `generation`, and can be told to fail. It does not validate, default or garbage-collect.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::cluster::{ApplyMode, Cluster, ClusterError, Events, WatchEvent, WatchScope};
use crate::object::{self, ObjectRef};
use crate::write::{ClusterFacts, LogLimits, MergeKind, Propagation, WriteCluster, WriteOptions};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one.
    Get,
    /// Read many.
    List,
    /// Apply without effect.
    DryRun,
    /// Apply.
    Apply,
    /// Create one.
    Create,
    /// Replace one.
    Replace,
    /// JSON patch or merge patch.
    Patch,
    /// Delete.
    Delete,
    /// Watch.
    Watch,
}

/// A failure to come.
#[derive(Debug, Clone)]
struct Fault {
    verb: Verb,
    subject: String,
    error: ClusterError,
    times: usize,
}

type Key = (String, String, String, String);

struct State {
    objects: BTreeMap<Key, Value>,
    applied: BTreeMap<(Key, String), Value>,
    cluster_scoped: BTreeSet<(String, String)>,
    unknown: BTreeSet<(String, String)>,
    namespaces_required: bool,
    requests: Vec<(Verb, String)>,
    faults: Vec<Fault>,
    logs: BTreeMap<(String, String), String>,
    revision: u64,
}

/// An API server in memory.
pub struct MemoryCluster {
    state: Mutex<State>,
    events: broadcast::Sender<WatchEvent>,
}

impl Default for MemoryCluster {
    fn default() -> Self {
        let cluster_scoped = [
            ("", "Namespace"),
            ("", "PersistentVolume"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            ("rbac.authorization.k8s.io", "ClusterRole"),
            ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
            ("storage.k8s.io", "StorageClass"),
        ]
        .map(|(group, kind)| (group.to_owned(), kind.to_owned()));
        Self {
            state: Mutex::new(State {
                objects: BTreeMap::new(),
                applied: BTreeMap::new(),
                cluster_scoped: cluster_scoped.into(),
                unknown: BTreeSet::new(),
                namespaces_required: false,
                requests: Vec::new(),
                faults: Vec::new(),
                logs: BTreeMap::new(),
                revision: 0,
            }),
            events: broadcast::channel(1024).0,
        }
    }
}

impl MemoryCluster {
    /// An empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts an object in place as it is, as another client would.
    pub fn put(&self, mut object: Value) {
        let mut state = self.state.lock();
        let reference = state.scoped(&ObjectRef::of(&object));
        state.touch(&mut object);
        state.objects.insert(key(&reference), object.clone());
        drop(state);
        let _ = self.events.send(WatchEvent::Applied(object));
    }

    /// Takes an object away, as another client would.
    pub fn take(&self, reference: &ObjectRef) {
        let removed = self.state.lock().objects.remove(&key(reference));
        if let Some(object) = removed {
            let _ = self.events.send(WatchEvent::Deleted(object));
        }
    }

    /// The object as it is.
    pub fn peek(&self, reference: &ObjectRef) -> Option<Value> {
        self.state.lock().objects.get(&key(reference)).cloned()
    }

    /// Makes a container of a Pod have written something.
    pub fn write_log(&self, pod: &ObjectRef, container: &str, text: &str) {
        self.state.lock().logs.insert((pod.to_string(), container.to_owned()), text.to_owned());
    }

    /// All objects.
    pub fn all(&self) -> Vec<Value> {
        self.state.lock().objects.values().cloned().collect()
    }

    /// Makes the next `times` requests of this kind about `subject` (`*`: any) fail.
    pub fn fail(&self, verb: Verb, subject: &str, error: ClusterError, times: usize) {
        self.state.lock().faults.push(Fault { verb, subject: subject.to_owned(), error, times });
    }

    /// Makes a kind unknown until a CRD for it is applied, or known again.
    pub fn set_unknown(&self, group: &str, kind: &str, unknown: bool) {
        let mut state = self.state.lock();
        let entry = (group.to_owned(), kind.to_owned());
        if unknown {
            state.unknown.insert(entry);
        } else {
            state.unknown.remove(&entry);
        }
    }

    /// Makes objects fail to apply while their namespace does not exist.
    pub fn require_namespaces(&self) {
        self.state.lock().namespaces_required = true;
    }

    /// The requests so far, oldest first; forgets them.
    pub fn take_requests(&self) -> Vec<(Verb, String)> {
        std::mem::take(&mut self.state.lock().requests)
    }
}

fn key(object: &ObjectRef) -> Key {
    (object.group.clone(), object.kind.clone(), object.namespace.clone(), object.name.clone())
}

impl State {
    fn record(&mut self, verb: Verb, subject: &str) -> Result<(), ClusterError> {
        self.requests.push((verb, subject.to_owned()));
        let fault = self.faults.iter_mut().find(|fault| {
            fault.times > 0 && fault.verb == verb && (fault.subject == "*" || fault.subject == subject)
        });
        match fault {
            Some(fault) => {
                fault.times -= 1;
                Err(fault.error.clone())
            }
            None => Ok(()),
        }
    }

    fn check_kind(&self, object: &ObjectRef) -> Result<(), ClusterError> {
        if self.unknown.contains(&(object.group.clone(), object.kind.clone())) {
            return Err(ClusterError::NoMatch {
                kind: object.kind.clone(),
                api_version: object.api_version(),
            });
        }
        Ok(())
    }

    fn is_cluster_scoped(&self, object: &ObjectRef) -> bool {
        self.cluster_scoped.contains(&(object.group.clone(), object.kind.clone()))
    }

    /// The reference without a namespace if the kind has none.
    fn scoped(&self, object: &ObjectRef) -> ObjectRef {
        let mut object = object.clone();
        if self.is_cluster_scoped(&object) {
            object.namespace.clear();
        }
        object
    }

    fn touch(&mut self, object: &mut Value) {
        self.revision += 1;
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
    }

    fn applied(&self, reference: &ObjectRef, desired: &Value, manager: &str) -> Value {
        let previous = self.applied.get(&(key(reference), manager.to_owned()));
        let live = self.objects.get(&key(reference));
        let mut result = live
            .cloned()
            .unwrap_or_else(|| json!({"apiVersion": desired["apiVersion"], "kind": desired["kind"]}));
        if let Some(previous) = previous {
            remove_missing(&mut result, previous, desired);
        }
        merge(&mut result, desired);
        if self.is_cluster_scoped(reference)
            && let Some(metadata) = result["metadata"].as_object_mut()
        {
            metadata.remove("namespace");
        }
        let changed_spec = live.is_some_and(|live| live.get("spec") != result.get("spec"));
        if changed_spec {
            let generation = result["metadata"]["generation"].as_i64().unwrap_or(1);
            result["metadata"]["generation"] = (generation + 1).into();
        }
        result
    }
}

/// Deletes from `target` what `previous` had and `desired` has no longer.
fn remove_missing(target: &mut Value, previous: &Value, desired: &Value) {
    let (Some(target), Some(previous)) = (target.as_object_mut(), previous.as_object()) else {
        return;
    };
    for (name, old) in previous {
        match desired.get(name) {
            None => {
                target.remove(name);
            }
            Some(new) => {
                if let Some(child) = target.get_mut(name) {
                    remove_missing(child, old, new);
                }
            }
        }
    }
}

fn merge(target: &mut Value, source: &Value) {
    match (target, source) {
        (Value::Object(target), Value::Object(source)) => {
            for (name, value) in source {
                merge(target.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (target, source) => *target = source.clone(),
    }
}

#[async_trait]
impl Cluster for MemoryCluster {
    async fn get(&self, object: &ObjectRef) -> Result<Option<Value>, ClusterError> {
        let mut state = self.state.lock();
        state.record(Verb::Get, &object.to_string())?;
        state.check_kind(object)?;
        let object = state.scoped(object);
        Ok(state.objects.get(&key(&object)).cloned())
    }

    async fn list(
        &self,
        kind: &ObjectRef,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>, ClusterError> {
        let mut state = self.state.lock();
        state.record(Verb::List, &kind.kind)?;
        state.check_kind(kind)?;
        let selector = crate::ignore::Selector::parse(labels).map_err(|error| ClusterError::Api {
            code: 400,
            reason: "BadRequest".into(),
            message: error.to_string(),
        })?;
        Ok(state
            .objects
            .iter()
            .filter(|((group, found, in_namespace, _), object)| {
                *group == kind.group
                    && *found == kind.kind
                    && namespace.is_none_or(|namespace| namespace == in_namespace)
                    && selector.matches(|key| object::label(object, key))
            })
            .map(|(_, object)| object.clone())
            .collect())
    }

    async fn apply(&self, object: &Value, mode: ApplyMode<'_>) -> Result<Value, ClusterError> {
        let reference = ObjectRef::of(object);
        let mut state = self.state.lock();
        let verb = if mode.dry_run { Verb::DryRun } else { Verb::Apply };
        state.record(verb, &reference.to_string())?;
        state.check_kind(&reference)?;
        let reference = state.scoped(&reference);
        if state.namespaces_required && !reference.namespace.is_empty() {
            let namespace =
                (String::new(), "Namespace".to_owned(), String::new(), reference.namespace.clone());
            if !state.objects.contains_key(&namespace) {
                return Err(ClusterError::not_found(format!(
                    "namespaces \"{}\" not found",
                    reference.namespace
                )));
            }
        }
        let mut result = state.applied(&reference, object, mode.manager);
        if mode.dry_run {
            return Ok(result);
        }
        let live = state.objects.get(&key(&reference));
        if live != Some(&result) {
            state.touch(&mut result);
        }
        state.objects.insert(key(&reference), result.clone());
        state.applied.insert((key(&reference), mode.manager.to_owned()), object.clone());
        if reference.kind == "CustomResourceDefinition" {
            let group = result["spec"]["group"].as_str().unwrap_or_default().to_owned();
            let kind = result["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
            state.unknown.remove(&(group, kind));
        }
        drop(state);
        let _ = self.events.send(WatchEvent::Applied(result.clone()));
        Ok(result)
    }

    async fn patch(
        &self,
        object: &ObjectRef,
        operations: &Value,
        _manager: &str,
    ) -> Result<Value, ClusterError> {
        let mut state = self.state.lock();
        state.record(Verb::Patch, &object.to_string())?;
        let reference = state.scoped(object);
        let Some(mut live) = state.objects.get(&key(&reference)).cloned() else {
            return Err(ClusterError::not_found(format!("{object} not found")));
        };
        for operation in operations.as_array().into_iter().flatten() {
            let path = object::text(operation, "path");
            match object::text(operation, "op") {
                "remove" => crate::ignore::remove(&mut live, path),
                _ => {
                    if let Some(field) = live.pointer_mut(path) {
                        *field = operation.get("value").cloned().unwrap_or_default();
                    }
                }
            }
        }
        state.touch(&mut live);
        state.objects.insert(key(&reference), live.clone());
        Ok(live)
    }

    async fn delete(&self, object: &ObjectRef) -> Result<(), ClusterError> {
        let mut state = self.state.lock();
        state.record(Verb::Delete, &object.to_string())?;
        state.check_kind(object)?;
        let reference = state.scoped(object);
        let holds =
            |live: &Value| live["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        match state.objects.get_mut(&key(&reference)) {
            None => return Err(ClusterError::not_found(format!("{object} not found"))),
            Some(live) if holds(live) => {
                live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                return Ok(());
            }
            Some(_) => {}
        }
        let removed = state.objects.remove(&key(&reference));
        state.applied.retain(|(applied, _), _| *applied != key(&reference));
        drop(state);
        if let Some(removed) = removed {
            let _ = self.events.send(WatchEvent::Deleted(removed));
        }
        Ok(())
    }

    async fn watch(&self, scope: &WatchScope) -> Result<Events, ClusterError> {
        let receiver = self.events.subscribe();
        let existing: Vec<Value> = {
            let mut state = self.state.lock();
            state.record(Verb::Watch, &scope.kind.kind)?;
            state.check_kind(&scope.kind)?;
            state.objects.values().cloned().collect()
        };
        let scope = scope.clone();
        let selector =
            crate::ignore::Selector::parse(scope.labels.as_deref().unwrap_or_default()).unwrap_or_default();
        let live = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.ok().map(|event| (event, receiver))
        });
        let events = stream::iter(existing.into_iter().map(WatchEvent::Applied)).chain(live);
        let events = events.filter(move |event| {
            let (WatchEvent::Applied(object) | WatchEvent::Deleted(object)) = event;
            let reference = ObjectRef::of(object);
            let wanted = reference.is_kind(&scope.kind.group, &scope.kind.kind)
                && scope.namespace.as_ref().is_none_or(|namespace| *namespace == reference.namespace)
                && scope.name.as_ref().is_none_or(|name| *name == reference.name)
                && selector.matches(|key| object::label(object, key));
            futures::future::ready(wanted)
        });
        Ok(events.map(Ok).boxed())
    }

    async fn is_namespaced(&self, kind: &ObjectRef) -> Result<bool, ClusterError> {
        let state = self.state.lock();
        state.check_kind(kind)?;
        Ok(!state.is_cluster_scoped(kind))
    }
}

fn already_exists(object: &ObjectRef) -> ClusterError {
    ClusterError::Api {
        code: 409,
        reason: "AlreadyExists".to_owned(),
        message: format!("{} \"{}\" already exists", object.kind.to_lowercase() + "s", object.name),
    }
}

#[async_trait]
impl WriteCluster for MemoryCluster {
    async fn create(&self, object: &Value, _options: WriteOptions<'_>) -> Result<Value, ClusterError> {
        let reference = ObjectRef::of(object);
        let mut state = self.state.lock();
        state.record(Verb::Create, &reference.to_string())?;
        state.check_kind(&reference)?;
        let reference = state.scoped(&reference);
        if state.objects.contains_key(&key(&reference)) {
            return Err(already_exists(&reference));
        }
        let mut created = object.clone();
        state.touch(&mut created);
        state.objects.insert(key(&reference), created.clone());
        drop(state);
        let _ = self.events.send(WatchEvent::Applied(created.clone()));
        Ok(created)
    }

    async fn replace(&self, object: &Value, _options: WriteOptions<'_>) -> Result<Value, ClusterError> {
        let reference = ObjectRef::of(object);
        let mut state = self.state.lock();
        state.record(Verb::Replace, &reference.to_string())?;
        state.check_kind(&reference)?;
        let reference = state.scoped(&reference);
        if !state.objects.contains_key(&key(&reference)) {
            return Err(ClusterError::not_found(format!("{reference} not found")));
        }
        let mut replaced = object.clone();
        state.touch(&mut replaced);
        state.objects.insert(key(&reference), replaced.clone());
        drop(state);
        let _ = self.events.send(WatchEvent::Applied(replaced.clone()));
        Ok(replaced)
    }

    async fn merge(
        &self,
        object: &ObjectRef,
        patch: &Value,
        _kind: MergeKind,
        _options: WriteOptions<'_>,
    ) -> Result<Value, ClusterError> {
        let mut state = self.state.lock();
        state.record(Verb::Patch, &object.to_string())?;
        state.check_kind(object)?;
        let reference = state.scoped(object);
        let Some(mut live) = state.objects.get(&key(&reference)).cloned() else {
            return Err(ClusterError::not_found(format!("{reference} not found")));
        };
        merge_patch(&mut live, patch);
        state.touch(&mut live);
        state.objects.insert(key(&reference), live.clone());
        drop(state);
        let _ = self.events.send(WatchEvent::Applied(live.clone()));
        Ok(live)
    }

    async fn apply_as(
        &self,
        object: &Value,
        _force: bool,
        options: WriteOptions<'_>,
    ) -> Result<Value, ClusterError> {
        Cluster::apply(self, object, ApplyMode { manager: options.manager, dry_run: false }).await
    }

    async fn delete_with(&self, object: &ObjectRef, _propagation: Propagation) -> Result<(), ClusterError> {
        Cluster::delete(self, object).await
    }

    async fn pod_log(
        &self,
        pod: &ObjectRef,
        container: &str,
        limits: LogLimits,
    ) -> Result<String, ClusterError> {
        let state = self.state.lock();
        let text = state.logs.get(&(pod.to_string(), container.to_owned())).cloned().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        Ok(lines[lines.len().saturating_sub(limits.lines_max)..].join("\n"))
    }

    async fn facts(&self) -> Result<ClusterFacts, ClusterError> {
        Ok(ClusterFacts {
            version: "v1.36.0".to_owned(),
            major: "1".to_owned(),
            minor: "36".to_owned(),
            api_versions: ["v1", "apps/v1", "batch/v1"].map(str::to_owned).into(),
        })
    }
}

/// As RFC 7386 has it.
fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Value::Object(target) = target {
        for (name, value) in patch {
            if value.is_null() {
                target.remove(name);
            } else {
                merge_patch(target.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
    }
}
