//! Sprig's functions on any value: defaults, emptiness, types, paths, errors on purpose.

use super::convert::is_empty;
use super::{Outcome, argument, bytes, text};
use crate::function::{Function, Param};
use crate::value::Value;

use Param::{Any, Bool, String as Str};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::variadic("default", &[Any], Any, |_, arguments| {
        Ok(match arguments.get(1) {
            Some(given) if !is_empty(given) => given.clone(),
            _ => argument(arguments, 0).clone(),
        })
    }),
    Function::new("empty", &[Any], |_, arguments| Ok(Value::Bool(is_empty(argument(arguments, 0))))),
    Function::variadic("coalesce", &[], Any, |_, arguments| {
        Ok(arguments.iter().find(|value| !is_empty(value)).cloned().unwrap_or_default())
    }),
    Function::variadic("all", &[], Any, |_, arguments| Ok(Value::Bool(!arguments.iter().any(is_empty)))),
    Function::variadic("any", &[], Any, |_, arguments| {
        Ok(Value::Bool(arguments.iter().any(|value| !is_empty(value))))
    }),
    Function::new("ternary", &[Any, Any, Bool], |_, arguments| {
        Ok(argument(arguments, usize::from(!argument(arguments, 2).truth())).clone())
    }),
    Function::new("typeOf", &[Any], |_, arguments| Ok(Value::string(argument(arguments, 0).type_name()))),
    Function::new("typeIs", &[Str, Any], |_, arguments| {
        Ok(Value::Bool(text(arguments, 0) == argument(arguments, 1).type_name()))
    }),
    Function::new("typeIsLike", &[Str, Any], |_, arguments| {
        let (target, name) = (text(arguments, 0), argument(arguments, 1).type_name());
        Ok(Value::Bool(target == name || name.strip_prefix('*') == Some(&target)))
    }),
    Function::new("kindOf", &[Any], |_, arguments| Ok(Value::string(argument(arguments, 0).kind().name()))),
    Function::new("kindIs", &[Str, Any], |_, arguments| {
        Ok(Value::Bool(text(arguments, 0) == argument(arguments, 1).kind().name()))
    }),
    Function::new("deepEqual", &[Any, Any], |_, arguments| {
        Ok(Value::Bool(argument(arguments, 0).deep_equal(argument(arguments, 1))))
    }),
    Function::new("fail", &[Str], |_, arguments| Err(text(arguments, 0).into_owned().into())),
    Function::new("base", &[Str], |_, arguments| path_base(bytes(arguments, 0))),
    Function::new("osBase", &[Str], |_, arguments| path_base(bytes(arguments, 0))),
    Function::new("dir", &[Str], |_, arguments| path_dir(bytes(arguments, 0))),
    Function::new("osDir", &[Str], |_, arguments| path_dir(bytes(arguments, 0))),
    Function::new("clean", &[Str], |_, arguments| Ok(Value::string(path_clean(bytes(arguments, 0))))),
    Function::new("osClean", &[Str], |_, arguments| Ok(Value::string(path_clean(bytes(arguments, 0))))),
    Function::new("ext", &[Str], |_, arguments| path_ext(bytes(arguments, 0))),
    Function::new("osExt", &[Str], |_, arguments| path_ext(bytes(arguments, 0))),
    Function::new("isAbs", &[Str], |_, arguments| {
        Ok(Value::Bool(bytes(arguments, 0).first() == Some(&b'/')))
    }),
    Function::new("osIsAbs", &[Str], |_, arguments| {
        Ok(Value::Bool(bytes(arguments, 0).first() == Some(&b'/')))
    }),
];

fn path_base(path: &[u8]) -> Outcome {
    if path.is_empty() {
        return Ok(Value::string("."));
    }
    let last = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
    Ok(Value::string(last.unwrap_or(b"/")))
}

fn path_dir(path: &[u8]) -> Outcome {
    let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    Ok(Value::string(path_clean(&path[..end])))
}

fn path_ext(path: &[u8]) -> Outcome {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let dot = name.iter().rposition(|byte| *byte == b'.');
    Ok(Value::string(dot.map_or(&b""[..], |dot| &name[dot..])))
}

/// `path.Clean`
pub(crate) fn path_clean(path: &[u8]) -> Vec<u8> {
    let rooted = path.first() == Some(&b'/');
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => match parts.last() {
                Some(last) if *last != b".." => {
                    parts.pop();
                }
                _ if rooted => {}
                _ => parts.push(part),
            },
            part => parts.push(part),
        }
    }
    let joined = parts.join(&b'/');
    if rooted {
        return [b"/", joined.as_slice()].concat();
    }
    if joined.is_empty() { b".".to_vec() } else { joined }
}
