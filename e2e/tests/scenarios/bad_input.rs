//! Wrong input is explained and destroys nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{
    ArtifactServer, DEADLINE, KUSTOMIZE, Repository, SOURCE, Scenario, eventually, holds, scenario, text,
};
use serde_json::json;

use crate::fleet::{config_map, deployment};

/// How long nothing may happen to what was applied before.
const STAYS: Duration = Duration::from_secs(4);

/// A repository with one ConfigMap in `./app`, applied by the Kustomization `app`.
async fn good(s: &Scenario) -> Result<Repository> {
    let account = json!({ "name": "app", "namespace": s.namespace });
    s.cluster.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account })).await?;
    let repository = s.git.create("fleet")?;
    repository.write("app/kept.yaml", &config_map(&s.namespace, "kept", "one"))?;
    let revision = repository.commit("A good state")?;
    s.start_controllers().await?;
    s.git_repository("fleet", repository.url(), &json!({})).await?;
    s.kustomization("app", "./app", &json!({})).await?;
    s.wait_ready("Kustomization", "app", &revision).await?;
    Ok(repository)
}

/// What was applied is there, unchanged, and stays.
async fn kept(s: &Scenario) -> Result<()> {
    let first = s.cluster.get("v1", "ConfigMap", Some(&s.namespace), "kept").await?;
    holds(STAYS, "the applied object stays as it is", || async {
        let now = s.cluster.get("v1", "ConfigMap", Some(&s.namespace), "kept").await?;
        ensure!(now["metadata"]["uid"] == first["metadata"]["uid"], "it was replaced");
        ensure!(now["metadata"].get("deletionTimestamp").is_none(), "it is being deleted");
        Ok(())
    })
    .await?;
    let kustomization = s.toolkit("Kustomization", "app").await?;
    let entry = format!("{}_kept__ConfigMap", s.namespace);
    let listed = kustomization["status"]["inventory"]["entries"]
        .as_array()
        .is_some_and(|entries| entries.iter().any(|found| found["id"] == entry));
    ensure!(listed, "the inventory forgot the object: {}", kustomization["status"]["inventory"]);
    Ok(())
}

#[test]
fn an_unreachable_repository() {
    scenario("unreachable", |s: Arc<Scenario>| async move {
        good(&s).await?;
        let before = s.toolkit("GitRepository", "fleet").await?;
        s.git_repository("fleet", "http://127.0.0.1:9/fleet.git", &json!({})).await?;
        let message = s
            .wait_failed(
                "GitRepository",
                "fleet",
                "GitOperationFailed",
                &["failed to checkout and determine revision"],
            )
            .await?;
        s.report(&message)?;
        s.wait_event("GitRepository", "fleet", "Warning", "GitOperationFailed", &["failed to checkout"])
            .await?;
        let after = s.toolkit("GitRepository", "fleet").await?;
        ensure!(
            after["status"]["artifact"] == before["status"]["artifact"],
            "the last artifact stays: {}",
            after["status"]
        );
        s.reconcile("Kustomization", "app").await?;
        kept(&s).await
    });
}

#[test]
fn a_path_that_is_not_there() {
    scenario("path", |s: Arc<Scenario>| async move {
        good(&s).await?;
        s.kustomization("app", "./ap", &json!({})).await?;
        let message = s
            .wait_failed("Kustomization", "app", "ArtifactFailed", &["kustomization path not found"])
            .await?;
        s.report(&message)?;
        s.wait_event("Kustomization", "app", "Warning", "ArtifactFailed", &["kustomization path not found"])
            .await?;
        kept(&s).await
    });
}

#[test]
fn broken_yaml() {
    scenario("yaml", |s: Arc<Scenario>| async move {
        let repository = good(&s).await?;
        repository.remove("app/kept.yaml")?;
        repository.write(
            "app/broken.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: broken\n data: wrong\n",
        )?;
        repository.commit("A broken state")?;
        s.request("GitRepository", "fleet").await?;
        let message =
            s.wait_failed("Kustomization", "app", "BuildFailed", &["app/broken.yaml", "line 4"]).await?;
        s.report(&message)?;
        s.wait_event("Kustomization", "app", "Warning", "BuildFailed", &["broken.yaml"]).await?;
        kept(&s).await
    });
}

#[test]
fn an_object_that_the_server_rejects() {
    scenario("rejected", |s: Arc<Scenario>| async move {
        let repository = good(&s).await?;
        repository.remove("app/kept.yaml")?;
        let bad = deployment(&s.namespace, "bad", 1).replace("containerPort: 8080", "containerPort: 99999");
        repository.write("app/bad.yaml", &bad)?;
        repository.commit("A state that the server rejects")?;
        s.request("GitRepository", "fleet").await?;
        let words = ["Deployment/", "bad", "dry-run failed", "containerPort"];
        let message = s.wait_failed("Kustomization", "app", "ReconciliationFailed", &words).await?;
        s.report(&message)?;
        s.wait_event("Kustomization", "app", "Warning", "ReconciliationFailed", &["dry-run failed"]).await?;
        kept(&s).await?;
        ensure!(s.cluster.find("apps/v1", "Deployment", Some(&s.namespace), "bad").await?.is_none());

        // The next commit repairs it.
        repository.write("app/kept.yaml", &config_map(&s.namespace, "kept", "two"))?;
        repository.write("app/bad.yaml", &deployment(&s.namespace, "bad", 1))?;
        let revision = repository.commit("A repaired state")?;
        s.request("GitRepository", "fleet").await?;
        s.wait_ready("Kustomization", "app", &revision).await?;
        Ok(())
    });
}

#[test]
fn a_crd_that_comes_later() {
    scenario("crd", |s: Arc<Scenario>| async move {
        let repository = good(&s).await?;
        let group = format!("{}.example.com", s.namespace);
        repository.write(
            "app/gadget.yaml",
            &format!(
                "apiVersion: {group}/v1\nkind: Gadget\nmetadata:\n  name: one\n  namespace: {}\nspec: {{}}\n",
                s.namespace
            ),
        )?;
        let revision = repository.commit("An object without its CRD")?;
        s.request("GitRepository", "fleet").await?;
        let message =
            s.wait_failed("Kustomization", "app", "ReconciliationFailed", &["Gadget", "one"]).await?;
        s.report(&message)?;
        s.wait_event("Kustomization", "app", "Warning", "ReconciliationFailed", &["Gadget"]).await?;
        kept(&s).await?;
        s.cluster
            .apply(&json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": format!("gadgets.{group}"),
                    // Removed with the scenario.
                    "labels": { "kustomize.toolkit.fluxcd.io/namespace": s.namespace },
                },
                "spec": {
                    "group": group, "scope": "Namespaced", "names": { "kind": "Gadget", "plural": "gadgets" },
                    "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    } } }],
                },
            }))
            .await?;
        s.wait_ready("Kustomization", "app", &revision).await?;
        s.cluster.get(&format!("{group}/v1"), "Gadget", Some(&s.namespace), "one").await?;
        Ok(())
    });
}

#[test]
fn a_dependency_cycle() {
    scenario("cycle", |s: Arc<Scenario>| async move {
        let repository = good(&s).await?;
        for name in ["chicken", "egg"] {
            repository.write(&format!("{name}/{name}.yaml"), &config_map(&s.namespace, name, "one"))?;
        }
        let revision = repository.commit("Two that wait for each other")?;
        s.request("GitRepository", "fleet").await?;
        s.wait_ready("Kustomization", "app", &revision).await?;
        for (name, other) in [("chicken", "egg"), ("egg", "chicken")] {
            s.kustomization(
                name,
                &format!("./{name}"),
                &json!({ "spec": { "dependsOn": [{ "name": other }] } }),
            )
            .await?;
        }
        for (name, other) in [("chicken", "egg"), ("egg", "chicken")] {
            let dependency = format!("dependency '{}/{other}' is not ready", s.namespace);
            let message = s.wait_failed("Kustomization", name, "DependencyNotReady", &[&dependency]).await?;
            s.report(&message)?;
            s.wait_event(
                "Kustomization",
                name,
                "Normal",
                "DependencyNotReady",
                &["Dependencies do not meet ready condition"],
            )
            .await?;
        }
        kept(&s).await?;
        for name in ["chicken", "egg"] {
            ensure!(
                s.cluster.find("v1", "ConfigMap", Some(&s.namespace), name).await?.is_none(),
                "{name} came first"
            );
        }
        // Breaking the cycle ends the wait.
        let spec = json!({ "spec": { "dependsOn": null } });
        s.cluster.edit(KUSTOMIZE, "Kustomization", Some(&s.namespace), "egg", "weir-e2e", &spec).await?;
        s.wait_ready("Kustomization", "chicken", &revision).await?;
        Ok(())
    });
}

#[test]
fn an_artifact_with_a_wrong_digest() {
    scenario("digest", |s: Arc<Scenario>| async move {
        s.start_controllers().await?;
        let (kept_file, other_file) =
            (config_map(&s.namespace, "kept", "one"), config_map(&s.namespace, "other", "one"));
        let honest = ArtifactServer::start(&[("kept.yaml", &kept_file)]).await?;
        // Nobody reconciles a suspended source; its status is this test's.
        s.git_repository("fleet", "http://127.0.0.1:9/none.git", &json!({ "spec": { "suspend": true } }))
            .await?;
        let offer = async |artifact: serde_json::Value| {
            let status = json!({ "artifact": artifact, "observedGeneration": 1 });
            s.cluster.edit_status(SOURCE, "GitRepository", &s.namespace, "fleet", &status).await
        };
        offer(honest.status("main@sha1:0000000000000000000000000000000000000001", honest.digest())).await?;
        s.kustomization("app", "./", &json!({})).await?;
        s.wait_ready("Kustomization", "app", "main@sha1:0000000000000000000000000000000000000001").await?;

        // The digest of something that no controller has seen: a known one needs no download.
        let altered = ArtifactServer::start(&[("other.yaml", &other_file)]).await?;
        let wrong = format!("sha256:{}", "1".repeat(64));
        offer(altered.status("main@sha1:0000000000000000000000000000000000000002", &wrong)).await?;
        let words = ["failed to verify archive", "computed digest doesn't match provided"];
        let message = s.wait_failed("Kustomization", "app", "ArtifactFailed", &words).await?;
        s.report(&message)?;
        s.wait_event("Kustomization", "app", "Warning", "ArtifactFailed", &["failed to verify archive"])
            .await?;
        kept(&s).await?;
        ensure!(
            s.cluster.find("v1", "ConfigMap", Some(&s.namespace), "other").await?.is_none(),
            "an altered artifact was applied"
        );

        offer(altered.status("main@sha1:0000000000000000000000000000000000000002", altered.digest())).await?;
        s.wait_ready("Kustomization", "app", "main@sha1:0000000000000000000000000000000000000002").await?;
        eventually(DEADLINE, "the object that is in no manifest any more is pruned", || async {
            let kept = s.cluster.find("v1", "ConfigMap", Some(&s.namespace), "kept").await?;
            ensure!(
                kept.is_none_or(|kept| !text(&kept, "/metadata/deletionTimestamp").is_empty()),
                "still there"
            );
            Ok(())
        })
        .await
    });
}
