//! What users of the controllers rely on, seen from outside: Git on one side, the cluster on the other.

mod bad_input;
mod buckets;
mod charts;
mod decryption;
mod fleet;
mod generators;
mod helm;
mod kills;
mod lifecycle;
mod notifications;
mod quiet;
mod switch;
