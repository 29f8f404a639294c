//! Notices when somebody changes or deletes a managed object, and has it put right at once.
//!
//! Only metadata is watched, one watch per kind for all Kustomizations. What is remembered of an
//! object is one number: a hash of the fields the API server says we own, and of what others left
//! that is to be cleaned up. A status update, an annotation of another controller or a scaled
//! replica count that is not ours does not change it; an edit of one of our fields does, because the
//! API server takes its ownership from us.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use weir_api::kustomize::Kustomization;
use weir_apply::apply::Applied;
use weir_apply::kubernetes::KubernetesCluster;
use weir_apply::managers::CleanUp;
use weir_apply::object::{self, ObjectRef};
use weir_runtime::{Handle, ObjectKey, Priority, Trigger};

use crate::decide::GROUP;

/// The first pause before drift is undone again; it doubles while the drift comes back.
const FIGHT_DELAY_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const FIGHT_DELAY_MAX: Duration = Duration::from_mins(10);
/// Drift that comes back after this long is no fight.
const FIGHT_OVER_AFTER: Duration = Duration::from_mins(1);
/// The pause before a kind that cannot be watched is tried again.
const WATCH_RETRY_DELAY: Duration = Duration::from_secs(30);

/// An object whatever its version: group, kind, namespace, name.
type Identity = (String, String, String, String);

fn identity(object: &ObjectRef) -> Identity {
    (object.group.clone(), object.kind.clone(), object.namespace.clone(), object.name.clone())
}

/// What is known of a managed object.
#[derive(Debug, Clone)]
struct Tracked {
    owner: ObjectKey,
    fingerprint: u64,
    version: Option<u64>,
    /// A run has been asked for since the object was applied.
    marked: bool,
}

/// What a watch has seen of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// `None`: it is gone.
    fingerprint: Option<u64>,
    version: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Fight {
    rounds: u32,
    last: Instant,
}

/// Compares what watches see with what was applied. No IO; time comes in.
#[derive(Debug, Default)]
struct Tracker {
    objects: HashMap<Identity, Tracked>,
    owned: HashMap<ObjectKey, HashSet<Identity>>,
    /// Owners that are being applied, and what was seen of their objects meanwhile.
    running: HashMap<ObjectKey, HashMap<Identity, Seen>>,
    fights: HashMap<Identity, Fight>,
}

/// An owner that has to run, and when.
#[derive(Debug, PartialEq, Eq)]
struct Drifted {
    owner: ObjectKey,
    object: Identity,
    delay: Duration,
}

impl Tracker {
    fn begin(&mut self, owner: &ObjectKey) {
        self.running.entry(owner.clone()).or_default();
    }

    /// Takes in what was applied; `complete` if that is everything the owner has.
    fn record(
        &mut self,
        owner: &ObjectKey,
        applied: impl IntoIterator<Item = (Identity, Seen)>,
        complete: bool,
    ) {
        let mut listed = HashSet::new();
        for (identity, seen) in applied {
            listed.insert(identity.clone());
            let Some(fingerprint) = seen.fingerprint else { continue };
            let tracked = Tracked { owner: owner.clone(), fingerprint, version: seen.version, marked: false };
            self.objects.insert(identity, tracked);
        }
        let owned = self.owned.entry(owner.clone()).or_default();
        if complete {
            for gone in owned.difference(&listed) {
                if self.objects.get(gone).is_some_and(|tracked| tracked.owner == *owner) {
                    self.objects.remove(gone);
                    self.fights.remove(gone);
                }
            }
            *owned = listed;
        } else {
            owned.extend(listed);
        }
    }

    /// The run is over: looks at what was seen meanwhile.
    fn end(&mut self, owner: &ObjectKey, now: Instant) -> Option<Drifted> {
        let pending = self.running.remove(owner)?;
        let mut drifted = None;
        for (identity, seen) in pending {
            drifted = drifted.or_else(|| self.see(&identity, seen, now));
        }
        drifted
    }

    /// Takes in what a watch saw.
    fn see(&mut self, identity: &Identity, seen: Seen, now: Instant) -> Option<Drifted> {
        let tracked = self.objects.get_mut(identity)?;
        if let Some(pending) = self.running.get_mut(&tracked.owner) {
            pending.insert(identity.clone(), seen);
            return None;
        }
        if tracked.marked {
            return None;
        }
        let is_old = matches!((seen.version, tracked.version), (Some(seen), Some(known)) if seen <= known);
        if is_old {
            return None;
        }
        if seen.fingerprint == Some(tracked.fingerprint) {
            tracked.version = seen.version;
            return None;
        }
        tracked.marked = true;
        let owner = tracked.owner.clone();
        let delay = self.fight(identity, now);
        Some(Drifted { owner, object: identity.clone(), delay })
    }

    /// How long to wait before drift is undone: not at all at first, longer while it comes back.
    fn fight(&mut self, identity: &Identity, now: Instant) -> Duration {
        let fight = self.fights.entry(identity.clone()).or_insert(Fight { rounds: 0, last: now });
        if now.duration_since(fight.last) > FIGHT_OVER_AFTER.max(delay_of(fight.rounds) * 2) {
            fight.rounds = 0;
        }
        let delay = delay_of(fight.rounds);
        fight.rounds = fight.rounds.saturating_add(1);
        fight.last = now;
        delay
    }

    fn forget(&mut self, owner: &ObjectKey) {
        for identity in self.owned.remove(owner).unwrap_or_default() {
            if self.objects.get(&identity).is_some_and(|tracked| tracked.owner == *owner) {
                self.objects.remove(&identity);
                self.fights.remove(&identity);
            }
        }
        self.running.remove(owner);
    }

    /// The objects of a kind that are known, to find out which are gone after a new list.
    fn of_kind(&self, group: &str, kind: &str) -> Vec<Identity> {
        self.objects.keys().filter(|(g, k, _, _)| g == group && k == kind).cloned().collect()
    }
}

/// The pause after a number of rounds: none for the first two, then doubling.
fn delay_of(rounds: u32) -> Duration {
    match rounds.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => FIGHT_DELAY_MIN.saturating_mul(1 << doublings.min(16)).min(FIGHT_DELAY_MAX),
    }
}

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

/// Watches the managed kinds and has Kustomizations run whose objects were changed.
pub struct DriftWatch {
    cluster: Arc<KubernetesCluster>,
    clean_up: CleanUp,
    manager: &'static str,
    tracker: Mutex<Tracker>,
    watched: Mutex<HashSet<(String, String)>>,
    handle: OnceLock<Handle>,
}

impl DriftWatch {
    /// A watch that knows nothing yet.
    pub fn new(cluster: Arc<KubernetesCluster>, clean_up: CleanUp, manager: &'static str) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            clean_up,
            manager,
            tracker: Mutex::default(),
            watched: Mutex::default(),
            handle: OnceLock::new(),
        })
    }

    /// Says whom to ask for runs.
    pub fn connect(&self, handle: Handle) {
        let _ = self.handle.set(handle);
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

    fn undo(&self, drifted: Drifted) {
        let Some(handle) = self.handle.get().cloned() else { return };
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
        if drifted.delay.is_zero() {
            handle.enqueue(&drifted.owner, Priority::Event, &trigger);
            return;
        }
        tokio::spawn(async move {
            tokio::time::sleep(drifted.delay).await;
            handle.enqueue(&drifted.owner, Priority::Event, &trigger);
        });
    }

    /// Starts to watch a kind, unless it is watched already.
    fn watch_kind(self: &Arc<Self>, object: &ObjectRef) {
        if !self.watched.lock().insert((object.group.clone(), object.kind.clone())) {
            return;
        }
        let kind = ObjectRef { namespace: String::new(), name: String::new(), ..object.clone() };
        let watch = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(this) = watch.upgrade() {
                this.follow(&kind).await;
                drop(this);
                tokio::time::sleep(WATCH_RETRY_DELAY).await;
            }
        });
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
                    missing = self.tracker.lock().of_kind(&kind.group, &kind.kind).into_iter().collect();
                    continue;
                }
                Ok(Event::InitDone) => {
                    for identity in std::mem::take(&mut missing) {
                        self.take_in(&identity, Seen { fingerprint: None, version: None });
                    }
                    continue;
                }
                Ok(Event::InitApply(meta) | Event::Apply(meta)) => (meta, false),
                Ok(Event::Delete(meta)) => (meta, true),
                Err(error) => {
                    tracing::debug!(kind = %kind.group_kind(), error = %error, "watch of managed objects failed");
                    continue;
                }
            };
            let (identity, seen) = self.read(kind, &meta);
            missing.remove(&identity);
            let seen = if gone { Seen { fingerprint: None, ..seen } } else { seen };
            self.take_in(&identity, seen);
        }
    }

    fn read(&self, kind: &ObjectRef, meta: &PartialObjectMeta<DynamicObject>) -> (Identity, Seen) {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let identity = (
            kind.group.clone(),
            kind.kind.clone(),
            text(&meta.metadata.namespace),
            text(&meta.metadata.name),
        );
        let metadata = serde_json::to_value(&meta.metadata).unwrap_or_default();
        (identity, self.seen(&json!({"metadata": metadata})))
    }

    fn take_in(&self, identity: &Identity, seen: Seen) {
        let drifted = self.tracker.lock().see(identity, seen, Instant::now());
        if let Some(drifted) = drifted {
            self.undo(drifted);
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
        self.watch.tracker.lock().record(&self.owner, seen, complete);
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        let drifted = self.watch.tracker.lock().end(&self.owner, Instant::now());
        if let Some(drifted) = drifted {
            self.watch.undo(drifted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> ObjectKey {
        ObjectKey::new("flux-system", "apps")
    }

    fn config(name: &str) -> Identity {
        (String::new(), "ConfigMap".into(), "n".into(), name.into())
    }

    fn seen(fingerprint: u64, version: u64) -> Seen {
        Seen { fingerprint: Some(fingerprint), version: Some(version) }
    }

    fn gone(version: u64) -> Seen {
        Seen { fingerprint: None, version: Some(version) }
    }

    fn recorded() -> Tracker {
        let mut tracker = Tracker::default();
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("a"), seen(1, 10))], true);
        assert_eq!(tracker.end(&owner(), Instant::now()), None);
        tracker
    }

    #[track_caller]
    fn check(tracker: &mut Tracker, name: &str, seen: Seen, drifts: bool) {
        assert_eq!(tracker.see(&config(name), seen, Instant::now()).is_some(), drifts);
    }

    #[tokio::test(start_paused = true)]
    async fn only_changes_of_what_we_own_are_drift() {
        let mut tracker = recorded();
        check(&mut tracker, "a", seen(1, 10), false);
        check(&mut tracker, "a", seen(1, 12), false);
        check(&mut tracker, "a", seen(2, 11), false);
        check(&mut tracker, "unknown", seen(2, 13), false);
        check(&mut tracker, "a", seen(2, 13), true);
        check(&mut tracker, "a", gone(14), false);
        check(&mut recorded(), "a", gone(14), true);
        check(&mut recorded(), "a", Seen { fingerprint: None, version: None }, true);
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_writes_are_not_drift() {
        let mut tracker = recorded();
        tracker.begin(&owner());
        check(&mut tracker, "a", seen(2, 20), false);
        tracker.record(&owner(), [(config("a"), seen(2, 20))], true);
        assert_eq!(tracker.end(&owner(), Instant::now()), None);
        check(&mut tracker, "a", seen(2, 20), false);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_during_a_run_is_found_at_its_end() {
        let mut tracker = recorded();
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("a"), seen(2, 20))], true);
        check(&mut tracker, "a", seen(3, 21), false);
        assert_eq!(tracker.end(&owner(), Instant::now()).unwrap().object, config("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn pruned_objects_are_not_missed() {
        let mut tracker = recorded();
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("b"), seen(5, 20))], true);
        check(&mut tracker, "a", gone(21), false);
        assert_eq!(tracker.end(&owner(), Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_run_keeps_what_it_did_not_reach() {
        let mut tracker = recorded();
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("b"), seen(5, 20))], false);
        assert_eq!(tracker.end(&owner(), Instant::now()), None);
        check(&mut tracker, "a", seen(2, 13), true);
        tracker.forget(&owner());
        check(&mut tracker, "a", seen(3, 14), false);
        check(&mut tracker, "b", seen(3, 24), false);
    }

    #[tokio::test(start_paused = true)]
    async fn fights_slow_down_and_end() {
        let mut tracker = recorded();
        let mut delays = Vec::new();
        for version in 20..25 {
            let drifted = tracker.see(&config("a"), seen(2, version), Instant::now()).unwrap();
            delays.push(drifted.delay.as_secs());
            let again = tracker.see(&config("a"), seen(3, version), Instant::now());
            assert_eq!(again, None, "one run is asked for");
            tracker.record(&owner(), [(config("a"), seen(1, version))], true);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(delays, [0, 0, 1, 2, 4]);
        tokio::time::advance(Duration::from_mins(3)).await;
        assert_eq!(tracker.see(&config("a"), seen(2, 30), Instant::now()).unwrap().delay, Duration::ZERO);
    }

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
