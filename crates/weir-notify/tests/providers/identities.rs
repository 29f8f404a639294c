//! Tokens of GitHub Apps, Azure and Google identities.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::IntoResponse;
use base64::Engine as _;
use parking_lot::Mutex;
use weir_base::clock::SystemClock;
use weir_base::redact::Secret;
use weir_notify::delivery::{Clients, Sender};
use weir_notify::identity::{Environment, Identities, ServiceAccounts, TokenLimits, Tokens};

use crate::case::{Case, event};
use crate::mock::serve;

struct Accounts;

#[async_trait]
impl ServiceAccounts for Accounts {
    async fn annotations(&self, namespace: &str, name: &str) -> Result<BTreeMap<String, String>, String> {
        assert_eq!((namespace, name), ("flux-system", "notifier"));
        let annotation = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Ok(BTreeMap::from([
            annotation("azure.workload.identity/client-id", "client-1"),
            annotation("azure.workload.identity/tenant-id", "tenant-1"),
            annotation(
                "gcp.auth.fluxcd.io/workload-identity-provider",
                "projects/1/locations/global/workloadIdentityPools/p/providers/q",
            ),
            annotation("iam.gke.io/gcp-service-account", "bot@p.iam.gserviceaccount.com"),
        ]))
    }

    async fn token(&self, _: &str, _: &str, audience: &str) -> Result<Secret, String> {
        Ok(Secret::new(format!("sa-token-for-{audience}")))
    }
}

type Seen = Arc<Mutex<Vec<(String, String, String)>>>;

/// Answers identity services and the API behind them; what was asked, with its authorization and body.
async fn services() -> (String, Seen) {
    let seen = Seen::default();
    let sink = Arc::clone(&seen);
    let handler = move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
        let sink = Arc::clone(&sink);
        async move {
            let path = uri.path();
            let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
            let text = String::from_utf8_lossy(&body).into_owned();
            sink.lock().push((format!("{method} {path}"), authorization.unwrap_or_default(), text));
            match path {
                "/orgs/acme/installation" => {
                    return (axum::http::StatusCode::NOT_FOUND, "{}").into_response();
                }
                "/users/acme/installation" => r#"{"id":77}"#,
                "/app/installations/77/access_tokens" => {
                    r#"{"token":"ghs_s3cr3t","expires_at":"2999-01-01T00:00:00Z"}"#
                }
                "/app" => r#"{"slug":"weir"}"#,
                "/sts" => r#"{"access_token":"federated-s3cr3t","expires_in":3600}"#,
                "/v1/projects/-/serviceAccounts/bot@p.iam.gserviceaccount.com:generateAccessToken" => {
                    r#"{"accessToken":"ya29.s3cr3t","expireTime":"2999-01-01T00:00:00Z"}"#
                }
                "/tenant-1/oauth2/v2.0/token" => r#"{"access_token":"eyJ.s3cr3t","expires_in":"3599"}"#,
                path if path.ends_with("/comments") => "[]",
                path if path.ends_with("/statuses") && method == Method::GET && path.contains("_apis") => {
                    r#"{"value":[]}"#
                }
                path if path.ends_with("/statuses") => "[]",
                _ => "{}",
            }
            .into_response()
        }
    };
    (serve(Router::new().fallback(handler)).await, seen)
}

fn sender(base: &str) -> Arc<Sender> {
    let at = |path: &str| format!("{base}{path}").parse().ok();
    let environment = Environment {
        azure_authority: at("/"),
        google_exchange: at("/sts"),
        google_credentials_api: at("/"),
        ..Environment::default()
    };
    let tokens = Tokens::new(TokenLimits { count: 10, duration: Duration::from_hours(1) }, |_| {});
    let identities =
        Identities::new(environment, Some(Arc::new(Accounts)), tokens, Arc::new(SystemClock)).unwrap();
    Sender::new(Clients::new(), identities)
}

/// Delivers twice; what was asked.
async fn deliver(mut case: Case, adjust: impl Fn(&mut Case)) -> Vec<(String, String, String)> {
    adjust(&mut case);
    case.access = None;
    let (base, seen) = services().await;
    let sender = sender(&base);
    for _ in 0..2 {
        sender.deliver(case.job(&base, event("success"))).await.unwrap();
    }
    std::mem::take(&mut *seen.lock())
}

fn requests(seen: &[(String, String, String)]) -> Vec<&str> {
    seen.iter().map(|(request, _, _)| request.as_str()).collect()
}

#[tokio::test]
async fn github_apps_get_a_token_of_their_installation() {
    // Made for this test alone.
    let key = include_str!("app.pem");
    let app = |case: &mut Case| {
        case.secret = BTreeMap::from([
            ("githubAppID".to_owned(), "4711".to_owned()),
            ("githubAppInstallationOwner".to_owned(), "acme".to_owned()),
            ("githubAppPrivateKey".to_owned(), key.to_owned()),
            ("githubAppBaseURL".to_owned(), "{base}".to_owned()),
        ]);
    };
    let seen = deliver(Case::named("githubpullrequestcomment"), app).await;
    assert_eq!(
        requests(&seen),
        [
            "GET /orgs/acme/installation",
            "GET /users/acme/installation",
            "POST /app/installations/77/access_tokens",
            "GET /app",
            "GET /api/v3/repos/acme/fleet/issues/42/comments",
            "POST /api/v3/repos/acme/fleet/issues/42/comments",
            // The token is used again.
            "GET /api/v3/repos/acme/fleet/issues/42/comments",
            "POST /api/v3/repos/acme/fleet/issues/42/comments",
        ]
    );
    let assertion = seen[0].1.strip_prefix("Bearer ").unwrap();
    let claims = assertion.split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], "4711");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 150);
    assert_eq!(seen[4].1, "Bearer ghs_s3cr3t");
}

#[tokio::test]
async fn service_accounts_become_google_accounts() {
    let seen = deliver(Case::named("googlepubsub"), |case| {
        case.spec.service_account_name = Some("notifier".to_owned());
        case.secret.clear();
    })
    .await;
    assert_eq!(
        requests(&seen)[..2],
        [
            "POST /sts",
            "POST /v1/projects/-/serviceAccounts/bot@p.iam.gserviceaccount.com:generateAccessToken"
        ]
    );
    assert!(
        seen[0].2.contains("subject_token=sa-token-for-https%3A%2F%2Fiam.googleapis.com%2Fprojects%2F1%2F"),
        "{}",
        seen[0].2
    );
    assert_eq!(seen[1].1, "Bearer federated-s3cr3t");
    assert_eq!(seen[2].1, "Bearer ya29.s3cr3t");
    assert_eq!(seen.len(), 4);
}

#[tokio::test]
async fn service_accounts_become_azure_applications() {
    let seen = deliver(Case::named("azureeventhub-token"), |case| {
        case.spec.service_account_name = Some("notifier".to_owned());
    })
    .await;
    assert_eq!(
        requests(&seen),
        ["POST /tenant-1/oauth2/v2.0/token", "POST /events/messages", "POST /events/messages"]
    );
    assert!(seen[0].2.contains("client_id=client-1"), "{}", seen[0].2);
    assert!(
        seen[0].2.contains("client_assertion=sa-token-for-api%3A%2F%2FAzureADTokenExchange"),
        "{}",
        seen[0].2
    );
    assert_eq!(seen[1].1, "Bearer eyJ.s3cr3t");
}
