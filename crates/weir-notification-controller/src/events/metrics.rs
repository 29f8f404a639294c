//! What deliveries tell Prometheus.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use weir_notify::identity::CacheEvent;
use weir_runtime::Metrics;

use super::outbox::Loss;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeliveryLabels {
    r#type: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    event_type: &'static str,
    kind: &'static str,
    name: String,
    namespace: String,
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

type Histograms = Family<TypeLabels, Histogram, fn() -> Histogram>;

fn duration() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0])
}

/// The metrics of deliveries and tokens. Cloning gives another handle to the same ones.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryMetrics {
    deliveries: Family<DeliveryLabels, Counter>,
    duration: Histograms,
    dropped: Family<ReasonLabels, Counter>,
    waiting: Gauge,
    token_events: Family<TokenLabels, Counter>,
    token_requests: Family<StatusLabels, Counter>,
    token_evictions: Counter,
    tokens: Gauge,
}

impl DeliveryMetrics {
    /// Metrics, registered.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let new = Self {
            deliveries: Family::default(),
            duration: Family::new_with_constructor(duration as fn() -> Histogram),
            dropped: Family::default(),
            waiting: Gauge::default(),
            token_events: Family::default(),
            token_requests: Family::default(),
            token_evictions: Counter::default(),
            tokens: Gauge::default(),
        };
        metrics.register(|registry| {
            registry.register(
                "weir_notification_deliveries",
                "Notifications by type of provider and result",
                new.deliveries.clone(),
            );
            registry.register(
                "weir_notification_delivery_duration_seconds",
                "How long a delivery took, retries included",
                new.duration.clone(),
            );
            registry.register(
                "weir_notification_dropped",
                "Notifications lost because their provider takes them more slowly than they come",
                new.dropped.clone(),
            );
            registry.register(
                "weir_notification_waiting",
                "Notifications that wait for others to the same provider",
                new.waiting.clone(),
            );
            registry.register(
                "gotk_token_cache_events",
                "Total number of cache retrieval events for a Gitops Toolkit resource reconciliation",
                new.token_events.clone(),
            );
            registry.register(
                "gotk_token_cache_requests",
                "Total number of cache requests partioned by success or failure",
                new.token_requests.clone(),
            );
            registry.register(
                "gotk_token_cache_evictions",
                "Total number of cache evictions",
                new.token_evictions.clone(),
            );
            registry.register(
                "gotk_token_cached_items",
                "Total number of items in the cache",
                new.tokens.clone(),
            );
        });
        new
    }

    /// Makes every metric have a series, for the reference page.
    pub(super) fn touch(&self) {
        self.delivered("", true, Duration::ZERO);
        self.lost(Loss::Full);
        self.token(CacheEvent::Hit { namespace: "", name: "" });
    }

    /// A delivery ended.
    pub(crate) fn delivered(&self, type_: &'static str, is_success: bool, took: Duration) {
        let result = if is_success { "delivered" } else { "failed" };
        self.deliveries.get_or_create(&DeliveryLabels { r#type: type_, result }).inc();
        self.duration.get_or_create(&TypeLabels { r#type: type_ }).observe(took.as_secs_f64());
    }

    /// A notification is lost.
    pub(crate) fn lost(&self, loss: Loss) {
        self.dropped.get_or_create(&ReasonLabels { reason: loss.label() }).inc();
    }

    /// So many notifications wait.
    pub(crate) fn waiting(&self, count: usize) {
        self.waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Something happened in the cache of tokens.
    pub(crate) fn token(&self, event: CacheEvent<'_>) {
        let of_provider = |event_type, namespace: &str, name: &str| TokenLabels {
            event_type,
            kind: "Provider",
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            operation: "post",
        };
        match event {
            CacheEvent::Hit { namespace, name } => {
                self.token_events.get_or_create(&of_provider("cache_hit", namespace, name)).inc();
                self.token_requests.get_or_create(&StatusLabels { status: "success" }).inc();
            }
            CacheEvent::Miss { namespace, name } => {
                self.token_events.get_or_create(&of_provider("cache_miss", namespace, name)).inc();
                self.token_requests.get_or_create(&StatusLabels { status: "success" }).inc();
            }
            CacheEvent::Evicted => {
                self.token_evictions.inc();
            }
            CacheEvent::Held(count) => {
                self.tokens.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }

    /// A Provider is gone; so are its series.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        for event_type in ["cache_hit", "cache_miss"] {
            self.token_events.remove(&TokenLabels {
                event_type,
                kind: "Provider",
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                operation: "post",
            });
        }
    }
}
