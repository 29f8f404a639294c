//! All objects in one file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde_json::Value;

use crate::store::Stored;

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");

/// Why a snapshot was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster was built without a file, and none was named.
    #[error("no file for the snapshot was named")]
    NoPath,
    /// The file is no snapshot, or cannot be opened.
    #[error("cannot use the snapshot '{path}'")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// An object in the file is no JSON.
    #[error("cannot read the object '{key}' of the snapshot '{path}'")]
    Object {
        /// The file.
        path: PathBuf,
        /// The table and the key of the object.
        key: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// The revision and the objects of a file.
#[expect(clippy::type_complexity, reason = "a pair that is taken apart at once")]
pub(crate) fn read(path: &Path) -> Result<(u64, Vec<(Arc<str>, Value)>), Error> {
    let file = |source: redb::Error| Error::File { path: path.to_owned(), source: Box::new(source) };
    let database = Database::open(path).map_err(|error| file(error.into()))?;
    let transaction = database.begin_read().map_err(|error| file(error.into()))?;
    let facts = transaction.open_table(FACTS).map_err(|error| file(error.into()))?;
    let revision =
        facts.get("revision").map_err(|error| file(error.into()))?.map_or(1, |value| value.value());
    let table = transaction.open_table(OBJECTS).map_err(|error| file(error.into()))?;
    let mut out = Vec::new();
    for entry in table.iter().map_err(|error| file(error.into()))? {
        let (key, value) = entry.map_err(|error| file(error.into()))?;
        let key = key.value();
        let kind: Arc<str> = key.split('\n').next().unwrap_or_default().into();
        let object = serde_json::from_slice(value.value()).map_err(|source| Error::Object {
            path: path.to_owned(),
            key: key.replace('\n', " "),
            source,
        })?;
        out.push((kind, object));
    }
    Ok((revision, out))
}

/// Writes a file in place of an older one.
pub(crate) fn write(path: &Path, revision: u64, objects: &[(Arc<str>, Arc<Stored>)]) -> Result<(), Error> {
    let file = |source: redb::Error| Error::File { path: path.to_owned(), source: Box::new(source) };
    let database = Database::create(path).map_err(|error| file(error.into()))?;
    let transaction = database.begin_write().map_err(|error| file(error.into()))?;
    {
        transaction.delete_table(OBJECTS).map_err(|error| file(error.into()))?;
        let mut facts = transaction.open_table(FACTS).map_err(|error| file(error.into()))?;
        facts.insert("revision", revision).map_err(|error| file(error.into()))?;
        let mut table = transaction.open_table(OBJECTS).map_err(|error| file(error.into()))?;
        for (kind, object) in objects {
            let key = format!("{kind}\n{}", object.key());
            table.insert(key.as_str(), &object.json[..]).map_err(|error| file(error.into()))?;
        }
    }
    transaction.commit().map_err(|error| file(error.into()))
}
