//! The objects of a release, as the status lists them.

use weir_api::common::{InventoryEntry, ResourceInventory};
use weir_apply::cluster::Cluster;
use weir_apply::inventory::Inventory;
use weir_apply::object::{self, ObjectRef};
use weir_helm::action::{definitions, read_manifest};
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
    if let Some(chart) = chart {
        let (definitions, _) = definitions(chart).map_err(|error| error.to_string())?;
        for definition in &definitions {
            inventory.add(&ObjectRef::of(definition));
        }
    }
    let entries = inventory.entries().into_iter();
    Ok(ResourceInventory {
        entries: entries.map(|entry| InventoryEntry { id: entry.id, v: entry.version }).collect(),
    })
}
