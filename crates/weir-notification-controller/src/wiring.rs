//! Connects watches, listeners and controllers.

use std::sync::Arc;

use tracing::info;
use weir_api::notification::{Alert, Provider, Receiver};
use weir_runtime::{Runtime, Store};

use crate::events::EventServer;
use crate::server::{self, Handler, HttpMetrics, Limits};
use crate::settings::{Flags, Settings};
use crate::webhook::WebhookServer;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

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
    let events = EventServer::new(runtime, &settings, &stores);
    let metrics =
        HttpMetrics::new("gotk_event_http", "/", settings.export_http_path_metrics, &runtime.metrics());
    serve(runtime, "event server", &settings.events_addr, events, metrics).await?;
    let webhooks = WebhookServer::new(runtime, &settings, &stores);
    let metrics = HttpMetrics::new(
        "gotk_receiver_http",
        "/hook/",
        settings.export_http_path_metrics,
        &runtime.metrics(),
    );
    serve(runtime, "receiver server", &settings.receiver_addr, webhooks, metrics).await
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
