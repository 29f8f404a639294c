//! Whole runs on a cluster in memory.

mod histories;
mod scenarios;
mod shaky;
mod wishes;

use std::future::Future;

use serde_json::{Value as Json, json};
use weir_api::source::OCIRepository;
use weir_apply::cluster::ClusterError;
use weir_apply::memory::{MemoryCluster, Verb};
use weir_apply::object::ObjectRef;
use weir_base::clock::FixedClock;
use weir_runtime::{Failed, FeatureGates, Store};

use super::*;
use crate::clusters::ClientError;
use crate::settings::PROGRAM;

struct MemoryClusters(Arc<dyn WriteCluster>);

#[async_trait]
impl Clusters for MemoryClusters {
    fn local(&self) -> Arc<dyn WriteCluster> {
        Arc::clone(&self.0)
    }

    async fn target(&self, _: &HelmRelease) -> Result<Arc<dyn WriteCluster>, ClientError> {
        Ok(self.local())
    }
}

#[derive(Default)]
struct MemoryCharts(Mutex<HashMap<String, Bytes>>);

#[async_trait]
impl Charts for MemoryCharts {
    async fn download(&self, url: &str, _: &str) -> Result<Bytes, FetchError> {
        self.0.lock().get(url).cloned().ok_or_else(|| FetchError::NotFound { url: url.to_owned() })
    }
}

struct Recorded {
    working: Mutex<HelmRelease>,
    published: Mutex<Vec<HelmRelease>>,
    notices: Mutex<Vec<Notice>>,
    /// What status writes go through, if they may be lost.
    shaky: Option<Arc<shaky::Shaky>>,
}

impl Progress for Recorded {
    fn update(&self, change: &mut (dyn FnMut(&mut HelmRelease) + Send)) {
        change(&mut self.working.lock());
    }

    fn snapshot(&self) -> HelmRelease {
        self.working.lock().clone()
    }

    async fn publish(&self) -> Result<(), Error> {
        let write = async {
            self.published.lock().push(self.snapshot());
            Ok(())
        };
        match &self.shaky {
            Some(shaky) => shaky.pass(write).await.map_err(|error| Error::Action(error.to_string())),
            None => write.await.map_err(|error: ClusterError| Error::Action(error.to_string())),
        }
    }

    fn notice(&self, notice: Notice) {
        self.notices.lock().push(notice);
    }

    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    async fn superseded(&self) -> Trigger {
        std::future::pending().await
    }

    async fn without_worker<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        future.await
    }
}

/// A controller on a cluster in memory, and the one HelmRelease it works on.
struct World {
    cluster: Arc<MemoryCluster>,
    charts: Arc<MemoryCharts>,
    reconciler: HelmReleaseReconciler,
    object: HelmRelease,
    events: Vec<String>,
    publishes: usize,
}

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  value: {{ .Values.value | quote }}\n  revision: {{ .Release.Revision | quote }}\n";

fn archive(version: &str, files: &[(&str, &str)]) -> Bytes {
    let mut builder =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let chart = format!("apiVersion: v2\nname: podinfo\nversion: {version}\n");
    let files = [("Chart.yaml", chart.as_str()), ("values.yaml", "value: one\n")]
        .into_iter()
        .chain(files.iter().copied());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, format!("podinfo/{name}"), content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap().into()
}

impl World {
    fn new(spec: Json) -> Self {
        let cluster = Arc::new(MemoryCluster::new());
        Self::on(Arc::clone(&cluster), cluster, spec)
    }

    /// A world whose controller sees `cluster` through `seen`.
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn on(cluster: Arc<MemoryCluster>, seen: Arc<dyn WriteCluster>, spec: Json) -> Self {
        let charts = Arc::new(MemoryCharts::default());
        let arguments = ["helm-controller"];
        let flags = weir_runtime::flags::try_parse(&crate::settings::PROGRAM, arguments).unwrap();
        let stores = Stores {
            releases: Store::default(),
            charts: Store::default(),
            oci: Store::default(),
            external: None,
        };
        let reconciler = HelmReleaseReconciler {
            stores,
            clusters: Arc::new(MemoryClusters(seen)),
            charts: Arc::clone(&charts) as Arc<dyn Charts>,
            loaded: LoadedCharts::default(),
            settings: Settings::new(&flags, FeatureGates::with(PROGRAM.feature_gates, &[])).unwrap(),
            requests: Requests::new().unwrap(),
            clock: Arc::new(FixedClock(Timestamp::UNIX_EPOCH)),
        };
        let mut full = json!({"interval": "1m", "chartRef": {"kind": "OCIRepository", "name": "podinfo"}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            full[key] = value.clone();
        }
        let object = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app", "namespace": "apps", "generation": 1, "uid": "u"}, "spec": full,
        });
        let world = Self {
            cluster,
            charts,
            reconciler,
            object: serde_json::from_value(object).unwrap(),
            events: Vec::new(),
            publishes: 0,
        };
        world.publish("1.0.0", 'a', &[("templates/config.yaml", TEMPLATE)]);
        world
    }

    /// Makes a chart the artifact of the source.
    fn publish(&self, version: &str, digit: char, files: &[(&str, &str)]) {
        let digest = format!("sha256:{}", digit.to_string().repeat(64));
        let url = format!("http://source/{digit}");
        self.charts.0.lock().insert(url.clone(), archive(version, files));
        let source: OCIRepository = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
            "metadata": {"name": "podinfo", "namespace": "apps", "generation": 1},
            "spec": {"url": "oci://registry/podinfo", "interval": "1m"},
            "status": {
                "observedGeneration": 1,
                "artifact": {"url": url, "digest": digest, "revision": format!("{version}@{digest}"), "path": "x", "lastUpdateTime": "2026-01-01T00:00:00Z"}
            }
        }))
        .unwrap();
        self.reconciler.stores.oci.apply(source);
    }

    fn change(&mut self, change: impl FnOnce(&mut HelmRelease)) {
        change(&mut self.object);
        self.object.metadata.generation = Some(self.object.generation() + 1);
    }

    fn recorded(&self) -> Recorded {
        Recorded {
            working: Mutex::new(self.object.clone()),
            published: Mutex::default(),
            notices: Mutex::default(),
            shaky: None,
        }
    }

    async fn run(&mut self) -> Result<(), String> {
        let progress = self.recorded();
        let result = self.reconciler.run(&progress, &self.object).await;
        self.finish(&progress, result).map_err(|error| error.to_string())
    }

    /// What the driver does when a run has ended.
    fn finish(&mut self, progress: &Recorded, result: Result<Done, Error>) -> Result<(), Error> {
        let result = result.map_err(Failed::Error);
        self.publishes = progress.published.lock().len();
        self.events = progress.notices.lock().iter().map(|notice| notice.reason.to_string()).collect();
        self.object = progress.snapshot();
        let ended = Ended { now: Timestamp::UNIX_EPOCH, elapsed: std::time::Duration::ZERO };
        let conclusion = self.reconciler.conclude(&mut self.object, Pass::Reconciled(result.as_ref()), ended);
        self.events.extend(
            conclusion.notices.iter().filter(|notice| notice.event).map(|notice| notice.reason.to_string()),
        );
        if let Some(token) = self.object.requested_at().map(ToOwned::to_owned) {
            self.object.set_last_handled_reconcile_at(token);
        }
        match result {
            Ok(Done) => Ok(()),
            Err(Failed::Error(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }

    fn ready(&self) -> String {
        condition::get(self.object.conditions(), types::READY)
            .map(|ready| format!("{}/{}", ready.status, ready.reason))
            .unwrap_or_default()
    }

    fn history(&self) -> Vec<String> {
        let history = self.object.status.as_ref().map(|status| status.history.clone()).unwrap_or_default();
        history.iter().map(|snapshot| format!("{}:{}", snapshot.version, snapshot.status)).collect()
    }

    fn config_map(&self) -> Option<Json> {
        self.cluster.peek(&ObjectRef::core("ConfigMap", "apps", "app"))
    }

    fn writes(&self) -> Vec<String> {
        let requests = self.cluster.take_requests().into_iter();
        requests
            .filter(|(verb, _)| !matches!(verb, Verb::Get | Verb::List | Verb::Watch | Verb::DryRun))
            .map(|(verb, subject)| format!("{verb:?} {subject}"))
            .collect()
    }
}

#[tokio::test]
async fn a_chart_is_installed_and_then_left_alone() {
    let mut world = World::new(json!({"values": {"value": "two"}}));
    world.run().await.unwrap();
    assert_eq!(world.ready(), "True/InstallSucceeded");
    assert_eq!(world.history(), ["1:deployed"]);
    assert_eq!(world.events, ["InstallSucceeded"]);
    let config = world.config_map().unwrap();
    assert_eq!(config["data"]["value"], "two");
    assert_eq!(config["metadata"]["labels"]["helm.toolkit.fluxcd.io/name"], "app");
    assert_eq!(config["metadata"]["annotations"]["meta.helm.sh/release-name"], "app");
    let status = world.object.status.clone().unwrap();
    assert_eq!(status.last_attempted_revision.as_deref(), Some("1.0.0+aaaaaaaaaaaa"));
    assert_eq!(status.inventory.unwrap().entries[0].id, "apps_app__ConfigMap");
    assert_eq!(status.storage_namespace.as_deref(), Some("apps"));
    world.writes();
    let before = world.object.clone();
    world.run().await.unwrap();
    assert_eq!(world.writes(), Vec::<String>::new());
    assert_eq!((world.publishes, world.object == before), (0, true));
    assert_eq!(world.events, Vec::<String>::new());
}

#[tokio::test]
async fn other_values_and_other_charts_are_upgrades() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    world.change(|object| object.spec.values = Some(json!({"value": "two"})));
    world.run().await.unwrap();
    assert_eq!(
        (world.ready().as_str(), world.history()),
        ("True/UpgradeSucceeded", vec!["2:deployed".to_owned(), "1:superseded".to_owned()])
    );
    assert_eq!(world.config_map().unwrap()["data"]["revision"], "2");
    world.publish("1.1.0", 'b', &[("templates/config.yaml", TEMPLATE)]);
    world.run().await.unwrap();
    assert_eq!(world.history()[0], "3:deployed");
    // The same version again with another digest is another chart.
    world.publish("1.1.0", 'c', &[("templates/config.yaml", TEMPLATE)]);
    world.run().await.unwrap();
    assert_eq!(world.history()[0], "4:deployed");
    // What makes no difference is no upgrade.
    world.change(|object| object.spec.timeout = Some("7m".parse().unwrap()));
    world.run().await.unwrap();
    assert_eq!(world.history()[0], "4:deployed");
}

#[tokio::test]
async fn a_failed_upgrade_is_rolled_back_as_often_as_asked() {
    let mut world = World::new(json!({"upgrade": {"remediation": {"retries": 1}}}));
    world.run().await.unwrap();
    world.change(|object| object.spec.values = Some(json!({"value": "two"})));
    let refused = weir_apply::cluster::ClusterError::Api {
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "no".to_owned(),
    };
    world.cluster.fail(Verb::Apply, "ConfigMap/apps/app", refused.clone(), 1);
    assert_eq!(world.run().await.unwrap_err(), "requeue");
    assert_eq!(world.events, ["UpgradeFailed", "RollbackSucceeded"]);
    assert_eq!(world.ready(), "False/RollbackSucceeded");
    assert_eq!(world.history()[0], "3:deployed");
    assert_eq!(world.config_map().unwrap()["data"]["value"], "one");
    world.cluster.fail(Verb::Apply, "ConfigMap/apps/app", refused, 1);
    assert_eq!(world.run().await.unwrap_err(), "Failed to upgrade after 2 attempt(s)");
    assert!(condition::is_stalled(world.object.conditions()));
    // Nothing more is tried until something changes.
    world.writes();
    assert_eq!(world.run().await.unwrap_err(), "Failed to upgrade after 2 attempt(s)");
    assert_eq!(world.writes(), Vec::<String>::new());
    world.change(|object| object.spec.values = Some(json!({"value": "three"})));
    world.run().await.unwrap();
    assert_eq!(world.ready(), "True/UpgradeSucceeded");
    assert!(!condition::is_stalled(world.object.conditions()));
}

#[tokio::test]
async fn a_chart_that_does_not_render_leaves_no_release() {
    let mut world = World::new(json!({}));
    world.publish("1.0.0", 'd', &[("templates/x.yaml", "{{ fail \"not like this\" }}")]);
    let error = world.run().await.unwrap_err();
    assert!(error.contains("not like this"), "{error}");
    assert_eq!((world.ready().as_str(), world.history()), ("False/InstallFailed", Vec::new()));
    assert_eq!(world.object.status.as_ref().unwrap().install_failures, 0);
    world.publish("1.0.0", 'e', &[("templates/config.yaml", TEMPLATE)]);
    world.run().await.unwrap();
    assert_eq!(world.ready(), "True/InstallSucceeded");
}

#[tokio::test]
async fn a_release_that_somebody_touched_is_upgraded() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    world.object.status.as_mut().unwrap().history[0].digest = format!("sha256:{}", "0".repeat(64));
    world.run().await.unwrap();
    // The history starts over.
    assert_eq!(world.history(), ["2:deployed"]);
}

#[tokio::test]
async fn an_action_that_was_cut_off_is_unlocked() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    let work = world.reconciler.work(
        &world.object,
        world.reconciler.clusters.local(),
        Arc::default(),
        "apps",
        "app".to_owned(),
    );
    let mut pending = work.storage().last().await.unwrap().unwrap();
    pending.version = 2;
    pending.info.status = weir_helm::release::Status::PendingUpgrade;
    work.storage().create(&pending, 0).await.unwrap();
    world.run().await.unwrap();
    assert_eq!(world.events, ["PendingRelease", "UpgradeSucceeded"]);
    assert_eq!(world.history()[0], "3:deployed");
}

#[tokio::test]
async fn drift_is_told_and_corrected_if_asked() {
    let mut world = World::new(json!({"driftDetection": {"mode": "warn"}}));
    world.run().await.unwrap();
    let edit = |world: &World| {
        let mut config = world.config_map().unwrap();
        config["data"]["value"] = "edited".into();
        world.cluster.put(config);
    };
    edit(&world);
    world.run().await.unwrap();
    assert_eq!(world.events, ["DriftDetected"]);
    assert_eq!(
        (world.ready().as_str(), &world.config_map().unwrap()["data"]["value"]),
        ("True/InstallSucceeded", &json!("edited"))
    );
    assert!(condition::is_true(world.object.conditions(), status::DRIFTED));
    world.change(|object| {
        object.spec.drift_detection.as_mut().unwrap().mode = Some(DriftDetectionMode::Enabled);
    });
    world.run().await.unwrap();
    assert_eq!(world.events, ["DriftDetected", "DriftCorrected"]);
    assert_eq!(world.config_map().unwrap()["data"]["value"], "one");
    assert!(condition::is_false(world.object.conditions(), status::DRIFTED));
    let config = ObjectRef::core("ConfigMap", "apps", "app");
    world.cluster.take(&config);
    world.run().await.unwrap();
    assert!(world.config_map().is_some());
    assert_eq!(world.history(), ["1:deployed"]);
}

#[tokio::test]
async fn force_upgrades_once() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    let annotations = world.object.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::REQUESTED_AT.to_owned(), "t".to_owned());
    annotations.insert(annotation::FORCE_AT.to_owned(), "t".to_owned());
    world.run().await.unwrap();
    assert_eq!(world.history()[0], "2:deployed");
    world.run().await.unwrap();
    assert_eq!(world.history()[0], "2:deployed");
}

#[tokio::test]
async fn a_deleted_release_is_uninstalled_unless_suspended() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    world.object.spec.suspend = true;
    let progress = world.recorded();
    finalize::finalize(&world.reconciler, &progress, &world.object).await.unwrap();
    assert!(world.config_map().is_some());
    world.object.spec.suspend = false;
    finalize::finalize(&world.reconciler, &progress, &world.object).await.unwrap();
    assert!(world.config_map().is_none());
    let secret = ObjectRef::core("Secret", "apps", "sh.helm.release.v1.app.v1");
    assert!(world.cluster.peek(&secret).is_none());
    assert_eq!(progress.snapshot().status.unwrap().history, []);
}

#[tokio::test]
async fn another_namespace_is_another_release() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    world.change(|object| object.spec.target_namespace = Some("prod".to_owned()));
    assert_eq!(world.run().await.unwrap_err(), "requeue");
    assert!(world.config_map().is_none());
    world.run().await.unwrap();
    let moved = ObjectRef {
        namespace: "prod".to_owned(),
        name: "prod-app".to_owned(),
        ..ObjectRef::core("ConfigMap", "", "")
    };
    assert!(world.cluster.peek(&moved).is_some());
    assert_eq!(world.history(), ["1:deployed"]);
}

#[tokio::test]
async fn what_is_missing_is_waited_for() {
    let mut world = World::new(json!({"dependsOn": [{"name": "db"}]}));
    assert_eq!(
        world.run().await.unwrap_err(),
        "unable to get 'apps/db' dependency: helmreleases.helm.toolkit.fluxcd.io \"db\" not found"
    );
    assert_eq!(world.ready(), "False/DependencyNotReady");
    world.object.spec.depends_on.clear();
    world.object.spec.values_from =
        serde_json::from_value(json!([{"kind": "Secret", "name": "nope"}])).unwrap();
    assert_eq!(
        world.run().await.unwrap_err(),
        "could not resolve Secret chart values reference 'apps/nope' with key 'values.yaml': resource not found"
    );
    assert_eq!(world.ready(), "False/ValuesError");
    world.object.spec.values_from.clear();
    world.object.spec.chart_ref.as_mut().unwrap().name = "elsewhere".to_owned();
    let error = world.run().await.unwrap_err();
    assert!(error.starts_with("could not get Source object: "), "{error}");
    assert_eq!(world.ready(), "False/ArtifactFailed");
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_release_waits_for_a_kustomization_that_an_annotation_names() {
    let mut world = World::new(json!({}));
    let annotate = |world: &mut World, text: &str| {
        let annotations = world.object.metadata.annotations.get_or_insert_default();
        annotations.insert(weir_apply::dependencies::DEPENDS_ON.to_owned(), text.to_owned());
    };
    annotate(&mut world, "Kustomization/infra/crds");
    let error = world.run().await.unwrap_err();
    assert!(error.starts_with("unable to get 'Kustomization/infra/crds' dependency: "), "{error}");
    let mut kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "crds", "namespace": "infra", "generation": 2},
        "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    world.cluster.put(kustomization.clone());
    assert_eq!(world.run().await.unwrap_err(), "dependency 'Kustomization/infra/crds' is not ready");
    assert_eq!(world.ready(), "False/DependencyNotReady");
    kustomization["status"]["observedGeneration"] = 2.into();
    world.cluster.put(kustomization);
    world.run().await.unwrap();
    assert_eq!(world.ready(), "True/InstallSucceeded");
    annotate(&mut world, "Deployment/web");
    let error = world.run().await.unwrap_err();
    assert!(error.contains("'Deployment/web' is not 'Kustomization/[namespace/]name'"), "{error}");
}
