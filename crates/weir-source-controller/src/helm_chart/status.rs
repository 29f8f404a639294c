//! What people see of a HelmChart besides what all sources show. Pure.

use jiff::Timestamp;
use weir_api::condition::{self, Summary};
use weir_api::names::condition::{
    ARTIFACT_IN_STORAGE, ARTIFACT_OUTDATED, BUILD_FAILED, FETCH_FAILED, READY, RECONCILING, SOURCE_VERIFIED,
    STALLED, STORAGE_OPERATION_FAILED,
};
use weir_api::names::reason::SUCCEEDED;
use weir_api::source::HelmChart;
use weir_api::{Artifact, FluxObject as _};

use super::build::Build;
use crate::source::Source;
use crate::source::status::{progress, stamp};

/// The condition types of a HelmChart that are ours.
pub(super) const OWNED: &[&str] = &[
    READY,
    RECONCILING,
    STALLED,
    STORAGE_OPERATION_FAILED,
    FETCH_FAILED,
    BUILD_FAILED,
    ARTIFACT_OUTDATED,
    ARTIFACT_IN_STORAGE,
    SOURCE_VERIFIED,
];

impl Source for HelmChart {
    const SUMMARY: Summary<'static> = Summary {
        target: READY,
        types: &[
            STORAGE_OPERATION_FAILED,
            FETCH_FAILED,
            BUILD_FAILED,
            ARTIFACT_OUTDATED,
            ARTIFACT_IN_STORAGE,
            SOURCE_VERIFIED,
            STALLED,
            RECONCILING,
        ],
        negative: &[
            STORAGE_OPERATION_FAILED,
            FETCH_FAILED,
            BUILD_FAILED,
            ARTIFACT_OUTDATED,
            STALLED,
            RECONCILING,
        ],
        latest_generation: false,
    };
    const FAILURES: &'static [&'static str] = &[BUILD_FAILED, FETCH_FAILED, STORAGE_OPERATION_FAILED];

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

    /// Only a build knows more.
    fn stored_message(revision: &str) -> String {
        format!("stored chart with version '{revision}'")
    }
}

/// The source has an artifact of this revision.
pub(super) fn source_seen(object: &mut HelmChart, revision: &str) {
    object.status_mut().observed_source_artifact_revision = Some(revision.to_owned());
}

/// A good signature of the version was found.
pub(super) fn verified(object: &mut HelmChart, version: &str, now: Timestamp) {
    let (message, stamp) = (format!("verified signature of version {version}"), stamp(object, now));
    condition::mark_true(object.conditions_mut(), SOURCE_VERIFIED, SUCCEEDED, &message, stamp);
}

/// Nothing has to be verified.
pub(super) fn not_verified(object: &mut HelmChart) {
    condition::delete(object.conditions_mut(), SOURCE_VERIFIED);
}

/// A chart was built; `true` if people should see at once that it will be another one than is stored.
pub(super) fn observed(object: &mut HelmChart, build: &Build, now: Timestamp) -> bool {
    let stamp = stamp(object, now);
    let status = object.status_mut();
    let same = status.observed_chart_name.as_deref() == Some(&build.name)
        && status.artifact.as_ref().is_some_and(|artifact| artifact.revision == build.version);
    let has_artifact = status.artifact.is_some();
    let summary = build.summary();
    if !same {
        if has_artifact {
            condition::mark_true(object.conditions_mut(), ARTIFACT_OUTDATED, "NewChart", &summary, stamp);
        }
        progress(object, true, &format!("building artifact: {summary}"), now);
    }
    let conditions = object.conditions_mut();
    condition::delete(conditions, FETCH_FAILED);
    condition::delete(conditions, BUILD_FAILED);
    !same
}

/// The package is the stored one.
pub(super) fn stored(object: &mut HelmChart, build: &Build, now: Timestamp) {
    let stamp = stamp(object, now);
    let conditions = object.conditions_mut();
    condition::delete(conditions, ARTIFACT_OUTDATED);
    condition::mark_true(conditions, ARTIFACT_IN_STORAGE, build.reason(), &build.summary(), stamp);
}

/// A package was stored; records what it was made of.
pub(super) fn published(
    object: &mut HelmChart,
    artifact: Artifact,
    url: Option<String>,
    build: &Build,
    now: Timestamp,
) {
    let ignore_missing = object.spec.ignore_missing_values_files;
    let status = object.status_mut();
    status.artifact = Some(artifact);
    status.url = url.or(status.url.take());
    status.observed_chart_name = Some(build.name.clone());
    status.observed_values_files = if ignore_missing { build.values_files.clone() } else { Vec::new() };
    condition::delete(&mut status.conditions, STORAGE_OPERATION_FAILED);
    stored(object, build, now);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::build::Content;
    use super::*;

    fn build(version: &str) -> Build {
        Build {
            name: "app".to_owned(),
            version: version.to_owned(),
            values_files: vec!["a.yaml".to_owned()],
            packaged: true,
            resolved_dependencies: 0,
            content: Content::Stored,
        }
    }

    fn shown(object: &HelmChart) -> Vec<String> {
        let mut lines: Vec<String> = object
            .conditions()
            .iter()
            .map(|condition| {
                format!(
                    "{}={} {}: {}",
                    condition.type_, condition.status, condition.reason, condition.message
                )
            })
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_chart_from_first_sight_to_the_storage() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut object: HelmChart = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
            "metadata": {"name": "c", "namespace": "apps", "generation": 1},
            "spec": {"chart": "app", "interval": "1m", "ignoreMissingValuesFiles": true,
                     "sourceRef": {"kind": "GitRepository", "name": "s"}},
            "status": {"conditions": [
                {"type": "FetchFailed", "status": "True", "reason": "ChartPullError", "message": "m",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap();
        assert!(observed(&mut object, &build("1.0.0"), now));
        let summary = "packaged 'app' chart with version '1.0.0' and merged values files [a.yaml]";
        assert_eq!(
            shown(&object),
            [
                format!("Ready=Unknown Progressing: building artifact: {summary}"),
                format!("Reconciling=True Progressing: building artifact: {summary}"),
            ]
        );
        let artifact: Artifact = serde_json::from_value(json!({
            "revision": "1.0.0", "digest": "sha256:2", "path": "p", "url": "u",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        published(&mut object, artifact, Some("http://x/latest.tar.gz".to_owned()), &build("1.0.0"), now);
        assert!(shown(&object).contains(&format!("ArtifactInStorage=True ChartPackageSucceeded: {summary}")));
        assert_eq!(object.status.as_ref().unwrap().observed_values_files, ["a.yaml"]);
        assert!(!observed(&mut object, &build("1.0.0"), now));
        assert!(observed(&mut object, &build("1.1.0"), now));
        assert!(shown(&object).iter().any(|line| line.starts_with("ArtifactOutdated=True NewChart: ")));
    }
}
