//! Reads what a run needs to know: the source, dependencies, variables.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};
use weir_api::Artifact;
use weir_api::common::ValuesSourceKind;
use weir_api::kustomize::Kustomization;
use weir_api::source::{Bucket, ExternalArtifact, GitRepository, OCIRepository};
use weir_apply::cluster::{Cluster, ClusterError};
use weir_apply::object::ObjectRef;
use weir_kustomize::Variables;
use weir_runtime::{ObjectKey, Store};

use crate::build::{BuildError, full_name};
use crate::decide::{Dependency, GROUP, SourceName};
use crate::error::Cause;

/// The watched objects a run reads.
#[derive(Debug, Clone)]
pub struct Stores {
    /// The Kustomizations this process is responsible for.
    pub kustomizations: Store<Kustomization>,
    /// Git sources.
    pub git: Store<GitRepository>,
    /// OCI sources.
    pub oci: Store<OCIRepository>,
    /// Bucket sources.
    pub bucket: Store<Bucket>,
    /// External sources, if they may be used.
    pub external: Option<Store<ExternalArtifact>>,
}

impl Stores {
    /// A source as watched: whether it exists, and its artifact.
    fn source(&self, source: &SourceName) -> (bool, Option<Artifact>) {
        let key = ObjectKey::new(source.namespace.as_str(), source.name.as_str());
        match source.kind {
            "GitRepository" => found(self.git.get(&key), |object| object.status.as_ref()?.artifact.as_ref()),
            "OCIRepository" => found(self.oci.get(&key), |object| object.status.as_ref()?.artifact.as_ref()),
            "Bucket" => found(self.bucket.get(&key), |object| object.status.as_ref()?.artifact.as_ref()),
            _ => {
                let external = self.external.as_ref().and_then(|store| store.get(&key));
                found(external, |object| object.status.as_ref()?.artifact.as_ref())
            }
        }
    }
}

fn found<K>(source: Option<Arc<K>>, artifact: impl Fn(&K) -> Option<&Artifact>) -> (bool, Option<Artifact>) {
    (source.is_some(), source.and_then(|source| artifact(&source).cloned()))
}

/// The artifact of a source; read from the cluster instead of the watch if `live`.
///
/// # Errors
/// [`Cause::SourceNotFound`], [`Cause::SourceUnreadable`]. `Ok(None)` if the source has no artifact yet.
pub async fn artifact(
    stores: &Stores,
    local: &dyn Cluster,
    source: &SourceName,
    live: bool,
) -> Result<Option<Artifact>, Cause> {
    let not_found = || Cause::SourceNotFound {
        resource: source.resource,
        name: source.name.clone(),
        reference: source.reference.clone(),
    };
    if !live {
        let (exists, artifact) = stores.source(source);
        return if exists { Ok(artifact) } else { Err(not_found()) };
    }
    let unreadable = |message: String| Cause::SourceUnreadable {
        name: format!("{}/{}", source.namespace, source.name),
        message,
    };
    let reference = ObjectRef {
        group: "source.toolkit.fluxcd.io".to_owned(),
        version: "v1".to_owned(),
        kind: source.kind.to_owned(),
        namespace: source.namespace.clone(),
        name: source.name.clone(),
    };
    match local.get(&reference).await {
        Ok(Some(found)) => match found.get("status").and_then(|status| status.get("artifact")) {
            None | Some(Value::Null) => Ok(None),
            Some(artifact) => serde_json::from_value(artifact.clone())
                .map(Some)
                .map_err(|error| unreadable(error.to_string())),
        },
        Ok(None) => Err(not_found()),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// The dependencies as they are: from the watch, or from the cluster what this process does not watch.
pub async fn dependencies(stores: &Stores, local: &dyn Cluster, object: &Kustomization) -> Vec<Dependency> {
    let mut dependencies = Vec::new();
    for (reference, key) in object.spec.depends_on.iter().zip(dependency_keys(object)) {
        let found = match stores.kustomizations.get(&key) {
            Some(found) => Ok(Box::new((*found).clone())),
            None => read_kustomization(local, &key).await.map(Box::new),
        };
        dependencies.push(Dependency {
            name: reference.name.clone(),
            full_name: key.to_string(),
            found,
            ready_expression: reference.ready_expr.clone().filter(|expression| !expression.is_empty()),
        });
    }
    dependencies
}

/// The keys of the dependencies, in the order of the spec.
pub fn dependency_keys(object: &Kustomization) -> Vec<ObjectKey> {
    let own = object.metadata.namespace.as_deref().unwrap_or_default();
    let dependencies = object.spec.depends_on.iter();
    dependencies
        .map(|dependency| {
            let namespace = dependency.namespace.as_deref().filter(|namespace| !namespace.is_empty());
            ObjectKey::new(namespace.unwrap_or(own), dependency.name.as_str())
        })
        .collect()
}

async fn read_kustomization(local: &dyn Cluster, key: &ObjectKey) -> Result<Kustomization, String> {
    let reference = ObjectRef {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        kind: "Kustomization".to_owned(),
        namespace: key.namespace().to_owned(),
        name: key.name().to_owned(),
    };
    match local.get(&reference).await {
        Ok(Some(found)) => serde_json::from_value(found).map_err(|error| error.to_string()),
        Ok(None) => Err(format!("kustomizations.{GROUP} \"{}\" not found", key.name())),
        Err(error) => Err(error.to_string()),
    }
}

/// The ConfigMaps and Secrets of `substituteFrom` as they were read, in the order of the spec.
pub struct VariableSources(Vec<Result<Option<Value>, ClusterError>>);

impl VariableSources {
    /// A digest of what they hold; `None` if one could not be read.
    pub fn digest(&self) -> Option<String> {
        if self.0.is_empty() {
            return Some(String::new());
        }
        let mut hasher = Sha256::new();
        for found in &self.0 {
            let data = found.as_ref().ok()?.as_ref().and_then(|found| found.get("data"));
            hasher.update(data.map(Value::to_string).unwrap_or_default());
            hasher.update([0]);
        }
        Some(hex::encode(hasher.finalize()))
    }
}

/// Reads the ConfigMaps and Secrets of `substituteFrom`. What cannot be read is an error only for those who need it.
pub async fn variable_sources(local: &dyn Cluster, object: &Kustomization) -> VariableSources {
    let references = object.spec.post_build.iter().flat_map(|post_build| &post_build.substitute_from);
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let mut sources = Vec::new();
    for reference in references {
        let kind = match reference.kind {
            ValuesSourceKind::ConfigMap => "ConfigMap",
            ValuesSourceKind::Secret => "Secret",
        };
        sources.push(local.get(&ObjectRef::core(kind, namespace, &reference.name)).await);
    }
    VariableSources(sources)
}

/// The variables of a Kustomization; `first` is the object they are first needed for.
///
/// # Errors
/// A ConfigMap or Secret that cannot be read, unless it is optional and does not exist.
pub fn variables(
    sources: &VariableSources,
    object: &Kustomization,
    first: &Value,
) -> Result<Variables, BuildError> {
    let mut variables = Variables::new();
    let Some(post_build) = &object.spec.post_build else { return Ok(variables) };
    for (reference, found) in post_build.substitute_from.iter().zip(&sources.0) {
        let (kind, secret) = match reference.kind {
            ValuesSourceKind::ConfigMap => ("ConfigMap", false),
            ValuesSourceKind::Secret => ("Secret", true),
        };
        let failed = |message: String| BuildError::Variables {
            object: full_name(first),
            reference: format!("{kind}/{}", reference.name),
            message,
        };
        let found = found.as_ref().map_err(|error| failed(error.to_string()))?;
        let Some(found) = found else {
            if reference.optional {
                continue;
            }
            let resource = if secret { "secrets" } else { "configmaps" };
            return Err(failed(format!("{resource} \"{}\" not found", reference.name)));
        };
        for (key, value) in found.get("data").and_then(Value::as_object).into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            if secret {
                let bytes = STANDARD.decode(text).map_err(|error| failed(error.to_string()))?;
                variables.set(key.clone(), &String::from_utf8_lossy(&bytes));
            } else {
                variables.set(key.clone(), text);
            }
        }
    }
    for (key, value) in &post_build.substitute {
        variables.set(key.clone(), value);
    }
    Ok(variables)
}
