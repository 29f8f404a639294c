//! Field ownership: sets of fields, typed merges, and the `managedFields` of server-side apply.
//!
//! Everything here is a function of values and schemas. A missing schema means that types are deduced: objects merge by
//! key, lists are replaced as a whole.

pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod managers;
pub(crate) mod merge;
pub(crate) mod remove;
pub(crate) mod set;
pub(crate) mod walk;

#[cfg(test)]
mod tests;
