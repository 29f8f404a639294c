//! Removing fields that nobody wants any more.

use serde_json::Value;

use super::set::{FieldSet, PathElement};
use super::walk::{Shape, element_of, shape, with_named_fields};
use crate::schema::Schema;

/// Removes from the merged object what the applier owned before and nobody owns now.
///
/// `last` is what the applier owned, `managed` what all managers own now.
pub(crate) fn prune(merged: &mut Value, last: &FieldSet, managed: &FieldSet, schema: Option<&Schema>) {
    let last = with_named_fields(last, schema);
    let managed = with_named_fields(managed, schema);
    let stale = last.difference(&managed);
    if !stale.is_empty() {
        remove(merged, &stale, schema);
    }
}

/// Removes the fields of the set with all that is below them.
pub(crate) fn remove(value: &mut Value, set: &FieldSet, schema: Option<&Schema>) {
    match (shape(Some(value), schema), &mut *value, schema) {
        (Shape::Map, Value::Object(map), _) => {
            if map.is_empty() {
                return;
            }
            map.retain(|name, below| {
                let element = PathElement::field(name);
                if set.has(&element) {
                    return false;
                }
                if let Some(minus) = set.children.get(&element) {
                    remove(below, minus, schema.and_then(|schema| schema.field(name)));
                }
                true
            });
            if map.is_empty() {
                *value = Value::Null;
            }
        }
        (Shape::List, Value::Array(items), Some(schema)) => {
            if items.is_empty() {
                return;
            }
            let mut index = 0;
            items.retain_mut(|item| {
                let element = element_of(item, schema, index);
                index += 1;
                let Some(element) = element else { return true };
                if set.has(&element) {
                    return false;
                }
                if let Some(minus) = set.children.get(&element) {
                    remove(item, minus, schema.items.as_deref());
                }
                true
            });
            if items.is_empty() {
                *value = Value::Null;
            }
        }
        _ => {}
    }
}
