//! A cluster in this process with the controllers: what `weir dev` and `weir simulate` run.

pub(crate) mod controllers;
pub(crate) mod files;
pub(crate) mod git;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::error::Error;
use crate::kind::Kind;
use crate::view;

/// Where the source and the first Kustomization live, as Flux bootstraps a cluster and fleets refer to it.
pub(crate) const NAMESPACE: &str = "flux-system";
/// Their name.
pub(crate) const FLEET: &str = "flux-system";
/// How long a new definition may take until it is served.
const SERVED_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at something that comes by itself.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const FIELD_MANAGER: &str = "weir-dev";

/// The kinds whose objects are shown.
pub(crate) const KINDS: [Kind; 7] = [
    Kind::GitRepository,
    Kind::OciRepository,
    Kind::Bucket,
    Kind::HelmRepository,
    Kind::HelmChart,
    Kind::HelmRelease,
    Kind::Kustomization,
];

/// What goes wrong with a cluster in this process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalError {
    #[error("cannot use '{}'", path.display())]
    State {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("there are no files in '{}'", .0.display())]
    NoFiles(PathBuf),
    #[error("there are more than {limit} files in '{}'", path.display())]
    TooManyFiles { path: PathBuf, limit: usize },
    #[error("the fleet has no folder '{0}'")]
    NoFolder(String),
    #[error("failed to listen on a loopback port")]
    Listen(#[source] std::io::Error),
    #[error("failed to read the definition '{name}'")]
    Definition {
        name: &'static str,
        #[source]
        source: weir_manifest::Error,
    },
    #[error("objects of kind {0} are not served")]
    NotServed(String),
    #[error("{name} failed")]
    Controller {
        name: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{name} ended though nobody stopped it")]
    ControllerEnded { name: &'static str },
}

/// The definitions of all kinds of the controllers.
pub(crate) fn definitions() -> Result<Vec<Value>, LocalError> {
    let mut all = Vec::new();
    for &(name, text) in files::DEFINITIONS {
        let documents = weir_manifest::read_documents(text.as_bytes(), name)
            .map_err(|source| LocalError::Definition { name, source })?;
        all.extend(documents.into_iter().filter(Value::is_object));
    }
    Ok(all)
}

/// Installs the definitions, waits until they are served, and makes the namespace of the fleet's source.
pub(crate) async fn install(client: &Client) -> Result<(), Error> {
    let mut kinds = Vec::new();
    for document in &definitions()? {
        let group = view::text(document, "/spec/group");
        let kind = view::text(document, "/spec/names/kind");
        for version in document.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
            if version["served"] == true {
                let gvk = GroupVersionKind::gvk(group, view::text(version, "/name"), kind);
                kinds.push(ApiResource::from_gvk_with_plural(
                    &gvk,
                    view::text(document, "/spec/names/plural"),
                ));
            }
        }
        apply(client, document).await?;
    }
    let deadline = Instant::now() + SERVED_TIMEOUT;
    for kind in kinds {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        while api.list(&ListParams::default().limit(1)).await.is_err() {
            if Instant::now() > deadline {
                return Err(LocalError::NotServed(kind.kind).into());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
    apply(client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})).await
}

/// Applies an object.
pub(crate) async fn apply(client: &Client, object: &Value) -> Result<(), Error> {
    let (group, version) = weir_manifest::split_api_version(view::text(object, "/apiVersion"));
    let kind = view::text(object, "/kind");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match view::namespace(object) {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let name = view::name(object);
    api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object))
        .await
        .map(|_| ())
        .map_err(|source| Error::Api { action: format!("apply {kind} '{name}'"), source })
}

/// Begins to sync a folder of a repository.
pub(crate) async fn sync(
    client: &Client,
    (namespace, name): (&str, &str),
    url: &str,
    branch: &str,
    path: &str,
) -> Result<(), Error> {
    let source = Kind::GitRepository.resource();
    apply(
        client,
        &json!({
            "apiVersion": source.api_version, "kind": source.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"url": url, "ref": {"branch": branch}, "interval": "1m"},
        }),
    )
    .await?;
    let kustomization = Kind::Kustomization.resource();
    apply(
        client,
        &json!({
            "apiVersion": kustomization.api_version, "kind": kustomization.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "sourceRef": {"kind": source.kind, "name": name}, "path": path,
                "interval": "10m", "retryInterval": "10s", "prune": true,
            },
        }),
    )
    .await
}

/// All objects of the controllers' kinds, without what nobody shows of their metadata.
pub(crate) async fn objects(client: &Client) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    for kind in KINDS {
        let resource = kind.resource();
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let list = api.list(&ListParams::default()).await.map_err(|source| Error::Api {
            action: format!("list objects of kind {}", kind.name()),
            source,
        })?;
        for object in list {
            let mut value = json!({
                "kind": kind.name(),
                "metadata": {
                    "name": object.name_any(),
                    "namespace": object.namespace(),
                    "generation": object.metadata.generation,
                    "labels": object.labels(),
                    "annotations": object.annotations(),
                },
            });
            for field in ["spec", "status"] {
                value[field] = object.data[field].clone();
            }
            objects.push(value);
        }
    }
    Ok(objects)
}

/// The folder to sync, as a Kustomization names it.
pub(crate) fn sync_path(given: Option<&str>, files: Option<&files::Files>) -> Result<String, LocalError> {
    /// The folder that is synced when none is named and the fleet has it.
    const USUAL_PATH: &str = "clusters/local";
    let has = |folder: &str| {
        let folder = format!("{folder}/");
        files.is_none_or(|files| files.keys().any(|path| path.starts_with(&folder)))
    };
    match given {
        Some(path) => {
            let folder = path.trim_start_matches("./").trim_end_matches('/');
            if folder.is_empty() || folder == "." || has(folder) {
                Ok(path.to_owned())
            } else {
                Err(LocalError::NoFolder(path.to_owned()))
            }
        }
        None if files.is_some() && has(USUAL_PATH) => Ok(format!("./{USUAL_PATH}")),
        None => Ok("./".to_owned()),
    }
}

/// A time in seconds, for people.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_folder_is_synced_if_there_is_one() {
        let example = files::example();
        assert_eq!(sync_path(None, Some(&example)).unwrap(), "./clusters/local");
        assert_eq!(sync_path(Some("./apps/base/"), Some(&example)).unwrap(), "./apps/base/");
        assert_eq!(sync_path(Some("."), Some(&example)).unwrap(), ".");
        assert!(
            matches!(sync_path(Some("app"), Some(&example)), Err(LocalError::NoFolder(path)) if path == "app")
        );
        let other: files::Files = example.into_iter().filter(|(path, _)| path.starts_with("apps/")).collect();
        assert_eq!(sync_path(None, Some(&other)).unwrap(), "./");
        assert_eq!(sync_path(None, None).unwrap(), "./");
        assert_eq!(sync_path(Some("any"), None).unwrap(), "any");
    }

    #[test]
    fn all_definitions_can_be_read() {
        let all = definitions().unwrap();
        assert!(all.iter().all(|document| document["kind"] == "CustomResourceDefinition"));
        assert_eq!(all.len(), files::DEFINITIONS.len());
    }
}
