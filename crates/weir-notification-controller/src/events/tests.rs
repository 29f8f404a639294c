use bytes::Bytes;
use http::{HeaderMap, Method};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use weir_runtime::flags;
use weir_testcluster::TestCluster;

use super::*;
use crate::settings::{Flags, PROGRAM};

struct World {
    server: EventServer,
    stores: Stores,
    address: String,
    delivered: mpsc::UnboundedReceiver<Value>,
    _cluster: TestCluster,
}

impl World {
    async fn start(arguments: &[&str]) -> Self {
        let cluster = TestCluster::default();
        let client = kube::Client::new(cluster.service(), "default");
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), "default");
        let secret = json!({"metadata": {"name": "hook"}, "stringData": {"headers": "X-Team: ops"}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (sender, delivered) = mpsc::unbounded_channel();
        tokio::spawn(crate::server::serve(
            listener,
            Arc::new(Service(sender)),
            crate::server::Limits::default(),
            crate::server::HttpMetrics::new("test", "/", false, &weir_runtime::Metrics::new()),
            tokio_util::sync::CancellationToken::new(),
        ));
        let arguments = std::iter::once("notification-controller").chain(arguments.iter().copied());
        let flags: Flags = flags::try_parse(&PROGRAM, arguments).unwrap();
        let settings = weir_runtime::Settings::new(&PROGRAM, &flags.common).unwrap();
        let own = Settings::new(&flags, settings.gates.clone()).unwrap();
        let mut runtime = Runtime::new(settings, client);
        let stores = Stores {
            receivers: weir_runtime::Store::default(),
            providers: weir_runtime::Store::default(),
            alerts: weir_runtime::Store::default(),
        };
        let server = EventServer::new(&mut runtime, &own, &stores).unwrap();
        let world = Self { server, stores, address, delivered, _cluster: cluster };
        world.put(&[("hook", json!({"type": "generic"}))], &[("all", "hook", json!({}))]);
        world
    }

    /// Providers at the address of the service, and Alerts for all Kustomizations.
    fn put(&self, providers: &[(&str, Value)], alerts: &[(&str, &str, Value)]) {
        let object = |kind: &str, name: &str, spec: Value| {
            json!({
                "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": kind,
                "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-1-2")}, "spec": spec,
            })
        };
        let merged = |mut spec: Value, more: &Value| {
            for (key, value) in more.as_object().unwrap() {
                spec[key] = value.clone();
            }
            spec
        };
        let providers = providers.iter().map(|(name, spec)| {
            let spec = merged(json!({"address": format!("{}/{name}", self.address)}), spec);
            serde_json::from_value(object("Provider", name, spec)).unwrap()
        });
        self.stores.providers.replace(providers.collect());
        let alerts = alerts.iter().map(|(name, provider, spec)| {
            let all = json!({"providerRef": {"name": provider}, "eventSources": [{"kind": "Kustomization", "name": "*"}]});
            serde_json::from_value(object("Alert", name, merged(all, spec))).unwrap()
        });
        self.stores.alerts.replace(alerts.collect());
    }

    async fn post(&self, body: &str) -> Answer {
        let body = Bytes::from(body.to_owned());
        let request =
            Request { method: Method::POST, target: "/".to_owned(), headers: HeaderMap::new(), body };
        self.server.handle(request).await
    }

    async fn post_event(&self, message: &str, metadata: Value) -> u16 {
        let event = json!({
            "involvedObject": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "namespace": "default", "name": "apps", "uid": "1"},
            "severity": "info", "timestamp": "2026-01-01T00:00:00Z", "message": message, "reason": "Progressing",
            "metadata": metadata, "reportingController": "kustomize-controller",
        });
        self.post(&event.to_string()).await.status.as_u16()
    }

    async fn next(&mut self) -> Value {
        self.delivered.recv().await.unwrap()
    }
}

/// A service that takes everything but what is posted to `/dead`, which it never answers.
struct Service(mpsc::UnboundedSender<Value>);

impl Handler for Service {
    async fn handle(&self, request: Request) -> Answer {
        if request.target == "/dead" {
            std::future::pending::<()>().await;
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let team = request.headers.get("x-team").map(|value| value.to_str().unwrap().to_owned());
        self.0.send(json!({"path": request.target, "team": team, "body": body})).unwrap();
        Answer::status(StatusCode::OK)
    }
}

#[tokio::test]
async fn an_event_is_delivered_once_with_combined_metadata() {
    let mut world = World::start(&[]).await;
    let cluster = json!({"eventMetadata": {"cluster": "prod"}});
    let provider = json!({"type": "generic", "secretRef": {"name": "hook"}});
    world.put(&[("hook", provider)], &[("all", "hook", cluster)]);
    let metadata = json!({
        "kustomize.toolkit.fluxcd.io/revision": "main@sha1:1", "kustomize.toolkit.fluxcd.io/token": "t",
        "kustomize.toolkit.fluxcd.io/digest": "sha256:1", "event.toolkit.fluxcd.io/team": "web", "other/key": "x",
    });
    assert_eq!(world.post_event("applied", metadata.clone()).await, 202);
    let delivered = world.next().await;
    assert_eq!((&delivered["path"], &delivered["team"]), (&json!("/hook"), &json!("ops")));
    assert_eq!(
        delivered["body"]["metadata"],
        json!({"cluster": "prod", "revision": "main@sha1:1", "team": "web"})
    );
    assert_eq!(delivered["body"]["involvedObject"]["name"], "apps");
    assert_eq!(world.post_event("applied", metadata).await, 429);
    assert_eq!(world.post_event("applied again", json!({})).await, 202);
    assert_eq!(world.next().await["body"]["message"], "applied again");
}

#[tokio::test]
async fn answers_are_those_of_the_reference() {
    let world = World::start(&[]).await;
    for body in ["", "{", "[]", "\"text\""] {
        let answer = world.post(body).await;
        assert_eq!((answer.status, answer.body.len()), (StatusCode::BAD_REQUEST, 0), "{body}");
    }
    let first = world.post("{}").await;
    assert_eq!((first.status, first.body.len()), (StatusCode::ACCEPTED, 0));
    assert_eq!(
        (&first.headers["x-ratelimit-limit"], &first.headers["x-ratelimit-remaining"]),
        (&"1".parse().unwrap(), &"0".parse::<HeaderValue>().unwrap())
    );
    assert!(first.headers["x-ratelimit-reset"].to_str().unwrap().ends_with(" UTC"));
    assert!(!first.headers.contains_key(RETRY_AFTER));
    let second = world.post("{}").await;
    assert_eq!(
        (second.status, &second.body[..]),
        (StatusCode::TOO_MANY_REQUESTS, &b"Too Many Requests\n"[..])
    );
    assert!(second.headers.contains_key(RETRY_AFTER));
}

#[tokio::test]
async fn status_updates_do_not_reach_chats() {
    let mut world = World::start(&[]).await;
    let providers = [("chat", json!({"type": "slack"})), ("hook", json!({"type": "generic"}))];
    world.put(&providers, &[("a", "chat", json!({})), ("b", "hook", json!({}))]);
    let update = json!({"kustomize.toolkit.fluxcd.io/commit_status": "update"});
    assert_eq!(world.post_event("finished", update).await, 202);
    assert_eq!(world.next().await["path"], "/hook");
    assert_eq!(world.post_event("created", json!({})).await, 202);
    let mut paths = [world.next().await["path"].clone(), world.next().await["path"].clone()];
    paths.sort_by_key(ToString::to_string);
    assert_eq!(paths, [json!("/chat"), json!("/hook")]);
}

#[tokio::test]
async fn what_cannot_be_sent_costs_nobody_else() {
    let mut world = World::start(&["--no-cross-namespace-refs"]).await;
    let dead = json!({"type": "generic", "address": format!("{}/dead", world.address)});
    let providers = [
        ("dead", dead),
        ("broken", json!({"type": "generic", "secretRef": {"name": "missing"}})),
        ("account", json!({"type": "generic", "serviceAccountName": "a"})),
        ("asleep", json!({"type": "generic", "suspend": true})),
        ("hook", json!({"type": "generic"})),
    ];
    let alerts = [
        ("a", "dead", json!({})),
        ("b", "broken", json!({})),
        ("c", "gone", json!({})),
        ("d", "account", json!({})),
        ("e", "asleep", json!({})),
        ("f", "hook", json!({"exclusionList": ["secret"]})),
    ];
    world.put(&providers, &alerts);
    for number in 0..1200 {
        assert_eq!(world.post_event(&format!("message {number}"), json!({})).await, 202);
    }
    for _ in 0..1200 {
        assert_eq!(world.next().await["path"], "/hook");
    }
    assert_eq!(world.post_event("secret", json!({})).await, 202);
    assert_eq!(world.post_event("last", json!({})).await, 202);
    assert_eq!(world.next().await["body"]["message"], "last");
}
