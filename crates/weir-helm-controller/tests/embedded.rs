//! The whole controller on the embedded API server, in paused time: a release from its installation to its end.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;
use weir_base::clock::Clock;
use weir_helm_controller::settings::{Flags, PROGRAM};
use weir_runtime::{Runtime, Settings, flags};
use weir_testcluster::TestCluster;

const DEFINITIONS: &[&str] = &[
    include_str!("../../../crds/helmreleases.helm.toolkit.fluxcd.io.yaml"),
    include_str!("../../../crds/helmcharts.source.toolkit.fluxcd.io.yaml"),
    include_str!("../../../crds/ocirepositories.source.toolkit.fluxcd.io.yaml"),
];
const NAMESPACE: &str = "default";
/// The longest wait, in the time of the test.
const PATIENCE: Duration = Duration::from_mins(10);

/// Follows the paused time.
#[derive(Debug, Clone, Copy)]
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> jiff::Timestamp {
        let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + self.0.elapsed()
    }
}

/// A chart with a ConfigMap that shows a value, and a Deployment whose pods take ten seconds.
fn chart() -> Vec<u8> {
    let files = [
        ("web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        ("web/values.yaml", "level: low\nfails: false\n"),
        (
            "web/templates/settings.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {level: {{ .Values.level }}}\n",
        ),
        (
            "web/templates/deployment.yaml",
            "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations:
        testenv.weir.dev/ready-after: 10s
        {{- if .Values.fails }}
        testenv.weir.dev/fail: ImagePullBackOff
        {{- end }}
    spec: {containers: [{name: main, image: 'registry.example/web:1'}]}
",
        ),
    ];
    let mut builder =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// Serves one file on every path. Gives the address.
async fn serve(file: Vec<u8>) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", file.len());
            let mut request = [0; 4096];
            if socket.read(&mut request).await.is_ok() {
                // A client that is gone needs no answer.
                let _ = socket.write_all(&[head.as_bytes(), &file].concat()).await;
            }
        }
    });
    address
}

struct World {
    cluster: TestCluster,
    client: Client,
}

impl World {
    /// A cluster with a chart, and the controller at work.
    async fn start() -> Self {
        // The first provider wins; another test of this process may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clock: Arc<dyn Clock> = Arc::new(PausedClock(Instant::now()));
        let cluster = TestCluster::builder().clock(Arc::clone(&clock)).controllers(true).build().unwrap();
        let client = Client::new(cluster.service(), NAMESPACE);
        let definitions = resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions = Api::<DynamicObject>::all_with(client.clone(), &definitions);
        for text in DEFINITIONS {
            let definition = weir_manifest::read_documents(text.as_bytes(), "definition").unwrap().remove(0);
            let definition = serde_json::from_value(definition).unwrap();
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        let world = Self { cluster: cluster.clone(), client: client.clone() };
        world.publish_chart().await;

        let flags: Flags = flags::try_parse(&PROGRAM, [PROGRAM.name]).unwrap();
        let settings = Settings::new(&PROGRAM, &flags.common).unwrap().with_jitter(&flags.jitter);
        let mut runtime = Runtime::new(settings, client).with_clock(clock).with_events();
        weir_helm_controller::wiring::set_up(&mut runtime, &flags).unwrap();
        tokio::spawn(async move { runtime.run().await.unwrap() });
        tokio::spawn(async move { cluster.run_due().await });
        // The paused clock moves in small steps, so that answers over sockets are not overtaken by deadlines.
        tokio::spawn(async {
            let mut steps = tokio::time::interval(Duration::from_millis(20));
            loop {
                steps.tick().await;
            }
        });
        world
    }

    /// The chart as source-controller would have it.
    async fn publish_chart(&self) {
        let archive = chart();
        let digest = format!("sha256:{}", hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&archive)));
        let size = archive.len();
        let address = serve(archive).await;
        let charts = self.api("source.toolkit.fluxcd.io", "v1", "HelmChart");
        let source = json!({"kind": "HelmRepository", "name": "charts"});
        let chart: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart", "metadata": {"name": "web"},
            "spec": {"chart": "web", "interval": "1h", "sourceRef": source},
        }))
        .unwrap();
        charts.create(&PostParams::default(), &chart).await.unwrap();
        let status = json!({"status": {
            "observedGeneration": 1,
            "artifact": {
                "digest": digest, "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "web.tgz",
                "revision": "1.0.0", "size": size, "url": format!("http://{address}/web.tgz"),
            },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "ChartPullSucceeded", "message": "pulled",
                "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }});
        charts.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource(group, version, kind))
    }

    fn releases(&self) -> Api<DynamicObject> {
        self.api("helm.toolkit.fluxcd.io", "v2", "HelmRelease")
    }

    /// Waits until the release is as wanted; gives it.
    async fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let seen = |object: Option<&DynamicObject>| object.is_some_and(|object| wanted(&object.data));
        let wait = await_condition(self.releases(), "web", seen);
        let Ok(found) = tokio::time::timeout(PATIENCE, wait).await else {
            let last = self.releases().get("web").await.unwrap();
            panic!("the release is never {what}: {:#}", last.data);
        };
        found.unwrap().unwrap().data
    }

    async fn change(&self, patch: Value) {
        self.releases().patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    async fn level(&self) -> String {
        let settings = self.api("", "v1", "ConfigMap").get("settings").await.unwrap();
        settings.data["data"]["level"].as_str().unwrap().to_owned()
    }
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn ready<'a>(release: &'a Value, field: &str) -> &'a str {
    let conditions = release["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    ready.and_then(|ready| ready[field].as_str()).unwrap_or_default()
}

/// Ready with a release of that version.
fn is_ready(release: &Value, version: i64) -> bool {
    ready(release, "status") == "True" && release["status"]["history"][0]["version"] == version
}

#[tokio::test(start_paused = true)]
async fn a_release_is_installed_left_alone_upgraded_rolled_back_and_uninstalled() {
    let world = Box::pin(World::start()).await;
    let release: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "web"},
        "spec": {
            "interval": "10m", "timeout": "1m", "chartRef": {"kind": "HelmChart", "name": "web"},
            "upgrade": {"remediation": {"retries": 0, "strategy": "rollback", "remediateLastFailure": true}},
        },
    }))
    .unwrap();
    let begun = Instant::now();
    world.releases().create(&PostParams::default(), &release).await.unwrap();
    let installed = world.until("installed", |release| is_ready(release, 1)).await;
    assert_eq!(ready(&installed, "reason"), "InstallSucceeded");
    assert!(begun.elapsed() >= Duration::from_secs(10), "the pods take ten seconds");
    assert_eq!(world.level().await, "low");

    // Nothing to do is nothing written, however many intervals pass.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.cluster.revision();
    tokio::time::sleep(Duration::from_mins(35)).await;
    assert_eq!(world.cluster.revision(), before, "an unchanged release is written");

    world.change(json!({"spec": {"values": {"level": "high"}}})).await;
    let upgraded = world.until("upgraded", |release| is_ready(release, 2)).await;
    assert_eq!(ready(&upgraded, "reason"), "UpgradeSucceeded");
    assert_eq!(world.level().await, "high");

    world.change(json!({"spec": {"values": {"level": "none", "fails": true}}})).await;
    let failed = world
        .until("rolled back", |release| {
            ready(release, "status") == "False" && release["status"]["history"][0]["version"] == 4
        })
        .await;
    assert_eq!(failed["status"]["history"][0]["status"], "deployed", "{failed:#}");
    assert_eq!(world.level().await, "high");

    world.releases().delete("web", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(world.releases(), "web", |object: Option<&DynamicObject>| object.is_none());
    tokio::time::timeout(PATIENCE, gone).await.unwrap().unwrap();
    let owned = ListParams::default().labels("owner=helm");
    let left = world.api("", "v1", "Secret").list(&owned).await.unwrap();
    assert!(left.items.is_empty(), "{:?}", left.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
    assert!(world.api("", "v1", "ConfigMap").get_opt("settings").await.unwrap().is_none());
}
