//! The HelmRelease controller: installs, upgrades, tests, rolls back and uninstalls Helm charts.
//!
//! A run reads from top to bottom in [`reconcile`]: what is needed is read ([`observe`]), the state of
//! the release is told from its records ([`state`], no IO), the next action follows from the state
//! ([`state::next`], no IO), one action runs ([`act`]), and it starts over until there is nothing to do.
//! [`status`] turns the outcome into conditions and events without IO.
//!
//! # Invariants
//! - There are never two actions on one release at a time, and no action without a record of it.
//! - A release that is as it should be is not written, whatever made the run happen.
//! - An action that was cut off is found by its record and unlocked by the next run.
//! - Digests are those of the reference, so a release is not upgraded because another controller made it.

pub mod act;
pub mod chart;
pub mod clusters;
pub mod content;
pub mod decrypt;
mod diagnosis;
pub mod digest;
mod documents;
pub mod drift;
pub mod error;
pub mod finalize;
pub mod history;
mod inventory;
pub mod observe;
pub mod offline;
mod oom;
pub mod post_render;
pub mod preview;
pub mod reconcile;
pub mod recover;
pub mod settings;
pub mod spec;
pub mod state;
pub mod status;
mod template;
pub mod values;
pub mod wiring;

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
