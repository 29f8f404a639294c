//! The controllers, in this process.

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use weir_base::clock::Clock;
use weir_runtime::{Program, Runtime, Settings, flags, logs};

use super::LocalError;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The running controllers.
pub(crate) struct Controllers {
    stops: Vec<CancellationToken>,
    tasks: JoinSet<(&'static str, Result<(), BoxError>)>,
}

/// Sends what the controllers log to a file.
pub(crate) fn log_to(path: &Path) -> Result<(), LocalError> {
    let file =
        std::fs::File::create(path).map_err(|source| LocalError::State { path: path.to_owned(), source })?;
    let layer = logs::layer(tracing::Level::INFO, logs::Encoding::Json, Mutex::new(file));
    // Logs that already go somewhere stay there.
    let _ = tracing_subscriber::registry().with(layer).try_init();
    Ok(())
}

impl Controllers {
    /// Starts all controllers this program has; artifacts are kept in a directory. With `offline` kustomizations
    /// and the schemas of charts fetch nothing.
    ///
    /// # Errors
    /// One of them cannot be set up, or there is no free port.
    pub(crate) fn start(
        client: &Client,
        artifacts: &Path,
        offline: bool,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, LocalError> {
        let runtime_of =
            |settings| Runtime::new(settings, client.clone()).with_clock(Arc::clone(clock)).with_events();
        // The first provider wins; a second call in one process changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut stops = Vec::new();
        let mut tasks = JoinSet::new();

        let program = &weir_source_controller::PROGRAM;
        let own = storage(&artifacts.join("sources"))?;
        let flags: weir_source_controller::Flags = parse(program, &own)?;
        let adjusted = settings(program, &flags.common, &flags.jitter)?;
        let mut runtime = runtime_of(adjusted);
        weir_source_controller::set_up(&mut runtime, &flags).map_err(|error| failed(program, error))?;
        spawn(&mut stops, &mut tasks, program, runtime);

        let program = &weir_source_watcher::PROGRAM;
        let own = storage(&artifacts.join("generated"))?;
        let flags: weir_source_watcher::Flags = parse(program, &own)?;
        let adjusted = settings(program, &flags.common, &flags.jitter)?;
        let mut runtime = runtime_of(adjusted);
        weir_source_watcher::set_up(&mut runtime, &flags).map_err(|error| failed(program, error))?;
        spawn(&mut stops, &mut tasks, program, runtime);

        // There is somebody who makes external artifacts, so they are read.
        let own = ["--feature-gates=ExternalArtifact=true".to_owned()];
        let program = &weir_kustomize_controller::settings::PROGRAM;
        let mut flags: weir_kustomize_controller::settings::Flags = parse(program, &own)?;
        flags.offline = offline;
        let adjusted = settings(program, &flags.common, &flags.jitter)?;
        let mut runtime = runtime_of(adjusted);
        weir_kustomize_controller::wiring::set_up(&mut runtime, &flags)
            .map_err(|error| failed(program, error))?;
        spawn(&mut stops, &mut tasks, program, runtime);

        let program = &weir_helm_controller::settings::PROGRAM;
        let mut flags: weir_helm_controller::settings::Flags = parse(program, &own)?;
        flags.offline = offline;
        let adjusted = settings(program, &flags.common, &flags.jitter)?;
        let mut runtime = runtime_of(adjusted);
        weir_helm_controller::wiring::set_up(&mut runtime, &flags).map_err(|error| failed(program, error))?;
        spawn(&mut stops, &mut tasks, program, runtime);
        Ok(Self { stops, tasks })
    }

    /// Completes when a controller ends though nobody asked for it.
    pub(crate) async fn failure(&mut self) -> LocalError {
        match self.tasks.join_next().await {
            Some(Ok((name, Err(source)))) => LocalError::Controller { name, source },
            Some(Ok((name, Ok(())))) => LocalError::ControllerEnded { name },
            Some(Err(_)) | None => LocalError::ControllerEnded { name: "a controller" },
        }
    }

    /// Stops all and waits until they have: each ends its runs within its own limit.
    pub(crate) async fn stop(mut self) {
        for stop in &self.stops {
            stop.cancel();
        }
        while self.tasks.join_next().await.is_some() {}
    }
}

fn spawn(
    stops: &mut Vec<CancellationToken>,
    tasks: &mut JoinSet<(&'static str, Result<(), BoxError>)>,
    program: &Program,
    runtime: Runtime,
) {
    stops.push(runtime.stop());
    let name = program.name;
    tasks.spawn(async move { (name, runtime.run().await.map_err(Into::into)) });
}

/// The flags of a controller: a look at dependencies every second, and its own.
fn parse<A: clap::CommandFactory + clap::FromArgMatches>(
    program: &Program,
    own: &[String],
) -> Result<A, LocalError> {
    let common = [program.name.to_owned(), "--concurrent=8".to_owned(), "--requeue-dependency=1s".to_owned()];
    let arguments = common.into_iter().chain(own.iter().cloned());
    flags::try_parse(program, arguments).map_err(|error| failed(program, error))
}

/// The flags for artifacts in a directory, which is made, served on an address of its own.
fn storage(directory: &Path) -> Result<[String; 3], LocalError> {
    std::fs::create_dir_all(directory)
        .map_err(|source| LocalError::State { path: directory.to_owned(), source })?;
    let address = free_address().map_err(LocalError::Listen)?;
    Ok([
        format!("--storage-path={}", directory.display()),
        format!("--storage-addr={address}"),
        format!("--storage-adv-addr={address}"),
    ])
}

fn settings(
    program: &Program,
    common: &flags::Common,
    jitter: &flags::Jitter,
) -> Result<Settings, LocalError> {
    let mut settings =
        Settings::new(program, common).map_err(|error| failed(program, error))?.with_jitter(jitter);
    settings.runtime_namespace = Some(super::NAMESPACE.to_owned());
    Ok(settings)
}

fn failed(program: &Program, error: impl Into<BoxError>) -> LocalError {
    LocalError::Controller { name: program.name, source: error.into() }
}

/// A loopback address that nobody listens on now.
fn free_address() -> std::io::Result<String> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string())
}
