//! Tokens of service accounts, kept until most of their life is over.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use weir_base::redact::Secret;

/// A token is used for this share of its life.
const USED_LIFE_PERCENT: u64 = 80;
/// How long the API server is asked to make a token last.
const TOKEN_SECONDS: i64 = 3600;

/// Namespace, name, and audiences.
type Key = (String, String, Vec<String>);

/// Asks for tokens and keeps them.
pub struct Tokens {
    client: kube::Client,
    size_max: usize,
    duration_max: Duration,
    cached: Mutex<HashMap<Key, (Secret, Timestamp)>>,
}

impl Tokens {
    /// A cache of at most `size_max` tokens (0 for none), each for at most `duration_max`.
    pub fn new(client: kube::Client, size_max: usize, duration_max: Duration) -> Self {
        Self { client, size_max, duration_max, cached: Mutex::default() }
    }

    /// A token of an account (namespace and name), or of this process.
    ///
    /// # Errors
    /// The account does not exist, or the API server refuses.
    pub async fn get(
        &self,
        account: Option<(&str, &str)>,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Secret, String> {
        let (namespace, name) = match account {
            Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
            None => self.own_account().await?,
        };
        let key = (namespace.clone(), name.clone(), audiences.to_vec());
        let kept =
            self.cached.lock().get(&key).filter(|(_, until)| *until > now).map(|(token, _)| token.clone());
        if let Some(token) = kept {
            return Ok(token);
        }
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(audiences.to_vec()),
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
        let answer = api.create_token_request(&name, &PostParams::default(), &request).await;
        let answer = answer.map_err(|error| {
            let message = match error {
                kube::Error::Api(status) => status.message.clone(),
                other => other.to_string(),
            };
            format!("failed to create kubernetes token for service account '{namespace}/{name}': {message}")
        })?;
        let status = answer.status.unwrap_or_default();
        let token = status.token.filter(|token| !token.is_empty()).map(Secret::new);
        let token = token.ok_or("the API server gave no token")?;
        let life = status.expiration_timestamp.map_or(0, |until| until.0.duration_since(now).as_secs());
        let life = Duration::from_secs(u64::try_from(life).unwrap_or(0) * USED_LIFE_PERCENT / 100);
        self.keep(key, token.clone(), life, now);
        Ok(token)
    }

    fn keep(&self, key: Key, token: Secret, life: Duration, now: Timestamp) {
        if self.size_max == 0 {
            return;
        }
        let Ok(until) = now.checked_add(life.min(self.duration_max)) else { return };
        let mut cached = self.cached.lock();
        cached.retain(|_, (_, until)| *until > now);
        if cached.len() >= self.size_max
            && let Some(first) =
                cached.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone())
        {
            cached.remove(&first);
        }
        cached.insert(key, (token, until));
    }

    /// The account this process runs under.
    async fn own_account(&self) -> Result<(String, String), String> {
        let api: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await;
        let review = review.map_err(|error| format!("failed to find out who the controller is: {error}"))?;
        let user = review.status.and_then(|status| status.user_info).and_then(|info| info.username);
        user.as_deref()
            .and_then(|user| user.strip_prefix("system:serviceaccount:"))
            .and_then(|rest| rest.split_once(':'))
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
            .ok_or_else(|| "the controller does not run under a service account".to_owned())
    }
}
