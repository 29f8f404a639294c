use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
fn kustomization(spec: Value, status: Value) -> Kustomization {
    let mut object = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "apps", "namespace": "prod"},
        "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        "status": status,
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn conditions(list: &[(&str, &str)]) -> Value {
    let conditions: Vec<Value> = list
        .iter()
        .map(|(kind, status)| {
            json!({"type": kind, "status": status, "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
        })
        .collect();
    json!({"conditions": conditions, "lastAttemptedRevision": "r1"})
}

#[track_caller]
fn check(list: &[(&str, &str)], revision: &str, expected: bool) {
    assert_eq!(is_at_revision(&kustomization(json!({}), conditions(list)), revision), expected);
}

#[test]
fn a_revision_that_is_applied_or_in_work_wakes_nobody() {
    check(&[("Ready", "True")], "r1", true);
    check(&[("Ready", "Unknown"), ("Reconciling", "True")], "r1", true);
    check(&[("Ready", "True")], "r2", false);
    check(&[("Ready", "False")], "r1", false);
    check(&[("Stalled", "True"), ("Ready", "False")], "r1", false);
}

#[test]
fn every_referenced_config_is_indexed() {
    let object = kustomization(
        json!({
            "postBuild": {"substituteFrom": [{"kind": "ConfigMap", "name": "vars"}, {"kind": "Secret", "name": "keys", "optional": true}]},
            "kubeConfig": {"secretRef": {"name": "remote"}},
            "decryption": {"provider": "sops", "secretRef": {"name": "age"}},
        }),
        json!({}),
    );
    assert_eq!(
        config_references(&object),
        ["ConfigMap/prod/vars", "Secret/prod/keys", "Secret/prod/remote", "Secret/prod/age"]
    );
}
