//! The notification controller: sends events where people see them, and reconciles objects when webhooks arrive.
//!
//! [`server`] is the HTTP server both listeners use: it reads requests within limits and hands them, complete, to
//! [`events`] (port 9090, what controllers post) or [`webhook`] (port 9292, what the outside posts). [`receiver`]
//! reconciles the objects that say which webhooks reconcile what; [`alert`] and [`provider`] those that say which
//! events go where.
//!
//! # Invariants
//! - A request costs bounded memory and time, whoever sends it, and whether it is complete or not.
//! - A webhook changes nothing but `reconcile.fluxcd.io/requestedAt`, of objects its Receiver names.
//! - Nothing about tokens, signatures or payloads is logged or answered.
//! - Every instance serves; only the leader reconciles.

pub mod alert;
pub mod events;
pub mod filters;
mod finalizers;
pub mod provider;
pub mod receiver;
pub mod server;
pub mod settings;
pub mod webhook;
pub mod wiring;

use std::process::ExitCode;

use weir_runtime::{Description, Metrics, flags};

/// What the metrics are called and mean that this controller has besides those of every controller: for the reference page.
pub fn describe_metrics() -> Vec<Description> {
    let metrics = Metrics::new();
    for prefix in [wiring::EVENT_METRICS, wiring::WEBHOOK_METRICS] {
        server::HttpMetrics::new(prefix, "", false, &metrics).touch();
    }
    events::touch_metrics(&metrics);
    let common = Metrics::describe();
    let is_own = |description: &Description| common.iter().all(|common| common.name != description.name);
    metrics.descriptions().into_iter().filter(is_own).collect()
}

/// Runs the program until it is told to stop.
pub fn main() -> ExitCode {
    let flags: settings::Flags = flags::parse(&settings::PROGRAM);
    // Its own events are Kubernetes events alone: they are not posted to itself.
    let common = flags::Common { events_addr: String::new(), ..flags.common.clone() };
    weir_runtime::run(
        &settings::PROGRAM,
        &common,
        |settings| settings,
        async |runtime| wiring::set_up(runtime, &flags).await,
    )
}
