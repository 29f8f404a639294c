//! AWS: access keys, Signature Version 4, and the token service.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::Url;
use weir_base::redact::Secret;
use weir_manifest::ReadOptions;

use crate::{CloudError, Environment, HttpError, InvalidCredentials, Requests, failed};

/// The SHA-256 digest of nothing, in hex.
pub const EMPTY_DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

const CONTAINER_HOST: &str = "http://169.254.170.2";
const METADATA_HOST: &str = "http://169.254.169.254";

/// An access key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsCredentials {
    /// The identifier of the key.
    pub access_key: String,
    /// The key.
    pub secret_key: Secret,
    /// The token that goes with temporary keys, or empty.
    pub session_token: Secret,
}

impl AwsCredentials {
    /// Reads the YAML of a `sops.aws-kms` entry: `aws_access_key_id`, `aws_secret_access_key`,
    /// `aws_session_token`.
    ///
    /// # Errors
    /// The text is no YAML map, or has no access key.
    pub fn from_yaml(text: &[u8]) -> Result<Self, InvalidCredentials> {
        let invalid = |why: &str| InvalidCredentials(format!("failed to parse AWS credentials file: {why}"));
        let value = weir_manifest::read_first_document(text, "", ReadOptions::default())
            .map_err(|_| invalid("not YAML"))?;
        let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let credentials = Self {
            access_key: field("aws_access_key_id"),
            secret_key: Secret::new(field("aws_secret_access_key")),
            session_token: Secret::new(field("aws_session_token")),
        };
        if credentials.access_key.is_empty() || credentials.secret_key.expose().is_empty() {
            return Err(invalid("aws_access_key_id and aws_secret_access_key are required"));
        }
        Ok(credentials)
    }

    /// The `Credentials` element in the answer of a token service.
    fn from_xml(answer: &[u8]) -> Result<Self, HttpError> {
        let answer = String::from_utf8_lossy(answer);
        let element = |name: &str| {
            let (_, rest) = answer.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(text, _)| text.to_owned())
        };
        let credentials = || {
            Some(Self {
                access_key: element("AccessKeyId")?,
                secret_key: Secret::new(element("SecretAccessKey")?),
                session_token: Secret::new(element("SessionToken")?),
            })
        };
        credentials().ok_or(HttpError::Answer("no credentials"))
    }

    /// The answer of a credentials endpoint of a container or machine.
    fn from_json(answer: &Value) -> Result<Self, HttpError> {
        let field = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
        let credentials = || {
            Some(Self {
                access_key: field("AccessKeyId")?,
                secret_key: Secret::new(field("SecretAccessKey")?),
                session_token: Secret::new(field("Token").unwrap_or_default()),
            })
        };
        credentials().ok_or(HttpError::Answer("no credentials"))
    }
}

/// Where a signature holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The region.
    pub region: &'a str,
    /// The service.
    pub service: &'a str,
}

/// A request to sign. Path and query of the URL must be encoded as they are sent: all but unreserved characters.
#[derive(Debug, Clone, Copy)]
pub struct Unsigned<'a> {
    /// The method.
    pub method: &'a str,
    /// The URL.
    pub url: &'a Url,
    /// Headers to sign besides the host and the time.
    pub headers: &'a [(&'a str, &'a str)],
    /// The SHA-256 digest of the body in hex.
    pub body_digest: &'a str,
}

/// The SHA-256 digest in hex.
pub fn hex_digest(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC takes keys of any length; an empty result would only make the service refuse.
    Hmac::<Sha256>::new_from_slice(key)
        .map(|mut mac| {
            mac.update(text.as_bytes());
            mac.finalize().into_bytes().to_vec()
        })
        .unwrap_or_default()
}

/// The signature of a text (Signature Version 4) in hex, on a date (`YYYYMMDD`).
fn signature(credentials: &AwsCredentials, scope: &Scope<'_>, date: &str, text: &str) -> String {
    let secret = format!("AWS4{}", credentials.secret_key.expose());
    let key = [date, scope.region, scope.service, "aws4_request"]
        .iter()
        .fold(secret.into_bytes(), |key, part| hmac(&key, part));
    hex::encode(hmac(&key, text))
}

/// The headers that sign a request (Signature Version 4).
pub fn sign(
    credentials: &AwsCredentials,
    scope: &Scope<'_>,
    request: &Unsigned<'_>,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = &time[..8];
    let host = host(request.url);
    let token = credentials.session_token.expose();
    let mut signed: BTreeMap<String, &str> =
        request.headers.iter().map(|(name, value)| (name.to_lowercase(), *value)).collect();
    signed.insert("host".to_owned(), &host);
    signed.insert("x-amz-date".to_owned(), &time);
    if !token.is_empty() {
        signed.insert("x-amz-security-token".to_owned(), token);
    }
    let mut canonical = format!("{}\n{}\n", request.method, request.url.path());
    let mut query: Vec<(&str, &str)> = request
        .url
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    query.sort_unstable();
    let query: Vec<String> = query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let _ = writeln!(canonical, "{}", query.join("&"));
    for (name, value) in &signed {
        let _ = writeln!(canonical, "{name}:{}", value.trim());
    }
    let names = signed.keys().map(String::as_str).collect::<Vec<_>>().join(";");
    let _ = write!(canonical, "\n{names}\n{}", request.body_digest);
    let Scope { region, service } = scope;
    let place = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{place}\n{}", hex_digest(&canonical));
    let signature = signature(credentials, scope, date, &text);
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{place}, SignedHeaders={names}, Signature={signature}",
        credentials.access_key
    );
    let mut headers = vec![("x-amz-date", time.clone()), ("authorization", authorization)];
    if !token.is_empty() {
        headers.push(("x-amz-security-token", token.to_owned()));
    }
    headers
}

fn host(url: &Url) -> String {
    match (url.host_str().unwrap_or_default(), url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    }
}

/// The user and the password for a CodeCommit repository over HTTPS; `None` if the URL is not one of these.
pub fn code_commit_login(
    credentials: &AwsCredentials,
    url: &Url,
    now: Timestamp,
) -> Option<(String, Secret)> {
    let host = url.host_str()?;
    let region = code_commit_region(url)?;
    let time = now.strftime("%Y%m%dT%H%M%S").to_string();
    let date = &time[..8];
    let scope = Scope { region, service: "codecommit" };
    let canonical = format!("GIT\n{}\n\nhost:{host}\n\nhost\n", url.path());
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{date}/{region}/codecommit/aws4_request\n{}",
        hex_digest(&canonical)
    );
    let signature = signature(credentials, &scope, date, &text);
    let token = credentials.session_token.expose();
    let user = if token.is_empty() {
        credentials.access_key.clone()
    } else {
        format!("{}%{token}", credentials.access_key)
    };
    Some((user, Secret::new(format!("{time}Z{signature}"))))
}

/// The region of a CodeCommit URL; `None` if it is not one.
pub fn code_commit_region(url: &Url) -> Option<&str> {
    let rest = url.host_str().filter(|_| url.scheme() == "https")?;
    let rest = rest.strip_prefix("git-codecommit-fips.").or_else(|| rest.strip_prefix("git-codecommit."))?;
    let region = rest.strip_suffix(".amazonaws.com").or_else(|| rest.strip_suffix(".amazonaws.com.cn"))?;
    (!region.is_empty() && !region.contains('.')).then_some(region)
}

/// A `POST` with a body, signed.
///
/// # Errors
/// The endpoint is no URL.
pub fn post(
    requests: &Requests,
    credentials: &AwsCredentials,
    scope: &Scope<'_>,
    endpoint: &str,
    headers: &[(&str, &str)],
    body: String,
    now: Timestamp,
) -> Result<reqwest::RequestBuilder, HttpError> {
    let url = Url::parse(endpoint).map_err(|_| HttpError::Answer("the address of the service is no URL"))?;
    let body_digest = hex_digest(&body);
    let signed = sign(
        credentials,
        scope,
        &Unsigned { method: "POST", url: &url, headers, body_digest: &body_digest },
        now,
    );
    let mut request = requests.client().post(url.clone()).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    for (name, value) in signed {
        request = request.header(name, value);
    }
    Ok(request)
}

/// Temporary keys of another role, for those who may assume it.
///
/// # Errors
/// The token service refuses.
pub async fn assume_role(
    requests: &Requests,
    credentials: &AwsCredentials,
    endpoint: &str,
    region: &str,
    role: &str,
    session: &str,
    now: Timestamp,
) -> Result<AwsCredentials, HttpError> {
    let body = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("Action", "AssumeRole")
        .append_pair("Version", "2011-06-15")
        .append_pair("RoleArn", role)
        .append_pair("RoleSessionName", session)
        .finish();
    let headers = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
    let signed =
        post(requests, credentials, &Scope { region, service: "sts" }, endpoint, &headers, body, now)?;
    AwsCredentials::from_xml(&requests.send(signed).await?)
}

/// Temporary keys of a role for the token of an identity provider, for instance of the cluster.
///
/// # Errors
/// The token service refuses.
pub async fn assume_role_with_web_identity(
    requests: &Requests,
    endpoint: &str,
    role: &str,
    session: &str,
    token: &Secret,
) -> Result<AwsCredentials, HttpError> {
    let fields = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", role),
        ("RoleSessionName", session),
        ("WebIdentityToken", token.expose()),
    ];
    let request = crate::form(requests.client().post(endpoint), &fields);
    AwsCredentials::from_xml(&requests.send(request).await?)
}

/// Temporary keys for a user of a directory, from an object store that offers this.
///
/// # Errors
/// The token service refuses.
pub async fn assume_role_with_ldap_identity(
    requests: &Requests,
    endpoint: &str,
    user: &str,
    password: &Secret,
) -> Result<AwsCredentials, HttpError> {
    let fields = [
        ("Action", "AssumeRoleWithLDAPIdentity"),
        ("Version", "2011-06-15"),
        ("LDAPUsername", user),
        ("LDAPPassword", password.expose()),
    ];
    let request = crate::form(requests.client().post(endpoint), &fields);
    AwsCredentials::from_xml(&requests.send(request).await?)
}

/// The address of the token service of a region.
pub fn token_service(region: &str) -> String {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    if region.is_empty() { format!("https://sts.{domain}") } else { format!("https://sts.{region}.{domain}") }
}

/// The keys of this process: of the environment, of its service account (IRSA), of the container (EKS Pod
/// Identity, ECS), or of the machine, in this order.
///
/// `token_endpoint` replaces the address of the token service.
///
/// # Errors
/// What the environment points to gives none.
pub async fn ambient_credentials(
    requests: &Requests,
    environment: &Environment,
    token_endpoint: Option<&str>,
    region: &str,
) -> Result<AwsCredentials, CloudError> {
    if let (Some(access_key), Some(secret_key)) =
        (environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY"))
    {
        return Ok(AwsCredentials {
            access_key: access_key.to_owned(),
            secret_key: Secret::new(secret_key),
            session_token: Secret::new(environment.get("AWS_SESSION_TOKEN").unwrap_or_default()),
        });
    }
    if let (Some(role), Some(token)) =
        (environment.get("AWS_ROLE_ARN"), environment.file("AWS_WEB_IDENTITY_TOKEN_FILE").await?)
    {
        let region = environment.get("AWS_REGION").filter(|_| region.is_empty()).unwrap_or(region);
        let endpoint = token_endpoint.map_or_else(|| token_service(region), str::to_owned);
        let session = environment.get("AWS_ROLE_SESSION_NAME").unwrap_or("weir");
        return assume_role_with_web_identity(requests, &endpoint, role, session, &Secret::new(token))
            .await
            .map_err(failed("failed to assume the role of the service account"));
    }
    if let Some(url) = container_url(environment)? {
        let mut request = requests.client().get(url);
        let token = match environment.file("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").await? {
            Some(token) => Some(token),
            None => environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(str::to_owned),
        };
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let failed = failed("failed to get the credentials of the container");
        let answer = requests.send_json(request).await.map_err(&failed)?;
        return AwsCredentials::from_json(&answer).map_err(failed);
    }
    machine_credentials(requests, environment).await
}

/// Where the agent of the container platform gives credentials. Full addresses lead to this machine or through
/// TLS only, since a token is sent.
fn container_url(environment: &Environment) -> Result<Option<String>, CloudError> {
    if let Some(path) = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        return Ok(Some(format!("{CONTAINER_HOST}{path}")));
    }
    let Some(full) = environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI") else { return Ok(None) };
    let refused = |why: &str| {
        CloudError::Credentials(InvalidCredentials(format!("AWS_CONTAINER_CREDENTIALS_FULL_URI {why}")))
    };
    let url = Url::parse(full).map_err(|_| refused("is no URL"))?;
    let is_local = match url.host() {
        Some(url::Host::Ipv4(address)) => {
            address.is_loopback() || [[169, 254, 170, 2], [169, 254, 170, 23]].contains(&address.octets())
        }
        Some(url::Host::Ipv6(address)) => {
            address.is_loopback() || address.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23]
        }
        Some(url::Host::Domain(domain)) => domain == "localhost",
        None => false,
    };
    if url.scheme() == "https" || is_local {
        Ok(Some(full.to_owned()))
    } else {
        Err(refused("is neither on this machine nor HTTPS"))
    }
}

async fn machine_credentials(
    requests: &Requests,
    environment: &Environment,
) -> Result<AwsCredentials, CloudError> {
    let failed = failed("no credentials in the environment, and none from the metadata service");
    let base = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(METADATA_HOST);
    let base = base.trim_end_matches('/');
    let token = requests
        .client()
        .put(format!("{base}/latest/api/token"))
        .header("x-aws-ec2-metadata-token-ttl-seconds", "300");
    let token = requests.send(token).await.map_err(&failed)?;
    let token = String::from_utf8_lossy(&token).trim().to_owned();
    let roles = format!("{base}/latest/meta-data/iam/security-credentials/");
    let get = |url: String| requests.client().get(url).header("x-aws-ec2-metadata-token", token.as_str());
    let names = requests.send(get(roles.clone())).await.map_err(&failed)?;
    let names = String::from_utf8_lossy(&names).into_owned();
    let role = names.lines().next().unwrap_or_default().trim();
    let answer = requests.send_json(get(format!("{roles}{role}"))).await.map_err(&failed)?;
    AwsCredentials::from_json(&answer).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_documentation() {
        let credentials = AwsCredentials {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: Secret::new(""),
        };
        let url = Url::parse("https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08").unwrap();
        let headers = [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")];
        let request = Unsigned { method: "GET", url: &url, headers: &headers, body_digest: &hex_digest("") };
        let scope = Scope { region: "us-east-1", service: "iam" };
        let signed = sign(&credentials, &scope, &request, "2015-08-30T12:36:00Z".parse().unwrap());
        assert_eq!(
            signed[1].1,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
        assert_eq!(hex_digest(""), EMPTY_DIGEST);
    }

    #[test]
    fn credentials_need_a_key() {
        let read = |text: &str| AwsCredentials::from_yaml(text.as_bytes());
        let credentials = read("aws_access_key_id: a\naws_secret_access_key: s3cret\n").unwrap();
        assert_eq!(credentials.access_key, "a");
        assert!(!format!("{credentials:?}").contains("s3cret"));
        assert!(!read("aws_secret_access_key: s3cret\n").unwrap_err().to_string().contains("s3cret"));
        assert!(read("]").is_err());
    }

    #[test]
    fn regions_of_repositories() {
        let region = |url: &str| code_commit_region(&Url::parse(url).unwrap()).map(str::to_owned);
        let at = |host: &str| region(&format!("https://{host}/v1/repos/app"));
        assert_eq!(at("git-codecommit.eu-west-1.amazonaws.com").as_deref(), Some("eu-west-1"));
        assert_eq!(at("git-codecommit-fips.us-east-2.amazonaws.com").as_deref(), Some("us-east-2"));
        assert_eq!(at("git-codecommit.cn-north-1.amazonaws.com.cn").as_deref(), Some("cn-north-1"));
        assert_eq!(at("git-codecommit.a.b.amazonaws.com"), None);
        assert_eq!(at("git-codecommit.eu-west-1.amazonaws.com.example.com"), None);
        assert_eq!(region("http://git-codecommit.eu-west-1.amazonaws.com/v1/repos/app"), None);
    }

    #[test]
    fn logins_for_repositories() {
        let credentials = AwsCredentials {
            access_key: "AKID".to_owned(),
            secret_key: Secret::new("s3cret"),
            session_token: Secret::new("session"),
        };
        let url = Url::parse("https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/app").unwrap();
        let login = code_commit_login(&credentials, &url, "2026-01-01T00:00:00Z".parse().unwrap());
        let (user, password) = login.unwrap();
        assert_eq!(user, "AKID%session");
        assert!(password.expose().starts_with("20260101T000000Z"));
        assert_eq!(password.expose().len(), 16 + 64);
    }

    #[test]
    fn tokens_stay_on_the_machine() {
        let url = |value| container_url(&Environment::of(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", value)]));
        assert!(url("http://169.254.170.23/v1/credentials").unwrap().is_some());
        assert!(url("https://example.com/").unwrap().is_some());
        assert!(url("http://example.com/").is_err());
        assert!(url("http://127.example.com/").is_err());
    }
}
