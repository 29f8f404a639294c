//! The start of a controller program: everything between the flags and the controllers.

use std::process::ExitCode;

use rand::RngExt as _;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use weir_base::error::chain;

use crate::client::{ClientError, Wrapping};
use crate::events::HttpPost;
use crate::logs::{self, Encoding};
use crate::{
    GateError, LeaseLost, ListenError, Program, Runtime, Settings, WriteGate, flags,
    has_priority_and_fairness, server,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The program could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A feature gate that does not exist.
    #[error("unable to load feature gates")]
    Gates(#[from] GateError),
    /// No Kubernetes client.
    #[error("unable to create the Kubernetes client")]
    Client(#[from] ClientError),
    /// A listener.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// `--watch-all-namespaces=false` needs to know the namespace.
    #[error("RUNTIME_NAMESPACE must be set when --watch-all-namespaces is false")]
    NoNamespace,
    /// `--events-addr` is not a URL.
    #[error("invalid --events-addr '{address}'")]
    EventsAddress {
        /// The value of the flag.
        address: String,
        /// What is wrong with it.
        #[source]
        source: BoxError,
    },
    /// The controller's own part of the start failed.
    #[error("unable to set up the controller")]
    Setup(#[source] BoxError),
    /// Another process may lead now.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
    /// No threads.
    #[error("unable to start the async runtime")]
    Threads(#[source] std::io::Error),
}

/// Runs a controller program: logs, client, probes, metrics, then `setup`, which adds watches and
/// controllers to the [`Runtime`]; then works until SIGTERM or SIGINT. The exit code is 1 after an
/// error, which is logged.
///
/// `adjust` completes the [`Settings`] with flags that not all controllers have, for instance
/// [`Settings::with_sharding`] and [`Settings::with_jitter`].
pub fn run(
    program: &Program,
    common: &flags::Common,
    adjust: impl FnOnce(Settings) -> Settings,
    setup: impl AsyncFnOnce(&mut Runtime) -> Result<(), BoxError>,
) -> ExitCode {
    logs::init(logs::level_from_flag(&common.log_level), Encoding::from_flag(&common.log_encoding));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(StartError::Threads).and_then(|runtime| {
        let result = runtime.block_on(start(program, common, adjust, setup));
        // A blocking call that hangs must not keep the process alive.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(logger = "setup", error = chain(&error), "problem running {}", program.name);
            ExitCode::FAILURE
        }
    }
}

async fn start(
    program: &Program,
    common: &flags::Common,
    adjust: impl FnOnce(Settings) -> Settings,
    setup: impl AsyncFnOnce(&mut Runtime) -> Result<(), BoxError>,
) -> Result<(), StartError> {
    // The first provider wins; a second call in one process changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone());

    let mut settings = adjust(Settings::new(program, common)?);
    for (gate, on) in settings.gates.iter() {
        info!(logger = "setup", "loading feature gate {gate}={on}");
    }
    settings.host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    settings.runtime_namespace = std::env::var("RUNTIME_NAMESPACE").ok().filter(|name| !name.is_empty());
    if !common.watch_all_namespaces {
        settings.namespace = Some(settings.runtime_namespace.clone().ok_or(StartError::NoNamespace)?);
    }

    let config = crate::client::config(&format!("{}/{}", program.name, program.version)).await?;
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let client = kube::Client::try_from(config).map_err(|error| ClientError::Setup(Box::new(error)))?;
    let throttled = match has_priority_and_fairness(&client).await {
        Ok(fair) => !fair,
        Err(error) => {
            info!(
                logger = "setup",
                error = chain(&error),
                "unable to ask for priority and fairness, throttling"
            );
            true
        }
    };
    let gate = WriteGate::default();
    let rate = if throttled { common.kube_api_qps } else { 0.0 };
    let receiver = receiver(&common.events_addr)?;
    let lease = common.enable_leader_election.then(|| {
        let namespace = settings.runtime_namespace.clone();
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let identity = format!("{}_{:016x}", settings.host, rand::rng().random::<u64>());
        settings.lease(common, namespace, identity)
    });
    let mut runtime = Runtime::new(settings, client.clone())
        .with_wrapping(Wrapping {
            gate: Some(gate.clone()),
            metrics: None,
            host,
            rate,
            burst: common.kube_api_burst,
        })
        .with_stop(stop.clone())
        .with_event_receiver(receiver);
    if let Some(lease) = lease {
        runtime = runtime.with_lease(client, lease, gate);
    }

    let health = server::listen(&common.health_addr).await?;
    tokio::spawn(server::serve(health, server::health(), CancellationToken::new()));
    if !matches!(common.metrics_addr.as_str(), "" | "0") {
        let metrics = server::listen(&common.metrics_addr).await?;
        tokio::spawn(server::serve(metrics, server::metrics(runtime.metrics()), CancellationToken::new()));
    }

    setup(&mut runtime).await.map_err(StartError::Setup)?;
    info!(logger = "setup", version = program.version, "starting manager");
    runtime.run().await?;
    Ok(())
}

fn receiver(address: &str) -> Result<Option<HttpPost>, StartError> {
    if address.is_empty() {
        return Ok(None);
    }
    let invalid = |source: BoxError| StartError::EventsAddress { address: address.to_owned(), source };
    let url = reqwest::Url::parse(address).map_err(|error| invalid(error.into()))?;
    let client = reqwest::Client::builder().build().map_err(|error| invalid(error.into()))?;
    Ok(Some(HttpPost::new(client, url)))
}

/// The first SIGTERM or SIGINT asks for an orderly end, the second ends the process.
fn stop_on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    tokio::spawn(async move {
        let (Ok(mut terminate), Ok(mut interrupt)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            error!(
                logger = "setup",
                error = "unable to listen for signals",
                "signals end the process at once"
            );
            return;
        };
        for last in [false, true] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if last {
                std::process::exit(1);
            }
            info!("Stopping and waiting for non leader election runnables");
            stop.cancel();
        }
    });
}
