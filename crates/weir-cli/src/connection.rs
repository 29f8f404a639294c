//! The connection to a cluster and the operations commands need.

use std::fs;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ApiResource;
use kube::{Client, Config};
use serde_json::Value;
use weir_api::GoDuration;

use crate::arguments::GlobalArguments;
use crate::error::{Error, is_not_found};
use crate::kind::Kind;
use crate::output;

/// Field manager of changes made by people through this command.
const FIELD_MANAGER: &str = "flux";
/// Objects per page of a list.
const PAGE_OBJECTS_MAX: u32 = 500;
/// Longest name of a namespace.
const LABEL_CHARACTERS_MAX: usize = 63;
/// Longest pause between two looks at an object.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// A cluster, a namespace and the longest time an operation may take.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    /// The namespace commands work in.
    pub(crate) namespace: String,
    /// Longest time for one operation.
    pub(crate) timeout: GoDuration,
    /// Longest pause between two looks at an object.
    pub(crate) poll_interval_max: Duration,
}

impl Connection {
    /// Reads the kubeconfig and prepares a client; nothing is sent yet.
    pub(crate) async fn new(arguments: &GlobalArguments) -> Result<Self, Error> {
        let namespace_given = arguments.namespace != DEFAULT_NAMESPACE;
        let config = config(arguments).await?;
        let namespace = if !namespace_given && arguments.follows_context() {
            config.default_namespace.clone()
        } else if namespace_given {
            arguments.namespace.clone()
        } else {
            default_namespace(std::env::var("FLUX_SYSTEM_NAMESPACE").ok())
        };
        if !is_dns_label(&namespace) {
            return Err(Error::Namespace(namespace));
        }
        let client = Client::try_from(config).map_err(Error::Connect)?;
        Ok(Self { client, namespace, timeout: arguments.timeout, poll_interval_max: POLL_INTERVAL_MAX })
    }

    /// A connection through any client, for tests.
    #[cfg(test)]
    pub(crate) fn with_client(client: Client, namespace: &str, timeout: GoDuration) -> Self {
        Self { client, namespace: namespace.to_owned(), timeout, poll_interval_max: Duration::from_millis(5) }
    }

    /// The client, for kinds that are not of Flux.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The same connection in another namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self.clone() }
    }

    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    /// Reads an object in the namespace of the connection.
    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Result<Value, Error> {
        match self.api(&kind.resource(), Some(&self.namespace)).get(name).await {
            Ok(object) => Ok(json(object)),
            Err(error) if is_not_found(&error) => Err(Error::NotFound {
                kind: kind.name(),
                name: name.to_owned(),
                scope: format!("{:?}", self.namespace),
            }),
            Err(source) => Err(Error::Api { action: format!("read {} '{name}'", kind.name()), source }),
        }
    }

    /// Reads an object of any kind; none if the object or its kind does not exist.
    pub(crate) async fn find(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, Error> {
        match self.api(resource, namespace).get(name).await {
            Ok(object) => Ok(Some(json(object))),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(source) => Err(Error::Api { action: format!("read {} '{name}'", resource.kind), source }),
        }
    }

    /// Lists objects; in all namespaces if `all_namespaces`.
    pub(crate) async fn list(&self, kind: Kind, filter: &Filter<'_>) -> Result<Vec<Value>, Error> {
        self.try_list(kind, filter).await.map_err(|source| {
            if is_not_found(&source) {
                Error::KindUnknown { kind: kind.name() }
            } else {
                Error::Api { action: format!("list objects of kind {}", kind.name()), source }
            }
        })
    }

    /// Lists objects; empty if the kind does not exist in the cluster.
    pub(crate) async fn list_if_known(&self, kind: Kind, filter: &Filter<'_>) -> Result<Vec<Value>, Error> {
        match self.try_list(kind, filter).await {
            Err(error) if is_not_found(&error) => Ok(Vec::new()),
            other => other.map_err(|source| Error::Api {
                action: format!("list objects of kind {}", kind.name()),
                source,
            }),
        }
    }

    async fn try_list(&self, kind: Kind, filter: &Filter<'_>) -> Result<Vec<Value>, kube::Error> {
        let namespace = (!filter.all_namespaces).then_some(self.namespace.as_str());
        let api = self.api(&kind.resource(), namespace);
        let mut parameters = filter.list_parameters();
        let mut objects = Vec::new();
        loop {
            let page = api.list(&parameters).await?;
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            objects.extend(page.items.into_iter().map(|mut object| {
                object.types.get_or_insert_with(|| kube::core::TypeMeta {
                    api_version: kind.resource().api_version,
                    kind: kind.name().to_owned(),
                });
                json(object)
            }));
            match next {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(objects),
            }
        }
    }

    /// Calls `visit` with every object that is there, then with every one that changes, until the timeout.
    pub(crate) async fn watch(
        &self,
        kind: Kind,
        filter: &Filter<'_>,
        mut visit: impl FnMut(&Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let failed = |source: kube::Error| Error::Api {
            action: format!("watch objects of kind {}", kind.name()),
            source,
        };
        let namespace = (!filter.all_namespaces).then_some(self.namespace.as_str());
        let api = self.api(&kind.resource(), namespace);
        let mut parameters = WatchParams::default().disable_bookmarks();
        parameters.label_selector = filter.list_parameters().label_selector;
        parameters.field_selector = filter.list_parameters().field_selector;
        let watch = async {
            let mut stream = api.watch(&parameters, "0").await.map_err(failed)?.boxed();
            while let Some(event) = stream.try_next().await.map_err(failed)? {
                match event {
                    WatchEvent::Added(object)
                    | WatchEvent::Modified(object)
                    | WatchEvent::Deleted(object) => {
                        visit(&json(object))?;
                    }
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(status) => return Err(failed(kube::Error::Api(status))),
                }
            }
            Ok(())
        };
        // The end of the time is the regular end of a watch.
        tokio::time::timeout(self.timeout.to_std(), watch).await.unwrap_or(Ok(()))
    }

    /// Changes an object by a JSON merge patch, again after a conflict, and returns what became of it.
    pub(crate) async fn patch(&self, kind: Kind, name: &str, patch: &Value) -> Result<Value, Error> {
        const ATTEMPTS_MAX: usize = 5;
        let api = self.api(&kind.resource(), Some(&self.namespace));
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let mut attempt = 1;
        loop {
            match api.patch(name, &parameters, &Patch::Merge(patch)).await {
                Ok(object) => return Ok(json(object)),
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS_MAX => attempt += 1,
                Err(source) => {
                    return Err(Error::Api { action: format!("patch {} '{name}'", kind.name()), source });
                }
            }
        }
    }
}

impl Connection {
    /// Deletes an object in the background: its controller finishes the work.
    pub(crate) async fn delete(&self, kind: Kind, name: &str) -> Result<(), Error> {
        let api = self.api(&kind.resource(), Some(&self.namespace));
        match api.delete(name, &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(source) => Err(Error::Api { action: format!("delete {} '{name}'", kind.name()), source }),
        }
    }

    /// Finds a resource by plural, singular, short name or kind, and says whether its objects have a namespace.
    ///
    /// Groups are searched in the order of the API server, the core group first. `resource.group` narrows the search.
    pub(crate) async fn resource(&self, text: &str) -> Result<(ApiResource, bool), Error> {
        let failed =
            |source| Error::Api { action: "read the resources of the API server".to_owned(), source };
        let core = self.client.list_core_api_resources("v1").await.map_err(failed)?;
        if let Some(found) = find_resource(&core, text) {
            return Ok(found);
        }
        for group in self.client.list_api_groups().await.map_err(failed)?.groups {
            let preferred = group.preferred_version.or_else(|| group.versions.into_iter().next());
            let Some(version) = preferred else { continue };
            // A group whose server is down must not hide the others.
            let Ok(resources) = self.client.list_api_group_resources(&version.group_version).await else {
                continue;
            };
            if let Some(found) = find_resource(&resources, text) {
                return Ok(found);
            }
        }
        Err(Error::ResourceUnknown(text.to_owned()))
    }
}

fn find_resource(list: &APIResourceList, text: &str) -> Option<(ApiResource, bool)> {
    let (group, version) = list.group_version.split_once('/').unwrap_or(("", &list.group_version));
    let text = text.to_lowercase();
    let (name, wanted_group) = text.split_once('.').unwrap_or((&text, group));
    let resource = list.resources.iter().find(|resource| {
        wanted_group == group
            && !resource.name.contains('/')
            && (resource.name == name
                || resource.singular_name == name
                || resource.kind.to_lowercase() == name
                || resource.short_names.iter().flatten().any(|short| short == name))
    })?;
    let found = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: list.group_version.clone(),
        kind: resource.kind.clone(),
        plural: resource.name.clone(),
    };
    Some((found, resource.namespaced))
}

/// Which objects a list shows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Filter<'a> {
    /// Of all namespaces.
    pub(crate) all_namespaces: bool,
    /// With these labels; all if empty.
    pub(crate) labels: &'a str,
    /// With this name.
    pub(crate) name: Option<&'a str>,
}

impl Filter<'_> {
    fn list_parameters(&self) -> ListParams {
        let mut parameters = ListParams::default().limit(PAGE_OBJECTS_MAX);
        if !self.labels.is_empty() {
            parameters = parameters.labels(self.labels);
        }
        if let Some(name) = self.name {
            parameters = parameters.fields(&format!("metadata.name={name}"));
        }
        parameters
    }
}

const DEFAULT_NAMESPACE: &str = "flux-system";

fn default_namespace(variable: Option<String>) -> String {
    match variable {
        None => DEFAULT_NAMESPACE.to_owned(),
        Some(namespace) if is_dns_label(&namespace) => namespace,
        Some(namespace) => {
            if !namespace.is_empty() {
                output::warning(&format!("ignoring invalid FLUX_SYSTEM_NAMESPACE: {namespace:?}"));
            }
            DEFAULT_NAMESPACE.to_owned()
        }
    }
}

fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= LABEL_CHARACTERS_MAX
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

async fn config(arguments: &GlobalArguments) -> Result<Config, Error> {
    let options = KubeConfigOptions {
        context: arguments.context.clone(),
        cluster: arguments.cluster.clone(),
        user: arguments.user.clone(),
    };
    let unreadable = |error: kube::config::KubeconfigError| Error::Kubeconfig(Box::new(error));
    let mut config = match &arguments.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(unreadable)?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unreadable)?
        }
        None => match Config::from_kubeconfig(&options).await {
            Ok(config) => config,
            Err(error) => Config::incluster().map_err(|_| unreadable(error))?,
        },
    };
    if let Some(server) = &arguments.server {
        config.cluster_url =
            server.parse().map_err(|_| Error::Flag { flag: "server", value: server.clone() })?;
    }
    if let Some(token) = &arguments.token {
        config.auth_info.token = Some(token.clone().into());
    }
    if let Some(name) = &arguments.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    if arguments.insecure_skip_tls_verify {
        config.accept_invalid_certs = true;
    }
    if let Some(path) = &arguments.certificate_authority {
        fs::metadata(path).map_err(|source| Error::File { path: path.display().to_string(), source })?;
        config.root_cert = None;
        config.root_cert_file = Some(path.clone());
    }
    for (path, target) in [
        (&arguments.client_certificate, &mut config.auth_info.client_certificate),
        (&arguments.client_key, &mut config.auth_info.client_key),
    ] {
        if let Some(path) = path {
            *target = Some(path.display().to_string());
        }
    }
    if arguments.impersonate.is_some() {
        config.auth_info.impersonate.clone_from(&arguments.impersonate);
    }
    if !arguments.impersonate_groups.is_empty() {
        config.auth_info.impersonate_groups = Some(arguments.impersonate_groups.clone());
    }
    if arguments.impersonate_uid.is_some() {
        config.auth_info.impersonate_uid.clone_from(&arguments.impersonate_uid);
    }
    // Watches stay silent for long; operations have their own deadlines.
    config.read_timeout = None;
    Ok(config)
}

impl GlobalArguments {
    fn follows_context(&self) -> bool {
        self.ns_follows_kube_context
            || std::env::var("FLUX_NS_FOLLOWS_KUBE_CONTEXT").is_ok_and(|value| !value.is_empty())
    }
}

fn json(object: DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_labels() {
        for valid in ["a", "flux-system", "0a", &"a".repeat(63)] {
            assert!(is_dns_label(valid), "{valid}");
        }
        for invalid in ["", "-a", "a-", "A", "a.b", "a_b", &"a".repeat(64)] {
            assert!(!is_dns_label(invalid), "{invalid}");
        }
    }

    #[test]
    fn resources_by_any_of_their_names() {
        let list: APIResourceList = serde_json::from_value(serde_json::json!({
            "groupVersion": "apps/v1",
            "resources": [
                {"name": "deployments/status", "kind": "Deployment", "namespaced": true, "singularName": "", "verbs": []},
                {"name": "deployments", "kind": "Deployment", "namespaced": true, "singularName": "deployment", "shortNames": ["deploy"], "verbs": []},
            ],
        }))
        .unwrap();
        for text in ["deployments", "deployment", "Deployment", "deploy", "deployments.apps"] {
            let (resource, namespaced) = find_resource(&list, text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (resource.plural.as_str(), resource.api_version.as_str(), namespaced),
                ("deployments", "apps/v1", true)
            );
        }
        for text in ["pods", "deployments.other", "deployments/status"] {
            assert!(find_resource(&list, text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_environment_replaces_the_default_namespace() {
        assert_eq!(default_namespace(None), "flux-system");
        assert_eq!(default_namespace(Some("gitops".to_owned())), "gitops");
        assert_eq!(default_namespace(Some("not valid".to_owned())), "flux-system");
        assert_eq!(default_namespace(Some(String::new())), "flux-system");
    }
}
