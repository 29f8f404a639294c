//! Reads what a run needs to know: dependencies, the source of the chart, values.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use weir_api::common::ValuesSourceKind;
use weir_api::helm::{HelmRelease, ValuesReference};
use weir_api::names::condition as types;
use weir_api::source::{ExternalArtifact, HelmChart, OCIRepository};
use weir_api::{FluxObject, condition};
use weir_apply::cluster::Cluster;
use weir_apply::dependencies::{self, DEPENDS_ON};
use weir_apply::expression::{Expression, Numbers};
use weir_apply::object::ObjectRef;
use weir_base::clock::Clock;
use weir_helm::values::Table;
use weir_kms::Requests;
use weir_runtime::{ObjectKey, Store};
use weir_sops::KeyService;

use crate::chart::{Source, SourceKind, SourceName};
use crate::error::Error;
use crate::settings::Settings;
use crate::values::{Found, ReferenceError, compose, key};
use crate::{decrypt, spec};

/// The watched objects a run reads.
#[derive(Debug, Clone)]
pub struct Stores {
    /// The HelmReleases this process is responsible for.
    pub releases: Store<HelmRelease>,
    /// Charts made by source-controller.
    pub charts: Store<HelmChart>,
    /// Charts in registries.
    pub oci: Store<OCIRepository>,
    /// Charts of others, if they may be used.
    pub external: Option<Store<ExternalArtifact>>,
}

const GROUP: &str = "helm.toolkit.fluxcd.io";
/// The keys of the dependencies, in the order of the spec.
pub fn dependency_keys(object: &HelmRelease) -> Vec<ObjectKey> {
    let own = spec::namespace(object);
    object
        .spec
        .depends_on
        .iter()
        .map(|dependency| {
            let namespace = dependency.namespace.as_deref().filter(|namespace| !namespace.is_empty());
            ObjectKey::new(namespace.unwrap_or(own), dependency.name.as_str())
        })
        .collect()
}

/// Checks that all dependencies are ready, in their order.
///
/// # Errors
/// The first that is not, or an expression that cannot be used.
pub async fn check_dependencies(
    stores: &Stores,
    local: &dyn Cluster,
    settings: &Settings,
    object: &HelmRelease,
) -> Result<(), Error> {
    let additive = settings.gates.enabled("AdditiveCELDependencyCheck");
    let waiting = |message: String| Error::Dependency { message, retry: settings.requeue_dependency };
    for (reference, key) in object.spec.depends_on.iter().zip(dependency_keys(object)) {
        let found = match stores.releases.get(&key) {
            Some(found) => (*found).clone(),
            None => read(local, &release_reference(&key))
                .await
                .map_err(|error| waiting(format!("unable to get '{key}' dependency: {error}")))?,
        };
        if let Some(source) = reference.ready_expr.as_deref().filter(|source| !source.is_empty()) {
            let expression = Expression::parse(source).map_err(|error| {
                Error::InvalidExpression(format!(
                    "failed to parse expression for dependency '{key}': {error}"
                ))
            })?;
            let to_json = |object: &HelmRelease| serde_json::to_value(object).unwrap_or_default();
            let (own, other) = (to_json(object), to_json(&found));
            let variables = [("self", &own), ("dep", &other)];
            let ready = expression
                .evaluate(variables, Numbers::Integers)
                .map_err(|error| waiting(format!("failed to evaluate dependency '{key}': {error}")))?;
            if !ready {
                return Err(waiting(format!("dependency '{key}' is not ready according to readyExpr eval")));
            }
            if !additive {
                continue;
            }
        }
        let observed = found.observed_generation() == Some(found.generation());
        if !observed || !condition::is_true(found.conditions(), types::READY) {
            return Err(waiting(format!("dependency '{key}' is not ready")));
        }
    }
    let annotations = object.metadata.annotations.as_ref();
    match annotations.and_then(|annotations| annotations.get(DEPENDS_ON)) {
        Some(text) => dependencies::check(local, text, spec::namespace(object)).await.map_err(waiting),
        None => Ok(()),
    }
}

fn release_reference(key: &ObjectKey) -> ObjectRef {
    ObjectRef {
        group: GROUP.to_owned(),
        version: "v2".to_owned(),
        kind: "HelmRelease".to_owned(),
        namespace: key.namespace().to_owned(),
        name: key.name().to_owned(),
    }
}

async fn read<K: DeserializeOwned>(local: &dyn Cluster, reference: &ObjectRef) -> Result<K, String> {
    match local.get(reference).await {
        Ok(Some(found)) => serde_json::from_value(found).map_err(|error| error.to_string()),
        Ok(None) => {
            let plural = format!("{}s", reference.kind.to_lowercase());
            let plural = plural.strip_suffix("ys").map_or(plural.clone(), |stem| format!("{stem}ies"));
            Err(format!("{plural}.{} \"{}\" not found", reference.group, reference.name))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The source of a chart as watched; read from the cluster if `DirectSourceFetch` says so, or if it is of no
/// kind that is watched.
///
/// # Errors
/// A source that may not be used, does not exist or cannot be read.
pub async fn source(
    stores: &Stores,
    local: &dyn Cluster,
    settings: &Settings,
    object: &HelmRelease,
    name: &SourceName,
) -> Result<Source, Error> {
    let (kind, namespace) = (name.kind.as_str(), &name.namespace);
    if settings.no_cross_namespace_refs && namespace != spec::namespace(object) {
        return Err(Error::AccessDenied(format!(
            "cross-namespace references are not allowed: cannot access {kind} {namespace}/{}",
            name.name
        )));
    }
    if name.kind == SourceKind::ExternalArtifact && stores.external.is_none() {
        return Err(Error::AccessDenied(format!(
            "can't access '{kind}/{namespace}/{}', ExternalArtifact feature gate is disabled",
            name.name
        )));
    }
    let live = settings.gates.enabled("DirectSourceFetch");
    let result = match name.kind {
        SourceKind::HelmChart => find(&stores.charts, local, name, live, |found| {
            Source::of(found, found.status.as_ref().and_then(|status| status.artifact.as_ref()))
        }),
        SourceKind::OCIRepository => {
            return find(&stores.oci, local, name, live, |found| {
                Source::of(found, found.status.as_ref().and_then(|status| status.artifact.as_ref()))
            })
            .await
            .map_err(Error::Source);
        }
        SourceKind::ExternalArtifact => {
            let Some(external) = &stores.external else { return Err(Error::InvalidChartReference) };
            return find(external, local, name, live, |found| {
                Source::of(found, found.status.as_ref().and_then(|status| status.artifact.as_ref()))
            })
            .await
            .map_err(Error::Source);
        }
    };
    result.await.map_err(Error::Source)
}

async fn find<K: weir_runtime::Watched + FluxObject>(
    store: &Store<K>,
    local: &dyn Cluster,
    name: &SourceName,
    live: bool,
    source: impl Fn(&K) -> Source,
) -> Result<Source, String> {
    let key = ObjectKey::new(name.namespace.as_str(), name.name.as_str());
    if !live && let Some(found) = store.get(&key) {
        return Ok(source(&found));
    }
    let reference = ObjectRef {
        group: "source.toolkit.fluxcd.io".to_owned(),
        version: "v1".to_owned(),
        kind: name.kind.as_str().to_owned(),
        namespace: name.namespace.clone(),
        name: name.name.clone(),
    };
    // Not seen by the watch yet, or not there: the API server knows.
    let found: K = read(local, &reference).await?;
    Ok(source(&found))
}

/// The values of a HelmRelease: what its references lead to and those of its spec, decrypted if it names keys.
///
/// # Errors
/// [`Error::Values`]: what is missing, does not fit or cannot be decrypted.
pub async fn values(
    local: &dyn Cluster,
    object: &HelmRelease,
    requests: &Requests,
    clock: &Arc<dyn Clock>,
) -> Result<Table, Error> {
    let keys = decrypt::keys(local, object, requests, clock).await?;
    let keys = keys.as_ref().map(|keys| keys as &dyn KeyService);
    let references = references(local, object, keys).await?;
    let given = object.spec.values.as_ref();
    let plain = match keys {
        Some(keys) => decrypt::inline(given, keys).await?,
        None => None,
    };
    compose(spec::namespace(object), plain.as_ref().or(given), &references)
        .map_err(|error| Error::Values(error.to_string()))
}

/// What the value references of a HelmRelease lead to, decrypted with `keys`; each object is read once.
///
/// # Errors
/// An object or key that is missing and not optional, or an object that cannot be read.
pub async fn references(
    local: &dyn Cluster,
    object: &HelmRelease,
    keys: Option<&dyn KeyService>,
) -> Result<Vec<(ValuesReference, Found)>, Error> {
    let namespace = spec::namespace(object);
    let mut read: HashMap<(ValuesSourceKind, &str), Option<Json>> = HashMap::new();
    let mut found = Vec::new();
    for reference in &object.spec.values_from {
        let kind = reference.kind.as_str();
        let slot = (reference.kind, reference.name.as_str());
        let live = match read.entry(slot) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let live = local.get(&ObjectRef::core(kind, namespace, &reference.name)).await;
                unknown.insert(live.map_err(|error| Error::Values(error.to_string()))?)
            }
        };
        let live = live.as_ref();
        let missing = |reason: &str| {
            if reference.optional {
                tracing::info!(reference = reference.name, "optional values are not there: {reason}");
                return Ok(Found::Nothing);
            }
            let error = ReferenceError {
                reference: Box::new(reference.clone()),
                namespace: namespace.to_owned(),
                reason: reason.to_owned(),
            };
            Err(Error::Values(error.to_string()))
        };
        let mut outcome = match live {
            None => missing("resource not found")?,
            Some(live) => match live["data"][key(reference)].as_str() {
                None => missing("key not found")?,
                Some(text) => match reference.kind {
                    ValuesSourceKind::ConfigMap => Found::Data(text.as_bytes().to_vec()),
                    ValuesSourceKind::Secret => {
                        let bytes = STANDARD.decode(text);
                        Found::Data(bytes.map_err(|error| Error::Values(error.to_string()))?)
                    }
                },
            },
        };
        if let (Some(keys), Found::Data(data)) = (keys, &mut outcome) {
            *data = decrypt::referenced(reference, std::mem::take(data), keys).await.map_err(|reason| {
                let reference = Box::new(reference.clone());
                let error = ReferenceError { reference, namespace: namespace.to_owned(), reason };
                Error::Values(error.to_string())
            })?;
        }
        found.push((reference.clone(), outcome));
    }
    Ok(found)
}
