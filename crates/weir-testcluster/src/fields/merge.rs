//! The typed merge of an applied configuration into the live object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::PathElement;
use super::walk::{Shape, elements, is_vacant, shape};
use crate::schema::Schema;

/// The live value with everything of the configuration laid over it.
pub(crate) fn merge(live: Option<&Value>, config: Option<&Value>, schema: Option<&Schema>) -> Value {
    let (Some(config), Some(live)) = (config, live) else {
        return config.or(live).cloned().unwrap_or(Value::Null);
    };
    let treated = if config.is_null() { shape(Some(live), schema) } else { shape(Some(config), schema) };
    if is_vacant(Some(live)) && is_vacant(Some(config)) {
        return config.clone();
    }
    match (treated, schema) {
        (Shape::Map, _) => {
            let empty = Map::new();
            let live = live.as_object().unwrap_or(&empty);
            let config = config.as_object().unwrap_or(&empty);
            let mut out = Map::new();
            for (name, value) in live {
                let over = config.get(name);
                let merged = match over {
                    None => value.clone(),
                    Some(_) => merge(Some(value), over, schema.and_then(|schema| schema.field(name))),
                };
                out.insert(name.clone(), merged);
            }
            for (name, value) in config {
                if !live.contains_key(name) {
                    out.insert(name.clone(), value.clone());
                }
            }
            Value::Object(out)
        }
        (Shape::List, Some(schema)) => Value::Array(merge_lists(live, config, schema)),
        _ => config.clone(),
    }
}

/// Elements keep the order of the configuration; those of the live list alone stay where they are between the others.
fn merge_lists(live: &Value, config: &Value, schema: &Schema) -> Vec<Value> {
    let live = elements(Some(live), schema);
    let config = elements(Some(config), schema);
    let live_by: BTreeMap<&PathElement, &Value> = live.iter().rev().map(|(e, v)| (e, *v)).collect();
    let config_by: BTreeMap<&PathElement, &Value> = config.iter().rev().map(|(e, v)| (e, *v)).collect();
    let type_of = schema.items.as_deref();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let mut next = 0;
    let mut taken = std::collections::BTreeSet::new();
    for (element, value) in &live {
        if !config_by.contains_key(element) {
            out.push((*value).clone());
            continue;
        }
        // The next element of the configuration that the live list has too.
        let shared =
            config.iter().skip(next).map(|(e, _)| e).find(|e| live_by.contains_key(e) && !taken.contains(*e));
        if taken.contains(element) || shared != Some(element) {
            continue;
        }
        while let Some((other, value)) = config.get(next) {
            next += 1;
            if taken.insert(other) {
                out.push(merge(live_by.get(other).copied(), Some(value), type_of));
            }
            if other == element {
                break;
            }
        }
    }
    for (element, value) in config.iter().skip(next) {
        if taken.insert(element) {
            out.push(merge(live_by.get(element).copied(), Some(value), type_of));
        }
    }
    out
}
