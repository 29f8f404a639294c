//! What users of the two controllers rely on, seen from outside: Git on one side, the cluster on the other.

mod bad_input;
mod decryption;
mod fleet;
mod kills;
mod lifecycle;
mod quiet;
