//! [`Cluster`] on a real API server.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::{Stream, StreamExt};
use http::header::HeaderValue;
use http::{Request, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::Client;
use kube::core::ApiResource;
use kube::core::params::{DeleteParams, GetParams, ListParams, Patch, PatchParams, WatchParams};
use kube::core::request::Request as Resource;
use parking_lot::RwLock;
use serde_json::Value;

use crate::cluster::{ApplyMode, Cluster, ClusterError, Events, WatchEvent, WatchScope};
use crate::object::ObjectRef;
use crate::write::ClusterFacts;

mod write;

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// How often a request is tried again when the server is busy or away, and the first pause.
const RETRIES_MAX: u32 = 5;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
/// How long the server keeps a watch open, in seconds.
const WATCH_TIMEOUT_SECONDS: u32 = 290;

/// Where the objects of a kind are found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    version: String,
    plural: String,
    namespaced: bool,
}

/// What the API server serves, learnt group by group when first asked for and shared by every
/// identity that talks to it.
///
/// A kind that is not known is asked for again each time, so a CRD that arrives later is found.
#[derive(Debug, Default)]
pub struct Discovery {
    /// By `group/version`, then by kind.
    served: RwLock<HashMap<String, HashMap<String, Mapping>>>,
    /// The preferred version by group.
    preferred: RwLock<HashMap<String, String>>,
    /// What the cluster is, and when that was asked for.
    facts: RwLock<Option<(Instant, ClusterFacts)>>,
}

impl Discovery {
    fn known(&self, api_version: &str, kind: &str) -> Option<Mapping> {
        self.served.read().get(api_version)?.get(kind).cloned()
    }

    /// Forgets what is known about a group, after a request showed it to be out of date.
    fn forget(&self, object: &ObjectRef) {
        self.served.write().remove(&object.api_version());
        self.preferred.write().remove(&object.group);
    }
}

/// A cluster reached through a kube client, optionally as another user.
#[derive(Clone)]
pub struct KubernetesCluster {
    client: Client,
    discovery: Arc<Discovery>,
    impersonated_user: Option<HeaderValue>,
}

impl KubernetesCluster {
    /// The cluster of `client`, under the client's own identity.
    pub fn new(client: Client) -> Self {
        Self { client, discovery: Arc::new(Discovery::default()), impersonated_user: None }
    }

    /// The same cluster as the service account `namespace/name`.
    ///
    /// # Errors
    /// When the name holds characters that cannot be sent.
    pub fn as_service_account(&self, namespace: &str, name: &str) -> Result<Self, ClusterError> {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let header = HeaderValue::from_str(&user).map_err(|error| ClusterError::Transport {
            request: format!("impersonate '{user}'"),
            message: error.to_string(),
        })?;
        Ok(Self { impersonated_user: Some(header), ..self.clone() })
    }

    /// The client requests are sent with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How a kind is addressed by kube's own watchers.
    ///
    /// # Errors
    /// When the API server does not serve the kind or cannot be asked.
    pub async fn api_resource(&self, kind: &ObjectRef) -> Result<ApiResource, ClusterError> {
        let mapping = self.mapping_of_any_version(kind).await?;
        let version = ObjectRef { version: mapping.version.clone(), ..kind.clone() };
        Ok(ApiResource {
            group: kind.group.clone(),
            version: mapping.version,
            api_version: version.api_version(),
            kind: kind.kind.clone(),
            plural: mapping.plural,
        })
    }

    async fn mapping(&self, object: &ObjectRef) -> Result<Mapping, ClusterError> {
        let version = if object.version.is_empty() {
            self.preferred_version(object).await?
        } else {
            object.version.clone()
        };
        let versioned = ObjectRef { version, ..object.clone() };
        let api_version = versioned.api_version();
        if let Some(mapping) = self.discovery.known(&api_version, &object.kind) {
            return Ok(mapping);
        }
        let no_match =
            || ClusterError::NoMatch { kind: object.kind.clone(), api_version: api_version.clone() };
        let path = if object.group.is_empty() {
            format!("/api/{api_version}")
        } else {
            format!("/apis/{api_version}")
        };
        let list: APIResourceList = match self.fetch(&path).await {
            Err(error) if error.is_not_found() => return Err(no_match()),
            answer => answer?,
        };
        let kinds: HashMap<String, Mapping> = list
            .resources
            .into_iter()
            .filter(|resource| !resource.name.contains('/'))
            .map(|resource| {
                let mapping = Mapping {
                    version: versioned.version.clone(),
                    plural: resource.name,
                    namespaced: resource.namespaced,
                };
                (resource.kind, mapping)
            })
            .collect();
        let mapping = kinds.get(&object.kind).cloned();
        self.discovery.served.write().insert(api_version.clone(), kinds);
        mapping.ok_or_else(no_match)
    }

    /// The mapping of an object that is known to have existed: if its version is no longer served,
    /// the preferred one of its group.
    async fn mapping_of_any_version(&self, object: &ObjectRef) -> Result<Mapping, ClusterError> {
        match self.mapping(object).await {
            Err(error) if error.is_no_match() && !object.version.is_empty() && !object.group.is_empty() => {
                let preferred = self.preferred_version(object).await.map_err(|_| error.clone())?;
                if preferred == object.version {
                    return Err(error);
                }
                self.mapping(&ObjectRef { version: preferred, ..object.clone() }).await
            }
            mapping => mapping,
        }
    }

    async fn preferred_version(&self, object: &ObjectRef) -> Result<String, ClusterError> {
        if object.group.is_empty() {
            return Ok("v1".to_owned());
        }
        if let Some(version) = self.discovery.preferred.read().get(&object.group) {
            return Ok(version.clone());
        }
        let no_match =
            || ClusterError::NoMatch { kind: object.kind.clone(), api_version: object.group.clone() };
        let group: APIGroup = match self.fetch(&format!("/apis/{}", object.group)).await {
            Err(error) if error.is_not_found() => return Err(no_match()),
            answer => answer?,
        };
        let version = group
            .preferred_version
            .map(|preferred| preferred.version)
            .or_else(|| group.versions.first().map(|first| first.version.clone()))
            .ok_or_else(no_match)?;
        self.discovery.preferred.write().insert(object.group.clone(), version.clone());
        Ok(version)
    }

    async fn fetch<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, ClusterError> {
        self.send("GET", path, || {
            Request::get(path).body(Vec::new()).map_err(|error| transport("GET", path, &error))
        })
        .await
    }

    /// Sends a request, trying again while the server is busy or away.
    async fn send<T: serde::de::DeserializeOwned>(
        &self,
        verb: &str,
        subject: &str,
        build: impl Fn() -> Result<Request<Vec<u8>>, ClusterError>,
    ) -> Result<T, ClusterError> {
        let mut delay = RETRY_DELAY_MIN;
        for _ in 0..RETRIES_MAX {
            match self.send_once(verb, subject, build()?).await {
                Err(error) if error.is_transient() => {
                    tracing::debug!(verb, subject, error = %error, "request failed, trying again");
                    tokio::time::sleep(delay).await;
                    delay *= 3;
                }
                answer => return answer,
            }
        }
        self.send_once(verb, subject, build()?).await
    }

    async fn send_once<T: serde::de::DeserializeOwned>(
        &self,
        verb: &str,
        subject: &str,
        mut request: Request<Vec<u8>>,
    ) -> Result<T, ClusterError> {
        self.impersonate(&mut request);
        timed(verb, subject, self.client.request::<T>(request)).await
    }

    fn impersonate(&self, request: &mut Request<Vec<u8>>) {
        if let Some(user) = &self.impersonated_user {
            request.headers_mut().insert("impersonate-user", user.clone());
        }
    }

    fn resource(object: &ObjectRef, mapping: &Mapping, namespace: &str) -> Resource {
        let root = if object.group.is_empty() {
            format!("/api/{}", mapping.version)
        } else {
            format!("/apis/{}/{}", object.group, mapping.version)
        };
        if mapping.namespaced && !namespace.is_empty() {
            Resource::new(format!("{root}/namespaces/{namespace}/{}", mapping.plural))
        } else {
            Resource::new(format!("{root}/{}", mapping.plural))
        }
    }
}

/// The answer to a namespaced request that names no namespace.
fn check_namespace(object: &ObjectRef, mapping: &Mapping) -> Result<(), ClusterError> {
    if mapping.namespaced && object.namespace.is_empty() {
        return Err(ClusterError::not_found("the server could not find the requested resource"));
    }
    Ok(())
}

fn transport(verb: &str, subject: &str, error: &dyn std::error::Error) -> ClusterError {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        source = cause.source();
    }
    ClusterError::Transport { request: format!("{verb} {subject}"), message }
}

fn from_kube(verb: &str, subject: &str, error: &kube::Error) -> ClusterError {
    match error {
        kube::Error::Api(status) => ClusterError::Api {
            code: status.code,
            reason: status.reason.clone(),
            message: status.message.clone(),
        },
        other => transport(verb, subject, other),
    }
}

async fn timed<T>(
    verb: &str,
    subject: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ClusterError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| from_kube(verb, subject, &error)),
        Err(_) => {
            Err(ClusterError::TimedOut { request: format!("{verb} {subject}"), after: REQUEST_TIMEOUT })
        }
    }
}

#[async_trait]
impl Cluster for KubernetesCluster {
    async fn get(&self, object: &ObjectRef) -> Result<Option<Value>, ClusterError> {
        let mapping = self.mapping_of_any_version(object).await?;
        check_namespace(object, &mapping)?;
        let subject = object.to_string();
        let resource = Self::resource(object, &mapping, &object.namespace);
        let answer = self
            .send("GET", &subject, || {
                resource
                    .get(&object.name, &GetParams::default())
                    .map_err(|error| transport("GET", &subject, &error))
            })
            .await;
        match answer {
            Ok(live) => Ok(Some(live)),
            Err(error) if error.is_not_found() => {
                if error.reason() != "NotFound" || is_unknown_path(&error) {
                    self.discovery.forget(object);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn list(
        &self,
        kind: &ObjectRef,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>, ClusterError> {
        let mapping = self.mapping(kind).await?;
        let subject = format!("{} in namespace '{}'", kind.group_kind(), namespace.unwrap_or_default());
        let resource = Self::resource(kind, &mapping, namespace.unwrap_or_default());
        let mut parameters = ListParams::default();
        if !labels.is_empty() {
            parameters = parameters.labels(labels);
        }
        let list: Value = self
            .send("LIST", &subject, || {
                resource.list(&parameters).map_err(|error| transport("LIST", &subject, &error))
            })
            .await?;
        let api_version = ObjectRef { version: mapping.version.clone(), ..kind.clone() }.api_version();
        let Value::Object(mut list) = list else {
            return Ok(Vec::new());
        };
        let Some(Value::Array(mut items)) = list.remove("items") else {
            return Ok(Vec::new());
        };
        for item in &mut items {
            // Items of a list come without their type.
            if let Some(map) = item.as_object_mut() {
                map.insert("apiVersion".to_owned(), api_version.clone().into());
                map.insert("kind".to_owned(), kind.kind.clone().into());
            }
        }
        Ok(items)
    }

    async fn apply(&self, object: &Value, mode: ApplyMode<'_>) -> Result<Value, ClusterError> {
        let reference = ObjectRef::of(object);
        let mapping = self.mapping(&reference).await?;
        check_namespace(&reference, &mapping)?;
        let subject = reference.to_string();
        let resource = Self::resource(&reference, &mapping, &reference.namespace);
        let mut parameters = PatchParams::apply(mode.manager).force();
        parameters.dry_run = mode.dry_run;
        let answer = self
            .send("PATCH", &subject, || {
                resource
                    .patch(&reference.name, &parameters, &Patch::Apply(object))
                    .map_err(|error| transport("PATCH", &subject, &error))
            })
            .await;
        if let Err(error) = &answer
            && is_unknown_path(error)
        {
            self.discovery.forget(&reference);
        }
        answer
    }

    async fn patch(
        &self,
        object: &ObjectRef,
        operations: &Value,
        manager: &str,
    ) -> Result<Value, ClusterError> {
        let mapping = self.mapping(object).await?;
        check_namespace(object, &mapping)?;
        let subject = object.to_string();
        let resource = Self::resource(object, &mapping, &object.namespace);
        let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let body = serde_json::to_vec(operations).map_err(|error| transport("PATCH", &subject, &error))?;
        self.send("PATCH", &subject, || {
            // A typed JSON patch would need the operations in another type; the wire form is the same.
            let mut request = resource
                .patch(&object.name, &parameters, &Patch::Merge(&Value::Null))
                .map_err(|error| transport("PATCH", &subject, &error))?;
            request
                .headers_mut()
                .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json-patch+json"));
            request.body_mut().clone_from(&body);
            Ok(request)
        })
        .await
    }

    async fn delete(&self, object: &ObjectRef) -> Result<(), ClusterError> {
        let mapping = self.mapping_of_any_version(object).await?;
        check_namespace(object, &mapping)?;
        let subject = object.to_string();
        let resource = Self::resource(object, &mapping, &object.namespace);
        let _answer: Value = self
            .send("DELETE", &subject, || {
                resource
                    .delete(&object.name, &DeleteParams::background())
                    .map_err(|error| transport("DELETE", &subject, &error))
            })
            .await?;
        Ok(())
    }

    async fn watch(&self, scope: &WatchScope) -> Result<Events, ClusterError> {
        let mapping = self.mapping(&scope.kind).await?;
        let subject = scope.kind.group_kind();
        let resource = Self::resource(&scope.kind, &mapping, scope.namespace.as_deref().unwrap_or_default());
        let mut parameters = WatchParams::default().timeout(WATCH_TIMEOUT_SECONDS);
        parameters.label_selector.clone_from(&scope.labels);
        parameters.field_selector = scope.name.as_ref().map(|name| format!("metadata.name={name}"));
        let request = if scope.metadata_only {
            resource.watch_metadata(&parameters, "")
        } else {
            resource.watch(&parameters, "")
        };
        let mut request = request.map_err(|error| transport("WATCH", &subject, &error))?;
        self.impersonate(&mut request);
        let events = timed("WATCH", &subject, self.client.request_events::<Value>(request)).await?;
        Ok(relay(subject, events))
    }

    async fn is_namespaced(&self, kind: &ObjectRef) -> Result<bool, ClusterError> {
        Ok(self.mapping_of_any_version(kind).await?.namespaced)
    }

    async fn is_version_namespaced(&self, kind: &ObjectRef) -> Result<bool, ClusterError> {
        Ok(self.mapping(kind).await?.namespaced)
    }
}

/// Kube's watch events as ours.
fn relay<S>(subject: String, events: S) -> Events
where
    S: Stream<Item = Result<kube::core::WatchEvent<Value>, kube::Error>> + Send + 'static,
{
    let events = events.filter_map(move |event| {
        let event = match event {
            Ok(kube::core::WatchEvent::Added(object) | kube::core::WatchEvent::Modified(object)) => {
                Some(Ok(WatchEvent::Applied(object)))
            }
            Ok(kube::core::WatchEvent::Deleted(object)) => Some(Ok(WatchEvent::Deleted(object))),
            Ok(kube::core::WatchEvent::Bookmark(_)) => None,
            Ok(kube::core::WatchEvent::Error(status)) => Some(Err(ClusterError::Api {
                code: status.code,
                reason: status.reason,
                message: status.message,
            })),
            Err(error) => Some(Err(from_kube("WATCH", &subject, &error))),
        };
        futures::future::ready(event)
    });
    events.boxed()
}

/// Whether a 404 is about the path (the kind is no longer served) and not about the object.
fn is_unknown_path(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Api { code: 404, message, .. }
        if message.contains("the server could not find the requested resource") || message.contains("page not found"))
}
