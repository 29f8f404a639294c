//! JSON objects, entries in their order.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::store::FormatError;
use crate::tree::{Branch, Item, Key, Value};

pub(crate) fn load(data: &[u8]) -> Result<Branch, FormatError> {
    // Go replaces what is not UTF-8.
    let text = String::from_utf8_lossy(data);
    let mut reader = serde_json::Deserializer::from_str(&text);
    // What follows the object is not looked at.
    let value = Loaded::deserialize(&mut reader).map_err(|error| FormatError::Json(describe(&error)))?;
    match value.0 {
        Value::Map(branch) => Ok(branch),
        other => Err(FormatError::Json(format!(
            "SOPS only supports JSON files with a top-level object (starting with '{{'), not arrays or other types. Got {} instead",
            other.kind()
        ))),
    }
}

/// The position and kind of a mistake; serde's own text may show the value.
fn describe(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "unexpected end of JSON input",
        _ => "invalid JSON",
    };
    format!("{what} at line {} column {}", error.line(), error.column())
}

struct Loaded(Value);

impl<'de> Deserialize<'de> for Loaded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Loaded(value)) = items.next_element()? {
            list.push(value);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut branch = Branch::new();
        while let Some((key, Loaded(value))) = entries.next_entry::<String, _>()? {
            branch.push(Item::new(key, value));
        }
        Ok(Value::Map(branch))
    }
}

pub(crate) fn emit(branch: &Branch) -> Result<Vec<u8>, FormatError> {
    let mut text = String::new();
    write_map(&mut text, branch, 0)?;
    text.push('\n');
    Ok(text.into_bytes())
}

fn line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n('\t', depth));
}

fn write_map(text: &mut String, branch: &Branch, depth: usize) -> Result<(), FormatError> {
    text.push('{');
    let mut empty = true;
    for item in branch {
        let key = match &item.key {
            Key::Comment(_) => continue,
            Key::Other { kind, .. } => return Err(FormatError::Key(kind)),
            Key::Text(key) => key,
        };
        if !empty {
            text.push(',');
        }
        empty = false;
        line(text, depth + 1);
        write_text(text, key.as_bytes());
        text.push_str(": ");
        write_value(text, &item.value, depth + 1)?;
    }
    if !empty {
        line(text, depth);
    }
    text.push('}');
    Ok(())
}

fn write_value(text: &mut String, value: &Value, depth: usize) -> Result<(), FormatError> {
    match value {
        Value::Map(branch) => write_map(text, branch, depth)?,
        Value::List(list) => {
            text.push('[');
            let mut empty = true;
            for item in list.iter().filter(|item| !matches!(item, Value::Comment(_))) {
                if !empty {
                    text.push(',');
                }
                empty = false;
                line(text, depth + 1);
                write_value(text, item, depth + 1)?;
            }
            if !empty {
                line(text, depth);
            }
            text.push(']');
        }
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) => text.push_str(&number.to_string()),
        Value::Unsigned(number) => text.push_str(&number.to_string()),
        Value::Float(number) => {
            let digits = weir_manifest::format_json_float(*number);
            text.push_str(&digits.ok_or(FormatError::Number(if number.is_nan() {
                "NaN"
            } else if *number > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            }))?);
        }
        Value::Text(bytes) => write_text(text, bytes),
        Value::Bytes(bytes) => write_text(text, STANDARD.encode(bytes).as_bytes()),
        Value::Time(time) => write_text(text, time.as_bytes()),
        Value::Comment(comment) => write_text(text, &comment.text),
    }
    Ok(())
}

/// A JSON string with the escapes of Go: those of HTML, of the line separators of JavaScript, and one for every byte
/// that is not UTF-8.
fn write_text(text: &mut String, value: &[u8]) {
    text.push('"');
    for chunk in value.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\u{8}' => text.push_str("\\b"),
                '\u{c}' => text.push_str("\\f"),
                '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    text.push_str("\\u");
                    for shift in [12, 8, 4, 0] {
                        text.push(char::from_digit(u32::from(letter) >> shift & 15, 16).unwrap_or('0'));
                    }
                }
                other => text.push(other),
            }
        }
        for _ in chunk.invalid() {
            text.push_str("\\ufffd");
        }
    }
    text.push('"');
}
