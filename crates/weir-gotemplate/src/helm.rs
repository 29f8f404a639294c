//! What Helm's engine does around templates: plain values for YAML, the removal of `<no value>`,
//! and the texts of its errors.

use serde_json::{Map as JsonMap, Number, Value as Json};

use crate::base64;
use crate::deep;
use crate::error::Error;
use crate::json;
use crate::strconv;
use crate::value::{NESTING_LEVELS_MAX, VISITED_VALUES_MAX, Value};

const MARK_START: &str = "HELM_ERR_START";
const MARK_END: &str = "HELM_ERR_END";

/// A message that [`render_error`] shows instead of everything around it.
pub(crate) fn marked(message: &str) -> String {
    format!("{MARK_START}{message}{MARK_END}")
}

/// The output with every `<no value>` removed, as Helm does with each rendered file.
pub fn without_no_value(output: Vec<u8>) -> Vec<u8> {
    const NO_VALUE: &[u8] = b"<no value>";
    let Some(mut position) = memchr::memmem::find(&output, NO_VALUE) else { return output };
    let mut out = Vec::with_capacity(output.len());
    let mut rest = output.as_slice();
    loop {
        out.extend_from_slice(&rest[..position]);
        rest = &rest[position + NO_VALUE.len()..];
        match memchr::memmem::find(rest, NO_VALUE) {
            Some(next) => position = next,
            None => break,
        }
    }
    out.extend_from_slice(rest);
    out
}

/// The value as its JSON would be read back: objects, lists and numbers only, whole floats as
/// integers.
///
/// Fails where the value has no JSON, or on nesting beyond [`NESTING_LEVELS_MAX`].
pub fn to_plain(value: &Value) -> Result<Json, String> {
    plain(value, 0, true, &mut 0)
}

fn plain(value: &Value, level: usize, through_json: bool, visited: &mut u64) -> Result<Json, String> {
    *visited += 1;
    if *visited > VISITED_VALUES_MAX {
        return Err(format!("json: unsupported value: more than {VISITED_VALUES_MAX} parts"));
    }
    if level > NESTING_LEVELS_MAX {
        return Err("json: unsupported value: nested too deeply".to_owned());
    }
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Int(number) | Value::Int64(number) => Json::from(*number),
        Value::Uint8(number) => Json::from(*number),
        Value::Uint64(number) => Json::from(*number),
        Value::Float(number) if through_json => {
            let text = json::float(*number)?;
            if text.contains(['.', 'e']) {
                Json::Number(Number::from_f64(*number).unwrap_or_else(|| Number::from(0)))
            } else if let Ok(whole) = text.parse::<i64>() {
                Json::from(whole)
            } else if let Ok(whole) = text.parse::<u64>() {
                Json::from(whole)
            } else {
                Json::Number(Number::from_f64(*number).unwrap_or_else(|| Number::from(0)))
            }
        }
        Value::Float(number) => Json::Number(Number::from_f64(*number).unwrap_or_else(|| Number::from(0))),
        Value::String(text) => Json::String(text.to_str_lossy().into_owned()),
        Value::Bytes(bytes) => Json::String(base64::encode(bytes)),
        Value::List(list) if list.is_nil() => Json::Null,
        Value::Map(map) if map.is_nil() => Json::Null,
        Value::List(list) => Json::Array(
            list.items()
                .iter()
                .map(|item| deep(|| plain(item, level + 1, through_json, visited)))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(map) => {
            let mut plain_map = JsonMap::new();
            if let Some(entries) = map.borrow() {
                for (key, item) in entries.iter() {
                    let item = deep(|| plain(item, level + 1, through_json, visited))?;
                    plain_map.insert(key.to_str_lossy().into_owned(), item);
                }
            }
            Json::Object(plain_map)
        }
        Value::Object(object) => {
            let inner = object.json()?;
            deep(|| plain(&inner, level + 1, through_json, visited))?
        }
    })
}

/// `toYamlPretty`: YAML with indented lists and no way through JSON.
pub(crate) fn yaml_pretty(value: &Value) -> Result<Vec<u8>, String> {
    let text = weir_manifest::to_yaml_pretty(&plain(value, 0, false, &mut 0)?);
    Ok(text.strip_suffix('\n').unwrap_or(&text).as_bytes().to_vec())
}

/// The text of a parse error as Helm shows it: where, and the last part of the message.
pub fn parse_error(file: &str, error: &crate::ParseError) -> String {
    let text = error.to_string();
    let Some(location) = text.split(": ").nth(1) else {
        return format!("parse error in ({file}): {text}");
    };
    let last = text.rsplit(": ").next().unwrap_or_default();
    format!("parse error at ({location}): {last}")
}

/// One level of a Go template error.
#[derive(PartialEq, Eq)]
struct Level {
    location: String,
    message: String,
    executing: String,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("template: ")?;
        if rest.starts_with("no template ") {
            return Some(Self {
                location: String::new(),
                message: text.to_owned(),
                executing: String::new(),
            });
        }
        Self::parse_executing(rest).or_else(|| {
            let (location, message) = rest.rsplit_once(": ")?;
            Some(Self {
                location: location.to_owned(),
                message: without_chain(message),
                executing: String::new(),
            })
        })
    }

    fn parse_executing(rest: &str) -> Option<Self> {
        let (location, after) = rest.split_once(": executing ")?;
        let (name, after) = after.strip_prefix('"')?.split_once('"')?;
        let (source, message) = after.strip_prefix(" at <")?.split_once(">: ")?;
        Some(Self {
            location: location.to_owned(),
            message: without_chain(message),
            executing: format!("executing \"{name}\" at <{source}>:"),
        })
    }

    fn print(&self, out: &mut String) {
        for (text, separator) in
            [(&self.location, "\n  "), (&self.executing, "\n    "), (&self.message, "\n")]
        {
            if !text.is_empty() {
                out.push_str(text);
                out.push_str(separator);
            }
        }
    }
}

/// The message up to where the next template's error begins.
fn without_chain(message: &str) -> String {
    message.find(" template:").map_or(message, |cut| &message[..cut]).to_owned()
}

/// The text of an execution error as Helm 4 shows it.
///
/// `required` and `fail` show their message and the outermost location; errors that consist of
/// template errors all the way down become a trace, one location per level; any other error stays
/// as it is.
pub fn render_error(file: &str, error: &Error) -> String {
    let text = error.text();
    if !error.is_executing() {
        return text;
    }
    let mut parts = text.splitn(3, ": ");
    let (Some(_), Some(location), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return format!("execution error in ({file}): {text}");
    };
    if let Some(start) = rest.find(MARK_START)
        && let Some(end) = rest.rfind(MARK_END)
        && start + MARK_START.len() <= end
    {
        let message = &rest[start + MARK_START.len()..end];
        return format!("execution error at ({location}): {message}");
    }
    let mut levels: Vec<Level> = Vec::new();
    let mut current = Some(error);
    while let Some(error) = current {
        let Some(level) = Level::parse(&error.text()) else { return text };
        if levels.last() != Some(&level) {
            levels.push(level);
        }
        current = error.cause();
    }
    let mut out = String::new();
    for level in &levels {
        level.print(&mut out);
    }
    out.trim().to_owned()
}

/// Standard base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    base64::encode(bytes)
}

/// A quoted Go string, for messages.
pub fn quoted(text: &str) -> String {
    strconv::quoted(text)
}
