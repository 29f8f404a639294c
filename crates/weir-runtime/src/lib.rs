//! The reconcile driver of all Weir controllers.
//!
//! A controller supplies functions: a [`Reconciler`] for each of its kinds. The driver does the
//! rest, the same way for every kind:
//!
//! 1. [`flags::parse`] reads the flags; [`run()`] sets up logs, the client, metrics, probes and
//!    shutdown, and hands a [`Runtime`] to the controller.
//! 2. [`Runtime::watch_primary`] and [`Runtime::watch`] keep a [`Store`] of the objects of a kind;
//!    [`Store::on_change`] turns changes of other kinds into work ([`Handle::enqueue`]).
//! 3. [`Runtime::controller`] runs a [`Reconciler`] over the objects of a store: one run of an
//!    object at a time, user requests first, back-off per object.
//! 4. [`Runtime::run`] waits for the lease, runs until the process is told to stop, and stops all
//!    writes at once if the lease is lost.
//!
//! One run of an object is: deletion and [`finalize`](Reconciler::finalize) → finalizer → suspend →
//! [`reconcile`](Reconciler::reconcile) → [`conclude`](Reconciler::conclude) (pure) → one minimal
//! status patch if anything changed → events, log, metrics → requeue.

mod artifacts;
mod client;
mod driver;
mod events;
mod failure;
pub mod flags;
mod gates;
mod key;
mod lease;
pub mod logs;
mod metrics;
mod object;
mod patch;
mod process;
mod queue;
mod reconciler;
mod run;
mod runtime;
mod server;
mod slots;
mod start;
mod store;
mod time;
mod watch;

pub use artifacts::{ArtifactFlags, ArtifactsError, artifacts};
pub use client::{
    ClientError, NoAnswer, NotLeading, WriteGate, has_priority_and_fairness, impersonate,
    impersonate_service_account,
};
pub use driver::{ControllerOptions, Handle};
pub use events::Recorder;
pub use failure::{Class, Classify, Failed};
pub use gates::{FeatureGates, GateError};
pub use key::ObjectKey;
pub use lease::{LeaseLost, LeaseOptions, lease_name};
pub use metrics::{Description, Metrics};
pub use object::{Object, Watched};
pub use patch::PatchError;
pub use queue::Priority;
pub use reconciler::{Conclusion, Ended, Notice, Pass, Reconciler, Requeue, Severity};
pub use run::{PublishError, Run, Trigger};
pub use runtime::{FINALIZER, Program, Runtime, Settings};
pub use server::{ListenError, listen};
pub use start::{StartError, run};
pub use store::{Change, Index, Store};
