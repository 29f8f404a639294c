use serde_json::{Value, json};

use super::*;

fn object(spec: &Value, status: &Value) -> ArtifactGenerator {
    let mut all = json!({
        "sources": [
            {"alias": "git", "kind": "GitRepository", "name": "fleet"},
            {"alias": "chart", "kind": "OCIRepository", "name": "web", "namespace": "shared"},
        ],
        "artifacts": [{"name": "app", "copy": [{"from": "@git/**", "to": "@artifact/"}]}],
    });
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator",
        "metadata": {"name": "g", "namespace": "apps", "generation": 3}, "spec": all, "status": status,
    }))
    .unwrap()
}

fn artifact(revision: &str, digest: &str, metadata: &Value) -> Artifact {
    serde_json::from_value(json!({
        "revision": revision, "digest": digest, "path": "externalartifact/apps/app/1.tar.gz", "url": "http://x/y",
        "lastUpdateTime": "2026-01-01T00:00:00Z", "metadata": metadata,
    }))
    .unwrap()
}

fn observed() -> Vec<Observed> {
    vec![
        Observed { alias: "git".to_owned(), artifact: artifact("main@sha1:1", "sha256:a", &json!({})) },
        Observed {
            alias: "chart".to_owned(),
            artifact: artifact("1.0@sha256:2", "sha256:b", &json!({ORIGIN_REVISION: "v1@sha1:9"})),
        },
    ]
}

#[test]
fn specifications_that_make_no_sense() {
    #[track_caller]
    fn check(spec: &Value, forbid: bool, expected: &str) {
        let error = validate(&object(spec, &json!({})), forbid).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let copy = json!([{"from": "@git/**", "to": "@artifact/"}]);
    assert!(validate(&object(&json!({}), &json!({})), false).is_ok());
    check(&json!({}), true, "cross-namespace references are not allowed: source 'OCIRepository/shared/web'");
    let source = json!({"alias": "git", "kind": "GitRepository", "name": "fleet"});
    check(&json!({"sources": [source, source]}), false, "duplicate source alias 'git' found");
    let app = json!({"name": "app", "copy": copy});
    check(&json!({"artifacts": [app, app]}), false, "duplicate artifact name 'app' found");
    let bad = json!({"name": "App_1", "copy": copy});
    check(&json!({"artifacts": [bad]}), false, "artifact name 'App_1' is not a valid Kubernetes object name");
    let pattern = json!({"artifacts": [{"name": "{app}", "copy": copy}], "pathPattern": "@git/{app}"});
    assert!(validate(&object(&pattern, &json!({})), false).is_ok());
    for field in ["revision", "originRevision"] {
        let mut other = app.clone();
        other[field] = json!("@nowhere");
        let expected = format!("artifact 'app' {field} source alias 'nowhere' not found");
        check(&json!({"artifacts": [other]}), false, &expected);
    }
}

#[test]
fn the_digest_of_the_sources() {
    // `printf '%s' 'chart=[...]|git=[...]' | sha256sum`
    let text = "chart=[digest=sha256:b,revision=1.0@sha256:2,url=http://x/y]|git=[digest=sha256:a,revision=main@sha1:1,url=http://x/y]";
    let expected = format!("sha256:{}", hex::encode(Sha256::digest(text.as_bytes())));
    assert_eq!(sources_digest(&observed()), expected);
}

#[test]
fn what_makes_it_run() {
    let digest = sources_digest(&observed());
    let ready = |status: &str, generation: i64| {
        json!([{
            "type": "Ready", "status": status, "reason": "Succeeded", "message": "m",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
        }])
    };
    let inventory =
        json!([{"name": "app", "namespace": "apps", "digest": "sha256:d", "filename": "1.tar.gz"}]);
    let settled = json!({
        "conditions": ready("True", 3), "observedSourcesDigest": digest, "inventory": inventory,
    });
    let existing = |digest: &str| -> Vec<ExternalArtifact> {
        vec![
            serde_json::from_value(json!({
                "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact",
                "metadata": {"name": "app", "namespace": "apps"}, "spec": {},
                "status": {"artifact": artifact("latest@sha256:d", digest, &json!({}))},
            }))
            .unwrap(),
        ]
    };
    let check = |change: Value, existing: &[ExternalArtifact], expected: Option<&str>| {
        let mut status = settled.clone();
        for (key, value) in change.as_object().unwrap() {
            status[key] = value.clone();
        }
        assert_eq!(drift(&object(&json!({}), &status), &digest, existing), expected);
    };
    check(json!({}), &existing("sha256:d"), None);
    check(json!({"conditions": []}), &existing("sha256:d"), Some("it never ran"));
    check(json!({"conditions": ready("False", 3)}), &existing("sha256:d"), Some("it is not ready"));
    check(json!({"conditions": ready("True", 2)}), &existing("sha256:d"), Some("its specification changed"));
    check(json!({"observedSourcesDigest": "sha256:0"}), &existing("sha256:d"), Some("a source changed"));
    check(json!({"inventory": []}), &existing("sha256:d"), Some("the number of artifacts changed"));
    check(json!({}), &[], Some("the number of ExternalArtifacts changed"));
    check(json!({}), &existing("sha256:other"), Some("an ExternalArtifact changed"));
}

#[test]
fn revisions() {
    let sources = observed();
    let built = artifact("", "sha256:new", &json!({}));
    assert_eq!(revision(None, &sources, &built, None), "latest@sha256:new");
    assert_eq!(revision(Some("@git"), &sources, &built, None), "main@sha1:1");
    // The same content under another digest keeps its revision, another content does not.
    let before = artifact("latest@sha256:old", "sha256:old", &json!({}));
    assert_eq!(revision(None, &sources, &built, Some(&before)), "latest@sha256:old");
    let other = Artifact { path: "externalartifact/apps/app/2.tar.gz".to_owned(), ..before.clone() };
    assert_eq!(revision(None, &sources, &built, Some(&other)), "latest@sha256:new");
    let source = Artifact { revision: "main@sha1:1".to_owned(), ..before };
    assert_eq!(revision(None, &sources, &built, Some(&source)), "latest@sha256:new");
    assert_eq!(origin_revision(Some("@git"), &sources).as_deref(), Some("main@sha1:1"));
    assert_eq!(origin_revision(Some("@chart"), &sources).as_deref(), Some("v1@sha1:9"));
    assert_eq!(origin_revision(None, &sources), None);
}

#[test]
fn what_is_new_and_what_is_gone() {
    let entry = |name: &str, digest: &str| ExternalArtifactReference {
        name: name.to_owned(),
        namespace: "apps".to_owned(),
        digest: digest.to_owned(),
        filename: "1.tar.gz".to_owned(),
    };
    let before = [entry("a", "sha256:1"), entry("b", "sha256:2")];
    let now = [entry("b", "sha256:2"), entry("c", "sha256:3"), entry("d", "sha256:4")];
    assert_eq!(orphans(&before, &now), [entry("a", "sha256:1")]);
    assert_eq!(
        news(&before, &now).as_deref(),
        Some("external artifacts reconciled: apps/c (sha256:3)\napps/d (sha256:4)")
    );
    assert_eq!(news(&now, &now), None);
}

#[test]
fn names_of_objects() {
    for (name, expected) in
        [("a.b-c", true), ("", false), ("-a", false), ("A", false), ("a..b", false), ("a_b", false)]
    {
        assert_eq!(is_object_name(name), expected, "{name}");
    }
    assert!(!is_object_name(&"a".repeat(254)));
}
