//! Strategic merge patch: a merge patch that knows how lists of built-in kinds merge.

use serde_json::{Map, Value};

use crate::edit::go_map;
use crate::schema::Schema;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// What is wrong with the patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Refused {
    fn internal(message: String) -> Self {
        Self { code: 500, reason: "", message }
    }
}

/// Applies the patch.
///
/// # Errors
/// What is wrong with the patch: an unknown directive, or an element without its merge key.
pub(crate) fn apply(value: &mut Value, patch: &Value, schema: Option<&Schema>) -> Result<(), Refused> {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return Ok(());
    };
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        None => {}
        Some("replace") => {
            *value = Value::Object(without_directives(patch));
            return Ok(());
        }
        Some("delete") => {
            *value = Value::Object(Map::new());
            return Ok(());
        }
        Some(other) => {
            let shown = go_map(&Value::Object(patch.clone()));
            return Err(Refused::internal(format!("unknown patch type: {other} in map: {shown}")));
        }
    }
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else { return Ok(()) };
    if let Some(Value::Array(keep)) = patch.get(RETAIN_KEYS) {
        let names_all = patch
            .iter()
            .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
            .all(|(name, _)| keep.iter().any(|kept| kept == name));
        if !names_all {
            let message = "invalid patch format of retainKeys".to_owned();
            return Err(Refused { code: 400, reason: "BadRequest", message });
        }
        map.retain(|name, _| keep.iter().any(|kept| kept == name));
    }
    for (name, items) in patch {
        let Some(field) = name.strip_prefix(DELETE_FROM) else { continue };
        if let (Some(Value::Array(live)), Value::Array(gone)) = (map.get_mut(field), items) {
            live.retain(|item| !gone.contains(item));
        }
    }
    for (name, over) in patch {
        if name.starts_with('$') && (name == DIRECTIVE || name == RETAIN_KEYS || name.contains('/')) {
            continue;
        }
        if over.is_null() {
            map.remove(name);
            continue;
        }
        let type_of = schema.and_then(|schema| schema.field(name));
        match over {
            Value::Object(_) => {
                let replace = type_of.is_some_and(|schema| schema.patch.replace);
                match map.get_mut(name) {
                    Some(live @ Value::Object(_)) if !replace => apply(live, over, type_of)?,
                    _ => {
                        let mut fresh = Value::Object(Map::new());
                        apply(&mut fresh, over, type_of)?;
                        map.insert(name.clone(), fresh);
                    }
                }
            }
            Value::Array(items) if type_of.is_some_and(|schema| schema.patch.merge) => {
                let order = patch.get(&format!("{ORDER}{name}")).and_then(Value::as_array);
                let live = map.remove(name);
                let merged = merge_list(live, items, order, type_of)?;
                map.insert(name.clone(), Value::Array(merged));
            }
            _ => {
                map.insert(name.clone(), over.clone());
            }
        }
    }
    for (name, order) in patch {
        let Some(field) = name.strip_prefix(ORDER) else { continue };
        if patch.contains_key(field) {
            continue;
        }
        let (Some(Value::Array(live)), Value::Array(order)) = (map.get_mut(field), order) else { continue };
        let key = schema.and_then(|schema| schema.field(field)).and_then(|s| s.patch_merge_key.as_deref());
        let server = live.clone();
        *live = reorder(std::mem::take(live), order, &server, key);
    }
    Ok(())
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(name, _)| *name != DIRECTIVE).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn merge_list(
    live: Option<Value>,
    patch: &[Value],
    order: Option<&Vec<Value>>,
    schema: Option<&Schema>,
) -> Result<Vec<Value>, Refused> {
    let mut out = match live {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let server = out.clone();
    let items = schema.and_then(|schema| schema.items.as_deref());
    let key = schema.and_then(|schema| schema.patch_merge_key.as_deref());
    let replaces = patch
        .iter()
        .any(|item| item.get(DIRECTIVE).is_some_and(|word| word == "replace") && only_directive(item));
    if replaces {
        out.clear();
    }
    if let Some(order) = order {
        check_order(patch, order, key)?;
    }
    for item in patch {
        if only_directive(item) {
            continue;
        }
        let Some(key) = key.filter(|_| item.is_object()) else {
            if !out.contains(item) {
                out.push(item.clone());
            }
            continue;
        };
        let directive = item.get(DIRECTIVE).and_then(Value::as_str);
        let id = item.get(key).ok_or_else(|| {
            Refused::internal(format!("map: {} does not contain declared merge key: {key}", go_map(item)))
        })?;
        let place = out.iter().position(|live| live.get(key) == Some(id));
        match (directive, place) {
            (Some("delete"), _) => out.retain(|live| live.get(key) != Some(id)),
            (_, Some(place)) => apply(&mut out[place], item, items)?,
            (_, None) => {
                let mut fresh = Value::Object(Map::new());
                apply(&mut fresh, item, items)?;
                out.push(fresh);
            }
        }
    }
    Ok(match order {
        Some(order) => reorder(out, order, &server, key),
        // Elements without a key take the order of the patch.
        None if key.is_none() => reorder(out, patch, &server, key),
        None => out,
    })
}

/// Whether the order names all elements of the patch.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Refused> {
    let id = |item: &Value| key.map_or_else(|| item.clone(), |key| item[key].clone());
    let wanted: Vec<Value> = order.iter().map(id).collect();
    let kept = patch.iter().filter(|item| item.get(DIRECTIVE).is_none());
    let all: Vec<&Value> = kept.collect();
    if all.iter().all(|item| wanted.contains(&id(item))) {
        return Ok(());
    }
    let lines = |items: Vec<&Value>| items.into_iter().map(go_map).collect::<Vec<_>>().join("\n");
    Err(Refused::internal(format!(
        "The order in patch list:\n[{}]\n doesn't match $setElementOrder list:\n[{}]\n",
        lines(all),
        lines(order.iter().collect())
    )))
}

fn only_directive(item: &Value) -> bool {
    item.as_object().is_some_and(|map| map.len() == 1 && map.contains_key(DIRECTIVE))
}

/// Elements that the order names come in that order; others keep their place among the server's.
fn reorder(merged: Vec<Value>, order: &[Value], server: &[Value], key: Option<&str>) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    };
    let place_in = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place_in(order, item).is_some());
    named.sort_by_key(|item| place_in(order, item));
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    for other in others {
        let limit = place_in(server, &other);
        while let Some(next) = named.peek() {
            let comes_first = match (place_in(server, next), limit) {
                (Some(mine), Some(theirs)) => mine < theirs,
                (None, _) | (Some(_), None) => true,
            };
            if !comes_first {
                break;
            }
            out.extend(named.next());
        }
        out.push(other);
    }
    out.extend(named);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Fields, PatchStrategy, Type};
    use serde_json::json;
    use std::sync::Arc;

    fn schema() -> Schema {
        let merging = |items: Schema, key: Option<&str>| Schema {
            items: Some(Arc::new(items)),
            patch: PatchStrategy { merge: true, ..PatchStrategy::default() },
            patch_merge_key: key.map(Into::into),
            ..Schema::of(Type::Array)
        };
        let fields = |list: Vec<(&str, Schema)>| Schema {
            fields: Some(Arc::new(Fields {
                properties: list.into_iter().map(|(name, schema)| (name.into(), schema)).collect(),
                required: Vec::new(),
            })),
            ..Schema::of(Type::Object)
        };
        fields(vec![
            ("c", merging(Schema::of(Type::Object), Some("name"))),
            ("f", merging(Schema::of(Type::String), None)),
            ("plain", Schema { items: Some(Arc::new(Schema::of(Type::String))), ..Schema::of(Type::Array) }),
        ])
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn check(value: Value, patch: Value, want: Value) {
        let mut out = value;
        apply(&mut out, &patch, Some(&schema())).unwrap();
        assert_eq!(out, want, "{patch}");
    }

    #[test]
    fn lists_merge_by_key() {
        let live = json!({"c": [{"name": "a", "x": 1}, {"name": "b"}]});
        check(
            live.clone(),
            json!({"c": [{"name": "a", "y": 2}, {"name": "z"}]}),
            json!({"c": [{"name": "a", "x": 1, "y": 2}, {"name": "b"}, {"name": "z"}]}),
        );
        check(live.clone(), json!({"c": [{"name": "a", "$patch": "delete"}]}), json!({"c": [{"name": "b"}]}));
        check(
            live.clone(),
            json!({"c": [{"$patch": "replace"}, {"name": "n"}]}),
            json!({"c": [{"name": "n"}]}),
        );
        check(
            live,
            json!({"$setElementOrder/c": [{"name": "b"}, {"name": "a"}], "c": [{"name": "b", "x": 3}]}),
            json!({"c": [{"name": "b", "x": 3}, {"name": "a", "x": 1}]}),
        );
    }

    #[test]
    fn primitives_and_plain_lists() {
        check(json!({"f": ["a"]}), json!({"f": ["b", "a"]}), json!({"f": ["b", "a"]}));
        check(json!({"f": ["a", "b"]}), json!({"$deleteFromPrimitiveList/f": ["a"]}), json!({"f": ["b"]}));
        check(json!({"plain": ["a"]}), json!({"plain": ["b"]}), json!({"plain": ["b"]}));
    }

    #[test]
    fn maps() {
        check(
            json!({"m": {"a": 1, "b": 2}}),
            json!({"m": {"$retainKeys": ["b"], "b": 3}}),
            json!({"m": {"b": 3}}),
        );
        check(json!({"m": {"a": 1}}), json!({"m": {"$patch": "replace", "z": 1}}), json!({"m": {"z": 1}}));
        check(json!({"m": {"a": 1}}), json!({"m": null}), json!({}));
    }
}
