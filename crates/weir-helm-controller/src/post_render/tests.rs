use indoc::indoc;
use serde_json::json;

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

const MANIFESTS: &str = indoc! {"
    apiVersion: v1
    kind: ConfigMap
    metadata:
      name: a # a comment
    data: {k: v}
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      template:
        spec:
          containers: [{name: web, image: example.com/web:1}]
"};

#[test]
fn every_object_gets_the_labels_of_its_release() {
    let text = run(&object(&json!({})), MANIFESTS).unwrap();
    assert_eq!(
        text,
        indoc! {"
            apiVersion: v1
            data:
              k: v
            kind: ConfigMap
            metadata:
              labels:
                helm.toolkit.fluxcd.io/name: app
                helm.toolkit.fluxcd.io/namespace: apps
              name: a
            ---
            apiVersion: apps/v1
            kind: Deployment
            metadata:
              labels:
                helm.toolkit.fluxcd.io/name: app
                helm.toolkit.fluxcd.io/namespace: apps
              name: web
            spec:
              template:
                spec:
                  containers:
                  - image: example.com/web:1
                    name: web
        "}
    );
}

#[test]
fn patches_images_and_metadata_are_applied_in_order() {
    let spec = json!({
        "postRenderers": [{"kustomize": {
            "images": [{"name": "example.com/web", "newTag": "2"}],
            "patches": [{"patch": "- op: add\n  path: /spec/replicas\n  value: 3", "target": {"kind": "Deployment"}}]
        }}],
        "commonMetadata": {"labels": {"team": "a", "helm.toolkit.fluxcd.io/name": "mine"}, "annotations": {"note": "b"}}
    });
    let text = run(&object(&spec), MANIFESTS).unwrap();
    assert!(text.contains("image: example.com/web:2") && text.contains("replicas: 3"), "{text}");
    assert_eq!(text.matches("team: a").count(), 2);
    assert_eq!(text.matches("note: b").count(), 2);
    // The origin wins over common metadata.
    assert_eq!(text.matches("helm.toolkit.fluxcd.io/name: app").count(), 2);
}

#[test]
fn errors_are_those_of_the_build() {
    let spec = json!({"postRenderers": [{"kustomize": {"patches": [{"patch": "- op: remove\n  path: /spec/nope", "target": {"kind": "Deployment"}}]}}]});
    assert!(run(&object(&spec), MANIFESTS).is_err());
}
