//! Connects watches, controllers and the outside world.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use weir_api::helm::HelmRelease;
use weir_api::names::{condition as types, environment, reason};
use weir_api::{Artifact, FluxObject, condition};
use weir_artifact::fetch::{Fetcher, Options as FetchOptions};
use weir_kms::Requests;
use weir_runtime::{Change, Handle, Index, ObjectKey, Priority, Runtime, Store, Trigger, Watched};

use crate::chart;
use crate::clusters::KubernetesClusters;
use crate::observe::{self, Stores};
use crate::oom::{OomError, Watch};
use crate::reconcile::{HelmReleaseReconciler, LoadedCharts};
use crate::settings::{Flags, Settings};
use crate::{decrypt, spec};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Adds the HelmRelease controller to a runtime.
///
/// # Errors
/// Flags that cannot work together, or a machine without usable TLS.
pub fn set_up(runtime: &mut Runtime, flags: &Flags) -> Result<(), BoxError> {
    let settings = Settings::new(flags, runtime.settings().gates.clone())?;
    let releases: Store<HelmRelease> = runtime.watch_primary();
    let stores = Stores {
        releases: releases.clone(),
        charts: runtime.watch(),
        oci: runtime.watch(),
        external: settings.gates.enabled("ExternalArtifact").then(|| runtime.watch()),
    };
    let charts = Fetcher::new(FetchOptions {
        retries: flags.http_retry,
        attempt_timeout: Some(flags.http_timeout),
        host_override: std::env::var(environment::SOURCE_CONTROLLER_LOCALHOST)
            .ok()
            .filter(|host| !host.is_empty()),
        watcher_host_override: std::env::var(environment::SOURCE_WATCHER_LOCALHOST)
            .ok()
            .filter(|host| !host.is_empty()),
        ..FetchOptions::default()
    })?;
    if settings.gates.enabled("OOMWatch") {
        watch_memory(runtime, flags)?;
    }
    let watch_configs = !settings.gates.enabled("DisableConfigWatchers");
    let event_driven = settings.gates.enabled("EventDrivenReconciliation");
    let reconciler = HelmReleaseReconciler {
        stores: stores.clone(),
        clusters: Arc::new(KubernetesClusters::new(runtime.client(), settings.clone(), runtime.clock())),
        charts: Arc::new(charts),
        loaded: LoadedCharts::default(),
        settings,
        requests: Requests::new()?,
        clock: runtime.clock(),
    };
    let handle = runtime.controller(&releases, reconciler, |_| {});
    let mapper = Mapper { releases, handle };
    let by_source = mapper.releases.index(|object: &HelmRelease| {
        chart::source_name(object).map(|source| source.key()).into_iter().collect()
    });
    mapper.follow_source(&stores.charts, "HelmChart", &by_source, |source| {
        source.status.as_ref()?.artifact.as_ref()
    });
    mapper.follow_source(&stores.oci, "OCIRepository", &by_source, |source| {
        source.status.as_ref()?.artifact.as_ref()
    });
    if let Some(external) = &stores.external {
        mapper.follow_source(external, "ExternalArtifact", &by_source, |source| {
            source.status.as_ref()?.artifact.as_ref()
        });
    }
    if watch_configs {
        let by_config = mapper.releases.index(config_references);
        mapper.follow_configs(&runtime.watch_config_metadata::<ConfigMap>(), "ConfigMap", &by_config);
        mapper.follow_configs(&runtime.watch_config_metadata::<Secret>(), "Secret", &by_config);
    }
    if event_driven {
        mapper.follow_dependencies();
    }
    Ok(())
}

/// Ends the process in order when its memory runs out.
fn watch_memory(runtime: &mut Runtime, flags: &Flags) -> Result<(), OomError> {
    let watch = Watch::new(
        &flags.oom_watch_max_memory_path,
        &flags.oom_watch_current_memory_path,
        flags.oom_watch_memory_threshold,
        flags.oom_watch_interval,
    )?;
    let Some(watch) = watch else {
        tracing::info!("the container has no memory limit: OOMWatch does nothing");
        return Ok(());
    };
    let stop = runtime.stop();
    runtime.always(async move {
        tokio::select! {
            () = watch.reached() => stop.cancel(),
            () = stop.cancelled() => {}
        }
    });
    Ok(())
}

/// The ConfigMaps and Secrets a HelmRelease reads, as `Kind/namespace/name`.
fn config_references(object: &HelmRelease) -> Vec<String> {
    let namespace = spec::namespace(object);
    let mut references: Vec<String> = object
        .spec
        .values_from
        .iter()
        .map(|reference| format!("{}/{namespace}/{}", reference.kind, reference.name))
        .collect();
    if let Some(kube_config) = &object.spec.kube_config {
        references.extend(
            kube_config.config_map_ref.iter().map(|map| format!("ConfigMap/{namespace}/{}", map.name)),
        );
        references.extend(
            kube_config.secret_ref.iter().map(|secret| format!("Secret/{namespace}/{}", secret.name)),
        );
    }
    references.extend(decrypt::secret_name(object).map(|name| format!("Secret/{namespace}/{name}")));
    references
}

/// Turns changes of other objects into runs of HelmReleases.
#[derive(Clone)]
struct Mapper {
    releases: Store<HelmRelease>,
    handle: Handle,
}

impl Mapper {
    /// HelmReleases run when their source has a new artifact, or turns ready.
    fn follow_source<K: Watched + FluxObject>(
        &self,
        sources: &Store<K>,
        kind: &'static str,
        by_source: &Index<HelmRelease>,
        artifact: impl for<'a> Fn(&'a K) -> Option<&'a Artifact> + Send + Sync + 'static,
    ) {
        let (mapper, by_source) = (self.clone(), by_source.clone());
        sources.on_change(move |change| {
            let Change::Updated { old, new } = change else { return };
            let revision = |source: &K| artifact(source).map(|artifact| artifact.revision.clone());
            let turned_ready =
                !condition::is_ready(old.conditions()) && condition::is_ready(new.conditions());
            if revision(old) == revision(new) && !turned_ready {
                return;
            }
            let Some(artifact) = artifact(new) else { return };
            let trigger = Trigger { kind: kind.to_owned(), key: ObjectKey::of(&**new) };
            for object in by_source.get(&format!("{kind}/{}", trigger.key)) {
                if !is_at(&object, kind, &artifact.revision) {
                    mapper.handle.enqueue(&ObjectKey::of(&*object), Priority::Event, &trigger);
                }
            }
        });
    }

    /// HelmReleases run when a ConfigMap or Secret they read changes or goes.
    fn follow_configs<K: kube::Resource<DynamicType = ()> + 'static>(
        &self,
        configs: &Store<K>,
        kind: &'static str,
        by_config: &Index<HelmRelease>,
    ) {
        let (mapper, by_config) = (self.clone(), by_config.clone());
        configs.on_change(move |change| {
            if matches!(change, Change::Added { initial: true, .. }) {
                return;
            }
            let trigger = Trigger { kind: kind.to_owned(), key: ObjectKey::of(&**change.object()) };
            for object in by_config.get(&format!("{kind}/{}", trigger.key)) {
                mapper.handle.enqueue(&ObjectKey::of(&*object), Priority::Event, &trigger);
            }
        });
    }

    /// HelmReleases that wait for another one run when it turns ready.
    fn follow_dependencies(&self) {
        let mapper = self.clone();
        let dependants = self.releases.index(|object: &HelmRelease| {
            observe::dependency_keys(object).iter().map(ToString::to_string).collect()
        });
        self.releases.on_change(move |change| {
            let Change::Updated { old, new } = change else { return };
            if !condition::is_true(new.conditions(), types::READY) || readiness(old) == readiness(new) {
                return;
            }
            let trigger = Trigger::of(&**new);
            for object in dependants.get(&trigger.key.to_string()) {
                let waits = condition::get(object.conditions(), types::READY)
                    .is_some_and(|ready| ready.reason == reason::DEPENDENCY_NOT_READY);
                if waits {
                    mapper.handle.enqueue(&ObjectKey::of(&*object), Priority::Event, &trigger);
                }
            }
        });
    }
}

/// What dependants look at.
fn readiness(object: &HelmRelease) -> (bool, Option<i64>) {
    (condition::is_true(object.conditions(), types::READY), object.observed_generation())
}

/// Whether a HelmRelease already has, or works on, a revision of its source.
fn is_at(object: &HelmRelease, kind: &str, revision: &str) -> bool {
    let conditions = object.conditions();
    if !condition::is_ready(conditions) && !condition::is_reconciling(conditions) {
        return false;
    }
    let Some(status) = &object.status else { return false };
    if kind == "HelmChart" || (kind == "ExternalArtifact" && !revision.contains(':')) {
        return status.last_attempted_revision.as_deref() == Some(revision);
    }
    let digest = revision.split_once('@').map_or(revision, |(_, digest)| digest);
    let attempted = status.last_attempted_revision_digest.as_deref();
    attempted == Some(digest) || attempted == Some(revision)
}
