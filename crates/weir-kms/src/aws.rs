//! AWS KMS.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_cloud::HttpError;
use weir_cloud::aws::{AwsCredentials, Scope, assume_role, post};
use weir_sops::{DataKey, KeyError};

use crate::Keys;

/// The name under which an assumed role appears in the logs of AWS.
const SESSION_NAME: &str = "weir-sops";

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
        assumed = assume_role(
            &keys.requests,
            credentials,
            &endpoint,
            region,
            request.role,
            SESSION_NAME,
            keys.clock.now(),
        )
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
    let signed = post(&keys.requests, credentials, &scope, &endpoint, &headers, body, keys.clock.now())
        .map_err(|error| failed(&error))?;
    let answer = keys.requests.send_json(signed).await.map_err(|error| failed(&error))?;
    answer
        .get("Plaintext")
        .and_then(Value::as_str)
        .and_then(|text| STANDARD.decode(text).ok())
        .map(DataKey::new)
        .ok_or_else(|| failed(&HttpError::Answer("no plaintext")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_come_from_the_key() {
        assert_eq!(place("arn:aws:kms:eu-west-1:1:key/x"), Some(("eu-west-1", "amazonaws.com")));
        assert_eq!(place("arn:aws-cn:kms:cn-north-1:1:alias/x"), Some(("cn-north-1", "amazonaws.com.cn")));
        assert_eq!(place("arn:aws:s3:eu-west-1:1:key/x"), None);
        assert_eq!(place("arn:aws:kms:evil.example/#:1:key/x"), None);
    }
}
