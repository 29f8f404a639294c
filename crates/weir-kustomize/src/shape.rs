//! Decoding of configuration files as Go's JSON decoder does it: field names in any case, unknown fields
//! refused or dropped, error texts that name the field.

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// What a field may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Text,
    Flag,
    Integer,
    /// Map of strings.
    Texts,
    /// Anything.
    Any,
    List(&'static Shape),
    Object(&'static str, &'static [(&'static str, Shape)]),
}

/// How strict a decoding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Unknown fields and wrong scalar types are errors.
    Strict,
    /// Unknown fields are dropped, numbers and booleans become strings where strings are expected.
    Lenient,
}

/// The value with field names as declared and nothing unknown in it.
///
/// # Errors
/// Unknown fields in strict mode, and values of the wrong type.
pub(crate) fn normalize(value: Value, shape: Shape, mode: Mode) -> Result<Value> {
    Normalizer { mode }.value(value, shape, "", "")
}

struct Normalizer {
    mode: Mode,
}

impl Normalizer {
    fn value(&self, value: Value, shape: Shape, path: &str, owner: &str) -> Result<Value> {
        if value.is_null() {
            // Null leaves the zero value in place.
            return Ok(Value::Null);
        }
        match (shape, value) {
            (Shape::Any, value) => Ok(value),
            (Shape::Text, Value::String(text)) => Ok(Value::String(text)),
            (Shape::Text, Value::Number(number)) if self.mode == Mode::Lenient => {
                let text = match number.as_i64() {
                    Some(integer) => integer.to_string(),
                    None => number.as_u64().map_or_else(
                        || crate::scalar::format_general(number.as_f64().unwrap_or_default()),
                        |integer| integer.to_string(),
                    ),
                };
                Ok(Value::String(text))
            }
            (Shape::Text, Value::Bool(flag)) if self.mode == Mode::Lenient => {
                Ok(Value::String(flag.to_string()))
            }
            (Shape::Flag, Value::Bool(flag)) => Ok(Value::Bool(flag)),
            (Shape::Integer, Value::Number(number)) if number.is_i64() => Ok(Value::Number(number)),
            (Shape::Texts, Value::Object(object)) => {
                let mut result = Map::new();
                for (key, value) in object {
                    let value = match self.value(value, Shape::Text, path, owner)? {
                        Value::Null => Value::String(String::new()),
                        value => value,
                    };
                    result.insert(key, value);
                }
                Ok(Value::Object(result))
            }
            (Shape::List(item), Value::Array(items)) => {
                let items = items
                    .into_iter()
                    .map(|value| match (self.value(value, *item, path, owner)?, item) {
                        (Value::Null, Shape::Text) => Ok(Value::String(String::new())),
                        (Value::Null, Shape::Object(..)) => Ok(Value::Object(Map::new())),
                        (value, _) => Ok(value),
                    })
                    .collect::<Result<_>>()?;
                Ok(Value::Array(items))
            }
            (Shape::Object(name, fields), Value::Object(object)) => self.object(object, fields, path, name),
            (shape, value) => Err(wrong_type(&value, shape, path, owner)),
        }
    }

    fn object(
        &self,
        object: Map<String, Value>,
        fields: &'static [(&'static str, Shape)],
        path: &str,
        owner: &str,
    ) -> Result<Value> {
        let mut result = Map::new();
        for (key, value) in object {
            let field = fields
                .iter()
                .find(|(name, _)| *name == key)
                .or_else(|| fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(&key)));
            let Some((name, shape)) = field else {
                if self.mode == Mode::Strict {
                    return Err(Error::message(format!("json: unknown field \"{key}\"")));
                }
                continue;
            };
            let embedded = embedded_struct(owner, name);
            let below = match (path, embedded) {
                ("", "") => (*name).to_owned(),
                ("", embedded) => format!("{embedded}.{name}"),
                (path, "") => format!("{path}.{name}"),
                (path, embedded) => format!("{path}.{embedded}.{name}"),
            };
            let value = self.value(value, *shape, &below, owner)?;
            if !value.is_null() {
                result.insert((*name).to_owned(), value);
            }
        }
        Ok(Value::Object(result))
    }
}

fn wrong_type(value: &Value, shape: Shape, path: &str, owner: &str) -> Error {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let place =
        if path.is_empty() { "Go value".to_owned() } else { format!("Go struct field {owner}.{path}") };
    Error::message(format!("json: cannot unmarshal {found} into {place} of type {}", type_name(shape)))
}

/// The struct a field of generator arguments is embedded with, which Go names in the path.
fn embedded_struct(owner: &str, field: &str) -> &'static str {
    match (owner, field) {
        ("ConfigMapArgs" | "SecretArgs", "literals" | "files" | "envs" | "env") => {
            "GeneratorArgs.KvPairSources"
        }
        ("SecretArgs", "type") => "",
        ("ConfigMapArgs" | "SecretArgs", _) => "GeneratorArgs",
        _ => "",
    }
}

fn type_name(shape: Shape) -> String {
    match shape {
        Shape::Text => "string".to_owned(),
        Shape::Flag => "bool".to_owned(),
        Shape::Integer => "int64".to_owned(),
        Shape::Texts => "map[string]string".to_owned(),
        Shape::Any => "interface {}".to_owned(),
        Shape::List(item) => format!("[]{}", type_name(*item)),
        Shape::Object(name, _) => format!("types.{name}"),
    }
}
