//! Labels and annotations.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::fieldspec::{Create, FieldSpec, FieldSpecs};
use crate::id::Gvk;
use crate::node::{Node, Scalar, wrong_kind};
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
        for spec in selected {
            spec.visit_selected(&mut resource.node, Some(Create::Map), &mut |node| match node {
                Node::Map(map) => {
                    for (key, value) in pairs {
                        let mut scalar = Scalar::string(value.as_str());
                        scalar.style = crate::node::Style::Plain;
                        map.set_scalar(key, scalar);
                    }
                    Ok(())
                }
                other => Err(wrong_kind("MappingNode", other)),
            })?;
        }
    }
    Ok(())
}
