//! What makes stored objects live: the controllers of a cluster and its kubelet.
//!
//! They are functions that the server calls when objects change, not tasks: [`Controllers::notice`] takes note of what
//! changed, [`Controllers::run`] does what follows, and [`Controllers::next_due`] says when something is due though
//! nothing changes. So a simulated clock drives all of it, and the same events give the same objects.

mod accounts;
mod budget;
pub(crate) mod cron;
mod cron_job;
mod daemon_set;
mod deployment;
mod endpoints;
mod job;
mod kubelet;
mod node;
mod part;
mod replica_set;
mod revision;
mod stateful_set;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use jiff::Timestamp;
use serde_json::Value;

use crate::GroupVersionKind;
use crate::builtin::tree::text;

/// A built-in kind that controllers read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table {
    /// Empty for the core group.
    pub group: &'static str,
    /// As in `v1`.
    pub version: &'static str,
    /// As in `pods`.
    pub plural: &'static str,
    /// As in `Pod`.
    pub kind: &'static str,
}

impl Table {
    const fn new(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self { group, version, plural, kind }
    }

    /// The kind with its group and version.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::new(self.group, self.version, self.kind)
    }
}

pub(crate) const PODS: Table = Table::new("", "v1", "pods", "Pod");
pub(crate) const NODES: Table = Table::new("", "v1", "nodes", "Node");
pub(crate) const NAMESPACES: Table = Table::new("", "v1", "namespaces", "Namespace");
pub(crate) const SERVICES: Table = Table::new("", "v1", "services", "Service");
pub(crate) const ENDPOINTS: Table = Table::new("", "v1", "endpoints", "Endpoints");
pub(crate) const SLICES: Table = Table::new("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");
pub(crate) const CONFIG_MAPS: Table = Table::new("", "v1", "configmaps", "ConfigMap");
pub(crate) const SECRETS: Table = Table::new("", "v1", "secrets", "Secret");
pub(crate) const ACCOUNTS: Table = Table::new("", "v1", "serviceaccounts", "ServiceAccount");
pub(crate) const CLAIMS: Table = Table::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
pub(crate) const VOLUMES: Table = Table::new("", "v1", "persistentvolumes", "PersistentVolume");
pub(crate) const EVENTS: Table = Table::new("", "v1", "events", "Event");
pub(crate) const DEPLOYMENTS: Table = Table::new("apps", "v1", "deployments", "Deployment");
pub(crate) const REPLICA_SETS: Table = Table::new("apps", "v1", "replicasets", "ReplicaSet");
pub(crate) const STATEFUL_SETS: Table = Table::new("apps", "v1", "statefulsets", "StatefulSet");
pub(crate) const DAEMON_SETS: Table = Table::new("apps", "v1", "daemonsets", "DaemonSet");
pub(crate) const REVISIONS: Table = Table::new("apps", "v1", "controllerrevisions", "ControllerRevision");
pub(crate) const JOBS: Table = Table::new("batch", "v1", "jobs", "Job");
pub(crate) const CRON_JOBS: Table = Table::new("batch", "v1", "cronjobs", "CronJob");
pub(crate) const BUDGETS: Table = Table::new("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget");

/// All kinds whose changes controllers want to see.
pub const WATCHED: &[Table] = &[
    PODS,
    NODES,
    NAMESPACES,
    SERVICES,
    CONFIG_MAPS,
    SECRETS,
    ACCOUNTS,
    CLAIMS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    JOBS,
    CRON_JOBS,
    BUDGETS,
];

/// The API as controllers use it, with all rights. Objects have their `apiVersion` and `kind`.
pub trait Api {
    /// The time.
    fn now(&self) -> Timestamp;
    /// One object; `namespace` is empty for kinds without namespaces.
    fn get(&self, table: Table, namespace: &str, name: &str) -> Option<Value>;
    /// The objects of a namespace, or of all for an empty one, by name.
    fn list(&self, table: Table, namespace: &str) -> Vec<Value>;
    /// Creates an object as a request would, with defaults and validation, and returns it.
    ///
    /// # Errors
    /// Why it was refused.
    fn create(&self, table: Table, object: Value) -> Result<Value, String>;
    /// Changes the stored object without rules; does nothing when it is gone or `change` leaves it as it is.
    fn amend(&self, table: Table, namespace: &str, name: &str, change: &dyn Fn(&mut Value));
    /// Deletes an object as a request would, in the background; with `now` without any grace period.
    fn delete(&self, table: Table, namespace: &str, name: &str, now: bool);
    /// A token of a service account for a secret.
    fn token(&self, namespace: &str, account: &str) -> String;
}

/// Something that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Work {
    task: Task,
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    Namespace,
    TokenSecret,
    Claim,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    Pod,
    Service,
    Budget,
    /// All pods of a namespace that wait for something.
    WaitingPods,
    /// All pods and daemon sets, when nodes change.
    Nodes,
}

impl Task {
    /// What looks at an object of a kind.
    fn of(table: Table) -> Option<Self> {
        Some(match table {
            NAMESPACES => Self::Namespace,
            SECRETS => Self::TokenSecret,
            CLAIMS => Self::Claim,
            DEPLOYMENTS => Self::Deployment,
            REPLICA_SETS => Self::ReplicaSet,
            STATEFUL_SETS => Self::StatefulSet,
            DAEMON_SETS => Self::DaemonSet,
            JOBS => Self::Job,
            CRON_JOBS => Self::CronJob,
            PODS => Self::Pod,
            SERVICES => Self::Service,
            BUDGETS => Self::Budget,
            _ => return None,
        })
    }
}

/// No more than this many steps in one [`Controllers::run`]: two controllers that undo each other must not go on for
/// ever.
const STEPS_MAX: usize = 200_000;

/// The first wait after a failure; each is twice as long as the one before.
const RETRY_MS: i64 = 100;
const RETRY_MS_MAX: i64 = 300_000;

/// The controllers of one cluster: what is to be looked at now, and what later.
#[derive(Debug, Default)]
pub struct Controllers {
    queue: VecDeque<Work>,
    queued: BTreeSet<Work>,
    timers: BTreeMap<Timestamp, BTreeSet<Work>>,
    /// When pods were bound and what their containers went through, by uid; more precise than the times they show.
    pods: HashMap<String, kubelet::Life>,
    /// How often something failed in a row.
    failures: BTreeMap<Work, u32>,
    serial: u64,
}

impl Controllers {
    /// Nothing has been noticed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes what every cluster has from the start: nodes. Existing objects must be noticed by the caller.
    pub fn bootstrap(api: &dyn Api) {
        node::bootstrap(api);
    }

    /// Takes note that an object was created, changed or, with its last state, deleted.
    pub fn notice(&mut self, table: Table, object: &Value) {
        let metadata = &object["metadata"];
        let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
        if let Some(task) = Task::of(table) {
            self.push(task, namespace, name);
        }
        if let Some(owner) = part::controller_of(object) {
            let task = match text(owner, "kind") {
                "Deployment" => Some(Task::Deployment),
                "ReplicaSet" => Some(Task::ReplicaSet),
                "StatefulSet" => Some(Task::StatefulSet),
                "DaemonSet" => Some(Task::DaemonSet),
                "Job" => Some(Task::Job),
                "CronJob" => Some(Task::CronJob),
                _ => None,
            };
            if let Some(task) = task {
                self.push(task, namespace, text(owner, "name"));
            }
        }
        match table {
            // Services and budgets select pods by labels: the namespace's are looked at again.
            PODS => {
                self.push(Task::Service, namespace, "");
                self.push(Task::Budget, namespace, "");
            }
            CONFIG_MAPS | SECRETS | CLAIMS => self.push(Task::WaitingPods, namespace, ""),
            ACCOUNTS => self.push(Task::Namespace, "", namespace),
            NODES => self.push(Task::Nodes, "", ""),
            _ => {}
        }
    }

    /// Does what follows from what was noticed and from the time, until nothing is left; returns the number of steps.
    ///
    /// Writes made here must come back through [`Controllers::notice`], at once or before the next call; `drain` hands
    /// over those that were noted elsewhere meanwhile.
    pub fn run(&mut self, api: &dyn Api, drain: &mut dyn FnMut(&mut Self)) -> usize {
        let mut steps = 0;
        loop {
            drain(self);
            if steps >= STEPS_MAX || !self.run_one(api) {
                return steps;
            }
            steps += 1;
        }
    }

    /// Does the next thing that follows from what was noticed and from the time; `false` when there is none.
    pub fn run_one(&mut self, api: &dyn Api) -> bool {
        self.wake(api.now());
        let Some(work) = self.queue.pop_front() else { return false };
        self.queued.remove(&work);
        self.step(api, &work);
        true
    }

    /// When something is due though nothing changes.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timers.keys().next().copied()
    }

    /// Whether nothing is left to do now.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn push(&mut self, task: Task, namespace: &str, name: &str) {
        let work = Work { task, namespace: namespace.to_owned(), name: name.to_owned() };
        if self.queued.insert(work.clone()) {
            self.queue.push_back(work);
        }
    }

    fn wake(&mut self, now: Timestamp) {
        while let Some(entry) = self.timers.first_entry().filter(|entry| *entry.key() <= now) {
            for work in entry.remove() {
                if self.queued.insert(work.clone()) {
                    self.queue.push_back(work);
                }
            }
        }
    }

    /// Looks at something again at a time; a time that has come already is now.
    fn later(&mut self, at: Timestamp, task: Task, namespace: &str, name: &str) {
        let work = Work { task, namespace: namespace.to_owned(), name: name.to_owned() };
        self.timers.entry(at).or_default().insert(work);
    }

    /// Looks at something again that failed: soon at first, then later and later.
    fn retry(&mut self, now: Timestamp, task: Task, namespace: &str, name: &str) {
        let work = Work { task, namespace: namespace.to_owned(), name: name.to_owned() };
        let failures = self.failures.entry(work).or_default();
        let wait = RETRY_MS.saturating_mul(1 << (*failures).min(20)).min(RETRY_MS_MAX);
        *failures += 1;
        self.later(part::after_ms(now, wait), task, namespace, name);
    }

    /// Forgets the failures of something that went well.
    fn succeeded(&mut self, task: Task, namespace: &str, name: &str) {
        if !self.failures.is_empty() {
            let work = Work { task, namespace: namespace.to_owned(), name: name.to_owned() };
            self.failures.remove(&work);
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn step(&mut self, api: &dyn Api, work: &Work) {
        let (namespace, name) = (work.namespace.as_str(), work.name.as_str());
        match work.task {
            Task::Namespace => accounts::look_at_namespace(api, name),
            Task::TokenSecret => accounts::look_at_secret(api, namespace, name),
            Task::Claim => storage::look_at_claim(api, namespace, name),
            Task::Deployment => deployment::look(self, api, namespace, name),
            Task::ReplicaSet => replica_set::look(self, api, namespace, name),
            Task::StatefulSet => stateful_set::look(self, api, namespace, name),
            Task::DaemonSet => daemon_set::look(self, api, namespace, name),
            Task::Job => job::look(self, api, namespace, name),
            Task::CronJob => cron_job::look(self, api, namespace, name),
            Task::Pod => kubelet::look(self, api, namespace, name),
            Task::Service => {
                if name.is_empty() {
                    for service in api.list(SERVICES, namespace) {
                        self.push(Task::Service, namespace, text(&service["metadata"], "name"));
                    }
                } else {
                    endpoints::look(api, namespace, name);
                }
            }
            Task::Budget => {
                for budget in api.list(BUDGETS, namespace) {
                    if name.is_empty() || text(&budget["metadata"], "name") == name {
                        budget::look(api, &budget);
                    }
                }
            }
            Task::WaitingPods => {
                for pod in api.list(PODS, namespace) {
                    if kubelet::waits(&pod) {
                        self.push(Task::Pod, namespace, text(&pod["metadata"], "name"));
                    }
                }
            }
            Task::Nodes => {
                for set in api.list(DAEMON_SETS, "") {
                    self.push(
                        Task::DaemonSet,
                        text(&set["metadata"], "namespace"),
                        text(&set["metadata"], "name"),
                    );
                }
                for pod in api.list(PODS, "") {
                    if kubelet::waits(&pod) {
                        self.push(
                            Task::Pod,
                            text(&pod["metadata"], "namespace"),
                            text(&pod["metadata"], "name"),
                        );
                    }
                }
            }
        }
    }
}
