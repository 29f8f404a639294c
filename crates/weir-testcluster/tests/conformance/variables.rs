//! `{ns}`, `{group}`, `{each}` and `{saved.path.to.field}` in the texts of a step.

use std::collections::BTreeMap;

use serde_json::Value;

/// What the texts of a case may refer to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables {
    pub(crate) namespace: String,
    pub(crate) group: String,
    pub(crate) each: Option<String>,
    pub(crate) saved: BTreeMap<String, Value>,
}

impl Variables {
    /// The text with all references replaced; what is no reference stays.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            out.push_str(&rest[..start]);
            rest = &rest[start..];
            let found = rest.find('}').and_then(|end| Some((self.lookup(&rest[1..end])?, end)));
            if let Some((value, end)) = found {
                out.push_str(&value);
                rest = &rest[end + 1..];
            } else {
                out.push('{');
                rest = &rest[1..];
            }
        }
        out.push_str(rest);
        out
    }

    /// The same in all strings and keys of a value.
    pub(crate) fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (self.fill(key), self.fill_value(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn lookup(&self, name: &str) -> Option<String> {
        match name {
            "ns" => return Some(self.namespace.clone()),
            "group" => return Some(self.group.clone()),
            "each" => return self.each.clone(),
            _ => {}
        }
        let (saved, path) = name.split_once('.')?;
        let mut value = self.saved.get(saved)?;
        for segment in path.split('.') {
            value = match value {
                Value::Array(items) => items.get(segment.parse::<usize>().ok()?)?,
                other => other.get(segment)?,
            };
        }
        match value {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}
