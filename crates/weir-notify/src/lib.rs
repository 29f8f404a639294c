//! Notifications: what an event says to each service, and how it gets there; webhooks and how they are checked.
//!
//! [`event`] has the events controllers post. [`provider`] turns an event into requests to a service, one pure
//! function per service. [`receiver`] proves that a webhook comes from who may send it.
//!
//! # Invariants
//! What a request says is a function of the event, the provider's settings and the answers so far: no clock, network or
//! environment. A credential goes to the service it belongs to and nowhere else, and no error text shows one.

pub mod event;
pub mod provider;
pub mod receiver;
