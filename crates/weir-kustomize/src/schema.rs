//! What the engine knows about types: where lists merge in strategic merge patches, and which kinds are
//! cluster-scoped. The builtin facts are those of Kubernetes 1.21.2, as in kustomize 5.8; newer ones would
//! change what users get. `openapi.path` adds to them for one build.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::id::Gvk;
use crate::node::Text;

const BUILTIN: &str = include_str!("schema/kubernetes-1.21.2.txt");

/// The only builtin version `openapi.version` may name.
const BUILTIN_VERSION: &str = "v1.21.2";

/// Where a field of a type leads.
#[derive(Debug, Clone)]
enum Edge {
    Object(usize),
    MapOf(usize),
    /// A list merged element by element; without keys a set of scalars.
    Merge {
        element: Option<usize>,
        keys: Arc<[Text]>,
    },
}

#[derive(Debug, Default)]
struct Type {
    fields: HashMap<Text, Edge>,
}

#[derive(Debug, Default)]
struct Table {
    types: Vec<Type>,
    names: HashMap<String, usize>,
    /// By `apiVersion` and kind.
    kinds: HashMap<(String, Text), usize>,
    cluster_scoped: HashMap<(String, Text), bool>,
}

/// The types known to one build.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schema {
    custom: Option<Arc<Table>>,
    only_custom: bool,
    set: bool,
}

/// A place within a type: what is known about the value found there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    table: &'a Table,
    at: At<'a>,
}

#[derive(Debug, Clone, Copy)]
enum At<'a> {
    Type(usize),
    MapOf(usize),
    Merge { element: Option<usize>, keys: &'a [Text] },
}

impl<'a> Place<'a> {
    /// The place of a field of this one.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        let at = match self.at {
            At::Type(index) => match self.table.types.get(index)?.fields.get(name)? {
                Edge::Object(target) => At::Type(*target),
                Edge::MapOf(target) => At::MapOf(*target),
                Edge::Merge { element, keys } => At::Merge { element: *element, keys },
            },
            At::MapOf(target) => At::Type(target),
            At::Merge { .. } => return None,
        };
        Some(Self { table: self.table, at })
    }

    /// The place of the elements of this list.
    pub(crate) fn element(self) -> Option<Self> {
        match self.at {
            At::Merge { element: Some(element), .. } => {
                Some(Self { table: self.table, at: At::Type(element) })
            }
            _ => None,
        }
    }

    /// The keys elements are matched by; `None` if the list is replaced as a whole.
    pub(crate) fn merge_keys(self) -> Option<&'a [Text]> {
        match self.at {
            At::Merge { keys, .. } => Some(keys),
            _ => None,
        }
    }
}

impl Schema {
    /// Takes the `openapi` field of a kustomization: the first one of a build that says anything wins.
    pub(crate) fn set(
        &mut self,
        version: Option<&str>,
        document: Option<&Value>,
        adds_to_builtin: bool,
    ) -> Result<()> {
        if self.set {
            return Ok(());
        }
        match (version, document) {
            (Some(_), Some(_)) => {
                Err(Error::message("builtin version and custom schema provided, cannot use both"))
            }
            (Some(version), None) if version == BUILTIN_VERSION => {
                self.set = true;
                Ok(())
            }
            (Some("") | None, None) => Ok(()),
            (Some(_), None) => Err(Error::message(
                "the specified OpenAPI version is not built in; use v1.21.2 or openapi.path",
            )),
            (None, Some(document)) => {
                self.custom = Some(Arc::new(Table::from_swagger(document)));
                self.only_custom = !adds_to_builtin;
                self.set = true;
                Ok(())
            }
        }
    }

    /// What is known about objects of this type.
    pub(crate) fn of(&self, api_version: &str, kind: &str) -> Option<Place<'_>> {
        let key = (api_version.to_owned(), Text::from(kind));
        let find = |table: &'_ Table| table.kinds.get(&key).copied();
        if let Some(table) = self.custom.as_deref()
            && let Some(index) = find(table)
        {
            return Some(Place { table, at: At::Type(index) });
        }
        if self.only_custom {
            return None;
        }
        let table = builtin();
        find(table).map(|index| Place { table, at: At::Type(index) })
    }

    /// Whether the type certainly has no namespace; unknown types count as namespaced.
    pub(crate) fn is_cluster_scoped(&self, gvk: &Gvk) -> bool {
        if let Some(table) = self.custom.as_deref()
            && let Some(cluster_scoped) = table.cluster_scoped.get(&(gvk.api_version(), gvk.kind.clone()))
        {
            return *cluster_scoped;
        }
        !self.only_custom && is_builtin_cluster_scoped(&gvk.group, &gvk.version, &gvk.kind)
    }
}

fn is_builtin_cluster_scoped(group: &str, version: &str, kind: &str) -> bool {
    match kind {
        "Namespace" | "Node" | "PersistentVolume" | "ComponentStatus" | "NodeProxyOptions" => {
            group.is_empty() && version == "v1"
        }
        "PodSecurityPolicy" => group == "policy" && version == "v1beta1",
        "FlowSchema" | "PriorityLevelConfiguration" => {
            group == "flowcontrol.apiserver.k8s.io" && version == "v1beta1"
        }
        _ => {
            let wanted = match kind {
                "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                    "admissionregistration.k8s.io"
                }
                "CustomResourceDefinition" => "apiextensions.k8s.io",
                "APIService" => "apiregistration.k8s.io",
                "CertificateSigningRequest" => "certificates.k8s.io",
                "IngressClass" => "networking.k8s.io",
                "RuntimeClass" => "node.k8s.io",
                "ClusterRole" | "ClusterRoleBinding" => "rbac.authorization.k8s.io",
                "PriorityClass" => "scheduling.k8s.io",
                "CSIDriver" | "CSINode" | "StorageClass" | "VolumeAttachment" => "storage.k8s.io",
                _ => return false,
            };
            group == wanted && matches!(version, "v1" | "v1beta1")
        }
    }
}

fn builtin() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::from_text(BUILTIN))
}

impl Table {
    /// Reads the compact table; lines it does not understand are skipped.
    fn from_text(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some("t") => {
                    let name = words.next().unwrap_or_default();
                    table.names.insert(name.to_owned(), table.types.len());
                    let fields = words.filter_map(Self::edge_from_text).collect();
                    table.types.push(Type { fields });
                }
                Some("k") => {
                    if let (Some(group), Some(version), Some(kind), Some(Ok(index))) =
                        (words.next(), words.next(), words.next(), words.next().map(str::parse))
                    {
                        let api_version =
                            if group == "-" { version.to_owned() } else { format!("{group}/{version}") };
                        table.kinds.insert((api_version, kind.into()), index);
                    }
                }
                _ => {}
            }
        }
        table
    }

    fn edge_from_text(word: &str) -> Option<(Text, Edge)> {
        let (field, rest) = word.split_once('=')?;
        let edge = match rest.split_at_checked(1)? {
            (".", target) => Edge::Object(target.parse().ok()?),
            ("{", target) => Edge::MapOf(target.parse().ok()?),
            (_, target) => {
                let (element, keys) = target.split_once(':')?;
                Edge::Merge { element: element.parse().ok(), keys: split_keys(keys) }
            }
        };
        Some((field.into(), edge))
    }

    fn from_swagger(document: &Value) -> Self {
        let mut reader = SwaggerReader { document, table: Self::default() };
        if let Some(definitions) = document.get("definitions").and_then(Value::as_object) {
            for (name, schema) in definitions {
                let index = reader.definition(name);
                for gvk in gvks(schema.get("x-kubernetes-group-version-kind")) {
                    if let Some(index) = index {
                        reader.table.kinds.insert(gvk, index);
                    }
                }
            }
        }
        let mut table = reader.table;
        if let Some(paths) = document.get("paths").and_then(Value::as_object) {
            for (path, item) in paths {
                let gvk = item.get("get").and_then(|get| get.get("x-kubernetes-group-version-kind"));
                for gvk in gvks(gvk) {
                    if path.contains("namespaces/{namespace}") {
                        table.cluster_scoped.insert(gvk, false);
                    } else {
                        table.cluster_scoped.entry(gvk).or_insert(true);
                    }
                }
            }
        }
        table
    }
}

struct SwaggerReader<'a> {
    document: &'a Value,
    table: Table,
}

impl SwaggerReader<'_> {
    /// The index of a named definition, read on first use; types may refer to themselves.
    fn definition(&mut self, name: &str) -> Option<usize> {
        if let Some(index) = self.table.names.get(name) {
            return Some(*index);
        }
        let Some(schema) = self.document.get("definitions").and_then(|all| all.get(name)) else {
            return self.builtin_definition(name);
        };
        let index = self.table.types.len();
        self.table.names.insert(name.to_owned(), index);
        self.table.types.push(Type::default());
        self.fill(index, schema);
        Some(index)
    }

    /// Copies a builtin type that the document refers to without defining it.
    fn builtin_definition(&mut self, name: &str) -> Option<usize> {
        let source = builtin();
        let origin = *source.names.get(name)?;
        Some(self.copy_builtin(source, origin, name))
    }

    fn copy_builtin(&mut self, source: &Table, origin: usize, name: &str) -> usize {
        let index = self.table.types.len();
        self.table.names.insert(name.to_owned(), index);
        self.table.types.push(Type::default());
        let mut fields = HashMap::new();
        for (field, edge) in &source.types[origin].fields {
            let mut copy = |target: usize| {
                let target_name = source
                    .names
                    .iter()
                    .find(|(_, index)| **index == target)
                    .map(|(name, _)| name.clone())
                    .unwrap_or_default();
                match self.table.names.get(&target_name) {
                    Some(index) => *index,
                    None => self.copy_builtin(source, target, &target_name),
                }
            };
            let edge = match edge {
                Edge::Object(target) => Edge::Object(copy(*target)),
                Edge::MapOf(target) => Edge::MapOf(copy(*target)),
                Edge::Merge { element, keys } => {
                    Edge::Merge { element: element.map(copy), keys: Arc::clone(keys) }
                }
            };
            fields.insert(field.clone(), edge);
        }
        self.table.types[index].fields = fields;
        index
    }

    fn fill(&mut self, index: usize, schema: &Value) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        for (field, property) in properties {
            if let Some(edge) = self.edge(property) {
                self.table.types[index].fields.insert(field.as_str().into(), edge);
            }
        }
    }

    fn edge(&mut self, schema: &Value) -> Option<Edge> {
        if let Some(items) = schema.get("items") {
            let text = |key| schema.get(key).and_then(Value::as_str).unwrap_or_default();
            if !text("x-kubernetes-patch-strategy").split(',').any(|part| part == "merge") {
                return None;
            }
            let keys = match schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array) {
                Some(keys) => keys.iter().filter_map(Value::as_str).map(Text::from).collect(),
                None => split_keys(text("x-kubernetes-patch-merge-key")),
            };
            return Some(Edge::Merge { element: self.target(items), keys });
        }
        if schema.get("properties").is_none()
            && let Some(extra) = schema.get("additionalProperties").filter(|extra| extra.is_object())
        {
            return self.target(extra).map(Edge::MapOf);
        }
        self.target(schema).map(Edge::Object)
    }

    fn target(&mut self, schema: &Value) -> Option<usize> {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.definition(reference.strip_prefix("#/definitions/")?);
        }
        schema.get("properties")?;
        let index = self.table.types.len();
        self.table.types.push(Type::default());
        self.fill(index, schema);
        Some(index)
    }
}

fn split_keys(keys: &str) -> Arc<[Text]> {
    keys.split(',').filter(|key| !key.is_empty()).map(Text::from).collect()
}

/// The types an `x-kubernetes-group-version-kind` extension names: an object or a list of them.
fn gvks(extension: Option<&Value>) -> Vec<(String, Text)> {
    let one = |item: &Value| -> Option<(String, Text)> {
        let text = |key| item.get(key).and_then(Value::as_str).unwrap_or_default();
        item.as_object()?;
        let gvk = Gvk::new(text("group"), text("version"), text("kind"));
        Some((gvk.api_version(), gvk.kind))
    };
    match extension {
        Some(Value::Array(items)) => items.iter().filter_map(one).collect(),
        Some(item) => one(item).into_iter().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_merge_by_name_and_ports_by_two_keys() {
        let schema = Schema::default();
        let spec = schema
            .of("apps/v1", "Deployment")
            .and_then(|place| place.field("spec"))
            .and_then(|place| place.field("template"))
            .and_then(|place| place.field("spec"))
            .unwrap();
        let containers = spec.field("containers").unwrap();
        assert_eq!(containers.merge_keys().unwrap(), ["name"]);
        let ports = containers.element().unwrap().field("ports").unwrap();
        assert_eq!(ports.merge_keys().unwrap(), ["containerPort", "protocol"]);
        assert!(spec.field("tolerations").is_none());
        assert!(schema.of("autoscaling/v2", "HorizontalPodAutoscaler").is_none());
    }

    #[test]
    fn scope_depends_on_the_exact_version() {
        let schema = Schema::default();
        let scoped = |group, version, kind| schema.is_cluster_scoped(&Gvk::new(group, version, kind));
        assert!(scoped("", "v1", "Namespace"));
        assert!(scoped("rbac.authorization.k8s.io", "v1", "ClusterRole"));
        assert!(!scoped("rbac.authorization.k8s.io", "v1alpha1", "ClusterRole"));
        assert!(!scoped("x.io", "v1", "Namespace"));
    }
}
