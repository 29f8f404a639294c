//! [`WriteCluster`] on a real API server.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use http::{Method, Request, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::{KubernetesCluster, check_namespace, is_unknown_path, timed, transport};
use crate::cluster::ClusterError;
use crate::object::ObjectRef;
use crate::write::{ClusterFacts, LogLimits, MergeKind, Propagation, WriteCluster, WriteOptions};

/// How old the answer of [`WriteCluster::facts`] may be.
const FACTS_AGE_MAX: Duration = Duration::from_secs(30);
/// The discovery documents that tell everything in one request.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// What is escaped in a query value.
const QUERY: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'+')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?');

impl KubernetesCluster {
    /// Sends one write about `object`; `name` is part of the path unless the object is created.
    async fn write(
        &self,
        method: Method,
        object: &ObjectRef,
        named: bool,
        content_type: &str,
        query: &str,
        body: &Value,
    ) -> Result<Value, ClusterError> {
        let mapping = self.mapping(object).await?;
        check_namespace(object, &mapping)?;
        let subject = object.to_string();
        let resource = Self::resource(object, &mapping, &object.namespace);
        let mut path = resource.url_path;
        if named {
            path = format!("{path}/{}", object.name);
        }
        if !query.is_empty() {
            path = format!("{path}?{query}");
        }
        let verb = method.as_str().to_owned();
        let body = serde_json::to_vec(body).map_err(|error| transport(&verb, &subject, &error))?;
        let answer = self
            .send(&verb, &subject, || {
                Request::builder()
                    .method(method.clone())
                    .uri(&path)
                    .header(header::CONTENT_TYPE, content_type)
                    .header(header::ACCEPT, "application/json")
                    .body(body.clone())
                    .map_err(|error| transport(&verb, &subject, &error))
            })
            .await;
        if let Err(error) = &answer
            && is_unknown_path(error)
        {
            self.discovery.forget(object);
        }
        answer
    }

    async fn read_facts(&self) -> Result<ClusterFacts, ClusterError> {
        let version: Value = self.fetch("/version").await?;
        let text = |key: &str| version[key].as_str().unwrap_or_default().to_owned();
        let mut served = BTreeSet::new();
        for path in ["/api", "/apis"] {
            let document: Value = self
                .send("GET", path, || {
                    Request::get(path)
                        .header(header::ACCEPT, AGGREGATED)
                        .body(Vec::new())
                        .map_err(|error| transport("GET", path, &error))
                })
                .await?;
            if document["kind"] == "APIGroupDiscoveryList" {
                collect_aggregated(&document, &mut served);
            } else {
                for path in versions_of(&document) {
                    // A group whose server is away is left out, as the reference does.
                    if let Ok(list) = self.fetch::<Value>(&path).await {
                        collect_list(&list, &mut served);
                    }
                }
            }
        }
        Ok(ClusterFacts {
            version: text("gitVersion"),
            major: text("major"),
            minor: text("minor"),
            api_versions: served.into_iter().collect(),
        })
    }
}

/// The paths of the resource lists that an `APIVersions` or `APIGroupList` names.
fn versions_of(document: &Value) -> Vec<String> {
    let core = document["versions"].as_array().into_iter().flatten();
    let core = core.filter_map(|version| version.as_str()).map(|version| format!("/api/{version}"));
    let groups = document["groups"].as_array().into_iter().flatten();
    let groups = groups.flat_map(|group| group["versions"].as_array().into_iter().flatten());
    let groups = groups
        .filter_map(|version| version["groupVersion"].as_str())
        .map(|version| format!("/apis/{version}"));
    core.chain(groups).collect()
}

fn collect_list(list: &Value, served: &mut BTreeSet<String>) {
    let group_version = list["groupVersion"].as_str().unwrap_or_default();
    served.insert(group_version.to_owned());
    for resource in list["resources"].as_array().into_iter().flatten() {
        if let Some(kind) = resource["kind"].as_str() {
            served.insert(format!("{group_version}/{kind}"));
        }
    }
}

fn collect_aggregated(document: &Value, served: &mut BTreeSet<String>) {
    for group in document["items"].as_array().into_iter().flatten() {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        for version in group["versions"].as_array().into_iter().flatten() {
            let number = version["version"].as_str().unwrap_or_default();
            let group_version = if name.is_empty() { number.to_owned() } else { format!("{name}/{number}") };
            served.insert(group_version.clone());
            for resource in version["resources"].as_array().into_iter().flatten() {
                let subresources = resource["subresources"].as_array().into_iter().flatten();
                for item in std::iter::once(resource).chain(subresources) {
                    if let Some(kind) = item["responseKind"]["kind"].as_str().filter(|kind| !kind.is_empty())
                    {
                        served.insert(format!("{group_version}/{kind}"));
                    }
                }
            }
        }
    }
}

fn query(options: WriteOptions<'_>, more: &str) -> String {
    let manager = utf8_percent_encode(options.manager, QUERY);
    let validation = if options.strict { "Strict" } else { "Ignore" };
    format!("fieldManager={manager}&fieldValidation={validation}{more}")
}

#[async_trait]
impl WriteCluster for KubernetesCluster {
    async fn create(&self, object: &Value, options: WriteOptions<'_>) -> Result<Value, ClusterError> {
        let reference = ObjectRef::of(object);
        self.write(Method::POST, &reference, false, "application/json", &query(options, ""), object).await
    }

    async fn replace(&self, object: &Value, options: WriteOptions<'_>) -> Result<Value, ClusterError> {
        let reference = ObjectRef::of(object);
        self.write(Method::PUT, &reference, true, "application/json", &query(options, ""), object).await
    }

    async fn merge(
        &self,
        object: &ObjectRef,
        patch: &Value,
        kind: MergeKind,
        options: WriteOptions<'_>,
    ) -> Result<Value, ClusterError> {
        let content_type = match kind {
            MergeKind::Strategic => "application/strategic-merge-patch+json",
            MergeKind::Json => "application/merge-patch+json",
        };
        self.write(Method::PATCH, object, true, content_type, &query(options, ""), patch).await
    }

    async fn apply_as(
        &self,
        object: &Value,
        force: bool,
        options: WriteOptions<'_>,
    ) -> Result<Value, ClusterError> {
        let reference = ObjectRef::of(object);
        let query = query(options, &format!("&force={force}"));
        self.write(Method::PATCH, &reference, true, "application/apply-patch+yaml", &query, object).await
    }

    async fn delete_with(&self, object: &ObjectRef, propagation: Propagation) -> Result<(), ClusterError> {
        let mapping = self.mapping_of_any_version(object).await?;
        let object = ObjectRef { version: mapping.version, ..object.clone() };
        let body =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation.as_str()});
        self.write(Method::DELETE, &object, true, "application/json", "", &body).await.map(|_| ())
    }

    async fn pod_log(
        &self,
        pod: &ObjectRef,
        container: &str,
        limits: LogLimits,
    ) -> Result<String, ClusterError> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/log?container={}&tailLines={}&limitBytes={}&previous={}",
            pod.namespace,
            pod.name,
            utf8_percent_encode(container, QUERY),
            limits.lines_max,
            limits.bytes_max,
            limits.previous
        );
        let subject = pod.to_string();
        let mut request =
            Request::get(path).body(Vec::new()).map_err(|error| transport("GET", &subject, &error))?;
        self.impersonate(&mut request);
        timed("GET", &subject, self.client.request_text(request)).await
    }

    async fn facts(&self) -> Result<ClusterFacts, ClusterError> {
        if let Some((read_at, facts)) = &*self.discovery.facts.read()
            && read_at.elapsed() < FACTS_AGE_MAX
        {
            return Ok(facts.clone());
        }
        let facts = self.read_facts().await?;
        *self.discovery.facts.write() = Some((Instant::now(), facts.clone()));
        Ok(facts)
    }
}
