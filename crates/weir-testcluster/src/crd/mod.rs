//! Custom resources: what their definitions say.

pub(crate) mod cel;
pub(crate) mod definition;
pub(crate) mod schema;
pub(crate) mod validate;

use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;

/// One served version of a custom resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct CustomVersion {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// With `apiVersion`, `kind` and `metadata`.
    pub(crate) schema: Option<Arc<Schema>>,
    /// `openAPIV3Schema` as written.
    pub(crate) written_schema: Value,
    pub(crate) has_status: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<CustomColumn>,
    /// Whether objects are stored in this version.
    pub(crate) stored: bool,
    /// Whether stored objects may be of another version or an older schema, so that reading fills in defaults.
    pub(crate) varies: bool,
    /// The text of the warning, when the version is deprecated.
    pub(crate) deprecation: Option<String>,
    /// JSON paths that field selectors may use, without the leading dot.
    pub(crate) selectable: Vec<String>,
}

/// Where the numbers of `scale` are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec: Vec<String>,
    pub(crate) status: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

/// One printed column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CustomColumn {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) json_path: String,
}
