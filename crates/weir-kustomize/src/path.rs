//! Dotted field paths of replacements and vars.

use regex::Regex;

use crate::error::{Error, Result};
use crate::node::{Map, Node, Scalar, wrong_kind};

/// Splits at dots; `\.` is a dot within a part, and `[…]` stays together.
pub(crate) fn split(path: &str) -> Vec<String> {
    let mut plain: Vec<String> = Vec::new();
    let path = if path.len() > 1 { path.strip_prefix('.').unwrap_or(path) } else { path };
    for part in path.split('.') {
        match plain.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push('.');
                last.push_str(part);
            }
            _ => plain.push(part.to_owned()),
        }
    }
    let mut parts = Vec::with_capacity(plain.len());
    let mut plain = plain.into_iter();
    while let Some(part) = plain.next() {
        if !part.starts_with('[') || part.ends_with(']') {
            parts.push(part);
            continue;
        }
        let mut whole = part;
        for next in plain.by_ref() {
            whole.push('.');
            whole.push_str(&next);
            if next.ends_with(']') {
                break;
            }
        }
        if whole.contains('=') {
            parts.push(whole);
        } else {
            parts.push(whole.trim_matches(['[', ']']).to_owned());
        }
    }
    parts
}

/// Turns `ports[0]` into `ports` and `0`.
pub(crate) fn split_indices(parts: Vec<String>) -> Vec<String> {
    let mut result = Vec::with_capacity(parts.len());
    for part in parts {
        let split = part
            .strip_suffix(']')
            .and_then(|inner| inner.rsplit_once('['))
            .filter(|(_, index)| !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()));
        match split {
            Some((name, index)) => {
                if !name.is_empty() {
                    result.push(name.to_owned());
                }
                result.push(index.to_owned());
            }
            None => result.push(part),
        }
    }
    result
}

/// `[key=value]` or `[=value]`.
fn list_entry(part: &str) -> Option<&str> {
    part.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
}

fn key_and_value(entry: &str) -> Result<(&str, &str)> {
    entry.split_once('=').ok_or_else(|| {
        Error::message(format!(
            "list path element must contain fieldName=fieldValue for element to match, got '[{entry}]'"
        ))
    })
}

/// The value at a path without wildcards; `None` if a part is missing.
pub(crate) fn lookup<'a>(node: &'a Node, parts: &[String]) -> Result<Option<&'a Node>> {
    let mut node = node;
    for part in parts {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        let next = if let Ok(index) = part.parse::<i64>() {
            let index = usize::try_from(index)
                .map_err(|_| Error::message(format!("array index {index} cannot be negative")))?;
            node.as_list().ok_or_else(|| wrong_kind("SequenceNode", node))?.get(index)
        } else if part == "-" {
            node.as_list().ok_or_else(|| wrong_kind("SequenceNode", node))?.last()
        } else if part == "*" {
            return Err(Error::message("wildcard is not supported in PathGetter"));
        } else if let Some(entry) = list_entry(part) {
            let (key, value) = key_and_value(entry)?;
            let list = node.as_list().ok_or_else(|| wrong_kind("SequenceNode", node))?;
            if key.is_empty() {
                list.iter().find(|item| item.text() == value)
            } else {
                list.iter().find(|item| item.get(key).is_some_and(|field| field.text() == value))
            }
        } else {
            match node {
                Node::Map(map) => map.get(part),
                other if other.is_null() => None,
                other => return Err(wrong_kind("MappingNode", other)),
            }
        };
        let Some(next) = next else { return Ok(None) };
        node = next;
    }
    Ok(Some(node))
}

/// What a path may make when it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaf {
    Scalar,
    Map,
    List,
}

impl Leaf {
    pub(crate) fn like(node: &Node) -> Self {
        match node {
            Node::Scalar(_) => Self::Scalar,
            Node::Map(_) => Self::Map,
            Node::List(_) => Self::List,
        }
    }

    fn fresh(self) -> Node {
        match self {
            Self::Scalar => Node::Scalar(Scalar::untyped("")),
            Self::Map => Node::Map(Map::default()),
            Self::List => Node::List(Vec::new()),
        }
    }
}

/// The kind of a node made in front of `rest`.
fn kind_before(rest: &[String], leaf: Leaf) -> Leaf {
    match rest.first().map(String::as_str) {
        None | Some("") => leaf,
        Some(next) if list_entry(next).is_some() || next.parse::<i64>().is_ok() => Leaf::List,
        Some(_) => Leaf::Map,
    }
}

/// Calls `set` on every node a path leads to, and says how many there were.
pub(crate) fn visit(
    node: &mut Node,
    parts: &[String],
    create: Option<Leaf>,
    set: &mut dyn FnMut(&mut Node) -> Result<()>,
) -> Result<usize> {
    let Some((part, rest)) = parts.split_first() else {
        set(node)?;
        return Ok(1);
    };
    if let Ok(index) = part.parse::<i64>() {
        return visit_index(node, index, rest, create, set);
    }
    if let Some(entry) = list_entry(part) {
        return visit_entries(node, entry, rest, create, set);
    }
    if part == "*" {
        let Node::List(list) = node else { return Err(wrong_kind("SequenceNode", node)) };
        let mut count = 0;
        for item in list {
            count += visit(item, rest, create, set)?;
        }
        return Ok(count);
    }
    if node.is_null() {
        let Some(_) = create else { return Ok(0) };
        *node = Node::Map(Map::default());
    }
    let Node::Map(map) = node else { return Err(wrong_kind("MappingNode", node)) };
    let position = match (map.position(part), create) {
        (Some(position), _) => position,
        (None, None) => return Ok(0),
        (None, Some(leaf)) => {
            map.push(part.as_str(), kind_before(rest, leaf).fresh());
            map.len() - 1
        }
    };
    let field = map.at_mut(position);
    if let Node::Scalar(scalar) = field
        && !rest.is_empty()
    {
        // A text that holds YAML: its fields are found, but changes to them are lost.
        let Some(mut inner) = crate::manifest::parse(&scalar.text)? else { return Ok(0) };
        return visit(&mut inner, rest, create, set);
    }
    visit(field, rest, create, set)
}

fn visit_index(
    node: &mut Node,
    index: i64,
    rest: &[String],
    create: Option<Leaf>,
    set: &mut dyn FnMut(&mut Node) -> Result<()>,
) -> Result<usize> {
    let Node::List(list) = node else { return Err(wrong_kind("SequenceNode", node)) };
    let length = list.len();
    let out_of_bounds =
        || Error::message(format!("index {index} specified but only {length} elements found"));
    let position = usize::try_from(index).map_err(|_| out_of_bounds())?;
    if position == length
        && let Some(leaf) = create
    {
        list.push(kind_before(rest, leaf).fresh());
    }
    visit(list.get_mut(position).ok_or_else(out_of_bounds)?, rest, create, set)
}

fn visit_entries(
    node: &mut Node,
    entry: &str,
    rest: &[String],
    create: Option<Leaf>,
    set: &mut dyn FnMut(&mut Node) -> Result<()>,
) -> Result<usize> {
    let (key, pattern) = key_and_value(entry)?;
    let Node::List(list) = node else { return Err(wrong_kind("SequenceNode", node)) };
    let regex = crate::selector::compile(pattern)?;
    let mut count = visit_matching(list, key, &regex, rest, create, set)?;
    if count == 0 && create.is_some() {
        let value = Node::Scalar(Scalar::untyped(pattern));
        list.push(if key.is_empty() {
            value
        } else {
            let mut map = Map::with_capacity(1);
            map.push(key, value);
            Node::Map(map)
        });
        count = visit_matching(list, key, &regex, rest, create, set)?;
    }
    Ok(count)
}

fn visit_matching(
    list: &mut [Node],
    key: &str,
    regex: &Regex,
    rest: &[String],
    create: Option<Leaf>,
    set: &mut dyn FnMut(&mut Node) -> Result<()>,
) -> Result<usize> {
    let mut count = 0;
    for item in list {
        if key.is_empty() {
            if regex.is_match(item.text().trim()) {
                set(item)?;
                count += 1;
            }
        } else if item.get(key).is_some_and(|field| regex.is_match(field.text().trim())) {
            count += visit(item, rest, create, set)?;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_and_escapes_keep_parts_together() {
        assert_eq!(split("spec.containers.[name=a.b].image"), ["spec", "containers", "[name=a.b]", "image"]);
        assert_eq!(split("metadata.annotations.[a.b/c]"), ["metadata", "annotations", "a.b/c"]);
        assert_eq!(split(r"data.config\.json.x"), ["data", "config.json", "x"]);
        assert_eq!(split_indices(split("spec.ports[0].port")), ["spec", "ports", "0", "port"]);
    }
}
