//! Artifacts composed of other sources, and what reads them.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use e2e::{DEADLINE, EXTENSIONS, SOURCE, Scenario, condition, eventually, scenario, text};
use serde_json::{Value, json};

fn map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{value: \"{value}\"}}\n")
}

/// Waits until a ConfigMap has a value.
async fn wait_value(s: &Scenario, name: &str, value: &str) -> Result<()> {
    eventually(DEADLINE, &format!("ConfigMap '{name}' is {value}"), || async {
        let found = s.cluster.get("v1", "ConfigMap", Some(&s.namespace), name).await?;
        ensure!(text(&found, "/data/value") == value, "{}", found["data"]);
        Ok(())
    })
    .await
}

async fn external(s: &Scenario, name: &str) -> Result<Option<Value>> {
    s.cluster.find(SOURCE, "ExternalArtifact", Some(&s.namespace), name).await
}

async fn ready(s: &Scenario, reason: &str) -> Result<Value> {
    eventually(DEADLINE, &format!("the generator says {reason}"), || async {
        let object = s.cluster.get(EXTENSIONS, "ArtifactGenerator", Some(&s.namespace), "apps").await?;
        let ready = condition(&object, "Ready").context("no Ready condition")?;
        ensure!(text(ready, "/reason") == reason, "{ready}");
        ensure!(ready["observedGeneration"] == object["metadata"]["generation"], "{ready}");
        Ok(object)
    })
    .await
}

#[test]
fn generators_compose_artifacts_that_are_applied() {
    scenario("generators", |s: Arc<Scenario>| async move {
        let repository = s.git.create("apps")?;
        repository.write("apps/web/map.yaml", &map("web", "1"))?;
        repository.write("apps/web/README.md", "left out")?;
        repository.write("apps/db/map.yaml", &map("db", "1"))?;
        repository.write("shared/labels.yaml", &map("shared", "1"))?;
        repository.commit("First")?;
        s.start_controllers_with(&["--feature-gates=ExternalArtifact=true"]).await?;
        s.start_watcher().await?;
        s.git_repository("apps", repository.url(), &json!({})).await?;
        let generator = json!({
            "apiVersion": EXTENSIONS, "kind": "ArtifactGenerator",
            "metadata": { "name": "apps", "namespace": s.namespace },
            "spec": {
                "sources": [{ "alias": "git", "kind": "GitRepository", "name": "apps" }],
                "pathPattern": "@git/apps/{app}",
                "artifacts": [{
                    "name": "app-{app}", "originRevision": "@git",
                    "copy": [
                        { "from": "@git/apps/{app}/**", "to": "@artifact/", "exclude": ["*.md"] },
                        { "from": "@git/shared/labels.yaml", "to": "@artifact/shared/" },
                    ],
                }],
            },
        });
        s.cluster.apply(&generator).await?;
        let object = ready(&s, "Succeeded").await?;
        ensure!(object["status"]["inventory"].as_array().map(Vec::len) == Some(2), "{}", object["status"]);
        s.wait_event("ArtifactGenerator", "apps", "Normal", "Ready", &["external artifacts reconciled"])
            .await?;
        let web = external(&s, "app-web").await?.context("no ExternalArtifact")?;
        ensure!(text(&web, "/status/artifact/revision").starts_with("latest@sha256:"), "{web}");
        ensure!(text(&web, "/metadata/labels/app") == "web", "{}", web["metadata"]);
        let origin = &web["status"]["artifact"]["metadata"]["org.opencontainers.image.revision"];
        ensure!(origin.as_str().is_some_and(|origin| origin.starts_with("main@sha1:")), "{origin}");

        // Applied from there, and again when the source changes.
        let source = json!({ "spec": {
            "sourceRef": { "kind": "ExternalArtifact", "name": "app-web" },
            "targetNamespace": s.namespace,
        } });
        s.kustomization("web", "./", &source).await?;
        wait_value(&s, "web", "1").await?;
        let before =
            text(&external(&s, "app-db").await?.context("no ExternalArtifact")?, "/status/artifact/revision");
        repository.write("apps/web/map.yaml", &map("web", "2"))?;
        repository.commit("Second")?;
        s.request("GitRepository", "apps").await?;
        wait_value(&s, "web", "2").await?;
        // What did not change keeps its revision.
        let after =
            text(&external(&s, "app-db").await?.context("no ExternalArtifact")?, "/status/artifact/revision");
        ensure!(after == before, "{before} became {after}");

        // Nothing to do: nothing is written but that the request was handled.
        let counts = s.source_api.counts();
        s.reconcile("ArtifactGenerator", "apps").await?;
        let quiet = s.source_api.counts().since(&counts);
        s.report(&format!("a run that finds nothing to do: {quiet}"))?;
        ensure!(
            quiet.count(|call: &e2e::Call| call.is_write() && call.resource != "artifactgenerators/status")
                == 0,
            "{quiet}"
        );

        // A damaged file is built again.
        let web = external(&s, "app-web").await?.context("no ExternalArtifact")?;
        let file = s.watcher_storage().join(text(&web, "/status/artifact/path"));
        let content = std::fs::read(&file)?;
        std::fs::write(&file, b"damaged")?;
        s.reconcile("ArtifactGenerator", "apps").await?;
        ensure!(std::fs::read(&file)? == content, "the file is not repaired");

        // A directory that goes takes its artifact with it; an edit is undone.
        repository.remove("apps/db")?;
        repository.commit("Third")?;
        s.request("GitRepository", "apps").await?;
        eventually(DEADLINE, "the artifact of a directory that is gone goes", || async {
            ensure!(external(&s, "app-db").await?.is_none(), "still there");
            let directory = s.watcher_storage().join("externalartifact").join(&s.namespace).join("app-db");
            ensure!(!directory.exists(), "its files are still there");
            Ok(())
        })
        .await?;
        s.cluster.delete(SOURCE, "ExternalArtifact", Some(&s.namespace), "app-web").await?;
        s.reconcile("ArtifactGenerator", "apps").await?;
        ensure!(external(&s, "app-web").await?.is_some(), "a deleted ExternalArtifact comes back");

        // What cannot be: said, and not tried again.
        let mut broken = generator.clone();
        broken["spec"]["artifacts"][0]["revision"] = json!("@nowhere");
        s.cluster.apply(&broken).await?;
        let object = ready(&s, "ValidationFailed").await?;
        ensure!(condition(&object, "Stalled").is_some(), "{}", object["status"]);
        s.cluster.apply(&generator).await?;
        s.cluster.delete(EXTENSIONS, "ArtifactGenerator", Some(&s.namespace), "apps").await?;
        eventually(DEADLINE, "a deleted generator takes everything with it", || async {
            let left = s.cluster.find(EXTENSIONS, "ArtifactGenerator", Some(&s.namespace), "apps").await?;
            ensure!(left.is_none(), "still there");
            ensure!(external(&s, "app-web").await?.is_none(), "its ExternalArtifact is still there");
            Ok(())
        })
        .await?;
        Ok(())
    });
}
