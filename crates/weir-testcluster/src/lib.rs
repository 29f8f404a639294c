//! A Kubernetes-compatible API server in process or on a port, for demonstrations, tests and simulation.
//!
//! It is judged by the real API server: one conformance suite runs against both. It shares no merge, diff or health
//! code with the crates it is used to test.

pub mod builtin;
pub mod controllers;
mod kind;
pub mod schema;
mod status;

pub use kind::GroupVersionKind;
pub use status::{Cause, CauseReason};
