//! Tables: what `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::builtin;
use crate::crd::CustomColumn;
use crate::kinds::Kind;
use crate::reply::{Include, partial};

/// Objects as rows.
pub(crate) fn table(
    kind: &Kind,
    objects: &[Value],
    include: Include,
    now: Timestamp,
    columns: bool,
) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = json!({"cells": cells(kind, object, now)});
            match include {
                Include::Nothing => row["object"] = Value::Null,
                Include::Metadata => row["object"] = partial(object),
                Include::Object => row["object"] = object.clone(),
            }
            row
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": if columns { definitions(kind) } else { Value::Null },
        "rows": rows,
    })
}

fn name_column() -> Value {
    json!({
        "name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    })
}

const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn age() -> CustomColumn {
    CustomColumn {
        name: "Age".to_owned(),
        kind: "date".to_owned(),
        json_path: ".metadata.creationTimestamp".to_owned(),
        description: AGE.to_owned(),
        ..CustomColumn::default()
    }
}

fn definitions(kind: &Kind) -> Value {
    let Some(version) = &kind.custom else {
        return builtin::columns(&kind.gvk)
            .iter()
            .map(|column| {
                json!({
                    "name": column.name, "type": column.kind, "format": column.format,
                    "description": "", "priority": column.priority,
                })
            })
            .collect();
    };
    let mut out = vec![name_column()];
    let fallback = [age()];
    let columns = if version.columns.is_empty() { &fallback[..] } else { &version.columns };
    for column in columns {
        let description = if column.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
        } else {
            column.description.clone()
        };
        out.push(json!({
            "name": column.name, "type": column.kind, "format": column.format,
            "description": description, "priority": column.priority,
        }));
    }
    Value::Array(out)
}

fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let Some(version) = &kind.custom else { return builtin::row(&kind.gvk, object, now) };
    let mut out = vec![object["metadata"]["name"].clone()];
    let fallback = [age()];
    let columns = if version.columns.is_empty() { &fallback[..] } else { &version.columns };
    for column in columns {
        out.push(cell(column, object, now));
    }
    out
}

fn cell(column: &CustomColumn, object: &Value, now: Timestamp) -> Value {
    let found = json_path(object, &column.json_path);
    let Some(first) = found.first() else { return Value::Null };
    match (column.kind.as_str(), first) {
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(then) => json!(age_text(now, then)),
            Err(_) => json!("<invalid>"),
        },
        ("integer", Value::Number(number)) => {
            number.as_i64().map_or_else(|| json!(number.as_f64().unwrap_or_default() as i64), |n| json!(n))
        }
        ("number", Value::Number(number)) => json!(number),
        ("boolean", Value::Bool(flag)) => json!(flag),
        ("string", first) => json!(plain(first)),
        _ => Value::Null,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A span of time as `kubectl` prints it, as in `5d3h`.
pub(crate) fn age_text(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.as_second() - then.as_second();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        two(days, "d", hours % 24, "h")
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        two(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

/// What a JSON path finds: fields, indices, `[*]`, and filters of the form `[?(@.a=="b")]`.
pub(crate) fn json_path<'v>(object: &'v Value, path: &str) -> Vec<&'v Value> {
    let mut found = vec![object];
    let mut rest = path.trim().trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let Some(end) = closing(after) else { return Vec::new() };
            let inner = after[..end].trim();
            rest = &after[end + 1..];
            found = found.into_iter().flat_map(|value| step(value, inner)).collect();
        } else {
            let after = rest.trim_start_matches('.');
            let mut name = String::new();
            let mut chars = after.char_indices().peekable();
            let mut end = after.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => {
                        if let Some((_, c)) = chars.next() {
                            name.push(c);
                        }
                    }
                    '.' | '[' => {
                        end = at;
                        break;
                    }
                    c => name.push(c),
                }
            }
            rest = &after[end..];
            if name.is_empty() {
                continue;
            }
            found = found
                .into_iter()
                .flat_map(
                    |value| if name == "*" { all(value) } else { value.get(&name).into_iter().collect() },
                )
                .collect();
        }
    }
    found.retain(|value| !value.is_null());
    found
}

fn all(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

/// Where the bracket ends, outside quotes and inner brackets.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (Some(_) | None, _) => {}
        }
    }
    None
}

fn step<'v>(value: &'v Value, inner: &str) -> Vec<&'v Value> {
    if inner == "*" {
        return all(value);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        let (left, equal, right) = match filter.split_once("==") {
            Some((left, right)) => (left, true, right),
            None => match filter.split_once("!=") {
                Some((left, right)) => (left, false, right),
                None => (filter, true, ""),
            },
        };
        let path = left.trim().trim_start_matches('@');
        let wanted = right.trim();
        let bare = wanted.trim_matches(|c| c == '"' || c == '\'');
        return all(value)
            .into_iter()
            .filter(|item| {
                let found = json_path(item, path);
                if wanted.is_empty() {
                    return !found.is_empty();
                }
                let same = found.first().is_some_and(|value| plain(value) == bare);
                same == equal
            })
            .collect();
    }
    let bare = inner.trim_matches(|c| c == '"' || c == '\'');
    if bare.len() < inner.len() {
        return value.get(bare).into_iter().collect();
    }
    match (value, inner.parse::<i64>()) {
        (Value::Array(items), Ok(index)) => {
            let index = if index < 0 { items.len() as i64 + index } else { index };
            usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let then = Timestamp::from_second(1_000_000_000).unwrap();
        for (seconds, want) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (3 * 3600 + 300, "3h5m"),
            (47 * 3600, "47h"),
            (2 * 86400 + 3600, "2d1h"),
            (9 * 86400, "9d"),
            (800 * 86400, "2y70d"),
            (-10, "<invalid>"),
        ] {
            let now = Timestamp::from_second(1_000_000_000 + seconds).unwrap();
            assert_eq!(age_text(now, then), want, "{seconds}");
        }
    }

    #[test]
    fn json_paths() {
        let object = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}],
            "a.b": 1, "l": [1, 2]}});
        for (path, want) in [
            (".status.conditions[?(@.type==\"Ready\")].status", vec![json!("True")]),
            (".status.conditions[?(@.type=='Other')].status", vec![json!("False")]),
            (".status.a\\.b", vec![json!(1)]),
            (".status['a.b']", vec![json!(1)]),
            (".status.l[1]", vec![json!(2)]),
            (".status.l[-1]", vec![json!(2)]),
            (".status.l[*]", vec![json!(1), json!(2)]),
            (".status.none.x", vec![]),
        ] {
            let found: Vec<Value> = json_path(&object, path).into_iter().cloned().collect();
            assert_eq!(found, want, "{path}");
        }
    }
}
