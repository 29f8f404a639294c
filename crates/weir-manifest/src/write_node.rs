//! Trees of nodes as `yaml.v3` and kyaml write them, and values as Helm's `toYamlPretty` does.

use std::cmp::Ordering;

use serde_json::Value;

use crate::emit::{Emitter, Layout, Place, ScalarFacts};
use crate::natural::natural_order_after_digits;
use crate::node::{Content, Document, Node};
use crate::number::format_float;
use crate::parse::CORE_TAG_PREFIX;
use crate::resolve::{Resolved, resolve_core, resolve_yaml11};
use crate::scan::{Dialect, ScalarStyle};
use crate::write::{looks_like_base60, sort_naturally};

/// A key that is longer than this, tag and anchor included, is written behind `?`.
const SIMPLE_KEY_BYTES_MAX: usize = 128;

/// How nodes are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLayout {
    /// Columns per level, 2 to 9.
    pub indent: u8,
    /// Sequences start in the column of the key they belong to (less two columns, for an indentation over 2).
    pub compact_sequences: bool,
}

impl NodeLayout {
    /// Two columns, sequences indented: the default of kyaml's wide style.
    pub const WIDE: Self = Self { indent: 2, compact_sequences: false };
    /// Two columns, sequences in the column of their key: how kustomize and kyaml write by default.
    pub const COMPACT: Self = Self { indent: 2, compact_sequences: true };
    /// Four columns: how SOPS writes.
    pub const FOUR: Self = Self { indent: 4, compact_sequences: false };

    fn emitter(self) -> Emitter {
        let layout = Layout {
            dialect: Dialect::V3,
            indent: i32::from(self.indent.clamp(2, 9)),
            width: usize::MAX,
            compact_sequences: self.compact_sequences,
        };
        Emitter::new(layout, 0)
    }
}

/// The text of documents, as the encoder of `yaml.v3` writes them; each but the first behind `---`.
pub fn write_nodes(documents: &[Document], layout: NodeLayout) -> String {
    let mut writer = Writer::new(layout.emitter());
    for (number, document) in documents.iter().enumerate() {
        writer.document(document, number == 0);
    }
    writer.emitter.out
}

/// A value as Helm's `toYamlPretty` writes it: two columns, sequences indented, no folding; ends with a newline.
pub fn to_yaml_pretty(value: &Value) -> String {
    let mut writer = Writer::new(NodeLayout::WIDE.emitter());
    let root = node_of(value);
    writer.announce(&root, "");
    writer.emit(&root, Around::default());
    writer.emitter.write_indent();
    writer.emitter.out
}

fn node_of(value: &Value) -> Node {
    let plain = |text: &str| Node::scalar(text, ScalarStyle::Plain);
    match value {
        Value::Null => plain("null"),
        Value::Bool(value) => plain(if *value { "true" } else { "false" }),
        Value::Number(number) => {
            // Everything is a float64 in the template engine; integers that a chart made stay integers.
            if number.is_f64() {
                plain(&format_float(number.as_f64().unwrap_or_default()))
            } else {
                plain(&number.to_string())
            }
        }
        Value::String(text) => Node::of_text(text),
        Value::Array(items) => Node {
            content: Content::Sequence { items: items.iter().map(node_of).collect(), flow: false },
            tag: "!!seq".to_owned(),
            ..Node::default()
        },
        Value::Object(entries) => {
            let mut sorted: Vec<(&str, &Value)> =
                entries.iter().map(|(key, value)| (key.as_str(), value)).collect();
            if sorted
                .windows(2)
                .any(|pair| natural_order_after_digits(pair[0].0, pair[1].0) == Ordering::Greater)
            {
                sorted = sort_naturally(sorted, natural_order_after_digits);
            }
            let entry = |(key, value): (&str, &Value)| (node_of(&Value::from(key)), node_of(value));
            Node {
                content: Content::Mapping { entries: sorted.into_iter().map(entry).collect(), flow: false },
                tag: "!!map".to_owned(),
                ..Node::default()
            }
        }
    }
}

impl Node {
    /// The node `yaml.v3` makes of a string: quoted if a reader would take the bare text for something else.
    pub fn of_text(text: &str) -> Self {
        let means_text = resolve_core(text) == Resolved::String;
        let style = if text.contains('\n') {
            ScalarStyle::Literal
        } else if means_text && !looks_like_base60(text) && !is_old_bool(text) {
            ScalarStyle::Plain
        } else {
            ScalarStyle::DoubleQuoted
        };
        Self { tag: "!!str".to_owned(), ..Self::scalar(text, style) }
    }
}

/// Whether YAML 1.1 reads the text as a bool although `yaml.v3` does not.
fn is_old_bool(text: &str) -> bool {
    matches!(resolve_yaml11(text), Resolved::Bool(_)) && resolve_core(text) == Resolved::String
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, Default)]
struct Around {
    /// A key or a value of a mapping.
    mapping: bool,
    simple_key: bool,
    /// An item of a block sequence.
    item: bool,
    /// Comments behind the node are written with it; in flow collections a comma goes before them.
    flow_comma: bool,
    /// The node is a key: its comments wait for the value.
    key: bool,
}

struct Writer {
    emitter: Emitter,
    flow_level: usize,
    head: String,
    foot: String,
    /// The foot comment of the entry before.
    tail: String,
    key_line: String,
}

impl Writer {
    fn new(emitter: Emitter) -> Self {
        Self {
            emitter,
            flow_level: 0,
            head: String::new(),
            foot: String::new(),
            tail: String::new(),
            key_line: String::new(),
        }
    }

    fn document(&mut self, document: &Document, first: bool) {
        self.emitter.indent = -1;
        set(&mut self.head, &document.comments.head);
        if !first {
            self.emitter.write_indent();
            self.emitter.write_indicator("---", true, false, false);
            self.emitter.write_indent();
        }
        if !self.head.is_empty() {
            self.write_head();
            self.emitter.put_break();
        }
        self.announce(&document.root, "");
        self.write_head();
        self.emit(&document.root, Around::default());
        set(&mut self.foot, &document.comments.foot);
        self.emitter.foot_indent = 0;
        self.write_foot();
        self.emitter.foot_indent = -1;
        self.emitter.write_indent();
    }

    /// Takes over the comments of a node that is written next.
    fn announce(&mut self, node: &Node, tail: &str) {
        set(&mut self.head, &node.comments.head);
        match &node.content {
            Content::Sequence { .. } => {}
            Content::Mapping { .. } => set(&mut self.tail, tail),
            Content::Scalar { .. } | Content::Alias(_) => {
                set(&mut self.emitter.line_comment, &node.comments.line);
                set(&mut self.foot, &node.comments.foot);
                if matches!(node.content, Content::Scalar { .. }) {
                    set(&mut self.tail, tail);
                }
            }
        }
    }

    fn announce_end(&mut self, node: &Node, tail: &str) {
        set(&mut self.emitter.line_comment, &node.comments.line);
        set(&mut self.foot, &node.comments.foot);
        set(&mut self.tail, tail);
    }

    fn write_head(&mut self) {
        if !self.tail.is_empty() {
            self.emitter.write_indent();
            let comment = std::mem::take(&mut self.tail);
            self.emitter.write_comment(&comment);
            self.emitter.foot_indent = self.emitter.indent.max(0);
        }
        if !self.head.is_empty() {
            self.emitter.write_indent();
            let comment = std::mem::take(&mut self.head);
            self.emitter.write_comment(&comment);
        }
    }

    fn write_foot(&mut self) {
        if self.foot.is_empty() {
            return;
        }
        self.emitter.write_indent();
        let comment = std::mem::take(&mut self.foot);
        self.emitter.write_comment(&comment);
        self.emitter.foot_indent = self.emitter.indent.max(0);
    }

    fn comments_wait(&self) -> bool {
        !(self.emitter.line_comment.is_empty() && self.foot.is_empty() && self.tail.is_empty())
    }

    /// Writes what comes behind a node, which for collections is behind their first sign.
    fn behind(&mut self, around: Around) {
        if around.key {
            return;
        }
        if around.flow_comma && self.comments_wait() {
            self.emitter.write_indicator(",", false, false, false);
        }
        self.emitter.write_line_comment();
        self.write_foot();
    }

    fn emit(&mut self, node: &Node, around: Around) {
        match &node.content {
            Content::Alias(name) => {
                self.emitter.write_indicator("*", true, false, false);
                self.write_raw(name);
                self.behind(around);
            }
            Content::Scalar { text, style } => {
                self.scalar(node, text, *style, around);
                self.behind(around);
            }
            Content::Sequence { items, flow } => {
                self.write_properties(node, written_tag(node).0.as_deref());
                self.behind(around);
                if *flow || self.flow_level > 0 || items.is_empty() {
                    self.flow_sequence(node, items, around);
                } else {
                    self.block_sequence(node, items, around);
                }
            }
            Content::Mapping { entries, flow } => {
                self.write_properties(node, written_tag(node).0.as_deref());
                self.behind(around);
                if *flow || self.flow_level > 0 || entries.is_empty() {
                    self.flow_mapping(node, entries, around);
                } else {
                    self.block_mapping(node, entries, around);
                }
            }
        }
    }

    fn write_raw(&mut self, text: &str) {
        self.emitter.write_indicator(text, false, false, false);
        self.emitter.indention = false;
    }

    fn write_properties(&mut self, node: &Node, tag: Option<&str>) {
        if let Some(anchor) = &node.anchor {
            self.emitter.write_indicator("&", true, false, false);
            self.write_raw(anchor);
        }
        if let Some(tag) = tag {
            self.emitter.write_indicator(&tag_text(tag), true, false, false);
            self.emitter.indention = false;
        }
    }

    fn scalar(&mut self, node: &Node, text: &str, style: ScalarStyle, around: Around) {
        let (tag, force_quotes) = written_tag(node);
        let wanted = match style {
            ScalarStyle::Plain if text.contains('\n') => ScalarStyle::Literal,
            ScalarStyle::Plain if force_quotes => ScalarStyle::DoubleQuoted,
            _ => style,
        };
        let place = Place { flow: self.flow_level > 0, simple_key: around.simple_key, item: around.item };
        let facts = ScalarFacts::of(text, Dialect::V3);
        self.write_properties(node, tag.as_deref());
        self.emitter.write_scalar(text, facts.style(wanted, text.is_empty(), place), place);
    }

    fn block_sequence(&mut self, node: &Node, items: &[Node], around: Around) {
        let compact = around.mapping
            && (self.emitter.column == 0 || !self.emitter.indention)
            && self.emitter.layout.compact_sequences;
        let indent = match self.emitter.indent {
            ..0 => 0,
            _ if around.item => self.emitter.deeper(true),
            _ => self.emitter.deeper(false) - if compact { 2 } else { 0 },
        };
        self.emitter.push_indent(indent);
        for item in items {
            self.announce(item, "");
            self.write_head();
            self.emitter.write_indent();
            self.emitter.write_indicator("-", true, false, true);
            self.emit(item, Around { item: true, ..Around::default() });
        }
        self.announce_end(node, "");
        self.emitter.pop_indent();
    }

    fn block_mapping(&mut self, node: &Node, entries: &[(Node, Node)], around: Around) {
        let indent = if self.emitter.indent < 0 { 0 } else { self.emitter.deeper(around.item) };
        self.emitter.push_indent(indent);
        let mut tail = "";
        for (key, value) in entries {
            let bare = Node {
                comments: crate::node::Comments { foot: String::new(), ..key.comments.clone() },
                ..key.clone()
            };
            self.announce(&bare, tail);
            tail = &key.comments.foot;
            self.write_head();
            self.emitter.write_indent();
            if !self.emitter.line_comment.is_empty() {
                self.key_line = std::mem::take(&mut self.emitter.line_comment);
            }
            let simple = is_simple_key(&bare);
            if !simple {
                self.emitter.write_indicator("?", true, false, true);
            }
            self.emit(&bare, Around { mapping: true, simple_key: simple, key: true, ..Around::default() });
            self.announce(value, "");
            if simple {
                self.emitter.write_indicator(":", false, false, false);
            } else {
                self.emitter.write_indent();
                self.emitter.write_indicator(":", true, false, true);
            }
            self.move_key_comment(value);
            self.emit(value, Around { mapping: true, ..Around::default() });
        }
        self.announce_end(node, tail);
        self.write_head();
        self.emitter.pop_indent();
    }

    /// A comment behind a key goes behind its value, or behind the key if the value comes on lines of its own.
    fn move_key_comment(&mut self, value: &Node) {
        if self.key_line.is_empty() {
            return;
        }
        match &value.content {
            Content::Scalar { .. } if self.emitter.line_comment.is_empty() => {
                self.emitter.line_comment = std::mem::take(&mut self.key_line);
            }
            Content::Sequence { flow: false, .. } | Content::Mapping { flow: false, .. } => {
                std::mem::swap(&mut self.emitter.line_comment, &mut self.key_line);
                self.emitter.write_line_comment();
                std::mem::swap(&mut self.emitter.line_comment, &mut self.key_line);
            }
            _ => {}
        }
    }

    fn begin_flow(&mut self, sign: &str, around: Around) {
        self.emitter.write_indicator(sign, true, true, false);
        let indent = if self.emitter.indent < 0 {
            self.emitter.layout.indent
        } else {
            self.emitter.deeper(around.item)
        };
        self.emitter.push_indent(indent);
        self.flow_level += 1;
    }

    fn flow_sequence(&mut self, node: &Node, items: &[Node], around: Around) {
        self.begin_flow("[", around);
        let mut comma = false;
        for item in items {
            self.announce(item, "");
            if comma {
                self.emitter.write_indicator(",", false, false, false);
            }
            self.write_head();
            if self.emitter.column == 0 {
                self.emitter.write_indent();
            }
            comma = !self.comments_wait();
            self.emit(item, Around { flow_comma: true, ..Around::default() });
        }
        self.announce_end(node, "");
        self.flow_level -= 1;
        self.emitter.pop_indent();
        if self.emitter.column == 0 {
            self.emitter.write_indent();
        }
        self.emitter.write_indicator("]", false, false, false);
        self.emitter.write_line_comment();
        self.write_foot();
    }

    fn flow_mapping(&mut self, node: &Node, entries: &[(Node, Node)], around: Around) {
        self.begin_flow("{", around);
        let mut comma = false;
        let mut tail = "";
        for (key, value) in entries {
            let bare = Node {
                comments: crate::node::Comments { foot: String::new(), ..key.comments.clone() },
                ..key.clone()
            };
            self.announce(&bare, tail);
            tail = &key.comments.foot;
            if comma {
                self.emitter.write_indicator(",", false, false, false);
            }
            self.write_head();
            if self.emitter.column == 0 {
                self.emitter.write_indent();
            }
            let simple = is_simple_key(&bare);
            if !simple {
                self.emitter.write_indicator("?", true, false, false);
            }
            self.emit(&bare, Around { mapping: true, simple_key: simple, key: true, ..Around::default() });
            self.announce(value, "");
            self.emitter.write_indicator(":", !simple, false, false);
            comma = !self.comments_wait();
            self.emit(value, Around { mapping: true, flow_comma: true, ..Around::default() });
        }
        self.announce_end(node, tail);
        let comments = !(self.head.is_empty() && self.foot.is_empty() && self.tail.is_empty());
        if comments && comma {
            self.emitter.write_indicator(",", false, false, false);
        }
        self.write_head();
        self.flow_level -= 1;
        self.emitter.pop_indent();
        self.emitter.write_indicator("}", false, false, false);
        self.emitter.write_line_comment();
        self.write_foot();
    }
}

fn set(place: &mut String, comment: &str) {
    if !comment.is_empty() {
        comment.clone_into(place);
    }
}

/// The tag that has to be written, and whether the text needs quotes to stay a string.
fn written_tag(node: &Node) -> (Option<String>, bool) {
    if node.tag.is_empty() || matches!(node.content, Content::Alias(_)) {
        return (None, false);
    }
    if node.tagged {
        return (Some(node.tag.clone()), false);
    }
    match &node.content {
        Content::Scalar { text, style } => {
            let is_string = node.tag == "!!str";
            if (is_string && *style != ScalarStyle::Plain) || resolve_core(text).short_tag() == node.tag {
                (None, false)
            } else {
                ((!is_string).then(|| node.tag.clone()), is_string)
            }
        }
        Content::Sequence { .. } if node.tag == "!!seq" => (None, false),
        Content::Mapping { .. } if node.tag == "!!map" => (None, false),
        _ => (Some(node.tag.clone()), false),
    }
}

/// A tag as it is written: `!!int`, `!local`, or `!<…>` for anything else.
fn tag_text(tag: &str) -> String {
    let long = tag.strip_prefix("!!").map(|rest| format!("{CORE_TAG_PREFIX}{rest}"));
    let long = long.as_deref().unwrap_or(tag);
    if let Some(suffix) = long.strip_prefix('!') {
        format!("!{}", escape_uri(suffix))
    } else if let Some(suffix) = long.strip_prefix(CORE_TAG_PREFIX) {
        format!("!!{}", escape_uri(suffix))
    } else {
        format!("!<{}>", escape_uri(long))
    }
}

fn escape_uri(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"_-;/?:@&=+$,.~*'()[]".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            escaped.extend(
                [byte >> 4, byte & 0xF].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])),
            );
        }
    }
    escaped
}

fn is_simple_key(key: &Node) -> bool {
    let anchor = key.anchor.as_ref().map_or(0, String::len);
    // The handle, `!` or `!!`, and the suffix.
    let tag = written_tag(key).0.map_or(0, |tag| tag.len());
    let length = match &key.content {
        Content::Alias(name) => name.len(),
        Content::Scalar { text, .. } => {
            if ScalarFacts::of(text, Dialect::V3).multiline {
                return false;
            }
            anchor + tag + text.len()
        }
        Content::Sequence { items, .. } if items.is_empty() => anchor + tag,
        Content::Mapping { entries, .. } if entries.is_empty() => anchor + tag,
        _ => return false,
    };
    length <= SIMPLE_KEY_BYTES_MAX
}
