use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use weir_apply::cluster::ClusterError;
use weir_apply::memory::Verb;

use crate::world::{World, config, reference};

/// A world in which one ConfigMap is applied.
async fn applied(spec: serde_json::Value) -> World {
    let mut world = World::new(spec, &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    world.run().await.unwrap();
    world.cluster.take_requests();
    world
}

#[tokio::test(start_paused = true)]
async fn objects_go_with_their_kustomization_or_stay() {
    let mut world = applied(json!({})).await;
    assert_eq!(world.finalize().await.unwrap(), ["ConfigMap/n/a deleted"]);
    assert_eq!(world.cluster.peek(&reference("a")), None);
    for spec in [json!({"prune": false}), json!({"deletionPolicy": "Orphan"})] {
        let mut world = applied(spec).await;
        assert!(world.finalize().await.unwrap().is_empty());
        assert!(world.cluster.peek(&reference("a")).is_some());
    }
    let mut world = applied(json!({})).await;
    world.object.spec.suspend = true;
    world.finalize().await.unwrap();
    assert!(world.cluster.peek(&reference("a")).is_some(), "a suspended Kustomization leaves its objects");
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_an_error() {
    let mut world = applied(json!({})).await;
    let forbidden = ClusterError::Api { code: 403, reason: "Forbidden".into(), message: "no".into() };
    world.cluster.fail(Verb::Delete, "*", forbidden, 1);
    assert_eq!(world.finalize().await.unwrap_err(), "pruning for deleted resource failed");
    assert_eq!(world.finalize().await.unwrap(), ["ConfigMap/n/a deleted"]);
}

#[tokio::test(start_paused = true)]
async fn termination_is_waited_for_but_not_for_ever() {
    let mut world = applied(json!({"deletionPolicy": "WaitForTermination", "timeout": "1m"})).await;
    let mut stuck = world.cluster.peek(&reference("a")).unwrap();
    stuck["metadata"]["finalizers"] = json!(["example.com/stuck"]);
    world.cluster.put(stuck);
    let started = Instant::now();
    let told = world.finalize().await.unwrap();
    assert_eq!(told.len(), 2);
    assert!(
        told[1].starts_with("failed to wait for resources termination: timeout waiting for: [ConfigMap/n/a"),
        "{told:?}"
    );
    assert!(started.elapsed() <= Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn without_its_account_nothing_can_be_deleted() {
    let mut world = applied(json!({"serviceAccountName": "gone"})).await;
    assert_eq!(world.finalize().await.unwrap(), ["unable to prune objects: \nConfigMap/n/a"]);
    assert!(world.cluster.peek(&reference("a")).is_some());
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gone", "namespace": "flux-system"}});
    world.cluster.put(account);
    assert_eq!(world.finalize().await.unwrap(), ["ConfigMap/n/a deleted"]);
}
