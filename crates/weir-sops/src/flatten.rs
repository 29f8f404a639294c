//! Metadata of formats without nesting: `age__list_0__map_enc` back to trees.

use std::collections::BTreeMap;

use crate::tree::{Branch, Item, Key, Value};

const MAP: &str = "__map_";
const LIST: &str = "__list_";
/// Deeper names than this are not SOPS metadata.
const DEPTH_MAX: usize = 32;

/// Why flat metadata makes no tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlattenError {
    /// Two entries stand for the same place.
    #[error("Duplicate value")]
    Duplicate,
    /// A place is both a value and a list or map.
    #[error("Type mismatch")]
    Mismatch,
    /// A list lacks an item.
    #[error("Incomplete list")]
    Incomplete,
    /// Names nested beyond all use.
    #[error("nested too deeply")]
    TooDeep,
}

#[derive(Default)]
struct Place {
    value: Option<Value>,
    keys: BTreeMap<String, Place>,
    items: BTreeMap<usize, Place>,
}

enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

fn steps(name: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let (mut rest, mut list) = (name, false);
    loop {
        let next_map = rest.find(MAP).map(|at| (at, MAP.len(), false));
        let next_list = rest.find(LIST).map(|at| (at, LIST.len(), true));
        let next = [next_map, next_list].into_iter().flatten().min_by_key(|(at, ..)| *at);
        let end = next.map_or(rest.len(), |(at, ..)| at);
        let part = &rest[..end];
        steps.push(if list { Step::Item(part.parse().unwrap_or(0)) } else { Step::Key(part) });
        match next {
            None => return steps,
            Some((at, length, is_list)) => {
                rest = &rest[at + length..];
                list = is_list;
            }
        }
    }
}

/// The tree that flat entries stand for.
///
/// # Errors
/// Entries that contradict each other.
pub(crate) fn unflatten(entries: Branch) -> Result<Branch, FlattenError> {
    let mut root = Place::default();
    for Item { key, value } in entries {
        let Key::Text(name) = key else { continue };
        let steps = steps(&name);
        if steps.len() > DEPTH_MAX {
            return Err(FlattenError::TooDeep);
        }
        let mut place = &mut root;
        for step in steps {
            place = match step {
                Step::Key(key) => place.keys.entry(key.to_owned()).or_default(),
                Step::Item(index) => place.items.entry(index).or_default(),
            };
        }
        if place.value.replace(value).is_some() {
            return Err(FlattenError::Duplicate);
        }
    }
    match convert(root)? {
        Value::Map(branch) => Ok(branch),
        _ => Err(FlattenError::Mismatch),
    }
}

fn convert(place: Place) -> Result<Value, FlattenError> {
    let Place { value, keys, items } = place;
    match (value, keys.is_empty(), items.is_empty()) {
        (Some(value), true, true) => Ok(value),
        (None, _, true) => {
            let entries = keys.into_iter().map(|(key, place)| Ok(Item::new(key, convert(place)?)));
            entries.collect::<Result<_, _>>().map(Value::Map)
        }
        (None, true, false) => {
            if items.keys().copied().ne(0..items.len()) {
                return Err(FlattenError::Incomplete);
            }
            items.into_values().map(convert).collect::<Result<_, _>>().map(Value::List)
        }
        _ => Err(FlattenError::Mismatch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unflattened(names: &[&str]) -> Result<Branch, FlattenError> {
        unflatten(names.iter().map(|name| Item::new(*name, Value::text("x"))).collect())
    }

    #[test]
    fn names_become_places() {
        let list = Value::List(vec![Value::Map(vec![Item::new("enc", Value::text("x"))])]);
        assert_eq!(
            unflattened(&["mac", "age__list_0__map_enc"]),
            Ok(vec![Item::new("age", list), Item::new("mac", Value::text("x"))])
        );
    }

    #[test]
    fn contradictions_are_refused() {
        assert_eq!(unflattened(&["a", "a"]), Err(FlattenError::Duplicate));
        assert_eq!(unflattened(&["a", "a__map_b"]), Err(FlattenError::Mismatch));
        assert_eq!(unflattened(&["a__list_1"]), Err(FlattenError::Incomplete));
    }
}
