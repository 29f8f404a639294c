//! What people see of an OCIRepository besides what all sources show. Pure.

use jiff::Timestamp;
use weir_api::condition::{self, Summary};
use weir_api::names::condition::{
    ARTIFACT_IN_STORAGE, ARTIFACT_OUTDATED, FETCH_FAILED, READY, RECONCILING, SOURCE_VERIFIED, STALLED,
    STORAGE_OPERATION_FAILED,
};
use weir_api::names::reason::SUCCEEDED;
use weir_api::source::OCIRepository;
use weir_api::{Artifact, FluxObject as _};

use super::publish::Published;
use crate::source::Source;
use crate::source::status::{stamp, stored};

/// The condition types of an OCIRepository that are ours.
pub(super) const OWNED: &[&str] = &[
    READY,
    RECONCILING,
    STALLED,
    STORAGE_OPERATION_FAILED,
    FETCH_FAILED,
    ARTIFACT_OUTDATED,
    ARTIFACT_IN_STORAGE,
    SOURCE_VERIFIED,
];

impl Source for OCIRepository {
    const SUMMARY: Summary<'static> = Summary {
        target: READY,
        types: &[
            STORAGE_OPERATION_FAILED,
            FETCH_FAILED,
            ARTIFACT_OUTDATED,
            ARTIFACT_IN_STORAGE,
            SOURCE_VERIFIED,
            STALLED,
            RECONCILING,
        ],
        negative: &[STORAGE_OPERATION_FAILED, FETCH_FAILED, ARTIFACT_OUTDATED, STALLED, RECONCILING],
        latest_generation: false,
    };
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
        format!("stored artifact for digest '{revision}'")
    }
}

/// An artifact was stored; records what it was made of.
pub(super) fn published(object: &mut OCIRepository, published: Published, now: Timestamp) {
    let spec = object.spec.clone();
    let revision = published.artifact.revision.clone();
    let status = object.status_mut();
    status.artifact = Some(published.artifact);
    status.url = published.url.or(status.url.take());
    status.observed_ignore = spec.ignore;
    status.observed_layer_selector = spec.layer_selector;
    condition::delete(&mut status.conditions, STORAGE_OPERATION_FAILED);
    stored(object, &revision, now);
}

/// A good signature of the revision was found.
pub(super) fn verified(object: &mut OCIRepository, revision: &str, now: Timestamp) {
    let (message, stamp) = (format!("verified signature of revision {revision}"), stamp(object, now));
    condition::mark_true(object.conditions_mut(), SOURCE_VERIFIED, SUCCEEDED, &message, stamp);
}

/// Nothing has to be verified.
pub(super) fn not_verified(object: &mut OCIRepository) {
    condition::delete(object.conditions_mut(), SOURCE_VERIFIED);
}

/// What is told about a stored artifact.
pub(super) fn stored_from(object: &OCIRepository) -> String {
    let Some(artifact) = object.artifact() else { return String::new() };
    let stored = format!("stored artifact with revision '{}' from '{}'", artifact.revision, object.spec.url);
    let annotation = |key: &str| artifact.metadata.get(key).filter(|value| !value.is_empty());
    match (annotation("org.opencontainers.image.source"), annotation("org.opencontainers.image.revision")) {
        (Some(source), Some(revision)) => {
            format!("{stored}, origin source '{source}', origin revision '{revision}'")
        }
        _ => stored,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_names_the_origin() {
        let mut object: OCIRepository = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
            "metadata": {"name": "r", "namespace": "apps", "generation": 1},
            "spec": {"interval": "1m", "url": "oci://example.com/app"},
        }))
        .unwrap();
        let artifact: Artifact = serde_json::from_value(json!({
            "revision": "1@sha256:1", "digest": "sha256:2", "path": "p", "url": "u",
            "lastUpdateTime": "2026-01-01T00:00:00Z", "metadata": {"org.opencontainers.image.source": "git"},
        }))
        .unwrap();
        let stored = Published { artifact, url: Some("http://x/latest.tar.gz".to_owned()), not_linked: None };
        published(&mut object, stored, "2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(object.conditions()[0].message, "stored artifact for digest '1@sha256:1'");
        let message = "stored artifact with revision '1@sha256:1' from 'oci://example.com/app'";
        assert_eq!(stored_from(&object), message);
        let metadata = &mut object.artifact_mut().unwrap().metadata;
        metadata.insert("org.opencontainers.image.revision".to_owned(), "main".to_owned());
        assert_eq!(stored_from(&object), format!("{message}, origin source 'git', origin revision 'main'"));
        object.forget_artifact();
        assert_eq!(object.status.as_ref().unwrap().url, None);
    }
}
