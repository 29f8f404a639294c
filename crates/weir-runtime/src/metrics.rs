//! What the process tells Prometheus: the names that dashboards made for the reference use.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use crate::ObjectKey;
use crate::driver::{Handle, QueueState};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    kind: String,
    name: String,
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    name: String,
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DepthLabels {
    name: String,
    controller: String,
    priority: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    host: String,
    method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SinkLabels {
    sink: &'static str,
}

type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;

/// The bounds of `gotk_reconcile_duration_seconds`: ten, from 10 ms to 30 minutes.
fn reconcile_duration() -> Histogram {
    let factor = (1800.0_f64 / 0.01).powf(1.0 / 9.0);
    Histogram::new(exponential_buckets(0.01, factor, 10))
}

/// The bounds of `controller_runtime_reconcile_time_seconds`.
fn reconcile_time() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
        1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0,
        40.0, 50.0, 60.0,
    ])
}

/// The bounds of the work queue histograms.
fn queue_time() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 12))
}

/// How a run ended, as the metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunResult {
    Success,
    Error,
    Requeue,
    RequeueAfter,
}

impl RunResult {
    const ALL: [Self; 4] = [Self::Success, Self::Error, Self::Requeue, Self::RequeueAfter];

    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
        }
    }
}

/// Where an event could not be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sink {
    Kubernetes,
    Receiver,
}

impl Sink {
    fn label(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Receiver => "receiver",
        }
    }
}

struct Inner {
    registry: Mutex<Registry>,
    queues: Queues,
    reconcile_duration: HistogramFamily<ObjectLabels>,
    reconcile_total: Family<ResultLabels, Counter>,
    reconcile_errors: Family<ControllerLabels, Counter>,
    reconcile_terminal_errors: Family<ControllerLabels, Counter>,
    reconcile_panics: Family<ControllerLabels, Counter>,
    reconcile_timeouts: Family<ControllerLabels, Counter>,
    reconcile_time: HistogramFamily<ControllerLabels>,
    active_workers: Family<ControllerLabels, Gauge>,
    max_concurrent: Family<ControllerLabels, Gauge>,
    queue_duration: HistogramFamily<QueueLabels>,
    work_duration: HistogramFamily<QueueLabels>,
    requests: Family<RequestLabels, Counter>,
    leading: Family<LeaseLabels, Gauge>,
    events_lost: Family<SinkLabels, Counter>,
    watch_errors: Family<KindLabels, Counter>,
    watched_objects: Family<KindLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

/// The metrics of the process. Cloning gives another handle to the same ones.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// The metrics every controller has, all still empty.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let inner = Inner {
            reconcile_duration: registered(
                r,
                "gotk_reconcile_duration_seconds",
                "How long a run of an object took",
                Family::new_with_constructor(reconcile_duration as fn() -> Histogram),
            ),
            reconcile_total: registered(
                r,
                "controller_runtime_reconcile",
                "Runs by controller and result",
                Family::default(),
            ),
            reconcile_errors: registered(
                r,
                "controller_runtime_reconcile_errors",
                "Runs that failed, by controller",
                Family::default(),
            ),
            reconcile_terminal_errors: registered(
                r,
                "controller_runtime_terminal_reconcile_errors",
                "Runs that failed and are not tried again, by controller",
                Family::default(),
            ),
            reconcile_panics: registered(
                r,
                "controller_runtime_reconcile_panics",
                "Runs that panicked, by controller",
                Family::default(),
            ),
            reconcile_timeouts: registered(
                r,
                "controller_runtime_reconcile_timeouts",
                "Runs that passed their deadline, by controller",
                Family::default(),
            ),
            reconcile_time: registered(
                r,
                "controller_runtime_reconcile_time_seconds",
                "How long runs took, by controller",
                Family::new_with_constructor(reconcile_time as fn() -> Histogram),
            ),
            active_workers: registered(
                r,
                "controller_runtime_active_workers",
                "Runs in progress, by controller",
                Family::default(),
            ),
            max_concurrent: registered(
                r,
                "controller_runtime_max_concurrent_reconciles",
                "The limit of runs at the same time, by controller",
                Family::default(),
            ),
            queue_duration: registered(
                r,
                "workqueue_queue_duration_seconds",
                "How long objects were due before they ran",
                Family::new_with_constructor(queue_time as fn() -> Histogram),
            ),
            work_duration: registered(
                r,
                "workqueue_work_duration_seconds",
                "How long runs took",
                Family::new_with_constructor(queue_time as fn() -> Histogram),
            ),
            requests: registered(
                r,
                "rest_client_requests",
                "Requests to the Kubernetes API by status code, method and host",
                Family::default(),
            ),
            leading: registered(
                r,
                "leader_election_master_status",
                "1 while this process holds the lease",
                Family::default(),
            ),
            events_lost: registered(
                r,
                "weir_runtime_events_lost",
                "Events that were not delivered, by where they should have gone",
                Family::default(),
            ),
            watch_errors: registered(
                r,
                "weir_runtime_watch_errors",
                "Failed list and watch requests, by kind",
                Family::default(),
            ),
            watched_objects: registered(
                r,
                "weir_runtime_watched_objects",
                "Objects held in memory by watches, by kind",
                Family::default(),
            ),
            queues: Queues::default(),
            registry: Mutex::new(Registry::default()),
        };
        registry.register_collector(Box::new(inner.queues.clone()));
        registry.register_collector(Box::new(ProcessCollector));
        *inner.registry.lock() = registry;
        Self(Arc::new(inner))
    }

    /// Adds metrics of a controller's own. Counters are named without `_total`.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.0.registry.lock());
    }

    /// All metrics in the Prometheus text format 0.0.4.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = prometheus_client::encoding::prometheus_text::encode(&mut text, &self.0.registry.lock());
        text
    }

    /// What the metrics of every controller are called and mean, by name: for the reference page.
    pub fn describe() -> Vec<Description> {
        let metrics = Self::new();
        let key = ObjectKey::new("", "");
        metrics.add_controller("", 1, Handle::idle());
        metrics.run_started("", Duration::ZERO);
        metrics.run_ended("", Duration::ZERO, RunResult::Error);
        metrics.object_ran("", &key, Duration::ZERO);
        metrics.request("", "", "");
        metrics.set_leading("", true);
        metrics.event_lost(Sink::Kubernetes);
        metrics.watch_error("");
        metrics.set_watched_objects("", 0);
        metrics.descriptions()
    }

    /// What the metrics that have a value are called and mean, by name.
    pub fn descriptions(&self) -> Vec<Description> {
        descriptions(&self.encode())
    }

    /// Makes the series of a controller exist from the start, with value zero.
    pub(crate) fn add_controller(&self, controller: &str, concurrency: usize, handle: Handle) {
        let labels = ControllerLabels { controller: controller.to_owned() };
        for result in RunResult::ALL {
            drop(
                self.0.reconcile_total.get_or_create(&ResultLabels {
                    controller: controller.to_owned(),
                    result: result.label(),
                }),
            );
        }
        for family in [
            &self.0.reconcile_errors,
            &self.0.reconcile_terminal_errors,
            &self.0.reconcile_panics,
            &self.0.reconcile_timeouts,
        ] {
            drop(family.get_or_create(&labels));
        }
        drop(self.0.active_workers.get_or_create(&labels));
        self.0.max_concurrent.get_or_create(&labels).set(i64::try_from(concurrency).unwrap_or(i64::MAX));
        self.0.queues.0.lock().push((controller.to_owned(), handle));
    }

    pub(crate) fn run_started(&self, controller: &str, waited: Duration) {
        let labels = queue_labels(controller);
        self.0.queue_duration.get_or_create(&labels).observe(waited.as_secs_f64());
        self.active(controller).inc();
    }

    pub(crate) fn run_ended(&self, controller: &str, elapsed: Duration, result: RunResult) {
        self.active(controller).dec();
        let labels = ControllerLabels { controller: controller.to_owned() };
        let seconds = elapsed.as_secs_f64();
        self.0.reconcile_time.get_or_create(&labels).observe(seconds);
        self.0.work_duration.get_or_create(&queue_labels(controller)).observe(seconds);
        self.0
            .reconcile_total
            .get_or_create(&ResultLabels { controller: controller.to_owned(), result: result.label() })
            .inc();
        if result == RunResult::Error {
            self.0.reconcile_errors.get_or_create(&labels).inc();
        }
    }

    fn active(&self, controller: &str) -> Gauge {
        self.0.active_workers.get_or_create_owned(&ControllerLabels { controller: controller.to_owned() })
    }

    pub(crate) fn terminal_error(&self, controller: &str) {
        self.count(&self.0.reconcile_terminal_errors, controller);
    }

    pub(crate) fn panicked(&self, controller: &str) {
        self.count(&self.0.reconcile_panics, controller);
    }

    pub(crate) fn timed_out(&self, controller: &str) {
        self.count(&self.0.reconcile_timeouts, controller);
    }

    #[expect(clippy::unused_self, reason = "reads as a method of the metrics at the call sites")]
    fn count(&self, family: &Family<ControllerLabels, Counter>, controller: &str) {
        let labels = ControllerLabels { controller: controller.to_owned() };
        family.get_or_create(&labels).inc();
    }

    pub(crate) fn object_ran(&self, kind: &str, key: &ObjectKey, elapsed: Duration) {
        self.0.reconcile_duration.get_or_create(&object_labels(kind, key)).observe(elapsed.as_secs_f64());
    }

    pub(crate) fn object_gone(&self, kind: &str, key: &ObjectKey) {
        self.0.reconcile_duration.remove(&object_labels(kind, key));
    }

    pub(crate) fn request(&self, code: &str, host: &str, method: &str) {
        let labels =
            RequestLabels { code: code.to_owned(), host: host.to_owned(), method: method.to_owned() };
        self.0.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn set_leading(&self, lease: &str, leading: bool) {
        let labels = LeaseLabels { name: lease.to_owned() };
        self.0.leading.get_or_create(&labels).set(i64::from(leading));
    }

    pub(crate) fn event_lost(&self, sink: Sink) {
        self.0.events_lost.get_or_create(&SinkLabels { sink: sink.label() }).inc();
    }

    pub(crate) fn watch_error(&self, kind: &str) {
        let labels = KindLabels { kind: kind.to_owned() };
        self.0.watch_errors.get_or_create(&labels).inc();
    }

    pub(crate) fn set_watched_objects(&self, kind: &str, objects: usize) {
        let labels = KindLabels { kind: kind.to_owned() };
        self.0.watched_objects.get_or_create(&labels).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }
}

/// What a metric is called and means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The name, as in a query.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub type_: String,
    /// What it tells.
    pub help: String,
    /// The names of its labels.
    pub labels: Vec<String>,
}

/// The metrics of a text in the Prometheus format, each of which must have a series.
fn descriptions(text: &str) -> Vec<Description> {
    let mut found: Vec<Description> = Vec::new();
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help.trim_end_matches('.'));
        } else if let Some((name, type_)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            found.push(Description {
                name: name.to_owned(),
                type_: type_.to_owned(),
                help: help.to_owned(),
                labels: Vec::new(),
            });
        } else if let Some(metric) = found.last_mut().filter(|metric| metric.labels.is_empty()) {
            let labels = line
                .split_once('{')
                .and_then(|(_, rest)| rest.rsplit_once('}'))
                .map_or("", |(labels, _)| labels);
            let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            metric.labels = names.filter(|name| name != "le").collect();
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn object_labels(kind: &str, key: &ObjectKey) -> ObjectLabels {
    ObjectLabels { kind: kind.to_owned(), name: key.name().to_owned(), namespace: key.namespace().to_owned() }
}

fn queue_labels(controller: &str) -> QueueLabels {
    QueueLabels { name: controller.to_owned(), controller: controller.to_owned() }
}

/// Reads the state of all work queues when Prometheus asks.
#[derive(Debug, Default, Clone)]
struct Queues(Arc<Mutex<Vec<(String, Handle)>>>);

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        type Count = fn(&QueueState) -> u64;
        type Time = fn(&QueueState) -> Duration;
        let queues: Vec<(QueueLabels, QueueState)> = {
            let queues = self.0.lock();
            queues.iter().map(|(controller, handle)| (queue_labels(controller), handle.state())).collect()
        };
        // Each name may be described once only, so the queues are inside the loop over the names.
        let mut depth = encoder.encode_descriptor(
            "workqueue_depth",
            "Objects that are due, by priority from 0 (periodic) to 3 (asked for by a person)",
            None,
            MetricType::Gauge,
        )?;
        for (labels, state) in &queues {
            for (priority, objects) in &state.depth {
                let labels = DepthLabels {
                    name: labels.name.clone(),
                    controller: labels.controller.clone(),
                    priority: (*priority as i32).to_string(),
                };
                let value = ConstGauge::new(i64::try_from(*objects).unwrap_or(i64::MAX));
                value.encode(depth.encode_family(&labels)?)?;
            }
        }
        let counts: [(&str, &str, Count); 2] = [
            ("workqueue_adds", "Requests for a run", |state| state.adds),
            ("workqueue_retries", "Runs planned because of a failure", |state| state.retries),
        ];
        for (name, help, count) in counts {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, state) in &queues {
                ConstCounter::new(count(state)).encode(metric.encode_family(labels)?)?;
            }
        }
        let times: [(&str, &str, Time); 2] = [
            (
                "workqueue_unfinished_work_seconds",
                "The time all runs in progress have taken so far",
                |state| state.unfinished,
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "The time the longest run in progress has taken so far",
                |state| state.longest,
            ),
        ];
        for (name, help, time) in times {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, state) in &queues {
                ConstGauge::new(time(state).as_secs_f64()).encode(metric.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

/// Reads `/proc` when Prometheus asks.
#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(process) = crate::process::read() else {
            return Ok(());
        };
        let metric = encoder.encode_descriptor(
            "process_cpu_seconds",
            "Processor time used, in seconds",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(process.cpu_seconds).encode(metric)?;
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory in bytes", process.resident_bytes),
            ("process_virtual_memory_bytes", "Virtual memory in bytes", process.virtual_bytes),
            ("process_open_fds", "Open file descriptors", process.open_files),
            ("process_max_fds", "The limit of open file descriptors", process.max_files),
            (
                "process_start_time_seconds",
                "When the process started, in seconds since 1970",
                process.started_seconds,
            ),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(metrics: &Metrics, name: &str) -> Vec<String> {
        let text = metrics.encode();
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    }

    #[test]
    fn the_duration_of_an_object_has_the_bounds_of_the_reference() {
        let metrics = Metrics::new();
        let key = ObjectKey::new("flux-system", "apps");
        metrics.object_ran("Kustomization", &key, Duration::from_millis(30));
        let lines = series(&metrics, "gotk_reconcile_duration_seconds");
        let bounds: Vec<f64> = lines
            .iter()
            .filter_map(|line| line.split("le=\"").nth(1)?.split('"').next()?.parse().ok())
            .filter(|bound: &f64| bound.is_finite())
            .collect();
        let want =
            [0.01, 0.03836, 0.14718, 0.56462, 2.16609, 8.30990, 31.87976, 122.30217, 469.19496, 1800.0];
        assert_eq!(bounds.len(), want.len(), "{lines:?}");
        for (bound, want) in bounds.iter().zip(want) {
            assert!((bound - want).abs() < 1e-4, "{bounds:?}");
        }
        assert!(
            lines.contains(
                &"gotk_reconcile_duration_seconds_count{kind=\"Kustomization\",name=\"apps\",namespace=\"flux-system\"} 1"
                    .to_owned()
            ),
            "{lines:?}"
        );
        metrics.object_gone("Kustomization", &key);
        assert!(series(&metrics, "gotk_reconcile_duration_seconds").is_empty());
    }

    #[test]
    fn a_run_is_counted_by_its_result() {
        let metrics = Metrics::new();
        metrics.run_started("kustomization", Duration::from_millis(1));
        metrics.run_ended("kustomization", Duration::from_millis(5), RunResult::Error);
        assert_eq!(
            series(&metrics, "controller_runtime_reconcile_total"),
            ["controller_runtime_reconcile_total{controller=\"kustomization\",result=\"error\"} 1"]
        );
        assert_eq!(
            series(&metrics, "controller_runtime_reconcile_errors_total"),
            ["controller_runtime_reconcile_errors_total{controller=\"kustomization\"} 1"]
        );
        assert_eq!(
            series(&metrics, "controller_runtime_active_workers"),
            ["controller_runtime_active_workers{controller=\"kustomization\"} 0"]
        );
    }

    #[test]
    fn every_metric_is_described_once_even_with_several_controllers() {
        let metrics = Metrics::new();
        metrics.add_controller("gitrepository", 2, Handle::idle());
        metrics.add_controller("bucket", 2, Handle::idle());
        let text = metrics.encode();
        let mut names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{text}");
        assert_eq!(series(&metrics, "workqueue_adds_total").len(), 2, "{text}");
    }

    #[test]
    fn the_reference_names_labels() {
        let all = Metrics::describe();
        let labels =
            |name: &str| all.iter().find(|metric| metric.name == name).map(|metric| metric.labels.join(" "));
        assert_eq!(labels("gotk_reconcile_duration_seconds").as_deref(), Some("kind name namespace"));
        assert_eq!(labels("rest_client_requests_total").as_deref(), Some("code host method"));
        assert_eq!(labels("workqueue_depth").as_deref(), Some("name controller priority"));
        assert_eq!(labels("process_open_fds").as_deref(), Some(""));
        assert!(all.iter().all(|metric| !metric.help.is_empty()), "{all:?}");
    }

    #[test]
    fn the_process_is_described() {
        let metrics = Metrics::new();
        for name in ["process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds "] {
            assert_eq!(series(&metrics, name).len(), 1, "{name}: {}", metrics.encode());
        }
    }
}
