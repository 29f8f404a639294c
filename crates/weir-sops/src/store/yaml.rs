//! YAML documents, comments included.

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weir_manifest::{
    Comments, Content, Document, Node, NodeLayout, Number, Resolved, ScalarStyle, read_nodes, resolve_core,
    write_nodes,
};

use crate::store::FormatError;
use crate::tree::{Branch, Comment, Item, Key, Value};

/// More nodes than this after the expansion of aliases are an attack.
const NODES_MAX: usize = 1_000_000;
/// Deeper nesting than this after the expansion of aliases is no configuration.
const DEPTH_MAX: usize = 200;
/// The columns of a line of base64.
const BASE64_COLUMNS: usize = 70;

fn invalid(message: impl Into<String>) -> FormatError {
    FormatError::Yaml(message.into())
}

pub(crate) fn load(data: &[u8]) -> Result<Vec<Branch>, FormatError> {
    let documents = read_nodes(data, "").map_err(|error| invalid(error.to_string()))?;
    if let Some(first) = documents.first() {
        check_keys(&first.root)?;
    }
    let mut loader = Loader { anchors: HashMap::new(), nodes: 0, depth: 0, open: HashSet::new() };
    documents.iter().map(|document| loader.document(document)).collect()
}

/// The reference finds keys that occur twice in the first document alone.
fn check_keys(node: &Node) -> Result<(), FormatError> {
    match &node.content {
        Content::Mapping { entries, .. } => {
            let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
            for (key, value) in entries {
                if let Some(text) = key.text()
                    && let Some(line) = seen.insert((&key.tag, text), key.line)
                {
                    return Err(invalid(format!(
                        "yaml: unmarshal errors:\n  line {}: mapping key \"{text}\" already defined at line {line}",
                        key.line
                    )));
                }
                check_keys(value)?;
            }
            Ok(())
        }
        Content::Sequence { items, .. } => items.iter().try_for_each(check_keys),
        Content::Scalar { .. } | Content::Alias(_) => Ok(()),
    }
}

struct Loader<'a> {
    anchors: HashMap<&'a str, &'a Node>,
    nodes: usize,
    depth: usize,
    /// Anchors whose node is being read: one that contains itself never ends.
    open: HashSet<&'a str>,
}

/// The lines of a comment without their signs.
fn lines(comment: &str) -> impl Iterator<Item = &str> {
    comment.split('\n').filter(|line| !line.is_empty()).map(|line| line.strip_prefix('#').unwrap_or(line))
}

fn add(branch: &mut Branch, comment: &str, inline: bool) {
    branch.extend(lines(comment).map(|line| Item::comment(line, inline)));
}

fn add_to_list(list: &mut Vec<Value>, comment: &str, inline: bool) {
    list.extend(lines(comment).map(|line| Value::Comment(Comment { text: line.into(), inline })));
}

impl<'a> Loader<'a> {
    fn document(&mut self, document: &'a Document) -> Result<Branch, FormatError> {
        let mut branch = Branch::new();
        add(&mut branch, &document.comments.head, false);
        add(&mut branch, &document.comments.line, false);
        self.root(&document.root, &mut branch)?;
        add(&mut branch, &document.comments.foot, false);
        Ok(branch)
    }

    fn root(&mut self, node: &'a Node, branch: &mut Branch) -> Result<(), FormatError> {
        add(branch, &node.comments.head, false);
        add(branch, &node.comments.line, false);
        match &node.content {
            Content::Mapping { entries, .. } => self.entries(node, entries, branch)?,
            Content::Sequence { .. } => {
                return Err(invalid("YAML documents that are sequences are not supported"));
            }
            Content::Scalar { .. } if node.tag == "!!null" => return Ok(()),
            Content::Scalar { .. } => {
                return Err(invalid("YAML documents that are values are not supported"));
            }
            Content::Alias(name) => {
                let target = self.target(name)?;
                self.root(target, branch)?;
            }
        }
        add(branch, &node.comments.foot, false);
        Ok(())
    }

    fn target(&self, name: &str) -> Result<&'a Node, FormatError> {
        self.anchors.get(name).copied().ok_or_else(|| invalid(format!("unknown anchor '{name}' referenced")))
    }

    fn entries(
        &mut self,
        node: &'a Node,
        entries: &'a [(Node, Node)],
        branch: &mut Branch,
    ) -> Result<(), FormatError> {
        self.open(node)?;
        for (key, value) in entries {
            add(branch, &key.comments.head, false);
            add(branch, &key.comments.line, false);
            let is_leaf = matches!(value.content, Content::Scalar { .. } | Content::Alias(_));
            if is_leaf {
                add(branch, &value.comments.head, false);
                add(branch, &value.comments.line, true);
            }
            let name = self.key(key)?;
            let read = self.value(value, is_leaf)?;
            branch.push(Item { key: name, value: read });
            if is_leaf {
                add(branch, &value.comments.foot, false);
            }
            add(branch, &key.comments.foot, false);
        }
        self.close(node);
        Ok(())
    }

    fn open(&mut self, node: &'a Node) -> Result<(), FormatError> {
        self.nodes += 1;
        self.depth += 1;
        if self.nodes > NODES_MAX {
            return Err(invalid("document contains excessive aliasing"));
        }
        if self.depth > DEPTH_MAX {
            return Err(invalid("exceeded max depth"));
        }
        if let Some(anchor) = &node.anchor {
            if !self.open.insert(anchor) {
                return Err(invalid(format!("anchor '{anchor}' value contains itself")));
            }
            self.anchors.insert(anchor, node);
        }
        Ok(())
    }

    fn close(&mut self, node: &'a Node) {
        self.depth -= 1;
        if let Some(anchor) = &node.anchor {
            self.open.remove(anchor.as_str());
        }
    }

    fn key(&mut self, node: &'a Node) -> Result<Key, FormatError> {
        let other = |kind, text: &str| Key::Other { kind, text: text.to_owned() };
        Ok(match &node.content {
            Content::Mapping { .. } => other("map[string]interface {}", "map[]"),
            Content::Sequence { .. } => other("[]interface {}", "[]"),
            Content::Alias(name) => {
                let target = self.target(name)?;
                self.key(target)?
            }
            Content::Scalar { text, .. } => match self.value(node, true)? {
                Value::Text(bytes) => Key::Text(String::from_utf8_lossy(&bytes).into_owned()),
                value => other(value.kind(), text),
            },
        })
    }

    fn value(&mut self, node: &'a Node, comments_are_known: bool) -> Result<Value, FormatError> {
        let comments = if comments_are_known { &Comments::default() } else { &node.comments };
        match &node.content {
            Content::Sequence { items, .. } => {
                self.open(node)?;
                let mut list = Vec::new();
                add_to_list(&mut list, &comments.head, false);
                add_to_list(&mut list, &comments.line, false);
                for item in items {
                    add_to_list(&mut list, &item.comments.head, false);
                    add_to_list(&mut list, &item.comments.line, true);
                    let value = self.value(item, true)?;
                    list.push(value);
                    add_to_list(&mut list, &item.comments.foot, false);
                }
                add_to_list(&mut list, &comments.foot, false);
                self.close(node);
                Ok(Value::List(list))
            }
            Content::Mapping { entries, .. } => {
                let mut branch = Branch::new();
                add(&mut branch, &comments.head, false);
                add(&mut branch, &comments.line, false);
                self.entries(node, entries, &mut branch)?;
                add(&mut branch, &comments.foot, false);
                Ok(Value::Map(branch))
            }
            Content::Alias(name) => {
                let target = self.target(name)?;
                if self.open.contains(name.as_str()) {
                    return Err(invalid(format!("anchor '{name}' value contains itself")));
                }
                self.value(target, false)
            }
            Content::Scalar { text, style } => {
                self.open(node)?;
                self.close(node);
                Ok(scalar(node, text, *style))
            }
        }
    }
}

fn scalar(node: &Node, text: &str, style: ScalarStyle) -> Value {
    let resolved = match node.tag.as_str() {
        "!!binary" => {
            let packed: String = text.split_ascii_whitespace().collect();
            return STANDARD.decode(packed).map_or_else(|_| Value::text(text), Value::Text);
        }
        "!!str" | "!!merge" => return Value::text(text),
        _ if node.tagged || style == ScalarStyle::Plain => resolve_core(text),
        _ => return Value::text(text),
    };
    match resolved {
        Resolved::Null => Value::Null,
        Resolved::Bool(value) => Value::Bool(value),
        Resolved::Number(Number::Int(number)) if node.tag == "!!float" => Value::Float(number as f64),
        Resolved::Number(Number::Int(number)) => Value::Int(number),
        Resolved::Number(Number::Uint(number)) => {
            i64::try_from(number).map_or(Value::Unsigned(number), Value::Int)
        }
        Resolved::Number(Number::Float(number)) => Value::Float(number),
        Resolved::Timestamp(time) => Value::Time(time.to_string()),
        Resolved::String => Value::text(text),
    }
}

pub(crate) fn emit(branches: &[Branch]) -> Result<Vec<u8>, FormatError> {
    let documents = branches
        .iter()
        .map(|branch| Ok(Document { root: map(branch)?, line: 0, column: 0, comments: Comments::default() }))
        .collect::<Result<Vec<_>, FormatError>>()?;
    Ok(write_nodes(&documents, NodeLayout::FOUR).into_bytes())
}

/// Comments that wait for the node they go with.
#[derive(Default)]
struct Waiting {
    own_lines: Vec<String>,
    inline: Vec<String>,
}

impl Waiting {
    fn add(&mut self, comment: &Comment) {
        let text = String::from_utf8_lossy(&comment.text).into_owned();
        if comment.inline { self.inline.push(text) } else { self.own_lines.push(text) }
    }

    /// Puts the comments on own lines in front of a node.
    fn put_before(&mut self, node: &mut Node) {
        let text = joined(&std::mem::take(&mut self.own_lines));
        let head = &mut node.comments.head;
        match (text.is_empty(), head.is_empty()) {
            (true, _) => {}
            (false, true) => *head = text,
            (false, false) => *head = format!("{text}\n{head}"),
        }
    }

    fn put_behind(&mut self, node: &mut Node) {
        append(&mut node.comments.line, &joined(&std::mem::take(&mut self.inline)));
    }

    fn rest(mut self) -> Vec<String> {
        self.own_lines.append(&mut self.inline);
        self.own_lines
    }
}

fn joined(lines: &[String]) -> String {
    if lines.is_empty() { String::new() } else { format!("#{}", lines.join("\n#")) }
}

fn append(place: &mut String, text: &str) {
    if text.is_empty() {
        return;
    }
    if !place.is_empty() {
        place.push('\n');
    }
    place.push_str(text);
}

fn map(branch: &Branch) -> Result<Node, FormatError> {
    let mut root = Node { tag: "!!map".to_owned(), ..Node::default() };
    let mut entries: Vec<(Node, Node)> = Vec::new();
    let mut waiting = Waiting::default();
    for item in branch {
        let mut key = match &item.key {
            Key::Comment(comment) => {
                waiting.add(comment);
                continue;
            }
            Key::Other { kind, .. } => return Err(FormatError::Key(kind)),
            Key::Text(key) => text(key.as_bytes()),
        };
        if entries.is_empty() {
            waiting.put_before(&mut root);
        }
        waiting.put_before(&mut key);
        let mut value = node(&item.value)?;
        waiting.put_behind(&mut value);
        entries.push((key, value));
    }
    let rest = joined(&waiting.rest());
    match entries.last_mut() {
        Some((key, _)) => append(&mut key.comments.foot, &rest),
        None => root.comments.head = rest,
    }
    root.content = Content::Mapping { entries, flow: false };
    Ok(root)
}

fn list(values: &[Value]) -> Result<Node, FormatError> {
    let mut root = Node { tag: "!!seq".to_owned(), ..Node::default() };
    let mut items: Vec<Node> = Vec::new();
    let mut waiting = Waiting::default();
    for value in values {
        if let Value::Comment(comment) = value {
            waiting.add(comment);
            continue;
        }
        if items.is_empty() {
            waiting.put_before(&mut root);
        }
        let mut item = node(value)?;
        waiting.put_before(&mut item);
        waiting.put_behind(&mut item);
        items.push(item);
    }
    let rest = joined(&waiting.rest());
    match items.last_mut() {
        Some(item) => append(&mut item.comments.foot, &rest),
        None => root.comments.head = rest,
    }
    root.content = Content::Sequence { items, flow: false };
    Ok(root)
}

fn node(value: &Value) -> Result<Node, FormatError> {
    let plain = |text: String| Node::scalar(text, ScalarStyle::Plain);
    Ok(match value {
        Value::Map(branch) => map(branch)?,
        Value::List(values) => list(values)?,
        Value::Null => plain("null".to_owned()),
        Value::Bool(value) => plain(value.to_string()),
        Value::Int(number) => plain(number.to_string()),
        Value::Unsigned(number) => plain(number.to_string()),
        Value::Float(number) => plain(weir_manifest::format_float(*number)),
        Value::Time(time) => plain(time.clone()),
        Value::Text(bytes) => text(bytes),
        Value::Comment(comment) => text(&comment.text),
        Value::Bytes(bytes) => {
            let numbers: Vec<Value> = bytes.iter().map(|byte| Value::Int(i64::from(*byte))).collect();
            list(&numbers)?
        }
    })
}

fn text(bytes: &[u8]) -> Node {
    match std::str::from_utf8(bytes) {
        // The library of the reference reads its own text again and finds a merge key.
        Ok(text @ "<<") => {
            Node { tag: "!!merge".to_owned(), tagged: true, ..Node::scalar(text, ScalarStyle::Plain) }
        }
        Ok(text) => Node::of_text(text),
        Err(_) => {
            let encoded = STANDARD.encode(bytes);
            let mut lines = String::new();
            for line in encoded.as_bytes().chunks(BASE64_COLUMNS) {
                lines.push_str(&String::from_utf8_lossy(line));
                if encoded.len() >= BASE64_COLUMNS {
                    lines.push('\n');
                }
            }
            let style = if lines.ends_with('\n') { ScalarStyle::Literal } else { ScalarStyle::Plain };
            Node { tag: "!!binary".to_owned(), tagged: true, ..Node::scalar(lines, style) }
        }
    }
}
