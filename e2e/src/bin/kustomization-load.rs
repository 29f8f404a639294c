//! Many Kustomizations from as many OCI artifacts, measured. Called by `hack/bench/kustomizations`.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use e2e::{ApiProxy, Cluster, Controller, Counts, KUSTOMIZE, Launch, SOURCE, condition, free_address, text};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Config};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use weir_api::GoDuration;

/// How often edited objects are looked at: the resolution of the times until drift is undone.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_mins(30);
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER_TYPE: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
const CONFIG_TYPE: &str = "application/vnd.cncf.flux.config.v1+json";
/// The objects of one Kustomization.
const OBJECTS_EACH: usize = 4;

struct Options {
    count: usize,
    concurrent: usize,
    interval: Duration,
    runs: u32,
}

fn main() -> Result<()> {
    let options = options(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Err(error) = runtime.block_on(run(&options)) {
        writeln!(std::io::stderr(), "hack/bench/kustomizations: {error:#}")?;
        std::process::exit(1);
    }
    Ok(())
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options { count: 0, concurrent: 10, interval: Duration::from_secs(20), runs: 6 };
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut value =
            || inline.clone().or_else(|| arguments.next()).with_context(|| format!("{name} needs a value"));
        match name.as_str() {
            "--concurrent" => options.concurrent = value()?.parse()?,
            "--interval" => options.interval = value()?.parse::<GoDuration>()?.to_std(),
            "--runs" => options.runs = value()?.parse()?,
            count => options.count = count.parse().with_context(|| format!("unknown argument '{count}'"))?,
        }
    }
    if options.count == 0 {
        bail!("how many Kustomizations?");
    }
    Ok(options)
}

/// One world: the namespace of the objects, the servers, the controllers.
struct World {
    cluster: Cluster,
    namespace: String,
    registry: Registry,
    source_api: ApiProxy,
    kustomize_api: ApiProxy,
    controllers: Vec<Controller>,
}

async fn run(options: &Options) -> Result<()> {
    let cluster =
        Cluster::connect().await?.context("KUBECONFIG is not set; use hack/bench/kustomizations")?;
    cluster.install_crds().await?;
    let directory = tempfile::tempdir()?;
    line(&format!(
        "{} Kustomizations of {OBJECTS_EACH} objects, {} workers, {} processors",
        options.count,
        options.concurrent,
        std::thread::available_parallelism()?
    ))?;

    let bare = bare_client(&cluster, options).await?;

    let namespace = "load".to_owned();
    create_namespace(&cluster, &namespace).await?;
    let mut world = World {
        registry: Registry::start(options.count).await?,
        source_api: ApiProxy::start(cluster.client()).await?,
        kustomize_api: ApiProxy::start(cluster.client()).await?,
        controllers: Vec::new(),
        cluster,
        namespace,
    };
    world.start_controllers(directory.path(), options).await?;
    let idle = world.memory();

    let start = Instant::now();
    world.create(options).await?;
    let created = start.elapsed();
    let ready = world.wait(options.count, "Ready", start, is_ready).await?;
    line(&format!("  custom resources created in     {}", seconds(created)))?;
    line(&format!("  all ready after                 {}", seconds(ready)))?;
    line(&format!(
        "  bare client, same objects       {}  ({:.2}x of it)",
        seconds(bare),
        ready.as_secs_f64() / bare.as_secs_f64()
    ))?;
    line(&format!("  memory idle, now and at most    {idle} / {} / {}", world.memory(), world.memory_max()))?;
    line(&format!("  source-controller               {}", verbs(&world.source_api.counts())))?;
    line(&format!("  kustomize-controller            {}", verbs(&world.kustomize_api.counts())))?;

    world.periodic(options).await?;
    world.drift(options).await?;
    line(&format!("  memory at most in all           {}", world.memory_max()))?;
    for controller in &mut world.controllers {
        controller.stop().await?;
    }
    Ok(())
}

/// How long a bare client needs to apply the same objects, through a proxy like that of the controllers.
async fn bare_client(cluster: &Cluster, options: &Options) -> Result<Duration> {
    create_namespace(cluster, "bare").await?;
    let proxy = ApiProxy::start(cluster.client()).await?;
    let kubeconfig = Kubeconfig::from_yaml(&proxy.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Cluster::with_client(Client::try_from(config)?);
    let objects = (0..options.count).flat_map(|number| objects(number, Some("bare"))).collect::<Vec<_>>();
    let start = Instant::now();
    stream::iter(&objects)
        .map(|object| client.apply(object))
        .buffer_unordered(options.concurrent)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    Ok(start.elapsed())
}

async fn create_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await?;
    Ok(())
}

impl World {
    async fn start_controllers(&mut self, directory: &Path, options: &Options) -> Result<()> {
        let storage = free_address().await?;
        let data = directory.join("data");
        std::fs::create_dir_all(&data)?;
        for (name, api) in [("source", &self.source_api), ("kustomize", &self.kustomize_api)] {
            let kubeconfig = directory.join(format!("{name}.kubeconfig"));
            std::fs::write(&kubeconfig, api.kubeconfig())?;
            let (health, metrics) = (free_address().await?, free_address().await?);
            let mut arguments = vec![
                format!("--health-addr={health}"),
                format!("--metrics-addr={metrics}"),
                format!("--concurrent={}", options.concurrent),
                "--requeue-dependency=5s".to_owned(),
            ];
            if name == "source" {
                arguments.extend([
                    format!("--storage-path={}", data.display()),
                    format!("--storage-addr={storage}"),
                    format!("--storage-adv-addr={storage}"),
                ]);
            }
            let text = |path: PathBuf| path.display().to_string();
            let launch = Launch {
                binary: format!("{name}-controller"),
                arguments,
                environment: vec![
                    ("KUBECONFIG".to_owned(), text(kubeconfig)),
                    ("RUNTIME_NAMESPACE".to_owned(), self.namespace.clone()),
                    ("HOME".to_owned(), text(directory.to_owned())),
                    ("TMPDIR".to_owned(), text(directory.to_owned())),
                ],
                health,
                log: directory.join(format!("{name}.log")),
            };
            self.controllers.push(Controller::start(launch).await?);
        }
        Ok(())
    }

    /// Creates sources and Kustomizations.
    async fn create(&self, options: &Options) -> Result<()> {
        let registry = &self.registry.address;
        let pairs = (0..options.count).flat_map(|number| {
            let name = format!("app-{number:04}");
            let metadata = json!({ "name": name, "namespace": self.namespace });
            [
                json!({
                    "apiVersion": SOURCE, "kind": "OCIRepository", "metadata": metadata,
                    "spec": {
                        "interval": "1h", "url": format!("oci://{registry}/{name}"), "insecure": true,
                        "ref": { "tag": "latest" },
                    },
                }),
                json!({
                    "apiVersion": KUSTOMIZE, "kind": "Kustomization", "metadata": metadata,
                    "spec": {
                        "interval": "1h", "prune": true, "wait": true, "targetNamespace": self.namespace,
                        "sourceRef": { "kind": "OCIRepository", "name": name },
                    },
                }),
            ]
        });
        stream::iter(pairs)
            .map(|object| async move { self.cluster.apply(&object).await })
            .buffer_unordered(options.concurrent)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    /// The time since `start` at which the last Kustomization passes a test.
    async fn wait(
        &self,
        count: usize,
        what: &str,
        start: Instant,
        test: impl Fn(&Value) -> bool,
    ) -> Result<Duration> {
        let kind = ApiResource {
            group: "kustomize.toolkit.fluxcd.io".to_owned(),
            version: "v1".to_owned(),
            api_version: KUSTOMIZE.to_owned(),
            kind: "Kustomization".to_owned(),
            plural: "kustomizations".to_owned(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.cluster.client(), &self.namespace, &kind);
        let mut changes =
            std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
        let mut seen: HashMap<String, Value> = HashMap::new();
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while let Ok(Some(change)) = tokio::time::timeout_at(deadline, changes.next()).await {
            // One that failed starts again by itself.
            let Ok(object) = change else { continue };
            let name = object.metadata.name.clone().unwrap_or_default();
            seen.insert(name, serde_json::to_value(object)?);
            if seen.values().filter(|object| test(object)).count() == count {
                return Ok(start.elapsed());
            }
        }
        let passed = seen.values().filter(|object| test(object)).count();
        let late = seen.values().find(|object| !test(object));
        let ready = late.and_then(|object| condition(object, "Ready"));
        bail!("{passed} of {count} are {what} after {DEADLINE:?}; one of the others: {ready:?}");
    }

    /// Periodic runs of an unchanged world: what one costs.
    async fn periodic(&self, options: &Options) -> Result<()> {
        let interval = GoDuration::from_nanos(i64::try_from(options.interval.as_nanos())?).to_string();
        let change = json!({ "spec": { "interval": interval } });
        let names = (0..options.count).map(|number| format!("app-{number:04}"));
        let start = Instant::now();
        stream::iter(names)
            .map(|name| {
                let change = &change;
                async move {
                    let namespace = Some(self.namespace.as_str());
                    self.cluster.edit(KUSTOMIZE, "Kustomization", namespace, &name, "load", change).await
                }
            })
            .buffer_unordered(options.concurrent)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        self.wait(options.count, "Ready again", start, is_ready).await?;
        let (before, processor) = (self.kustomize_api.counts(), self.processor_seconds());
        let period = options.interval * options.runs;
        tokio::time::sleep(period).await; // the measured period itself
        let counts = self.kustomize_api.counts().since(&before);
        let runs = options.count as f64 * f64::from(options.runs);
        let requests = counts.count(|call| call.resource != "leases" && call.verb != "watch");
        line(&format!(
            "  periodic runs                   about {runs:.0} in {}: {:.2} requests each, {:.0} % of a processor ({})",
            seconds(period),
            requests as f64 / runs,
            (self.processor_seconds() - processor) * 100.0 / period.as_secs_f64(),
            verbs(&counts)
        ))
    }

    /// One object in a hundred is edited by somebody else: how long until all are as they should be.
    async fn drift(&self, options: &Options) -> Result<()> {
        let edited = (options.count * OBJECTS_EACH).div_ceil(100).min(options.count);
        let before = self.kustomize_api.counts();
        let namespace = Some(self.namespace.as_str());
        let start = Instant::now();
        for number in 0..edited {
            let name = format!("app-{number:04}");
            let change = json!({ "spec": { "revisionHistoryLimit": 7 } });
            self.cluster.edit("apps/v1", "Deployment", namespace, &name, "somebody", &change).await?;
        }
        let edits = start.elapsed();
        loop {
            let all = self.cluster.list("apps/v1", "Deployment", namespace, "").await?;
            let wrong = all.iter().filter(|object| object["spec"]["revisionHistoryLimit"] != 3).count();
            if wrong == 0 {
                break;
            }
            if start.elapsed() > DEADLINE {
                bail!("{wrong} edited objects are still not as they should be");
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let counts = self.kustomize_api.counts().since(&before);
        line(&format!(
            "  {edited} edited objects undone       {} after the first edit, {} after the last ({})",
            seconds(start.elapsed()),
            seconds(start.elapsed().saturating_sub(edits)),
            verbs(&counts)
        ))
    }

    fn memory(&self) -> String {
        self.statuses("VmRSS:")
    }

    fn memory_max(&self) -> String {
        self.statuses("VmHWM:")
    }

    fn statuses(&self, field: &str) -> String {
        let mebibytes: Vec<String> = self
            .controllers
            .iter()
            .map(|controller| controller.memory_kib(field).unwrap_or_default())
            .map(|kib| format!("{:.0}", kib as f64 / 1024.0))
            .collect();
        format!("{} MiB", mebibytes.join(" + "))
    }

    /// What kustomize-controller has used of the processors.
    fn processor_seconds(&self) -> f64 {
        self.controllers.last().and_then(Controller::processor_seconds).unwrap_or_default()
    }
}

fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
        && object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation")
        && !text(object, "/status/lastAppliedRevision").is_empty()
}

fn objects(number: usize, namespace: Option<&str>) -> Vec<Value> {
    let name = format!("app-{number:04}");
    let mut metadata = json!({ "name": name, "labels": { "app": name } });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let labels = json!({ "app": name });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": { "selector": labels, "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": "http" }] },
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 0, "revisionHistoryLimit": 3, "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "serviceAccountName": name,
                        "containers": [{
                            "name": "web", "image": "registry.example.com/web:1.0.0",
                            "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
                        }],
                    },
                },
            },
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata,
            "spec": { "rules": [{
                "host": format!("{name}.example.com"),
                "http": { "paths": [{
                    "path": "/", "pathType": "Prefix",
                    "backend": { "service": { "name": name, "port": { "name": "http" } } },
                }] },
            }] },
        }),
    ]
}

/// A registry with one artifact for every Kustomization, in memory.
struct Registry {
    address: String,
}

#[derive(Default)]
struct Content {
    /// Manifests by repository.
    manifests: HashMap<String, (String, Bytes)>,
    /// Blobs by digest.
    blobs: HashMap<String, Bytes>,
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

impl Registry {
    async fn start(count: usize) -> Result<Self> {
        let mut content = Content::default();
        let config = Bytes::from_static(b"{}");
        content.blobs.insert(digest(&config), config.clone());
        for number in 0..count {
            let yaml: Vec<String> = objects(number, None).iter().map(ToString::to_string).collect();
            let layer = archive(&yaml.join("\n---\n"))?;
            let described = |media_type: &str, bytes: &Bytes| json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() });
            let manifest = Bytes::from(
                json!({
                    "schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": described(CONFIG_TYPE, &config),
                    "layers": [described(LAYER_TYPE, &layer)],
                    "annotations": { "org.opencontainers.image.revision": format!("main@sha1:{number:040x}") },
                })
                .to_string(),
            );
            content.blobs.insert(digest(&layer), layer);
            content.manifests.insert(format!("app-{number:04}"), (digest(&manifest), manifest));
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?.to_string();
        let router = Router::new()
            .route("/v2/", get(|| async { "{}" }))
            .route("/v2/{name}/manifests/{reference}", get(manifest))
            .route("/v2/{name}/blobs/{digest}", get(blob))
            .with_state(Arc::new(content));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address })
    }
}

async fn manifest(
    State(content): State<Arc<Content>>,
    UrlPath((name, _)): UrlPath<(String, String)>,
) -> Response {
    match content.manifests.get(&name) {
        Some((digest, manifest)) => (
            [
                (header::CONTENT_TYPE.as_str(), MANIFEST_TYPE.to_owned()),
                ("docker-content-digest", digest.clone()),
            ],
            manifest.clone(),
        )
            .into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn blob(
    State(content): State<Arc<Content>>,
    UrlPath((_, digest)): UrlPath<(String, String)>,
) -> Response {
    content
        .blobs
        .get(&digest)
        .map_or_else(|| StatusCode::NOT_FOUND.into_response(), |blob| blob.clone().into_response())
}

fn archive(manifests: &str) -> Result<Bytes> {
    let mut archive =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let mut header = tar::Header::new_ustar();
    header.set_size(manifests.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "app.yaml", manifests.as_bytes())?;
    Ok(archive.into_inner()?.finish()?.into())
}

/// Requests by verb, watches and leases aside.
fn verbs(counts: &Counts) -> String {
    let mut by_verb: BTreeMap<String, u64> = BTreeMap::new();
    for (call, count) in counts.sorts().filter(|(call, _)| call.verb != "watch" && call.resource != "leases")
    {
        let verb = if call.resource == "events" {
            "events".to_owned()
        } else if call.dry_run {
            format!("{} (dry run)", call.verb)
        } else if call.resource.ends_with("/status") {
            format!("{} (status)", call.verb)
        } else {
            call.verb.to_owned()
        };
        *by_verb.entry(verb).or_default() += count;
    }
    let parts: Vec<String> = by_verb.into_iter().map(|(verb, count)| format!("{count} {verb}")).collect();
    if parts.is_empty() { "no requests".to_owned() } else { parts.join(", ") }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

fn line(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("write to standard output")
}
