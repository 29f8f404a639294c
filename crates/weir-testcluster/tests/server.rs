//! The server in process: what the conformance suite cannot ask of a real one, and the main paths once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use futures::StreamExt as _;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use weir_base::clock::FixedClock;
use weir_testcluster::{Effect, Fault, Identity, Service, TestCluster};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

fn cluster() -> TestCluster {
    let clock = FixedClock("2026-01-01T00:00:00Z".parse().unwrap());
    TestCluster::builder().clock(Arc::new(clock)).build().unwrap()
}

async fn try_send(
    service: Service,
    method: Method,
    path: &str,
    media: &str,
    body: &Value,
) -> Result<(u16, Value), std::io::Error> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.header("user-agent", "tests/1").body(Full::new(bytes::Bytes::from(body))).unwrap();
    let response = service.oneshot(request).await?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Ok((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
}

async fn send(cluster: &TestCluster, method: Method, path: &str, body: Value) -> (u16, Value) {
    let media = if method == Method::PATCH { MERGE } else { "application/json" };
    try_send(cluster.service(), method, path, media, &body).await.unwrap()
}

async fn apply(cluster: &TestCluster, path: &str, manager: &str, body: Value) -> (u16, Value) {
    let path = format!("{path}?fieldManager={manager}");
    try_send(cluster.service(), Method::PATCH, &path, APPLY, &body).await.unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn objects_come_and_go() {
    let cluster = cluster();
    let (code, created) = send(&cluster, Method::POST, MAPS, config_map("a", json!({"k": "v"}))).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "tests");
    let (code, again) = send(&cluster, Method::POST, MAPS, config_map("a", json!({}))).await;
    assert_eq!((code, &again["reason"]), (409, &json!("AlreadyExists")));
    assert_eq!(again["message"], "configmaps \"a\" already exists");
    let (_, list) = send(&cluster, Method::GET, MAPS, Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let (code, gone) = send(&cluster, Method::DELETE, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!((code, &gone["status"]), (200, &json!("Success")));
    let (code, missing) = send(&cluster, Method::GET, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!((code, &missing["message"]), (404, &json!("configmaps \"a\" not found")));
}

#[tokio::test]
async fn a_second_apply_writes_nothing() {
    let cluster = cluster();
    let path = format!("{MAPS}/a");
    let (code, first) = apply(&cluster, &path, "m", config_map("a", json!({"k": "v"}))).await;
    assert_eq!(code, 201, "{first}");
    let revision = cluster.revision();
    let (code, second) = apply(&cluster, &path, "m", config_map("a", json!({"k": "v"}))).await;
    assert_eq!((code, &second), (200, &first));
    assert_eq!(cluster.revision(), revision);
    let (code, conflict) = apply(&cluster, &path, "n", config_map("a", json!({"k": "w"}))).await;
    assert_eq!(code, 409);
    assert_eq!(conflict["message"], "Apply failed with 1 conflict: conflict with \"m\": .data.k");
}

#[tokio::test]
async fn watches_read_on_where_they_were() {
    let cluster = cluster();
    let (_, list) = send(&cluster, Method::GET, MAPS, Value::Null).await;
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?watch=true&labelSelector=l%3D1&resourceVersion={revision}");
    let request = Request::builder().uri(path).body(Full::new(bytes::Bytes::new())).unwrap();
    let response = cluster.service().oneshot(request).await.unwrap();
    let mut lines = response.into_body().into_data_stream();
    let mut object = config_map("a", json!({}));
    send(&cluster, Method::POST, MAPS, object.clone()).await;
    object["metadata"]["labels"] = json!({"l": "1"});
    send(&cluster, Method::PUT, &format!("{MAPS}/a"), object).await;
    send(&cluster, Method::PATCH, &format!("{MAPS}/a"), json!({"metadata": {"labels": {"l": "2"}}})).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let line: Value = serde_json::from_slice(&lines.next().await.unwrap().unwrap()).unwrap();
        seen.push((line["type"].clone(), line["object"]["metadata"]["labels"]["l"].clone()));
    }
    assert_eq!(seen, [(json!("ADDED"), json!("1")), (json!("DELETED"), json!("1"))]);
    cluster.restart(true);
    assert!(lines.next().await.is_none(), "a restart ends watches");
    let path = format!("{MAPS}?watch=true&resourceVersion={revision}");
    let request = Request::builder().uri(path).body(Full::new(bytes::Bytes::new())).unwrap();
    let response = cluster.service().oneshot(request).await.unwrap();
    let line = response.into_body().into_data_stream().next().await.unwrap().unwrap();
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!((&line["type"], &line["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

#[tokio::test]
async fn dependents_follow_their_owner() {
    for (policy, child_code) in [("Background", 404), ("Foreground", 404), ("Orphan", 200)] {
        let cluster = cluster();
        let (_, owner) = send(&cluster, Method::POST, MAPS, config_map("owner", json!({}))).await;
        let mut child = config_map("child", json!({}));
        child["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
        }]);
        send(&cluster, Method::POST, MAPS, child).await;
        let path = format!("{MAPS}/owner?propagationPolicy={policy}");
        let (code, _) = send(&cluster, Method::DELETE, &path, Value::Null).await;
        assert_eq!(code, 200, "{policy}");
        assert_eq!(
            send(&cluster, Method::GET, &format!("{MAPS}/owner"), Value::Null).await.0,
            404,
            "{policy}"
        );
        let (code, child) = send(&cluster, Method::GET, &format!("{MAPS}/child"), Value::Null).await;
        assert_eq!(code, child_code, "{policy}");
        assert_eq!(child["metadata"].get("ownerReferences"), None, "{policy}");
    }
}

#[tokio::test]
async fn a_namespace_ends_when_it_is_empty() {
    let cluster = cluster();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    send(&cluster, Method::POST, "/api/v1/namespaces", namespace).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let mut held = config_map("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    send(&cluster, Method::POST, maps, held).await;
    let (code, ending) = send(&cluster, Method::DELETE, "/api/v1/namespaces/n", Value::Null).await;
    assert_eq!((code, &ending["status"]["phase"]), (200, &json!("Terminating")));
    let (code, refused) = send(&cluster, Method::POST, maps, config_map("late", json!({}))).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "configmaps \"late\" is forbidden: unable to create new content in namespace n because it is being terminated"
    );
    assert_eq!(refused["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let free = json!({"metadata": {"finalizers": null}});
    send(&cluster, Method::PATCH, &format!("{maps}/held"), free).await;
    assert_eq!(send(&cluster, Method::GET, "/api/v1/namespaces/n", Value::Null).await.0, 404);
}

#[tokio::test]
async fn definitions_bring_kinds_with_rules() {
    let cluster = cluster();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"n": {"type": "integer", "default": 1, "maximum": 5}},
                        "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "n must not shrink"}]},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}}}]},
    });
    let (code, made) =
        send(&cluster, Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
            .await;
    assert_eq!(code, 201, "{made}");
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = |n: Value| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": n});
    let (code, made) = send(&cluster, Method::POST, things, thing(json!({"unknown": 1}))).await;
    assert_eq!((code, &made["spec"]), (201, &json!({"n": 1})), "{made}");
    let (code, refused) =
        send(&cluster, Method::PATCH, &format!("{things}/a"), json!({"spec": {"n": 9}})).await;
    assert_eq!(code, 422);
    assert_eq!(
        refused["message"],
        "Thing.example.com \"a\" is invalid: spec.n: Invalid value: 9: spec.n in body should be less than or equal to 5"
    );
    let (code, refused) =
        send(&cluster, Method::PATCH, &format!("{things}/a"), json!({"spec": {"n": 0}})).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().ends_with("n must not shrink"), "{refused}");
    let (code, changed) = send(
        &cluster,
        Method::PATCH,
        &format!("{things}/a/status"),
        json!({"spec": {"n": 4}, "status": {"x": 1}}),
    )
    .await;
    assert_eq!((code, &changed["spec"]["n"], &changed["status"]["x"]), (200, &json!(1), &json!(1)));
    assert_eq!(changed["metadata"]["generation"], 1);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    send(&cluster, Method::DELETE, path, Value::Null).await;
    assert_eq!(send(&cluster, Method::GET, things, Value::Null).await.0, 404);
}

#[tokio::test]
async fn roles_decide_when_they_are_asked_to() {
    let cluster = TestCluster::builder().rbac(true).build().unwrap();
    let who = Identity::service_account("default", "deployer");
    let ask = |method: Method, path: String, body: Value| {
        let service = cluster.service_as(who.clone());
        async move { try_send(service, method, &path, MERGE, &body).await.unwrap() }
    };
    let (code, refused) = ask(Method::GET, format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "configmaps \"a\" is forbidden: User \"system:serviceaccount:default:deployer\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "deployer"}],
    });
    let (code, made) = send(
        &cluster,
        Method::POST,
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        binding,
    )
    .await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(ask(Method::GET, format!("{MAPS}/a"), Value::Null).await.0, 404);
    assert_eq!(ask(Method::DELETE, format!("{MAPS}/a"), Value::Null).await.0, 403);
}

#[tokio::test]
async fn faults_refuse_and_lose_answers() {
    let cluster = cluster();
    cluster.faults().add(Fault::new(Effect::LoseAnswer).verbs(&["create"]).times(1));
    let lost =
        try_send(cluster.service(), Method::POST, MAPS, "application/json", &config_map("a", json!({})))
            .await;
    assert!(lost.is_err());
    assert_eq!(send(&cluster, Method::GET, &format!("{MAPS}/a"), Value::Null).await.0, 200, "it was done");
    let refuse = Effect::Refuse { code: 500, reason: "InternalError", message: "etcd is away".to_owned() };
    cluster.faults().add(Fault::new(refuse).resources(&["configmaps"]).skip(1).times(1));
    let codes = [
        send(&cluster, Method::GET, MAPS, Value::Null).await.0,
        send(&cluster, Method::GET, MAPS, Value::Null).await.0,
        send(&cluster, Method::GET, MAPS, Value::Null).await.0,
    ];
    assert_eq!(codes, [200, 500, 200]);
}

#[tokio::test]
async fn a_snapshot_brings_everything_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.redb");
    let first = TestCluster::builder().snapshot(&file).build().unwrap();
    let (_, made) = send(&first, Method::POST, MAPS, config_map("a", json!({"k": "v"}))).await;
    first.save(None).unwrap();
    let second = TestCluster::builder().snapshot(&file).build().unwrap();
    let (code, found) = send(&second, Method::GET, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!((code, &found), (200, &made));
    assert!(second.revision() >= first.revision());
    assert_eq!(second.object_count(), first.object_count());
}

#[tokio::test]
async fn a_kubeconfig_leads_to_the_port() {
    let cluster = cluster();
    let running = cluster.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let config = kube::config::Kubeconfig::from_yaml(running.kubeconfig()).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
    let names: Vec<String> = namespaces
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|n| n.metadata.name)
        .collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    running.shutdown();
}

#[tokio::test]
async fn a_kube_client_works_without_a_socket() {
    let client = kube::Client::new(cluster().service(), "default");
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(version.major, "1");
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::default_namespaced(client);
    let map = serde_json::from_value(config_map("a", json!({"k": "v"}))).unwrap();
    let made = maps.create(&kube::api::PostParams::default(), &map).await.unwrap();
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
    assert!(maps.get_opt("b").await.unwrap().is_none());
}

#[tokio::test]
async fn a_namespace_with_workloads_ends() {
    let clock = FixedClock("2026-01-01T00:00:00Z".parse().unwrap());
    let cluster = TestCluster::builder().clock(Arc::new(clock)).controllers(true).build().unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    send(&cluster, Method::POST, "/api/v1/namespaces", namespace).await;
    let labels = json!({"app": "a"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "c"}]},
        }},
    });
    let (code, made) =
        send(&cluster, Method::POST, "/apis/apps/v1/namespaces/n/deployments", deployment).await;
    assert_eq!(code, 201, "{made}");
    let (_, pods) = send(&cluster, Method::GET, "/api/v1/namespaces/n/pods", Value::Null).await;
    assert_eq!(pods["items"].as_array().unwrap().len(), 2);
    send(&cluster, Method::DELETE, "/api/v1/namespaces/n", Value::Null).await;
    // Controllers that replace what the end of the namespace deletes would go on for ever.
    assert_eq!(send(&cluster, Method::GET, "/api/v1/namespaces/n", Value::Null).await.0, 404);
    assert!(cluster.objects().iter().all(|object| object["metadata"]["namespace"] != "n"));
}

#[tokio::test]
async fn objects_can_be_changed_on_their_way_in() {
    let change = |object: &mut Value| {
        if object["kind"] == "ConfigMap" {
            object["data"]["from"] = json!("outside");
        }
    };
    let cluster = TestCluster::builder().mutate(change).build().unwrap();
    let path = format!("{MAPS}/a");
    let (_, first) = apply(&cluster, &path, "m", config_map("a", json!({"k": "v"}))).await;
    assert_eq!(first["data"], json!({"k": "v", "from": "outside"}));
    let revision = cluster.revision();
    let (_, second) = apply(&cluster, &path, "m", config_map("a", json!({"k": "v"}))).await;
    assert_eq!((second, cluster.revision()), (first, revision), "a second apply finds nothing to change");
}

#[tokio::test]
async fn definitions_can_be_applied() {
    let cluster = cluster();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-validations": [{"rule": "self.metadata.name != 'x' && self.level != 'self.none'"}],
                    "properties": {"metadata": {"type": "object"},
                    "level": {"type": "string", "default": "info", "enum": ["info", "error"]},
                    "list": {"type": "array", "default": [], "items": {"type": "string"}},
                    "map": {"type": "object", "additionalProperties": {"type": "string"}, "example": {"a": 1}},
                }}}}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let (code, made) = apply(&cluster, path, "m", definition).await;
    assert_eq!(code, 201, "{made}");
    let schema = &made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(schema["level"]["enum"], json!(["info", "error"]));
    assert_eq!(schema["list"]["default"], json!([]));
}

#[tokio::test]
async fn what_has_no_namespace_loses_one() {
    let cluster = cluster();
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/a";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "a", "namespace": "default"}, "rules": [],
    });
    let (code, made) = apply(&cluster, path, "m", role.clone()).await;
    assert_eq!((code, made["metadata"].get("namespace")), (201, None), "{made}");
    let (code, again) = apply(&cluster, path, "m", role).await;
    assert_eq!((code, &again), (200, &made));
}
