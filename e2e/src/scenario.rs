//! One scenario: its namespaces, servers and controllers, from beginning to end.

use std::fmt::Write as _;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, OnceCell};

use crate::controller::free_address;
use crate::{
    ApiProxy, Cluster, Controller, DEADLINE, EXTENSIONS, GitServer, HELM, KUSTOMIZE, Launch, NOTIFICATION,
    NOTIFICATION_BETA, SOURCE, condition, eventually, text,
};

const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
/// The kinds whose objects have finalizers.
const KINDS: [&str; 11] = [
    "GitRepository",
    "OCIRepository",
    "HelmRepository",
    "HelmChart",
    "Bucket",
    "ArtifactGenerator",
    "Kustomization",
    "HelmRelease",
    "Receiver",
    "Provider",
    "Alert",
];
const OWNED_BY: &str = "kustomize.toolkit.fluxcd.io/namespace";
/// How long a whole scenario may take.
const SCENARIO_DEADLINE: Duration = Duration::from_mins(8);

/// What a scenario works with. All its names start with [`Scenario::namespace`].
pub struct Scenario {
    /// The namespace of the sources and Kustomizations, and the only one the controllers watch.
    pub namespace: String,
    /// The cluster, past the counting proxies.
    pub cluster: Cluster,
    /// The Git server.
    pub git: GitServer,
    /// What source-controller asks of the API server.
    pub source_api: ApiProxy,
    /// What kustomize-controller asks of the API server.
    pub kustomize_api: ApiProxy,
    /// What helm-controller asks of the API server.
    pub helm_api: ApiProxy,
    /// What notification-controller asks of the API server.
    pub notification_api: ApiProxy,
    /// source-controller, once started.
    pub source: Mutex<Option<Controller>>,
    /// kustomize-controller, once started.
    pub kustomize: Mutex<Option<Controller>>,
    /// helm-controller, once started.
    pub helm: Mutex<Option<Controller>>,
    /// notification-controller, once started.
    pub notification: Mutex<Option<Controller>>,
    /// Where events are posted to, once notification-controller is started.
    events: Mutex<Option<String>>,
    /// source-watcher, once started.
    pub watcher: Mutex<Option<Controller>>,
    directory: TempDir,
    seed: u64,
}

/// Runs a scenario to its end, or says visibly that it is skipped.
///
/// # Panics
/// The scenario fails; the state of its objects and the logs are printed before.
#[expect(clippy::panic, reason = "this is how a test fails")]
pub fn scenario<F, Fut>(name: &str, body: F)
where
    F: FnOnce(Arc<Scenario>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(name, body)));
    if let Err(error) = outcome {
        panic!("scenario {name} failed: {error:#}");
    }
}

/// The CRDs are installed once, by the first scenario of a test run.
static CRDS: OnceCell<()> = OnceCell::const_new();

async fn run<F, Fut>(name: &str, body: F) -> Result<()>
where
    F: FnOnce(Arc<Scenario>) -> Fut,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let Some(cluster) = Cluster::connect().await? else {
        // Straight to the stream: the test runner would hide what a passing test prints.
        let skipped = format!(
            "SKIPPED {name}: no cluster; set KUBECONFIG, for instance to that of hack/testenv/testenv start\n"
        );
        std::io::stderr().write_all(skipped.as_bytes())?;
        return Ok(());
    };
    CRDS.get_or_try_init(|| cluster.install_crds()).await?;
    let scenario = Arc::new(Scenario::set_up(name, cluster).await?);
    let task = tokio::spawn(tokio::time::timeout(SCENARIO_DEADLINE, body(Arc::clone(&scenario))));
    let outcome = match task.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(anyhow!("not done within {SCENARIO_DEADLINE:?}")),
        Err(panic) => Err(anyhow!("{panic}")),
    };
    if outcome.is_err() {
        scenario.dump().await;
    }
    let cleaned = scenario.clean_up().await;
    outcome.and(cleaned)
}

impl Scenario {
    async fn set_up(name: &str, cluster: Cluster) -> Result<Self> {
        let seed = match std::env::var("WEIR_E2E_SEED") {
            Ok(seed) => seed.parse().context("WEIR_E2E_SEED is not a number")?,
            Err(_) => rand::rng().random(),
        };
        let namespace = format!("e2e-{name}-{:05x}", rand::rng().random_range(0..0x10_0000));
        cluster
            .apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }))
            .await?;
        let directory = tempfile::Builder::new().prefix(&format!("{namespace}-")).tempdir()?;
        for part in [
            "git",
            "source-storage",
            "source-tmp",
            "kustomize-tmp",
            "helm-tmp",
            "watcher-storage",
            "watcher-tmp",
            "notification-tmp",
        ] {
            std::fs::create_dir(directory.path().join(part))?;
        }
        let git = GitServer::start(&directory.path().join("git")).await?;
        let source_api = ApiProxy::start(cluster.client()).await?;
        let kustomize_api = ApiProxy::start(cluster.client()).await?;
        let helm_api = ApiProxy::start(cluster.client()).await?;
        let notification_api = ApiProxy::start(cluster.client()).await?;
        Ok(Self {
            namespace,
            cluster,
            git,
            source_api,
            kustomize_api,
            helm_api,
            notification_api,
            source: Mutex::new(None),
            kustomize: Mutex::new(None),
            helm: Mutex::new(None),
            notification: Mutex::new(None),
            events: Mutex::new(None),
            watcher: Mutex::new(None),
            directory,
            seed,
        })
    }

    /// A source of random choices that a printed seed repeats.
    pub fn random(&self) -> StdRng {
        StdRng::seed_from_u64(self.seed)
    }

    /// The seed of [`Scenario::random`].
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Where source-controller keeps its artifacts.
    pub fn storage(&self) -> PathBuf {
        self.directory.path().join("source-storage")
    }

    /// The folders the controllers were given for temporary files.
    pub fn temporary(&self) -> [PathBuf; 2] {
        [self.directory.path().join("source-tmp"), self.directory.path().join("kustomize-tmp")]
    }

    /// Starts helm-controller, limited to the scenario's namespace, with short waits.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_helm(&self) -> Result<()> {
        let arguments = [
            "--watch-all-namespaces=false",
            "--requeue-dependency=1s",
            "--interval-jitter-percentage=0",
            "--log-level=debug",
            "--min-retry-delay=200ms",
            "--max-retry-delay=5s",
            "--http-retry=2",
        ];
        let arguments = arguments.map(str::to_owned).into();
        let launch = self.launch("helm", arguments, &self.helm_api).await?;
        *self.helm.lock().await = Some(Controller::start(launch).await?);
        Ok(())
    }

    /// Starts notification-controller, limited to the scenario's namespace, and gives the address webhooks are
    /// posted to. Controllers that start after it post their events to it.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_notification(&self) -> Result<String> {
        let (events, webhooks) = (free_address().await?, free_address().await?);
        let arguments = [
            "--watch-all-namespaces=false".to_owned(),
            "--log-level=debug".to_owned(),
            "--min-retry-delay=200ms".to_owned(),
            "--max-retry-delay=5s".to_owned(),
            format!("--events-addr={events}"),
            format!("--receiverAddr={webhooks}"),
        ];
        let launch = self.launch("notification", arguments.into(), &self.notification_api).await?;
        *self.notification.lock().await = Some(Controller::start(launch).await?);
        *self.events.lock().await = Some(format!("http://{events}/"));
        Ok(format!("http://{webhooks}"))
    }

    /// Starts both controllers, limited to the scenario's namespace, with short waits.
    ///
    /// # Errors
    /// One does not start.
    pub async fn start_controllers(&self) -> Result<()> {
        self.start_controllers_with(&[]).await
    }

    /// As [`Scenario::start_controllers`], with more arguments for kustomize-controller.
    ///
    /// # Errors
    /// One does not start.
    pub async fn start_controllers_with(&self, more: &[&str]) -> Result<()> {
        let storage = free_address().await?;
        let common = |name: &str| -> Vec<String> {
            let (min, max) = if name == "source" { ("200ms", "2s") } else { ("200ms", "5s") };
            [
                "--watch-all-namespaces=false",
                "--requeue-dependency=1s",
                "--interval-jitter-percentage=0",
                "--log-level=debug",
            ]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("--min-retry-delay={min}"), format!("--max-retry-delay={max}")])
            .collect()
        };
        let mut arguments = common("source");
        arguments.extend([
            format!("--storage-path={}", self.storage().display()),
            format!("--storage-addr={storage}"),
            format!("--storage-adv-addr={storage}"),
            "--artifact-retention-ttl=5s".to_owned(),
        ]);
        let source = self.launch("source", arguments, &self.source_api).await?;
        *self.source.lock().await = Some(Controller::start(source).await?);
        let mut arguments = common("kustomize");
        arguments.push("--http-retry=2".to_owned());
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let kustomize = self.launch("kustomize", arguments, &self.kustomize_api).await?;
        *self.kustomize.lock().await = Some(Controller::start(kustomize).await?);
        Ok(())
    }

    /// Starts source-watcher, limited to the scenario's namespace, with short waits. What it asks of the API server is
    /// counted with what source-controller asks.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_watcher(&self) -> Result<()> {
        let storage = free_address().await?;
        let arguments = vec![
            "--watch-all-namespaces=false".to_owned(),
            "--requeue-dependency=1s".to_owned(),
            "--interval-jitter-percentage=0".to_owned(),
            "--log-level=debug".to_owned(),
            "--min-retry-delay=200ms".to_owned(),
            "--max-retry-delay=2s".to_owned(),
            format!("--storage-path={}", self.watcher_storage().display()),
            format!("--storage-addr={storage}"),
            format!("--storage-adv-addr={storage}"),
        ];
        let launch = self.launch("watcher", arguments, &self.source_api).await?;
        *self.watcher.lock().await = Some(Controller::start(launch).await?);
        Ok(())
    }

    /// Where source-watcher keeps its artifacts.
    pub fn watcher_storage(&self) -> PathBuf {
        self.directory.path().join("watcher-storage")
    }

    async fn launch(&self, name: &str, mut arguments: Vec<String>, api: &ApiProxy) -> Result<Launch> {
        let directory = self.directory.path();
        let kubeconfig = directory.join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, api.kubeconfig())?;
        let (health, metrics) = (free_address().await?, free_address().await?);
        arguments.extend([format!("--health-addr={health}"), format!("--metrics-addr={metrics}")]);
        if let Some(events) = self.events.lock().await.as_ref() {
            arguments.push(format!("--events-addr={events}"));
        }
        let path = |path: &Path| path.display().to_string();
        Ok(Launch {
            binary: if name == "watcher" {
                "source-watcher".to_owned()
            } else {
                format!("{name}-controller")
            },
            arguments,
            environment: vec![
                ("KUBECONFIG".to_owned(), path(&kubeconfig)),
                ("RUNTIME_NAMESPACE".to_owned(), self.namespace.clone()),
                ("HOME".to_owned(), path(directory)),
                ("TMPDIR".to_owned(), path(&directory.join(format!("{name}-tmp")))),
                ("RUST_BACKTRACE".to_owned(), "1".to_owned()),
            ],
            health,
            log: directory.join(format!("{name}.log")),
        })
    }

    /// Applies a GitRepository.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn git_repository(&self, name: &str, url: &str, change: &Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": SOURCE, "kind": "GitRepository",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "url": url, "ref": { "branch": "main" }, "interval": "1h", "timeout": "20s" },
        });
        merge(&mut object, change);
        self.cluster.apply(&object).await?;
        Ok(())
    }

    /// Applies a Kustomization of the GitRepository `fleet` that prunes and waits, changed as given.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn kustomization(&self, name: &str, path: &str, change: &Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": KUSTOMIZE, "kind": "Kustomization",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": {
                "sourceRef": { "kind": "GitRepository", "name": "fleet" }, "path": path,
                "interval": "1h", "retryInterval": "2s", "timeout": "1m", "prune": true, "wait": true,
            },
        });
        merge(&mut object, change);
        self.cluster.apply(&object).await?;
        Ok(())
    }

    /// A GitRepository or Kustomization as it is.
    ///
    /// # Errors
    /// It is not there.
    pub async fn toolkit(&self, kind: &str, name: &str) -> Result<Value> {
        self.cluster.get(toolkit_version(kind), kind, Some(&self.namespace), name).await
    }

    /// Asks for a reconcile and returns the token that says when it is handled.
    ///
    /// # Errors
    /// The object is not there.
    pub async fn request(&self, kind: &str, name: &str) -> Result<String> {
        let token = format!("{:016x}", rand::rng().random::<u64>());
        let change = json!({ "metadata": { "annotations": { REQUESTED_AT: token } } });
        self.cluster
            .edit(toolkit_version(kind), kind, Some(&self.namespace), name, "weir-e2e", &change)
            .await?;
        Ok(token)
    }

    /// Asks for a reconcile and waits until it is handled; returns the object then.
    ///
    /// # Errors
    /// The object is not there, or is not handled in time.
    pub async fn reconcile(&self, kind: &str, name: &str) -> Result<Value> {
        let token = self.request(kind, name).await?;
        eventually(DEADLINE, &format!("{kind} '{name}' handles a request"), || async {
            let object = self.toolkit(kind, name).await?;
            if text(&object, "/status/lastHandledReconcileAt") != token {
                bail!("{}", summary(&object));
            }
            Ok(object)
        })
        .await
    }

    /// Waits until a GitRepository or Kustomization is ready at a revision.
    ///
    /// # Errors
    /// It is not in time; with its conditions.
    pub async fn wait_ready(&self, kind: &str, name: &str, revision: &str) -> Result<Value> {
        self.wait_ready_within(DEADLINE, kind, name, revision).await
    }

    /// [`Scenario::wait_ready`] with a deadline of its own.
    ///
    /// # Errors
    /// It is not in time; with its conditions.
    pub async fn wait_ready_within(
        &self,
        deadline: Duration,
        kind: &str,
        name: &str,
        revision: &str,
    ) -> Result<Value> {
        let pointer =
            if kind == "Kustomization" { "/status/lastAppliedRevision" } else { "/status/artifact/revision" };
        eventually(deadline, &format!("{kind} '{name}' is ready at {revision}"), || async {
            let object = self.toolkit(kind, name).await?;
            let ready = condition(&object, "Ready").is_some_and(|ready| ready["status"] == "True");
            let observed = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            if !ready || !observed || text(&object, pointer) != revision {
                bail!("{}", summary(&object));
            }
            Ok(object)
        })
        .await
    }

    /// Waits until `Ready` is not true, with a reason and words of the message; returns the message.
    ///
    /// # Errors
    /// It is not in time; with its conditions.
    pub async fn wait_failed(&self, kind: &str, name: &str, reason: &str, words: &[&str]) -> Result<String> {
        eventually(DEADLINE, &format!("{kind} '{name}' fails with {reason} {words:?}"), || async {
            let object = self.toolkit(kind, name).await?;
            let ready = condition(&object, "Ready").ok_or_else(|| anyhow!("no Ready condition"))?;
            let message = text(ready, "/message");
            let says = words.iter().all(|word| message.contains(word));
            if ready["status"] != "False" || ready["reason"] != reason || !says {
                bail!("{}", summary(&object));
            }
            Ok(message)
        })
        .await
    }

    /// Waits for an event of a type and reason with words of the message.
    ///
    /// # Errors
    /// There is none in time; with the events there are.
    pub async fn wait_event(
        &self,
        kind: &str,
        name: &str,
        event_type: &str,
        reason: &str,
        words: &[&str],
    ) -> Result<()> {
        eventually(DEADLINE, &format!("an event {event_type} {reason} about {kind} '{name}'"), || async {
            let events = self.cluster.events(&self.namespace, kind, name).await?;
            let fits = |(found_type, found_reason, message): &(String, String, String)| {
                found_type == event_type
                    && found_reason == reason
                    && words.iter().all(|word| message.contains(word))
            };
            if events.iter().any(fits) { Ok(()) } else { Err(anyhow!("there are {events:?}")) }
        })
        .await
    }

    /// Prints a line of the report that a passing test shows, too.
    ///
    /// # Errors
    /// Standard error is closed.
    pub fn report(&self, line: &str) -> Result<()> {
        writeln!(std::io::stderr(), "{}: {line}", self.namespace)?;
        Ok(())
    }

    /// Prints the scenario's objects, events and logs.
    async fn dump(&self) {
        let mut out = format!("==== state of {} (WEIR_E2E_SEED={})\n", self.namespace, self.seed);
        for kind in KINDS {
            match self.cluster.list(toolkit_version(kind), kind, Some(&self.namespace), "").await {
                Ok(objects) => {
                    for object in objects {
                        let _ = writeln!(
                            out,
                            "---- {}\n{}",
                            summary(&object),
                            weir_manifest::to_yaml(&object["status"])
                        );
                    }
                }
                Err(error) => {
                    let _ = writeln!(out, "---- {kind}: {error:#}");
                }
            }
        }
        if let Ok(mut events) = self.cluster.list("v1", "Event", Some(&self.namespace), "").await {
            events.sort_by_key(|event| text(event, "/lastTimestamp"));
            let _ = writeln!(out, "---- events");
            for event in events {
                let _ = writeln!(
                    out,
                    "{} {} {}/{} {}: {}",
                    text(&event, "/lastTimestamp"),
                    text(&event, "/type"),
                    text(&event, "/involvedObject/kind"),
                    text(&event, "/involvedObject/name"),
                    text(&event, "/reason"),
                    text(&event, "/message").replace('\n', " "),
                );
            }
        }
        for (name, controller) in self.controllers() {
            if let Some(controller) = controller.lock().await.as_ref() {
                let _ = writeln!(out, "---- log of {name}\n{}", controller.log_tail(60));
            }
        }
        let _ = std::io::stderr().write_all(out.as_bytes());
    }

    fn controllers(&self) -> [(&'static str, &Mutex<Option<Controller>>); 5] {
        [
            ("source-controller", &self.source),
            ("source-watcher", &self.watcher),
            ("kustomize-controller", &self.kustomize),
            ("helm-controller", &self.helm),
            ("notification-controller", &self.notification),
        ]
    }

    /// Stops the controllers and removes every namespace of the scenario.
    async fn clean_up(&self) -> Result<()> {
        let mut stopped = Ok(());
        for (_, controller) in self.controllers() {
            if let Some(mut controller) = controller.lock().await.take() {
                stopped = stopped.and(controller.stop().await);
            }
        }
        if std::env::var_os("WEIR_E2E_KEEP").is_some() {
            return self.report(&format!("kept, files in '{}'", self.directory.path().display()));
        }
        // Nobody is left to handle the finalizers.
        for kind in KINDS {
            for object in self.cluster.list(toolkit_version(kind), kind, Some(&self.namespace), "").await? {
                let (name, release) =
                    (text(&object, "/metadata/name"), json!({ "metadata": { "finalizers": null } }));
                self.cluster
                    .edit(toolkit_version(kind), kind, Some(&self.namespace), &name, "weir-e2e", &release)
                    .await?;
            }
        }
        for namespace in self.cluster.list("v1", "Namespace", None, "").await? {
            let name = text(&namespace, "/metadata/name");
            if name.starts_with(&self.namespace) {
                self.cluster.delete("v1", "Namespace", None, &name).await?;
            }
        }
        let owned = format!("{OWNED_BY}={}", self.namespace);
        for (api_version, kind) in [
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            ("scheduling.k8s.io/v1", "PriorityClass"),
            ("storage.k8s.io/v1", "StorageClass"),
            ("networking.k8s.io/v1", "IngressClass"),
            ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
            ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
        ] {
            for object in self.cluster.list(api_version, kind, None, &owned).await? {
                self.cluster.delete(api_version, kind, None, &text(&object, "/metadata/name")).await?;
            }
        }
        stopped
    }
}

fn toolkit_version(kind: &str) -> &'static str {
    match kind {
        "Kustomization" => KUSTOMIZE,
        "HelmRelease" => HELM,
        "Receiver" => NOTIFICATION,
        "Alert" | "Provider" => NOTIFICATION_BETA,
        "ArtifactGenerator" => EXTENSIONS,
        _ => SOURCE,
    }
}

/// An object's name and conditions in one line.
fn summary(object: &Value) -> String {
    let mut out = format!("{} '{}'", text(object, "/kind"), text(object, "/metadata/name"));
    for found in object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten() {
        let _ = write!(
            out,
            " {}={} {} '{}'",
            text(found, "/type"),
            text(found, "/status"),
            text(found, "/reason"),
            text(found, "/message")
        );
    }
    for pointer in
        ["/status/lastAttemptedRevision", "/status/lastAppliedRevision", "/status/artifact/revision"]
    {
        let revision = text(object, pointer);
        if !revision.is_empty() {
            let _ = write!(out, " {}={revision}", pointer.trim_start_matches("/status/"));
        }
    }
    out
}

/// JSON merge: maps are merged, null removes, everything else replaces.
fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, change) => *into = change.clone(),
    }
}
