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

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use weir_api::source::{Bucket, GitRepository, HelmChart, HelmRepository, OCIRepository};
use weir_artifact::storage::Storage;
use weir_cloud::Environment;
use weir_cloud::gcp::Federation;
use weir_runtime::{
    ArtifactsError, Change, Handle, Index as Lookup, ObjectKey, Priority, Program, Runtime, Settings, Store,
    Trigger, Watched, artifacts,
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
    /// Artifacts cannot be stored or served.
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
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
    let storage = artifacts(runtime, &flags.artifacts)?;
    let cache = std::env::temp_dir().join("source-controller").join("git");
    let bytes = |flag: i64| u64::try_from(flag).unwrap_or_default();
    let parts = Parts {
        storage,
        git: Git::new(cache, Limits::default())?
            .with_algorithms(SshAlgorithms::new(&flags.ssh_kex_algos, &flags.ssh_hostkey_algos)?),
        identity: IdentityOptions {
            per_object: identity,
            default_account: flags.service_account.default_service_account.clone(),
            cached_max: flags.token_cache.token_cache_max_size,
            cached_for: flags.token_cache.token_cache_max_duration,
            environment: Environment::of_process(),
            gcp: Federation::default(),
        },
        requeue_dependency: flags.dependencies.requeue_dependency,
        index_bytes_max: bytes(flags.helm_index_max_size),
        chart_bytes_max: bytes(flags.helm_chart_max_size),
    };
    add_controllers(runtime, parts);
    Ok(())
}

/// What the controllers work with.
#[derive(Debug)]
pub struct Parts {
    /// Where artifacts go.
    pub storage: Arc<Storage>,
    /// The Git client.
    pub git: Git,
    /// What may be asked of clouds.
    pub identity: IdentityOptions,
    /// The time between two looks at an include that is not available.
    pub requeue_dependency: Duration,
    /// The largest index of a chart repository.
    pub index_bytes_max: u64,
    /// The largest packaged chart.
    pub chart_bytes_max: u64,
}

/// Adds the controllers of all sources to a runtime.
pub fn add_controllers(runtime: &mut Runtime, parts: Parts) {
    let Parts { storage, git, identity, requeue_dependency, index_bytes_max, chart_bytes_max } = parts;
    let identities = Arc::new(Identities::new(runtime.client(), runtime.clock(), identity));
    let sources = runtime.watch_primary::<GitRepository>();
    let reconciler = GitRepositories {
        client: runtime.client(),
        identities: Arc::clone(&identities),
        storage: Arc::clone(&storage),
        git,
        sources: sources.clone(),
        requeue_dependency,
    };
    runtime.controller(&sources, reconciler, |_| {});
    let repositories = runtime.watch_primary::<OCIRepository>();
    let reconciler = OciRepositories {
        client: runtime.client(),
        identities: Arc::clone(&identities),
        storage: Arc::clone(&storage),
    };
    runtime.controller(&repositories, reconciler, |_| {});
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
        chart_bytes_max,
    );
    let handle = runtime.controller(&charts, reconciler, |_| {});
    follow_sources(&charts, &sources, &handle);
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
