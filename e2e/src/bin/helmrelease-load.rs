//! Many HelmReleases from an OCI registry, measured against Helm. Called by `hack/bench/helmreleases`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use e2e::{ApiProxy, Cluster, Controller, Counts, HELM, Launch, SOURCE, condition, free_address};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

const LOOK_INTERVAL: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_mins(30);
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const CONFIG_TYPE: &str = "application/vnd.cncf.helm.config.v1+json";
const NAMESPACE: &str = "load";
const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.0.0\nappVersion: 1.0.0\n";
const TEMPLATES: [(&str, &str); 4] = [
    (
        "account.yaml",
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: {{ .Release.Name }}, labels: {app: {{ .Release.Name }}}}\n",
    ),
    (
        "service.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: {{ .Release.Name }}}\nspec:\n  selector: {app: {{ .Release.Name }}}\n  ports: [{name: http, port: {{ .Values.port }}, protocol: TCP, targetPort: http}]\n",
    ),
    (
        "deployment.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}, labels: {app: {{ .Release.Name }}}}\nspec:\n  replicas: {{ .Values.replicas }}\n  selector: {matchLabels: {app: {{ .Release.Name }}}}\n  template:\n    metadata: {labels: {app: {{ .Release.Name }}}}\n    spec:\n      serviceAccountName: {{ .Release.Name }}\n      containers: [{name: web, image: \"registry.example.com/web:{{ .Chart.AppVersion }}\", ports: [{name: http, containerPort: 8080}]}]\n",
    ),
    (
        "ingress.yaml",
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: {{ .Release.Name }}}\nspec:\n  rules:\n    - host: {{ .Release.Name }}.example.com\n      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: {{ .Release.Name }}, port: {name: http}}}}]}\n",
    ),
];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().context("how many HelmReleases?")?.parse()?;
    let concurrent: usize = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(count, concurrent))
}

async fn run(count: usize, concurrent: usize) -> Result<()> {
    let cluster = Cluster::connect().await?.context("KUBECONFIG is not set; use hack/bench/helmreleases")?;
    cluster.install_crds().await?;
    let directory = tempfile::tempdir()?;
    let registry = start_registry().await?;
    line(&format!(
        "{count} releases of {} objects, {concurrent} workers, {} processors",
        TEMPLATES.len(),
        std::thread::available_parallelism()?
    ))?;
    create_namespace(&cluster, "bare").await?;
    create_namespace(&cluster, NAMESPACE).await?;
    helm(&cluster, directory.path(), &registry, count, concurrent).await?;

    let (source_api, helm_api) =
        (ApiProxy::start(cluster.client()).await?, ApiProxy::start(cluster.client()).await?);
    let mut controllers = Vec::new();
    for (name, api) in [("source", &source_api), ("helm", &helm_api)] {
        controllers.push(start_controller(directory.path(), name, api, concurrent).await?);
    }
    let idle = memory(&controllers, "VmRSS:");
    let start = Instant::now();
    stream::iter((0..count).flat_map(|number| objects(&registry, number)))
        .map(|object| {
            let cluster = &cluster;
            async move { cluster.apply(&object).await }
        })
        .buffer_unordered(concurrent)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let created = start.elapsed();
    loop {
        let all = cluster.list(HELM, "HelmRelease", Some(NAMESPACE), "").await?;
        let is_ready = |object: &&Value| {
            condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
                && object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation")
        };
        let ready = all.iter().filter(is_ready).count();
        if ready == count {
            break;
        }
        if start.elapsed() > DEADLINE {
            bail!("{ready} of {count} are ready after {DEADLINE:?}");
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    line(&format!("  Weir: custom resources created  {:.1}s", created.as_secs_f64()))?;
    line(&format!("  Weir: all ready after           {:.1}s", start.elapsed().as_secs_f64()))?;
    line(&format!(
        "  Weir: memory idle and at most   {idle} / {} (source + helm)",
        memory(&controllers, "VmHWM:")
    ))?;
    line(&format!("  source-controller               {}", verbs(&source_api.counts())))?;
    line(&format!("  helm-controller                 {}", verbs(&helm_api.counts())))?;
    for controller in &mut controllers {
        controller.stop().await?;
    }
    Ok(())
}

/// The same installations by Helm, with as many at a time.
async fn helm(
    cluster: &Cluster,
    directory: &Path,
    registry: &str,
    count: usize,
    concurrent: usize,
) -> Result<()> {
    let Some(python) = std::env::var_os("PYTHON") else {
        return line("  Helm: SKIPPED, there is no Python with the Helm SDK");
    };
    let proxy = ApiProxy::start(cluster.client()).await?;
    let kubeconfig = directory.join("helm-sdk.kubeconfig");
    std::fs::write(&kubeconfig, proxy.kubeconfig())?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/bench/helm_installs.py");
    let output = tokio::process::Command::new(python)
        .arg(script)
        .arg(&kubeconfig)
        .arg(format!("oci://{registry}/web"))
        .args([count.to_string(), concurrent.to_string()])
        .output()
        .await?;
    if !output.status.success() {
        bail!("helm_installs.py: {}", String::from_utf8_lossy(&output.stderr));
    }
    let told: Value = serde_json::from_slice(&output.stdout)?;
    line(&format!("  Helm: all installed after       {:.1}s", told["seconds"].as_f64().unwrap_or_default()))?;
    line(&format!("  Helm: memory at most            {} MiB", told["mebibytes"]))?;
    line(&format!("  Helm                            {}", verbs(&proxy.counts())))
}

async fn create_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await?;
    Ok(())
}

fn objects(registry: &str, number: usize) -> [Value; 2] {
    let name = format!("app-{number:04}");
    let metadata = json!({ "name": name, "namespace": NAMESPACE });
    [
        json!({
            "apiVersion": SOURCE, "kind": "OCIRepository", "metadata": metadata,
            "spec": {
                "interval": "1h", "url": format!("oci://{registry}/web"), "insecure": true, "ref": { "tag": "1.0.0" },
                "layerSelector": { "mediaType": LAYER_TYPE, "operation": "copy" },
            },
        }),
        json!({
            "apiVersion": HELM, "kind": "HelmRelease", "metadata": metadata,
            "spec": { "interval": "1h", "chartRef": { "kind": "OCIRepository", "name": name } },
        }),
    ]
}

async fn start_controller(
    directory: &Path,
    name: &str,
    api: &ApiProxy,
    concurrent: usize,
) -> Result<Controller> {
    let kubeconfig = directory.join(format!("{name}.kubeconfig"));
    std::fs::write(&kubeconfig, api.kubeconfig())?;
    let (health, metrics) = (free_address().await?, free_address().await?);
    let mut arguments = vec![
        format!("--health-addr={health}"),
        format!("--metrics-addr={metrics}"),
        format!("--concurrent={concurrent}"),
        "--requeue-dependency=5s".to_owned(),
    ];
    if name == "source" {
        let data = directory.join("data");
        std::fs::create_dir_all(&data)?;
        let storage = free_address().await?;
        arguments.extend([
            format!("--storage-path={}", data.display()),
            format!("--storage-addr={storage}"),
            format!("--storage-adv-addr={storage}"),
        ]);
    }
    let text = |path: &Path| path.display().to_string();
    Controller::start(Launch {
        binary: format!("{name}-controller"),
        arguments,
        environment: vec![
            ("KUBECONFIG".to_owned(), text(&kubeconfig)),
            ("RUNTIME_NAMESPACE".to_owned(), NAMESPACE.to_owned()),
            ("HOME".to_owned(), text(directory)),
            ("TMPDIR".to_owned(), text(directory)),
        ],
        health,
        log: directory.join(format!("{name}.log")),
    })
    .await
}

fn memory(controllers: &[Controller], field: &str) -> String {
    let mebibytes: Vec<String> = controllers
        .iter()
        .map(|controller| controller.memory_kib(field).unwrap_or_default() / 1024)
        .map(|mebibytes| mebibytes.to_string())
        .collect();
    format!("{} MiB", mebibytes.join(" + "))
}

/// A registry with one chart, in memory; its address.
async fn start_registry() -> Result<String> {
    let mut archive =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let templates = TEMPLATES.map(|(name, text)| (format!("web/templates/{name}"), text));
    let files =
        [("web/Chart.yaml".to_owned(), CHART), ("web/values.yaml".to_owned(), "replicas: 1\nport: 80\n")];
    for (name, text) in files.into_iter().chain(templates) {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, text.as_bytes())?;
    }
    let layer = Bytes::from(archive.into_inner()?.finish()?);
    let config = Bytes::from_static(br#"{"name":"web","version":"1.0.0","apiVersion":"v2"}"#);
    let described = |media_type: &str, bytes: &Bytes| json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() });
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
        "config": described(CONFIG_TYPE, &config), "layers": [described(LAYER_TYPE, &layer)],
    });
    let blobs = [Bytes::from(manifest.to_string()), layer, config];
    let content: BTreeMap<String, Bytes> = blobs.iter().map(|blob| (digest(blob), blob.clone())).collect();
    let content = Arc::new((digest(&blobs[0]), content));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();
    let router = Router::new()
        .route("/v2/", get(|| async { "{}" }))
        .route("/v2/web/tags/list", get(|| async { r#"{"name":"web","tags":["1.0.0"]}"# }))
        .route("/v2/web/manifests/{reference}", get(serve))
        .route("/v2/web/blobs/{reference}", get(serve))
        .with_state(content);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn serve(
    State(content): State<Arc<(String, BTreeMap<String, Bytes>)>>,
    UrlPath(reference): UrlPath<String>,
) -> Response {
    let (manifest, blobs) = &*content;
    let wanted = if reference.starts_with("sha256:") { &reference } else { manifest };
    let Some(blob) = blobs.get(wanted) else { return StatusCode::NOT_FOUND.into_response() };
    let media_type = if wanted == manifest { MANIFEST_TYPE } else { "application/octet-stream" };
    let headers =
        [(header::CONTENT_TYPE.as_str(), media_type.to_owned()), ("docker-content-digest", wanted.clone())];
    (headers, blob.clone()).into_response()
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Requests by verb, watches and leases aside.
fn verbs(counts: &Counts) -> String {
    let mut by_verb: BTreeMap<String, u64> = BTreeMap::new();
    for (call, count) in counts.sorts().filter(|(call, _)| call.verb != "watch" && call.resource != "leases")
    {
        let verb = if call.resource == "events" { "events" } else { call.verb };
        *by_verb.entry(verb.to_owned()).or_default() += count;
    }
    by_verb.iter().map(|(verb, count)| format!("{count} {verb}")).collect::<Vec<_>>().join(", ")
}

fn line(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("write to standard output")
}
