//! What each namespace has: its service account and the certificate of the cluster; tokens in secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::part::is_deleting;
use super::{ACCOUNTS, Api, CONFIG_MAPS, NAMESPACES, SECRETS};
use crate::builtin::tree::{at, text, unset};

/// Stands where the certificate of the API server's authority is; pods that run nowhere need none.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";

pub(crate) fn look_at_namespace(api: &dyn Api, name: &str) {
    let Some(namespace) = api.get(NAMESPACES, "", name) else { return };
    if is_deleting(&namespace) {
        return;
    }
    if api.get(ACCOUNTS, name, "default").is_none() {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": name }
        });
        let _ = api.create(ACCOUNTS, account);
    }
    if api.get(CONFIG_MAPS, name, "kube-root-ca.crt").is_none() {
        let text = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "kube-root-ca.crt", "namespace": name, "annotations": { "kubernetes.io/description": text }
            },
            "data": { "ca.crt": AUTHORITY }
        });
        let _ = api.create(CONFIG_MAPS, map);
    }
}

pub(crate) fn look_at_secret(api: &dyn Api, namespace: &str, name: &str) {
    let Some(secret) = api.get(SECRETS, namespace, name) else { return };
    if text(&secret, "type") != "kubernetes.io/service-account-token"
        || is_deleting(&secret)
        || !unset(&secret["data"], "token")
    {
        return;
    }
    let account = text(at(&secret, &["metadata", "annotations"]), "kubernetes.io/service-account.name");
    let Some(found) = api.get(ACCOUNTS, namespace, account) else { return };
    let token = api.token(namespace, account);
    api.amend(SECRETS, namespace, name, &|secret| {
        secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] =
            found["metadata"]["uid"].clone();
        secret["data"]["token"] = json!(STANDARD.encode(&token));
        secret["data"]["namespace"] = json!(STANDARD.encode(namespace));
        secret["data"]["ca.crt"] = json!(STANDARD.encode(AUTHORITY));
    });
}
