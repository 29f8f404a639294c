//! A controller on a cluster in memory, for tests of whole runs.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_api::kustomize::Kustomization;
use weir_api::names::condition as types;
use weir_api::source::GitRepository;
use weir_api::{FluxObject, condition};
use weir_apply::cluster::Cluster;
use weir_apply::memory::{MemoryCluster, Verb};
use weir_apply::object::ObjectRef;
use weir_artifact::fetch::FetchError;
use weir_base::clock::FixedClock;
use weir_base::redact::Secret;
use weir_base::tree::MemoryTree;
use weir_kms::{Endpoints, Requests};
use weir_runtime::{Ended, Failed, FeatureGates, Notice, Pass, Reconciler, Store, Trigger};
use weir_sops::AgeIdentities;
use weir_source::bases::{Bases, Limits};

use crate::cache::Builds;
use crate::clusters::Clusters;
use crate::decide;
use crate::error::Cause;
use crate::finalize::finalize;
use crate::keyring::Keyring;
use crate::observe::Stores;
use crate::progress::{Progress, Slow};
use crate::reconcile::{Artifacts, KustomizationReconciler};
use crate::settings::PROGRAM;
use crate::settings::Settings;
use crate::status::Done;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

struct MemoryClusters(Arc<MemoryCluster>);

#[async_trait]
impl Clusters for MemoryClusters {
    fn local(&self) -> &dyn Cluster {
        &*self.0
    }

    async fn target(&self, _: &Kustomization) -> Result<Arc<dyn Cluster>, Cause> {
        Ok(Arc::clone(&self.0) as Arc<dyn Cluster>)
    }

    async fn service_account_token(&self, _: Option<(&str, &str)>, _: &[String]) -> Result<Secret, String> {
        Err("no tokens here".to_owned())
    }
}

pub(crate) struct MemoryArtifacts(pub(crate) Mutex<HashMap<String, Arc<MemoryTree>>>);

#[async_trait]
impl Artifacts for MemoryArtifacts {
    async fn fetch(&self, url: &str, _: &str) -> Result<Arc<MemoryTree>, FetchError> {
        self.0.lock().get(url).cloned().ok_or_else(|| FetchError::NotFound { url: url.to_owned() })
    }
}

/// A run whose status writes are kept.
struct Recorded {
    working: Mutex<Kustomization>,
    published: Mutex<Vec<Kustomization>>,
    notices: Mutex<Vec<Notice>>,
    trigger: Option<Trigger>,
    shown: AtomicBool,
}

impl Recorded {
    /// Writes every now and then, as the driver does.
    async fn shown_while<T>(&self, run: impl Future<Output = T>) -> T {
        let mut run = std::pin::pin!(run);
        loop {
            tokio::select! {
                biased;
                result = &mut run => return result,
                () = tokio::time::sleep(Duration::from_secs(2)) => {}
            }
            if self.shown.load(Ordering::Relaxed) {
                self.publish().await.unwrap();
            }
        }
    }
}

impl Progress for Recorded {
    fn update(&self, change: &mut (dyn FnMut(&mut Kustomization) + Send)) {
        change(&mut self.working.lock());
    }

    fn show_progress(&self) {
        self.shown.store(true, Ordering::Relaxed);
    }

    async fn publish(&self) -> Result<(), Cause> {
        let working = self.working.lock().clone();
        let mut published = self.published.lock();
        if published.last() != Some(&working) {
            published.push(working);
        }
        Ok(())
    }

    fn notice(&self, notice: Notice) {
        self.notices.lock().push(notice);
    }

    fn now(&self) -> Timestamp {
        NOW
    }

    async fn superseded(&self) -> Trigger {
        match &self.trigger {
            Some(trigger) => trigger.clone(),
            None => std::future::pending().await,
        }
    }

    async fn without_worker<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        future.await
    }
}

/// A controller on a cluster in memory, and the one Kustomization it works on.
pub(crate) struct World {
    pub(crate) cluster: Arc<MemoryCluster>,
    pub(crate) artifacts: Arc<MemoryArtifacts>,
    pub(crate) reconciler: KustomizationReconciler,
    pub(crate) object: Kustomization,
    pub(crate) notices: Vec<String>,
    /// Status writes of the last run, the final one included.
    pub(crate) writes: Vec<Kustomization>,
}

impl World {
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    pub(crate) fn new(spec: Value, gates: &[(&'static str, bool)]) -> Self {
        let cluster = Arc::new(MemoryCluster::new());
        let artifacts = Arc::new(MemoryArtifacts(Mutex::default()));
        let arguments = ["kustomize-controller"];
        let flags = weir_runtime::flags::try_parse(&crate::settings::PROGRAM, arguments).unwrap();
        let stores = Stores {
            kustomizations: Store::default(),
            git: Store::default(),
            oci: Store::default(),
            bucket: Store::default(),
            external: None,
        };
        let mut object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "apps", "namespace": "flux-system", "generation": 1},
            "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        });
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        Self {
            reconciler: KustomizationReconciler {
                stores,
                clusters: Arc::new(MemoryClusters(Arc::clone(&cluster))),
                artifacts: Arc::clone(&artifacts) as Arc<dyn Artifacts>,
                keyring: keyring(),
                settings: Settings::new(&flags, FeatureGates::with(PROGRAM.feature_gates, gates)).unwrap(),
                drift: None,
                bases: Arc::new(Bases::new(Limits::default())),
                builds: Some(Builds::default()),
                slow: Slow::default(),
                clock: Arc::new(FixedClock(NOW)),
            },
            cluster,
            artifacts,
            object: serde_json::from_value(object).unwrap(),
            notices: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Puts a revision of the source in place.
    pub(crate) fn publish(&self, revision: &str, files: &[(&str, &str)]) {
        let url = format!("http://localhost/{revision}");
        let tree: MemoryTree = files.iter().map(|(path, content)| (*path, (*content).to_owned())).collect();
        self.artifacts.0.lock().insert(url.clone(), Arc::new(tree));
        let source: GitRepository = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "fleet", "namespace": "flux-system", "resourceVersion": revision},
            "spec": {"interval": "1m", "url": "http://localhost/fleet"},
            "status": {"artifact": {"digest": format!("sha256:{revision}"), "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "p",
                "revision": revision, "url": url}},
        }))
        .unwrap();
        self.reconciler.stores.git.apply(source);
    }

    /// One run, with its outcome in the status as the driver would put it there.
    pub(crate) async fn run(&mut self) -> Result<Done, String> {
        self.run_with(None).await
    }

    pub(crate) async fn run_with(&mut self, trigger: Option<Trigger>) -> Result<Done, String> {
        let progress = Recorded {
            working: Mutex::new(self.object.clone()),
            published: Mutex::new(Vec::new()),
            notices: Mutex::new(Vec::new()),
            trigger,
            shown: AtomicBool::new(false),
        };
        let result =
            progress.shown_while(self.reconciler.run(&progress, &self.object)).await.map_err(Failed::Error);
        let ended = Ended { now: NOW, elapsed: Duration::from_secs(1) };
        let conclusion =
            self.reconciler.conclude(&mut progress.working.lock(), Pass::Reconciled(result.as_ref()), ended);
        let before = self.object.clone();
        self.object = progress.working.lock().clone();
        self.writes = progress.published.into_inner();
        if self.writes.last().unwrap_or(&before) != &self.object {
            self.writes.push(self.object.clone());
        }
        let notices = progress.notices.into_inner().into_iter().chain(conclusion.notices);
        self.notices =
            notices.filter(|notice| notice.event && notice.kubernetes).map(|notice| notice.message).collect();
        result.map_err(|error| error.to_string())
    }

    /// Deletes the Kustomization; the events, or the error.
    pub(crate) async fn finalize(&mut self) -> Result<Vec<String>, String> {
        let progress = Recorded {
            working: Mutex::new(self.object.clone()),
            published: Mutex::new(Vec::new()),
            notices: Mutex::new(Vec::new()),
            trigger: None,
            shown: AtomicBool::new(false),
        };
        finalize(&self.reconciler, &progress, &self.object).await.map_err(|cause| cause.to_string())?;
        Ok(progress.notices.into_inner().into_iter().map(|notice| notice.message).collect())
    }

    pub(crate) fn inventory(&self) -> Vec<String> {
        decide::inventory(&self.object).objects.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn ready(&self) -> String {
        let ready = condition::get(self.object.conditions(), types::READY).unwrap();
        format!("{:?} {}: {}", ready.status, ready.reason, ready.message)
    }

    pub(crate) fn object_writes(&self) -> Vec<String> {
        let requests = self.cluster.take_requests().into_iter();
        requests
            .filter(|(verb, _)| matches!(verb, Verb::Apply | Verb::Patch | Verb::Delete))
            .map(|(verb, subject)| format!("{verb:?} {subject}"))
            .collect()
    }
}

/// Nothing to decrypt with.
pub(crate) fn keyring() -> Keyring {
    Keyring {
        namespace: None,
        age_secret: String::new(),
        vault_config_map: String::new(),
        default_service_account: String::new(),
        process_age: AgeIdentities::default(),
        process_vault_token: None,
        requests: Requests::new().unwrap(),
        endpoints: Endpoints::default(),
        clock: Arc::new(FixedClock(NOW)),
    }
}

pub(crate) fn config(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: n\ndata:\n  k: '{value}'\n"
    )
}

pub(crate) fn reference(name: &str) -> ObjectRef {
    ObjectRef::core("ConfigMap", "n", name)
}
