//! Under which identity, and in which cluster, the objects of a Kustomization are managed.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use weir_api::kustomize::Kustomization;
use weir_api::reference::SecretKeyReference;
use weir_apply::cluster::Cluster;
use weir_apply::described::{self, Identities};
use weir_apply::kubeconfig::{Allowed, connect};
use weir_apply::kubernetes::KubernetesCluster;
use weir_apply::object::ObjectRef;
use weir_apply::tokens::Tokens;
use weir_base::clock::Clock;
use weir_base::redact::Secret;

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

    /// A token that proves the identity of a service account (namespace and name) of the local cluster, or of this
    /// controller, to `audiences`.
    ///
    /// # Errors
    /// The account does not exist, or the API server refuses.
    async fn service_account_token(
        &self,
        account: Option<(&str, &str)>,
        audiences: &[String],
    ) -> Result<Secret, String>;
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
        let allowed = Allowed {
            commands: self.settings.insecure_kubeconfig_exec,
            unverified: self.settings.insecure_kubeconfig_tls,
        };
        connect(&text, allowed).await.map_err(|error| {
            Cause::Client(format!("failed to load KubeConfig from secret '{full_name}': {error}"))
        })
    }

    /// The cluster a ConfigMap describes, with a token of the account it names.
    async fn described(&self, namespace: &str, name: &str) -> Result<KubernetesCluster, Cause> {
        let identities = Identities {
            of_objects: self.settings.gates.enabled("ObjectLevelWorkloadIdentity"),
            default_account: &self.settings.default_kubeconfig_service_account,
        };
        described::connect(&*self.local, &self.tokens, namespace, name, identities, self.clock.now())
            .await
            .map_err(|error| Cause::Client(error.to_string()))
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
            cluster = match (&reference.secret_ref, &reference.config_map_ref) {
                (Some(secret), _) => self.remote(namespace, secret).await?,
                (None, Some(map)) => self.described(namespace, &map.name).await?,
                (None, None) => {
                    let rule = "exactly one of spec.kubeConfig.configMapRef or spec.kubeConfig.secretRef must be specified";
                    return Err(Cause::Client(rule.to_owned()));
                }
            };
        }
        let account = decide::service_account(&object.spec, &self.settings);
        if !account.is_empty() {
            cluster = cluster
                .as_service_account(namespace, account)
                .map_err(|error| Cause::Client(error.to_string()))?;
        }
        Ok(Arc::new(cluster))
    }

    async fn service_account_token(
        &self,
        account: Option<(&str, &str)>,
        audiences: &[String],
    ) -> Result<Secret, String> {
        self.tokens.get(account, audiences, self.clock.now()).await
    }
}

async fn kubeconfig_text(
    local: &dyn Cluster,
    namespace: &str,
    reference: &SecretKeyReference,
) -> Result<String, Cause> {
    let full_name = format!("{namespace}/{}", reference.name);
    let object = ObjectRef::core("Secret", namespace, &reference.name);
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
