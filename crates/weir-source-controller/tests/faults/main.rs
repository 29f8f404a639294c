//! What goes wrong around sources, for every kind alike: servers, credentials, the disk, the clock, the process.
//!
//! A judge reads what is advertised and served all the time. Nothing may ever be served that is not a whole revision,
//! the status must tell the cause, and all must be well once the fault is gone, without anybody's help.
#![expect(clippy::unwrap_used, clippy::panic, reason = "failing is what tests do")]

mod credentials;
mod disk;
mod replicas;
mod servers;
mod world;
