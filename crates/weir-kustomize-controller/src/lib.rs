//! The Kustomization controller: builds manifests from artifacts, applies them, keeps the cluster
//! that way, and deletes what is no longer wanted.
//!
//! A run reads from top to bottom in [`reconcile`]: [`observe`] reads, [`decide`] decides without
//! IO, [`build`] turns files into objects without IO, `weir-apply` compares and writes, [`status`]
//! turns the outcome into conditions and events without IO.
//!
//! # Invariants
//! - What is about to be created is on record in the status before it is created.
//! - The inventory shrinks only by what is gone.
//! - Nothing is pruned after a failed build or apply.
//! - A run that finds everything as it should be writes nothing.
//! - A Secret is never applied encrypted.

pub mod build;
pub mod cache;
pub mod clusters;
pub mod decide;
pub mod decrypt;
pub mod drift;
mod engine;
pub mod error;
pub mod finalize;
pub mod keyring;
pub mod observe;
pub mod order;
mod process_keys;
pub mod progress;
pub mod reconcile;
pub mod settings;
pub mod status;
pub mod wiring;
#[cfg(test)]
mod world;

use std::process::ExitCode;

use weir_runtime::flags;

/// Runs the program until it is told to stop.
pub fn main() -> ExitCode {
    let flags: settings::Flags = flags::parse(&settings::PROGRAM);
    weir_runtime::run(
        &settings::PROGRAM,
        &flags.common,
        |settings| settings.with_sharding(&flags.sharding).with_jitter(&flags.jitter),
        async |runtime| wiring::set_up(runtime, &flags),
    )
}
