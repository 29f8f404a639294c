//! Replacements: values copied from one field to others.

use bytes::Bytes;
use serde_json::Value;

use crate::error::{Context as _, Error, Result};
use crate::id::{Gvk, ResourceId};
use crate::kustomization::{
    FieldOptions, REPLACEMENT, Replacement, ReplacementSource, ReplacementTarget, Selector, decode,
    read_config,
};
use crate::node::{Node, Scalar};
use crate::path::{self, Leaf};
use crate::resource::Resource;
use crate::resources::Resources;
use crate::schema::Schema;
use crate::selector::ResourceSelector;
use crate::shape::{Mode, normalize};

const DEFAULT_PATH: &str = "metadata.name";

/// The entries of `replacements`, those in files read.
#[derive(Debug)]
pub(crate) struct Replacements(Vec<Replacement>);

impl Replacements {
    pub(crate) fn new(entries: &[Replacement], load: &mut dyn FnMut(&str) -> Result<Bytes>) -> Result<Self> {
        let mut list = Vec::with_capacity(entries.len());
        for entry in entries {
            if entry.path.is_empty() {
                list.push(entry.clone());
                continue;
            }
            if entry.source.is_some() || entry.targets.as_ref().is_some_and(|targets| !targets.is_empty()) {
                return Err(Error::message("cannot specify both path and inline replacement"));
            }
            let content = load(&entry.path)?;
            let items = match read_config(&content)? {
                Value::Array(items) => items,
                object @ Value::Object(_) => vec![object],
                _ => {
                    return Err(Error::message(
                        "unsupported replacement type encountered within replacement path: it must hold a map or a list",
                    ));
                }
            };
            for item in items {
                list.push(decode(normalize(item, REPLACEMENT, Mode::Lenient)?)?);
            }
        }
        Ok(Self(list))
    }

    pub(crate) fn apply(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        for replacement in &self.0 {
            let Some(targets) = &replacement.targets else { return Err(incomplete()) };
            let value = match (&replacement.source, &replacement.source_value) {
                (None, None) => return Err(incomplete()),
                (Some(_), Some(_)) => {
                    return Err(Error::message("value and resource selectors are mutually exclusive"));
                }
                (None, Some(text)) => Node::Scalar(Scalar::untyped(text.as_str())),
                (Some(source), None) => source_value(source, resources, schema)?,
            };
            for target in targets {
                replace_in(target, &value, resources, schema)?;
            }
        }
        resources.list_mut();
        resources.drop_empty();
        Ok(())
    }
}

fn incomplete() -> Error {
    Error::message("replacements must specify a source and at least one target")
}

fn all_ids(resource: &Resource, schema: &Schema) -> Vec<ResourceId> {
    std::iter::once(resource.current_id(schema)).chain(resource.previous_ids()).collect()
}

fn source_value(source: &ReplacementSource, resources: &Resources, schema: &Schema) -> Result<Node> {
    let selector = ResourceId {
        gvk: Gvk::new(&source.group, &source.version, &source.kind),
        name: source.name.as_str().into(),
        namespace: source.namespace.as_str().into(),
        cluster_scoped: false,
    };
    let shown = || {
        if source.field_path.is_empty() {
            selector.to_string()
        } else {
            format!("{selector}:{}", source.field_path)
        }
    };
    let mut found = None;
    for resource in resources.list() {
        let selected = all_ids(resource, schema).iter().any(|id| {
            (selector.name.is_empty() || selector.name == id.name)
                && (selector.namespace.is_empty()
                    || selector.effective_namespace() == id.effective_namespace())
                && id.gvk.is_selected_by(&selector.gvk)
        });
        if selected && found.replace(resource).is_some() {
            return Err(Error::message(format!("multiple matches for selector {}", shown())));
        }
    }
    let resource = found.ok_or_else(|| Error::message(format!("nothing selected by {}", shown())))?;
    let field_path = if source.field_path.is_empty() { DEFAULT_PATH } else { &source.field_path };
    let value = path::lookup(&resource.node, &path::split(field_path))
        .context(|| "error looking up replacement source".to_owned())?
        .filter(|value| !value.is_null_or_empty())
        .ok_or_else(|| {
            Error::message(format!("fieldPath `{field_path}` is missing for replacement source {selector}"))
        })?;
    refine(source.options.as_ref(), value)
}

fn refine(options: Option<&FieldOptions>, value: &Node) -> Result<Node> {
    let Some(options) = options.filter(|options| !options.delimiter.is_empty()) else {
        return Ok(value.clone());
    };
    let Node::Scalar(scalar) = value else {
        return Err(Error::message("delimiter option can only be used with scalar nodes"));
    };
    let part = usize::try_from(options.index)
        .ok()
        .and_then(|index| scalar.text.split(options.delimiter.as_str()).nth(index));
    let part = part.ok_or_else(|| {
        Error::message(format!("options.index {} is out of bounds for value {}", options.index, scalar.text))
    })?;
    Ok(Node::Scalar(Scalar::new(part, scalar.tag, scalar.style)))
}

fn has_id_parts(selector: &Selector) -> bool {
    [&selector.group, &selector.version, &selector.kind, &selector.name, &selector.namespace]
        .into_iter()
        .any(|part| !part.is_empty())
}

fn replace_in(
    target: &ReplacementTarget,
    value: &Node,
    resources: &mut Resources,
    schema: &Schema,
) -> Result<()> {
    let Some(select) = &target.select else {
        return Err(Error::message("target must specify resources to select"));
    };
    let selector = ResourceSelector::new(select).context(|| "error creating target selector".to_owned())?;
    let rejects = target
        .reject
        .iter()
        .map(|reject| Ok((has_id_parts(reject), ResourceSelector::new(reject)?)))
        .collect::<Result<Vec<_>>>()
        .context(|| "error creating target selector".to_owned())?;
    let default = [DEFAULT_PATH.to_owned()];
    let field_paths = if target.field_paths.is_empty() { &default[..] } else { &target.field_paths };
    let matches = |selector: &ResourceSelector, id: &ResourceId| {
        selector.matches_gvk(&id.gvk)
            && selector.name.matches(&id.name)
            && selector.namespace.matches(&id.namespace)
    };
    for resource in resources.list_mut() {
        let ids = all_ids(resource, schema);
        if !selector.matches_metadata(&resource.node) || !ids.iter().any(|id| matches(&selector, id)) {
            continue;
        }
        let rejected = rejects.iter().any(|(by_id, reject)| {
            let by_metadata = !reject.labels.is_empty() || !reject.annotations.is_empty();
            (by_metadata && reject.matches_metadata(&resource.node))
                || (*by_id && ids.iter().any(|id| matches(reject, id)))
        });
        if rejected {
            continue;
        }
        for field_path in field_paths {
            write(&mut resource.node, value, field_path, target.options.as_ref())?;
        }
        resource.settle_links();
    }
    Ok(())
}

fn write(object: &mut Node, value: &Node, field_path: &str, options: Option<&FieldOptions>) -> Result<()> {
    let create = options.filter(|options| options.create).map(|_| Leaf::like(value));
    let parts = path::split(field_path);
    if write_structured(object, value, &parts, create).is_some() {
        return Ok(());
    }
    let problem = || {
        let verb = if create.is_some() { "find or create" } else { "find" };
        format!("unable to {verb} field \"{field_path}\" in replacement target")
    };
    let mut failure = None;
    let found = path::visit(object, &parts, create, &mut |node| {
        set(node, value, options).inspect_err(|error| failure = Some(error.clone()))
    });
    match (found, failure) {
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(error.within(problem())),
        (Ok(0), _) => Err(Error::message(problem())),
        (Ok(_), _) => Ok(()),
    }
}

fn set(field: &mut Node, value: &Node, options: Option<&FieldOptions>) -> Result<()> {
    let mut text = value.text().to_owned();
    if let Some(options) = options.filter(|options| !options.delimiter.is_empty()) {
        let Node::Scalar(old) = &*field else {
            return Err(Error::message("delimiter option can only be used with scalar nodes"));
        };
        let new = value.value_text();
        let mut parts: Vec<&str> = old.text.split(options.delimiter.as_str()).collect();
        match usize::try_from(options.index) {
            Err(_) => parts.insert(0, new),
            Ok(index) if index >= parts.len() => parts.push(new),
            Ok(index) => parts[index] = new,
        }
        text = parts.join(&options.delimiter);
    }
    match field {
        // Only the text is replaced: the field keeps its type.
        Node::Scalar(scalar) => scalar.set_text(text),
        other => *other = value.clone(),
    }
    Ok(())
}

/// Writes into a text that holds JSON or YAML; `None` if the path does not lead into one.
fn write_structured(object: &mut Node, value: &Node, parts: &[String], create: Option<Leaf>) -> Option<()> {
    let (scalar_parts, inner_parts) = (1..parts.len()).find_map(|length| {
        let node = path::lookup(object, &parts[..length]).ok()??;
        let scalar = node.as_scalar()?;
        crate::manifest::parse(&scalar.text).ok()?;
        Some((&parts[..length], &parts[length..]))
    })?;
    let original = path::lookup(object, scalar_parts).ok()??.text().to_owned();
    let mut inner = crate::manifest::parse(&original).ok()??;
    let found = path::visit(&mut inner, inner_parts, create, &mut |node| {
        match node {
            Node::Scalar(scalar) => scalar.set_text(value.text()),
            other => *other = value.clone(),
        }
        Ok(())
    });
    if !matches!(found, Ok(count) if count > 0) {
        return None;
    }
    let text = serialize(&inner, &original)?;
    path::visit(object, scalar_parts, None, &mut |node| {
        if let Node::Scalar(scalar) = node {
            scalar.set_text(text.as_str());
        }
        Ok(())
    })
    .ok()?;
    Some(())
}

fn serialize(node: &Node, original: &str) -> Option<String> {
    let value = node.to_json().ok()?;
    let first = original.trim_start().chars().next()?;
    if matches!(first, '{' | '[') {
        let mut text = String::new();
        if original.contains('\n') && original.contains("  ") {
            write_pretty(&value, 0, &mut text);
        } else {
            crate::generator::write_json(&value, &mut text);
        }
        return Some(text);
    }
    Some(crate::yaml::to_text(node).trim().to_owned())
}

fn write_pretty(value: &Value, depth: usize, out: &mut String) {
    let indent = |out: &mut String, depth: usize| {
        out.push('\n');
        for _ in 0..depth {
            out.push_str("  ");
        }
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                indent(out, depth + 1);
                write_pretty(item, depth + 1, out);
            }
            indent(out, depth);
            out.push(']');
        }
        Value::Object(object) if !object.is_empty() => {
            out.push('{');
            for (position, (key, item)) in object.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                indent(out, depth + 1);
                crate::generator::write_json(&Value::String(key.clone()), out);
                out.push_str(": ");
                write_pretty(item, depth + 1, out);
            }
            indent(out, depth);
            out.push('}');
        }
        other => crate::generator::write_json(other, out),
    }
}
