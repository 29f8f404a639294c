//! Values as `sigs.k8s.io/yaml` writes them.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value};

use crate::emit::{Emitter, Layout, Place, ScalarFacts};
use crate::natural::natural_order;
use crate::number::{format_float, format_json_float};
use crate::resolve::{Resolved, resolve_yaml11};
use crate::scan::{Dialect, ScalarStyle};

/// A key that is longer than this is written behind `?`.
const SIMPLE_KEY_BYTES_MAX: usize = 128;

/// The width behind which the Go library folds long texts.
const FOLD_COLUMNS: usize = 80;

const SIGS: Layout = Layout { dialect: Dialect::V2, indent: 2, width: FOLD_COLUMNS, compact_sequences: true };

/// The YAML text of a value, byte for byte as `yaml.Marshal` of `sigs.k8s.io/yaml` writes it; ends with a newline.
///
/// Keys in natural order, sequences in the column of their key, texts quoted only where a reader of YAML 1.1 would take
/// them for something else, long texts folded behind column 80.
///
/// Where the Go library fails or loses text (DEL and other control characters, U+FFFE, U+0085, keys of more than 1024
/// characters), the text is written escaped instead.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    write_yaml(value, &mut text, true);
    text
}

/// As [`to_yaml`], with keys sorted by their bytes: the form of which Flux takes the digest of Helm values.
pub fn to_yaml_with_sorted_keys(value: &Value) -> String {
    let mut text = String::new();
    write_yaml(value, &mut text, false);
    text
}

/// The YAML texts of several objects, each but the first behind a `---` line.
pub fn to_yaml_stream<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    let mut text = String::new();
    for value in values {
        if !text.is_empty() {
            text.push_str("---\n");
        }
        write_yaml(value, &mut text, true);
    }
    text
}

fn write_yaml(value: &Value, text: &mut String, natural: bool) {
    let mut writer = Writer { emitter: Emitter::new(SIGS, 0), natural };
    writer.emitter.out = std::mem::take(text);
    writer.node(value, false);
    // The end of the document.
    writer.emitter.indent = -1;
    writer.emitter.write_indent();
    *text = writer.emitter.out;
}

struct Writer {
    emitter: Emitter,
    /// Whether keys come in natural order, not in that of their bytes.
    natural: bool,
}

impl Writer {
    fn node(&mut self, value: &Value, in_mapping: bool) {
        match value {
            Value::Null => self.plain("null"),
            Value::Bool(value) => self.plain(if *value { "true" } else { "false" }),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.string(text, false),
            Value::Array(items) if items.is_empty() => self.empty("[", "]"),
            Value::Array(items) => self.sequence(items, in_mapping),
            Value::Object(entries) if entries.is_empty() => self.empty("{", "}"),
            Value::Object(entries) => self.mapping(entries),
        }
    }

    fn plain(&mut self, text: &str) {
        self.emitter.write_scalar(
            text,
            ScalarStyle::Plain,
            Place { flow: false, simple_key: false, item: false },
        );
    }

    fn empty(&mut self, open: &str, close: &str) {
        self.emitter.write_indicator(open, true, true, false);
        self.emitter.write_indicator(close, false, false, false);
    }

    fn number(&mut self, number: &Number) {
        if number.is_i64() || number.is_u64() {
            self.plain(&number.to_string());
            return;
        }
        let value = number.as_f64().unwrap_or_default();
        // Floats take the way through JSON text, which turns 1.0 into the integer 1.
        let json = format_json_float(value).unwrap_or_default();
        let text = match resolve_yaml11(&json) {
            Resolved::Number(crate::number::Number::Int(integer)) => integer.to_string(),
            Resolved::Number(crate::number::Number::Uint(integer)) => integer.to_string(),
            _ => format_float(value),
        };
        self.plain(&text);
    }

    fn string(&mut self, text: &str, simple_key: bool) {
        let facts = ScalarFacts::of(text, Dialect::V2);
        let place = Place { flow: false, simple_key, item: false };
        let style = facts.style(wanted_style(text), text.is_empty(), place);
        self.emitter.write_scalar(text, style, place);
    }

    fn sequence(&mut self, items: &[Value], in_mapping: bool) {
        let emitter = &mut self.emitter;
        let indentless = in_mapping && !emitter.indention;
        emitter.push_indent(match emitter.indent {
            ..0 => 0,
            indent if indentless => indent,
            _ => emitter.deeper(false),
        });
        for item in items {
            self.emitter.write_indent();
            self.emitter.write_indicator("-", true, false, true);
            self.node(item, false);
        }
        self.emitter.pop_indent();
    }

    fn mapping(&mut self, entries: &Map<String, Value>) {
        let indent = if self.emitter.indent < 0 { 0 } else { self.emitter.deeper(false) };
        self.emitter.push_indent(indent);
        let mut sorted: Vec<(&str, &Value)> =
            entries.iter().map(|(key, value)| (key.as_str(), value)).collect();
        if self.natural
            && sorted.windows(2).any(|pair| natural_order(pair[0].0, pair[1].0) == Ordering::Greater)
        {
            sorted = sort_naturally(sorted, natural_order);
        }
        for (key, value) in sorted {
            self.entry(key, value);
        }
        self.emitter.pop_indent();
    }

    fn entry(&mut self, key: &str, value: &Value) {
        self.emitter.write_indent();
        let multiline = key.len() <= SIMPLE_KEY_BYTES_MAX && ScalarFacts::of(key, Dialect::V2).multiline;
        if key.len() <= SIMPLE_KEY_BYTES_MAX && !multiline {
            self.string(key, true);
            self.emitter.write_indicator(":", false, false, false);
        } else {
            self.emitter.write_indicator("?", true, false, true);
            self.string(key, false);
            self.emitter.write_indent();
            self.emitter.write_indicator(":", true, false, true);
        }
        self.node(value, true);
    }
}

/// The style the Go encoder asks for: literal for several lines, plain if a reader gets the text back, else quoted.
fn wanted_style(text: &str) -> ScalarStyle {
    if text.contains('\n') {
        ScalarStyle::Literal
    } else if resolve_yaml11(text) == Resolved::String && !looks_like_base60(text) {
        ScalarStyle::Plain
    } else {
        ScalarStyle::DoubleQuoted
    }
}

/// Whether YAML 1.1 reads the text as a number in base 60, such as `1:30`.
pub(crate) fn looks_like_base60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let first = parts.next().unwrap_or_default();
    if !first.as_bytes().first().is_some_and(u8::is_ascii_digit)
        || !first.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    {
        return false;
    }
    let Some(mut rest) = unsigned.get(first.len()..).filter(|rest| !rest.is_empty()) else {
        return false;
    };
    if let Some((before, fraction)) = rest.split_once('.') {
        if !fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
            return false;
        }
        rest = before;
    }
    rest.get(1..).is_some_and(|rest| {
        rest.split(':').all(|part| match part.as_bytes() {
            [digit] => digit.is_ascii_digit(),
            [tens, digit] => (b'0'..=b'5').contains(tens) && digit.is_ascii_digit(),
            _ => false,
        })
    })
}

/// Sorts by [`natural_order`], which is not a total order for all texts; the standard sort may panic on such.
pub(crate) fn sort_naturally<T>(
    entries: Vec<(&str, T)>,
    order: fn(&str, &str) -> Ordering,
) -> Vec<(&str, T)> {
    if entries.len() < 2 {
        return entries;
    }
    let mut left = entries;
    let right = left.split_off(left.len() / 2);
    let mut left = sort_naturally(left, order).into_iter().peekable();
    let mut right = sort_naturally(right, order).into_iter().peekable();
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while let (Some((a, _)), Some((b, _))) = (left.peek(), right.peek()) {
        let smaller = if order(b, a) == Ordering::Less { &mut right } else { &mut left };
        merged.extend(smaller.next());
    }
    merged.extend(left);
    merged.extend(right);
    merged
}
