//! Sprig's dictionary functions. Dictionaries are shared: `set`, `unset` and `merge` change the one
//! they are given.

use super::convert::{is_empty, text_of};
use super::{Outcome, argument, bytes};
use crate::deep;
use crate::error::Fault;
use crate::exec::{Context, ENTRY_BYTES};
use crate::function::{Function, Param};
use crate::text::Text;
use crate::value::{Entries, List, Map, NESTING_LEVELS_MAX, VISITED_VALUES_MAX, Value};

use Param::{Any, Map as Dict, String as Str};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::variadic("dict", &[], Any, |context, arguments| {
        context.produce(arguments.len().div_ceil(2) * ENTRY_BYTES)?;
        let entries: Entries = arguments
            .chunks(2)
            .map(|pair| {
                let value = pair.get(1).cloned().unwrap_or_else(|| Value::string(""));
                (text_of(argument(pair, 0)), value)
            })
            .collect();
        Ok(Value::Map(Map::new(entries)))
    }),
    Function::new("get", &[Dict, Str], |_, arguments| {
        let found = dict(arguments, 0).and_then(|map| map.get(bytes(arguments, 1)));
        Ok(found.unwrap_or_else(|| Value::string("")))
    }),
    Function::new("set", &[Dict, Str, Any], |context, arguments| {
        let Some(map) = dict(arguments, 0) else { return Ok(Value::Nil) };
        context.produce(bytes(arguments, 1).len() + ENTRY_BYTES)?;
        if !map.insert(bytes(arguments, 1), argument(arguments, 2).clone()) {
            return Err("assignment to entry in nil map".into());
        }
        Ok(argument(arguments, 0).clone())
    }),
    Function::new("unset", &[Dict, Str], |_, arguments| {
        if let Some(map) = dict(arguments, 0) {
            map.remove(bytes(arguments, 1));
        }
        Ok(argument(arguments, 0).clone())
    }),
    Function::new("hasKey", &[Dict, Str], |_, arguments| {
        Ok(Value::Bool(dict(arguments, 0).is_some_and(|map| map.contains(bytes(arguments, 1)))))
    }),
    Function::variadic("pluck", &[Str], Dict, |_, arguments| {
        let key = bytes(arguments, 0);
        let found = (1..arguments.len())
            .filter_map(|index| dict(arguments, index).and_then(|map| map.get(key)))
            .collect();
        Ok(Value::list(found))
    }),
    // Go gives keys and values in random order; here it is the order of the keys.
    Function::variadic("keys", &[], Dict, |_, arguments| {
        let mut keys: Vec<Text> = Vec::new();
        for index in 0..arguments.len() {
            if let Some(entries) = dict(arguments, index).and_then(Map::borrow) {
                keys.extend(entries.keys().cloned());
            }
        }
        Ok(Value::List(List::strings(keys)))
    }),
    Function::new("values", &[Dict], |_, arguments| {
        let values = dict(arguments, 0).map(Map::to_entries).unwrap_or_default();
        Ok(Value::list(values.into_values().collect()))
    }),
    Function::variadic("pick", &[Dict], Str, |context, arguments| {
        context.produce(arguments.len() * ENTRY_BYTES)?;
        let mut picked = Entries::new();
        if let Some(map) = dict(arguments, 0) {
            for index in 1..arguments.len() {
                let key = bytes(arguments, index);
                if let Some(value) = map.get(key) {
                    picked.insert(Text::from(key), value);
                }
            }
        }
        Ok(Value::Map(Map::new(picked)))
    }),
    Function::variadic("omit", &[Dict], Str, |context, arguments| {
        let mut kept = dict(arguments, 0).map(Map::to_entries).unwrap_or_default();
        context.produce(kept.len() * ENTRY_BYTES)?;
        for index in 1..arguments.len() {
            kept.remove(bytes(arguments, index));
        }
        Ok(Value::Map(Map::new(kept)))
    }),
    Function::variadic("dig", &[], Any, dig),
    Function::variadic("merge", &[Dict], Dict, |context, arguments| merge_all(context, arguments, false)),
    Function::variadic("mustMerge", &[Dict], Dict, |context, arguments| merge_all(context, arguments, false)),
    Function::variadic("mergeOverwrite", &[Dict], Dict, |context, arguments| {
        merge_all(context, arguments, true)
    }),
    Function::variadic("mustMergeOverwrite", &[Dict], Dict, |context, arguments| {
        merge_all(context, arguments, true)
    }),
    Function::new("deepCopy", &[Any], copied),
    Function::new("mustDeepCopy", &[Any], copied),
];

fn dict(arguments: &[Value], index: usize) -> Option<&Map> {
    match arguments.get(index) {
        Some(Value::Map(map)) => Some(map),
        _ => None,
    }
}

/// The panic text of a failed Go type assertion from `interface {}`.
fn wrong_type(value: &Value, wanted: &str) -> Fault {
    let found = match value {
        Value::Nil => "nil".to_owned(),
        value => value.type_name(),
    };
    format!("interface conversion: interface {{}} is {found}, not {wanted}").into()
}

fn dig(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let [keys @ .., default, last] = arguments else {
        return Err("dig needs at least three arguments".into());
    };
    if keys.is_empty() {
        return Err("dig needs at least three arguments".into());
    }
    let any_map = |value: &Value| match value {
        Value::Map(map) if map.type_name() == "map[string]interface {}" => Ok(map.clone()),
        other => Err(wrong_type(other, "map[string]interface {}")),
    };
    let mut map = any_map(last)?;
    for key in keys {
        if !matches!(key, Value::String(_)) {
            return Err(wrong_type(key, "string"));
        }
    }
    for (index, key) in keys.iter().enumerate() {
        let Value::String(key) = key else { break };
        let Some(value) = map.get(key) else { return Ok(default.clone()) };
        if index + 1 == keys.len() {
            return Ok(value);
        }
        map = any_map(&value)?;
    }
    Ok(default.clone())
}

fn merge_all(context: &mut Context<'_>, arguments: &[Value], overwrite: bool) -> Outcome {
    let mut target = match arguments.first() {
        Some(Value::Map(map)) => map.clone(),
        _ => return Ok(Value::Nil),
    };
    for index in 1..arguments.len() {
        let Some(source) = dict(arguments, index) else { continue };
        if target.is_nil() && !source.is_nil() {
            target = Map::new(Entries::new());
        }
        let mut visited = 0;
        let merged = merge(&target, source, overwrite, 0, &mut visited);
        context.produce(visited as usize * ENTRY_BYTES)?;
        merged?;
    }
    Ok(Value::Map(target))
}

/// Fills `target` from `source`: what is missing or empty, or everything if `overwrite`. Maps on
/// both sides are merged in place; otherwise values are taken over as they are, shared.
fn merge(target: &Map, source: &Map, overwrite: bool, level: usize, visited: &mut u64) -> Result<(), Fault> {
    *visited += 1;
    if level > NESTING_LEVELS_MAX || *visited > VISITED_VALUES_MAX {
        return Err("dictionaries are nested too deeply to merge".into());
    }
    if target.same(source) {
        return Ok(());
    }
    for (key, value) in source.to_entries() {
        *visited += 1;
        let existing = target.get(&key);
        if matches!(value, Value::Nil) {
            if overwrite {
                target.insert(key, value);
            }
            continue;
        }
        if let (Value::Map(value), Some(Value::Map(existing))) = (&value, &existing) {
            deep(|| merge(existing, value, overwrite, level + 1, visited))?;
        }
        if let Some(existing) = existing.filter(|existing| !is_empty(existing)) {
            let slice = matches!(value, Value::List(_) | Value::Bytes(_));
            let maps = matches!((&value, &existing), (Value::Map(_), Value::Map(_)));
            if maps || !overwrite && (slice || !is_empty(&existing)) {
                continue;
            }
        }
        target.insert(key, value);
    }
    Ok(())
}

fn copied(context: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    if matches!(argument(arguments, 0), Value::Nil) {
        return Err("reflect: call of reflect.Value.Type on zero Value".into());
    }
    let mut visited = 0;
    let copy = copy(argument(arguments, 0), 0, &mut visited);
    context.produce(visited as usize * ENTRY_BYTES)?;
    copy
}

fn copy(value: &Value, level: usize, visited: &mut u64) -> Outcome {
    *visited += 1;
    if level > NESTING_LEVELS_MAX || *visited > VISITED_VALUES_MAX {
        return Err("deepCopy error: the value is nested too deeply".into());
    }
    deep(|| match value {
        Value::List(list) if !list.is_nil() => {
            let items: Result<Vec<Value>, Fault> =
                list.items().iter().map(|item| copy(item, level + 1, visited)).collect();
            let mut copy = List::typed(items?, list.element());
            if let Some(named) = list.named_type() {
                copy = copy.named(named);
            }
            Ok(Value::List(copy))
        }
        Value::Map(map) if !map.is_nil() => {
            let mut entries = Entries::new();
            for (key, item) in map.to_entries() {
                entries.insert(key, copy(&item, level + 1, visited)?);
            }
            let mut copy = Map::typed(entries, map.element());
            if let Some(named) = map.named_type() {
                copy = copy.named(named);
            }
            Ok(Value::Map(copy))
        }
        other => Ok(other.clone()),
    })
}
