//! Vars: `$(NAME)` in selected fields, replaced by values of other objects.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::fieldspec::FieldSpec;
use crate::id::{Gvk, ResourceId, split_api_version};
use crate::kustomization::Var;
use crate::node::{Node, Scalar, Style, Tag};
use crate::path;
use crate::resources::Resources;
use crate::scalar::{self, Resolved};
use crate::schema::Schema;

/// Binds each var to the object it names among those of this layer.
///
/// # Errors
/// Several objects fit.
pub(crate) fn bind(resources: &mut Resources, vars: &[Var], schema: &Schema) -> Result<()> {
    for var in vars {
        let target = &var.objref;
        let gvk = if target.api_version.is_empty() {
            Gvk::new(&target.group, &target.version, &target.kind)
        } else {
            let (group, version) = split_api_version(&target.api_version);
            Gvk::new(group, version, &target.kind)
        };
        let id = ResourceId::new(gvk, &target.name, &target.namespace, schema);
        let exact = !id.namespace.is_empty() || id.cluster_scoped;
        let fits = |other: &ResourceId| {
            if exact { id.equals(other) } else { id.same_kind_and_name(other) }
        };
        let found: Vec<usize> = resources
            .list()
            .iter()
            .enumerate()
            .filter(|(_, resource)| {
                !resource.is_empty()
                    && (fits(&resource.current_id(schema)) || resource.previous_ids().any(|id| fits(&id)))
            })
            .map(|(position, _)| position)
            .collect();
        match found.as_slice() {
            [] => {}
            [position] => {
                resources.list_mut_same_ids()[*position].vars.push(var.name.clone());
            }
            many => {
                return Err(Error::message(format!(
                    "found {} resId matches for var {} (unable to disambiguate)",
                    many.len(),
                    var.name
                )));
            }
        }
    }
    Ok(())
}

/// Adds vars; each name may occur once in the whole tree.
pub(crate) fn merge(all: &mut Vec<Var>, new: &[Var]) -> Result<()> {
    for var in new {
        if all.iter().any(|old| old.name == var.name) {
            return Err(Error::message(format!("var '{}' already encountered", var.name)));
        }
        all.push(var.clone());
    }
    Ok(())
}

#[derive(Debug, Clone)]
enum Value {
    Text(String),
    Int(String),
    Bool(bool),
    Float(f64),
    /// Not a scalar: left as it is.
    Other,
}

/// Replaces the vars in all fields of the table.
pub(crate) fn resolve(
    resources: &mut Resources,
    vars: &[Var],
    table: &[FieldSpec],
    schema: &Schema,
) -> Result<()> {
    if vars.is_empty() {
        return Ok(());
    }
    let _ = schema;
    let mut values = HashMap::new();
    for var in vars {
        let resource =
            resources.list().iter().find(|resource| resource.vars.contains(&var.name)).ok_or_else(|| {
                Error::message(format!(
                    "var '{}' cannot be mapped to a field in the set of known resources",
                    var.name
                ))
            })?;
        let field_path =
            if var.fieldref.field_path.is_empty() { "metadata.name" } else { &var.fieldref.field_path };
        let parts = path::split_indices(path::split(field_path));
        let node = path::lookup(&resource.node, &parts).ok().flatten().ok_or_else(|| {
            Error::message(format!(
                "field specified in var '{}' not found in corresponding resource",
                var.name
            ))
        })?;
        values.insert(var.name.clone(), value_of(node));
    }
    for resource in resources.list_mut() {
        for spec in table {
            spec.visit(&mut resource.node, None, &mut |node| replace(node, &values))?;
        }
        resource.settle_links();
    }
    Ok(())
}

fn value_of(node: &Node) -> Value {
    let Node::Scalar(scalar) = node else { return Value::Other };
    match scalar.tag {
        Tag::Int => Value::Int(scalar.text.to_string()),
        Tag::Bool => Value::Bool(scalar.text.eq_ignore_ascii_case("true")),
        Tag::Float => match scalar::resolve(&scalar.text) {
            Resolved::Float(number) => Value::Float(number),
            _ => Value::Text(scalar.text.to_string()),
        },
        _ => Value::Text(scalar.text.to_string()),
    }
}

fn replace(node: &mut Node, values: &HashMap<String, Value>) -> Result<()> {
    match node {
        Node::Scalar(scalar) => {
            if is_string(scalar) {
                expand_into(scalar, values);
            }
        }
        Node::Map(map) => {
            for (key, value) in map.entries_mut() {
                if !is_string(key) {
                    return Err(Error::message(format!("invalid map key: value='{}'", key.text)));
                }
                if let Node::Scalar(scalar) = value
                    && is_string(scalar)
                {
                    expand_into(scalar, values);
                }
            }
        }
        Node::List(items) => {
            for item in items {
                match item {
                    Node::Scalar(scalar) if is_string(scalar) => expand_into(scalar, values),
                    _ => return Err(Error::message("invalid value type expect a string")),
                }
            }
        }
    }
    Ok(())
}

fn is_string(scalar: &Scalar) -> bool {
    matches!(scalar.tag, Tag::String | Tag::Unset)
}

fn expand_into(scalar: &mut Scalar, values: &HashMap<String, Value>) {
    let (text, tag) = match expand(&scalar.text, values) {
        Value::Text(text) => (text, Tag::String),
        Value::Int(text) => (text, Tag::Int),
        Value::Bool(flag) => (flag.to_string(), Tag::Bool),
        Value::Float(number) => (number.to_string(), Tag::Float),
        Value::Other => return,
    };
    scalar.replace(Scalar::new(text, tag, Style::Plain));
}

/// Expands `$(NAME)`; a text that is nothing else takes the type of the value.
fn expand(text: &str, values: &HashMap<String, Value>) -> Value {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find('$') {
        result.push_str(&rest[..position]);
        rest = &rest[position + 1..];
        let Some(next) = rest.chars().next() else {
            result.push('$');
            break;
        };
        match (next, rest.find(')')) {
            ('$', _) => {
                result.push('$');
                rest = &rest[1..];
            }
            ('(', Some(end)) => {
                let name = &rest[1..end];
                let value = values.get(name).filter(|value| !matches!(value, Value::Other));
                match value {
                    Some(value) if text.len() == name.len() + 3 => return value.clone(),
                    Some(value) => result.push_str(&shown(value)),
                    None => {
                        result.push_str("$(");
                        result.push_str(name);
                        result.push(')');
                    }
                }
                rest = &rest[end + 1..];
            }
            ('(', None) => {
                result.push_str("$(");
                rest = &rest[1..];
            }
            (other, _) => {
                result.push('$');
                result.push(other);
                rest = &rest[other.len_utf8()..];
            }
        }
    }
    result.push_str(rest);
    Value::Text(result)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Int(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Float(number) => scalar::format_general(*number),
        Value::Other => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let values = HashMap::from([("A".to_owned(), Value::Text("x".to_owned()))]);
        assert_eq!(shown(&expand(text, &values)), expected);
    }

    #[test]
    fn expansion() {
        check("a$(A)b", "axb");
        check("$(A)", "x");
        check("$$(A)", "$(A)");
        check("$(B) $(A", "$(B) $(A");
        check("100$", "100$");
        check("$x $(A)", "$x x");
    }
}
