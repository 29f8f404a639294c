use serde_json::{Value, json};
use weir_runtime::{Classify, FeatureGates};

use super::*;
use crate::error::Error;
use crate::settings::{Flags, PROGRAM};

fn settings(arguments: &[&str]) -> Settings {
    let arguments = std::iter::once("kustomize-controller").chain(arguments.iter().copied());
    let flags: Flags = weir_runtime::flags::try_parse(&PROGRAM, arguments).unwrap();
    let gates = FeatureGates::parse(PROGRAM.feature_gates, &flags.common.feature_gates).unwrap();
    Settings::new(&flags, gates).unwrap()
}

fn kustomization(spec: Value, rest: Value) -> Kustomization {
    let mut object = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "apps", "namespace": "prod", "generation": 2},
        "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
    });
    merge(&mut object["spec"], spec);
    merge(&mut object, rest);
    serde_json::from_value(object).unwrap()
}

fn merge(target: &mut Value, source: Value) {
    match (target, source) {
        (Value::Object(target), Value::Object(source)) => {
            for (key, value) in source {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, source) => *target = source,
    }
}

#[track_caller]
fn check_times(spec: Value, timeout_seconds: u64, retry_seconds: u64) {
    let object = kustomization(spec, json!({}));
    assert_eq!(timeout(&object.spec).as_secs(), timeout_seconds);
    assert_eq!(retry_interval(&object.spec).as_secs(), retry_seconds);
}

#[test]
fn times_have_floors_and_defaults() {
    check_times(json!({}), 570, 600);
    check_times(json!({"timeout": "3m", "retryInterval": "1m"}), 180, 60);
    check_times(json!({"timeout": "10s"}), 30, 600);
    check_times(json!({"interval": "45s"}), 30, 45);
    check_times(json!({"interval": "10s"}), 30, 10);
}

#[track_caller]
fn check_deletes(spec: Value, expected: bool) {
    assert_eq!(deletes_objects(&kustomization(spec, json!({})).spec), expected);
}

#[test]
fn deletion_follows_policy_and_prune() {
    check_deletes(json!({}), true);
    check_deletes(json!({"prune": false}), false);
    check_deletes(json!({"prune": false, "deletionPolicy": "Delete"}), true);
    check_deletes(json!({"prune": false, "deletionPolicy": "WaitForTermination"}), true);
    check_deletes(json!({"deletionPolicy": "Orphan"}), false);
    check_deletes(json!({"suspend": true, "deletionPolicy": "Delete"}), false);
}

#[track_caller]
fn check_denied(spec: Value, flags: &[&str], expected: Option<&str>) {
    let object = kustomization(spec, json!({}));
    let result = check_access(&object, &source_name(&object), &settings(flags));
    assert_eq!(result.err().map(|cause| cause.to_string()).as_deref(), expected);
}

#[test]
fn access_rules() {
    check_denied(json!({}), &["--no-cross-namespace-refs"], None);
    let other = json!({"sourceRef": {"namespace": "infra"}});
    check_denied(other.clone(), &[], None);
    check_denied(
        other,
        &["--no-cross-namespace-refs"],
        Some("can't access 'GitRepository/infra/fleet', cross-namespace references have been blocked"),
    );
    let external = json!({"sourceRef": {"kind": "ExternalArtifact"}});
    check_denied(
        external.clone(),
        &[],
        Some("can't access 'ExternalArtifact/prod/fleet', ExternalArtifact feature gate is disabled"),
    );
    check_denied(external, &["--feature-gates=ExternalArtifact=true"], None);
}

#[test]
fn the_account_of_the_spec_wins() {
    let flags = settings(&["--default-service-account=tenant"]);
    assert_eq!(service_account(&kustomization(json!({}), json!({})).spec, &flags), "tenant");
    let named = kustomization(json!({"serviceAccountName": "deployer"}), json!({}));
    assert_eq!(service_account(&named.spec, &flags), "deployer");
    assert_eq!(service_account(&kustomization(json!({}), json!({})).spec, &settings(&[])), "");
}

const REVISION: &str = "main@sha1:4f2c";

fn artifact() -> Artifact {
    serde_json::from_value(json!({"digest": "sha256:00", "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "p",
        "revision": REVISION, "url": "http://localhost/p", "metadata": {"org.opencontainers.image.revision": "origin"}}))
    .unwrap()
}

#[test]
fn the_origin_comes_from_the_artifact() {
    let facts = facts(&artifact());
    assert_eq!((facts.revision.as_str(), facts.origin_revision.as_str()), (REVISION, "origin"));
}

fn ready_status() -> Value {
    json!({"observedGeneration": 2, "lastAppliedRevision": REVISION, "lastAttemptedRevision": REVISION,
        "conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2}]})
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
fn check_progress(status: Value, metadata: Value, expected: bool) {
    let mut whole = ready_status();
    merge(&mut whole, status);
    let object = kustomization(json!({}), json!({"status": whole, "metadata": metadata}));
    assert_eq!(shows_progress(&object, &artifact()), expected);
}

#[test]
fn a_run_is_quiet_only_when_nothing_is_new() {
    check_progress(json!({}), json!({}), false);
    check_progress(json!({"observedGeneration": 1}), json!({}), true);
    check_progress(json!({"lastAppliedRevision": "main@sha1:0"}), json!({}), true);
    check_progress(json!({"lastAttemptedRevision": "main@sha1:0"}), json!({}), true);
    let requested = json!({"annotations": {"reconcile.fluxcd.io/requestedAt": "now"}});
    check_progress(json!({}), requested.clone(), true);
    check_progress(json!({"lastHandledReconcileAt": "now"}), requested, false);
    assert!(shows_progress(&kustomization(json!({}), json!({})), &artifact()));
}

fn dependency(found: Result<Value, &str>, expression: Option<&str>) -> Dependency {
    Dependency {
        name: "db".into(),
        full_name: "prod/db".into(),
        found: found
            .map(|status| {
                Box::new(kustomization(json!({}), json!({"metadata": {"name": "db"}, "status": status})))
            })
            .map_err(str::to_owned),
        ready_expression: expression.map(str::to_owned),
    }
}

#[track_caller]
fn check_dependency(dependency: Dependency, gates: &[(&'static str, bool)], expected: Option<&str>) {
    let object = kustomization(json!({"interval": "5m"}), json!({"metadata": {"labels": {"tier": "x"}}}));
    let result = check_dependencies(
        &object,
        &[dependency],
        REVISION,
        &FeatureGates::with(PROGRAM.feature_gates, gates),
    );
    assert_eq!(result.err().map(|cause| cause.to_string()).as_deref(), expected);
}

#[test]
fn dependencies_by_status() {
    check_dependency(dependency(Ok(ready_status()), None), &[], None);
    check_dependency(
        dependency(Err("kustomizations.kustomize.toolkit.fluxcd.io \"db\" not found"), None),
        &[],
        Some("dependency 'prod/db' not found: kustomizations.kustomize.toolkit.fluxcd.io \"db\" not found"),
    );
    let not_ready = Some("dependency 'prod/db' is not ready");
    check_dependency(dependency(Ok(json!({})), None), &[], not_ready);
    let changed = |pointer: &str, value: Value| {
        let mut status = ready_status();
        *status.pointer_mut(pointer).unwrap() = value;
        dependency(Ok(status), None)
    };
    check_dependency(changed("/observedGeneration", json!(1)), &[], not_ready);
    check_dependency(changed("/conditions/0/status", json!("False")), &[], not_ready);
    check_dependency(
        changed("/lastAppliedRevision", json!("main@sha1:0")),
        &[],
        Some("dependency 'prod/db' revision is not up to date"),
    );
}

#[test]
fn dependencies_by_expression() {
    let expression =
        "dep.metadata.generation == dep.status.observedGeneration && self.metadata.labels.tier == 'x'";
    check_dependency(dependency(Ok(json!({"observedGeneration": 2})), Some(expression)), &[], None);
    check_dependency(
        dependency(Ok(json!({"observedGeneration": 1})), Some(expression)),
        &[],
        Some("dependency 'prod/db' is not ready according to readyExpr eval"),
    );
    check_dependency(
        dependency(Ok(json!({"observedGeneration": 2})), Some(expression)),
        &[("AdditiveCELDependencyCheck", true)],
        Some("dependency 'prod/db' is not ready"),
    );
    let object = kustomization(json!({}), json!({}));
    let broken = check_dependencies(
        &object,
        &[dependency(Ok(ready_status()), Some("dep."))],
        REVISION,
        &FeatureGates::with(PROGRAM.feature_gates, &[]),
    )
    .unwrap_err();
    assert!(broken.is_terminal());
    assert!(
        broken.to_string().starts_with(
            "Reconciliation failed terminally due to configuration error: failed to evaluate dependency db: "
        ),
        "{broken}"
    );
    let missing = check_dependencies(
        &object,
        &[dependency(Ok(ready_status()), Some("dep.status.nope == true"))],
        REVISION,
        &FeatureGates::with(PROGRAM.feature_gates, &[]),
    )
    .unwrap_err();
    assert!(!missing.is_terminal(), "a missing field may appear: {missing}");
    let field = check_dependencies(
        &object,
        &[dependency(Ok(ready_status()), Some("dep.status.ready"))],
        REVISION,
        &FeatureGates::with(PROGRAM.feature_gates, &[]),
    )
    .unwrap_err();
    assert!(field.is_terminal());
    assert!(
        field.to_string().ends_with(
            "failed to evaluate dependency db: CEL expression output type mismatch: expected bool, got dyn"
        ),
        "{field}"
    );
}

#[test]
fn health_checks_default_to_apps() {
    let object = kustomization(
        json!({"healthChecks": [
            {"kind": "Deployment", "name": "web", "namespace": "prod"},
            {"apiVersion": "example.com/v1beta1", "kind": "Widget", "name": "w"},
            {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "apps", "namespace": "prod"}]}),
        json!({}),
    );
    let listed = listed_checks(&object.spec);
    assert_eq!((listed[0].group.as_str(), listed[0].version.as_str()), ("apps", "v1"));
    assert_eq!((listed[1].group.as_str(), listed[1].namespace.as_str()), ("example.com", ""));
    assert_eq!(listed.iter().map(|check| is_self(&object, check)).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn broken_health_expressions_are_terminal() {
    let object = kustomization(
        json!({"healthCheckExprs": [{"apiVersion": "example.com/v1", "kind": "Widget", "current": "status."}]}),
        json!({}),
    );
    let cause = health_checks(&object.spec, false).unwrap_err();
    let error = Error::new(cause, Facts::default(), Duration::ZERO, Duration::ZERO);
    assert_eq!(error.reason(), "InvalidCELExpression");
    assert_eq!(error.class(), weir_runtime::Class::Terminal);
}

#[test]
fn durations_print_as_go_prints_them() {
    assert_eq!(go(Duration::from_mins(10)), "10m0s");
    assert_eq!(go(Duration::from_millis(1500)), "1.5s");
}
