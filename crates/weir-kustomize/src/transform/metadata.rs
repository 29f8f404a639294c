//! Labels and annotations.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::fieldspec::{Create, FieldSpec, FieldSpecs};
use crate::id::Gvk;
use crate::node::{Link, Node, Scalar, Style, Tag, wrong_kind};
use crate::resources::Resources;

/// Sets every pair in every map the specs lead to.
pub(crate) fn set_all(
    pairs: &BTreeMap<String, String>,
    specs: &FieldSpecs,
    resources: &mut Resources,
) -> Result<()> {
    if pairs.is_empty() {
        return Ok(());
    }
    for resource in resources.list_mut_same_ids() {
        let gvk = Gvk::of(&resource.node);
        let selected: Vec<&FieldSpec> = specs.iter().filter(|spec| gvk.is_selected_by(&spec.gvk)).collect();
        let links: Vec<Link> = pairs.iter().map(|_| resource.new_link()).collect();
        for spec in selected {
            spec.visit_selected(&mut resource.node, Some(Create::Map), &mut |node| match node {
                Node::Map(map) => {
                    for ((key, value), link) in pairs.iter().zip(&links) {
                        let scalar = Scalar::new(value.as_str(), Tag::String, Style::Plain);
                        map.set_scalar(key, scalar.linked(*link));
                    }
                    Ok(())
                }
                other => Err(wrong_kind("MappingNode", other)),
            })?;
        }
        resource.settle_links();
    }
    Ok(())
}
