//! Clusters that are described by a ConfigMap: an address, and a token of a service account to log in with.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use url::Url;

use crate::cluster::Cluster;
use crate::kubernetes::KubernetesCluster;
use crate::object::ObjectRef;
use crate::tokens::Tokens;

/// The providers of the reference that need the interface of a cloud.
const CLOUDS: [&str; 3] = ["aws", "azure", "gcp"];

/// Whose identity is used where a ConfigMap does not say.
#[derive(Debug, Clone, Copy)]
pub struct Identities<'a> {
    /// Whether a ConfigMap may name a service account.
    pub of_objects: bool,
    /// The account of the namespace that logs in otherwise; empty for the one of the controller.
    pub default_account: &'a str,
}

/// Why a described cluster cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescribedError {
    /// The ConfigMap does not exist.
    #[error("{0}")]
    Missing(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// The cluster a ConfigMap describes, with a token of the account it names; nothing is sent to it yet.
///
/// # Errors
/// A ConfigMap that is not there or says nothing usable, or an account that gets no token.
pub async fn connect(
    local: &dyn Cluster,
    tokens: &Tokens,
    namespace: &str,
    name: &str,
    identities: Identities<'_>,
    now: Timestamp,
) -> Result<KubernetesCluster, DescribedError> {
    let failed =
        |error: &str| format!("failed to get rest config from ConfigMap '{namespace}/{name}': {error}");
    let map = match local.get(&ObjectRef::core("ConfigMap", namespace, name)).await {
        Ok(Some(map)) => map,
        Ok(None) => {
            let message = failed(&format!("configmaps \"{name}\" not found"));
            return Err(DescribedError::Missing(message));
        }
        Err(error) => return Err(DescribedError::Other(failed(&error.to_string()))),
    };
    let remote = read(&map).map_err(|error| DescribedError::Other(failed(&error)))?;
    let failed = |error: &str| DescribedError::Other(failed(error));
    if !remote.service_account.is_empty() && !identities.of_objects {
        return Err(failed(
            "to use a service account for authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller",
        ));
    }
    let account = match remote.service_account.as_str() {
        "" => identities.default_account,
        named => named,
    };
    let account = (!account.is_empty()).then_some((namespace, account));
    let token = tokens.get(account, &remote.audiences, now).await.map_err(|error| {
        let hint = if remote.service_account.is_empty() && account.is_some() {
            "; this cluster is under multi-tenant workload identity lockdown: the ConfigMap must name a serviceAccountName, or the namespace must have the default one"
        } else {
            ""
        };
        failed(&format!("failed to get access token for cluster: {error}{hint}"))
    })?;
    let address: http::Uri = remote.address.parse().map_err(|_| failed("the address is no URI"))?;
    let mut config = kube::Config::new(address);
    if !remote.authority.is_empty() {
        config.root_cert = Some(certificates(&remote.authority));
    }
    config.auth_info.token = Some(token.expose().to_owned().into());
    let client = kube::Client::try_from(config).map_err(|error| failed(&error.to_string()))?;
    Ok(KubernetesCluster::new(client))
}

/// The certificates of a PEM text, as DER.
fn certificates(pem: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for block in pem.split("-----BEGIN CERTIFICATE-----").skip(1) {
        let content = block.split("-----END CERTIFICATE-----").next().unwrap_or_default();
        let content: String = content.split_ascii_whitespace().collect();
        found.extend(STANDARD.decode(content));
    }
    found
}

/// How to reach a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Remote {
    /// `https://host:port`
    address: String,
    /// The certificates to trust, in PEM; empty for those of the machine.
    authority: String,
    /// Whom the token is for.
    audiences: Vec<String>,
    /// The account to log in with; empty for none.
    service_account: String,
}

/// Reads the ConfigMap.
///
/// # Errors
/// A provider that is unknown or not supported, or an address that cannot be used.
fn read(config: &Value) -> Result<Remote, String> {
    let field = |name: &str| {
        config
            .get("data")
            .and_then(|data| data.get(name))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    match field("provider").as_str() {
        "generic" => {}
        "" => return Err("missing key 'provider'".to_owned()),
        cloud if CLOUDS.contains(&cloud) => {
            return Err(format!("provider '{cloud}' is not supported yet, use 'generic' or secretRef"));
        }
        other => return Err(format!("provider '{other}' is unknown; known are aws, azure, gcp and generic")),
    }
    let address = field("address");
    let audiences: Vec<String> = field("audiences")
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    Ok(Remote {
        audiences: if audiences.is_empty() { vec![address.clone()] } else { audiences },
        address: canonical(&address)?,
        authority: field("ca.crt"),
        service_account: field("serviceAccountName"),
    })
}

/// `https://host:port` in lower case.
fn canonical(address: &str) -> Result<String, String> {
    if address.is_empty() {
        return Err("empty address".to_owned());
    }
    let full = if address.starts_with("http") { address.to_owned() } else { format!("https://{address}") };
    let url = Url::parse(&full)
        .map_err(|error| format!("failed to parse Kubernetes API server address '{full}': {error}"))?;
    if url.scheme() != "https" {
        return Err(format!("the Kubernetes API server address '{full}' must use https scheme"));
    }
    let host = url.host_str().unwrap_or_default().to_lowercase();
    Ok(format!("https://{host}:{}", url.port_or_known_default().unwrap_or(443)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(address: &str, expected: Result<&str, &str>) {
        let got = canonical(address);
        assert_eq!(got.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn addresses_have_one_form() {
        check("API.example.com", Ok("https://api.example.com:443"));
        check("https://api.example.com:6443/path", Ok("https://api.example.com:6443"));
        check("", Err("empty address"));
        check(
            "http://api.example.com",
            Err("the Kubernetes API server address 'http://api.example.com' must use https scheme"),
        );
    }

    #[test]
    fn tokens_are_for_the_address_unless_told_otherwise() {
        let remote = read(&json!({"data": {"provider": "generic", "address": "a.example.com"}})).unwrap();
        assert_eq!(remote.audiences, ["a.example.com"]);
        let remote = read(&json!({"data": {
            "provider": "generic", "address": "a", "audiences": "x\n\n  y \n", "serviceAccountName": "s",
        }}))
        .unwrap();
        assert_eq!(remote.audiences, ["x", "y"]);
        assert_eq!(remote.service_account, "s");
        assert!(read(&json!({"data": {"provider": "aws"}})).unwrap_err().contains("not supported yet"));
        assert_eq!(read(&json!({})).unwrap_err(), "missing key 'provider'");
    }
}
