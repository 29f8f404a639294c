//! The HelmChart a HelmRelease asks for.

use serde_json::Value as Json;
use weir_api::helm::HelmRelease;
use weir_apply::cluster::{ApplyMode, Cluster};
use weir_apply::object::{ObjectRef, metadata_map};
use weir_runtime::{Notice, ObjectKey, Severity};

use crate::act::MANAGER;
use crate::error::Error;
use crate::reconcile::{HelmReleaseReconciler, Progress};
use crate::{chart, spec};

/// Makes the HelmChart of the template agree with it, or deletes one that is no longer wanted.
///
/// One that already is as it should be costs no request.
///
/// # Errors
/// A source that may not be used, or what the API server says.
pub(crate) async fn reconcile<P: Progress>(
    reconciler: &HelmReleaseReconciler,
    progress: &P,
    object: &HelmRelease,
) -> Result<(), Error> {
    let local = reconciler.clusters.local();
    let Some(template) = &object.spec.chart else { return delete(&*local, progress, object).await };
    let namespace = chart::template_namespace(object, template);
    let name = chart::template_name(object);
    if reconciler.settings.no_cross_namespace_refs && namespace != spec::namespace(object) {
        let source = &template.spec.source_ref;
        return Err(Error::Template(format!(
            "cross-namespace references are not allowed: cannot access {} {namespace}/{}",
            source.kind, source.name
        )));
    }
    let wanted = format!("{namespace}/{name}");
    let known = object.status.as_ref().and_then(|status| status.helm_chart.as_deref());
    if known.is_some_and(|known| !known.is_empty() && known != wanted) {
        delete(&*local, progress, object).await?;
    }
    let desired = chart::from_template(object, template);
    let live = reconciler.stores.charts.get(&ObjectKey::new(namespace, name.as_str()));
    let live = live.and_then(|live| serde_json::to_value(&*live).ok());
    if live.as_ref().is_none_or(|live| !agrees(live, &desired)) {
        let exists = live.is_some();
        let source = &template.spec.source_ref;
        let mode = ApplyMode { manager: MANAGER, dry_run: false };
        match local.apply(&desired, mode).await {
            Ok(_) => {
                let (reason, word) = if exists {
                    ("HelmChartConfigured", "configured")
                } else {
                    ("HelmChartCreated", "created")
                };
                let message = format!(
                    "HelmChart/{wanted} {word} with SourceRef '{}/{namespace}/{}'",
                    source.kind, source.name
                );
                progress.notice(Notice::new(Severity::Trace, reason, message));
            }
            Err(error) => {
                let message = format!("HelmChart/{wanted} could not be reconciled: {error}");
                progress.notice(Notice::new(Severity::Trace, "HelmChartSyncErr", message.clone()));
                return Err(Error::Template(message));
            }
        }
    }
    progress.update(&mut |object| {
        object.status.get_or_insert_default().helm_chart = Some(wanted.clone());
    });
    Ok(())
}

/// Whether a live HelmChart is what is desired: the same spec, and all labels and annotations.
fn agrees(live: &Json, desired: &Json) -> bool {
    let has_all = |field: &str| {
        metadata_map(desired, field)
            .into_iter()
            .flatten()
            .all(|(key, value)| metadata_map(live, field).and_then(|map| map.get(key)) == Some(value))
    };
    let empty = |value: Option<&Json>| match value {
        None | Some(Json::Null | Json::Bool(false)) => true,
        Some(Json::Array(items)) => items.is_empty(),
        Some(Json::Object(map)) => map.is_empty(),
        Some(_) => false,
    };
    let (live_spec, wanted) = (&live["spec"], &desired["spec"]);
    let fields = live_spec.as_object().into_iter().flatten().chain(wanted.as_object().into_iter().flatten());
    has_all("labels")
        && has_all("annotations")
        && fields.map(|(field, _)| field).all(|field| {
            let (live, wanted) = (live_spec.get(field), wanted.get(field));
            live == wanted || (empty(live) && empty(wanted)) || (field == "suspend" && wanted.is_none())
        })
}

/// Deletes the HelmChart named in the status; one that is gone is fine.
///
/// # Errors
/// What the API server says.
pub(crate) async fn delete<P: Progress>(
    local: &dyn Cluster,
    progress: &P,
    object: &HelmRelease,
) -> Result<(), Error> {
    let known = object.status.as_ref().and_then(|status| status.helm_chart.as_deref());
    let Some((namespace, name)) = known.and_then(|known| known.split_once('/')) else { return Ok(()) };
    let reference = ObjectRef {
        group: "source.toolkit.fluxcd.io".to_owned(),
        version: "v1".to_owned(),
        kind: "HelmChart".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    match local.delete(&reference).await {
        Err(error) if !error.is_not_found() && !error.is_no_match() => {
            return Err(Error::Template(format!("failed to delete {reference}: {error}")));
        }
        _ => {}
    }
    progress.notice(Notice::new(Severity::Trace, "HelmChartDeleted", format!("deleted {reference}")));
    progress.update(&mut |object| {
        if let Some(status) = &mut object.status {
            status.helm_chart = None;
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_api_server_adds_is_no_difference() {
        let desired = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"chart": "x", "version": "*"}});
        let live = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}},
            "spec": {"chart": "x", "version": "*", "suspend": true, "valuesFiles": [], "ignoreMissingValuesFiles": false}
        });
        assert!(agrees(&live, &desired));
        let other = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"chart": "x", "version": "1.x"}});
        assert!(!agrees(&live, &other));
        let more = json!({"metadata": {}, "spec": {"chart": "x", "version": "*", "valuesFiles": ["a"]}});
        assert!(!agrees(&live, &more));
        let relabelled = json!({"metadata": {"labels": {"a": "2"}}, "spec": {"chart": "x", "version": "*"}});
        assert!(!agrees(&live, &relabelled));
    }
}
