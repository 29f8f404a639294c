//! Runs the controllers over a fleet directory and shows its objects becoming ready. Called by `hack/run`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use e2e::{
    Cluster, Controller, GitServer, KUSTOMIZE, Launch, Repository, SOURCE, condition, free_address, text,
};
use serde_json::{Value, json};
use weir_api::GoDuration;

const NAMESPACE: &str = "flux-system";
/// Name of the source and of the root Kustomization, as Flux bootstraps a cluster and fleets refer to it.
const FLEET: &str = "flux-system";
/// How often the objects are looked at: the resolution of the times shown.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How often the fleet directory is looked at for changes.
const FILES_INTERVAL: Duration = Duration::from_secs(1);
/// The largest file that is taken from the fleet directory.
const FILE_BYTES_MAX: u64 = 10 * 1024 * 1024;

struct Options {
    fleet: PathBuf,
    path: String,
    once: bool,
    timeout: Duration,
}

fn main() -> Result<()> {
    let options = options(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Err(error) = runtime.block_on(run(&options)) {
        // The chain of causes without a backtrace: it is for people.
        writeln!(std::io::stderr(), "hack/run: {error:#}")?;
        std::process::exit(1);
    }
    Ok(())
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let caller = std::env::var_os("WEIR_CALLER_DIRECTORY").map_or_else(PathBuf::new, PathBuf::from);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fleet");
    let mut options = Options {
        fleet: example,
        path: "./clusters/local".to_owned(),
        once: false,
        timeout: Duration::from_mins(5),
    };
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut value =
            || inline.clone().or_else(|| arguments.next()).with_context(|| format!("{name} needs a value"));
        match name.as_str() {
            "--fleet" => options.fleet = caller.join(value()?),
            "--path" => options.path = value()?,
            "--timeout" => {
                let text = value()?;
                let timeout: GoDuration = text.parse().with_context(|| format!("--timeout '{text}'"))?;
                options.timeout = timeout.to_std();
            }
            "--once" => options.once = true,
            other => bail!("unknown argument '{other}'; see hack/run --help"),
        }
    }
    Ok(options)
}

async fn run(options: &Options) -> Result<()> {
    let started = Instant::now();
    let cluster = Cluster::connect().await?.context("KUBECONFIG is not set; use hack/run")?;
    let directory = tempfile::tempdir()?;

    say("serving the fleet as a Git repository")?;
    let git = GitServer::start(directory.path()).await?;
    let repository = git.create("fleet")?;
    let mut files = read_fleet(&options.fleet)?;
    repository.replace(&files)?;
    let revision = repository.commit("Fleet")?;
    line(&format!("    {} at {revision}, {} files", repository.url(), files.len()))?;

    say("installing the custom resource definitions")?;
    cluster.install_crds().await?;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    cluster.apply(&namespace).await?;

    say("starting source-controller and kustomize-controller")?;
    let mut controllers = start_controllers(directory.path()).await?;
    line(&format!("    ready {} after the start", seconds(started.elapsed())))?;

    say("syncing")?;
    let synced = Instant::now();
    sync(&cluster, &repository, &options.path).await?;
    let outcome = tokio::select! {
        outcome = follow(&cluster, &repository, options, &mut files, synced, &controllers) => outcome,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    say("stopping the controllers")?;
    for controller in &mut controllers {
        controller.stop().await?;
    }
    outcome
}

async fn start_controllers(directory: &Path) -> Result<Vec<Controller>> {
    let (storage, kubeconfig) = (free_address().await?, std::env::var("KUBECONFIG")?);
    let data = directory.join("data");
    std::fs::create_dir_all(&data)?;
    let mut controllers = Vec::new();
    for name in ["source", "kustomize"] {
        let health = free_address().await?;
        let mut arguments = vec![
            "--enable-leader-election".to_owned(),
            "--metrics-addr=127.0.0.1:0".to_owned(),
            format!("--health-addr={health}"),
        ];
        if name == "source" {
            arguments.extend([
                format!("--storage-path={}", data.display()),
                format!("--storage-addr={storage}"),
                format!("--storage-adv-addr={storage}"),
            ]);
        }
        let launch = Launch {
            binary: format!("{name}-controller"),
            arguments,
            environment: vec![
                ("KUBECONFIG".to_owned(), kubeconfig.clone()),
                ("RUNTIME_NAMESPACE".to_owned(), NAMESPACE.to_owned()),
                ("HOME".to_owned(), directory.display().to_string()),
            ],
            health,
            log: directory.join(format!("{name}.log")),
        };
        controllers.push(Controller::start(launch).await?);
    }
    Ok(controllers)
}

async fn sync(cluster: &Cluster, repository: &Repository, path: &str) -> Result<()> {
    let source = json!({
        "apiVersion": SOURCE, "kind": "GitRepository",
        "metadata": { "name": FLEET, "namespace": NAMESPACE },
        "spec": { "url": repository.url(), "ref": { "branch": "main" }, "interval": "1m" },
    });
    cluster.apply(&source).await?;
    let root = json!({
        "apiVersion": KUSTOMIZE, "kind": "Kustomization",
        "metadata": { "name": FLEET, "namespace": NAMESPACE },
        "spec": {
            "sourceRef": { "kind": "GitRepository", "name": FLEET }, "path": path,
            "interval": "10m", "retryInterval": "10s", "prune": true,
        },
    });
    cluster.apply(&root).await?;
    Ok(())
}

/// Shows every change of state until all is ready (`--once`) or for ever.
async fn follow(
    cluster: &Cluster,
    repository: &Repository,
    options: &Options,
    files: &mut BTreeMap<String, String>,
    mut since: Instant,
    controllers: &[Controller],
) -> Result<()> {
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    let mut revision = String::new();
    let mut ready_times: BTreeMap<String, Duration> = BTreeMap::new();
    let mut looked_at_files = Instant::now();
    loop {
        let objects = objects(cluster).await?;
        for object in &objects {
            let (name, state) = (identity(object), state(object));
            if shown.get(&name) != Some(&state) {
                line(&format!("  {:>7}  {name:<42} {state}", seconds(since.elapsed())))?;
                shown.insert(name.clone(), state);
            }
            if is_ready(object) {
                ready_times.entry(name).or_insert_with(|| since.elapsed());
            } else {
                ready_times.remove(&name);
            }
        }
        shown.retain(|name, _| objects.iter().any(|object| identity(object) == *name));
        ready_times.retain(|name, _| shown.contains_key(name));
        let current = current_revision(&objects);
        if !current.is_empty() && current != revision && all_ready(&objects, &current) {
            revision = current;
            summary(&objects, &ready_times, since.elapsed(), controllers)?;
            if options.once {
                return Ok(());
            }
            line("")?;
            line(&format!("  look at it with: export KUBECONFIG={}", std::env::var("KUBECONFIG")?))?;
            line(&format!(
                "  edit the files in {}: each change is committed and synced",
                options.fleet.display()
            ))?;
            line("  Ctrl-C stops")?;
            line("")?;
        }
        if options.once && since.elapsed() > options.timeout {
            let waiting: Vec<String> = objects
                .iter()
                .filter(|object| !is_ready(object))
                .map(|object| format!("\n  {} {}", identity(object), state(object)))
                .collect();
            bail!("not ready after {}:{}", seconds(options.timeout), waiting.concat());
        }
        if looked_at_files.elapsed() >= FILES_INTERVAL && !options.once {
            looked_at_files = Instant::now();
            let now = read_fleet(&options.fleet)?;
            if now != *files {
                repository.replace(&now)?;
                *files = now;
                let committed = repository.commit("Change")?;
                since = Instant::now();
                ready_times.clear();
                say(&format!("pushed {committed}"))?;
                request(cluster).await?;
            }
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// What a webhook does after a push: asks for a reconcile of the source.
async fn request(cluster: &Cluster) -> Result<()> {
    let token = format!("{:?}", std::time::SystemTime::now());
    cluster
        .edit(
            SOURCE,
            "GitRepository",
            Some(NAMESPACE),
            FLEET,
            "hack-run",
            &json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } }),
        )
        .await?;
    Ok(())
}

async fn objects(cluster: &Cluster) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for (api_version, kind) in [(SOURCE, "GitRepository"), (KUSTOMIZE, "Kustomization")] {
        for mut object in cluster.list(api_version, kind, None, "").await? {
            object["kind"] = kind.into(); // items of a list do not carry it
            objects.push(object);
        }
    }
    Ok(objects)
}

fn identity(object: &Value) -> String {
    let (kind, namespace, name) =
        (text(object, "/kind"), text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    format!("{kind}/{namespace}/{name}")
}

fn state(object: &Value) -> String {
    let Some(ready) = condition(object, "Ready") else { return "waiting for its controller".to_owned() };
    let message = text(ready, "/message").lines().next().unwrap_or_default().to_owned();
    match ready["status"].as_str() {
        Some("True") => format!("Ready: {message}"),
        Some("False") => format!("{}: {message}", text(ready, "/reason")),
        _ => condition(object, "Reconciling").map_or(message, |progress| text(progress, "/message")),
    }
}

fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
        && object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation")
}

fn current_revision(objects: &[Value]) -> String {
    objects
        .iter()
        .find(|object| object["kind"] == "GitRepository" && object["metadata"]["name"] == FLEET)
        .map(|source| text(source, "/status/artifact/revision"))
        .unwrap_or_default()
}

fn all_ready(objects: &[Value], revision: &str) -> bool {
    let mut kustomizations = objects.iter().filter(|object| object["kind"] == "Kustomization").peekable();
    kustomizations.peek().is_some()
        && objects.iter().all(is_ready)
        && kustomizations.all(|object| {
            object.pointer("/spec/sourceRef/name").and_then(Value::as_str) != Some(FLEET)
                || text(object, "/status/lastAppliedRevision") == revision
        })
}

fn summary(
    objects: &[Value],
    ready_times: &BTreeMap<String, Duration>,
    total: Duration,
    controllers: &[Controller],
) -> Result<()> {
    say("everything is ready")?;
    let mut managed = 0;
    let mut sorted: Vec<&Value> = objects.iter().collect();
    sorted.sort_by_key(|object| ready_times.get(&identity(object)));
    for object in sorted {
        let name = identity(object);
        let entries =
            object.pointer("/status/inventory/entries").and_then(Value::as_array).map_or(0, Vec::len);
        managed += entries;
        let count =
            if object["kind"] == "Kustomization" { format!("{entries} objects") } else { String::new() };
        let time = ready_times.get(&name).copied().map(seconds).unwrap_or_default();
        line(&format!("  {time:>7}  {name:<42} {count}"))?;
    }
    let memory: Vec<String> = controllers
        .iter()
        .zip(["source-controller", "kustomize-controller"])
        .filter_map(|(controller, name)| {
            controller.resident_kib().map(|kib| format!("{name} {} MiB", kib / 1024))
        })
        .collect();
    line(&format!(
        "  {:>7}  {managed} objects in all; resident memory: {}",
        seconds(total),
        memory.join(", ")
    ))
}

/// All text files of the fleet directory by path; hidden folders are left out.
fn read_fleet(directory: &Path) -> Result<BTreeMap<String, String>> {
    fn walk(directory: &Path, prefix: &str, files: &mut BTreeMap<String, String>) -> Result<()> {
        let entries =
            std::fs::read_dir(directory).with_context(|| format!("read '{}'", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() && !name.starts_with('.') {
                walk(&entry.path(), &format!("{path}/"), files)?;
            } else if kind.is_file()
                && entry.metadata()?.len() <= FILE_BYTES_MAX
                && let Ok(content) = std::fs::read_to_string(entry.path())
            {
                files.insert(path, content);
            }
        }
        Ok(())
    }
    let mut files = BTreeMap::new();
    walk(directory, "", &mut files)?;
    if files.is_empty() {
        bail!("no files in '{}'", directory.display());
    }
    Ok(files)
}

fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

fn say(what: &str) -> Result<()> {
    line(&format!("==> {what}"))
}

fn line(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("write to standard output")
}
