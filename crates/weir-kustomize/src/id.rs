//! Group, version and kind, and the identity of a resource.

use std::fmt;

use crate::node::{Node, Text};
use crate::schema::Schema;

/// The pseudo namespace of cluster-scoped resources.
pub(crate) const NOT_NAMESPACED: &str = "_non_namespaceable_";
/// The namespace of namespaced resources that name none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// Group, version and kind; empty parts of a selector match everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Gvk {
    pub(crate) group: Text,
    pub(crate) version: Text,
    pub(crate) kind: Text,
}

impl Gvk {
    pub(crate) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    pub(crate) fn of(node: &Node) -> Self {
        let (group, version) = split_api_version(api_version(node));
        Self::new(group, version, kind(node))
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub(crate) fn is_selected_by(&self, selector: &Self) -> bool {
        let fits = |value: &Text, wanted: &Text| wanted.is_empty() || value == wanted;
        fits(&self.kind, &selector.kind)
            && fits(&self.group, &selector.group)
            && fits(&self.version, &selector.version)
    }

    /// The text tables and resources of equal rank are sorted by.
    pub(crate) fn sort_text(&self) -> String {
        let or = |text: &Text, default: &'static str| {
            if text.is_empty() { default.to_owned() } else { text.to_string() }
        };
        format!("{}_{}_{}", or(&self.group, "~G"), or(&self.version, "~V"), or(&self.kind, "~K"))
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
            if text.is_empty() { default } else { text }
        }
        write!(
            formatter,
            "{}.{}.{}",
            or(&self.kind, "[noKind]"),
            or(&self.version, "[noVer]"),
            or(&self.group, "[noGrp]")
        )
    }
}

/// `group/version` split at the first slash; without one all of it is the version.
pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

pub(crate) fn api_version(node: &Node) -> &str {
    node.get("apiVersion").map_or("", Node::text)
}

pub(crate) fn kind(node: &Node) -> &str {
    node.get("kind").map_or("", Node::text)
}

/// The identity of a resource now or at an earlier step.
#[derive(Debug, Clone)]
pub(crate) struct ResourceId {
    pub(crate) gvk: Gvk,
    pub(crate) name: Text,
    pub(crate) namespace: Text,
    pub(crate) cluster_scoped: bool,
}

impl ResourceId {
    pub(crate) fn new(gvk: Gvk, name: &str, namespace: &str, schema: &Schema) -> Self {
        let cluster_scoped = schema.is_cluster_scoped(&gvk);
        Self { gvk, name: name.into(), namespace: namespace.into(), cluster_scoped }
    }

    /// A non-empty namespace that makes `""` and `default` equal.
    pub(crate) fn effective_namespace(&self) -> &str {
        if self.cluster_scoped {
            NOT_NAMESPACED
        } else if self.namespace.is_empty() {
            DEFAULT_NAMESPACE
        } else {
            &self.namespace
        }
    }

    pub(crate) fn same_kind_and_name(&self, other: &Self) -> bool {
        self.name == other.name && self.gvk == other.gvk
    }

    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.same_kind_and_name(other) && self.effective_namespace() == other.effective_namespace()
    }

    pub(crate) fn key(&self) -> IdKey {
        IdKey { gvk: self.gvk.clone(), name: self.name.clone(), namespace: self.effective_namespace().into() }
    }
}

/// What two equal ids have in common, for hashing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct IdKey {
    gvk: Gvk,
    name: Text,
    namespace: Text,
}

impl fmt::Display for ResourceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
            if text.is_empty() { default } else { text }
        }
        write!(formatter, "{}/{}.{}", self.gvk, or(&self.name, "[noName]"), or(&self.namespace, "[noNs]"))
    }
}
