//! The repositories and registries Helm knows on this machine, read from its files. Nothing of Helm's is ever written.

use std::env;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use url::Url;
use weir_base::redact::Secret;
use weir_helm::requirements;
use weir_manifest::ReadOptions;
use weir_source::connection::ClientCertificate;
use weir_source::oci::Keychain;

use super::go_error;
use crate::error::Error;

/// A repository with a name.
#[derive(Debug, Clone, Default)]
pub(super) struct Repository {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) login: Login,
}

/// How to reach a web server.
#[derive(Debug, Clone, Default)]
pub(super) struct Login {
    pub(super) username: String,
    pub(super) password: Option<Secret>,
    /// Sends them to other hosts as well.
    pub(super) pass_credentials: bool,
    pub(super) certificate_file: String,
    pub(super) key_file: String,
    pub(super) authority_file: String,
    pub(super) skip_tls_verify: bool,
}

impl Login {
    /// The user and the password, if both are there.
    pub(super) fn pair(&self) -> Option<(String, Secret)> {
        let password = self.password.clone().filter(|password| !password.expose().is_empty())?;
        (!self.username.is_empty()).then(|| (self.username.clone(), password))
    }

    /// The certificates to trust besides those of the system.
    pub(super) fn authority(&self) -> Result<Option<Vec<u8>>, Error> {
        if self.authority_file.is_empty() { Ok(None) } else { read(&self.authority_file).map(Some) }
    }

    /// The client certificate, if there is one with its key.
    pub(super) fn certificate(&self) -> Result<Option<ClientCertificate>, Error> {
        if self.certificate_file.is_empty() || self.key_file.is_empty() {
            return Ok(None);
        }
        let key = String::from_utf8_lossy(&read(&self.key_file)?).into_owned();
        Ok(Some(ClientCertificate {
            certificate: read(&self.certificate_file)?,
            private_key: Secret::new(key),
        }))
    }
}

fn read(path: &str) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::Helm(go_error("open", path, &error)))
}

/// What `helm repo add` has written down.
#[derive(Debug, Clone, Default)]
pub(super) struct Repositories(Vec<Repository>);

impl Repositories {
    /// Reads `repositories.yaml`; without one there are none.
    pub(super) fn read() -> Result<Self, Error> {
        let path = place("HELM_REPOSITORY_CONFIG", &CONFIG, "repositories.yaml");
        let shown = path.display().to_string();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                let cause = go_error("open", &shown, &error);
                return Err(Error::Helm(format!("couldn't load repositories file ({shown}): {cause}")));
            }
        };
        let document = weir_manifest::read_first_document(&text, &shown, ReadOptions::default())
            .map_err(|error| Error::Helm(format!("couldn't load repositories file ({shown}): {error}")))?;
        let entries = document.get("repositories").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(Self(entries.iter().map(entry).collect()))
    }

    /// The repository of that name.
    pub(super) fn named(&self, name: &str) -> Option<&Repository> {
        self.0.iter().find(|repository| repository.name == name)
    }

    /// The repository at an address.
    pub(super) fn at(&self, url: &str) -> Option<&Repository> {
        self.0.iter().find(|repository| same_address(&repository.url, url))
    }

    /// All repositories in the order they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Repository> {
        self.0.iter()
    }
}

fn entry(value: &Value) -> Repository {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let flag = |field: &str| value.get(field).and_then(Value::as_bool).unwrap_or_default();
    Repository {
        name: text("name"),
        url: text("url"),
        login: Login {
            username: text("username"),
            password: Some(Secret::new(text("password"))),
            pass_credentials: flag("pass_credentials_all"),
            certificate_file: text("certFile"),
            key_file: text("keyFile"),
            authority_file: text("caFile"),
            skip_tls_verify: flag("insecure_skip_tls_verify"),
        },
    }
}

/// Where the index of a repository is kept by `helm repo update`.
pub(super) fn cached_index(name: &str) -> PathBuf {
    place("HELM_REPOSITORY_CACHE", &CACHE, "repository").join(format!("{name}-index.yaml"))
}

/// The logins of registries: those of `helm registry login`, then those of Docker.
pub(super) fn keychain() -> Result<Keychain, Error> {
    let mut keychain = Keychain::default();
    let docker = variable("DOCKER_CONFIG").unwrap_or_else(|| home().join(".docker"));
    for path in [place("HELM_REGISTRY_CONFIG", &CONFIG, "registry/config.json"), docker.join("config.json")] {
        let Ok(text) = fs::read(&path) else { continue };
        keychain
            .add_config(&text)
            .map_err(|error| Error::Helm(format!("failed to read '{}': {error}", path.display())))?;
    }
    Ok(keychain)
}

/// One of Helm's directories: its variable, the variable of all programs, and where it is below the home directory.
struct Directory(&'static str, &'static str, &'static str);

const CONFIG: Directory = Directory("HELM_CONFIG_HOME", "XDG_CONFIG_HOME", ".config");
const CACHE: Directory = Directory("HELM_CACHE_HOME", "XDG_CACHE_HOME", ".cache");

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn home() -> PathBuf {
    variable("HOME").unwrap_or_default()
}

/// The place a variable names, or that below one of Helm's directories.
fn place(name: &str, directory: &Directory, below: &str) -> PathBuf {
    let Directory(own, common, default) = directory;
    variable(name).unwrap_or_else(|| {
        let base = variable(own)
            .or_else(|| Some(variable(common)?.join("helm")))
            .unwrap_or_else(|| home().join(default).join("helm"));
        base.join(below)
    })
}

/// Whether two addresses mean the same place: default ports, doubled and trailing slashes do not count.
pub(super) fn same_address(left: &str, right: &str) -> bool {
    let normal = |text: &str| {
        let url = Url::parse(text).ok()?;
        let path = requirements::clean(url.path());
        Some((url.scheme().to_owned(), url.host_str()?.to_owned(), url.port_or_known_default(), path))
    };
    match (normal(left), normal(right)) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_by_what_they_mean() {
        for (left, right, same) in [
            ("https://example.com", "https://example.com:443/", true),
            ("http://example.com/a//b/", "http://example.com/a/b", true),
            ("http://example.com/a", "http://example.com/b", false),
            ("http://example.com", "https://example.com", false),
            ("@a", "@a", true),
            ("@a", "http://example.com", false),
        ] {
            assert_eq!(same_address(left, right), same, "{left} {right}");
        }
    }

    #[test]
    fn entries_of_the_repositories_file() {
        let value = serde_json::json!({
            "name": "a", "url": "https://example.com", "username": "u", "password": "p",
            "pass_credentials_all": true, "caFile": "/ca", "insecure_skip_tls_verify": false,
        });
        let read = entry(&value);
        assert_eq!((read.name.as_str(), read.url.as_str()), ("a", "https://example.com"));
        assert!(read.login.pass_credentials && !read.login.skip_tls_verify);
        assert_eq!(read.login.authority_file, "/ca");
        assert_eq!(read.login.pair().unwrap().0, "u");
        assert!(!format!("{read:?}").contains("\"p\""), "passwords do not show");
    }
}
