//! Kinds of `fluxcd.controlplane.io`.

mod flux_instance;
mod flux_report;
mod resource_set;
mod resource_set_input_provider;

pub use flux_instance::*;
pub use flux_report::*;
pub use resource_set::*;
pub use resource_set_input_provider::*;
