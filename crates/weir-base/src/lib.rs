//! What every Weir crate shares and that needs neither Kubernetes nor IO: the clock, redacting
//! types, in-memory file trees, versions, and the way errors are printed.

pub mod clock;
pub mod error;
pub mod redact;
pub mod tree;
pub mod version;
