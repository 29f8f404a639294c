//! Strategic merge patches, with the habits of kustomize: patch elements first, lists without a merge
//! strategy replaced verbatim, nulls without text dropped.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::node::{Map, Node, Scalar, Text, wrong_kind};
use crate::schema::{Place, Schema};

const DIRECTIVE: &str = "$patch";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

/// Applies `patch` to `object`; `None` means the object is gone.
pub(crate) fn apply(object: Node, patch: &Node, schema: &Schema) -> Result<Option<Node>> {
    let mut patch = patch.clone();
    let place = place_of(&object, schema).or_else(|| place_of(&patch, schema));
    merge(Some(object), Some(&mut patch), place, schema)
}

fn place_of<'a>(node: &Node, schema: &'a Schema) -> Option<Place<'a>> {
    let map = node.as_map()?;
    let (api_version, kind) = (map.get("apiVersion")?.text(), map.get("kind")?.text());
    if api_version.is_empty() || kind.is_empty() {
        return None;
    }
    schema.of(api_version, kind)
}

/// Merges one value. The patch is consumed: directives are taken out of it as they are met.
fn merge(
    object: Option<Node>,
    patch: Option<&mut Node>,
    place: Option<Place<'_>>,
    schema: &Schema,
) -> Result<Option<Node>> {
    // Embedded objects bring their own schema.
    let place = place.or_else(|| {
        object
            .as_ref()
            .and_then(|node| place_of(node, schema))
            .or_else(|| patch.as_deref().and_then(|node| place_of(node, schema)))
    });
    let present = object.as_ref().filter(|node| !node.is_null());
    let wanted = patch.as_deref().filter(|node| !node.is_null());
    let Some(sample) = present.or(wanted) else { return Ok(merge_nulls(object, patch)) };
    if let (Some(left), Some(right)) = (present, wanted)
        && std::mem::discriminant(left) != std::mem::discriminant(right)
    {
        return Err(wrong_kind(left.kind_name(), right));
    }
    match sample {
        Node::Scalar(_) => Ok(merge_scalar(object, patch)),
        Node::Map(_) => merge_map(object, patch, place, schema),
        Node::List(_) => {
            let Some((place, keys)) = place.and_then(|place| Some((place, place.merge_keys()?))) else {
                // Replaced as a whole, or kept.
                return Ok(match patch {
                    Some(patch) if patch.is_null() => None,
                    Some(patch) => Some(patch.clone()),
                    None => object,
                });
            };
            merge_list(object, patch, place, keys, schema)
        }
    }
}

/// Both sides are missing or null.
fn merge_nulls(object: Option<Node>, patch: Option<&mut Node>) -> Option<Node> {
    match (object, patch) {
        // A null written out is kept where the patch is silent; an empty value is dropped.
        (Some(object), None) if !object.text().is_empty() => Some(object),
        _ => None,
    }
}

fn merge_scalar(object: Option<Node>, patch: Option<&mut Node>) -> Option<Node> {
    let Some(patch) = patch else { return object };
    if patch.is_null() {
        return None;
    }
    match (object, &*patch) {
        (Some(Node::Scalar(mut old)), Node::Scalar(new)) if !old.is_null() => {
            let style = old.style;
            old.replace(Scalar::new(new.text.clone(), new.tag, style));
            Some(Node::Scalar(old))
        }
        _ => Some(patch.clone()),
    }
}

fn merge_map(
    object: Option<Node>,
    patch: Option<&mut Node>,
    place: Option<Place<'_>>,
    schema: &Schema,
) -> Result<Option<Node>> {
    let Some(Node::Map(mut object)) = object else {
        // The object is missing or null: the patch's map goes in, cleaned of its directives.
        return match patch {
            Some(Node::Map(map)) => insert_map(std::mem::take(map), place, schema),
            _ => Ok(None),
        };
    };
    let mut patch = match patch {
        Some(node) if node.is_null() => return Ok(None),
        Some(Node::Map(map)) => Some(map),
        _ => None,
    };
    if let Some(map) = &mut patch {
        match take_map_directive(map)? {
            Directive::Delete => return Ok(None),
            Directive::Replace => {
                return insert_map(std::mem::take(map), place, schema);
            }
            Directive::Merge => {}
        }
    }
    // Fields of the object, each with the patch's field of the same name.
    let mut position = 0;
    let mut seen: HashSet<Text> = HashSet::with_capacity(object.len());
    while position < object.len() {
        let (key, value) = &mut object.entries_mut()[position];
        let key_text = key.text.clone();
        // Only the first of equal keys is looked at.
        if !seen.insert(key_text.clone()) {
            position += 1;
            continue;
        }
        let below = place.and_then(|place| place.field(&key_text));
        let wanted = patch.as_mut().and_then(|map| map.get_mut(&key_text));
        if wanted.is_none() && is_settled(value, below, schema) {
            position += 1;
            continue;
        }
        let old = std::mem::replace(value, Node::null());
        match merge(Some(old), wanted, below, schema)? {
            Some(merged) => {
                *value = merged;
                position += 1;
            }
            None => {
                object.entries_mut().remove(position);
            }
        }
    }
    // Fields only the patch has.
    if let Some(map) = patch {
        let names: Vec<Scalar> = map.entries().iter().map(|(key, _)| key.clone()).collect();
        for key in names {
            if !seen.insert(key.text.clone()) {
                continue;
            }
            let below = place.and_then(|place| place.field(&key.text));
            let Some(wanted) = map.get_mut(&key.text) else { continue };
            if let Some(merged) = merge(None, Some(wanted), below, schema)? {
                object.push_entry(key, merged);
            }
        }
    }
    Ok(Some(Node::Map(object)))
}

/// Whether a value no patch speaks about comes out as it is.
fn is_settled(node: &Node, place: Option<Place<'_>>, schema: &Schema) -> bool {
    match node {
        Node::Scalar(scalar) => !(scalar.is_null() && scalar.text.is_empty()),
        Node::Map(map) => {
            let place = place.or_else(|| place_of(node, schema));
            map.iter().all(|(key, value)| is_settled(value, place.and_then(|place| place.field(key)), schema))
        }
        Node::List(list) => {
            let Some((place, keys)) = place.and_then(|place| Some((place, place.merge_keys()?))) else {
                return true;
            };
            are_settled(list, place, keys, schema)
        }
    }
}

/// Whether a merged list has only elements with distinct, complete keys that are settled themselves.
fn are_settled(list: &[Node], place: Place<'_>, keys: &[Text], schema: &Schema) -> bool {
    let [key] = keys else { return false };
    let mut seen = HashSet::with_capacity(list.len());
    list.iter().all(|element| {
        let Node::Map(map) = element else { return false };
        map.get(key).and_then(Node::as_scalar).is_some_and(|value| {
            !value.is_null() && !value.text.is_empty() && seen.insert(value.text.as_str())
        }) && is_settled(element, place.element(), schema)
    })
}

/// A map the object did not have: nulls and directives within it are resolved against itself.
fn insert_map(map: Map, place: Option<Place<'_>>, schema: &Schema) -> Result<Option<Node>> {
    let mut map = map;
    if let Ok(Directive::Delete) = take_map_directive(&mut map) {
        return Ok(None);
    }
    let mut result = Map::with_capacity(map.len());
    for (key, value) in std::mem::take(map.entries_mut()) {
        if result.get(&key.text).is_some() {
            result.push_entry(key, value);
            continue;
        }
        let below = place.and_then(|place| place.field(&key.text));
        if let Some(value) = insert(value, below, schema)? {
            result.push_entry(key, value);
        }
    }
    Ok(Some(Node::Map(result)))
}

fn insert(node: Node, place: Option<Place<'_>>, schema: &Schema) -> Result<Option<Node>> {
    let place = place.or_else(|| place_of(&node, schema));
    match node {
        Node::Scalar(scalar) if scalar.is_null() => Ok(None),
        Node::Scalar(_) => Ok(Some(node)),
        Node::Map(mut map) => match take_map_directive(&mut map)? {
            Directive::Delete => Ok(None),
            _ => insert_map(map, place, schema),
        },
        Node::List(list) => match place.and_then(|place| Some((place, place.merge_keys()?))) {
            Some((place, keys)) => {
                let mut patch = Node::List(list.clone());
                merge_list(Some(Node::List(list)), Some(&mut patch), place, keys, schema)
            }
            None => Ok(Some(Node::List(list))),
        },
    }
}

fn take_map_directive(map: &mut Map) -> Result<Directive> {
    let Some(value) = map.get(DIRECTIVE) else { return Ok(Directive::Merge) };
    let directive = parse_directive(value.text())?;
    map.remove(DIRECTIVE);
    Ok(directive)
}

fn parse_directive(text: &str) -> Result<Directive> {
    match text {
        "merge" => Ok(Directive::Merge),
        "replace" => Ok(Directive::Replace),
        "delete" => Ok(Directive::Delete),
        other => Err(Error::message(format!("unknown patch strategy '{other}'"))),
    }
}

/// A list element that holds nothing but the directive speaks for the whole list.
fn take_list_directive(list: &mut Vec<Node>) -> Result<Directive> {
    let Some(element) = list
        .iter()
        .find(|item| item.get(DIRECTIVE).is_some())
        .and_then(Node::as_map)
        .filter(|map| map.len() == 1)
    else {
        return Ok(Directive::Merge);
    };
    let text = element.get(DIRECTIVE).map_or("", Node::text).to_owned();
    let directive = parse_directive(&text)?;
    remove_matching(list, &[DIRECTIVE.into()], &[text.into()]);
    Ok(directive)
}

/// An element list during a merge: the elements live in a pool so that a list can hold one that is
/// being changed.
struct Pool {
    elements: Vec<Node>,
}

fn merge_list(
    object: Option<Node>,
    patch: Option<&mut Node>,
    place: Place<'_>,
    keys: &[Text],
    schema: &Schema,
) -> Result<Option<Node>> {
    let Some(Node::List(object)) = object else {
        // New list: merged with itself, which resolves what its elements say.
        return match patch {
            Some(Node::List(list)) => {
                let own = Node::List(list.clone());
                merge_list(Some(own), patch, place, keys, schema)
            }
            _ => Ok(None),
        };
    };
    let mut empty = Vec::new();
    let patch = match patch {
        Some(node) if node.is_null() => return Ok(None),
        Some(Node::List(list)) => {
            match take_list_directive(list)? {
                Directive::Delete => return Ok(None),
                Directive::Replace => {
                    let own = Node::List(list.clone());
                    return merge_list(
                        Some(own),
                        Some(&mut Node::List(std::mem::take(list))),
                        place,
                        keys,
                        schema,
                    );
                }
                Directive::Merge => {}
            }
            list
        }
        _ => &mut empty,
    };
    if keys.is_empty() {
        Ok(Some(merge_set(&object, patch)))
    } else {
        merge_keyed(object, patch, place, keys, schema)
    }
}

/// A set of scalars: those of the patch first, then the others.
fn merge_set(object: &[Node], patch: &[Node]) -> Node {
    let mut result: Vec<Node> = Vec::new();
    for item in patch.iter().chain(object) {
        if item.is_null() || result.iter().any(|old| old.text() == item.text()) {
            continue;
        }
        result.push(item.clone());
    }
    Node::List(result)
}

fn merge_keyed(
    object: Vec<Node>,
    patch: &mut [Node],
    place: Place<'_>,
    keys: &[Text],
    schema: &Schema,
) -> Result<Option<Node>> {
    let element_place = place.element();
    let mut identities = identities(patch, &object, keys);
    if keys.len() > 1 {
        unify(&mut identities);
    }
    if identities.is_empty() {
        return Ok(Some(Node::List(object)));
    }
    let mut pool = Pool { elements: object };
    let mut own: Vec<usize> = (0..pool.elements.len()).collect();
    let mut merged: Vec<usize> = Vec::new();
    let valid = valid_keys(&identities, keys);
    for identity in &identities {
        let values: Vec<Text> = identity
            .iter()
            .zip(keys)
            .filter(|(value, key)| !value.is_empty() || valid.contains(*key))
            .map(|(value, _)| value.clone())
            .collect();
        let (lookup_keys, lookup_values) = lookup(&valid, &values);
        let found = own
            .iter()
            .copied()
            .find(|index| element_matches(&pool.elements[*index], &lookup_keys, &lookup_values));
        let wanted = patch.iter_mut().find(|item| element_matches(item, &lookup_keys, &lookup_values));
        let replaces = wanted
            .as_deref()
            .is_some_and(|item| item.get(DIRECTIVE).is_some_and(|value| value.text() == "replace"));
        let old = found.map(|index| {
            if replaces {
                pool.elements[index].clone()
            } else {
                std::mem::replace(&mut pool.elements[index], Node::null())
            }
        });
        let result = merge(old, wanted, element_place, schema)?;
        match result {
            Some(mut node) if !is_gone(&node) => {
                if let Some(map) = node.as_map_mut() {
                    for (key, value) in valid.iter().zip(&values) {
                        if map.get(key).is_none() && !value.is_empty() {
                            map.set_scalar(key, Scalar::untyped(value.clone()));
                        }
                    }
                }
                let index = match found {
                    Some(index) if !replaces => {
                        pool.elements[index] = node;
                        index
                    }
                    _ => {
                        pool.elements.push(node);
                        pool.elements.len() - 1
                    }
                };
                pool.set(&mut merged, index, &valid, &values);
            }
            _ => pool.remove(&mut own, &valid, &values),
        }
    }
    // What the object has and the patch does not name follows.
    for index in own {
        let mut values = Vec::with_capacity(valid.len());
        for key in &valid {
            match pool.elements[index].get(key) {
                Some(value) => values.push(Text::from(value.text())),
                None => merged.push(index),
            }
        }
        if valid.len() > 1 {
            pool.remove(&mut merged, &valid, &values);
        }
        pool.set(&mut merged, index, &valid, &values);
    }
    Ok(Some(Node::List(pool.into_list(&merged))))
}

fn is_gone(node: &Node) -> bool {
    node.is_null() || node.as_map().is_some_and(Map::is_empty)
}

impl Pool {
    /// The elements of a list; one that is listed twice is copied.
    fn into_list(mut self, list: &[usize]) -> Vec<Node> {
        let mut uses = vec![0_usize; self.elements.len()];
        for index in list {
            uses[*index] += 1;
        }
        list.iter()
            .map(|index| {
                uses[*index] -= 1;
                if uses[*index] == 0 {
                    std::mem::replace(&mut self.elements[*index], Node::null())
                } else {
                    self.elements[*index].clone()
                }
            })
            .collect()
    }

    /// Puts an element in the place of those that match, or at the end.
    fn set(&self, list: &mut Vec<usize>, element: usize, keys: &[Text], values: &[Text]) {
        let mut found = false;
        let maps_only = is_map_setter(keys, values);
        let mut result = Vec::with_capacity(list.len() + 1);
        for &index in list.iter() {
            let node = &self.elements[index];
            if index != element && is_gone(node) {
                continue;
            }
            if node.as_map().is_none() && maps_only {
                result.push(index);
            } else if matches(node, keys, values) {
                found = true;
                result.push(element);
            } else if !values.is_empty() {
                result.push(index);
            }
        }
        if !found {
            result.push(element);
        }
        *list = result;
    }

    /// Removes the elements that match, and empty ones.
    fn remove(&self, list: &mut Vec<usize>, keys: &[Text], values: &[Text]) {
        let maps_only = is_map_setter(keys, values);
        list.retain(|index| {
            let node = &self.elements[*index];
            if is_gone(node) {
                return false;
            }
            if node.as_map().is_none() && maps_only {
                return true;
            }
            !matches(node, keys, values) && !values.is_empty()
        });
    }
}

fn remove_matching(list: &mut Vec<Node>, keys: &[Text], values: &[Text]) {
    list.retain(|node| !is_gone(node) && (node.as_map().is_none() || !matches(node, keys, values)));
}

fn is_map_setter(keys: &[Text], values: &[Text]) -> bool {
    keys.first().is_some_and(|key| !key.is_empty()) && values.first().is_some_and(|value| !value.is_empty())
}

/// Whether an element has all the values; an empty value only asks for the key.
fn matches(node: &Node, keys: &[Text], values: &[Text]) -> bool {
    !keys.is_empty()
        && keys.iter().enumerate().all(|(position, key)| {
            let Some(value) = values.get(position) else { return position > 0 && !values.is_empty() };
            node.get(key).is_some_and(|field| value.is_empty() || field.text() == value.as_str())
        })
}

/// Whether an element has exactly these values.
fn element_matches(node: &Node, keys: &[Text], values: &[Text]) -> bool {
    node.as_map().is_some()
        && keys
            .iter()
            .zip(values)
            .all(|(key, value)| node.get(key).is_some_and(|field| field.text() == value.as_str()))
}

/// The distinct key values of all elements, those of the patch first.
fn identities(patch: &[Node], object: &[Node], keys: &[Text]) -> Vec<Vec<Text>> {
    let mut result: Vec<Vec<Text>> = Vec::new();
    let mut seen = HashSet::new();
    for node in patch.iter().chain(object) {
        let identity: Vec<Text> = keys
            .iter()
            .map(|key| {
                node.get(key)
                    .filter(|value| !value.is_null_or_empty())
                    .map_or_else(Text::default, |value| value.text().into())
            })
            .collect();
        if seen.insert(identity.clone()) {
            result.push(identity);
        }
    }
    result
}

/// Makes identities equal that agree in one value and only lack others.
fn unify(identities: &mut [Vec<Text>]) {
    for left in 0..identities.len() {
        for right in 0..identities.len() {
            if let Some(union) = union_of(&identities[left], &identities[right]) {
                identities[left].clone_from(&union);
                identities[right] = union;
            }
        }
    }
}

fn union_of(left: &[Text], right: &[Text]) -> Option<Vec<Text>> {
    let mut agree = false;
    let mut union = Vec::with_capacity(left.len());
    for (left, right) in left.iter().zip(right) {
        if left == right {
            agree = true;
            union.push(left.clone());
        } else if left.is_empty() {
            union.push(right.clone());
        } else if right.is_empty() {
            union.push(left.clone());
        } else {
            return None;
        }
    }
    agree.then_some(union)
}

/// The keys that any element uses; all of them if none does.
fn valid_keys(identities: &[Vec<Text>], keys: &[Text]) -> Vec<Text> {
    let used: Vec<Text> = keys
        .iter()
        .enumerate()
        .filter(|(position, _)| identities.iter().any(|identity| !identity[*position].is_empty()))
        .map(|(_, key)| key.clone())
        .collect();
    if used.is_empty() { keys.to_vec() } else { used }
}

/// The keys to find one element by: those it has a value for.
fn lookup(keys: &[Text], values: &[Text]) -> (Vec<Text>, Vec<Text>) {
    let pairs: Vec<(Text, Text)> = keys
        .iter()
        .zip(values)
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if pairs.is_empty() {
        return (keys.to_vec(), values.to_vec());
    }
    pairs.into_iter().unzip()
}
