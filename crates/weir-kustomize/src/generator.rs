//! ConfigMap and Secret generators, and the hash of their content.

use std::collections::BTreeMap;

use base64::Engine as _;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::error::{Context as _, Error, Result};
use crate::kustomization::{GeneratorArguments, GeneratorOptions};
use crate::node::{Map, Node, Scalar, Style, Tag};
use crate::resource::{Behavior, Resource};

/// Columns after which base64 text is broken.
const BASE64_LINE: usize = 70;

/// Which object is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generated {
    ConfigMap,
    Secret,
}

/// Makes the object of one generator entry; `load` reads files relative to the kustomization.
pub(crate) fn generate(
    kind: Generated,
    arguments: &GeneratorArguments,
    options: &GeneratorOptions,
    load: &mut dyn FnMut(&str) -> Result<Bytes>,
) -> Result<Resource> {
    if arguments.name.is_empty() {
        return Err(Error::message("a configmap must have a name"));
    }
    let pairs = pairs(arguments, load)?;
    let mut object = Map::with_capacity(5);
    object.push("apiVersion", Node::string("v1"));
    let name = if kind == Generated::ConfigMap { "ConfigMap" } else { "Secret" };
    object.push("kind", Node::string(name));
    let mut metadata = Map::with_capacity(4);
    metadata.set_scalar("name", Scalar::string(arguments.name.as_str()));
    if !arguments.namespace.is_empty() {
        metadata.set_scalar("namespace", Scalar::string(arguments.namespace.as_str()));
    }
    for (field, texts) in [("labels", &options.labels), ("annotations", &options.annotations)] {
        if !texts.is_empty() {
            let mut map = Map::with_capacity(texts.len());
            for (key, value) in texts {
                map.push(key.as_str(), Node::string(value.as_str()));
            }
            metadata.push(field, Node::Map(map));
        }
    }
    object.push("metadata", Node::Map(metadata));
    match kind {
        Generated::ConfigMap => {
            let mut text = Map::default();
            let mut binary = Map::default();
            for (key, value) in pairs {
                match std::str::from_utf8(&value) {
                    Ok(value) => text.push_entry(key_scalar(&key), data_value(value)),
                    Err(_) => binary.push_entry(key_scalar(&key), data_value(&encode(&value))),
                }
            }
            for (field, map) in [("data", text), ("binaryData", binary)] {
                if !map.is_empty() {
                    object.push(field, Node::Map(map));
                }
            }
        }
        Generated::Secret => {
            let secret_type =
                if arguments.secret_type.is_empty() { "Opaque" } else { &arguments.secret_type };
            object.push("type", Node::string(secret_type));
            let mut data = Map::with_capacity(pairs.len());
            for (key, value) in pairs {
                data.push_entry(key_scalar(&key), data_value(&encode(&value)));
            }
            object.push("data", Node::Map(data));
        }
    }
    if options.immutable {
        object.push("immutable", Node::Scalar(Scalar::new("true", Tag::Bool, Style::Plain)));
    }
    let mut resource = Resource::new(Node::Map(object));
    resource.needs_hash = !options.disable_name_suffix_hash;
    resource.behavior = Behavior::parse(&arguments.behavior);
    resource.generated = true;
    Ok(resource)
}

/// Keys are written without quotes, so one that looks like a number is refused when the object is
/// written out, as in the reference.
fn key_scalar(key: &str) -> Scalar {
    Scalar::untyped(key)
}

/// A data value in the style of a generated string.
pub(crate) fn data_value(text: &str) -> Node {
    let style = if text.contains('\n') {
        Style::Block
    } else if crate::scalar::is_old_non_string(text) {
        Style::DoubleQuoted
    } else {
        Style::Plain
    };
    Node::Scalar(Scalar::new(text, Tag::String, style))
}

/// Base64, broken into lines when it is longer than one line.
fn encode(bytes: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    if text.len() <= BASE64_LINE {
        return text;
    }
    let mut lines = String::with_capacity(text.len() + text.len() / BASE64_LINE + 1);
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(BASE64_LINE.min(rest.len()));
        lines.push_str(line);
        lines.push('\n');
        rest = after;
    }
    lines
}

fn pairs(
    arguments: &GeneratorArguments,
    load: &mut dyn FnMut(&str) -> Result<Bytes>,
) -> Result<BTreeMap<String, Bytes>> {
    let mut found = Vec::new();
    let shown = |list: &[String]| format!("[{}]", list.join(" "));
    for path in &arguments.envs {
        let content = load(path).and_then(|content| env_pairs(&content, &mut found));
        content
            .context(|| format!("env source files: {}", shown(&arguments.envs)))
            .context(|| "loading KV pairs".to_owned())?;
    }
    for literal in &arguments.literals {
        let pair = literal_pair(literal)
            .context(|| format!("literal sources {}", shown(&arguments.literals)))
            .context(|| "loading KV pairs".to_owned())?;
        found.push(pair);
    }
    for source in &arguments.files {
        let pair = file_source(source)
            .and_then(|(key, path)| Ok((key.to_owned(), load(path)?)))
            .context(|| format!("file sources: {}", shown(&arguments.files)))
            .context(|| "loading KV pairs".to_owned())?;
        found.push(pair);
    }
    let mut pairs = BTreeMap::new();
    for (key, value) in found {
        if pairs.insert(key.clone(), value).is_some() {
            return Err(Error::message(format!(
                "configmap {} illegally repeats the key `{key}`",
                arguments.name
            )));
        }
    }
    Ok(pairs)
}

fn literal_pair(literal: &str) -> Result<(String, Bytes)> {
    match literal.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            let bytes = value.as_bytes();
            let quoted =
                bytes.len() >= 2 && bytes.first() == bytes.last() && matches!(bytes[0], b'"' | b'\'');
            let value = if quoted { &value[1..value.len() - 1] } else { value };
            Ok((key.to_owned(), Bytes::copy_from_slice(value.as_bytes())))
        }
        _ => Err(Error::message(format!("invalid literal source {literal}, expected key=value"))),
    }
}

/// The key and path a file source names.
fn file_source(source: &str) -> Result<(&str, &str)> {
    match source.split_once('=') {
        None => Ok((source.rsplit('/').next().unwrap_or(source), source)),
        Some(("", path)) if !path.contains('=') => {
            Err(Error::message(format!("missing key name for file path \"{path}\" in source \"{source}\"")))
        }
        Some((key, "")) => {
            Err(Error::message(format!("missing file path for key name \"{key}\" in source \"{source}\"")))
        }
        Some((_, path)) if path.contains('=') => {
            Err(Error::message(format!("source \"{source}\" key name or file path contains '='")))
        }
        Some((key, path)) => Ok((key, path)),
    }
}

fn env_pairs(content: &[u8], found: &mut Vec<(String, Bytes)>) -> Result<()> {
    let content = content.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(content);
    for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = std::str::from_utf8(line).map_err(|_| {
            Error::message(format!(
                "line {} has invalid utf8 bytes : {}",
                number + 1,
                String::from_utf8_lossy(line)
            ))
        })?;
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        if key.is_empty() {
            continue;
        }
        found.push((key.to_owned(), Bytes::copy_from_slice(value.as_bytes())));
    }
    Ok(())
}

/// The ten characters that are appended to the name of a generated object.
///
/// # Errors
/// Content that JSON cannot hold.
pub(crate) fn content_hash(object: &Node) -> Result<String> {
    let text = match crate::id::kind(object) {
        "ConfigMap" => {
            let mut fields = Vec::with_capacity(4);
            if let Some(binary) = object.get("binaryData").filter(|node| node.as_map().is_some()) {
                fields.push(("binaryData", json(binary)?));
            }
            fields.push(("data", data_json(object)?));
            fields.push(("kind", "\"ConfigMap\"".to_owned()));
            fields.push(("name", "\"\"".to_owned()));
            object_text(&fields)
        }
        "Secret" => {
            let mut fields = vec![
                ("data", data_json(object)?),
                ("kind", "\"Secret\"".to_owned()),
                ("name", "\"\"".to_owned()),
            ];
            if let Some(strings) = object.get("stringData").filter(|node| node.as_map().is_some()) {
                fields.push(("stringData", json(strings)?));
            }
            let secret_type = object.get("type").map_or("", Node::value_text);
            let mut quoted = String::new();
            write_json_string(secret_type, &mut quoted);
            fields.push(("type", quoted));
            object_text(&fields)
        }
        _ => json(object)?,
    };
    let digest = Sha256::digest(text.as_bytes());
    let mut hash = String::with_capacity(10);
    for byte in digest.iter().take(5) {
        for nibble in [byte >> 4, byte & 15] {
            hash.push(match nibble {
                0 => 'g',
                1 => 'h',
                3 => 'k',
                10 => 'm',
                14 => 't',
                other => char::from_digit(u32::from(other), 16).unwrap_or('g'),
            });
        }
    }
    Ok(hash)
}

fn data_json(object: &Node) -> Result<String> {
    match object.get("data") {
        Some(data) if data.as_map().is_some() => json(data),
        _ => Ok("\"\"".to_owned()),
    }
}

fn object_text(fields: &[(&str, String)]) -> String {
    let parts: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", parts.join(","))
}

fn json(node: &Node) -> Result<String> {
    let mut text = String::new();
    write_json(&node.to_json()?, &mut text);
    Ok(text)
}

/// JSON as Go's encoder writes it: sorted keys, no spaces, `<`, `>` and `&` escaped.
pub(crate) fn write_json(value: &serde_json::Value, out: &mut String) {
    use serde_json::Value;
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => write_json_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            for (position, (key, item)) in object.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_json_string(key, out);
                out.push(':');
                write_json(item, out);
            }
            out.push('}');
        }
    }
}

fn write_json_string(text: &str, out: &mut String) {
    use std::fmt::Write as _;
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{0}'..='\u{1f}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", character as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(yaml: &str) -> String {
        let objects = crate::manifest::read_resources(yaml.as_bytes()).unwrap();
        content_hash(&objects[0].node).unwrap()
    }

    #[test]
    fn hashes_of_the_specification() {
        for (yaml, expected) in [
            ("kind: ConfigMap\nmetadata: {name: a}", "6ct58987ht"),
            ("kind: ConfigMap\nmetadata: {name: a}\ndata: {one: ''}", "9g67k2htb6"),
            ("kind: ConfigMap\nmetadata: {name: a}\ndata: {foo: bar}", "798k5k7g9f"),
            ("kind: ConfigMap\nmetadata: {name: a}\ndata: {bar: bar}", "8hm8224gfd"),
            ("kind: ConfigMap\nmetadata: {name: a}\ndata: {two: 2, one: '', three: 3}", "7757f9kkct"),
            ("kind: ConfigMap\nmetadata: {name: a}\ndata: {one: ''}\nbinaryData: {two: ''}", "698h7c7t9m"),
            ("kind: Secret\nmetadata: {name: a}\ntype: my-type", "5gmgkf8578"),
            ("kind: Secret\nmetadata: {name: a}\ntype: my-type\ndata: {one: ''}", "74bd68bm66"),
            (
                "kind: Secret\nmetadata: {name: a}\ntype: my-type\ndata: {one: ''}\nstringData: {two: 2}",
                "c4h4264gdb",
            ),
        ] {
            assert_eq!(hash(yaml), expected, "{yaml}");
        }
    }

    #[test]
    fn sources_name_their_key() {
        assert_eq!(file_source("a/b.txt").unwrap(), ("b.txt", "a/b.txt"));
        assert_eq!(file_source("k=a/b.txt").unwrap(), ("k", "a/b.txt"));
        for wrong in ["=p", "k=", "a=b=c"] {
            assert!(file_source(wrong).is_err(), "{wrong}");
        }
        assert_eq!(literal_pair("a='x'").unwrap().1, "x");
        assert_eq!(literal_pair("a='").unwrap().1, "'");
        assert!(literal_pair("=x").is_err());
    }
}
