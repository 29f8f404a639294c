//! From the text of a release to objects.

use serde_json::{Value as Json, json};
use weir_apply::cluster::{Cluster, ClusterError};
use weir_apply::object::{self, ObjectRef};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// The objects of a text in its order, lists opened up, every namespaced one with a namespace.
pub type ManifestObjects = Vec<Json>;

/// Reads the objects of a manifest; those without a namespace get `namespace` if their kind has one.
///
/// # Errors
/// What does not parse, has no kind or name, or is of a kind the cluster does not serve. Texts as of Helm.
pub async fn read_manifest(
    cluster: &dyn Cluster,
    text: &str,
    namespace: &str,
) -> Result<ManifestObjects, String> {
    read(cluster, text, namespace, false).await
}

/// As [`read_manifest`], for objects that are to be written: they have to be of a version that is served.
pub(super) async fn read_writable(
    cluster: &dyn Cluster,
    text: &str,
    namespace: &str,
) -> Result<ManifestObjects, String> {
    read(cluster, text, namespace, true).await
}

async fn read(
    cluster: &dyn Cluster,
    text: &str,
    namespace: &str,
    exact: bool,
) -> Result<ManifestObjects, String> {
    let documents = weir_manifest::read_documents(text.as_bytes(), "").map_err(|error| {
        format!("error parsing : error converting YAML to JSON: {}", error.reference_text())
    })?;
    let mut objects = Vec::new();
    for document in documents {
        flatten(document, &mut objects)?;
    }
    let mut missing = Vec::new();
    for item in &mut objects {
        let reference = ObjectRef::of(item);
        let scope = if exact {
            cluster.is_version_namespaced(&reference).await
        } else {
            cluster.is_namespaced(&reference).await
        };
        match scope {
            Ok(true) if reference.namespace.is_empty() => item["metadata"]["namespace"] = namespace.into(),
            Ok(true) => {}
            Ok(false) => {
                if let Some(metadata) = item["metadata"].as_object_mut() {
                    metadata.remove("namespace");
                }
            }
            Err(ClusterError::NoMatch { .. }) => missing.push(format!(
                "resource mapping not found for name: {:?} namespace: {:?} from \"\": no matches for kind {:?} in version {:?}\nensure CRDs are installed first",
                reference.name,
                reference.namespace,
                reference.kind,
                reference.api_version()
            )),
            Err(error) => return Err(error.to_string()),
        }
    }
    match missing.len() {
        0 => Ok(objects),
        1 => Err(missing.remove(0)),
        _ => Err(format!("[{}]", missing.join(", "))),
    }
}

fn flatten(document: Json, objects: &mut ManifestObjects) -> Result<(), String> {
    if document.is_null() {
        return Ok(());
    }
    let kind = object::text(&document, "kind").to_owned();
    if kind.ends_with("List") && document.get("items").is_some_and(Json::is_array) {
        if let Json::Object(mut list) = document
            && let Some(Json::Array(items)) = list.remove("items")
        {
            for item in items {
                flatten(item, objects)?;
            }
        }
        return Ok(());
    }
    if !document.is_object() || kind.is_empty() {
        return Err(format!("error validating \"\": error validating data: kind not set in {document}"));
    }
    if object::text(&document, "apiVersion").is_empty() {
        return Err("error validating \"\": error validating data: apiVersion not set".to_owned());
    }
    objects.push(document);
    Ok(())
}

/// How Helm names an object in messages.
pub(super) fn title(reference: &ObjectRef) -> String {
    format!("{} {:?} in namespace {:?}", reference.kind, reference.name, reference.namespace)
}

/// `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod` for a kind of the core.
pub(super) fn kind_title(reference: &ObjectRef) -> String {
    format!("{}/{}, Kind={}", reference.group, reference.version, reference.kind)
}

/// Marks objects as belonging to a release.
pub(super) fn mark(objects: &mut [Json], release: &str, namespace: &str) {
    for item in objects {
        if !item["metadata"].is_object() {
            item["metadata"] = json!({});
        }
        object::set_metadata(item, "labels", [(MANAGED_BY, "Helm")]);
        object::set_metadata(item, "annotations", [(RELEASE_NAME, release), (RELEASE_NAMESPACE, namespace)]);
    }
}

/// Why a live object does not belong to a release.
pub(super) fn check_ownership(live: &Json, release: &str, namespace: &str) -> Result<(), String> {
    let require = |field: &str, key: &str, wanted: &str| {
        let found = object::metadata_map(live, field).and_then(|map| map.get(key)).and_then(Json::as_str);
        match found {
            None => Some(format!("missing key {key:?}: must be set to {wanted:?}")),
            Some(found) if found != wanted => {
                Some(format!("key {key:?} must equal {wanted:?}: current value is {found:?}"))
            }
            Some(_) => None,
        }
    };
    let mut errors = Vec::new();
    if let Some(error) = require("labels", MANAGED_BY, "Helm") {
        errors.push(format!("label validation error: {error}"));
    }
    for (key, wanted) in [(RELEASE_NAME, release), (RELEASE_NAMESPACE, namespace)] {
        if let Some(error) = require("annotations", key, wanted) {
            errors.push(format!("annotation validation error: {error}"));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(format!("invalid ownership metadata; {}", errors.join("; "))) }
}

/// The objects that exist already.
///
/// # Errors
/// With `owner`, an object that belongs to somebody else; otherwise only what cannot be read.
pub(super) async fn existing(
    cluster: &dyn Cluster,
    objects: &[Json],
    owner: Option<(&str, &str)>,
) -> Result<ManifestObjects, String> {
    let mut found = Vec::new();
    for item in objects {
        let reference = ObjectRef::of(item);
        if reference.name.is_empty() {
            if object::metadata_text(item, "generateName").is_empty() {
                return Err(format!(
                    "metadata.name or metadata.generateName is required for {}",
                    title(&reference)
                ));
            }
            continue;
        }
        let live = cluster.get(&reference).await.map_err(|error| {
            format!("could not get information about the resource {}: {error}", title(&reference))
        })?;
        let Some(live) = live else { continue };
        if let Some((release, namespace)) = owner
            && let Err(error) = check_ownership(&live, release, namespace)
        {
            return Err(format!(
                "{} exists and cannot be imported into the current release: {error}",
                title(&reference)
            ));
        }
        found.push(live);
    }
    Ok(found)
}

/// Whether two objects are the same for deletions: whatever their version.
pub(super) fn same(left: &Json, right: &Json) -> bool {
    let (left, right) = (ObjectRef::of(left), ObjectRef::of(right));
    left.identity() == right.identity()
}
