//! A cluster in this process, the controllers, and a judge.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use weir_artifact::digest::Algorithm;
use weir_artifact::probe::Probe;
use weir_artifact::storage::{Options, Storage};
use weir_artifact::unpack::{Limits, Symlinks, unpack};
use weir_base::clock::Clock;
use weir_base::tree::{Files as _, MemoryTree};
use weir_runtime::{Runtime, Settings, flags};
use weir_source::git::{Git, Limits as GitLimits};
use weir_source_controller::{Flags, IdentityOptions, PROGRAM, Parts, add_controllers};
use weir_testcluster::TestCluster;

pub(crate) const NAMESPACE: &str = "apps";
/// No step of a test takes longer, however slow the machine is.
const PATIENCE: Duration = Duration::from_mins(4);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The clock of the machine, which can jump.
#[derive(Debug, Clone, Default)]
pub(crate) struct JumpingClock(Arc<AtomicI64>);

impl JumpingClock {
    pub(crate) fn jump(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        Timestamp::now() + jiff::SignedDuration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// The sources of a cluster, taken anew when something has changed.
#[derive(Clone)]
struct Seen {
    cluster: TestCluster,
    last: Arc<Mutex<(u64, Arc<Vec<Value>>)>>,
}

impl Seen {
    fn sources(&self) -> Arc<Vec<Value>> {
        let mut last = self.last.lock();
        let revision = self.cluster.revision();
        if last.0 != revision {
            let is_source =
                |object: &Value| text(object, "/apiVersion").starts_with("source.toolkit.fluxcd.io/");
            *last = (revision, Arc::new(self.cluster.objects().into_iter().filter(is_source).collect()));
        }
        Arc::clone(&last.1)
    }
}

/// What the artifact of a revision must unpack to: the text of its one file of interest, by digest of the archive.
type Contents = Arc<Mutex<HashMap<String, String>>>;

pub(crate) struct World {
    pub(crate) cluster: TestCluster,
    pub(crate) clock: JumpingClock,
    seen: Seen,
    client: Client,
    directory: TempDir,
    probe: Probe,
    process: Option<JoinHandle<()>>,
    judged: Contents,
    wrong: Arc<Mutex<Vec<String>>>,
    looks: Arc<AtomicBool>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_probe(Probe::default()).await
    }

    /// A world whose disk has faults.
    pub(crate) async fn with_probe(probe: Probe) -> Self {
        let mut world = Self::without_process(probe).await;
        world.start();
        world
    }

    /// A world in which no controller runs yet.
    pub(crate) async fn without_process(probe: Probe) -> Self {
        let clock = JumpingClock::default();
        let cluster = TestCluster::builder().clock(Arc::new(clock.clone())).build().unwrap();
        let world = Self {
            client: Client::new(cluster.service(), "default"),
            seen: Seen { cluster: cluster.clone(), last: Arc::default() },
            cluster,
            clock,
            directory: TempDir::new().unwrap(),
            probe,
            process: None,
            judged: Contents::default(),
            wrong: Arc::default(),
            looks: Arc::new(AtomicBool::new(true)),
        };
        std::fs::create_dir(world.directory.path().join("storage")).unwrap();
        for definition in weir_api::crd::definitions() {
            if definition["spec"]["group"] == "source.toolkit.fluxcd.io" {
                world.create(&definition).await;
            }
        }
        world
            .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
            .await;
        world.watch();
        world
    }

    /// A client of the cluster.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The directory artifacts are stored in.
    pub(crate) fn storage(&self) -> std::path::PathBuf {
        self.directory.path().join("storage")
    }

    fn open_storage(&self) -> Arc<Storage> {
        let options = Options {
            root: self.storage(),
            host: "sc.".to_owned(),
            retention_ttl: Duration::from_mins(1),
            retention_records: 2,
            algorithm: Algorithm::Sha256,
        };
        let storage = Storage::open(options, Arc::new(self.clock.clone())).unwrap();
        Arc::new(storage.with_probe(self.probe.clone()))
    }

    /// Starts the controllers.
    pub(crate) fn start(&mut self) {
        let arguments =
            ["source-controller", "--min-retry-delay=20ms", "--max-retry-delay=300ms", "--concurrent=12"];
        let flags: Flags = flags::try_parse(&PROGRAM, arguments).unwrap();
        let settings = Settings::new(&PROGRAM, &flags.common).unwrap();
        let mut runtime =
            Runtime::new(settings, self.client.clone()).with_clock(Arc::new(self.clock.clone()));
        let parts = Parts {
            storage: self.open_storage(),
            git: Git::new(self.directory.path().join("git"), GitLimits::default()).unwrap(),
            identity: IdentityOptions::default(),
            requeue_dependency: Duration::from_millis(50),
            index_bytes_max: 1 << 20,
            chart_bytes_max: 1 << 20,
        };
        add_controllers(&mut runtime, parts);
        self.process = Some(tokio::spawn(async move { drop(runtime.run().await) }));
    }

    /// Ends the controllers as a killed process does.
    pub(crate) async fn kill(&mut self) {
        if let Some(task) = self.process.take() {
            task.abort();
            drop(task.await);
        }
    }

    /// Reads what is advertised all the time, and notes what is wrong with it.
    fn watch(&self) {
        let (seen, judged, wrong) = (self.seen.clone(), Arc::clone(&self.judged), Arc::clone(&self.wrong));
        let (root, looks) = (self.storage(), Arc::clone(&self.looks));
        tokio::spawn(async move {
            while looks.load(Ordering::Relaxed) {
                for object in seen.sources().iter() {
                    let Some(artifact) = object.pointer("/status/artifact").filter(|found| found.is_object())
                    else {
                        continue;
                    };
                    let (path, digest) = (text(artifact, "/path"), text(artifact, "/digest"));
                    // What is gone is answered with 404, and consumers look at the object again.
                    let Ok(bytes) = std::fs::read(root.join(&path)) else { continue };
                    if Algorithm::Sha256.digest(&bytes).to_string() != digest {
                        // The same name may have been written since the status was read; the status then follows.
                        let now = seen.sources();
                        let uid = object.pointer("/metadata/uid");
                        let same = now.iter().find(|other| other.pointer("/metadata/uid") == uid);
                        if same.and_then(|same| same.pointer("/status/artifact")) == Some(artifact)
                            && !is_recent(&root.join(&path))
                        {
                            wrong.lock().push(format!("{path} does not have digest {digest}"));
                        }
                        continue;
                    }
                    let known = judged.lock().get(&digest).cloned();
                    let Some(content) = known.or_else(|| content_of(&path, &bytes)) else {
                        wrong.lock().push(format!("{path} cannot be read"));
                        continue;
                    };
                    judged.lock().insert(digest, content);
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        });
    }

    /// The content of the artifact an object advertises.
    pub(crate) fn content(&self, object: &Value) -> String {
        let path = text(object, "/status/artifact/path");
        let bytes = std::fs::read(self.storage().join(&path)).unwrap();
        let digest = Algorithm::Sha256.digest(&bytes).to_string();
        assert_eq!(digest, text(object, "/status/artifact/digest"), "{path}");
        content_of(&path, &bytes).unwrap()
    }

    /// The file of the artifact an object advertises.
    pub(crate) fn file(&self, object: &Value) -> std::path::PathBuf {
        self.storage().join(text(object, "/status/artifact/path"))
    }

    /// Nothing wrong was ever served.
    pub(crate) fn check(&self) {
        assert_eq!(*self.wrong.lock(), Vec::<String>::new());
        assert!(!self.judged.lock().is_empty(), "the judge has seen nothing");
    }

    pub(crate) async fn create(&self, object: &Value) {
        let api = self.api(object);
        api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await.unwrap();
    }

    /// Creates an object of `source.toolkit.fluxcd.io/v1`.
    pub(crate) async fn create_source(&self, kind: &str, name: &str, spec: &Value) {
        let mut spec = spec.clone();
        spec["interval"] = json!("1h");
        self.create(&json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        }))
        .await;
    }

    /// Writes a Secret, or writes it anew.
    pub(crate) async fn put_secret(&self, name: &str, data: &[(&str, &str)]) {
        let data: HashMap<_, _> = data.iter().copied().collect();
        self.create_or_replace(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
            "stringData": data,
        }))
        .await;
    }

    pub(crate) async fn create_or_replace(&self, object: &Value) {
        let (api, parameters) = (self.api(object), PatchParams::apply("test").force());
        api.patch(&text(object, "/metadata/name"), &parameters, &Patch::Apply(object)).await.unwrap();
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        match text(object, "/metadata/namespace").as_str() {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    /// Asks for a run.
    pub(crate) async fn request(&self, kind: &str, name: &str) {
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind, "metadata": {"namespace": NAMESPACE},
        });
        let token = format!("{:016x}", rand::random::<u64>());
        let patch = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": token}}});
        self.api(&object).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        let is_wanted = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.seen.sources().iter().find(is_wanted).cloned().unwrap_or_default()
    }

    /// Waits until an object is as wanted.
    pub(crate) async fn until(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let waiting = async {
            loop {
                let object = self.get(kind, name);
                if is_so(&object) {
                    return object;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, waiting).await.ok();
        found.unwrap_or_else(|| panic!("{kind} {name}: not {what}: {:#}", self.get(kind, name)["status"]))
    }

    /// Waits until an object is ready and its artifact has this content.
    pub(crate) async fn until_content(&self, kind: &str, name: &str, content: &str) -> Value {
        let object = self
            .until(kind, name, &format!("ready with {content:?}"), |object| {
                is_ready(object)
                    && std::fs::exists(self.file(object)).unwrap()
                    && self.content(object) == content
            })
            .await;
        assert_eq!(condition(&object, "FetchFailed"), None, "{kind} {name}");
        object
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.looks.store(false, Ordering::Relaxed);
    }
}

/// A file that was written between two looks is told by its status a moment later.
fn is_recent(path: &std::path::Path) -> bool {
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|time| time.elapsed().unwrap_or_default() < Duration::from_secs(10))
}

/// The `content` of an archive, of the chart in a package, or the description in an index.
fn content_of(path: &str, bytes: &[u8]) -> Option<String> {
    if path.starts_with("helmrepository/") {
        let index: Value = serde_json::from_slice(bytes).ok()?;
        return index.pointer("/entries/web/0/description")?.as_str().map(str::to_owned);
    }
    let tree: MemoryTree = unpack(bytes, Limits::default(), Symlinks::Refuse).ok()?;
    let file = tree.read("content").or_else(|| tree.read("web/content"))?;
    String::from_utf8(file.to_vec()).ok()
}

pub(crate) fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The status, the reason and the message of a condition.
pub(crate) fn condition(object: &Value, type_: &str) -> Option<(String, String, String)> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|one| one["type"] == type_)?;
    Some((text(found, "/status"), text(found, "/reason"), text(found, "/message")))
}

pub(crate) fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|(status, _, _)| status == "True")
        && object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation")
}

/// A package of the chart `web`.
pub(crate) fn chart(version: &str, content: &str) -> Bytes {
    let metadata = format!("apiVersion: v2\nname: web\nversion: {version}\n");
    let tree: MemoryTree =
        [("web/Chart.yaml", metadata), ("web/content", content.to_owned())].into_iter().collect();
    weir_artifact::archive::archive_tree(&tree).unwrap()
}

/// An index with one chart, whose description is `content`.
pub(crate) fn index(version: &str, content: &str) -> String {
    format!(
        "apiVersion: v1\nentries:\n  web:\n  - apiVersion: v2\n    name: web\n    version: {version}\n    \
         description: {content}\n    urls:\n    - web-{version}.tgz\n"
    )
}

/// A layer with one file.
pub(crate) fn layer(content: &str) -> Bytes {
    let tree: MemoryTree = [("content", content.to_owned())].into_iter().collect();
    weir_artifact::archive::archive_tree(&tree).unwrap()
}
