//! One process of one or more controllers: its client, watches, controllers and shutdown.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::core::PartialObjectMeta;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use weir_base::clock::{Clock, SystemClock};

use crate::driver::Controller;
use crate::{ControllerOptions, Handle, Reconciler, Recorder, Store, flags};

/// What is fixed about a controller program.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The controller's name: lease, event source, user agent, default field manager.
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

/// The finalizer of all toolkit kinds.
pub const FINALIZER: &str = "finalizers.fluxcd.io";

/// How this process does its work; [`Settings::new`] reads the flags.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The only namespace to watch; `None` for all.
    pub namespace: Option<String>,
    /// The label selector for the controller's own kinds; empty for all.
    pub primary_selector: String,
    /// The label selector for ConfigMaps and Secrets; empty for all.
    pub config_selector: String,
    /// The options controllers start from.
    pub controller: ControllerOptions,
}

impl Settings {
    /// The settings that the flags ask for.
    pub fn new(program: &Program, common: &flags::Common) -> Self {
        Self {
            namespace: None,
            primary_selector: String::new(),
            config_selector: common.watch_configs_label_selector.clone(),
            controller: ControllerOptions {
                concurrency: common.concurrent,
                field_manager: program.field_manager.to_owned(),
                finalizer: FINALIZER.to_owned(),
                retry_delay_min: common.min_retry_delay,
                retry_delay_max: common.max_retry_delay,
                interval_jitter: 0.0,
            },
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One process of one or more controllers. Set up watches and controllers, then [`run`](Self::run).
pub struct Runtime {
    settings: Settings,
    client: Client,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    stop: CancellationToken,
    /// Watches; run from the start.
    watches: Vec<Task>,
    /// Complete when their store has read in the first list.
    synced: Vec<Task>,
    /// Run while this process leads.
    leading: Vec<Task>,
}

impl Runtime {
    /// A runtime on a given client, without listeners, lease and event sender: for tests and for
    /// processes that host several controllers.
    pub fn new(settings: Settings, client: Client) -> Self {
        Self {
            settings,
            client,
            clock: Arc::new(SystemClock),
            recorder: Recorder::log_only(),
            stop: CancellationToken::new(),
            watches: Vec::new(),
            synced: Vec::new(),
            leading: Vec::new(),
        }
    }

    /// The same with another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The client: throttled, counted, and unable to write once the lease is lost.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Where events outside of a run go.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
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
    pub fn watch_primary<K>(&mut self) -> Store<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let selector = self.settings.primary_selector.clone();
        self.watch_selected(&selector)
    }

    /// Watches another kind: limited to the namespace only.
    pub fn watch<K>(&mut self) -> Store<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        self.watch_selected("")
    }

    /// Watches only the metadata of ConfigMaps or Secrets, limited by
    /// `--watch-configs-label-selector` and to the namespace.
    pub fn watch_config_metadata<K>(&mut self) -> Store<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let selector = self.settings.config_selector.clone();
        self.watch_selected(&selector)
    }

    fn watch_selected<K>(&mut self, selector: &str) -> Store<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let store = Store::default();
        self.watches.push(Box::pin(crate::watch::keep(
            self.client.clone(),
            self.settings.namespace.clone(),
            selector.to_owned(),
            store.clone(),
        )));
        let waiting = store.clone();
        self.synced
            .push(Box::pin(async move { waiting.synced().await }));
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
        let controller = Controller::new(
            reconciler,
            store.clone(),
            options,
            self.client.clone(),
            Arc::clone(&self.clock),
            self.recorder.clone(),
            self.stop.clone(),
        );
        let handle = controller.handle();
        self.leading.push(Box::pin(controller.run()));
        handle
    }

    /// Runs something else while this process leads, such as the artifact file server. It should
    /// end when [`stop`](Self::stop) is cancelled, and is dropped a little later if it does not.
    pub fn while_leading(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.leading.push(Box::pin(task));
    }

    /// Runs everything until [`stop`](Self::stop) is cancelled.
    pub async fn run(self) {
        let mut watches = JoinSet::new();
        for watch in self.watches {
            watches.spawn(watch);
        }
        tokio::select! {
            () = self.stop.cancelled() => return,
            _ = futures::future::join_all(self.synced) => {}
        }
        let mut leading = JoinSet::new();
        for task in self.leading {
            leading.spawn(task);
        }
        self.stop.cancelled().await;
        let ended = async { while leading.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_secs(20), ended).await;
    }
}
