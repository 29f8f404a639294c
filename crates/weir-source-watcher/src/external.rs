//! ExternalArtifacts: the objects that publish what was built.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use weir_api::Artifact;
use weir_api::condition::{self, Stamp};
use weir_api::extensions::{ArtifactGenerator, ExternalArtifactReference};
use weir_api::names::condition::READY;
use weir_api::names::controller::SOURCE_WATCHER;
use weir_api::names::reason::SUCCEEDED;
use weir_api::source::ExternalArtifact;

use crate::decide::namespace_of;
use crate::expand::Request;

/// The label that names the generator of an object by its UID.
pub(crate) const GENERATOR_LABEL: &str = "source.extensions.fluxcd.io/generator";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const API_VERSION: &str = "source.toolkit.fluxcd.io/v1";
const GENERATOR_VERSION: &str = "source.extensions.fluxcd.io/v1beta1";

/// The object without its status. Pure.
pub(crate) fn desired(object: &ArtifactGenerator, request: &Request) -> serde_json::Value {
    let common = object.spec.common_metadata.clone().unwrap_or_default();
    let mut labels: BTreeMap<String, String> = common.labels.clone();
    labels.extend(request.labels.clone());
    labels.insert(MANAGED_BY.to_owned(), SOURCE_WATCHER.to_owned());
    labels.insert(GENERATOR_LABEL.to_owned(), object.metadata.uid.clone().unwrap_or_default());
    let namespace = namespace_of(object);
    let mut metadata = json!({"name": request.output.name, "namespace": namespace, "labels": labels});
    if !common.annotations.is_empty() {
        metadata["annotations"] = json!(common.annotations);
    }
    json!({
        "apiVersion": API_VERSION,
        "kind": "ExternalArtifact",
        "metadata": metadata,
        "spec": {
            "sourceRef": {
                "apiVersion": GENERATOR_VERSION,
                "kind": "ArtifactGenerator",
                "name": object.metadata.name,
                "namespace": namespace,
            },
        },
    })
}

/// Writes the object, then its status.
pub(crate) async fn apply(
    client: &kube::Client,
    object: &ArtifactGenerator,
    request: &Request,
    artifact: &Artifact,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let api: Api<ExternalArtifact> = Api::namespaced(client.clone(), namespace_of(object));
    let name = &request.output.name;
    let manager = PatchParams::apply(SOURCE_WATCHER);
    let written = api.patch(name, &manager.clone().force(), &Patch::Apply(desired(object, request))).await?;
    let before = written.status.unwrap_or_default();
    let mut conditions = before.conditions;
    conditions.retain(|condition| condition.type_ == READY);
    let stamp = Stamp { generation: written.metadata.generation.unwrap_or_default(), now: now.into() };
    condition::mark_true(&mut conditions, READY, SUCCEEDED, "Artifact is ready", stamp);
    let status = json!({
        "apiVersion": API_VERSION,
        "kind": "ExternalArtifact",
        "metadata": {"name": name, "namespace": namespace_of(object)},
        "status": {"artifact": artifact, "conditions": conditions},
    });
    api.patch_status(name, &manager, &Patch::Apply(status)).await?;
    Ok(())
}

/// Removes an object that this generator made; one that belongs to somebody else stays.
pub(crate) async fn delete(
    client: &kube::Client,
    object: &ArtifactGenerator,
    reference: &ExternalArtifactReference,
) -> Result<(), kube::Error> {
    let api: Api<ExternalArtifact> = Api::namespaced(client.clone(), &reference.namespace);
    let Some(found) = api.get_opt(&reference.name).await? else { return Ok(()) };
    let owner = found.metadata.labels.as_ref().and_then(|labels| labels.get(GENERATOR_LABEL));
    if owner != object.metadata.uid.as_ref() {
        return Ok(());
    }
    let preconditions = Preconditions { uid: found.metadata.uid, resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&reference.name, &parameters).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_carry_the_metadata_of_their_generator() {
        let object: ArtifactGenerator = serde_json::from_value(json!({
            "apiVersion": GENERATOR_VERSION, "kind": "ArtifactGenerator",
            "metadata": {"name": "g", "namespace": "apps", "uid": "1-2"},
            "spec": {
                "commonMetadata": {"labels": {"team": "a", MANAGED_BY: "me"}, "annotations": {"x": "y"}},
                "sources": [], "artifacts": [{"name": "app", "copy": []}],
            },
        }))
        .unwrap();
        let request = Request {
            output: object.spec.artifacts[0].clone(),
            labels: [("team".to_owned(), "b".to_owned())].into(),
        };
        let desired = desired(&object, &request);
        assert_eq!(
            desired["metadata"],
            json!({
                "name": "app", "namespace": "apps", "annotations": {"x": "y"},
                "labels": {"team": "b", MANAGED_BY: "source-watcher", GENERATOR_LABEL: "1-2"},
            })
        );
        assert!(desired["metadata"].get("ownerReferences").is_none());
        assert_eq!(desired["spec"]["sourceRef"]["kind"], "ArtifactGenerator");
    }
}
