use serde_json::json;
use weir_helm::metadata::Metadata;

use super::*;

fn object(spec: &Json) -> HelmRelease {
    let mut spec = spec.clone();
    spec["interval"] = "10m".into();
    let object = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": "app", "namespace": "apps"}, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_template_becomes_a_helm_chart_beside_its_source() {
    let object = object(&json!({"chart": {
        "metadata": {"labels": {"team": "a"}},
        "spec": {"chart": "podinfo", "version": "6.x", "sourceRef": {"kind": "HelmRepository", "name": "repo", "namespace": "sources"}, "valuesFiles": ["a.yaml"]}
    }}));
    let template = object.spec.chart.clone().unwrap();
    assert_eq!(
        from_template(&object, &template),
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
            "metadata": {
                "name": "apps-app", "namespace": "sources",
                "labels": {"team": "a", "helm.toolkit.fluxcd.io/name": "app", "helm.toolkit.fluxcd.io/namespace": "apps"}
            },
            "spec": {
                "chart": "podinfo", "version": "6.x", "interval": "10m0s", "reconcileStrategy": "ChartVersion",
                "sourceRef": {"kind": "HelmRepository", "name": "repo"}, "valuesFiles": ["a.yaml"]
            }
        })
    );
    assert_eq!(source_name(&object).unwrap().key(), "HelmChart/sources/apps-app");
}

#[test]
fn references_name_their_source() {
    let other = object(&json!({"chartRef": {"kind": "OCIRepository", "name": "x", "namespace": "n"}}));
    assert_eq!(source_name(&other).unwrap().key(), "OCIRepository/n/x");
    let own = object(&json!({"chartRef": {"kind": "HelmChart", "name": "x"}}));
    assert_eq!(source_name(&own).unwrap().key(), "HelmChart/apps/x");
}

#[track_caller]
fn check(version: &str, revision: &str, expected: Result<(&str, &str), &str>) {
    let metadata = Metadata { version: version.to_owned(), ..Metadata::default() };
    let mut chart = Chart { metadata, ..Chart::default() };
    let tracked = track_digest(&mut chart, SourceKind::OCIRepository, revision, false);
    match (tracked, expected) {
        (Ok(digest), Ok((version, wanted))) => {
            assert_eq!((chart.metadata.version.as_str(), digest.as_deref()), (version, Some(wanted)));
        }
        (Err(error), Err(wanted)) => assert_eq!(error, wanted),
        (got, _) => panic!("{got:?}"),
    }
}

#[test]
fn digests_go_into_versions() {
    let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    check("1.2.3", &format!("1.2.3@{digest}"), Ok(("1.2.3+0123456789ab", digest)));
    check("v1.2", &format!("1.2.0@{digest}"), Ok(("1.2.0+0123456789ab", digest)));
    check("1.2.3+meta", &format!("1.2.3_meta@{digest}"), Ok(("1.2.3+0123456789ab", digest)));
    check("1.2.3", digest, Ok(("1.2.3+0123456789ab", digest)));
    let latest = format!("latest@{digest}");
    check("1.2.3", &latest, Ok(("1.2.3+0123456789ab", &latest)));
    check(
        "1.2.3",
        &format!("1.2.4@{digest}"),
        Err("artifact revision 1.2.4 does not match chart version 1.2.3"),
    );
    check("1.2.3", "sha256:short", Err("invalid artifact revision sha256:short"));
}

#[test]
fn charts_of_helm_repositories_keep_their_version() {
    let mut chart = Chart::default();
    assert_eq!(track_digest(&mut chart, SourceKind::HelmChart, "1.2.3", false), Ok(None));
    assert_eq!(track_digest(&mut chart, SourceKind::ExternalArtifact, "1.2.3", false), Ok(None));
}

#[test]
fn a_source_that_failed_but_has_an_artifact_is_good_enough() {
    let name = SourceName { kind: SourceKind::HelmChart, namespace: "n".to_owned(), name: "x".to_owned() };
    let artifact: Artifact = serde_json::from_value(json!({
        "url": "http://x", "path": "x", "digest": "sha256:x", "revision": "1.0.0", "lastUpdateTime": "2026-01-01T00:00:00Z"
    }))
    .unwrap();
    let source = Source {
        artifact: Some(artifact.clone()),
        generation: 1,
        observed_generation: Some(1),
        ..Source::default()
    };
    assert_eq!(source.ready(&name), Ok(&artifact));
    let behind = Source { observed_generation: Some(0), ..source.clone() };
    assert_eq!(
        behind.ready(&name),
        Err("HelmChart 'n/x' is not ready: latest generation of object has not been reconciled".to_owned())
    );
    let empty = Source { artifact: None, ..source.clone() };
    assert_eq!(empty.ready(&name), Err("HelmChart 'n/x' is not ready: does not have an artifact".to_owned()));
    let external = SourceName { kind: SourceKind::ExternalArtifact, ..name };
    assert_eq!(behind.ready(&external), Ok(&artifact));
}
