//! Figures of the server: start, applies, memory. `cargo run --release -p weir-testcluster --example bench`.
#![expect(clippy::print_stdout, reason = "an example speaks to a person")]

use std::time::Instant;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tower::ServiceExt as _;
use weir_testcluster::TestCluster;

const OBJECTS: usize = 10_000;
const WORKERS: usize = 2;

fn body(kind: &str, index: usize, round: usize) -> String {
    let name = format!("object-{index}");
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "bench"});
    match kind {
        "configmaps" => json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels},
            "data": {"key": format!("value {round}"), "other": "a line of configuration that stays as it is"},
        }),
        _ => json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
            "spec": {"replicas": round, "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example.com/app:1", "ports": [{"containerPort": 80}]}]},
            }},
        }),
    }
    .to_string()
}

async fn apply_all(cluster: &TestCluster, group: &str, kind: &'static str, round: usize) -> f64 {
    let start = Instant::now();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let cluster = cluster.clone();
            let group = group.to_owned();
            tokio::spawn(async move {
                for index in (worker..OBJECTS).step_by(WORKERS) {
                    let uri = format!(
                        "{group}/namespaces/default/{kind}/object-{index}?fieldManager=bench&force=true"
                    );
                    let request = Request::builder()
                        .method(Method::PATCH)
                        .uri(uri)
                        .header("content-type", "application/apply-patch+yaml")
                        .body(Full::new(bytes::Bytes::from(body(kind, index, round))))?;
                    let response = cluster.service().oneshot(request).await?;
                    if !response.status().is_success() {
                        let bytes = response.into_body().collect().await?.to_bytes();
                        return Err(String::from_utf8_lossy(&bytes).into_owned().into());
                    }
                }
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            })
        })
        .collect();
    for worker in workers {
        match worker.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => println!("failed: {error}"),
            Err(error) => println!("failed: {error}"),
        }
    }
    OBJECTS as f64 / start.elapsed().as_secs_f64()
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default() / 1024
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let cluster = TestCluster::builder().build()?;
    println!("start: {:?}, {} MiB", start.elapsed(), resident_mib());
    for (group, kind) in [("/api/v1", "configmaps"), ("/apis/apps/v1", "deployments")] {
        for (round, what) in [(1, "create"), (2, "change"), (2, "no change")] {
            let rate = apply_all(&cluster, group, kind, round).await;
            println!(
                "{kind}: {rate:.0} applies/s ({what}), {} objects, {} MiB",
                cluster.object_count(),
                resident_mib()
            );
        }
    }
    Ok(())
}
