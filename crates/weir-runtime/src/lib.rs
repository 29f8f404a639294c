//! The reconcile driver of all Weir controllers.
//!
//! A controller supplies functions: a [`Reconciler`] for each of its kinds. The driver does the
//! rest, the same way for every kind:
//!
//! 1. [`flags::parse`] reads the flags; [`Runtime::new`] sets up the process.
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

mod driver;
mod duration;
mod failure;
pub mod flags;
mod gates;
mod key;
mod object;
mod patch;
mod queue;
mod reconciler;
mod recorder;
mod run;
mod runtime;
mod slots;
mod store;
mod watch;

pub use driver::{ControllerOptions, Handle};
pub use failure::{Class, Classify, Failed};
pub use gates::{FeatureGates, GateError};
pub use key::ObjectKey;
pub use object::{Object, RECONCILE_REQUESTED_AT, api_version, reconcile_requested_at};
pub use patch::PatchError;
pub use queue::Priority;
pub use reconciler::{Conclusion, Ended, Notice, Pass, Reconciler, Requeue, Severity};
pub use recorder::Recorder;
pub use run::{PublishError, Run, Trigger};
pub use runtime::{FINALIZER, Program, Runtime, Settings};
pub use store::{Change, Index, Store};
