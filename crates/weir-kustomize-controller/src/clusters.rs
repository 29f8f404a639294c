//! Under which identity, and in which cluster, the objects of a Kustomization are managed.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use weir_api::kustomize::Kustomization;
use weir_api::reference::SecretKeyReference;
use weir_apply::cluster::Cluster;
use weir_apply::kubernetes::KubernetesCluster;
use weir_apply::object::ObjectRef;

use crate::decide;
use crate::error::Cause;
use crate::settings::Settings;

/// Gives the cluster a Kustomization applies to.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// The cluster this controller runs in, under its own identity.
    fn local(&self) -> &dyn Cluster;

    /// The cluster the objects of a Kustomization live in, under the identity that manages them.
    ///
    /// # Errors
    /// [`Cause::Client`] when the identity or the remote cluster cannot be set up.
    async fn target(&self, object: &Kustomization) -> Result<Arc<dyn Cluster>, Cause>;
}

/// Clusters reached through a kube client.
pub struct KubernetesClusters {
    local: Arc<KubernetesCluster>,
    settings: Settings,
}

impl KubernetesClusters {
    /// The cluster of `client` is the local one.
    pub fn new(client: kube::Client, settings: Settings) -> Self {
        Self { local: Arc::new(KubernetesCluster::new(client)), settings }
    }

    /// The local cluster.
    pub fn local_cluster(&self) -> Arc<KubernetesCluster> {
        Arc::clone(&self.local)
    }

    async fn remote(
        &self,
        namespace: &str,
        reference: &SecretKeyReference,
    ) -> Result<KubernetesCluster, Cause> {
        let full_name = format!("{namespace}/{}", reference.name);
        let text = kubeconfig_text(&*self.local, namespace, reference).await?;
        let invalid = |error: &dyn std::error::Error| {
            Cause::Client(format!("failed to load KubeConfig from secret '{full_name}': {error}"))
        };
        let mut kubeconfig = Kubeconfig::from_yaml(&text).map_err(|error| invalid(&error))?;
        sanitise(&mut kubeconfig, &self.settings);
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(|error| invalid(&error))?;
        let client = kube::Client::try_from(config).map_err(|error| invalid(&error))?;
        Ok(KubernetesCluster::new(client))
    }
}

#[async_trait]
impl Clusters for KubernetesClusters {
    fn local(&self) -> &dyn Cluster {
        &*self.local
    }

    async fn target(&self, object: &Kustomization) -> Result<Arc<dyn Cluster>, Cause> {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let mut cluster = (*self.local).clone();
        if let Some(reference) = &object.spec.kube_config {
            let Some(secret) = &reference.secret_ref else {
                return Err(Cause::Client(
                    "spec.kubeConfig.configMapRef is not supported yet, use secretRef".to_owned(),
                ));
            };
            cluster = self.remote(namespace, secret).await?;
        }
        let account = decide::service_account(&object.spec, &self.settings);
        if !account.is_empty() {
            cluster = cluster
                .as_service_account(namespace, account)
                .map_err(|error| Cause::Client(error.to_string()))?;
        }
        Ok(Arc::new(cluster))
    }
}

async fn kubeconfig_text(
    local: &dyn Cluster,
    namespace: &str,
    reference: &SecretKeyReference,
) -> Result<String, Cause> {
    let full_name = format!("{namespace}/{}", reference.name);
    let object = ObjectRef {
        version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: namespace.to_owned(),
        name: reference.name.clone(),
        ..ObjectRef::default()
    };
    let unreadable =
        |error: &str| Cause::Client(format!("unable to read KubeConfig secret '{full_name}' error: {error}"));
    let secret = match local.get(&object).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return Err(unreadable(&format!("secrets \"{}\" not found", reference.name))),
        Err(error) => return Err(unreadable(&error.to_string())),
    };
    let value = |key: &str| secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let missing = |key: &str| {
        Cause::Client(format!(
            "KubeConfig secret '{full_name}' does not contain a '{key}' key with a kubeconfig"
        ))
    };
    let encoded = match reference.key.as_deref().filter(|key| !key.is_empty()) {
        Some(key) => value(key).ok_or_else(|| missing(key))?,
        None => value("value").or_else(|| value("value.yaml")).ok_or_else(|| missing("value"))?,
    };
    let bytes = STANDARD.decode(encoded).map_err(|error| unreadable(&error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| unreadable("the kubeconfig is not UTF-8"))
}

/// Drops what a kubeconfig from a Secret may not use: files of this machine, commands, other
/// identities, and connections that are not verified.
fn sanitise(kubeconfig: &mut Kubeconfig, settings: &Settings) {
    for named in &mut kubeconfig.clusters {
        if let Some(cluster) = &mut named.cluster {
            cluster.certificate_authority = None;
            if !settings.insecure_kubeconfig_tls {
                cluster.insecure_skip_tls_verify = None;
            }
        }
    }
    for named in &mut kubeconfig.auth_infos {
        if let Some(user) = &mut named.auth_info {
            user.client_certificate = None;
            user.client_key = None;
            user.token_file = None;
            user.auth_provider = None;
            user.impersonate = None;
            user.impersonate_groups = None;
            if !settings.insecure_kubeconfig_exec {
                user.exec = None;
            }
        }
    }
}
