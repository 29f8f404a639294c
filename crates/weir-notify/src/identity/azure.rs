//! Tokens of Azure identities.

use std::time::Duration;

use url::Url;
use weir_base::redact::Secret;

use super::{Identities, IdentityError, ask, form, oauth};
use crate::git_address::GitAddress;
use crate::provider::{Access, Job};

const SERVICE: &str = "Azure";
const AUTHORITY: &str = "https://login.microsoftonline.com/";
const METADATA: &str = "http://169.254.169.254/";
const AUDIENCE: &str = "api://AzureADTokenExchange";
const CLIENT_ANNOTATION: &str = "azure.workload.identity/client-id";
const TENANT_ANNOTATION: &str = "azure.workload.identity/tenant-id";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A token of the Provider's service account, of the workload identity of this process, or of its machine.
pub(super) async fn token(
    identities: &Identities,
    client: &reqwest::Client,
    job: &Job,
    scope: &str,
) -> Result<(Access, Duration), IdentityError> {
    let environment = &identities.environment;
    if let Some(account) = identities.account(job) {
        let annotations = identities.account_annotations(job, account).await?;
        let find = |key: &str, fallback: &Option<String>| {
            let missing = || {
                IdentityError::Settings(format!(
                    "azure: the service account '{account}' has no annotation '{key}'"
                ))
            };
            annotations.get(key).cloned().or_else(|| fallback.clone()).ok_or_else(missing)
        };
        let (tenant, app) = (find(TENANT_ANNOTATION, &None)?, find(CLIENT_ANNOTATION, &None)?);
        let assertion = identities.account_token(job, account, AUDIENCE).await?;
        return federated(identities, client, [&tenant, &app, scope], &assertion).await;
    }
    if let (Some(tenant), Some(app), Some(file)) =
        (&environment.azure_tenant, &environment.azure_client, &environment.azure_token_file)
    {
        let assertion = tokio::fs::read_to_string(file).await.map_err(|error| {
            IdentityError::Settings(format!("azure: cannot read AZURE_FEDERATED_TOKEN_FILE: {error}"))
        })?;
        return federated(identities, client, [tenant, app, scope], &Secret::new(assertion.trim())).await;
    }
    machine(identities, scope).await
}

/// A token for the token of a service account.
async fn federated(
    identities: &Identities,
    client: &reqwest::Client,
    [tenant, app, scope]: [&str; 3],
    assertion: &Secret,
) -> Result<(Access, Duration), IdentityError> {
    let invalid = || IdentityError::Settings("azure: the authority or the tenant is not valid".to_owned());
    let is_name = tenant.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if tenant.is_empty() || !is_name {
        return Err(invalid());
    }
    let authority = match &identities.environment.azure_authority {
        Some(authority) => authority.clone(),
        None => Url::parse(AUTHORITY).map_err(|_| invalid())?,
    };
    let url = GitAddress::url(&authority, &[tenant, "oauth2", "v2.0", "token"], &[]);
    let fields = [
        ("grant_type", "client_credentials"),
        ("client_id", app),
        ("client_assertion_type", ASSERTION_TYPE),
        ("client_assertion", assertion.expose()),
        ("scope", scope),
    ];
    let answer = ask(SERVICE, form(client.post(url), &fields)).await?;
    oauth(SERVICE, &answer)
}

/// A token of the identity of this machine.
async fn machine(identities: &Identities, scope: &str) -> Result<(Access, Duration), IdentityError> {
    let environment = &identities.environment;
    let invalid = |_| IdentityError::Unexpected(SERVICE);
    let base = match &environment.azure_metadata {
        Some(base) => base.clone(),
        None => Url::parse(METADATA).map_err(invalid)?,
    };
    let resource = scope.strip_suffix("/.default").unwrap_or(scope);
    let mut query = vec![("api-version", "2018-02-01"), ("resource", resource)];
    if let Some(app) = &environment.azure_client {
        query.push(("client_id", app));
    }
    let url = GitAddress::url(&base, &["metadata", "identity", "oauth2", "token"], &query);
    let answer = ask(SERVICE, identities.metadata.get(url).header("Metadata", "true")).await?;
    oauth(SERVICE, &answer)
}
