//! The whole runtime on a small API server in memory: no sockets, paused time.

mod server;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use server::Server;
use tokio::time::{Instant, sleep};
use weir_api::FluxObject as _;
use weir_api::condition::{self, Stamp};
use weir_api::kustomize::Kustomization;

use super::*;
use crate::{Class, Classify, Conclusion, Ended, Notice, Pass, Priority, Requeue, Run, Severity, Trigger};

/// Follows the paused time of the test, from the start of 2026.
#[derive(Debug)]
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> jiff::Timestamp {
        let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + self.0.elapsed()
    }
}

/// What a run of the test reconciler does.
#[derive(Debug, Clone)]
enum Act {
    Succeed,
    Fail(Class),
    Panic,
    /// Works for a while, then succeeds.
    Work(Duration),
    /// Waits without a worker, then succeeds.
    Wait(Duration),
    /// Succeeds when the object is asked for again.
    UntilSuperseded,
    /// Publishes a progress message, then succeeds.
    Progress,
    /// Shows a progress message for a while, then succeeds.
    Show(Duration),
}

#[derive(Debug, thiserror::Error)]
#[error("it broke")]
struct Broken(Class);

impl Classify for Broken {
    fn class(&self) -> Class {
        self.0
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed("BuildFailed")
    }
}

/// Follows a script and notes what it is asked for.
struct Scripted {
    script: Mutex<VecDeque<Act>>,
    seen: Arc<Mutex<Vec<String>>>,
    started: Instant,
}

impl Scripted {
    fn note(&self, what: &str) {
        let line = format!("{:.2} {what}", self.started.elapsed().as_secs_f64());
        self.seen.lock().push(line);
    }
}

impl Reconciler for Scripted {
    type Object = Kustomization;
    type Done = ();
    type Error = Broken;

    async fn reconcile(&self, run: &Run<Kustomization>, object: &Kustomization) -> Result<(), Broken> {
        let act = self.script.lock().pop_front().unwrap_or(Act::Succeed);
        self.note(&format!("run {}", object.metadata.name.as_deref().unwrap()));
        match act {
            Act::Succeed => {}
            Act::Fail(class) => return Err(Broken(class)),
            Act::Panic => panic!("oh no"),
            Act::Work(time) => sleep(time).await,
            Act::Wait(time) => run.without_worker(sleep(time)).await,
            Act::UntilSuperseded => {
                let trigger = run.superseded().await;
                self.note(&format!("superseded by {trigger}"));
            }
            Act::Progress | Act::Show(_) => {
                let stamp = stamp(object, run.now());
                run.update(|object| {
                    condition::mark_reconciling(
                        object.conditions_mut(),
                        "Progressing",
                        "Building manifests",
                        stamp,
                    );
                });
                if let Act::Show(time) = act {
                    run.show_progress();
                    sleep(time).await;
                } else {
                    run.publish().await.unwrap();
                }
            }
        }
        Ok(())
    }

    async fn finalize(&self, _: &Run<Kustomization>, object: &Kustomization) -> Result<(), Broken> {
        self.note(&format!("finalize {}", object.metadata.name.as_deref().unwrap()));
        match self.script.lock().pop_front() {
            Some(Act::Fail(class)) => Err(Broken(class)),
            _ => Ok(()),
        }
    }

    fn conclude(&self, object: &mut Kustomization, pass: Pass<'_, (), Broken>, ended: Ended) -> Conclusion {
        let stamp = stamp(object, ended.now);
        let generation = object.generation();
        match pass {
            Pass::Reconciled(Ok(())) => {
                condition::delete(object.conditions_mut(), "Reconciling");
                condition::mark_true(
                    object.conditions_mut(),
                    "Ready",
                    "ReconciliationSucceeded",
                    "Applied",
                    stamp,
                );
                object.set_observed_generation(generation);
                Conclusion {
                    requeue: Requeue::Interval(Duration::from_mins(10)),
                    notices: vec![Notice::new(
                        Severity::Info,
                        "ReconciliationSucceeded",
                        "Reconciliation finished",
                    )],
                }
            }
            Pass::Reconciled(Err(failed)) | Pass::Finalized(Err(failed)) => {
                let text = failed.to_string();
                condition::mark_false(object.conditions_mut(), "Ready", &failed.reason(), &text, stamp);
                Conclusion {
                    requeue: Requeue::for_class(failed.class()),
                    notices: vec![Notice::new(Severity::Error, failed.reason().into_owned(), text)],
                }
            }
            Pass::Suspended | Pass::Finalized(Ok(())) => Conclusion::default(),
        }
    }

    fn deadline(&self, _: &Kustomization) -> Option<Duration> {
        Some(Duration::from_hours(1))
    }
}

fn stamp(object: &Kustomization, now: jiff::Timestamp) -> Stamp {
    Stamp { generation: object.generation(), now: now.into() }
}

fn settings() -> Settings {
    Settings {
        name: "kustomize-controller".to_owned(),
        namespace: None,
        runtime_namespace: Some("flux-system".to_owned()),
        primary_selector: String::new(),
        config_selector: String::new(),
        host: "pod-1".to_owned(),
        gates: FeatureGates::default(),
        controller: ControllerOptions {
            concurrency: 2,
            field_manager: "gotk-kustomize-controller".to_owned(),
            finalizer: FINALIZER.to_owned(),
            retry_delay_min: Duration::from_millis(750),
            retry_delay_max: Duration::from_mins(15),
            interval_jitter: 0.0,
        },
    }
}

/// A running runtime.
struct World {
    server: Server,
    seen: Arc<Mutex<Vec<String>>>,
    handle: Handle,
    stop: CancellationToken,
    metrics: Metrics,
    running: tokio::task::JoinHandle<Result<(), LeaseLost>>,
}

impl World {
    fn start(server: &Server, script: &[Act]) -> Self {
        Self::start_with(server, script, |runtime| runtime, |_| {})
    }

    fn start_with(
        server: &Server,
        script: &[Act],
        adjust: impl FnOnce(Runtime) -> Runtime,
        options: impl FnOnce(&mut ControllerOptions),
    ) -> Self {
        let clock = PausedClock(Instant::now());
        let mut runtime = adjust(Runtime::new(settings(), server.client()).with_clock(Arc::new(clock)));
        let store = runtime.watch_primary::<Kustomization>();
        let seen = Arc::default();
        let reconciler = Scripted {
            script: Mutex::new(script.iter().cloned().collect()),
            seen: Arc::clone(&seen),
            started: Instant::now(),
        };
        let handle = runtime.controller(&store, reconciler, options);
        Self {
            server: server.clone(),
            seen,
            handle,
            stop: runtime.stop(),
            metrics: runtime.metrics(),
            running: tokio::spawn(runtime.run()),
        }
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock())
    }

    fn ready(&self, name: &str) -> String {
        let object = self.server.get(name);
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        ready.map_or("none".to_owned(), |ready| {
            format!(
                "{} {} {}",
                ready["status"].as_str().unwrap(),
                ready["reason"].as_str().unwrap(),
                ready["message"].as_str().unwrap()
            )
        })
    }
}

fn seconds(seconds: f64) -> tokio::time::Sleep {
    sleep(Duration::from_secs_f64(seconds))
}

#[tokio::test(start_paused = true)]
async fn a_new_object_gets_the_finalizer_and_a_status_and_then_there_is_silence() {
    let server = Server::default();
    server.create("apps", &json!({}));
    let world = World::start(&server, &[]);
    seconds(1.0).await;
    assert_eq!(world.seen(), ["0.00 run apps"]);
    assert_eq!(
        server.take_writes(),
        [
            json!({
                "path": "apps?fieldManager=gotk-kustomize-controller",
                "body": {"metadata": {"resourceVersion": "1", "finalizers": ["finalizers.fluxcd.io"]}},
            }),
            json!({
                "path": "apps/status?fieldManager=gotk-kustomize-controller",
                "body": {
                    "metadata": {"resourceVersion": "2"},
                    "status": {
                        "observedGeneration": 1,
                        "conditions": [{
                            "type": "Ready",
                            "status": "True",
                            "reason": "ReconciliationSucceeded",
                            "message": "Applied",
                            "observedGeneration": 1,
                            "lastTransitionTime": "2026-01-01T00:00:00Z",
                        }],
                    },
                },
            }),
        ]
    );
    // Our own writes do not wake the controller; the interval does, and then nothing is written.
    seconds(1200.0).await;
    assert_eq!(world.seen(), ["600.00 run apps", "1200.00 run apps"]);
    assert_eq!(server.take_writes(), [] as [Value; 0]);
    let text = world.metrics.encode();
    for want in [
        "controller_runtime_reconcile_total{controller=\"kustomization\",result=\"requeue_after\"} 3",
        "gotk_reconcile_duration_seconds_count{kind=\"Kustomization\",name=\"apps\",namespace=\"flux-system\"} 3",
        "workqueue_depth{name=\"kustomization\",controller=\"kustomization\",priority=\"3\"} 0",
    ] {
        assert!(text.contains(want), "{want} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_runs_the_object_now_and_is_noted_even_if_it_fails() {
    let server = Server::default();
    server.create("apps", &json!({}));
    let world = World::start(&server, &[Act::Succeed, Act::Fail(Class::Terminal)]);
    seconds(1.0).await;
    server
        .merge("apps", &json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "token-1"}}}));
    seconds(1.0).await;
    assert_eq!(world.seen(), ["0.00 run apps", "1.00 run apps"]);
    assert_eq!(server.get("apps")["status"]["lastHandledReconcileAt"], "token-1");
    assert_eq!(world.ready("apps"), "False BuildFailed it broke");
    // A terminal error is not tried again, and other annotations and the removal of the request do
    // not matter. A new generation does.
    server.merge(
        "apps",
        &json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": null, "a": "b"}}}),
    );
    seconds(3600.0).await;
    assert!(world.seen().is_empty());
    server.merge("apps", &json!({"spec": {"prune": false}}));
    seconds(1.0).await;
    assert_eq!(world.seen(), ["3602.00 run apps"]);
    assert!(
        world.metrics.encode().contains("terminal_reconcile_errors_total{controller=\"kustomization\"} 1")
    );
}

#[tokio::test(start_paused = true)]
async fn a_suspended_object_does_not_run_but_its_request_is_noted() {
    let server = Server::default();
    server.create(
        "apps",
        &json!({
            "metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "token-1"}},
            "spec": {"suspend": true},
        }),
    );
    let world = World::start(&server, &[]);
    seconds(3600.0).await;
    assert!(world.seen().is_empty());
    assert_eq!(server.get("apps")["status"], json!({"lastHandledReconcileAt": "token-1"}));
    server.merge("apps", &json!({"spec": {"suspend": false}}));
    seconds(1.0).await;
    assert_eq!(world.seen(), ["3600.00 run apps"]);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_object_runs_once_if_it_is_asked_to() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {}, "spec": {"suspend": true}}));
    let world = World::start(&server, &[]);
    seconds(10.0).await;
    assert!(world.seen().is_empty());
    let ask = |once: &str, requested: &str| {
        json!({"metadata": {"annotations": {
            "weir.dev/reconcileOnceAt": once, "reconcile.fluxcd.io/requestedAt": requested,
        }}})
    };
    server.merge("apps", &ask("token-1", "token-1"));
    seconds(3600.0).await;
    assert_eq!(world.seen(), ["10.00 run apps"]);
    assert_eq!(server.get("apps")["status"]["lastHandledReconcileAt"], "token-1");
    // Another request without the annotation is only noted.
    server.merge("apps", &ask("token-1", "token-2"));
    seconds(3600.0).await;
    assert!(world.seen().is_empty());
    assert_eq!(server.get("apps")["status"]["lastHandledReconcileAt"], "token-2");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_finalized_and_tried_again_until_that_works() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": ["other", FINALIZER]}}));
    let world = World::start(&server, &[Act::Succeed, Act::Fail(Class::Backoff)]);
    seconds(1.0).await;
    server.delete("apps");
    seconds(0.5).await;
    assert_eq!(world.seen(), ["0.00 run apps", "1.00 finalize apps"]);
    assert_eq!(world.ready("apps"), "False BuildFailed it broke");
    seconds(1.0).await;
    assert_eq!(world.seen(), ["1.75 finalize apps"]);
    // The finalizer of someone else is left alone.
    assert_eq!(server.get("apps")["metadata"]["finalizers"], json!(["other"]));
    seconds(3600.0).await;
    assert!(world.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_leaves_no_series() {
    let server = Server::default();
    server.create("apps", &json!({}));
    let world = World::start(&server, &[]);
    seconds(1.0).await;
    server.delete("apps");
    seconds(1.0).await;
    assert!(server.is_empty());
    assert!(!world.metrics.encode().contains("name=\"apps\""));
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_a_panic_is_one_of_them() {
    let server = Server::default();
    server.create("apps", &json!({}));
    let world = World::start(&server, &[Act::Fail(Class::Backoff), Act::Panic, Act::Fail(Class::Backoff)]);
    seconds(0.8).await;
    assert_eq!(world.ready("apps"), "False ReconciliationFailed panic during reconcile: oh no");
    seconds(9.2).await;
    assert_eq!(world.seen(), ["0.00 run apps", "0.75 run apps", "2.25 run apps", "5.25 run apps"]);
    let text = world.metrics.encode();
    for want in [
        "controller_runtime_reconcile_panics_total{controller=\"kustomization\"} 1",
        "controller_runtime_reconcile_errors_total{controller=\"kustomization\"} 3",
        "workqueue_retries_total{name=\"kustomization\",controller=\"kustomization\"} 3",
    ] {
        assert!(text.contains(want), "{want} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_and_superseded_runs_come_back_when_they_say() {
    let server = Server::default();
    server.create("apps", &json!({}));
    let script = [
        Act::Fail(Class::Waiting(Duration::from_secs(30))),
        Act::Fail(Class::RetryAfter(Duration::from_mins(1))),
        Act::Fail(Class::Superseded),
    ];
    let world = World::start(&server, &script);
    seconds(100.0).await;
    assert_eq!(world.seen(), ["0.00 run apps", "30.00 run apps", "90.00 run apps", "90.00 run apps"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_over_its_deadline_is_dropped_and_tried_again() {
    let server = Server::default();
    server.create("apps", &json!({}));
    let world = World::start(&server, &[Act::Work(Duration::from_secs(100_000))]);
    seconds(3600.5).await;
    assert_eq!(world.ready("apps"), "False ReconciliationFailed reconcile did not finish within 1h0m0s");
    seconds(1.0).await;
    assert_eq!(world.seen(), ["0.00 run apps", "3600.75 run apps"]);
}

#[tokio::test(start_paused = true)]
async fn progress_is_published_and_a_conflict_keeps_what_others_wrote() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    // Someone writes a condition of their own just before our first write.
    server.before_next_write(|server| {
        let foreign = json!([{"type": "Foreign", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]);
        server.merge("apps", &json!({"status": {"conditions": foreign}}));
    });
    let world = World::start(&server, &[Act::Progress]);
    seconds(5.0).await;
    let writes = server.take_writes();
    let messages: Vec<&str> = writes
        .iter()
        .map(|write| write["body"]["status"]["conditions"][0]["message"].as_str().unwrap())
        .collect();
    // Refused, with the newest state, and the end.
    assert_eq!(messages, ["Building manifests", "Building manifests", "Applied"]);
    let status = &server.get("apps")["status"];
    let types: Vec<&str> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| condition["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["Ready", "Foreign"]);
    assert_eq!(world.ready("apps"), "True ReconciliationSucceeded Applied");
}

#[tokio::test(start_paused = true)]
async fn progress_is_shown_while_a_run_lasts_and_not_before_two_seconds() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    let world =
        World::start(&server, &[Act::Show(Duration::from_secs(7)), Act::Show(Duration::from_millis(1900))]);
    let messages = || -> Vec<String> {
        let writes = server.take_writes();
        let message =
            |write: &Value| write["body"]["status"]["conditions"][0]["message"].as_str().map(str::to_owned);
        writes.iter().filter_map(message).collect()
    };
    seconds(1.5).await;
    assert!(messages().is_empty());
    seconds(3.0).await;
    assert_eq!(messages(), ["Building manifests"]);
    seconds(4.0).await;
    // What has not changed is not written again.
    assert_eq!(messages(), ["Applied"]);
    server.merge("apps", &json!({"metadata": {"generation": 2}, "spec": {"interval": "2m"}}));
    seconds(5.0).await;
    assert_eq!(messages(), ["Applied"]);
    assert_eq!(world.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_cannot_be_written_is_tried_again_with_the_next_run() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    server.fail_writes(&[500, 500]);
    let world = World::start(&server, &[]);
    seconds(10.0).await;
    assert_eq!(world.seen(), ["0.00 run apps", "0.75 run apps", "2.25 run apps"]);
    assert_eq!(world.ready("apps"), "True ReconciliationSucceeded Applied");
}

#[tokio::test(start_paused = true)]
async fn only_so_many_run_at_once_but_waiting_does_not_count() {
    let server = Server::default();
    for name in ["a", "b", "c", "d"] {
        server.create(name, &json!({"metadata": {"finalizers": [FINALIZER]}}));
    }
    let ten = Duration::from_secs(10);
    let world = World::start_with(
        &server,
        &[Act::Wait(ten), Act::Work(ten), Act::Work(ten), Act::Work(ten)],
        |runtime| runtime,
        |options| options.concurrency = 1,
    );
    seconds(100.0).await;
    let times: Vec<String> =
        world.seen().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(times, ["0.00", "0.00", "10.00", "20.00"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_learns_that_its_object_is_asked_for_again() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    let world = World::start(&server, &[Act::UntilSuperseded]);
    seconds(1.0).await;
    let trigger =
        Trigger { kind: "GitRepository".to_owned(), key: crate::ObjectKey::new("flux-system", "fleet") };
    world.handle.enqueue(&crate::ObjectKey::new("flux-system", "apps"), Priority::Event, &trigger);
    seconds(1.0).await;
    assert_eq!(
        world.seen(),
        ["0.00 run apps", "1.00 superseded by GitRepository/flux-system/fleet", "1.00 run apps"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_again_and_misses_nothing() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    server.create("old", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    let world = World::start(&server, &[]);
    seconds(1.0).await;
    world.seen();
    server.while_nobody_watches(|server| {
        server.create("new", &json!({"metadata": {"finalizers": [FINALIZER]}}));
        server.merge("apps", &json!({"spec": {"prune": false}}));
        server.remove("old");
    });
    seconds(0.1).await;
    let mut seen: Vec<String> =
        world.seen().iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    seen.sort();
    assert_eq!(seen, ["run apps", "run new"]);
    assert!(!world.metrics.encode().contains("name=\"old\""));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_does_not_stop_the_others() {
    let server = Server::default();
    server.create("broken", &json!({"spec": {"interval": 17}}));
    server.create("apps", &json!({}));
    let world = World::start(&server, &[]);
    seconds(1.0).await;
    server.create("later", &json!({}));
    server.merge("apps", &json!({"spec": {"interval": {}}}));
    seconds(1.0).await;
    assert_eq!(world.seen(), ["0.00 run apps", "1.00 run later"]);
    server.merge("apps", &json!({"spec": {"interval": "5m"}}));
    seconds(1.0).await;
    assert_eq!(world.seen(), ["2.00 run apps"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_at_the_start_is_waited_for() {
    let server = Server::default();
    server.create("apps", &json!({}));
    server.set_down(true);
    let world = World::start(&server, &[]);
    seconds(20.0).await;
    assert!(world.seen().is_empty());
    assert!(world.metrics.encode().contains("weir_runtime_watch_errors_total{kind=\"Kustomization\"}"));
    server.set_down(false);
    seconds(60.0).await;
    assert_eq!(world.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_work_end_and_drops_waits() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    server.create("web", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    let world =
        World::start(&server, &[Act::Work(Duration::from_secs(5)), Act::Wait(Duration::from_hours(1))]);
    seconds(1.0).await;
    let (stopped, mut order) = (Instant::now(), world.seen());
    world.stop.cancel();
    world.running.await.unwrap().unwrap();
    assert_eq!(stopped.elapsed(), Duration::from_secs(4));
    order.sort();
    assert_eq!(order, ["0.00 run apps", "0.00 run web"]);
    let ready: Vec<bool> =
        ["apps", "web"].iter().map(|name| server.get(name)["status"].is_object()).collect();
    assert_eq!(ready.iter().filter(|ready| **ready).count(), 1, "the one that worked has written its status");
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_ever() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    let world = World::start(&server, &[Act::Work(Duration::from_secs(1000))]);
    seconds(1.0).await;
    let stopped = Instant::now();
    world.stop.cancel();
    world.running.await.unwrap().unwrap();
    assert_eq!(stopped.elapsed(), Duration::from_secs(15));
}

fn lease() -> LeaseOptions {
    LeaseOptions {
        namespace: "flux-system".to_owned(),
        name: "kustomize-controller-leader-election".to_owned(),
        identity: "pod-1_1".to_owned(),
        lease_duration: Duration::from_secs(35),
        renew_deadline: Duration::from_secs(30),
        retry_period: Duration::from_secs(5),
        release_on_cancel: true,
    }
}

fn elected(server: &Server, runtime: Runtime) -> Runtime {
    let gate = WriteGate::default();
    let wrapping = Wrapping { gate: Some(gate.clone()), ..Wrapping::default() };
    runtime.with_wrapping(wrapping).with_lease(server.client(), lease(), gate)
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_the_work_and_stops_all_writes() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    let script = [Act::Work(Duration::from_secs(1000))];
    let world = World::start_with(&server, &script, |runtime| elected(&server, runtime), |_| {});
    seconds(1.0).await;
    assert_eq!(world.seen(), ["0.00 run apps"]);
    assert!(
        world
            .metrics
            .encode()
            .contains("leader_election_master_status{name=\"kustomize-controller-leader-election\"} 1")
    );
    server.take_writes();
    server.fail_lease(true);
    let result = world.running.await.unwrap();
    assert!(result.unwrap_err().to_string().starts_with("leader election lost"));
    seconds(2000.0).await;
    assert_eq!(server.take_writes(), [] as [Value; 0]);
    assert!(
        world
            .metrics
            .encode()
            .contains("leader_election_master_status{name=\"kustomize-controller-leader-election\"} 0")
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_process_takes_over_when_the_first_ends() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    let first = World::start_with(&server, &[], |runtime| elected(&server, runtime), |_| {});
    seconds(1.0).await;
    let second = World::start_with(
        &server,
        &[],
        |runtime| {
            let gate = WriteGate::default();
            let options = LeaseOptions { identity: "pod-2_1".to_owned(), ..lease() };
            runtime.with_lease(server.client(), options, gate)
        },
        |_| {},
    );
    seconds(60.0).await;
    assert_eq!(first.seen(), ["0.00 run apps"]);
    assert!(second.seen().is_empty(), "only one works");
    first.stop.cancel();
    first.running.await.unwrap().unwrap();
    seconds(10.0).await;
    assert_eq!(second.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_always_runs_needs_no_lease_and_ends_with_the_process() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    let leader = World::start_with(&server, &[], |runtime| elected(&server, runtime), |_| {});
    seconds(1.0).await;
    assert_eq!(leader.seen(), ["0.00 run apps"]);
    server.take_writes();
    let told = Arc::new(Mutex::new(Vec::new()));
    let served = Arc::clone(&told);
    let standby = World::start_with(
        &server,
        &[],
        move |runtime| {
            let gate = WriteGate::default();
            let options = LeaseOptions { identity: "pod-2_1".to_owned(), ..lease() };
            let wrapping = Wrapping { gate: Some(gate.clone()), ..Wrapping::default() };
            let client = runtime.client();
            let mut runtime = runtime.with_wrapping(wrapping).with_lease(client, options, gate);
            let (gated, standby, stop) = (runtime.client(), runtime.standby_client(), runtime.stop());
            runtime.always(async move {
                sleep(Duration::from_secs(5)).await;
                for client in [gated, standby] {
                    let api: kube::Api<Kustomization> = kube::Api::namespaced(client, "flux-system");
                    let patch = json!({"metadata": {"annotations": {"a": "b"}}});
                    let patched = api
                        .patch("apps", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&patch))
                        .await;
                    served.lock().push(patched.is_ok());
                }
                stop.cancelled().await;
                served.lock().push(true);
            });
            runtime
        },
        |_| {},
    );
    seconds(10.0).await;
    assert_eq!(*told.lock(), [false, true], "the lease is another's, and serving does not need it");
    standby.stop.cancel();
    standby.running.await.unwrap().unwrap();
    assert_eq!(*told.lock(), [false, true, true], "it is waited for");
}

#[tokio::test(start_paused = true)]
async fn events_are_written_in_the_background() {
    let server = Server::default();
    server.create("apps", &json!({"metadata": {"annotations": {"event.toolkit.fluxcd.io/team": "web"}}}));
    let world = World::start_with(&server, &[], Runtime::with_events, |_| {});
    seconds(1.0).await;
    world.stop.cancel();
    world.running.await.unwrap().unwrap();
    let events = server.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["message"], "Reconciliation finished");
    assert_eq!(events[0]["involvedObject"]["name"], "apps");
    assert_eq!(events[0]["metadata"]["annotations"], json!({"event.toolkit.fluxcd.io/team": "web"}));
}
