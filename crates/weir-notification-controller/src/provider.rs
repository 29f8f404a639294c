//! Providers: where events are sent.
