use axum::Router;
use axum::body::Bytes as Body;
use bytes::Bytes;
use http::{HeaderMap, Method};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_api::notification::Provider;
use weir_runtime::{FeatureGates, ObjectKey};
use weir_testcluster::TestCluster;

use super::*;
use crate::settings::PROGRAM;

type Seen = Arc<Mutex<Vec<(String, HeaderMap, Value)>>>;

struct World {
    client: Client,
    stores: Stores,
    server: EventServer,
    base: String,
    seen: Seen,
    /// Runs what the runtime was given: the senders of Kubernetes events.
    _running: tokio::task::JoinHandle<()>,
}

fn settings(strict: bool, gates: &str) -> Settings {
    let gates: Vec<String> = if gates.is_empty() { Vec::new() } else { vec![gates.to_owned()] };
    Settings {
        events_addr: String::new(),
        receiver_addr: String::new(),
        rate_limit_interval: Duration::from_mins(5),
        export_http_path_metrics: false,
        no_cross_namespace_refs: strict,
        default_service_account: String::new(),
        token_cache_max_size: 10,
        token_cache_max_duration: Duration::from_hours(1),
        gates: FeatureGates::parse(PROGRAM.feature_gates, &gates).unwrap(),
    }
}

impl World {
    async fn start(strict: bool) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = TestCluster::default();
        let client = Client::new(cluster.service(), "default");
        let seen = Seen::default();
        let sink = Arc::clone(&seen);
        let handler = move |uri: http::Uri, headers: HeaderMap, body: Body| {
            let sink = Arc::clone(&sink);
            async move {
                sink.lock().push((
                    uri.path().to_owned(),
                    headers,
                    serde_json::from_slice(&body).unwrap_or_default(),
                ));
                if uri.path() == "/refuses" { http::StatusCode::FORBIDDEN } else { http::StatusCode::OK }
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await.unwrap() });
        let flags: crate::settings::Flags =
            weir_runtime::flags::try_parse(&PROGRAM, ["notification-controller"]).unwrap();
        let runtime_settings = weir_runtime::Settings::new(&PROGRAM, &flags.common).unwrap();
        let mut runtime = Runtime::new(runtime_settings, client.clone()).with_events();
        let stores = Stores {
            receivers: weir_runtime::Store::default(),
            providers: weir_runtime::Store::default(),
            alerts: weir_runtime::Store::default(),
        };
        let server = EventServer::new(&mut runtime, &settings(strict, ""), &stores).unwrap();
        let running = tokio::spawn(async move {
            let _ = runtime.run().await;
        });
        stores.alerts.replace(Vec::new());
        stores.providers.replace(Vec::new());
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        for name in ["apps", "other"] {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        Self { client, stores, server, base, seen, _running: running }
    }

    fn alert(&self, name: &str, namespace: &str, spec: &Value) {
        let mut full = json!({"providerRef": {"name": name}, "eventSources": [{"kind": "Kustomization", "name": "*", "namespace": "apps"}]});
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        let alert = json!({
            "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert",
            "metadata": {"name": name, "namespace": namespace, "uid": format!("alert-{name}"), "resourceVersion": "1"}, "spec": full,
        });
        self.stores.alerts.apply(serde_json::from_value(alert).unwrap());
    }

    fn provider(&self, name: &str, namespace: &str, spec: &Value) {
        let provider: Provider = serde_json::from_value(json!({
            "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider",
            "metadata": {"name": name, "namespace": namespace, "uid": "0c9c2e41-0000", "resourceVersion": "1"}, "spec": spec,
        }))
        .unwrap();
        self.stores.providers.apply(provider);
    }

    /// A generic provider and an Alert for it.
    fn generic(&self, name: &str, alert: &Value) {
        self.provider(name, "apps", &json!({"type": "generic", "address": format!("{}/{name}", self.base)}));
        self.alert(name, "apps", alert);
    }

    async fn post(&self, body: &Value) -> Answer {
        self.post_bytes(body.to_string().into_bytes()).await
    }

    async fn post_bytes(&self, body: Vec<u8>) -> Answer {
        let request = Request {
            method: Method::POST,
            target: "/".to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::from(body),
        };
        self.server.handle(request).await
    }

    /// What arrived, by path, when all deliveries have ended.
    async fn delivered(&self) -> Vec<String> {
        self.server.inner.dispatcher.settled().await;
        let mut paths: Vec<String> = self.seen.lock().iter().map(|(path, _, _)| path.clone()).collect();
        paths.sort();
        paths
    }

    /// Kubernetes events, once there are as many as expected.
    async fn told(&self, count: usize) -> Vec<String> {
        timeout(Duration::from_mins(1), self.told_in_time(count)).await.unwrap()
    }

    async fn told_in_time(&self, count: usize) -> Vec<String> {
        let api: Api<k8s_openapi::api::core::v1::Event> = Api::all(self.client.clone());
        loop {
            let list = api.list(&ListParams::default()).await.unwrap();
            if list.items.len() >= count {
                let text = |event: &k8s_openapi::api::core::v1::Event| {
                    format!(
                        "{} {} {}: {}",
                        event.type_.clone().unwrap_or_default(),
                        event.involved_object.name.clone().unwrap_or_default(),
                        event.reason.clone().unwrap_or_default(),
                        event.message.clone().unwrap_or_default()
                    )
                };
                let mut told: Vec<String> = list.items.iter().map(text).collect();
                told.sort();
                return told;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn event(message: &str) -> Value {
    json!({
        "involvedObject": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "namespace": "apps", "name": "web", "uid": "1"},
        "severity": "info", "timestamp": "2026-01-01T10:00:00Z", "message": message, "reason": "ReconciliationSucceeded",
        "metadata": {"kustomize.toolkit.fluxcd.io/revision": "main@sha1:5394cb7f48332b2de7c17dd8b8384bbc84b7e738", "kustomize.toolkit.fluxcd.io/token": "t", "foreign.io/x": "y"},
        "reportingController": "kustomize-controller",
    })
}

fn with(mut event: Value, key: &str, value: &str) -> Value {
    event["metadata"][key] = json!(value);
    event
}

#[tokio::test]
async fn events_reach_the_providers_of_matching_alerts() {
    let world = World::start(false).await;
    world.generic("one", &json!({"eventMetadata": {"cluster": "prod"}}));
    world.generic("errors", &json!({"eventSeverity": "error"}));
    world.generic("suspended", &json!({"suspend": true}));
    let answer = world.post(&event("done")).await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::ACCEPTED, 0));
    assert_eq!(answer.headers["x-ratelimit-limit"], "1");
    assert!(!answer.headers.contains_key("retry-after"));
    assert_eq!(world.delivered().await, ["/one"]);
    let seen = world.seen.lock();
    let (_, headers, body) = &seen[0];
    assert_eq!(headers["gotk-component"], "kustomize-controller");
    let expected =
        json!({"cluster": "prod", "revision": "main@sha1:5394cb7f48332b2de7c17dd8b8384bbc84b7e738"});
    assert_eq!(body["metadata"], expected);
}

#[tokio::test]
async fn repeated_events_are_held_back_and_say_until_when() {
    let world = World::start(false).await;
    world.generic("one", &json!({}));
    world.post(&event("done")).await;
    let answer = world.post(&event("done")).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.body, "Too Many Requests\n");
    assert!(answer.headers["retry-after"].to_str().unwrap().ends_with(" UTC"));
    world.post(&event("done again")).await;
    assert_eq!(world.delivered().await, ["/one", "/one"]);
}

#[tokio::test]
async fn what_is_not_an_event_is_refused() {
    let world = World::start(false).await;
    for body in ["", "no json", "[1]", r#"{"message": 1}"#] {
        assert_eq!(
            world.post_bytes(body.as_bytes().to_vec()).await.status,
            StatusCode::BAD_REQUEST,
            "{body}"
        );
    }
    // Nobody asked for this one, but it is an event.
    assert_eq!(world.post(&event("done")).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn failures_are_told_on_the_alert_and_delay_no_other() {
    let world = World::start(false).await;
    world.generic("refuses", &json!({}));
    world.generic("works", &json!({}));
    world.alert("without", "apps", &json!({"providerRef": {"name": "missing"}}));
    world.provider(
        "secretless",
        "apps",
        &json!({"type": "slack", "address": "http://x", "secretRef": {"name": "gone"}}),
    );
    world.alert("secretless", "apps", &json!({}));
    world.provider("wrong", "apps", &json!({"type": "slack", "address": "not a url"}));
    world.alert("wrong", "apps", &json!({}));
    world.alert("broken", "apps", &json!({"inclusionList": ["("]}));
    assert_eq!(world.post(&event("done")).await.status, StatusCode::ACCEPTED);
    assert_eq!(world.delivered().await, ["/refuses", "/works"]);
    assert_eq!(
        world.told(5).await,
        [
            "Warning broken InvalidConfig: failed to compile inclusion regex: (",
            "Warning refuses NotificationDispatchFailed: failed to send notification for Kustomization/apps/web: postMessage failed: request failed: request failed with status code 403: ",
            "Warning secretless NotificationDispatchFailed: failed to dispatch notification for Kustomization/apps/web: failed to initialize notifier for provider 'secretless': failed to get secret 'apps/gone': secrets \"gone\" not found",
            "Warning without NotificationDispatchFailed: failed to dispatch notification for Kustomization/apps/web: failed to read provider: providers.notification.toolkit.fluxcd.io \"missing\" not found",
            "Warning wrong NotificationDispatchFailed: failed to dispatch notification for Kustomization/apps/web: failed to initialize notifier for provider 'wrong': invalid Slack hook URL: it must be an absolute http or https URL",
        ]
    );
}

#[tokio::test]
async fn other_namespaces_can_be_shut_out() {
    let world = World::start(true).await;
    world.provider("far", "other", &json!({"type": "generic", "address": format!("{}/far", world.base)}));
    world.alert("far", "other", &json!({}));
    world.generic("near", &json!({}));
    world.post(&event("done")).await;
    assert_eq!(world.delivered().await, ["/near"]);
    assert_eq!(
        world.told(1).await,
        [
            "Warning far NotificationDispatchFailed: failed to dispatch notification for Kustomization/apps/web: discarding event, access denied to cross-namespace sources: alert 'other/far' can't process event from 'Kustomization/apps/web', cross-namespace references have been blocked"
        ]
    );
}

/// What becomes of an event for a provider of a type.
async fn dispatched(type_: &str, event: &Value) -> Result<Dispatched, String> {
    let world = World::start(false).await;
    world.provider(
        "p",
        "apps",
        &json!({"type": type_, "address": format!("{}/scm/acme/fleet", world.base), "channel": "a/b"}),
    );
    world.alert("p", "apps", &json!({}));
    let mut event: Event = serde_json::from_value(event.clone()).unwrap();
    event.clean_up();
    let alert = world.stores.alerts.get(&ObjectKey::new("apps", "p")).unwrap();
    let outcome = world.server.inner.dispatcher.dispatch(&Arc::new(event), &alert).await;
    outcome.map_err(|error| error.to_string())
}

#[tokio::test]
async fn events_for_commit_statuses_go_to_those_who_want_them() {
    let update = with(event("m"), "kustomize.toolkit.fluxcd.io/commit_status", "update");
    assert_eq!(dispatched("slack", &update).await, Ok(Dispatched::Dropped));
    assert_eq!(dispatched("githubdispatch", &update).await, Ok(Dispatched::Dropped));
    assert_eq!(dispatched("generic", &update).await, Ok(Dispatched::Queued));
    let no_token = dispatched("gitlab", &update).await.unwrap_err();
    assert_eq!(no_token, "failed to initialize notifier for provider 'p': gitlab token cannot be empty");
    assert_eq!(dispatched("gitlab", &event("m")).await, Ok(Dispatched::NoCommit));
    let commit =
        with(event("m"), "event.toolkit.fluxcd.io/commit", "5394cb7f48332b2de7c17dd8b8384bbc84b7e738");
    assert!(dispatched("gitlab", &commit).await.unwrap_err().ends_with("gitlab token cannot be empty"));
    let mut error = event("m");
    error["severity"] = json!("error");
    assert!(dispatched("gitlab", &error).await.unwrap_err().ends_with("gitlab token cannot be empty"));
}

#[tokio::test]
async fn comments_need_the_number_of_a_request() {
    assert_eq!(dispatched("giteapullrequestcomment", &event("m")).await, Ok(Dispatched::NoChangeRequest));
    let numbered = with(event("m"), "event.toolkit.fluxcd.io/change_request", "7");
    assert!(
        dispatched("giteapullrequestcomment", &numbered)
            .await
            .unwrap_err()
            .ends_with("gitea token cannot be empty")
    );
}
