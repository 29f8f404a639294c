//! One run: a seed, what it does to the world, and what became of it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use weir_testcluster::{Effect, Fault};

use crate::checks::{self, History, kustomization_path, text};
use crate::fleet::Fleet;
use crate::world::{NAMESPACE, Process, Trouble, World};

/// How often the rules are checked while it goes on.
const LOOK_INTERVAL: Duration = Duration::from_secs(4);
/// How long it may take until all is as it should be, once nothing goes wrong any more.
const CONVERGENCE_MAX: Duration = Duration::from_mins(15);
/// How long it has to stay silent.
const SILENCE: Duration = Duration::from_mins(5);

/// What a run did, for the summary.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) actions: u32,
    pub(crate) deaths: u32,
    pub(crate) writes: usize,
    pub(crate) converged_after: Duration,
}

struct Run {
    world: World,
    fleet: Fleet,
    random: StdRng,
    history: History,
    processes: Vec<Process>,
    /// How many processes there are to be: one, or a second that waits for the lease.
    wanted: usize,
    restart_at: Duration,
    calm_at: Duration,
    suspended: BTreeSet<String>,
    gone: Vec<String>,
    /// When somebody last touched the objects of a member.
    touched: std::collections::BTreeMap<String, Duration>,
    summary: Summary,
    story: Vec<String>,
}

/// Runs a seed.
///
/// # Errors
/// The rule that was broken, and what had happened.
pub(crate) async fn run(seed: u64) -> Result<Summary, String> {
    let mut random = StdRng::seed_from_u64(seed);
    let world = World::new(seed).await;
    let fleet = Fleet::new(&mut random);
    let wanted = if random.random_bool(0.4) { 2 } else { 1 };
    let mut run = Run {
        world,
        fleet,
        random,
        history: History::default(),
        processes: Vec::new(),
        wanted,
        restart_at: Duration::ZERO,
        calm_at: Duration::ZERO,
        suspended: BTreeSet::new(),
        gone: Vec::new(),
        touched: std::collections::BTreeMap::new(),
        summary: Summary::default(),
        story: Vec::new(),
    };
    match Box::pin(run.play()).await {
        Ok(()) => Ok(run.summary),
        Err(rule) => Err(format!("{rule}\nwhat happened:\n  {}", run.story.join("\n  "))),
    }
}

impl Run {
    async fn play(&mut self) -> Result<(), String> {
        self.set_up().await;
        let actions = self.random.random_range(6..=14);
        for _ in 0..actions {
            self.act().await;
            self.summary.actions += 1;
            let pause = Duration::from_millis(self.random.random_range(50..30_000));
            self.watch_for(pause).await?;
        }
        self.end_of_trouble().await;
        self.converge().await?;
        self.stay_silent().await?;
        self.strangers_are_untouched().await?;
        let log = self.world.log.lock();
        self.summary.writes = log.writes.len();
        checks::judge_log(&log, &self.history, &self.fleet.revisions)
    }

    fn tell(&mut self, what: impl std::fmt::Display) {
        self.story.push(format!("{:>8.2} s  {what}", self.world.elapsed().as_secs_f64()));
    }

    async fn set_up(&mut self) {
        let labels = json!({"kustomize.toolkit.fluxcd.io/name": "somebody", "kustomize.toolkit.fluxcd.io/namespace": "elsewhere"});
        for (name, labels) in [("stranger", json!({})), ("labelled", labels)] {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
                "metadata": {"name": name, "namespace": "apps", "labels": labels}});
            self.world.apply(&object).await;
        }
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "fleet", "namespace": NAMESPACE}, "spec": {"interval": "1m", "url": "https://example.com/fleet"}});
        self.world.apply(&source).await;
        self.commit().await;
        for member in self.fleet.members.clone() {
            self.world.apply(&member.object(false)).await;
        }
        for _ in 0..self.wanted {
            let process = self.world.start();
            self.processes.push(process);
        }
    }

    async fn commit(&mut self) {
        let files = self.fleet.commit(&mut self.random);
        let revision = self.revision();
        self.tell(format!("{revision} is published"));
        // Counted from before the write: a run may see it before we know that it was written.
        self.history.published.push(self.world.elapsed());
        self.world.publish(&revision, &files).await;
    }

    fn revision(&self) -> String {
        format!("main@sha1:{:040x}", self.fleet.revisions.len())
    }

    /// Lets time pass, restarts what has died, and looks whether the rules hold.
    async fn watch_for(&mut self, time: Duration) -> Result<(), String> {
        let end = self.world.elapsed() + time;
        loop {
            self.restart();
            self.calm_down();
            let left = end.saturating_sub(self.world.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(LOOK_INTERVAL)).await;
            checks::nothing_is_forgotten(&self.world).await?;
            self.ready_is_true().await?;
        }
    }

    fn restart(&mut self) {
        let before = self.processes.len();
        self.processes.retain(|process| !process.task.is_finished());
        let now = self.world.elapsed();
        for _ in self.processes.len()..before {
            self.summary.deaths += 1;
            self.restart_at = now + Duration::from_millis(self.random.random_range(0..10_000));
            self.tell("a process has ended");
        }
        while self.processes.len() < self.wanted && now >= self.restart_at {
            let process = self.world.start();
            self.tell(format!("process {} starts", process.id));
            self.processes.push(process);
        }
    }

    fn calm_down(&mut self) {
        if self.world.elapsed() < self.calm_at {
            return;
        }
        self.world.weather.lock().storm.clear();
        *self.world.artifacts.delay.lock() = Duration::ZERO;
        self.world.artifacts.missing.store(false, Ordering::Relaxed);
        for process in &self.processes {
            process.wire.no_lease.store(false, Ordering::Relaxed);
            process.wire.no_network.store(false, Ordering::Relaxed);
        }
    }

    /// Who says to be ready at the newest revision is, unless somebody touched the objects meanwhile.
    async fn ready_is_true(&mut self) -> Result<(), String> {
        let revision = self.revision();
        let content = self.fleet.revisions.last().cloned().unwrap_or_default();
        let now = self.world.elapsed();
        for (name, wanted) in &content {
            if self.touched.get(name).is_some_and(|at| now.saturating_sub(*at) < Duration::from_mins(3)) {
                continue;
            }
            let path = kustomization_path(name);
            let is_ready = |found: &Value| checks::is_ready_at(found, &revision);
            if !self.world.get(&path).await.as_ref().is_some_and(is_ready) {
                continue;
            }
            let wrong = checks::wrong_objects(&self.world, name, wanted).await;
            // An object that moves is given up by one and taken by the other a moment later.
            let wrong: Vec<String> = wrong.into_iter().filter(|what| !what.contains("/shared")).collect();
            if !wrong.is_empty() && self.world.get(&path).await.as_ref().is_some_and(is_ready) {
                return Err(format!("'{name}' says to be ready at {revision}, but: {}", wrong.join("; ")));
            }
        }
        Ok(())
    }

    fn any_object(&mut self) -> Option<(String, String, Value)> {
        let content = self.fleet.revisions.last()?;
        let all: Vec<(&String, &String, &Value)> = content
            .iter()
            .flat_map(|(name, objects)| objects.iter().map(move |(path, object)| (name, path, object)))
            .filter(|(_, _, object)| {
                matches!(text(object, "/kind"), "ConfigMap" | "Secret" | "Widget" | "Deployment")
            })
            .collect();
        if all.is_empty() {
            return None;
        }
        let (name, path, object) = all[self.random.random_range(0..all.len())];
        Some((name.clone(), path.clone(), object.clone()))
    }

    fn any_member(&mut self) -> String {
        let position = self.random.random_range(0..self.fleet.members.len());
        self.fleet.members[position].name.clone()
    }

    async fn act(&mut self) {
        let kind = self.random.random_range(0..15);
        match kind {
            0..=3 => self.commit().await,
            4..=6 => self.touch(kind).await,
            7 => {
                let name = self.any_member();
                self.tell(format!("'{name}' is asked for"));
                let token = self.world.elapsed().as_millis().to_string();
                let change = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": token}}});
                self.world.patch(&kustomization_path(&name), "flux", &change).await;
            }
            8 => {
                let name = self.any_member();
                if self.gone.contains(&name) {
                    return;
                }
                let suspend = self.suspended.insert(name.clone());
                if !suspend {
                    self.suspended.remove(&name);
                }
                self.tell(format!("'{name}': suspend is {suspend}"));
                let change = json!({"spec": {"suspend": suspend}});
                self.world.patch(&kustomization_path(&name), "flux", &change).await;
            }
            9 if self.gone.is_empty() => {
                let name = self.fleet.leaf().name.clone();
                if self.suspended.contains(&name) {
                    return;
                }
                self.tell(format!("'{name}' is deleted"));
                self.history.deleted.insert(name.clone(), self.world.elapsed());
                self.gone.push(name.clone());
                self.world.delete(&kustomization_path(&name)).await;
            }
            9 | 10 => {
                let forget = self.random.random_bool(0.5);
                self.tell(format!("the API server restarts (forgetting: {forget})"));
                self.world.cluster.restart(forget);
            }
            11 => {
                let effect = if self.random.random_bool(0.5) {
                    Effect::BreakWatch { after_events: self.random.random_range(0..4) }
                } else {
                    Effect::ExpireWatch
                };
                self.tell(format!("watches break: {effect:?}"));
                let times = self.random.random_range(1..12);
                self.world.cluster.faults().add(Fault::new(effect).times(times));
            }
            12 => self.storm(),
            13 => self.doom(),
            _ => self.cut_off(),
        }
    }

    /// Somebody else changes an object.
    async fn touch(&mut self, kind: u32) {
        let Some((name, path, object)) = self.any_object() else { return };
        self.touched.insert(name.clone(), self.world.elapsed());
        match kind {
            4 => {
                self.tell(format!("{path} of '{name}' is deleted"));
                self.world.delete(&path).await;
            }
            5 => {
                self.tell(format!("{path} of '{name}' is edited"));
                let change = match text(&object, "/kind") {
                    "ConfigMap" => json!({"data": {"value": "edited", "edited": "yes"}}),
                    "Secret" => json!({"data": {"value": "ZWRpdGVk"}}),
                    "Widget" => json!({"spec": {"size": "edited"}}),
                    _ => json!({"spec": {"replicas": 2}}),
                };
                let manager = if self.random.random_bool(0.7) { "kubectl-edit" } else { "somebody" };
                // What another manager adds stays, unless it came with kubectl.
                let change = if manager == "somebody" && change.pointer("/data/edited").is_some() {
                    json!({"data": {"value": "edited"}})
                } else {
                    change
                };
                self.world.patch(&path, manager, &change).await;
            }
            _ => {
                self.tell(format!("{path} of '{name}' loses its owner"));
                let labels = json!({"kustomize.toolkit.fluxcd.io/name": null, "kustomize.toolkit.fluxcd.io/namespace": null});
                self.world.patch(&path, "kubectl-label", &json!({"metadata": {"labels": labels}})).await;
            }
        }
    }

    fn storm(&mut self) {
        const TROUBLES: [Trouble; 8] = [
            Trouble::Refused(409, "Conflict"),
            Trouble::Refused(429, "TooManyRequests"),
            Trouble::Refused(500, "InternalError"),
            Trouble::Refused(503, "ServiceUnavailable"),
            Trouble::Refused(504, "Timeout"),
            Trouble::Late(Duration::from_secs(3)),
            Trouble::AnswerLost,
            Trouble::RequestLost,
        ];
        let count = self.random.random_range(1..=TROUBLES.len());
        let storm: Vec<Trouble> =
            (0..count).map(|_| TROUBLES[self.random.random_range(0..TROUBLES.len())]).collect();
        let chance = [50, 200, 500, 950][self.random.random_range(0..4)];
        let time = Duration::from_secs(self.random.random_range(2..60));
        self.tell(format!("a storm of {time:?}: {chance} of 1000 requests: {storm:?}"));
        self.calm_at = self.world.elapsed() + time;
        let mut weather = self.world.weather.lock();
        weather.storm = storm;
        weather.chance = chance;
    }

    /// A process dies, now or at one of its next requests.
    fn doom(&mut self) {
        let position = self.random.random_range(0..self.processes.len().max(1));
        let (now, after) = (self.random.random_bool(0.3), self.random.random_range(1..60));
        let sends_last = self.random.random_bool(0.5);
        let Some(process) = self.processes.get(position) else { return };
        let id = process.id;
        if now {
            process.kill();
            self.tell(format!("process {id} is killed"));
            return;
        }
        *process.wire.dies_after.lock() = Some(after);
        process.wire.sends_last.store(sends_last, Ordering::Relaxed);
        self.tell(format!("process {id} dies at its request {after} from now (still sent: {sends_last})"));
    }

    /// A process cannot renew its lease, cannot reach the server, or gets no artifacts.
    fn cut_off(&mut self) {
        let time = Duration::from_secs(self.random.random_range(3..40));
        self.calm_at = self.world.elapsed() + time;
        let position = self.random.random_range(0..self.processes.len().max(1));
        let what = self.random.random_range(0..4);
        let told = match (what, self.processes.get(position)) {
            (0, Some(process)) => {
                process.wire.no_lease.store(true, Ordering::Relaxed);
                format!("process {} cannot renew the lease for {time:?}", process.id)
            }
            (1, Some(process)) => {
                process.wire.no_network.store(true, Ordering::Relaxed);
                format!("process {} is cut off for {time:?}", process.id)
            }
            (2, _) => {
                self.world.artifacts.missing.store(true, Ordering::Relaxed);
                format!("artifacts are missing for {time:?}")
            }
            _ => {
                *self.world.artifacts.delay.lock() = Duration::from_secs(20);
                format!("artifacts are slow for {time:?}")
            }
        };
        self.tell(told);
    }

    async fn end_of_trouble(&mut self) {
        self.calm_at = Duration::ZERO;
        self.calm_down();
        self.world.cluster.faults().clear();
        for process in &self.processes {
            *process.wire.dies_after.lock() = None;
        }
        for name in std::mem::take(&mut self.suspended) {
            self.world.patch(&kustomization_path(&name), "flux", &json!({"spec": {"suspend": false}})).await;
        }
        self.tell("nothing goes wrong any more");
    }

    async fn converge(&mut self) -> Result<(), String> {
        let (start, revision) = (self.world.elapsed(), self.revision());
        let content = self.fleet.revisions.last().cloned().unwrap_or_default();
        loop {
            self.watch_for(Duration::from_secs(1)).await?;
            let wrong = checks::not_converged(&self.world, &revision, &content, &self.gone).await;
            if wrong.is_empty() {
                self.summary.converged_after = self.world.elapsed().saturating_sub(start);
                return Ok(());
            }
            if self.world.elapsed().saturating_sub(start) > CONVERGENCE_MAX {
                return Err(format!("not converged after {CONVERGENCE_MAX:?}:\n  {}", wrong.join("\n  ")));
            }
        }
    }

    /// Nothing changes, so nothing is written.
    async fn stay_silent(&mut self) -> Result<(), String> {
        // Runs that were asked for before the end may still be recorded.
        self.watch_for(Duration::from_mins(2)).await?;
        let before = self.world.log.lock().writes.len();
        self.watch_for(SILENCE).await?;
        let log = self.world.log.lock();
        match log.writes.get(before) {
            None => Ok(()),
            Some(first) => Err(format!(
                "{} writes while nothing changed; the first is {first:?}",
                log.writes.len() - before
            )),
        }
    }

    async fn strangers_are_untouched(&mut self) -> Result<(), String> {
        for name in ["stranger", "labelled"] {
            let found = self.world.get(&format!("/api/v1/namespaces/apps/configmaps/{name}")).await;
            let managers = found.as_ref().and_then(|found| found.pointer("/metadata/managedFields"));
            let ours = managers
                .and_then(Value::as_array)
                .is_some_and(|entries| entries.len() == 1 && text(&entries[0], "/manager") == "owner");
            if !ours {
                return Err(format!("{name} was touched: {found:?}"));
            }
        }
        Ok(())
    }
}
