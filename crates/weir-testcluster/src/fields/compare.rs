//! What changed between two objects, field by field.

use serde_json::Value;

use super::set::{FieldSet, PathElement};
use super::walk::{Shape, elements, is_vacant, shape};
use crate::schema::Schema;

/// The fields that differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Comparison {
    pub(crate) fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Without the fields of the set and all below them.
    pub(crate) fn without(self, ignored: &FieldSet) -> Comparison {
        if ignored.is_empty() || self.is_same() {
            return self;
        }
        Comparison {
            added: self.added.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            removed: self.removed.recursive_difference(ignored),
        }
    }

    /// Added or modified.
    pub(crate) fn written(&self) -> FieldSet {
        self.added.clone().union(&self.modified)
    }

    fn attach(&mut self, element: &PathElement, below: Comparison) {
        self.added.attach(element, below.added);
        self.modified.attach(element, below.modified);
        self.removed.attach(element, below.removed);
    }

    fn leaf(&mut self, element: &PathElement, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, Some(_)) => {
                self.added.members.insert(element.clone());
            }
            (Some(_), None) => {
                self.removed.members.insert(element.clone());
            }
            (Some(old), Some(new)) if old != new => {
                self.modified.members.insert(element.clone());
            }
            _ => {}
        }
    }
}

/// Compares two objects of one schema.
pub(crate) fn compare(old: &Value, new: &Value, schema: Option<&Schema>) -> Comparison {
    let mut out = Comparison::default();
    maps(Some(old), Some(new), schema, &mut out);
    out
}

fn maps(old: Option<&Value>, new: Option<&Value>, schema: Option<&Schema>, out: &mut Comparison) {
    let old = old.and_then(Value::as_object);
    let new = new.and_then(Value::as_object);
    for (name, old_value) in old.into_iter().flatten() {
        let new_value = new.and_then(|new| new.get(name));
        if new_value == Some(old_value) {
            continue;
        }
        let type_of = schema.and_then(|schema| schema.field(name));
        node(&PathElement::field(name), Some(old_value), new_value, type_of, out);
    }
    for (name, new_value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            let type_of = schema.and_then(|schema| schema.field(name));
            node(&PathElement::field(name), None, Some(new_value), type_of, out);
        }
    }
}

fn lists(old: Option<&Value>, new: Option<&Value>, schema: &Schema, out: &mut Comparison) {
    let old = elements(old, schema);
    let new = elements(new, schema);
    let type_of = schema.items.as_deref();
    let mut seen = std::collections::BTreeSet::new();
    for (element, _) in old.iter().chain(&new) {
        if !seen.insert(element) {
            continue;
        }
        let before: Vec<&Value> = old.iter().filter(|(e, _)| e == element).map(|(_, v)| *v).collect();
        let after: Vec<&Value> = new.iter().filter(|(e, _)| e == element).map(|(_, v)| *v).collect();
        if before.len() > 1 || after.len() > 1 {
            // Elements with one key more than once are compared as a whole.
            match (before.is_empty(), after.is_empty()) {
                (true, _) => _ = out.added.members.insert(element.clone()),
                (_, true) => _ = out.removed.members.insert(element.clone()),
                _ if before != after => _ = out.modified.members.insert(element.clone()),
                _ => {}
            }
            continue;
        }
        node(element, before.first().copied(), after.first().copied(), type_of, out);
    }
}

fn node(
    element: &PathElement,
    old: Option<&Value>,
    new: Option<&Value>,
    schema: Option<&Schema>,
    out: &mut Comparison,
) {
    let old_shape = shape(old, schema);
    let new_shape = shape(new, schema);
    let wildcard = |value: Option<&Value>| value.is_none_or(Value::is_null);
    let treated = if wildcard(new) && !wildcard(old) { old_shape } else { new_shape };
    let both_vacant = is_vacant(old) && is_vacant(new);
    if treated == Shape::Leaf && (wildcard(old) || old_shape == Shape::Leaf) || both_vacant {
        out.leaf(element, old, new);
        return;
    }
    let mut below = Comparison::default();
    if !wildcard(old) && !wildcard(new) && old_shape != new_shape {
        // Another type: what was there is gone, what is there is new.
        visit(old_shape, old, None, schema, &mut below);
        visit(new_shape, None, new, schema, &mut below);
        out.attach(element, below);
        out.modified.members.insert(element.clone());
        return;
    }
    visit(treated, old, new, schema, &mut below);
    out.attach(element, below);
    if old.is_none() {
        out.added.members.insert(element.clone());
    } else if new.is_none() {
        out.removed.members.insert(element.clone());
    }
}

fn visit(
    treated: Shape,
    old: Option<&Value>,
    new: Option<&Value>,
    schema: Option<&Schema>,
    out: &mut Comparison,
) {
    match (treated, schema) {
        (Shape::Map, _) => maps(old, new, schema, out),
        (Shape::List, Some(schema)) => lists(old, new, schema, out),
        _ => {}
    }
}
