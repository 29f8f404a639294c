//! Uninstalls a release: before its HelmRelease goes, or before it is made somewhere else.

use std::sync::Arc;

use serde_json::Value as Json;
use weir_api::helm::HelmRelease;
use weir_api::names::{condition as types, label};
use weir_apply::health::CustomChecks;
use weir_apply::object::{self, ObjectRef};
use weir_apply::write::WriteCluster;
use weir_helm::action::ActionError;
use weir_helm::release::Record;
use weir_runtime::Severity;

use crate::clusters::ClientError;
use crate::error::Error;
use crate::history::{self, Actions};
use crate::reconcile::{HelmReleaseReconciler, Progress, clear_failures, latest, subject_of, with_log};
use crate::{spec, status, template};

/// Undoes what a HelmRelease stands for. One that is suspended leaves everything behind.
///
/// # Errors
/// What keeps the release from being uninstalled; the finalizer stays then.
pub(crate) async fn finalize<P: Progress>(
    reconciler: &HelmReleaseReconciler,
    progress: &P,
    object: &HelmRelease,
) -> Result<(), Error> {
    if object.spec.suspend {
        return Ok(());
    }
    let stored = object.status.as_ref().and_then(|status| status.storage_namespace.as_deref());
    if stored.is_some_and(|namespace| !namespace.is_empty()) {
        match cluster(reconciler, object).await {
            Ok(Some(cluster)) => {
                uninstall(reconciler, progress, object, cluster).await?;
                progress.update(&mut |object| forget(object));
            }
            Ok(None) => {}
            Err(error) => {
                let (now, message) = (progress.now(), error.to_string());
                progress.update(&mut |object| {
                    status::mark(object, types::READY, false, "UninstallFailed", &message, now);
                });
                progress.publish().await?;
                return Err(Error::Client(message));
            }
        }
    }
    template::delete(&*reconciler.clusters.local(), progress, object).await
}

/// The cluster to uninstall from; `None` if the way to it is gone for good.
async fn cluster(
    reconciler: &HelmReleaseReconciler,
    object: &HelmRelease,
) -> Result<Option<Arc<dyn WriteCluster>>, ClientError> {
    let account = spec::service_account(object, &reconciler.settings.default_service_account);
    if object.spec.kube_config.is_none() && !account.is_empty() {
        let local = reconciler.clusters.local();
        let reference = ObjectRef::core("ServiceAccount", spec::namespace(object), account);
        match local.get(&reference).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                tracing::info!(account, "the service account is gone: the release is left as it is");
                return Ok(None);
            }
            Err(error) => return Err(ClientError::Other(error.to_string())),
        }
    }
    match reconciler.clusters.target(object).await {
        Ok(cluster) => Ok(Some(cluster)),
        Err(ClientError::Missing(why)) => {
            tracing::info!("the release is left as it is: {why}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Uninstalls the release the status knows, or one that it does not know because the process died before it was
/// told: its objects name the HelmRelease. A release of others is left alone.
///
/// # Errors
/// What keeps it from being uninstalled.
pub(crate) async fn uninstall<P: Progress>(
    reconciler: &HelmReleaseReconciler,
    progress: &P,
    object: &HelmRelease,
    cluster: Arc<dyn WriteCluster>,
) -> Result<(), Error> {
    let stored = object.status.as_ref().and_then(|status| status.storage_namespace.clone());
    let namespace = stored.unwrap_or_else(|| spec::storage_namespace(object).to_owned());
    let checks = Arc::new(CustomChecks::default());
    let known = latest(object);
    let name = known.as_ref().map_or_else(|| spec::release_name(object), |snapshot| snapshot.name.clone());
    let work = reconciler.work(object, cluster, checks, &namespace, name);
    let snapshot = if let Some(snapshot) = known {
        snapshot
    } else {
        let last = work.storage().last().await.map_err(|error| Error::Action(error.to_string()))?;
        let Some(last) = last.filter(|record| is_of(record, object)) else { return Ok(()) };
        history::snapshot(&last, reconciler.settings.digest_algorithm, "", "")
    };
    let release = format!("{} with chart {}", history::full_name(&snapshot), history::chart(&snapshot));
    let subject = subject_of(&snapshot);
    let outcome = progress.without_worker(work.uninstall()).await;
    let now = progress.now();
    let actions = Actions { new: "", known: "uninstall" };
    progress.update(&mut |object| {
        if let Some(status) = &mut object.status {
            let algorithm = reconciler.settings.digest_algorithm;
            history::observe(&mut status.history, &outcome.written, algorithm, "", actions);
        }
    });
    // The last release on record is uninstalled, whatever it is; one that is not ours is told, and gone the next time.
    let other = outcome.written.iter().find(|record| record.version != snapshot.version);
    let message = match &outcome.result {
        Ok(()) if other.is_some() => {
            let found =
                other.map(|record| format!("{}/{}.v{}", record.namespace, record.name, record.version));
            let message = format!(
                "Helm uninstall failed for release {release}: release mismatch: uninstalled release {} != current release {}",
                found.unwrap_or_default(),
                history::full_name(&snapshot)
            );
            progress.update(&mut |object| fail(object, &message, now));
            progress.notice(status::notice(Severity::Error, "UninstallFailed", message.clone(), &subject));
            progress.publish().await?;
            return Err(Error::Action(message));
        }
        Ok(()) => format!("Helm uninstall succeeded for release {release}"),
        Err(ActionError::NotFound(_)) => {
            format!("Release {} was not found, assuming it is uninstalled", history::full_name(&snapshot))
        }
        Err(ActionError::AlreadyDeleted(_)) => {
            format!("Release {} was already uninstalled", history::full_name(&snapshot))
        }
        Err(error) => {
            let message =
                format!("Helm uninstall failed for release {release}: {}", error.to_string().trim());
            progress.update(&mut |object| fail(object, &message, now));
            let text = with_log(&message, &outcome.log);
            progress.notice(status::notice(Severity::Error, "UninstallFailed", text, &subject));
            progress.publish().await?;
            return Err(Error::Action(message));
        }
    };
    progress.update(&mut |object| {
        if let Some(status) = &mut object.status {
            status.inventory = None;
        }
        status::mark(object, types::RELEASED, false, "UninstallSucceeded", &message, now);
        status::summarize(object, now);
    });
    progress.notice(status::notice(Severity::Info, "UninstallSucceeded", message, &subject));
    Ok(())
}

/// Whether the objects of a record say that they were made for a HelmRelease.
fn is_of(record: &Record, object: &HelmRelease) -> bool {
    let documents = weir_manifest::read_documents(record.manifest.as_bytes(), "").unwrap_or_default();
    let names = |item: &Json| {
        (object::label(item, label::HELM_NAME), object::label(item, label::HELM_NAMESPACE))
            == (Some(spec::name(object)), Some(spec::namespace(object)))
    };
    !documents.is_empty() && documents.iter().all(names)
}

fn fail(object: &mut HelmRelease, message: &str, now: jiff::Timestamp) {
    if let Some(status) = &mut object.status {
        status.failures += 1;
    }
    status::mark(object, types::RELEASED, false, "UninstallFailed", message, now);
    status::summarize(object, now);
}

/// Forgets a release that is gone.
pub(crate) fn forget(object: &mut HelmRelease) {
    if let Some(status) = &mut object.status {
        status.history.clear();
        status.storage_namespace = None;
    }
    clear_failures(object);
}
