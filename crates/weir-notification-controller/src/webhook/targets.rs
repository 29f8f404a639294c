//! The objects a Receiver names: found, and asked to reconcile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GetParams, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use weir_api::names::annotation::REQUESTED_AT;
use weir_api::notification::{EventSourceKind, ReceiverResource};
use weir_base::clock::Clock;

use super::coalesce::Coalescer;
use crate::receiver::api_message;

/// The field manager of the annotation.
const FIELD_MANAGER: &str = "notification-controller";
/// How many objects of one request are annotated at the same time.
const PARALLEL_MAX: usize = 8;
/// The longest time one request to the API server may take.
const API_TIMEOUT: Duration = Duration::from_secs(15);

/// Why the objects of a resource were not all asked to reconcile.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum TargetError {
    #[error("cross-namespace references are not allowed")]
    CrossNamespace,
    #[error("apiVersion must be specified for kind \"{0}\"")]
    NoVersion(EventSourceKind),
    #[error("matchLabels field not set when using wildcard '*' as name")]
    NoLabels,
    #[error("unable to read {kind} \"{name}\" error: {message}")]
    Read { kind: EventSourceKind, name: String, message: String },
    #[error(
        "failed listing resources in namespace \"{namespace}\" by matching labels \"{labels}\": {message}"
    )]
    List { namespace: String, labels: String, message: String },
    #[error("failed to annotate resource: '{kind}/{name}.{namespace}': {message}")]
    Annotate { kind: EventSourceKind, name: String, namespace: String, message: String },
}

/// What a resource of a Receiver names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) kind: EventSourceKind,
    api_version: String,
    pub(super) namespace: String,
    name: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Wanted {
    Name(String),
    Labels(String),
}

/// An object to annotate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ObjectKey {
    kind: EventSourceKind,
    api_version: String,
    namespace: String,
    name: String,
}

/// The API version of a kind when the Receiver names none.
fn default_version(kind: EventSourceKind) -> Option<&'static str> {
    match kind {
        EventSourceKind::Bucket
        | EventSourceKind::GitRepository
        | EventSourceKind::HelmChart
        | EventSourceKind::HelmRepository
        | EventSourceKind::OCIRepository => Some("source.toolkit.fluxcd.io/v1"),
        EventSourceKind::ImageRepository => Some("image.toolkit.fluxcd.io/v1"),
        EventSourceKind::ArtifactGenerator => Some("source.extensions.fluxcd.io/v1beta1"),
        EventSourceKind::Kustomization
        | EventSourceKind::HelmRelease
        | EventSourceKind::ImagePolicy
        | EventSourceKind::ImageUpdateAutomation
        | EventSourceKind::ExternalArtifact
        | EventSourceKind::FluxInstance
        | EventSourceKind::ResourceSet
        | EventSourceKind::ResourceSetInputProvider => None,
    }
}

impl Target {
    /// What `resource` names, seen from the namespace of its Receiver. Pure.
    pub(super) fn new(
        resource: &ReceiverResource,
        own_namespace: &str,
        no_cross_namespace_refs: bool,
    ) -> Result<Self, TargetError> {
        let given = resource.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        let namespace = given.unwrap_or(own_namespace);
        if no_cross_namespace_refs && namespace != own_namespace {
            return Err(TargetError::CrossNamespace);
        }
        let given = resource.api_version.as_deref().filter(|version| !version.is_empty());
        let api_version = given.or_else(|| default_version(resource.kind));
        let api_version = api_version.ok_or(TargetError::NoVersion(resource.kind))?;
        let name = if resource.name == "*" {
            Wanted::Labels(selector(resource.match_labels.as_ref().ok_or(TargetError::NoLabels)?))
        } else {
            Wanted::Name(resource.name.clone())
        };
        Ok(Self {
            kind: resource.kind,
            api_version: api_version.to_owned(),
            namespace: namespace.to_owned(),
            name,
        })
    }

    /// The labels objects are found by, if they are not named.
    pub(super) fn labels(&self) -> Option<&str> {
        match &self.name {
            Wanted::Name(_) => None,
            Wanted::Labels(labels) => Some(labels),
        }
    }
}

fn selector(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn api_resource(api_version: &str, kind: EventSourceKind) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind.as_str()))
}

type Found = Arc<Vec<PartialObjectMeta<DynamicObject>>>;

/// Finds and annotates objects. Requests for the same thing at the same time share one call.
pub(super) struct Targets {
    client: Client,
    clock: Arc<dyn Clock>,
    started: Instant,
    reads: Coalescer<Target, Result<Found, TargetError>>,
    writes: Coalescer<ObjectKey, Result<(), TargetError>>,
}

impl Targets {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            clock,
            started: Instant::now(),
            reads: Coalescer::default(),
            writes: Coalescer::default(),
        }
    }

    fn api(&self, api_version: &str, kind: EventSourceKind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &api_resource(api_version, kind))
    }

    /// The metadata of all objects a target names; a named one that is missing is an error.
    pub(super) async fn find(&self, target: &Target) -> Result<Found, TargetError> {
        self.reads.run(target, self.read(target)).await
    }

    async fn read(&self, target: &Target) -> Result<Found, TargetError> {
        let api = self.api(&target.api_version, target.kind, &target.namespace);
        match &target.name {
            Wanted::Name(name) => {
                let parameters = GetParams::any();
                let read = timeout(API_TIMEOUT, api.get_metadata_with(name, &parameters)).await;
                let object =
                    answer(read, target.kind, &target.api_version).map_err(|message| TargetError::Read {
                        kind: target.kind,
                        name: format!("{}/{name}", target.namespace),
                        message,
                    })?;
                Ok(Arc::new(vec![object]))
            }
            Wanted::Labels(labels) => {
                let parameters = ListParams::default().labels(labels).match_any();
                let read = timeout(API_TIMEOUT, api.list_metadata(&parameters)).await;
                let list = answer(read, target.kind, &target.api_version).map_err(|message| {
                    TargetError::List { namespace: target.namespace.clone(), labels: labels.clone(), message }
                })?;
                Ok(Arc::new(list.items))
            }
        }
    }

    /// Asks the one object a target names to reconcile, without reading it first. `None` for a target
    /// that names several.
    pub(super) async fn annotate_named(&self, target: &Target) -> Option<Result<String, TargetError>> {
        let Wanted::Name(name) = &target.name else { return None };
        Some(self.annotate(target, name).await.map(|()| name.clone()))
    }

    /// Asks objects to reconcile, and gives the names of those that were asked; stops at the first that
    /// cannot be.
    pub(super) async fn annotate_all(
        &self,
        target: &Target,
        names: Vec<String>,
    ) -> Result<Vec<String>, TargetError> {
        let annotated = futures::stream::iter(names.into_iter().map(|name| async move {
            self.annotate(target, &name).await?;
            Ok(name)
        }));
        annotated.buffer_unordered(PARALLEL_MAX).try_collect().await
    }

    async fn annotate(&self, target: &Target, name: &str) -> Result<(), TargetError> {
        let key = ObjectKey {
            kind: target.kind,
            api_version: target.api_version.clone(),
            namespace: target.namespace.clone(),
            name: name.to_owned(),
        };
        self.writes.run(&key, self.write(&key)).await
    }

    async fn write(&self, key: &ObjectKey) -> Result<(), TargetError> {
        let api = self.api(&key.api_version, key.kind, &key.namespace);
        let token = requested_at(self.clock.now(), self.started.elapsed());
        let patch = json!({"metadata": {"annotations": {REQUESTED_AT: token}}});
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let written =
            timeout(API_TIMEOUT, api.patch_metadata(&key.name, &parameters, &Patch::Merge(&patch))).await;
        answer(written, key.kind, &key.api_version).map(drop).map_err(|message| TargetError::Annotate {
            kind: key.kind,
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            message,
        })
    }
}

fn answer<T>(
    result: Result<Result<T, kube::Error>, tokio::time::error::Elapsed>,
    kind: EventSourceKind,
    api_version: &str,
) -> Result<T, String> {
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) if is_unknown_kind(&error) => {
            Err(format!("no matches for kind \"{kind}\" in version \"{api_version}\""))
        }
        Ok(Err(error)) => Err(api_message(&error)),
        Err(_) => Err(format!("no answer within {}", weir_api::GoDuration::from(API_TIMEOUT))),
    }
}

/// A path the server does not know is answered like a missing object, but names none.
fn is_unknown_kind(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let names_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && !names_object
}

/// A new value for the annotation, in the form the reference gives it: consumers take it as it is.
fn requested_at(now: Timestamp, since_start: Duration) -> String {
    let time = now.strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC");
    format!("{time} m=+{:.9}", since_start.as_secs_f64())
}

/// An object as filters see it: its metadata, with apiVersion and kind.
pub(super) fn as_resource(object: &PartialObjectMeta<DynamicObject>, target: &Target) -> Value {
    json!({
        "apiVersion": target.api_version,
        "kind": target.kind,
        // Metadata always serialises.
        "metadata": serde_json::to_value(&object.metadata).unwrap_or_default(),
    })
}

/// The name of an object.
pub(super) fn name(object: &PartialObjectMeta<DynamicObject>) -> String {
    object.name_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(value: Value) -> ReceiverResource {
        serde_json::from_value(value).unwrap()
    }

    #[track_caller]
    fn check(value: Value, strict: bool, expected: Result<(&str, &str, &str), &str>) {
        let target = Target::new(&resource(value), "apps", strict);
        let found = target.as_ref().map(|target| {
            let name = match &target.name {
                Wanted::Name(text) | Wanted::Labels(text) => text.as_str(),
            };
            (target.api_version.as_str(), target.namespace.as_str(), name)
        });
        assert_eq!(found.map_err(ToString::to_string), expected.map_err(str::to_owned));
    }

    #[test]
    fn versions_and_namespaces_have_defaults() {
        let source = "source.toolkit.fluxcd.io/v1";
        check(json!({"kind": "GitRepository", "name": "fleet"}), true, Ok((source, "apps", "fleet")));
        check(json!({"kind": "OCIRepository", "name": "a", "namespace": "b"}), false, Ok((source, "b", "a")));
        check(
            json!({"kind": "ImageRepository", "name": "*", "matchLabels": {"b": "2", "a": "1"}}),
            false,
            Ok(("image.toolkit.fluxcd.io/v1", "apps", "a=1,b=2")),
        );
        check(
            json!({"kind": "ResourceSetInputProvider", "name": "a", "apiVersion": "fluxcd.controlplane.io/v1"}),
            false,
            Ok(("fluxcd.controlplane.io/v1", "apps", "a")),
        );
        check(json!({"kind": "Bucket", "name": "*", "matchLabels": {}}), false, Ok((source, "apps", "")));
    }

    #[test]
    fn what_names_nothing_is_an_error() {
        check(
            json!({"kind": "Kustomization", "name": "a"}),
            false,
            Err("apiVersion must be specified for kind \"Kustomization\""),
        );
        check(
            json!({"kind": "Bucket", "name": "*"}),
            false,
            Err("matchLabels field not set when using wildcard '*' as name"),
        );
        let elsewhere = json!({"kind": "Bucket", "name": "a", "namespace": "b"});
        check(elsewhere, true, Err("cross-namespace references are not allowed"));
        let here = json!({"kind": "Bucket", "name": "a", "namespace": "apps"});
        check(here, true, Ok(("source.toolkit.fluxcd.io/v1", "apps", "a")));
    }

    #[test]
    fn every_kind_has_the_plural_of_its_definition() {
        for definition in weir_api::crd::definitions() {
            let names = &definition["spec"]["names"];
            let kind = EventSourceKind::ALL.iter().find(|kind| names["kind"] == kind.as_str());
            let Some(kind) = kind else { continue };
            assert_eq!(api_resource("g/v1", *kind).plural, names["plural"].as_str().unwrap());
        }
    }

    #[test]
    fn the_token_looks_like_that_of_the_reference() {
        let now: Timestamp = "2026-03-04T05:06:07.089Z".parse().unwrap();
        assert_eq!(
            requested_at(now, Duration::from_millis(1500)),
            "2026-03-04 05:06:07.089 +0000 UTC m=+1.500000000"
        );
    }
}
