//! Values from YAML events, one at a time, so that a large index is never in memory as a whole.

use serde_json::{Map, Number as JsonNumber, Value};
use weir_manifest::event::{Event, EventKind, Parser};
use weir_manifest::{Error, Number, Resolved, resolve_yaml11};

/// Levels of collections in one chart version.
const DEPTH_MAX: usize = 64;

/// Why a text was not read here.
#[derive(Debug)]
pub(super) enum Stop {
    /// The text is broken.
    Broken(Error),
    /// It uses something rare, such as anchors: the general reader must read it.
    Rare,
    /// A key occurs twice in one mapping.
    Duplicate { line: usize, key: String },
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// Reads values from the events of a text.
pub(super) struct Values<'a>(pub(super) Parser<'a>);

impl<'a> Values<'a> {
    /// The next event; one with an anchor, alias or tag is rare.
    pub(super) fn next(&mut self) -> Result<Event<'a>, Stop> {
        let event = self.0.next()?;
        let plain = match &event.kind {
            EventKind::Alias(_) => false,
            EventKind::Scalar { properties, .. }
            | EventKind::SequenceStart { properties, .. }
            | EventKind::MappingStart { properties, .. } => {
                properties.anchor.is_none() && properties.tag.is_none()
            }
            _ => true,
        };
        if plain { Ok(event) } else { Err(Stop::Rare) }
    }

    /// The key an event stands for; `None` at the end of the mapping.
    pub(super) fn key(
        &mut self,
        seen: &mut std::collections::HashSet<String>,
    ) -> Result<Option<String>, Stop> {
        let event = self.next()?;
        match event.kind {
            EventKind::MappingEnd => Ok(None),
            EventKind::Scalar { value, implicit, .. } => {
                // Other keys than strings are turned into strings by rules of their own.
                if value == "<<" || (implicit && resolve_yaml11(&value) != Resolved::String) {
                    return Err(Stop::Rare);
                }
                let key = value.into_owned();
                if !seen.insert(key.clone()) {
                    return Err(Stop::Duplicate { line: self.0.position(event.start).0, key });
                }
                Ok(Some(key))
            }
            _ => Err(Stop::Rare),
        }
    }

    /// The value that begins with the next event.
    pub(super) fn value(&mut self) -> Result<Value, Stop> {
        let event = self.next()?;
        self.value_of(event, 0)
    }

    /// The value that begins with this event.
    pub(super) fn value_of(&mut self, event: Event<'a>, depth: usize) -> Result<Value, Stop> {
        if depth > DEPTH_MAX {
            return Err(Stop::Rare);
        }
        match event.kind {
            EventKind::Scalar { value, implicit, .. } => scalar(value.into_owned(), implicit),
            EventKind::SequenceStart { .. } => {
                let mut items = Vec::new();
                loop {
                    let event = self.next()?;
                    if event.kind == EventKind::SequenceEnd {
                        return Ok(Value::Array(items));
                    }
                    items.push(self.value_of(event, depth + 1)?);
                }
            }
            EventKind::MappingStart { .. } => {
                let mut entries = Map::new();
                let mut seen = std::collections::HashSet::new();
                while let Some(key) = self.key(&mut seen)? {
                    let event = self.next()?;
                    let value = self.value_of(event, depth + 1)?;
                    entries.insert(key, value);
                }
                Ok(Value::Object(entries))
            }
            _ => Err(Stop::Rare),
        }
    }
}

fn scalar(text: String, implicit: bool) -> Result<Value, Stop> {
    if !implicit {
        return Ok(Value::String(text));
    }
    Ok(match resolve_yaml11(&text) {
        Resolved::Null => Value::Null,
        Resolved::Bool(flag) => Value::Bool(flag),
        Resolved::Number(Number::Int(number)) => Value::Number(number.into()),
        Resolved::Number(Number::Uint(number)) => Value::Number(number.into()),
        Resolved::Number(Number::Float(number)) => {
            Value::Number(JsonNumber::from_f64(number).ok_or(Stop::Rare)?)
        }
        Resolved::Timestamp(_) | Resolved::String => Value::String(text),
    })
}
