use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Method};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use weir_base::clock::SystemClock;
use weir_notify::receiver::KeySource;
use weir_testcluster::{Effect, Fault, TestCluster};

use super::*;

const TOKEN: &str = "12345";
const SOURCE: &str = "source.toolkit.fluxcd.io/v1";

struct World {
    cluster: TestCluster,
    client: Client,
    store: Store<Receiver>,
    server: WebhookServer,
}

impl World {
    async fn start(strict: bool) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = TestCluster::default();
        let client = Client::new(cluster.service(), "default");
        let store = Store::default();
        let checker = Checker::new(KeySource::new().unwrap(), Arc::new(SystemClock));
        let server = WebhookServer::new(client.clone(), &store, checker, Arc::new(SystemClock), strict);
        let world = Self { cluster, client, store, server };
        for definition in weir_api::crd::definitions() {
            // The kinds of the operator are those that are not installed.
            if definition["spec"]["group"] != "fluxcd.controlplane.io" {
                world.create("apiextensions.k8s.io/v1", &definition).await;
            }
        }
        for namespace in ["apps", "other"] {
            let object = json!({"kind": "Namespace", "metadata": {"name": namespace}});
            world.create("v1", &object).await;
        }
        world.create("v1", &json!({
            "kind": "Secret", "metadata": {"name": "token", "namespace": "apps"}, "stringData": {"token": TOKEN},
        }))
        .await;
        for (name, namespace, team) in [("a", "apps", "x"), ("b", "apps", "y"), ("c", "other", "x")] {
            world.create(SOURCE, &json!({
                "kind": "GitRepository",
                "metadata": {"name": name, "namespace": namespace, "labels": {"team": team}, "annotations": {"keep": "me"}},
                "spec": {"url": "https://git.example.com/fleet", "interval": "1m"},
            }))
            .await;
        }
        world.store.replace(Vec::new());
        world
    }

    async fn create(&self, api_version: &str, object: &Value) {
        let mut object = object.clone();
        object["apiVersion"] = json!(api_version);
        let kind = object["kind"].as_str().unwrap().to_owned();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    fn repositories(&self, namespace: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository");
        Api::namespaced_with(self.client.clone(), namespace, &ApiResource::from_gvk(&gvk))
    }

    /// The repositories that were asked to reconcile; forgets it afterwards.
    async fn asked(&self) -> Vec<String> {
        let mut asked = Vec::new();
        for namespace in ["apps", "other"] {
            let api = self.repositories(namespace);
            for object in api.list(&ListParams::default()).await.unwrap() {
                assert_eq!(object.annotations()["keep"], "me", "nothing else changes");
                if object.annotations().contains_key("reconcile.fluxcd.io/requestedAt") {
                    let managers = object.managed_fields().iter().filter_map(|entry| entry.manager.clone());
                    assert!(
                        managers.clone().any(|name| name == "notification-controller"),
                        "{:?}",
                        managers.collect::<Vec<_>>()
                    );
                    asked.push(object.name_any());
                    let forget =
                        json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": null}}});
                    api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&forget))
                        .await
                        .unwrap();
                }
            }
        }
        asked
    }

    /// Puts a Receiver with this spec under `/hook/abc`.
    fn put(&self, spec: &Value) {
        self.put_with(spec, &json!([ready("Ready", "True")]));
    }

    fn put_with(&self, spec: &Value, conditions: &Value) {
        let mut whole = json!({"type": "generic", "secretRef": {"name": "token"}, "resources": []});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let receiver = json!({
            "metadata": {"name": "fleet", "namespace": "apps"}, "spec": whole,
            "status": {"webhookPath": "/hook/abc", "conditions": conditions},
        });
        self.store.replace(vec![serde_json::from_value(receiver).unwrap()]);
    }

    async fn post(&self, target: &str, headers: &[(&'static str, &str)], body: &str) -> u16 {
        if let Err(answer) = self.server.admit(target).await {
            return answer.status.as_u16();
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let body = Bytes::from(body.to_owned());
        let request = Request { method: Method::POST, target: target.to_owned(), headers: map, body };
        let answer = self.server.handle(request).await;
        assert!(answer.body.is_empty() && answer.headers.is_empty(), "who asks is told a status alone");
        answer.status.as_u16()
    }

    async fn hook(&self) -> u16 {
        self.post("/hook/abc", &[], "").await
    }
}

fn ready(type_: &str, status: &str) -> Value {
    json!({"type": type_, "status": status, "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn named(name: &str) -> Value {
    json!({"kind": "GitRepository", "name": name})
}

#[tokio::test]
async fn only_the_exact_path_of_a_ready_receiver_is_served() {
    let world = World::start(false).await;
    world.put(&json!({"resources": [named("a")]}));
    for target in [
        "/",
        "/hook",
        "/hook/",
        "/hook/ab",
        "/hook/abcd",
        "/hook/ABC",
        "/hook/abc/",
        "/hook/abc?x=y",
        "/hook//abc",
        "hook/abc",
    ] {
        assert_eq!(world.post(target, &[], "").await, 404, "{target}");
    }
    assert!(world.asked().await.is_empty());
    assert_eq!(world.hook().await, 200);
    assert_eq!(world.asked().await, ["a"]);
    for conditions in [
        json!([]),
        json!([ready("Ready", "False")]),
        json!([ready("Ready", "True"), ready("Reconciling", "True")]),
        json!([ready("Ready", "True"), ready("Stalled", "True")]),
    ] {
        world.put_with(&json!({"resources": [named("a")]}), &conditions);
        assert_eq!(world.hook().await, 503, "{conditions}");
    }
    world.put(&json!({"resources": [named("a")], "suspend": true}));
    assert_eq!(world.hook().await, 503);
    world.store.replace(Vec::new());
    assert_eq!(world.hook().await, 404);
    assert!(world.asked().await.is_empty());
}

#[tokio::test]
async fn a_request_that_is_not_proven_changes_nothing() {
    let world = World::start(false).await;
    world.put(&json!({"type": "github", "events": ["push"], "resources": [named("a")]}));
    let body = r#"{"ref": "refs/heads/main"}"#;
    let mut mac = Hmac::<Sha256>::new_from_slice(TOKEN.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    let headers = |signature, event| {
        [("content-type", "application/json"), ("x-hub-signature-256", signature), ("x-github-event", event)]
    };
    assert_eq!(world.post("/hook/abc", &headers("sha256=00", "push"), body).await, 400);
    assert_eq!(world.post("/hook/abc", &headers(&signature, "ping"), body).await, 400);
    assert_eq!(world.post("/hook/abc", &headers(&signature, "push"), "{}").await, 400);
    assert!(world.asked().await.is_empty());
    assert_eq!(world.post("/hook/abc", &headers(&signature, "push"), body).await, 200);
    assert_eq!(world.asked().await, ["a"]);
    // A Receiver whose Secret went away since.
    world.put(&json!({"type": "generic", "secretRef": {"name": "gone"}, "resources": [named("a")]}));
    assert_eq!(world.hook().await, 400);
    assert!(world.asked().await.is_empty());
}

#[tokio::test]
async fn objects_are_found_by_name_and_by_labels() {
    let world = World::start(false).await;
    let any = |labels: Value| json!({"kind": "GitRepository", "name": "*", "matchLabels": labels});
    for (resources, status, asked) in [
        (json!([named("a"), named("b")]), 200, vec!["a", "b"]),
        (json!([{"kind": "GitRepository", "name": "c", "namespace": "other"}]), 200, vec!["c"]),
        (json!([any(json!({"team": "x"}))]), 200, vec!["a"]),
        (json!([any(json!({}))]), 200, vec!["a", "b"]),
        // Nothing fits: not an error.
        (json!([any(json!({"team": "z"}))]), 200, vec![]),
        // Labels say nothing about a named object.
        (json!([{"kind": "GitRepository", "name": "a", "matchLabels": {"team": "z"}}]), 200, vec!["a"]),
        // What fails does not stop the others.
        (json!([named("missing"), named("b")]), 500, vec!["b"]),
        (json!([{"kind": "GitRepository", "name": "*"}, named("b")]), 500, vec!["b"]),
        (json!([{"kind": "Kustomization", "name": "a"}, named("b")]), 500, vec!["b"]),
        // A kind that is not installed.
        (
            json!([
                {"kind": "ResourceSetInputProvider", "apiVersion": "fluxcd.controlplane.io/v1", "name": "a"},
                named("b"),
            ]),
            500,
            vec!["b"],
        ),
        (
            json!([
                {"kind": "ResourceSet", "apiVersion": "fluxcd.controlplane.io/v1", "name": "*", "matchLabels": {}},
                named("b"),
            ]),
            500,
            vec!["b"],
        ),
        (json!([]), 200, vec![]),
    ] {
        world.put(&json!({"resources": resources}));
        assert_eq!(world.hook().await, status, "{resources}");
        assert_eq!(world.asked().await, asked, "{resources}");
    }
}

#[tokio::test]
async fn other_namespaces_can_be_forbidden() {
    let world = World::start(true).await;
    let elsewhere = json!({"kind": "GitRepository", "name": "c", "namespace": "other"});
    let here = json!({"kind": "GitRepository", "name": "a", "namespace": "apps"});
    world.put(&json!({"resources": [elsewhere, here]}));
    assert_eq!(world.hook().await, 500);
    assert_eq!(world.asked().await, ["a"]);
}

#[tokio::test]
async fn filters_decide_per_object() {
    let world = World::start(false).await;
    let json_type = [("content-type", "application/json")];
    let any = json!({"kind": "GitRepository", "name": "*", "matchLabels": {}});
    world.put(&json!({"resourceFilter": "req.team == res.metadata.labels.team", "resources": [any]}));
    assert_eq!(world.post("/hook/abc", &json_type, r#"{"team": "y"}"#).await, 200);
    assert_eq!(world.asked().await, ["b"]);
    assert_eq!(world.post("/hook/abc", &json_type, r#"{"team": "none"}"#).await, 200);
    assert!(world.asked().await.is_empty());
    for (headers, body) in [(&json_type[..], "no json"), (&json_type, "[]"), (&json_type, "{}"), (&[], "")] {
        assert_eq!(world.post("/hook/abc", headers, body).await, 500, "{body}");
    }
    assert!(world.asked().await.is_empty());
    let filtered =
        |name: &str, filter: &str| json!({"kind": "GitRepository", "name": name, "filter": filter});
    world.put(&json!({"resources": [filtered("a", "res.metadata.labels.team == 'y'"), filtered("b", "true"), filtered("missing", "true")]}));
    assert_eq!(world.hook().await, 500, "a named object that is missing");
    assert_eq!(world.asked().await, ["b"]);
}

#[tokio::test]
async fn an_api_server_that_refuses_is_told_as_an_error() {
    let world = World::start(false).await;
    world.put(&json!({"resources": [named("a")]}));
    world.cluster.faults().add(
        Fault::new(Effect::Refuse { code: 500, reason: "InternalError", message: "m".to_owned() })
            .verbs(&["patch"])
            .times(1),
    );
    assert_eq!(world.hook().await, 500);
    assert_eq!(world.hook().await, 200);
    assert_eq!(world.asked().await, ["a"]);
}

#[tokio::test]
async fn a_flood_is_answered_and_costs_the_api_server_little() {
    let world = World::start(false).await;
    world.put(&json!({"resources": [named("a")]}));
    let before: u64 = revision(&world).await;
    let statuses = futures::future::join_all((0..10_000).map(|_| world.hook())).await;
    assert!(statuses.iter().all(|status| *status == 200));
    let writes = revision(&world).await - before;
    assert!((1..1000).contains(&writes), "{writes} writes");
    assert_eq!(world.asked().await, ["a"]);
}

/// How many writes the cluster has seen, roughly.
async fn revision(world: &World) -> u64 {
    let list = world.repositories("apps").list(&ListParams::default()).await.unwrap();
    list.metadata.resource_version.unwrap().parse().unwrap()
}
