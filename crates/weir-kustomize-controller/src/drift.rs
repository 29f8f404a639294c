//! Notices when somebody changes or deletes a managed object, and has it put right at once.
//!
//! Only metadata is watched, one watch per kind for all Kustomizations. What is remembered of an
//! object is one number: a hash of the fields the API server says we own, and of what others left
//! that is to be cleaned up. A status update, an annotation of another controller or a scaled
//! replica count that is not ours does not change it; an edit of one of our fields does, because the
//! API server takes its ownership from us.

mod tracker;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use weir_api::kustomize::Kustomization;
use weir_apply::apply::Applied;
use weir_apply::kubernetes::KubernetesCluster;
use weir_apply::managers::{CleanUp, other_managers};
use weir_apply::object::{self, ObjectRef};
use weir_runtime::{Handle, Notice, ObjectKey, Priority, Recorder, Severity, Store, Trigger};

use self::tracker::{Drifted, FIGHT_TOLD_FROM, Healthy, Identity, Seen, Tracker, identity};
use crate::decide::{GROUP, go};

/// The pause before a kind that cannot be watched is tried again.
const WATCH_RETRY_DELAY: Duration = Duration::from_secs(30);
/// How long after a definition changed those who wait for it run: by then it is usually served.
const DEFINED_DELAY: Duration = Duration::from_secs(1);
/// How many names of other field managers are told.
const MANAGERS_TOLD_MAX: usize = 3;

/// A hash of what we own of an object, and of what is to be cleaned up on it.
fn fingerprint(live: &Value, clean_up: &CleanUp, manager: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let entries =
        live.get("metadata").and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array);
    for entry in entries.into_iter().flatten() {
        let own = object::text(entry, "manager") == manager
            && object::text(entry, "operation") == "Apply"
            && object::text(entry, "subresource").is_empty();
        if own {
            entry.get("fieldsV1").map(ToString::to_string).hash(&mut hasher);
        }
    }
    clean_up.patch(live, manager).map(|patch| patch.to_string()).hash(&mut hasher);
    hasher.finish()
}

fn versions(healthy: Vec<(ObjectRef, String)>) -> Vec<Healthy> {
    let healthy = healthy.into_iter();
    healthy.map(|(object, version)| Healthy { object, version: version.parse().ok() }).collect()
}

/// Whom to ask for runs, and whom to tell.
struct Connection {
    handle: Handle,
    recorder: Recorder,
    kustomizations: Store<Kustomization>,
}

/// What need not be looked at.
#[derive(Debug)]
pub struct Untouched {
    /// The objects that are as they were when everything was compared.
    pub objects: HashSet<Identity>,
    /// Those of them that were ready and have not changed since, in their versions.
    pub healthy: Vec<(ObjectRef, String)>,
    /// When everything was compared.
    pub since: Instant,
}

/// Watches the managed kinds and has Kustomizations run whose objects were changed.
pub struct DriftWatch {
    cluster: Arc<KubernetesCluster>,
    clean_up: CleanUp,
    manager: &'static str,
    full_check_interval: Duration,
    tracker: Mutex<Tracker>,
    /// The kinds that are watched, and whether the watch is up to date.
    watched: Mutex<HashMap<(String, String), bool>>,
    definitions: OnceLock<()>,
    connection: OnceLock<Connection>,
}

impl DriftWatch {
    /// A watch that knows nothing yet. A Kustomization is looked at in full at least once per
    /// `full_check_interval`.
    pub fn new(
        cluster: Arc<KubernetesCluster>,
        clean_up: CleanUp,
        manager: &'static str,
        full_check_interval: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            clean_up,
            manager,
            full_check_interval,
            tracker: Mutex::default(),
            watched: Mutex::default(),
            definitions: OnceLock::new(),
            connection: OnceLock::new(),
        })
    }

    /// Says whom to ask for runs and whom to tell.
    pub fn connect(&self, handle: Handle, recorder: Recorder, kustomizations: Store<Kustomization>) {
        let _ = self.connection.set(Connection { handle, recorder, kustomizations });
    }

    /// Everything was as it should be `at` a time: what the health depends on is remembered.
    pub fn settle(
        &self,
        object: &Kustomization,
        key: String,
        healthy: Vec<(ObjectRef, String)>,
        at: Instant,
    ) {
        self.tracker.lock().settle(&ObjectKey::of(object), key, versions(healthy), at);
    }

    /// Objects of a settled Kustomization were found ready again, in these versions.
    pub fn still_healthy(&self, object: &Kustomization, healthy: Vec<(ObjectRef, String)>) {
        self.tracker.lock().still_healthy(&ObjectKey::of(object), versions(healthy));
    }

    /// Which kinds are watched now, by group and kind, with a watch that is up to date.
    fn is_watched(&self) -> impl Fn(&str, &str) -> bool + use<> {
        let watched = self.watched.lock().clone();
        move |group, kind| watched.get(&(group.to_owned(), kind.to_owned())).copied().unwrap_or_default()
    }

    /// What need not be looked at because nobody has touched it since everything was compared; `None` if all has to
    /// be compared. To be asked before [`DriftWatch::begin`].
    pub fn untouched(&self, object: &Kustomization, key: &str) -> Option<Untouched> {
        let is_watched = self.is_watched();
        let owner = ObjectKey::of(object);
        let untouched = self.tracker.lock().untouched(
            &owner,
            key,
            self.full_check_interval,
            Instant::now(),
            is_watched,
        )?;
        let healthy = untouched.healthy.into_iter();
        Some(Untouched {
            objects: untouched.objects,
            healthy: healthy
                .filter_map(|healthy| Some((healthy.object, healthy.version?.to_string())))
                .collect(),
            since: untouched.since,
        })
    }

    /// The objects whose health has to be looked at, because they changed since they were ready; `None` if
    /// everything has to be looked at.
    pub fn settled(&self, object: &Kustomization, key: &str) -> Option<Vec<ObjectRef>> {
        let is_watched = self.is_watched();
        let owner = ObjectKey::of(object);
        self.tracker.lock().settled(&owner, key, self.full_check_interval, Instant::now(), is_watched)
    }

    /// A Kustomization cannot be applied before a kind of an API group is defined: it runs again when
    /// a definition of the group appears or changes.
    pub fn await_definition(self: &Arc<Self>, object: &Kustomization, group: &str) {
        self.tracker.lock().await_group(&ObjectKey::of(object), group);
        if self.definitions.set(()).is_ok() {
            let watch = Arc::downgrade(self);
            tokio::spawn(async move {
                while let Some(this) = watch.upgrade() {
                    this.follow_definitions().await;
                    drop(this);
                    tokio::time::sleep(WATCH_RETRY_DELAY).await;
                }
            });
        }
    }

    async fn follow_definitions(&self) {
        let group = "apiextensions.k8s.io";
        let resource = ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: "CustomResourceDefinition".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
        };
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.cluster.client().clone(), &resource);
        let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            let Ok(Event::Apply(definition)) = event else { continue };
            let name = definition.metadata.name.unwrap_or_default();
            let Some((_, group)) = name.split_once('.') else { continue };
            let awaiting = self.tracker.lock().take_awaiting(group);
            let trigger = Trigger {
                kind: "CustomResourceDefinition".to_owned(),
                key: ObjectKey::new("", name.as_str()),
            };
            for owner in awaiting {
                self.enqueue(owner, trigger.clone(), DEFINED_DELAY);
            }
        }
    }

    fn enqueue(&self, owner: ObjectKey, trigger: Trigger, delay: Duration) {
        let Some(handle) = self.connection.get().map(|connection| connection.handle.clone()) else { return };
        if delay.is_zero() {
            handle.enqueue(&owner, Priority::Event, &trigger);
            return;
        }
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            handle.enqueue(&owner, Priority::Event, &trigger);
        });
    }

    /// A Kustomization starts to apply: what is seen of its objects is its own doing until the
    /// returned value is dropped.
    pub fn begin(self: &Arc<Self>, object: &Kustomization) -> Applying {
        let owner = ObjectKey::of(object);
        self.tracker.lock().begin(&owner);
        Applying { watch: Arc::clone(self), owner }
    }

    /// Forgets a Kustomization that is deleted.
    pub fn forget(&self, object: &Kustomization) {
        self.tracker.lock().forget(&ObjectKey::of(object));
    }

    fn seen(&self, live: &Value) -> Seen {
        Seen {
            fingerprint: Some(fingerprint(live, &self.clean_up, self.manager)),
            version: object::resource_version(live).parse().ok(),
        }
    }

    /// Has drift undone; `managers` are others that wrote to the object.
    fn undo(&self, drifted: Drifted, managers: &[String]) {
        let (_, kind, namespace, name) = drifted.object;
        tracing::info!(
            kind,
            objectNamespace = namespace,
            objectName = name,
            kustomization = %drifted.owner,
            delaySeconds = drifted.delay.as_secs(),
            "managed object changed, undoing"
        );
        let trigger = Trigger { kind, key: ObjectKey::new(namespace, name) };
        if drifted.rounds >= FIGHT_TOLD_FROM {
            self.tell(&drifted.owner, &trigger, drifted.delay, managers);
        }
        self.enqueue(drifted.owner, trigger, drifted.delay);
    }

    /// Tells that somebody keeps changing an object.
    fn tell(&self, owner: &ObjectKey, changed: &Trigger, delay: Duration, managers: &[String]) {
        let Some(connection) = self.connection.get() else { return };
        let Some(object) = connection.kustomizations.get(owner) else { return };
        let by = if managers.is_empty() { String::new() } else { format!(" by '{}'", managers.join("', '")) };
        let message =
            format!("{changed} is changed again and again{by}; undoing the next change in {}", go(delay));
        connection.recorder.record(&*object, &Notice::new(Severity::Error, "DriftDetected", message));
    }

    /// Starts to watch a kind, unless it is watched already.
    fn watch_kind(self: &Arc<Self>, object: &ObjectRef) {
        let key = (object.group.clone(), object.kind.clone());
        {
            let mut watched = self.watched.lock();
            if watched.contains_key(&key) {
                return;
            }
            watched.insert(key, false);
        }
        let kind = ObjectRef { namespace: String::new(), name: String::new(), ..object.clone() };
        let watch = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(this) = watch.upgrade() {
                this.follow(&kind).await;
                this.set_up_to_date(&kind, false);
                drop(this);
                tokio::time::sleep(WATCH_RETRY_DELAY).await;
            }
        });
    }

    fn set_up_to_date(&self, kind: &ObjectRef, up_to_date: bool) {
        self.watched.lock().insert((kind.group.clone(), kind.kind.clone()), up_to_date);
    }

    /// Follows a kind for as long as it can be watched.
    async fn follow(&self, kind: &ObjectRef) {
        let resource = match self.cluster.api_resource(kind).await {
            Ok(resource) => resource,
            Err(error) => {
                tracing::debug!(kind = %kind.group_kind(), error = %error, "unable to watch managed objects");
                return;
            }
        };
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.cluster.client().clone(), &resource);
        let config = watcher::Config::default().labels(&format!("{GROUP}/name"));
        let mut events = pin!(watcher(api, config).default_backoff());
        let mut missing: HashSet<Identity> = HashSet::new();
        while let Some(event) = events.next().await {
            let (meta, gone) = match event {
                Ok(Event::Init) => {
                    self.set_up_to_date(kind, false);
                    missing = self.tracker.lock().of_kind(&kind.group, &kind.kind).into_iter().collect();
                    continue;
                }
                Ok(Event::InitDone) => {
                    for identity in std::mem::take(&mut missing) {
                        self.take_in(&identity, Seen { fingerprint: None, version: None }, &[]);
                    }
                    self.set_up_to_date(kind, true);
                    continue;
                }
                Ok(Event::InitApply(meta) | Event::Apply(meta)) => (meta, false),
                Ok(Event::Delete(meta)) => (meta, true),
                Err(error) => {
                    self.set_up_to_date(kind, false);
                    tracing::debug!(kind = %kind.group_kind(), error = %error, "watch of managed objects failed");
                    continue;
                }
            };
            // An event shows that the watch works again after an error.
            if missing.is_empty() {
                self.set_up_to_date(kind, true);
            }
            let (identity, seen, managers) = self.read(kind, &meta);
            missing.remove(&identity);
            let seen = if gone { Seen { fingerprint: None, ..seen } } else { seen };
            self.take_in(&identity, seen, &managers);
        }
    }

    fn read(
        &self,
        kind: &ObjectRef,
        meta: &PartialObjectMeta<DynamicObject>,
    ) -> (Identity, Seen, Vec<String>) {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let identity = (
            kind.group.clone(),
            kind.kind.clone(),
            text(&meta.metadata.namespace),
            text(&meta.metadata.name),
        );
        let live = json!({"metadata": serde_json::to_value(&meta.metadata).unwrap_or_default()});
        let managers = other_managers(&live, self.manager);
        let last = managers.into_iter().rev().take(MANAGERS_TOLD_MAX).map(str::to_owned).collect();
        (identity, self.seen(&live), last)
    }

    fn take_in(&self, identity: &Identity, seen: Seen, managers: &[String]) {
        let drifted = self.tracker.lock().see(identity, seen, Instant::now());
        if let Some(drifted) = drifted {
            self.undo(drifted, managers);
        }
    }
}

/// A Kustomization that is being applied.
pub struct Applying {
    watch: Arc<DriftWatch>,
    owner: ObjectKey,
}

impl Applying {
    /// Takes in what was applied; `complete` if nothing is missing.
    pub fn record(&mut self, applied: &Applied, complete: bool) {
        let mut kinds: HashSet<(String, String)> = HashSet::new();
        let mut seen = Vec::new();
        for live in &applied.live {
            let reference = ObjectRef::of(live);
            if kinds.insert((reference.group.clone(), reference.kind.clone())) {
                self.watch.watch_kind(&reference);
            }
            seen.push((identity(&reference), self.watch.seen(live)));
        }
        let untouched = applied.untouched.iter().map(identity);
        self.watch.tracker.lock().record(&self.owner, seen, untouched, complete);
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        let drifted = self.watch.tracker.lock().end(&self.owner, Instant::now());
        if let Some(drifted) = drifted {
            self.watch.undo(drifted, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_follows_ownership_only() {
        let clean_up = CleanUp::kustomize("kustomize-controller", GROUP, &[]);
        let print = |live: &Value| fingerprint(live, &clean_up, "kustomize-controller");
        let own = |fields: Value| json!({"manager": "kustomize-controller", "operation": "Apply", "fieldsV1": fields});
        let base = json!({"metadata": {"managedFields": [own(json!({"f:data": {"f:a": {}, "f:b": {}}}))]}});
        let with_status = json!({"metadata": {"resourceVersion": "9", "annotations": {"x": "y"}, "generation": 3, "managedFields": [
            own(json!({"f:data": {"f:a": {}, "f:b": {}}})),
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}]}});
        assert_eq!(print(&base), print(&with_status));
        let edited = json!({"metadata": {"managedFields": [own(json!({"f:data": {"f:a": {}}})),
            {"manager": "other", "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}}]}});
        assert_ne!(print(&base), print(&edited));
        let added = json!({"metadata": {"managedFields": [own(json!({"f:data": {"f:a": {}, "f:b": {}}})),
            {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:data": {"f:c": {}}}}]}});
        assert_ne!(print(&base), print(&added));
    }
}
