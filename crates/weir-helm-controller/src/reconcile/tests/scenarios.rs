//! Behaviour users rely on when they change from the reference, one scenario each.

use super::*;

const HOOKED: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-test\n  annotations: {helm.sh/hook: test}\n";

fn refused() -> ClusterError {
    ClusterError::Api { code: 403, reason: "Forbidden".to_owned(), message: "no".to_owned() }
}

fn annotate(world: &mut World, tokens: &[(&str, &str)]) {
    let annotations = world.object.metadata.annotations.get_or_insert_default();
    annotations.extend(tokens.iter().map(|(key, token)| ((*key).to_owned(), (*token).to_owned())));
}

#[tokio::test]
async fn common_metadata_is_one_upgrade_each_time_it_changes() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    let set = |world: &mut World, metadata: Json| {
        world.change(|object| object.spec.common_metadata = serde_json::from_value(metadata).unwrap());
    };
    set(&mut world, json!({"labels": {"b": "2", "a": "1"}}));
    world.run().await.unwrap();
    assert_eq!(world.history()[0], "2:deployed");
    assert_eq!(world.config_map().unwrap()["metadata"]["labels"]["a"], "1");
    // Another order is the same, and a new generation alone is nothing.
    set(&mut world, json!({"labels": {"a": "1", "b": "2"}}));
    world.run().await.unwrap();
    assert_eq!(world.history()[0], "2:deployed");
    set(&mut world, Json::Null);
    world.run().await.unwrap();
    assert_eq!(world.history()[0], "3:deployed");
}

#[tokio::test]
async fn a_release_that_was_uninstalled_by_hand_is_installed_again() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    world.cluster.take(&ObjectRef::core("Secret", "apps", "sh.helm.release.v1.app.v1"));
    world.run().await.unwrap();
    assert_eq!(
        (world.ready().as_str(), world.history()),
        ("True/InstallSucceeded", vec!["1:deployed".to_owned()])
    );
}

#[tokio::test]
async fn a_failed_installation_is_undone_and_repeated_as_often_as_asked() {
    let mut world = World::new(json!({"install": {"remediation": {"retries": 1}}}));
    world.cluster.fail(Verb::Apply, "ConfigMap/apps/app", refused(), 2);
    assert_eq!(world.run().await.unwrap_err(), "requeue");
    assert_eq!(world.events, ["InstallFailed", "UninstallSucceeded"]);
    assert_eq!(world.run().await.unwrap_err(), "Failed to install after 2 attempt(s)");
    assert_eq!(world.history(), ["1:failed"], "the last failure stays for people to look at");
    assert!(condition::is_stalled(world.object.conditions()));
}

#[tokio::test]
async fn a_force_request_counts_only_with_a_new_reconcile_request() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    annotate(&mut world, &[(annotation::FORCE_AT, "t")]);
    world.run().await.unwrap();
    assert_eq!(world.history()[0], "1:deployed");
    assert_eq!(world.object.status.as_ref().unwrap().last_handled_force_at.as_deref(), Some("t"));
}

#[tokio::test]
async fn a_reset_request_starts_counting_again() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    world.change(|object| object.spec.values = Some(json!({"value": "two"})));
    world.cluster.fail(Verb::Apply, "ConfigMap/apps/app", refused(), 1);
    assert_eq!(world.run().await.unwrap_err(), "Failed to upgrade after 1 attempt(s)");
    assert!(condition::is_stalled(world.object.conditions()));
    annotate(&mut world, &[(annotation::REQUESTED_AT, "t"), (annotation::RESET_AT, "t")]);
    world.run().await.unwrap();
    assert_eq!(world.ready(), "True/UpgradeSucceeded");
    assert_eq!(world.object.status.as_ref().unwrap().last_handled_reset_at.as_deref(), Some("t"));
}

#[tokio::test]
async fn without_an_older_good_revision_there_is_nothing_to_go_back_to() {
    let mut world = World::new(json!({"upgrade": {"remediation": {"retries": 1}}}));
    world.run().await.unwrap();
    // Somebody else's change makes the history start over.
    world.object.status.as_mut().unwrap().history[0].digest = format!("sha256:{}", "0".repeat(64));
    world.cluster.fail(Verb::Apply, "ConfigMap/apps/app", refused(), 1);
    world.change(|object| object.spec.values = Some(json!({"value": "two"})));
    let error = world.run().await.unwrap_err();
    assert_eq!(error, "missing target release for rollback: cannot remediate failed release");
    let stalled = condition::get(world.object.conditions(), types::STALLED).unwrap();
    assert_eq!(stalled.reason, "MissingRollbackTarget");
}

#[tokio::test]
async fn ignored_paths_are_no_drift() {
    let ignore = json!([{"paths": ["/data/value"], "target": {"kind": "ConfigMap"}}]);
    let mut world = World::new(json!({"driftDetection": {"mode": "enabled", "ignore": ignore}}));
    world.run().await.unwrap();
    let mut config = world.config_map().unwrap();
    config["data"]["value"] = "scaled".into();
    world.cluster.put(config);
    world.run().await.unwrap();
    assert_eq!(world.events, Vec::<String>::new());
    assert_eq!(world.config_map().unwrap()["data"]["value"], "scaled");
}

#[tokio::test]
async fn another_storage_namespace_is_another_release() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    world.change(|object| object.spec.storage_namespace = Some("records".to_owned()));
    assert_eq!(world.run().await.unwrap_err(), "requeue");
    world.run().await.unwrap();
    let record = |namespace: &str| ObjectRef::core("Secret", namespace, "sh.helm.release.v1.app.v1");
    assert!(
        world.cluster.peek(&record("apps")).is_none() && world.cluster.peek(&record("records")).is_some()
    );
    assert_eq!(world.object.status.as_ref().unwrap().storage_namespace.as_deref(), Some("records"));
}

#[tokio::test]
async fn tests_that_are_switched_on_run_without_an_upgrade() {
    let mut world = World::new(json!({}));
    let files = [("templates/config.yaml", TEMPLATE), ("templates/test.yaml", HOOKED)];
    world.publish("1.0.0", 'b', &files);
    world.run().await.unwrap();
    world.change(|object| object.spec.test = serde_json::from_value(json!({"enable": true})).unwrap());
    world.run().await.unwrap();
    assert_eq!(world.events, ["TestSucceeded"]);
    assert_eq!((world.ready().as_str(), world.history()[0].as_str()), ("True/TestSucceeded", "1:deployed"));
}

#[tokio::test]
async fn a_snapshot_of_an_older_controller_is_accepted() {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    let snapshot = &mut world.object.status.as_mut().unwrap().history[0];
    snapshot.api_version = None;
    snapshot.digest = format!("sha256:{}", "0".repeat(64));
    world.run().await.unwrap();
    assert_eq!(world.history(), ["1:deployed"]);
}

#[tokio::test]
async fn only_so_many_revisions_stay_on_record() {
    let mut world = World::new(json!({"maxHistory": 1}));
    world.run().await.unwrap();
    for value in ["two", "three"] {
        world.change(|object| object.spec.values = Some(json!({"value": value})));
        world.run().await.unwrap();
    }
    let on_record = (1..=3).filter(|version| {
        let name = format!("sh.helm.release.v1.app.v{version}");
        world.cluster.peek(&ObjectRef::core("Secret", "apps", &name)).is_some()
    });
    // The one that was deployed when the last was made counts as well.
    assert_eq!(on_record.collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn two_health_checks_of_one_kind_are_refused_for_good() {
    let check = json!({"apiVersion": "v1", "kind": "ConfigMap", "current": "true"});
    let mut world = World::new(json!({"healthCheckExprs": [check.clone(), check]}));
    let error = world.run().await.unwrap_err();
    assert!(error.starts_with("Reconciliation failed terminally due to configuration error: "), "{error}");
    assert_eq!(world.ready(), "False/InvalidCELExpression");
    assert!(condition::is_stalled(world.object.conditions()));
}

#[tokio::test(start_paused = true)]
async fn definitions_are_applied_and_nothing_else_of_their_directory() {
    let mut world = World::new(json!({}));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Thing", "plural": "things"}, "scope": "Namespaced"},
    });
    let mut live = definition.clone();
    live["status"]["conditions"] =
        json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]);
    world.cluster.put(live);
    let stray = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stray, namespace: apps}\n";
    let file = format!("{definition}\n---\n{stray}");
    world.publish("1.0.0", 'b', &[("templates/config.yaml", TEMPLATE), ("crds/things.yaml", &file)]);
    world.run().await.unwrap();
    let mut reference = ObjectRef::core("CustomResourceDefinition", "", "things.example.com");
    (reference.group, reference.version) = ("apiextensions.k8s.io".to_owned(), "v1".to_owned());
    let applied = world.cluster.peek(&reference).unwrap();
    assert_eq!(applied["metadata"]["labels"]["helm.toolkit.fluxcd.io/name"], "app");
    assert!(world.cluster.peek(&ObjectRef::core("ConfigMap", "apps", "stray")).is_none());
    let inventory = world.object.status.as_ref().unwrap().inventory.clone().unwrap();
    let ids: Vec<&str> = inventory.entries.iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(
        ids,
        ["apps_app__ConfigMap", "_things.example.com_apiextensions.k8s.io_CustomResourceDefinition"]
    );
}

#[tokio::test]
async fn a_namespace_is_made_only_for_a_target() {
    let mut world = World::new(json!({"install": {"createNamespace": true}}));
    world.run().await.unwrap();
    assert!(world.cluster.peek(&ObjectRef::core("Namespace", "", "apps")).is_none());
    let mut world = World::new(json!({"install": {"createNamespace": true}, "targetNamespace": "prod"}));
    world.run().await.unwrap();
    assert!(world.cluster.peek(&ObjectRef::core("Namespace", "", "prod")).is_some());
}
