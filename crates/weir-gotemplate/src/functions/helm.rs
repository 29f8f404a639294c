//! Helm's own functions.

use std::rc::Rc;

use weir_manifest::{ReadOptions, read_first_document, to_yaml};

use super::{Outcome, argument, bytes, text};
use crate::error::{Error, Fault};
use crate::exec::{self, Context};
use crate::function::{Function, Param};
use crate::helm;
use crate::json::{self, Style};
use crate::parse;
use crate::set::Set;
use crate::strconv;
use crate::text::Text;
use crate::toml;
use crate::tree::Tree;
use crate::value::{Entries, List, Map, Value};

use Param::{Any, String as Str};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("include", &[Str, Any], include),
    Function::new("tpl", &[Str, Any], template_text),
    Function::new("required", &[Str, Any], |context, arguments| {
        let value = argument(arguments, 1);
        let missing = match value {
            Value::Nil => true,
            Value::String(text) => text.is_empty(),
            _ => false,
        };
        if !missing {
            return Ok(value.clone());
        }
        failed_on_purpose(context, &text(arguments, 0))
    }),
    Function::new("fail", &[Str], |context, arguments| failed_on_purpose(context, &text(arguments, 0))),
    Function::new("lookup", &[Str, Str, Str, Str], |context, arguments| {
        let found = context.host().lookup(
            &text(arguments, 0),
            &text(arguments, 1),
            &text(arguments, 2),
            &text(arguments, 3),
        );
        Ok(found?)
    }),
    Function::new("getHostByName", &[Str], |context, arguments| {
        Ok(Value::string(context.host().resolve(&text(arguments, 0))?))
    }),
    Function::new("toYaml", &[Any], |_, arguments| {
        Ok(Value::string(yaml(argument(arguments, 0)).unwrap_or_default()))
    }),
    Function::new("mustToYaml", &[Any], |_, arguments| Ok(Value::string(yaml(argument(arguments, 0))?))),
    Function::new("toYamlPretty", &[Any], |_, arguments| {
        Ok(Value::string(helm::yaml_pretty(argument(arguments, 0)).unwrap_or_default()))
    }),
    Function::new("fromYaml", &[Str], |context, arguments| {
        count_decoded(context, arguments)?;
        let decoded = decode_yaml(bytes(arguments, 0));
        let decoded = decoded.map(|value| value.unwrap_or_else(|| Value::Map(Map::new(Entries::new()))));
        Ok(Value::Map(expect_map(decoded, UNMARSHALING)))
    }),
    Function::new("fromYamlArray", &[Str], |context, arguments| {
        count_decoded(context, arguments)?;
        let decoded = decode_yaml(bytes(arguments, 0));
        let decoded = decoded.map(|value| value.unwrap_or_else(|| Value::list(Vec::new())));
        Ok(Value::List(expect_list(decoded, UNMARSHALING)))
    }),
    Function::new("toJson", &[Any], |_, arguments| {
        Ok(Value::string(json::encode(argument(arguments, 0), COMPACT).unwrap_or_default()))
    }),
    Function::new("mustToJson", &[Any], |_, arguments| {
        Ok(Value::string(json::encode(argument(arguments, 0), COMPACT)?))
    }),
    Function::new("fromJson", &[Str], |context, arguments| {
        count_decoded(context, arguments)?;
        Ok(Value::Map(expect_map(json::decode(bytes(arguments, 0)), "")))
    }),
    Function::new("fromJsonArray", &[Str], |context, arguments| {
        count_decoded(context, arguments)?;
        Ok(Value::List(expect_list(json::decode(bytes(arguments, 0)), "")))
    }),
    Function::new("toToml", &[Any], |context, arguments| match toml::encode(argument(arguments, 0)) {
        Err(toml::EncodeError::Refused(text)) => Ok(Value::string(text)),
        other => toml_text(context, other),
    }),
    Function::new("mustToToml", &[Any], |context, arguments| {
        toml_text(context, toml::encode(argument(arguments, 0)))
    }),
    Function::new("fromToml", &[Str], |context, arguments| {
        count_decoded(context, arguments)?;
        Ok(Value::Map(match toml::decode(&text(arguments, 0)) {
            Ok(map) => map,
            Err(message) => error_map(&message),
        }))
    }),
];

/// Bytes of memory a byte of text can become as values, in the worst case or nearly so.
const DECODED_BYTES_PER_BYTE: usize = 16;

fn count_decoded(context: &mut Context<'_>, arguments: &[Value]) -> Result<(), Fault> {
    context.produce(bytes(arguments, 0).len() * DECODED_BYTES_PER_BYTE)
}

/// What precedes complaints about YAML of the wrong kind.
const UNMARSHALING: &str = "error unmarshaling JSON: while decoding JSON: ";

const COMPACT: Style = Style { pretty: false, escape_html: true };

/// How often one template name may be including itself, in levels.
const INCLUDE_LEVELS_MAX: u32 = 1000;

/// How many texts of `tpl` are kept compiled.
const TEXTS_MAX: usize = 5000;

fn toml_text(_: &Context<'_>, encoded: Result<Vec<u8>, toml::EncodeError>) -> Outcome {
    encoded.map(Value::string).map_err(|error| match error {
        toml::EncodeError::Refused(text) | toml::EncodeError::Raised(text) => text.into(),
    })
}

fn failed_on_purpose(context: &mut Context<'_>, message: &str) -> Outcome {
    if context.host().lint() {
        return Ok(Value::string(""));
    }
    Err(helm::marked(message).into())
}

fn include(context: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let Value::String(name) = argument(arguments, 0) else { return Ok(Value::Nil) };
    let level = context.shared.included.entry(name.clone()).or_insert(0);
    if *level > INCLUDE_LEVELS_MAX {
        return Err(Error::wrapping(
            format!("rendering template has a nested reference name: {name}: unable to execute template"),
            Error::new("unable to execute template"),
        )
        .into());
    }
    *level += 1;
    let output = context.execute(name, argument(arguments, 1));
    if let Some(level) = context.shared.included.get_mut(name) {
        *level = level.saturating_sub(1);
    }
    Ok(Value::string(output?))
}

fn template_text(context: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let Value::String(source) = argument(arguments, 0) else { return Ok(Value::Nil) };
    // Text without an action is its own output, as it is for most values that go through `tpl`.
    if super::strings::find(source, b"{{").is_none() {
        return Ok(Value::string(helm::without_no_value(source.to_vec())));
    }
    let trees = compiled_text(context, source)?;
    let Some(main) = trees.first() else { return Ok(Value::string("")) };
    let mut set = Set::on_top(&context.set);
    for tree in trees.iter() {
        set.add(tree);
    }
    let output = exec::run(context.shared, &Rc::new(set), main, argument(arguments, 1));
    match output {
        Ok(output) => Ok(Value::string(helm::without_no_value(output))),
        Err(Fault::Failed(cause)) => {
            let quoted = strconv::quoted(&source.to_str_lossy());
            let text = format!("error during tpl function execution for {quoted}: {cause}");
            Err(Error::wrapping(text, cause).into())
        }
        Err(limit @ Fault::Limit(_)) => Err(limit),
    }
}

/// The compiled form of a text, kept for the next time: the same texts come again and again.
fn compiled_text(context: &mut Context<'_>, source: &Text) -> Result<Rc<Vec<Rc<Tree>>>, Fault> {
    if let Some(trees) = context.shared.caches.texts.get(source) {
        return Ok(Rc::clone(trees));
    }
    let functions = Rc::clone(context.set.functions());
    let parsed = parse::parse("gotpl", &source.to_str_lossy(), &functions, &mut context.shared.caches.names)
        .map_err(|error| {
            let quoted = strconv::quoted(&source.to_str_lossy());
            let text = format!("cannot parse template {quoted}: {error}");
            Error::wrapping(text, Error::new(error.to_string()))
        })?;
    let trees = Rc::new(parsed.into_iter().map(Rc::new).collect::<Vec<_>>());
    let cache = &mut context.shared.caches.texts;
    if cache.len() >= TEXTS_MAX {
        cache.clear();
    }
    cache.insert(source.clone(), Rc::clone(&trees));
    Ok(trees)
}

fn yaml(value: &Value) -> Result<Vec<u8>, String> {
    let text = to_yaml(&helm::to_plain(value)?);
    Ok(text.strip_suffix('\n').unwrap_or(&text).as_bytes().to_vec())
}

/// What Helm reads: the first document, where nothing at all is an empty map or list.
fn decode_yaml(source: &[u8]) -> Result<Option<Value>, String> {
    match read_first_document(source, "", ReadOptions::default()) {
        Ok(serde_json::Value::Null) => Ok(None),
        Ok(document) => Ok(Some(Value::from_json(&document))),
        Err(error) => Err(format!("error converting YAML to JSON: {}", error.reference_text())),
    }
}

fn error_map(message: &str) -> Map {
    let mut entries = Entries::new();
    entries.insert(Text::from("Error"), Value::string(message));
    Map::new(entries)
}

/// What Go says when JSON of one kind is to become a map or list.
fn kind_of_json(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Float(_) => "number",
        Value::List(_) => "array",
        _ => "object",
    }
}

fn expect_map(decoded: Result<Value, String>, prefix: &str) -> Map {
    match decoded {
        Ok(Value::Map(map)) => map,
        Ok(Value::Nil) => Map::nil(),
        Ok(other) => error_map(&format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            kind_of_json(&other)
        )),
        Err(message) => error_map(&message),
    }
}

fn expect_list(decoded: Result<Value, String>, prefix: &str) -> List {
    match decoded {
        Ok(Value::List(list)) => list,
        Ok(Value::Nil) => List::nil(crate::value::Element::Any),
        Ok(other) => List::new(vec![Value::string(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type []interface {{}}",
            kind_of_json(&other)
        ))]),
        Err(message) => List::new(vec![Value::string(message)]),
    }
}
