//! The functions of `text/template` itself.

use std::cmp::Ordering;

use super::{Outcome, argument};
use crate::error::Fault;
use crate::exec::Context;
use crate::format;
use crate::function::{Function, Param};
use crate::strconv;
use crate::text::Text;
use crate::value::{Kind, List, Value};

const ANY: Param = Param::Reflect;

pub(super) const FUNCTIONS: &[Function] = &[
    // `and` and `or` are run by the executor, which stops at the deciding argument.
    Function::variadic("and", &[ANY], ANY, |_, arguments| Ok(argument(arguments, 0).clone())),
    Function::variadic("or", &[ANY], ANY, |_, arguments| Ok(argument(arguments, 0).clone())),
    Function::new("not", &[ANY], |_, arguments| Ok(Value::Bool(!argument(arguments, 0).truth()))),
    Function::variadic("call", &[ANY], ANY, call),
    Function::variadic("html", &[], Param::Any, |_, arguments| Ok(Value::string(html(&joined(arguments))))),
    Function::variadic("js", &[], Param::Any, |_, arguments| Ok(Value::string(js(&joined(arguments))))),
    Function::variadic("urlquery", &[], Param::Any, |_, arguments| {
        Ok(Value::string(query_escape(&joined(arguments))))
    }),
    Function::variadic("index", &[ANY], ANY, index),
    Function::variadic("slice", &[ANY], ANY, slice),
    Function::new("len", &[ANY], length),
    Function::variadic("print", &[], Param::Any, |_, arguments| Ok(Value::string(format::sprint(arguments)))),
    Function::variadic("println", &[], Param::Any, |_, arguments| {
        Ok(Value::string(format::sprintln(arguments)))
    }),
    Function::variadic("printf", &[Param::String], Param::Any, |context, arguments| {
        let (first, rest) = arguments.split_first().unwrap_or((&Value::Nil, &[]));
        let Value::String(template) = first else { return Ok(Value::string("")) };
        context.check_bytes(template.len() as u64)?;
        Ok(Value::string(format::sprintf(template, rest)))
    }),
    Function::variadic("eq", &[ANY], ANY, |_, arguments| {
        equal(argument(arguments, 0), arguments.get(1..).unwrap_or(&[])).map(Value::Bool)
    }),
    Function::new("ne", &[ANY, ANY], |_, arguments| {
        equal(argument(arguments, 0), arguments.get(1..).unwrap_or(&[])).map(|equal| Value::Bool(!equal))
    }),
    Function::new("lt", &[ANY, ANY], |_, arguments| {
        less(argument(arguments, 0), argument(arguments, 1)).map(Value::Bool)
    }),
    Function::new("le", &[ANY, ANY], |_, arguments| less_or_equal(arguments).map(Value::Bool)),
    Function::new("gt", &[ANY, ANY], |_, arguments| less_or_equal(arguments).map(|less| Value::Bool(!less))),
    Function::new("ge", &[ANY, ANY], |_, arguments| {
        less(argument(arguments, 0), argument(arguments, 1)).map(|less| Value::Bool(!less))
    }),
];

fn joined(arguments: &[Value]) -> Vec<u8> {
    let shown: Vec<Value> = arguments
        .iter()
        .map(|value| match value {
            Value::Nil => Value::string("<no value>"),
            value => value.clone(),
        })
        .collect();
    format::sprint(&shown)
}

fn call(context: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    match argument(arguments, 0) {
        Value::Nil => Err("call of nil".into()),
        value => Err(format!("non-function {} of type {}", context.callee, value.type_name()).into()),
    }
}

/// Replaces what HTML would interpret.
pub(super) fn html(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            byte => out.push(*byte),
        }
    }
    out
}

fn js(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (character, length) = strconv::decode_rune(rest);
        match character {
            Some('\\') => out.extend_from_slice(b"\\\\"),
            Some('\'') => out.extend_from_slice(b"\\'"),
            Some('"') => out.extend_from_slice(b"\\\""),
            Some('<') => out.extend_from_slice(b"\\u003C"),
            Some('>') => out.extend_from_slice(b"\\u003E"),
            Some('&') => out.extend_from_slice(b"\\u0026"),
            Some('=') => out.extend_from_slice(b"\\u003D"),
            Some(character) if character.is_ascii() && character < ' ' => {
                out.extend_from_slice(format!("\\u{:04X}", u32::from(character)).as_bytes());
            }
            Some(character) if character.is_ascii() || strconv::is_print(character) => {
                out.extend_from_slice(&rest[..length]);
            }
            Some(character) => {
                out.extend_from_slice(format!("\\u{:04X}", u32::from(character)).as_bytes());
            }
            None => out.extend_from_slice(&rest[..length]),
        }
        rest = &rest[length..];
    }
    out
}

/// `url.QueryEscape`
pub(super) fn query_escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(*byte),
            b' ' => out.push(b'+'),
            byte => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    out
}

/// An index into something of `length` items; one past the end is let through here.
fn checked_index(index: &Value, length: usize) -> Result<usize, Fault> {
    let number = match index {
        Value::Nil => return Err("cannot index slice/array with nil".into()),
        value => match (value.as_int(), value.as_uint()) {
            (Some(int), _) => int,
            (None, Some(uint)) => uint as i64,
            (None, None) => {
                return Err(format!("cannot index slice/array with type {}", value.type_name()).into());
            }
        },
    };
    match usize::try_from(number) {
        Ok(position) if position <= length => Ok(position),
        _ => Err(format!("index out of range: {number}").into()),
    }
}

fn index(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let (first, indexes) = arguments.split_first().unwrap_or((&Value::Nil, &[]));
    if matches!(first, Value::Nil) {
        return Err("index of untyped nil".into());
    }
    let mut item = first.clone();
    for index in indexes {
        item = match &item {
            Value::Nil => return Err("index of nil pointer".into()),
            Value::String(text) => {
                let position = checked_index(index, text.len())?;
                match text.get(position) {
                    Some(byte) => Value::Uint8(*byte),
                    None => return Err("reflect: string index out of range".into()),
                }
            }
            Value::Bytes(text) => {
                let position = checked_index(index, text.len())?;
                match text.get(position) {
                    Some(byte) => Value::Uint8(*byte),
                    None => return Err("reflect: slice index out of range".into()),
                }
            }
            Value::List(list) => {
                let position = checked_index(index, list.items().len())?;
                match list.items().get(position) {
                    Some(item) => item.clone(),
                    None => return Err("reflect: slice index out of range".into()),
                }
            }
            Value::Map(map) => match index {
                Value::String(key) => map.get(key).unwrap_or_else(|| map.element().zero()),
                Value::Nil => return Err("value is nil; should be of type string".into()),
                other => {
                    let name = other.type_name();
                    return Err(format!("value has type {name}; should be string").into());
                }
            },
            other => return Err(format!("can't index item of type {}", pointee(other)).into()),
        };
    }
    Ok(item)
}

fn slice(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let (item, indexes) = arguments.split_first().unwrap_or((&Value::Nil, &[]));
    if matches!(item, Value::Nil) {
        return Err("slice of untyped nil".into());
    }
    if indexes.len() > 3 {
        return Err(format!("too many slice indexes: {}", indexes.len()).into());
    }
    let length = match item {
        Value::String(_) if indexes.len() == 3 => {
            return Err("cannot 3-index slice a string".into());
        }
        Value::String(text) | Value::Bytes(text) => text.len(),
        Value::List(list) => list.items().len(),
        other => return Err(format!("can't slice item of type {}", other.type_name()).into()),
    };
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = checked_index(index, length)?;
    }
    let [start, end, capacity] = bounds;
    if start > end {
        return Err(format!("invalid slice index: {start} > {end}").into());
    }
    if indexes.len() == 3 && end > capacity {
        return Err(format!("invalid slice index: {end} > {capacity}").into());
    }
    Ok(match item {
        Value::String(text) => Value::String(Text::from(&text[start..end])),
        Value::Bytes(text) => Value::Bytes(Text::from(&text[start..end])),
        Value::List(list) => Value::List(List::typed(list.items()[start..end].to_vec(), list.element())),
        other => other.clone(),
    })
}

/// The type of a value, or of what a pointer points to.
fn pointee(value: &Value) -> String {
    value.type_name().trim_start_matches('*').to_owned()
}

fn length(context: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let item = argument(arguments, 0);
    let length = match item {
        Value::Nil if context.invalid & 1 == 1 => {
            return Err("reflect: call of reflect.Value.Type on zero Value".into());
        }
        Value::Nil => return Err("len of nil pointer".into()),
        Value::String(text) | Value::Bytes(text) => text.len(),
        Value::List(list) => list.items().len(),
        Value::Map(map) => map.len(),
        other => return Err(format!("len of type {}", pointee(other)).into()),
    };
    Ok(Value::Int(length as i64))
}

/// The class of basic kinds that can be compared with one another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Basic {
    Bool,
    Int,
    Uint,
    Float,
    String,
}

fn basic(value: &Value) -> Option<Basic> {
    match value.kind() {
        Kind::Bool => Some(Basic::Bool),
        Kind::Int | Kind::Int64 => Some(Basic::Int),
        Kind::Uint8 | Kind::Uint64 => Some(Basic::Uint),
        Kind::Float64 => Some(Basic::Float),
        Kind::String => Some(Basic::String),
        Kind::Invalid | Kind::Slice | Kind::Map | Kind::Struct | Kind::Ptr => None,
    }
}

fn incompatible(left: &Value, right: &Value) -> Fault {
    let (left, right) = (left.type_name(), right.type_name());
    format!("incompatible types for comparison: {left} and {right}").into()
}

/// The order of two values of basic kinds.
fn compare(left: &Value, right: &Value) -> Result<Option<Ordering>, Fault> {
    let (Some(left_basic), Some(right_basic)) = (basic(left), basic(right)) else {
        return Err("invalid type for comparison".into());
    };
    let wide = |value: &Value| {
        value.as_int().map(i128::from).or_else(|| value.as_uint().map(i128::from)).unwrap_or(0)
    };
    Ok(match (left_basic, right_basic) {
        (Basic::Int | Basic::Uint, Basic::Int | Basic::Uint) => Some(wide(left).cmp(&wide(right))),
        (left_basic, right_basic) if left_basic != right_basic => {
            return Err(incompatible(left, right));
        }
        _ => match (left, right) {
            (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
            (Value::Float(left), Value::Float(right)) => left.partial_cmp(right),
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            _ => None,
        },
    })
}

fn equal(first: &Value, others: &[Value]) -> Result<bool, Fault> {
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        let equal = match (basic(first), basic(other)) {
            (Some(_), Some(_)) => compare(first, other)? == Some(Ordering::Equal),
            (None, None) => equal_others(first, other)?,
            _ if matches!(first, Value::Nil) || matches!(other, Value::Nil) => false,
            _ => return Err(incompatible(first, other)),
        };
        if equal {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Equality of values that are not of a basic kind.
fn equal_others(left: &Value, right: &Value) -> Result<bool, Fault> {
    let show = |value: &Value| {
        let shown = format::sprintf(b"%s", std::slice::from_ref(value));
        String::from_utf8_lossy(&shown).into_owned()
    };
    if left.kind() != right.kind() && !matches!(left, Value::Nil) && !matches!(right, Value::Nil) {
        return Err(format!(
            "non-comparable types {}: {}, {}: {}",
            show(left),
            left.type_name(),
            right.type_name(),
            format::display_text(right)
        )
        .into());
    }
    if left.is_nil() || right.is_nil() {
        return Ok(left.is_nil() == right.is_nil());
    }
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            Ok(left.type_name() == right.type_name() && left.equal(right.as_ref()))
        }
        _ => Err(format!("non-comparable type {}: {}", show(right), right.type_name()).into()),
    }
}

fn less(left: &Value, right: &Value) -> Result<bool, Fault> {
    let order = compare(left, right)?;
    if matches!(basic(left), Some(Basic::Bool)) {
        return Err("invalid type for comparison".into());
    }
    Ok(order == Some(Ordering::Less))
}

fn less_or_equal(arguments: &[Value]) -> Result<bool, Fault> {
    let (left, right) = (argument(arguments, 0), argument(arguments, 1));
    Ok(less(left, right)? || equal(left, std::slice::from_ref(right))?)
}
