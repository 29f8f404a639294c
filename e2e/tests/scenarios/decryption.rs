//! Encrypted files of a repository reach the cluster in plain, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::{DEADLINE, Scenario, eventually, scenario, text};
use serde_json::{Value, json};

macro_rules! encrypted {
    ($path:literal) => {
        include_str!(concat!("../../../crates/weir-sops/tests/golden/", $path))
    };
}

const AGE: &str = include_str!("../../../crates/weir-sops/tests/keys/age.agekey");
const PGP: &str = include_str!("../../../crates/weir-sops/tests/keys/pgp_rsa.asc");

fn files() -> BTreeMap<String, String> {
    let kustomization = "
resources: [secret.yaml, web.yaml]
secretGenerator:
- name: environment
  envs: [.env]
- name: files
  files: [token.encrypted, .dockerconfigjson=docker.json]
- name: pgp
  envs: [pgp.env]
patches:
- path: patch.yaml
generatorOptions: {disableNameSuffixHash: true}
";
    let web = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
";
    // A line that a shell would export is no key of a Secret.
    let environment: Vec<&str> = encrypted!("dotenv-regex/encrypted.dotenv")
        .lines()
        .filter(|line| !line.starts_with("export "))
        .collect();
    let environment = environment.join("\n") + "\n";
    [
        ("app/kustomization.yaml", kustomization),
        ("app/secret.yaml", encrypted!("yaml-encrypted-regex/encrypted.yaml")),
        ("app/web.yaml", web),
        ("app/.env", environment.as_str()),
        ("app/pgp.env", encrypted!("key-pgp-dotenv/encrypted.dotenv")),
        ("app/token.encrypted", encrypted!("binary-text/encrypted.binary")),
        ("app/docker.json", encrypted!("json-dockerconfig/encrypted.json")),
        ("app/patch.yaml", encrypted!("yaml-patch/encrypted.yaml")),
    ]
    .into_iter()
    .map(|(path, content)| (path.to_owned(), content.to_owned()))
    .collect()
}

async fn put_keys(s: &Scenario, keys: &Value) -> Result<()> {
    s.cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "keys", "namespace": s.namespace,
                "labels": { "reconcile.fluxcd.io/watch": "Enabled" },
            },
            "stringData": keys,
        }))
        .await?;
    Ok(())
}

#[test]
fn encrypted_files_are_applied_in_plain_or_not_at_all() {
    scenario("decryption", |s: Arc<Scenario>| async move {
        let repository = s.git.create("fleet")?;
        repository.replace(&files())?;
        let revision = repository.commit("Encrypted")?;
        s.start_controllers().await?;
        s.git_repository("fleet", repository.url(), &json!({})).await?;
        s.wait_ready("GitRepository", "fleet", &revision).await?;

        // Without keys nothing arrives, and the message says what to do.
        let decryption = json!({ "provider": "sops", "secretRef": { "name": "keys" } });
        let change = json!({ "spec": { "targetNamespace": s.namespace, "decryption": decryption } });
        s.kustomization("app", "./app", &change).await?;
        s.wait_failed("Kustomization", "app", "BuildFailed", &["secrets \"keys\" not found"]).await?;
        put_keys(&s, &json!({ "test.asc": PGP })).await?;
        let words =
            ["error decrypting sources: 'app/.env': cannot get sops data key", "Group 0: FAILED", "age1"];
        s.wait_failed("Kustomization", "app", "BuildFailed", &words).await?;
        let found = s.cluster.find("v1", "Secret", Some(&s.namespace), "environment").await?;
        ensure!(found.is_none(), "nothing is applied: {found:?}");

        // With them everything arrives in plain; the labelled Secret starts the run.
        put_keys(&s, &json!({ "test.asc": PGP, "test.agekey": AGE })).await?;
        s.wait_ready("Kustomization", "app", &revision).await?;
        let data = async |name: &str, key: &str| -> Result<String> {
            let secret = s.cluster.get("v1", "Secret", Some(&s.namespace), name).await?;
            Ok(secret["data"][key].as_str().unwrap_or_default().to_owned())
        };
        for (name, key, plain) in [
            ("db", "user", "YWRtaW4="),
            ("environment", "PASSWORD", "cD1hPXM9cw=="),
            ("files", "token.encrypted", "anVzdCB0ZXh0CndpdGggbGluZXMK"),
            ("pgp", "A", "MQ=="),
        ] {
            let found = data(name, key).await?;
            ensure!(found == plain, "{key} of Secret '{name}' is '{found}'");
        }
        let docker = data("files", ".dockerconfigjson").await?;
        ensure!(docker.starts_with("ewoJImF1dGhzIjog"), "the generated docker config is '{docker}'");
        let web = s.cluster.get("apps/v1", "Deployment", Some(&s.namespace), "web").await?;
        let token = text(&web, "/spec/template/spec/containers/0/env/0/value");
        ensure!(token == "t0ken" && web["spec"]["replicas"] == 3, "the encrypted patch is applied: {web}");

        // A second look writes nothing: decryption gives the same objects every time.
        let before = s.kustomize_api.counts();
        let again = s.reconcile("Kustomization", "app").await?;
        ensure!(text(&again, "/status/lastAppliedRevision") == revision, "still ready: {again}");
        let writes = s.kustomize_api.counts().since(&before).count(|call| {
            call.is_write() && !call.is_bookkeeping() && !call.resource.starts_with("kustomizations")
        });
        ensure!(writes == 0, "{writes} objects were written again");

        // Without `spec.decryption` an encrypted Secret stays out of the cluster.
        let plain = json!({ "spec": { "targetNamespace": s.namespace } });
        s.kustomization("plain", "./app", &plain).await?;
        let words =
            ["is SOPS encrypted, configuring decryption is required for this secret to be reconciled"];
        s.wait_failed("Kustomization", "plain", "ReconciliationFailed", &words).await?;
        eventually(DEADLINE, "no key or plain text is in the logs", || async {
            for controller in [&s.source, &s.kustomize] {
                let log = controller.lock().await.as_ref().map(e2e::Controller::log).unwrap_or_default();
                for secret in ["AGE-SECRET-KEY", "PGP PRIVATE KEY", "just text", "p=a=s=s"] {
                    ensure!(!log.contains(secret), "'{secret}' is in a log");
                }
            }
            Ok(())
        })
        .await
    });
}
