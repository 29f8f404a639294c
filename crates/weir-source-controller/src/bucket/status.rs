//! What people see of a Bucket besides what all sources show. Pure.

use jiff::Timestamp;
use weir_api::condition::{self, Summary};
use weir_api::names::condition::{FETCH_FAILED, STORAGE_OPERATION_FAILED};
use weir_api::source::Bucket;
use weir_api::{Artifact, FluxObject as _};
use weir_source::bucket::Index;

use super::publish::Published;
use crate::source::Source;
use crate::source::status::{UNVERIFIED, stored};

impl Source for Bucket {
    const SUMMARY: Summary<'static> = UNVERIFIED;
    const FAILURES: &'static [&'static str] = &[FETCH_FAILED, STORAGE_OPERATION_FAILED];

    fn artifact(&self) -> Option<&Artifact> {
        self.status.as_ref()?.artifact.as_ref()
    }

    fn artifact_mut(&mut self) -> Option<&mut Artifact> {
        self.status.as_mut()?.artifact.as_mut()
    }

    fn forget_artifact(&mut self) {
        if let Some(status) = &mut self.status {
            status.artifact = None;
            status.url = None;
        }
    }

    fn stored_message(revision: &str) -> String {
        format!("stored artifact: revision '{revision}'")
    }
}

/// An artifact was stored; records what it was made of.
pub(super) fn published(object: &mut Bucket, published: Published, now: Timestamp) {
    let ignore = object.spec.ignore.clone();
    let revision = published.artifact.revision.clone();
    let status = object.status_mut();
    status.artifact = Some(published.artifact);
    status.url = published.url.or(status.url.take());
    status.observed_ignore = ignore;
    condition::delete(&mut status.conditions, STORAGE_OPERATION_FAILED);
    stored(object, &revision, now);
}

/// What is told about a stored artifact.
pub(super) fn message(object: &Bucket, index: &Index) -> String {
    format!("stored artifact with {} fetched files from '{}' bucket", index.len(), object.spec.bucket_name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_stored_bucket_shows() {
        let mut object: Bucket = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
            "metadata": {"name": "b", "namespace": "apps", "generation": 1},
            "spec": {"interval": "1m", "bucketName": "fleet", "endpoint": "minio:9000", "ignore": "x"},
        }))
        .unwrap();
        let artifact: Artifact = serde_json::from_value(json!({
            "revision": "sha256:1", "digest": "sha256:2", "path": "p", "url": "u",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        let stored = Published { artifact, url: Some("http://x/latest.tar.gz".to_owned()), not_linked: None };
        published(&mut object, stored, "2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(object.conditions()[0].message, "stored artifact: revision 'sha256:1'");
        assert_eq!(object.status.as_ref().unwrap().observed_ignore.as_deref(), Some("x"));
        let message = message(&object, &Index::default());
        assert_eq!(message, "stored artifact with 0 fetched files from 'fleet' bucket");
        object.forget_artifact();
        assert_eq!(object.status.as_ref().unwrap().url, None);
    }
}
