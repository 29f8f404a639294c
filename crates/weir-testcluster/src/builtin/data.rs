//! Facts of a real API server, recorded by `hack/record/apiserver`: resources, columns and types.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::{Arc, OnceLock};

use flate2::read::DeflateDecoder;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::GroupVersionKind;
use crate::schema::{Fields, ListType, PatchStrategy, Schema, Type};

/// One kind of object as discovery describes it.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    /// As in `v1`.
    pub version: String,
    /// As in `Deployment`.
    pub kind: String,
    /// As in `deployments`.
    pub plural: String,
    /// As in `deployment`.
    pub singular: String,
    /// As in `deploy`.
    pub short_names: Vec<String>,
    /// As in `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// As in `get`, `list`.
    pub verbs: Vec<String>,
    /// As in `status`, `scale`.
    pub subresources: Vec<Subresource>,
    /// The version objects are stored in; empty when the kind is not stored.
    pub storage_version: String,
    /// What discovery publishes for it.
    pub storage_version_hash: String,
    /// Whether this version comes first in its group.
    pub preferred: bool,
    /// What tables of this kind show.
    pub columns: Vec<Column>,
}

/// One subresource of a kind.
#[derive(Debug, Clone)]
pub struct Subresource {
    /// As in `status`.
    pub name: String,
    /// The kind that is read and written; its group and version are empty where they are those of the resource.
    pub kind: GroupVersionKind,
    /// As in `get`, `update`.
    pub verbs: Vec<String>,
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// As in `Ready`.
    pub name: String,
    /// As in `string`.
    pub kind: String,
    /// As in `name`.
    pub format: String,
    /// Zero: always shown; above: with `-o wide`.
    pub priority: i64,
}

/// A field of the type that a real server decodes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    /// Absent and zero are told apart.
    pub(crate) pointer: bool,
    /// Zero values are left out when written.
    pub(crate) omit_empty: bool,
    /// Zero structures are left out when written.
    pub(crate) omit_zero: bool,
    /// The embedded structure the field comes from.
    pub(crate) embedded: Option<&'static str>,
    /// As decoding errors print the type, as in `int32`.
    pub(crate) go_type: &'static str,
}

/// A group with its versions, preferred first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Empty for the core group.
    pub name: String,
    /// As in `v2`, `v1`.
    pub versions: Vec<String>,
}

static PACKED: &[u8] = include_bytes!("data/kubernetes.deflate");

/// Types refer to themselves only in the schema of a CRD; deeper than this it is a value of any type.
const DEPTH_MAX: usize = 24;

struct Definition {
    schema: &'static str,
    fields: &'static str,
}

struct Recorded {
    version: Value,
    groups: Vec<Group>,
    resources: Vec<Resource>,
    definitions: BTreeMap<&'static str, Definition>,
    kinds: HashMap<GroupVersionKind, &'static str>,
    read: Mutex<HashMap<(&'static str, usize), Arc<Schema>>>,
    fields: Mutex<HashMap<&'static str, &'static HashMap<String, Field>>>,
    roots: Mutex<HashMap<&'static str, &'static Schema>>,
}

fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let mut text = String::new();
        // The data is part of the program; a test reads all of it.
        let _ = DeflateDecoder::new(PACKED).read_to_string(&mut text);
        Recorded::read(Box::leak(text.into_boxed_str()))
    })
}

impl Recorded {
    fn read(text: &'static str) -> Self {
        let mut read = Self {
            version: Value::Null,
            groups: Vec::new(),
            resources: Vec::new(),
            definitions: BTreeMap::new(),
            kinds: HashMap::new(),
            read: Mutex::default(),
            fields: Mutex::default(),
            roots: Mutex::default(),
        };
        for line in text.lines() {
            let mut parts = line.split('\t');
            let word = parts.next().unwrap_or_default();
            let mut part = || parts.next().unwrap_or_default();
            match word {
                "version" => read.version = parse(part()),
                "group" => {
                    read.groups.push(Group { name: part().to_owned(), versions: texts(&parse(part())) });
                }
                "resource" => {
                    let mut resource = Resource::read(&parse(part()));
                    resource.preferred = read
                        .groups
                        .iter()
                        .any(|g| g.name == resource.group && g.versions.first() == Some(&resource.version));
                    read.resources.push(resource);
                }
                "type" => {
                    let name = part();
                    let definition = Definition { schema: part(), fields: part() };
                    if let Some((_, kinds)) =
                        definition.schema.split_once("\"x-kubernetes-group-version-kind\":[")
                    {
                        // The list holds flat objects, so it ends at the first bracket.
                        let list = format!("[{}]", kinds.split(']').next().unwrap_or_default());
                        for kind in parse(&list).as_array().into_iter().flatten() {
                            let text = |key: &str| kind[key].as_str().unwrap_or_default();
                            let kind = GroupVersionKind::new(text("group"), text("version"), text("kind"));
                            read.kinds.insert(kind, name);
                        }
                    }
                    read.definitions.insert(name, definition);
                }
                _ => {}
            }
        }
        read
    }
}

impl Resource {
    fn read(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Self {
            group: text("group"),
            version: text("version"),
            kind: value["responseKind"]["kind"].as_str().unwrap_or_default().to_owned(),
            plural: text("resource"),
            singular: text("singularResource"),
            short_names: texts(&value["shortNames"]),
            categories: texts(&value["categories"]),
            namespaced: value["scope"] == "Namespaced",
            verbs: texts(&value["verbs"]),
            subresources: value["subresources"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Subresource::read)
                .collect(),
            storage_version: text("storageVersion"),
            storage_version_hash: text("storageVersionHash"),
            preferred: false,
            columns: value["columns"].as_array().into_iter().flatten().map(Column::read).collect(),
        }
    }

    /// The kind with its group and version.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::new(&self.group, &self.version, &self.kind)
    }
}

impl Subresource {
    fn read(value: &Value) -> Self {
        let part = |key: &str| value["responseKind"][key].as_str().unwrap_or_default();
        Self {
            name: value["subresource"].as_str().unwrap_or_default().to_owned(),
            kind: GroupVersionKind::new(part("group"), part("version"), part("kind")),
            verbs: texts(&value["verbs"]),
        }
    }
}

impl Column {
    fn read(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Self {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            priority: value["priority"].as_i64().unwrap_or_default(),
        }
    }
}

/// The answer to `/version`.
pub fn version() -> &'static Value {
    &recorded().version
}

/// The built-in groups in the order of discovery.
pub fn groups() -> &'static [Group] {
    &recorded().groups
}

/// The built-in kinds in the order of discovery.
pub fn resources() -> &'static [Resource] {
    &recorded().resources
}

/// The resource of a built-in kind.
pub fn resource(gvk: &GroupVersionKind) -> Option<&'static Resource> {
    resources().iter().find(|r| r.kind == gvk.kind && r.group == gvk.group && r.version == gvk.version)
}

/// The type of a built-in kind, read on the first call.
///
/// Kinds that only subresources and options use, as `Scale` and `DeleteOptions`, are found too.
pub fn schema(gvk: &GroupVersionKind) -> Option<&'static Schema> {
    let data = recorded();
    let name = data.kinds.get(gvk)?;
    if let Some(found) = data.roots.lock().get(name) {
        return Some(found);
    }
    let read = type_named(name, 0)?;
    let leaked: &'static Schema = Box::leak(Box::new((*read).clone()));
    Some(*data.roots.lock().entry(name).or_insert(leaked))
}

/// The name of the OpenAPI definition of a built-in kind, as in `io.k8s.api.apps.v1.Deployment`.
pub fn definition_name(gvk: &GroupVersionKind) -> Option<&'static str> {
    recorded().kinds.get(gvk).copied()
}

/// The names of all OpenAPI definitions, sorted.
pub fn definition_names() -> impl Iterator<Item = &'static str> {
    recorded().definitions.keys().copied()
}

/// One definition as the OpenAPI document holds it, without descriptions.
///
/// `prefix` begins each reference: `#/components/schemas/` for version 3, `#/definitions/` for version 2, which also
/// writes siblings of a reference beside it instead of an `allOf`.
pub fn openapi_definition(name: &str, prefix: &str) -> Option<Value> {
    let mut schema = parse(recorded().definitions.get(name)?.schema);
    restore(&mut schema, prefix, prefix != "#/definitions/");
    Some(schema)
}

fn restore(value: &mut Value, prefix: &str, wrap: bool) {
    match value {
        Value::Object(fields) => {
            for inner in fields.values_mut() {
                restore(inner, prefix, wrap);
            }
            let Some(Value::String(name)) = fields.get("$ref") else { return };
            let reference = json!(format!("{prefix}{name}"));
            if wrap && fields.len() > 1 {
                fields.remove("$ref");
                fields.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
            } else {
                fields.insert("$ref".to_owned(), reference);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| restore(item, prefix, wrap)),
        _ => {}
    }
}

/// Reads the definition of a name, `depth` references below the first.
fn type_named(name: &str, depth: usize) -> Option<Arc<Schema>> {
    let data = recorded();
    let (&name, definition) = data.definitions.get_key_value(name)?;
    // A type that contains itself is read once for each depth and cut at the last.
    let level = if is_recursive(name) { depth } else { 0 };
    if let Some(found) = data.read.lock().get(&(name, level)) {
        return Some(found.clone());
    }
    let mut read = if depth >= DEPTH_MAX {
        Schema { preserve_unknown: true, ..Schema::of(Type::Object) }
    } else {
        read_schema(&parse(definition.schema), depth + 1)
    };
    // These hold any object; the document says only `object`.
    if [".RawExtension", ".FieldsV1", ".v1.JSON"].iter().any(|end| name.ends_with(end)) {
        read.preserve_unknown = true;
    }
    // These hold any value.
    if [".v1.JSON", ".JSONSchemaPropsOrArray", ".JSONSchemaPropsOrBool", ".JSONSchemaPropsOrStringArray"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        read.ty = Type::Any;
    }
    let read = Arc::new(read);
    data.read.lock().insert((name, level), read.clone());
    Some(read)
}

fn read_schema(schema: &Value, depth: usize) -> Schema {
    let mut read = schema["$ref"]
        .as_str()
        .and_then(|name| type_named(name, depth))
        .map_or_else(Schema::default, |s| (*s).clone());
    for (key, value) in schema.as_object().into_iter().flatten() {
        match key.as_str() {
            "type" => {
                read.ty = match value.as_str() {
                    Some("object") => Type::Object,
                    Some("array") => Type::Array,
                    Some("string") => Type::String,
                    Some("integer") => Type::Integer,
                    Some("number") => Type::Number,
                    Some("boolean") => Type::Boolean,
                    _ => Type::Any,
                }
            }
            "format" => read.format = value.as_str().unwrap_or_default().into(),
            "default" => read.default = Some(value.clone()),
            "properties" => {
                let property =
                    |(name, schema): (&String, &Value)| (name.as_str().into(), read_schema(schema, depth));
                let properties = value.as_object().into_iter().flatten().map(property).collect();
                let required = texts(&schema["required"]).into_iter().map(String::into_boxed_str).collect();
                read.fields = Some(Arc::new(Fields { properties, required }));
            }
            "items" => read.items = Some(shared_schema(value, depth)),
            "additionalProperties" => read.additional = Some(shared_schema(value, depth)),
            "x-kubernetes-list-type" => {
                read.list = match value.as_str() {
                    Some("set") => ListType::Set,
                    Some("map") => {
                        let keys = texts(&schema["x-kubernetes-list-map-keys"]);
                        ListType::Map(keys.into_iter().map(String::into_boxed_str).collect())
                    }
                    _ => ListType::Atomic,
                }
            }
            "x-kubernetes-map-type" => read.atomic_map = value == "atomic",
            "x-kubernetes-patch-strategy" => {
                let words: Vec<&str> = value.as_str().unwrap_or_default().split(',').collect();
                read.patch = PatchStrategy {
                    merge: words.contains(&"merge"),
                    retain_keys: words.contains(&"retainKeys"),
                    replace: words.contains(&"replace"),
                };
            }
            "x-kubernetes-patch-merge-key" => read.patch_merge_key = value.as_str().map(Into::into),
            _ => {}
        }
    }
    if &*read.format == "int-or-string" {
        read.ty = Type::IntOrString;
    }
    read
}

fn shared_schema(schema: &Value, depth: usize) -> Arc<Schema> {
    // A bare reference shares the definition itself.
    schema
        .as_object()
        .filter(|fields| fields.len() == 1)
        .and_then(|fields| fields.get("$ref"))
        .and_then(Value::as_str)
        .and_then(|name| type_named(name, depth))
        .unwrap_or_else(|| Arc::new(read_schema(schema, depth)))
}

/// The types of a CRD's schema contain themselves.
fn is_recursive(name: &str) -> bool {
    name.contains(".JSONSchemaProps")
}

/// The kept name of a definition.
pub(crate) fn definition(name: &str) -> Option<&'static str> {
    recorded().definitions.get_key_value(name).map(|(name, _)| *name)
}

/// A definition as it was recorded: a reference holds a name and may have siblings.
pub(crate) fn raw_definition(name: &str) -> Option<Value> {
    recorded().definitions.get(name).map(|definition| parse(definition.schema))
}

/// The fields of the type behind a definition, as a real server decodes them.
pub(crate) fn fields(definition: &'static str) -> Option<&'static HashMap<String, Field>> {
    let data = recorded();
    if let Some(found) = data.fields.lock().get(definition) {
        return Some(found);
    }
    let text = data.definitions.get(definition)?.fields;
    let lines: HashMap<String, &'static str> = serde_json::from_str(text).ok()?;
    let read = lines.into_iter().map(|(name, line)| (name, Field::read(line))).collect();
    let leaked: &'static HashMap<String, Field> = Box::leak(Box::new(read));
    data.fields.lock().insert(definition, leaked);
    Some(leaked)
}

impl Field {
    fn read(line: &'static str) -> Self {
        let (flags, go_type) = line.split_once(' ').unwrap_or(("", line));
        let (flags, embedded) =
            flags.split_once('@').map_or((flags, None), |(flags, name)| (flags, Some(name)));
        Self {
            embedded,
            pointer: flags.contains('p'),
            omit_empty: flags.contains('o'),
            omit_zero: flags.contains('z'),
            go_type,
        }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gvk(group: &str, version: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind::new(group, version, kind)
    }

    #[test]
    fn every_resource_has_its_type() {
        assert!(resources().len() > 60, "{} resources", resources().len());
        for resource in resources() {
            let schema = schema(&resource.gvk()).unwrap_or_else(|| panic!("no type of {}", resource.gvk()));
            assert_eq!(schema.ty, Type::Object, "{}", resource.gvk());
            for sub in &resource.subresources {
                assert!(!sub.verbs.is_empty(), "{}/{}", resource.plural, sub.name);
            }
        }
        assert_eq!(version()["gitVersion"].as_str().map(|v| v.starts_with("v1.")), Some(true));
    }

    #[test]
    fn a_deployment_is_known_in_depth() {
        let deployment = schema(&gvk("apps", "v1", "Deployment")).unwrap();
        let containers = deployment.at(&["spec", "template", "spec", "containers"]).unwrap();
        assert_eq!(containers.list, ListType::Map(vec!["name".into()]));
        let ports = containers.items.as_ref().unwrap().field("ports").unwrap();
        assert_eq!(ports.list, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
        let protocol = ports.items.as_ref().unwrap().field("protocol").unwrap();
        assert_eq!(protocol.default, Some(json!("TCP")));
        assert!(fields("io.k8s.api.apps.v1.DeploymentSpec").unwrap()["replicas"].pointer);
    }

    #[test]
    fn the_schema_of_a_custom_resource_definition_contains_itself() {
        let crd = schema(&gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition")).unwrap();
        let path =
            ["spec", "versions", "schema", "openAPIV3Schema", "properties", "x", "properties", "y", "items"];
        assert_eq!(crd.at(&path[..4]).unwrap().field("type").unwrap().ty, Type::String);
        assert_eq!(crd.at(&path[..8]).unwrap().field("type").unwrap().ty, Type::String);
    }

    #[test]
    fn definitions_are_given_back_as_documents_have_them() {
        let name = "io.k8s.api.apps.v1.DeploymentSpec";
        let three = openapi_definition(name, "#/components/schemas/").unwrap();
        let reference = "#/components/schemas/io.k8s.api.core.v1.PodTemplateSpec";
        assert_eq!(
            three["properties"]["template"],
            json!({ "allOf": [{ "$ref": reference }], "default": {} })
        );
        let two = openapi_definition(name, "#/definitions/").unwrap();
        let reference = "#/definitions/io.k8s.api.core.v1.PodTemplateSpec";
        assert_eq!(two["properties"]["template"], json!({ "$ref": reference, "default": {} }));
    }
}
