//! The index of a chart repository: read with little memory, kept as JSON.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::ops::Range;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use weir_base::version::Version;
use weir_manifest::event::{Dialect, EventKind, Parser, Properties};

use super::entry::{self, Entry, Form};
use super::yaml::{Stop, Values};

/// Why an index cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// There is nothing in it.
    #[error("empty index.yaml file")]
    Empty,
    /// It does not say which version of the format it has.
    #[error("no API version specified")]
    NoApiVersion,
    /// It is not YAML.
    #[error("error converting YAML to JSON: {0}")]
    Yaml(String),
    /// It is not an index.
    #[error("error unmarshaling JSON: while decoding JSON: {0}")]
    Content(String),
}

/// An index: what is needed of it to write it in order.
///
/// Each chart version is one piece of finished text; nothing else is kept of it but its version number.
#[derive(Debug, Default)]
pub struct Index {
    server_info: Map<String, Value>,
    api_version: String,
    generated: String,
    charts: Option<BTreeMap<String, Vec<Piece>>>,
    public_keys: Vec<String>,
    annotations: Map<String, Value>,
    text: String,
}

#[derive(Debug)]
struct Piece {
    range: Range<usize>,
    version: Version,
}

/// The levels of indentation of a chart version.
const DEPTH: usize = 3;

impl Index {
    /// Reads an index in JSON or YAML. Chart versions that break a rule of charts are left out.
    ///
    /// # Errors
    /// Broken texts, fields of a wrong type and, in YAML, unknown fields and keys that occur twice.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        if bytes.is_empty() {
            return Err(IndexError::Empty);
        }
        let mut index = Self { generated: String::new(), ..Self::default() };
        let looks_like_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        if looks_like_json && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
            index.read_json(bytes)?;
        } else {
            index.read_yaml(bytes)?;
        }
        if index.api_version.is_empty() {
            return Err(IndexError::NoApiVersion);
        }
        if index.generated.is_empty() {
            index.generated = entry::time(&Value::Null, "generated").map_err(IndexError::Content)?;
        }
        for pieces in index.charts.iter_mut().flat_map(BTreeMap::values_mut) {
            pieces.sort_by(|left, right| right.version.cmp(&left.version));
        }
        Ok(index)
    }

    /// How many chart versions there are.
    pub fn len(&self) -> usize {
        self.charts.iter().flat_map(BTreeMap::values).map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the index as JSON, byte for byte as Helm's libraries do.
    pub fn write(&self, output: &mut dyn Write) -> io::Result<()> {
        let mut head = String::from("{");
        if !self.server_info.is_empty() {
            head.push_str("\n  \"serverInfo\": ");
            entry::write_value(&mut head, &Value::Object(self.server_info.clone()), 1);
            head.push(',');
        }
        head.push_str("\n  \"apiVersion\": ");
        entry::write_text(&mut head, &self.api_version);
        head.push_str(",\n  \"generated\": ");
        entry::write_text(&mut head, &self.generated);
        head.push_str(",\n  \"entries\": ");
        output.write_all(head.as_bytes())?;
        self.write_charts(output)?;
        let mut tail = String::new();
        if !self.public_keys.is_empty() {
            tail.push_str(",\n  \"publicKeys\": ");
            let keys = self.public_keys.iter().cloned().map(Value::String).collect();
            entry::write_value(&mut tail, &Value::Array(keys), 1);
        }
        if !self.annotations.is_empty() {
            tail.push_str(",\n  \"annotations\": ");
            entry::write_value(&mut tail, &Value::Object(self.annotations.clone()), 1);
        }
        tail.push_str("\n}");
        output.write_all(tail.as_bytes())
    }

    fn write_charts(&self, output: &mut dyn Write) -> io::Result<()> {
        let Some(charts) = &self.charts else { return output.write_all(b"null") };
        if charts.is_empty() {
            return output.write_all(b"{}");
        }
        let mut separator = "{\n    ";
        for (name, pieces) in charts {
            let mut key = String::from(separator);
            separator = ",\n    ";
            entry::write_text(&mut key, name);
            key.push_str(": ");
            output.write_all(key.as_bytes())?;
            if pieces.is_empty() {
                output.write_all(b"[]")?;
                continue;
            }
            let mut before = "[\n      ";
            for piece in pieces {
                output.write_all(before.as_bytes())?;
                output.write_all(&self.text.as_bytes()[piece.range.clone()])?;
                before = ",\n      ";
            }
            output.write_all(b"\n    ]")?;
        }
        output.write_all(b"\n  }")
    }

    /// Takes in one chart version; null ones are left out.
    fn add(&mut self, chart: &str, value: Value, form: Form) -> Result<(), String> {
        let pieces = self.charts.get_or_insert_default();
        if !pieces.contains_key(chart) {
            pieces.insert(chart.to_owned(), Vec::new());
        }
        if value.is_null() {
            return Ok(());
        }
        if let Entry::Valid { version, fields } = entry::read(value, form)?
            && let Some(pieces) = pieces.get_mut(chart)
        {
            let start = self.text.len();
            entry::write_fields(&mut self.text, &fields, DEPTH);
            pieces.push(Piece { range: start..self.text.len(), version });
        }
        Ok(())
    }

    /// Takes in a field other than the charts. `false` if there is no such field.
    fn set(&mut self, name: &str, value: Value, form: Form) -> Result<bool, String> {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if is("apiVersion") {
            self.api_version = entry::text(value, form, "apiVersion")?;
        } else if is("generated") {
            self.generated = entry::time(&value, "generated")?;
        } else if is("serverInfo") {
            self.server_info = object(value, "serverInfo")?;
        } else if is("publicKeys") {
            self.public_keys = match value {
                Value::Null => Vec::new(),
                Value::Array(items) => items
                    .into_iter()
                    .map(|item| entry::text(item, form, "publicKeys"))
                    .collect::<Result<_, _>>()?,
                _ => return Err("json: cannot unmarshal value into field publicKeys".to_owned()),
            };
        } else if is("annotations") {
            self.annotations = object(value, "annotations")?
                .into_iter()
                .map(|(key, value)| Ok((key, Value::String(entry::text(value, form, "annotations")?))))
                .collect::<Result<_, String>>()?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn read_json(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        Top(self).deserialize(&mut reader).map_err(|error| {
            // Where it was found says nothing to people who have not written the index.
            let text = error.to_string();
            let text = text.split(" at line ").next().unwrap_or(&text).to_owned();
            IndexError::Content(text)
        })
    }

    fn read_yaml(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| IndexError::Yaml("yaml: invalid leading UTF-8 octet".to_owned()))?;
        // Documents behind the first do not count.
        match self.read_events(text) {
            Ok(()) => Ok(()),
            Err(Failure::Content(text)) => Err(IndexError::Content(text)),
            Err(Failure::Stop(Stop::Broken(error))) => Err(IndexError::Yaml(error.reference_text())),
            Err(Failure::Stop(Stop::Duplicate { line, key })) => Err(IndexError::Yaml(format!(
                "yaml: unmarshal errors:\n  line {line}: key {key:?} already set in map"
            ))),
            Err(Failure::Stop(Stop::Rare)) => {
                *self = Self::default();
                self.read_whole(bytes)
            }
        }
    }

    fn read_events(&mut self, text: &str) -> Result<(), Failure> {
        let mut values = Values(Parser::new(text, Dialect::V2));
        loop {
            match values.next()?.kind {
                EventKind::DocumentStart => break,
                EventKind::StreamEnd => return Ok(()),
                _ => {}
            }
        }
        let EventKind::MappingStart { .. } = values.next()?.kind else { return Err(Stop::Rare.into()) };
        let mut seen = HashSet::new();
        while let Some(name) = values.key(&mut seen)? {
            if name.eq_ignore_ascii_case("entries") {
                self.read_charts(&mut values)?;
            } else {
                let value = values.value()?;
                if !self.set(&name, value, Form::Yaml).map_err(Failure::Content)? {
                    return Err(Failure::Content(format!("json: unknown field {name:?}")));
                }
            }
        }
        // The end of the document, so that broken texts behind it are found.
        values.next()?;
        Ok(())
    }

    fn read_charts(&mut self, values: &mut Values<'_>) -> Result<(), Failure> {
        let event = values.next()?;
        if event.kind != (EventKind::MappingStart { properties: Properties::default(), flow: false }) {
            let value = values.value_of(event, 0)?;
            return self.add_all(value).map_err(Failure::Content);
        }
        self.charts.get_or_insert_default();
        let mut seen = HashSet::new();
        while let Some(chart) = values.key(&mut seen)? {
            let event = values.next()?;
            if !matches!(event.kind, EventKind::SequenceStart { .. }) {
                let value = values.value_of(event, 0)?;
                self.add_chart(&chart, value).map_err(Failure::Content)?;
                continue;
            }
            self.add(&chart, Value::Null, Form::Yaml).map_err(Failure::Content)?;
            loop {
                let event = values.next()?;
                if event.kind == EventKind::SequenceEnd {
                    break;
                }
                let value = values.value_of(event, 0)?;
                self.add(&chart, value, Form::Yaml).map_err(Failure::Content)?;
            }
        }
        Ok(())
    }

    fn read_whole(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        let options = weir_manifest::ReadOptions { strict: true };
        let document = weir_manifest::read_first_document(bytes, "", options)
            .map_err(|error| IndexError::Yaml(error.reference_text()))?;
        let fields = match document {
            Value::Null => return Ok(()),
            document => object(document, "IndexFile").map_err(IndexError::Content)?,
        };
        for (name, value) in fields {
            let known = if name.eq_ignore_ascii_case("entries") {
                self.add_all(value).map(|()| true)
            } else {
                self.set(&name, value, Form::Yaml)
            };
            if !known.map_err(IndexError::Content)? {
                return Err(IndexError::Content(format!("json: unknown field {name:?}")));
            }
        }
        Ok(())
    }

    fn add_all(&mut self, value: Value) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        self.charts.get_or_insert_default();
        for (chart, versions) in object(value, "entries")? {
            self.add_chart(&chart, versions)?;
        }
        Ok(())
    }

    fn add_chart(&mut self, chart: &str, value: Value) -> Result<(), String> {
        self.add(chart, Value::Null, Form::Yaml)?;
        match value {
            Value::Null => Ok(()),
            Value::Array(versions) => {
                versions.into_iter().try_for_each(|version| self.add(chart, version, Form::Yaml))
            }
            _ => Err("json: cannot unmarshal value into field entries of type repo.ChartVersions".to_owned()),
        }
    }
}

enum Failure {
    Stop(Stop),
    Content(String),
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

fn object(value: Value, field: &str) -> Result<Map<String, Value>, String> {
    match value {
        Value::Null => Ok(Map::new()),
        Value::Object(map) => Ok(map),
        _ => Err(format!("json: cannot unmarshal value into field {field}")),
    }
}

/// Reads the object at the top of a JSON index.
struct Top<'i>(&'i mut Index);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an index")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            if name.eq_ignore_ascii_case("entries") {
                fields.next_value_seed(Charts(self.0))?;
            } else {
                let value = fields.next_value()?;
                self.0.set(&name, value, Form::Json).map_err(de::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// Reads the map of charts of a JSON index.
struct Charts<'i>(&'i mut Index);

impl<'de> DeserializeSeed<'de> for Charts<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Charts<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("charts by name")
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: de::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut charts: A) -> Result<(), A::Error> {
        self.0.charts.get_or_insert_default();
        while let Some(chart) = charts.next_key::<String>()? {
            // The last of two charts of one name counts.
            self.0.charts.get_or_insert_default().insert(chart.clone(), Vec::new());
            charts.next_value_seed(Versions { index: self.0, chart })?;
        }
        Ok(())
    }
}

/// Reads the versions of one chart of a JSON index.
struct Versions<'i> {
    index: &'i mut Index,
    chart: String,
}

impl<'de> DeserializeSeed<'de> for Versions<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Versions<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("chart versions")
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: de::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut versions: A) -> Result<(), A::Error> {
        while let Some(value) = versions.next_element::<OneVersion>()? {
            self.index.add(&self.chart, value.0, Form::Json).map_err(de::Error::custom)?;
        }
        Ok(())
    }
}

struct OneVersion(Value);

impl<'de> de::Deserialize<'de> for OneVersion {
    fn deserialize<D: de::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        Value::deserialize(reader).map(Self)
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
