//! Field specs: which fields of which kinds a transformer touches, and how fields are found and made.

use crate::error::{Context as _, Error, Result};
use crate::id::{Gvk, ResourceId};
use crate::node::{Map, Node, Scalar, Style, Tag, Text};

/// One field of the selected kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldSpec {
    pub(crate) gvk: Gvk,
    pub(crate) path: String,
    pub(crate) create: bool,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    name: Text,
    /// Written with `[]`: never created.
    list: bool,
}

/// What is put at the end of a path that does not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Create {
    Map,
    Scalar(Tag),
}

impl FieldSpec {
    pub(crate) fn new(gvk: Gvk, path: &str, create: bool) -> Self {
        let segments = split_path(path)
            .into_iter()
            .map(|name| match name.strip_suffix("[]") {
                Some(name) => Segment { name: name.into(), list: true },
                None => Segment { name: name.into(), list: false },
            })
            .collect();
        Self { gvk, path: path.to_owned(), create, segments }
    }

    /// Calls `set` on every node the path leads to, making missing fields when allowed.
    pub(crate) fn visit(
        &self,
        object: &mut Node,
        create: Option<Create>,
        set: &mut dyn FnMut(&mut Node) -> Result<()>,
    ) -> Result<()> {
        if !Gvk::of(object).is_selected_by(&self.gvk) {
            return Ok(());
        }
        self.visit_selected(object, create, set)
    }

    /// Like [`Self::visit`] for an object already known to be selected.
    pub(crate) fn visit_selected(
        &self,
        object: &mut Node,
        create: Option<Create>,
        set: &mut dyn FnMut(&mut Node) -> Result<()>,
    ) -> Result<()> {
        let create = create.filter(|_| self.create);
        let result = visit(object, &self.segments, create, set);
        result.map_err(|error| {
            error.within(format!("considering field '{}' of object {}", self.path, plain_id(object)))
        })
    }
}

/// The id of an object in error texts.
fn plain_id(object: &Node) -> ResourceId {
    let text = |field: &str| {
        object.get("metadata").and_then(|metadata| metadata.get(field)).map_or("", Node::value_text)
    };
    ResourceId {
        gvk: Gvk::of(object),
        name: text("name").into(),
        namespace: text("namespace").into(),
        cluster_scoped: false,
    }
}

fn visit(
    node: &mut Node,
    path: &[Segment],
    create: Option<Create>,
    set: &mut dyn FnMut(&mut Node) -> Result<()>,
) -> Result<()> {
    let Some((segment, rest)) = path.split_first() else { return set(node) };
    match node {
        Node::Scalar(scalar) if scalar.is_null() => Ok(()),
        Node::Scalar(_) => Err(Error::message("expected sequence or mapping node")),
        Node::List(items) => {
            for item in items {
                visit(item, path, create, set).context(|| {
                    let names: Vec<&str> = path.iter().map(|part| part.name.as_str()).collect();
                    format!("visit traversal on path: [{}]", names.join(" "))
                })?;
            }
            Ok(())
        }
        Node::Map(map) => {
            if segment.name.is_empty() {
                return Err(Error::message("cannot set or create an empty field name"));
            }
            let wanted = match create {
                Some(_) if segment.list => None,
                Some(create) if rest.is_empty() => Some(create),
                Some(_) => Some(Create::Map),
                None => None,
            };
            let position = match (map.position(&segment.name), wanted) {
                (Some(position), _) => position,
                (None, Some(wanted)) => {
                    map.push(segment.name.clone(), fresh(wanted));
                    map.len() - 1
                }
                (None, None) => return Ok(()),
            };
            let field = map.at_mut(position);
            if field.is_null() {
                if let Some(wanted) = wanted {
                    *field = fresh(wanted);
                } else if segment.list {
                    *field = Node::List(Vec::new());
                }
            }
            visit(field, rest, create, set)
        }
    }
}

fn fresh(create: Create) -> Node {
    match create {
        Create::Map => Node::Map(Map::default()),
        Create::Scalar(tag) => Node::Scalar(Scalar::new(Text::default(), tag, Style::Plain)),
    }
}

/// Splits at `/`; `\/` is a slash within a name, and a leading slash is ignored.
pub(crate) fn split_path(path: &str) -> Vec<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut parts: Vec<String> = Vec::new();
    for part in path.split('/') {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push('/');
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

/// A table of field specs.
pub(crate) type FieldSpecs = Vec<FieldSpec>;

/// Adds `new` unless an entry already covers it.
///
/// # Errors
/// The covering entry says differently whether the field may be made.
pub(crate) fn merge_one(table: &mut FieldSpecs, new: &FieldSpec) -> Result<()> {
    let same = table.iter().find(|old| old.path == new.path && old.gvk.is_selected_by(&new.gvk));
    match same {
        Some(old) if old.create != new.create => Err(Error::message("conflicting fieldspecs")),
        Some(_) => Ok(()),
        None => {
            table.push(new.clone());
            Ok(())
        }
    }
}

/// Adds all entries of `new`; see [`merge_one`].
pub(crate) fn merge_all(table: &mut FieldSpecs, new: &[FieldSpec]) -> Result<()> {
    new.iter().try_for_each(|spec| merge_one(table, spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_slashes_stay_in_the_name() {
        assert_eq!(
            split_path("metadata/annotations/ingress.kubernetes.io\\/auth-secret"),
            ["metadata", "annotations", "ingress.kubernetes.io/auth-secret"]
        );
        assert_eq!(split_path("/spec/containers[]/image"), ["spec", "containers[]", "image"]);
    }
}
