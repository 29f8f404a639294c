//! What source-controller costs: large repositories, and many that do not change. Called by `hack/bench/sources`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use e2e::{ApiProxy, Cluster, Controller, GitServer, Launch, SOURCE, condition, free_address, text};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use weir_api::GoDuration;
use weir_testcluster::TestCluster;

/// How often objects are looked at while they are waited for: the resolution of the times.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_mins(20);
const NAMESPACE: &str = "load";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER_TYPE: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
const CONFIG_TYPE: &str = "application/vnd.cncf.flux.config.v1+json";

enum Task {
    /// A bare repository with the branches `old`, `new` and `main`.
    Large(PathBuf),
    Idle {
        kind: &'static str,
        count: usize,
    },
    /// The size of an index of a chart repository.
    Index(usize),
}

struct Options {
    task: Task,
    interval: Duration,
    runs: u32,
}

fn main() -> Result<()> {
    let options = options(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Err(error) = runtime.block_on(run(&options)) {
        writeln!(std::io::stderr(), "hack/bench/sources: {error:#}")?;
        std::process::exit(1);
    }
    Ok(())
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let task = arguments.next().context("which measurement?")?;
    let mut value = || arguments.next().context("a value is missing");
    let mut options = match task.as_str() {
        "large" => Options { task: Task::Large(value()?.into()), interval: Duration::from_hours(1), runs: 0 },
        "index" => {
            let task = Task::Index(value()?.parse::<usize>()? << 20);
            Options { task, interval: Duration::from_secs(5), runs: 6 }
        }
        "git" | "oci" => {
            let kind = if task == "git" { "GitRepository" } else { "OCIRepository" };
            let task = Task::Idle { kind, count: value()?.parse()? };
            Options { task, interval: Duration::from_secs(20), runs: 6 }
        }
        other => bail!("unknown measurement '{other}'"),
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--interval" => options.interval = value.parse::<GoDuration>()?.to_std(),
            "--runs" => options.runs = value.parse()?,
            _ => bail!("unknown argument '{name}'"),
        }
    }
    Ok(options)
}

struct World {
    cluster: Cluster,
    api: ApiProxy,
    controller: Controller,
}

async fn run(options: &Options) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut world = World::start(directory.path()).await?;
    match &options.task {
        Task::Large(repository) => world.large(repository).await?,
        Task::Idle { kind, count } => world.idle(kind, *count, options).await?,
        Task::Index(bytes) => world.index(*bytes, options).await?,
    }
    world.controller.stop().await
}

/// What a process has used so far.
struct Usage {
    at: Instant,
    processor_seconds: f64,
}

impl World {
    async fn start(directory: &Path) -> Result<Self> {
        // The API server of the environment, or one in this process.
        let cluster = match Cluster::connect().await? {
            Some(cluster) => cluster,
            None => Cluster::with_client(Client::new(TestCluster::default().service(), "default")),
        };
        cluster.install_crds().await?;
        cluster
            .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
            .await?;
        let api = ApiProxy::start(cluster.client()).await?;
        let kubeconfig = directory.join("kubeconfig");
        std::fs::write(&kubeconfig, api.kubeconfig())?;
        let (storage, temporary) = (directory.join("storage"), directory.join("tmp"));
        std::fs::create_dir(&storage)?;
        std::fs::create_dir(&temporary)?;
        let health = free_address().await?;
        let launch = Launch {
            binary: "source-controller".to_owned(),
            arguments: vec![
                format!("--storage-path={}", storage.display()),
                format!("--storage-addr={}", free_address().await?),
                format!("--health-addr={health}"),
                format!("--metrics-addr={}", free_address().await?),
                "--log-level=error".to_owned(),
            ],
            environment: vec![
                ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
                ("TMPDIR".to_owned(), temporary.display().to_string()),
                ("RUNTIME_NAMESPACE".to_owned(), NAMESPACE.to_owned()),
            ],
            health,
            log: directory.join("log"),
        };
        let controller = Controller::start(launch).await?;
        Ok(Self { cluster, api, controller })
    }

    fn usage(&self) -> Result<Usage> {
        let processor_seconds = self.controller.processor_seconds().context("/proc has no figures")?;
        Ok(Usage { at: Instant::now(), processor_seconds })
    }

    fn mebibytes(&self, field: &str) -> Result<f64> {
        Ok(self.controller.memory_kib(field).context("/proc has no figures")? as f64 / 1024.0)
    }

    /// A fetch of everything, then of one commit more.
    async fn large(&self, repository: &Path) -> Result<()> {
        let root = repository.parent().context("the repository is in no directory")?;
        let name =
            repository.file_name().context("the repository has no name")?.to_string_lossy().into_owned();
        let server = GitServer::start(root).await?;
        let (address, moved) = count_bytes(server.address().to_string()).await?;
        let url = format!("http://{address}/{name}");
        line(&format!("source-controller at rest           {:.1} MiB", self.mebibytes("VmRSS:")?))?;
        let before = self.usage()?;
        let object = json!({
            "apiVersion": SOURCE, "kind": "GitRepository", "metadata": {"name": "large", "namespace": NAMESPACE},
            "spec": {"url": url, "ref": {"branch": "main"}, "interval": "1h", "timeout": "10m",
                // Without a rule of its own, images and archives would be left out.
                "ignore": "/nothing"},
        });
        set_main(repository, "old")?;
        self.cluster.apply(&object).await?;
        let first = self.wait_revision(repository, "old").await?;
        self.report("first fetch", &before, &moved, &first)?;
        set_main(repository, "new")?;
        let before = self.usage()?;
        let mut object = object;
        object["metadata"]["annotations"] = json!({"reconcile.fluxcd.io/requestedAt": "1"});
        self.cluster.apply(&object).await?;
        let second = self.wait_revision(repository, "new").await?;
        self.report("one commit more", &before, &moved, &second)?;
        for revision in ["old", "new"] {
            set_main(repository, revision)?;
            compare(&url, revision, &moved)?;
        }
        Ok(())
    }

    fn report(&self, what: &str, before: &Usage, moved: &AtomicU64, object: &Value) -> Result<()> {
        let after = self.usage()?;
        line(&format!(
            "{what:<36}{:.2} s, processor {:.2} s, at most {:.1} MiB, {:.2} MiB moved, archive of {:.2} MiB",
            (after.at - before.at).as_secs_f64(),
            after.processor_seconds - before.processor_seconds,
            self.mebibytes("VmHWM:")?,
            mebibytes(moved.swap(0, Ordering::Relaxed)),
            object.pointer("/status/artifact/size").and_then(Value::as_f64).unwrap_or_default() / 1_048_576.0,
        ))
    }

    async fn wait_revision(&self, repository: &Path, revision: &str) -> Result<Value> {
        let commit = git(repository, &["rev-parse", revision])?;
        let started = Instant::now();
        loop {
            let object = self.cluster.get(SOURCE, "GitRepository", Some(NAMESPACE), "large").await?;
            if is_ready(&object) && text(&object, "/status/artifact/revision").ends_with(&commit) {
                return Ok(object);
            }
            if started.elapsed() > DEADLINE {
                bail!("not fetched: {:#}", object["status"]);
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// A large index, which then does not change.
    async fn index(&self, bytes: usize, options: &Options) -> Result<()> {
        let (address, asked) = chart_repository(bytes).await?;
        let before = self.usage()?;
        self.cluster
            .apply(&json!({
                "apiVersion": SOURCE, "kind": "HelmRepository", "metadata": {"name": "large", "namespace": NAMESPACE},
                "spec": {"url": format!("http://{address}"), "interval": format!("{}s", options.interval.as_secs())},
            }))
            .await?;
        while self.ready("HelmRepository").await? == 0 {
            if before.at.elapsed() > DEADLINE {
                bail!("the index was not stored");
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let stored = self.usage()?;
        line(&format!(
            "index of {} MiB: stored after {:.2} s, processor {:.2} s, memory {:.1} MiB, at most {:.1} MiB",
            bytes >> 20,
            (stored.at - before.at).as_secs_f64(),
            stored.processor_seconds - before.processor_seconds,
            self.mebibytes("VmRSS:")?,
            self.mebibytes("VmHWM:")?
        ))?;
        let first = asked.load(Ordering::Relaxed);
        tokio::time::sleep(options.interval * options.runs).await;
        line(&format!(
            "{} intervals without a change: {} requests, processor {:.3} s, memory {:.1} MiB",
            options.runs,
            asked.load(Ordering::Relaxed) - first,
            self.usage()?.processor_seconds - stored.processor_seconds,
            self.mebibytes("VmRSS:")?
        ))
    }

    /// Many sources that do not change.
    async fn idle(&self, kind: &str, count: usize, options: &Options) -> Result<()> {
        let directory = tempfile::tempdir()?;
        let git = GitServer::start(directory.path()).await?;
        let (registry, asked) = registry().await?;
        if kind == "GitRepository" {
            let repository = git.create("fleet")?;
            repository.write("a.yaml", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n")?;
            repository.commit("first")?;
        }
        let url = if kind == "GitRepository" {
            format!("http://{}/fleet.git", git.address())
        } else {
            format!("oci://{registry}/fleet")
        };
        let interval = format!("{}s", options.interval.as_secs());
        let started = Instant::now();
        let create = |number: usize| {
            let (cluster, url, interval) = (&self.cluster, url.clone(), interval.clone());
            async move {
                let object = json!({
                    "apiVersion": SOURCE, "kind": kind,
                    "metadata": {"name": format!("source-{number}"), "namespace": NAMESPACE},
                    "spec": {"url": url, "interval": interval},
                });
                let mut object = object;
                if kind == "GitRepository" {
                    object["spec"]["ref"] = json!({"branch": "main"});
                } else {
                    object["spec"]["insecure"] = json!(true);
                }
                cluster.apply(&object).await.map(drop)
            }
        };
        stream::iter(0..count).map(create).buffer_unordered(10).try_collect::<()>().await?;
        while self.ready(kind).await? < count {
            if started.elapsed() > DEADLINE {
                bail!("only {} of {count} became ready", self.ready(kind).await?);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        line(&format!(
            "{count} {kind} ready after {:.1} s; memory {:.1} MiB, at most {:.1} MiB",
            started.elapsed().as_secs_f64(),
            self.mebibytes("VmRSS:")?,
            self.mebibytes("VmHWM:")?
        ))?;
        // What starts together spreads over the first interval.
        tokio::time::sleep(options.interval).await;
        let (before, writes) = (self.usage()?, self.api.counts());
        let requests = || {
            let git = git.requests();
            asked.load(Ordering::Relaxed) + git.advertisements + git.ref_listings + git.fetches
        };
        let first = requests();
        tokio::time::sleep(options.interval * options.runs).await;
        let after = self.usage()?;
        let seconds = (after.at - before.at).as_secs_f64();
        let runs = f64::from(options.runs) * count as f64;
        line(&format!(
            "{} intervals of {interval}: {:.2} requests to the server for each source and interval, {} to the API \
             server in all; {:.1} % of a processor, {:.2} ms for each source and interval; memory {:.1} MiB, at most \
             {:.1} MiB",
            options.runs,
            (requests() - first) as f64 / runs,
            self.api.counts().since(&writes).count(|call| !call.is_bookkeeping()),
            (after.processor_seconds - before.processor_seconds) / seconds * 100.0,
            (after.processor_seconds - before.processor_seconds) / runs * 1000.0,
            self.mebibytes("VmRSS:")?,
            self.mebibytes("VmHWM:")?
        ))
    }

    async fn ready(&self, kind: &str) -> Result<usize> {
        let objects = self.cluster.list(SOURCE, kind, Some(NAMESPACE), "").await?;
        Ok(objects.iter().filter(|object| is_ready(object)).count())
    }
}

fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// `git clone --depth 1`, `tar` and `gzip`, measured.
fn compare(url: &str, revision: &str, moved: &AtomicU64) -> Result<()> {
    const MEASURE: &str = "import resource, subprocess, sys, time\n\
        started = time.time()\n\
        subprocess.run(['bash', '-c', sys.argv[1]], check=True)\n\
        used = resource.getrusage(resource.RUSAGE_CHILDREN)\n\
        print('%.2f s, processor %.2f s, at most %.1f MiB' % \
        (time.time() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))\n";
    let directory = tempfile::tempdir()?;
    let script = format!(
        "cd '{}' && git -c advice.detachedHead=false clone --quiet --depth 1 --branch main '{url}' tree && \
         tar -C tree --exclude=.git -cf - . | gzip > archive.tar.gz",
        directory.path().display()
    );
    moved.store(0, Ordering::Relaxed);
    let output = Command::new("python3").args(["-c", MEASURE, &script]).output()?;
    if !output.status.success() {
        bail!("git clone: {}", String::from_utf8_lossy(&output.stderr));
    }
    let size = std::fs::metadata(directory.path().join("archive.tar.gz"))?.len();
    line(&format!(
        "git clone | tar | gzip of {revision:<10}{}, {:.2} MiB moved, archive of {:.2} MiB",
        String::from_utf8_lossy(&output.stdout).trim(),
        mebibytes(moved.swap(0, Ordering::Relaxed)),
        mebibytes(size)
    ))
}

fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(repository).args(arguments).output()?;
    if !output.status.success() {
        bail!("git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn set_main(repository: &Path, revision: &str) -> Result<()> {
    let commit = git(repository, &["rev-parse", revision])?;
    git(repository, &["update-ref", "refs/heads/main", &commit]).map(drop)
}

/// A proxy that counts the bytes of both directions; returns its address.
async fn count_bytes(upstream: String) -> Result<(String, Arc<AtomicU64>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();
    let moved = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&moved);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (upstream, counted) = (upstream.clone(), Arc::clone(&counted));
            tokio::spawn(async move {
                let Ok(mut server) = tokio::net::TcpStream::connect(&upstream).await else { return };
                let (client_read, client_write) = client.split();
                let (server_read, server_write) = server.split();
                let _ = tokio::join!(
                    copy(client_read, server_write, &counted),
                    copy(server_read, client_write, &counted)
                );
            });
        }
    });
    Ok((address, moved))
}

/// Copies until the end, and counts as it goes.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    counted: &AtomicU64,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        counted.fetch_add(length as u64, Ordering::Relaxed);
        to.write_all(&buffer[..length]).await?;
    }
}

/// A chart repository with an index of that size; returns its address and how often it was asked.
async fn chart_repository(bytes: usize) -> Result<(String, Arc<AtomicU64>)> {
    let mut index = String::from("apiVersion: v1\nentries:\n");
    let mut chart = 0;
    while index.len() < bytes {
        writeln!(index, "  chart-{chart:05}:")?;
        for version in 0..40 {
            let digest = hex::encode(Sha256::digest(format!("{chart} {version}")));
            write!(
                index,
                "  - apiVersion: v2\n    appVersion: 1.{version}.0\n    created: \"2026-01-01T00:00:00Z\"\n    \
                 description: A chart of many, with a description of the usual length.\n    digest: {digest}\n    \
                 home: https://example.com/charts/chart-{chart:05}\n    keywords:\n    - one\n    - two\n    \
                 maintainers:\n    - email: someone@example.com\n      name: someone\n    name: chart-{chart:05}\n    \
                 type: application\n    urls:\n    - https://example.com/chart-{chart:05}-1.{version}.0.tgz\n    \
                 version: 1.{version}.0\n"
            )?;
        }
        chart += 1;
    }
    let (index, asked) = (Bytes::from(index), Arc::new(AtomicU64::new(0)));
    let state = (index, Arc::clone(&asked));
    let answer = |State((index, asked)): State<(Bytes, Arc<AtomicU64>)>, request: Request| async move {
        asked.fetch_add(1, Ordering::Relaxed);
        if request.headers().contains_key("if-none-match") {
            return StatusCode::NOT_MODIFIED.into_response();
        }
        ([("etag", "\"1\"")], index).into_response()
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();
    let router = Router::new().fallback(answer).with_state(state);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((address, asked))
}

/// What the registry has.
struct Served {
    manifest: Bytes,
    image: String,
    layer: Bytes,
    asked: Arc<AtomicU64>,
}

/// A registry with one image in every repository; returns its address and how often it was asked.
async fn registry() -> Result<(String, Arc<AtomicU64>)> {
    let mut archive =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default()));
    let content = b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n";
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "a.yaml", &content[..])?;
    let layer = Bytes::from(archive.into_inner()?.finish()?);
    let digest = |bytes: &[u8]| format!("sha256:{}", hex::encode(Sha256::digest(bytes)));
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "digest": digest(b"{}"), "size": 2},
        "layers": [{"mediaType": LAYER_TYPE, "digest": digest(&layer), "size": layer.len()}],
    });
    let manifest = Bytes::from(manifest.to_string());
    let image = digest(&manifest);
    let asked = Arc::new(AtomicU64::new(0));
    let state = Arc::new(Served { manifest, image, layer, asked: Arc::clone(&asked) });
    let answer = |State(state): State<Arc<Served>>, request: Request| async move {
        let Served { manifest, image, layer, asked } = &*state;
        asked.fetch_add(1, Ordering::Relaxed);
        let path = request.uri().path();
        let (kind, body) = if path.contains("/manifests/") {
            (MANIFEST_TYPE, manifest.clone())
        } else if path.contains("/blobs/") {
            ("application/octet-stream", layer.clone())
        } else if path == "/v2/" {
            ("application/json", Bytes::from_static(b"{}"))
        } else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let length = body.len();
        let body = if request.method() == Method::HEAD { Body::empty() } else { Body::from(body) };
        let builder = Response::builder().header("content-type", kind).header("content-length", length);
        builder.header("docker-content-digest", image).body(body).unwrap_or_default()
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();
    let router = Router::new().fallback(answer).with_state(state);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((address, asked))
}

fn line(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
