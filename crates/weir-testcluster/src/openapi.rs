//! OpenAPI documents of what is served.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::builtin;
use crate::kinds::{Kind, Kinds};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// `/`
pub(crate) fn paths(kinds: &Kinds) -> Value {
    let mut out: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for (group, version) in kinds.ordered.keys().filter(|(group, _)| !group.is_empty()) {
        out.push(format!("/apis/{group}"));
        out.push(format!("/apis/{group}/{version}"));
    }
    out.sort();
    out.dedup();
    json!({"paths": out})
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3`
pub(crate) fn index(kinds: &Kinds) -> Value {
    let mut out = Map::new();
    for ((group, version), list) in &kinds.ordered {
        let path = root(group, version);
        let custom = list.iter().any(|kind| !kind.is_builtin());
        let seed = format!("{path}{}", if custom { kinds.generation } else { 0 });
        let hash = hex::encode_upper(Sha256::digest(seed.as_bytes()));
        out.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}));
    }
    json!({"paths": out})
}

/// The name of the type of a kind, as in `io.k8s.api.apps.v1.Deployment`.
fn definition_name(kind: &Kind) -> String {
    match builtin::definition_name(&kind.gvk) {
        Some(name) if kind.is_builtin() => name.to_owned(),
        _ => {
            let reversed: Vec<&str> = kind.gvk.group.split('.').rev().collect();
            format!("{}.{}.{}", reversed.join("."), kind.gvk.version, kind.gvk.kind)
        }
    }
}

/// The document of a group and version; `None` when it is not served.
pub(crate) fn version_3(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let list = kinds.ordered.get(&(group.to_owned(), version.to_owned()))?;
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for kind in list {
        describe(kind, "#/components/schemas/", &mut schemas);
        add_paths(kind, &mut paths, "#/components/schemas/", true);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": builtin::version()["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// `/openapi/v2`
pub(crate) fn version_2(kinds: &Kinds) -> Value {
    let mut definitions = Map::new();
    let mut paths = Map::new();
    for kind in kinds.ordered.values().flatten() {
        describe(kind, "#/definitions/", &mut definitions);
        add_paths(kind, &mut paths, "#/definitions/", false);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": builtin::version()["gitVersion"]},
        "paths": paths,
        "definitions": definitions,
    })
}

/// Adds the type of a kind with all types that it refers to.
fn describe(kind: &Kind, prefix: &str, out: &mut Map<String, Value>) {
    let name = definition_name(kind);
    let gvk = json!([{"group": kind.gvk.group, "version": kind.gvk.version, "kind": kind.gvk.kind}]);
    match &kind.custom {
        None => add_builtin(&name, prefix, out),
        Some(version) => {
            let mut schema = version.written_schema.clone();
            if !schema.is_object() {
                schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            }
            let metadata = format!("{META}.ObjectMeta");
            schema["properties"]["apiVersion"] = json!({"type": "string"});
            schema["properties"]["kind"] = json!({"type": "string"});
            schema["properties"]["metadata"] = json!({"$ref": format!("{prefix}{metadata}")});
            schema["x-kubernetes-group-version-kind"] = gvk;
            add_builtin(&metadata, prefix, out);
            out.insert(name, schema);
        }
    }
}

fn add_builtin(name: &str, prefix: &str, out: &mut Map<String, Value>) {
    let mut open = vec![name.to_owned()];
    while let Some(name) = open.pop() {
        if out.contains_key(&name) {
            continue;
        }
        let Some(schema) = builtin::openapi_definition(&name, prefix) else { continue };
        references(&schema, prefix, &mut open);
        out.insert(name, schema);
    }
}

fn references(value: &Value, prefix: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, below) in map {
                match below.as_str().and_then(|text| text.strip_prefix(prefix)) {
                    Some(name) if key == "$ref" => out.push(name.to_owned()),
                    _ => references(below, prefix, out),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, prefix, out)),
        _ => {}
    }
}

/// The operations of a kind, with the parameters that clients look for.
fn add_paths(kind: &Kind, out: &mut Map<String, Value>, prefix: &str, version_3: bool) {
    let gvk = json!({"group": kind.gvk.group, "version": kind.gvk.version, "kind": kind.gvk.kind});
    let base = root(&kind.gvk.group, &kind.gvk.version);
    let collection = if kind.namespaced {
        format!("/{base}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("/{base}/{}", kind.plural)
    };
    let reference = json!({"$ref": format!("{prefix}{}", definition_name(kind))});
    let parameter = |name: &str, ty: &str| {
        if version_3 {
            json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}})
        } else {
            json!({"name": name, "in": "query", "type": ty, "uniqueItems": true})
        }
    };
    let operation = |action: &str, parameters: &[(&str, &str)]| {
        let parameters: Vec<Value> = parameters.iter().map(|(name, ty)| parameter(name, ty)).collect();
        let answer = if version_3 {
            json!({"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}})
        } else {
            json!({"200": {"description": "OK", "schema": reference}})
        };
        json!({
            "operationId": format!("{action}{}{}{}", kind.gvk.group.replace('.', "_"), kind.gvk.version, kind.gvk.kind),
            "parameters": parameters,
            "responses": answer,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        })
    };
    let write: &[(&str, &str)] =
        &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
    let patch: &[(&str, &str)] = &[
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
        ("force", "boolean"),
    ];
    let mut many = Map::new();
    let mut one = Map::new();
    for (verb, method, parameters, of_collection) in [
        ("list", "get", &[][..], true),
        ("create", "post", write, true),
        ("deletecollection", "delete", &[][..], true),
        ("get", "get", &[][..], false),
        ("update", "put", write, false),
        ("patch", "patch", patch, false),
        ("delete", "delete", &[("dryRun", "string")][..], false),
    ] {
        if !kind.has_verb(verb) {
            continue;
        }
        let action = match verb {
            "create" => "post",
            "update" => "put",
            other => other,
        };
        let target = if of_collection { &mut many } else { &mut one };
        target.insert(method.to_owned(), operation(action, parameters));
    }
    if !many.is_empty() {
        out.insert(collection.clone(), Value::Object(many));
    }
    if !one.is_empty() {
        out.insert(format!("{collection}/{{name}}"), Value::Object(one));
    }
}
