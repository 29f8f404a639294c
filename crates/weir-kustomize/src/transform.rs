//! The transformers: each a value that was configured before any of them runs.

mod image;
mod metadata;
mod namespace;
mod patch;

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::fieldspec::{Create, FieldSpecs};
use crate::id::{Gvk, ResourceId};
use crate::kustomization::{Image, Replica};
use crate::node::Tag;
use crate::replacement::Replacements;
use crate::resource::Resource;
use crate::resources::Resources;
use crate::schema::Schema;

pub(crate) use image::ImageName;
pub(crate) use namespace::{NamespaceOptions, SubjectMode};
pub(crate) use patch::{JsonTarget, Patches, StrategicMerges};

/// Which end of the name is extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Affix {
    Prefix,
    Suffix,
}

/// A configured transformer.
#[derive(Debug)]
pub(crate) enum Transformer {
    StrategicMerge(StrategicMerges),
    Patch(Box<Patches>),
    Namespace(NamespaceOptions),
    Name { affix: Affix, text: String, specs: FieldSpecs },
    Labels { labels: BTreeMap<String, String>, specs: FieldSpecs },
    Annotations { annotations: BTreeMap<String, String>, specs: FieldSpecs },
    Json(Box<JsonTarget>),
    Replicas { replica: Replica, specs: FieldSpecs },
    Image { image: Image, name: ImageName, specs: FieldSpecs },
    Replacements(Replacements),
    ValueAdd(crate::plugin::ValueAdd),
    Hash,
}

impl Transformer {
    /// Applies the transformer to all resources it selects.
    pub(crate) fn apply(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        match self {
            Self::StrategicMerge(merges) => merges.apply(resources, schema),
            Self::Patch(patches) => patches.apply(resources, schema),
            Self::Namespace(options) => options.apply(resources, schema),
            Self::Name { affix, text, specs } => rename(*affix, text, specs, resources, schema),
            Self::Labels { labels, specs } => metadata::set_all(labels, specs, resources),
            Self::Annotations { annotations, specs } => metadata::set_all(annotations, specs, resources),
            Self::Json(target) => target.apply(resources, schema),
            Self::Replicas { replica, specs } => scale(replica, specs, resources, schema),
            Self::Image { image, name, specs } => image::set(image, name, specs, resources),
            Self::Replacements(replacements) => replacements.apply(resources, schema),
            Self::ValueAdd(value) => value.apply(resources, schema),
            Self::Hash => append_hashes(resources, schema),
        }
    }
}

/// Kinds whose names are never extended.
fn keeps_name(id: &ResourceId) -> bool {
    match id.gvk.kind.as_str() {
        "CustomResourceDefinition" | "Namespace" => true,
        "APIService" => id.gvk.group == "apiregistration.k8s.io",
        _ => false,
    }
}

fn rename(
    affix: Affix,
    text: &str,
    specs: &FieldSpecs,
    resources: &mut Resources,
    schema: &Schema,
) -> Result<()> {
    for resource in resources.list_mut() {
        let original = resource.original_id(schema);
        if keeps_name(&original) {
            continue;
        }
        for spec in specs {
            if !original.gvk.is_selected_by(&spec.gvk) {
                continue;
            }
            if spec.path == "metadata/name" && !text.is_empty() {
                match affix {
                    Affix::Prefix => resource.prefixes.push(text.into()),
                    Affix::Suffix => resource.suffixes.push(text.into()),
                }
                resource.store_previous_id(schema);
            }
            spec.visit(&mut resource.node, Some(Create::Scalar(Tag::String)), &mut |node| {
                let name = match affix {
                    Affix::Prefix => format!("{text}{}", node.text()),
                    Affix::Suffix => format!("{}{text}", node.text()),
                };
                node.set_scalar(name, Tag::Unset)
            })?;
        }
        resource.settle_links();
    }
    Ok(())
}

fn scale(replica: &Replica, specs: &FieldSpecs, resources: &mut Resources, schema: &Schema) -> Result<()> {
    let mut found = false;
    let count = replica.count.to_string();
    for spec in specs {
        let matches = |resource: &Resource| {
            let fits = |gvk: &Gvk, name: &str| name == replica.name && gvk.is_selected_by(&spec.gvk);
            !resource.is_empty()
                && (fits(&resource.gvk(), resource.name())
                    || resource.previous_ids().any(|id| fits(&id.gvk, &id.name)))
        };
        for resource in resources.list_mut_same_ids() {
            if matches(resource) {
                found = true;
                spec.visit(&mut resource.node, Some(Create::Scalar(Tag::Int)), &mut |node| {
                    node.set_scalar(count.as_str(), Tag::Int)
                })?;
            }
        }
    }
    if found {
        return Ok(());
    }
    let _ = schema;
    let gvks: Vec<String> = specs.iter().map(|spec| spec.gvk.to_string()).collect();
    Err(Error::message(format!(
        "resource with name {} does not match a config with the following GVK [{}]",
        replica.name,
        gvks.join(" ")
    )))
}

/// Appends the content hash to the names of generated resources.
pub(crate) fn append_hashes(resources: &mut Resources, schema: &Schema) -> Result<()> {
    if !resources.list().iter().any(|resource| resource.needs_hash) {
        return Ok(());
    }
    for resource in resources.list_mut() {
        if resource.needs_hash {
            let hash = crate::generator::content_hash(&resource.node)?;
            resource.store_previous_id(schema);
            let name = format!("{}-{hash}", resource.name());
            resource.set_name(&name);
        }
    }
    Ok(())
}
