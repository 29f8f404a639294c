//! Figures of the server: start, applies a second, memory. Each section runs in a process of its own.
//!
//! `cargo run --release -p weir-testcluster --example bench` runs all; `… --example bench -- start` only one.
#![expect(clippy::print_stdout, reason = "an example speaks to a person")]

use std::process::Command;
use std::time::{Duration, Instant};

use http::{Method, Request};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use weir_testcluster::TestCluster;

/// What Weir's own programs use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECTS: usize = 10_000;
/// Requests at a time.
const WORKERS: usize = 8;
const SECTIONS: &[&str] =
    &["start", "start-on-port", "memory configmaps", "memory deployments", "in-process", "on-port"];

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A small object as fleets have them, in one of two states.
fn object(plural: &str, index: usize, round: usize) -> Value {
    let name = format!("object-{index}");
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "bench"});
    match plural {
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
}

async fn apply(client: &Client, plural: &str, index: usize, round: usize) -> Result<(), Failure> {
    let group = if plural == "configmaps" { "/api/v1" } else { "/apis/apps/v1" };
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{group}/namespaces/default/{plural}/object-{index}?fieldManager=bench&force=true"))
        .header("content-type", "application/apply-patch+yaml")
        .body(Body::from(serde_json::to_vec(&object(plural, index, round))?))?;
    let answer = client.send(request).await?;
    let status = answer.status();
    let bytes = answer.into_body().collect_bytes().await?;
    if status.is_success() { Ok(()) } else { Err(String::from_utf8_lossy(&bytes).into_owned().into()) }
}

/// Applies all objects, some at a time.
async fn apply_all(client: &Client, plural: &'static str, round: usize) -> Result<Duration, Failure> {
    let start = Instant::now();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let client = client.clone();
            tokio::spawn(async move {
                for index in (worker..OBJECTS).step_by(WORKERS) {
                    apply(&client, plural, index, round).await?;
                }
                Ok::<(), Failure>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    Ok(start.elapsed())
}

/// The processor time of this process.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time follow the name, in hundredths of a second on all usual systems.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kib: f64 = line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or_default();
    kib / 1024.0
}

async fn rates(client: &Client) -> Result<(), Failure> {
    for plural in ["configmaps", "deployments"] {
        for (round, what) in [(1, "created"), (2, "changed"), (2, "unchanged")] {
            let before = processor_time();
            let took = apply_all(client, plural, round).await?;
            let rate = OBJECTS as f64 / took.as_secs_f64();
            let each = processor_time().saturating_sub(before).as_secs_f64() / OBJECTS as f64;
            println!(
                "  {plural} {what}: {rate:.0} applies/s, {:.0} µs of a processor each, client included",
                each * 1e6
            );
        }
    }
    Ok(())
}

async fn client_of(kubeconfig: &str) -> Result<Client, Failure> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn section(name: &str) -> Result<(), Failure> {
    let start = Instant::now();
    let cluster = TestCluster::builder().controllers(name.starts_with("start")).build()?;
    let built = start.elapsed();
    match name {
        "start" => {
            Client::new(cluster.service(), "default").apiserver_version().await?;
            println!("first answer in process, with controllers: {:.1?}", start.elapsed());
            println!("  of that the cluster: {built:.1?}; resident memory {:.0} MiB", resident_mib());
        }
        "start-on-port" => {
            let running = cluster.serve("127.0.0.1:0".parse()?).await?;
            client_of(running.kubeconfig()).await?.apiserver_version().await?;
            println!("first answer over TLS, with controllers: {:.1?}", start.elapsed());
        }
        "in-process" => {
            println!("in process, {WORKERS} at a time:");
            rates(&Client::new(cluster.service(), "default")).await?;
        }
        "on-port" => {
            println!("over TLS on a port, client in the same process, {WORKERS} at a time:");
            let running = cluster.serve("127.0.0.1:0".parse()?).await?;
            rates(&client_of(running.kubeconfig()).await?).await?;
        }
        "memory configmaps" | "memory deployments" => {
            let plural = if name.ends_with("configmaps") { "configmaps" } else { "deployments" };
            let before = resident_mib();
            let client = Client::new(cluster.service(), "default");
            apply_all(&client, plural, 1).await?;
            let created = resident_mib();
            apply_all(&client, plural, 2).await?;
            println!("resident memory with {OBJECTS} {plural}: {created:.0} MiB, {before:.0} MiB without");
            println!(
                "  after all were changed (their old states are kept for watches): {:.0} MiB",
                resident_mib()
            );
        }
        other => return Err(format!("no section '{other}'; known: {SECTIONS:?}").into()),
    }
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    // The first provider wins; a second call in one process changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.is_empty() {
        return section(&arguments.join(" ")).await;
    }
    for section in SECTIONS {
        let status = Command::new(std::env::current_exe()?).args(section.split(' ')).status()?;
        if !status.success() {
            return Err(format!("section '{section}' failed").into());
        }
    }
    Ok(())
}
