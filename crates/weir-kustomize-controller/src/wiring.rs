//! Connects watches, controllers and the outside world.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use weir_api::common::ValuesSourceKind;
use weir_api::kustomize::Kustomization;
use weir_api::names::{condition as types, environment, reason};
use weir_api::{FluxObject, condition};
use weir_apply::managers::CleanUp;
use weir_artifact::fetch::{Fetcher, Options as FetchOptions};
use weir_kms::{Endpoints, Requests};
use weir_runtime::{Change, Handle, Index, ObjectKey, Priority, Runtime, Store, Trigger, Watched};

use weir_source::bases::{Bases, Limits};

use crate::cache::Builds;
use crate::clusters::KubernetesClusters;
use crate::decide::{self, GROUP};
use crate::drift::DriftWatch;
use crate::keyring::Keyring;
use crate::observe::{self, Stores};
use crate::order::topological;
use crate::process_keys;
use crate::progress::Slow;
use crate::reconcile::{Artifacts, KustomizationReconciler, MANAGER};
use crate::settings::{Flags, Settings};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Adds the Kustomization controller to a runtime.
///
/// # Errors
/// Flags that cannot work together, or a machine without usable TLS.
pub fn set_up(runtime: &mut Runtime, flags: &Flags) -> Result<(), BoxError> {
    let artifacts = Fetcher::new(FetchOptions {
        retries: flags.http_retry,
        host_override: variable(environment::SOURCE_CONTROLLER_LOCALHOST),
        watcher_host_override: variable(environment::SOURCE_WATCHER_LOCALHOST),
        ..FetchOptions::default()
    })?;
    set_up_with(runtime, flags, Arc::new(artifacts))
}

/// The same with artifacts from elsewhere.
///
/// # Errors
/// As for [`set_up`].
pub fn set_up_with(
    runtime: &mut Runtime,
    flags: &Flags,
    artifacts: Arc<dyn Artifacts>,
) -> Result<(), BoxError> {
    let settings = Settings::new(flags, runtime.settings().gates.clone())?;
    let kustomizations: Store<Kustomization> = runtime.watch_primary();
    let stores = Stores {
        kustomizations: kustomizations.clone(),
        git: runtime.watch(),
        oci: runtime.watch(),
        bucket: runtime.watch(),
        external: settings.gates.enabled("ExternalArtifact").then(|| runtime.watch()),
    };
    let clusters = Arc::new(KubernetesClusters::new(runtime.client(), settings.clone(), runtime.clock()));
    let keyring = Keyring {
        namespace: runtime.settings().runtime_namespace.clone(),
        age_secret: flags.sops_age_secret.clone(),
        vault_config_map: flags.sops_vault_configmap.clone(),
        default_service_account: settings.default_decryption_service_account.clone(),
        process_age: process_keys::age(),
        process_vault_token: process_keys::vault_token(),
        requests: Requests::new()?,
        endpoints: Endpoints::default(),
        clock: runtime.clock(),
    };
    let event_driven = settings.gates.enabled("EventDrivenReconciliation");
    let drift = event_driven.then(|| {
        let clean_up = CleanUp::kustomize(MANAGER, GROUP, &settings.override_managers);
        DriftWatch::new(clusters.local_cluster(), clean_up, MANAGER, settings.full_check_interval)
    });
    let watch_configs = !settings.gates.enabled("DisableConfigWatchers");
    let reconciler = KustomizationReconciler {
        stores: stores.clone(),
        clusters,
        artifacts,
        keyring,
        settings,
        drift: drift.clone(),
        bases: Arc::new(if flags.offline {
            Bases::none("the controller runs offline")
        } else {
            Bases::new(Limits::default())
        }),
        builds: event_driven.then(Builds::default),
        slow: Slow::default(),
        clock: runtime.clock(),
    };
    let handle = runtime.controller(&kustomizations, reconciler, |_| {});
    if let Some(drift) = drift {
        drift.connect(handle.clone(), runtime.recorder(), kustomizations.clone());
    }
    let mapper = Mapper { kustomizations, handle };
    let by_source = mapper.kustomizations.index(|object: &Kustomization| {
        let source = decide::source_name(object);
        vec![format!("{}/{}/{}", source.kind, source.namespace, source.name)]
    });
    mapper.follow_source(&stores.git, "GitRepository", &by_source, |source| {
        source.status.as_ref()?.artifact.as_ref().map(|artifact| artifact.revision.as_str())
    });
    mapper.follow_source(&stores.oci, "OCIRepository", &by_source, |source| {
        source.status.as_ref()?.artifact.as_ref().map(|artifact| artifact.revision.as_str())
    });
    mapper.follow_source(&stores.bucket, "Bucket", &by_source, |source| {
        source.status.as_ref()?.artifact.as_ref().map(|artifact| artifact.revision.as_str())
    });
    if let Some(external) = &stores.external {
        mapper.follow_source(external, "ExternalArtifact", &by_source, |source| {
            source.status.as_ref()?.artifact.as_ref().map(|artifact| artifact.revision.as_str())
        });
    }
    if watch_configs {
        let by_config = mapper.kustomizations.index(config_references);
        mapper.follow_configs(&runtime.watch_config_metadata::<ConfigMap>(), "ConfigMap", &by_config);
        mapper.follow_configs(&runtime.watch_config_metadata::<Secret>(), "Secret", &by_config);
    }
    if event_driven {
        mapper.follow_dependencies();
    }
    Ok(())
}

/// An environment variable that is not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The ConfigMaps and Secrets a Kustomization reads, as `Kind/namespace/name`.
fn config_references(object: &Kustomization) -> Vec<String> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let mut references = Vec::new();
    let mut add = |kind: &str, name: &str| references.push(format!("{kind}/{namespace}/{name}"));
    for reference in object.spec.post_build.iter().flat_map(|post_build| &post_build.substitute_from) {
        match reference.kind {
            ValuesSourceKind::ConfigMap => add("ConfigMap", &reference.name),
            ValuesSourceKind::Secret => add("Secret", &reference.name),
        }
    }
    if let Some(kube_config) = &object.spec.kube_config {
        if let Some(map) = &kube_config.config_map_ref {
            add("ConfigMap", &map.name);
        }
        if let Some(secret) = &kube_config.secret_ref {
            add("Secret", &secret.name);
        }
    }
    if let Some(secret) =
        object.spec.decryption.as_ref().and_then(|decryption| decryption.secret_ref.as_ref())
    {
        add("Secret", &secret.name);
    }
    references
}

/// Turns changes of other objects into runs of Kustomizations.
#[derive(Clone)]
struct Mapper {
    kustomizations: Store<Kustomization>,
    handle: Handle,
}

impl Mapper {
    /// Kustomizations run when their source has a new revision.
    fn follow_source<K: Watched>(
        &self,
        sources: &Store<K>,
        kind: &'static str,
        by_source: &Index<Kustomization>,
        revision: impl for<'a> Fn(&'a K) -> Option<&'a str> + Send + Sync + 'static,
    ) {
        let (mapper, by_source) = (self.clone(), by_source.clone());
        sources.on_change(move |change| {
            let new = match change {
                Change::Added { object, initial: false } => object,
                Change::Updated { old, new } if revision(&**old) != revision(&**new) => new,
                Change::Added { .. } | Change::Updated { .. } | Change::Deleted(_) => return,
            };
            let Some(revision) = revision(&**new) else { return };
            let trigger = Trigger { kind: kind.to_owned(), key: ObjectKey::of(&**new) };
            let affected: Vec<ObjectKey> = by_source
                .get(&format!("{kind}/{}", trigger.key))
                .into_iter()
                .filter(|object| !is_at_revision(object, revision))
                .map(|object| ObjectKey::of(&*object))
                .collect();
            mapper.enqueue(&affected, &trigger, "revision change");
        });
    }

    /// Kustomizations run when a ConfigMap or Secret they read changes.
    fn follow_configs<K: kube::Resource<DynamicType = ()> + 'static>(
        &self,
        configs: &Store<K>,
        kind: &'static str,
        by_config: &Index<Kustomization>,
    ) {
        let (mapper, by_config) = (self.clone(), by_config.clone());
        configs.on_change(move |change| {
            if matches!(change, Change::Added { initial: true, .. }) {
                return;
            }
            let trigger = Trigger { kind: kind.to_owned(), key: ObjectKey::of(&**change.object()) };
            let affected: Vec<ObjectKey> = by_config
                .get(&format!("{kind}/{}", trigger.key))
                .iter()
                .map(|object| ObjectKey::of(&**object))
                .collect();
            mapper.enqueue(&affected, &trigger, "config dependency change");
        });
    }

    /// Kustomizations that wait for another one run when it turns ready or applies a new revision.
    fn follow_dependencies(&self) {
        let mapper = self.clone();
        let dependants = self.kustomizations.index(|object: &Kustomization| {
            observe::dependency_keys(object).iter().map(ToString::to_string).collect()
        });
        self.kustomizations.on_change(move |change| {
            let Change::Updated { old, new } = change else { return };
            if !condition::is_true(new.conditions(), types::READY) || readiness(old) == readiness(new) {
                return;
            }
            let trigger = Trigger::of(&**new);
            for object in dependants.get(&trigger.key.to_string()) {
                if waits_for_dependency(&object) {
                    mapper.handle.enqueue(&ObjectKey::of(&*object), Priority::Event, &trigger);
                }
            }
        });
    }

    /// Asks for runs of `affected` and what they depend on, dependencies first.
    fn enqueue(&self, affected: &[ObjectKey], trigger: &Trigger, why: &str) {
        if affected.is_empty() {
            return;
        }
        let mut known: HashMap<ObjectKey, Vec<ObjectKey>> = HashMap::new();
        let dependencies = |key: &ObjectKey| match self.kustomizations.get(key) {
            Some(object) => observe::dependency_keys(&object),
            None => Vec::new(),
        };
        for key in affected {
            known.insert(key.clone(), dependencies(key));
        }
        match topological(affected, dependencies) {
            Ok(sorted) => {
                for key in sorted {
                    // A dependency that is not ours is not known here.
                    if self.kustomizations.get(&key).is_some() {
                        self.handle.enqueue(&key, Priority::Event, trigger);
                    }
                }
            }
            Err(cycle) => {
                tracing::error!(error = %cycle, trigger = %trigger, "failed to sort dependencies for {why}");
            }
        }
    }
}

/// Whether a Kustomization already has, or works on, a revision.
fn is_at_revision(object: &Kustomization, revision: &str) -> bool {
    let conditions = object.conditions();
    let works = condition::is_ready(conditions) || condition::is_reconciling(conditions);
    let attempted = object.status.as_ref().and_then(|status| status.last_attempted_revision.as_deref());
    works && attempted == Some(revision)
}

/// What dependants look at.
fn readiness(object: &Kustomization) -> (bool, Option<i64>, Option<&str>) {
    let applied = object.status.as_ref().and_then(|status| status.last_applied_revision.as_deref());
    (condition::is_true(object.conditions(), types::READY), object.observed_generation(), applied)
}

fn waits_for_dependency(object: &Kustomization) -> bool {
    condition::get(object.conditions(), types::READY)
        .is_some_and(|ready| ready.reason == reason::DEPENDENCY_NOT_READY)
}

#[cfg(test)]
mod tests;
