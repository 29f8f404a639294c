//! Reconciles sources: fetches them, publishes artifacts and serves them over HTTP.
//!
//! GitRepository, OCIRepository, HelmRepository, HelmChart and Bucket; `docs/COMPATIBILITY.md` lists what is missing.

mod bucket;
mod flags;
mod git_repository;
mod helm_chart;
mod helm_repository;
mod identity;
mod oci_repository;
mod source;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tracing::{error, info};
use weir_api::source::{Bucket, GitRepository, HelmChart, HelmRepository, OCIRepository};
use weir_artifact::{server, storage};
use weir_base::error::chain;
use weir_cloud::Environment;
use weir_cloud::gcp::Federation;
use weir_runtime::{
    Change, Handle, Index as Lookup, ObjectKey, Priority, Program, Runtime, Settings, Store, Trigger, Watched,
};
use weir_source::git::{Git, Limits, SshAlgorithms};

pub use bucket::Buckets;
pub use flags::Flags;
pub use git_repository::GitRepositories;
pub use helm_chart::{ChartSources, HelmCharts};
pub use helm_repository::HelmRepositories;
pub use identity::{Identities, IdentityOptions};
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
pub enum SetupError {
    /// The directory of the artifacts cannot be used.
    #[error("unable to configure storage provider")]
    Storage(#[from] storage::StorageError),
    /// Neither flag says where artifacts are fetched from.
    #[error("unable to determine advertised storage address from '{0}'")]
    AdvertisedAddress(String),
    /// The file server cannot listen.
    #[error("unable to listen on --storage-addr '{address}'")]
    Listen {
        /// The value of the flag.
        address: String,
        /// Why not.
        #[source]
        source: weir_runtime::ListenError,
    },
    /// Git repositories cannot be fetched.
    #[error(transparent)]
    Git(#[from] weir_source::git::GitError),
    /// A flag names an algorithm of SSH that does not exist.
    #[error(transparent)]
    Algorithm(#[from] weir_source::git::UnknownAlgorithm),
    /// Flags that do not go together.
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

/// Adds the controllers of all sources, and the file server of their artifacts, to a runtime.
///
/// # Errors
/// The storage, or the flags, cannot be used.
pub fn set_up(runtime: &mut Runtime, flags: &Flags) -> Result<(), SetupError> {
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
    let options = IdentityOptions {
        per_object: identity,
        default_account: flags.service_account.default_service_account.clone(),
        cached_max: flags.token_cache.token_cache_max_size,
        cached_for: flags.token_cache.token_cache_max_duration,
        environment: Environment::of_process(),
        gcp: Federation::default(),
    };
    let identities = Arc::new(Identities::new(runtime.client(), runtime.clock(), options));
    let cache = std::env::temp_dir().join("source-controller").join("git");
    let sources = runtime.watch_primary::<GitRepository>();
    let reconciler = GitRepositories {
        client: runtime.client(),
        identities: Arc::clone(&identities),
        storage: Arc::clone(&storage),
        git: Git::new(cache, Limits::default())?
            .with_algorithms(SshAlgorithms::new(&flags.ssh_kex_algos, &flags.ssh_hostkey_algos)?),
        sources: sources.clone(),
        requeue_dependency: flags.dependencies.requeue_dependency,
    };
    runtime.controller(&sources, reconciler, |_| {});
    let repositories = runtime.watch_primary::<OCIRepository>();
    let reconciler = OciRepositories {
        client: runtime.client(),
        identities: Arc::clone(&identities),
        storage: Arc::clone(&storage),
    };
    runtime.controller(&repositories, reconciler, |_| {});
    let bytes = |flag: i64| u64::try_from(flag).unwrap_or_default();
    let index_bytes_max = bytes(flags.helm_index_max_size);
    let repositories = runtime.watch_primary::<HelmRepository>();
    let reconciler = HelmRepositories::new(runtime.client(), Arc::clone(&storage), index_bytes_max);
    runtime.controller(&repositories, reconciler, |_| {});
    let buckets = runtime.watch_primary::<Bucket>();
    let reconciler = Buckets {
        client: runtime.client(),
        storage: Arc::clone(&storage),
        identities: Arc::clone(&identities),
        clock: runtime.clock(),
    };
    runtime.controller(&buckets, reconciler, |_| {});
    let sources = ChartSources { helm: repositories, git: sources, bucket: buckets };
    let charts = runtime.watch_primary::<HelmChart>();
    let reconciler = HelmCharts::new(
        runtime.client(),
        identities,
        storage,
        sources.clone(),
        index_bytes_max,
        bytes(flags.helm_chart_max_size),
    );
    let handle = runtime.controller(&charts, reconciler, |_| {});
    follow_sources(&charts, &sources, &handle);
    Ok(())
}

/// Charts run when their source has a new revision.
fn follow_sources(charts: &Store<HelmChart>, sources: &ChartSources, handle: &Handle) {
    let by_source = charts.index(|chart| vec![helm_chart::source_key(chart)]);
    follow(&sources.helm, "HelmRepository", &by_source, handle, |source| {
        Some(&source.status.as_ref()?.artifact.as_ref()?.revision)
    });
    follow(&sources.git, "GitRepository", &by_source, handle, |source| {
        Some(&source.status.as_ref()?.artifact.as_ref()?.revision)
    });
    follow(&sources.bucket, "Bucket", &by_source, handle, |source| {
        Some(&source.status.as_ref()?.artifact.as_ref()?.revision)
    });
}

fn follow<K: Watched>(
    sources: &Store<K>,
    kind: &'static str,
    by_source: &Lookup<HelmChart>,
    handle: &Handle,
    revision: impl for<'a> Fn(&'a K) -> Option<&'a String> + Send + Sync + 'static,
) {
    let (by_source, handle) = (by_source.clone(), handle.clone());
    sources.on_change(move |change| {
        let Change::Updated { old, new } = change else { return };
        let Some(found) = revision(&**new).filter(|found| Some(*found) != revision(&**old)) else { return };
        let trigger = Trigger { kind: kind.to_owned(), key: ObjectKey::of(&**new) };
        for chart in by_source.get(&format!("{kind}/{}", trigger.key)) {
            let observed =
                chart.status.as_ref().and_then(|status| status.observed_source_artifact_revision.as_ref());
            if observed != Some(found) {
                handle.enqueue(&ObjectKey::of(&*chart), Priority::Event, &trigger);
            }
        }
    });
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
