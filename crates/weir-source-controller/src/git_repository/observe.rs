//! What is read before anything is decided: Secrets and included artifacts.

use std::time::Duration;

use weir_api::Artifact;
use weir_api::source::{GitProvider, GitRepository, GitRepositoryInclude};
use weir_base::redact::{RedactedUrl, Secret};
use weir_cloud::InvalidCredentials;
use weir_cloud::azure::DEVOPS_RESOURCE;
use weir_cloud::github::{GitHubApp, Installation};
use weir_runtime::{ObjectKey, Store};
use weir_source::bucket;
use weir_source::connection::Proxy;
use weir_source::git::{Authorization, Credentials, SigningKeys};

use super::error::Error;
use crate::identity::{Identities, Principal};
use crate::source::secrets::{self, Data};

/// An artifact to include, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Included {
    pub(super) spec: GitRepositoryInclude,
    pub(super) artifact: Artifact,
}

/// The data of the Secret with the credentials, if the object names one.
pub(super) async fn secret(client: &kube::Client, object: &GitRepository) -> Result<Option<Data>, Error> {
    let Some(reference) = &object.spec.secret_ref else { return Ok(None) };
    let secret = secrets::get(client, &namespace_of(object), &reference.name).await.map_err(Error::Secret)?;
    Ok(Some(secrets::data_of(secret)))
}

/// The proxy, if the object names one.
pub(super) async fn proxy(client: &kube::Client, object: &GitRepository) -> Result<Option<Proxy>, Error> {
    let Some(reference) = &object.spec.proxy_secret_ref else { return Ok(None) };
    let proxy = secrets::proxy(client, &namespace_of(object), &reference.name).await;
    proxy.map(Some).map_err(Error::Proxy)
}

/// The login the provider of the object gives, in the place of the one of the Secret.
pub(super) async fn log_in(
    identities: &Identities,
    object: &GitRepository,
    url: &RedactedUrl,
    secret: Option<&Data>,
    credentials: &mut Credentials,
) -> Result<(), Error> {
    let provider = object.spec.provider.unwrap_or_default();
    if provider == GitProvider::Generic {
        return Ok(());
    }
    let namespace = namespace_of(object);
    let principal = Principal::object(&namespace, object.spec.service_account_name.as_deref());
    if principal.account.is_some() && !identities.allows_accounts() {
        return Err(Error::FeatureGate);
    }
    let access = bucket::Access { proxy: credentials.proxy.clone(), ..bucket::Access::default() };
    let failed = |provider: &'static str| move |source| Error::Provider { provider, source };
    match provider {
        GitProvider::Generic => {}
        GitProvider::Github => {
            // The server of an own installation may have an own authority.
            let access = bucket::Access {
                certificate_authority: credentials.certificate_authority.clone(),
                client_certificate: credentials.client_certificate.clone(),
                ..access
            };
            let requests = access.requests().map_err(Error::Connection)?;
            let (app, data) = github_app(object, secret)?;
            let token = identities.github(&app, &data, &requests).await.map_err(failed("github"))?;
            let username = "x-access-token".to_owned();
            credentials.authorization = Authorization::Basic { username, password: token.secret };
        }
        GitProvider::Azure => {
            let requests = access.requests().map_err(Error::Connection)?;
            let token =
                identities.azure(principal, &requests, DEVOPS_RESOURCE).await.map_err(failed("azure"))?;
            credentials.authorization = Authorization::Bearer(token.secret);
        }
        GitProvider::Aws => {
            let requests = access.requests().map_err(Error::Connection)?;
            let login = identities.code_commit(principal, &requests, url.expose()).await;
            let login = login.map_err(failed("aws"))?;
            let (username, password) = login.ok_or_else(|| Error::ForeignUrl {
                url: url.without_credentials().to_string(),
                provider: "aws",
            })?;
            credentials.authorization = Authorization::Basic { username, password };
        }
    }
    Ok(())
}

/// The App a Secret describes, and everything it is made of as one text.
fn github_app(object: &GitRepository, secret: Option<&Data>) -> Result<(GitHubApp, String), Error> {
    let Some(data) = secret.filter(|_| object.spec.secret_ref.is_some()) else {
        return Err(Error::NoGithubApp { is_terminal: true });
    };
    let text = |key: &str| {
        let value = data.get(key).map(|value| String::from_utf8_lossy(value).trim().to_owned());
        value.filter(|value| !value.is_empty())
    };
    let invalid = |what: &str| Error::App(InvalidCredentials(format!("invalid GitHub App data: {what}")));
    let id = text("githubAppID").ok_or(Error::NoGithubApp { is_terminal: false })?;
    let key = text("githubAppPrivateKey").ok_or_else(|| invalid("'githubAppPrivateKey' is missing"))?;
    let installation = match (text("githubAppInstallationID"), text("githubAppInstallationOwner")) {
        (Some(id), None) => Installation::Id(id),
        (None, Some(owner)) => Installation::Owner(owner),
        (Some(_), Some(_)) => {
            return Err(invalid(
                "only one of 'githubAppInstallationID' and 'githubAppInstallationOwner' may be there",
            ));
        }
        (None, None) => {
            return Err(invalid("'githubAppInstallationID' or 'githubAppInstallationOwner' is missing"));
        }
    };
    let base = text("githubAppBaseURL");
    let all = format!("{id}\n{installation:?}\n{base:?}\n{key}");
    let app = GitHubApp::new(&id, &Secret::new(key), installation, base.as_deref()).map_err(Error::App)?;
    Ok((app, all))
}

/// The keys that may sign.
pub(super) async fn signing_keys(
    client: &kube::Client,
    object: &GitRepository,
    name: &str,
) -> Result<SigningKeys, Error> {
    let secret = secrets::get(client, &namespace_of(object), name).await.map_err(Error::SigningKeys)?;
    let mut keys = SigningKeys::default();
    for (name, value) in secrets::data_of(secret) {
        keys.add(&name, &value);
    }
    Ok(keys)
}

/// The artifacts to include, in the order of the specification.
pub(super) fn includes(
    sources: &Store<GitRepository>,
    object: &GitRepository,
    retry: Duration,
) -> Result<Vec<Included>, Error> {
    let namespace = namespace_of(object);
    object
        .spec
        .include
        .iter()
        .map(|spec| {
            let name = spec.repository.name.clone();
            let found = sources.get(&ObjectKey::new(namespace.as_str(), name.as_str()));
            let Some(source) = found else { return Err(Error::IncludeNotFound { name, retry }) };
            let artifact = source.status.as_ref().and_then(|status| status.artifact.clone());
            let artifact = artifact.ok_or(Error::IncludeNotReady { name, retry })?;
            Ok(Included { spec: spec.clone(), artifact })
        })
        .collect()
}

pub(super) fn namespace_of(object: &GitRepository) -> String {
    object.metadata.namespace.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_base::error::chain;

    use super::*;

    #[test]
    fn apps() {
        let check = |spec: serde_json::Value, entries: Option<&[(&str, &str)]>| {
            let mut spec = spec;
            spec["url"] = json!("https://example.com/fleet");
            spec["interval"] = json!("1m");
            let object: GitRepository = serde_json::from_value(json!({
                "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
                "metadata": {"name": "fleet", "namespace": "apps"}, "spec": spec,
            }))
            .unwrap();
            let data = entries.map(|entries| {
                entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
            });
            chain(&github_app(&object, data.as_ref()).map(|_| ()).unwrap_err())
        };
        let named = json!({"secretRef": {"name": "app"}});
        let missing = "secretRef with github app data must be specified when provider is set to github";
        assert_eq!(check(json!({}), None), missing);
        assert_eq!(check(named.clone(), Some(&[])), missing);
        let prefix = "failed to configure authentication options: invalid GitHub App data:";
        assert_eq!(
            check(named.clone(), Some(&[("githubAppID", "1")])),
            format!("{prefix} 'githubAppPrivateKey' is missing")
        );
        let both = [
            ("githubAppID", "1"),
            ("githubAppPrivateKey", "s3cret"),
            ("githubAppInstallationID", "1"),
            ("githubAppInstallationOwner", "me"),
        ];
        assert_eq!(
            check(named.clone(), Some(&both)),
            format!(
                "{prefix} only one of 'githubAppInstallationID' and 'githubAppInstallationOwner' may be there"
            )
        );
        let error = check(named, Some(&both[..3]));
        assert!(
            error.ends_with("the private key is not an RSA key in PEM") && !error.contains("s3cret"),
            "{error}"
        );
    }
}
