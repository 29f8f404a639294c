//! Keeps a store up to date.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use rand::RngExt as _;
use tokio::time::sleep;
use tracing::{debug, error};
use weir_base::error::chain;

use crate::{Metrics, ObjectKey, Store, Watched};

/// The wait after the first failed list or watch; doubled after each further one.
const WAIT_MIN: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Lists and watches a kind for as long as it is polled, and writes what it sees into the store.
///
/// Errors are logged and tried again with a growing delay. An expired watch (410) lists again. An
/// object that does not decode is logged and treated as absent; the others go on.
pub(crate) async fn keep<K: Watched>(
    client: Client,
    namespace: Option<String>,
    selector: String,
    store: Store<K>,
    metrics: Metrics,
) {
    let api: Api<DeserializeGuard<K>> = match namespace {
        Some(namespace) => Api::namespaced(client, &namespace),
        None => Api::all(client),
    };
    let mut config = watcher::Config::default();
    if !selector.is_empty() {
        config = config.labels(&selector);
    }
    let mut events = pin!(watcher(api, config));
    let mut listed = Vec::new();
    let mut wait = WAIT_MIN;
    while let Some(event) = events.next().await {
        if event.is_ok() {
            wait = WAIT_MIN;
        }
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.extend(decoded(object)),
            Ok(Event::InitDone) => {
                debug!(kind = %K::kind(&()), objects = listed.len(), "listed objects");
                store.replace(std::mem::take(&mut listed));
            }
            Ok(Event::Apply(object)) => {
                let key = ObjectKey::of(&object);
                match decoded(object) {
                    Some(object) => store.apply(object),
                    None => store.remove(&key),
                }
            }
            Ok(Event::Delete(object)) => store.remove(&ObjectKey::of(&object)),
            // Nothing is wrong: the list starts over at once.
            Err(watcher::Error::WatchError(status)) if status.code == 410 => {
                debug!(kind = %K::kind(&()), "the watch has expired");
            }
            Err(error) => {
                metrics.watch_error(&K::kind(&()));
                error!(error = chain(&error), kind = %K::kind(&()), "failed to watch");
                let jitter = rand::rng().random_range(0.5..1.0);
                sleep(wait.mul_f64(jitter)).await;
                wait = (wait * 2).min(WAIT_MAX);
            }
        }
        metrics.set_watched_objects(&K::kind(&()), store.len());
    }
}

fn decoded<K: Resource<DynamicType = ()>>(object: DeserializeGuard<K>) -> Option<K> {
    match object.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            error!(
                error = invalid.error,
                kind = %K::kind(&()),
                namespace = invalid.metadata.namespace.unwrap_or_default(),
                name = invalid.metadata.name.unwrap_or_default(),
                "failed to decode object"
            );
            None
        }
    }
}
