//! Registry credentials in Docker's configuration format.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde::Deserialize;
use weir_base::redact::Secret;

/// Credentials by registry; an empty one is anonymous everywhere.
#[derive(Debug, Clone, Default)]
pub struct Keychain(Vec<Entry>);

#[derive(Debug, Clone)]
struct Entry {
    host: String,
    path: String,
    username: String,
    password: Secret,
}

/// Why a configuration cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeychainError {
    /// Not JSON, or of another form. The cause is left out: it may quote a password.
    #[error("failed to parse docker config")]
    Format,
    /// An `auth` value that is not `user:password` in base 64.
    #[error("docker config has an invalid 'auth' for '{0}'")]
    Auth(String),
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Login>,
}

#[derive(Deserialize)]
struct Login {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
}

impl Keychain {
    /// Adds a user and a password for everything in one registry.
    pub fn add_login(&mut self, registry: &str, username: String, password: Secret) {
        let host = if registry == "docker.io" { "index.docker.io" } else { registry };
        self.0.push(Entry { host: host.to_owned(), path: String::new(), username, password });
    }

    /// Whether there is nothing for any registry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is anything for a registry.
    pub fn knows(&self, registry: &str) -> bool {
        self.0.iter().any(|entry| host_matches(&entry.host, registry))
    }

    /// Adds the content of a `.dockerconfigjson`.
    pub fn add_config(&mut self, json: &[u8]) -> Result<(), KeychainError> {
        let config: Config = serde_json::from_slice(json).map_err(|_| KeychainError::Format)?;
        self.add(config.auths)
    }

    /// Adds the content of the older `.dockercfg`, which has no `auths` level.
    pub fn add_legacy_config(&mut self, json: &[u8]) -> Result<(), KeychainError> {
        self.add(serde_json::from_slice(json).map_err(|_| KeychainError::Format)?)
    }

    fn add(&mut self, auths: BTreeMap<String, Login>) -> Result<(), KeychainError> {
        for (key, login) in auths {
            let (username, password) = if login.auth.is_empty() {
                (login.username, login.password)
            } else {
                let invalid = || KeychainError::Auth(key.clone());
                let plain = base64::engine::general_purpose::STANDARD
                    .decode(login.auth.trim())
                    .map_err(|_| invalid())?;
                let plain = String::from_utf8(plain).map_err(|_| invalid())?;
                let (username, password) = plain.split_once(':').ok_or_else(invalid)?;
                (username.to_owned(), password.trim_matches('\0').to_owned())
            };
            let plain_key = key.trim_start_matches("https://").trim_start_matches("http://");
            let (host, path) = plain_key.split_once('/').unwrap_or((plain_key, ""));
            let path = path.trim_matches('/');
            // The paths of the API are not part of repository names.
            let path = if matches!(path, "v1" | "v2") { "" } else { path };
            let host = if host == "docker.io" { "index.docker.io" } else { host };
            self.0.push(Entry {
                host: host.to_owned(),
                path: path.to_owned(),
                username,
                password: Secret::new(password),
            });
        }
        Ok(())
    }

    /// The user and password for a repository: those with the longest matching path.
    pub(super) fn find(&self, registry: &str, name: &str) -> Option<(&str, &Secret)> {
        self.0
            .iter()
            .filter(|entry| host_matches(&entry.host, registry))
            .filter(|entry| {
                entry.path.is_empty()
                    || name
                        .strip_prefix(entry.path.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
            .max_by_key(|entry| entry.path.len())
            .map(|entry| (entry.username.as_str(), &entry.password))
    }
}

/// `*` in a label of the pattern matches any text without dots.
fn host_matches(pattern: &str, host: &str) -> bool {
    let split = |text: &str| match text.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), port.to_owned()),
        None => (text.to_owned(), String::new()),
    };
    let ((pattern, pattern_port), (host, port)) = (split(pattern), split(host));
    let (patterns, labels): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), host.split('.').collect());
    pattern_port == port
        && patterns.len() == labels.len()
        && patterns.iter().zip(labels).all(|(pattern, label)| label_matches(pattern, label))
}

fn label_matches(pattern: &str, label: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == label,
        Some((before, after)) => {
            label.len() >= before.len() + after.len() && label.starts_with(before) && label.ends_with(after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_by_host_and_path() {
        let mut keychain = Keychain::default();
        keychain
            .add_config(
                br#"{"auths": {
                    "ghcr.io": {"auth": "dTpwOng="},
                    "ghcr.io/org": {"username": "org", "password": "o"},
                    "https://index.docker.io/v1/": {"username": "hub", "password": "h"},
                    "*.example.com:5000": {"username": "any", "password": "a"}
                }}"#,
            )
            .unwrap();
        keychain.add_legacy_config(br#"{"old.example.org": {"username": "old", "password": "x"}}"#).unwrap();
        let find = |registry, name| {
            keychain.find(registry, name).map(|(user, password)| format!("{user}:{}", password.expose()))
        };
        assert_eq!(find("ghcr.io", "other/app").as_deref(), Some("u:p:x"));
        assert_eq!(find("ghcr.io", "org/app").as_deref(), Some("org:o"));
        assert_eq!(find("ghcr.io", "organ/app").as_deref(), Some("u:p:x"));
        assert_eq!(find("index.docker.io", "library/nginx").as_deref(), Some("hub:h"));
        assert_eq!(find("a.example.com:5000", "x").as_deref(), Some("any:a"));
        assert_eq!(find("a.example.com", "x"), None);
        assert_eq!(find("a.b.example.com:5000", "x"), None);
        assert_eq!(find("old.example.org", "x").as_deref(), Some("old:x"));
        assert_eq!(find("quay.io", "x"), None);
    }

    #[test]
    fn broken_configurations_do_not_show_passwords() {
        let error =
            Keychain::default().add_config(br#"{"auths": {"a": {"password": hunter2}}}"#).unwrap_err();
        assert_eq!(weir_base::error::chain(&error), "failed to parse docker config");
        let error =
            Keychain::default().add_config(br#"{"auths": {"a": {"auth": "aHVudGVyMg=="}}}"#).unwrap_err();
        assert_eq!(error.to_string(), "docker config has an invalid 'auth' for 'a'");
    }
}
