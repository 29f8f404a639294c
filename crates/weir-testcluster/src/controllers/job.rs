//! Jobs: pods that must succeed.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::part::{
    after, create_pod, delete_pod, event, is_active, is_deleting, is_ready, is_true, name as name_of, number,
    owner_reference, pod_from, pods_of, set_condition, shown, time, write_status,
};
use super::{Api, Controllers, JOBS, Task};
use crate::builtin::tree::{at, items, made, text, unset};

const COMPONENT: &str = "job-controller";
/// The wait after the first failed pod; each is twice as long as the one before.
const BACKOFF_SECONDS: i64 = 10;
const BACKOFF_SECONDS_MAX: i64 = 600;

pub(crate) fn look(controllers: &mut Controllers, api: &dyn Api, namespace: &str, name: &str) {
    let Some(job) = api.get(JOBS, namespace, name) else { return };
    if is_deleting(&job) {
        return;
    }
    let now = api.now();
    if is_true(&job, "Complete") || is_true(&job, "Failed") {
        expire(controllers, api, &job, now);
        return;
    }
    let mut run = Run {
        job: &job,
        pods: pods_of(api, &job),
        now,
        status: job["status"].clone(),
        conditions: Vec::new(),
    };
    if !run.status.is_object() {
        run.status = json!({});
    }
    run.conditions = items(&job["status"], "conditions").to_vec();
    run.go(controllers, api);
}

/// A job that has ended goes after its time.
fn expire(controllers: &mut Controllers, api: &dyn Api, job: &Value, now: Timestamp) {
    let Some(seconds) = job["spec"]["ttlSecondsAfterFinished"].as_i64() else { return };
    let ended = items(&job["status"], "conditions")
        .iter()
        .filter(|condition| {
            matches!(text(condition, "type"), "Complete" | "Failed") && condition["status"] == "True"
        })
        .find_map(|condition| time(&condition["lastTransitionTime"]))
        .unwrap_or(now);
    let due = after(ended, seconds);
    let (namespace, name) = (text(&job["metadata"], "namespace"), name_of(job));
    if due <= now {
        api.delete(JOBS, namespace, name, false);
    } else {
        controllers.later(due, Task::Job, namespace, name);
    }
}

struct Run<'a> {
    job: &'a Value,
    pods: Vec<Value>,
    now: Timestamp,
    status: Value,
    conditions: Vec<Value>,
}

impl Run<'_> {
    fn go(&mut self, controllers: &mut Controllers, api: &dyn Api) {
        let job = self.job;
        let spec = &job["spec"];
        let (namespace, name) = (text(&job["metadata"], "namespace").to_owned(), name_of(job).to_owned());
        let ended = |phase: &str| {
            self.pods.iter().filter(|pod| text(&pod["status"], "phase") == phase).count() as i64
        };
        let succeeded = ended("Succeeded");
        // Pods that restart in place count their restarts as failures.
        let restarts: i64 = if text(&spec["template"]["spec"], "restartPolicy") == "OnFailure" {
            self.pods
                .iter()
                .flat_map(|pod| items(&pod["status"], "containerStatuses"))
                .map(|container| number(container, "restartCount"))
                .sum()
        } else {
            0
        };
        let failed = ended("Failed");
        let active: Vec<Value> = self.pods.iter().filter(|pod| is_active(pod)).cloned().collect();
        let ready = active.iter().filter(|pod| is_ready(pod)).count();
        let suspended = spec["suspend"] == json!(true);
        if unset(&self.status, "startTime") && !suspended {
            self.status["startTime"] = shown(self.now);
        }
        let completions = spec["completions"].as_i64();
        let parallelism = spec["parallelism"].as_i64().unwrap_or(1);
        let limit = spec["backoffLimit"].as_i64().unwrap_or(6);
        let deadline = spec["activeDeadlineSeconds"].as_i64();
        let overdue = deadline.and_then(|seconds| {
            let due = after(time(&self.status["startTime"])?, seconds);
            Some((due, due <= self.now))
        });
        let mut active_count = active.len() as i64;
        let too_often = failed > limit || (restarts > 0 && restarts >= limit);
        let complete = match completions {
            Some(wanted) => succeeded >= wanted,
            None => succeeded > 0 && active_count == 0,
        };
        if complete {
            for pod in &active {
                delete_pod(controllers, api, (JOBS, job), pod, COMPONENT);
            }
            self.finish(
                "SuccessCriteriaMet",
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            );
            self.status["completionTime"] = shown(self.now);
            event(controllers, api, (JOBS, job), ("Normal", "Completed", "Job completed"), COMPONENT);
            active_count = 0;
        } else if too_often || overdue.is_some_and(|(_, over)| over) {
            let (reason, message) = if too_often {
                ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
            } else {
                ("DeadlineExceeded", "Job was active longer than specified deadline")
            };
            for pod in &active {
                delete_pod(controllers, api, (JOBS, job), pod, COMPONENT);
            }
            self.finish("FailureTarget", "Failed", reason, message);
            event(controllers, api, (JOBS, job), ("Warning", reason, message), COMPONENT);
            active_count = 0;
        } else if suspended {
            for pod in &active {
                delete_pod(controllers, api, (JOBS, job), pod, COMPONENT);
            }
            if !is_true(job, "Suspended") {
                let condition = json!({
                    "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended",
                    "lastProbeTime": shown(self.now)
                });
                set_condition(&mut self.conditions, condition, self.now);
                event(controllers, api, (JOBS, job), ("Normal", "Suspended", "Job suspended"), COMPONENT);
            }
            active_count = 0;
            crate::builtin::tree::remove(&mut self.status, "startTime");
        } else {
            if is_true(job, "Suspended") {
                let condition = json!({
                    "type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed",
                    "lastProbeTime": shown(self.now)
                });
                set_condition(&mut self.conditions, condition, self.now);
                event(controllers, api, (JOBS, job), ("Normal", "Resumed", "Job resumed"), COMPONENT);
            }
            if let Some((due, _)) = overdue {
                controllers.later(due, Task::Job, &namespace, &name);
            }
            let wanted = completions.map_or(if succeeded > 0 { active_count } else { parallelism }, |all| {
                (all - succeeded).min(parallelism)
            });
            match self.wait_until(failed) {
                Some(due) if active_count < wanted => controllers.later(due, Task::Job, &namespace, &name),
                _ => active_count += self.create_pods(controllers, api, wanted - active_count),
            }
            for pod in active.iter().skip(wanted.max(0) as usize) {
                delete_pod(controllers, api, (JOBS, job), pod, COMPONENT);
                active_count -= 1;
            }
        }
        for (key, value) in [("active", active_count), ("succeeded", succeeded), ("failed", failed)] {
            if value > 0 {
                self.status[key] = json!(value);
            } else {
                crate::builtin::tree::remove(&mut self.status, key);
            }
        }
        self.status["ready"] = json!(if active_count == 0 { 0 } else { ready });
        self.status["terminating"] = json!(0);
        self.status["uncountedTerminatedPods"] = json!({});
        if text(spec, "completionMode") == "Indexed" && succeeded > 0 {
            self.status["completedIndexes"] = json!(self.completed_indexes());
        }
        if !self.conditions.is_empty() {
            self.status["conditions"] = json!(self.conditions);
        }
        write_status(api, JOBS, job, &self.status);
    }

    fn finish(&mut self, first: &str, last: &str, reason: &str, message: &str) {
        for kind in [first, last] {
            let condition = json!({
                "type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": shown(self.now)
            });
            set_condition(&mut self.conditions, condition, self.now);
        }
    }

    /// When the next pod may be made after failures.
    fn wait_until(&self, failed: i64) -> Option<Timestamp> {
        if failed == 0 {
            return None;
        }
        let last = self
            .pods
            .iter()
            .filter(|pod| text(&pod["status"], "phase") == "Failed")
            .flat_map(|pod| items(&pod["status"], "containerStatuses"))
            .filter_map(|container| time(at(container, &["state", "terminated", "finishedAt"])))
            .max()?;
        let wait = (BACKOFF_SECONDS << (failed - 1).clamp(0, 10)).min(BACKOFF_SECONDS_MAX);
        let due = after(last, wait);
        (due > self.now).then_some(due)
    }

    fn index_of(pod: &Value) -> Option<i64> {
        at(pod, &["metadata", "annotations", "batch.kubernetes.io/job-completion-index"])
            .as_str()?
            .parse()
            .ok()
    }

    fn completed_indexes(&self) -> String {
        let mut done: Vec<i64> = self
            .pods
            .iter()
            .filter(|pod| text(&pod["status"], "phase") == "Succeeded")
            .filter_map(Self::index_of)
            .collect();
        done.sort_unstable();
        done.dedup();
        let mut parts: Vec<(i64, i64)> = Vec::new();
        for index in done {
            match parts.last_mut() {
                Some((_, last)) if *last + 1 == index => *last = index,
                _ => parts.push((index, index)),
            }
        }
        let shown = |(first, last): &(i64, i64)| {
            if first == last {
                first.to_string()
            } else if last - first == 1 {
                format!("{first},{last}")
            } else {
                format!("{first}-{last}")
            }
        };
        parts.iter().map(shown).collect::<Vec<_>>().join(",")
    }

    fn create_pods(&self, controllers: &mut Controllers, api: &dyn Api, count: i64) -> i64 {
        let job = self.job;
        let indexed = text(&job["spec"], "completionMode") == "Indexed";
        let taken: Vec<i64> = self
            .pods
            .iter()
            .filter(|pod| text(&pod["status"], "phase") != "Failed")
            .filter_map(Self::index_of)
            .collect();
        let mut free = (0..).filter(|index| !taken.contains(index));
        let mut made_count = 0;
        for _ in 0..count.max(0) {
            let serial = controllers.next_serial();
            let namespace = text(&job["metadata"], "namespace");
            let suffix = crate::builtin::suffix(&format!(
                "{namespace}/{}/{serial}/{}",
                name_of(job),
                job["metadata"]["uid"]
            ));
            let index = if indexed { free.next() } else { None };
            let base =
                index.map_or_else(|| name_of(job).to_owned(), |index| format!("{}-{index}", name_of(job)));
            let owner = owner_reference(JOBS, job);
            let mut pod = pod_from(&job["spec"]["template"], &owner, namespace, &format!("{base}-{suffix}"));
            pod["metadata"]["generateName"] = json!(format!("{base}-"));
            if let Some(index) = index {
                let key = "batch.kubernetes.io/job-completion-index";
                made(made(&mut pod, "metadata"), "annotations")[key] = json!(index.to_string());
                made(made(&mut pod, "metadata"), "labels")[key] = json!(index.to_string());
                pod["spec"]["hostname"] = json!(base);
            }
            if create_pod(controllers, api, (JOBS, job), pod, COMPONENT).is_err() {
                break;
            }
            made_count += 1;
        }
        made_count
    }
}
