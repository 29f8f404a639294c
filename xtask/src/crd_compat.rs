//! `cargo xtask crd-compat DIR`: our CustomResourceDefinitions against those of a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

/// Prints every structural difference between our definitions and those in `directory`.
///
/// # Errors
/// If there is a difference, or a file cannot be read.
pub(crate) fn run(directory: &Path) -> anyhow::Result<()> {
    let reference = read(directory)?;
    let ours: BTreeMap<String, Value> = weir_api::crd::definitions()
        .into_iter()
        .map(|definition| (weir_api::crd::name(&definition).to_owned(), definition))
        .collect();
    let mut differences = compare(&ours, &reference);
    differences.retain(|difference| !is_deliberate(difference));
    for difference in &differences {
        say(difference);
    }
    if !differences.is_empty() {
        bail!("{} differences from {}", differences.len(), directory.display());
    }
    say(&format!("{} CustomResourceDefinitions agree with {}", reference.len(), directory.display()));
    Ok(())
}

/// Kinds that the operator of the reference adds to the enumerations of an installation; ours have them from the start.
const OPERATOR_KINDS: [&str; 3] = ["FluxInstance", "ResourceSet", "ResourceSetInputProvider"];

fn is_deliberate(difference: &str) -> bool {
    let Some((path, kind)) = difference.split_once(": only ours: ") else { return false };
    let notification =
        path.starts_with("alerts.notification.") || path.starts_with("receivers.notification.");
    notification
        && path.ends_with(".items.properties.kind.enum")
        && OPERATOR_KINDS.contains(&kind.trim_matches('"'))
}

/// The definitions in the YAML files of a directory, by name.
fn read(directory: &Path) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut definitions = BTreeMap::new();
    for entry in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let path = entry.with_context(|| format!("list {}", directory.display()))?.path();
        if !path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            continue;
        }
        let origin = path.display().to_string();
        let bytes = fs::read(&path).with_context(|| format!("read {origin}"))?;
        for document in weir_manifest::read_documents(&bytes, &origin)? {
            if document["kind"] == "CustomResourceDefinition" {
                definitions.insert(weir_api::crd::name(&document).to_owned(), document);
            }
        }
    }
    if definitions.is_empty() {
        bail!("no CustomResourceDefinition in {}", directory.display());
    }
    Ok(definitions)
}

fn compare(ours: &BTreeMap<String, Value>, reference: &BTreeMap<String, Value>) -> Vec<String> {
    let names: BTreeSet<&String> = ours.keys().chain(reference.keys()).collect();
    let mut differences = Vec::new();
    for name in names {
        match (ours.get(name), reference.get(name)) {
            (Some(ours), Some(reference)) => {
                Comparison { differences: &mut differences }.value(name, &normal(ours), &normal(reference));
            }
            (Some(_), None) => differences.push(format!("{name}: only ours")),
            (None, _) => differences.push(format!("{name}: only in the reference")),
        }
    }
    differences
}

/// A definition without what has no meaning for the API server, and with what it assumes when nothing is said.
fn normal(definition: &Value) -> Value {
    let mut definition = definition.clone();
    if let Value::Object(map) = &mut definition {
        map.remove("status");
    }
    if let Some(Value::Object(metadata)) = definition.get_mut("metadata") {
        metadata.remove("creationTimestamp");
        // What generators and Git tools note down about a definition is no part of the API.
        metadata.remove("annotations");
        metadata.retain(|_, value| *value != Value::Object(Map::new()));
    }
    let Some(Value::Object(spec)) = definition.get_mut("spec") else { return definition };
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
    if spec.get("conversion").is_some_and(|conversion| *conversion == serde_json::json!({"strategy": "None"}))
    {
        spec.remove("conversion");
    }
    let Some(Value::Array(versions)) = spec.get_mut("versions") else { return definition };
    for version in versions {
        if let Value::Object(version) = version {
            version.entry("subresources").or_insert_with(|| Value::Object(Map::new()));
            if version.get("deprecated") == Some(&Value::Bool(false)) {
                version.remove("deprecated");
            }
            for column in version
                .get_mut("additionalPrinterColumns")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Value::Object(column) = column {
                    column.remove("description");
                    if column.get("priority") == Some(&Value::from(0)) {
                        column.remove("priority");
                    }
                }
            }
        }
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            remove_descriptions(schema);
        }
    }
    definition
}

/// Removes descriptions of schemas, but not properties of that name.
fn remove_descriptions(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("description");
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = map.get_mut(key) {
            remove_descriptions(inner);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(remove_descriptions);
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(remove_descriptions);
    }
}

struct Comparison<'a> {
    differences: &'a mut Vec<String>,
}

impl Comparison<'_> {
    fn value(&mut self, path: &str, ours: &Value, reference: &Value) {
        match (ours, reference) {
            (Value::Object(ours), Value::Object(reference)) => self.maps(path, ours, reference),
            (Value::Array(ours), Value::Array(reference)) => self.lists(path, ours, reference),
            _ if ours == reference => {}
            _ => self.differences.push(format!("{path}: ours {ours}, reference {reference}")),
        }
    }

    fn maps(&mut self, path: &str, ours: &Map<String, Value>, reference: &Map<String, Value>) {
        let keys: BTreeSet<&String> = ours.keys().chain(reference.keys()).collect();
        for key in keys {
            let inner = format!("{path}.{key}");
            match (ours.get(key), reference.get(key)) {
                (Some(ours), Some(reference)) => self.value(&inner, ours, reference),
                (Some(value), None) => self.differences.push(format!("{inner}: only ours: {value}")),
                (None, Some(value)) => {
                    self.differences.push(format!("{inner}: only in the reference: {value}"));
                }
                (None, None) => {}
            }
        }
    }

    /// Lists of plain values in places where their order means nothing are compared as sets; versions by name; others in order.
    fn lists(&mut self, path: &str, ours: &[Value], reference: &[Value]) {
        let last = path.rsplit('.').next().unwrap_or_default();
        if matches!(last, "required" | "enum" | "categories") {
            let set = |list: &[Value]| list.iter().map(Value::to_string).collect::<BTreeSet<_>>();
            let (ours, reference) = (set(ours), set(reference));
            for value in ours.difference(&reference) {
                self.differences.push(format!("{path}: only ours: {value}"));
            }
            for value in reference.difference(&ours) {
                self.differences.push(format!("{path}: only in the reference: {value}"));
            }
        } else if last == "versions" {
            let by_name = |list: &[Value]| {
                let named = |version: &Value| version["name"].as_str().unwrap_or_default().to_owned();
                list.iter().map(|version| (named(version), version.clone())).collect::<Map<_, _>>()
            };
            self.maps(path, &by_name(ours), &by_name(reference));
        } else if ours.len() == reference.len() {
            for (index, (ours, reference)) in ours.iter().zip(reference).enumerate() {
                self.value(&format!("{path}[{index}]"), ours, reference);
            }
        } else {
            let text = |list: &[Value]| Value::from(list.to_vec()).to_string();
            self.differences.push(format!("{path}: ours {}, reference {}", text(ours), text(reference)));
        }
    }
}

#[expect(clippy::print_stdout, reason = "a tool for the terminal")]
fn say(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "
metadata: {name: widgets.example.org, annotations: {controller-gen.kubebuilder.io/version: v1}}
spec:
  group: example.org
  names: {kind: Widget, plural: widgets, shortNames: [w], categories: [b, a]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp, priority: 0}
    schema:
      openAPIV3Schema:
        description: A widget.
        type: object
        required: [size, name]
        properties:
          name: {type: string, pattern: ^a, minLength: 1, description: Its name.}
          size: {type: integer, minimum: 1, default: 3}
          color: {type: string, enum: [red, green]}
          description: {type: string}
          parts:
            type: array
            maxItems: 3
            items: {type: string}
            x-kubernetes-validations:
            - {rule: self.size() > 0, message: not empty}
";

    fn definition(text: &str) -> BTreeMap<String, Value> {
        let documents = weir_manifest::read_documents(text.as_bytes(), "test").unwrap();
        BTreeMap::from([("widgets".to_owned(), documents[0].clone())])
    }

    /// Our text with a replacement becomes the reference.
    #[track_caller]
    fn check(from: &str, to: &str, expected: &[&str]) {
        assert!(OURS.contains(from), "{from}");
        assert_eq!(compare(&definition(OURS), &definition(&OURS.replacen(from, to, 1))), expected);
    }

    const SCHEMA: &str = "widgets.spec.versions.v1.schema.openAPIV3Schema";

    #[test]
    fn what_has_no_meaning_is_no_difference() {
        check("A widget.", "Something else.", &[]);
        check(", annotations: {controller-gen.kubebuilder.io/version: v1}", "", &[]);
        check(", priority: 0", "", &[]);
        check("[b, a]", "[a, b]", &[]);
        check("[size, name]", "[name, size]", &[]);
        check("[red, green]", "[green, red]", &[]);
        check("    served: true", "    served: true\n    subresources: {}", &[]);
        check("  scope: Namespaced", "  scope: Namespaced\n  conversion: {strategy: None}", &[]);
    }

    #[test]
    fn every_aspect_of_a_kind() {
        check("Namespaced", "Cluster", &[r#"widgets.spec.scope: ours "Namespaced", reference "Cluster""#]);
        check(
            "kind: Widget",
            "kind: Gadget",
            &[r#"widgets.spec.names.kind: ours "Widget", reference "Gadget""#],
        );
        check("[w]", "[wg]", &[r#"widgets.spec.names.shortNames[0]: ours "w", reference "wg""#]);
        check("[b, a]", "[b]", &[r#"widgets.spec.names.categories: only ours: "a""#]);
        check(
            "served: true",
            "served: false",
            &["widgets.spec.versions.v1.served: ours true, reference false"],
        );
        check(
            "storage: true",
            "storage: false",
            &["widgets.spec.versions.v1.storage: ours true, reference false"],
        );
        check(
            "    storage: true",
            "    storage: true\n    subresources: {status: {}}",
            &["widgets.spec.versions.v1.subresources.status: only in the reference: {}"],
        );
        check(
            "name: Age,",
            "name: Old,",
            &[r#"widgets.spec.versions.v1.additionalPrinterColumns[0].name: ours "Age", reference "Old""#],
        );
        check(
            "priority: 0",
            "priority: 1",
            &["widgets.spec.versions.v1.additionalPrinterColumns[0].priority: only in the reference: 1"],
        );
    }

    #[test]
    fn every_aspect_of_a_schema() {
        #[track_caller]
        fn check_schema(from: &str, to: &str, expected: &str) {
            check(from, to, &[&format!("{SCHEMA}.{expected}")]);
        }
        check_schema(
            "type: integer",
            "type: number",
            r#"properties.size.type: ours "integer", reference "number""#,
        );
        check_schema("^a", "^b", r#"properties.name.pattern: ours "^a", reference "^b""#);
        check_schema("minLength: 1", "minLength: 2", "properties.name.minLength: ours 1, reference 2");
        check_schema("minimum: 1", "minimum: 0", "properties.size.minimum: ours 1, reference 0");
        check_schema("default: 3", "default: 4", "properties.size.default: ours 3, reference 4");
        check_schema(", default: 3", "", "properties.size.default: only ours: 3");
        check_schema("[red, green]", "[red]", r#"properties.color.enum: only ours: "green""#);
        check_schema("[size, name]", "[size, name, color]", r#"required: only in the reference: "color""#);
        check_schema(
            "          description: {type: string}\n",
            "",
            r#"properties.description: only ours: {"type":"string"}"#,
        );
        check_schema("maxItems: 3", "maxItems: 4", "properties.parts.maxItems: ours 3, reference 4");
        check_schema(
            "items: {type: string}",
            "items: {type: string, format: byte}",
            r#"properties.parts.items.format: only in the reference: "byte""#,
        );
        check_schema(
            "self.size() > 0",
            "self.size() > 1",
            r#"properties.parts.x-kubernetes-validations[0].rule: ours "self.size() > 0", reference "self.size() > 1""#,
        );
        check_schema(
            "message: not empty",
            "message: empty",
            r#"properties.parts.x-kubernetes-validations[0].message: ours "not empty", reference "empty""#,
        );
    }

    #[test]
    fn missing_kinds_and_versions() {
        let other = definition(&OURS.replacen("name: v1\n", "name: v2\n", 1));
        let differences = compare(&definition(OURS), &other);
        let starts: Vec<&str> = differences.iter().filter_map(|line| line.split(": {").next()).collect();
        assert_eq!(
            starts,
            ["widgets.spec.versions.v1: only ours", "widgets.spec.versions.v2: only in the reference"]
        );
        assert_eq!(compare(&definition(OURS), &BTreeMap::new()), ["widgets: only ours"]);
        assert_eq!(compare(&BTreeMap::new(), &definition(OURS)), ["widgets: only in the reference"]);
    }
}
