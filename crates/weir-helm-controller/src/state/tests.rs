use serde_json::json;
use weir_api::helm::ReleaseAction;

use super::*;
use crate::digest::Algorithm;
use crate::settings::PROGRAM;

fn object(spec: &Json) -> HelmRelease {
    let mut spec = spec.clone();
    spec["interval"] = "1m".into();
    let object = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": "app", "namespace": "apps", "generation": 1},
        "spec": spec,
        "status": {"observedGeneration": 1}
    });
    serde_json::from_value(object).unwrap()
}

fn record(version: i64, status: Status) -> Record {
    let mut record =
        Record { name: "app".to_owned(), namespace: "apps".to_owned(), version, ..Record::default() };
    record.info.status = status;
    record.chart.metadata = chart();
    record
}

fn chart() -> Metadata {
    Metadata { name: "podinfo".to_owned(), version: "1.0.0".to_owned(), ..Metadata::default() }
}

/// An object that knows `record` as its latest release.
fn knowing(spec: &Json, record: &Record) -> HelmRelease {
    let mut object = object(spec);
    let snapshot = history::snapshot(record, Algorithm::Sha256, "", "install");
    object.status.get_or_insert_default().history.push(snapshot);
    object
}

fn state(object: &HelmRelease, last: Option<&Record>) -> Result<State, UnknownState> {
    determine(object, &FeatureGates::with(PROGRAM.feature_gates, &[]), last, &chart(), &Map::new())
}

#[test]
fn states_without_a_history() {
    let plain = object(&json!({}));
    assert_eq!(state(&plain, None), Ok(State::Absent("no release in storage for object")));
    let pending = record(1, Status::PendingUpgrade);
    assert_eq!(state(&plain, Some(&pending)), Ok(State::Locked("pending-upgrade")));
    let gone = record(1, Status::Uninstalled);
    assert_eq!(state(&plain, Some(&gone)), Ok(State::Absent("found uninstalled release in storage")));
    let strange = State::Unmanaged("found existing release in storage".to_owned());
    assert_eq!(state(&plain, Some(&record(1, Status::Deployed))), Ok(strange));
}

#[test]
fn states_of_a_known_release() {
    for (status, expected) in [
        (Status::Deployed, Ok(State::InSync)),
        (Status::Failed, Ok(State::Failed("release is in a failed state"))),
        (Status::Uninstalled, Ok(State::Absent("found uninstalled release in storage"))),
        (Status::Superseded, Err(UnknownState("superseded"))),
        // One that this controller began to uninstall, and did not come to the end of it.
        (Status::Uninstalling, Ok(State::Locked("uninstalling"))),
    ] {
        let record = record(1, status);
        assert_eq!(state(&knowing(&json!({}), &record), Some(&record)), expected);
    }
    let known = knowing(&json!({}), &record(1, Status::Deployed));
    // Somebody else uninstalls it: no longer as it was made for the object, as with any other change by hand.
    let going = record(1, Status::Uninstalling);
    let unmanaged = State::Unmanaged("release not observed to be made for object".to_owned());
    assert_eq!(state(&known, Some(&going)), Ok(unmanaged));
    let touched = Record { manifest: "changed by hand".to_owned(), ..record(1, Status::Deployed) };
    assert!(matches!(state(&known, Some(&touched)), Ok(State::Unmanaged(_))));
    assert!(matches!(state(&known, Some(&record(2, Status::Deployed))), Ok(State::Unmanaged(_))));
}

#[test]
fn what_makes_a_release_out_of_sync() {
    let deployed = record(1, Status::Deployed);
    let known = knowing(&json!({}), &deployed);
    let gates = FeatureGates::with(PROGRAM.feature_gates, &[]);
    let newer = Metadata { version: "1.0.1".to_owned(), ..chart() };
    let changed = determine(&known, &gates, Some(&deployed), &newer, &Map::new());
    assert_eq!(changed, Ok(State::OutOfSync("release chart changed")));
    let values = json!({"a": 1}).as_object().unwrap().clone();
    let changed = determine(&known, &gates, Some(&deployed), &chart(), &values);
    assert_eq!(changed, Ok(State::OutOfSync("release config values changed")));
    let spec = json!({"commonMetadata": {"labels": {"a": "b"}}});
    let mut relabelled = knowing(&spec, &deployed);
    // Digests are compared only until the generation was observed.
    assert_eq!(state(&relabelled, Some(&deployed)), Ok(State::InSync));
    relabelled.metadata.generation = Some(2);
    assert_eq!(
        state(&relabelled, Some(&deployed)),
        Ok(State::OutOfSync("common metadata digest has changed"))
    );
}

#[test]
fn tests_are_a_state() {
    let deployed = record(1, Status::Deployed);
    let mut known = knowing(&json!({"test": {"enable": true}}), &deployed);
    assert_eq!(state(&known, Some(&deployed)), Ok(State::Untested));
    let failed = weir_api::helm::TestHookStatus { phase: Some("Failed".to_owned()), ..Default::default() };
    let status = known.status.as_mut().unwrap();
    status.history[0].test_hooks = Some([("t".to_owned(), failed)].into());
    assert_eq!(state(&known, Some(&deployed)), Ok(State::InSync));
    known.status.as_mut().unwrap().last_attempted_release_action = Some(ReleaseAction::Install);
    assert_eq!(state(&known, Some(&deployed)), Ok(State::Failed("release has test in failed phase")));
    known.spec.test.as_mut().unwrap().ignore_failures = true;
    assert_eq!(state(&known, Some(&deployed)), Ok(State::InSync));
}

#[track_caller]
fn check(object: &HelmRelease, state: &State, forced: bool, expected: &Next) {
    assert_eq!(
        &next(object, &FeatureGates::with(PROGRAM.feature_gates, &[]), state, forced, |_| true),
        expected
    );
}

/// An object after a failed action.
fn after(spec: &Json, action: ReleaseAction, failures: i64) -> HelmRelease {
    let mut object = object(spec);
    let status = object.status.get_or_insert_default();
    status.last_attempted_release_action = Some(action);
    match action {
        ReleaseAction::Install => status.install_failures = failures,
        ReleaseAction::Upgrade => status.upgrade_failures = failures,
    }
    object
}

#[test]
fn simple_states_have_simple_actions() {
    let plain = object(&json!({}));
    check(&plain, &State::InSync, false, &Next::Nothing);
    check(&plain, &State::InSync, true, &Next::Upgrade);
    check(&plain, &State::Locked("pending-install"), true, &Next::Unlock);
    check(&plain, &State::Absent(""), false, &Next::Install);
    check(&plain, &State::Unmanaged(String::new()), false, &Next::TakeOver);
    check(&plain, &State::OutOfSync(""), false, &Next::Upgrade);
    check(&plain, &State::Untested, false, &Next::Test);
}

#[test]
fn failures_are_remedied_until_there_are_too_many() {
    let failed = State::Failed("");
    // Without retries one attempt is all there is, and it is not rolled back.
    check(&after(&json!({}), ReleaseAction::Upgrade, 1), &failed, false, &Next::Exhausted);
    check(&after(&json!({}), ReleaseAction::Upgrade, 1), &failed, true, &Next::Upgrade);
    check(&after(&json!({}), ReleaseAction::Upgrade, 0), &failed, false, &Next::Upgrade);
    let retries =
        json!({"upgrade": {"remediation": {"retries": 1}}, "install": {"remediation": {"retries": 1}}});
    check(&after(&retries, ReleaseAction::Upgrade, 1), &failed, false, &Next::NoTarget);
    check(&after(&retries, ReleaseAction::Install, 1), &failed, false, &Next::Uninstall);
    check(&after(&retries, ReleaseAction::Install, 2), &failed, false, &Next::Exhausted);
    check(&after(&retries, ReleaseAction::Install, 2), &State::Absent(""), false, &Next::Exhausted);
    check(&after(&retries, ReleaseAction::Upgrade, 2), &State::OutOfSync(""), false, &Next::Exhausted);
    check(&after(&retries, ReleaseAction::Upgrade, 2), &State::OutOfSync(""), true, &Next::Upgrade);
}

#[test]
fn a_rollback_needs_a_target_that_is_on_record() {
    let spec = json!({"upgrade": {"remediation": {"retries": 1}}});
    let mut object = after(&spec, ReleaseAction::Upgrade, 1);
    let status = object.status.as_mut().unwrap();
    for (version, state) in [(2, Status::Failed), (1, Status::Superseded)] {
        status.history.push(history::snapshot(&record(version, state), Algorithm::Sha256, "", ""));
    }
    let target = Box::new(status.history[1].clone());
    check(&object, &State::Failed(""), false, &Next::Rollback(target));
    let gone =
        next(&object, &FeatureGates::with(PROGRAM.feature_gates, &[]), &State::Failed(""), false, |_| false);
    assert_eq!(gone, Next::Upgrade);
}

#[test]
fn retry_on_failure_upgrades_for_ever() {
    let spec = json!({"install": {"strategy": {"name": "RetryOnFailure"}}});
    let object = after(&spec, ReleaseAction::Install, 50);
    check(&object, &State::Failed(""), false, &Next::Retry);
    check(&object, &State::Absent(""), false, &Next::Install);
}

#[test]
fn failures_count_until_something_changes() {
    let mut object = object(&json!({}));
    let values = json!({"a": 1}).as_object().unwrap().clone();
    let reset = |object: &HelmRelease, asked| reset_reason(object, &chart(), &values, asked);
    assert_eq!(reset(&object, false), Some("generation differs from last attempt"));
    let status = object.status.as_mut().unwrap();
    status.last_attempted_generation = 1;
    assert_eq!(reset(&object, false), Some("chart version differs from last attempt"));
    object.status.as_mut().unwrap().last_attempted_revision = Some("1.0.0".to_owned());
    assert_eq!(reset(&object, false), None);
    assert_eq!(reset(&object, true), Some("reset requested through annotation"));
    object.status.as_mut().unwrap().last_attempted_config_digest = Some("sha256:0".to_owned());
    assert_eq!(reset(&object, false), Some("values differ from last attempt"));
    let digest = digest::values(Algorithm::Sha256, &values);
    object.status.as_mut().unwrap().last_attempted_config_digest = Some(digest);
    assert_eq!(reset(&object, false), None);
}

#[test]
fn another_target_is_another_release() {
    let deployed = record(1, Status::Deployed);
    let mut known = knowing(&json!({}), &deployed);
    assert_eq!(target_changed(&known, "podinfo"), None);
    known.status.as_mut().unwrap().storage_namespace = Some("apps".to_owned());
    assert_eq!(target_changed(&known, "podinfo"), None);
    assert_eq!(target_changed(&known, "other"), Some("chart name"));
    known.spec.target_namespace = Some("prod".to_owned());
    assert_eq!(target_changed(&known, "podinfo"), Some("release namespace"));
    known.spec.release_name = Some("x".to_owned());
    known.spec.target_namespace = None;
    assert_eq!(target_changed(&known, "podinfo"), Some("release name"));
    known.spec.storage_namespace = Some("elsewhere".to_owned());
    assert_eq!(target_changed(&known, "podinfo"), Some("storage namespace"));
    known.status.as_mut().unwrap().history.clear();
    assert_eq!(target_changed(&known, "podinfo"), None);
}
