//! What the tests of several crates are run against. All of it listens on the loopback alone.
//!
//! - [`git`]: the real `git http-backend` behind a bridge that can misbehave,
//! - [`sshd`]: the real OpenSSH server, without privileges,
//! - [`web`]: files at paths, as chart repositories and registries have them,
//! - [`objects`]: an S3 server that checks signatures,
//! - [`registry`]: a real registry with TLS and passwords,
//! - [`proxy`]: a proxy that breaks what goes through it.
//!
//! Everything panics when the machine does not give what a test needs: a test that cannot run fails.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "failing is what tests do"
)]

pub mod git;
pub mod objects;
pub mod proxy;
pub mod registry;
pub mod sshd;
pub mod web;
