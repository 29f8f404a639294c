//! `weir simulate`: what the controllers would make of a repository, on a cluster in this process.

mod adjust;
pub(super) mod change;
mod charts;
mod pods;
mod render;
mod report;
mod repository;
mod time;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use kube::Client;
use serde_json::{Value, json};
use weir_api::GoDuration;
use weir_base::clock::Clock;
use weir_testcluster::TestCluster;

use self::adjust::{Adjustments, OFFLINE};
use self::charts::Charts;
use self::report::{Report, Verdict};
use self::time::Time;
use crate::arguments::GlobalArguments;
use crate::error::Error;
use crate::kind::Kind;
use crate::local::controllers::{self, Controllers};
use crate::local::files::Files;
use crate::local::git::{BRANCH, Commit, Server};
use crate::local::{self, NAMESPACE};
use crate::{output, view};

/// Nothing moves any more when nothing has changed for so long: longer than the wait before a failed object is tried
/// again.
const QUIET: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// So long must nothing have changed before time is skipped although the network can be reached.
const CALM: Duration = Duration::from_millis(1500);
/// The longest time within a simulation.
const SIMULATED_MAX: Duration = Duration::from_hours(1);

/// Arguments of `weir simulate`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directory of the fleet's repository
    #[arg(value_name = "REPOSITORY", default_value = ".")]
    repository: PathBuf,
    /// Folder that the cluster syncs [default: the one folder with a gotk-sync.yaml, else ./clusters/local, else all]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Commit, branch or tag to simulate instead of the files as they are
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Commit, branch or tag to compare with: it is simulated too, and the change of every object is reported
    #[arg(long, value_name = "REVISION")]
    base: Option<String>,
    /// How to report
    #[arg(short, long, value_name = "FORM", default_value = "tree")]
    output: Form,
    /// Fetch nothing from the network: sources other than the repository are not there, unless --charts has them
    #[arg(long)]
    offline: bool,
    /// Directory with chart archives (.tgz) to take all charts from
    #[arg(long, value_name = "DIRECTORY")]
    charts: Option<PathBuf>,
    /// Take the newest archive of --charts whatever version is asked for
    #[arg(long, requires = "charts")]
    any_chart_version: bool,
    /// File with objects the cluster has from the start, such as keys and settings; may be repeated
    #[arg(long, value_name = "FILE")]
    apply: Vec<PathBuf>,
    /// Accept objects of kinds that are in the repository but no definition brings, such as those installed by hand
    #[arg(long)]
    any_kind: bool,
    /// Longest time for each health check and Helm action
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    wait: GoDuration,
    /// Write the report as test results to a file, besides --output
    #[arg(long, value_name = "FILE")]
    junit_file: Option<PathBuf>,
    /// Write what the controllers log to a file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Forms of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The tree of objects, problems, and what changed
    Tree,
    /// The changes of all objects
    Diff,
    /// Test results
    Junit,
    /// Everything, for programs
    Json,
    /// A comment for a pull request
    Markdown,
}

/// What is particular to simulations.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SimulateError {
    #[error("there is no revision '{0}'")]
    NoRevision(String),
    #[error("git {command} failed: {text}")]
    Git { command: String, text: String },
    #[error("the fleet has several clusters ({0}); name one with --path")]
    SeveralClusters(String),
    #[error("cannot make a directory for artifacts")]
    Directory(#[source] std::io::Error),
    #[error("cannot run the simulation")]
    Runtime(#[source] std::io::Error),
    #[error("failed to start the cluster")]
    Cluster(#[source] weir_testcluster::SnapshotError),
    #[error("failed to read '{path}'")]
    Objects {
        path: String,
        #[source]
        source: weir_manifest::Error,
    },
    #[error("--output diff needs a revision to compare with: --base REVISION")]
    NoBase,
}

/// Runs the sub-command, on the thread that calls, which must be one of the runtime's. The exit code is 1 when something
/// is not ready.
pub(crate) fn run(global: &GlobalArguments, arguments: &Arguments) -> Result<(), Error> {
    if arguments.output == Form::Diff && arguments.base.is_none() {
        return Err(SimulateError::NoBase.into());
    }
    if let Some(path) = &arguments.log {
        controllers::log_to(path)?;
    }
    let extra = extra_objects(&arguments.apply)?;
    let charts = arguments.charts.as_deref().map(Charts::read).transpose()?;
    let (files, name) = repository::read(&arguments.repository, arguments.revision.as_deref())?;
    let path = folder(arguments.path.as_deref(), &files)?;
    let world = World { arguments, deadline: global.timeout.to_std(), charts, extra };
    output::action(&format!("simulating {path} of {name}"));
    let head = world.run(files, &path)?;
    let mut report = head.report;
    report.revision = name;
    report.path.clone_from(&path);
    if let Some(base) = &arguments.base {
        let (files, name) = repository::read(&arguments.repository, Some(base))?;
        output::action(&format!("simulating {path} of {name}"));
        let old = world.run(files, &path)?;
        report.changes = change::compare(&old.rendered, &head.rendered);
        report.base = Some(name);
        let known: Vec<&str> =
            old.report.rows.iter().filter(|row| row.verdict.is_bad()).map(|row| row.id.as_str()).collect();
        if !known.is_empty() {
            report.notes.push(format!("not ready at the base already: {}", known.join(", ")));
        }
    }
    if let Some(memory) = peak_memory_mib() {
        output::action(&format!("peak memory {memory} MiB"));
    }
    let text = match arguments.output {
        Form::Tree => render::tree(&report),
        Form::Diff => render::diff(&report),
        Form::Junit => render::junit(&report),
        Form::Json => format!("{:#}\n", report.json()),
        Form::Markdown => render::markdown(&report),
    };
    if let Some(path) = &arguments.junit_file {
        std::fs::write(path, render::junit(&report))
            .map_err(|source| Error::WriteFile { path: path.display().to_string(), source })?;
    }
    output::data(&text)?;
    if report.is_good() {
        output::success(&render::summary(&report));
        Ok(())
    } else {
        output::failure(&render::summary(&report));
        Err(Error::Reported)
    }
}

/// The folder to sync.
fn folder(given: Option<&str>, files: &Files) -> Result<String, Error> {
    if given.is_none() {
        let found = repository::cluster_folders(files);
        match found.as_slice() {
            [] => {}
            [one] => return Ok(local::sync_path(Some(one), Some(files))?),
            several => return Err(SimulateError::SeveralClusters(several.join(", ")).into()),
        }
    }
    Ok(local::sync_path(given, Some(files))?)
}

fn extra_objects(paths: &[PathBuf]) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| Error::File { path: name.clone(), source })?;
        let documents = weir_manifest::read_documents(&bytes, &name)
            .map_err(|source| SimulateError::Objects { path: name, source })?;
        objects.extend(documents.into_iter().filter(Value::is_object));
    }
    Ok(objects)
}

/// What all simulations of one command have in common.
struct World<'a> {
    arguments: &'a Arguments,
    deadline: Duration,
    charts: Option<Charts>,
    extra: Vec<Value>,
}

struct Outcome {
    report: Report,
    /// The objects that controllers applied.
    rendered: BTreeMap<String, Value>,
}

impl World<'_> {
    /// Simulates in a time of its own.
    fn run(&self, files: Files, path: &str) -> Result<Outcome, Error> {
        let run = || time::run(|time| Box::pin(self.simulate(files, path, time)));
        tokio::task::block_in_place(run).map_err(SimulateError::Runtime)?
    }

    async fn simulate(&self, files: Files, path: &str, time: Time) -> Result<Outcome, Error> {
        let started = Instant::now();
        let source = repository::source(&files, path);
        let fleet =
            Server::start(Commit::new(&files, "Fleet", 0)).await.map_err(local::LocalError::Listen)?;
        let stand_ins =
            if self.arguments.any_kind { repository::stand_in_definitions(&files) } else { Vec::new() };
        drop(files);
        let charts = match &self.charts {
            Some(charts) => Some(charts::Server::start(charts.clone()).await?),
            None => None,
        };
        let mut definitions = BTreeMap::new();
        for definition in local::definitions()? {
            definitions.insert(view::name(&definition).to_owned(), definition);
        }
        let adjustments = Adjustments {
            source: source.clone(),
            fleet_url: fleet.url(),
            charts_url: charts.as_ref().map(charts::Server::url),
            registry_url: charts.as_ref().map(charts::Server::registry),
            chart_names: self.charts.as_ref().map(Charts::names).unwrap_or_default(),
            any_chart_version: self.arguments.any_chart_version,
            offline: self.arguments.offline,
            wait: self.arguments.wait.to_std(),
            definitions,
        };
        let cluster = TestCluster::builder()
            .clock(Arc::new(time.clone()))
            .controllers(true)
            .rbac(true)
            .mutate(move |object| adjustments.apply(object))
            .build()
            .map_err(SimulateError::Cluster)?;
        let client = Client::new(cluster.service(), NAMESPACE);
        local::install(&client).await?;
        for object in stand_ins.iter().chain(&self.extra) {
            local::apply(&client, object).await?;
        }
        let directory = Scratch::new().map_err(SimulateError::Directory)?;
        let clock: Arc<dyn Clock> = Arc::new(time.clone());
        let mut controllers = Controllers::start(&client, directory.path(), self.arguments.offline, &clock)?;
        let namespace = source.namespace.clone();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        local::apply(&client, &namespace).await?;
        local::sync(&client, (&source.namespace, &source.name), &fleet.url(), BRANCH, path).await?;
        let waited = async {
            tokio::select! {
                settled = self.until_quiet(&client, &cluster, &time, started) => settled,
                failure = controllers.failure() => Err(failure.into()),
                // What becomes due in the cluster: pods that get ready, jobs that end.
                () = cluster.run_due() => Ok((false, Vec::new())),
            }
        };
        let (settled, objects) = waited.await?;
        controllers.stop().await;
        let all = cluster.objects();
        let mut report = Report::new(&objects);
        report.look_at_pods(&all);
        report.took = started.elapsed();
        report.simulated = time.elapsed();
        report.settled = settled;
        if !stand_ins.is_empty() {
            let names: Vec<&str> = stand_ins.iter().map(view::name).collect();
            report.notes.push(format!("objects of these kinds are accepted unseen: {}", names.join(", ")));
        }
        if let Some(charts) = &self.charts {
            report.notes.push(format!("charts come from a cache of {} archives", charts.len()));
        }
        Ok(Outcome { report, rendered: change::rendered(&all) })
    }

    /// Waits until everything is ready, or nothing moves any more; `false` when the time is up before. Gives the objects
    /// as they are then.
    async fn until_quiet(
        &self,
        client: &Client,
        cluster: &TestCluster,
        time: &Time,
        started: Instant,
    ) -> Result<(bool, Vec<Value>), Error> {
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = String::new();
        let mut since = time.elapsed();
        let mut written = Instant::now();
        let mut failures = Failures::default();
        let mut seen = 0;
        let mut objects = Vec::new();
        loop {
            looks.tick().await;
            let revision = cluster.revision();
            if revision != seen {
                (seen, written) = (revision, Instant::now());
                objects = local::objects(client).await?;
                failures.remember(&mut objects);
                if self.arguments.offline && self.charts.is_some() {
                    skip_absent_charts(&mut objects);
                }
                let report = Report::new(&objects);
                if report.rows.iter().all(|row| row.verdict == Verdict::Ready)
                    && report.rows.iter().any(|row| row.id.starts_with("Kustomization/"))
                {
                    return Ok((true, objects));
                }
                let state: String = objects.iter().map(standing).collect();
                if state != last {
                    (last, since) = (state, time.elapsed());
                }
            }
            if time.elapsed().saturating_sub(since) >= QUIET && !objects.iter().any(is_at_work) {
                return Ok((true, objects));
            }
            if started.elapsed() >= self.deadline || time.elapsed() >= SIMULATED_MAX {
                return Ok((false, objects));
            }
            // The network knows nothing of simulated time.
            let calm = time.skips() || written.elapsed() >= CALM;
            let waits_only = || calm && !objects.iter().any(may_fetch);
            if self.arguments.offline || waits_only() { time.skip() } else { time.flow() }
        }
    }
}

/// How objects failed: one that failed and is tried again, unchanged, has failed until it becomes ready.
#[derive(Default)]
struct Failures(BTreeMap<String, (Value, Value)>);

impl Failures {
    /// Takes note of failures, and shows them in place of another try.
    fn remember(&mut self, objects: &mut [Value]) {
        for object in objects {
            let id =
                format!("{}/{}/{}", view::text(object, "/kind"), view::namespace(object), view::name(object));
            let attempt = json!([
                object["metadata"]["generation"],
                object["status"]["lastAttemptedRevision"],
                object["spec"]
            ]);
            let ready = view::condition(object, "Ready").cloned().unwrap_or_default();
            match view::text(&ready, "/status") {
                "False" if view::text(&ready, "/reason") != "DependencyNotReady" => {
                    self.0.insert(id, (attempt, ready));
                }
                "Unknown" => {
                    let Some((_, known)) = self.0.get(&id).filter(|(known, _)| *known == attempt) else {
                        continue;
                    };
                    let conditions = object["status"]["conditions"].as_array_mut();
                    for condition in conditions.into_iter().flatten() {
                        if condition["type"] == "Ready" {
                            condition.clone_from(known);
                        }
                    }
                }
                _ => _ = self.0.remove(&id),
            }
        }
    }
}

/// Charts that are not in the cache are not fetched offline.
fn skip_absent_charts(objects: &mut [Value]) {
    for object in objects.iter_mut().filter(|object| object["kind"] == "HelmChart") {
        let ready = view::condition(object, "Ready");
        if ready.is_some_and(|ready| view::text(ready, "/message").contains("no chart name found")) {
            object["metadata"]["annotations"][OFFLINE] = json!("true");
        }
    }
}

/// What must stay the same while nothing moves.
fn standing(object: &Value) -> String {
    let ready = view::condition(object, "Ready");
    let text = |pointer: &str| ready.map_or("", |ready| view::text(ready, pointer));
    format!(
        "{}/{}/{} {} {} {}\n",
        view::text(object, "/kind"),
        view::namespace(object),
        view::name(object),
        text("/status"),
        text("/reason"),
        // Messages of failures may name times and attempts.
        view::text(object, "/status/lastAppliedRevision"),
    )
}

/// Whether a controller is in the middle of something.
fn is_at_work(object: &Value) -> bool {
    if view::is_suspended(object) {
        return false;
    }
    let ready = view::condition(object, "Ready").map_or("", |ready| view::text(ready, "/status"));
    ready == "Unknown"
}

/// Whether something may be on its way from the network: a source that is not settled, or a build.
fn may_fetch(object: &Value) -> bool {
    if view::is_suspended(object) {
        return false;
    }
    match view::text(object, "/kind") {
        "Kustomization" => {
            let checks =
                view::condition(object, "Healthy").map_or("", |healthy| view::text(healthy, "/status"));
            is_at_work(object) && checks != "Unknown"
        }
        kind @ ("GitRepository" | "OCIRepository" | "HelmRepository" | "HelmChart" | "Bucket") => {
            let is_static = Kind::named(kind).is_some_and(|kind| view::is_static(kind, object));
            let ready = view::condition(object, "Ready").map_or("", |ready| view::text(ready, "/status"));
            let current =
                object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation");
            !is_static && (ready != "True" || !current)
        }
        _ => false,
    }
}

/// A directory that goes with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let name = format!("weir-simulate-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans the directory of temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The most memory this process had, where the system says.
fn peak_memory_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_one_cluster_of_the_fleet() {
        let sync = |path: &str| {
            crate::local::files::File {
            content: format!(
                "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: a}}\nspec: {{path: {path}}}\n"
            )
            .into_bytes(),
            executable: false,
        }
        };
        let mut files = Files::new();
        files.insert("clusters/a/gotk-sync.yaml".to_owned(), sync("./clusters/a"));
        assert_eq!(folder(None, &files).unwrap(), "./clusters/a");
        assert_eq!(folder(Some("clusters/a"), &files).unwrap(), "clusters/a");
        files.insert("clusters/b/gotk-sync.yaml".to_owned(), sync("./clusters/b"));
        let error = folder(None, &files).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the fleet has several clusters (./clusters/a, ./clusters/b); name one with --path"
        );
    }

    #[test]
    fn another_try_of_what_failed_is_still_a_failure() {
        let object = |status: &str, generation: i64| {
            json!({
                "kind": "Kustomization", "metadata": {"name": "a", "generation": generation},
                "status": {"conditions": [{"type": "Ready", "status": status, "reason": "HealthCheckFailed"}]}
            })
        };
        let mut failures = Failures::default();
        let mut look = |status: &str, generation: i64| {
            let mut objects = [object(status, generation)];
            failures.remember(&mut objects);
            objects[0]["status"]["conditions"][0]["status"].as_str().unwrap().to_owned()
        };
        assert_eq!(look("Unknown", 1), "Unknown");
        assert_eq!(look("False", 1), "False");
        assert_eq!(look("Unknown", 1), "False");
        assert_eq!(look("Unknown", 2), "Unknown", "a change is a new attempt");
        assert_eq!(look("True", 2), "True");
        assert_eq!(look("Unknown", 2), "Unknown");
    }

    #[test]
    fn charts_outside_of_the_cache_block_their_releases_offline() {
        let object = |kind: &str, message: &str, status: Value| {
            let mut object = json!({"kind": kind, "metadata": {"name": "a", "namespace": "n", "annotations": {}}, "status": status});
            object["status"]["conditions"] =
                json!([{"type": "Ready", "status": "False", "message": message}]);
            object
        };
        let mut objects = [
            object("HelmChart", "invalid chart reference: no chart name found", json!({})),
            object("HelmRelease", "HelmChart 'n/a' is not ready", json!({"helmChart": "n/a"})),
        ];
        skip_absent_charts(&mut objects);
        let found: Vec<Verdict> = Report::new(&objects).rows.iter().map(|row| row.verdict).collect();
        assert_eq!(found, [Verdict::Skipped, Verdict::Blocked]);
    }

    #[test]
    fn time_is_skipped_only_when_nothing_is_fetched() {
        let object = |kind: &str, ready: &str, healthy: &str| {
            json!({
                "kind": kind, "metadata": {"generation": 1},
                "status": {"observedGeneration": 1, "conditions": [
                    {"type": "Ready", "status": ready}, {"type": "Healthy", "status": healthy}
                ]}
            })
        };
        let fetches = [
            object("OCIRepository", "Unknown", ""),
            object("HelmChart", "False", ""),
            object("Kustomization", "Unknown", "True"),
        ];
        assert_eq!(fetches.map(|object| may_fetch(&object)), [true; 3]);
        let waits = [
            object("GitRepository", "True", ""),
            object("Kustomization", "Unknown", "Unknown"),
            object("Kustomization", "False", "False"),
            object("HelmRelease", "Unknown", ""),
        ];
        assert_eq!(waits.map(|object| may_fetch(&object)), [false; 4]);
    }

    #[test]
    fn an_object_that_is_being_reconciled_is_at_work() {
        let object = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert!(is_at_work(&object("Unknown")));
        assert!(!is_at_work(&object("False")));
        assert_ne!(standing(&object("True")), standing(&object("False")));
    }
}
