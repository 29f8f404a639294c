//! What is to be done: pure.

use std::collections::BTreeMap;

use weir_api::artifact::Artifact;
use weir_api::condition;
use weir_api::names::condition::ARTIFACT_IN_STORAGE;
use weir_api::source::{GitProvider, GitRepository};
use weir_base::redact::{RedactedUrl, Secret};
use weir_source::connection::{ClientCertificate, Proxy};
use weir_source::git::{
    Authorization, Checkout, Credentials, IdentityError, KnownHosts, Reference, SshCredentials, Target,
};

use super::error::{CredentialsError, Error};
use super::observe::{Included, namespace_of};
use super::verify;
use crate::source::secrets::Data;

/// Everything a checkout needs.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) url: RedactedUrl,
    pub(super) credentials: Credentials,
    pub(super) target: Target,
    pub(super) includes: Vec<Included>,
}

/// The parsed URL.
pub(super) fn url(object: &GitRepository) -> Result<RedactedUrl, Error> {
    let text = &object.spec.url;
    RedactedUrl::parse(text).map_err(|source| {
        // Without a parser's help, everything up to an `@` may be a password.
        let shown = text.rsplit('@').next().unwrap_or_default();
        Error::Url { url: shown.to_owned(), source }
    })
}

/// The credentials in the Secret and the URL.
pub(super) fn credentials(
    object: &GitRepository,
    url: &RedactedUrl,
    secret: Option<&Data>,
    proxy: Option<Proxy>,
) -> Result<Credentials, Error> {
    let empty = BTreeMap::new();
    let data = secret.unwrap_or(&empty);
    let is_app = data.get("githubAppID").is_some_and(|id| !id.is_empty());
    if is_app && object.spec.provider.unwrap_or_default() != GitProvider::Github {
        let name = object.spec.secret_ref.as_ref().map(|reference| reference.name.clone());
        return Err(Error::GithubAppWithoutProvider {
            namespace: namespace_of(object),
            name: name.unwrap_or_default(),
        });
    }
    let parsed = match url.expose().scheme() {
        "ssh" => parse_ssh(data, proxy, || {
            let reference = object.spec.secret_ref.as_ref();
            let name = reference.map(|reference| reference.name.clone()).unwrap_or_default();
            format!("{}/{name}", namespace_of(object))
        }),
        _ => parse_credentials(url, data, proxy),
    };
    parsed.map_err(Error::Authentication)
}

/// The key to log in with and the keys of servers.
fn parse_ssh(
    data: &Data,
    proxy: Option<Proxy>,
    secret: impl Fn() -> String,
) -> Result<Credentials, CredentialsError> {
    let text = |key: &'static str| {
        let value = data.get(key).cloned().unwrap_or_default();
        String::from_utf8(value).map_err(|_| CredentialsError::NotText(key))
    };
    let required =
        |key: &'static str| {
            text(key).and_then(|value| {
                if value.is_empty() { Err(CredentialsError::SshRequires(key)) } else { Ok(value) }
            })
        };
    let (identity, known_hosts) = (Secret::new(required("identity")?), required("known_hosts")?);
    let password = Secret::new(text("password")?);
    let known_hosts = KnownHosts::parse(&known_hosts).map_err(CredentialsError::KnownHosts)?;
    let ssh = SshCredentials::new(&identity, Some(&password), known_hosts).map_err(|error| match error {
        IdentityError::Encrypted => CredentialsError::EncryptedIdentity(secret()),
        IdentityError::Unreadable => CredentialsError::Identity(error),
    })?;
    Ok(Credentials { proxy, ssh: Some(ssh), ..Credentials::default() })
}

fn parse_credentials(
    url: &RedactedUrl,
    data: &Data,
    proxy: Option<Proxy>,
) -> Result<Credentials, CredentialsError> {
    let scheme = url.expose().scheme();
    if !matches!(scheme, "http" | "https") {
        return Err(CredentialsError::Transport(scheme.to_owned()));
    }
    let bytes = |key: &str| data.get(key).filter(|value| !value.is_empty());
    let text = |key: &'static str| {
        let value = bytes(key).cloned().unwrap_or_default();
        String::from_utf8(value).map_err(|_| CredentialsError::NotText(key))
    };
    let authorization = if data.contains_key("bearerToken") {
        Authorization::Bearer(Secret::new(text("bearerToken")?))
    } else {
        let (username, password) = (text("username")?, text("password")?);
        if username.is_empty() && !password.is_empty() && url.expose().username().is_empty() {
            return Err(CredentialsError::PasswordWithoutUsername { scheme: scheme.to_owned() });
        }
        match (username.is_empty(), password.is_empty()) {
            // The URL may still have some.
            (true, true) => Authorization::None,
            _ => Authorization::Basic { username, password: Secret::new(password) },
        }
    };
    let half = |present, missing| Err(CredentialsError::HalfCertificate { present, missing });
    let client_certificate = match (bytes("tls.crt"), bytes("tls.key")) {
        (Some(certificate), Some(_)) => Some(ClientCertificate {
            certificate: certificate.clone(),
            private_key: Secret::new(text("tls.key")?),
        }),
        (Some(_), None) => return half("tls.crt", "tls.key"),
        (None, Some(_)) => return half("tls.key", "tls.crt"),
        (None, None) => None,
    };
    let certificate_authority = bytes("ca.crt").or_else(|| bytes("caFile")).cloned();
    Ok(Credentials { authorization, certificate_authority, client_certificate, proxy, ssh: None })
}

/// The reference to check out.
pub(super) fn target(object: &GitRepository) -> Result<Target, Error> {
    let reference = object.spec.reference.clone().unwrap_or_default();
    Target::new(&Reference {
        branch: reference.branch,
        tag: reference.tag,
        semver: reference.semver,
        name: reference.name,
        commit: reference.commit,
    })
    .map_err(Error::Target)
}

/// The revision that needs no fetch: the stored one, if it was made the way it would be made now.
pub(super) fn known_revision(working: &GitRepository, includes: &[Included]) -> Option<String> {
    let status = working.status.as_ref()?;
    let artifact = status.artifact.as_ref()?;
    let in_storage = condition::is_true(&status.conditions, ARTIFACT_IN_STORAGE);
    (in_storage && !content_changed(working, includes)).then(|| artifact.revision.clone())
}

/// Whether the stored artifact is that of the revision, made the way it would be made now.
pub(super) fn is_stored(working: &GitRepository, revision: &str, includes: &[Included]) -> bool {
    let Some(status) = &working.status else { return false };
    status.artifact.as_ref().is_some_and(|artifact| artifact.revision == revision)
        && !includes_differ(&status.included_artifacts, includes)
        && !content_changed(working, includes)
}

/// Whether other revisions are included than before, or another number of them.
pub(super) fn includes_differ(before: &[Artifact], includes: &[Included]) -> bool {
    before.len() != includes.len()
        || includes
            .iter()
            .any(|one| !before.iter().any(|artifact| artifact.revision == one.artifact.revision))
}

/// Whether the specification asks for other contents than those stored, for the same commit.
pub(super) fn content_changed(working: &GitRepository, includes: &[Included]) -> bool {
    let spec = &working.spec;
    let Some(status) = &working.status else { return true };
    verify::is_due(working)
        || spec.ignore != status.observed_ignore
        || spec.recurse_submodules != status.observed_recurse_submodules
        || spec.sparse_checkout != status.observed_sparse_checkout
        || spec.include != status.observed_include
        || includes.len() != status.included_artifacts.len()
        || includes.iter().zip(&status.included_artifacts).any(|(one, before)| {
            one.artifact.revision != before.revision || one.artifact.digest != before.digest
        })
}

/// Every path to keep exists.
pub(super) fn sparse_paths(object: &GitRepository, checkout: &Checkout) -> Result<(), Error> {
    match object.spec.sparse_checkout.iter().find(|path| !checkout.worktree.contains(path)) {
        Some(path) => Err(Error::Sparse(path.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
