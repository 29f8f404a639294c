//! Compares the cluster with what a release put there, and puts right what differs.

use std::time::Duration;

use serde_json::Value as Json;
use weir_api::helm::HelmRelease;
use weir_apply::cluster::{ApplyMode, Cluster};
use weir_apply::ignore::{self, Rule, Rules, Target};
use weir_apply::managers::CleanUp;
use weir_apply::normalise::normalise;
use weir_apply::object::{self, ObjectRef};
use weir_helm::action::read_manifest;
use weir_helm::release::Record;

use crate::act::MANAGER;

/// The label or annotation that takes an object out of the comparison.
const OPT_OUT: &str = "helm.toolkit.fluxcd.io/driftDetection";

/// What is different about one object.
enum Difference {
    /// It is gone.
    Removed(Json),
    /// It was changed: what brings it back, as a JSON patch.
    Changed(Vec<Json>),
}

/// What differs from the release.
#[derive(Default)]
pub(crate) struct Found {
    differences: Vec<(ObjectRef, Difference)>,
    excluded: Vec<ObjectRef>,
}

impl Found {
    /// Whether anything has to be put right.
    pub(crate) fn has_changes(&self) -> bool {
        !self.differences.is_empty()
    }

    /// One line for each object.
    pub(crate) fn summary(&self) -> String {
        let differences = self.differences.iter().map(|(reference, difference)| match difference {
            Difference::Removed(_) => format!("{reference} removed"),
            Difference::Changed(patch) => {
                let count = |op: &str| patch.iter().filter(|change| change["op"] == op).count();
                let (adds, changes, removals) = (count("add"), count("replace"), count("remove"));
                format!("{reference} changed ({adds} additions, {changes} changes, {removals} removals)")
            }
        });
        let excluded = self.excluded.iter().map(|reference| format!("{reference} excluded"));
        differences.chain(excluded).collect::<Vec<_>>().join("\n")
    }
}

/// Compares the live objects with the manifest of a record, by dry-run.
///
/// # Errors
/// A manifest or rule that cannot be used; objects that cannot be compared, unless others differ.
pub(crate) async fn compare(
    cluster: &dyn Cluster,
    object: &HelmRelease,
    record: &Record,
    overrides: &[String],
) -> Result<Found, String> {
    let rules = rules(object)?;
    let clean_up = CleanUp::managers(overrides);
    let mut found = Found::default();
    let mut errors = Vec::new();
    for item in read_manifest(cluster, &record.manifest, &record.namespace).await? {
        let reference = ObjectRef::of(&item);
        match compare_one(cluster, item, record, &rules, &clean_up).await {
            Ok(Outcome::Same) => {}
            Ok(Outcome::Excluded) => found.excluded.push(reference),
            Ok(Outcome::Different(difference)) => found.differences.push((reference, difference)),
            Err(error) => errors.push(format!("{reference}: {error}")),
        }
    }
    if errors.is_empty() {
        return Ok(found);
    }
    let text = errors.join("; ");
    if found.has_changes() {
        tracing::error!(error = text, "unable to compare all objects with the cluster");
        return Ok(found);
    }
    Err(format!("unable to determine cluster state: {text}"))
}

/// An object of a manifest as it is applied: with the marks of its release.
pub(crate) fn desired(item: Json, release: &str, namespace: &str) -> Result<Json, String> {
    let mut desired = normalise(item).map_err(|error| error.to_string())?;
    object::set_metadata(&mut desired, "labels", [("app.kubernetes.io/managed-by", "Helm")]);
    let annotations = [("meta.helm.sh/release-name", release), ("meta.helm.sh/release-namespace", namespace)];
    object::set_metadata(&mut desired, "annotations", annotations);
    Ok(desired)
}

enum Outcome {
    Same,
    Excluded,
    Different(Difference),
}

async fn compare_one(
    cluster: &dyn Cluster,
    item: Json,
    record: &Record,
    rules: &Rules,
    clean_up: &CleanUp,
) -> Result<Outcome, String> {
    let desired = desired(item, &record.name, &record.namespace)?;
    let opted_out = |value: &Json| {
        [object::label(value, OPT_OUT), object::annotation(value, OPT_OUT)]
            .into_iter()
            .flatten()
            .any(|value| value.eq_ignore_ascii_case("disabled"))
    };
    let ignored: Vec<String> = rules.paths(&desired).into_iter().map(ToOwned::to_owned).collect();
    if opted_out(&desired) || ignored.iter().any(String::is_empty) {
        return Ok(Outcome::Excluded);
    }
    let reference = ObjectRef::of(&desired);
    let failed = |error| weir_apply::mask::error(&desired, error).to_string();
    let Some(mut live) = cluster.get(&reference).await.map_err(failed)? else {
        return Ok(Outcome::Different(Difference::Removed(desired)));
    };
    if opted_out(&live) {
        return Ok(Outcome::Excluded);
    }
    if let Some(operations) = clean_up.patch(&live, MANAGER) {
        live = cluster.patch(&reference, &operations, MANAGER).await.map_err(failed)?;
    }
    let mode = ApplyMode { manager: MANAGER, dry_run: true };
    let mut wanted = cluster.apply(&desired, mode).await.map_err(failed)?;
    for pointer in &ignored {
        ignore::remove(&mut live, pointer);
        ignore::remove(&mut wanted, pointer);
    }
    let patch = difference(&live, &wanted);
    if patch.is_empty() { Ok(Outcome::Same) } else { Ok(Outcome::Different(Difference::Changed(patch))) }
}

/// The JSON patch from what is to what should be. Of the metadata only labels and annotations count, and
/// those that others added stay; the status does not count.
fn difference(live: &Json, wanted: &Json) -> Vec<Json> {
    let comparable = |value: &Json| {
        let mut value = value.clone();
        if let Some(map) = value.as_object_mut() {
            map.remove("status");
            map.remove("metadata");
        }
        value
    };
    let mut patch = Vec::new();
    for field in ["annotations", "labels"] {
        let wanted = object::metadata_map(wanted, field).cloned().unwrap_or_default();
        let live = object::metadata_map(live, field);
        if live.is_none() && !wanted.is_empty() {
            patch.push(
                serde_json::json!({"op": "add", "path": format!("/metadata/{field}"), "value": wanted}),
            );
            continue;
        }
        for (key, value) in wanted {
            let path = format!("/metadata/{field}/{}", key.replace('~', "~0").replace('/', "~1"));
            match live.and_then(|live| live.get(&key)) {
                None => patch.push(serde_json::json!({"op": "add", "path": path, "value": value})),
                Some(live) if *live != value => {
                    patch.push(serde_json::json!({"op": "replace", "path": path, "value": value}));
                }
                Some(_) => {}
            }
        }
    }
    let rest = json_patch::diff(&comparable(live), &comparable(wanted));
    patch.extend(
        serde_json::to_value(rest).ok().and_then(|rest| rest.as_array().cloned()).unwrap_or_default(),
    );
    patch
}

fn rules(object: &HelmRelease) -> Result<Rules, String> {
    let rules: Vec<Rule> = object
        .spec
        .drift_detection
        .iter()
        .flat_map(|detection| &detection.ignore)
        .map(|rule| Rule {
            paths: rule.paths.clone(),
            target: rule.target.as_ref().map(|target| {
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                Target {
                    group: text(&target.group),
                    version: text(&target.version),
                    kind: text(&target.kind),
                    namespace: text(&target.namespace),
                    name: text(&target.name),
                    label_selector: text(&target.label_selector),
                    annotation_selector: text(&target.annotation_selector),
                }
            }),
        })
        .collect();
    Rules::compile(&rules).map_err(|error| error.to_string())
}

/// What was put right, and what could not be.
#[derive(Default)]
pub(crate) struct Corrected {
    /// One line for each object that was.
    pub(crate) changes: Vec<String>,
    /// One line for each that was not.
    pub(crate) errors: Vec<String>,
}

/// Puts right what differs: what is gone first, in the order in which objects are applied, then what was changed.
pub(crate) async fn correct(cluster: &dyn Cluster, found: Found, timeout: Duration) -> Corrected {
    let mut corrected = Corrected::default();
    let deadline = tokio::time::Instant::now() + timeout;
    let (mut gone, changed): (Vec<_>, Vec<_>) = found
        .differences
        .into_iter()
        .partition(|(_, difference)| matches!(difference, Difference::Removed(_)));
    gone.sort_by_key(|(reference, _)| {
        (weir_manifest::apply_rank(&reference.kind), reference.namespace.clone(), reference.name.clone())
    });
    for (reference, difference) in gone.into_iter().chain(changed) {
        let (word, request) = match &difference {
            Difference::Removed(desired) => {
                let mode = ApplyMode { manager: MANAGER, dry_run: false };
                ("created", cluster.apply(desired, mode))
            }
            Difference::Changed(patch) => {
                let operations = Json::Array(patch.clone());
                let result =
                    tokio::time::timeout_at(deadline, cluster.patch(&reference, &operations, MANAGER)).await;
                corrected.note(&reference, "configured", flatten(result));
                continue;
            }
        };
        let result = tokio::time::timeout_at(deadline, request).await;
        corrected.note(&reference, word, flatten(result));
    }
    corrected
}

fn flatten<T>(
    result: Result<Result<T, weir_apply::cluster::ClusterError>, tokio::time::error::Elapsed>,
) -> Result<(), String> {
    match result {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("context deadline exceeded".to_owned()),
    }
}

impl Corrected {
    fn note(&mut self, reference: &ObjectRef, word: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.changes.push(format!("{reference} {word}")),
            Err(error) => self.errors.push(format!("{reference}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_we_want_counts() {
        let wanted = json!({"kind": "X", "metadata": {"labels": {"a": "1"}, "resourceVersion": "2"}, "data": {"k": "v"}});
        let live = json!({"kind": "X", "metadata": {"labels": {"a": "1", "b": "2"}, "resourceVersion": "1"}, "data": {"k": "v"}, "status": {"x": 1}});
        assert!(difference(&live, &wanted).is_empty());
        let relabelled =
            json!({"kind": "X", "metadata": {"labels": {"a": "9"}}, "data": {"k": "w", "more": "x"}});
        assert_eq!(
            difference(&relabelled, &wanted),
            [
                json!({"op": "replace", "path": "/metadata/labels/a", "value": "1"}),
                json!({"op": "replace", "path": "/data/k", "value": "v"}),
                json!({"op": "remove", "path": "/data/more"}),
            ]
        );
    }

    #[test]
    fn the_summary_counts() {
        let reference = ObjectRef {
            kind: "ConfigMap".to_owned(),
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            ..ObjectRef::default()
        };
        let patch = vec![json!({"op": "add"}), json!({"op": "replace"}), json!({"op": "replace"})];
        let found = Found {
            differences: vec![
                (reference.clone(), Difference::Changed(patch)),
                (reference.clone(), Difference::Removed(Json::Null)),
            ],
            excluded: vec![reference],
        };
        assert_eq!(
            found.summary(),
            "ConfigMap/a/b changed (1 additions, 2 changes, 0 removals)\nConfigMap/a/b removed\nConfigMap/a/b excluded"
        );
    }
}
