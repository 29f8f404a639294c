//! The event server: what controllers post.

use http::StatusCode;
use weir_runtime::Runtime;

use crate::server::{Answer, Handler, Request};
use crate::settings::Settings;
use crate::wiring::Stores;

/// Takes the events that controllers post.
#[derive(Debug)]
pub struct EventServer {
    stores: Stores,
}

impl EventServer {
    /// The event server of a process.
    pub fn new(_runtime: &mut Runtime, _settings: &Settings, stores: &Stores) -> Self {
        Self { stores: stores.clone() }
    }
}

impl Handler for EventServer {
    async fn handle(&self, request: Request) -> Answer {
        if serde_json::from_slice::<serde_json::Value>(&request.body).is_err() {
            return Answer::status(StatusCode::BAD_REQUEST);
        }
        tracing::debug!(
            alerts = self.stores.alerts.len(),
            "discarding event, no alerts found for the involved object"
        );
        Answer::status(StatusCode::ACCEPTED)
    }
}
