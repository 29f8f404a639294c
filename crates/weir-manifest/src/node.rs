//! YAML as a tree that keeps what the text says: order, styles, tags, anchors, comments, positions.
//!
//! This is the view of `yaml.v3` and kyaml. [`read_nodes`] and [`write_nodes`] are faithful to them.

use std::collections::HashSet;

use crate::decode::decode;
use crate::error::{Error, ErrorKind};
use crate::parse::{Event, EventKind, Parser, Properties};
use crate::resolve::{resolve_core, short_tag};
use crate::scan::{Dialect, Mark, ScalarStyle};

/// A document and the comments that belong to none of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The one node of the document.
    pub root: Node,
    /// The line the document begins on, counted from 1.
    pub line: usize,
    /// The column the document begins in, counted from 1.
    pub column: usize,
    /// Comments before and after the node.
    pub comments: Comments,
}

/// A node of a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// What the node holds.
    pub content: Content,
    /// The short tag, such as `!!int`: the one that is written, or the one that follows from the text. Empty for aliases.
    pub tag: String,
    /// Whether the tag is written in the text.
    pub tagged: bool,
    /// The name behind `&`.
    pub anchor: Option<String>,
    /// The line the node begins on, counted from 1; 0 for nodes that were not read.
    pub line: usize,
    /// The column the node begins in, in characters counted from 1; 0 for nodes that were not read.
    pub column: usize,
    /// Comments that belong to the node.
    pub comments: Comments,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text.
    Scalar {
        /// The text, escapes and folding undone.
        text: String,
        /// How it is written.
        style: ScalarStyle,
    },
    /// A list.
    Sequence {
        /// The items in their order.
        items: Vec<Node>,
        /// Written `[…]`.
        flow: bool,
    },
    /// Keys and values; keys may occur twice and need not be scalars.
    Mapping {
        /// The entries in their order.
        entries: Vec<(Node, Node)>,
        /// Written `{…}`.
        flow: bool,
    },
    /// `*name`
    Alias(String),
}

impl Default for Content {
    fn default() -> Self {
        Self::Scalar { text: String::new(), style: ScalarStyle::Plain }
    }
}

/// Comments of a node, each with its `#` and possibly of several lines; empty if there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Comments {
    /// On the lines before the node.
    pub head: String,
    /// At the end of the node's line.
    pub line: String,
    /// On the lines after the node, before an empty line.
    pub foot: String,
}

impl Node {
    /// A plain or quoted scalar whose tag follows from its text and style.
    pub fn scalar(text: impl Into<String>, style: ScalarStyle) -> Self {
        let text = text.into();
        let tag = default_tag(&text, style).to_owned();
        Self { content: Content::Scalar { text, style }, tag, ..Self::default() }
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The value of the first entry of a mapping whose key has this text.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.content {
            Content::Mapping { entries, .. } => {
                entries.iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

fn default_tag(text: &str, style: ScalarStyle) -> &'static str {
    match style {
        ScalarStyle::Plain if text == "<<" => "!!merge",
        ScalarStyle::Plain => resolve_core(text).short_tag(),
        _ => "!!str",
    }
}

/// The documents of a text as trees. Aliases stay aliases; those to unknown anchors are errors.
///
/// # Errors
/// The first mistake in the text, with its line and column.
pub fn read_nodes(bytes: &[u8], origin: &str) -> Result<Vec<Document>, Error> {
    let read = || {
        let text = decode(bytes)?;
        let mut reader = Reader {
            parser: Parser::new_unchecked(&text, Dialect::V3).with_comments(),
            anchors: HashSet::new(),
        };
        let mut documents = Vec::new();
        while let Some(document) = reader.document()? {
            documents.push(document);
        }
        Ok(documents)
    };
    read().map_err(|error: Error| error.in_origin(origin))
}

/// The first document of a text, none if there is none. What follows it is not looked at.
///
/// # Errors
/// As [`read_nodes`].
pub fn read_first_node(bytes: &[u8], origin: &str) -> Result<Option<Document>, Error> {
    let read = || {
        let text = decode(bytes)?;
        Reader { parser: Parser::new_unchecked(&text, Dialect::V3).with_comments(), anchors: HashSet::new() }
            .document()
    };
    read().map_err(|error: Error| error.in_origin(origin))
}

struct Reader<'a> {
    parser: Parser<'a>,
    /// Names seen so far; anchors live on after the end of their document in this library.
    anchors: HashSet<&'a str>,
}

/// A collection whose end has not been seen yet.
enum Open {
    Sequence(Node, Vec<Node>),
    Mapping(Node, Vec<(Node, Node)>, Option<Node>),
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Option<Document>, Error> {
        let start = loop {
            let event = self.parser.next()?;
            match event.kind {
                EventKind::StreamEnd => return Ok(None),
                EventKind::DocumentStart => break event,
                _ => {}
            }
        };
        let (line, column) = self.parser.position(start.start);
        let mut comments = start.comments.map(|comments| *comments).unwrap_or_default();
        let root = self.node()?;
        if let Some(end) = self.parser.next()?.comments {
            comments.foot = end.foot;
        }
        Ok(Some(Document { root, line, column, comments }))
    }

    fn node(&mut self) -> Result<Node, Error> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let mut event = self.parser.next()?;
            let comments = event.comments.take().map(|comments| *comments).unwrap_or_default();
            let node = match event.kind {
                EventKind::SequenceStart { properties, flow } => {
                    let mut node = self.start(&properties, "!!seq", event.start);
                    node.content = Content::Sequence { items: Vec::new(), flow };
                    node.comments = comments;
                    open.push(Open::Sequence(node, Vec::new()));
                    continue;
                }
                EventKind::MappingStart { properties, flow } => {
                    let mut node = self.start(&properties, "!!map", event.start);
                    node.content = Content::Mapping { entries: Vec::new(), flow };
                    node.comments = comments;
                    open.push(Open::Mapping(node, Vec::new(), None));
                    continue;
                }
                EventKind::SequenceEnd | EventKind::MappingEnd => match open.pop() {
                    Some(Open::Sequence(mut node, done)) => {
                        node.comments = Comments { head: node.comments.head, ..comments };
                        if let Content::Sequence { items, .. } = &mut node.content {
                            *items = done;
                        }
                        node
                    }
                    Some(Open::Mapping(mut node, mut done, _)) => {
                        node.comments = Comments { head: node.comments.head, ..comments };
                        if let Content::Mapping { entries, flow } = &mut node.content {
                            // A comment at the foot of a block belongs to its last entry.
                            if let Some((key, _)) =
                                done.last_mut().filter(|_| !*flow && !node.comments.foot.is_empty())
                            {
                                key.comments.foot = std::mem::take(&mut node.comments.foot);
                            }
                            *entries = done;
                        }
                        node
                    }
                    None => return Err(self.unexpected(event.start)),
                },
                _ => Node { comments, ..self.leaf(event)? },
            };
            match open.last_mut() {
                None => return Ok(node),
                Some(Open::Sequence(_, items)) => items.push(node),
                Some(Open::Mapping(mapping, entries, key)) => match key.take() {
                    None => *key = Some(move_foot_up(node, mapping, entries)),
                    Some(mut key) => {
                        let mut node = node;
                        if key.comments.foot.is_empty() {
                            key.comments.foot = std::mem::take(&mut node.comments.foot);
                        }
                        entries.push((key, node));
                    }
                },
            }
        }
    }

    fn unexpected(&self, mark: Mark) -> Error {
        self.parser.error_at(ErrorKind::Syntax, "unexpected end of a document", mark)
    }

    fn start(&mut self, properties: &Properties<'a>, default: &str, mark: Mark) -> Node {
        let (line, column) = self.parser.position(mark);
        self.anchors.extend(properties.anchor);
        let written = properties.tag.as_deref().filter(|tag| *tag != "!");
        Node {
            content: Content::default(),
            tag: written.map_or_else(|| default.to_owned(), |tag| short_tag(tag).into_owned()),
            tagged: written.is_some(),
            anchor: properties.anchor.map(str::to_owned),
            line,
            column,
            comments: Comments::default(),
        }
    }

    fn leaf(&mut self, event: Event<'a>) -> Result<Node, Error> {
        match event.kind {
            EventKind::Alias(name) => {
                if !self.anchors.contains(name) {
                    let problem = format!("unknown anchor '{name}' referenced");
                    return Err(self.parser.error_at(ErrorKind::Content, problem, event.start));
                }
                let mut node = self.start(&Properties::default(), "", event.start);
                node.content = Content::Alias(name.to_owned());
                Ok(node)
            }
            EventKind::Scalar { properties, value, style, .. } => {
                let mut node = self.start(&properties, default_tag(&value, style), event.start);
                node.content = Content::Scalar { text: value.into_owned(), style };
                Ok(node)
            }
            _ => Err(self.unexpected(event.start)),
        }
    }
}

/// A comment at the foot of a key of a block is at the foot of the entry before.
fn move_foot_up(mut key: Node, mapping: &Node, entries: &mut [(Node, Node)]) -> Node {
    let block = matches!(mapping.content, Content::Mapping { flow: false, .. });
    if let Some((before, _)) = entries.last_mut().filter(|_| block && !key.comments.foot.is_empty()) {
        before.comments.foot = std::mem::take(&mut key.comments.foot);
    }
    key
}
