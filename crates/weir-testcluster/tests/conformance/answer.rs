//! What of an answer is compared: values that differ from run to run are replaced by names.
//!
//! The same resource version or uid gets the same name within a case, so that the recorded answers also say which
//! writes changed an object and which did not.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::case::Step;
use crate::endpoint::Received;
use crate::variables::Variables;

/// The names given so far in one case.
#[derive(Default)]
pub(crate) struct Names {
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
}

impl Names {
    /// The comparable form of an answer.
    pub(crate) fn answer(&mut self, received: &Received, step: &Step, variables: &Variables) -> Value {
        let mut body = received.body.clone();
        self.learn(&body);
        self.mask(&mut body, "", false);
        if step.is_set("managed") {
            sort_managed_fields(&mut body);
        } else {
            remove_managed_fields(&mut body);
        }
        for path in step.texts("drop").unwrap_or_default() {
            remove(&mut body, &segments(&path));
        }
        let mut answer = Map::new();
        answer.insert("code".into(), received.code.into());
        if let Some(keep) = step.texts("keep") {
            for path in keep.into_iter().filter(|path| path != "code") {
                let found = select(&body, &segments(&variables.fill(&path)));
                answer.insert(path, found.unwrap_or_else(|| "<absent>".into()));
            }
        } else if !body.is_null() {
            answer.insert("body".into(), body);
        }
        if !received.content_type.starts_with("application/json") || received.content_type.contains(";as=") {
            answer.insert("type".into(), received.content_type.clone().into());
        }
        if !received.warnings.is_empty() {
            answer.insert("warnings".into(), received.warnings.clone().into());
        }
        self.replace_texts(&Value::Object(answer), variables)
    }

    fn learn(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(fields) => {
                if let Some(uid) = fields.get("uid").and_then(Value::as_str).filter(|uid| uid.len() == 36) {
                    let next = format!("<uid-{}>", self.uids.len() + 1);
                    self.uids.entry(uid.to_owned()).or_insert(next);
                }
                fields.values().for_each(|field| self.learn(field));
            }
            _ => {}
        }
    }

    fn mask(&mut self, value: &mut Value, key: &str, collection: bool) {
        match value {
            Value::Array(items) => {
                if matches!(key, "clusterIPs") {
                    for item in items.iter_mut() {
                        mask_address(item);
                    }
                }
                for item in items {
                    self.mask(item, "", false);
                }
            }
            Value::Object(fields) => {
                mask_generated_name(fields);
                let bookmark = fields.get("type").is_some_and(|kind| kind == "BOOKMARK");
                let list =
                    bookmark || fields.contains_key("items") || fields.contains_key("columnDefinitions");
                for (key, field) in fields.iter_mut() {
                    match (key.as_str(), &*field) {
                        ("resourceVersion", Value::String(version)) if version.parse::<u64>().is_ok() => {
                            *field = if collection {
                                "<list-rv>".into()
                            } else {
                                let next = format!("<rv-{}>", self.versions.len() + 1);
                                self.versions.entry(version.clone()).or_insert(next).clone().into()
                            };
                        }
                        ("continue", Value::String(token)) if !token.is_empty() => {
                            *field = "<continue>".into();
                        }
                        ("nodePort" | "healthCheckNodePort", Value::Number(number))
                            if number.as_u64() > Some(29999) =>
                        {
                            *field = "<port>".into();
                        }
                        ("clusterIP", _) => mask_address(field),
                        ("token", Value::String(token)) if token.len() > 100 => *field = "<token>".into(),
                        (key, _) => {
                            let within = (list && key == "metadata")
                                || (bookmark && key == "object")
                                || (collection && key == "metadata");
                            self.mask(field, key, within);
                        }
                    }
                }
            }
            Value::String(text) => {
                if is_time(text) {
                    "<time>".clone_into(text);
                } else {
                    mask_times(text);
                    if key == "message" {
                        *text = self.mask_message(text);
                    }
                }
            }
            _ => {}
        }
    }

    fn mask_message(&self, text: &str) -> String {
        if !text.to_lowercase().contains("resourceversion") && !text.contains("resource version") {
            return text.to_owned();
        }
        let mut out = String::new();
        for piece in text.split_inclusive(|character: char| !character.is_ascii_digit()) {
            let digits = piece.trim_end_matches(|character: char| !character.is_ascii_digit());
            match self.versions.get(digits) {
                Some(name) => {
                    out.push_str(name);
                    out.push_str(&piece[digits.len()..]);
                }
                None => out.push_str(piece),
            }
        }
        out
    }

    fn replace_texts(&self, value: &Value, variables: &Variables) -> Value {
        let replace = |text: &str| {
            let mut text = text.to_owned();
            for (uid, name) in &self.uids {
                text = text.replace(uid, name);
            }
            if !variables.namespace.is_empty() {
                text = text
                    .replace(&variables.group, "{group}")
                    .replace(&variables.namespace, "{ns}")
                    .replace(&variables.namespace.to_uppercase(), "{NS}");
            }
            text
        };
        match value {
            Value::String(text) => Value::String(replace(text)),
            Value::Array(items) => items.iter().map(|item| self.replace_texts(item, variables)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (replace(key), self.replace_texts(value, variables)))
                .collect(),
            other => other.clone(),
        }
    }
}

fn mask_address(value: &mut Value) {
    if value.as_str().is_some_and(|text| text.parse::<std::net::IpAddr>().is_ok()) {
        *value = "<ip>".into();
    }
}

/// `prefix-x7f2k` becomes `prefix-<random>`.
fn mask_generated_name(fields: &mut Map<String, Value>) {
    let Some(prefix) = fields.get("generateName").and_then(Value::as_str).map(str::to_owned) else { return };
    if let Some(Value::String(name)) = fields.get_mut("name")
        && let Some(suffix) = name.strip_prefix(&prefix)
        && suffix.len() == 5
    {
        *name = format!("{prefix}<random>");
    }
}

/// RFC 3339, as the API server writes it.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes.len() <= 30
        && bytes[4] == b'-'
        && bytes[10] == b'T'
        && bytes[bytes.len() - 1] == b'Z'
        && bytes[..4].iter().all(u8::is_ascii_digit)
}

/// Times inside of a longer text.
fn mask_times(text: &mut String) {
    const LENGTH: usize = "2006-01-02T15:04:05Z".len();
    let mut from = 0;
    while let Some(found) = text[from..].find('T') {
        let at = from + found;
        from = at + 1;
        let Some(start) = at.checked_sub(10) else { continue };
        if text.get(start..start + LENGTH).is_some_and(is_time) {
            text.replace_range(start..start + LENGTH, "<time>");
            from = start;
        }
    }
}

/// Entries stand in the order of their times, which have whole seconds: the order depends on when a second ends.
fn sort_managed_fields(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(sort_managed_fields),
        Value::Object(fields) => {
            if let Some(entries) = fields.get_mut("managedFields").and_then(Value::as_array_mut) {
                entries.sort_by_key(|entry| {
                    ["manager", "operation", "subresource", "apiVersion"]
                        .map(|field| entry[field].to_string())
                });
            }
            fields.values_mut().for_each(sort_managed_fields);
        }
        _ => {}
    }
}

fn remove_managed_fields(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_managed_fields),
        Value::Object(fields) => {
            fields.remove("managedFields");
            fields.values_mut().for_each(remove_managed_fields);
        }
        _ => {}
    }
}

/// `spec.containers.0.image`, `items.*.metadata.name`, `resources[name=pods].verbs`; a quoted segment may hold dots.
fn segments(path: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let (mut quoted, mut filter) = (false, false);
    for character in path.chars() {
        match character {
            '\'' => quoted = !quoted,
            '.' if !quoted && !filter => segments.push(String::new()),
            '[' if !quoted => {
                filter = true;
                segments.push("[".to_owned());
            }
            ']' if !quoted => filter = false,
            other => segments.last_mut().unwrap().push(other),
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

fn matches(item: &Value, filter: &str) -> bool {
    filter.split_once('=').is_some_and(|(key, wanted)| {
        let found = select(item, &segments(key));
        found.is_some_and(|found| found.as_str().map_or_else(|| found.to_string(), str::to_owned) == wanted)
    })
}

/// The value at a path; `*` maps over a list or over the fields of an object.
pub(crate) fn select(value: &Value, path: &[String]) -> Option<Value> {
    let Some((first, rest)) = path.split_first() else { return Some(value.clone()) };
    if let Some(filter) = first.strip_prefix('[') {
        return select(value.as_array()?.iter().find(|item| matches(item, filter))?, rest);
    }
    match value {
        Value::Array(items) if first == "*" => {
            Some(items.iter().map(|item| select(item, rest).unwrap_or_else(|| "<absent>".into())).collect())
        }
        Value::Array(items) if first == "#" => Some(items.len().into()),
        Value::Object(fields) if first == "*" => Some(fields.keys().cloned().collect()),
        Value::Array(items) => select(items.get(first.parse::<usize>().ok()?)?, rest),
        Value::Object(fields) => select(fields.get(first)?, rest),
        _ => None,
    }
}

/// The value at a path given as text.
pub(crate) fn select_text(value: &Value, path: &str) -> Option<Value> {
    select(value, &segments(path))
}

fn remove(value: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    match value {
        Value::Array(items) if first == "*" => items.iter_mut().for_each(|item| remove(item, rest)),
        Value::Array(items) => {
            if let Some(filter) = first.strip_prefix('[') {
                if rest.is_empty() {
                    items.retain(|item| !matches(item, filter));
                } else {
                    items.iter_mut().filter(|item| matches(item, filter)).for_each(|item| remove(item, rest));
                }
            } else if let Some(item) = first.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                remove(item, rest);
            }
        }
        Value::Object(fields) if rest.is_empty() => {
            fields.remove(first);
        }
        Value::Object(fields) => {
            if let Some(field) = fields.get_mut(first) {
                remove(field, rest);
            }
        }
        _ => {}
    }
}
