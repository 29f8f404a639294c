//! Snapshots of releases in the status: what the controller knows to have made. Pure.

use std::collections::BTreeMap;

use weir_api::helm::{ReleaseSnapshot, TestHookStatus};
use weir_api::time::Time;
use weir_helm::action::TestFilter;
use weir_helm::release::{Record, RecordHook, Status};

use crate::digest::{self, Algorithm};

/// The version of the digests in snapshots.
pub const API_VERSION: &str = "v2";
/// How many snapshots stay where no good one is found.
const KEPT: usize = 5;

/// The snapshot of a record.
pub fn snapshot(record: &Record, algorithm: Algorithm, oci_digest: &str, action: &str) -> ReleaseSnapshot {
    let info = &record.info;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ReleaseSnapshot {
        action: text(action),
        api_version: text(API_VERSION),
        app_version: text(&record.chart.metadata.app_version),
        chart_name: record.chart.metadata.name.clone(),
        chart_version: record.chart.metadata.version.clone(),
        config_digest: digest::values(Algorithm::Sha256, &record.config),
        deleted: time(&info.deleted),
        digest: digest::release(algorithm, record, oci_digest),
        first_deployed: time(&info.first_deployed).unwrap_or_else(epoch),
        last_deployed: time(&info.last_deployed).unwrap_or_else(epoch),
        name: record.name.clone(),
        namespace: record.namespace.clone(),
        oci_digest: text(oci_digest),
        status: info.status.name().to_owned(),
        test_hooks: None,
        version: record.version,
    }
}

fn time(text: &str) -> Option<Time> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(time.into())
}

fn epoch() -> Time {
    jiff::Timestamp::UNIX_EPOCH.into()
}

/// Whether a snapshot is of a record.
///
/// # Errors
/// Why it is not.
pub fn verify(snapshot: &ReleaseSnapshot, record: &Record) -> Result<(), String> {
    let same = snapshot.name == record.name
        && snapshot.namespace == record.namespace
        && snapshot.version == record.version;
    if !same {
        return Err(NOT_OBSERVED.to_owned());
    }
    // Snapshots of earlier digests are believed.
    if snapshot.api_version.as_deref() != Some(API_VERSION) {
        return Ok(());
    }
    let oci_digest = snapshot.oci_digest.as_deref().unwrap_or_default();
    match digest::is_of_release(&snapshot.digest, record, oci_digest) {
        Ok(true) => Ok(()),
        Ok(false) => Err(NOT_OBSERVED.to_owned()),
        Err(error) => Err(format!("release digest verification error: {error}")),
    }
}

const NOT_OBSERVED: &str = "release not observed to be made for object";

/// `<namespace>/<name>.v<version>`
pub fn full_name(snapshot: &ReleaseSnapshot) -> String {
    format!("{}/{}.v{}", snapshot.namespace, snapshot.name, snapshot.version)
}

/// `<chart>@<version>`
pub fn chart(snapshot: &ReleaseSnapshot) -> String {
    format!("{}@{}", snapshot.chart_name, snapshot.chart_version)
}

/// Puts the newest first.
pub fn sort(history: &mut [ReleaseSnapshot]) {
    history.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.version));
}

/// Whether the tests of a snapshot were run.
pub fn is_tested(snapshot: &ReleaseSnapshot) -> bool {
    let Some(hooks) = &snapshot.test_hooks else { return false };
    let phase = |hook: &TestHookStatus, phase: &str| hook.phase.as_deref() == Some(phase);
    hooks.values().any(|hook| phase(hook, "Failed")) || hooks.values().all(|hook| phase(hook, "Succeeded"))
}

/// Whether a test of a snapshot failed.
pub fn has_failed_test(snapshot: &ReleaseSnapshot) -> bool {
    let hooks = snapshot.test_hooks.iter().flatten();
    hooks.into_iter().any(|(_, hook)| hook.phase.as_deref() == Some("Failed"))
}

/// How the tests of a record went; only of the selected ones.
pub fn test_hooks(record: &Record, filter: &TestFilter) -> BTreeMap<String, TestHookStatus> {
    record
        .hooks
        .iter()
        .filter(|hook| digest::is_test(hook) && filter.selects(&hook.name))
        .map(|hook| (hook.name.clone(), test_hook(hook)))
        .collect()
}

fn test_hook(hook: &RecordHook) -> TestHookStatus {
    let run = &hook.last_run;
    TestHookStatus {
        last_started: time(&run.started_at),
        last_completed: time(&run.completed_at),
        phase: (!run.phase.is_empty()).then(|| run.phase.clone()),
    }
}

/// Whether a snapshot is one to go back to.
fn is_good(snapshot: &ReleaseSnapshot, ignore_tests: bool) -> bool {
    [Status::Deployed.name(), Status::Superseded.name()].contains(&snapshot.status.as_str())
        && (ignore_tests || !has_failed_test(snapshot))
}

/// The newest good snapshot before the latest.
pub fn previous(history: &[ReleaseSnapshot], ignore_tests: bool) -> Option<&ReleaseSnapshot> {
    history.iter().skip(1).find(|snapshot| is_good(snapshot, ignore_tests))
}

/// Forgets what is older than the newest good snapshot before the latest.
pub fn truncate(history: &mut Vec<ReleaseSnapshot>, ignore_tests: bool) {
    sort(history);
    let good = history.iter().skip(1).position(|snapshot| is_good(snapshot, ignore_tests));
    history.truncate(good.map_or(KEPT, |position| position + 2));
}

/// Forgets all but the newest few.
pub fn truncate_plainly(history: &mut Vec<ReleaseSnapshot>) {
    sort(history);
    history.truncate(KEPT);
}

/// Takes the records an action wrote into the history.
///
/// The newest version is put first if it is new. Known ones are brought up to date; they keep their tests and the digest
/// of their artifact. Older ones that are not known were made by somebody else, and stay unknown.
pub fn observe(
    history: &mut Vec<ReleaseSnapshot>,
    written: &[Record],
    algorithm: Algorithm,
    oci_digest: &str,
    actions: Actions,
) {
    let mut written: Vec<&Record> = written.iter().collect();
    written.sort_by_key(|record| record.version);
    let newest = written.last().map(|record| record.version);
    for record in written {
        match history.iter_mut().find(|known| known.version == record.version && known.name == record.name) {
            Some(known) => {
                let oci_digest = known.oci_digest.clone().unwrap_or_default();
                let fresh = snapshot(record, algorithm, &oci_digest, actions.known);
                let test_hooks = known.test_hooks.take();
                *known = ReleaseSnapshot { test_hooks, ..fresh };
            }
            None if Some(record.version) == newest => {
                history.insert(0, snapshot(record, algorithm, oci_digest, actions.new));
            }
            None => {}
        }
    }
    sort(history);
}

/// What snapshots say made them; empty for nothing.
#[derive(Debug, Clone, Copy)]
pub struct Actions {
    /// New versions.
    pub new: &'static str,
    /// Versions that were known.
    pub known: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(version: i64, status: Status) -> Record {
        let mut record =
            Record { name: "app".to_owned(), namespace: "apps".to_owned(), version, ..Record::default() };
        record.info.status = status;
        record.info.first_deployed = "2026-01-02T03:04:05.678Z".to_owned();
        record.info.last_deployed.clone_from(&record.info.first_deployed);
        record
    }

    #[test]
    fn older_versions_of_others_stay_unknown() {
        let mut known = Vec::new();
        let written = [record(4, Status::Superseded), record(5, Status::Deployed)];
        let actions = Actions { new: "upgrade", known: "" };
        observe(&mut known, &written, Algorithm::Sha256, "", actions);
        assert_eq!(known.iter().map(|snapshot| snapshot.version).collect::<Vec<_>>(), [5]);
    }

    fn history(list: &[(i64, &str)]) -> Vec<ReleaseSnapshot> {
        list.iter()
            .map(|(version, status)| {
                let mut snapshot =
                    snapshot(&record(*version, Status::Deployed), Algorithm::Sha256, "", "install");
                (*status).clone_into(&mut snapshot.status);
                snapshot
            })
            .collect()
    }

    fn versions(history: &[ReleaseSnapshot]) -> Vec<i64> {
        history.iter().map(|snapshot| snapshot.version).collect()
    }

    #[test]
    fn a_snapshot_is_of_its_record_only() {
        let deployed = record(1, Status::Deployed);
        let snapshot = snapshot(&deployed, Algorithm::Sha256, "", "install");
        assert_eq!(verify(&snapshot, &deployed), Ok(()));
        assert_eq!(verify(&snapshot, &record(2, Status::Deployed)), Err(NOT_OBSERVED.to_owned()));
        let touched = Record { manifest: "changed".to_owned(), ..deployed.clone() };
        assert_eq!(verify(&snapshot, &touched), Err(NOT_OBSERVED.to_owned()));
        let old = ReleaseSnapshot { api_version: None, ..snapshot.clone() };
        assert_eq!(verify(&old, &touched), Ok(()));
        let broken = ReleaseSnapshot { digest: "sha256:zz".to_owned(), ..snapshot };
        assert!(verify(&broken, &deployed).unwrap_err().starts_with("release digest verification error"));
    }

    #[test]
    fn truncation_keeps_the_way_back() {
        let mut list =
            history(&[(5, "failed"), (4, "failed"), (3, "superseded"), (2, "superseded"), (1, "superseded")]);
        truncate(&mut list, false);
        assert_eq!(versions(&list), [5, 4, 3]);
        let mut failed = history(&[
            (1, "failed"),
            (7, "failed"),
            (6, "failed"),
            (5, "failed"),
            (4, "failed"),
            (3, "failed"),
        ]);
        truncate(&mut failed, false);
        assert_eq!(versions(&failed), [7, 6, 5, 4, 3]);
        assert_eq!(previous(&failed, false), None);
    }

    #[test]
    fn failed_tests_are_no_way_back_unless_ignored() {
        let mut list = history(&[(3, "failed"), (2, "superseded"), (1, "superseded")]);
        let failed = TestHookStatus { phase: Some("Failed".to_owned()), ..TestHookStatus::default() };
        list[1].test_hooks = Some([("t".to_owned(), failed)].into());
        assert_eq!(previous(&list, false).map(|snapshot| snapshot.version), Some(1));
        assert_eq!(previous(&list, true).map(|snapshot| snapshot.version), Some(2));
    }

    #[test]
    fn what_was_written_is_observed() {
        let mut list = history(&[(1, "deployed")]);
        list[0].oci_digest = Some("sha256:a".to_owned());
        list[0].test_hooks = Some(BTreeMap::new());
        let written = [record(2, Status::Deployed), record(1, Status::Superseded)];
        observe(&mut list, &written, Algorithm::Sha256, "sha256:b", Actions { new: "upgrade", known: "" });
        assert_eq!(versions(&list), [2, 1]);
        assert_eq!((list[0].status.as_str(), list[0].oci_digest.as_deref()), ("deployed", Some("sha256:b")));
        assert_eq!(
            (list[1].status.as_str(), list[1].oci_digest.as_deref()),
            ("superseded", Some("sha256:a"))
        );
        assert_eq!((list[1].action.clone(), list[1].test_hooks.clone()), (None, Some(BTreeMap::new())));
        assert_eq!(verify(&list[1], &written[1]), Ok(()));
    }

    #[test]
    fn tested_means_run() {
        let mut snapshot = history(&[(1, "deployed")]).remove(0);
        assert!(!is_tested(&snapshot));
        snapshot.test_hooks = Some(BTreeMap::new());
        assert!(is_tested(&snapshot));
        let running = TestHookStatus { phase: Some("Running".to_owned()), ..TestHookStatus::default() };
        snapshot.test_hooks = Some([("t".to_owned(), running)].into());
        assert!(!is_tested(&snapshot));
    }
}
