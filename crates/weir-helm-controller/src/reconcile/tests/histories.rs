//! Histories of a release in which something goes wrong: the next runs repair it.

use proptest::prelude::*;
use tokio::runtime::Builder;

use super::shaky::{FAULTS, Fault, Shaky};
use super::*;

/// How many runs it may take until there is nothing more to do.
const RUNS_MAX: usize = 12;
const CONFIG: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {value: {{ .Values.value | quote }}}
";
const MORE: &str = r"
{{- if .Values.bad }}
apiVersion: v1
kind: ConfigMap
metadata: {name: bad}
{{- else }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-{{ .Values.value }}}
{{- end }}
";
const HOOK: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: hook
  annotations: {helm.sh/hook: "pre-install,post-upgrade,pre-rollback,post-delete", helm.sh/hook-delete-policy: "before-hook-creation,hook-succeeded"}
"#;
const TEST: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ if .Values.badTest }}bad{{ else }}test{{ end }}, annotations: {helm.sh/hook: test}}
";

/// Something that happens to a release.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Other values; those with `bad` cannot be installed, those with `bad test` fail their test.
    Values { value: u8, bad: bool, bad_test: bool },
    /// Another version of the chart.
    Chart(u8),
    /// Somebody edits an object.
    Edit,
    /// Somebody uninstalls the release by hand.
    UninstallByHand,
    /// Somebody upgrades the release by hand.
    UpgradeByHand,
    /// The release is to be in the one or the other namespace.
    Move(bool),
    /// An upgrade is demanded.
    Force(u8),
    /// The HelmRelease is deleted and made anew.
    Delete,
}

/// How failures are dealt with.
const STRATEGIES: [&str; 6] = [
    "{}",
    r#"{"install": {"remediation": {"retries": 1}}, "upgrade": {"remediation": {"retries": 1}}}"#,
    r#"{"install": {"remediation": {"retries": 1, "remediateLastFailure": true}}, "upgrade": {"remediation": {"retries": 2, "strategy": "uninstall"}}}"#,
    r#"{"install": {"strategy": {"name": "RetryOnFailure"}}, "upgrade": {"strategy": {"name": "RetryOnFailure"}}}"#,
    r#"{"upgrade": {"remediation": {"retries": -1}}, "driftDetection": {"mode": "enabled"}, "maxHistory": 2}"#,
    r#"{"upgrade": {"serverSideApply": "disabled", "cleanupOnFail": true, "remediation": {"retries": 1}}, "install": {"serverSideApply": false, "replace": true}, "uninstall": {"keepHistory": true}}"#,
];

struct History {
    world: World,
    shaky: Arc<Shaky>,
    /// What goes wrong, for messages.
    label: String,
}

impl History {
    fn new(strategy: &str) -> Self {
        let memory = Arc::new(MemoryCluster::new());
        let shaky = Arc::new(Shaky::new(Arc::clone(&memory)));
        let mut spec: Json = serde_json::from_str(strategy).unwrap();
        spec["test"] = json!({"enable": true});
        let refused = ClusterError::Api {
            code: 422,
            reason: "Invalid".to_owned(),
            message: "this is refused".to_owned(),
        };
        for namespace in ["apps", "prod"] {
            for verb in [Verb::Apply, Verb::Create] {
                memory.fail(verb, &format!("ConfigMap/{namespace}/bad"), refused.clone(), usize::MAX);
            }
        }
        let world = World::on(memory, Arc::clone(&shaky) as Arc<dyn WriteCluster>, spec);
        let history = Self { world, shaky, label: strategy.to_owned() };
        history.chart(0);
        history
    }

    fn chart(&self, number: u8) {
        let files = [
            ("templates/config.yaml", CONFIG),
            ("templates/more.yaml", MORE),
            ("templates/hook.yaml", HOOK),
            ("templates/test.yaml", TEST),
        ];
        self.world.publish(&format!("1.{number}.0"), char::from(b'a' + number % 6), &files);
    }

    fn recorded(&self) -> Recorded {
        Recorded { shaky: Some(Arc::clone(&self.shaky)), ..self.world.recorded() }
    }

    /// One run of the controller; `None` if the process dies in it.
    async fn run(&mut self) -> Option<Result<(), Error>> {
        let progress = self.recorded();
        let result = tokio::select! {
            biased;
            () = self.shaky.died() => None,
            result = self.world.reconciler.run(&progress, &self.world.object) => Some(result),
        };
        let Some(result) = result else { return self.die(&progress) };
        let before = self.world.object.clone();
        let result = self.world.finish(&progress, result);
        // The status is written in the end, which may go wrong too.
        let written = tokio::select! {
            biased;
            () = self.shaky.died() => None,
            written = self.shaky.pass(async { Ok(()) }) => Some(written),
        };
        if !matches!(written, Some(Ok(()))) {
            self.world.object = before;
            return self.die(&progress);
        }
        Some(result)
    }

    /// What is known of the object is what was written last.
    fn die<T>(&mut self, progress: &Recorded) -> Option<T> {
        if let Some(published) = progress.published.lock().last() {
            self.world.object = published.clone();
        }
        None
    }

    /// Runs until there is nothing more to do; the outcome of the last run.
    async fn settle(&mut self) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..RUNS_MAX {
            match self.run().await {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) if error.is_terminal() => return Err(error.to_string()),
                Some(Err(error)) => last = error.to_string(),
                None => "died".clone_into(&mut last),
            }
        }
        Err(last)
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Values { value, bad, bad_test } => self.world.change(|object| {
                let value = format!("v{value}");
                object.spec.values = Some(json!({"value": value, "bad": bad, "badTest": bad_test}));
            }),
            Step::Chart(number) => self.chart(number),
            Step::Edit => {
                if let Some(mut config) = self.world.config_map() {
                    config["data"]["value"] = "edited".into();
                    self.world.cluster.put(config);
                }
            }
            Step::UninstallByHand | Step::UpgradeByHand => {
                // Somebody else's process: it neither dies nor sees errors.
                let name = spec::release_name(&self.world.object);
                let cluster = Arc::clone(&self.world.cluster) as Arc<dyn WriteCluster>;
                let work =
                    self.world.reconciler.work(&self.world.object, cluster, Arc::default(), "apps", name);
                if matches!(step, Step::UninstallByHand) {
                    let _ = work.uninstall().await.result;
                } else if let Ok(Some(last)) = work.storage().last().await {
                    let chart = Chart::from_archive(&archive("9.0.0", &[("templates/config.yaml", CONFIG)]));
                    let values = json!({"value": "by-hand"}).as_object().cloned().unwrap_or_default();
                    let _ = work.upgrade(&chart.unwrap(), &values, Some(&last)).await.result;
                }
            }
            Step::Move(away) => self.world.change(|object| {
                object.spec.target_namespace = away.then(|| "prod".to_owned());
            }),
            Step::Force(token) => {
                let annotations = self.world.object.metadata.annotations.get_or_insert_default();
                for name in [annotation::REQUESTED_AT, annotation::FORCE_AT] {
                    annotations.insert(name.to_owned(), token.to_string());
                }
            }
            Step::Delete => self.delete().await,
        }
    }

    /// Deletes the HelmRelease, which takes the release along, and makes a new one.
    ///
    /// What a rollback that failed did not delete is on no record and stays, as with Helm.
    async fn delete(&mut self) {
        let recorded = self.recorded_objects().await;
        for attempt in 0..=RUNS_MAX {
            assert!(attempt < RUNS_MAX, "the finalizer never ends: {}", self.label);
            let progress = self.recorded();
            let ended = tokio::select! {
                biased;
                () = self.shaky.died() => None,
                result = finalize::finalize(&self.world.reconciler, &progress, &self.world.object) => Some(result),
            };
            match ended {
                Some(Ok(())) => break,
                Some(Err(_)) => self.world.object = progress.snapshot(),
                None => {
                    self.die::<()>(&progress);
                }
            }
        }
        let records = self.shaky.releases();
        let left: Vec<&ObjectRef> =
            recorded.iter().filter(|object| self.world.cluster.peek(object).is_some()).collect();
        assert!(left.is_empty(), "left behind after the deletion: {left:?} {records:?}: {}", self.label);
        self.world.object.status = None;
    }

    /// The objects on the last record of the release, wherever it is made at the moment.
    async fn recorded_objects(&self) -> Vec<ObjectRef> {
        let latest = latest(&self.world.object);
        let name = latest.map_or_else(|| spec::release_name(&self.world.object), |latest| latest.name);
        let cluster = Arc::clone(&self.world.cluster) as Arc<dyn WriteCluster>;
        let work = self.world.reconciler.work(&self.world.object, cluster, Arc::default(), "apps", name);
        let Ok(Some(last)) = work.storage().last().await else { return Vec::new() };
        let objects =
            weir_helm::action::read_manifest(&*self.world.cluster, &last.manifest, &last.namespace).await;
        objects.unwrap_or_default().iter().map(ObjectRef::of).collect()
    }

    /// The world is as the spec wants it, and stays so without writes.
    async fn check_final(&mut self) {
        self.shaky.calm();
        self.take(Step::Values { value: 200, bad: false, bad_test: false }).await;
        self.chart(5);
        let outcome = self.settle().await;
        let ready = condition::get(self.world.object.conditions(), types::READY).cloned();
        assert_eq!(outcome, Ok(()), "{}: {ready:?}", self.label);
        assert!(condition::is_ready(self.world.object.conditions()), "{}: {ready:?}", self.label);
        let release = spec::release_name(&self.world.object);
        let namespace = spec::release_namespace(&self.world.object);
        let config = self.world.cluster.peek(&ObjectRef::core("ConfigMap", namespace, &release));
        assert_eq!(config.unwrap_or_default()["data"]["value"], "v200", "{}", self.label);
        let records = self.shaky.releases();
        let statuses = &records[&release];
        assert_eq!(
            statuses.iter().filter(|status| *status == "deployed").count(),
            1,
            "{}: {records:?}",
            self.label
        );
        assert!(statuses.iter().all(|status| !status.starts_with("pending-")), "{}: {records:?}", self.label);
        assert_eq!(self.shaky.violations(), Vec::<String>::new(), "{}", self.label);
        self.world.writes();
        assert_eq!(self.settle().await, Ok(()), "{}", self.label);
        assert_eq!(self.world.writes(), Vec::<String>::new(), "{}", self.label);
    }
}

/// Runs in a world of its own in which time stands still unless everybody waits.
fn in_time<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(future)
}

/// A life with everything in it.
const LONG: [Step; 8] = [
    Step::Values { value: 1, bad: false, bad_test: false },
    Step::Values { value: 2, bad: false, bad_test: false },
    Step::Values { value: 3, bad: true, bad_test: false },
    Step::Edit,
    Step::UpgradeByHand,
    Step::Move(true),
    Step::Values { value: 4, bad: false, bad_test: true },
    Step::Delete,
];
const SHORT: [Step; 4] = [LONG[0], LONG[1], LONG[2], LONG[7]];

/// Lives; how many requests it takes. With a fault, it ends soon after it.
async fn life(strategy: &str, steps: &[Step], fault: Option<(usize, Fault)>) -> usize {
    let mut history = History::new(strategy);
    if let Some((after, fault)) = fault {
        history.shaky.plan(after, fault);
        history.label = format!("{fault:?} at request {after} with {strategy}");
    }
    for step in steps {
        history.take(*step).await;
        // Whatever comes of it: the next change finds what is there.
        let _ = history.settle().await;
        if fault.is_some_and(|(after, _)| after < history.shaky.calls()) && !matches!(step, Step::Delete) {
            break;
        }
    }
    let calls = history.shaky.calls();
    history.check_final().await;
    calls
}

#[test]
fn a_process_that_dies_at_any_request_leaves_what_the_next_one_repairs() {
    let calls = in_time(life(STRATEGIES[1], &SHORT, None));
    assert!(calls > 60, "{calls} requests");
    for after in 0..calls {
        let fault = [Fault::DiesBefore, Fault::DiesAfter][after % 2];
        in_time(life(STRATEGIES[1], &SHORT, Some((after, fault))));
    }
}

#[test]
fn an_error_at_any_request_is_repaired_by_the_next_runs() {
    let calls = in_time(life(STRATEGIES[1], &SHORT, None));
    for after in 0..calls {
        let fault = [Fault::AnswerLost, Fault::Refused][after % 2];
        in_time(life(STRATEGIES[1], &SHORT, Some((after, fault))));
    }
}

/// Every twelfth request of a long life goes wrong, in turns in another way; which ones differs between strategies.
#[test]
fn long_lives_end_well_with_any_strategy() {
    for (number, strategy) in STRATEGIES.iter().enumerate() {
        let calls = in_time(life(strategy, &LONG, None));
        for (turn, after) in (number..calls).step_by(2 * STRATEGIES.len()).enumerate() {
            in_time(life(strategy, &LONG, Some((after, FAULTS[turn % FAULTS.len()]))));
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u8, any::<bool>(), proptest::bool::weighted(0.2))
            .prop_map(|(value, bad, bad_test)| Step::Values { value, bad, bad_test }),
        2 => (0..3u8).prop_map(Step::Chart),
        1 => Just(Step::Edit),
        1 => Just(Step::UninstallByHand),
        1 => Just(Step::UpgradeByHand),
        1 => any::<bool>().prop_map(Step::Move),
        1 => any::<u8>().prop_map(Step::Force),
        1 => Just(Step::Delete),
    ]
}

/// How many random histories are tried; more with `WEIR_HISTORIES`.
fn cases() -> u32 {
    std::env::var("WEIR_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(32)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn any_history_ends_well(
        strategy in 0..STRATEGIES.len(),
        steps in proptest::collection::vec((step(), 0..60usize, 0..FAULTS.len() + 1), 1..7),
    ) {
        in_time(async {
            let mut history = History::new(STRATEGIES[strategy]);
            for (step, after, fault) in steps {
                if let Some(fault) = FAULTS.get(fault) {
                    history.shaky.plan(after, *fault);
                }
                history.take(step).await;
                let _ = history.settle().await;
            }
            history.check_final().await;
        });
    }
}
