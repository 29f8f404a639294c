//! Signatures and tokens. Every comparison with a secret takes the same time whatever differs.

use std::borrow::Cow;

use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::{SignatureError, header_text, media_type, quoted};

/// Checks a signature of the form `algorithm=hex`.
pub(super) fn check_hmac(signature: &str, token: &[u8], body: &[u8]) -> Result<(), SignatureError> {
    if signature.is_empty() {
        return Err(SignatureError::Missing);
    }
    let malformed = || SignatureError::Malformed(quoted(signature));
    let (algorithm, code) = signature.split_once('=').ok_or_else(malformed)?;
    let verify = match algorithm {
        "sha1" => verify::<Hmac<Sha1>>,
        "sha256" => verify::<Hmac<Sha256>>,
        "sha512" => verify::<Hmac<Sha512>>,
        _ => return Err(SignatureError::Algorithm(quoted(algorithm))),
    };
    let code = hex::decode(code).map_err(|_| malformed())?;
    if verify(token, body, &code) { Ok(()) } else { Err(SignatureError::Mismatch) }
}

fn verify<M: Mac + KeyInit>(key: &[u8], body: &[u8], code: &[u8]) -> bool {
    // A key of any length will do.
    let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return false };
    mac.update(body);
    mac.verify_slice(code).is_ok()
}

/// Checks a request that is signed as GitHub does, and gives its payload: the body, or a field of a form.
pub(super) fn check_signed<'a>(
    headers: &HeaderMap,
    token: &[u8],
    body: &'a [u8],
) -> Result<Cow<'a, [u8]>, SignatureError> {
    let content_type = header_text(headers, CONTENT_TYPE.as_str());
    let payload = match media_type(&content_type).as_str() {
        "application/json" => Cow::Borrowed(body),
        "application/x-www-form-urlencoded" => {
            let field = url::form_urlencoded::parse(body).find(|(name, _)| name == "payload");
            Cow::Owned(field.map(|(_, value)| value.into_owned().into_bytes()).unwrap_or_default())
        }
        _ => return Err(SignatureError::ContentType(quoted(&content_type))),
    };
    let signature = match header_text(headers, "x-hub-signature-256") {
        newer if !newer.is_empty() => newer,
        _ => header_text(headers, "x-hub-signature"),
    };
    check_hmac(&signature, token, body)?;
    Ok(payload)
}

/// Whether a signature is the one Nexus makes: the code alone, in lower-case hexadecimal digits.
pub(super) fn is_nexus(signature: &str, token: &[u8], body: &[u8]) -> bool {
    let is_lower = signature.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    is_lower && hex::decode(signature).is_ok_and(|code| verify::<Hmac<Sha1>>(token, body, &code))
}

/// Whether the first value of a header is the token.
pub(super) fn is_token(headers: &HeaderMap, name: &str, token: &[u8]) -> bool {
    let given = headers.get(name).map(reqwest::header::HeaderValue::as_bytes).unwrap_or_default();
    // Equal codes under the same key mean equal texts; comparing codes tells nothing about how much is equal.
    let Ok(mut expected) = <Hmac<Sha256> as KeyInit>::new_from_slice(token) else { return false };
    expected.update(token);
    verify::<Hmac<Sha256>>(token, given, &expected.finalize().into_bytes())
}
