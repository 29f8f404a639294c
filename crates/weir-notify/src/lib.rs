//! Notifications: what an event says to each service, and how it gets there; webhooks and how they are checked.
//!
//! [`event`] has the events controllers post. [`provider`] turns an event into requests to a service, one pure
//! function per service, from the settings in [`target`]. [`delivery`] sends them, with tokens of [`identity`] where a
//! service wants one. [`receiver`] proves that a webhook comes from who may send it.
//!
//! # Invariants
//! What a request says is a function of the event, the provider's settings and the answers so far: no clock, network or
//! environment. A credential goes to the service it belongs to and nowhere else, and no error text shows one.

mod address;
pub mod delivery;
pub mod event;
mod git_address;
pub mod identity;
mod nats;
pub mod provider;
pub mod receiver;
pub mod target;
mod text;
