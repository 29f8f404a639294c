//! Running the controllers: they see each write, and act until nothing is left to do.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::auth::Identity;
use crate::cluster::{Inner, TestCluster};
use crate::controllers::{Api, Controllers, Table, WATCHED};
use crate::delete::{Options, Propagation};
use crate::kinds::Kind;
use crate::store::{self, Event};

/// The controllers of a cluster with what they have not seen yet.
#[derive(Default)]
pub(crate) struct Drive {
    controllers: Mutex<Controllers>,
    unseen: Mutex<VecDeque<(Table, Value)>>,
    /// Wakes whoever waits for the time when something is due.
    moved: tokio::sync::Notify,
}

impl TestCluster {
    /// Does what has become due; for clusters whose clock is set by hand. Returns when the next thing is due.
    pub fn tick(&self) -> Option<Timestamp> {
        self.inner.settle();
        self.inner.next_due()
    }

    /// Does what becomes due, in the time of the machine, for ever. Needs a Tokio runtime; [`TestCluster::serve`] runs
    /// it.
    pub async fn run_due(&self) {
        let Some(drive) = &self.inner.controllers else { return };
        loop {
            self.tick();
            // Listened to only now, as acting itself notifies; what moved since shows in what is due next.
            let moved = drive.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            match self.inner.next_due() {
                None => moved.await,
                Some(due) => {
                    let left = due.duration_since(self.inner.timestamp());
                    let left = std::time::Duration::try_from(left).unwrap_or_default();
                    tokio::select! {
                        () = &mut moved => {}
                        () = tokio::time::sleep(left) => {}
                    }
                }
            }
        }
    }
}

impl Inner {
    /// Shows a write to the controllers; whether one of them wants to see it.
    pub(crate) fn notice(&self, event: &Event, table: &Arc<str>) -> bool {
        let Some(drive) = &self.controllers else { return false };
        let Some(watched) = WATCHED.iter().find(|watched| {
            table
                .split_once('/')
                .is_some_and(|(group, plural)| group == watched.group && plural == watched.plural)
        }) else {
            return false;
        };
        let kinds = self.kinds();
        let Some(kind) = kinds.at(watched.group, watched.version, watched.plural) else { return false };
        let value = self.value_as(kind, &event.object);
        drive.unseen.lock().push_back((*watched, value));
        true
    }

    /// Lets the controllers do one thing; `false` when nothing is left to do now.
    pub(crate) fn step_controllers(&self) -> bool {
        let Some(drive) = &self.controllers else { return false };
        let mut controllers = drive.controllers.lock();
        while let Some((table, value)) = drive.unseen.lock().pop_front() {
            controllers.notice(table, &value);
        }
        controllers.run_one(self)
    }

    /// Whether the controllers have seen all writes.
    pub(crate) fn nothing_unseen(&self) -> bool {
        self.controllers.as_ref().is_none_or(|drive| drive.unseen.lock().is_empty())
    }

    /// Lets whoever waits for the next thing that is due look again when it is.
    pub(crate) fn time_moved(&self) {
        if let Some(drive) = &self.controllers {
            drive.moved.notify_waiters();
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        let controllers = self.controllers.as_ref()?.controllers.lock();
        if controllers.is_idle() { controllers.next_due() } else { Some(self.timestamp()) }
    }

    /// Shows the controllers what there is already.
    pub(crate) fn start_controllers(&self) {
        let Some(drive) = &self.controllers else { return };
        let kinds = self.kinds();
        for table in WATCHED {
            let Some(kind) = kinds.at(table.group, table.version, table.plural) else { continue };
            for stored in self.store.list(&kind.table, "").objects {
                drive.unseen.lock().push_back((*table, self.value_as(kind, &stored)));
            }
        }
        Controllers::bootstrap(self);
        self.settle();
    }

    fn kind_of(&self, table: Table) -> Option<Arc<Kind>> {
        self.kinds().at(table.group, table.version, table.plural).cloned()
    }
}

impl Api for Inner {
    fn now(&self) -> Timestamp {
        self.timestamp()
    }

    fn get(&self, table: Table, namespace: &str, name: &str) -> Option<Value> {
        let kind = self.kind_of(table)?;
        let stored = self.store.get(&kind.table, &store::key(namespace, name))?;
        Some(self.value_as(&kind, &stored))
    }

    fn list(&self, table: Table, namespace: &str) -> Vec<Value> {
        let Some(kind) = self.kind_of(table) else { return Vec::new() };
        let listing = self.store.list(&kind.table, namespace);
        listing.objects.iter().map(|stored| self.value_as(&kind, stored)).collect()
    }

    fn create(&self, table: Table, object: Value) -> Result<Value, String> {
        let kind = self.kind_of(table).ok_or_else(|| format!("{} is not served", table.plural))?;
        let namespace = crate::meta::text(&object, "namespace").to_owned();
        let name = crate::meta::text(&object, "name").to_owned();
        self.check_namespace(&kind, &namespace, &name).map_err(|error| error.message)?;
        let bytes = self
            .create_object(&kind, object, Some("kube-controller-manager"))
            .map_err(|error| error.message)?;
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }

    fn amend(&self, table: Table, namespace: &str, name: &str, change: &dyn Fn(&mut Value)) {
        let Some(kind) = self.kind_of(table) else { return };
        if let Some(stored) = self.store.get(&kind.table, &store::key(namespace, name)) {
            Inner::amend(self, &kind, &stored, change);
        }
    }

    fn delete(&self, table: Table, namespace: &str, name: &str, now: bool) {
        let Some(kind) = self.kind_of(table) else { return };
        let options = Options {
            propagation: Some(Propagation::Background),
            grace_seconds: now.then_some(0),
            ..Options::default()
        };
        // What is gone already need not be deleted.
        let _ = self.delete_object(&kind, namespace, name, &options);
    }

    fn token(&self, namespace: &str, account: &str) -> String {
        let subject = Identity::service_account(namespace, account).user;
        self.tokens.issue(&json!({
            "iss": "kubernetes/serviceaccount",
            "sub": subject,
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account}},
        }))
    }
}
