//! Keeps the finalizers of kinds that have no status and are not reconciled otherwise.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::error;
use weir_base::error::chain;
use weir_runtime::{Change, FINALIZER, ObjectKey, Store, Watched};

use crate::settings::PROGRAM;

/// The wait after a write that failed.
const RETRY_WAIT: Duration = Duration::from_secs(2);

/// What is to happen to the finalizer of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It should be there.
    Add,
    /// It should not be there.
    Remove,
    /// It stays as it is.
    Leave,
}

/// Whether an object has our finalizer.
pub(crate) fn is_held<K: Watched>(object: &K) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Brings finalizers to what `wanted` says until `stop`; calls `removed` after it has removed one.
pub(crate) async fn keep<K: Watched>(
    client: Client,
    store: Store<K>,
    wanted: fn(&K) -> Wanted,
    removed: impl Fn(&K) + Send + Sync + 'static,
    stop: CancellationToken,
) {
    let pending: Arc<Mutex<BTreeSet<ObjectKey>>> = Arc::default();
    let changed = Arc::new(Notify::new());
    let (sink, wake) = (Arc::clone(&pending), Arc::clone(&changed));
    store.on_change(move |change| {
        if !matches!(change, Change::Deleted(_)) && wanted(change.object()) != Wanted::Leave {
            sink.lock().insert(ObjectKey::of(&**change.object()));
            wake.notify_one();
        }
    });
    // What was read in before.
    pending.lock().extend(store.list().iter().map(|object| ObjectKey::of(&**object)));
    changed.notify_one();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changed.notified() => {}
        }
        let keys = std::mem::take(&mut *pending.lock());
        let mut failed = false;
        for key in keys {
            let Some(object) = store.get(&key) else { continue };
            match write(&client, &*object, wanted(&object)).await {
                Ok(false) => {}
                Ok(true) => {
                    if wanted(&object) == Wanted::Remove {
                        removed(&object);
                    }
                }
                Err(problem) => {
                    error!(error = chain(&problem), object = %key, "failed to patch finalizers");
                    pending.lock().insert(key);
                    failed = true;
                }
            }
        }
        if failed {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep(RETRY_WAIT) => changed.notify_one(),
            }
        }
    }
}

/// Writes the finalizers if they have to change; whether they were.
async fn write<K: Watched>(client: &Client, object: &K, wanted: Wanted) -> Result<bool, kube::Error> {
    let others = object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned();
    let mut finalizers: Vec<String> = others.collect();
    match (wanted, is_held(object)) {
        (Wanted::Leave, _) | (Wanted::Add, true) | (Wanted::Remove, false) => return Ok(false),
        (Wanted::Add, false) => finalizers.push(FINALIZER.to_owned()),
        (Wanted::Remove, true) => {}
    }
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    // The version keeps finalizers that others set meanwhile.
    let patch = json!({"metadata": {
        "resourceVersion": object.resource_version(),
        "finalizers": if finalizers.is_empty() { None } else { Some(finalizers) },
    }});
    match api
        .patch(&object.name_any(), &PatchParams::apply(PROGRAM.field_manager), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(true),
        // Gone, or changed: the watch tells, and what is wanted is decided anew.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}
