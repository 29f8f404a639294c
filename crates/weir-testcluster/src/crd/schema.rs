//! From `openAPIV3Schema` to the type model; pruning and defaulting by it.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::GroupVersionKind;
use crate::builtin;
use crate::schema::{CelRule, Fields, ListType, Rules, Schema, Type};

/// The keys of a schema that say something about values.
const RULES: &[&str] = &[
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "format",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
];

/// The schema of a version with the fields that every object has.
pub(crate) fn root(written: &Value) -> Schema {
    let mut out = convert(written);
    out.ty = Type::Object;
    let mut fields = out.fields.as_deref().cloned().unwrap_or_default();
    fields.properties.insert("apiVersion".into(), Schema::of(Type::String));
    fields.properties.insert("kind".into(), Schema::of(Type::String));
    let mut metadata = metadata();
    if let Some(written) = written["properties"].get("metadata") {
        metadata.rules = convert(written).rules;
        if let Some(properties) = written["properties"].as_object() {
            let mut known = metadata.fields.as_deref().cloned().unwrap_or_default();
            for (name, node) in properties {
                if let Some(field) = known.properties.get_mut(name.as_str()) {
                    field.rules = convert(node).rules;
                }
            }
            metadata.fields = Some(Arc::new(known));
        }
    }
    fields.properties.insert("metadata".into(), metadata);
    out.fields = Some(Arc::new(fields));
    out
}

/// The type of `metadata`, as built-in kinds have it.
fn metadata() -> Schema {
    builtin::schema(&GroupVersionKind::new("", "v1", "ConfigMap"))
        .and_then(|schema| schema.named_field("metadata"))
        .cloned()
        .unwrap_or_default()
}

/// The schema of one node.
pub(crate) fn convert(node: &Value) -> Schema {
    let flag = |name: &str| node[name] == true;
    let mut out = Schema {
        ty: match node["type"].as_str() {
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            _ => Type::Any,
        },
        format: node["format"].as_str().unwrap_or_default().into(),
        default: node.get("default").cloned(),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        atomic_map: node["x-kubernetes-map-type"] == "atomic",
        nullable: flag("nullable"),
        ..Schema::default()
    };
    if flag("x-kubernetes-int-or-string") {
        out.ty = Type::IntOrString;
    }
    out.list = match node["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => {
            ListType::Map(texts(&node["x-kubernetes-list-map-keys"]).into_iter().map(Into::into).collect())
        }
        _ => ListType::Atomic,
    };
    let required: Vec<Box<str>> = texts(&node["required"]).into_iter().map(Into::into).collect();
    if let Some(properties) = node["properties"].as_object() {
        let properties =
            properties.iter().map(|(name, node)| (name.as_str().into(), convert(node))).collect();
        out.fields = Some(Arc::new(Fields { properties, required }));
    } else if !required.is_empty() {
        out.fields = Some(Arc::new(Fields { required, ..Fields::default() }));
    }
    match &node["additionalProperties"] {
        Value::Object(_) => out.additional = Some(Arc::new(convert(&node["additionalProperties"]))),
        Value::Bool(true) => out.additional = Some(Arc::new(Schema::default())),
        _ => {}
    }
    if node["items"].is_object() {
        out.items = Some(Arc::new(convert(&node["items"])));
    }
    let cel: Vec<CelRule> = node["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|rule| {
            let text = |name: &str| rule[name].as_str().unwrap_or_default().to_owned();
            CelRule {
                rule: text("rule"),
                message: text("message"),
                message_expression: text("messageExpression"),
                reason: text("reason"),
                field_path: text("fieldPath"),
            }
        })
        .collect();
    let kept: Map<String, Value> =
        RULES.iter().filter_map(|name| Some(((*name).to_owned(), node.get(*name)?.clone()))).collect();
    if !kept.is_empty() || !cel.is_empty() {
        out.rules = Some(Arc::new(Rules { node: Value::Object(kept), cel }));
    }
    out
}

pub(crate) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Removes fields without a schema and returns their paths.
pub(crate) fn prune(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut found = Vec::new();
    prune_at(value, schema, &mut String::new(), true, &mut found);
    found
}

fn prune_at(value: &mut Value, schema: &Schema, path: &mut String, root: bool, found: &mut Vec<String>) {
    let length = path.len();
    match value {
        Value::Object(map) => {
            if schema.ty == Type::Any && schema.fields.is_none() && schema.additional.is_none() {
                return;
            }
            if let (true, Some(metadata)) = (schema.embedded_resource, map.get_mut("metadata")) {
                let unknown = crate::rules::decode_metadata(metadata).unwrap_or_default();
                let dot = if path.is_empty() { "" } else { "." };
                found.extend(unknown.into_iter().map(|field| format!("{path}{dot}{field}")));
            }
            map.retain(|name, below| {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                let type_of = schema.field(name);
                let of_object =
                    schema.embedded_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
                let keep = match type_of {
                    Some(_) if root && name == "metadata" => true,
                    Some(type_of) => {
                        let pointless = below.is_null() && !type_of.nullable && type_of.ty != Type::Any;
                        prune_at(below, type_of, path, false, found);
                        !pointless
                    }
                    None if schema.preserve_unknown || of_object => true,
                    None => {
                        found.push(path.clone());
                        false
                    }
                };
                path.truncate(length);
                keep
            });
        }
        Value::Array(items) => {
            let Some(type_of) = schema.items.as_deref() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                let _ = write!(path, "[{index}]");
                prune_at(item, type_of, path, false, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Fills in the defaults of missing fields.
pub(crate) fn set_defaults(value: &mut Value, schema: &Schema) {
    set_defaults_at(value, schema, true);
}

fn set_defaults_at(value: &mut Value, schema: &Schema, root: bool) {
    match value {
        Value::Object(map) => {
            if let Some(fields) = &schema.fields {
                for (name, type_of) in &fields.properties {
                    if root && matches!(&**name, "metadata" | "apiVersion" | "kind") {
                        continue;
                    }
                    match map.get_mut(&**name) {
                        Some(below) => {
                            if below.is_null()
                                && !type_of.nullable
                                && let Some(default) = &type_of.default
                            {
                                *below = default.clone();
                            }
                            set_defaults_at(below, type_of, false);
                        }
                        None => {
                            if let Some(default) = &type_of.default {
                                let mut fresh = default.clone();
                                set_defaults_at(&mut fresh, type_of, false);
                                map.insert(name.to_string(), fresh);
                            }
                        }
                    }
                }
            }
            if let Some(type_of) = &schema.additional {
                let known = schema.fields.as_deref();
                for (name, below) in map.iter_mut() {
                    if known.is_none_or(|known| !known.properties.contains_key(name.as_str())) {
                        set_defaults_at(below, type_of, false);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(type_of) = &schema.items {
                for item in items {
                    set_defaults_at(item, type_of, false);
                }
            }
        }
        _ => {}
    }
}

/// The value at a path of names.
pub(crate) fn at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, name| value.get(name))
}

/// Sets the value at a path of names, making objects on the way.
pub(crate) fn set_at(value: &mut Value, path: &[String], new: Value) {
    let mut place = value;
    for name in path {
        if !place.is_object() {
            *place = json!({});
        }
        let Value::Object(map) = place else { return };
        place = map.entry(name.clone()).or_insert(Value::Null);
    }
    *place = new;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        convert(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string", "default": "x"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"p": {"type": "integer", "default": 1}}}},
                "l": {"type": "array", "items": {"type": "object", "properties": {"q": {"type": "string"}}}},
            }},
        }}))
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let mut value = json!({"spec": {"a": "y", "z": 1, "free": {"any": 1}, "m": {"k": {"p": 2, "r": 3}}, "l": [{"q": "", "s": 1}]}});
        let found = prune(&mut value, &schema());
        assert_eq!(found, ["spec.l[0].s", "spec.m.k.r", "spec.z"]);
        assert_eq!(
            value,
            json!({"spec": {"a": "y", "free": {"any": 1}, "m": {"k": {"p": 2}}, "l": [{"q": ""}]}})
        );
    }

    #[test]
    fn defaults_fill_what_is_missing() {
        let mut value = json!({"spec": {"m": {"k": {}}}});
        set_defaults(&mut value, &schema());
        assert_eq!(value, json!({"spec": {"a": "x", "m": {"k": {"p": 1}}}}));
        let mut without = json!({});
        set_defaults(&mut without, &schema());
        assert_eq!(without, json!({}));
    }
}
