//! What is read before anything is decided: Secrets and included artifacts.

use std::time::Duration;

use weir_api::Artifact;
use weir_api::source::{GitRepository, GitRepositoryInclude};
use weir_runtime::{ObjectKey, Store};
use weir_source::connection::Proxy;
use weir_source::git::SigningKeys;

use super::error::Error;
use crate::source::secrets::{self, Data};

/// An artifact to include, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Included {
    pub(super) spec: GitRepositoryInclude,
    pub(super) artifact: Artifact,
}

/// The data of the Secret with the credentials, if the object names one.
pub(super) async fn secret(client: &kube::Client, object: &GitRepository) -> Result<Option<Data>, Error> {
    let Some(reference) = &object.spec.secret_ref else { return Ok(None) };
    let secret = secrets::get(client, &namespace_of(object), &reference.name).await.map_err(Error::Secret)?;
    Ok(Some(secrets::data_of(secret)))
}

/// The proxy, if the object names one.
pub(super) async fn proxy(client: &kube::Client, object: &GitRepository) -> Result<Option<Proxy>, Error> {
    let Some(reference) = &object.spec.proxy_secret_ref else { return Ok(None) };
    let proxy = secrets::proxy(client, &namespace_of(object), &reference.name).await;
    proxy.map(Some).map_err(Error::Proxy)
}

/// The keys that may sign.
pub(super) async fn signing_keys(
    client: &kube::Client,
    object: &GitRepository,
    name: &str,
) -> Result<SigningKeys, Error> {
    let secret = secrets::get(client, &namespace_of(object), name).await.map_err(Error::SigningKeys)?;
    let mut keys = SigningKeys::default();
    for (name, value) in secrets::data_of(secret) {
        keys.add(&name, &value);
    }
    Ok(keys)
}

/// The artifacts to include, in the order of the specification.
pub(super) fn includes(
    sources: &Store<GitRepository>,
    object: &GitRepository,
    retry: Duration,
) -> Result<Vec<Included>, Error> {
    let namespace = namespace_of(object);
    object
        .spec
        .include
        .iter()
        .map(|spec| {
            let name = spec.repository.name.clone();
            let found = sources.get(&ObjectKey::new(namespace.as_str(), name.as_str()));
            let Some(source) = found else { return Err(Error::IncludeNotFound { name, retry }) };
            let artifact = source.status.as_ref().and_then(|status| status.artifact.clone());
            let artifact = artifact.ok_or(Error::IncludeNotReady { name, retry })?;
            Ok(Included { spec: spec.clone(), artifact })
        })
        .collect()
}

pub(super) fn namespace_of(object: &GitRepository) -> String {
    object.metadata.namespace.clone().unwrap_or_default()
}
