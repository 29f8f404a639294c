//! AWS KMS.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;
use weir_base::redact::Secret;
use weir_manifest::ReadOptions;
use weir_sops::{DataKey, KeyError};

use crate::{HttpError, InvalidCredentials, Keys};

/// The name under which an assumed role appears in the logs of AWS.
const SESSION_NAME: &str = "weir-sops";

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
}

pub(crate) struct Request<'a> {
    pub(crate) arn: &'a str,
    pub(crate) role: &'a str,
    pub(crate) context: &'a BTreeMap<String, String>,
    pub(crate) encrypted: &'a str,
}

/// The region of a key and the domain of its services.
fn place(arn: &str) -> Option<(&str, &'static str)> {
    let mut parts = arn.split(':');
    let (prefix, partition, service, region) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_key = prefix == "arn" && partition.starts_with("aws") && service == "kms" && !region.is_empty();
    let domain = if partition == "aws-cn" { "amazonaws.com.cn" } else { "amazonaws.com" };
    let is_name = region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_key && is_name).then_some((region, domain))
}

pub(crate) async fn unlock(
    keys: &Keys,
    credentials: &AwsCredentials,
    request: &Request<'_>,
) -> Result<DataKey, KeyError> {
    let (region, domain) =
        place(request.arn).ok_or_else(|| KeyError(format!("no valid ARN found in \"{}\"", request.arn)))?;
    let failed =
        |error: &HttpError| KeyError(format!("failed to decrypt sops data key with AWS KMS: {error}"));
    let assumed;
    let credentials = if request.role.is_empty() {
        credentials
    } else {
        let endpoint = keys.endpoints.aws_sts.clone();
        let endpoint = endpoint.unwrap_or_else(|| format!("https://sts.{region}.{domain}"));
        assumed = assume_role(keys, credentials, &endpoint, region, request.role)
            .await
            .map_err(|error| KeyError(format!("failed to assume role '{}': {error}", request.role)))?;
        &assumed
    };
    let mut body = json!({"KeyId": request.arn, "CiphertextBlob": request.encrypted});
    if !request.context.is_empty() {
        body["EncryptionContext"] = json!(request.context);
    }
    let endpoint = keys.endpoints.aws_kms.clone();
    let endpoint = endpoint.unwrap_or_else(|| format!("https://kms.{region}.{domain}"));
    let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", "TrentService.Decrypt")];
    let scope = Scope { region, service: "kms" };
    let body = body.to_string();
    let signed =
        post(keys, credentials, &scope, &endpoint, &headers, body).map_err(|error| failed(&error))?;
    let answer = keys.requests.send_json(signed).await.map_err(|error| failed(&error))?;
    answer
        .get("Plaintext")
        .and_then(Value::as_str)
        .and_then(|text| STANDARD.decode(text).ok())
        .map(DataKey::new)
        .ok_or_else(|| failed(&HttpError::Answer("no plaintext")))
}

async fn assume_role(
    keys: &Keys,
    credentials: &AwsCredentials,
    endpoint: &str,
    region: &str,
    role: &str,
) -> Result<AwsCredentials, HttpError> {
    let body = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("Action", "AssumeRole")
        .append_pair("Version", "2011-06-15")
        .append_pair("RoleArn", role)
        .append_pair("RoleSessionName", SESSION_NAME)
        .finish();
    let headers = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
    let signed = post(keys, credentials, &Scope { region, service: "sts" }, endpoint, &headers, body)?;
    let answer = keys.requests.send(signed).await?;
    let answer = String::from_utf8_lossy(&answer);
    let element = |name: &str| {
        let (_, rest) = answer.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text.to_owned())
    };
    let credentials = || {
        Some(AwsCredentials {
            access_key: element("AccessKeyId")?,
            secret_key: Secret::new(element("SecretAccessKey")?),
            session_token: Secret::new(element("SessionToken")?),
        })
    };
    credentials().ok_or(HttpError::Answer("no credentials"))
}

fn post(
    keys: &Keys,
    credentials: &AwsCredentials,
    scope: &Scope<'_>,
    endpoint: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Result<reqwest::RequestBuilder, HttpError> {
    let url = Url::parse(endpoint).map_err(|_| HttpError::Answer("the address of the service is no URL"))?;
    let signed = sign(
        credentials,
        scope,
        &Unsigned { method: "POST", url: &url, headers, body: &body },
        keys.clock.now(),
    );
    let mut request = keys.requests.client().post(url.clone()).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    for (name, value) in signed {
        request = request.header(name, value);
    }
    Ok(request)
}

struct Scope<'a> {
    region: &'a str,
    service: &'a str,
}

struct Unsigned<'a> {
    method: &'a str,
    url: &'a Url,
    headers: &'a [(&'a str, &'a str)],
    body: &'a str,
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

/// The headers that sign a request (Signature Version 4).
fn sign(
    credentials: &AwsCredentials,
    scope: &Scope<'_>,
    request: &Unsigned<'_>,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = &time[..8];
    let host = match (request.url.host_str().unwrap_or_default(), request.url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    let token = credentials.session_token.expose();
    let mut signed: BTreeMap<String, &str> =
        request.headers.iter().map(|(name, value)| (name.to_lowercase(), *value)).collect();
    signed.insert("host".to_owned(), &host);
    signed.insert("x-amz-date".to_owned(), &time);
    if !token.is_empty() {
        signed.insert("x-amz-security-token".to_owned(), token);
    }
    let mut canonical = format!("{}\n{}\n", request.method, request.url.path());
    let mut query: Vec<&str> = request.url.query().unwrap_or_default().split('&').collect();
    query.sort_unstable();
    let _ = writeln!(canonical, "{}", query.join("&"));
    for (name, value) in &signed {
        let _ = writeln!(canonical, "{name}:{}", value.trim());
    }
    let names = signed.keys().map(String::as_str).collect::<Vec<_>>().join(";");
    let digest = |text: &str| hex::encode(Sha256::digest(text.as_bytes()));
    let _ = write!(canonical, "\n{names}\n{}", digest(request.body));
    let Scope { region, service } = scope;
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", digest(&canonical));
    let secret = format!("AWS4{}", credentials.secret_key.expose());
    let key = [date, region, service, "aws4_request"]
        .iter()
        .fold(secret.into_bytes(), |key, part| hmac(&key, part));
    let signature = hex::encode(hmac(&key, &text));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        credentials.access_key
    );
    let mut headers = vec![("x-amz-date", time.clone()), ("authorization", authorization)];
    if !token.is_empty() {
        headers.push(("x-amz-security-token", token.to_owned()));
    }
    headers
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
        let request = Unsigned { method: "GET", url: &url, headers: &headers, body: "" };
        let scope = Scope { region: "us-east-1", service: "iam" };
        let signed = sign(&credentials, &scope, &request, "2015-08-30T12:36:00Z".parse().unwrap());
        assert_eq!(
            signed[1].1,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }

    #[test]
    fn regions_come_from_the_key() {
        assert_eq!(place("arn:aws:kms:eu-west-1:1:key/x"), Some(("eu-west-1", "amazonaws.com")));
        assert_eq!(place("arn:aws-cn:kms:cn-north-1:1:alias/x"), Some(("cn-north-1", "amazonaws.com.cn")));
        assert_eq!(place("arn:aws:s3:eu-west-1:1:key/x"), None);
        assert_eq!(place("arn:aws:kms:evil.example/#:1:key/x"), None);
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
}
