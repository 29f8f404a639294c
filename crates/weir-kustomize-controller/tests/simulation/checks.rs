//! What has to hold whatever happens. Knows the rules, and nothing of the code that is to keep them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::Value;

use crate::fleet::Content;
use crate::world::{Log, NAMESPACE, World, path_of};

const OWNER_NAME: &str = "kustomize.toolkit.fluxcd.io/name";
const OWNER_NAMESPACE: &str = "kustomize.toolkit.fluxcd.io/namespace";
/// How old a revision may be that a run still works on.
const RUN_MAX: Duration = Duration::from_mins(4);
/// Every kind the fleet has.
const LISTS: &[(&str, &str, &str)] = &[
    ("v1", "ConfigMap", "/api/v1/configmaps"),
    ("v1", "Secret", "/api/v1/secrets"),
    ("v1", "Namespace", "/api/v1/namespaces"),
    ("apps/v1", "Deployment", "/apis/apps/v1/deployments"),
    ("example.com/v1", "Widget", "/apis/example.com/v1/widgets"),
    (
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ),
];

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn kustomization_path(name: &str) -> String {
    format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{NAMESPACE}/kustomizations/{name}")
}

fn owner(object: &Value) -> Option<&str> {
    let labels = object.pointer("/metadata/labels")?;
    if labels.get(OWNER_NAMESPACE)?.as_str() != Some(NAMESPACE) {
        return None;
    }
    labels.get(OWNER_NAME)?.as_str()
}

/// The inventory entry of an object.
fn entry(object: &Value) -> String {
    let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    format!("{namespace}_{name}_{group}_{}", text(object, "/kind"))
}

fn inventory(kustomization: &Value) -> BTreeSet<String> {
    let entries = kustomization.pointer("/status/inventory/entries").and_then(Value::as_array);
    entries.into_iter().flatten().map(|entry| text(entry, "/id").to_owned()).collect()
}

/// Everything in the cluster that says it belongs to a Kustomization.
async fn owned(world: &World) -> Vec<Value> {
    let mut all = Vec::new();
    for (api_version, kind, path) in LISTS {
        for mut object in world.list(&format!("{path}?labelSelector={OWNER_NAME}")).await {
            object["apiVersion"] = (*api_version).into();
            object["kind"] = (*kind).into();
            all.push(object);
        }
    }
    all
}

/// Whatever was applied is on record.
pub(crate) async fn nothing_is_forgotten(world: &World) -> Result<(), String> {
    for object in owned(world).await {
        let Some(name) = owner(&object).map(str::to_owned) else { continue };
        let (path, entry) = (path_of(&object), entry(&object));
        let lists = async || {
            let kustomization = world.get(&kustomization_path(&name)).await;
            kustomization.is_some_and(|found| inventory(&found).contains(&entry))
        };
        // Both are read twice: between two reads the object may have been deleted, or handed to somebody else.
        if lists().await {
            continue;
        }
        let still = world.get(&path).await.is_some_and(|found| {
            owner(&found) == Some(name.as_str()) && text(&found, "/metadata/deletionTimestamp").is_empty()
        });
        if still && !lists().await {
            return Err(format!("{entry} belongs to '{name}', whose inventory does not list it"));
        }
    }
    Ok(())
}

/// Whether every field of `wanted` is in `live`.
fn is_part(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|found| is_part(value, found)))
        }
        (Value::Array(wanted), Value::Array(live)) => {
            wanted.len() == live.len() && wanted.iter().zip(live).all(|(wanted, live)| is_part(wanted, live))
        }
        (wanted, live) => wanted == live,
    }
}

/// What is wrong with the objects of a Kustomization.
pub(crate) async fn wrong_objects(
    world: &World,
    name: &str,
    wanted: &BTreeMap<String, Value>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, wanted) in wanted {
        match world.get(path).await {
            None => wrong.push(format!("{path} of '{name}' is missing")),
            Some(live) if owner(&live) != Some(name) => {
                wrong.push(format!("{path} belongs to {:?}, not to '{name}'", owner(&live)));
            }
            Some(live) if !is_part(wanted, &live) => wrong.push(format!("{path} differs: {live}")),
            Some(live) if live.pointer("/data/edited").is_some() => {
                wrong.push(format!("{path} still has what kubectl edit added"));
            }
            Some(_) => {}
        }
    }
    wrong
}

/// Whether a Kustomization says that it is ready at a revision.
pub(crate) fn is_ready_at(kustomization: &Value, revision: &str) -> bool {
    let conditions = kustomization.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True");
    ready
        && kustomization.pointer("/status/observedGeneration")
            == kustomization.pointer("/metadata/generation")
        && text(kustomization, "/status/lastAppliedRevision") == revision
}

/// What keeps the cluster from being what the source says.
pub(crate) async fn not_converged(
    world: &World,
    revision: &str,
    content: &Content,
    gone: &[String],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expected = BTreeSet::new();
    for (name, wanted) in content {
        let found = world.get(&kustomization_path(name)).await;
        if gone.contains(name) {
            if found.is_some() {
                wrong.push(format!("'{name}' was deleted and is still there"));
            }
            continue;
        }
        expected.extend(wanted.keys().cloned());
        let Some(found) = found else {
            wrong.push(format!("'{name}' is missing"));
            continue;
        };
        if !is_ready_at(&found, revision) {
            wrong.push(format!("'{name}' is not ready at {revision}: {}", found["status"]["conditions"]));
        }
        let listed = inventory(&found);
        let entries: BTreeSet<String> = wanted.values().map(entry).collect();
        if listed != entries {
            wrong.push(format!("the inventory of '{name}' is {listed:?}, not {entries:?}"));
        }
        wrong.extend(wrong_objects(world, name, wanted).await);
    }
    for object in owned(world).await {
        let path = path_of(&object);
        if owner(&object).is_some() && !expected.contains(&path) {
            wrong.push(format!("{path} is left over"));
        }
    }
    wrong
}

/// When which revision was the newest, and when Kustomizations were deleted.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) published: Vec<Duration>,
    pub(crate) deleted: BTreeMap<String, Duration>,
}

impl History {
    /// The revisions a run may have worked on at a time.
    fn current_around(&self, at: Duration) -> impl Iterator<Item = usize> + '_ {
        let starts = self.published.iter().enumerate();
        starts.filter_map(move |(number, start)| {
            let end = self.published.get(number + 1).copied().unwrap_or(Duration::MAX);
            (*start <= at && end.saturating_add(RUN_MAX) >= at).then_some(number)
        })
    }
}

/// Judges everything that was sent.
pub(crate) fn judge_log(log: &Log, history: &History, revisions: &[Content]) -> Result<(), String> {
    let mut former = BTreeSet::new();
    let mut writer = 0;
    for sent in &log.writes {
        if sent.process != writer {
            if former.contains(&sent.process) {
                return Err(format!(
                    "process {} wrote again after another had taken over: {sent:?}",
                    sent.process
                ));
            }
            former.insert(writer);
            writer = sent.process;
        }
        if sent.method != Method::DELETE || sent.path.contains("/leases/") {
            continue;
        }
        let Some(before) = &sent.before else { continue };
        let Some(name) = owner(before) else {
            return Err(format!("{} was deleted and had no owner", sent.path));
        };
        let is_going = history.deleted.get(name).is_some_and(|deleted| *deleted <= sent.at);
        let left = history.current_around(sent.at).any(|number| {
            !revisions[number].get(name).is_some_and(|objects| objects.contains_key(&sent.path))
        });
        if !is_going && !left {
            return Err(format!("{} of '{name}' was deleted at {:?} and is wanted", sent.path, sent.at));
        }
    }
    Ok(())
}
