use std::time::Duration;

use serde_json::{Value, json};
use weir_apply::apply::ApplyError;
use weir_apply::change::{Action, ChangeSet};
use weir_apply::cluster::ClusterError;
use weir_apply::object::ObjectRef;
use weir_runtime::{ObjectKey, Trigger};

use super::*;

const REVISION: &str = "main@sha1:4f2c";

#[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
fn object(status: Value) -> Kustomization {
    serde_json::from_value(json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "apps", "namespace": "prod", "generation": 2},
        "spec": {"interval": "10m", "retryInterval": "2m", "prune": true,
            "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        "status": status,
    }))
    .unwrap()
}

fn ended() -> Ended {
    Ended { now: "2026-03-01T12:00:00Z".parse().unwrap(), elapsed: Duration::from_millis(1200) }
}

fn facts() -> Facts {
    Facts { revision: REVISION.into(), origin_revision: String::new(), digest: Some("sha256:d1".into()) }
}

fn run(object: &mut Kustomization, result: Result<Done, Cause>) -> Conclusion {
    let wait = Duration::from_secs(30);
    let result = result.map_err(|cause| {
        Failed::Error(Error::new(cause, facts(), decide::retry_interval(&object.spec), wait))
    });
    conclude(object, &Pass::Reconciled(result.as_ref()), ended(), wait)
}

fn conditions(object: &Kustomization) -> Vec<String> {
    object
        .conditions()
        .iter()
        .map(|condition| {
            format!("{}={:?} {}: {}", condition.type_, condition.status, condition.reason, condition.message)
        })
        .collect()
}

#[test]
fn success() {
    let mut object = object(json!({"observedGeneration": -1}));
    mark_progress(&mut object, "Detecting drift for revision x", ended().now);
    let conclusion = run(&mut object, Ok(Done { facts: facts(), nothing_new: false }));
    assert_eq!(conditions(&object), ["Ready=True ReconciliationSucceeded: Applied revision: main@sha1:4f2c"]);
    let status = object.status.as_ref().unwrap();
    assert_eq!(status.observed_generation, 2);
    assert_eq!(status.last_applied_revision.as_deref(), Some(REVISION));
    assert_eq!(status.history.len(), 1);
    assert_eq!(status.history[0].last_reconciled_status, "ReconciliationSucceeded");
    assert_eq!(status.history[0].metadata["revision"], REVISION);
    assert_eq!(conclusion.requeue, Requeue::Interval(Duration::from_mins(10)));
    let notice = &conclusion.notices[0];
    assert_eq!(notice.message, "Reconciliation finished in 1.2s, next run in 10m0s");
    assert_eq!(notice.metadata["kustomize.toolkit.fluxcd.io/commit_status"], "update");
    assert_eq!(notice.metadata["kustomize.toolkit.fluxcd.io/revision"], REVISION);
    assert!(notice.event);
}

#[test]
fn a_run_with_nothing_new_changes_nothing() {
    let mut object = object(json!({}));
    run(&mut object, Ok(Done { facts: facts(), nothing_new: false }));
    let before = object.clone();
    let later = Ended { now: "2026-03-01T12:10:00Z".parse().unwrap(), ..ended() };
    let done = Done { facts: facts(), nothing_new: true };
    let conclusion = conclude(&mut object, &Pass::Reconciled(Ok(&done)), later, Duration::from_secs(30));
    assert_eq!(object, before);
    let notice = &conclusion.notices[0];
    assert!(notice.event && !notice.kubernetes && notice.log);
}

#[track_caller]
fn check(cause: Cause, expected: &[&str], requeue: Requeue, event: Option<(&str, &str)>) {
    let mut object = object(json!({"observedGeneration": 1}));
    mark_progress(&mut object, "Building manifests for revision x", ended().now);
    let conclusion = run(&mut object, Err(cause));
    assert_eq!(conditions(&object), expected);
    assert_eq!(conclusion.requeue, requeue);
    let got = conclusion.notices.iter().find(|notice| notice.event);
    let got = got.map(|notice| (notice.reason.as_ref(), notice.message.as_str()));
    assert_eq!(got, event);
}

#[test]
fn failures_keep_their_step_and_their_shape() {
    let retry = Requeue::After(Duration::from_mins(2));
    let step = "Reconciling=True ProgressingWithRetry: Building manifests for revision x";
    let refused = ClusterError::Api { code: 422, reason: "Invalid".into(), message: "spec: bad".into() };
    let subject = ObjectRef {
        kind: "Service".into(),
        namespace: "prod".into(),
        name: "web".into(),
        ..ObjectRef::default()
    };
    check(
        Cause::Apply {
            source: Box::new(ApplyError::DryRun { object: subject, source: refused, hint: "" }),
            changes: "Namespace/prod created".into(),
        },
        &[
            step,
            "Ready=False ReconciliationFailed: Service/prod/web dry-run failed (Invalid): spec: bad\nNamespace/prod created",
        ],
        retry,
        Some((
            "ReconciliationFailed",
            "Service/prod/web dry-run failed (Invalid): spec: bad\nNamespace/prod created",
        )),
    );
    check(
        Cause::Unhealthy { message: "timeout waiting for: [x]".into(), elapsed: Duration::from_mins(5) },
        &[step, "Ready=False HealthCheckFailed: health check failed after 5m0s: timeout waiting for: [x]"],
        retry,
        Some(("HealthCheckFailed", "health check failed after 5m0s: timeout waiting for: [x]")),
    );
    check(
        Cause::ArtifactGone(Duration::from_secs(30)),
        &[step, "Ready=False ArtifactFailed: Source is not ready, artifact not found, retrying in 30s"],
        Requeue::After(Duration::from_secs(30)),
        None,
    );
    check(
        Cause::SourceNotFound {
            resource: "gitrepositories.source.toolkit.fluxcd.io",
            name: "fleet".into(),
            reference: "GitRepository/fleet".into(),
        },
        &[step, "Ready=False ArtifactFailed: gitrepositories.source.toolkit.fluxcd.io \"fleet\" not found"],
        retry,
        None,
    );
    check(
        Cause::Dependency("dependency 'prod/db' is not ready".into()),
        &[step, "Ready=False DependencyNotReady: dependency 'prod/db' is not ready"],
        Requeue::After(Duration::from_secs(30)),
        Some(("DependencyNotReady", "Dependencies do not meet ready condition, retrying in 30s")),
    );
    check(
        Cause::HealthCheckCanceled(Trigger {
            kind: "GitRepository".into(),
            key: ObjectKey::new("prod", "fleet"),
        }),
        &[step, "Ready=False HealthCheckCanceled: New reconciliation triggered by GitRepository/prod/fleet"],
        Requeue::Now,
        Some((
            "HealthCheckCanceled",
            "Health checks canceled due to new reconciliation triggered by GitRepository/prod/fleet",
        )),
    );
}

#[test]
fn terminal_failures_stall() {
    let denied = "can't access 'GitRepository/infra/fleet', cross-namespace references have been blocked";
    check(
        Cause::AccessDenied {
            source_name: "GitRepository/infra/fleet".into(),
            why: "cross-namespace references have been blocked",
        },
        &[&format!("Stalled=True AccessDenied: {denied}"), &format!("Ready=False AccessDenied: {denied}")],
        Requeue::Never,
        Some(("AccessDenied", denied)),
    );
    let mut object = object(json!({"observedGeneration": 1}));
    run(&mut object, Err(Cause::InvalidExpression("x".into())));
    assert_eq!(object.status.as_ref().unwrap().observed_generation, 2);
}

#[test]
fn only_outcomes_of_applying_go_into_the_history() {
    let recorded = |cause| {
        let mut object = object(json!({}));
        run(&mut object, Err(cause));
        let history = &object.status.as_ref().unwrap().history;
        history.first().map(|snapshot| snapshot.last_reconciled_status.clone())
    };
    assert_eq!(
        recorded(Cause::Unhealthy { message: String::new(), elapsed: Duration::ZERO }).as_deref(),
        Some("HealthCheckFailed")
    );
    assert_eq!(recorded(Cause::EncryptedSecret(String::new())).as_deref(), Some("ReconciliationFailed"));
    assert_eq!(recorded(Cause::Dependency(String::new())), None);
    assert_eq!(recorded(Cause::NoArtifact(Duration::ZERO)), None);
}

#[test]
fn a_suspended_object_that_is_ready_is_observed() {
    let mut object = object(json!({}));
    run(&mut object, Ok(Done { facts: facts(), nothing_new: false }));
    object.metadata.generation = Some(3);
    let conclusion = conclude(&mut object, &Pass::Suspended, ended(), Duration::ZERO);
    assert_eq!(object.status.as_ref().unwrap().observed_generation, 3);
    assert_eq!(conclusion.requeue, Requeue::Never);
    assert!(conclusion.notices.is_empty());
}

#[test]
fn the_inventory_is_stored_in_the_order_of_the_reference() {
    let mut object = object(json!({}));
    let mut changes = ChangeSet::default();
    let reference = |kind: &str, group: &str, namespace: &str| ObjectRef {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: "x".into(),
    };
    changes.push(reference("Namespace", "", ""), Action::Created);
    changes.push(reference("Deployment", "apps", "n"), Action::Skipped);
    set_inventory(&mut object, &Inventory::of_changes(&changes));
    assert_eq!(
        serde_json::to_value(object.status.unwrap().inventory).unwrap(),
        json!({"entries": [{"id": "_x__Namespace", "v": "v1"}, {"id": "n_x_apps_Deployment", "v": "v1"}]})
    );
}
