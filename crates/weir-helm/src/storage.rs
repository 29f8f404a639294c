//! Where release records are kept: one Secret per revision, as Helm's Secret driver keeps them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use weir_apply::cluster::ClusterError;
use weir_apply::object::ObjectRef;
use weir_apply::write::{Propagation, WriteCluster, WriteOptions};
use weir_base::clock::Clock;

use crate::release::{DATA_KEY, Record, RecordError, SECRET_TYPE, Status, object_name};

/// The records of one release.
///
/// Remembers every record it writes, so that a caller learns what is stored without reading it again.
pub struct Storage<'a> {
    cluster: &'a dyn WriteCluster,
    clock: &'a dyn Clock,
    namespace: &'a str,
    release: &'a str,
    manager: &'a str,
    written: Mutex<Vec<Record>>,
}

/// Why records cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The records cannot be listed.
    #[error("query: failed to query with labels: {0}")]
    List(#[source] ClusterError),
    /// The record cannot be created.
    #[error("create: failed to create: {0}")]
    Create(#[source] ClusterError),
    /// A record of this revision exists: somebody else is at work.
    #[error("release: already exists")]
    Exists,
    /// The record cannot be changed.
    #[error("update: failed to update: {0}")]
    Update(#[source] ClusterError),
    /// The record cannot be deleted.
    #[error("delete: failed to delete: {0}")]
    Delete(#[source] ClusterError),
    /// The record cannot be encoded.
    #[error("create: failed to encode release {name:?}: {source}")]
    Encode {
        /// The release.
        name: String,
        /// The cause.
        source: RecordError,
    },
}

impl<'a> Storage<'a> {
    /// The records of `release` in `namespace`.
    pub fn new(
        cluster: &'a dyn WriteCluster,
        clock: &'a dyn Clock,
        namespace: &'a str,
        release: &'a str,
        manager: &'a str,
    ) -> Self {
        Self { cluster, clock, namespace, release, manager, written: Mutex::new(Vec::new()) }
    }

    /// The name of the release.
    pub fn release(&self) -> &str {
        self.release
    }

    /// All revisions, oldest first. Records that cannot be decoded are left out, as Helm does.
    pub async fn history(&self) -> Result<Vec<Record>, StorageError> {
        let labels = format!("name={},owner=helm", self.release);
        let secrets = self
            .cluster
            .list(&ObjectRef::core("Secret", self.namespace, ""), Some(self.namespace), &labels)
            .await
            .map_err(StorageError::List)?;
        let mut records: Vec<Record> = secrets.iter().filter_map(decode).collect();
        records.sort_by_key(|record| record.version);
        Ok(records)
    }

    /// The last revision.
    pub async fn last(&self) -> Result<Option<Record>, StorageError> {
        Ok(self.history().await?.pop())
    }

    /// Adds a revision; older ones than the newest `max` go, if `max` is not 0, but never the last deployed one.
    pub async fn create(&self, record: &Record, max: usize) -> Result<(), StorageError> {
        if max > 0 {
            self.remove_oldest(max - 1).await?;
        }
        let object = self.object(record, "createdAt")?;
        let options = WriteOptions { manager: self.manager, strict: false };
        match self.cluster.create(&object, options).await {
            Ok(_) => {}
            Err(error) if error.reason() == "AlreadyExists" => return Err(StorageError::Exists),
            Err(error) => return Err(StorageError::Create(error)),
        }
        self.remember(record);
        Ok(())
    }

    /// Changes a revision.
    pub async fn update(&self, record: &Record) -> Result<(), StorageError> {
        let object = self.object(record, "modifiedAt")?;
        let options = WriteOptions { manager: self.manager, strict: false };
        self.cluster.replace(&object, options).await.map_err(StorageError::Update)?;
        self.remember(record);
        Ok(())
    }

    /// Deletes a revision; one that is gone is fine.
    pub async fn delete(&self, revision: i64) -> Result<(), StorageError> {
        let secret = ObjectRef::core("Secret", self.namespace, &object_name(self.release, revision));
        match self.cluster.delete_with(&secret, Propagation::Background).await {
            Err(error) if !error.is_not_found() => Err(StorageError::Delete(error)),
            _ => Ok(()),
        }
    }

    /// What was written since the last call: the last state of each revision, in the order of the
    /// first write.
    pub fn take_written(&self) -> Vec<Record> {
        std::mem::take(&mut *self.written.lock())
    }

    fn remember(&self, record: &Record) {
        let mut written = self.written.lock();
        match written.iter_mut().find(|known| known.version == record.version) {
            Some(known) => *known = record.clone(),
            None => written.push(record.clone()),
        }
    }

    async fn remove_oldest(&self, keep: usize) -> Result<(), StorageError> {
        let history = self.history().await?;
        let Some(excess) = history.len().checked_sub(keep).filter(|excess| *excess > 0) else {
            return Ok(());
        };
        let deployed = history.iter().rev().find(|record| record.info.status == Status::Deployed);
        let deployed = deployed.map(|record| record.version);
        let old: Vec<i64> = history
            .iter()
            .map(|record| record.version)
            .filter(|version| Some(*version) != deployed)
            .take(excess)
            .collect();
        for version in old {
            self.delete(version).await?;
        }
        Ok(())
    }

    fn object(&self, record: &Record, stamp: &str) -> Result<Json, StorageError> {
        let text =
            record.encode().map_err(|source| StorageError::Encode { name: record.object_name(), source })?;
        let mut labels = record.labels();
        labels.insert(stamp.to_owned(), self.clock.now().as_second().to_string());
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": record.object_name(), "namespace": self.namespace, "labels": labels},
            "type": SECRET_TYPE,
            "data": {DATA_KEY: STANDARD.encode(text)},
        }))
    }
}

fn decode(secret: &Json) -> Option<Record> {
    let name = secret["metadata"]["name"].as_str().unwrap_or_default();
    let encoded = secret["data"][DATA_KEY].as_str()?;
    let text = STANDARD.decode(encoded).ok().and_then(|text| String::from_utf8(text).ok());
    let record = text
        .ok_or_else(|| RecordError::Base64("not a text".to_owned()))
        .and_then(|text| Record::decode(&text));
    match record {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::warn!(secret = name, error = %error, "failed to decode a release record, leaving it out");
            None
        }
    }
}
