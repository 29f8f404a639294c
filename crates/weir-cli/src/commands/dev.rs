//! `weir dev`: a cluster in this process with the controllers, over a fleet in a directory.

mod screen;
mod state;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use weir_api::GoDuration;
use weir_base::clock::{Clock, SystemClock};
use weir_testcluster::{Running, TestCluster};

use self::screen::Screen;
use self::state::State;
use crate::arguments::GlobalArguments;
use crate::error::Error;
use crate::kind::Kind;
use crate::local::controllers::{self, Controllers};
use crate::local::files::{self, Files};
use crate::local::git::{BRANCH, Commit, Server};
use crate::local::{self, FLEET, LOOK_INTERVAL, LocalError, NAMESPACE, seconds};
use crate::{output, view};

/// How many looks there are between two looks at the files.
const LOOKS_PER_READ: u32 = 10;

/// Arguments of `weir dev`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start a cluster in this process, sync a fleet to it and follow the files until Ctrl-C
    Up(Up),
    /// Stop the cluster that runs
    Down(Common),
    /// Forget all objects of the cluster
    Reset(Common),
    /// Print whether a cluster runs, and how its objects are
    Status(Common),
}

#[derive(Debug, Args)]
struct Common {
    /// Directory of the cluster's kubeconfig, objects and logs [default: weir/dev below $XDG_STATE_HOME]
    #[arg(long, value_name = "DIRECTORY")]
    state_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Up {
    #[command(flatten)]
    common: Common,
    /// Directory with the fleet, or URL of its repository [default: the example fleet]
    #[arg(long, value_name = "DIRECTORY|URL")]
    git: Option<String>,
    /// Branch of a repository given by URL
    #[arg(long, value_name = "NAME", default_value = BRANCH)]
    branch: String,
    /// Folder of the fleet to sync [default: ./clusters/local if there is one, otherwise all]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Stop as soon as everything is ready; fail when it is not within --timeout
    #[arg(long)]
    once: bool,
}

/// What is particular to development clusters.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DevError {
    #[error("cannot use '{}'", path.display())]
    State {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("neither XDG_STATE_HOME nor HOME is set; name a directory with --state-dir")]
    NoHome,
    #[error("a development cluster runs already{}", pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Running { pid: Option<i32> },
    #[error("no development cluster runs")]
    NotRunning,
    #[error("the development cluster did not stop within {0}")]
    StillRunning(GoDuration),
    #[error("failed to read the objects of the last run; forget them with: weir dev reset")]
    Snapshot(#[source] weir_testcluster::SnapshotError),
    #[error("failed to keep the objects for the next run")]
    Save(#[source] weir_testcluster::SnapshotError),
    #[error("failed to serve the cluster")]
    Serve(#[source] weir_testcluster::ServeError),
    #[error("not everything is ready after {0}")]
    NotReady(GoDuration),
}

/// Runs the sub-command.
pub(crate) async fn run(global: &GlobalArguments, arguments: Arguments) -> Result<(), Error> {
    match arguments.action {
        Action::Up(up) => start(global, &up).await,
        Action::Down(common) => stop(global, &State::new(common.state_dir.as_deref())?).await,
        Action::Reset(common) => {
            let state = State::new(common.state_dir.as_deref())?;
            state.forget()?;
            output::success(&format!("all objects in '{}' are forgotten", state.root().display()));
            Ok(())
        }
        Action::Status(common) => status(&State::new(common.state_dir.as_deref())?).await,
    }
}

/// Where the fleet comes from.
enum Fleet {
    Example,
    Directory(PathBuf),
    Url(String),
}

impl Fleet {
    fn new(given: Option<&str>) -> Self {
        match given {
            None => Self::Example,
            Some(text) if text.contains("://") => Self::Url(text.to_owned()),
            Some(text) => Self::Directory(PathBuf::from(text)),
        }
    }

    /// The files as they are now, unless they are somewhere else.
    fn read(&self) -> Result<Option<Files>, Error> {
        match self {
            Self::Example => Ok(Some(files::example())),
            Self::Directory(directory) => files::read(directory).map(Some),
            Self::Url(_) => Ok(None),
        }
    }
}

async fn start(global: &GlobalArguments, up: &Up) -> Result<(), Error> {
    let started = Instant::now();
    let state = State::new(up.common.state_dir.as_deref())?;
    let fleet = Fleet::new(up.git.as_deref());
    let files = fleet.read()?;
    let path = local::sync_path(up.path.as_deref(), files.as_ref())?;
    let _owned = state.take()?;
    controllers::log_to(&state.log())?;

    let cluster = TestCluster::builder()
        .controllers(true)
        .snapshot(state.snapshot())
        .build()
        .map_err(DevError::Snapshot)?;
    let running = serve(&cluster, &state).await?;
    output::success(&format!("cluster at {} after {}", running.url(), seconds(started.elapsed())));
    output::action(&format!("export KUBECONFIG={}", state.kubeconfig().display()));
    let client = Client::new(cluster.service(), NAMESPACE);
    local::install(&client).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut controllers = Controllers::start(&client, &state.artifacts(), false, &clock)?;
    output::success(&format!("controllers run after {}", seconds(started.elapsed())));

    let follow = match files {
        Some(files) => Some(Follow::start(files).await?),
        None => None,
    };
    match (&follow, &fleet) {
        (Some(follow), _) => {
            local::sync(&client, (NAMESPACE, FLEET), &follow.server.url(), BRANCH, &path).await?;
        }
        (None, Fleet::Url(url)) => local::sync(&client, (NAMESPACE, FLEET), url, &up.branch, &path).await?,
        // Files are read unless the fleet is somewhere else.
        (None, Fleet::Example | Fleet::Directory(_)) => {}
    }
    let outcome = tokio::select! {
        outcome = watch(&client, global, up.once, &fleet, follow) => outcome,
        failure = controllers.failure() => Err(failure.into()),
        () = stop_requested() => Ok(()),
    };
    output::waiting("stopping");
    controllers.stop().await;
    running.shutdown();
    cluster.save(None).map_err(DevError::Save)?;
    output::success("stopped; the objects are kept for the next time");
    outcome
}

async fn serve(cluster: &TestCluster, state: &State) -> Result<Running, DevError> {
    let running = cluster.serve(([127, 0, 0, 1], 0).into()).await.map_err(DevError::Serve)?;
    state.write_kubeconfig(running.kubeconfig())?;
    Ok(running)
}

fn commit(files: &Files) -> Commit {
    let seconds = k8s_openapi::jiff::Timestamp::now().as_second();
    Commit::new(files, "Fleet", seconds)
}

/// The files that are served, to notice when they change.
struct Follow {
    server: Server,
    files: Files,
    revision: String,
}

impl Follow {
    async fn start(files: Files) -> Result<Self, LocalError> {
        let commit = commit(&files);
        let revision = commit.revision();
        let server = Server::start(commit).await.map_err(LocalError::Listen)?;
        output::action(&format!("{} files served as {} at {revision}", files.len(), server.url()));
        Ok(Self { server, files, revision })
    }
}

/// Shows how things are until all is ready (`--once`), or for ever.
async fn watch(
    client: &Client,
    global: &GlobalArguments,
    once: bool,
    fleet: &Fleet,
    mut follow: Option<Follow>,
) -> Result<(), Error> {
    let mut since = Instant::now();
    let mut screen = Screen::new();
    let mut times: BTreeMap<String, Duration> = BTreeMap::new();
    let mut settled = false;
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for look in 1_u32.. {
        looks.tick().await;
        let objects = local::objects(client).await?;
        let rows = screen::tree(&objects);
        for row in &rows {
            if row.progress == screen::Progress::Ready {
                times.entry(row.name.clone()).or_insert_with(|| since.elapsed());
            } else {
                times.remove(&row.name);
            }
        }
        screen.show(&rows, &times);
        let revision =
            follow.as_ref().map_or_else(|| source_revision(&objects), |follow| follow.revision.clone());
        if !settled && screen::is_settled(&objects, FLEET, &revision) {
            settled = true;
            screen.keep();
            let managed: usize = rows.iter().map(|row| row.entries).sum();
            output::success(&format!(
                "everything is ready after {}: {managed} objects at {revision}",
                seconds(since.elapsed())
            ));
            if once {
                return Ok(());
            }
        }
        if once && since.elapsed() > global.timeout.to_std() {
            return Err(DevError::NotReady(global.timeout).into());
        }
        if look.is_multiple_of(LOOKS_PER_READ)
            && let Some(follow) = &mut follow
            && let Some(changed) = changed_files(fleet, follow)
        {
            let commit = commit(&changed);
            follow.revision = commit.revision();
            follow.files = changed;
            follow.server.replace(commit);
            since = Instant::now();
            settled = false;
            times.clear();
            screen.keep();
            output::action(&format!("files changed, now at {}", follow.revision));
            request(client).await?;
        }
    }
    Ok(())
}

/// The files if they differ. What cannot be read now, because an editor just replaces it, is read the next time.
fn changed_files(fleet: &Fleet, follow: &Follow) -> Option<Files> {
    let files = fleet.read().ok().flatten()?;
    (files != follow.files).then_some(files)
}

/// What a webhook does after a push: asks for a reconcile of the source.
async fn request(client: &Client) -> Result<(), Error> {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let resource = Kind::GitRepository.resource();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    let patch = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": now}}});
    api.patch(FLEET, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map(|_| ())
        .map_err(|source| Error::Api { action: format!("request a reconcile of {}", resource.kind), source })
}

fn source_revision(objects: &[Value]) -> String {
    objects
        .iter()
        .find(|object| object["kind"] == "GitRepository" && view::name(object) == FLEET)
        .map(|source| view::text(source, "/status/artifact/revision").to_owned())
        .unwrap_or_default()
}

/// Completes on Ctrl-C and on SIGTERM.
async fn stop_requested() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => {
            // SIGTERM ends the process at once then.
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

async fn stop(global: &GlobalArguments, state: &State) -> Result<(), Error> {
    let pid = state.running()?.ok_or(DevError::NotRunning)?;
    state.stop(pid)?;
    let deadline = Instant::now() + global.timeout.to_std();
    while state.running()?.is_some() {
        if Instant::now() > deadline {
            return Err(DevError::StillRunning(global.timeout).into());
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    output::success("stopped");
    Ok(())
}

async fn status(state: &State) -> Result<(), Error> {
    let Some(pid) = state.running()? else {
        return Err(DevError::NotRunning.into());
    };
    let kubeconfig = kube::config::Kubeconfig::read_from(state.kubeconfig())
        .map_err(|error| Error::Kubeconfig(error.into()))?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
            .await
            .map_err(|error| Error::Kubeconfig(error.into()))?;
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(Error::Connect)?;
    let rows = screen::tree(&local::objects(&client).await?);
    let lines = screen::render(&rows, &BTreeMap::new());
    output::data(&format!(
        "process     {pid}\nserver      {url}\nkubeconfig  {}\nlog         {}\n\n{}\n",
        state.kubeconfig().display(),
        state.log().display(),
        lines.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_not_a_directory() {
        assert!(matches!(Fleet::new(Some("https://git.example/fleet")), Fleet::Url(_)));
        assert!(matches!(Fleet::new(Some("../fleet")), Fleet::Directory(_)));
        assert!(matches!(Fleet::new(None), Fleet::Example));
    }
}
