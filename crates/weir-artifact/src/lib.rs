//! Artifacts from end to end: what a source controller writes and what every consumer reads.
//!
//! - [`digest`]: the digest algorithms artifacts are named with,
//! - [`archive`]: reproducible `tar.gz` archives from a file tree,
//! - [`unpack`]: archives into a file tree in memory, within limits,
//! - [`storage`]: the directory artifacts are published to, verified in and collected from,
//! - [`probe`]: faults in what changes that directory,
//! - [`server`]: the HTTP file server over that directory,
//! - [`disk`]: a directory of the machine as a file tree,
//! - [`fetch`]: the consumer side, with retries, digest verification and shared trees.
//!
//! Nothing here knows Kubernetes.

pub mod archive;
pub mod digest;
pub mod disk;
pub mod fetch;
pub mod probe;
pub mod server;
pub mod storage;
pub mod unpack;
