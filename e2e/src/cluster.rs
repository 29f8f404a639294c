//! The cluster under test, seen as plain JSON: a scenario must not share the types of what it judges.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// `apiVersion` of sources.
pub const SOURCE: &str = "source.toolkit.fluxcd.io/v1";
/// API version of generators of artifacts.
pub const EXTENSIONS: &str = "source.extensions.fluxcd.io/v1beta1";
/// `apiVersion` of Kustomizations.
pub const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io/v1";
/// The group and version of HelmReleases.
pub const HELM: &str = "helm.toolkit.fluxcd.io/v2";
/// The API version of Receivers.
pub const NOTIFICATION: &str = "notification.toolkit.fluxcd.io/v1";
/// The API version of Alerts and Providers.
pub const NOTIFICATION_BETA: &str = "notification.toolkit.fluxcd.io/v1beta3";

const FIELD_MANAGER: &str = "weir-e2e";

/// A connection with all rights.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    /// The cluster of `KUBECONFIG`, or none when the variable is not set.
    ///
    /// # Errors
    /// The kubeconfig cannot be read, or the server does not answer.
    pub async fn connect() -> Result<Option<Self>> {
        let Some(path) = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let path = PathBuf::from(path);
        let kubeconfig =
            Kubeconfig::read_from(&path).with_context(|| format!("read KUBECONFIG '{}'", path.display()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        client
            .apiserver_version()
            .await
            .with_context(|| format!("reach the cluster of '{}'", path.display()))?;
        Ok(Some(Self { client }))
    }

    /// The cluster behind a client.
    pub fn with_client(client: Client) -> Self {
        Self { client }
    }

    /// The client itself.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Installs the CRDs of this repository and waits until they are served.
    ///
    /// # Errors
    /// A file cannot be read, the server refuses a CRD, or one is not served in time.
    pub async fn install_crds(&self) -> Result<()> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds");
        let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
            .with_context(|| format!("list '{}'", directory.display()))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
            .collect();
        files.sort();
        let mut names = Vec::new();
        for file in files {
            let bytes = std::fs::read(&file)?;
            for document in weir_manifest::read_documents(&bytes, &file.display().to_string())? {
                if document["kind"] == "CustomResourceDefinition" {
                    names.push(text(&document, "/metadata/name"));
                    self.apply(&document).await?;
                }
            }
        }
        if names.is_empty() {
            bail!("no CRD in '{}'", directory.display());
        }
        for name in names {
            crate::eventually(crate::DEADLINE, &format!("CRD {name} is served"), || async {
                let crd =
                    self.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, &name).await?;
                let established =
                    condition(&crd, "Established").is_some_and(|found| found["status"] == "True");
                established.then_some(()).ok_or_else(|| anyhow!("not established"))
            })
            .await?;
        }
        Ok(())
    }

    fn api(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Server-side applies an object as a user would.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn apply(&self, object: &Value) -> Result<Value> {
        let (api_version, kind, name) =
            (text(object, "/apiVersion"), text(object, "/kind"), text(object, "/metadata/name"));
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = self
            .api(&api_version, &kind, namespace)
            .patch(&name, &parameters, &Patch::Apply(object))
            .await
            .with_context(|| format!("apply {kind} '{name}'"))?;
        Ok(serde_json::to_value(applied)?)
    }

    /// The object as it is.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub async fn get(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Value> {
        let found = self
            .api(api_version, kind, namespace)
            .get(name)
            .await
            .with_context(|| format!("get {kind} '{}/{name}'", namespace.unwrap_or_default()))?;
        Ok(serde_json::to_value(found)?)
    }

    /// The object as it is, or none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn find(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>> {
        let found = self.api(api_version, kind, namespace).get_opt(name).await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    /// All objects of a kind, in one namespace or all, with the labels.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>> {
        let list = self
            .api(api_version, kind, namespace)
            .list(&ListParams::default().labels(labels))
            .await
            .with_context(|| format!("list {kind}"))?;
        let typed = |item| -> Result<Value> {
            let mut object = serde_json::to_value(item)?;
            object["apiVersion"] = api_version.into(); // the server leaves them out of the items of a list
            object["kind"] = kind.into();
            Ok(object)
        };
        list.items.into_iter().map(typed).collect()
    }

    /// Changes an object with a merge patch under the name of another field manager.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn edit(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        manager: &str,
        change: &Value,
    ) -> Result<Value> {
        let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let edited = self
            .api(api_version, kind, namespace)
            .patch(name, &parameters, &Patch::Merge(change))
            .await
            .with_context(|| format!("edit {kind} '{name}'"))?;
        Ok(serde_json::to_value(edited)?)
    }

    /// Replaces fields of an object's status with a merge patch.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn edit_status(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        status: &Value,
    ) -> Result<()> {
        self.api(api_version, kind, Some(namespace))
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&json!({ "status": status })))
            .await
            .with_context(|| format!("set the status of {kind} '{name}'"))?;
        Ok(())
    }

    /// Deletes an object; one that is not there is fine.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn delete(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<()> {
        match self.api(api_version, kind, namespace).delete(name, &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("delete {kind} '{name}'")),
        }
    }

    /// Events about an object: `(type, reason, message)`.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn events(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
    ) -> Result<BTreeSet<(String, String, String)>> {
        let events = self.list("v1", "Event", Some(namespace), "").await?;
        Ok(events
            .iter()
            .filter(|event| {
                event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name
            })
            .map(|event| (text(event, "/type"), text(event, "/reason"), text(event, "/message")))
            .collect())
    }
}

/// The text at a JSON pointer, or nothing.
pub fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The condition of a type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
}
