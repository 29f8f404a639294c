//! A service on a port: takes requests, judges them, answers as its documentation says.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use weir_base::clock::SystemClock;
use weir_notify::delivery::{Clients, Sender};
use weir_notify::identity::{Environment, Identities, TokenLimits, Tokens};

use crate::case::{Case, Rule};
use crate::check;

struct Shared {
    rules: Vec<Rule>,
    access: Option<String>,
    violations: Mutex<Vec<String>>,
    requests: Mutex<usize>,
}

pub(crate) struct Mock {
    pub(crate) base: String,
    shared: Arc<Shared>,
    sender: Arc<Sender>,
}

pub(crate) fn sender(environment: Environment) -> Arc<Sender> {
    let limits = TokenLimits { count: 100, duration: Duration::from_hours(1) };
    let tokens = Tokens::new(limits, |_| {});
    let identities = Identities::new(environment, None, tokens, Arc::new(SystemClock)).unwrap();
    Sender::new(Clients::new(), identities)
}

/// Serves `router` on a port of this machine.
pub(crate) async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    base
}

impl Mock {
    pub(crate) async fn start(case: &Case) -> Self {
        let shared = Arc::new(Shared {
            rules: Case::named(&case.name).rules,
            access: case.access.clone(),
            violations: Mutex::default(),
            requests: Mutex::default(),
        });
        let base = serve(Router::new().fallback(answer).with_state(Arc::clone(&shared))).await;
        let environment = Environment {
            azure_metadata: base.parse().ok(),
            google_metadata: base.parse().ok(),
            ..Environment::default()
        };
        Self { base, shared, sender: sender(environment) }
    }

    pub(crate) fn sender(&self) -> &Sender {
        &self.sender
    }

    pub(crate) fn requests(&self) -> usize {
        *self.shared.requests.lock()
    }

    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.violations.lock())
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self, what: &str) {
        let violations = self.take_violations();
        assert!(violations.is_empty(), "{what}:\n{}", violations.join("\n"));
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    if let Some(token) = &shared.access
        && (path.starts_with("/computeMetadata/") || path.starts_with("/metadata/identity/"))
    {
        let named = headers.contains_key("metadata-flavor") || headers.contains_key("metadata");
        assert!(named, "metadata services want their header");
        return format!(r#"{{"access_token":"{token}","expires_in":3600}}"#).into_response();
    }
    *shared.requests.lock() += 1;
    let found = shared.rules.iter().find(|rule| rule.method == method.as_str() && rule.path.is_match(&path));
    let Some(rule) = found else {
        shared.violations.lock().push(format!("the service has no {method} {path}"));
        return StatusCode::NOT_FOUND.into_response();
    };
    let violations = check::request(&rule.demands, &headers, &body);
    let status = if violations.is_empty() {
        StatusCode::from_u16(rule.status).unwrap()
    } else {
        StatusCode::BAD_REQUEST
    };
    shared.violations.lock().extend(violations);
    (status, rule.body.clone()).into_response()
}
