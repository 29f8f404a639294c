//! Clusters that are described by a ConfigMap: an address, and a token of a service account to log in with.

use serde_json::Value;
use url::Url;

/// The providers of the reference that need the interface of a cloud.
const CLOUDS: [&str; 3] = ["aws", "azure", "gcp"];

/// How to reach a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    /// `https://host:port`
    pub(super) address: String,
    /// The certificates to trust, in PEM; empty for those of the machine.
    pub(super) authority: String,
    /// Whom the token is for.
    pub(super) audiences: Vec<String>,
    /// The account to log in with; empty for none.
    pub(super) service_account: String,
}

/// Reads the ConfigMap.
///
/// # Errors
/// A provider that is unknown or not supported, or an address that cannot be used.
pub(super) fn read(config: &Value) -> Result<Remote, String> {
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
