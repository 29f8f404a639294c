//! Composes artifacts from the files of other sources, publishes and serves them over HTTP.
//!
//! An ArtifactGenerator names sources and copies; every artifact it makes becomes an ExternalArtifact, from which
//! kustomize-controller and helm-controller read like from any other source.

mod build;
mod copy;
mod decide;
mod error;
mod expand;
mod external;
mod flags;
mod generator;
mod glob;
mod observe;
mod status;

use std::process::ExitCode;

use weir_api::extensions::ArtifactGenerator;
use weir_api::names::{controller, environment, finalizer};
use weir_artifact::fetch::{Fetcher, Options as FetchOptions};
use weir_runtime::{
    ArtifactsError, Change, Handle, Index as Lookup, ObjectKey, Priority, Program, Runtime, Settings, Store,
    Trigger, artifacts,
};

use observe::ArtifactSource;

pub use error::Error;
pub use flags::Flags;
pub use generator::ArtifactGenerators;
pub use observe::Stores;
pub use status::Done;

/// What is fixed about this program.
pub const PROGRAM: Program = Program {
    name: controller::SOURCE_WATCHER,
    version: env!("CARGO_PKG_VERSION"),
    field_manager: controller::SOURCE_WATCHER,
    concurrent: Some("10"),
    environment: &[
        ("storage_path", "STORAGE_PATH"),
        ("storage_addr", "STORAGE_ADDRESS"),
        ("storage_adv_addr", "STORAGE_ADV_ADDR"),
    ],
    feature_gates: &[("DirectSourceFetch", false)],
};

/// Why the controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Artifacts cannot be stored or served.
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
    /// Artifacts cannot be fetched.
    #[error("unable to set up the artifact fetcher")]
    Fetcher(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The program: reads the flags and runs until it is told to stop.
pub fn main() -> ExitCode {
    let flags: Flags = weir_runtime::flags::parse(&PROGRAM);
    let adjust = |settings: Settings| settings.with_sharding(&flags.sharding).with_jitter(&flags.jitter);
    weir_runtime::run(&PROGRAM, &flags.common, adjust, async |runtime| {
        set_up(runtime, &flags).map_err(Into::into)
    })
}

/// Adds the controller and its file server to a runtime that has not started.
///
/// # Errors
/// The storage cannot be opened, or no artifact could ever be fetched.
pub fn set_up(runtime: &mut Runtime, flags: &Flags) -> Result<(), SetupError> {
    let storage = artifacts(runtime, &flags.artifacts)?;
    // Artifacts of this program, too, are fetched with the override for source-controller.
    let host_override =
        std::env::var(environment::SOURCE_CONTROLLER_LOCALHOST).ok().filter(|host| !host.is_empty());
    let options = FetchOptions { retries: flags.http_retry, host_override, ..FetchOptions::default() };
    let fetcher = Fetcher::new(options).map_err(|error| SetupError::Fetcher(Box::new(error)))?;
    let generators: Store<ArtifactGenerator> = runtime.watch_primary();
    let stores = Stores {
        buckets: runtime.watch(),
        git: runtime.watch(),
        oci: runtime.watch(),
        charts: runtime.watch(),
        external: runtime.watch(),
    };
    let reconciler = ArtifactGenerators {
        client: runtime.client(),
        storage,
        fetcher,
        stores: stores.clone(),
        is_direct: runtime.settings().gates.enabled("DirectSourceFetch"),
        no_cross_namespace_refs: flags.access.no_cross_namespace_refs,
        requeue_dependency: flags.requeue_dependency,
        timeout: flags.reconciliation_timeout,
    };
    let handle = runtime.controller(&generators, reconciler, |options| {
        finalizer::EXTENSIONS.clone_into(&mut options.finalizer);
    });
    let by_source = generators.index(|object| {
        object.spec.sources.iter().map(|source| decide::source_key(object, source)).collect()
    });
    follow(&stores.buckets, "Bucket", &by_source, &handle);
    follow(&stores.git, "GitRepository", &by_source, &handle);
    follow(&stores.oci, "OCIRepository", &by_source, &handle);
    follow(&stores.charts, "HelmChart", &by_source, &handle);
    follow(&stores.external, "ExternalArtifact", &by_source, &handle);
    Ok(())
}

/// Generators run when a source has a new revision, comes with an artifact, or goes.
fn follow<K: ArtifactSource>(
    sources: &Store<K>,
    kind: &'static str,
    by_source: &Lookup<ArtifactGenerator>,
    handle: &Handle,
) {
    let (by_source, handle) = (by_source.clone(), handle.clone());
    sources.on_change(move |change| {
        let revision = |source: &K| source.artifact().map(|artifact| artifact.revision.clone());
        let concerns = match change {
            Change::Updated { old, new } => revision(new).is_some() && revision(old) != revision(new),
            // Generators run anyway when the program starts.
            Change::Added { initial, object } => !initial && revision(object).is_some(),
            Change::Deleted(object) => revision(object).is_some(),
        };
        if !concerns {
            return;
        }
        let trigger = Trigger { kind: kind.to_owned(), key: ObjectKey::of(&**change.object()) };
        for generator in by_source.get(&format!("{kind}/{}", trigger.key)) {
            handle.enqueue(&ObjectKey::of(&*generator), Priority::Event, &trigger);
        }
    });
}
