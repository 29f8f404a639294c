//! Reading the bodies of requests.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use weir_manifest::{ReadOptions, read_first_document};

use crate::error::ApiError;
use crate::proto;

/// What a body holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// Paths of fields that were there more than once; the last one counts.
    pub(crate) duplicates: Vec<String>,
    /// The same for YAML, in the words of its reader: a line for each.
    pub(crate) yaml_duplicates: String,
}

/// The media types of objects.
const OBJECTS: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The media type without parameters, in lower case.
pub(crate) fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads an object of a request.
pub(crate) fn read_object(content_type: &str, body: &[u8], kind: &str) -> Result<Decoded, ApiError> {
    match media_type(content_type).as_str() {
        "" | "application/json" | "*/*" => match read_json(body, kind)? {
            decoded if decoded.value.is_object() => Ok(decoded),
            decoded => {
                let word = if decoded.value.is_array() { "array" } else { "string" };
                Err(unrecognized(
                    kind,
                    &format!(
                        "couldn't get version/kind; json parse error: json: cannot unmarshal {word} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
                    ),
                    body,
                ))
            }
        },
        "application/yaml" => {
            let decoded = read_yaml(body, kind).map_err(|error| unrecognized(kind, &error.message, body))?;
            if decoded.value.is_object() {
                Ok(decoded)
            } else {
                Err(unrecognized(kind, "couldn't get version/kind", body))
            }
        }
        "application/vnd.kubernetes.protobuf" => proto::decode(body)
            .map(|value| Decoded { value, ..Decoded::default() })
            .map_err(|_| ApiError::unsupported_media_type(OBJECTS)),
        _ => Err(ApiError::unsupported_media_type(OBJECTS)),
    }
}

/// Reads JSON.
pub(crate) fn read_json(body: &[u8], kind: &str) -> Result<Decoded, ApiError> {
    let found = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = Seed { path: Path::Root, found: &found }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    match read {
        Ok(value) => Ok(Decoded { value, duplicates: found.into_inner(), ..Decoded::default() }),
        Err(error) => {
            let what =
                if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
            Err(unrecognized(kind, &format!("couldn't get version/kind; json parse error: {what}"), body))
        }
    }
}

/// The refusal of a body that is no object, with its first bytes.
fn unrecognized(kind: &str, what: &str, body: &[u8]) -> ApiError {
    const SHOWN_MAX: usize = 1024;
    let shown = match body {
        [] => "<empty>".to_owned(),
        [b'{', ..] => String::from_utf8_lossy(&body[..body.len().min(SHOWN_MAX)]).into_owned(),
        _ => hex::encode(&body[..body.len().min(SHOWN_MAX)]),
    };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {what} ({shown})"
    ))
}

/// Reads YAML, or JSON.
pub(crate) fn read_yaml(body: &[u8], kind: &str) -> Result<Decoded, ApiError> {
    let start = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if start == Some(&b'{')
        && let Ok(decoded) = read_json(body, kind)
    {
        return Ok(decoded);
    }
    let strict = match read_first_document(body, "body", ReadOptions { strict: true }) {
        Ok(value) => return Ok(Decoded { value, ..Decoded::default() }),
        Err(error) => error.reference_text(),
    };
    read_first_document(body, "body", ReadOptions::default())
        .map(|value| Decoded { value, yaml_duplicates: strict, ..Decoded::default() })
        .map_err(|error| ApiError::bad_request(error.reference_text()))
}

#[derive(Clone, Copy)]
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

struct Seed<'a> {
    path: Path<'a>,
    found: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(value) =
            seq.next_element_seed(Seed { path: Path::Index(&self.path, out.len()), found: self.found })?
        {
            out.push(value);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = Path::Field(&self.path, &key);
            let value = map.next_value_seed(Seed { path, found: self.found })?;
            if out.contains_key(&key) {
                let text = path.to_string();
                let mut found = self.found.borrow_mut();
                if !found.contains(&text) {
                    found.push(text);
                }
            }
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicates_are_found_where_they_are() {
        let body = br#"{"a":1,"b":{"c":[{"d":1,"d":2}]},"a":3}"#;
        let decoded = read_json(body, "").unwrap();
        assert_eq!(decoded.value, json!({"a": 3, "b": {"c": [{"d": 2}]}}));
        assert_eq!(decoded.duplicates, ["b.c[0].d", "a"]);
    }

    #[test]
    fn bodies_by_media_type() {
        assert_eq!(read_object("application/yaml", b"a: [1]", "K").unwrap().value, json!({"a": [1]}));
        assert_eq!(read_object("", b"{}", "K").unwrap().value, json!({}));
        assert_eq!(read_object("text/plain", b"{}", "K").unwrap_err().code, 415);
        assert_eq!(read_object("application/json", b"{", "K").unwrap_err().code, 400);
    }
}
