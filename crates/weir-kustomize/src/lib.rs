//! The kustomize build as a function: a file tree and a directory in it go in, ordered objects come out.
//!
//! Behaves as kustomize 5.8.1: the objects, their order and their YAML text are the same, byte for byte.
//! Nothing here reads files, the environment or the network: files come through
//! [`Files`], remote content through [`Remote`].
//!
//! # Invariants
//! No input makes a function here panic, and all nesting is bounded. The cost grows linearly with the
//! number of resources: they are found by an index of their identities, never by search.

mod build;
mod config;
mod error;
mod fieldspec;
mod flux;
mod generator;
mod id;
mod jsonpatch;
mod kustomization;
mod loader;
mod manifest;
mod merge;
mod nameref;
mod node;
mod order;
mod origin;
mod path;
mod plugin;
mod remote;
mod replacement;
mod resource;
mod resources;
mod scalar;
mod schema;
mod selector;
mod shape;
mod tables;
mod transform;
mod vars;
mod yaml;

use serde_json::Value;
use weir_base::tree::Files;

pub use error::Error;
pub use flux::{
    Generated, Generation, ImageOverride, PatchOverride, Substitution, Variables, generate, opts_out,
    substitute, substitute_text,
};
pub use remote::{Download, NoRemote, Remote, RemoteError, RepoSpec};

/// Which files a kustomization may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadRestriction {
    /// Any file of the tree. What controllers use.
    #[default]
    None,
    /// Files in or below the directory of the kustomization. What the command line uses.
    RootOnly,
}

/// The order of the output when the kustomization has no `sortOptions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As the resources were found. What controllers use.
    #[default]
    AsFound,
    /// Sorted by kind. What the command line uses.
    Legacy,
}

/// How to build. The default is what the kustomize-controller of Flux uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which files may be read.
    pub load_restriction: LoadRestriction,
    /// The order of the output.
    pub order: Order,
    /// The absolute path of the tree's root, for error texts and absolute paths in kustomizations; empty
    /// if the tree has no place.
    pub tree_name: String,
    /// Whether types of `openapi.path` add to the builtin ones instead of replacing them.
    pub custom_schema_adds: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            load_restriction: LoadRestriction::None,
            order: Order::AsFound,
            tree_name: String::new(),
            custom_schema_adds: true,
        }
    }
}

impl Options {
    /// What `kubectl kustomize` uses.
    pub fn command_line() -> Self {
        Self {
            load_restriction: LoadRestriction::RootOnly,
            order: Order::Legacy,
            tree_name: String::new(),
            custom_schema_adds: false,
        }
    }
}

/// The objects of a build in their order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Output {
    /// The objects.
    pub objects: Vec<Value>,
}

impl Output {
    /// The objects as a YAML stream, byte-equal to what kustomize prints.
    pub fn to_yaml(&self) -> String {
        weir_manifest::to_yaml_stream(&self.objects)
    }
}

/// Whether an object is of a builtin kind that certainly has no namespace.
pub fn is_cluster_scoped(object: &Value) -> bool {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = id::split_api_version(text("apiVersion"));
    schema::Schema::default().is_cluster_scoped(&id::Gvk::new(group, version, text("kind")))
}

/// Builds the kustomization in the directory `root` of `files`; nothing remote is available.
///
/// # Errors
/// Whatever is wrong with the kustomizations and resources, with the chain of files that led to it.
pub fn build(files: &dyn Files, root: &str, options: &Options) -> Result<Output, Error> {
    build_with(files, root, options, &NoRemote)
}

/// Like [`build`], with remote files and repositories fetched through `remote`.
///
/// # Errors
/// As [`build`], and what `remote` reports.
pub fn build_with(
    files: &dyn Files,
    root: &str,
    options: &Options,
    remote: &dyn Remote,
) -> Result<Output, Error> {
    build::build(files, root, options, remote)
}
