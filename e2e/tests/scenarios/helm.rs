//! A Helm release through its life: installed, tested, left alone, kept from drifting, upgraded, rolled back,
//! taken over, uninstalled.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::{ArtifactServer, Call, DEADLINE, Scenario, condition, eventually, scenario, text};
use serde_json::{Value, json};

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, labels: {app: {{ .Release.Name }}}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
      {{- if .Values.broken }}
      annotations: {testenv.weir.dev/fail: CrashLoopBackOff}
      {{- end }}
    spec:
      containers: [{name: web, image: "example.com/web:{{ .Chart.Version }}"}]
"#;
const SERVICE: &str = r"
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {selector: {app: {{ .Release.Name }}}, ports: [{name: http, port: 80}]}
";
const HOOK: &str = r#"
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-migrate
  annotations: {helm.sh/hook: "pre-install,pre-upgrade"}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: migrate, image: "example.com/migrate:1"}]}
"#;
const TEST: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: {{ .Release.Name }}-test, annotations: {helm.sh/hook: test}}
spec: {restartPolicy: Never, containers: [{name: test, image: "example.com/test:1"}]}
"#;

async fn chart(version: &str) -> Result<ArtifactServer> {
    let metadata = format!("apiVersion: v2\nname: web\nversion: {version}\n");
    ArtifactServer::start(&[
        ("web/Chart.yaml", &metadata),
        ("web/values.yaml", "replicas: 2\nbroken: false\n"),
        ("web/templates/deployment.yaml", DEPLOYMENT),
        ("web/templates/service.yaml", SERVICE),
        ("web/templates/hook.yaml", HOOK),
        ("web/templates/test.yaml", TEST),
    ])
    .await
}

/// Makes an archive the artifact of the HelmChart, as source-controller would.
async fn publish(s: &Scenario, chart: &ArtifactServer, version: &str) -> Result<()> {
    let status = json!({"observedGeneration": 1, "artifact": chart.status(version, chart.digest())});
    s.cluster.edit_status(e2e::SOURCE, "HelmChart", &s.namespace, "web", &status).await?;
    Ok(())
}

async fn change(s: &Scenario, spec: &Value) -> Result<()> {
    let change = json!({ "spec": spec });
    s.cluster.edit(e2e::HELM, "HelmRelease", Some(&s.namespace), "web", "weir-e2e", &change).await?;
    Ok(())
}

/// Waits until the release is ready, or not, for a reason, at a revision.
async fn wait(s: &Scenario, status: &str, reason: &str, revision: i64) -> Result<Value> {
    eventually(DEADLINE, &format!("the release is {status} {reason} at revision {revision}"), || async {
        let object = s.toolkit("HelmRelease", "web").await?;
        let ready = condition(&object, "Ready").cloned().unwrap_or_default();
        let version = object["status"]["history"][0]["version"].as_i64().unwrap_or_default();
        let observed = object["status"]["lastAttemptedGeneration"] == object["metadata"]["generation"];
        ensure!(
            ready["status"] == status && ready["reason"] == reason && version == revision && observed,
            "revision {version}: {ready}"
        );
        Ok(object)
    })
    .await
}

async fn replicas(s: &Scenario) -> Result<Value> {
    let deployment = s.cluster.get("apps/v1", "Deployment", Some(&s.namespace), "web").await?;
    Ok(deployment["spec"]["replicas"].clone())
}

#[test]
fn a_release_lives_its_life() {
    scenario("helm", |s: Arc<Scenario>| async move {
        let first = chart("1.0.0").await?;
        s.start_helm().await?;
        let source = json!({"kind": "HelmRepository", "name": "nowhere"});
        let object = json!({
            "apiVersion": e2e::SOURCE, "kind": "HelmChart", "metadata": {"name": "web", "namespace": s.namespace},
            "spec": {"chart": "web", "version": "1.x", "interval": "1h", "sourceRef": source},
        });
        s.cluster.apply(&object).await?;
        publish(&s, &first, "1.0.0").await?;
        let object = json!({
            "apiVersion": e2e::HELM, "kind": "HelmRelease", "metadata": {"name": "web", "namespace": s.namespace},
            "spec": {
                "interval": "1h", "timeout": "30s",
                "chartRef": {"kind": "HelmChart", "name": "web"},
                "test": {"enable": true},
                "driftDetection": {"mode": "enabled"},
                "upgrade": {"remediation": {"retries": 1}},
            },
        });
        s.cluster.apply(&object).await?;
        let installed = wait(&s, "True", "TestSucceeded", 1).await?;
        ensure!(text(&installed, "/status/history/0/testHooks/web-test/phase") == "Succeeded");
        s.report(&format!(
            "install with hook, rollout and test: {} of {}",
            text(&installed, "/status/lastAttemptedReleaseActionDuration"),
            s.helm_api.counts()
        ))?;

        // Nothing to do: nothing is written but that the request was handled.
        let before = s.helm_api.counts();
        s.reconcile("HelmRelease", "web").await?;
        let quiet = s.helm_api.counts().since(&before);
        let managed = quiet.count(|call: &Call| call.is_write() && call.resource != "helmreleases/status");
        s.report(&format!("a run that finds nothing to do: {quiet}"))?;
        // Drift is looked for by dry-run, one for each of the two objects.
        ensure!(managed <= 2, "{quiet}");

        let scaled = json!({"spec": {"replicas": 5}});
        s.cluster.edit("apps/v1", "Deployment", Some(&s.namespace), "web", "someone", &scaled).await?;
        s.reconcile("HelmRelease", "web").await?;
        ensure!(replicas(&s).await? == 2, "the drift is undone");
        s.wait_event("HelmRelease", "web", "Normal", "DriftCorrected", &["Deployment"]).await?;

        let second = chart("1.1.0").await?;
        publish(&s, &second, "1.1.0").await?;
        wait(&s, "True", "TestSucceeded", 2).await?;

        change(&s, &json!({"values": {"broken": true, "replicas": 1}})).await?;
        let failed = wait(&s, "False", "RollbackSucceeded", 6).await?;
        let stalled = condition(&failed, "Stalled").cloned().unwrap_or_default();
        ensure!(stalled["reason"] == "RetriesExceeded", "{stalled}");
        ensure!(replicas(&s).await? == 2, "the old state is back");
        change(&s, &json!({"values": {"broken": false, "replicas": 3}})).await?;
        wait(&s, "True", "TestSucceeded", 7).await?;
        ensure!(replicas(&s).await? == 3);

        // A new process takes over without a release.
        {
            let mut helm = s.helm.lock().await;
            if let Some(helm) = helm.as_mut() {
                helm.kill().await?;
                helm.spawn()?;
                helm.wait_ready().await?;
            }
        }
        s.reconcile("HelmRelease", "web").await?;
        wait(&s, "True", "TestSucceeded", 7).await?;

        s.cluster.delete(e2e::HELM, "HelmRelease", Some(&s.namespace), "web").await?;
        eventually(DEADLINE, "the release is gone with all it had", || async {
            let left = s.cluster.find(e2e::HELM, "HelmRelease", Some(&s.namespace), "web").await?;
            ensure!(left.is_none(), "still there");
            Ok(())
        })
        .await?;
        let deployment = s.cluster.find("apps/v1", "Deployment", Some(&s.namespace), "web").await?;
        ensure!(deployment.is_none(), "the Deployment is left");
        let records = s.cluster.list("v1", "Secret", Some(&s.namespace), "owner=helm").await?;
        ensure!(records.is_empty(), "{} records are left", records.len());
        Ok(())
    });
}
