//! One process of one or more controllers: its client, watches, controllers and shutdown.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::PartialObjectMeta;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use weir_base::clock::{Clock, SystemClock};

use crate::client::Wrapping;
use crate::driver::{Controller, Surroundings};
use crate::events::{HttpPost, send_to_kubernetes, send_to_receiver};
use crate::lease::Election;
use crate::{
    ControllerOptions, FeatureGates, GateError, Handle, LeaseLost, LeaseOptions, Metrics, Reconciler,
    Recorder, Store, Watched, WriteGate, flags, lease_name,
};

/// How long the tasks of a controller may take to end; runs have their own, shorter limit.
const END_LIMIT: Duration = Duration::from_secs(20);
/// How long queued events are still sent at the end.
const EVENTS_LIMIT: Duration = Duration::from_secs(5);
/// How often a watch that cannot list is named while everything waits for it.
const SYNC_REMINDER: Duration = Duration::from_secs(30);

/// The finalizer of all toolkit kinds.
pub const FINALIZER: &str = "finalizers.fluxcd.io";

/// What is fixed about a controller program.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The controller's name: lease, event source, user agent.
    pub name: &'static str,
    /// The version, for the user agent.
    pub version: &'static str,
    /// The field manager of status and finalizer writes.
    pub field_manager: &'static str,
    /// The default of `--concurrent` if it is not 4.
    pub concurrent: Option<&'static str>,
    /// Flags whose default comes from an environment variable: flag id (`metrics_addr`) and variable.
    pub environment: &'static [(&'static str, &'static str)],
    /// The feature gates and their defaults.
    pub feature_gates: &'static [(&'static str, bool)],
}

/// How this process does its work; [`Settings::new`] reads the flags.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The controller's name.
    pub name: String,
    /// The only namespace to watch; `None` for all.
    pub namespace: Option<String>,
    /// The namespace this process runs in (`RUNTIME_NAMESPACE`), if it is known.
    pub runtime_namespace: Option<String>,
    /// The label selector for the controller's own kinds; empty for all.
    pub primary_selector: String,
    /// The label selector for ConfigMaps and Secrets; empty for all.
    pub config_selector: String,
    /// The name of this machine or pod.
    pub host: String,
    /// The feature gates.
    pub gates: FeatureGates,
    /// The options controllers start from.
    pub controller: ControllerOptions,
}

impl Settings {
    /// The settings that the flags ask for.
    ///
    /// # Errors
    /// A feature gate that does not exist.
    pub fn new(program: &Program, common: &flags::Common) -> Result<Self, GateError> {
        Ok(Self {
            name: program.name.to_owned(),
            namespace: None,
            runtime_namespace: None,
            primary_selector: String::new(),
            config_selector: common.watch_configs_label_selector.clone(),
            host: String::new(),
            gates: FeatureGates::parse(program.feature_gates, &common.feature_gates)?,
            controller: ControllerOptions {
                concurrency: common.concurrent,
                field_manager: program.field_manager.to_owned(),
                finalizer: FINALIZER.to_owned(),
                retry_delay_min: common.min_retry_delay,
                retry_delay_max: common.max_retry_delay,
                interval_jitter: 0.0,
            },
        })
    }

    /// The same with `--watch-label-selector`.
    #[must_use]
    pub fn with_sharding(mut self, sharding: &flags::Sharding) -> Self {
        self.primary_selector.clone_from(&sharding.watch_label_selector);
        self
    }

    /// The same with `--interval-jitter-percentage`.
    #[must_use]
    pub fn with_jitter(mut self, jitter: &flags::Jitter) -> Self {
        self.controller.interval_jitter = f64::from(jitter.interval_jitter_percentage) / 100.0;
        self
    }

    /// The options of the lease that the flags ask for, in a namespace and with an identity.
    pub(crate) fn lease(&self, common: &flags::Common, namespace: String, identity: String) -> LeaseOptions {
        LeaseOptions {
            namespace,
            name: lease_name(&self.name, &self.primary_selector),
            identity,
            lease_duration: common.leader_election_lease_duration,
            renew_deadline: common.leader_election_renew_deadline,
            retry_period: common.leader_election_retry_period,
            release_on_cancel: common.leader_election_release_on_cancel,
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One process of one or more controllers. Set up watches and controllers, then [`run`](Self::run).
pub struct Runtime {
    settings: Settings,
    client: Client,
    /// The same client without the gate of the lease.
    standby_client: Client,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    metrics: Metrics,
    stop: CancellationToken,
    /// Ends the event senders.
    finish: CancellationToken,
    /// The event senders; run from the start until the very end.
    senders: Vec<Task>,
    /// Watches; run from the start.
    watches: Vec<Task>,
    /// Complete when their store has read in the first list.
    synced: Vec<(String, Task)>,
    /// Run from the start, whoever leads.
    always: Vec<Task>,
    /// Run while this process leads.
    leading: Vec<Task>,
    election: Option<Election>,
}

impl Runtime {
    /// A runtime on a given client, without listeners, lease and events: for tests and for
    /// processes that host several controllers.
    pub fn new(settings: Settings, client: Client) -> Self {
        let metrics = Metrics::new();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Self {
            settings,
            standby_client: client.clone(),
            client,
            recorder: Recorder::log_only(metrics.clone(), Arc::clone(&clock)),
            clock,
            metrics,
            stop: CancellationToken::new(),
            finish: CancellationToken::new(),
            senders: Vec::new(),
            watches: Vec::new(),
            synced: Vec::new(),
            always: Vec::new(),
            leading: Vec::new(),
            election: None,
        }
    }

    /// The same with another clock. Call it first.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.recorder = Recorder::log_only(self.metrics.clone(), Arc::clone(&clock));
        self.clock = clock;
        self
    }

    /// The same with a throttled and counted client that cannot write once the lease is lost.
    #[must_use]
    pub(crate) fn with_wrapping(mut self, wrapping: Wrapping) -> Self {
        let wrapping = Wrapping { metrics: Some(self.metrics.clone()), ..wrapping };
        self.standby_client =
            crate::client::wrap(self.client.clone(), Wrapping { gate: None, ..wrapping.clone() });
        self.client = crate::client::wrap(self.client, wrapping);
        self
    }

    /// The same, stopped by another token.
    #[must_use]
    pub(crate) fn with_stop(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// The same with Kubernetes events written. Call it before controllers are set up.
    #[must_use]
    pub fn with_events(self) -> Self {
        self.with_event_receiver(None)
    }

    /// The same with Kubernetes events, and posts to notification-controller if there is one.
    #[must_use]
    pub(crate) fn with_event_receiver(mut self, receiver: Option<HttpPost>) -> Self {
        let (recorder, queues) =
            Recorder::with_queues(self.metrics.clone(), Arc::clone(&self.clock), receiver.is_some());
        let (name, host) = (self.settings.name.clone(), self.settings.host.clone());
        for queue in queues.kubernetes {
            // Instances that do not lead have something to tell, too, if they serve.
            self.senders.push(Box::pin(send_to_kubernetes(
                queue,
                self.standby_client.clone(),
                name.clone(),
                host.clone(),
                self.metrics.clone(),
                self.finish.clone(),
            )));
        }
        if let Some(receiver) = receiver.map(Arc::new) {
            for queue in queues.receivers {
                self.senders.push(Box::pin(send_to_receiver(
                    queue,
                    Arc::clone(&receiver),
                    name.clone(),
                    host.clone(),
                    self.metrics.clone(),
                    self.finish.clone(),
                )));
            }
        }
        self.recorder = recorder;
        self
    }

    /// The same with leader election: controllers start only once this process holds the lease.
    /// `client` must not go through `gate`; the runtime's own client must.
    #[must_use]
    pub(crate) fn with_lease(mut self, client: Client, options: LeaseOptions, gate: WriteGate) -> Self {
        self.metrics.set_leading(&options.name, false);
        self.election = Some(Election::new(client, options, gate, Arc::clone(&self.clock)));
        self
    }

    /// The same with leader election through the runtime's own client: controllers start only once this process holds
    /// the lease, and what they write is refused once it is lost. For processes that host several controllers, and for
    /// tests.
    #[must_use]
    pub fn with_leader_election(self, options: LeaseOptions) -> Self {
        let (client, gate) = (self.client.clone(), WriteGate::default());
        let wrapping = Wrapping { gate: Some(gate.clone()), ..Wrapping::default() };
        self.with_wrapping(wrapping).with_lease(client, options, gate)
    }

    /// The client: throttled, counted, and unable to write once the lease is lost.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The client for what every instance does, whether it leads or not, such as answering a webhook:
    /// throttled and counted like [`client`](Self::client), but its writes do not depend on the lease.
    pub fn standby_client(&self) -> Client {
        self.standby_client.clone()
    }

    /// The clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Where events outside of a run go.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The metrics of the process, to add the controller's own.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Cancelled when the process is to stop; cancelling it stops the runtime.
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Watches the controller's own kind: limited by `--watch-label-selector` and to the namespace.
    pub fn watch_primary<K: Watched>(&mut self) -> Store<K> {
        let selector = self.settings.primary_selector.clone();
        self.watch_selected(&selector)
    }

    /// Watches another kind: limited to the namespace only.
    pub fn watch<K: Watched>(&mut self) -> Store<K> {
        self.watch_selected("")
    }

    /// Watches only the metadata of ConfigMaps or Secrets, limited by
    /// `--watch-configs-label-selector` and to the namespace.
    pub fn watch_config_metadata<K: Watched>(&mut self) -> Store<PartialObjectMeta<K>> {
        let selector = self.settings.config_selector.clone();
        self.watch_selected(&selector)
    }

    fn watch_selected<K: Watched>(&mut self, selector: &str) -> Store<K> {
        let store = Store::default();
        self.watches.push(Box::pin(crate::watch::keep(
            self.client.clone(),
            self.settings.namespace.clone(),
            selector.to_owned(),
            store.clone(),
            self.metrics.clone(),
        )));
        let waiting = store.clone();
        let synced = Box::pin(async move { waiting.synced().await });
        self.synced.push((K::kind(&()).into_owned(), synced));
        store
    }

    /// Runs a reconciler over the objects of a store while this process leads. `adjust` changes the
    /// options that the flags gave.
    pub fn controller<R: Reconciler>(
        &mut self,
        store: &Store<R::Object>,
        reconciler: R,
        adjust: impl FnOnce(&mut ControllerOptions),
    ) -> Handle {
        let mut options = self.settings.controller.clone();
        adjust(&mut options);
        let around = Surroundings {
            client: self.client.clone(),
            clock: Arc::clone(&self.clock),
            recorder: self.recorder.clone(),
            metrics: self.metrics.clone(),
            stop: self.stop.clone(),
        };
        let controller = Controller::new(reconciler, store.clone(), options, around);
        let handle = controller.handle();
        self.leading.push(Box::pin(controller.run()));
        handle
    }

    /// Runs something else while this process leads, such as the artifact file server. It should
    /// end when [`stop`](Self::stop) is cancelled, and is dropped a little later if it does not.
    pub fn while_leading(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.leading.push(Box::pin(task));
    }

    /// Runs something from the start, whether this process leads or not, such as a server every
    /// instance has. It should end when [`stop`](Self::stop) is cancelled, and is dropped a little
    /// later if it does not.
    pub fn always(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.always.push(Box::pin(task));
    }

    /// Runs everything until [`stop`](Self::stop) is cancelled.
    ///
    /// # Errors
    /// [`LeaseLost`]: all work was dropped and writes are refused; the process must end.
    ///
    /// # Cancellation
    /// Dropping the future drops all work at once and does not give up the lease.
    pub async fn run(self) -> Result<(), LeaseLost> {
        let mut background = JoinSet::new();
        let mut senders = JoinSet::new();
        let mut always = JoinSet::new();
        for task in self.always {
            always.spawn(task);
        }
        for task in self.watches {
            background.spawn(task);
        }
        for task in self.senders {
            senders.spawn(task);
        }
        let mut election = self.election;
        let ready = async {
            let leads = async {
                if let Some(election) = &mut election {
                    election.acquire().await;
                    self.metrics.set_leading(&election.options.name, true);
                }
            };
            tokio::join!(all_synced(self.synced), leads);
        };
        // Shutdown before the start: the lease, if it was taken meanwhile, is given up below.
        let started = tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = ready => true,
        };
        let mut result = Ok(());
        if started {
            info!("Starting workers");
            result = lead(self.leading, election.as_mut(), &self.stop).await;
        }
        if result.is_ok() {
            end(&mut always).await;
        }
        if let Some(election) = &mut election {
            self.metrics.set_leading(&election.options.name, false);
            if result.is_ok() {
                // Events are writes too, so they go before the lease does.
                self.finish.cancel();
                drain(&mut senders).await;
                election.release().await;
            }
        }
        self.finish.cancel();
        drain(&mut senders).await;
        result
    }
}

/// Waits for the first lists, and names those that keep it waiting.
async fn all_synced(stores: Vec<(String, Task)>) {
    for (kind, mut synced) in stores {
        while timeout(SYNC_REMINDER, &mut synced).await.is_err() {
            error!(kind, error = "the first list has not been read in", "waiting for caches to sync");
        }
    }
}

/// Runs the tasks until `stop` and until they have ended; holds the lease meanwhile.
async fn lead(
    tasks: Vec<Task>,
    election: Option<&mut Election>,
    stop: &CancellationToken,
) -> Result<(), LeaseLost> {
    let mut leading = JoinSet::new();
    for task in tasks {
        leading.spawn(task);
    }
    let ended = CancellationToken::new();
    let work = async {
        stop.cancelled().await;
        end(&mut leading).await;
        ended.cancel();
    };
    let Some(election) = election else {
        work.await;
        return Ok(());
    };
    tokio::select! {
        biased;
        // Returns only without the lease: `ended` is cancelled by the other branch.
        lost = election.hold(&ended) => lost,
        () = work => Ok(()),
    }
}

/// Waits a while for tasks that were told to stop.
async fn end(tasks: &mut JoinSet<()>) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if timeout(END_LIMIT, all).await.is_err() {
        error!(error = "some work did not end in time", "dropping it");
    }
}

async fn drain(senders: &mut JoinSet<()>) {
    let all = async { while senders.join_next().await.is_some() {} };
    if timeout(EVENTS_LIMIT, all).await.is_err() {
        error!(error = "events were still queued at the end", "unable to record event");
        senders.abort_all();
    }
}

#[cfg(test)]
mod tests;
