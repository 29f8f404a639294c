//! Many events for many Alerts, some of them for dead endpoints. Called by `hack/bench/notifications`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use e2e::{ApiProxy, Cluster, Controller, DEADLINE, Launch, NOTIFICATION_BETA, eventually, free_address};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::MissedTickBehavior;

const NAMESPACE: &str = "load";
/// Providers whose endpoint answers; the Alerts are spread over them.
const ALIVE: usize = 10;
/// One Alert in so many goes to the endpoint that never answers, and as many to the one that refuses connections.
const DEAD_EVERY: usize = 20;
const CONNECTIONS: usize = 20;
/// Deliveries have ended when none arrived for this long.
const QUIET: Duration = Duration::from_secs(3);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut number = |default| arguments.next().unwrap_or(Ok(default));
    let load = Load { rate: number(1000)?, seconds: number(60)?, alerts: number(200)? };
    ensure!(
        load.rate >= CONNECTIONS && load.alerts >= DEAD_EVERY,
        "at least {CONNECTIONS} events a second and {DEAD_EVERY} alerts"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(load))
}

#[derive(Clone, Copy)]
struct Load {
    rate: usize,
    seconds: usize,
    alerts: usize,
}

impl Load {
    fn events(&self) -> usize {
        self.rate / CONNECTIONS * CONNECTIONS * self.seconds
    }

    /// The Provider an Alert names.
    fn provider(alert: usize) -> String {
        match alert % DEAD_EVERY {
            0 => "dead".to_owned(),
            1 => "refusing".to_owned(),
            _ => format!("alive-{}", alert % ALIVE),
        }
    }
}

/// When each event was posted and when it arrived.
struct Arrivals(Mutex<Vec<(Option<Instant>, Option<Instant>)>>);

impl Arrivals {
    fn posted(&self, event: usize) {
        if let Some(entry) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(event) {
            entry.0 = Some(Instant::now());
        }
    }

    fn arrived(&self, event: usize) {
        if let Some(entry) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(event) {
            entry.1.get_or_insert_with(Instant::now);
        }
    }

    /// How long each event took that arrived, in order of time.
    fn latencies(&self) -> Vec<Duration> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let took = |(posted, arrived): &(Option<Instant>, Option<Instant>)| {
            Some(arrived.as_ref()?.duration_since((*posted)?))
        };
        let mut latencies: Vec<Duration> = entries.iter().filter_map(took).collect();
        latencies.sort_unstable();
        latencies
    }
}

async fn run(load: Load) -> Result<()> {
    let cluster = Cluster::connect().await?.context("KUBECONFIG is not set; use hack/bench/notifications")?;
    cluster.install_crds().await?;
    let directory = tempfile::tempdir()?;
    line(&format!(
        "{} events a second for {} s, {} alerts, {} processors",
        load.rate,
        load.seconds,
        load.alerts,
        std::thread::available_parallelism()?
    ))?;
    let arrivals = Arc::new(Arrivals(Mutex::new(vec![(None, None); load.events()])));
    let address = start_endpoints(Arc::clone(&arrivals)).await?;
    create_objects(&cluster, &load, &address).await?;
    let api = ApiProxy::start(cluster.client()).await?;
    let (mut controller, events, metrics) = start_controller(directory.path(), &api).await?;
    let idle = controller.memory_kib("VmRSS:").unwrap_or_default() / 1024;
    eventually(DEADLINE, "the first alert is known", || warm_up(&events, &metrics)).await?;

    let (before, started) = (controller.processor_seconds().unwrap_or_default(), Instant::now());
    let clients = (0..CONNECTIONS).map(|client| {
        let (events, arrivals) = (events.clone(), Arc::clone(&arrivals));
        tokio::spawn(async move { send(&events, &arrivals, load, client).await })
    });
    let mut answers = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        answers.extend(client.await??);
    }
    let posted = started.elapsed();
    let mut latencies = arrivals.latencies();
    loop {
        tokio::time::sleep(QUIET).await;
        let now = arrivals.latencies();
        if now.len() == latencies.len() {
            break;
        }
        latencies = now;
    }
    answers.sort_unstable();
    let expected =
        (0..load.events()).filter(|event| Load::provider(event % load.alerts).starts_with("alive")).count();
    let processor = controller.processor_seconds().unwrap_or_default() - before;
    let told = scrape(&metrics).await?;
    line(&format!(
        "  posted                          {} events in {:.1}s, all accepted; answered p50 {}, p99 {}, slowest {}",
        answers.len(),
        posted.as_secs_f64(),
        at(&answers, 50),
        at(&answers, 99),
        at(&answers, 100)
    ))?;
    line(&format!(
        "  to the {ALIVE} living endpoints       {} of {expected} delivered; p50 {}, p99 {}, slowest {}",
        latencies.len(),
        at(&latencies, 50),
        at(&latencies, 99),
        at(&latencies, 100)
    ))?;
    line(&format!("  for the dead and the refusing   {} events", load.events() - expected))?;
    for name in
        ["weir_notification_dropped_total", "weir_notification_deliveries_total", "weir_notification_waiting"]
    {
        for (series, value) in told.iter().filter(|(series, _)| series.starts_with(name)) {
            line(&format!("  {series} {value}"))?;
        }
    }
    line(&format!(
        "  memory idle and at most         {idle} / {} MiB",
        controller.memory_kib("VmHWM:").unwrap_or_default() / 1024
    ))?;
    line(&format!("  processor time                  {processor:.1}s"))?;
    line(&format!("  API server                      {}", api.counts()))?;
    controller.stop().await?;
    ensure!(latencies.len() == expected, "{} of {expected} events arrived", latencies.len());
    Ok(())
}

/// Endpoints at `/alive`, and at `/dead` one that reads and never answers.
async fn start_endpoints(arrivals: Arc<Arrivals>) -> Result<String> {
    async fn alive(State(arrivals): State<Arc<Arrivals>>, body: Bytes) {
        let event: Value = serde_json::from_slice(&body).unwrap_or_default();
        let number = event["message"].as_str().and_then(|message| message.strip_prefix("event "));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            arrivals.arrived(number);
        }
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = format!("http://{}", listener.local_addr()?);
    let router = Router::new()
        .route("/alive", post(alive))
        .route("/dead", post(std::future::pending::<()>))
        .with_state(arrivals);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn create_objects(cluster: &Cluster, load: &Load, address: &str) -> Result<()> {
    cluster
        .apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }))
        .await?;
    let object = |kind: &str, name: &str, spec: &Value| {
        json!({
            "apiVersion": NOTIFICATION_BETA, "kind": kind,
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
        })
    };
    // Closed again: nobody listens there.
    let refusing = format!("http://{}", free_address().await?);
    let mut providers: BTreeMap<String, String> =
        (0..ALIVE).map(|number| (format!("alive-{number}"), format!("{address}/alive"))).collect();
    providers.insert("dead".to_owned(), format!("{address}/dead"));
    providers.insert("refusing".to_owned(), refusing);
    for (name, address) in &providers {
        cluster.apply(&object("Provider", name, &json!({ "type": "generic", "address": address }))).await?;
    }
    for alert in 0..load.alerts {
        let spec = json!({
            "providerRef": { "name": Load::provider(alert) }, "eventSeverity": "info",
            "eventSources": [{ "kind": "Kustomization", "name": app(alert) }],
        });
        cluster.apply(&object("Alert", &app(alert), &spec)).await?;
    }
    Ok(())
}

fn app(number: usize) -> String {
    format!("app-{number:04}")
}

/// The controller, where it takes events, and its metrics.
async fn start_controller(directory: &Path, api: &ApiProxy) -> Result<(Controller, String, String)> {
    let kubeconfig = directory.join("kubeconfig");
    std::fs::write(&kubeconfig, api.kubeconfig())?;
    let (health, metrics, events) = (free_address().await?, free_address().await?, free_address().await?);
    let webhooks = free_address().await?;
    let arguments = vec![
        format!("--health-addr={health}"),
        format!("--metrics-addr={metrics}"),
        format!("--events-addr={events}"),
        format!("--receiverAddr={webhooks}"),
    ];
    let controller = Controller::start(Launch {
        binary: "notification-controller".to_owned(),
        arguments,
        environment: vec![
            ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
            ("RUNTIME_NAMESPACE".to_owned(), NAMESPACE.to_owned()),
        ],
        health,
        log: directory.join("notification.log"),
    })
    .await?;
    Ok((controller, events, metrics))
}

/// One event that nothing else looks like; fails until it is delivered.
async fn warm_up(events: &str, metrics: &str) -> Result<()> {
    let mut stream = TcpStream::connect(events).await?;
    let nonce = format!("warm-up at {:?}", Instant::now());
    exchange(&mut stream, &request(events, &event(2, &nonce))).await?;
    let delivered = scrape(metrics).await?.keys().any(|series| series.contains("\"delivered\""));
    ensure!(delivered, "no event was delivered");
    Ok(())
}

fn event(object: usize, message: &str) -> String {
    json!({
        "involvedObject": {
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "namespace": NAMESPACE, "name": app(object),
        },
        "severity": "info", "timestamp": "2026-01-01T10:00:00Z", "message": message,
        "reason": "ReconciliationSucceeded", "reportingController": "kustomize-controller",
        "metadata": { "kustomize.toolkit.fluxcd.io/revision": "main@sha1:0123456789012345678901234567890123456789" },
    })
    .to_string()
}

fn request(host: &str, body: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Posts one connection's share at its part of the rate; how long each answer took.
async fn send(events: &str, arrivals: &Arrivals, load: Load, client: usize) -> Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(events).await?;
    let share = load.events() / CONNECTIONS;
    let mut tick = tokio::time::interval(Duration::from_secs(1) / u32::try_from(load.rate / CONNECTIONS)?);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut times = Vec::with_capacity(share);
    for round in 0..share {
        tick.tick().await;
        let number = round * CONNECTIONS + client;
        let body = event(number % load.alerts, &format!("event {number}"));
        arrivals.posted(number);
        let asked = Instant::now();
        let answer = exchange(&mut stream, &request(events, &body)).await?;
        times.push(asked.elapsed());
        if !answer.starts_with("HTTP/1.1 202") {
            bail!("event {number} is answered with '{}'", answer.lines().next().unwrap_or_default());
        }
    }
    Ok(times)
}

/// Sends a request over a kept connection; the head of the answer, which has no body.
async fn exchange(stream: &mut TcpStream, request: &str) -> Result<String> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut answer).await? > 0, "the connection was closed");
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The values of all series.
async fn scrape(metrics: &str) -> Result<BTreeMap<String, String>> {
    let mut stream = TcpStream::connect(metrics).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {metrics}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let series =
        answer.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    Ok(series.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The time below which this part in a hundred lies.
fn at(sorted: &[Duration], percent: usize) -> String {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    let time = sorted.get(index).copied().unwrap_or_default();
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

fn line(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("write to standard output")
}
