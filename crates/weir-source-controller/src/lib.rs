//! Reconciles sources: fetches them, publishes artifacts and serves them over HTTP.
//!
//! GitRepository over HTTP(S) and OCIRepository so far; `docs/COMPATIBILITY.md` lists what is missing.

mod flags;
mod git_repository;
mod oci_repository;
mod source;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tracing::{error, info};
use weir_api::source::{GitRepository, OCIRepository};
use weir_artifact::{server, storage};
use weir_base::error::chain;
use weir_runtime::{Program, Runtime, Settings};
use weir_source::git::{Git, Limits};

pub use flags::Flags;
pub use git_repository::GitRepositories;
pub use oci_repository::OciRepositories;

/// What is fixed about this program.
pub const PROGRAM: Program = Program {
    name: "source-controller",
    version: env!("CARGO_PKG_VERSION"),
    field_manager: "source-controller",
    concurrent: Some("2"),
    environment: &[
        ("metrics_addr", "METRICS_ADDR"),
        ("events_addr", "EVENTS_ADDR"),
        ("storage_path", "STORAGE_PATH"),
        ("storage_addr", "STORAGE_ADDRESS"),
        ("storage_adv_addr", "STORAGE_ADV_ADDR"),
    ],
    feature_gates: &[("CacheSecretsAndConfigMaps", false), ("ObjectLevelWorkloadIdentity", false)],
};

/// Why the controller cannot start.
#[derive(Debug, thiserror::Error)]
enum SetupError {
    #[error("unable to configure storage provider")]
    Storage(#[from] storage::StorageError),
    #[error("unable to determine advertised storage address from '{0}'")]
    AdvertisedAddress(String),
    #[error("unable to listen on --storage-addr '{address}'")]
    Listen {
        address: String,
        #[source]
        source: weir_runtime::ListenError,
    },
    #[error(transparent)]
    Git(#[from] weir_source::git::GitError),
    #[error(
        "cannot set default service accounts when the feature gate ObjectLevelWorkloadIdentity is not enabled"
    )]
    DefaultServiceAccount,
}

/// The program: reads the flags and runs until it is told to stop.
pub fn main() -> ExitCode {
    let flags: Flags = weir_runtime::flags::parse(&PROGRAM);
    let adjust = |settings: Settings| settings.with_sharding(&flags.sharding).with_jitter(&flags.jitter);
    weir_runtime::run(&PROGRAM, &flags.common, adjust, async |runtime| {
        set_up(runtime, &flags).map_err(Into::into)
    })
}

fn set_up(runtime: &mut Runtime, flags: &Flags) -> Result<(), SetupError> {
    let identity = runtime.settings().gates.enabled("ObjectLevelWorkloadIdentity");
    if !flags.service_account.default_service_account.is_empty() && !identity {
        return Err(SetupError::DefaultServiceAccount);
    }
    let storage = Arc::new(open_storage(runtime, flags)?);
    let address = flags.storage_addr.clone();
    let served = Arc::clone(&storage);
    let stop = runtime.stop();
    runtime.while_leading(async move {
        // Bound only now: the open port tells the readiness probe that this instance leads.
        let listener = match weir_runtime::listen(&address).await {
            Ok(listener) => listener,
            Err(source) => {
                let error = SetupError::Listen { address, source };
                error!(error = chain(&error), "artifact file server error");
                stop.cancel();
                return;
            }
        };
        info!("starting file server");
        if let Err(error) = server::serve(listener, served, stop.clone().cancelled_owned()).await {
            error!(error = chain(&error), "artifact file server error");
            stop.cancel();
        }
    });
    let cache = std::env::temp_dir().join("source-controller").join("git");
    let sources = runtime.watch_primary::<GitRepository>();
    let reconciler = GitRepositories {
        client: runtime.client(),
        storage: Arc::clone(&storage),
        git: Git::new(cache, Limits::default())?,
        sources: sources.clone(),
        requeue_dependency: flags.dependencies.requeue_dependency,
    };
    runtime.controller(&sources, reconciler, |_| {});
    let repositories = runtime.watch_primary::<OCIRepository>();
    let reconciler = OciRepositories { client: runtime.client(), storage };
    runtime.controller(&repositories, reconciler, |_| {});
    Ok(())
}

fn open_storage(runtime: &Runtime, flags: &Flags) -> Result<storage::Storage, SetupError> {
    let host = runtime.settings().host.clone();
    let host_name = || std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()).unwrap_or(host);
    let host = storage::advertised_host(&flags.storage_adv_addr, &flags.storage_addr, host_name)
        .ok_or_else(|| SetupError::AdvertisedAddress(flags.storage_addr.clone()))?;
    let options = storage::Options {
        root: PathBuf::from(&flags.storage_path),
        host,
        retention_ttl: flags.artifact_retention_ttl,
        retention_records: flags.artifact_retention_records,
        algorithm: flags.artifact_digest_algo,
    };
    Ok(storage::Storage::open(options, runtime.clock())?)
}
