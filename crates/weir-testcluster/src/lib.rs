//! A Kubernetes-compatible API server in process or on a port, for demonstrations, tests and simulation.
//!
//! It is judged by the real API server: one conformance suite runs against both. It shares no merge, diff or health
//! code with the crates it is used to test.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = weir_testcluster::TestCluster::default();
//! // In process: `kube::Client::new(cluster.service(), "default")`. On a port:
//! let running = cluster.serve("127.0.0.1:0".parse()?).await?;
//! std::fs::write("kubeconfig", running.kubeconfig())?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//! Objects are kept as bytes; a request parses what it changes. Writes are optimistic: read, compute, write
//! if nobody else did. What follows from a write (garbage collection, the end of namespaces, definitions) happens right
//! after it, in order. Watches read on in one shared log.
//!
//! # Limits
//! One process holds one server; nothing is replicated. Aggregated servers, webhooks and admission policies are stored,
//! not called.

mod admit;
mod auth;
mod body;
pub mod builtin;
mod call;
mod cluster;
pub mod controllers;
mod crd;
mod delete;
mod discovery;
mod drive;
mod edit;
mod error;
mod faults;
mod fields;
mod kind;
mod kinds;
mod meta;
mod negotiate;
mod openapi;
mod patch;
mod proto;
mod rbac;
mod read;
mod reply;
mod rules;
pub mod schema;
mod selector;
mod serve;
mod service;
mod settle;
mod snapshot;
mod special;
mod status;
mod store;
mod table;
mod watch;
mod write;

pub use auth::Identity;
pub use cluster::{Builder, TestCluster};
pub use faults::{Effect, Fault, Faults};
pub use kind::GroupVersionKind;
pub use serve::{Running, ServeError};
pub use service::{Body, Service};
pub use snapshot::Error as SnapshotError;
pub use status::{Cause, CauseReason};
