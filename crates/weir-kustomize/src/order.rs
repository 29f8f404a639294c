//! The orders of tables and of the output.

use std::cmp::Ordering;

use weir_manifest::{KUSTOMIZE_ORDER_FIRST, KUSTOMIZE_ORDER_LAST, kustomize_legacy_rank};

use crate::error::{Error, Result};
use crate::id::{Gvk, ResourceId};
use crate::kustomization::SortOptions;
use crate::resource::Resource;
use crate::schema::Schema;

/// The key field spec tables are sorted by.
pub(crate) fn table_key(gvk: &Gvk) -> (isize, String) {
    (kustomize_legacy_rank(&gvk.kind, KUSTOMIZE_ORDER_FIRST, KUSTOMIZE_ORDER_LAST), gvk.sort_text())
}

/// Sorts the output as `sortOptions` asks.
///
/// # Errors
/// An unknown order, or options of another order.
pub(crate) fn sort(resources: &mut Vec<Resource>, options: &SortOptions, schema: &Schema) -> Result<()> {
    match options.order.as_str() {
        "fifo" if options.legacy_sort_options.is_some() => Err(Error::message(
            "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'",
        )),
        "fifo" => Ok(()),
        "legacy" => {
            let lists = options.legacy_sort_options.as_ref();
            let first: Vec<&str> = lists.map_or_else(
                || KUSTOMIZE_ORDER_FIRST.to_vec(),
                |lists| lists.order_first.iter().map(String::as_str).collect(),
            );
            let last: Vec<&str> = lists.map_or_else(
                || KUSTOMIZE_ORDER_LAST.to_vec(),
                |lists| lists.order_last.iter().map(String::as_str).collect(),
            );
            sort_legacy(resources, &first, &last, schema);
            Ok(())
        }
        _ => Err(Error::message("the field 'sortOptions.order' must be one of [fifo, legacy]")),
    }
}

struct Key {
    rank: isize,
    gvk_text: String,
    core_or_other_namespace: bool,
    core: bool,
    id_text: String,
    gvk: Gvk,
}

fn sort_legacy(resources: &mut Vec<Resource>, first: &[&str], last: &[&str], schema: &Schema) {
    let mut keyed: Vec<(Key, Resource)> = resources
        .drain(..)
        .map(|resource| {
            let id = resource.current_id(schema);
            let key = Key {
                rank: kustomize_legacy_rank(&id.gvk.kind, first, last),
                gvk_text: id.gvk.sort_text(),
                core_or_other_namespace: id.gvk.kind == "Namespace",
                core: id.gvk.group.is_empty(),
                id_text: id_sort_text(&id),
                gvk: id.gvk,
            };
            (key, resource)
        })
        .collect();
    keyed.sort_by(|(left, _), (right, _)| compare(left, right));
    resources.extend(keyed.into_iter().map(|(_, resource)| resource));
}

fn compare(left: &Key, right: &Key) -> Ordering {
    if left.gvk == right.gvk {
        return left.id_text.cmp(&right.id_text);
    }
    left.rank.cmp(&right.rank).then_with(|| {
        let order = left.gvk_text.cmp(&right.gvk_text);
        let namespaces = left.core_or_other_namespace && right.core_or_other_namespace;
        if namespaces && (left.core || right.core) { order.reverse() } else { order }
    })
}

fn id_sort_text(id: &ResourceId) -> String {
    fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
        if text.is_empty() { default } else { text }
    }
    format!("{}|{}|{}", id.gvk, or(&id.namespace, "~X"), or(&id.name, "~N"))
}
