//! Where charts are in stored indexes: small tables kept in memory, so that an index is passed over once.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_api::Artifact;
use weir_artifact::storage::Storage;
use weir_source::helm::{ChartVersion, LookupError, Table};

use super::remote::RemoteError;

/// All tables together.
const BYTES_MAX: usize = 16 << 20;

/// The tables of the indexes used last.
#[derive(Debug, Default)]
pub(crate) struct Tables(Mutex<VecDeque<Held>>);

#[derive(Debug)]
struct Held {
    path: String,
    digest: String,
    table: Arc<Table>,
}

impl Tables {
    /// The versions of a chart in a stored index. Blocks.
    pub(super) fn versions(
        &self,
        storage: &Storage,
        artifact: &Artifact,
        chart: &str,
    ) -> Result<Vec<ChartVersion>, RemoteError> {
        let table = match self.find(artifact) {
            Some(table) => table,
            None => self.read(storage, artifact)?,
        };
        let place = table.place(chart).ok_or(LookupError::NoChart)?;
        let bytes = storage.read_range(&artifact.path, place).map_err(RemoteError::Index)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| LookupError::Broken)?;
        Ok(ChartVersion::list(text)?)
    }

    fn find(&self, artifact: &Artifact) -> Option<Arc<Table>> {
        let mut held = self.0.lock();
        let at = held.iter().position(|held| held.path == artifact.path && held.digest == artifact.digest)?;
        let found = held.remove(at)?;
        let table = Arc::clone(&found.table);
        held.push_front(found);
        Some(table)
    }

    fn read(&self, storage: &Storage, artifact: &Artifact) -> Result<Arc<Table>, RemoteError> {
        let bytes = storage.read(&artifact.path).map_err(RemoteError::Index)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| LookupError::Broken)?;
        let table = Arc::new(Table::of(text)?);
        let mut held = self.0.lock();
        held.retain(|held| held.path != artifact.path);
        held.push_front(Held {
            path: artifact.path.clone(),
            digest: artifact.digest.clone(),
            table: Arc::clone(&table),
        });
        let mut bytes = 0;
        held.retain(|held| {
            bytes += held.table.size_bytes();
            bytes <= BYTES_MAX
        });
        Ok(table)
    }
}
