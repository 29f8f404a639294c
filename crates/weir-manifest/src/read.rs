//! Manifests as `sigs.k8s.io/yaml` reads them: YAML 1.1 scalars, the last of duplicate keys, merge keys in place.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use crate::decode::decode;
use crate::error::{Error, ErrorKind};
use crate::number::{Number, format_float32, format_json_float};
use crate::parse::{Event, EventKind, Parser, Properties};
use crate::resolve::{Resolved, resolve_tagged, resolve_yaml11};
use crate::scan::{Dialect, Mark, ScalarStyle};

/// How to read manifests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// A key that occurs twice in one mapping is an error; otherwise the last one counts.
    pub strict: bool,
}

/// The objects of a stream of YAML or JSON documents, in their order; empty documents are left out.
///
/// `origin` names the file in errors.
///
/// # Errors
/// The first mistake in the text, with its line and column. See [`read_documents_with`] for limits.
pub fn read_documents(bytes: &[u8], origin: &str) -> Result<Vec<Value>, Error> {
    let mut documents = read_documents_with(bytes, origin, ReadOptions::default())?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// All documents of a stream, empty ones as null.
///
/// # Errors
/// The first mistake in the text. Also texts over 1 GiB, nesting over 1000 levels, and documents most of whose nodes
/// come from aliases (99 % for small ones, 10 % for large ones: the rule of the Go libraries).
pub fn read_documents_with(bytes: &[u8], origin: &str, options: ReadOptions) -> Result<Vec<Value>, Error> {
    let read = || {
        let text = decode(bytes)?;
        let mut reader = Reader::new(&text, options);
        let mut documents = Vec::new();
        while let Some(document) = reader.next_document()? {
            documents.push(document);
        }
        Ok(documents)
    };
    read().map_err(|error: Error| error.in_origin(origin))
}

/// The first document of a text, null if it is empty: what `yaml.Unmarshal` of `sigs.k8s.io/yaml` sees.
///
/// Mistakes behind the first document are not seen, except broken encoding.
///
/// # Errors
/// As [`read_documents_with`].
pub fn read_first_document(bytes: &[u8], origin: &str, options: ReadOptions) -> Result<Value, Error> {
    let read = || {
        let text = decode(bytes)?;
        Ok(Reader::new(&text, options).next_document()?.unwrap_or(Value::Null))
    };
    read().map_err(|error: Error| error.in_origin(origin))
}

/// How many nodes the Go libraries would decode, and how many of them through aliases.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DecodeCount {
    pub(crate) all: u64,
    aliased: u64,
}

impl DecodeCount {
    /// Counts one alias and the `nodes` behind it.
    pub(crate) fn add_alias(&mut self, nodes: u64) -> Result<(), Error> {
        self.all = self.all.saturating_add(nodes).saturating_add(1);
        self.aliased = self.aliased.saturating_add(nodes);
        let allowed = match self.all {
            ..=400_000 => 0.99,
            4_000_000.. => 0.10,
            all => 0.99 - 0.89 * ((all - 400_000) as f64 / 3_600_000.0),
        };
        if self.aliased > 100 && self.all > 1000 && self.aliased as f64 / self.all as f64 > allowed {
            return Err(Error::new(ErrorKind::Limit, EXCESSIVE_ALIASING));
        }
        Ok(())
    }
}

struct Reader<'a> {
    parser: Parser<'a>,
    options: ReadOptions,
    /// Where in `anchored` the latest node with an anchor's name is.
    anchors: HashMap<&'a str, usize>,
    anchored: Vec<Anchored>,
    count: DecodeCount,
    /// Text that aliases have stood for so far, and text that is kept for aliases to come.
    expanded_bytes: u64,
    kept_bytes: u64,
    /// Mistakes that the Go libraries find only after the whole document has been understood.
    duplicates: Vec<(Mark, String)>,
    bad_key: Option<Error>,
    bad_value: Option<Error>,
}

/// A node that aliases can refer to.
#[derive(Clone)]
struct Anchored {
    /// None while the node is being read: an alias now would contain itself.
    node: Option<Node>,
    nodes: u64,
    /// How much text the node stands for, aliases in it expanded.
    bytes: u64,
}

/// A value and what its surroundings must know of it.
#[derive(Clone)]
struct Node {
    value: Value,
    key: KeyKind,
    merge: bool,
    alias: bool,
    /// In strict mode, where the values of a mapping are, for mappings that get merged into others.
    marks: Option<Marks>,
}

/// Where the value of each key is; for sequences of mappings with the number of the item.
type Marks = Box<HashMap<(usize, String), Mark>>;

/// What a mapping key was before it became a string; strict reading tells `1` and `"1"` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum KeyKind {
    String,
    Integer,
    /// The bits of the number.
    Float(u64),
    Bool,
    Null,
    Unsigned,
    Collection,
}

/// A collection whose end has not been seen yet.
enum Open {
    Sequence { items: Vec<Value>, merge_source: bool, marks: Option<Marks>, begun: Begun },
    Mapping(OpenMapping),
}

struct OpenMapping {
    entries: Map<String, Value>,
    key: PendingKey,
    seen: Option<HashSet<(KeyKind, String)>>,
    marks: Option<Marks>,
    begun: Begun,
}

/// The state of things when a collection began.
#[derive(Clone, Copy)]
struct Begun {
    start: Mark,
    anchor: Option<usize>,
    nodes: u64,
    expanded_bytes: u64,
}

enum PendingKey {
    None,
    Key { name: String, kind: KeyKind },
    Merge,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, options: ReadOptions) -> Self {
        Self {
            parser: Parser::new_unchecked(text, Dialect::V2),
            options,
            anchors: HashMap::new(),
            anchored: Vec::new(),
            count: DecodeCount::default(),
            expanded_bytes: 0,
            kept_bytes: 0,
            duplicates: Vec::new(),
            bad_key: None,
            bad_value: None,
        }
    }

    fn next_document(&mut self) -> Result<Option<Value>, Error> {
        loop {
            match self.parser.next()?.kind {
                EventKind::StreamEnd => return Ok(None),
                EventKind::DocumentStart => break,
                _ => {}
            }
        }
        self.anchors.clear();
        self.anchored.clear();
        self.count = DecodeCount { all: 1, aliased: 0 };
        (self.expanded_bytes, self.kept_bytes) = (0, 0);
        match self.node() {
            Ok(document) => {
                // The end of the document.
                self.parser.next()?;
                self.late_mistakes()?;
                Ok(Some(document))
            }
            Err(error) => {
                // The Go libraries understand a document only after its grammar has been found right.
                if error.kind() != ErrorKind::Syntax && !error.problem().starts_with(UNKNOWN_ANCHOR) {
                    self.check_rest()?;
                }
                Err(error)
            }
        }
    }

    /// Looks for mistakes in the grammar of the rest of a document.
    fn check_rest(&mut self) -> Result<(), Error> {
        loop {
            let event = self.parser.next()?;
            match event.kind {
                EventKind::DocumentEnd | EventKind::StreamEnd => return Ok(()),
                EventKind::Alias(name) if !self.anchors.contains_key(name) => {
                    return Err(
                        self.content_error(format!("{UNKNOWN_ANCHOR} '{name}' referenced"), event.start)
                    );
                }
                EventKind::Scalar { properties, .. }
                | EventKind::SequenceStart { properties, .. }
                | EventKind::MappingStart { properties, .. } => {
                    self.begin_anchored(&properties);
                }
                _ => {}
            }
        }
    }

    fn late_mistakes(&mut self) -> Result<(), Error> {
        if let Some((mark, _)) = self.duplicates.first() {
            let lines: Vec<String> = self
                .duplicates
                .iter()
                .map(|(mark, problem)| format!("  line {}: {problem}", self.parser.position(*mark).0))
                .collect();
            return Err(self.content_error(format!("unmarshal errors:\n{}", lines.join("\n")), *mark));
        }
        self.bad_key.take().or(self.bad_value.take()).map_or(Ok(()), Err)
    }

    fn content_error(&self, problem: impl Into<String>, mark: Mark) -> Error {
        self.parser.error_at(ErrorKind::Content, problem, mark)
    }

    /// Reads one node with all that is in it, without recursion.
    fn node(&mut self) -> Result<Value, Error> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let event = self.parser.next()?;
            let mut mark = event.start;
            let end = event.end;
            let node = match event.kind {
                EventKind::SequenceStart { properties, .. } => {
                    let sequence = self.open_sequence(&properties, open.last(), mark);
                    open.push(sequence);
                    continue;
                }
                EventKind::MappingStart { properties, .. } => {
                    let mapping = self.open_mapping(&properties, mark);
                    open.push(mapping);
                    continue;
                }
                EventKind::SequenceEnd | EventKind::MappingEnd => match open.pop() {
                    Some(Open::Sequence { items, marks, begun, .. }) => {
                        mark = begun.start;
                        self.closed(Value::Array(items), marks, begun, end)?
                    }
                    Some(Open::Mapping(OpenMapping { entries, marks, begun, .. })) => {
                        mark = begun.start;
                        self.closed(Value::Object(entries), marks, begun, end)?
                    }
                    None => {
                        return Err(self.content_error("end of a collection that never began", mark));
                    }
                },
                EventKind::Scalar { .. } if is_merge_value(open.last()) => {
                    return Err(self.content_error(WANT_MAP, mark));
                }
                _ => self.leaf(event)?,
            };
            match open.last_mut() {
                Some(Open::Mapping(mapping)) => match std::mem::replace(&mut mapping.key, PendingKey::None) {
                    PendingKey::None => mapping.key = self.key(node, mark)?,
                    PendingKey::Key { name, kind } => {
                        let value = self.value(node, mark);
                        if let Some(problem) = mapping.insert(name, kind, value, mark) {
                            self.duplicates.push((mark, problem));
                        }
                    }
                    PendingKey::Merge => {
                        let duplicates =
                            mapping.merge(node).map_err(|problem| self.content_error(problem, mark))?;
                        self.duplicates.extend(duplicates);
                    }
                },
                Some(Open::Sequence { items, merge_source, marks, .. }) => {
                    if *merge_source {
                        if !node.value.is_object() {
                            return Err(self.content_error(WANT_MAP, mark));
                        }
                        if let (Some(marks), Some(item)) = (marks, &node.marks) {
                            let number = items.len();
                            marks.extend(item.iter().map(|((_, key), mark)| ((number, key.clone()), *mark)));
                        }
                    }
                    items.push(self.value(node, mark));
                }
                None => return Ok(self.value(node, mark)),
            }
        }
    }

    /// A node in the place of a value. Numbers that JSON does not have are reported later.
    fn value(&mut self, node: Node, mark: Mark) -> Value {
        if let KeyKind::Float(bits) = node.key
            && let Some(word) = json_word(f64::from_bits(bits))
            && self.bad_value.is_none()
        {
            self.bad_value = Some(self.content_error(format!("json: unsupported value: {word}"), mark));
        }
        node.value
    }

    /// A node in the place of a key. Keys that JSON cannot have are reported later.
    fn key(&mut self, node: Node, mark: Mark) -> Result<PendingKey, Error> {
        if node.merge {
            // The Go library does not decode the key itself.
            self.count.all -= 1;
            return Ok(PendingKey::Merge);
        }
        let kind = node.key;
        let name = match (kind, node.value) {
            (KeyKind::Collection, value) => {
                let hint = if value.is_object() { "; text that begins with '{' must be quoted" } else { "" };
                let what = if value.is_object() { "mapping" } else { "sequence" };
                return Err(
                    self.content_error(format!("invalid map key: a {what} cannot be a key{hint}"), mark)
                );
            }
            (KeyKind::Null, _) => {
                let problem = "unsupported map key of type: %!s(<nil>), key: <nil>";
                self.bad_key = self.bad_key.take().or_else(|| Some(self.content_error(problem, mark)));
                String::new()
            }
            (KeyKind::Unsigned, value) => {
                let number = value.as_u64().unwrap_or_default();
                let problem = format!("unsupported map key of type: uint64, key: {number:#x}");
                self.bad_key = self.bad_key.take().or_else(|| Some(self.content_error(problem, mark)));
                String::new()
            }
            (KeyKind::Float(bits), _) => format_float32(f64::from_bits(bits)),
            (_, Value::String(text)) => text,
            (_, value) => value.to_string(),
        };
        Ok(PendingKey::Key { name, kind })
    }

    fn open_sequence(&mut self, properties: &Properties<'a>, around: Option<&Open>, start: Mark) -> Open {
        let merge_source = is_merge_value(around);
        let begun = self.begin(properties, start);
        if merge_source {
            // The Go library decodes the items only.
            self.count.all -= 1;
        }
        Open::Sequence {
            items: Vec::new(),
            merge_source,
            marks: self.options.strict.then(Marks::default),
            begun,
        }
    }

    fn open_mapping(&mut self, properties: &Properties<'a>, start: Mark) -> Open {
        Open::Mapping(OpenMapping {
            entries: Map::new(),
            key: PendingKey::None,
            seen: self.options.strict.then(HashSet::new),
            marks: self.options.strict.then(Marks::default),
            begun: self.begin(properties, start),
        })
    }

    fn begin(&mut self, properties: &Properties<'a>, start: Mark) -> Begun {
        let begun = Begun {
            start,
            anchor: self.begin_anchored(properties),
            nodes: self.count.all,
            expanded_bytes: self.expanded_bytes,
        };
        self.count.all += 1;
        begun
    }

    /// If a node has an anchor, makes room for it; aliases to it are errors until it is complete.
    fn begin_anchored(&mut self, properties: &Properties<'a>) -> Option<usize> {
        let anchor = properties.anchor?;
        let place = self.anchored.len();
        self.anchored.push(Anchored { node: None, nodes: 0, bytes: 0 });
        self.anchors.insert(anchor, place);
        Some(place)
    }

    fn closed(&mut self, value: Value, marks: Option<Marks>, begun: Begun, end: Mark) -> Result<Node, Error> {
        let node = Node { value, key: KeyKind::Collection, merge: false, alias: false, marks };
        if let Some(place) = begun.anchor {
            let bytes = u64::from(end.offset.saturating_sub(begun.start.offset))
                + (self.expanded_bytes - begun.expanded_bytes);
            self.keep(place, &node, self.count.all.saturating_sub(begun.nodes), bytes, begun.start)?;
        }
        Ok(node)
    }

    /// Keeps a copy of a node with an anchor. Anchors inside anchors keep copies of copies, hence the limit.
    fn keep(&mut self, place: usize, node: &Node, nodes: u64, bytes: u64, mark: Mark) -> Result<(), Error> {
        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        if self.kept_bytes > ALIASED_BYTES_MAX {
            return Err(self.parser.error_at(ErrorKind::Limit, "anchors keep too much text", mark));
        }
        if let Some(anchored) = self.anchored.get_mut(place) {
            *anchored = Anchored { node: Some(node.clone()), nodes, bytes };
        }
        Ok(())
    }

    fn leaf(&mut self, event: Event<'a>) -> Result<Node, Error> {
        match event.kind {
            EventKind::Alias(name) => {
                let Some(anchored) = self.anchors.get(name).and_then(|&place| self.anchored.get(place))
                else {
                    return Err(
                        self.content_error(format!("{UNKNOWN_ANCHOR} '{name}' referenced"), event.start)
                    );
                };
                let Some(node) = &anchored.node else {
                    return Err(
                        self.content_error(format!("anchor '{name}' value contains itself"), event.start)
                    );
                };
                // Counted before the copy is made: the copy is what an attacker wants.
                let (line, column) = self.parser.position(event.start);
                self.count.add_alias(anchored.nodes).map_err(|error| error.at(line, column))?;
                self.expanded_bytes = self.expanded_bytes.saturating_add(anchored.bytes);
                if self.expanded_bytes > ALIASED_BYTES_MAX {
                    return Err(Error::new(ErrorKind::Limit, EXCESSIVE_ALIASING).at(line, column));
                }
                Ok(Node { alias: true, ..node.clone() })
            }
            EventKind::Scalar { properties, value, style, implicit } => {
                self.count.all += 1;
                let merge = &*value == "<<"
                    && (implicit
                        || properties.tag.as_deref().is_some_and(|tag| tag == "tag:yaml.org,2002:merge"));
                let (value, key) = scalar(&properties, value, style).map_err(|error| {
                    let (line, column) = self.parser.position(event.start);
                    error.at(line, column)
                })?;
                let node = Node { value, key, merge, alias: false, marks: None };
                if let Some(place) = self.begin_anchored(&properties) {
                    let kept = Node { merge: false, ..node.clone() };
                    let bytes = u64::from(event.end.offset.saturating_sub(event.start.offset));
                    self.keep(place, &kept, 1, bytes, event.start)?;
                }
                Ok(node)
            }
            _ => Err(self.content_error("unexpected end of a document", event.start)),
        }
    }
}

fn is_merge_value(around: Option<&Open>) -> bool {
    matches!(around, Some(Open::Mapping(OpenMapping { key: PendingKey::Merge, .. })))
}

/// Aliases may stand for this much text in one document, and anchors may keep this much.
const ALIASED_BYTES_MAX: u64 = 1 << 28;

const EXCESSIVE_ALIASING: &str = "document contains excessive aliasing";

const UNKNOWN_ANCHOR: &str = "unknown anchor";

const WANT_MAP: &str = "map merge requires map or sequence of maps as the value";

impl OpenMapping {
    /// Sets a key; gives what is wrong if it was set before and that matters.
    fn insert(&mut self, name: String, kind: KeyKind, value: Value, mark: Mark) -> Option<String> {
        if let Some(seen) = &mut self.seen {
            if !seen.insert((kind, name.clone())) {
                // A key as Go prints it with `%#v`.
                let key = match kind {
                    KeyKind::String => format!("{name:?}"),
                    KeyKind::Null => "<nil>".to_owned(),
                    _ => name,
                };
                return Some(format!("key {key} already set in map"));
            }
            if let Some(marks) = &mut self.marks {
                marks.insert((0, name.clone()), mark);
            }
        }
        self.entries.insert(name, value);
        None
    }

    /// Adds the entries of a `<<` value, which override what came before and yield to what comes after.
    ///
    /// Gives the keys that were set already if that matters.
    fn merge(&mut self, source: Node) -> Result<Vec<(Mark, String)>, &'static str> {
        let mut marks = source.marks.unwrap_or_default();
        let sources = match source.value {
            Value::Object(entries) => vec![(0, entries)],
            Value::Array(items) if !source.alias => {
                let maps: Option<Vec<_>> = items
                    .into_iter()
                    .enumerate()
                    .rev()
                    .map(|(number, item)| match item {
                        Value::Object(entries) => Some((number, entries)),
                        _ => None,
                    })
                    .collect();
                maps.ok_or(WANT_MAP)?
            }
            _ => return Err(WANT_MAP),
        };
        let mut duplicates = Vec::new();
        for (number, entries) in sources {
            for (name, value) in entries {
                let place = (number, name);
                let mark = marks.remove(&place).unwrap_or_default();
                if let Some(problem) = self.insert(place.1, KeyKind::String, value, mark) {
                    duplicates.push((mark, problem));
                }
            }
        }
        Ok(duplicates)
    }
}

/// The value of a scalar and what it would be as a key.
fn scalar(
    properties: &Properties<'_>,
    text: Cow<'_, str>,
    style: ScalarStyle,
) -> Result<(Value, KeyKind), Error> {
    let resolved = match properties.tag.as_deref() {
        Some("tag:yaml.org,2002:binary") => {
            return Ok((Value::String(decode_binary(&text)?), KeyKind::String));
        }
        Some(tag) => resolve_tagged(Dialect::V2, tag, &text)?,
        None if style != ScalarStyle::Plain => Resolved::String,
        None => resolve_yaml11(&text),
    };
    Ok(match resolved {
        Resolved::Null => (Value::Null, KeyKind::Null),
        Resolved::Bool(value) => (Value::Bool(value), KeyKind::Bool),
        Resolved::Number(Number::Int(value)) => (Value::from(value), KeyKind::Integer),
        Resolved::Number(Number::Uint(value)) => (Value::from(value), KeyKind::Unsigned),
        Resolved::Number(Number::Float(value)) => {
            (float_value(value).unwrap_or_default(), KeyKind::Float(value.to_bits()))
        }
        Resolved::Timestamp(_) | Resolved::String => (Value::String(text.into_owned()), KeyKind::String),
    })
}

/// A float as it looks after its way through JSON: an integer if JSON prints it without point and exponent.
///
/// None for infinities and NaN, which JSON does not have.
pub(crate) fn float_value(value: f64) -> Option<Value> {
    let text = format_json_float(value)?;
    if !text.contains(['.', 'e']) {
        if let Ok(integer) = text.parse::<i64>() {
            return Some(Value::from(integer));
        }
        if let Ok(integer) = text.parse::<u64>() {
            return Some(Value::from(integer));
        }
    }
    Some(Value::from(value))
}

/// What Go's JSON encoder calls a number that JSON does not have.
fn json_word(value: f64) -> Option<&'static str> {
    match value {
        f64::INFINITY => Some("+Inf"),
        f64::NEG_INFINITY => Some("-Inf"),
        _ if value.is_nan() => Some("NaN"),
        _ => None,
    }
}

/// Base64 with any line breaks; bytes that are no text become U+FFFD, as they do on their way through JSON.
pub(crate) fn decode_binary(text: &str) -> Result<String, Error> {
    // Go does not look at the bits after the last byte.
    const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    const BASE64: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, CONFIG);
    let compact: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match BASE64.decode(compact) {
        Ok(bytes) => Ok(text_lossy(&bytes)),
        Err(_) => Err(Error::new(ErrorKind::Content, "!!binary value contains invalid base64 data")),
    }
}

/// Text with one U+FFFD for each byte that is none.
fn text_lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}
