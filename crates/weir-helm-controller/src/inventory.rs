//! The objects of a release, as the status lists them.

use weir_api::common::{InventoryEntry, ResourceInventory};
use weir_apply::cluster::Cluster;
use weir_apply::inventory::Inventory;
use weir_apply::object::{self, ObjectRef};
use weir_helm::action::read_manifest;
use weir_helm::chart::Chart;
use weir_helm::release::Record;

/// The objects of a record in the order of its manifest, and the definitions of its chart.
///
/// # Errors
/// A manifest that cannot be read.
pub(crate) async fn entries(
    cluster: &dyn Cluster,
    record: &Record,
    chart: Option<&Chart>,
) -> Result<ResourceInventory, String> {
    let mut inventory = Inventory::default();
    for item in read_manifest(cluster, &record.manifest, &record.namespace).await? {
        if object::annotation(&item, "helm.sh/hook").is_none() {
            inventory.add(&ObjectRef::of(&item));
        }
    }
    for file in chart.map(Chart::crds).unwrap_or_default() {
        let documents =
            weir_manifest::read_documents(&file.data, &file.name).map_err(|error| error.to_string())?;
        for document in documents {
            let reference = ObjectRef::of(&document);
            if reference.is_kind("apiextensions.k8s.io", "CustomResourceDefinition") {
                inventory.add(&reference);
            }
        }
    }
    let entries = inventory.entries().into_iter();
    Ok(ResourceInventory {
        entries: entries.map(|entry| InventoryEntry { id: entry.id, v: entry.version }).collect(),
    })
}
