//! From nothing to ready, through a commit, manual changes and deletion.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use e2e::{DEADLINE, KUSTOMIZE, Scenario, eventually, scenario, text};
use serde_json::{Value, json};

use crate::fleet::{Fleet, STAGES};

/// An object of somebody else in a namespace of the fleet, as it must stay.
async fn bystander(s: &Scenario, kind: &str, fleet: &Fleet) -> Result<Value> {
    let [_, _, web] = fleet.namespaces();
    s.cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": { "name": "bystander", "namespace": web, "labels": { "app": "app-0" } },
        }))
        .await
}

async fn all_ready(s: &Scenario, revision: &str) -> Result<()> {
    for (name, _) in STAGES {
        s.wait_ready("Kustomization", name, revision).await?;
    }
    Ok(())
}

#[test]
fn a_fleet_converges_follows_git_and_goes() {
    scenario("fleet", |s: Arc<Scenario>| async move {
        let fleet = Fleet::new(&s.namespace);
        let repository = s.git.create("fleet")?;
        repository.replace(&fleet.files())?;
        let first = repository.commit("First state")?;
        s.start_controllers().await?;

        let begin = Instant::now();
        fleet.install(&s, repository.url(), &json!({})).await?;
        s.wait_ready("GitRepository", "fleet", &first).await?;
        all_ready(&s, &first).await?;
        fleet.matches(&s.cluster).await?;
        s.report(&format!("{} objects ready after {:.1?}", fleet.expected().len(), begin.elapsed()))?;

        // Things of others, which nothing below may touch.
        let mut bystanders = Vec::new();
        for kind in ["ConfigMap", "Secret", "ServiceAccount"] {
            bystanders.push(bystander(&s, kind, &fleet).await?);
        }
        let [_, _, web] = fleet.namespaces();
        let late = s.cluster.get("v1", "ConfigMap", Some(&web), "late").await?;

        // A commit changes, adds, moves and removes.
        let changed = fleet.changed();
        repository.replace(&changed.files())?;
        let second = repository.commit("Second state")?;
        let begin = Instant::now();
        s.request("GitRepository", "fleet").await?;
        all_ready(&s, &second).await?;
        s.report(&format!("a commit is applied after {:.1?}", begin.elapsed()))?;
        // Deleting is not awaited by a prune.
        eventually(DEADLINE, "the cluster is as the second commit", || changed.matches(&s.cluster)).await?;
        let settings = s.cluster.get("v1", "ConfigMap", Some(&web), "settings-0").await?;
        ensure!(text(&settings, "/data/value") == "two", "the change arrived: {settings}");
        let moved = s.cluster.get("v1", "ConfigMap", Some(&web), "late").await?;
        ensure!(
            text(&moved, "/metadata/uid") == text(&late, "/metadata/uid"),
            "an object that moves to a Kustomization which applies first is never deleted"
        );

        // Manual changes are undone, without waiting for the interval of an hour.
        let edit = json!({ "data": { "value": "edited", "extra": "added" } });
        s.cluster.edit("v1", "ConfigMap", Some(&web), "settings-1", "kubectl-edit", &edit).await?;
        let scale = json!({ "spec": { "replicas": 0 } });
        s.cluster.edit("apps/v1", "Deployment", Some(&web), "app-1", "kubectl-edit", &scale).await?;
        s.cluster.delete("v1", "Service", Some(&web), "app-2").await?;
        s.cluster.delete("apps/v1", "Deployment", Some(&web), "app-3").await?;
        let begin = Instant::now();
        eventually(DEADLINE, "manual changes are undone", || async {
            changed.matches(&s.cluster).await?;
            let settings = s.cluster.get("v1", "ConfigMap", Some(&web), "settings-1").await?;
            ensure!(text(&settings, "/data/value") == "one", "an edited value is put back: {settings}");
            ensure!(settings["data"].get("extra").is_none(), "an added value is removed: {settings}");
            let deployment = s.cluster.get("apps/v1", "Deployment", Some(&web), "app-1").await?;
            ensure!(deployment["spec"]["replicas"] == 1, "a scaled workload is scaled back: {deployment}");
            Ok(())
        })
        .await?;
        s.report(&format!("manual changes are undone after {:.1?}", begin.elapsed()))?;
        all_ready(&s, &second).await?;

        // Deleting a Kustomization prunes what it owns, and nothing else.
        s.cluster.delete(KUSTOMIZE, "Kustomization", Some(&s.namespace), "web").await?;
        eventually(DEADLINE, "the objects of 'web' are gone and all others stay", || async {
            let mut expected = changed.expected();
            expected.retain(|_, owner| owner != "web");
            let owned = changed.owned(&s.cluster).await?;
            if owned != expected {
                let surplus: Vec<_> = owned.iter().filter(|entry| !expected.contains_key(entry.0)).collect();
                let missing: Vec<_> = expected.iter().filter(|entry| !owned.contains_key(entry.0)).collect();
                bail!("surplus {surplus:?}, missing {missing:?}");
            }
            Ok(())
        })
        .await?;
        gone(&s, "web").await?;

        for before in &bystanders {
            let kind = text(before, "/kind");
            let after = s.cluster.get("v1", &kind, Some(&web), "bystander").await?;
            ensure!(
                after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"],
                "{kind} of others was touched"
            );
        }

        for (name, _) in STAGES.iter().rev() {
            s.cluster.delete(KUSTOMIZE, "Kustomization", Some(&s.namespace), name).await?;
            gone(&s, name).await?;
        }
        eventually(DEADLINE, "nothing of the fleet is left", || async {
            let left = changed.owned(&s.cluster).await?;
            ensure!(left.is_empty(), "left: {left:?}");
            Ok(())
        })
        .await
    });
}

async fn gone(s: &Scenario, name: &str) -> Result<()> {
    eventually(DEADLINE, &format!("Kustomization '{name}' is gone"), || async {
        let found = s.cluster.find(KUSTOMIZE, "Kustomization", Some(&s.namespace), name).await?;
        ensure!(
            found.is_none(),
            "it still has finalizers {:?}",
            found.map(|found| found["metadata"]["finalizers"].clone())
        );
        Ok(())
    })
    .await
}
