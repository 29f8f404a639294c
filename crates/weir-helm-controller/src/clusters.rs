//! Under which identity, and in which cluster, a release is made.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use weir_api::helm::HelmRelease;
use weir_api::reference::SecretKeyReference;
use weir_apply::cluster::Cluster;
use weir_apply::described::{self, DescribedError, Identities};
use weir_apply::kubeconfig::{Allowed, connect};
use weir_apply::kubernetes::KubernetesCluster;
use weir_apply::object::ObjectRef;
use weir_apply::tokens::Tokens;
use weir_apply::write::WriteCluster;
use weir_base::clock::Clock;

use crate::settings::Settings;
use crate::spec;

/// Why a cluster cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig or the account is not there.
    #[error("{0}")]
    Missing(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// Gives the cluster of a release.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// The cluster this controller runs in, under its own identity.
    fn local(&self) -> Arc<dyn WriteCluster>;

    /// The cluster a release is made in, under the identity it is made as.
    ///
    /// # Errors
    /// When the identity or the remote cluster cannot be set up.
    async fn target(&self, object: &HelmRelease) -> Result<Arc<dyn WriteCluster>, ClientError>;
}

/// Clusters reached through a kube client.
pub struct KubernetesClusters {
    local: Arc<KubernetesCluster>,
    settings: Settings,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
}

impl KubernetesClusters {
    /// The cluster of `client` is the local one.
    pub fn new(client: kube::Client, settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let tokens =
            Tokens::new(client.clone(), settings.token_cache_size_max, settings.token_cache_duration_max);
        Self { local: Arc::new(KubernetesCluster::new(client)), settings, tokens, clock }
    }

    async fn described(&self, namespace: &str, name: &str) -> Result<KubernetesCluster, ClientError> {
        let identities = Identities {
            of_objects: self.settings.gates.enabled("ObjectLevelWorkloadIdentity"),
            default_account: &self.settings.default_kubeconfig_service_account,
        };
        described::connect(&*self.local, &self.tokens, namespace, name, identities, self.clock.now())
            .await
            .map_err(|error| match error {
                DescribedError::Missing(message) => ClientError::Missing(message),
                DescribedError::Other(message) => ClientError::Other(message),
            })
    }

    async fn remote(
        &self,
        namespace: &str,
        reference: &SecretKeyReference,
    ) -> Result<KubernetesCluster, ClientError> {
        let full_name = format!("{namespace}/{}", reference.name);
        let text = kubeconfig_text(&*self.local, namespace, reference).await?;
        let allowed = Allowed {
            commands: self.settings.insecure_kubeconfig_exec,
            unverified: self.settings.insecure_kubeconfig_tls,
        };
        connect(&text, allowed).await.map_err(|error| {
            ClientError::Other(format!("could not load KubeConfig from secret '{full_name}': {error}"))
        })
    }
}

#[async_trait]
impl Clusters for KubernetesClusters {
    fn local(&self) -> Arc<dyn WriteCluster> {
        Arc::clone(&self.local) as Arc<dyn WriteCluster>
    }

    async fn target(&self, object: &HelmRelease) -> Result<Arc<dyn WriteCluster>, ClientError> {
        let namespace = spec::namespace(object);
        let mut cluster = (*self.local).clone();
        if let Some(reference) = &object.spec.kube_config {
            cluster = match (&reference.secret_ref, &reference.config_map_ref) {
                (Some(secret), None) => self.remote(namespace, secret).await?,
                (None, Some(map)) => self.described(namespace, &map.name).await?,
                (None, None) | (Some(_), Some(_)) => {
                    let rule = "exactly one of .spec.kubeConfig.configMapRef or spec.kubeConfig.secretRef must be set";
                    return Err(ClientError::Other(rule.to_owned()));
                }
            };
        }
        let account = spec::service_account(object, &self.settings.default_service_account);
        if !account.is_empty() {
            cluster = cluster
                .as_service_account(namespace, account)
                .map_err(|error| ClientError::Other(error.to_string()))?;
        }
        Ok(Arc::new(cluster))
    }
}

async fn kubeconfig_text(
    local: &dyn Cluster,
    namespace: &str,
    reference: &SecretKeyReference,
) -> Result<String, ClientError> {
    let full_name = format!("{namespace}/{}", reference.name);
    let unreadable = |error: &str| format!("could not get KubeConfig secret '{full_name}': {error}");
    let secret = match local.get(&ObjectRef::core("Secret", namespace, &reference.name)).await {
        Ok(Some(secret)) => secret,
        Ok(None) => {
            let error = format!("secrets \"{}\" not found", reference.name);
            return Err(ClientError::Missing(unreadable(&error)));
        }
        Err(error) => return Err(ClientError::Other(unreadable(&error.to_string()))),
    };
    let value = |key: &str| {
        let encoded = secret.get("data")?.get(key).and_then(Json::as_str).filter(|value| !value.is_empty());
        STANDARD.decode(encoded?).ok()
    };
    let missing = |keys: String| {
        ClientError::Other(format!("KubeConfig secret '{full_name}' does not contain a {keys} key with data"))
    };
    let bytes = match reference.key.as_deref().filter(|key| !key.is_empty()) {
        Some(key) => value(key).ok_or_else(|| missing(format!("'{key}'")))?,
        None => value("value")
            .or_else(|| value("value.yaml"))
            .ok_or_else(|| missing("'value' or 'value.yaml'".to_owned()))?,
    };
    String::from_utf8(bytes).map_err(|_| ClientError::Other(unreadable("the kubeconfig is not UTF-8")))
}
