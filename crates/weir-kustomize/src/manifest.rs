//! Reading of resource files into trees, as kustomize splits, decodes, unwraps and checks them.

use std::collections::HashMap;

use weir_manifest::ScalarStyle;
use weir_manifest::event::{Dialect, Event, EventKind, Parser};

use crate::error::{Error, Result};
use crate::node::{Map, Node, Scalar, Style, Tag};
use crate::resource::Resource;
use crate::scalar;

/// Nodes that expanding aliases may add to one file.
const ALIAS_NODES_MAX: usize = 5_000_000;

/// The resources of a file.
///
/// # Errors
/// Broken YAML, an object without kind or name, a list whose items are no list.
pub(crate) fn read_resources(bytes: &[u8]) -> Result<Vec<Resource>> {
    let text = String::from_utf8_lossy(bytes);
    let text = if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text };
    let chunks = split(&text)?;
    let mut nodes = Vec::with_capacity(chunks.len());
    let single = chunks.len() == 1;
    for chunk in chunks {
        let Some(node) = parse(chunk)? else { continue };
        if node.is_null() {
            continue;
        }
        if single && matches!(crate::id::kind(&node), "List" | "ResourceList") {
            if let Some(Node::List(items)) = take_field(&node, "items") {
                nodes.extend(items);
                continue;
            }
            if node.get("items").is_some() || node.get("functionConfig").is_some() {
                continue;
            }
        }
        nodes.push(node);
    }
    check(&mut nodes)?;
    Ok(inline_lists(nodes)?.into_iter().map(Resource::new).collect())
}

fn take_field(node: &Node, field: &str) -> Option<Node> {
    node.get(field).cloned()
}

/// Drops empty objects and checks that the others have a kind and a name.
fn check(nodes: &mut Vec<Node>) -> Result<()> {
    nodes.retain(|node| !node.is_null_or_empty());
    nodes.iter().try_for_each(check_metadata)
}

/// Checks that an object has a kind and, unless it is a list, a name.
pub(crate) fn check_metadata(node: &Node) -> Result<()> {
    let present = |node: Option<&Node>| node.is_some_and(|value| !value.is_null_or_empty());
    let metadata = node.get("metadata").filter(|value| !value.is_null_or_empty());
    let text = |field| metadata.and_then(|map| map.get(field)).map_or("", Node::value_text);
    let has_metadata = ["name", "namespace", "labels", "annotations"]
        .iter()
        .any(|field| present(metadata.and_then(|map| map.get(field))));
    if !present(node.get("apiVersion")) && !present(node.get("kind")) && !has_metadata {
        return Err(Error::message("missing Resource metadata"));
    }
    let (api_version, kind) =
        (node.get("apiVersion").map_or("", Node::value_text), node.get("kind").map_or("", Node::value_text));
    let problem = if kind.is_empty() {
        "missing kind"
    } else if kind.ends_with("List") || !text("name").is_empty() {
        return Ok(());
    } else {
        "missing metadata.name"
    };
    Err(Error::message(format!(
        "{problem} in object {{{{{api_version} {kind}}} {{{{{} {}}} map[] map[]}}}}",
        text("name"),
        text("namespace"),
    )))
}

/// Puts the items of lists in place of the lists; they come after the other objects of the file.
fn inline_lists(nodes: Vec<Node>) -> Result<Vec<Node>> {
    let mut queue: std::collections::VecDeque<Node> = nodes.into();
    let mut result = Vec::with_capacity(queue.len());
    while let Some(node) = queue.pop_front() {
        let kind = crate::id::kind(&node);
        if !kind.ends_with("List") {
            result.push(node);
            continue;
        }
        match node.get("items") {
            None => result.push(node),
            Some(items) if items.is_null() => {}
            Some(Node::List(items)) => {
                // Items pass through JSON, which forgets how they were written.
                let mut inner = items
                    .iter()
                    .map(|item| item.to_json().map(Node::from_json))
                    .collect::<Result<Vec<_>>>()?;
                check(&mut inner)?;
                queue.extend(inner);
            }
            Some(other) => {
                let found = match other {
                    Node::Map(_) => "map[string]interface {}",
                    _ => "string",
                };
                return Err(Error::message(format!("expected array in {kind}/items, but found {found}")));
            }
        }
    }
    Ok(result)
}

/// The documents of a text, cut at lines that start with `---`.
fn split(text: &str) -> Result<Vec<&str>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut chunks = Vec::new();
    let mut start = 0;
    let mut search = 0;
    while let Some(found) = text[search..].find("\n---") {
        let separator = search + found;
        let line_start = separator + 1;
        let Some(line_end) = text[line_start..].find('\n').map(|end| line_start + end) else {
            break;
        };
        let rest = text[line_start + 3..line_end].trim();
        if !rest.is_empty() && !rest.starts_with('#') {
            return Err(Error::message(format!(
                "invalid document separator: {}",
                text[line_start..line_end].trim()
            )));
        }
        // The line end before the separator belongs to the document.
        chunks.push(&text[start..=separator]);
        start = line_end + 1;
        search = start;
    }
    chunks.push(&text[start..]);
    Ok(chunks)
}

/// The first document of a text; `None` if it has none.
pub(crate) fn parse(text: &str) -> Result<Option<Node>> {
    let mut reader = Reader {
        parser: Parser::new(text, Dialect::V3),
        anchors: HashMap::new(),
        alias_nodes: 0,
        flow_depth: 0,
    };
    loop {
        match reader.next()?.kind {
            EventKind::StreamEnd => return Ok(None),
            EventKind::DocumentStart => {
                let event = reader.next()?;
                let node = reader.node(event)?;
                // The rest of the document must be well-formed up to its end.
                reader.next()?;
                return Ok(Some(node));
            }
            _ => {}
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a>,
    anchors: HashMap<String, Node>,
    alias_nodes: usize,
    /// How many `[` and `{` are open.
    flow_depth: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>> {
        self.parser.next().map_err(|error| malformed(&error))
    }

    fn node(&mut self, event: Event<'a>) -> Result<Node> {
        match event.kind {
            EventKind::Alias(name) => {
                let node = self.anchors.get(name).cloned().ok_or_else(|| Error::MalformedYaml {
                    problem: format!("unknown anchor '{name}' referenced"),
                })?;
                self.alias_nodes += size(&node);
                if self.alias_nodes > ALIAS_NODES_MAX {
                    return Err(Error::MalformedYaml {
                        problem: "document contains excessive aliasing".to_owned(),
                    });
                }
                Ok(node)
            }
            EventKind::Scalar { properties, value, style, .. } => {
                let style = match style {
                    ScalarStyle::SingleQuoted => Style::SingleQuoted,
                    ScalarStyle::DoubleQuoted => Style::DoubleQuoted,
                    ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
                    ScalarStyle::Plain => Style::Plain,
                };
                let tag = match properties.tag.as_deref() {
                    Some(tag) if tag != "!" => explicit_tag(tag),
                    None if style == Style::Plain => scalar::tag_of(&value),
                    _ => Tag::String,
                };
                // An explicit tag decides even over quotes.
                let explicit = properties.tag.as_deref().is_some_and(|tag| tag != "!");
                let style = if explicit && tag != Tag::String { Style::Plain } else { style };
                // Rewriting quotes what cannot stand plainly within brackets: it becomes text.
                let quoted = self.flow_depth > 0
                    && style == Style::Plain
                    && (value.is_empty() || (tag == Tag::Timestamp && value.contains(':')));
                let style = if quoted { Style::SingleQuoted } else { style };
                let node = Node::Scalar(Scalar::new(value.as_ref(), tag, style));
                self.remember(properties.anchor, &node);
                Ok(node)
            }
            EventKind::SequenceStart { properties, flow } => {
                self.flow_depth += usize::from(flow);
                let mut list = Vec::new();
                loop {
                    let event = self.next()?;
                    if event.kind == EventKind::SequenceEnd {
                        break;
                    }
                    list.push(self.node(event)?);
                }
                self.flow_depth -= usize::from(flow);
                let node = Node::List(list);
                self.remember(properties.anchor, &node);
                Ok(node)
            }
            EventKind::MappingStart { properties, flow } => {
                self.flow_depth += usize::from(flow);
                let mut map = Map::default();
                let mut merges = None;
                loop {
                    let event = self.next()?;
                    if event.kind == EventKind::MappingEnd {
                        break;
                    }
                    let key = self.node(event)?;
                    let event = self.next()?;
                    let is_alias = matches!(event.kind, EventKind::Alias(_));
                    let value = self.node(event)?;
                    // A collection as key is an error when the object is written, as in the reference. Template
                    // braces that were not replaced look like one.
                    let Node::Scalar(key) = key else {
                        map.push_entry(Scalar::new("{…}", Tag::Null, Style::Plain), value);
                        continue;
                    };
                    if key.tag == Tag::Merge {
                        if merges.is_some() {
                            return Err(Error::message("duplicate merge key"));
                        }
                        merges = Some(merge_sources(value, is_alias)?);
                        continue;
                    }
                    map.push_entry(key, value);
                }
                if let Some(sources) = merges {
                    map = merged(map, sources);
                }
                self.flow_depth -= usize::from(flow);
                let node = Node::Map(map);
                self.remember(properties.anchor, &node);
                Ok(node)
            }
            _ => Ok(Node::null()),
        }
    }

    fn remember(&mut self, anchor: Option<&str>, node: &Node) {
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor.to_owned(), node.clone());
        }
    }
}

fn malformed(error: &weir_manifest::Error) -> Error {
    let text = error.reference_text();
    let problem = text.strip_prefix("yaml: ").unwrap_or(&text).to_owned();
    Error::MalformedYaml { problem }
}

fn size(node: &Node) -> usize {
    match node {
        Node::Scalar(_) => 1,
        Node::List(list) => 1 + list.iter().map(size).sum::<usize>(),
        Node::Map(map) => 1 + map.iter().map(|(_, value)| 1 + size(value)).sum::<usize>(),
    }
}

fn explicit_tag(tag: &str) -> Tag {
    match tag.strip_prefix("tag:yaml.org,2002:").or_else(|| tag.strip_prefix("!!")).unwrap_or(tag) {
        "null" => Tag::Null,
        "bool" => Tag::Bool,
        "int" => Tag::Int,
        "float" => Tag::Float,
        "timestamp" => Tag::Timestamp,
        "binary" => Tag::Binary,
        "merge" => Tag::Merge,
        _ => Tag::String,
    }
}

/// The maps a `<<` value stands for, the one that wins last.
fn merge_sources(value: Node, is_alias: bool) -> Result<Vec<Map>> {
    match value {
        Node::Map(map) => Ok(vec![map]),
        _ if is_alias => Err(Error::message("invalid map merge: received alias for a non-map value")),
        Node::List(items) => {
            let mut sources = Vec::with_capacity(items.len());
            for item in items.into_iter().rev() {
                match item {
                    Node::Map(map) => sources.push(map),
                    Node::List(_) => {
                        return Err(Error::message("invalid map merge: received a nested sequence"));
                    }
                    Node::Scalar(_) => {
                        return Err(Error::message(
                            "map merge requires map or sequence of maps as the value",
                        ));
                    }
                }
            }
            Ok(sources)
        }
        Node::Scalar(_) => Err(Error::message("map merge requires map or sequence of maps as the value")),
    }
}

/// Adds the fields of the sources that the map does not have itself.
fn merged(own: Map, sources: Vec<Map>) -> Map {
    let mut result = own.clone();
    for source in sources.into_iter().chain([own]) {
        for (key, value) in source.entries() {
            match result.get_mut(&key.text) {
                Some(place) => *place = value.clone(),
                None => result.push_entry(key.clone(), value.clone()),
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<String> {
        read_resources(text.as_bytes())
            .unwrap()
            .iter()
            .map(|resource| format!("{}/{}", resource.kind(), resource.name()))
            .collect()
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        assert_eq!(read_resources(text.as_bytes()).unwrap_err().to_string(), expected);
    }

    #[test]
    fn documents_are_split_at_separator_lines() {
        let pod = "kind: Pod\nmetadata: {name: a}\n";
        assert_eq!(kinds(&format!("{pod}--- # next\n{pod}")), ["Pod/a", "Pod/a"]);
        assert_eq!(kinds("# nothing\n"), [""; 0]);
        assert_eq!(kinds("---\n"), [""; 0]);
        assert_eq!(kinds(&format!("---\n{pod}---\n---\n")), ["Pod/a"]);
        check_error(&format!("{pod}--- foo\n{pod}"), "invalid document separator: --- foo");
    }

    #[test]
    fn lists_become_their_items_at_the_end() {
        let list = "kind: PodList\nitems:\n- {kind: Pod, metadata: {name: a}}\n";
        assert_eq!(kinds(list), ["Pod/a"]);
        assert_eq!(kinds(&format!("{list}---\nkind: Pod\nmetadata: {{name: b}}\n")), ["Pod/b", "Pod/a"]);
        assert_eq!(kinds("kind: AccessWhiteList\nmetadata: {name: x}\n"), ["AccessWhiteList/x"]);
        assert_eq!(kinds("kind: PodList\nitems: []\n"), [""; 0]);
        check_error("kind: PodList\nitems: 5\n", "expected array in PodList/items, but found string");
    }

    #[test]
    fn objects_need_kind_and_name() {
        check_error(
            "apiVersion: v1\nkind: Pod\nmetadata: {generateName: x}\n",
            "missing metadata.name in object {{v1 Pod} {{ } map[] map[]}}",
        );
        check_error("- a\n", "missing Resource metadata");
        check_error(
            "apiVersion: v1\nmetadata: {name: x}\n",
            "missing kind in object {{v1 } {{x } map[] map[]}}",
        );
    }

    #[test]
    fn merge_keys_add_what_is_missing() {
        let node = parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n").unwrap().unwrap();
        let b = node.get("b").unwrap();
        assert_eq!((b.get("x").unwrap().text(), b.get("y").unwrap().text()), ("1", "3"));
    }
}
