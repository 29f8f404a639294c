//! What is to be done: pure.

use weir_api::condition;
use weir_api::names::condition::READY;
use weir_api::source::{ChartSourceKind, HelmChart, ReconcileStrategy};
use weir_base::version::Version;

use super::build::{Build, Content};
use super::error::{BuildFailure, Cause, Error, Reason};
use crate::source::Source as _;
use crate::source::verify::Wanted;

/// How much of a digest or commit goes into a version.
const REVISION_CHARACTERS: usize = 12;

/// What must be verified, if anything.
pub(super) fn wanted(object: &HelmChart) -> Option<Wanted<'_>> {
    let verify = object.spec.verify.as_ref()?;
    Some(Wanted {
        provider: verify.provider,
        keys: verify.secret_ref.as_ref(),
        root: None,
        identities: &verify.match_oidc_identity,
    })
}

/// Whether a chart can have the name.
pub(super) fn chart_name(name: &str) -> Result<(), Error> {
    let failed = |cause| Error::Build(BuildFailure::new(Reason::ChartReference, cause));
    if name.is_empty() {
        return Err(failed(Cause::NoName));
    }
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    // Words of letters, digits and dashes, each with at most a slash and a dot behind it.
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.bytes().take_while(|byte| lower(*byte)).count();
        if word == 0 {
            return Err(failed(Cause::Name(name.to_owned())));
        }
        rest = &rest[word..];
        rest = rest.strip_prefix('/').unwrap_or(rest);
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    Ok(())
}

/// The values files that change anything: the chart's own alone does not.
pub(super) fn values_files(object: &HelmChart) -> &[String] {
    match &object.spec.values_files[..] {
        [only] if super::build::clean(only) == "values.yaml" => &[],
        files => files,
    }
}

/// What is added to the version of a chart of a repository.
pub(super) fn remote_metadata(object: &HelmChart) -> String {
    if values_files(object).is_empty() { String::new() } else { generation(object) }
}

/// What is added to the version of a chart of another source at a revision.
pub(super) fn local_metadata(object: &HelmChart, revision: &str) -> String {
    let mut metadata = String::new();
    if object.spec.reconcile_strategy == ReconcileStrategy::Revision {
        let hash = match object.spec.source_ref.kind {
            ChartSourceKind::GitRepository | ChartSourceKind::Bucket => {
                revision.rsplit_once(':').map_or(revision, |(_, hash)| hash)
            }
            ChartSourceKind::HelmRepository => revision,
        };
        metadata.extend(hash.chars().take(REVISION_CHARACTERS));
    }
    if !values_files(object).is_empty() {
        if !metadata.is_empty() {
            metadata.push('.');
        }
        metadata.push_str(&generation(object));
    }
    metadata
}

fn generation(object: &HelmChart) -> String {
    object.metadata.generation.unwrap_or_default().to_string()
}

/// The version with build metadata in the place of its own, if there is any to add.
pub(super) fn version(version: &str, metadata: &str) -> Result<String, Error> {
    if metadata.is_empty() {
        return Ok(version.to_owned());
    }
    let failed = |cause| Error::Build(BuildFailure::new(Reason::MetadataPatch, cause));
    let mut parsed = Version::parse(version).map_err(|error| failed(Cause::Version(error)))?;
    let valid = metadata.split('.').all(|part| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    });
    if !valid {
        return Err(failed(Cause::VersionMetadata(metadata.to_owned())));
    }
    metadata.clone_into(&mut parsed.build);
    Ok(parsed.to_string())
}

/// The stored package, if the chart of this name and version is what it was made from.
pub(super) fn cached(object: &HelmChart, working: &HelmChart, name: &str, version: &str) -> Option<Build> {
    let status = working.status.as_ref()?;
    let artifact = status.artifact.as_ref()?;
    let same = status.observed_chart_name.as_deref() == Some(name)
        && artifact.revision == version
        && status.observed_generation == object.metadata.generation.unwrap_or_default();
    same.then(|| stored(object, working, name, version))
}

/// The stored package, if nothing at all has changed since it was made: not the source, not the specification.
pub(super) fn unchanged(object: &HelmChart, working: &HelmChart, revision: &str) -> Option<Build> {
    let status = working.status.as_ref()?;
    let name = status.observed_chart_name.as_deref()?;
    let version = &working.artifact()?.revision;
    let before = object.status.as_ref()?;
    let same = condition::is_true(&before.conditions, READY)
        && status.observed_generation == object.metadata.generation.unwrap_or_default()
        && status.observed_source_artifact_revision.as_deref() == Some(revision);
    same.then(|| stored(object, working, name, version))
}

fn stored(object: &HelmChart, working: &HelmChart, name: &str, version: &str) -> Build {
    let observed = working.status.as_ref().map(|status| status.observed_values_files.clone());
    let values_files = match observed {
        Some(observed) if object.spec.ignore_missing_values_files && !observed.is_empty() => observed,
        _ => values_files(object).to_vec(),
    };
    let from_other = object.spec.source_ref.kind != ChartSourceKind::HelmRepository;
    let packaged = match working
        .status
        .as_ref()
        .and_then(|status| condition::get(&status.conditions, "ArtifactInStorage"))
    {
        Some(stored) => stored.reason == "ChartPackageSucceeded",
        None => from_other || !values_files.is_empty(),
    };
    Build {
        name: name.to_owned(),
        version: version.to_owned(),
        values_files,
        packaged,
        resolved_dependencies: 0,
        content: Content::Stored,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: &serde_json::Value, status: &serde_json::Value) -> HelmChart {
        let mut full = json!({
            "chart": "podinfo", "interval": "1m",
            "sourceRef": {"kind": "GitRepository", "name": "s"},
        });
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
            "metadata": {"name": "c", "namespace": "apps", "generation": 3},
            "spec": full, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn names() {
        for (name, valid) in [
            ("podinfo", true),
            ("org/podinfo", true),
            ("a.b-c", true),
            ("a/.b", true),
            ("Podinfo", false),
            ("a//b", false),
            ("../a", false),
            ("a b", false),
            ("", false),
        ] {
            assert_eq!(chart_name(name).is_ok(), valid, "{name}");
        }
    }

    #[track_caller]
    fn check_version(spec: &serde_json::Value, revision: &str, expected: &str) {
        let object = object(spec, &json!({}));
        let metadata = match object.spec.source_ref.kind {
            ChartSourceKind::HelmRepository => remote_metadata(&object),
            _ => local_metadata(&object, revision),
        };
        assert_eq!(version("v1.2.3+old", &metadata).unwrap(), expected);
    }

    #[test]
    fn versions_carry_what_they_were_made_from() {
        let commit = "main@sha1:0123456789abcdef0123456789abcdef01234567";
        let revision = json!({"reconcileStrategy": "Revision"});
        check_version(&json!({}), commit, "v1.2.3+old");
        check_version(&revision, commit, "1.2.3+0123456789ab");
        check_version(&json!({"valuesFiles": ["values.yaml"]}), commit, "v1.2.3+old");
        check_version(&json!({"valuesFiles": ["./values.yaml"]}), commit, "v1.2.3+old");
        check_version(&json!({"valuesFiles": ["a.yaml"]}), commit, "1.2.3+3");
        check_version(
            &json!({"valuesFiles": ["a.yaml"], "reconcileStrategy": "Revision"}),
            commit,
            "1.2.3+0123456789ab.3",
        );
        let mut bucket = revision;
        bucket["sourceRef"] = json!({"kind": "Bucket", "name": "b"});
        check_version(&bucket, "sha256:fedcba9876543210", "1.2.3+fedcba987654");
        let mut helm = json!({"valuesFiles": ["a.yaml"]});
        helm["sourceRef"] = json!({"kind": "HelmRepository", "name": "b"});
        check_version(&helm, "sha256:fedcba9876543210", "1.2.3+3");
        let error = version("strange", "3").unwrap_err();
        assert_eq!(
            weir_base::error::chain(&error),
            "chart metadata patch error: failed to parse version from chart metadata as SemVer: invalid semantic \
             version"
        );
    }

    fn status(observed_generation: i64, ready: &str) -> serde_json::Value {
        json!({
            "observedGeneration": observed_generation,
            "observedChartName": "podinfo",
            "observedSourceArtifactRevision": "main@sha1:1",
            "conditions": [
                {"type": "Ready", "status": ready, "reason": "ChartPackageSucceeded", "message": "m",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "ArtifactInStorage", "status": "True", "reason": "ChartPackageSucceeded", "message": "m",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "artifact": {"revision": "1.0.0", "digest": "sha256:2", "path": "p", "url": "u",
                         "lastUpdateTime": "2026-01-01T00:00:00Z"},
        })
    }

    #[test]
    fn a_package_is_kept_for_the_same_version_and_specification() {
        let object = object(&json!({}), &status(3, "True"));
        let built = cached(&object, &object, "podinfo", "1.0.0").unwrap();
        assert_eq!(built.summary(), "packaged 'podinfo' chart with version '1.0.0'");
        assert!(cached(&object, &object, "podinfo", "1.0.1").is_none());
        assert!(cached(&object, &object, "other", "1.0.0").is_none());
        let changed = super::tests::object(&json!({}), &status(2, "True"));
        assert!(cached(&changed, &changed, "podinfo", "1.0.0").is_none());
    }

    #[test]
    fn nothing_is_read_while_nothing_changes() {
        let check = |status: serde_json::Value, revision: &str| {
            let object = object(&json!({}), &status);
            unchanged(&object, &object, revision).is_some()
        };
        assert!(check(status(3, "True"), "main@sha1:1"));
        assert!(!check(status(3, "True"), "main@sha1:2"));
        assert!(!check(status(2, "True"), "main@sha1:1"));
        assert!(!check(status(3, "False"), "main@sha1:1"));
    }
}
