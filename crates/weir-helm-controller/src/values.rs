//! The values of a release, put together from the spec and from ConfigMaps and Secrets. Pure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::{Map, Value as Json};
use weir_api::helm::ValuesReference;
use weir_helm::set::{self, Reader};
use weir_helm::values;

/// What a reference led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The bytes under the key.
    Data(Vec<u8>),
    /// There is no such object, and the reference says that is fine.
    Nothing,
}

/// A reference that cannot be used. The texts are those of the reference implementation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "could not resolve{} {} chart values reference '{namespace}/{}' with key '{}': {reason}",
    if reference.optional { " optional" } else { "" },
    reference.kind,
    reference.name,
    key(reference)
)]
pub struct ReferenceError {
    /// The reference.
    pub reference: Box<ValuesReference>,
    /// The namespace it is in.
    pub namespace: String,
    /// What is wrong.
    pub reason: String,
}

/// The key of a reference.
pub fn key(reference: &ValuesReference) -> &str {
    reference.values_key.as_deref().filter(|key| !key.is_empty()).unwrap_or("values.yaml")
}

/// Puts values together: references in their order, those of the spec over them.
///
/// A value for a path lands in a copy of what was put together so far with the spec over it. Where tables
/// of the spec are in it unchanged they are shared, so that a value put there wins over the spec, and loses
/// elsewhere; users rely on either.
///
/// # Errors
/// A value that does not parse, or does not fit its path.
pub fn compose(
    namespace: &str,
    inline: Option<&Json>,
    references: &[(ValuesReference, Found)],
) -> Result<Map<String, Json>, Box<ReferenceError>> {
    let inline = match inline {
        Some(Json::Object(map)) => map.clone(),
        _ => Map::new(),
    };
    let inline = Node::table(&values_with_floats(inline));
    let mut result = Table::default();
    for (reference, found) in references {
        let Found::Data(data) = found else { continue };
        let failed = |reason: String| {
            Box::new(ReferenceError {
                reference: Box::new(reference.clone()),
                namespace: namespace.to_owned(),
                reason,
            })
        };
        match reference.target_path.as_deref().filter(|path| !path.is_empty()) {
            None => {
                let parsed = values::read(data).map_err(|error| failed(error.to_string()))?;
                result = merge(&result, &Node::table(&parsed));
            }
            Some(path) => {
                result = merge(&result, &inline);
                let text = String::from_utf8_lossy(data);
                put(&result, path, &text, reference.literal).map_err(failed)?;
            }
        }
    }
    Ok(export(&merge(&result, &inline)))
}

/// Numbers of the spec are floats, as all numbers from JSON are in Go.
fn values_with_floats(map: Map<String, Json>) -> Map<String, Json> {
    match values::with_floats(Json::Object(map)) {
        Json::Object(map) => map,
        _ => Map::new(),
    }
}

/// Sets a value at a path.
fn put(table: &Table, path: &str, text: &str, literal: bool) -> Result<(), String> {
    let quoted = |quote: char| text.len() > 1 && text.starts_with(quote) && text.ends_with(quote);
    let (value, reader) = if literal {
        let mut escaped = text.replace('\\', "\\\\");
        for special in [',', '[', ']', '{', '}'] {
            escaped = escaped.replace(special, &format!("\\{special}"));
        }
        (escaped, Reader::Text)
    } else if quoted('\'') || quoted('"') {
        (text.trim_matches(['\'', '"']).to_owned(), Reader::Text)
    } else {
        (text.to_owned(), Reader::Typed)
    };
    let before = export(table);
    let mut after = before.clone();
    set::apply(&mut after, &format!("{path}={value}"), &reader).map_err(|error| error.to_string())?;
    write_back(table, &before, &after);
    Ok(())
}

type Table = Rc<RefCell<BTreeMap<String, Node>>>;
type List = Rc<RefCell<Vec<Node>>>;

/// A tree of values in which tables and lists may be part of several trees.
#[derive(Clone)]
enum Node {
    Table(Table),
    List(List),
    Leaf(Json),
}

impl Node {
    fn of(value: &Json) -> Self {
        match value {
            Json::Object(map) => Self::Table(Self::table(map)),
            Json::Array(items) => Self::List(Rc::new(RefCell::new(items.iter().map(Self::of).collect()))),
            leaf => Self::Leaf(leaf.clone()),
        }
    }

    fn table(map: &Map<String, Json>) -> Table {
        Rc::new(RefCell::new(map.iter().map(|(key, value)| (key.clone(), Self::of(value))).collect()))
    }

    fn export(&self) -> Json {
        match self {
            Self::Table(table) => Json::Object(export(table)),
            Self::List(list) => list.borrow().iter().map(Self::export).collect(),
            Self::Leaf(leaf) => leaf.clone(),
        }
    }
}

fn export(table: &Table) -> Map<String, Json> {
    table.borrow().iter().map(|(key, node)| (key.clone(), node.export())).collect()
}

/// `over` over `base`; tables on both sides are merged into a new one, everything else is shared.
fn merge(base: &Table, over: &Table) -> Table {
    let mut merged = base.borrow().clone();
    for (key, value) in over.borrow().iter() {
        let node = match (merged.get(key), value) {
            (Some(Node::Table(base)), Node::Table(over)) => Node::Table(merge(base, over)),
            _ => value.clone(),
        };
        merged.insert(key.clone(), node);
    }
    Rc::new(RefCell::new(merged))
}

/// Makes the changes from `before` to `after` in a tree that looks like `before`, in place.
fn write_back(table: &Table, before: &Map<String, Json>, after: &Map<String, Json>) {
    for (key, value) in after {
        let old = before.get(key);
        if old == Some(value) {
            continue;
        }
        let node = table.borrow().get(key).cloned();
        let replaced = replacement(node.as_ref(), old, value);
        if let Some(node) = replaced {
            table.borrow_mut().insert(key.clone(), node);
        }
    }
}

/// What takes the place of a node; `None` if the change was made inside it.
fn replacement(node: Option<&Node>, before: Option<&Json>, after: &Json) -> Option<Node> {
    match (node, before, after) {
        (Some(Node::Table(table)), Some(Json::Object(before)), Json::Object(after)) => {
            write_back(table, before, after);
            None
        }
        (Some(Node::List(list)), Some(Json::Array(before)), Json::Array(after))
            if before.len() == after.len() =>
        {
            for (index, value) in after.iter().enumerate().filter(|(index, value)| before[*index] != **value)
            {
                let item = list.borrow()[index].clone();
                if let Some(node) = replacement(Some(&item), before.get(index), value) {
                    list.borrow_mut()[index] = node;
                }
            }
            None
        }
        _ => Some(Node::of(after)),
    }
}

#[cfg(test)]
mod tests;
