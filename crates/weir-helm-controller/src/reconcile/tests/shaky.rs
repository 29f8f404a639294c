//! A cluster in memory on which one request goes wrong, or is the last one of the process.

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::Notify;
use weir_apply::cluster::{ApplyMode, Cluster, Events, WatchScope};
use weir_apply::write::{ClusterFacts, LogLimits, MergeKind, Propagation, WriteOptions};

use super::*;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The process dies before it is sent.
    DiesBefore,
    /// The process dies before the answer arrives.
    DiesAfter,
    /// It is refused.
    Refused,
    /// It is done, but the answer is an error.
    AnswerLost,
}

pub(super) const FAULTS: [Fault; 4] =
    [Fault::DiesBefore, Fault::DiesAfter, Fault::Refused, Fault::AnswerLost];

#[derive(Default)]
struct Plan {
    calls: usize,
    fault: Option<(usize, Fault)>,
}

/// The cluster.
pub(super) struct Shaky {
    pub(super) inner: Arc<MemoryCluster>,
    plan: Mutex<Plan>,
    died: Notify,
    violations: Mutex<Vec<String>>,
}

impl Shaky {
    pub(super) fn new(inner: Arc<MemoryCluster>) -> Self {
        Self { inner, plan: Mutex::default(), died: Notify::new(), violations: Mutex::default() }
    }

    /// Makes the request after the next `after` ones go wrong.
    pub(super) fn plan(&self, after: usize, fault: Fault) {
        let mut plan = self.plan.lock();
        plan.fault = Some((plan.calls + after, fault));
    }

    /// Nothing goes wrong from now on.
    pub(super) fn calm(&self) {
        self.plan.lock().fault = None;
    }

    /// How many requests there were.
    pub(super) fn calls(&self) -> usize {
        self.plan.lock().calls
    }

    /// Waits for the death of the process.
    pub(super) async fn died(&self) {
        self.died.notified().await;
    }

    /// What must never be, but was.
    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    /// One request.
    pub(super) async fn pass<T>(
        &self,
        request: impl Future<Output = Result<T, ClusterError>>,
    ) -> Result<T, ClusterError> {
        let fault = {
            let mut plan = self.plan.lock();
            let number = plan.calls;
            plan.calls += 1;
            plan.fault.filter(|(planned, _)| *planned == number).map(|(_, fault)| fault)
        };
        let refused = || {
            Err(ClusterError::Api {
                code: 500,
                reason: "InternalError".to_owned(),
                message: "not today".to_owned(),
            })
        };
        let answer = match fault {
            None => request.await,
            Some(Fault::Refused) => refused(),
            Some(Fault::AnswerLost) => {
                let _ = request.await;
                refused()
            }
            Some(fault) => {
                if fault == Fault::DiesAfter {
                    let _ = request.await;
                }
                self.look();
                self.died.notify_one();
                std::future::pending().await
            }
        };
        self.look();
        answer
    }

    /// Notes what must not be: two actions on a release at once.
    fn look(&self) {
        for (release, status) in self.releases() {
            if status.iter().filter(|status| status.starts_with("pending-")).count() > 1 {
                self.violations.lock().push(format!("two actions at once on {release}: {status:?}"));
            }
        }
    }

    /// The status of all records, by release.
    pub(super) fn releases(&self) -> HashMap<String, Vec<String>> {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let mut records: HashMap<String, Vec<String>> = HashMap::new();
        for item in self.inner.all() {
            if item["type"] == "helm.sh/release.v1" {
                let labels = &item["metadata"]["labels"];
                records.entry(text(&labels["name"])).or_default().push(text(&labels["status"]));
            }
        }
        records
    }
}

#[async_trait]
impl Cluster for Shaky {
    async fn get(&self, object: &ObjectRef) -> Result<Option<Value>, ClusterError> {
        self.pass(self.inner.get(object)).await
    }

    async fn list(
        &self,
        kind: &ObjectRef,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>, ClusterError> {
        self.pass(self.inner.list(kind, namespace, labels)).await
    }

    async fn apply(&self, object: &Value, mode: ApplyMode<'_>) -> Result<Value, ClusterError> {
        self.pass(self.inner.apply(object, mode)).await
    }

    async fn patch(
        &self,
        object: &ObjectRef,
        operations: &Value,
        manager: &str,
    ) -> Result<Value, ClusterError> {
        self.pass(self.inner.patch(object, operations, manager)).await
    }

    async fn delete(&self, object: &ObjectRef) -> Result<(), ClusterError> {
        self.pass(self.inner.delete(object)).await
    }

    async fn watch(&self, scope: &WatchScope) -> Result<Events, ClusterError> {
        self.pass(self.inner.watch(scope)).await
    }

    async fn is_namespaced(&self, kind: &ObjectRef) -> Result<bool, ClusterError> {
        self.inner.is_namespaced(kind).await
    }
}

#[async_trait]
impl WriteCluster for Shaky {
    async fn create(&self, object: &Value, options: WriteOptions<'_>) -> Result<Value, ClusterError> {
        self.pass(self.inner.create(object, options)).await
    }

    async fn replace(&self, object: &Value, options: WriteOptions<'_>) -> Result<Value, ClusterError> {
        self.pass(self.inner.replace(object, options)).await
    }

    async fn merge(
        &self,
        object: &ObjectRef,
        patch: &Value,
        kind: MergeKind,
        options: WriteOptions<'_>,
    ) -> Result<Value, ClusterError> {
        self.pass(self.inner.merge(object, patch, kind, options)).await
    }

    async fn apply_as(
        &self,
        object: &Value,
        force: bool,
        options: WriteOptions<'_>,
    ) -> Result<Value, ClusterError> {
        self.pass(self.inner.apply_as(object, force, options)).await
    }

    async fn delete_with(&self, object: &ObjectRef, propagation: Propagation) -> Result<(), ClusterError> {
        self.pass(self.inner.delete_with(object, propagation)).await
    }

    async fn pod_log(
        &self,
        pod: &ObjectRef,
        container: &str,
        limits: LogLimits,
    ) -> Result<String, ClusterError> {
        self.pass(self.inner.pod_log(pod, container, limits)).await
    }

    async fn facts(&self) -> Result<ClusterFacts, ClusterError> {
        self.inner.facts().await
    }
}
