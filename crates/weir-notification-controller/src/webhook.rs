//! The webhook server: what the outside posts.

use http::StatusCode;
use weir_runtime::Runtime;

use crate::server::{Answer, Handler, Request};
use crate::settings::Settings;
use crate::wiring::Stores;

/// Takes webhooks and asks for reconciles of what their Receiver names.
#[derive(Debug)]
pub struct WebhookServer {
    _stores: Stores,
}

impl WebhookServer {
    /// The webhook server of a process.
    pub fn new(_runtime: &mut Runtime, _settings: &Settings, stores: &Stores) -> Self {
        Self { _stores: stores.clone() }
    }
}

impl Handler for WebhookServer {
    async fn admit(&self, target: &str) -> Result<(), Answer> {
        if target.starts_with("/hook/") {
            Ok(())
        } else {
            Err(Answer::text(StatusCode::NOT_FOUND, "404 page not found"))
        }
    }

    async fn handle(&self, _request: Request) -> Answer {
        Answer::status(StatusCode::NOT_FOUND)
    }
}
