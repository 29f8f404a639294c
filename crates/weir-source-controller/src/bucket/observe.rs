//! What is read before the store is asked: Secrets and identities.

use std::sync::Arc;

use weir_api::source::{Bucket, BucketProvider};
use weir_base::redact::Secret;
use weir_cloud::aws::{self, AwsCredentials};
use weir_cloud::azure::{AzureCredentials, STORAGE_RESOURCE};
use weir_cloud::gcp::GcpCredentials;
use weir_cloud::{InvalidCredentials, Requests};
use weir_source::bucket::{
    Access, Azure, AzureLogin, Bucket as Remote, GCS_SCOPE, Gcs, S3, S3Options, account_of,
};
use weir_source::connection::Proxy;

use super::Buckets;
use super::error::{AccessError, Error};
use crate::identity::Principal;
use crate::source::secrets::{self, Data};

/// What a Secret says, with its name.
struct Login {
    name: String,
    data: Data,
}

impl Login {
    fn text(&self, key: &str) -> Option<String> {
        self.data.get(key).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    fn filled(&self, key: &str) -> Option<String> {
        self.text(key).filter(|value| !value.is_empty())
    }

    fn invalid(&self, what: &'static str) -> AccessError {
        AccessError::Data { name: self.name.clone(), what }
    }

    fn broken(&self, source: InvalidCredentials) -> AccessError {
        AccessError::Credentials { name: self.name.clone(), source }
    }
}

/// The bucket the object names, with everything that is needed to ask for its content.
pub(super) async fn remote(buckets: &Buckets, object: &Bucket) -> Result<Remote, Error> {
    let spec = &object.spec;
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let client = |error| AccessError::Client(Box::new(error));
    let principal = Principal::object(&namespace, spec.service_account_name.as_deref());
    if principal.account.is_some()
        && spec.provider != BucketProvider::Generic
        && !buckets.identities.allows_accounts()
    {
        return Err(Error::FeatureGate);
    }
    let login = match &spec.secret_ref {
        None => None,
        Some(reference) => Some(secret(&buckets.client, &namespace, &reference.name).await?),
    };
    let proxy = match &spec.proxy_secret_ref {
        None => None,
        Some(reference) => Some(
            secrets::proxy(&buckets.client, &namespace, &reference.name).await.map_err(AccessError::Proxy)?,
        ),
    };
    match spec.provider {
        BucketProvider::Generic | BucketProvider::Aws => {
            let credentials = s3_credentials(buckets, object, principal, login, proxy.clone()).await?;
            let mut access = Access { proxy, ..Access::default() };
            if let Some(reference) = spec.cert_secret_ref.as_ref().filter(|_| !spec.insecure) {
                certificates(buckets, &namespace, &reference.name, &mut access).await?;
            }
            let options = S3Options {
                endpoint: spec.endpoint.clone(),
                bucket: spec.bucket_name.clone(),
                region: spec.region.clone(),
                insecure: spec.insecure,
                credentials,
            };
            let store = S3::new(options, &access, Arc::clone(&buckets.clock)).map_err(client)?;
            Ok(Remote::S3(store))
        }
        BucketProvider::Gcp => {
            let access = Access { proxy, ..Access::default() };
            let token = gcp_token(buckets, principal, login, &access).await?;
            let host = buckets.identities.environment().get("STORAGE_EMULATOR_HOST");
            let store = Gcs::new(&spec.bucket_name, token, host, &access).map_err(client)?;
            Ok(Remote::Gcs(store))
        }
        BucketProvider::Azure => {
            let access = Access { proxy, ..Access::default() };
            let login = azure_login(buckets, object, principal, login, &access).await?;
            let clock = Arc::clone(&buckets.clock);
            let store =
                Azure::new(&spec.endpoint, &spec.bucket_name, login, &access, clock).map_err(client)?;
            Ok(Remote::Azure(store))
        }
    }
}

async fn secret(client: &kube::Client, namespace: &str, name: &str) -> Result<Login, AccessError> {
    let failed = |source| AccessError::Secret { name: format!("{namespace}/{name}"), source };
    let data = secrets::find(client, namespace, name).await.map_err(failed)?;
    Ok(Login { name: name.to_owned(), data })
}

async fn certificates(
    buckets: &Buckets,
    namespace: &str,
    name: &str,
    access: &mut Access,
) -> Result<(), AccessError> {
    let data = secrets::find(&buckets.client, namespace, name)
        .await
        .map_err(|error| AccessError::Certificates(error.into()))?;
    let found = secrets::certificates(&data, namespace, name)?;
    access.certificate_authority = found.authority;
    access.client_certificate = found.client;
    Ok(())
}

fn requests(access: &Access) -> Result<Requests, AccessError> {
    access.requests().map_err(AccessError::TokenClient)
}

/// The key requests are signed with; none for anonymous ones.
async fn s3_credentials(
    buckets: &Buckets,
    object: &Bucket,
    principal: Principal<'_>,
    login: Option<Login>,
    proxy: Option<Proxy>,
) -> Result<Option<AwsCredentials>, AccessError> {
    let spec = &object.spec;
    if let Some(login) = login {
        return s3_keys(&login);
    }
    let mut access = Access { proxy, ..Access::default() };
    if spec.provider == BucketProvider::Aws {
        let endpoint = spec.sts.as_ref().map(|service| service.endpoint.as_str());
        let region = spec.region.as_deref().unwrap_or_default();
        let requests = requests(&access)?;
        return Ok(Some(buckets.identities.aws(principal, &requests, endpoint, region).await?));
    }
    let Some(service) = &spec.sts else { return Ok(None) };
    let (mut user, mut password) = (String::new(), String::new());
    if let Some(reference) = &service.secret_ref {
        let login = secret(&buckets.client, principal.namespace, &reference.name).await?;
        let both = login.filled("username").zip(login.filled("password"));
        (user, password) = both.ok_or_else(|| login.invalid("required fields 'username' and 'password'"))?;
    }
    if let Some(reference) = &service.cert_secret_ref {
        certificates(buckets, principal.namespace, &reference.name, &mut access).await?;
    }
    let requests = requests(&access)?;
    aws::assume_role_with_ldap_identity(&requests, &service.endpoint, &user, &Secret::new(password))
        .await
        .map(Some)
        .map_err(AccessError::TokenService)
}

/// Both keys must be there; empty ones stand for anonymous access.
fn s3_keys(login: &Login) -> Result<Option<AwsCredentials>, AccessError> {
    let keys = login.text("accesskey").zip(login.text("secretkey"));
    let (access_key, secret_key) =
        keys.ok_or_else(|| login.invalid("required fields 'accesskey' and 'secretkey'"))?;
    let (access_key, secret_key) = (access_key.trim().to_owned(), secret_key.trim());
    if access_key.is_empty() && secret_key.is_empty() {
        return Ok(None);
    }
    Ok(Some(AwsCredentials {
        access_key,
        secret_key: Secret::new(secret_key),
        session_token: Secret::new(""),
    }))
}

async fn gcp_token(
    buckets: &Buckets,
    principal: Principal<'_>,
    login: Option<Login>,
    access: &Access,
) -> Result<Option<Secret>, AccessError> {
    let requests = requests(access)?;
    let Some(login) = login else {
        // Emulators know no identities.
        if buckets.identities.environment().get("STORAGE_EMULATOR_HOST").is_some() {
            return Ok(None);
        }
        let token = buckets.identities.gcp(principal, &requests, GCS_SCOPE).await?;
        return Ok(Some(token.secret));
    };
    let key =
        login.data.get("serviceaccount").ok_or_else(|| login.invalid("required fields 'serviceaccount'"))?;
    let credentials = GcpCredentials::from_json(key).map_err(|error| login.broken(error))?;
    let token = credentials.token(&requests, GCS_SCOPE, buckets.clock.now()).await?;
    Ok(Some(token.secret))
}

async fn azure_login(
    buckets: &Buckets,
    object: &Bucket,
    principal: Principal<'_>,
    login: Option<Login>,
    access: &Access,
) -> Result<AzureLogin, AccessError> {
    let requests = requests(access)?;
    let Some(login) = login else {
        let given = principal.account.is_some() || has_azure_identity(buckets);
        return match buckets.identities.azure(principal, &requests, STORAGE_RESOURCE).await {
            Ok(token) => Ok(AzureLogin::Token(token.secret)),
            // A machine without identity reads public containers.
            Err(_) if !given => Ok(AzureLogin::Anonymous),
            Err(error) => Err(error.into()),
        };
    };
    azure_secret(&login, &object.spec.endpoint, &requests, buckets.clock.now()).await
}

fn has_azure_identity(buckets: &Buckets) -> bool {
    buckets.identities.environment().get("AZURE_CLIENT_ID").is_some()
}

async fn azure_secret(
    login: &Login,
    endpoint: &str,
    requests: &Requests,
    now: jiff::Timestamp,
) -> Result<AzureLogin, AccessError> {
    let field = |key: &str| login.text(key).unwrap_or_default();
    let sends_chain = matches!(field("clientCertificateSendChain").as_str(), "1" | "true");
    // The other spelling of applications is not one of these Secrets.
    let known = |key: &str| match key {
        "tenant" | "appId" | "password" => String::new(),
        key => field(key),
    };
    let credentials =
        AzureCredentials::from_fields(&known, sends_chain).map_err(|error| login.broken(error))?;
    if let Some(credentials) = credentials {
        let token = credentials.token(requests, STORAGE_RESOURCE, None, now).await?;
        return Ok(AzureLogin::Token(token.secret));
    }
    if let Some(key) = login.filled("accountKey") {
        let account = account_of(endpoint)
            .ok_or_else(|| login.invalid("the account of 'accountKey' is not part of the endpoint"))?;
        return Ok(AzureLogin::AccountKey { account, key: Secret::new(key) });
    }
    if let Some(key) = login.filled("sasKey") {
        return Ok(AzureLogin::SharedAccess(Secret::new(key.trim().trim_start_matches('?'))));
    }
    Err(login.invalid(
        "requires a 'clientId', 'accountKey' or 'sasKey' field, a combination of 'tenantId', 'clientId' and 'clientSecret', or 'tenantId', 'clientId' and 'clientCertificate'",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(entries: &[(&str, &str)]) -> Login {
        let data =
            entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        Login { name: "store".to_owned(), data }
    }

    #[test]
    fn keys_of_s3() {
        let keys = |entries: &[(&str, &str)]| {
            s3_keys(&login(entries))
                .map(|keys| keys.map(|keys| keys.access_key))
                .map_err(|error| error.to_string())
        };
        assert_eq!(keys(&[("accesskey", "a\n"), ("secretkey", "s")]), Ok(Some("a".to_owned())));
        assert_eq!(keys(&[("accesskey", ""), ("secretkey", "")]), Ok(None));
        assert_eq!(
            keys(&[("accesskey", "a")]).unwrap_err(),
            "invalid 'store' secret data: required fields 'accesskey' and 'secretkey'"
        );
    }

    #[tokio::test]
    async fn logins_of_azure() {
        let requests = Requests::new().unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let found = async |entries: &[(&str, &str)]| {
            let found =
                azure_secret(&login(entries), "https://acc.blob.core.windows.net", &requests, now).await;
            match found {
                Ok(AzureLogin::AccountKey { account, .. }) => format!("key of {account}"),
                Ok(AzureLogin::SharedAccess(key)) => format!("signature {}", key.expose()),
                Ok(other) => format!("{other:?}"),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(found(&[("accountKey", "a"), ("sasKey", "b")]).await, "key of acc");
        assert_eq!(found(&[("sasKey", "?sv=1&sig=x")]).await, "signature sv=1&sig=x");
        assert!(
            found(&[("tenantId", "t")])
                .await
                .starts_with("invalid 'store' secret data: requires a 'clientId'")
        );
    }
}
