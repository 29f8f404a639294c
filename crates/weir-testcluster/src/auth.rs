//! Who sends a request.

use std::collections::BTreeMap;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::error::ApiError;

/// A user with groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// As in `system:serviceaccount:flux-system:kustomize-controller`.
    pub user: String,
    /// Empty for most.
    pub uid: String,
    /// As in `system:masters`.
    pub groups: Vec<String>,
    /// Further facts.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// Somebody who may do everything.
    pub fn administrator() -> Self {
        Self::user("kubernetes-admin", &["system:masters", "system:authenticated"])
    }

    /// A user of these groups.
    pub fn user(name: &str, groups: &[&str]) -> Self {
        Self {
            user: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Nobody in particular.
    pub(crate) fn anonymous() -> Self {
        Self::user("system:anonymous", &["system:unauthenticated"])
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
            ..Self::default()
        }
    }

    /// As `userInfo` of reviews.
    pub(crate) fn to_json(&self) -> Value {
        let mut out = serde_json::Map::new();
        out.insert("username".into(), json!(self.user));
        if !self.uid.is_empty() {
            out.insert("uid".into(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            out.insert("groups".into(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            out.insert("extra".into(), json!(self.extra));
        }
        Value::Object(out)
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// The tokens that are accepted.
pub(crate) struct Tokens {
    key: [u8; 32],
    fixed: HashMap<String, Identity>,
}

impl Tokens {
    pub(crate) fn new(key: [u8; 32], fixed: HashMap<String, Identity>) -> Self {
        Self { key, fixed }
    }

    /// A signed token of a service account.
    pub(crate) fn issue(&self, claims: &Value) -> String {
        let head = URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
        let body = URL_SAFE_NO_PAD.encode(claims.to_string());
        let signature = URL_SAFE_NO_PAD.encode(self.sign(&format!("{head}.{body}")));
        format!("{head}.{body}.{signature}")
    }

    /// The claims of a token that this server issued; expiry is the caller's to judge.
    pub(crate) fn claims(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        if URL_SAFE_NO_PAD.decode(signature).ok()? != self.sign(signed) {
            return None;
        }
        let (_, body) = signed.split_once('.')?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()
    }

    pub(crate) fn identity(&self, token: &str, now: i64) -> Option<Identity> {
        if let Some(known) = self.fixed.get(token) {
            return Some(known.clone());
        }
        let claims = self.claims(token)?;
        if claims["exp"].as_i64().is_some_and(|end| end <= now) {
            return None;
        }
        let account = &claims["kubernetes.io"];
        let mut out = Identity::service_account(
            account["namespace"].as_str()?,
            account["serviceaccount"]["name"].as_str()?,
        );
        account["serviceaccount"]["uid"].as_str().unwrap_or_default().clone_into(&mut out.uid);
        Some(out)
    }

    fn sign(&self, text: &str) -> Vec<u8> {
        // A key of any length is good for HMAC.
        match Hmac::<Sha256>::new_from_slice(&self.key) {
            Ok(mut mac) => {
                mac.update(text.as_bytes());
                mac.finalize().into_bytes().to_vec()
            }
            Err(_) => Vec::new(),
        }
    }
}

/// Who a request speaks for, when its headers ask for somebody else; with what the sender must be allowed.
pub(crate) fn impersonated(headers: &HeaderMap) -> Result<Option<Identity>, ApiError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let user = text("impersonate-user");
    let groups: Vec<String> = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(str::to_owned)
        .collect();
    let uid = text("impersonate-uid");
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let (Some(key), Ok(value)) = (name.as_str().strip_prefix("impersonate-extra-"), value.to_str()) {
            let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
            extra.entry(key).or_default().push(value.to_owned());
        }
    }
    if user.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        let list: Vec<String> = groups.iter().map(|group| format!("{group:?}")).collect();
        return Err(ApiError::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:[]string{{{}}}, Extra:map[string][]string(nil)}} without impersonating a user name",
            list.join(", ")
        )));
    }
    let mut out = Identity { user: user.to_owned(), uid: uid.to_owned(), groups, extra };
    if let Some((namespace, name)) =
        user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
        && out.groups.is_empty()
    {
        out.groups = Identity::service_account(namespace, name).groups;
    }
    if user != "system:anonymous" && !out.is_in("system:authenticated") {
        out.groups.push("system:authenticated".to_owned());
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_believed_only_when_signed_here() {
        let tokens = Tokens::new([7; 32], HashMap::new());
        let claims = json!({"exp": 100, "kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "b", "uid": "u"}}});
        let token = tokens.issue(&claims);
        assert_eq!(tokens.identity(&token, 50).unwrap().user, "system:serviceaccount:a:b");
        assert_eq!(tokens.identity(&token, 100), None);
        assert_eq!(Tokens::new([8; 32], HashMap::new()).identity(&token, 50), None);
        assert_eq!(tokens.identity("abc", 50), None);
    }

    #[test]
    fn impersonation() {
        let mut headers = HeaderMap::new();
        assert_eq!(impersonated(&headers).unwrap(), None);
        headers.insert("impersonate-group", "g".parse().unwrap());
        assert!(impersonated(&headers).is_err());
        headers.insert("impersonate-user", "u".parse().unwrap());
        let who = impersonated(&headers).unwrap().unwrap();
        assert_eq!(who.groups, ["g", "system:authenticated"]);
    }
}
