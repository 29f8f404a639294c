//! Connects watches, listeners and controllers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use tracing::info;
use weir_api::notification::{Alert, Provider, Receiver};
use weir_notify::receiver::{Checker, KeySource};
use weir_runtime::{Change, Handle, ObjectKey, Priority, Runtime, Store, Trigger};

use crate::events::EventServer;
use crate::receiver::ReceiverReconciler;
use crate::server::{self, Handler, HttpMetrics, Limits};
use crate::settings::{Flags, Settings};
use crate::webhook::WebhookServer;
use crate::{alert, finalizers, provider};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How the metrics of the event server begin.
pub(crate) const EVENT_METRICS: &str = "gotk_event_http";
/// How the metrics of the webhook server begin.
pub(crate) const WEBHOOK_METRICS: &str = "gotk_receiver_http";

/// The objects of this controller's kinds.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Which webhooks reconcile what.
    pub receivers: Store<Receiver>,
    /// Where events go.
    pub providers: Store<Provider>,
    /// Which events go there.
    pub alerts: Store<Alert>,
}

/// Adds the servers and the controllers to a runtime.
///
/// # Errors
/// Flags that cannot work together, or an address that cannot be listened on.
pub async fn set_up(runtime: &mut Runtime, flags: &Flags) -> Result<(), BoxError> {
    let settings = Settings::new(flags, runtime.settings().gates.clone())?;
    let stores = Stores {
        receivers: runtime.watch_primary(),
        providers: runtime.watch_primary(),
        alerts: runtime.watch_primary(),
    };
    let events = EventServer::new(runtime, &settings, &stores)?;
    let metrics = HttpMetrics::new(EVENT_METRICS, "/", settings.export_http_path_metrics, &runtime.metrics());
    serve(runtime, "event server", &settings.events_addr, events, metrics).await?;
    let checker = Checker::new(KeySource::new()?, runtime.clock());
    // Every instance takes webhooks, so its writes do not depend on the lease.
    let webhooks = WebhookServer::new(
        runtime.standby_client(),
        &stores.receivers,
        checker,
        runtime.clock(),
        settings.no_cross_namespace_refs,
    );
    let metrics =
        HttpMetrics::new(WEBHOOK_METRICS, "/hook/", settings.export_http_path_metrics, &runtime.metrics());
    serve(runtime, "receiver server", &settings.receiver_addr, webhooks, metrics).await?;
    let reconciler = ReceiverReconciler { client: runtime.client() };
    let handle = runtime.controller(&stores.receivers, reconciler, |_| {});
    keep_finalizers(runtime, &stores);
    if !settings.gates.enabled("DisableConfigWatchers") {
        follow_secrets(runtime, &stores.receivers, &handle);
    }
    Ok(())
}

/// Providers have the finalizer, Alerts no longer do.
fn keep_finalizers(runtime: &mut Runtime, stores: &Stores) {
    let (client, stop, recorder) = (runtime.client(), runtime.stop(), runtime.recorder());
    let providers = stores.providers.clone();
    let (provider_client, provider_stop) = (client.clone(), stop.clone());
    runtime.while_leading(finalizers::keep(
        provider_client,
        providers,
        provider::finalizer,
        |_| {},
        provider_stop,
    ));
    let migrated = move |alert: &Alert| alert::migrated(&recorder, alert);
    runtime.while_leading(finalizers::keep(client, stores.alerts.clone(), alert::finalizer, migrated, stop));
}

/// Receivers run when their Secret changes or goes.
fn follow_secrets(runtime: &mut Runtime, receivers: &Store<Receiver>, handle: &Handle) {
    let by_secret = receivers.index(|receiver: &Receiver| {
        let namespace = receiver.namespace().unwrap_or_default();
        let secret = receiver.spec.secret_ref.as_ref();
        secret
            .map(|secret| ObjectKey::new(namespace.as_str(), secret.name.as_str()).to_string())
            .into_iter()
            .collect()
    });
    let handle = handle.clone();
    runtime.watch_config_metadata::<Secret>().on_change(move |change| {
        if matches!(change, Change::Added { initial: true, .. }) {
            return;
        }
        let key = ObjectKey::of(&**change.object());
        let trigger = Trigger { kind: "Secret".to_owned(), key };
        for receiver in by_secret.get(&trigger.key.to_string()) {
            handle.enqueue(&ObjectKey::of(&*receiver), Priority::Event, &trigger);
        }
    });
}

async fn serve<H: Handler>(
    runtime: &mut Runtime,
    name: &'static str,
    address: &str,
    handler: H,
    metrics: HttpMetrics,
) -> Result<(), BoxError> {
    let listener = weir_runtime::listen(address).await?;
    info!(addr = address, "starting {name}");
    let stop = runtime.stop();
    runtime.always(server::serve(listener, Arc::new(handler), Limits::default(), metrics, stop));
    Ok(())
}
