//! Sets of fields and their `FieldsV1` notation.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathElement {
    /// The field of an object.
    Field(Box<str>),
    /// The element of a list that has these values in its key fields.
    Key(Vec<(Box<str>, Value)>),
    /// The element of a set.
    Value(Value),
    /// The element at a place.
    Index(usize),
}

impl PathElement {
    pub(crate) fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// As a key of `FieldsV1`.
    fn notation(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let map: Map<String, Value> =
                    keys.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
                format!("k:{}", Value::Object(map))
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_at_checked(2)?;
        Some(match kind {
            "f:" => Self::Field(rest.into()),
            "k:" => {
                let Value::Object(map) = serde_json::from_str(rest).ok()? else { return None };
                Self::Key(map.into_iter().map(|(name, value)| (name.into(), value)).collect())
            }
            "v:" => Self::Value(serde_json::from_str(rest).ok()?),
            "i:" => Self::Index(rest.parse().ok()?),
            _ => return None,
        })
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                f.write_char('[')?;
                for (place, (name, value)) in keys.iter().enumerate() {
                    let comma = if place == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={value}")?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Key(a), Self::Key(b)) => {
                for ((name_a, value_a), (name_b, value_b)) in a.iter().zip(b) {
                    let order = name_a.cmp(name_b).then_with(|| compare_values(value_a, value_b));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// A total order of JSON values: numbers by value, everything else by its type first.
pub(crate) fn compare_values(a: &Value, b: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Null => 3,
            Value::Array(_) => 4,
            Value::Object(_) => 5,
        }
    }
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            for (a, b) in a.iter().zip(b) {
                let order = compare_values(a, b);
                if order != Ordering::Equal {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        (Value::Object(_), Value::Object(_)) => a.to_string().cmp(&b.to_string()),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// A set of fields: of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// What the set has at this level.
    pub(crate) members: BTreeSet<PathElement>,
    /// What it has below. No child is empty.
    pub(crate) children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Adds a path of field names.
    pub(crate) fn insert_fields(&mut self, path: &[&str]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(PathElement::field(last));
            }
            [first, rest @ ..] => {
                self.children.entry(PathElement::field(first)).or_default().insert_fields(rest);
            }
        }
    }

    pub(crate) fn has(&self, element: &PathElement) -> bool {
        self.members.contains(element)
    }

    /// Puts the set of what is below an element in place, unless it is empty.
    pub(crate) fn attach(&mut self, element: &PathElement, below: FieldSet) {
        if !below.is_empty() {
            self.children.insert(element.clone(), below);
        }
    }

    pub(crate) fn union(mut self, other: &FieldSet) -> FieldSet {
        self.extend(other);
        self
    }

    pub(crate) fn extend(&mut self, other: &FieldSet) {
        self.members.extend(other.members.iter().cloned());
        for (element, below) in &other.children {
            match self.children.get_mut(element) {
                Some(mine) => mine.extend(below),
                None => {
                    self.children.insert(element.clone(), below.clone());
                }
            }
        }
    }

    /// What is in this set and not in the other, path by path.
    pub(crate) fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet {
            members: self.members.difference(&other.members).cloned().collect(),
            children: BTreeMap::new(),
        };
        for (element, below) in &self.children {
            match other.children.get(element) {
                Some(minus) => out.attach(element, below.difference(minus)),
                None => {
                    out.children.insert(element.clone(), below.clone());
                }
            }
        }
        out
    }

    /// As [`FieldSet::difference`], where a path of the other set also takes all that is below it.
    pub(crate) fn recursive_difference(&self, other: &FieldSet) -> FieldSet {
        if other.is_empty() {
            return self.clone();
        }
        let mut out = FieldSet {
            members: self.members.difference(&other.members).cloned().collect(),
            children: BTreeMap::new(),
        };
        for (element, below) in &self.children {
            if other.members.contains(element) {
                continue;
            }
            match other.children.get(element) {
                Some(minus) => out.attach(element, below.recursive_difference(minus)),
                None => {
                    out.children.insert(element.clone(), below.clone());
                }
            }
        }
        out
    }

    /// Whether the other set has all paths of this one.
    pub(crate) fn is_within(&self, other: &FieldSet) -> bool {
        self.members.is_subset(&other.members)
            && self.children.iter().all(|(element, below)| {
                other.children.get(element).is_some_and(|theirs| below.is_within(theirs))
            })
    }

    /// Takes out the paths of the other set.
    pub(crate) fn subtract(&mut self, other: &FieldSet) {
        if !other.is_empty() {
            *self = self.difference(other);
        }
    }

    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: BTreeMap::new(),
        };
        for (element, below) in &self.children {
            if let Some(theirs) = other.children.get(element) {
                out.attach(element, below.intersection(theirs));
            }
        }
        out
    }

    /// All paths as text, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect(&mut String::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut String, out: &mut Vec<String>) {
        for member in &self.members {
            out.push(format!("{prefix}{member}"));
        }
        for (element, below) in &self.children {
            let length = prefix.len();
            let _ = write!(prefix, "{element}");
            below.collect(prefix, out);
            prefix.truncate(length);
        }
    }

    /// As `fieldsV1`.
    pub(crate) fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (element, below) in &self.children {
            let mut node = below.to_json();
            if let (true, Value::Object(node)) = (self.members.contains(element), &mut node) {
                node.insert(".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(element.notation(), node);
        }
        for member in &self.members {
            if !self.children.contains_key(member) {
                out.insert(member.notation(), Value::Object(Map::new()));
            }
        }
        Value::Object(out)
    }

    /// From `fieldsV1`; `None` when a part of it cannot be read.
    pub(crate) fn from_json(value: &Value) -> Option<FieldSet> {
        let mut out = FieldSet::default();
        for (text, node) in value.as_object()? {
            if text == "." {
                continue;
            }
            let element = PathElement::parse(text)?;
            let below = FieldSet::from_json(node)?;
            if below.is_empty() || node.get(".").is_some() {
                out.members.insert(element.clone());
            }
            out.attach(&element, below);
        }
        Some(out)
    }
}
