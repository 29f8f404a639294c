//! Whole runs against a cluster in memory: what is applied, what is recorded, and in which order.

use serde_json::json;
use weir_apply::cluster::ClusterError;
use weir_apply::memory::Verb;
use weir_apply::object::ObjectRef;

use super::*;
use crate::world::{World, config, reference};

#[tokio::test(start_paused = true)]
async fn from_nothing_to_ready_and_then_silence() {
    let mut world = World::new(json!({"wait": true}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1")), ("b.yaml", &config("b", "1"))]);
    let done = world.run().await.unwrap();
    assert!(!done.nothing_new);
    assert_eq!(world.ready(), "True ReconciliationSucceeded: Applied revision: r1");
    assert_eq!(world.inventory(), ["ConfigMap/n/a", "ConfigMap/n/b"]);
    assert!(condition::is_true(world.object.conditions(), types::HEALTHY));
    assert_eq!(world.notices[0], "ConfigMap/n/a created\nConfigMap/n/b created");
    assert_eq!(world.notices.len(), 3, "{:?}", world.notices);
    assert_eq!(world.object_writes(), ["Apply ConfigMap/n/a", "Apply ConfigMap/n/b"]);
    assert_eq!(world.writes.len(), 2, "the list of what is to be created, then the outcome");

    let before = world.object.clone();
    let done = world.run().await.unwrap();
    assert!(done.nothing_new);
    assert_eq!(world.object, before);
    assert_eq!((world.writes.len(), world.notices.len()), (0, 0));
    let requests = world.cluster.take_requests();
    assert_eq!(requests.len(), 4, "one read and one dry-run per object: {requests:?}");
    assert!(requests.iter().all(|(verb, _)| matches!(verb, Verb::Get | Verb::DryRun)));
}

#[tokio::test(start_paused = true)]
async fn objects_are_on_record_before_they_are_created() {
    let mut world = World::new(json!({}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1")), ("b.yaml", &config("b", "1"))]);
    let refused = ClusterError::Api { code: 500, reason: "InternalError".into(), message: "boom".into() };
    world.cluster.fail(Verb::Apply, "ConfigMap/n/b", refused, 1);
    let error = world.run().await.unwrap_err();
    assert_eq!(error, "ConfigMap/n/b apply failed: boom\nConfigMap/n/a created");
    assert_eq!(decide::inventory(&world.writes[0]).objects.len(), 2, "listed in the first write");
    assert_eq!(world.inventory(), ["ConfigMap/n/a", "ConfigMap/n/b"]);
    assert_eq!(world.object.status.as_ref().unwrap().last_applied_revision, None);

    // The next revision lacks both: what the failed run created is found and deleted.
    world.publish("r2", &[("c.yaml", &config("c", "1"))]);
    world.run().await.unwrap();
    assert_eq!(world.cluster.peek(&reference("a")), None);
    assert_eq!(world.inventory(), ["ConfigMap/n/c"]);
}

#[tokio::test(start_paused = true)]
async fn what_left_the_source_is_pruned_before_health_is_checked() {
    let mut world = World::new(json!({"wait": true}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1")), ("b.yaml", &config("b", "1"))]);
    world.run().await.unwrap();
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: n}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n";
    world.publish("r2", &[("b.yaml", &config("b", "2")), ("j.yaml", job)]);
    let error = world.run().await.unwrap_err();
    assert_eq!(
        error,
        "health check failed after 9m30s: timeout waiting for: [Job/n/j status: 'InProgress': Job in progress]"
    );
    assert_eq!(world.cluster.peek(&reference("a")), None);
    assert_eq!(world.inventory(), ["ConfigMap/n/b", "Job/n/j"]);
    assert!(world.notices.contains(&"ConfigMap/n/a deleted".to_owned()), "{:?}", world.notices);
    assert!(condition::is_false(world.object.conditions(), types::HEALTHY));
    let status = world.object.status.as_ref().unwrap();
    assert_eq!(status.last_applied_revision.as_deref(), Some("r1"));
    assert_eq!(status.last_attempted_revision.as_deref(), Some("r2"));
    assert_eq!(status.history[0].last_reconciled_status, "HealthCheckFailed");
}

#[tokio::test(start_paused = true)]
async fn a_failed_build_or_dry_run_prunes_nothing() {
    let mut world = World::new(json!({}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1")), ("b.yaml", &config("b", "1"))]);
    world.run().await.unwrap();
    world.publish("r2", &[("b.yaml", "kind: [")]);
    let error = world.run().await.unwrap_err();
    assert!(error.contains("b.yaml"), "{error}");
    assert!(world.ready().starts_with("False BuildFailed: "), "{}", world.ready());
    world.publish("r3", &[("b.yaml", &config("b", "2"))]);
    let forbidden = ClusterError::Api { code: 403, reason: "Forbidden".into(), message: "no".into() };
    world.cluster.fail(Verb::DryRun, "ConfigMap/n/b", forbidden, 1);
    assert_eq!(world.run().await.unwrap_err(), "ConfigMap/n/b dry-run failed (Forbidden): no\n");
    assert!(world.cluster.peek(&reference("a")).is_some());
    assert_eq!(world.inventory(), ["ConfigMap/n/a", "ConfigMap/n/b"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_pruned_stays_listed() {
    let mut world = World::new(json!({}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1")), ("b.yaml", &config("b", "1"))]);
    world.run().await.unwrap();
    world.publish("r2", &[("b.yaml", &config("b", "1"))]);
    let forbidden = ClusterError::Api { code: 403, reason: "Forbidden".into(), message: "no delete".into() };
    world.cluster.fail(Verb::Delete, "ConfigMap/n/a", forbidden, 1);
    let error = world.run().await.unwrap_err();
    assert_eq!(error, "delete failed, errors: ConfigMap/n/a delete failed: no delete;");
    assert_eq!(world.inventory(), ["ConfigMap/n/b", "ConfigMap/n/a"]);
    assert!(world.ready().starts_with("False PruneFailed: "));
    world.run().await.unwrap();
    assert_eq!(world.inventory(), ["ConfigMap/n/b"]);
}

#[tokio::test(start_paused = true)]
async fn without_prune_stale_objects_are_let_go() {
    let mut world = World::new(json!({"prune": false}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1")), ("b.yaml", &config("b", "1"))]);
    world.run().await.unwrap();
    world.publish("r2", &[("b.yaml", &config("b", "1"))]);
    world.run().await.unwrap();
    assert!(world.cluster.peek(&reference("a")).is_some());
    assert_eq!(world.inventory(), ["ConfigMap/n/b"]);
}

#[tokio::test(start_paused = true)]
async fn drift_is_undone_loudly() {
    let mut world = World::new(json!({}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    world.run().await.unwrap();
    let mut edited = world.cluster.peek(&reference("a")).unwrap();
    edited["data"]["k"] = "edited".into();
    world.cluster.put(edited);
    let done = world.run().await.unwrap();
    assert!(!done.nothing_new);
    assert_eq!(world.notices[0], "ConfigMap/n/a configured");
    assert_eq!(world.cluster.peek(&reference("a")).unwrap()["data"]["k"], "1");
    assert_eq!(world.object.status.as_ref().unwrap().history[0].total_reconciliations, 2);
}

#[tokio::test(start_paused = true)]
async fn a_requested_run_is_recorded_even_if_nothing_changed() {
    let mut world = World::new(json!({}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    world.run().await.unwrap();
    let annotations = [("reconcile.fluxcd.io/requestedAt".to_owned(), "token".to_owned())].into();
    world.object.metadata.annotations = Some(annotations);
    let done = world.run().await.unwrap();
    assert!(!done.nothing_new);
    assert_eq!(world.object.status.as_ref().unwrap().history[0].total_reconciliations, 2);
    assert_eq!(world.notices.len(), 1, "{:?}", world.notices);
}

#[tokio::test(start_paused = true)]
async fn sources_that_are_missing_or_empty_are_waited_for() {
    let mut world = World::new(json!({}), &[]);
    world.run().await.unwrap_err();
    assert_eq!(
        world.ready(),
        "False ArtifactFailed: gitrepositories.source.toolkit.fluxcd.io \"fleet\" not found"
    );
    assert!(world.notices.is_empty());
    world.publish("r1", &[]);
    world.artifacts.0.lock().clear();
    world.run().await.unwrap_err();
    assert_eq!(
        world.ready(),
        "False ArtifactFailed: Source is not ready, artifact not found, retrying in 30s"
    );
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    world.object.spec.path = Some("./nope".to_owned());
    world.run().await.unwrap_err();
    assert!(world.ready().starts_with("False ArtifactFailed: kustomization path not found: stat ./nope"));
    assert_eq!(world.object.status.as_ref().unwrap().last_attempted_revision, None);
}

#[tokio::test(start_paused = true)]
async fn an_empty_source_prunes_everything() {
    let mut world = World::new(json!({}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    world.run().await.unwrap();
    world.publish("r2", &[("README.md", "nothing here")]);
    world.run().await.unwrap();
    assert_eq!(world.cluster.peek(&reference("a")), None);
    assert_eq!(world.inventory(), Vec::<String>::new());
    assert_eq!(world.ready(), "True ReconciliationSucceeded: Applied revision: r2");
}

#[tokio::test(start_paused = true)]
async fn variables_come_from_the_cluster() {
    let spec = json!({"postBuild": {"substitute": {"A": "inline"}, "substituteFrom": [
        {"kind": "ConfigMap", "name": "vars"}, {"kind": "Secret", "name": "keys", "optional": true}]}});
    let mut world = World::new(spec, &[]);
    world.publish("r1", &[("a.yaml", &config("a", "${A}-${B}"))]);
    world.run().await.unwrap_err();
    assert_eq!(
        world.ready(),
        "False BuildFailed: post build failed for 'ConfigMap.v1.[noGrp]/a': substitute from 'ConfigMap/vars' error: configmaps \"vars\" not found"
    );
    world.cluster.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "vars", "namespace": "flux-system"}, "data": {"A": "low", "B": "map\nped"}}));
    world.run().await.unwrap();
    assert_eq!(world.cluster.peek(&reference("a")).unwrap()["data"]["k"], "inline-mapped");
}

#[tokio::test(start_paused = true)]
async fn a_newer_revision_ends_the_wait_for_health() {
    let gates = [("CancelHealthCheckOnNewRevision", true)];
    let spec =
        json!({"healthChecks": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "namespace": "n"}]});
    let mut world = World::new(spec, &gates);
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    let trigger =
        Trigger { kind: "GitRepository".into(), key: weir_runtime::ObjectKey::new("flux-system", "fleet") };
    let started = Instant::now();
    world.run_with(Some(trigger)).await.unwrap_err();
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(
        world.ready(),
        "False HealthCheckCanceled: New reconciliation triggered by GitRepository/flux-system/fleet"
    );
    assert_eq!(world.inventory(), ["ConfigMap/n/a"]);
    assert!(world.object.status.as_ref().unwrap().history.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_is_applied_from_as_long_as_it_has_an_artifact() {
    let mut world = World::new(json!({}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    let key = ObjectKey::new("flux-system", "fleet");
    let mut source = serde_json::to_value(&*world.reconciler.stores.git.get(&key).unwrap()).unwrap();
    source["metadata"]["resourceVersion"] = "r2".into();
    source["status"]["conditions"] = json!([{"type": "Ready", "status": "False", "reason": "GitOperationFailed",
        "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    world.reconciler.stores.git.apply(serde_json::from_value(source).unwrap());
    world.run().await.unwrap();
    assert_eq!(world.ready(), "True ReconciliationSucceeded: Applied revision: r1");
}

#[tokio::test(start_paused = true)]
async fn dependencies_may_live_anywhere_even_if_sources_may_not() {
    let mut world = World::new(json!({"dependsOn": [{"name": "base", "namespace": "platform"}]}), &[]);
    world.reconciler.settings.no_cross_namespace_refs = true;
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    world.run().await.unwrap_err();
    assert!(world.ready().contains("dependency 'platform/base' not found"), "{}", world.ready());
    let base = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "base", "namespace": "platform", "generation": 1, "resourceVersion": "1"},
        "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "platform"}},
        "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True", "reason": "R",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]},
    });
    world.reconciler.stores.kustomizations.apply(serde_json::from_value(base).unwrap());
    world.run().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_health_check_needs_its_namespace() {
    let spec = json!({"healthChecks": [{"kind": "Deployment", "name": "web"}]});
    let mut world = World::new(spec, &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    assert_eq!(
        world.run().await.unwrap_err(),
        "health check failed after 0s: resource Deployment.apps web is namespace scoped, but namespace is not set"
    );
}

#[tokio::test(start_paused = true)]
async fn long_steps_are_shown_while_they_last() {
    let mut world = World::new(json!({"wait": true, "timeout": "1m"}), &[]);
    let widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: n}\n";
    world.publish("r1", &[("w.yaml", widget)]);
    world.cluster.put(
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    );
    world.run().await.unwrap_err();
    let shown = world.writes.iter().find_map(|object| {
        let healthy = condition::get(object.conditions(), types::HEALTHY)?;
        let reconciling = condition::get(object.conditions(), types::RECONCILING)?;
        Some(format!("{:?} {} / {}", healthy.status, healthy.message, reconciling.message))
    });
    let step = "Running health checks for revision r1 with a timeout of 1m0s";
    assert_eq!(shown, Some(format!("Unknown {step} / {step}")));
}

const AGE: &str = include_str!("../../../weir-sops/tests/keys/age.agekey");
const SECRET: &str = include_str!("../../../weir-sops/tests/golden/yaml-encrypted-regex/encrypted.yaml");

#[tokio::test(start_paused = true)]
async fn encrypted_secrets_are_applied_in_plain_or_not_at_all() {
    let mut world = World::new(json!({}), &[]);
    world.publish("r1", &[("s.yaml", SECRET), ("a.yaml", &config("a", "1"))]);
    world.run().await.unwrap_err();
    assert_eq!(
        world.ready(),
        "False ReconciliationFailed: Secret/db is SOPS encrypted, configuring decryption is required for this secret to be reconciled"
    );
    world.object = serde_json::from_value({
        let mut object = serde_json::to_value(&world.object).unwrap();
        object["spec"]["decryption"] = json!({"provider": "sops", "secretRef": {"name": "keys"}});
        object
    })
    .unwrap();
    world.run().await.unwrap_err();
    assert_eq!(world.ready(), "False BuildFailed: secrets \"keys\" not found");
    let put_key = |world: &World, key: &str| {
        use base64::Engine as _;
        let data = base64::engine::general_purpose::STANDARD.encode(key);
        world.cluster.put(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "flux-system"},
            "data": {"a.agekey": data},
        }));
    };
    put_key(&world, "# none\n");
    world.run().await.unwrap_err();
    let ready = world.ready();
    assert!(
        ready.starts_with(
            "False BuildFailed: decryption failed for 'Secret.v1.[noGrp]/db': failed to decrypt and format '/db' Secret data: cannot get sops data key: "
        ),
        "{ready}"
    );
    assert!(world.object_writes().is_empty(), "nothing was applied");
    put_key(&world, AGE);
    world.run().await.unwrap();
    assert_eq!(world.ready(), "True ReconciliationSucceeded: Applied revision: r1");
    let applied = world.cluster.peek(&ObjectRef::core("Secret", "", "db")).unwrap();
    assert_eq!(applied["data"]["user"], "YWRtaW4=");
    assert_eq!(applied.get("sops"), None);
}

/// Answers every request with this text until the test ends.
fn file_server(body: String) -> std::net::SocketAddr {
    use std::io::{BufRead as _, BufReader, Write as _};

    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            head.map_while(Result::ok).find(String::is_empty);
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

#[tokio::test]
async fn files_of_other_servers_are_built_and_bases_can_be_refused() {
    let host = file_server(config("remote", "1"));
    let mut world = World::new(json!({}), &[]);
    let kustomization = format!("resources: ['http://{host}/remote.yaml']\n");
    world.publish("r1", &[("kustomization.yaml", &kustomization)]);
    world.run().await.unwrap();
    assert_eq!(world.inventory(), ["ConfigMap/n/remote"]);

    world.reconciler.settings.no_remote_bases = true;
    world.publish("r2", &[("kustomization.yaml", &kustomization)]);
    world.run().await.unwrap();
    let base = format!("resources: ['git::http://user:hunter2@{host}/org/repo//base']\n");
    world.publish("r3", &[("kustomization.yaml", &base)]);
    let error = world.run().await.unwrap_err();
    assert!(error.contains("remote bases are disabled (--no-remote-bases)"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    assert!(!world.ready().contains("hunter2"), "{}", world.ready());
    assert_eq!(world.inventory(), ["ConfigMap/n/remote"], "nothing is pruned after a failed build");
}

#[tokio::test(start_paused = true)]
async fn a_kustomization_waits_for_a_release_that_an_annotation_names() {
    let mut world = World::new(json!({}), &[]);
    world.publish("r1", &[("a.yaml", &config("a", "1"))]);
    let annotations = world.object.metadata.annotations.get_or_insert_default();
    annotations.insert(DEPENDS_ON.to_owned(), "HelmRelease/apps/db".to_owned());
    let missing = "unable to get 'HelmRelease/apps/db' dependency: helmreleases.helm.toolkit.fluxcd.io \"db\" not found";
    assert_eq!(world.run().await.unwrap_err(), missing);
    assert!(world.ready().starts_with("False DependencyNotReady: "), "{}", world.ready());
    let mut release = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": "db", "namespace": "apps", "generation": 1},
        "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "False"}]},
    });
    world.cluster.put(release.clone());
    assert_eq!(world.run().await.unwrap_err(), "dependency 'HelmRelease/apps/db' is not ready");
    assert!(world.inventory().is_empty());
    release["status"]["conditions"][0]["status"] = "True".into();
    world.cluster.put(release);
    world.run().await.unwrap();
    assert_eq!(world.inventory(), ["ConfigMap/n/a"]);
}

/// What a run is made of that an unchanged world need not be asked for again.
mod unchanged {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_inputs_are_not_fetched_and_built_again() {
        let spec = json!({"postBuild": {"substituteFrom": [{"kind": "ConfigMap", "name": "vars"}]}});
        let mut world = World::new(spec, &[]);
        let variables = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vars", "namespace": "flux-system"}, "data": {"A": value}});
        world.cluster.put(variables("one"));
        world.publish("r1", &[("a.yaml", &config("a", "${A}"))]);
        world.run().await.unwrap();
        let digest = world.object.status.as_ref().unwrap().history[0].digest.clone();

        // A run that had to fetch or build would fail now.
        world.artifacts.0.lock().clear();
        world.cluster.take(&reference("a"));
        world.run().await.unwrap();
        assert_eq!(world.cluster.peek(&reference("a")).unwrap()["data"]["k"], "one");
        assert_eq!(world.object.status.as_ref().unwrap().history[0].digest, digest);

        // Other variables are another input.
        world.cluster.put(variables("two"));
        let error = world.run().await.unwrap_err();
        assert!(error.contains("artifact not found"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_build_is_made_again() {
        let mut world = World::new(json!({}), &[]);
        world.publish("r1", &[("a.yaml", "kind: [")]);
        world.run().await.unwrap_err();
        world.artifacts.0.lock().clear();
        assert!(world.run().await.unwrap_err().contains("artifact not found"));
    }
}
