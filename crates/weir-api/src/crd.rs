//! The CustomResourceDefinitions, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::names::annotation::{DISABLED, KUSTOMIZE_SUBSTITUTE};
use crate::{extensions, helm, image, kustomize, notification, operator, source};

/// What the derive cannot say about a kind.
#[derive(Clone, Copy, Default)]
struct Extra {
    /// New objects start with a status whose observed generation is -1.
    starts_unobserved: bool,
    /// The only name an object of the kind may have.
    only_name: Option<&'static str>,
    /// Variables in the definition may be substituted when it is applied from Git.
    substitute: bool,
}

const TOOLKIT: Extra = Extra { starts_unobserved: true, only_name: None, substitute: false };
const PLAIN: Extra = Extra { starts_unobserved: false, only_name: None, substitute: false };
const IMAGE: Extra = Extra { starts_unobserved: true, only_name: None, substitute: true };
const OPERATOR: Extra = Extra { starts_unobserved: false, only_name: None, substitute: true };
const SINGLETON: Extra = Extra { starts_unobserved: false, only_name: Some("flux"), substitute: true };

/// The definitions of all kinds as JSON, ordered by name.
pub fn definitions() -> Vec<Value> {
    let mut definitions = vec![
        definition::<source::Bucket>(TOOLKIT),
        definition::<source::ExternalArtifact>(PLAIN),
        definition::<source::GitRepository>(TOOLKIT),
        definition::<source::HelmChart>(TOOLKIT),
        definition::<source::HelmRepository>(TOOLKIT),
        definition::<source::OCIRepository>(TOOLKIT),
        definition::<kustomize::Kustomization>(TOOLKIT),
        definition::<helm::HelmRelease>(TOOLKIT),
        definition::<notification::Alert>(PLAIN),
        definition::<notification::Provider>(PLAIN),
        definition::<notification::Receiver>(TOOLKIT),
        definition::<image::ImagePolicy>(IMAGE),
        definition::<image::ImageRepository>(IMAGE),
        definition::<image::ImageUpdateAutomation>(TOOLKIT),
        definition::<extensions::ArtifactGenerator>(PLAIN),
        definition::<operator::FluxInstance>(SINGLETON),
        definition::<operator::FluxReport>(SINGLETON),
        definition::<operator::ResourceSet>(OPERATOR),
        definition::<operator::ResourceSetInputProvider>(OPERATOR),
    ];
    definitions.sort_by(|a, b| name(a).cmp(name(b)));
    definitions
}

/// The name of a definition.
pub fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
}

fn definition<K: CustomResourceExt>(extra: Extra) -> Value {
    let mut definition = to_json(&K::crd());
    let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    definition["spec"]["names"]["listKind"] = json!(format!("{kind}List"));
    if !extra.substitute {
        definition["metadata"]["annotations"] = json!({ KUSTOMIZE_SUBSTITUTE: DISABLED });
    }
    let version = &mut definition["spec"]["versions"][0];
    if version.get("subresources").is_none() {
        version["subresources"] = json!({});
    }
    let root = &mut version["schema"]["openAPIV3Schema"];
    let mut schema = root.take();
    clean(&mut schema);
    if let Value::Object(map) = &mut schema {
        map.remove("required");
        map.insert("type".to_owned(), json!("object"));
        if let Some(name) = extra.only_name {
            map.insert(
                "x-kubernetes-validations".to_owned(),
                json!([{
                    "message": format!("the only accepted name for a {kind} is '{name}'"),
                    "rule": format!("self.metadata.name == '{name}'"),
                }]),
            );
        }
    }
    let properties = &mut schema["properties"];
    properties["apiVersion"] =
        json!({"type": "string", "description": "Version of the schema of this object."});
    properties["kind"] = json!({"type": "string", "description": "Kind of this object."});
    properties["metadata"] = json!({"type": "object"});
    if extra.starts_unobserved {
        properties["status"]["default"] = json!({"observedGeneration": -1});
    }
    *root = schema;
    definition
}

#[expect(
    clippy::expect_used,
    reason = "a definition is plain data; a failure is caught by every test of this module"
)]
fn to_json(definition: &CustomResourceDefinition) -> Value {
    serde_json::to_value(definition).expect("a definition is plain data")
}

/// Removes what derive adds for optional fields: the API treats an absent field as the only way to say nothing.
fn clean(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("nullable");
    map.remove("title");
    for key in ["minimum", "maximum"] {
        // The types of the API hold bounds as floating point numbers; ours are whole.
        if let Some(bound) = map.get(key).and_then(Value::as_f64) {
            map.insert(key.to_owned(), json!(bound as i64));
        }
    }
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            clean(inner);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(clean);
    }
    for key in ["anyOf", "oneOf"] {
        let Some(Value::Array(mut branches)) = map.remove(key) else { continue };
        branches.retain(|branch| !is_null_branch(branch));
        branches.iter_mut().for_each(clean);
        if let ([Value::Object(only)], true) = (branches.as_slice(), !branches.is_empty()) {
            merge(map, only);
        } else {
            map.insert(key.to_owned(), Value::Array(branches));
        }
    }
}

fn is_null_branch(branch: &Value) -> bool {
    branch["enum"] == json!([null]) || branch["type"] == json!("null")
}

fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        into.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Map<String, Value>)) {
        let map = schema.as_object().unwrap_or_else(|| panic!("{path} is no schema"));
        visit(path, map);
        for (name, inner) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            walk(&format!("{path}.{name}"), inner, visit);
        }
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = map.get(key) {
                walk(&format!("{path}.{key}"), inner, visit);
            }
        }
    }

    #[test]
    fn nineteen_kinds_in_order() {
        let definitions = definitions();
        let names: Vec<&str> = definitions.iter().map(name).collect();
        assert_eq!(names.len(), 19);
        assert!(names.is_sorted());
        for definition in &definitions {
            let versions = definition["spec"]["versions"].as_array().unwrap();
            assert_eq!(versions.len(), 1);
            assert_eq!(
                (versions[0]["served"].clone(), versions[0]["storage"].clone()),
                (json!(true), json!(true))
            );
        }
    }

    #[test]
    fn schemas_are_structural_and_described() {
        for definition in definitions() {
            walk(
                name(&definition),
                &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
                &mut |path, schema| {
                    for key in ["nullable", "anyOf", "oneOf", "allOf", "$ref", "title"] {
                        assert!(!schema.contains_key(key), "{path} has {key}");
                    }
                    assert!(
                        schema.contains_key("type")
                            || schema.contains_key("x-kubernetes-preserve-unknown-fields"),
                        "{path} has no type"
                    );
                    let last = path.rsplit('.').next().unwrap_or_default();
                    let described = schema.contains_key("description")
                        || ["items", "additionalProperties", "metadata"].contains(&last);
                    assert!(described, "{path} has no description");
                },
            );
        }
    }

    #[test]
    fn optional_fields_lose_their_null_branch() {
        #[track_caller]
        fn check(mut schema: Value, expected: &Value) {
            clean(&mut schema);
            assert_eq!(&schema, expected);
        }
        check(json!({"type": "string", "nullable": true}), &json!({"type": "string"}));
        check(json!({"type": "integer", "minimum": 1.0}), &json!({"type": "integer", "minimum": 1}));
        check(json!({"enum": ["a", null], "type": "string"}), &json!({"enum": ["a"], "type": "string"}));
        check(
            json!({"description": "x", "anyOf": [{"type": "integer", "description": "y"}, {"enum": [null], "nullable": true}]}),
            &json!({"description": "x", "type": "integer"}),
        );
        check(
            json!({"properties": {"a": {"items": {"nullable": true, "type": "string"}, "type": "array"}}}),
            &json!({"properties": {"a": {"items": {"type": "string"}, "type": "array"}}}),
        );
    }
}
