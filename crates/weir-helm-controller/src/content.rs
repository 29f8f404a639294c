//! Makes the content of a release from a chart and values, with what templates ask of the cluster.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rand::RngExt as _;
use serde_json::Value as Json;
use tokio::runtime::Handle;
use weir_apply::cluster::ClusterError;
use weir_apply::object::{ObjectRef, split_api_version};
use weir_apply::write::WriteCluster;
use weir_base::clock::Clock;
use weir_gotemplate::{Host, Limits, Value};
use weir_helm::action::ContentFailed;
use weir_helm::capabilities::{Capabilities, KubeVersion};
use weir_helm::chart::Chart;
use weir_helm::content::{self, Content, ContentOptions, Files};
use weir_helm::render::{self, ReleaseInfo, RenderInput};
use weir_helm::values::Table;

use crate::documents::documents;

/// What the content of releases is made with.
#[derive(Clone)]
pub struct Maker {
    /// What templates look things up in.
    pub cluster: Arc<dyn WriteCluster>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Whether templates may resolve names of hosts.
    pub dns: bool,
    /// Whether values are not checked against the schema of the chart.
    pub skip_schema: bool,
    /// Whether documents that schemas refer to are not fetched and allow anything.
    pub offline: bool,
    /// What templates are told of the cluster instead of asking it.
    pub capabilities: Option<Capabilities>,
}

impl Maker {
    /// The function that makes contents; `change` is what post-renderers do to the rendered files.
    pub fn make(
        self,
        change: impl Fn(Files) -> Result<Files, ContentFailed> + Send + Sync + 'static,
    ) -> impl Fn(ReleaseInfo, Chart, Table) -> BoxFuture<'static, Result<Content, ContentFailed>> + Send + Sync
    {
        let change = Arc::new(change);
        move |info, chart, given| {
            let (maker, change) = (self.clone(), Arc::clone(&change));
            async move {
                let capabilities = match maker.capabilities.clone() {
                    Some(capabilities) => capabilities,
                    None => capabilities(&*maker.cluster).await?,
                };
                let Self { cluster, clock, dns, skip_schema, offline, .. } = maker;
                let handle = Handle::current();
                let documents = documents(handle.clone(), offline);
                let host = ClusterHost { cluster, clock, handle, dns };
                let made = tokio::task::spawn_blocking(move || {
                    let input = RenderInput {
                        release: &info,
                        capabilities: &capabilities,
                        host: Box::new(host),
                        limits: Limits::default(),
                    };
                    let options = ContentOptions { skip_schema, documents, ..ContentOptions::default() };
                    content::make_changed(chart, &given, input, &options, |files| change(files))
                });
                made.await.map_err(|error| ContentFailed(format!("rendering was cut off: {error}")))?
            }
            .boxed()
        }
    }
}

async fn capabilities(cluster: &dyn WriteCluster) -> Result<Capabilities, ContentFailed> {
    let facts = cluster
        .facts()
        .await
        .map_err(|error| ContentFailed(format!("could not get server version from Kubernetes: {error}")))?;
    let mut kube_version =
        KubeVersion::parse(&facts.version).map_err(|error| ContentFailed(error.to_string()))?;
    (kube_version.major, kube_version.minor) = (facts.major, facts.minor);
    Ok(Capabilities { kube_version, api_versions: facts.api_versions, ..Capabilities::default() })
}

/// What templates may ask of the world.
struct ClusterHost {
    cluster: Arc<dyn WriteCluster>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    dns: bool,
}

impl Host for ClusterHost {
    fn now(&mut self) -> (i64, u32) {
        let now = self.clock.now();
        (now.as_second(), now.subsec_nanosecond().unsigned_abs())
    }

    fn random(&mut self, bytes: &mut [u8]) {
        rand::rng().fill(bytes);
    }

    fn lookup(
        &mut self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, String> {
        let (group, version) = split_api_version(api_version);
        let reference = ObjectRef {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let nothing = Json::Object(serde_json::Map::new());
        // No object has such a name, and no request can be made of it.
        let in_paths = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
        if ![namespace, name].iter().all(|text| text.bytes().all(in_paths)) {
            return Ok(render::engine_value(&nothing));
        }
        let found = self.handle.block_on(async {
            if name.is_empty() {
                let namespace = (!namespace.is_empty()).then_some(namespace);
                let items = self.cluster.list(&reference, namespace, "").await?;
                let list = serde_json::json!({
                    "apiVersion": api_version, "kind": format!("{kind}List"), "items": items, "metadata": {}
                });
                return Ok(list);
            }
            Ok(self.cluster.get(&reference).await?.unwrap_or_else(|| nothing.clone()))
        });
        match found {
            Ok(found) => Ok(render::engine_value(&found)),
            Err(error @ ClusterError::NoMatch { .. }) => Err(error.to_string()),
            Err(error) if error.is_not_found() => Ok(render::engine_value(&nothing)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn resolve(&mut self, name: &str) -> Result<String, String> {
        if !self.dns {
            return Ok(String::new());
        }
        let found = self.handle.block_on(tokio::net::lookup_host((name, 0)));
        let mut found = found.map_err(|error| format!("lookup {name}: {error}"))?;
        Ok(found.next().map(|address| address.ip().to_string()).unwrap_or_default())
    }
}
