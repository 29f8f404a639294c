//! A cluster, a source, and the processes of the controller: everything that is not random.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use kube::Client;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use weir_artifact::fetch::FetchError;
use weir_base::clock::Clock;
use weir_base::tree::MemoryTree;
use weir_kustomize_controller::reconcile::Artifacts;
use weir_kustomize_controller::settings::{Flags, PROGRAM};
use weir_kustomize_controller::wiring::set_up_with;
use weir_runtime::{LeaseOptions, Runtime, Settings, flags};
use weir_testcluster::{Body, TestCluster};

pub(crate) const NAMESPACE: &str = "flux-system";
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Definitions the controller watches.
const DEFINITIONS: &[&str] = &[
    "kustomizations.kustomize.toolkit.fluxcd.io",
    "gitrepositories.source.toolkit.fluxcd.io",
    "ocirepositories.source.toolkit.fluxcd.io",
    "buckets.source.toolkit.fluxcd.io",
];

/// Follows the paused time of the run, from the start of 2026.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PausedClock(pub(crate) Instant);

impl Clock for PausedClock {
    fn now(&self) -> jiff::Timestamp {
        let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + self.0.elapsed()
    }
}

/// A write that a process sent, with what it hit.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) at: Duration,
    pub(crate) process: u32,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The object before a deletion.
    pub(crate) before: Option<Value>,
}

/// What the processes have sent.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) writes: Vec<Sent>,
    /// The paths that were read, watches aside; dry-runs too.
    pub(crate) reads: Vec<String>,
}

/// How a process is cut off.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// Requests until the process dies; `None` for never.
    pub(crate) dies_after: Mutex<Option<u32>>,
    /// Whether it still sends the request it dies at.
    pub(crate) sends_last: AtomicBool,
    pub(crate) no_lease: AtomicBool,
    pub(crate) no_network: AtomicBool,
}

/// What goes wrong between the processes and the server, by chance.
#[derive(Debug)]
pub(crate) struct Weather {
    pub(crate) storm: Vec<Trouble>,
    /// How many of a thousand requests are hit.
    pub(crate) chance: u32,
    random: StdRng,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Refused(u16, &'static str),
    Late(Duration),
    AnswerLost,
    RequestLost,
}

impl Weather {
    fn next(&mut self) -> Option<Trouble> {
        if self.storm.is_empty() || self.random.random_range(0..1000) >= self.chance {
            return None;
        }
        let position = self.random.random_range(0..self.storm.len());
        Some(self.storm[position])
    }
}

fn refusal(code: u16, reason: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("it was to be {reason}"), "reason": reason, "code": code});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}

/// One process of the controller.
pub(crate) struct Process {
    pub(crate) id: u32,
    pub(crate) wire: Arc<Wire>,
    pub(crate) task: JoinHandle<()>,
    dead: CancellationToken,
}

impl Process {
    pub(crate) fn kill(&self) {
        self.dead.cancel();
    }
}

/// The artifacts by URL; some are served late or not at all for a while.
#[derive(Default)]
pub(crate) struct Served {
    trees: Mutex<BTreeMap<String, Arc<MemoryTree>>>,
    pub(crate) delay: Mutex<Duration>,
    /// Further delays by URL.
    pub(crate) delays: Mutex<BTreeMap<String, Duration>>,
    /// What was fetched.
    pub(crate) fetched: Mutex<Vec<String>>,
    pub(crate) missing: AtomicBool,
}

#[async_trait::async_trait]
impl Artifacts for Served {
    async fn fetch(&self, url: &str, _: &str) -> Result<Arc<MemoryTree>, FetchError> {
        self.fetched.lock().push(url.to_owned());
        let delay = *self.delay.lock() + self.delays.lock().get(url).copied().unwrap_or_default();
        tokio::time::sleep(delay).await;
        let found = self.trees.lock().get(url).cloned().filter(|_| !self.missing.load(Ordering::Relaxed));
        found.ok_or_else(|| FetchError::NotFound { url: url.to_owned() })
    }
}

pub(crate) struct World {
    pub(crate) cluster: TestCluster,
    pub(crate) admin: Client,
    pub(crate) started: Instant,
    pub(crate) log: Arc<Mutex<Log>>,
    pub(crate) artifacts: Arc<Served>,
    pub(crate) weather: Arc<Mutex<Weather>>,
    next_process: u32,
}

impl World {
    pub(crate) async fn new(seed: u64) -> Self {
        let started = Instant::now();
        let cluster = TestCluster::builder()
            .clock(Arc::new(PausedClock(started)))
            .seed(seed)
            .controllers(true)
            .build()
            .unwrap();
        let background = cluster.clone();
        tokio::spawn(async move { background.run_due().await });
        let world = Self {
            admin: Client::new(cluster.service(), "default"),
            cluster,
            started,
            log: Arc::default(),
            artifacts: Arc::default(),
            weather: Arc::new(Mutex::new(Weather {
                storm: Vec::new(),
                chance: 0,
                random: StdRng::seed_from_u64(seed ^ 0x57ea),
            })),
            next_process: 0,
        };
        for name in DEFINITIONS {
            let path = format!("{}/../../crds/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            for object in weir_manifest::read_documents(text.as_bytes(), name).unwrap() {
                let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
                world.send(Method::POST, path, "application/json", &object).await.unwrap();
            }
        }
        for name in [NAMESPACE, "apps"] {
            world.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
        }
        world
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Starts a process; it waits until it holds the lease.
    pub(crate) fn start(&mut self) -> Process {
        self.next_process += 1;
        let id = self.next_process;
        let (wire, dead) = (Arc::new(Wire::default()), CancellationToken::new());
        let client = self.wire(id, Arc::clone(&wire), dead.clone());
        let arguments =
            ["kustomize-controller", "--requeue-dependency=5s", "--max-retry-delay=20s", "--concurrent=2"];
        let flags: Flags = flags::try_parse(&PROGRAM, arguments).unwrap();
        let settings = Settings::new(&PROGRAM, &flags.common).unwrap().with_jitter(&flags.jitter);
        let lease = LeaseOptions {
            namespace: NAMESPACE.to_owned(),
            name: "kustomize-controller-leader-election".to_owned(),
            identity: format!("process-{id}"),
            lease_duration: LEASE_DURATION,
            renew_deadline: RENEW_DEADLINE,
            retry_period: RETRY_PERIOD,
            release_on_cancel: true,
        };
        let mut runtime = Runtime::new(settings, client)
            .with_clock(Arc::new(PausedClock(self.started)))
            .with_leader_election(lease);
        set_up_with(&mut runtime, &flags, Arc::clone(&self.artifacts) as Arc<dyn Artifacts>).unwrap();
        let killed = dead.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                () = killed.cancelled() => {}
                _ = runtime.run() => {}
            }
            // What the process left running in this one reaches nobody any more.
            killed.cancel();
        });
        Process { id, wire, task, dead }
    }

    /// A client that notes what a process sends, and lets it be cut off.
    fn wire(&self, id: u32, wire: Arc<Wire>, dead: CancellationToken) -> Client {
        let (log, started, cluster) = (Arc::clone(&self.log), self.started, self.cluster.clone());
        let weather = Arc::clone(&self.weather);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (wire, dead, log, cluster) =
                (Arc::clone(&wire), dead.clone(), Arc::clone(&log), cluster.clone());
            let weather = Arc::clone(&weather);
            async move {
                let method = request.method().clone();
                let path = request.uri().path().to_owned();
                let query = request.uri().query().unwrap_or_default().to_owned();
                let is_lease = path.contains("/leases");
                if dead.is_cancelled() {
                    return std::future::pending().await;
                }
                if wire.no_network.load(Ordering::Relaxed)
                    || is_lease && wire.no_lease.load(Ordering::Relaxed)
                {
                    return Err(std::io::Error::other("network unreachable"));
                }
                let dies = !is_lease && {
                    let mut left = wire.dies_after.lock();
                    *left = left.map(|left| left.saturating_sub(1));
                    *left == Some(0)
                };
                if dies && !wire.sends_last.load(Ordering::Relaxed) {
                    dead.cancel();
                    return std::future::pending().await;
                }
                let trouble = if is_lease { None } else { weather.lock().next() };
                match trouble {
                    Some(Trouble::Refused(code, reason)) => return Ok(refusal(code, reason)),
                    Some(Trouble::Late(time)) => tokio::time::sleep(time).await,
                    Some(Trouble::RequestLost) => return Err(std::io::Error::other("connection reset")),
                    Some(Trouble::AnswerLost) | None => {}
                }
                let writes = method != Method::GET && !query.contains("dryRun") && !is_lease;
                let before = if method == Method::DELETE { raw(&cluster, &path).await } else { None };
                {
                    let mut log = log.lock();
                    if writes {
                        let sent = Sent { at: started.elapsed(), process: id, method, path, before };
                        log.writes.push(sent);
                    } else if !is_lease && !query.contains("watch") {
                        log.reads.push(path);
                    }
                }
                let answer: Result<Response<Body>, std::io::Error> = cluster.service().oneshot(request).await;
                if dies {
                    dead.cancel();
                    return std::future::pending().await;
                }
                if trouble == Some(Trouble::AnswerLost) {
                    return Err(std::io::Error::other("connection reset by peer"));
                }
                answer
            }
        });
        Client::new(service, "default")
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(body)
            .unwrap();
        self.admin.request(request).await
    }

    /// Applies as the people who own the cluster do; again until it works, as faults hit everybody.
    pub(crate) async fn apply(&self, object: &Value) {
        let path = format!("{}?fieldManager=owner&force=true", path_of(object));
        let mut answer = Ok(Value::Null);
        for _ in 0..100 {
            answer = self.send(Method::PATCH, &path, "application/apply-patch+yaml", object).await;
            if answer.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{path} could not be applied: {answer:?}");
    }

    /// A merge patch, in the name of a manager; whether it was accepted.
    pub(crate) async fn patch(&self, path: &str, manager: &str, change: &Value) -> bool {
        let path = format!("{path}?fieldManager={manager}");
        self.send(Method::PATCH, &path, "application/merge-patch+json", change).await.is_ok()
    }

    pub(crate) async fn delete(&self, path: &str) -> bool {
        self.send(Method::DELETE, path, "application/json", &Value::Null).await.is_ok()
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        raw(&self.cluster, path).await
    }

    /// The items of a list.
    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        let list = raw(&self.cluster, path).await.unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Puts a revision of the source `fleet` in place.
    pub(crate) async fn publish(&self, revision: &str, files: &BTreeMap<String, String>) {
        self.publish_to("fleet", revision, files).await;
    }

    /// Puts a revision of a source in place.
    pub(crate) async fn publish_to(&self, source: &str, revision: &str, files: &BTreeMap<String, String>) {
        let url = url_of(source, revision);
        let tree: MemoryTree = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        self.artifacts.trees.lock().insert(url.clone(), Arc::new(tree));
        let letters: String = revision.chars().filter(char::is_ascii_alphanumeric).collect();
        let digest = format!("sha256:{letters:0>64}");
        let now = PausedClock(self.started).now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let artifact =
            json!({"digest": digest, "lastUpdateTime": now, "path": "p", "revision": revision, "url": url});
        let path = format!(
            "/apis/source.toolkit.fluxcd.io/v1/namespaces/{NAMESPACE}/gitrepositories/{source}/status"
        );
        for _ in 0..100 {
            if self.patch(&path, "source-controller", &json!({"status": {"artifact": artifact}})).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("revision {revision} could not be published");
    }
}

/// Where the artifact of a revision is.
pub(crate) fn url_of(source: &str, revision: &str) -> String {
    format!("http://source/{source}/{revision}.tar.gz")
}

/// Reads without a process.
async fn raw(cluster: &TestCluster, path: &str) -> Option<Value> {
    let request = Request::get(path).body(kube::client::Body::empty()).unwrap();
    let answer = cluster.service().oneshot(request).await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    let bytes = answer.into_body().collect().await.ok()?.to_bytes();
    serde_json::from_slice(&bytes).ok()
}

/// Where an object is.
pub(crate) fn path_of(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("/apiVersion");
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let plural = match text("/kind") {
        "ServiceAccount" => "serviceaccounts".to_owned(),
        "GitRepository" => "gitrepositories".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    match text("/metadata/namespace") {
        "" => format!("/{root}/{api_version}/{plural}/{}", text("/metadata/name")),
        namespace => {
            format!("/{root}/{api_version}/namespaces/{namespace}/{plural}/{}", text("/metadata/name"))
        }
    }
}
