//! What is deleted, what is left alone, and what is tried again.

use serde_json::{Value, json};

use super::*;
use crate::memory::{MemoryCluster, Verb};

fn owner() -> Owner {
    Owner {
        group: "kustomize.toolkit.fluxcd.io".into(),
        name: "apps".into(),
        namespace: "flux-system".into(),
    }
}

fn object(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "n"}})
}

fn owned(kind: &str, name: &str) -> Value {
    let mut object = object(kind, name);
    owner().mark(&mut object);
    object
}

#[tokio::test]
async fn only_own_objects_go_in_reverse_order() {
    let cluster = MemoryCluster::new();
    let foreign = object("ConfigMap", "foreign");
    let mut kept = owned("ConfigMap", "kept");
    kept["metadata"]["annotations"] = json!({"kustomize.toolkit.fluxcd.io/prune": "disabled"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n",
        "labels": owned("Namespace", "n")["metadata"]["labels"]}});
    let all = [namespace, owned("ConfigMap", "a"), owned("Service", "s"), foreign, kept];
    for object in &all {
        cluster.put(object.clone());
    }
    let mut stale: Vec<ObjectRef> = all.iter().map(ObjectRef::of).collect();
    stale.push(ObjectRef::of(&object("Secret", "gone")));
    let pruned = prune(&cluster, &owner(), stale).await;
    assert_eq!(
        pruned.changes.all_lines(),
        "Service/n/s deleted\nSecret/n/gone deleted\nConfigMap/n/kept skipped\nConfigMap/n/foreign skipped\nConfigMap/n/a deleted\nNamespace/n deleted"
    );
    assert_eq!(pruned.result(), Ok(()));
    assert!(
        cluster.peek(&ObjectRef::of(&all[3])).is_some() && cluster.peek(&ObjectRef::of(&all[4])).is_some()
    );
}

#[tokio::test]
async fn failures_do_not_stop_the_rest_and_stay_stale() {
    let cluster = MemoryCluster::new();
    for name in ["a", "b", "c"] {
        cluster.put(owned("ConfigMap", name));
    }
    let error =
        |message: &str| ClusterError::Api { code: 403, reason: "Forbidden".into(), message: message.into() };
    cluster.fail(Verb::Delete, "ConfigMap/n/b", error("no delete"), 1);
    cluster.fail(Verb::Get, "ConfigMap/n/c", error("no get"), 1);
    let stale: Vec<ObjectRef> = ["a", "b", "c"].map(|name| ObjectRef::of(&owned("ConfigMap", name))).into();
    let pruned = prune(&cluster, &owner(), stale).await;
    assert_eq!(
        pruned.result().unwrap_err().to_string(),
        "delete failed, errors: ConfigMap/n/c query failed: no get;ConfigMap/n/b delete failed: no delete;"
    );
    let remaining: Vec<String> = pruned.remaining.iter().map(ToString::to_string).collect();
    assert_eq!(remaining, ["ConfigMap/n/c", "ConfigMap/n/b"]);
    assert_eq!(
        pruned.changes.all_lines(),
        "ConfigMap/n/c unknown\nConfigMap/n/b unknown\nConfigMap/n/a deleted"
    );
}

#[tokio::test]
async fn objects_of_a_kind_that_is_gone_are_gone() {
    let cluster = MemoryCluster::new();
    cluster.set_unknown("", "Widget", true);
    let pruned = prune(&cluster, &owner(), vec![ObjectRef::of(&object("Widget", "w"))]).await;
    assert_eq!(pruned.changes.all_lines(), "Widget/n/w deleted");
    assert_eq!(pruned.remaining, []);
}
