//! The cluster: its state, and how requests reach it.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use weir_base::clock::{Clock, SystemClock};

use crate::auth::{Identity, Tokens};
use crate::builtin::{self, Services};
use crate::crd::definition;
use crate::drive::Drive;
use crate::error::ApiError;
use crate::faults::Faults;
use crate::kinds::{Kind, Kinds};
use crate::rbac::Policy;
use crate::rules;
use crate::settle::Task;
use crate::snapshot;
use crate::store::{Change, Event, Store, Stored};

/// How clients rank the groups that the server serves itself; others come after them.
const GROUP_PRIORITIES: &[(&str, i64)] = &[
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("apiextensions.k8s.io", 16_700),
    ("admissionregistration.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
];

/// The standing object for a group and version that the server serves itself.
fn api_service(group: &str, version: &str) -> Value {
    let known = GROUP_PRIORITIES.iter().find(|(name, _)| *name == group);
    let priority = match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        _ => 15,
    };
    let mut spec = json!({
        "groupPriorityMinimum": known.map_or(15_000, |(_, priority)| *priority),
        "version": version, "versionPriority": priority
    });
    if !group.is_empty() {
        spec["group"] = json!(group);
    }
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {
            "name": format!("{version}.{group}"), "labels": { "kube-aggregator.kubernetes.io/automanaged": "onstart" }
        },
        "spec": spec
    })
}

/// Namespaces that every cluster has.
const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// Steps of controllers after one write: two that undo each other must not keep a request for ever. The rest is done
/// when the next thing is due.
const STEPS_MAX: usize = 100_000;

pub(crate) const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
pub(crate) const NAMESPACES_TABLE: &str = "/namespaces";

/// How a cluster shall be.
#[must_use]
pub struct Builder {
    clock: Arc<dyn Clock>,
    faults: Faults,
    snapshot: Option<PathBuf>,
    rbac: bool,
    seed: u64,
    tokens: HashMap<String, Identity>,
    controllers: bool,
    mutate: Option<Mutate>,
}

/// What changes objects on their way in, as a mutating webhook does.
pub(crate) type Mutate = Arc<dyn Fn(&mut Value) + Send + Sync>;

impl Builder {
    /// The time that objects get; the machine's by default.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What shall go wrong; nothing by default.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// A file to restore the objects from, if it exists; [`TestCluster::save`] writes it.
    pub fn snapshot(mut self, path: impl Into<PathBuf>) -> Self {
        self.snapshot = Some(path.into());
        self
    }

    /// Whether roles decide what requests may do; by default all may do everything.
    pub fn rbac(mut self, enforce: bool) -> Self {
        self.rbac = enforce;
        self
    }

    /// Makes uids, generated names and tokens the same in each run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether deployments get pods, pods become ready, and so on; by default nothing acts on objects but the server.
    pub fn controllers(mut self, run: bool) -> Self {
        self.controllers = run;
        self
    }

    /// Changes objects when they are created or changed, before they are validated, as a mutating webhook does.
    ///
    /// The function sees the object with its `apiVersion` and `kind`, also in dry runs, and must give the same result
    /// when it sees its own result again.
    pub fn mutate(mut self, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.mutate = Some(Arc::new(change));
        self
    }

    /// Accepts a bearer token.
    pub fn token(mut self, token: impl Into<String>, identity: Identity) -> Self {
        self.tokens.insert(token.into(), identity);
        self
    }

    /// The cluster.
    ///
    /// # Errors
    /// When the snapshot cannot be read.
    pub fn build(self) -> Result<TestCluster, snapshot::Error> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let key: [u8; 32] = random.random();
        let inner = Inner {
            store: Store::new(),
            kinds: RwLock::new(Arc::new(Kinds::new(Vec::new(), 0))),
            clock: self.clock,
            random: Mutex::new(random),
            faults: self.faults,
            rbac: self.rbac,
            policy: Mutex::new(None),
            tokens: Tokens::new(key, self.tokens),
            snapshot: self.snapshot,
            work: Mutex::new(Work::default()),
            controllers: self.controllers.then(Drive::default),
            mutate: self.mutate,
            services: Mutex::new(Services::new()),
        };
        let cluster = TestCluster { inner: Arc::new(inner) };
        if let Some(path) = cluster.inner.snapshot.clone().filter(|path| path.exists()) {
            let (revision, objects) = snapshot::read(&path)?;
            cluster.inner.store.load(revision, objects);
        }
        cluster.inner.refresh_kinds();
        for service in cluster.inner.store.list("/services", "").objects {
            cluster.inner.services.lock().hold(&service.value());
        }
        cluster.inner.bootstrap();
        cluster.inner.start_controllers();
        Ok(cluster)
    }
}

/// A Kubernetes-compatible API server in this process.
///
/// Copies share one cluster.
#[derive(Clone)]
pub struct TestCluster {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Default)]
struct Work {
    tasks: VecDeque<Task>,
    running: bool,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    kinds: RwLock<Arc<Kinds>>,
    clock: Arc<dyn Clock>,
    random: Mutex<StdRng>,
    pub(crate) faults: Faults,
    pub(crate) rbac: bool,
    pub(crate) policy: Mutex<Option<(u64, Arc<Policy>)>>,
    pub(crate) tokens: Tokens,
    snapshot: Option<PathBuf>,
    work: Mutex<Work>,
    pub(crate) controllers: Option<Drive>,
    pub(crate) mutate: Option<Mutate>,
    /// Addresses and ports that services hold.
    pub(crate) services: Mutex<Services>,
}

impl Default for TestCluster {
    /// An empty cluster with the machine's clock.
    fn default() -> Self {
        match Self::builder().build() {
            Ok(cluster) => cluster,
            // Only reading a snapshot fails, and there is none.
            Err(_) => unreachable!("a cluster without a snapshot is always built"),
        }
    }
}

impl TestCluster {
    /// Begins to describe a cluster.
    pub fn builder() -> Builder {
        Builder {
            clock: Arc::new(SystemClock),
            faults: Faults::default(),
            snapshot: None,
            rbac: false,
            seed: 0,
            tokens: HashMap::new(),
            controllers: false,
            mutate: None,
        }
    }

    /// How many objects there are.
    pub fn object_count(&self) -> usize {
        self.inner.store.len()
    }

    /// All objects, with their `apiVersion` and `kind` in the version they are stored as, in the order of kinds,
    /// namespaces and names.
    pub fn objects(&self) -> Vec<Value> {
        let kinds = self.inner.kinds();
        let (_, mut all) = self.inner.store.dump();
        all.sort_by(|(a, x), (b, y)| (a, x.key()).cmp(&(b, y.key())));
        all.iter()
            .filter_map(|(table, stored)| Some(self.inner.value_as(kinds.of_table(table)?, stored)))
            .collect()
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.inner.store.revision()
    }

    /// What goes wrong, to change it while the cluster runs.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// Ends all watches as a restart of the server does; with `forget`, revisions from before are gone (410).
    pub fn restart(&self, forget: bool) {
        self.inner.store.restart(forget);
    }

    /// Writes all objects to the file of [`Builder::snapshot`], or to another.
    ///
    /// # Errors
    /// When there is no file, or it cannot be written.
    pub fn save(&self, path: Option<&Path>) -> Result<(), snapshot::Error> {
        let path = path.or(self.inner.snapshot.as_deref()).ok_or(snapshot::Error::NoPath)?;
        let (revision, objects) = self.inner.store.dump();
        snapshot::write(path, revision, &objects)
    }
}

impl Inner {
    pub(crate) fn kinds(&self) -> Arc<Kinds> {
        self.kinds.read().clone()
    }

    /// The time as objects show it.
    pub(crate) fn now(&self) -> String {
        self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    pub(crate) fn timestamp(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// A random UUID of version 4.
    pub(crate) fn new_uid(&self) -> String {
        let mut bytes: [u8; 16] = self.random.lock().random();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex = hex::encode(bytes);
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// The five characters that end generated names.
    pub(crate) fn new_suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut random = self.random.lock();
        (0..5).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
    }

    /// Serves what the definitions in the store say.
    pub(crate) fn refresh_kinds(&self) {
        let mut custom = Vec::new();
        for stored in self.store.list(DEFINITIONS, "").objects {
            let value = stored.value();
            if definition::is_established(&value) {
                custom.extend(
                    definition::versions(&value).into_iter().map(|v| Arc::new(Kind::custom(Arc::new(v)))),
                );
            }
        }
        let generation = self.kinds().generation + 1;
        *self.kinds.write() = Arc::new(Kinds::new(custom, generation));
    }

    /// The JSON of an object in a version of its kind.
    pub(crate) fn bytes_as(&self, kind: &Kind, stored: &Stored) -> Bytes {
        if self.needs_conversion(kind) {
            return Bytes::from(serde_json::to_vec(&self.value_as(kind, stored)).unwrap_or_default());
        }
        let mut out = Vec::with_capacity(kind.prefix.len() + stored.json.len());
        out.extend_from_slice(&kind.prefix);
        out.extend_from_slice(stored.json.get(1..).unwrap_or_default());
        Bytes::from(out)
    }

    /// The tree of an object in a version of its kind.
    #[expect(clippy::unused_self, reason = "called beside methods that need the cluster")]
    pub(crate) fn value_as(&self, kind: &Kind, stored: &Stored) -> Value {
        let mut value = stored.value();
        value["apiVersion"] = json!(kind.stored_as.api_version());
        value["kind"] = json!(kind.stored_as.kind);
        rules::convert(&kind.stored_as, &kind.gvk, &mut value);
        if kind.custom.as_ref().is_some_and(|version| version.varies) {
            rules::refresh(kind, &mut value);
        }
        value
    }

    /// Whether the stored form differs from that of the version in more than its name.
    #[expect(clippy::unused_self, reason = "called beside methods that need the cluster")]
    pub(crate) fn needs_conversion(&self, kind: &Kind) -> bool {
        if let Some(version) = &kind.custom {
            return version.varies;
        }
        kind.stored_as != kind.gvk && rules::has_conversion(&kind.stored_as, &kind.gvk)
    }

    /// The form that is stored.
    #[expect(clippy::unused_self, reason = "called beside methods that need the cluster")]
    pub(crate) fn to_stored(&self, kind: &Kind, mut value: Value) -> Value {
        rules::convert(&kind.gvk, &kind.stored_as, &mut value);
        if let Some(map) = value.as_object_mut() {
            map.remove("apiVersion");
            map.remove("kind");
        }
        value
    }

    /// Takes note of a write, and does what follows from it.
    pub(crate) fn after(&self, event: &Event, table: &Arc<str>) {
        let tasks = self.consequences(event, table);
        if event.change == Change::Deleted && &**table == "/services" {
            self.services.lock().release(&event.object.value());
        }
        let noticed = self.notice(event, table);
        let has_tasks = !tasks.is_empty();
        if has_tasks {
            self.work.lock().tasks.extend(tasks);
        }
        if has_tasks || noticed {
            self.settle();
        }
    }

    /// Does what follows from writes until nothing is left: first the server's own tasks, then, one step at a time,
    /// the controllers. Another thread that does so already takes ours along.
    pub(crate) fn settle(&self) {
        {
            let mut work = self.work.lock();
            if work.running {
                return;
            }
            work.running = true;
        }
        let mut steps = 0;
        loop {
            let task = self.work.lock().tasks.pop_front();
            if let Some(task) = task {
                let more = self.run(task);
                self.work.lock().tasks.extend(more);
                continue;
            }
            if steps < STEPS_MAX && self.step_controllers() {
                steps += 1;
                continue;
            }
            let mut work = self.work.lock();
            // What came since then was noted before its writer asked whether somebody works.
            if steps == STEPS_MAX || work.tasks.is_empty() && self.nothing_unseen() {
                work.running = false;
                break;
            }
        }
        // Only then can the next thing be due at another time; whoever waits for it comes here as well.
        if steps > 0 {
            self.time_moved();
        }
    }

    fn bootstrap(&self) {
        let kinds = self.kinds();
        let make = |kind: &Arc<Kind>, object: Value| {
            // An object of a snapshot stays.
            let _ = self.create_object(kind, object, None);
        };
        if let Some(kind) = kinds.at("", "v1", "namespaces") {
            for name in NAMESPACES {
                make(kind, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
            }
        }
        for object in crate::rbac::bootstrap() {
            let api_version = object["apiVersion"].as_str().unwrap_or_default();
            let name = object["kind"].as_str().unwrap_or_default();
            if let Some(kind) = kinds.of_api_version(api_version, name) {
                make(kind, object);
            }
        }
        if let Some(kind) = kinds.at("", "v1", "services") {
            make(
                kind,
                json!({
                    "apiVersion": "v1", "kind": "Service",
                    "metadata": {
                        "name": "kubernetes", "namespace": "default",
                        "labels": { "component": "apiserver", "provider": "kubernetes" }
                    },
                    "spec": {
                        "clusterIP": "10.96.0.1",
                        "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443 }]
                    }
                }),
            );
        }
        if let Some(kind) = kinds.at("apiregistration.k8s.io", "v1", "apiservices") {
            for group in builtin::groups() {
                for version in &group.versions {
                    make(kind, api_service(&group.name, version));
                }
            }
        }
        for (name, value, default) in [
            (
                "system-cluster-critical",
                2_000_000_000,
                "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
            ),
            (
                "system-node-critical",
                2_000_001_000,
                "Used for system critical pods that must not be moved from their current node.",
            ),
        ] {
            if let Some(kind) = kinds.at("scheduling.k8s.io", "v1", "priorityclasses") {
                make(
                    kind,
                    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, "description": default}),
                );
            }
        }
    }

    /// The kind of a target, or why there is none.
    #[expect(clippy::unused_self, reason = "called beside methods that need the cluster")]
    pub(crate) fn find_kind(
        &self,
        kinds: &Kinds,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<Arc<Kind>, ApiError> {
        match kinds.at(group, version, plural) {
            Some(kind) => Ok(kind.clone()),
            None if builtin::groups().iter().any(|known| known.name == group)
                || kinds.has_version(group, version) =>
            {
                Err(ApiError::no_such_resource())
            }
            None => Err(ApiError::no_such_path()),
        }
    }
}
