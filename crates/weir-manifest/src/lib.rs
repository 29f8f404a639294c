//! YAML and JSON manifests, read and written exactly as the Kubernetes Go tools do.
//!
//! Objects are [`serde_json::Value`] at the borders of Weir's crates. [`read_documents`] and [`to_yaml`] turn YAML into
//! them and back with the habits of `sigs.k8s.io/yaml`, on which checksums, diffs and users depend.
//!
//! # Why an own parser
//! The Go libraries descend from libyaml and accept, refuse and blame what libyaml does, with changes of their own:
//! which tabs are blanks, where a key must end, that an empty `{}` cannot be a key, what a document separator may be
//! followed by, which of two mistakes is met first, and which node a comment belongs to. Asked about 488 documents,
//! `saphyr-parser` 0.3 accepts or refuses 52 of them otherwise than the Go libraries do, by design; `libyaml-safer` 0.3
//! does so for 22, panics on 3, and knows no comments. Both need as long to list the events of a text as this crate
//! needs to build values from it. So the scanner and the grammar are our own; scalars are slices of the text wherever
//! they can be, and values are built without a tree in between.
//!
//! # Invariants
//! No function panics on any input. Nothing here does IO. Depth, size and alias expansion are bounded.

mod chars;
mod comments;
mod decode;
pub mod edit;
mod emit;
mod error;
mod letters;
mod natural;
mod node;
mod number;
mod object;
mod order;
mod parse;
mod read;
mod resolve;
mod scan;
mod timestamp;
mod write;
mod write_node;

/// Reading step by step, with all that the text says.
pub mod event {
    pub use crate::parse::{Event, EventKind, Parser, Properties};
    pub use crate::scan::{Dialect, Mark, ScalarStyle};
}

pub use decode::SIZE_BYTES_MAX;
pub use error::{Error, ErrorKind};
pub use natural::natural_order;
pub use node::{Comments, Content, Document, Node, read_first_node, read_nodes};
pub use number::{Number, format_float, format_json_float};
pub use object::{ObjectId, split_api_version};
pub use order::{
    KUSTOMIZE_ORDER_FIRST, KUSTOMIZE_ORDER_LAST, apply_order, apply_rank, helm_install_order,
    helm_uninstall_order, kustomize_legacy_rank,
};
pub use read::{ReadOptions, read_documents, read_documents_with, read_first_document};
pub use resolve::{Resolved, resolve_core, resolve_yaml11};
pub use scan::ScalarStyle;
pub use timestamp::Timestamp;
pub use write::{to_yaml, to_yaml_stream, to_yaml_with_sorted_keys};
pub use write_node::{NodeLayout, to_yaml_pretty, write_nodes};
