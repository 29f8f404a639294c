//! Helm charts from a Git repository and from a chart repository.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::routing::get;
use e2e::{DEADLINE, SOURCE, Scenario, condition, eventually, scenario, text};
use serde_json::{Value, json};

/// Waits until an object is ready with a version of a chart, and returns it.
async fn ready_with(s: &Scenario, kind: &str, name: &str, revision: &str) -> Result<Value> {
    eventually(DEADLINE, &format!("{kind}/{name} is ready at {revision}"), || async {
        let object = s.cluster.get(SOURCE, kind, Some(&s.namespace), name).await?;
        let ready = condition(&object, "Ready").context("no Ready condition")?;
        ensure!(text(ready, "/status") == "True", "{ready}");
        ensure!(text(&object, "/status/artifact/revision").starts_with(revision), "{object}");
        Ok(())
    })
    .await?;
    s.cluster.get(SOURCE, kind, Some(&s.namespace), name).await
}

fn stored(s: &Scenario, object: &Value) -> Result<Vec<u8>> {
    Ok(std::fs::read(s.storage().join(text(object, "/status/artifact/path")))?)
}

fn names(package: &[u8]) -> Result<Vec<String>> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(package));
    archive.entries()?.map(|entry| Ok(entry?.path()?.display().to_string())).collect()
}

fn chart(s: &Scenario, name: &str, kind: &str, source: &str, chart: &str) -> Value {
    json!({
        "apiVersion": SOURCE, "kind": "HelmChart",
        "metadata": { "name": name, "namespace": s.namespace },
        "spec": { "chart": chart, "interval": "1h", "sourceRef": { "kind": kind, "name": source } },
    })
}

#[test]
fn charts_are_packaged_fetched_and_collected() {
    scenario("charts", |s: Arc<Scenario>| async move {
        let repository = s.git.create("charts")?;
        let metadata = |version: &str| {
            format!(
                "apiVersion: v2\nname: app\nversion: {version}\ndependencies:\n- name: lib\n  version: 1.x\n  \
                 repository: file://../lib\n"
            )
        };
        repository.write("charts/app/Chart.yaml", &metadata("1.0.0"))?;
        repository.write("charts/app/values.yaml", "replicas: 1\n")?;
        repository.write("charts/app/templates/map.yaml", "apiVersion: v1\nkind: ConfigMap\n")?;
        repository.write("charts/lib/Chart.yaml", "apiVersion: v2\nname: lib\nversion: 1.2.0\n")?;
        repository.write("production.yaml", "replicas: 3\n")?;
        repository.commit("First chart")?;
        s.start_controllers().await?;

        // A chart of a Git repository, with its dependency and then with other values.
        s.git_repository("charts", repository.url(), &json!({})).await?;
        s.cluster.apply(&chart(&s, "git", "GitRepository", "charts", "./charts/app")).await?;
        let object = ready_with(&s, "HelmChart", "git", "1.0.0").await?;
        let package = stored(&s, &object)?;
        ensure!(
            names(&package)?
                == [
                    "app/Chart.yaml",
                    "app/values.yaml",
                    "app/templates/map.yaml",
                    "app/charts/lib/Chart.yaml"
                ],
            "{:?}",
            names(&package)
        );
        let message = text(condition(&object, "Ready").context("Ready")?, "/message");
        ensure!(message == "packaged 'app' chart with version '1.0.0'", "{message}");
        let mut other = chart(&s, "values", "GitRepository", "charts", "charts/app");
        other["spec"]["valuesFiles"] = json!(["production.yaml"]);
        other["spec"]["reconcileStrategy"] = json!("Revision");
        s.cluster.apply(&other).await?;
        let object = ready_with(&s, "HelmChart", "values", "1.0.0+").await?;
        ensure!(text(&object, "/status/artifact/revision").ends_with(".1"), "{object}");

        // A new version in Git arrives without waiting for the interval of the chart.
        repository.write("charts/app/Chart.yaml", &metadata("1.1.0"))?;
        repository.commit("Second chart")?;
        s.request("GitRepository", "charts").await?;
        ready_with(&s, "HelmChart", "git", "1.1.0").await?;

        // The first package in a chart repository.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let index = "apiVersion: v1\nentries:\n  app:\n  - name: app\n    version: 1.0.0\n    urls: [app-1.0.0.tgz]\n";
        let served = package.clone();
        let router = Router::new()
            .route("/index.yaml", get(move || async move { index }))
            .route("/app-1.0.0.tgz", get(move || async move { served }));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let helm = |name: &str, spec: Value| {
            json!({
                "apiVersion": SOURCE, "kind": "HelmRepository",
                "metadata": { "name": name, "namespace": s.namespace }, "spec": spec,
            })
        };
        s.cluster.apply(&helm("web", json!({ "url": url, "interval": "1h" }))).await?;
        ready_with(&s, "HelmRepository", "web", "sha256:").await?;
        s.cluster.apply(&chart(&s, "web", "HelmRepository", "web", "app")).await?;
        let object = ready_with(&s, "HelmChart", "web", "1.0.0").await?;
        ensure!(stored(&s, &object)? == package, "the package is stored as it came");
        let mut missing = chart(&s, "missing", "HelmRepository", "web", "app");
        missing["spec"]["version"] = json!(">=2");
        s.cluster.apply(&missing).await?;
        eventually(DEADLINE, "a version that is not there is said so", || async {
            let object = s.cluster.get(SOURCE, "HelmChart", Some(&s.namespace), "missing").await?;
            let stalled = condition(&object, "Stalled").context("not stalled")?;
            ensure!(text(stalled, "/reason") == "InvalidChartReference", "{stalled}");
            Ok(())
        })
        .await?;

        // A registry has no status and no finalizer.
        s.cluster.apply(&helm("oci", json!({ "url": "oci://example.com/charts", "type": "oci" }))).await?;
        eventually(DEADLINE, "a registry is only read by others", || async {
            let object = s.cluster.get(SOURCE, "HelmRepository", Some(&s.namespace), "oci").await?;
            ensure!(object["status"] == json!({}), "{}", object["status"]);
            ensure!(object["metadata"].get("finalizers").is_none(), "{}", object["metadata"]);
            Ok(())
        })
        .await?;

        for (kind, name) in [("HelmChart", "git"), ("HelmChart", "web"), ("HelmRepository", "web")] {
            s.cluster.delete(SOURCE, kind, Some(&s.namespace), name).await?;
        }
        eventually(DEADLINE, "what is deleted is collected", || async {
            for directory in ["helmchart", "helmrepository"] {
                for name in ["git", "web"] {
                    let path = s.storage().join(directory).join(&s.namespace).join(name);
                    ensure!(!path.exists(), "{} is still there", path.display());
                }
            }
            Ok(())
        })
        .await?;
        server.abort();
        Ok(())
    });
}
