//! Built-in kinds: their types, defaults, validation, printing and conversion, as pure functions.
//!
//! A request for an object of a built-in kind goes through [`decode`], [`set_defaults`], [`prepare_create`] or
//! [`prepare_update`], for services [`Services::allocate`], and [`validate_create`], [`validate_update`] or
//! [`validate_status`]. All of it is held to recordings of a real server.

mod convert;
mod data;
mod defaults;
mod pod;
mod prepare;
mod print;
mod quantity;
mod service;
mod shape;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
mod validate;

pub use convert::convert;
pub use data::{
    Column, Group, Resource, Subresource, definition_name, definition_names, groups, openapi_definition,
    resource, resources, schema, version,
};
pub use defaults::set_defaults;
pub(crate) use pod::suffix;
pub use prepare::{has_generation, prepare_create, prepare_update};
pub use print::{columns, duration, row};
pub(crate) use quantity::exceeds as quantity_exceeds;
pub use service::Services;
pub use shape::{decode, encode};
pub(crate) use validate::selects;
pub use validate::{validate_create, validate_metadata, validate_status, validate_update};
