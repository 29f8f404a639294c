//! Whether a request is what the documentation of a service asks for.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit as _, Mac as _};
use regex::Regex;
use serde_json::Value;

/// What is wrong with a request.
pub(crate) fn request(demands: &Value, headers: &HeaderMap, body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, pattern) in demands["headers"].as_object().into_iter().flatten() {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        let pattern = pattern.as_str().unwrap();
        if !value.is_some_and(|value| Regex::new(pattern).unwrap().is_match(value)) {
            found.push(format!("header {name} is {value:?}, not {pattern}"));
        }
        if headers.get_all(name).iter().count() > 1 {
            found.push(format!("header {name} is there more than once"));
        }
    }
    let text = String::from_utf8_lossy(body);
    if demands.get("schema").is_some() {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => {
                schema(&demands["schema"], &value, &mut found);
                limits(demands, &value, &mut found);
                forbidden(demands, &value.to_string(), &mut found);
            }
            Err(error) => found.push(format!("the body is not JSON: {error}")),
        }
    }
    if demands.get("form").is_some() {
        let fields: BTreeMap<String, String> = url::form_urlencoded::parse(body).into_owned().collect();
        forbidden(demands, &fields["content"], &mut found);
        schema(&demands["form"], &serde_json::to_value(fields).unwrap(), &mut found);
    }
    if demands.get("envelope").is_some() {
        envelope(demands, &text, &mut found);
    }
    if demands["traces"] == true {
        traces(body, &mut found);
    }
    if let Some(max) = demands["bytes_max"].as_u64()
        && body.len() as u64 > max
    {
        found.push(format!("the body has {} bytes, more than {max}", body.len()));
    }
    if let Some(key) = demands["hmac"].as_str() {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key.as_bytes()).unwrap();
        mac.update(body);
        let expected = format!("sha256={}", crate::hex(&mac.finalize().into_bytes()));
        if headers["x-signature"] != *expected {
            found.push("the signature is not that of the body".to_owned());
        }
    }
    found
}

fn schema(schema: &Value, value: &Value, found: &mut Vec<String>) {
    let options = jsonschema::options().should_validate_formats(true);
    let validator = options.build(schema).unwrap();
    for error in validator.iter_errors(value) {
        let text: String = error.to_string().chars().take(300).collect();
        found.push(format!("{}: {text}", error.instance_path()));
    }
}

fn forbidden(demands: &Value, text: &str, found: &mut Vec<String>) {
    for word in demands["forbidden"].as_array().into_iter().flatten() {
        if text.contains(word.as_str().unwrap()) {
            found.push(format!("{word} is not escaped"));
        }
    }
}

fn limits(demands: &Value, value: &Value, found: &mut Vec<String>) {
    if let Some(limit) = demands.get("bytes_of") {
        let text = value.pointer(limit["pointer"].as_str().unwrap()).unwrap().as_str().unwrap();
        if text.len() as u64 > limit["max"].as_u64().unwrap() {
            found.push(format!("{} has {} bytes", limit["pointer"], text.len()));
        }
    }
    if let Some(limit) = demands.get("characters_max") {
        fn count(value: &Value) -> usize {
            match value {
                Value::String(text) => text.chars().count(),
                Value::Array(items) => items.iter().map(count).sum(),
                Value::Object(map) => map.values().map(count).sum(),
                _ => 0,
            }
        }
        let count = count(value.pointer(limit["pointer"].as_str().unwrap()).unwrap());
        if count as u64 > limit["max"].as_u64().unwrap() {
            found.push(format!("{} has {count} characters", limit["pointer"]));
        }
    }
    if let Some(limit) = demands.get("markdown_v2") {
        let text = value.pointer(limit["pointer"].as_str().unwrap()).unwrap().as_str().unwrap();
        match plain_of_markdown_v2(text) {
            Ok(plain) if plain.encode_utf16().count() as u64 > limit["max"].as_u64().unwrap() => {
                found.push("the text is too long".to_owned());
            }
            Ok(_) => {}
            Err(error) => found.push(error),
        }
    }
}

/// What is left of MarkdownV2 when its marks are gone, by the rules of the Bot API: every special character is either
/// escaped or a mark, and marks come in pairs. Of the marks only bold is expected.
fn plain_of_markdown_v2(text: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut bold = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.push(characters.next().ok_or("the text ends with an escape")?),
            '*' => bold = !bold,
            '_' | '[' | ']' | '(' | ')' | '~' | '`' | '>' | '#' | '+' | '-' | '=' | '|' | '{' | '}' | '.'
            | '!' => {
                return Err(format!("{character:?} must be escaped"));
            }
            other => plain.push(other),
        }
    }
    if bold { Err("bold does not end".to_owned()) } else { Ok(plain) }
}

/// Envelopes: a header, then items with a header that says how long they are.
fn envelope(demands: &Value, text: &str, found: &mut Vec<String>) {
    let (head, rest) = text.split_once('\n').unwrap_or_default();
    let (item, payload) = rest.split_once('\n').unwrap_or_default();
    let (Ok(head), Ok(item)) = (serde_json::from_str::<Value>(head), serde_json::from_str::<Value>(item))
    else {
        found.push("the envelope has no headers".to_owned());
        return;
    };
    let length = usize::try_from(item["length"].as_u64().unwrap()).unwrap();
    let Ok(value) = serde_json::from_slice::<Value>(&payload.as_bytes()[..length.min(payload.len())]) else {
        found.push("the item is not as long as it says".to_owned());
        return;
    };
    if head["event_id"] != value["event_id"] {
        found.push("the ids of envelope and event differ".to_owned());
    }
    let kind = value["type"].as_str().unwrap_or("event");
    if item["type"] != kind {
        found.push(format!("the item says it is {}, but it is {kind}", item["type"]));
    }
    schema(&demands["envelope"], &value, found);
}

/// Fields of a protobuf message: number, wire type and content.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, u64, Vec<u8>)>> {
    fn varint(bytes: &mut &[u8]) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first()?;
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, 0, varint(&mut bytes)?.to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (content, rest) = bytes.split_at_checked(length)?;
        found.push((key >> 3, key & 7, content.to_vec()));
        bytes = rest;
    }
    Some(found)
}

/// An export request with one span that has all the parts a collector wants.
fn traces(body: &[u8], found: &mut Vec<String>) {
    fn only(message: &[u8], field: u64) -> Option<Vec<u8>> {
        fields(message)?
            .into_iter()
            .find(|(number, wire, _)| *number == field && *wire == 2)
            .map(|(_, _, content)| content)
    }
    let span = || {
        let resource_spans = only(body, 1)?;
        let resource = only(&resource_spans, 1)?;
        let named = fields(&resource)?
            .iter()
            .any(|(_, _, attribute)| only(attribute, 1).as_deref() == Some(b"service.name"));
        named.then_some(())?;
        only(&only(&resource_spans, 2)?, 2)
    };
    let Some(span) = span() else {
        found.push("the body is no export request with a resource and a span".to_owned());
        return;
    };
    let parts = fields(&span).unwrap_or_default();
    let part = |number: u64, wire: u64| {
        parts.iter().find(|(found, kind, _)| *found == number && *kind == wire).map(|(_, _, content)| content)
    };
    let length = |number: u64| part(number, 2).map(Vec::len);
    if length(1) != Some(16) || length(2) != Some(8) {
        found.push("the ids have the wrong length".to_owned());
    }
    let time = |number: u64| {
        part(number, 1).and_then(|bytes| bytes.as_slice().try_into().ok()).map(u64::from_le_bytes)
    };
    match (time(7), time(8)) {
        (Some(start), Some(end)) if start <= end && start > 1_700_000_000_000_000_000 => {}
        times => found.push(format!("start and end are {times:?}")),
    }
    if part(5, 2).is_none_or(|name| name.is_empty() || std::str::from_utf8(name).is_err()) {
        found.push("the span has no name".to_owned());
    }
    let attributes = parts.iter().filter(|(number, _, _)| *number == 9);
    for (_, _, attribute) in attributes {
        let value = only(attribute, 2).and_then(|any| only(&any, 1));
        if only(attribute, 1).is_none() || value.is_none() {
            found.push("an attribute is no key with a string".to_owned());
        }
    }
}
