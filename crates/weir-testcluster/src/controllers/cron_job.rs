//! Cron jobs: jobs at their times.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::cron::Schedule;
use super::part::{
    event, is_controlled_by, is_deleting, is_true, name as name_of, owner_reference, shown, time,
    write_status,
};
use super::{Api, CRON_JOBS, Controllers, JOBS, Task};
use crate::builtin::tree::{at, made, text};

const COMPONENT: &str = "cronjob-controller";
/// No more than so many missed times are looked through.
const MISSED_MAX: usize = 1000;

pub(crate) fn look(controllers: &mut Controllers, api: &dyn Api, namespace: &str, name: &str) {
    let Some(cron) = api.get(CRON_JOBS, namespace, name) else { return };
    if is_deleting(&cron) {
        return;
    }
    let now = api.now();
    let jobs: Vec<Value> =
        api.list(JOBS, namespace).into_iter().filter(|job| is_controlled_by(job, &cron)).collect();
    let is_over = |job: &&Value| is_true(job, "Complete") || is_true(job, "Failed");
    let mut active: Vec<Value> = jobs.iter().filter(|job| !is_over(job)).cloned().collect();
    let mut status = cron["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    if let Some(last) = jobs.iter().filter_map(|job| time(&job["status"]["completionTime"])).max() {
        status["lastSuccessfulTime"] = shown(last);
    }
    for (condition, key) in [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")]
    {
        let limit = cron["spec"][key].as_u64().unwrap_or(1) as usize;
        let mut ended: Vec<&Value> = jobs.iter().filter(|job| is_true(job, condition)).collect();
        ended.sort_by_key(|job| text(&job["status"], "startTime").to_owned());
        for job in ended.iter().take(ended.len().saturating_sub(limit)) {
            api.delete(JOBS, namespace, name_of(job), false);
        }
    }
    if let Some(due) = due_time(controllers, &cron, now) {
        let policy = text(&cron["spec"], "concurrencyPolicy");
        if policy == "Replace" {
            for job in active.drain(..) {
                api.delete(JOBS, namespace, name_of(&job), false);
            }
        }
        if policy != "Forbid" || active.is_empty() {
            let job = job_of(&cron, due);
            let job_name = name_of(&job).to_owned();
            if let Ok(job) = api.create(JOBS, job) {
                let message = format!("Created job {job_name}");
                event(
                    controllers,
                    api,
                    (CRON_JOBS, &cron),
                    ("Normal", "SuccessfulCreate", &message),
                    COMPONENT,
                );
                active.push(job);
            }
            status["lastScheduleTime"] = shown(due);
        }
    }
    let references: Vec<Value> = active
        .iter()
        .map(|job| {
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"],
                "namespace": job["metadata"]["namespace"], "uid": job["metadata"]["uid"],
                "resourceVersion": job["metadata"]["resourceVersion"]
            })
        })
        .collect();
    if references.is_empty() {
        crate::builtin::tree::remove(&mut status, "active");
    } else {
        status["active"] = json!(references);
    }
    write_status(api, CRON_JOBS, &cron, &status);
}

/// The last time that has come since the last job; sets a timer for the next.
fn due_time(controllers: &mut Controllers, cron: &Value, now: Timestamp) -> Option<Timestamp> {
    if cron["spec"]["suspend"] == json!(true) {
        return None;
    }
    let zone = text(&cron["spec"], "timeZone");
    let zone = if zone.is_empty() { TimeZone::UTC } else { TimeZone::get(zone).ok()? };
    let schedule = Schedule::parse(text(&cron["spec"], "schedule")).ok()?;
    let mut from = time(&cron["status"]["lastScheduleTime"])
        .or_else(|| time(at(cron, &["metadata", "creationTimestamp"])))
        .unwrap_or(now);
    if let Some(seconds) = cron["spec"]["startingDeadlineSeconds"].as_i64() {
        from = from.max(super::part::after(now, -seconds));
    }
    let mut last = None;
    for _ in 0..MISSED_MAX {
        let next = schedule.next(last.unwrap_or(from), &zone)?;
        if next > now {
            controllers.later(next, Task::CronJob, text(&cron["metadata"], "namespace"), name_of(cron));
            break;
        }
        last = Some(next);
    }
    last
}

fn job_of(cron: &Value, due: Timestamp) -> Value {
    let template = &cron["spec"]["jobTemplate"];
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": template.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "spec": template["spec"]
    });
    let metadata = made(&mut job, "metadata");
    metadata["name"] = json!(format!("{}-{}", name_of(cron), due.as_second() / 60));
    metadata["namespace"] = cron["metadata"]["namespace"].clone();
    metadata["ownerReferences"] = json!([owner_reference(CRON_JOBS, cron)]);
    made(metadata, "annotations")["batch.kubernetes.io/cronjob-scheduled-timestamp"] = shown(due);
    job
}
