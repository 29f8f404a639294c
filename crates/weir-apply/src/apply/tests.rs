//! The apply engine against a cluster in memory: what is written, what is not, and how it fails.

use serde_json::json;
use weir_base::clock::FixedClock;

use super::*;
use crate::ignore::Rule;
use crate::memory::{MemoryCluster, Verb};
use crate::normalise::normalise;
use crate::order::stages;

#[tokio::test(start_paused = true)]
async fn untouched_objects_cost_no_request() {
    let cluster = MemoryCluster::new();
    let object = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}});
    let mut options = Options::kustomize();
    options.untouched.insert(identity(&ObjectRef::of(&object("a"))));
    let mut applied = Applied::default();
    for stage in crate::order::stages(vec![object("a"), object("b")], &options.custom_stage_kinds) {
        let planned = dry_run(&cluster, &options, &stage, &applied).await.unwrap();
        apply(&cluster, &options, &stage, planned, &mut applied).await.unwrap();
    }
    let subjects: Vec<String> = cluster.take_requests().into_iter().map(|(_, subject)| subject).collect();
    assert!(subjects.iter().all(|subject| subject == "ConfigMap/n/b"), "{subjects:?}");
    assert_eq!(applied.changes.all_lines(), "ConfigMap/n/a unchanged\nConfigMap/n/b created");
    let targets: Vec<(String, bool)> = applied
        .take_targets()
        .into_iter()
        .map(|target| (target.object.to_string(), target.known.is_some()))
        .collect();
    assert_eq!(targets, [("ConfigMap/n/b".to_owned(), true), ("ConfigMap/n/a".to_owned(), false)]);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_applied_before_is_read_only_if_it_exists() {
    let cluster = MemoryCluster::new();
    let known = HashSet::from([identity(&ObjectRef::core("ConfigMap", "n", "known"))]);
    let options = Options { applied_before: Some(known), ..Options::kustomize() };
    cluster.put(config("taken", "1"));
    cluster.put(annotated(config("theirs", "1"), "ssa", "Ignore"));
    let objects = || ["known", "new", "taken", "theirs"].map(|name| config(name, "2")).to_vec();
    let lines = changes(&cluster, &options, objects()).await;
    assert_eq!(
        lines,
        "ConfigMap/n/known created\nConfigMap/n/new created\nConfigMap/n/taken configured\nConfigMap/n/theirs skipped"
    );
    let requests = cluster.take_requests();
    let read: Vec<&str> = requests
        .iter()
        .filter(|(verb, _)| *verb == Verb::Get)
        .map(|(_, subject)| subject.rsplit('/').next().unwrap())
        .collect();
    assert_eq!(read, ["known", "taken", "theirs"]);
    // A refusal is told as ever, from one request.
    cluster.fail(Verb::DryRun, "ConfigMap/n/bad", refused(422, "Invalid", "no"), 1);
    let (applied, result) = run(&cluster, &options, vec![config("another", "1"), config("bad", "1")]).await;
    assert_eq!(result.unwrap_err().to_string(), "ConfigMap/n/bad dry-run failed (Invalid): no");
    assert!(applied.changes.entries.is_empty());
    assert!(!cluster.take_requests().contains(&(Verb::Apply, "ConfigMap/n/another".to_owned())));
}

const CLOCK: FixedClock = FixedClock(jiff::Timestamp::UNIX_EPOCH);

fn config(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": {"k": data}})
}

fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][format!("kustomize.toolkit.fluxcd.io/{key}")] = value.into();
    object
}

async fn run(
    cluster: &MemoryCluster,
    options: &Options,
    objects: Vec<Value>,
) -> (Applied, Result<(), ApplyError>) {
    let mut applied = Applied::default();
    let objects = objects.into_iter().map(|object| normalise(object).unwrap()).collect();
    for stage in stages(objects, &options.custom_stage_kinds) {
        let planned = match dry_run(cluster, options, &stage, &applied).await {
            Ok(planned) => planned,
            Err(error) => return (applied, Err(error)),
        };
        if let Err(error) = apply(cluster, options, &stage, planned, &mut applied).await {
            return (applied, Err(error));
        }
        if let Err(error) = wait_for_stage(cluster, &stage, &applied, &CLOCK).await {
            return (applied, Err(error));
        }
    }
    (applied, Ok(()))
}

async fn changes(cluster: &MemoryCluster, options: &Options, objects: Vec<Value>) -> String {
    let (applied, result) = run(cluster, options, objects).await;
    result.unwrap();
    applied.changes.all_lines()
}

fn writes(cluster: &MemoryCluster) -> Vec<(Verb, String)> {
    let mut requests = cluster.take_requests();
    requests.retain(|(verb, _)| matches!(verb, Verb::Apply | Verb::Patch | Verb::Delete));
    requests
}

fn refused(code: u16, reason: &str, message: &str) -> ClusterError {
    ClusterError::Api { code, reason: reason.into(), message: message.into() }
}

#[tokio::test]
async fn the_second_run_writes_nothing() {
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    let objects = || {
        vec![
            config("b", "1"),
            config("a", "1"),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
        ]
    };
    assert_eq!(
        changes(&cluster, &options, objects()).await,
        "Namespace/n created\nConfigMap/n/a created\nConfigMap/n/b created"
    );
    assert_eq!(writes(&cluster).len(), 3);
    assert_eq!(
        changes(&cluster, &options, objects()).await,
        "Namespace/n unchanged\nConfigMap/n/a unchanged\nConfigMap/n/b unchanged"
    );
    assert_eq!(writes(&cluster), []);
}

#[tokio::test]
async fn drift_is_undone_and_removed_fields_go() {
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    changes(&cluster, &options, vec![config("a", "1")]).await;
    let reference = ObjectRef::of(&config("a", "1"));
    let mut edited = cluster.peek(&reference).unwrap();
    edited["data"]["k"] = "edited".into();
    cluster.put(edited);
    assert_eq!(changes(&cluster, &options, vec![config("a", "1")]).await, "ConfigMap/n/a configured");
    assert_eq!(cluster.peek(&reference).unwrap()["data"], json!({"k": "1"}));
    let mut other = config("a", "1");
    other["data"] = json!({"other": "2"});
    assert_eq!(changes(&cluster, &options, vec![other]).await, "ConfigMap/n/a configured");
    assert_eq!(cluster.peek(&reference).unwrap()["data"], json!({"other": "2"}));
}

#[tokio::test]
async fn skipped_objects_are_not_written_but_reported() {
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    let if_not_present = |data| annotated(config("a", data), "ssa", "IfNotPresent");
    assert_eq!(changes(&cluster, &options, vec![if_not_present("1")]).await, "ConfigMap/n/a created");
    assert_eq!(changes(&cluster, &options, vec![if_not_present("2")]).await, "ConfigMap/n/a skipped");
    assert_eq!(
        changes(&cluster, &options, vec![annotated(config("b", "1"), "reconcile", "disabled")]).await,
        "ConfigMap/n/b skipped"
    );
    cluster.put(annotated(config("c", "live"), "ssa", "Ignore"));
    assert_eq!(changes(&cluster, &options, vec![config("c", "1")]).await, "ConfigMap/n/c skipped");
}

#[tokio::test]
async fn traces_of_kubectl_are_taken_over_once() {
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    let mut live = config("a", "1");
    live["metadata"]["managedFields"] =
        json!([{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:data": {"f:x": {}}}}]);
    cluster.put(live.clone());
    assert_eq!(changes(&cluster, &options, vec![config("a", "1")]).await, "ConfigMap/n/a configured");
    assert_eq!(
        writes(&cluster),
        [(Verb::Patch, "ConfigMap/n/a".to_owned()), (Verb::Apply, "ConfigMap/n/a".to_owned())]
    );
    assert_eq!(changes(&cluster, &options, vec![config("a", "1")]).await, "ConfigMap/n/a unchanged");
    cluster.put(live);
    let merged = annotated(config("a", "1"), "ssa", "Merge");
    assert_eq!(changes(&cluster, &options, vec![merged]).await, "ConfigMap/n/a configured");
    assert_eq!(writes(&cluster), [(Verb::Apply, "ConfigMap/n/a".to_owned())], "no clean-up with ssa: Merge");
}

#[tokio::test]
async fn a_dry_run_that_clashes_with_a_kubectl_edit_passes_once_the_edit_is_taken_over() {
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    let clash = || refused(422, "Invalid", "spec.ports[1].name: Duplicate value: \"http\"");
    let mut live = config("a", "2");
    cluster.put(live.clone());
    cluster.fail(Verb::DryRun, "ConfigMap/n/a", clash(), 1);
    let (_, result) = run(&cluster, &options, vec![config("a", "1")]).await;
    assert!(result.is_err(), "nothing to take over");
    live["metadata"]["managedFields"] =
        json!([{"manager": "kubectl-patch", "operation": "Update", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    cluster.put(live);
    cluster.take_requests();
    cluster.fail(Verb::DryRun, "ConfigMap/n/a", clash(), 1);
    assert_eq!(changes(&cluster, &options, vec![config("a", "1")]).await, "ConfigMap/n/a configured");
    assert_eq!(
        writes(&cluster),
        [(Verb::Patch, "ConfigMap/n/a".to_owned()), (Verb::Apply, "ConfigMap/n/a".to_owned())]
    );
}

#[tokio::test]
async fn a_refused_object_keeps_its_stage_from_being_applied() {
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    cluster.fail(
        Verb::DryRun,
        "ConfigMap/n/b",
        refused(403, "Forbidden", "configmaps \"b\" is forbidden"),
        1,
    );
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let (applied, result) =
        run(&cluster, &options, vec![config("a", "1"), config("b", "1"), namespace]).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "ConfigMap/n/b dry-run failed (Forbidden): configmaps \"b\" is forbidden"
    );
    assert_eq!(applied.changes.all_lines(), "Namespace/n created", "the earlier stage is known");
    assert_eq!(cluster.peek(&ObjectRef::of(&config("a", "1"))), None);
}

#[tokio::test]
async fn what_was_applied_before_a_failure_is_reported() {
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    cluster.fail(Verb::Apply, "ConfigMap/n/b", refused(500, "InternalError", "boom"), 1);
    let (applied, result) =
        run(&cluster, &options, vec![config("a", "1"), config("b", "1"), config("c", "1")]).await;
    assert_eq!(result.unwrap_err().to_string(), "ConfigMap/n/b apply failed: boom");
    assert_eq!(applied.changes.all_lines(), "ConfigMap/n/a created");
}

#[tokio::test]
async fn missing_namespaces_and_kinds_have_their_own_texts() {
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    cluster.require_namespaces();
    let (_, result) = run(&cluster, &options, vec![config("a", "1")]).await;
    assert_eq!(result.unwrap_err().to_string(), "ConfigMap/n/a not found: namespaces \"n\" not found");
    cluster.set_unknown("example.com", "Widget", true);
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let (_, result) = run(&cluster, &options, vec![widget.clone()]).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "Widget/w dry-run failed: no matches for kind \"Widget\" in version \"example.com/v1\"; its CustomResourceDefinition must be installed first"
    );
    cluster.set_unknown("example.com", "Widget", false);
    cluster.fail(
        Verb::DryRun,
        "Widget/w",
        ClusterError::not_found("the server could not find the requested resource"),
        1,
    );
    let (_, result) = run(&cluster, &options, vec![widget]).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "Widget/w namespace not specified: the server could not find the requested resource"
    );
}

fn definition(established: bool) -> Value {
    let mut definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "names": {"kind": "Widget"}}});
    if established {
        definition["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
    }
    definition
}

#[tokio::test(start_paused = true)]
async fn objects_follow_their_definition_and_wait_until_it_is_served() {
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    cluster.set_unknown("example.com", "Widget", true);
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let not_served = ClusterError::NoMatch { kind: "Widget".into(), api_version: "example.com/v1".into() };
    cluster.fail(Verb::DryRun, "Widget/w", not_served, 3);
    assert_eq!(
        changes(&cluster, &options, vec![widget, definition(true)]).await,
        "CustomResourceDefinition/widgets.example.com created\nWidget/w created"
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_never_established_fails_the_stage() {
    let cluster = MemoryCluster::new();
    let (applied, result) =
        run(&cluster, &Options::kustomize(), vec![definition(false), config("a", "1")]).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "timeout waiting for: [CustomResourceDefinition/widgets.example.com status: 'InProgress': Install in progress]"
    );
    assert_eq!(applied.changes.all_lines(), "CustomResourceDefinition/widgets.example.com created");
}

#[tokio::test(start_paused = true)]
async fn immutable_objects_are_recreated_only_on_request() {
    let immutable =
        || refused(422, "Invalid", "Job.batch \"j\" is invalid: spec.template: field is immutable");
    let job = |image: &str| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "n"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}], "restartPolicy": "Never"}}}})
    };
    let cluster = MemoryCluster::new();
    let options = Options::kustomize();
    changes(&cluster, &options, vec![job("1")]).await;
    cluster.take_requests();

    cluster.fail(Verb::DryRun, "Job/n/j", immutable(), 1);
    let (_, result) = run(&cluster, &options, vec![job("2")]).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "Job/n/j dry-run failed (Invalid): Job.batch \"j\" is invalid: spec.template: field is immutable; to recreate it set the annotation kustomize.toolkit.fluxcd.io/force: enabled"
    );
    assert_eq!(writes(&cluster), []);

    cluster.fail(Verb::DryRun, "Job/n/j", immutable(), 1);
    let forced = annotated(job("2"), "force", "Enabled");
    assert_eq!(changes(&cluster, &options, vec![forced]).await, "Job/n/j created");
    assert_eq!(writes(&cluster), [(Verb::Delete, "Job/n/j".to_owned()), (Verb::Apply, "Job/n/j".to_owned())]);

    cluster.fail(Verb::DryRun, "Job/n/j", refused(409, "Conflict", "conflict"), 1);
    let force = Options { force: true, ..Options::kustomize() };
    assert_eq!(changes(&cluster, &force, vec![job("3")]).await, "Job/n/j created");

    cluster.fail(Verb::DryRun, "Job/n/new", immutable(), 1);
    let mut new = job("1");
    new["metadata"]["name"] = "new".into();
    let (_, result) = run(&cluster, &force, vec![new]).await;
    assert!(result.is_err(), "an object that does not exist is not recreated");
}

#[tokio::test(start_paused = true)]
async fn recreation_does_not_wait_for_ever() {
    let cluster = MemoryCluster::new();
    let mut stuck = config("a", "1");
    stuck["metadata"]["finalizers"] = json!(["example.com/stuck"]);
    cluster.put(stuck);
    cluster.fail(Verb::DryRun, "ConfigMap/n/a", refused(422, "Invalid", "immutable"), 1);
    let force = Options { force: true, ..Options::kustomize() };
    let (_, result) = run(&cluster, &force, vec![config("a", "2")]).await;
    assert!(
        result
            .unwrap_err()
            .to_string()
            .starts_with("ConfigMap/n/a immutable field detected, object not deleted in time")
    );
}

#[tokio::test]
async fn ignored_fields_stay_as_they_are() {
    let cluster = MemoryCluster::new();
    let rules = Rules::compile(&[Rule { paths: vec!["/spec/replicas".into()], target: None }]).unwrap();
    let options = Options { ignore: rules, ..Options::kustomize() };
    let widget = |replicas: i64, colour: &str| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "n"},
            "spec": {"replicas": replicas, "colour": colour}})
    };
    assert_eq!(changes(&cluster, &options, vec![widget(1, "red")]).await, "Widget/n/w created");
    let reference = ObjectRef::of(&widget(1, ""));
    let mut scaled = cluster.peek(&reference).unwrap();
    scaled["spec"]["replicas"] = 5.into();
    cluster.put(scaled);
    assert_eq!(changes(&cluster, &options, vec![widget(1, "red")]).await, "Widget/n/w unchanged");
    assert_eq!(changes(&cluster, &options, vec![widget(1, "blue")]).await, "Widget/n/w configured");
    assert_eq!(cluster.peek(&reference).unwrap()["spec"], json!({"replicas": 5, "colour": "blue"}));
}

#[tokio::test]
async fn cluster_scoped_objects_lose_an_injected_namespace() {
    let cluster = MemoryCluster::new();
    let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    namespace["metadata"]["namespace"] = "injected".into();
    let (applied, result) = run(&cluster, &Options::kustomize(), vec![namespace]).await;
    result.unwrap();
    assert_eq!(applied.changes.all_lines(), "Namespace/n created");
}

#[tokio::test]
async fn secrets_do_not_reach_errors() {
    let cluster = MemoryCluster::new();
    cluster.fail(Verb::DryRun, "Secret/n/s", refused(422, "Invalid", "data: Invalid value: \"hunter2\""), 1);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "stringData": {"p": "hunter2"}});
    let (_, result) = run(&cluster, &Options::kustomize(), vec![secret]).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "Secret/n/s dry-run failed (Invalid): data: Invalid value: \"***\""
    );
}
