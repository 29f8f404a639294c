//! The kinds of Flux as Rust types, the CRDs made from them, and the rules all controllers share:
//! conditions, reconcile requests, history, durations and times as Go prints them.
//!
//! Everything here is pure: no clock, no client, no environment.

pub mod artifact;
pub mod common;
pub mod condition;
pub mod crd;
pub mod duration;
pub mod extensions;
pub mod helm;
pub mod history;
pub mod image;
pub mod kustomize;
pub mod names;
pub mod notification;
pub mod object;
pub mod operator;
pub mod patch;
pub mod reference;
pub mod request;
mod schema;
pub mod source;
pub mod time;

pub use artifact::Artifact;
pub use condition::{Condition, ConditionStatus};
pub use duration::GoDuration;
pub use history::Snapshot;
pub use object::FluxObject;
pub use time::Time;
