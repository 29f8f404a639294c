//! Sprig's list functions. The plain and the `must` variants differ only in Go, where the plain
//! ones panic: both end rendering with the same error.

use super::convert::{int_of, is_empty};
use super::{Outcome, argument, int};
use crate::error::Fault;
use crate::exec::Context;
use crate::function::{Function, Param};
use crate::text::Text;
use crate::value::{Element, List, Value};

use Param::{Any, Int};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::variadic("list", &[], Any, |_, arguments| Ok(Value::list(arguments.to_vec()))),
    Function::variadic("tuple", &[], Any, |_, arguments| Ok(Value::list(arguments.to_vec()))),
    Function::new("append", &[Any, Any], push),
    Function::new("push", &[Any, Any], push),
    Function::new("mustAppend", &[Any, Any], push),
    Function::new("mustPush", &[Any, Any], push),
    Function::new("prepend", &[Any, Any], prepend),
    Function::new("mustPrepend", &[Any, Any], prepend),
    Function::new("first", &[Any], first),
    Function::new("mustFirst", &[Any], first),
    Function::new("rest", &[Any], rest),
    Function::new("mustRest", &[Any], rest),
    Function::new("last", &[Any], last),
    Function::new("mustLast", &[Any], last),
    Function::new("initial", &[Any], initial),
    Function::new("mustInitial", &[Any], initial),
    Function::new("reverse", &[Any], reverse),
    Function::new("mustReverse", &[Any], reverse),
    Function::new("compact", &[Any], compact),
    Function::new("mustCompact", &[Any], compact),
    Function::new("uniq", &[Any], uniq),
    Function::new("mustUniq", &[Any], uniq),
    Function::variadic("without", &[Any], Any, without),
    Function::variadic("mustWithout", &[Any], Any, without),
    Function::new("has", &[Any, Any], has),
    Function::new("mustHas", &[Any, Any], has),
    Function::variadic("slice", &[Any], Any, slice),
    Function::variadic("mustSlice", &[Any], Any, slice),
    Function::variadic("concat", &[], Any, concat),
    Function::new("chunk", &[Int, Any], chunk),
    Function::new("mustChunk", &[Int, Any], chunk),
];

/// The error of asking for the type of nil.
pub(super) const NIL_POINTER: &str = "runtime error: invalid memory address or nil pointer dereference";

/// The items of a list; `message` and the kind make the error for anything else.
fn items(value: &Value, message: &str) -> Result<Vec<Value>, Fault> {
    match value.slice_items() {
        Some(items) => Ok(items.into_owned()),
        None if matches!(value, Value::Nil) => Err(NIL_POINTER.into()),
        None => Err(format!("{message} {}", value.kind().name()).into()),
    }
}

fn push(context: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let mut items = items(argument(arguments, 0), "Cannot push on type")?;
    context.check_items(items.len() as u64 + 1)?;
    items.push(argument(arguments, 1).clone());
    Ok(Value::list(items))
}

fn prepend(context: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let mut items = items(argument(arguments, 0), "Cannot prepend on type")?;
    context.check_items(items.len() as u64 + 1)?;
    items.insert(0, argument(arguments, 1).clone());
    Ok(Value::list(items))
}

fn first(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let items = items(argument(arguments, 0), "Cannot find first on type")?;
    Ok(items.into_iter().next().unwrap_or_default())
}

fn last(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let items = items(argument(arguments, 0), "Cannot find last on type")?;
    Ok(items.into_iter().next_back().unwrap_or_default())
}

/// `[]interface {}` with these items, the nil one if the source was empty.
fn part(source_empty: bool, items: Vec<Value>) -> Value {
    Value::List(if source_empty { List::nil(Element::Any) } else { List::new(items) })
}

fn rest(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let items = items(argument(arguments, 0), "Cannot find rest on type")?;
    Ok(part(items.is_empty(), items.into_iter().skip(1).collect()))
}

fn initial(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let mut items = items(argument(arguments, 0), "Cannot find initial on type")?;
    let empty = items.is_empty();
    items.pop();
    Ok(part(empty, items))
}

fn reverse(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let mut items = items(argument(arguments, 0), "Cannot find reverse on type")?;
    items.reverse();
    Ok(Value::list(items))
}

fn compact(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let items = items(argument(arguments, 0), "Cannot compact on type")?;
    Ok(Value::list(items.into_iter().filter(|item| !is_empty(item)).collect()))
}

fn contains(items: &[Value], wanted: &Value) -> bool {
    items.iter().any(|item| wanted.deep_equal(item))
}

fn uniq(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let items = items(argument(arguments, 0), "Cannot find uniq on type")?;
    // Strings, the usual case, are looked up in a set; only the rest is compared one by one.
    let mut strings: std::collections::HashSet<Text> = std::collections::HashSet::new();
    let mut others: Vec<Value> = Vec::new();
    let mut unique = Vec::new();
    for item in items {
        let new = match &item {
            Value::String(text) => strings.insert(text.clone()),
            other if contains(&others, other) => false,
            other => {
                others.push(other.clone());
                true
            }
        };
        if new {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

fn without(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let items = items(argument(arguments, 0), "Cannot find without on type")?;
    let omitted = arguments.get(1..).unwrap_or(&[]);
    Ok(Value::list(items.into_iter().filter(|item| !contains(omitted, item)).collect()))
}

fn has(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let (needle, haystack) = (argument(arguments, 0), argument(arguments, 1));
    if matches!(haystack, Value::Nil) {
        return Ok(Value::Bool(false));
    }
    Ok(Value::Bool(contains(&items(haystack, "Cannot find has on type")?, needle)))
}

fn slice(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let value = argument(arguments, 0);
    let all = items(value, "list should be type of slice or array but")?;
    if all.is_empty() {
        return Ok(Value::Nil);
    }
    let start = arguments.get(1).map_or(0, int_of);
    let end = arguments.get(2).map_or(all.len() as i64, int_of);
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return Err("reflect.Value.Slice: slice index out of bounds".into());
    };
    if from > to || to > all.len() {
        return Err("reflect.Value.Slice: slice index out of bounds".into());
    }
    Ok(match value {
        Value::Bytes(bytes) => Value::Bytes(Text::from(&bytes[from..to])),
        Value::List(list) => {
            let part = List::typed(all[from..to].to_vec(), list.element());
            Value::List(match list.named_type() {
                Some(named) => part.named(named),
                None => part,
            })
        }
        other => other.clone(),
    })
}

fn concat(context: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let mut all = Vec::new();
    for list in arguments {
        match list.slice_items() {
            Some(items) => all.extend_from_slice(&items),
            None if matches!(list, Value::Nil) => return Err(NIL_POINTER.into()),
            None => {
                let kind = list.kind().name();
                return Err(format!("Cannot concat type {kind} as list").into());
            }
        }
        context.check_items(all.len() as u64)?;
    }
    Ok(part(all.is_empty(), all))
}

fn chunk(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let items = items(argument(arguments, 1), "Cannot chunk type")?;
    let size = int(arguments, 0);
    let chunks: Vec<Value> = match usize::try_from(size) {
        Ok(size) if size > 0 => items.chunks(size).map(|chunk| Value::list(chunk.to_vec())).collect(),
        _ if items.is_empty() && size < 0 => Vec::new(),
        _ => return Err("runtime error: makeslice: len out of range".into()),
    };
    Ok(Value::List(List::typed(chunks, Element::Anys)))
}
