//! Built-in kinds: their types, defaults, validation, printing and conversion.

mod data;

pub use data::{
    Column, Group, Resource, Subresource, definition_name, definition_names, groups, openapi_definition,
    resource, resources, schema, version,
};
