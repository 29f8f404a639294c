//! The actions on a release, and how their outcome gets into the status.

use std::collections::HashSet;

use weir_api::helm::{DriftDetectionMode, HelmRelease, ReleaseAction, ReleaseSnapshot};
use weir_api::names::{condition as types, reason};
use weir_api::{FluxObject, GoDuration, condition};
use weir_helm::action::ActionError;
use weir_helm::release::Record;
use weir_runtime::{Notice, Severity};

use super::{
    Drift, HelmReleaseReconciler, Job, Kind, Progress, clear_failures, latest, subject_of, with_log,
};
use crate::error::Error;
use crate::history::{self, Actions};
use crate::{diagnosis, drift, spec, status};

impl HelmReleaseReconciler {
    pub(super) async fn install_or_upgrade<P: Progress>(
        &self,
        progress: &P,
        job: &Job,
        action: ReleaseAction,
        last: Option<&Record>,
    ) -> Result<(), Error> {
        let chart = self.release_chart(job).await?;
        progress.update(&mut |object| {
            object.status_mut().last_attempted_release_action = Some(action);
            if action == ReleaseAction::Install {
                object.status_mut().history.clear();
            }
            status::remove(object, types::TEST_SUCCESS);
            status::remove(object, types::REMEDIATED);
        });
        let started = tokio::time::Instant::now();
        let (word, good, bad) = match action {
            ReleaseAction::Install => ("install", "InstallSucceeded", "InstallFailed"),
            ReleaseAction::Upgrade => ("upgrade", "UpgradeSucceeded", "UpgradeFailed"),
        };
        let outcome = match action {
            ReleaseAction::Install => self.perform(progress, job.work.install(&chart, &job.values)).await,
            ReleaseAction::Upgrade => {
                self.perform(progress, job.work.upgrade(&chart, &job.values, last)).await
            }
        };
        let outcome = outcome.map_err(Error::Canceled)?;
        let elapsed = i64::try_from(started.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let now = progress.now();
        let actions = Actions { new: word, known: "" };
        progress.update(&mut |object| {
            let status = object.status_mut();
            status.last_attempted_release_action_duration = Some(GoDuration::from_nanos(elapsed));
            history::observe(
                &mut status.history,
                &outcome.written,
                self.settings.digest_algorithm,
                &job.oci_digest,
                actions,
            );
        });
        self.list_inventory(progress, job, &outcome.written).await;
        let object = &job.work.object;
        match outcome.result {
            Ok(()) => {
                let latest = latest(&progress.snapshot());
                let message =
                    latest.as_ref().map(|latest| status::succeeded(word, latest)).unwrap_or_default();
                progress.update(&mut |object| {
                    if spec::active_retry(object, Some(&self.settings.gates)).is_some() {
                        clear_failures(object);
                    }
                    status::mark(object, types::RELEASED, true, good, &message, now);
                    if spec::tests_enabled(object)
                        && let Some(latest) = latest.as_ref().filter(|latest| !history::is_tested(latest))
                    {
                        let message = format!(
                            "Helm release {} with chart {} is awaiting tests",
                            history::full_name(latest),
                            history::chart(latest)
                        );
                        let stamp = status::stamp(object, now);
                        let conditions = object.conditions_mut();
                        condition::mark_unknown(
                            conditions,
                            types::TEST_SUCCESS,
                            "AwaitingTests",
                            &message,
                            stamp,
                        );
                    }
                    status::summarize(object, now);
                });
                progress.notice(status::notice(Severity::Info, good, message, &job.subject()));
                Ok(())
            }
            Err(error) => {
                let mut message = format!(
                    "Helm {word} failed for release {}/{} with chart {}@{}: {}",
                    spec::release_namespace(object),
                    spec::full_release_name(object),
                    job.metadata.name,
                    job.metadata.version,
                    error.to_string().trim()
                );
                let explanation = self.explain(progress, job, &outcome.written, &error).await;
                if !explanation.is_empty() {
                    message = format!("{message}\n\n{explanation}");
                }
                let stored = !outcome.written.is_empty();
                progress.update(&mut |object| {
                    let status = object.status_mut();
                    status.failures += 1;
                    if stored {
                        match action {
                            ReleaseAction::Install => status.install_failures += 1,
                            ReleaseAction::Upgrade => status.upgrade_failures += 1,
                        }
                    }
                    status::mark(object, types::RELEASED, false, bad, &message, now);
                    status::summarize(object, now);
                });
                progress.notice(status::notice(
                    Severity::Error,
                    bad,
                    with_log(&message, &outcome.log),
                    &job.subject(),
                ));
                if stored { Ok(()) } else { Err(Error::Action(error.to_string())) }
            }
        }
    }

    /// What the Pods that are not ready say, if it is they that made an action fail.
    async fn explain<P: Progress>(
        &self,
        progress: &P,
        job: &Job,
        written: &[Record],
        error: &ActionError,
    ) -> String {
        let is_about_pods =
            matches!(error, ActionError::Wait(_) | ActionError::NotReady(_) | ActionError::Hook { .. });
        if !is_about_pods || !self.settings.gates.enabled("ExplainFailures") {
            return String::new();
        }
        let Some(record) = written.iter().max_by_key(|record| record.version) else { return String::new() };
        diagnosis::explain(&*job.work.cluster, record, &job.work.checks, progress.now()).await
    }

    /// Lists the objects of the last written record in the status.
    async fn list_inventory<P: Progress>(&self, progress: &P, job: &Job, written: &[Record]) {
        let Some(record) = written.iter().max_by_key(|record| record.version) else { return };
        let chart = self.loaded.get(&job.artifact.digest);
        match crate::inventory::entries(&*job.work.cluster, record, chart.as_deref()).await {
            Ok(inventory) => progress.update(&mut |object| {
                object.status_mut().inventory = Some(inventory.clone());
            }),
            Err(error) => {
                let message = format!("failed to build inventory: {error}");
                progress.notice(Notice::new(Severity::Error, "InventoryBuildFailed", message));
            }
        }
    }

    pub(super) async fn test<P: Progress>(&self, progress: &P, job: &Job) -> Result<(), Error> {
        let outcome = self.perform(progress, job.work.test()).await.map_err(Error::Canceled)?;
        let now = progress.now();
        let filter = spec::test_filter(&job.work.object);
        let version = latest(&progress.snapshot()).map(|latest| latest.version);
        let tested = outcome.written.iter().find(|record| Some(record.version) == version);
        progress.update(&mut |object| {
            let Some(record) = tested else { return };
            let status = object.status_mut();
            let action = Actions { new: "", known: "" };
            let kept = status.history.first().and_then(|latest| latest.action.clone());
            let written = std::slice::from_ref(record);
            history::observe(&mut status.history, written, self.settings.digest_algorithm, "", action);
            if let Some(latest) = status.history.first_mut() {
                latest.test_hooks = Some(history::test_hooks(record, &filter));
                latest.action = kept;
            }
        });
        let Some(latest) = latest(&progress.snapshot()) else { return Ok(()) };
        let release = format!("{} with chart {}", history::full_name(&latest), history::chart(&latest));
        match outcome.result {
            Ok(()) => {
                let count = latest.test_hooks.as_ref().map_or(0, std::collections::BTreeMap::len);
                let hooks = if count == 0 {
                    "no test hooks".to_owned()
                } else {
                    format!("{count} test hook(s) completed successfully")
                };
                let message = format!("Helm test succeeded for release {release}: {hooks}");
                progress.update(&mut |object| {
                    status::mark(object, types::TEST_SUCCESS, true, "TestSucceeded", &message, now);
                    status::summarize(object, now);
                });
                progress.notice(status::notice(Severity::Info, "TestSucceeded", message, &job.subject()));
                Ok(())
            }
            Err(error) => {
                let message = format!("Helm test failed for release {release}: {}", error.to_string().trim());
                let ran = history::is_tested(&latest);
                progress.update(&mut |object| {
                    let remediation = spec::active_remediation(object);
                    let status = object.status_mut();
                    status.failures += 1;
                    if let Some(remediation) = remediation.filter(|found| ran && !found.ignore_test_failures)
                    {
                        match remediation.action {
                            ReleaseAction::Install => status.install_failures += 1,
                            ReleaseAction::Upgrade => status.upgrade_failures += 1,
                        }
                    }
                    status::mark(object, types::TEST_SUCCESS, false, "TestFailed", &message, now);
                    status::summarize(object, now);
                });
                let text = with_log(&message, &outcome.log);
                progress.notice(status::notice(Severity::Error, "TestFailed", text, &job.subject()));
                if ran { Ok(()) } else { Err(Error::Action(error.to_string())) }
            }
        }
    }

    pub(super) async fn rollback<P: Progress>(
        &self,
        progress: &P,
        job: &Job,
        target: &ReleaseSnapshot,
    ) -> Result<(), Error> {
        progress.update(&mut |object| {
            if let Some(status) = &mut object.status {
                history::truncate(&mut status.history, false);
            }
        });
        let latest = latest(&progress.snapshot());
        let matches = latest
            .as_ref()
            .is_some_and(|latest| (&latest.name, &latest.namespace) == (&target.name, &target.namespace));
        if !matches {
            return Err(Error::Action("release mismatch: the target is of another release".to_owned()));
        }
        let outcome =
            self.perform(progress, job.work.rollback(target.version)).await.map_err(Error::Canceled)?;
        let now = progress.now();
        let actions = Actions { new: "", known: "rollback" };
        progress.update(&mut |object| {
            let history = &mut object.status_mut().history;
            history::observe(history, &outcome.written, self.settings.digest_algorithm, "", actions);
        });
        self.list_inventory(progress, job, &outcome.written).await;
        let to = format!("{} with chart {}", history::full_name(target), history::chart(target));
        let subject = subject_of(target);
        match outcome.result {
            Ok(()) => {
                let message = format!("Helm rollback to previous release {to} succeeded");
                progress.update(&mut |object| {
                    status::mark(object, types::REMEDIATED, true, "RollbackSucceeded", &message, now);
                    status::summarize(object, now);
                });
                progress.notice(status::notice(Severity::Info, "RollbackSucceeded", message, &subject));
                Ok(())
            }
            Err(error) => {
                let message =
                    format!("Helm rollback to previous release {to} failed: {}", error.to_string().trim());
                progress.update(&mut |object| {
                    object.status_mut().failures += 1;
                    status::mark(object, types::REMEDIATED, false, "RollbackFailed", &message, now);
                    status::summarize(object, now);
                });
                let text = with_log(&message, &outcome.log);
                progress.notice(status::notice(Severity::Error, "RollbackFailed", text, &subject));
                if outcome.written.is_empty() { Err(Error::Action(error.to_string())) } else { Ok(()) }
            }
        }
    }

    pub(super) async fn uninstall_remediation<P: Progress>(
        &self,
        progress: &P,
        job: &Job,
    ) -> Result<(), Error> {
        progress.update(&mut |object| {
            if let Some(status) = &mut object.status {
                history::truncate(&mut status.history, false);
            }
        });
        let Some(latest) = latest(&progress.snapshot()) else {
            return Err(Error::Action("no latest release to uninstall".to_owned()));
        };
        let outcome = self.perform(progress, job.work.uninstall()).await.map_err(Error::Canceled)?;
        let now = progress.now();
        let actions = Actions { new: "", known: "uninstall-remediation" };
        progress.update(&mut |object| {
            let history = &mut object.status_mut().history;
            history::observe(history, &outcome.written, self.settings.digest_algorithm, "", actions);
        });
        let release = format!("{} with chart {}", history::full_name(&latest), history::chart(&latest));
        let subject = subject_of(&latest);
        match outcome.result {
            Ok(()) => {
                let message = format!("Helm uninstall remediation for release {release} succeeded");
                progress.update(&mut |object| {
                    status::mark(object, types::REMEDIATED, true, "UninstallSucceeded", &message, now);
                });
                progress.notice(status::notice(Severity::Info, "UninstallSucceeded", message, &subject));
                Ok(())
            }
            Err(error) => {
                let message = format!(
                    "Helm uninstall remediation for release {release} failed: {}",
                    error.to_string().trim()
                );
                progress.update(&mut |object| {
                    object.status_mut().failures += 1;
                    status::mark(object, types::REMEDIATED, false, "UninstallFailed", &message, now);
                });
                let text = with_log(&message, &outcome.log);
                progress.notice(status::notice(Severity::Error, "UninstallFailed", text, &subject));
                if outcome.written.is_empty() { Err(Error::Action(error.to_string())) } else { Ok(()) }
            }
        }
    }

    pub(super) async fn unlock<P: Progress>(
        &self,
        progress: &P,
        job: &Job,
        last: Record,
    ) -> Result<(), Error> {
        let state = last.info.status.name();
        let snapshot = history::snapshot(&last, self.settings.digest_algorithm, "", "");
        let known =
            latest(&progress.snapshot()).is_some_and(|latest| history::verify(&latest, &last).is_ok());
        let outcome = job.work.unlock(last).await;
        let now = progress.now();
        let release = format!("{} with chart {}", history::full_name(&snapshot), history::chart(&snapshot));
        if let Err(error) = outcome.result {
            let message = format!("Unlock of Helm release {release} in {state} state failed: {error}");
            progress.update(&mut |object| {
                object.status_mut().failures += 1;
                status::mark(object, types::RELEASED, false, "PendingRelease", &message, now);
                status::summarize(object, now);
            });
            progress.notice(status::notice(Severity::Error, "PendingRelease", message, &job.subject()));
            return Err(Error::Action(error.to_string()));
        }
        let message = format!("Unlocked Helm release {release} in {state} state");
        progress.update(&mut |object| {
            if known {
                let history = &mut object.status_mut().history;
                let actions = Actions { new: "", known: "" };
                history::observe(history, &outcome.written, self.settings.digest_algorithm, "", actions);
            }
            status::mark(object, types::RELEASED, false, "PendingRelease", &message, now);
            status::summarize(object, now);
        });
        progress.notice(status::notice(Severity::Info, "PendingRelease", message, &job.subject()));
        Ok(())
    }

    /// Compares the cluster with the last record, and corrects it if that is asked for.
    pub(super) async fn check_drift<P: Progress>(
        &self,
        progress: &P,
        current: &HelmRelease,
        job: &Job,
        last: Option<&Record>,
        done: &mut HashSet<Kind>,
    ) -> Result<Drift, Error> {
        let (Some(last), Some(latest)) = (last, latest(current)) else { return Ok(Drift::None) };
        let found = drift::compare(&*job.work.cluster, current, last, &self.settings.override_managers)
            .await
            .map_err(Error::State)?;
        if !found.has_changes() {
            return Ok(Drift::None);
        }
        let now = progress.now();
        let release = history::full_name(&latest);
        let message = format!(
            "Cluster state of release {release} has drifted from the desired state:\n{}",
            found.summary()
        );
        progress.notice(Notice::new(Severity::Error, "DriftDetected", message.clone()));
        progress.update(&mut |object| {
            let stamp = status::stamp(object, now);
            let conditions = object.conditions_mut();
            condition::mark_true(conditions, status::DRIFTED, "DriftDetected", &message, stamp);
        });
        let corrects = spec::drift_mode(current) == DriftDetectionMode::Enabled;
        if !corrects || !done.insert(Kind::Drift) {
            progress.update(&mut |object| {
                status::remove(object, types::RECONCILING);
                status::summarize(object, now);
            });
            return Ok(Drift::Handled);
        }
        progress.update(&mut |object| {
            let stamp = status::stamp(object, now);
            let conditions = object.conditions_mut();
            condition::mark_reconciling(conditions, reason::PROGRESSING, "correcting cluster drift", stamp);
            condition::mark_unknown(
                conditions,
                types::READY,
                reason::PROGRESSING,
                "correcting cluster drift",
                stamp,
            );
        });
        progress.publish().await?;
        let corrected = drift::correct(&*job.work.cluster, found, spec::timeout(current)).await;
        let subject = subject_of(&latest);
        let (severity, reason, first, lines) = if corrected.errors.is_empty() {
            let first = format!("Cluster state of release {release} has been corrected:");
            (Severity::Info, "DriftCorrected", first, corrected.changes.clone())
        } else {
            let partially = if corrected.changes.is_empty() { "" } else { "partially " };
            let first = format!("Failed to {partially}correct cluster state of release {release}:");
            let lines = corrected.changes.iter().chain(&corrected.errors).cloned().collect();
            (Severity::Error, "DriftCorrectionFailed", first, lines)
        };
        let notice = status::notice(severity, reason, format!("{first}\n{}", lines.join("\n")), &subject);
        progress.notice(notice);
        if !corrected.errors.is_empty() {
            progress.update(&mut |object| status::summarize(object, now));
            return Err(Error::Action(corrected.errors.join("; ")));
        }
        // What was put right is looked at once more, and told to be right.
        Box::pin(self.check_drift(progress, &progress.snapshot(), job, Some(last), done)).await
    }
}
