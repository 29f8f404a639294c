//! What a server tells Prometheus: names, labels and bounds are those of the reference.

use std::collections::HashSet;
use std::sync::Arc;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tokio::time::Instant;
use weir_runtime::Metrics;

/// How many different paths get series of their own; the rest share one.
const PATHS_MAX: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    handler: String,
    method: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandlerLabels {
    handler: String,
}

type Histograms = Family<RequestLabels, Histogram, fn() -> Histogram>;

/// The metrics of one server. Cloning gives another handle to the same ones.
#[derive(Debug, Clone)]
pub struct HttpMetrics {
    handler: &'static str,
    /// Paths that have series of their own, if paths are told at all.
    paths: Option<Arc<Mutex<HashSet<String>>>>,
    duration: Histograms,
    size: Histograms,
    inflight: Family<HandlerLabels, Gauge>,
}

fn duration() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

fn size() -> Histogram {
    Histogram::new(exponential_buckets(100.0, 10.0, 8))
}

impl HttpMetrics {
    /// Metrics that begin with `prefix`, registered; `handler` names the server unless `paths` asks
    /// for the path of each request.
    pub fn new(prefix: &str, handler: &'static str, paths: bool, metrics: &Metrics) -> Self {
        let new = Self {
            handler,
            paths: paths.then(Arc::default),
            duration: Family::new_with_constructor(duration as fn() -> Histogram),
            size: Family::new_with_constructor(size as fn() -> Histogram),
            inflight: Family::default(),
        };
        metrics.register(|registry| {
            registry.register(
                format!("{prefix}_request_duration_seconds"),
                "The latency of the HTTP requests",
                new.duration.clone(),
            );
            registry.register(
                format!("{prefix}_response_size_bytes"),
                "The size of the HTTP responses",
                new.size.clone(),
            );
            registry.register(
                format!("{prefix}_requests_inflight"),
                "The number of inflight requests being handled at the same time",
                new.inflight.clone(),
            );
        });
        new
    }

    /// Makes every metric have a series, for the reference page.
    pub(crate) fn touch(&self) {
        self.start(&Method::POST, "").end(StatusCode::OK, 0);
    }

    /// A request begins.
    pub(super) fn start(&self, method: &Method, path: &str) -> Observed {
        let handler = self.handler_label(path);
        let inflight = self.inflight.get_or_create_owned(&HandlerLabels { handler: handler.clone() });
        inflight.inc();
        Observed {
            metrics: self.clone(),
            handler,
            method: method_label(method),
            started: Instant::now(),
            inflight,
        }
    }

    fn handler_label(&self, path: &str) -> String {
        let Some(paths) = &self.paths else { return self.handler.to_owned() };
        let mut paths = paths.lock();
        if paths.contains(path) || paths.len() < PATHS_MAX && paths.insert(path.to_owned()) {
            path.to_owned()
        } else {
            self.handler.to_owned()
        }
    }
}

/// Clients choose the method, so only known ones become series.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

/// A request in progress.
pub(super) struct Observed {
    metrics: HttpMetrics,
    handler: String,
    method: &'static str,
    started: Instant,
    inflight: Gauge,
}

impl Observed {
    /// The request was answered.
    pub(super) fn end(self, status: StatusCode, bytes: usize) {
        let labels =
            RequestLabels { handler: self.handler.clone(), method: self.method, code: status.as_u16() };
        self.metrics.duration.get_or_create(&labels).observe(self.started.elapsed().as_secs_f64());
        self.metrics.size.get_or_create(&labels).observe(bytes as f64);
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.inflight.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_the_names_and_labels_of_the_reference() {
        let metrics = Metrics::new();
        let http = HttpMetrics::new("gotk_receiver_http", "/hook/", false, &metrics);
        http.start(&Method::POST, "/hook/abc").end(StatusCode::OK, 0);
        http.start(&Method::from_bytes(b"BREW").unwrap(), "/hook/abc").end(StatusCode::NOT_FOUND, 19);
        let running = http.start(&Method::POST, "/hook/abc");
        let text = metrics.encode();
        for line in [
            "gotk_receiver_http_request_duration_seconds_count{handler=\"/hook/\",method=\"POST\",code=\"200\"} 1",
            "gotk_receiver_http_request_duration_seconds_count{handler=\"/hook/\",method=\"other\",code=\"404\"} 1",
            "gotk_receiver_http_response_size_bytes_bucket{handler=\"/hook/\",method=\"other\",code=\"404\",le=\"100\"} 1",
            "gotk_receiver_http_response_size_bytes_bucket{handler=\"/hook/\",method=\"POST\",code=\"200\",le=\"+Inf\"} 1",
            "gotk_receiver_http_requests_inflight{handler=\"/hook/\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        drop(running);
        assert!(metrics.encode().contains("requests_inflight{handler=\"/hook/\"} 0"), "also when dropped");
    }

    #[test]
    fn paths_are_told_on_request_and_bounded() {
        let metrics = Metrics::new();
        let http = HttpMetrics::new("gotk_event_http", "/", true, &metrics);
        for number in 0..PATHS_MAX + 10 {
            http.start(&Method::POST, &format!("/{number}")).end(StatusCode::ACCEPTED, 0);
        }
        let text = metrics.encode();
        let count = "gotk_event_http_request_duration_seconds_count{";
        assert_eq!(text.lines().filter(|line| line.starts_with(count)).count(), PATHS_MAX + 1);
        assert!(text.contains(&format!("{count}handler=\"/\",method=\"POST\",code=\"202\"}} 10")));
    }
}
