//! What decoding and encoding an object by its Go types does to it: the form a real server stores.
//!
//! Unknown fields go, nulls go, zero values go where the type leaves them out and come where it does not; quantities,
//! times and bytes are written in one way.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::{Map, Value, json};

use super::data;
use super::quantity::{self, Quantity};
use crate::GroupVersionKind;

/// The form of one value.
#[derive(Debug, Clone)]
enum Shape {
    Struct(&'static str),
    List(Box<Shape>, String),
    Map(Box<Shape>, String),
    Text(&'static str),
    Int(u32, &'static str),
    Float(&'static str),
    Bool(&'static str),
    Quantity,
    Time,
    MicroTime,
    Bytes,
    IntOrString,
    /// Kept as it is.
    Raw,
}

struct Struct {
    go_name: &'static str,
    fields: HashMap<&'static str, (Shape, data::Field)>,
    /// Fields that are written though nobody set them, with the value they get.
    always: Vec<(&'static str, Value, Shape)>,
}

/// The text of a decoding error.
type Failure = String;

/// Decodes an object as a real server does and returns the paths of the unknown fields it dropped, as in
/// `spec.template.foo`.
///
/// # Errors
/// The text of the `BadRequest` when a value is of the wrong type.
pub fn decode(gvk: &GroupVersionKind, object: &mut Value) -> Result<Vec<String>, String> {
    let Some(name) = data::definition_name(gvk) else { return Ok(Vec::new()) };
    let mut walk =
        Walk { unknown: Vec::new(), path: String::new(), names: Vec::new(), owner: "", go_type: "" };
    let cannot = |cause: String| {
        format!("{} in version \"{}\" cannot be handled as a {}: {cause}", gvk.kind, gvk.version, gvk.kind)
    };
    walk.value(object, &Shape::Struct(name)).map_err(cannot)?;
    Ok(walk.unknown)
}

/// Adds what the types of a kind always write, as `status: {}`, and drops what they leave out.
pub fn encode(gvk: &GroupVersionKind, object: &mut Value) {
    if let Some(name) = data::definition_name(gvk) {
        write(object, &Shape::Struct(name));
    }
}

struct Walk {
    unknown: Vec<String>,
    path: String,
    names: Vec<String>,
    owner: &'static str,
    go_type: &'static str,
}

impl Walk {
    fn value(&mut self, value: &mut Value, shape: &Shape) -> Result<(), Failure> {
        match shape {
            Shape::Raw => Ok(()),
            Shape::Struct(name) => self.structure(value, name),
            Shape::List(item, go_type) => {
                let Value::Array(items) = value else { return Err(self.mismatch(value, go_type)) };
                for (index, inner) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    let _ = write!(self.path, "[{index}]");
                    if inner.is_null() {
                        *inner = zero(item);
                    }
                    self.value(inner, item)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            Shape::Map(item, go_type) => {
                let Value::Object(fields) = value else { return Err(self.mismatch(value, go_type)) };
                for (key, inner) in fields.iter_mut() {
                    let length = self.path.len();
                    self.path.push('.');
                    self.path.push_str(key);
                    if inner.is_null() {
                        *inner = zero(item);
                    }
                    self.value(inner, item)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            Shape::Text(go_type) => match value {
                Value::String(_) => Ok(()),
                other => Err(self.mismatch(other, go_type)),
            },
            Shape::Bool(go_type) => match value {
                Value::Bool(_) => Ok(()),
                other => Err(self.mismatch(other, go_type)),
            },
            Shape::Int(bits, go_type) => {
                let fits = |n: i64| *bits == 64 || i32::try_from(n).is_ok();
                match value {
                    Value::Number(n) if n.as_i64().is_some_and(fits) => Ok(()),
                    Value::Number(n)
                        if n.as_f64()
                            .is_some_and(|f| f.fract() == 0.0 && f.abs() < 9e15 && fits(f as i64)) =>
                    {
                        *value = json!(n.as_f64().unwrap_or_default() as i64);
                        Ok(())
                    }
                    other => Err(self.mismatch(other, go_type)),
                }
            }
            Shape::Float(go_type) => match value {
                Value::Number(_) => Ok(()),
                other => Err(self.mismatch(other, go_type)),
            },
            Shape::Quantity => {
                let text = match &*value {
                    Value::String(text) => text.trim().to_owned(),
                    Value::Number(number) => number.to_string(),
                    _ => return Err(quantity::FORMAT_ERROR.to_owned()),
                };
                *value = json!(Quantity::parse(&text)?.to_string());
                Ok(())
            }
            Shape::Time | Shape::MicroTime => Self::time(value, matches!(shape, Shape::MicroTime)),
            Shape::Bytes => {
                let Value::String(text) = value else { return Err(self.mismatch(value, "[]uint8")) };
                if text.contains(['\n', '\r']) {
                    text.retain(|c| c != '\n' && c != '\r');
                }
                match illegal_base64(text) {
                    Some(position) => Err(format!("illegal base64 data at input byte {position}")),
                    None => Ok(()),
                }
            }
            Shape::IntOrString => match value {
                Value::String(_) => Ok(()),
                Value::Number(n) if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => Ok(()),
                other => {
                    Err(format!("json: cannot unmarshal {} into Go value of type int32", go_kind(other)))
                }
            },
        }
    }

    fn structure(&mut self, value: &mut Value, name: &'static str) -> Result<(), Failure> {
        let Some(shape) = structure(name) else { return Ok(()) };
        let Value::Object(fields) = value else {
            let go_type = if self.go_type.is_empty() {
                format!("v1.{}", shape.go_name)
            } else {
                self.go_type.to_owned()
            };
            return Err(self.mismatch(value, go_type.trim_start_matches("[]")));
        };
        let (owner, go_type) = (self.owner, self.go_type);
        let mut dropped: Vec<String> = Vec::new();
        for (key, inner) in fields.iter_mut() {
            let length = self.path.len();
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(key);
            match shape.fields.get(key.as_str()) {
                None => {
                    self.unknown.push(self.path.clone());
                    dropped.push(key.clone());
                }
                Some(_) if inner.is_null() => dropped.push(key.clone()),
                Some((form, field)) => {
                    let names = self.names.len();
                    self.names.extend(field.embedded.map(str::to_owned));
                    self.names.push(key.clone());
                    self.owner = shape.go_name;
                    self.go_type = field.go_type;
                    self.value(inner, form)?;
                    self.names.truncate(names);
                    if leaves_out(inner, form, *field) {
                        dropped.push(key.clone());
                    }
                }
            }
            self.path.truncate(length);
        }
        (self.owner, self.go_type) = (owner, go_type);
        for key in dropped {
            fields.remove(&key);
        }
        Ok(())
    }

    fn time(value: &mut Value, micro: bool) -> Result<(), Failure> {
        let Value::String(text) = value else {
            return Err(format!("json: cannot unmarshal {} into Go value of type string", go_kind(value)));
        };
        let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
        if let Ok(time) = text.parse::<Timestamp>() {
            let form = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
            *text = time.strftime(form).to_string();
            return Ok(());
        }
        Err(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""))
    }

    fn mismatch(&self, value: &Value, go_type: &str) -> Failure {
        let kind = go_kind(value);
        if self.names.is_empty() {
            return format!("json: cannot unmarshal {kind} into Go value of type {go_type}");
        }
        format!(
            "json: cannot unmarshal {kind} into Go struct field {}.{} of type {go_type}",
            self.owner,
            self.names.join(".")
        )
    }
}

/// The word of Go's decoder for a JSON value.
fn go_kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(n) => format!(
            "number{}",
            if n.is_i64() && n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) {
                String::new()
            } else {
                format!(" {n}")
            }
        ),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// Whether Go leaves this value out when it writes.
fn leaves_out(value: &Value, shape: &Shape, field: data::Field) -> bool {
    if field.pointer {
        return false;
    }
    let empty = match (shape, value) {
        (Shape::Struct(_), Value::Object(fields)) => return field.omit_zero && fields.is_empty(),
        (Shape::List(..), Value::Array(items)) => items.is_empty(),
        (Shape::Map(..), Value::Object(fields)) => fields.is_empty(),
        (Shape::Text(_) | Shape::Bytes, Value::String(text)) => text.is_empty(),
        (Shape::Int(..) | Shape::Float(_), Value::Number(n)) => n.as_f64() == Some(0.0),
        (Shape::Bool(_), Value::Bool(truth)) => !truth,
        _ => false,
    };
    empty && field.omit_empty
}

/// The value of a Go variable nobody set.
fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Struct(_) => Value::Object(Map::new()),
        Shape::List(..) | Shape::Map(..) | Shape::Time | Shape::MicroTime | Shape::Bytes | Shape::Raw => {
            Value::Null
        }
        Shape::Text(_) => json!(""),
        Shape::Int(..) | Shape::Float(_) | Shape::IntOrString => json!(0),
        Shape::Bool(_) => json!(false),
        Shape::Quantity => json!("0"),
    }
}

fn write(value: &mut Value, shape: &Shape) {
    match (shape, value) {
        (Shape::Struct(name), Value::Object(fields)) => {
            let Some(structure) = structure(name) else { return };
            fields.retain(|key, inner| match structure.fields.get(key.as_str()) {
                Some((form, field)) => {
                    write(inner, form);
                    // An empty list does not survive being stored: where it is written at all, it is null.
                    let empty = matches!(
                        (form, &*inner),
                        (Shape::List(..), Value::Array(items)) if items.is_empty()
                    ) || matches!(
                        (form, &*inner),
                        (Shape::Map(..), Value::Object(fields)) if fields.is_empty()
                    );
                    if empty && !field.omit_empty && !field.pointer {
                        *inner = Value::Null;
                    }
                    !leaves_out(inner, form, *field)
                }
                None => true,
            });
            for (name, value, form) in &structure.always {
                if !fields.contains_key(*name) {
                    let mut value = value.clone();
                    write(&mut value, form);
                    fields.insert((*name).to_owned(), value);
                }
            }
        }
        (Shape::List(item, _), Value::Array(items)) => items.iter_mut().for_each(|inner| write(inner, item)),
        (Shape::Map(item, _), Value::Object(fields)) => {
            if matches!(**item, Shape::Struct(_) | Shape::List(..) | Shape::Map(..)) {
                fields.values_mut().for_each(|inner| write(inner, item));
            }
        }
        _ => {}
    }
}

/// The fields of a Go structure, worked out on the first call.
fn structure(name: &'static str) -> Option<&'static Struct> {
    // By where the name is, which is faster to compare than what it says; a name has few places.
    static KNOWN: OnceLock<RwLock<HashMap<usize, Option<&'static Struct>>>> = OnceLock::new();
    let known = KNOWN.get_or_init(RwLock::default);
    let place = name.as_ptr() as usize;
    if let Some(found) = known.read().get(&place) {
        return *found;
    }
    let built = build(name).map(|built| &*Box::leak(Box::new(built)));
    known.write().insert(place, built);
    built
}

fn build(name: &'static str) -> Option<Struct> {
    let facts = data::fields(name)?;
    let schema = data::raw_definition(name)?;
    let mut fields = HashMap::new();
    let mut always = Vec::new();
    for (key, field) in facts {
        let form = read_shape(&schema["properties"][key.as_str()], field.go_type);
        let structure = !field.pointer
            && matches!(
                form,
                Shape::Struct(_)
                    | Shape::Raw
                    | Shape::Time
                    | Shape::MicroTime
                    | Shape::Quantity
                    | Shape::IntOrString
            );
        let written = !field.omit_zero && (!field.omit_empty || structure);
        if written {
            let value = if field.pointer { Value::Null } else { zero(&form) };
            // Bytes of an embedded object that nobody gave.
            if !matches!((&form, &value), (Shape::Raw, _))
                || !field.omit_empty
                || field.go_type.ends_with("RawExtension")
            {
                always.push((key.as_str(), value, form.clone()));
            }
        }
        fields.insert(key.as_str(), (form, *field));
    }
    let go_name = name.rsplit('.').next().unwrap_or(name);
    Some(Struct { go_name, fields, always })
}

fn read_shape(schema: &Value, go_type: &'static str) -> Shape {
    if let Some(reference) = schema["$ref"].as_str() {
        let Some(name) = data::definition(reference) else { return Shape::Raw };
        return match name.rsplit('.').next().unwrap_or_default() {
            "Quantity" => Shape::Quantity,
            "Time" => Shape::Time,
            "MicroTime" => Shape::MicroTime,
            "IntOrString" => Shape::IntOrString,
            "RawExtension"
            | "FieldsV1"
            | "JSON"
            | "JSONSchemaPropsOrArray"
            | "JSONSchemaPropsOrBool"
            | "JSONSchemaPropsOrStringArray" => Shape::Raw,
            "Duration" => Shape::Text("string"),
            _ => Shape::Struct(name),
        };
    }
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "byte" => Shape::Bytes,
        Some("string") => Shape::Text(if go_type.is_empty() { "string" } else { go_type }),
        Some("boolean") => Shape::Bool(go_type),
        Some("integer") => Shape::Int(if schema["format"] == "int64" { 64 } else { 32 }, go_type),
        Some("number") => Shape::Float(go_type),
        Some("array") => {
            let item = go_type.strip_prefix("[]").unwrap_or_default();
            Shape::List(Box::new(read_shape(&schema["items"], item)), go_type.to_owned())
        }
        Some("object") if !schema["additionalProperties"].is_null() => {
            let item = go_type.split_once(']').map_or("", |(_, item)| item);
            Shape::Map(Box::new(read_shape(&schema["additionalProperties"], item)), go_type.to_owned())
        }
        _ => Shape::Raw,
    }
}

/// The position of the first byte that is no base64, as Go's decoder counts.
fn illegal_base64(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let body = text.trim_end_matches('=').len();
    let legal = |b: &u8| b.is_ascii_alphanumeric() || *b == b'+' || *b == b'/';
    if let Some(position) = bytes[..body].iter().position(|b| !legal(b)) {
        return Some(position);
    }
    let padding = bytes.len() - body;
    match (body % 4, padding) {
        (0, 0) | (2, 2) | (3, 1) => None,
        (0, _) => Some(body),
        (_, 0) => Some(bytes.len() - bytes.len() % 4),
        _ => Some(bytes.len()),
    }
}
