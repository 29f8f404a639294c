//! The controllers on a small store with a simulated clock.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::*;
use crate::builtin::{self, tree::at};

/// Objects by kind, namespace and name, with the rules of creating and deleting.
struct Memory {
    objects: RefCell<BTreeMap<(Table, String, String), Value>>,
    noted: RefCell<Vec<(Table, Value)>>,
    now: Cell<Timestamp>,
    serial: Cell<u64>,
}

impl Memory {
    fn note(&self, table: Table, object: &Value) {
        self.noted.borrow_mut().push((table, object.clone()));
    }

    fn put(&self, table: Table, object: Value) {
        self.note(table, &object);
        let key = (table, part::namespace(&object).to_owned(), part::name(&object).to_owned());
        self.objects.borrow_mut().insert(key, object);
    }

    fn remove(&self, table: Table, namespace: &str, name: &str) {
        let gone = self.objects.borrow_mut().remove(&(table, namespace.to_owned(), name.to_owned()));
        let Some(gone) = gone else { return };
        self.note(table, &gone);
        let owned: Vec<(Table, String, String)> = self
            .objects
            .borrow()
            .iter()
            .filter(|(_, object)| part::is_controlled_by(object, &gone))
            .map(|(key, _)| key.clone())
            .collect();
        for (table, namespace, name) in owned {
            self.delete(table, &namespace, &name, false);
        }
    }
}

impl Api for Memory {
    fn now(&self) -> Timestamp {
        self.now.get()
    }

    fn get(&self, table: Table, namespace: &str, name: &str) -> Option<Value> {
        self.objects.borrow().get(&(table, namespace.to_owned(), name.to_owned())).cloned()
    }

    fn list(&self, table: Table, namespace: &str) -> Vec<Value> {
        let objects = self.objects.borrow();
        let chosen =
            |key: &(Table, String, String)| key.0 == table && (namespace.is_empty() || key.1 == namespace);
        objects.iter().filter(|(key, _)| chosen(key)).map(|(_, object)| object.clone()).collect()
    }

    fn create(&self, table: Table, mut object: Value) -> Result<Value, String> {
        let gvk = table.gvk();
        let status = object["status"].clone();
        self.serial.set(self.serial.get() + 1);
        let unknown = builtin::decode(&gvk, &mut object)?;
        assert_eq!(unknown, Vec::<String>::new(), "{}", table.kind);
        object["metadata"]["uid"] = json!(format!("00000000-0000-0000-0000-{:012}", self.serial.get()));
        object["metadata"]["creationTimestamp"] = part::shown(self.now());
        builtin::set_defaults(&gvk, &mut object);
        builtin::prepare_create(&gvk, &mut object);
        let mut causes = builtin::validate_metadata(&gvk, &object);
        causes.extend(builtin::validate_create(&gvk, &object));
        if let Some(cause) = causes.first() {
            return Err(cause.to_string());
        }
        if table == NODES {
            object["status"] = status;
        }
        if self.get(table, part::namespace(&object), part::name(&object)).is_some() {
            return Err("already exists".to_owned());
        }
        self.put(table, object.clone());
        Ok(object)
    }

    fn amend(&self, table: Table, namespace: &str, name: &str, change: &dyn Fn(&mut Value)) {
        let Some(before) = self.get(table, namespace, name) else { return };
        let mut after = before.clone();
        change(&mut after);
        builtin::encode(&table.gvk(), &mut after);
        if after == before {
            return;
        }
        if part::is_deleting(&after)
            && builtin::tree::items(&after["metadata"], "finalizers").is_empty()
            && table == CLAIMS
        {
            return self.remove(table, namespace, name);
        }
        // What controllers write must be of the right types.
        let mut checked = after.clone();
        assert_eq!(builtin::decode(&table.gvk(), &mut checked), Ok(Vec::new()), "{} {after}", table.kind);
        self.put(table, after);
    }

    fn delete(&self, table: Table, namespace: &str, name: &str, now: bool) {
        let Some(object) = self.get(table, namespace, name) else { return };
        let held = !builtin::tree::items(&object["metadata"], "finalizers").is_empty();
        if (table == PODS && !now && !at(&object, &["spec", "nodeName"]).is_null()) || held {
            if part::is_deleting(&object) {
                return;
            }
            let stamp = part::shown(self.now());
            self.amend(table, namespace, name, &|object| {
                object["metadata"]["deletionTimestamp"] = stamp.clone();
            });
            return;
        }
        self.remove(table, namespace, name);
    }

    fn token(&self, namespace: &str, account: &str) -> String {
        format!("token of {namespace}/{account}")
    }
}

/// A cluster whose time stands still until it is moved.
struct World {
    api: Memory,
    controllers: Controllers,
}

impl World {
    fn new() -> Self {
        let api = Memory {
            objects: RefCell::default(),
            noted: RefCell::default(),
            now: Cell::new("2026-01-01T00:00:00Z".parse().unwrap()),
            serial: Cell::default(),
        };
        Controllers::bootstrap(&api);
        let mut world = Self { api, controllers: Controllers::new() };
        world.apply(NAMESPACES, json!({ "metadata": { "name": "n" } }));
        world.settle();
        world
    }

    fn settle(&mut self) {
        let noted = &self.api.noted;
        let steps = self.controllers.run(&self.api, &mut |controllers| {
            for (table, object) in noted.take() {
                controllers.notice(table, &object);
            }
        });
        assert!(steps < 10_000, "{steps} steps: something goes round");
    }

    /// Moves the time on, stopping wherever something is due.
    fn pass(&mut self, milliseconds: i64) {
        let end = self.api.now().checked_add(milliseconds.milliseconds()).unwrap();
        self.settle();
        while let Some(due) = self.controllers.next_due().filter(|due| *due <= end) {
            self.api.now.set(due);
            self.settle();
        }
        self.api.now.set(end);
        self.settle();
    }

    fn apply(&mut self, table: Table, mut object: Value) {
        object["apiVersion"] = json!(table.gvk().api_version());
        object["kind"] = json!(table.kind);
        if table != NAMESPACES {
            object["metadata"]["namespace"] = json!("n");
        }
        self.api.create(table, object).unwrap();
        self.settle();
    }

    fn edit(&mut self, table: Table, name: &str, change: impl Fn(&mut Value)) {
        self.api.amend(table, "n", name, &|object| {
            change(object);
            let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
            object["metadata"]["generation"] = json!(generation + 1);
        });
        self.settle();
    }

    fn get(&self, table: Table, name: &str) -> Value {
        self.api.get(table, "n", name).unwrap_or_default()
    }

    fn pods(&self) -> Vec<Value> {
        self.api.list(PODS, "n")
    }

    fn events(&self, reason: &str) -> Vec<String> {
        let events = self.api.list(EVENTS, "n");
        let message = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
        events.iter().filter(|event| event["reason"] == reason).map(message).collect()
    }
}

fn deployment(replicas: i64, annotations: &Value) -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" }, "annotations": annotations },
                "spec": { "containers": [{ "name": "web", "image": "nginx:1" }] }
            }
        }
    })
}

fn progressing(deployment: &Value) -> (String, String) {
    let condition = part::condition(deployment, "Progressing").cloned().unwrap_or_default();
    (
        condition["status"].as_str().unwrap_or_default().to_owned(),
        condition["reason"].as_str().unwrap_or_default().to_owned(),
    )
}

#[test]
fn a_deployment_becomes_available() {
    let mut world = World::new();
    world.apply(DEPLOYMENTS, deployment(3, &json!({})));
    assert_eq!(world.pods().len(), 3);
    assert!(!part::is_true(&world.get(DEPLOYMENTS, "web"), "Available"));
    world.pass(1000);
    let web = world.get(DEPLOYMENTS, "web");
    assert_eq!(web["status"]["availableReplicas"], 3);
    assert_eq!(web["status"]["observedGeneration"], web["metadata"]["generation"]);
    assert_eq!(progressing(&web), ("True".to_owned(), "NewReplicaSetAvailable".to_owned()));
    assert_eq!(at(&web, &["metadata", "annotations", "deployment.kubernetes.io/revision"]), "1");
    let set = &world.api.list(REPLICA_SETS, "n")[0];
    assert_eq!(
        world.events("ScalingReplicaSet"),
        [format!("Scaled up replica set {} from 0 to 3", part::name(set))]
    );
    assert_eq!(world.events("SuccessfulCreate").len(), 3);
}

#[test]
fn a_rolling_update_keeps_enough_pods() {
    let mut world = World::new();
    world.apply(DEPLOYMENTS, deployment(4, &json!({})));
    world.pass(1000);
    world.edit(DEPLOYMENTS, "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    });
    let mut fewest = 4;
    for _ in 0..40 {
        world.pass(50);
        fewest = fewest.min(world.pods().iter().filter(|pod| part::is_ready(pod)).count());
        assert!(world.pods().iter().filter(|pod| part::is_active(pod)).count() <= 5);
    }
    assert_eq!(fewest, 3);
    let web = world.get(DEPLOYMENTS, "web");
    assert_eq!(web["status"]["updatedReplicas"], 4);
    assert_eq!(web["status"]["replicas"], 4);
    assert_eq!(progressing(&web).1, "NewReplicaSetAvailable");
    assert!(world.pods().iter().all(|pod| pod["spec"]["containers"][0]["image"] == "nginx:2"));
    assert_eq!(world.api.list(REPLICA_SETS, "n").len(), 2);
    // Back to the first template: its replica set gets the next revision.
    world.edit(DEPLOYMENTS, "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:1");
    });
    world.pass(5000);
    let web = world.get(DEPLOYMENTS, "web");
    assert_eq!(at(&web, &["metadata", "annotations", "deployment.kubernetes.io/revision"]), "3");
    assert_eq!(world.api.list(REPLICA_SETS, "n").len(), 2);
}

#[test]
fn a_rollout_that_hangs_is_said_to_hang() {
    let mut world = World::new();
    let mut web = deployment(1, &json!({ "testenv.weir.dev/fail": "ImagePullBackOff" }));
    web["spec"]["progressDeadlineSeconds"] = json!(60);
    world.apply(DEPLOYMENTS, web);
    world.pass(59_000);
    assert_eq!(progressing(&world.get(DEPLOYMENTS, "web")).0, "True");
    world.pass(2000);
    let web = world.get(DEPLOYMENTS, "web");
    assert_eq!(progressing(&web), ("False".to_owned(), "ProgressDeadlineExceeded".to_owned()));
    let waiting = &world.pods()[0]["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ImagePullBackOff");
}

#[test]
fn pods_do_what_their_annotations_say() {
    let mut world = World::new();
    world.apply(
        DEPLOYMENTS,
        deployment(
            1,
            &json!({ "testenv.weir.dev/fail": "CrashLoopBackOff", "testenv.weir.dev/fail-after": "3s" }),
        ),
    );
    world.pass(2000);
    assert!(part::is_ready(&world.pods()[0]));
    world.pass(2000);
    assert!(!part::is_ready(&world.pods()[0]));
    assert_eq!(world.pods()[0]["status"]["containerStatuses"][0]["restartCount"], 1);
    world.pass(60_000);
    assert_eq!(world.pods()[0]["status"]["containerStatuses"][0]["restartCount"], 3);
    assert!(!part::is_true(&world.get(DEPLOYMENTS, "web"), "Available"));
}

#[test]
fn scaling_down_and_deleting_ends_pods() {
    let mut world = World::new();
    world.apply(DEPLOYMENTS, deployment(3, &json!({ "testenv.weir.dev/terminate-after": "3s" })));
    world.pass(1000);
    world.edit(DEPLOYMENTS, "web", |web| web["spec"]["replicas"] = json!(1));
    world.pass(1000);
    assert_eq!(world.pods().iter().filter(|pod| part::is_active(pod)).count(), 1);
    assert_eq!(world.pods().len(), 3);
    world.pass(3000);
    assert_eq!(world.pods().len(), 1);
    world.api.delete(DEPLOYMENTS, "n", "web", false);
    world.pass(5000);
    assert_eq!(world.pods().len(), 0);
}

#[test]
fn recreate_never_runs_two_versions() {
    let mut world = World::new();
    let mut web = deployment(2, &json!({ "testenv.weir.dev/terminate-after": "2s" }));
    web["spec"]["strategy"] = json!({ "type": "Recreate" });
    world.apply(DEPLOYMENTS, web);
    world.pass(1000);
    world.edit(DEPLOYMENTS, "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    });
    world.pass(1000);
    assert!(world.pods().iter().all(|pod| pod["spec"]["containers"][0]["image"] == "nginx:1"));
    world.pass(3000);
    assert_eq!(world.get(DEPLOYMENTS, "web")["status"]["availableReplicas"], 2);
    assert!(world.pods().iter().all(|pod| pod["spec"]["containers"][0]["image"] == "nginx:2"));
}

#[test]
fn a_pod_waits_for_its_secret() {
    let mut world = World::new();
    let mut web = deployment(1, &json!({}));
    web["spec"]["template"]["spec"]["containers"][0]["envFrom"] = json!([{ "secretRef": { "name": "s" } }]);
    world.apply(DEPLOYMENTS, web);
    world.pass(5000);
    let waiting = world.pods()[0]["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    assert_eq!(
        waiting,
        json!({ "reason": "CreateContainerConfigError", "message": "secret \"s\" not found" })
    );
    world.apply(SECRETS, json!({ "metadata": { "name": "s" } }));
    world.pass(1000);
    assert!(part::is_ready(&world.pods()[0]));
}

#[test]
fn a_stateful_set_starts_and_updates_in_order() {
    let mut world = World::new();
    world.apply(
        STATEFUL_SETS,
        json!({
            "metadata": { "name": "db" },
            "spec": {
                "replicas": 3, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
                "template": {
                    "metadata": { "labels": { "app": "db" } },
                    "spec": { "containers": [{ "name": "db", "image": "db:1", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }] }
                },
                "volumeClaimTemplates": [{
                    "metadata": { "name": "data" },
                    "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }
                }]
            }
        }),
    );
    world.pass(100);
    assert_eq!(world.pods().len(), 1);
    world.pass(2000);
    let names: Vec<String> = world.pods().iter().map(|pod| part::name(pod).to_owned()).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    let claims = world.api.list(CLAIMS, "n");
    assert_eq!(claims.len(), 3);
    assert!(claims.iter().all(|claim| claim["status"]["phase"] == "Bound"));
    let first = world.get(STATEFUL_SETS, "db")["status"].clone();
    assert_eq!((&first["readyReplicas"], &first["currentRevision"]), (&json!(3), &first["updateRevision"]));
    world.edit(STATEFUL_SETS, "db", |db| {
        db["spec"]["template"]["spec"]["containers"][0]["image"] = json!("db:2");
    });
    world.pass(100);
    let images: Vec<Value> =
        world.pods().iter().map(|pod| pod["spec"]["containers"][0]["image"].clone()).collect();
    assert_eq!(images, ["db:1", "db:1", "db:2"]);
    world.pass(3000);
    let status = world.get(STATEFUL_SETS, "db")["status"].clone();
    assert_eq!(status["updatedReplicas"], 3);
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    assert_ne!(status["currentRevision"], first["currentRevision"]);
    world.edit(STATEFUL_SETS, "db", |db| db["spec"]["replicas"] = json!(1));
    world.pass(3000);
    assert_eq!(world.pods().len(), 1);
}

#[test]
fn a_daemon_set_runs_on_each_node() {
    let mut world = World::new();
    world.apply(
        DAEMON_SETS,
        json!({
            "metadata": { "name": "agent" },
            "spec": {
                "selector": { "matchLabels": { "app": "agent" } },
                "template": { "metadata": { "labels": { "app": "agent" } }, "spec": { "containers": [{ "name": "a", "image": "a:1" }] } }
            }
        }),
    );
    world.pass(1000);
    let nodes: Vec<Value> = world.pods().iter().map(|pod| pod["spec"]["nodeName"].clone()).collect();
    assert_eq!(nodes.len(), 2);
    assert_ne!(nodes[0], nodes[1]);
    let status = world.get(DAEMON_SETS, "agent")["status"].clone();
    assert_eq!((&status["numberReady"], &status["desiredNumberScheduled"]), (&json!(2), &json!(2)));
    world.edit(DAEMON_SETS, "agent", |agent| {
        agent["spec"]["template"]["spec"]["containers"][0]["image"] = json!("a:2");
    });
    world.pass(3000);
    assert_eq!(world.get(DAEMON_SETS, "agent")["status"]["updatedNumberScheduled"], 2);
}

fn job(spec: &Value, annotations: &Value) -> Value {
    let mut job = json!({
        "metadata": { "name": "migrate" },
        "spec": { "template": {
            "metadata": { "annotations": annotations },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "a", "image": "a:1" }] }
        } }
    });
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key.as_str()] = value.clone();
    }
    job
}

#[test]
fn a_job_completes_and_goes_after_its_time() {
    let mut world = World::new();
    world.apply(
        JOBS,
        job(&json!({ "completions": 3, "parallelism": 2, "ttlSecondsAfterFinished": 10 }), &json!({})),
    );
    assert_eq!(world.pods().len(), 2);
    world.pass(2000);
    let done = world.get(JOBS, "migrate");
    assert_eq!(done["status"]["succeeded"], 3);
    assert!(part::is_true(&done, "Complete"));
    assert_eq!(world.events("Completed"), ["Job completed"]);
    world.pass(10_000);
    assert!(world.get(JOBS, "migrate").is_null());
    assert_eq!(world.pods().len(), 0);
}

#[test]
fn a_job_fails_after_its_tries() {
    let mut world = World::new();
    world.apply(JOBS, job(&json!({ "backoffLimit": 1 }), &json!({ "testenv.weir.dev/exit-code": "1" })));
    world.pass(2000);
    assert!(!part::is_true(&world.get(JOBS, "migrate"), "Failed"));
    world.pass(20_000);
    let failed = world.get(JOBS, "migrate");
    let condition = part::condition(&failed, "Failed").unwrap();
    assert_eq!(condition["reason"], "BackoffLimitExceeded");
    assert_eq!(condition["message"], "Job has reached the specified backoff limit");
    assert_eq!(failed["status"]["failed"], 2);
}

#[test]
fn a_job_that_takes_too_long_fails() {
    let mut world = World::new();
    world.apply(
        JOBS,
        job(&json!({ "activeDeadlineSeconds": 5 }), &json!({ "testenv.weir.dev/ready-after": "never" })),
    );
    world.pass(6000);
    assert_eq!(part::condition(&world.get(JOBS, "migrate"), "Failed").unwrap()["reason"], "DeadlineExceeded");
    assert_eq!(world.pods().len(), 0);
}

#[test]
fn a_cron_job_makes_jobs_at_its_times() {
    let mut world = World::new();
    let template = job(&json!({}), &json!({}))["spec"].clone();
    world.apply(
        CRON_JOBS,
        json!({ "metadata": { "name": "often" }, "spec": { "schedule": "*/10 * * * *", "jobTemplate": { "spec": template } } }),
    );
    world.pass(9 * 60_000);
    assert_eq!(world.api.list(JOBS, "n").len(), 0);
    world.pass(2 * 60_000);
    assert_eq!(world.api.list(JOBS, "n").len(), 1);
    world.pass(60 * 60_000);
    // Three that succeeded are kept.
    assert_eq!(world.api.list(JOBS, "n").len(), 3);
    assert_eq!(world.get(CRON_JOBS, "often")["status"]["lastScheduleTime"], "2026-01-01T01:10:00Z");
}

#[test]
fn services_have_endpoints_and_addresses() {
    let mut world = World::new();
    let spec = json!({ "type": "LoadBalancer", "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] });
    world.apply(SERVICES, json!({ "metadata": { "name": "web" }, "spec": spec }));
    assert_eq!(world.get(SERVICES, "web")["status"]["loadBalancer"]["ingress"][0]["ip"], "198.51.100.1");
    world.apply(DEPLOYMENTS, deployment(2, &json!({})));
    world.pass(1000);
    let endpoints = world.get(ENDPOINTS, "web");
    assert_eq!(endpoints["subsets"][0]["addresses"].as_array().unwrap().len(), 2);
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], 8080);
    let slice = &world.api.list(SLICES, "n")[0];
    assert_eq!(slice["endpoints"].as_array().unwrap().len(), 2);
    assert_eq!(slice["endpoints"][0]["conditions"]["ready"], true);
}

#[test]
fn namespaces_and_secrets_get_what_they_need() {
    let mut world = World::new();
    assert!(world.get(ACCOUNTS, "default").is_object());
    assert!(world.get(CONFIG_MAPS, "kube-root-ca.crt")["data"]["ca.crt"].is_string());
    let annotations = json!({ "kubernetes.io/service-account.name": "default" });
    world.apply(SECRETS, json!({ "metadata": { "name": "t", "annotations": annotations }, "type": "kubernetes.io/service-account-token" }));
    assert!(world.get(SECRETS, "t")["data"]["token"].is_string());
}

#[test]
fn a_budget_counts_its_pods() {
    let mut world = World::new();
    world.apply(BUDGETS, json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } } }));
    world.apply(DEPLOYMENTS, deployment(3, &json!({})));
    world.pass(1000);
    let status = world.get(BUDGETS, "b")["status"].clone();
    assert_eq!((&status["currentHealthy"], &status["disruptionsAllowed"]), (&json!(3), &json!(2)));
}

#[test]
fn a_world_at_rest_writes_nothing() {
    let mut world = World::new();
    world.apply(DEPLOYMENTS, deployment(2, &json!({})));
    world.pass(1000);
    let before = world.api.objects.borrow().clone();
    for (table, _, name) in before.keys() {
        let object =
            world.api.get(*table, if *table == NAMESPACES || *table == NODES { "" } else { "n" }, name);
        world.controllers.notice(*table, &object.unwrap_or_default());
    }
    world.pass(3600 * 1000);
    assert!(*world.api.objects.borrow() == before, "something was written");
}
