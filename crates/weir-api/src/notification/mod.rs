//! Kinds of `notification.toolkit.fluxcd.io`.

mod alert;
mod provider;
mod receiver;

pub use alert::*;
pub use provider::*;
pub use receiver::*;
