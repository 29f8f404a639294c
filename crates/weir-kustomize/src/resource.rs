//! One resource on its way through the build: its tree and what the engine remembers about it.

use std::collections::BTreeMap;

use crate::id::{self, Gvk, ResourceId};
use crate::node::{Link, Map, Node, Scalar, Text};
use crate::origin::Origin;
use crate::schema::Schema;

/// Prefix of annotations that never leave the build.
pub(crate) const INTERNAL_PREFIX: &str = "internal.config.kubernetes.io/";
pub(crate) const ORIGIN_ANNOTATION: &str = "config.kubernetes.io/origin";
pub(crate) const TRANSFORMATIONS_ANNOTATION: &str = "alpha.config.kubernetes.io/transformations";
const LOCAL_CONFIG_ANNOTATION: &str = "config.kubernetes.io/local-config";

/// Annotations that are removed even when the user wrote them.
const REMOVED_ANNOTATIONS: [&str; 19] = [
    "internal.config.kubernetes.io/previousKinds",
    "internal.config.kubernetes.io/previousNames",
    "internal.config.kubernetes.io/prefixes",
    "internal.config.kubernetes.io/suffixes",
    "internal.config.kubernetes.io/previousNamespaces",
    "internal.config.kubernetes.io/allowNameChange",
    "internal.config.kubernetes.io/allowKindChange",
    "internal.config.kubernetes.io/refBy",
    "internal.config.kubernetes.io/generatorBehavior",
    "internal.config.kubernetes.io/needsHashSuffix",
    "internal.config.kubernetes.io/path",
    "internal.config.kubernetes.io/index",
    "internal.config.kubernetes.io/seqindent",
    "internal.config.kubernetes.io/id",
    "internal.config.kubernetes.io/annotations-migration-resource-id",
    "config.kubernetes.io/path",
    "config.kubernetes.io/index",
    "config.k8s.io/id",
    "internal.config.kubernetes.io/helm-generated",
];

/// What a generated object does to an equal one that is already there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Behavior {
    #[default]
    Unspecified,
    Create,
    Replace,
    Merge,
}

impl Behavior {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "replace" => Self::Replace,
            "merge" => Self::Merge,
            "create" => Self::Create,
            _ => Self::Unspecified,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Merge => "merge",
        }
    }
}

/// An identity the resource had; group and version are those it has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreviousId {
    pub(crate) kind: Text,
    pub(crate) name: Text,
    pub(crate) namespace: Text,
}

#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) node: Node,
    /// Oldest first.
    pub(crate) previous: Vec<PreviousId>,
    pub(crate) prefixes: Vec<Text>,
    pub(crate) suffixes: Vec<Text>,
    pub(crate) needs_hash: bool,
    pub(crate) behavior: Behavior,
    /// Made by a generator and not merged into an object of a file.
    pub(crate) generated: bool,
    pub(crate) origin: Option<Origin>,
    pub(crate) transformations: Vec<Origin>,
    /// Names of the vars bound to this resource.
    pub(crate) vars: Vec<String>,
    /// How many groups of linked scalars were made in the tree.
    links: u16,
}

impl Resource {
    pub(crate) fn new(node: Node) -> Self {
        let needs_hash = annotation_of(&node, "internal.config.kubernetes.io/needsHashSuffix")
            .is_some_and(|value| value.text() == "enabled");
        Self {
            node,
            previous: Vec::new(),
            prefixes: Vec::new(),
            suffixes: Vec::new(),
            needs_hash,
            behavior: Behavior::Unspecified,
            generated: false,
            origin: None,
            transformations: Vec::new(),
            vars: Vec::new(),
            links: 0,
        }
    }

    /// The link of a new group of scalars.
    pub(crate) fn new_link(&mut self) -> Link {
        self.links = self.links.saturating_add(1);
        Link::of_group(self.links)
    }

    /// Makes linked scalars equal after some of them were changed.
    pub(crate) fn settle_links(&mut self) {
        if self.links > 0 {
            self.node.settle_links();
        }
    }

    /// Writes the annotations anew, which makes strings of their values and takes them out of their groups.
    pub(crate) fn rewrite_annotations(&mut self) {
        if self.metadata().is_some_and(|metadata| metadata.get("annotations").is_some()) {
            let texts = self.texts("annotations");
            self.set_texts("annotations", texts);
        }
    }

    /// Whether kustomize would have annotations of its own on the object by now.
    pub(crate) fn is_tracked(&self) -> bool {
        !self.previous.is_empty() || self.needs_hash || self.generated || self.origin.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.node.is_null_or_empty()
    }

    pub(crate) fn kind(&self) -> &str {
        id::kind(&self.node)
    }

    pub(crate) fn api_version(&self) -> &str {
        id::api_version(&self.node)
    }

    pub(crate) fn gvk(&self) -> Gvk {
        Gvk::of(&self.node)
    }

    fn metadata(&self) -> Option<&Map> {
        self.node.get("metadata").and_then(Node::as_map)
    }

    fn metadata_text(&self, field: &str) -> &str {
        self.metadata().and_then(|metadata| metadata.get(field)).map_or("", Node::value_text)
    }

    pub(crate) fn name(&self) -> &str {
        self.metadata_text("name")
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata_text("namespace")
    }

    pub(crate) fn current_id(&self, schema: &Schema) -> ResourceId {
        ResourceId::new(self.gvk(), self.name(), self.namespace(), schema)
    }

    pub(crate) fn previous_ids(&self) -> impl Iterator<Item = ResourceId> {
        let (group, version) =
            if self.previous.is_empty() { ("", "") } else { id::split_api_version(self.api_version()) };
        self.previous.iter().map(move |previous| ResourceId {
            gvk: Gvk::new(group, version, &previous.kind),
            name: previous.name.clone(),
            namespace: previous.namespace.clone(),
            cluster_scoped: false,
        })
    }

    /// The first identity the resource had.
    pub(crate) fn original_id(&self, schema: &Schema) -> ResourceId {
        self.previous_ids().next().unwrap_or_else(|| self.current_id(schema))
    }

    /// Remembers the current identity before it changes.
    pub(crate) fn store_previous_id(&mut self, schema: &Schema) {
        let id = self.current_id(schema);
        self.previous.push(PreviousId {
            namespace: id.effective_namespace().into(),
            kind: id.gvk.kind,
            name: id.name,
        });
    }

    fn set_metadata(&mut self, field: &str, value: Scalar) {
        if let Some(metadata) = self.node.map_or_create("metadata") {
            metadata.set_scalar(field, value);
        }
    }

    pub(crate) fn set_name(&mut self, name: &str) {
        self.set_metadata("name", Scalar::untyped(name));
    }

    /// Sets the namespace, or removes it when it is empty.
    pub(crate) fn set_namespace(&mut self, namespace: &str) {
        if namespace.is_empty() {
            if let Some(Node::Map(metadata)) = self.node.get_mut("metadata") {
                metadata.remove("namespace");
            }
        } else {
            self.set_metadata("namespace", Scalar::untyped(namespace));
        }
    }

    pub(crate) fn set_kind(&mut self, kind: &str) {
        if let Some(map) = self.node.as_map_mut() {
            map.set_scalar("kind", Scalar::untyped(kind));
        }
    }

    pub(crate) fn set_api_version(&mut self, api_version: &str) {
        if let Some(map) = self.node.as_map_mut() {
            map.set_scalar("apiVersion", Scalar::untyped(api_version));
        }
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        annotation_of(&self.node, key).map(Node::text)
    }

    /// The source texts of `metadata.labels` or `metadata.annotations`.
    pub(crate) fn texts(&self, field: &str) -> BTreeMap<Text, Text> {
        self.metadata()
            .and_then(|metadata| metadata.get(field))
            .and_then(Node::as_map)
            .map(|map| map.iter().map(|(key, value)| (key.into(), value.text().into())).collect())
            .unwrap_or_default()
    }

    /// Replaces `metadata.labels` or `metadata.annotations`; an empty map removes the field.
    pub(crate) fn set_texts(&mut self, field: &str, values: BTreeMap<Text, Text>) {
        let Some(metadata) = self.node.map_or_create("metadata") else { return };
        metadata.remove(field);
        if values.is_empty() {
            return;
        }
        let mut map = Map::with_capacity(values.len());
        for (key, value) in values {
            map.set_scalar(&key, Scalar::string(value));
        }
        metadata.push(field, Node::Map(map));
    }

    /// Whether the resource only serves the build and is left out of its output.
    pub(crate) fn is_local(&self) -> bool {
        self.annotation(LOCAL_CONFIG_ANNOTATION).is_some_and(|value| value != "false")
    }

    /// Takes the tracked facts and the metadata of the object this generated one replaces.
    pub(crate) fn take_metadata_from(&mut self, old: &Self) {
        for field in ["labels", "annotations"] {
            let mut texts = old.texts(field);
            texts.extend(self.texts(field));
            self.set_texts(field, texts);
        }
        self.set_name(old.name());
        self.set_namespace(old.namespace());
        self.needs_hash = self.needs_hash && old.needs_hash;
        self.previous.clone_from(&old.previous);
        self.prefixes.clone_from(&old.prefixes);
        self.suffixes.clone_from(&old.suffixes);
        self.transformations.clone_from(&old.transformations);
        self.behavior = old.behavior;
        self.generated = old.generated;
        self.vars.clone_from(&old.vars);
    }

    /// Overlays the map `field` of `old` with the own one; all values become strings.
    pub(crate) fn merge_data_from(&mut self, old: &Self, field: &str) {
        let collect = |node: &Node| -> BTreeMap<Text, Node> {
            node.get(field)
                .and_then(Node::as_map)
                .map(|map| {
                    map.iter()
                        .map(|(key, value)| (key.into(), crate::generator::data_value(value.value_text())))
                        .collect()
                })
                .unwrap_or_default()
        };
        let mut data = collect(&old.node);
        data.extend(collect(&self.node));
        if let Some(map) = self.node.as_map_mut() {
            map.remove(field);
            if !data.is_empty() {
                let mut fresh = Map::with_capacity(data.len());
                for (key, value) in data {
                    fresh.push(key, value);
                }
                map.push(field, Node::Map(fresh));
            }
        }
    }

    /// Rewrites the annotations for the output: internal ones go, values become strings, the wanted
    /// tracking is written in.
    pub(crate) fn finish_annotations(&mut self, keep: Tracking) {
        let has_annotations = self.metadata().is_some_and(|metadata| metadata.get("annotations").is_some());
        let adds = (keep.origin && self.origin.is_some())
            || (keep.transformations && !self.transformations.is_empty());
        if !has_annotations && !adds {
            return;
        }
        let mut texts = self.texts("annotations");
        for removed in REMOVED_ANNOTATIONS {
            texts.remove(removed);
        }
        if keep.origin {
            if let Some(origin) = &self.origin {
                texts.insert(ORIGIN_ANNOTATION.into(), origin.to_yaml().into());
            }
        } else {
            texts.remove(ORIGIN_ANNOTATION);
        }
        if keep.transformations {
            if !self.transformations.is_empty() {
                let list: String = self.transformations.iter().map(Origin::to_yaml_item).collect();
                texts.insert(TRANSFORMATIONS_ANNOTATION.into(), list.into());
            }
        } else {
            texts.remove(TRANSFORMATIONS_ANNOTATION);
        }
        self.set_texts("annotations", texts);
    }
}

/// Which tracking annotations the output carries.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tracking {
    pub(crate) origin: bool,
    pub(crate) transformations: bool,
}

fn annotation_of<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    node.get("metadata")?.get("annotations")?.get(key)
}
