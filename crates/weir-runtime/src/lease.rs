//! Leader election on a Lease, as Kubernetes' own controllers do it, so that this process and the
//! reference's exclude each other.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use rand::RngExt as _;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};
use weir_base::clock::Clock;
use weir_base::error::chain;

use crate::client::WriteGate;
use crate::time::micros;

/// How much longer a wait may get, as a part of itself.
const JITTER: f64 = 0.2;

/// How a lease is held.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who we are; differs for every process.
    pub identity: String,
    /// How long others wait before they take over.
    pub lease_duration: Duration,
    /// How long the holder tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// The time between two tries.
    pub retry_period: Duration,
    /// Whether the lease is given up at the end.
    pub release_on_cancel: bool,
}

/// The lease was lost: another process may lead now, so this one must end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("leader election lost: lease '{namespace}/{name}' was not renewed in time")]
pub struct LeaseLost {
    namespace: String,
    name: String,
}

/// The lease name of a controller: with a label selector, shards do not contend.
pub fn lease_name(controller: &str, label_selector: &str) -> String {
    use sha2::{Digest as _, Sha256};
    if label_selector.is_empty() {
        return format!("{controller}-leader-election");
    }
    let digest = Sha256::digest(label_selector.as_bytes());
    let [a, b, c, d, ..] = digest.0;
    format!("{controller}-leader-election-{:08x}", u32::from_be_bytes([a, b, c, d]))
}

/// What we know of the lease: its record, and since when it has not changed by our own clock. The
/// clocks of other machines are not trusted.
#[derive(Debug, Default)]
struct Observed {
    record: Option<LeaseSpec>,
    since: Option<Instant>,
}

impl Observed {
    fn see(&mut self, record: &LeaseSpec, now: Instant) {
        if self.record.as_ref() != Some(record) {
            self.record = Some(record.clone());
            self.since = Some(now);
        }
    }
}

/// What to do about the lease.
#[derive(Debug, PartialEq)]
enum Step {
    /// Someone else holds it.
    Wait,
    /// Write this.
    Write(Box<LeaseSpec>),
}

fn holder(record: &LeaseSpec) -> &str {
    record.holder_identity.as_deref().unwrap_or_default()
}

/// Decides from the record and what was seen before; pure.
fn step(
    record: &LeaseSpec,
    observed: &Observed,
    options: &LeaseOptions,
    now: Instant,
    wall: Timestamp,
) -> Step {
    let ours = holder(record) == options.identity;
    let free = holder(record).is_empty();
    // The holder's own duration counts, as it may differ from ours during an upgrade.
    let duration = record
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(options.lease_duration, Duration::from_secs);
    let expired = observed.since.is_some_and(|since| now.saturating_duration_since(since) > duration);
    if !ours && !free && !expired {
        return Step::Wait;
    }
    Step::Write(Box::new(claim(ours.then_some(record), record.lease_transitions.unwrap_or(0), options, wall)))
}

fn claim(held: Option<&LeaseSpec>, transitions: i32, options: &LeaseOptions, wall: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(options.identity.clone()),
        lease_duration_seconds: i32::try_from(options.lease_duration.as_secs()).ok(),
        acquire_time: held.and_then(|record| record.acquire_time.clone()).or(Some(micros(wall))),
        renew_time: Some(micros(wall)),
        lease_transitions: Some(if held.is_some() { transitions } else { transitions.saturating_add(1) }),
        ..LeaseSpec::default()
    }
}

/// One process that wants to lead.
pub(crate) struct Election {
    pub(crate) api: Api<Lease>,
    pub(crate) options: LeaseOptions,
    pub(crate) gate: WriteGate,
    pub(crate) clock: std::sync::Arc<dyn Clock>,
    observed: Observed,
    lease: Option<Lease>,
}

impl Election {
    /// `client` must not go through the gate.
    pub(crate) fn new(
        client: kube::Client,
        options: LeaseOptions,
        gate: WriteGate,
        clock: std::sync::Arc<dyn Clock>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, &options.namespace),
            options,
            gate,
            clock,
            observed: Observed::default(),
            lease: None,
        }
    }

    /// Tries until the lease is ours. The gate is open from then on.
    ///
    /// # Cancellation
    /// A lease that was taken at the moment of cancellation expires by itself.
    pub(crate) async fn acquire(&mut self) {
        self.gate.close();
        info!(
            logger = "runtime",
            "attempting to acquire leader lease {}/{}...", self.options.namespace, self.options.name
        );
        loop {
            let started = Instant::now();
            match self.try_once().await {
                Ok(true) => {
                    self.gate.open_until(started + self.options.renew_deadline);
                    info!(
                        logger = "runtime",
                        "successfully acquired lease {}/{}", self.options.namespace, self.options.name
                    );
                    return;
                }
                Ok(false) => debug!("another process holds the lease"),
                Err(error) => error!(error = chain(&error), "failed to acquire the lease"),
            }
            let jitter = 1.0 + rand::rng().random_range(0.0..JITTER);
            sleep(self.options.retry_period.mul_f64(jitter)).await;
        }
    }

    /// Renews the lease until `stop`, then gives it up if asked to.
    ///
    /// # Errors
    /// [`LeaseLost`] if it could not be renewed within the deadline or someone else took it. The
    /// gate is closed by then.
    pub(crate) async fn hold(&mut self, stop: &CancellationToken) -> Result<(), LeaseLost> {
        let mut deadline = Instant::now() + self.options.renew_deadline;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = sleep(self.options.retry_period.min(deadline - Instant::now())) => {}
            }
            let started = Instant::now();
            let left = deadline.saturating_duration_since(started);
            match timeout(left, self.try_once()).await {
                Ok(Ok(true)) => {
                    deadline = started + self.options.renew_deadline;
                    self.gate.open_until(deadline);
                    continue;
                }
                // Someone else holds it: no need to wait for the deadline.
                Ok(Ok(false)) => deadline = started,
                Ok(Err(error)) => error!(error = chain(&error), "failed to renew the lease"),
                Err(_) => error!("failed to renew the lease: no answer"),
            }
            if Instant::now() >= deadline {
                self.gate.close();
                return Err(LeaseLost {
                    namespace: self.options.namespace.clone(),
                    name: self.options.name.clone(),
                });
            }
        }
    }

    /// Gives the lease up, so that another process can take it at once. The gate is closed before.
    pub(crate) async fn release(&mut self) {
        self.gate.close();
        let Some(mut lease) = self.lease.take().filter(|_| self.options.release_on_cancel) else {
            return;
        };
        let Some(record) = lease.spec.as_mut().filter(|record| holder(record) == self.options.identity)
        else {
            return;
        };
        let now = micros(self.clock.now());
        *record = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: record.lease_transitions,
            ..LeaseSpec::default()
        };
        if let Err(error) = self.api.replace(&self.options.name, &PostParams::default(), &lease).await {
            error!(error = chain(&error), "failed to release the lease");
        }
    }

    /// One try to get or keep the lease; whether it is ours.
    async fn try_once(&mut self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.api.get_opt(&self.options.name).await? else {
            return self.create().await;
        };
        let record = lease.spec.clone().unwrap_or_default();
        let now = Instant::now();
        self.observed.see(&record, now);
        match step(&record, &self.observed, &self.options, now, self.clock.now()) {
            Step::Wait => Ok(false),
            Step::Write(record) => {
                lease.spec = Some(*record);
                // The resource version makes sure that nobody else wrote in between.
                let written = self.api.replace(&self.options.name, &PostParams::default(), &lease).await;
                self.taken(written)
            }
        }
    }

    async fn create(&mut self) -> Result<bool, kube::Error> {
        let lease = Lease {
            metadata: ObjectMeta {
                namespace: Some(self.options.namespace.clone()),
                name: Some(self.options.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                lease_transitions: Some(0),
                ..claim(None, 0, &self.options, self.clock.now())
            }),
        };
        let written = self.api.create(&PostParams::default(), &lease).await;
        self.taken(written)
    }

    fn taken(&mut self, written: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
        match written {
            Ok(lease) => {
                if let Some(record) = &lease.spec {
                    self.observed.see(record, Instant::now());
                }
                self.lease = Some(lease);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
