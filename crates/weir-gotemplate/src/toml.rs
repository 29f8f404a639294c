//! TOML as Helm's library writes it, and read into Go values.

use crate::deep;
use crate::strconv;
use crate::text::Text;
use crate::value::{Element, Entries, List, Map, NESTING_LEVELS_MAX, PRINTED_BYTES_MAX, Value};

/// Why a value has no TOML.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EncodeError {
    /// An error of the encoder, which `toToml` shows as text.
    Refused(String),
    /// A crash in the encoder, which ends rendering.
    Raised(String),
}

/// The TOML text of a value: plain entries first, then tables, both sorted, nested ones indented.
pub(crate) fn encode(value: &Value) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = Encoder { out: Vec::new() };
    if matches!(value, Value::Nil) {
        return Err(EncodeError::Raised("reflect: call of reflect.Value.Type on zero Value".to_owned()));
    }
    encoder.entry(&mut Vec::new(), value)?;
    Ok(encoder.out)
}

fn refused(text: &str) -> EncodeError {
    EncodeError::Refused(text.to_owned())
}

struct Encoder {
    out: Vec<u8>,
}

type Outcome = Result<(), EncodeError>;

fn is_table(value: &Value) -> Result<bool, EncodeError> {
    Ok(match value {
        Value::Map(map) => !map.is_nil(),
        Value::List(_) => is_table_array(value)?,
        _ => false,
    })
}

fn is_table_array(value: &Value) -> Result<bool, EncodeError> {
    let Some(items) = value.slice_items() else { return Ok(false) };
    if items.iter().any(Value::is_nil) {
        return Err(refused("toml: cannot encode array with nil element"));
    }
    Ok(!items.is_empty() && items.iter().all(|item| matches!(item, Value::Map(_))))
}

fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            8 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..=0x1f | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            byte => out.push(*byte),
        }
    }
    out.push(b'"');
    out
}

fn key_text(key: &[u8]) -> Vec<u8> {
    let bare =
        !key.is_empty() && key.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if bare { key.to_vec() } else { escaped(key) }
}

impl Encoder {
    fn newline(&mut self) {
        if !self.out.is_empty() {
            self.out.push(b'\n');
        }
    }

    fn indent(&mut self, keys: &[Text]) {
        let columns = keys.len().saturating_sub(1) * 2;
        self.out.extend(std::iter::repeat_n(b' ', columns));
    }

    fn heading(&mut self, keys: &[Text], open: &str, close: &str) {
        self.indent(keys);
        self.out.extend_from_slice(open.as_bytes());
        let path: Vec<Vec<u8>> = keys.iter().map(|key| key_text(key)).collect();
        self.out.extend_from_slice(&path.join(&b'.'));
        self.out.extend_from_slice(close.as_bytes());
        self.newline();
    }

    fn entry(&mut self, keys: &mut Vec<Text>, value: &Value) -> Outcome {
        if keys.len() > NESTING_LEVELS_MAX || self.out.len() > PRINTED_BYTES_MAX {
            return Err(refused("toml: nested too deeply"));
        }
        match value {
            Value::Nil => Ok(()),
            Value::Map(map) if map.is_nil() => Ok(()),
            Value::Map(map) => {
                if keys.len() == 1 {
                    self.newline();
                }
                if !keys.is_empty() {
                    self.heading(keys, "[", "]");
                }
                deep(|| self.table(keys, map))
            }
            Value::List(list) if is_table_array(value)? => {
                if keys.is_empty() {
                    return Err(refused("toml: top-level values must be Go maps or structs"));
                }
                for item in list.items() {
                    let Value::Map(map) = item else { continue };
                    self.newline();
                    self.heading(keys, "[[", "]]");
                    deep(|| self.table(keys, map))?;
                }
                Ok(())
            }
            Value::Object(object) if object.text().is_none() && object.integer().is_none() => {
                let fields: Entries =
                    object.fields().into_iter().map(|(name, value)| (Text::from(name), value)).collect();
                self.entry(keys, &Value::Map(Map::new(fields)))
            }
            value => {
                if let Some(last) = keys.last() {
                    let key = key_text(last);
                    self.indent(keys);
                    self.out.extend_from_slice(&key);
                    self.out.extend_from_slice(b" = ");
                    self.element(value, keys.len())?;
                    self.newline();
                    Ok(())
                } else {
                    self.element(value, 0)
                }
            }
        }
    }

    fn table(&mut self, keys: &mut Vec<Text>, map: &Map) -> Outcome {
        let entries = map.to_entries();
        for tables in [false, true] {
            for (key, value) in &entries {
                if value.is_nil() || is_table(value)? != tables {
                    continue;
                }
                keys.push(key.clone());
                let written = self.entry(keys, value);
                keys.pop();
                written?;
            }
        }
        Ok(())
    }

    fn element(&mut self, value: &Value, level: usize) -> Outcome {
        if level > NESTING_LEVELS_MAX || self.out.len() > PRINTED_BYTES_MAX {
            return Err(refused("toml: nested too deeply"));
        }
        match value {
            Value::Nil => {
                return Err(EncodeError::Raised(
                    "reflect: call of reflect.Value.Interface on zero Value".to_owned(),
                ));
            }
            Value::Bool(flag) => self.out.extend_from_slice(flag.to_string().as_bytes()),
            Value::Int(number) | Value::Int64(number) => {
                self.out.extend_from_slice(number.to_string().as_bytes());
            }
            Value::Uint8(number) => self.out.extend_from_slice(number.to_string().as_bytes()),
            Value::Uint64(number) => self.out.extend_from_slice(number.to_string().as_bytes()),
            Value::Float(number) => {
                let text = if number.is_nan() {
                    "nan".to_owned()
                } else if number.is_infinite() {
                    if *number > 0.0 { "inf" } else { "-inf" }.to_owned()
                } else {
                    let text = strconv::format_float(*number, b'g', None);
                    if text.contains(['.', 'e']) { text } else { text + ".0" }
                };
                self.out.extend_from_slice(text.as_bytes());
            }
            Value::String(text) => self.out.extend_from_slice(&escaped(text)),
            Value::Bytes(_) | Value::List(_) => {
                let items = value.slice_items().unwrap_or_default();
                self.out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.out.extend_from_slice(b", ");
                    }
                    deep(|| self.element(item, level + 1))?;
                }
                self.out.push(b']');
            }
            Value::Map(map) => {
                // The separator after plain entries depends on how many tables there are, even
                // where those or the last plain entry are nil and left out.
                let (mut plain, mut tables) = (Vec::new(), Vec::new());
                for (key, value) in map.to_entries() {
                    if is_table(&value)? { &mut tables } else { &mut plain }.push((key, value));
                }
                let more = !tables.is_empty();
                self.out.push(b'{');
                for (entries, trailing) in [(plain, more), (tables, false)] {
                    let last = entries.len().saturating_sub(1);
                    for (index, (key, value)) in entries.into_iter().enumerate() {
                        if value.is_nil() {
                            continue;
                        }
                        self.out.extend_from_slice(&key_text(&key));
                        self.out.extend_from_slice(b" = ");
                        deep(|| self.element(&value, level + 1))?;
                        if trailing || index != last {
                            self.out.extend_from_slice(b", ");
                        }
                    }
                }
                self.out.push(b'}');
            }
            Value::Object(object) => match object.text() {
                Some(text) if object.type_name() != "time.Time" => {
                    self.out.extend_from_slice(&escaped(text.as_bytes()));
                }
                Some(_) => match object.json() {
                    Ok(Value::String(text)) => self.out.extend_from_slice(&text),
                    _ => return Err(refused("unexpected type")),
                },
                None => {
                    let fields: Map = object.fields().into_iter().collect();
                    self.element(&Value::Map(fields), level + 1)?;
                }
            },
        }
        Ok(())
    }
}

/// The value of a TOML document: integers are `int64`, dates are text.
pub(crate) fn decode(source: &str) -> Result<Map, String> {
    let table: toml::Table = source.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| {
            1 + source.as_bytes()[..span.start.min(source.len())]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
        });
        format!("toml: line {line}: {}", error.message())
    })?;
    Ok(map_of(table))
}

fn map_of(table: toml::Table) -> Map {
    Map::new(table.into_iter().map(|(key, value)| (Text::from(key), value_of(value))).collect())
}

fn value_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::string(text),
        toml::Value::Integer(number) => Value::Int64(number),
        toml::Value::Float(number) => Value::Float(number),
        toml::Value::Boolean(flag) => Value::Bool(flag),
        toml::Value::Datetime(time) => Value::string(time.to_string()),
        toml::Value::Array(items) => {
            let tables = !items.is_empty() && items.iter().all(toml::Value::is_table);
            let items: Vec<Value> = items.into_iter().map(|item| deep(|| value_of(item))).collect();
            let element = if tables { Element::AnyMap } else { Element::Any };
            Value::List(List::typed(items, element))
        }
        toml::Value::Table(table) => Value::Map(map_of(table)),
    }
}
