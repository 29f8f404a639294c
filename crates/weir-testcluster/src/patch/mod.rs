//! The patches that are no apply. All are functions of values.

pub(crate) mod json;
pub(crate) mod merge;
pub(crate) mod strategic;
