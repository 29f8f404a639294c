use std::time::Duration;

use serde_json::json;
use weir_runtime::{Conclusion, Ended, Failed, Pass, Requeue};
use weir_source::git::{Reference, Target};

use super::super::error::Error;
use super::*;
use crate::source::status::{Before, Done, begin, building, conclude, is_news};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-01T01:00:00Z";

fn object(generation: i64, status: &serde_json::Value) -> GitRepository {
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": "r", "namespace": "apps", "generation": generation},
        "spec": {"interval": "1m", "url": "https://example.com/r.git"}, "status": status,
    }))
    .unwrap()
}

fn ready() -> GitRepository {
    let mut object = object(1, &json!({"observedGeneration": -1}));
    begin(&mut object, time(EARLY));
    let artifact = artifact("main@sha1:1", "sha256:1");
    published(&mut object, artifact, Vec::new(), time(EARLY));
    let done = done(&self::object(1, &json!({})));
    conclude_at(&mut object, &Pass::Reconciled(Ok(&done)), EARLY);
    object
}

fn artifact(revision: &str, digest: &str) -> weir_api::Artifact {
    serde_json::from_value(json!({
        "revision": revision, "digest": digest, "path": "p", "url": "u", "lastUpdateTime": EARLY,
    }))
    .unwrap()
}

fn done(before: &GitRepository) -> Done {
    let message = "stored artifact for commit 'first'".to_owned();
    Done { before: Before::of(before), message, unchanged: None, reason: None }
}

fn unchanged_done(before: &GitRepository) -> Done {
    Done {
        before: Before::of(before),
        message: "stored artifact for commit 'main@sha1:1'".to_owned(),
        unchanged: Some("no changes since last reconciliation: observed revision 'main@sha1:1'".to_owned()),
        reason: None,
    }
}

fn new_revision(object: &mut GitRepository, revision: &str, now: Timestamp) -> bool {
    let message = format!("new upstream revision '{revision}'");
    crate::source::status::new_revision(object, revision, &message, now)
}

fn conclude_at(object: &mut GitRepository, pass: &Pass<'_, Done, Error>, at: &str) -> Conclusion {
    conclude(object, pass, Ended { now: time(at), elapsed: Duration::from_secs(1) })
}

/// `Type=Status Reason: message` of all conditions.
fn lines(object: &GitRepository) -> Vec<String> {
    object
        .conditions()
        .iter()
        .map(|one| format!("{}={} {}: {}", one.type_, one.status.as_str(), one.reason, one.message))
        .collect()
}

fn notices(conclusion: &Conclusion) -> Vec<String> {
    conclusion
        .notices
        .iter()
        .map(|notice| {
            let event = if notice.event { "" } else { " (log only)" };
            format!("{:?} {}: {}{event}", notice.severity, notice.reason, notice.message)
        })
        .collect()
}

#[test]
fn the_first_artifact() {
    let mut object = object(1, &json!({"observedGeneration": -1}));
    assert!(is_news(&object));
    begin(&mut object, time(EARLY));
    let message = "processing object: new generation -1 -> 1";
    assert_eq!(
        lines(&object),
        [format!("Reconciling=True Progressing: {message}"), format!("Ready=Unknown Progressing: {message}")]
    );
    building(&mut object, "building artifact", time(EARLY));
    assert!(new_revision(&mut object, "main@sha1:1", time(EARLY)));
    let message = "building artifact: new upstream revision 'main@sha1:1'";
    assert_eq!(
        lines(&object),
        [format!("Reconciling=True Progressing: {message}"), format!("Ready=Unknown Progressing: {message}")]
    );
    let object = ready();
    let message = "stored artifact for revision 'main@sha1:1'";
    assert_eq!(
        lines(&object),
        [format!("Ready=True Succeeded: {message}"), format!("ArtifactInStorage=True Succeeded: {message}")]
    );
    assert_eq!(object.observed_generation(), Some(1));
    assert!(!is_news(&object));
}

#[test]
fn an_unchanged_run_changes_nothing() {
    let before = ready();
    let mut object = before.clone();
    begin(&mut object, time(LATE));
    assert!(condition::is_true(object.conditions(), READY));
    unchanged(&mut object, "main@sha1:1", time(LATE));
    let done = unchanged_done(&before);
    let conclusion = conclude_at(&mut object, &Pass::Reconciled(Ok(&done)), LATE);
    assert_eq!(object.status, before.status);
    assert_eq!(conclusion.requeue, Requeue::Interval(Duration::from_mins(1)));
    assert_eq!(
        notices(&conclusion),
        [
            "Info GitOperationSucceeded: no changes since last reconciliation: observed revision 'main@sha1:1' (log only)"
        ]
    );
}

#[test]
fn a_new_revision_is_announced_and_told() {
    let before = ready();
    let mut object = before.clone();
    begin(&mut object, time(LATE));
    assert!(new_revision(&mut object, "main@sha1:2", time(LATE)));
    assert_eq!(lines(&object)[3], "ArtifactOutdated=True NewRevision: new upstream revision 'main@sha1:2'");
    assert!(condition::is_unknown(object.conditions(), READY));
    let artifact = artifact("main@sha1:2", "sha256:2");
    published(&mut object, artifact, Vec::new(), time(LATE));
    let conclusion = conclude_at(&mut object, &Pass::Reconciled(Ok(&done(&before))), LATE);
    assert_eq!(notices(&conclusion), ["Info NewArtifact: stored artifact for commit 'first'"]);
    let metadata = &conclusion.notices[0].metadata;
    assert_eq!(metadata["source.toolkit.fluxcd.io/revision"], "main@sha1:2");
    assert_eq!(metadata["source.toolkit.fluxcd.io/digest"], "sha256:2");
    assert_eq!(lines(&object).len(), 2);
}

fn checkout_failure() -> Failed<Error> {
    let reference = Reference { semver: Some("x y".to_owned()), ..Reference::default() };
    Failed::Error(Error::Target(Target::new(&reference).unwrap_err()))
}

#[test]
fn a_failure_keeps_the_artifact_and_its_end_is_told() {
    let mut object = ready();
    begin(&mut object, time(LATE));
    let failed = checkout_failure();
    let conclusion = conclude_at(&mut object, &Pass::Reconciled(Err(&failed)), LATE);
    assert_eq!(conclusion.requeue, Requeue::Backoff);
    let text = "failed to checkout and determine revision: semver parse error: improper constraint: \"x y\"";
    assert_eq!(notices(&conclusion), [format!("Error GitOperationFailed: {text}")]);
    assert_eq!(
        lines(&object),
        [
            "Reconciling=True ProgressingWithRetry: reconciliation in progress".to_owned(),
            format!("Ready=False GitOperationFailed: {text}"),
            "ArtifactInStorage=True Succeeded: stored artifact for revision 'main@sha1:1'".to_owned(),
            format!("FetchFailed=True GitOperationFailed: {text}"),
        ]
    );
    assert!(object.status.as_ref().unwrap().artifact.is_some());

    let before = object.clone();
    begin(&mut object, time(LATE));
    unchanged(&mut object, "main@sha1:1", time(LATE));
    let done = unchanged_done(&before);
    let conclusion = conclude_at(&mut object, &Pass::Reconciled(Ok(&done)), LATE);
    assert_eq!(notices(&conclusion)[1], "Info Succeeded: stored artifact for commit 'main@sha1:1'");
    assert_eq!(lines(&object).len(), 2);
}

#[test]
fn what_cannot_help_itself_stalls() {
    let mut object = object(3, &json!({"observedGeneration": 2}));
    begin(&mut object, time(LATE));
    let failed = Failed::Error(Error::NoGithubApp { is_terminal: true });
    let conclusion = conclude_at(&mut object, &Pass::Reconciled(Err(&failed)), LATE);
    assert_eq!(conclusion.requeue, Requeue::Never);
    assert_eq!(object.observed_generation(), Some(3));
    assert_eq!(
        lines(&object),
        [
            "Stalled=True InvalidProviderConfiguration: secretRef with github app data must be specified when provider is set to github",
            "Ready=False InvalidProviderConfiguration: secretRef with github app data must be specified when provider is set to github",
            "FetchFailed=True InvalidProviderConfiguration: secretRef with github app data must be specified when provider is set to github",
        ]
    );
}

#[test]
fn an_include_is_waited_for() {
    let mut object = object(1, &json!({"observedGeneration": -1}));
    begin(&mut object, time(LATE));
    let retry = Duration::from_secs(30);
    let failed = Failed::Error(Error::IncludeNotReady { name: "base".to_owned(), retry });
    let conclusion = conclude_at(&mut object, &Pass::Reconciled(Err(&failed)), LATE);
    assert_eq!(conclusion.requeue, Requeue::After(retry));
    assert_eq!(notices(&conclusion), ["Trace NoArtifact: no artifact available for include 'base'"]);
    assert_eq!(object.observed_generation(), Some(-1));
    assert_eq!(lines(&object)[1], "Ready=False NoArtifact: no artifact available for include 'base'");
}

#[test]
fn suspended_objects_keep_what_they_say() {
    let before = ready();
    let mut object = before.clone();
    object.metadata.generation = Some(2);
    let conclusion = conclude_at(&mut object, &Pass::Suspended, LATE);
    assert_eq!(conclusion.requeue, Requeue::Never);
    assert_eq!(lines(&object), lines(&before));
    assert_eq!(object.observed_generation(), Some(2));
}

#[test]
fn requests_are_news() {
    let mut object = ready();
    object
        .metadata
        .annotations
        .get_or_insert_default()
        .insert("reconcile.fluxcd.io/requestedAt".to_owned(), "now".to_owned());
    assert!(is_news(&object));
    object.set_last_handled_reconcile_at("now".to_owned());
    assert!(!is_news(&object));
}
