//! What happens when something changes, and what does not happen while nothing does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::checks::{is_ready_at, kustomization_path, text};
use crate::world::{NAMESPACE, World, url_of};

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(5);

fn test(body: impl AsyncFnOnce(World)) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { body(World::new(1).await).await });
}

async fn source(world: &World, name: &str) {
    world
        .apply(&json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"interval": "1m", "url": "https://example.com/x"}}))
        .await;
}

async fn kustomization(world: &World, name: &str, change: &Value) {
    let mut spec = json!({
        "interval": "1m", "retryInterval": "10s", "timeout": "30s", "prune": true, "wait": true, "path": format!("./{name}"),
        "sourceRef": {"kind": "GitRepository", "name": "fleet"},
    });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    world
        .apply(&json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}))
        .await;
}

fn config(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "apps"}, "data": {"value": value}})
}

fn web(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "apps"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]}}},
    })
}

fn files(directories: &[(&str, Vec<Value>)]) -> BTreeMap<String, String> {
    let text = |objects: &[Value]| objects.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    directories.iter().map(|(name, objects)| (format!("{name}/objects.yaml"), text(objects))).collect()
}

/// Waits in small steps; how long it took.
async fn until(world: &World, what: &str, test: impl AsyncFn() -> bool) -> Duration {
    let start = world.elapsed();
    while !test().await {
        assert!(world.elapsed().saturating_sub(start) < DEADLINE, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.elapsed().saturating_sub(start)
}

async fn is_ready(world: &World, name: &str, revision: &str) -> bool {
    world.get(&kustomization_path(name)).await.is_some_and(|found| is_ready_at(&found, revision))
}

async fn until_ready(world: &World, name: &str, revision: &str) -> Duration {
    until(world, &format!("'{name}' is ready at {revision}"), async || is_ready(world, name, revision).await)
        .await
}

/// Waits for the lease and the first lists.
async fn settle(world: &World) {
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.log.lock().writes.clear();
    world.log.lock().reads.clear();
}

#[test]
fn ready_follows_the_last_object_within_100_ms() {
    test(async |mut world| {
        source(&world, "fleet").await;
        let process = world.start();
        settle(&world).await;
        kustomization(&world, "app", &json!({})).await;
        world.publish("r1", &files(&[("app", vec![web("one"), web("two"), config("c", "1")])])).await;
        let available = async || {
            let deployments = world.list("/apis/apps/v1/namespaces/apps/deployments").await;
            deployments.len() == 2
                && deployments
                    .iter()
                    .all(|found| found.pointer("/status/availableReplicas") == Some(&json!(1)))
        };
        until(&world, "the Deployments are available", available).await;
        let late = until_ready(&world, "app", "r1").await;
        assert!(late <= Duration::from_millis(100), "{late:?} after the last object");
        process.kill();
    });
}

#[test]
fn a_chain_of_ten_is_ready_in_seconds() {
    test(async |mut world| {
        source(&world, "fleet").await;
        let process = world.start();
        settle(&world).await;
        let names: Vec<String> = (0..10).map(|number| format!("link{number}")).collect();
        let content: Vec<(&str, Vec<Value>)> =
            names.iter().map(|name| (name.as_str(), vec![web(name)])).collect();
        world.publish("r1", &files(&content)).await;
        for (number, name) in names.iter().enumerate().rev() {
            let depends = if number == 0 { json!([]) } else { json!([{"name": names[number - 1]}]) };
            kustomization(&world, name, &json!({"dependsOn": depends})).await;
        }
        let took = until_ready(&world, "link9", "r1").await;
        // Each link waits about a third of a second for its Pod; --requeue-dependency is 5 s here.
        assert!(took < Duration::from_secs(10), "{took:?}");
        process.kill();
    });
}

#[test]
fn an_unchanged_world_is_asked_nothing() {
    test(async |mut world| {
        source(&world, "fleet").await;
        let process = world.start();
        let variables = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vars", "namespace": NAMESPACE}, "data": {"A": "one"}});
        world.apply(&variables).await;
        kustomization(&world, "app", &json!({})).await;
        let from = json!({"postBuild": {"substituteFrom": [{"kind": "ConfigMap", "name": "vars"}]}});
        kustomization(&world, "variables", &from).await;
        let many: Vec<Value> = (0..20).map(|number| config(&format!("c{number}"), "1")).collect();
        let content = [("app", [many, vec![web("one")]].concat()), ("variables", vec![config("v", "${A}")])];
        world.publish("r1", &files(&content)).await;
        until_ready(&world, "app", "r1").await;
        until_ready(&world, "variables", "r1").await;
        // The status of the Deployment goes on to change for a moment; it is looked at once more.
        tokio::time::sleep(Duration::from_mins(3)).await;
        settle(&world).await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        let log = world.log.lock();
        assert!(log.writes.is_empty(), "{:?}", log.writes);
        let paths: BTreeSet<&String> = log.reads.iter().collect();
        let wanted = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/vars");
        assert_eq!(paths, BTreeSet::from([&wanted]), "only the variables are read");
        assert!((9..=12).contains(&log.reads.len()), "once a minute, not {} times", log.reads.len());
        process.kill();
    });
}

#[test]
fn only_what_drifted_is_looked_at() {
    test(async |mut world| {
        source(&world, "fleet").await;
        let process = world.start();
        kustomization(&world, "app", &json!({"wait": false})).await;
        let many: Vec<Value> = (0..20).map(|number| config(&format!("c{number}"), "1")).collect();
        world.publish("r1", &files(&[("app", many)])).await;
        until_ready(&world, "app", "r1").await;
        settle(&world).await;
        let path = "/api/v1/namespaces/apps/configmaps/c7";
        assert!(world.patch(path, "somebody", &json!({"data": {"value": "2"}})).await);
        let undone = async || world.get(path).await.is_some_and(|found| text(&found, "/data/value") == "1");
        let took = until(&world, "the edit is undone", undone).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        {
            let log = world.log.lock();
            let objects: Vec<&String> =
                log.reads.iter().filter(|read| read.contains("/configmaps/")).collect();
            assert_eq!(objects, [path, path], "a read and a dry-run of one object");
            let written: Vec<&str> = log
                .writes
                .iter()
                .map(|sent| sent.path.as_str())
                .filter(|path| path.contains("/configmaps/"))
                .collect();
            assert_eq!(written, [path]);
            assert_eq!(world.artifacts.fetched.lock().len(), 1, "what was built is used again");
        }

        // The rest is still watched.
        let other = "/api/v1/namespaces/apps/configmaps/c8";
        assert!(world.delete(other).await);
        until(&world, "the object is back", async || world.get(other).await.is_some()).await;
        process.kill();
    });
}

#[test]
fn many_commits_become_few_runs() {
    test(async |mut world| {
        source(&world, "fleet").await;
        let process = world.start();
        kustomization(&world, "app", &json!({})).await;
        settle(&world).await;
        *world.artifacts.delay.lock() = Duration::from_secs(5);
        for number in 1..=20 {
            world
                .publish(&format!("r{number}"), &files(&[("app", vec![config("c", &number.to_string())])]))
                .await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        until_ready(&world, "app", "r20").await;
        let fetched = world.artifacts.fetched.lock().clone();
        assert!(fetched.len() <= 3, "{fetched:?}");
        assert_eq!(fetched.last(), Some(&url_of("fleet", "r20")));
        process.kill();
    });
}

/// The order in which Kustomizations were first written about.
fn order(world: &World) -> Vec<String> {
    let mut order = Vec::new();
    for sent in &world.log.lock().writes {
        let name =
            sent.path.strip_prefix(&kustomization_path("")).map(|rest| rest.trim_end_matches("/status"));
        if let Some(name) = name.filter(|_| sent.method == Method::PATCH)
            && !order.iter().any(|known| known == name)
        {
            order.push(name.to_owned());
        }
    }
    order
}

#[test]
fn what_people_wait_for_goes_before_periodic_work() {
    test(async |mut world| {
        source(&world, "fleet").await;
        source(&world, "other").await;
        let names: Vec<String> = (0..30).map(|number| format!("app{number:02}")).collect();
        let content: Vec<(&str, Vec<Value>)> =
            names.iter().map(|name| (name.as_str(), vec![config(name, "1")])).collect();
        world.publish("r1", &files(&content)).await;
        world.publish_to("other", "r1", &files(&content)).await;
        for name in &names {
            let other = json!({"sourceRef": {"kind": "GitRepository", "name": if name == "app28" { "other" } else { "fleet" }}});
            kustomization(&world, name, &other).await;
        }
        // At the start everything is due, which is periodic work. Each run takes a while, with two workers.
        *world.artifacts.delay.lock() = Duration::from_millis(500);
        let process = world.start();
        until(&world, "the first runs have begun", async || world.artifacts.fetched.lock().len() >= 2).await;
        let asked = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "now"}}});
        assert!(world.patch(&kustomization_path("app29"), "flux", &asked).await);
        world.publish_to("other", "r2", &files(&content)).await;
        for name in &names {
            let revision = if name == "app28" { "r2" } else { "r1" };
            until_ready(&world, name, revision).await;
        }
        let order = order(&world);
        let place = |name: &str| order.iter().position(|found| found == name).unwrap();
        assert!(place("app29") <= 4 && place("app28") <= 5, "{order:?}");
        process.kill();
    });
}

#[test]
fn what_hangs_keeps_no_worker() {
    test(async |mut world| {
        source(&world, "fleet").await;
        for name in ["slow0", "slow1", "slow2", "slow3"] {
            source(&world, name).await;
            world.artifacts.delays.lock().insert(url_of(name, "r1"), Duration::from_mins(20));
            world.publish_to(name, "r1", &files(&[(name, vec![config(name, "1")])])).await;
            kustomization(&world, name, &json!({"sourceRef": {"kind": "GitRepository", "name": name}})).await;
        }
        let process = world.start();
        until(&world, "the slow ones hang", async || world.artifacts.fetched.lock().len() == 4).await;
        world.publish("r1", &files(&[("app", vec![config("c", "1")])])).await;
        kustomization(&world, "app", &json!({})).await;
        let took = until_ready(&world, "app", "r1").await;
        assert!(took < Duration::from_secs(5), "{took:?}, with two workers and four that hang");
        process.kill();
    });
}
