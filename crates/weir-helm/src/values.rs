//! Values: reading, paths, merging and coalescing.

use std::borrow::Cow;

use serde_json::{Map, Number, Value as Json};

use crate::chart::Chart;

/// A table of values.
pub type Table = Map<String, Json>;

/// The key under which parents pass values to all their subcharts.
pub const GLOBAL: &str = "global";

/// Why values do not fit a chart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValuesError {
    /// What should be the table of a subchart is something else.
    #[error("type mismatch on {name}: {found}")]
    TypeMismatch {
        /// The subchart.
        name: String,
        /// What was found, as Go prints it.
        found: String,
    },
    /// Aliases multiply the charts beyond [`CHARTS_MAX`](crate::dependencies::CHARTS_MAX).
    #[error("chart dependencies stand for more than {} charts", crate::dependencies::CHARTS_MAX)]
    TooManyCharts,
    /// The text is not YAML, or no table.
    #[error("{0}")]
    Yaml(String),
}

/// Turns all numbers into floats, as reading YAML does in Go.
pub fn with_floats(mut value: Json) -> Json {
    make_floats(&mut value);
    value
}

fn make_floats(value: &mut Json) {
    match value {
        Json::Number(number) => {
            if let Some(float) = number.as_f64().and_then(Number::from_f64) {
                *number = float;
            }
        }
        Json::Array(items) => items.iter_mut().for_each(make_floats),
        Json::Object(entries) => entries.values_mut().for_each(make_floats),
        Json::Null | Json::Bool(_) | Json::String(_) => {}
    }
}

fn table_of(document: Json) -> Result<Table, String> {
    match with_floats(document) {
        Json::Object(table) => Ok(table),
        Json::Null => Ok(Table::new()),
        other => {
            let kind = match other {
                Json::Array(_) => "array",
                Json::String(_) => "string",
                Json::Number(_) => "number",
                _ => "bool",
            };
            Err(format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go \
                 value of type map[string]interface {{}}"
            ))
        }
    }
}

fn yaml_error(error: &weir_manifest::Error) -> String {
    format!("error converting YAML to JSON: {}", error.reference_text())
}

/// The values of a text; numbers are floats.
pub fn read(text: &[u8]) -> Result<Table, ValuesError> {
    let document = weir_manifest::read_first_document(text, "", weir_manifest::ReadOptions::default())
        .map_err(|error| ValuesError::Yaml(yaml_error(&error)))?;
    table_of(document).map_err(ValuesError::Yaml)
}

/// The documents of a text, as the readers of Kubernetes split it: at lines of `---`, which blanks or a comment may follow.
/// Empty ones are left out.
pub fn documents(text: &str) -> Result<Vec<&str>, String> {
    let mut documents = Vec::new();
    let mut start = 0;
    for position in memchr::memmem::find_iter(text.as_bytes(), b"---") {
        // Within a line, or on one that has been seen.
        if position < start || (position > 0 && text.as_bytes()[position - 1] != b'\n') {
            continue;
        }
        let end = text[position..].find('\n').map_or(text.len(), |length| position + length + 1);
        let rest = text[position + 3..end].trim();
        if !rest.is_empty() && !rest.starts_with('#') {
            return Err(format!("invalid Yaml document separator: {rest}"));
        }
        documents.push(&text[start..position]);
        start = end;
    }
    documents.push(&text[start..]);
    documents.retain(|document| !document.is_empty());
    Ok(documents)
}

/// The values of a text of several documents, later ones merged over earlier ones: `values.yaml` and the files of
/// `--values`.
pub fn read_stream(text: &[u8]) -> Result<Table, String> {
    let text = std::str::from_utf8(text).map_or_else(|_| String::from_utf8_lossy(text), Cow::Borrowed);
    let documents = documents(&text).map_err(|error| format!("error reading yaml document: {error}"))?;
    let mut values = Table::new();
    for document in documents {
        let document =
            read(document.as_bytes()).map_err(|error| format!("cannot unmarshal yaml document: {error}"))?;
        merge_over(&mut values, document);
    }
    Ok(values)
}

/// Merges `over` into `base`: tables are merged, anything else replaces. This is how several values
/// files combine.
pub fn merge_over(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Json::Object(base)), Json::Object(over)) => merge_over(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// The table at a dotted path.
pub fn table<'v>(values: &'v Table, path: &str) -> Option<&'v Table> {
    path.split('.').try_fold(values, |table, key| table.get(key)?.as_object())
}

/// The value at a dotted path, if it is not a table.
pub fn path_value<'v>(values: &'v Table, path: &str) -> Option<&'v Json> {
    let (parent, key) = match path.rsplit_once('.') {
        Some((parent, key)) => (table(values, parent)?, key),
        None => (values, path),
    };
    parent.get(key).filter(|value| !value.is_object())
}

/// Whether nulls delete keys ([`Mode::Coalesce`]) or stay ([`Mode::Merge`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nulls delete.
    Coalesce,
    /// Nulls stay.
    Merge,
}

/// The values a chart and its subcharts see: those given, completed with the defaults.
pub fn coalesce(chart: &Chart, given: &Table, mode: Mode) -> Result<Table, ValuesError> {
    let mut values = given.clone();
    coalesce_chart(chart, &mut values, mode)?;
    Ok(values)
}

fn coalesce_chart(chart: &Chart, values: &mut Table, mode: Mode) -> Result<(), ValuesError> {
    coalesce_own(chart, values, mode);
    for subchart in &chart.dependencies {
        let name = subchart.name();
        let mut inner = match values.get(name) {
            None => Table::new(),
            Some(Json::Object(_)) => match values.remove(name) {
                Some(Json::Object(table)) => table,
                _ => Table::new(),
            },
            Some(other) => {
                return Err(ValuesError::TypeMismatch { name: name.to_owned(), found: go_bool(other) });
            }
        };
        pass_globals(&mut inner, values);
        let result = coalesce_chart(subchart, &mut inner, mode);
        values.insert(name.to_owned(), Json::Object(inner));
        result?;
    }
    Ok(())
}

/// How `%t` prints something that is no bool.
fn go_bool(value: &Json) -> String {
    let value = crate::render::engine_value(value);
    let text = weir_gotemplate::format::sprintf(b"%t", std::slice::from_ref(&value));
    String::from_utf8_lossy(&text).into_owned()
}

fn coalesce_own(chart: &Chart, values: &mut Table, mode: Mode) {
    for (key, default) in &chart.values {
        match values.get_mut(key) {
            Some(Json::Null) if mode == Mode::Coalesce => {
                values.remove(key);
            }
            Some(Json::Object(given)) => {
                let Json::Object(default) = default else { continue };
                let mut default = default.clone();
                // Nulls in the defaults of a subchart are for the subchart to act on.
                let subchart = chart.dependencies.iter().any(|subchart| subchart.name() == key);
                let mode = if subchart { Mode::Merge } else { mode };
                if mode == Mode::Coalesce {
                    remove_nulls(&mut default);
                }
                coalesce_tables(given, default, mode);
            }
            Some(_) => {}
            None => {
                let mut default = default.clone();
                if mode == Mode::Coalesce {
                    match &mut default {
                        Json::Null => continue,
                        Json::Object(table) => remove_nulls(table),
                        _ => {}
                    }
                }
                values.insert(key.clone(), default);
            }
        }
    }
}

fn remove_nulls(table: &mut Table) {
    table.retain(|_, value| match value {
        Json::Null => false,
        Json::Object(inner) => {
            remove_nulls(inner);
            true
        }
        _ => true,
    });
}

/// Completes `target` from `source`. A null in `target` deletes the key if `source` has a value for it
/// and nulls delete; otherwise it stays.
pub fn coalesce_tables(target: &mut Table, source: Table, mode: Mode) {
    for (key, value) in source {
        match target.get_mut(&key) {
            None => {
                target.insert(key, value);
            }
            Some(Json::Null) => {
                if mode == Mode::Coalesce && !value.is_null() {
                    target.remove(&key);
                }
            }
            Some(Json::Object(inner)) => {
                if let Json::Object(value) = value {
                    coalesce_tables(inner, value, mode);
                }
            }
            Some(_) => {}
        }
    }
}

/// Gives the globals of a parent to a subchart; the parent's win.
fn pass_globals(target: &mut Table, parent: &Table) {
    let mut globals = match target.get(GLOBAL) {
        None => Table::new(),
        Some(Json::Object(globals)) => globals.clone(),
        Some(_) => return,
    };
    let empty = Table::new();
    let given = match parent.get(GLOBAL) {
        None => &empty,
        Some(Json::Object(given)) => given,
        Some(_) => return,
    };
    for (key, value) in given {
        match (value, globals.get(key)) {
            (Json::Object(value), Some(Json::Object(own))) => {
                let mut merged = value.clone();
                coalesce_tables(&mut merged, own.clone(), Mode::Merge);
                globals.insert(key.clone(), Json::Object(merged));
            }
            (Json::Object(value), None) => {
                globals.insert(key.clone(), Json::Object(value.clone()));
            }
            (Json::Object(_), Some(_)) | (_, Some(Json::Object(_))) => {}
            (value, _) => {
                globals.insert(key.clone(), value.clone());
            }
        }
    }
    target.insert(GLOBAL.to_owned(), Json::Object(globals));
}
