//! How a value merges, by its schema.

use serde_json::Value;

use super::set::{FieldSet, PathElement};
use crate::schema::{ListType, Schema, Type};

/// How a value is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As a whole.
    Leaf,
    /// Field by field.
    Map,
    /// Element by element, matched by key or value.
    List,
}

/// How a value of that schema is treated; `None` is a value that is not there.
pub(crate) fn shape(value: Option<&Value>, schema: Option<&Schema>) -> Shape {
    match value {
        Some(Value::Object(_)) if schema.is_none_or(|schema| !schema.atomic_map) => Shape::Map,
        Some(Value::Array(_)) if schema.is_some_and(|schema| schema.list != ListType::Atomic) => Shape::List,
        Some(Value::Null) => match schema {
            Some(schema) if schema.ty == Type::Object && !schema.atomic_map => Shape::Map,
            Some(schema) if schema.ty == Type::Array && schema.list != ListType::Atomic => Shape::List,
            _ => Shape::Leaf,
        },
        _ => Shape::Leaf,
    }
}

/// Whether a value is missing, null or without contents.
pub(crate) fn is_vacant(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

/// The path element of a list's element: its key fields, or itself.
///
/// `None` when an element has none of its key fields.
pub(crate) fn element_of(item: &Value, list: &Schema, index: usize) -> Option<PathElement> {
    match &list.list {
        ListType::Atomic => Some(PathElement::Index(index)),
        ListType::Set => Some(PathElement::Value(item.clone())),
        ListType::Map(keys) => {
            let object = item.as_object()?;
            let mut out = Vec::with_capacity(keys.len());
            for key in keys {
                let value = match object.get(&**key) {
                    Some(value) if !value.is_null() => Some(value.clone()),
                    _ => list
                        .items
                        .as_ref()
                        .and_then(|items| items.named_field(key))
                        .and_then(|field| field.default.clone()),
                };
                if let Some(value) = value {
                    out.push((key.clone(), value));
                }
            }
            if out.is_empty() {
                return None;
            }
            out.sort_by(|(a, _), (b, _)| a.cmp(b));
            Some(PathElement::Key(out))
        }
    }
}

/// The elements of a list with their path elements; elements without a key are left out.
pub(crate) fn elements<'v>(value: Option<&'v Value>, list: &Schema) -> Vec<(PathElement, &'v Value)> {
    let Some(Value::Array(items)) = value else { return Vec::new() };
    items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| Some((element_of(item, list, index)?, item)))
        .collect()
}

/// All fields that a configuration names.
pub(crate) fn field_set(value: &Value, schema: Option<&Schema>) -> FieldSet {
    let mut out = FieldSet::default();
    match (shape(Some(value), schema), value) {
        (Shape::Map, Value::Object(map)) => {
            for (name, below) in map {
                let element = PathElement::field(name);
                let type_of = schema.and_then(|schema| schema.field(name));
                let is_struct_field = schema.is_some_and(|schema| schema.named_field(name).is_some());
                let treated = shape(Some(below), type_of);
                let empty_map = matches!(below, Value::Object(map) if map.is_empty());
                if treated == Shape::Leaf || below.is_null() || empty_map || !is_struct_field {
                    out.members.insert(element.clone());
                }
                if treated != Shape::Leaf {
                    out.attach(&element, field_set(below, type_of));
                }
            }
        }
        (Shape::List, Value::Array(_)) => {
            let Some(schema) = schema else { return out };
            for (element, item) in elements(Some(value), schema) {
                out.members.insert(element.clone());
                let type_of = schema.items.as_deref();
                if shape(Some(item), type_of) != Shape::Leaf {
                    let below = field_set(item, type_of);
                    match out.children.get_mut(&element) {
                        Some(mine) => mine.extend(&below),
                        None => out.attach(&element, below),
                    }
                }
            }
        }
        _ => {}
    }
    out
}

/// The set with the named fields of structs added that have something of the set below them.
pub(crate) fn with_named_fields(set: &FieldSet, schema: Option<&Schema>) -> FieldSet {
    let mut out = FieldSet { members: set.members.clone(), ..FieldSet::default() };
    for (element, below) in &set.children {
        let type_of = match element {
            PathElement::Field(name) => {
                if schema.is_some_and(|schema| schema.named_field(name).is_some()) {
                    out.members.insert(element.clone());
                }
                schema.and_then(|schema| schema.field(name))
            }
            _ => schema.and_then(|schema| schema.items.as_deref()),
        };
        out.attach(element, with_named_fields(below, type_of));
    }
    out
}
