//! The tree the engine works on: maps keep their order and duplicate keys, scalars keep their source
//! text, tag and style, because several transformers look at exactly these.

use std::collections::HashMap;

use compact_str::CompactString;
use serde_json::{Map as JsonMap, Number, Value};

use crate::error::{Error, Result};
use crate::scalar::{self, Resolved};

/// Text of keys and scalars; short ones live inline.
pub(crate) type Text = CompactString;

/// What a scalar is, as known when it was read or set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Set by a transformer without saying what it is: resolved from the text when written.
    Unset,
    Null,
    Bool,
    Int,
    Float,
    String,
    Timestamp,
    Binary,
    Merge,
}

/// How a scalar was written. A value set over a quoted one stays quoted, hence a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    /// Literal or folded block.
    Block,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub(crate) text: Text,
    pub(crate) tag: Tag,
    pub(crate) style: Style,
    link: Link,
}

/// Ties scalars of one resource together: the label transformer of kustomize puts one and the same node in
/// all the places it adds a label to, so that a later change in one place shows in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Link {
    /// Zero for a scalar of its own.
    group: u16,
    /// How often this place was written since the group was last made equal.
    writes: u16,
}

impl Link {
    /// The link of a group; see [`Node::settle_links`].
    pub(crate) fn of_group(group: u16) -> Self {
        Self { group, writes: 0 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Scalar(Scalar),
    Map(Map),
    List(Vec<Node>),
}

/// Ordered fields; the first of several equal keys is the one that is found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Map {
    entries: Vec<(Scalar, Node)>,
}

impl Scalar {
    pub(crate) fn new(text: impl Into<Text>, tag: Tag, style: Style) -> Self {
        Self { text: text.into(), tag, style, link: Link::default() }
    }

    /// A scalar whose type follows from its text.
    pub(crate) fn untyped(text: impl Into<Text>) -> Self {
        Self::new(text, Tag::Unset, Style::Plain)
    }

    /// This scalar as a member of a group.
    pub(crate) fn linked(self, link: Link) -> Self {
        Self { link, ..self }
    }

    /// Replaces the text, keeping type and style.
    pub(crate) fn set_text(&mut self, text: impl Into<Text>) {
        self.text = text.into();
        self.link.writes = self.link.writes.saturating_add(u16::from(self.link.group != 0));
    }

    /// Replaces text, type and style.
    pub(crate) fn replace(&mut self, value: Self) {
        self.tag = value.tag;
        self.style = value.style;
        self.set_text(value.text);
    }

    /// A string, as block when it has several lines.
    pub(crate) fn string(text: impl Into<Text>) -> Self {
        let text = text.into();
        let style = if text.contains('\n') { Style::Block } else { Style::Plain };
        Self::new(text, Tag::String, style)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.tag == Tag::Null
    }

    fn is_string(&self) -> bool {
        matches!(self.tag, Tag::String | Tag::Unset)
    }

    /// Quotes a plain string that older readers would take for another type.
    fn quote_if_ambiguous(&mut self) {
        if self.is_string() && self.style == Style::Plain && scalar::is_old_non_string(&self.text) {
            self.style = Style::DoubleQuoted;
        }
    }

    /// The value another program sees once this scalar has been written out and read again.
    pub(crate) fn resolve(&self) -> Resolved<'_> {
        let text = self.text.as_str();
        match self.tag {
            Tag::Binary => scalar::decode_binary(text),
            Tag::Unset if self.style == Style::Plain => scalar::resolve(text),
            Tag::String | Tag::Merge | Tag::Unset => Resolved::String(text),
            tag if self.style == Style::Plain || scalar::tag_of(text) != tag => scalar::resolve_as(text, tag),
            _ => Resolved::String(text),
        }
    }
}

impl Map {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn position(&self, key: &str) -> Option<usize> {
        self.entries.iter().position(|(name, _)| name.text == key)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|(name, _)| name.text == key).map(|(_, node)| node)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.entries.iter_mut().find(|(name, _)| name.text == key).map(|(_, node)| node)
    }

    /// The value of the entry at a position found before.
    pub(crate) fn at_mut(&mut self, position: usize) -> &mut Node {
        &mut self.entries[position].1
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.entries.iter().map(|(key, node)| (key.text.as_str(), node))
    }

    pub(crate) fn entries(&self) -> &[(Scalar, Node)] {
        &self.entries
    }

    pub(crate) fn entries_mut(&mut self) -> &mut Vec<(Scalar, Node)> {
        &mut self.entries
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Node)> {
        self.entries.iter_mut().map(|(key, node)| (key.text.as_str(), node))
    }

    /// Adds an entry without looking for the key.
    pub(crate) fn push(&mut self, key: impl Into<Text>, node: Node) {
        self.entries.push((Scalar::untyped(key), node));
    }

    pub(crate) fn push_entry(&mut self, key: Scalar, node: Node) {
        self.entries.push((key, node));
    }

    /// Removes the first entry of `key`.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Node> {
        let position = self.position(key)?;
        Some(self.entries.remove(position).1)
    }

    /// Sets a scalar field; one that is there keeps its style.
    pub(crate) fn set_scalar(&mut self, key: &str, mut value: Scalar) {
        value.quote_if_ambiguous();
        match self.get_mut(key) {
            Some(Node::Scalar(old)) if !old.is_null() => {
                value.style = old.style;
                old.replace(value);
            }
            Some(place @ Node::Scalar(_)) => {
                value.style = Style::Plain;
                *place = Node::Scalar(value);
            }
            Some(place) => *place = Node::Scalar(value),
            None => self.push(key, Node::Scalar(value)),
        }
    }
}

impl Node {
    pub(crate) fn string(text: impl Into<Text>) -> Self {
        Self::Scalar(Scalar::string(text))
    }

    pub(crate) fn null() -> Self {
        Self::Scalar(Scalar::new("null", Tag::Null, Style::Plain))
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Scalar(scalar) if scalar.is_null())
    }

    /// Null, `{}` or `[]`.
    pub(crate) fn is_null_or_empty(&self) -> bool {
        match self {
            Self::Scalar(scalar) => scalar.is_null(),
            Self::Map(map) => map.is_empty(),
            Self::List(list) => list.is_empty(),
        }
    }

    pub(crate) fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    pub(crate) fn as_map_mut(&mut self) -> Option<&mut Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Node]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    pub(crate) fn as_scalar(&self) -> Option<&Scalar> {
        match self {
            Self::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// The field of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.as_map_mut()?.get_mut(key)
    }

    /// The source text of a scalar; empty for maps and lists.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Scalar(scalar) => &scalar.text,
            _ => "",
        }
    }

    /// The source text of a scalar that is not null; empty otherwise.
    pub(crate) fn value_text(&self) -> &str {
        if self.is_null() { "" } else { self.text() }
    }

    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Self::Scalar(_) => "ScalarNode",
            Self::Map(_) => "MappingNode",
            Self::List(_) => "SequenceNode",
        }
    }

    /// The map field `key`, made if it is missing; `None` if this or the field is not a map.
    pub(crate) fn map_or_create(&mut self, key: &str) -> Option<&mut Map> {
        let map = self.as_map_mut()?;
        let position = map.position(key).unwrap_or_else(|| {
            map.push(key, Self::Map(Map::default()));
            map.len() - 1
        });
        let field = map.at_mut(position);
        if field.is_null() {
            *field = Self::Map(Map::default());
        }
        field.as_map_mut()
    }

    /// Replaces a scalar, keeping the style it was written in.
    pub(crate) fn set_scalar(&mut self, text: impl Into<Text>, tag: Tag) -> Result<()> {
        match self {
            Self::Scalar(old) => {
                old.tag = tag;
                old.set_text(text);
                Ok(())
            }
            other => Err(wrong_kind("ScalarNode", other)),
        }
    }

    /// Makes the members of each group equal again: the place written last counts.
    pub(crate) fn settle_links(&mut self) {
        let mut latest: HashMap<u16, Scalar> = HashMap::new();
        self.collect_written(&mut latest);
        if !latest.is_empty() {
            self.spread(&latest);
        }
    }

    fn collect_written(&self, latest: &mut HashMap<u16, Scalar>) {
        match self {
            Self::Scalar(scalar) => {
                let link = scalar.link;
                let newer = latest.get(&link.group).is_none_or(|old| old.link.writes < link.writes);
                if link.writes > 0 && newer {
                    latest.insert(link.group, scalar.clone());
                }
            }
            Self::Map(map) => map.iter().for_each(|(_, node)| node.collect_written(latest)),
            Self::List(list) => list.iter().for_each(|node| node.collect_written(latest)),
        }
    }

    fn spread(&mut self, latest: &HashMap<u16, Scalar>) {
        match self {
            Self::Scalar(scalar) => {
                if let Some(value) = latest.get(&scalar.link.group) {
                    *scalar = value.clone().linked(Link::of_group(value.link.group));
                }
            }
            Self::Map(map) => map.iter_mut().for_each(|(_, node)| node.spread(latest)),
            Self::List(list) => list.iter_mut().for_each(|node| node.spread(latest)),
        }
    }

    /// The JSON value, as another program reads it after this tree was written out.
    ///
    /// # Errors
    /// Duplicate keys, keys that are not strings, and numbers JSON cannot hold.
    pub(crate) fn to_json(&self) -> Result<Value> {
        Ok(match self {
            Self::Scalar(scalar) => scalar_to_json(scalar)?,
            Self::List(list) => Value::Array(list.iter().map(Self::to_json).collect::<Result<_>>()?),
            Self::Map(map) => {
                let mut object = JsonMap::new();
                for (key, node) in &map.entries {
                    if let Some(name) = non_string_key(key) {
                        return Err(Error::message(format!(
                            "json: unsupported type: map[interface {{}}]interface {{}}: key '{name}' is not a string; quote it"
                        )));
                    }
                    if object.insert(key.text.to_string(), node.to_json()?).is_some() {
                        return Err(Error::message(format!(
                            "yaml: unmarshal errors: mapping key \"{}\" already defined",
                            key.text
                        )));
                    }
                }
                Value::Object(object)
            }
        })
    }

    /// The tree of a JSON value whose numbers went through a 64-bit float, as a JSON patch leaves them.
    pub(crate) fn from_patched_json(value: Value) -> Self {
        Self::from_json_with(value, |number| {
            let float = number.as_f64().unwrap_or_default();
            let text = scalar::format_general(float);
            let tag = scalar::tag_of(&text);
            Scalar::new(text, tag, Style::Plain)
        })
    }

    /// The tree of a JSON value, numbers kept exactly.
    pub(crate) fn from_json(value: Value) -> Self {
        Self::from_json_with(value, |number| {
            let text = number.to_string();
            let tag = scalar::tag_of(&text);
            Scalar::new(text, tag, Style::Plain)
        })
    }

    fn from_json_with(value: Value, number: fn(&Number) -> Scalar) -> Self {
        match value {
            Value::Null => Self::null(),
            Value::Bool(flag) => {
                Self::Scalar(Scalar::new(if flag { "true" } else { "false" }, Tag::Bool, Style::Plain))
            }
            Value::Number(value) => Self::Scalar(number(&value)),
            Value::String(text) => Self::Scalar(written_string(text.into())),
            Value::Array(list) => {
                Self::List(list.into_iter().map(|item| Self::from_json_with(item, number)).collect())
            }
            Value::Object(object) => {
                let mut map = Map::with_capacity(object.len());
                for (key, value) in object {
                    map.push_entry(written_string(key.into()), Self::from_json_with(value, number));
                }
                Self::Map(map)
            }
        }
    }
}

/// A string in the style the YAML writer would choose for it.
fn written_string(text: Text) -> Scalar {
    let style = if text.contains('\n') {
        Style::Block
    } else if scalar::tag_of(&text) != Tag::String || scalar::is_old_bool_or_base_60(&text) {
        Style::DoubleQuoted
    } else if scalar::plain_allowed(&text) {
        Style::Plain
    } else {
        Style::SingleQuoted
    };
    Scalar::new(text, Tag::String, style)
}

/// The key's text if it is not read as a string.
fn non_string_key(key: &Scalar) -> Option<&str> {
    match key.resolve() {
        Resolved::String(_) | Resolved::Owned(_) | Resolved::Merge => None,
        _ => Some(&key.text),
    }
}

fn scalar_to_json(scalar: &Scalar) -> Result<Value> {
    Ok(match scalar.resolve() {
        Resolved::Null => Value::Null,
        Resolved::Bool(flag) => Value::Bool(flag),
        Resolved::Int(number) => Value::from(number),
        Resolved::Unsigned(number) => Value::from(number),
        Resolved::Float(number) => scalar::float_to_json(number)
            .ok_or_else(|| Error::message(format!("json: unsupported value: {}", scalar.text)))?,
        Resolved::String(text) => Value::String(text.to_owned()),
        Resolved::Owned(text) => Value::String(text),
        Resolved::Merge => Value::String(scalar.text.to_string()),
        Resolved::Invalid => {
            let tag = format!("{:?}", scalar.tag).to_lowercase();
            return Err(Error::message(format!("yaml: cannot decode !!str `{}` as a !!{tag}", scalar.text)));
        }
    })
}

/// The error of a node that is not what the operation needs.
pub(crate) fn wrong_kind(expected: &str, node: &Node) -> Error {
    let shown = crate::yaml::to_text(node);
    Error::message(format!(
        "wrong node kind: expected {expected} but got {}: node contents:\n{}",
        node.kind_name(),
        weir_base::error::truncate(shown.trim_end(), 500),
    ))
}
