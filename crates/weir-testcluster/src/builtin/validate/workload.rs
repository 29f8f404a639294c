//! Refusals of workloads: apps, batch, autoscaling, policy.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::pod;
use super::report::{IMMUTABLE, Report, join};
use crate::builtin::tree::{at, entries, items, same, text, unset};

/// Whether labels match a selector.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let empty =
        entries(selector, "matchLabels").next().is_none() && items(selector, "matchExpressions").is_empty();
    !empty
        && entries(selector, "matchLabels").all(|(key, value)| labels[key.as_str()] == *value)
        && items(selector, "matchExpressions").iter().all(|expression| {
            let value = &labels[text(expression, "key")];
            let listed = items(expression, "values").contains(value);
            match text(expression, "operator") {
                "In" => !value.is_null() && listed,
                "NotIn" => value.is_null() || !listed,
                "Exists" => !value.is_null(),
                "DoesNotExist" => value.is_null(),
                _ => false,
            }
        })
}

fn is_empty_selector(selector: &Value) -> bool {
    entries(selector, "matchLabels").next().is_none() && items(selector, "matchExpressions").is_empty()
}

/// Selector and template belong together; `fields` names numbers checked between them.
fn selector_and_template(report: &mut Report, spec: &Value, kind: &str) {
    let selector = &spec["selector"];
    let mut usable = true;
    if selector.is_null() {
        report.required("spec.selector", "");
    } else {
        usable = report.selector(selector, "spec.selector");
        if is_empty_selector(selector) {
            report.invalid("spec.selector", selector, &format!("empty selector is invalid for {kind}"));
        }
    }
    if !usable {
        report.invalid("spec.selector", selector, "invalid label selector");
        return;
    }
    template_matches(report, spec);
}

fn template_matches(report: &mut Report, spec: &Value) {
    let labels = at(spec, &["template", "metadata", "labels"]);
    let selector = &spec["selector"];
    // An empty selector selects everything, none selects nothing.
    if (selector.is_null() || !is_empty_selector(selector)) && !selects(selector, labels) {
        report.invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        );
    }
}

fn always_restarts(report: &mut Report, spec: &Value) {
    let template = &spec["template"]["spec"];
    if !text(template, "restartPolicy").is_empty() && text(template, "restartPolicy") != "Always" {
        report.not_supported("spec.template.spec.restartPolicy", &template["restartPolicy"], &["Always"]);
    }
}

fn no_deadline(report: &mut Report, spec: &Value, kind: &str) {
    if !at(spec, &["template", "spec", "activeDeadlineSeconds"]).is_null() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        report.forbidden("spec.template.spec.activeDeadlineSeconds", &detail);
    }
}

pub(crate) fn deployment(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    report.not_negative(spec, "spec", "replicas");
    selector_and_template(report, spec, "deployment");
    pod::template(report, &spec["template"], "spec.template");
    always_restarts(report, spec);
    no_deadline(report, spec, "ReplicaSet");
    let strategy = &spec["strategy"];
    match text(strategy, "type") {
        "Recreate" => {
            if strategy["rollingUpdate"].is_object() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                report.forbidden("spec.strategy.rollingUpdate", detail);
            }
        }
        "RollingUpdate" => rolling_update(report, &strategy["rollingUpdate"], "spec.strategy.rollingUpdate"),
        other => {
            let shown = json!({ "RollingUpdate": null, "Type": other });
            let before = report.causes.len();
            report.not_supported("spec.strategy", &shown, &["Recreate", "RollingUpdate"]);
            for cause in &mut report.causes[before..] {
                cause.value = Some(format!("{{\"Type\":{other:?},\"RollingUpdate\":null}}"));
            }
        }
    }
    report.not_negative(spec, "spec", "minReadySeconds");
    report.not_negative(spec, "spec", "revisionHistoryLimit");
    if let Some(deadline) = spec["progressDeadlineSeconds"].as_i64() {
        report.not_negative(spec, "spec", "progressDeadlineSeconds");
        if deadline <= spec["minReadySeconds"].as_i64().unwrap_or_default() {
            let detail = "must be greater than minReadySeconds";
            report.invalid("spec.progressDeadlineSeconds", &spec["progressDeadlineSeconds"], detail);
        }
    }
}

fn rolling_update(report: &mut Report, rolling: &Value, path: &str) {
    report.number_or_percent(rolling, path, "maxUnavailable");
    report.number_or_percent(rolling, path, "maxSurge");
    let zero = |key: &str| {
        matches!(&rolling[key], Value::String(text) if text.trim_end_matches('%') == "0")
            || rolling[key] == json!(0)
    };
    if zero("maxUnavailable") && zero("maxSurge") {
        report.invalid(
            &join(path, "maxUnavailable"),
            &rolling["maxUnavailable"],
            "may not be 0 when `maxSurge` is 0",
        );
    }
    report.percent_at_most_hundred(rolling, path, "maxUnavailable");
}

pub(crate) fn replica_set(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    report.not_negative(spec, "spec", "replicas");
    report.not_negative(spec, "spec", "minReadySeconds");
    selector_and_template(report, spec, "deployment");
    if spec["template"].is_object() {
        pod::template(report, &spec["template"], "spec.template");
        always_restarts(report, spec);
        no_deadline(report, spec, "ReplicaSet");
    } else {
        report.required("spec.template", "");
    }
}

pub(crate) fn replication_controller(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    report.not_negative(spec, "spec", "minReadySeconds");
    report.not_negative(spec, "spec", "replicas");
    if entries(spec, "selector").next().is_none() {
        report.required("spec.selector", "");
    }
    if !spec["template"].is_object() {
        return report.required("spec.template", "");
    }
    let labels = at(spec, &["template", "metadata", "labels"]);
    if !entries(spec, "selector").all(|(key, value)| labels[key.as_str()] == *value) {
        report.invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        );
    }
    pod::template(report, &spec["template"], "spec.template");
    always_restarts(report, spec);
}

pub(crate) fn stateful_set(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    match text(spec, "podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => report.required("spec.podManagementPolicy", ""),
        other => {
            report.invalid_text("spec.podManagementPolicy", other, "must be 'OrderedReady' or 'Parallel'");
        }
    }
    let strategy = &spec["updateStrategy"];
    match text(strategy, "type") {
        "OnDelete" => {
            if strategy["rollingUpdate"].is_object() {
                let shown = format!(
                    "{{\"Partition\":{},\"MaxUnavailable\":{}}}",
                    strategy["rollingUpdate"]["partition"], strategy["rollingUpdate"]["maxUnavailable"]
                );
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                report.add(
                    "spec.updateStrategy.rollingUpdate",
                    crate::CauseReason::Invalid,
                    Some(shown),
                    detail,
                );
            }
        }
        "RollingUpdate" => {
            report.not_negative(&strategy["rollingUpdate"], "spec.updateStrategy.rollingUpdate", "partition");
        }
        other => {
            let shown = format!("{{\"Type\":{other:?},\"RollingUpdate\":null}}");
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            report.add("spec.updateStrategy", crate::CauseReason::Invalid, Some(shown), detail);
        }
    }
    report.not_negative(spec, "spec", "replicas");
    report.not_negative(spec, "spec", "minReadySeconds");
    selector_and_template(report, spec, "statefulset");
    // The pod itself is not looked at: its volumes may be those of the claims.
    pod::template_metadata(report, &spec["template"], "spec.template");
    always_restarts(report, spec);
    no_deadline(report, spec, "StatefulSet");
}

pub(crate) fn daemon_set(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    report.selector(&spec["selector"], "spec.selector");
    if spec["selector"].is_null() {
        report.required("spec.selector", "");
    }
    template_matches(report, spec);
    if is_empty_selector(&spec["selector"]) && !spec["selector"].is_null() {
        report.invalid("spec.selector", &spec["selector"], "empty selector is invalid for daemonset");
    }
    pod::template(report, &spec["template"], "spec.template");
    always_restarts(report, spec);
    no_deadline(report, spec, "DaemonSet");
    report.not_negative(spec, "spec", "minReadySeconds");
    let strategy = &spec["updateStrategy"];
    let path = "spec.updateStrategy.rollingUpdate";
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = &strategy["rollingUpdate"];
        report.number_or_percent(rolling, path, "maxUnavailable");
        report.number_or_percent(rolling, path, "maxSurge");
        let set = |key: &str| !unset(rolling, key) && rolling[key] != "0%";
        if set("maxUnavailable") && set("maxSurge") {
            let detail = "may not be set when maxUnavailable is non-zero";
            report.invalid(&join(path, "maxSurge"), &rolling["maxSurge"], detail);
        } else if !set("maxUnavailable") && !set("maxSurge") {
            let detail = "cannot be 0 when maxSurge is 0";
            report.invalid(&join(path, "maxUnavailable"), &rolling["maxUnavailable"], detail);
        }
    } else {
        report.one_of(strategy, "spec.updateStrategy", "type", &["RollingUpdate", "OnDelete"]);
    }
    report.not_negative(spec, "spec", "revisionHistoryLimit");
}

pub(crate) fn controller_revision(report: &mut Report, object: &Value) {
    if object["data"].is_null() {
        report.required("data", "data is mandatory");
    }
    report.not_negative(object, "", "revision");
}

/// Refusals of changes of kinds of the group apps.
pub(crate) fn apps_update(report: &mut Report, kind: &str, new: &Value, old: &Value) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    match kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" => report.unchanged(spec, before, "spec", "selector"),
        "StatefulSet" => {
            for key in ["volumeClaimTemplates", "serviceName", "selector", "podManagementPolicy"] {
                if same(&spec[key], &before[key]) {
                    continue;
                }
                let empty = json!([]);
                let value =
                    if key == "volumeClaimTemplates" && spec[key].is_null() { &empty } else { &spec[key] };
                report.invalid(&join("spec", key), value, IMMUTABLE);
            }
        }
        "ControllerRevision" => report.unchanged(new, old, "", "data"),
        _ => {}
    }
}

/// Refusals of a status of the group apps.
pub(crate) fn apps_status(report: &mut Report, kind: &str, object: &Value) {
    if kind != "Deployment" {
        return;
    }
    let status = &object["status"];
    let number = |key: &str| status[key].as_i64().unwrap_or_default();
    for key in [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ] {
        report.not_negative(status, "status", key);
    }
    for key in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        if number(key) > number("replicas") {
            report.invalid(
                &join("status", key),
                &json!(number(key)),
                "cannot be greater than status.replicas",
            );
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        let value = json!(number("availableReplicas"));
        report.invalid("status.availableReplicas", &value, "cannot be greater than readyReplicas");
    }
}

pub(crate) fn job(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    job_spec(report, spec, "spec");
    if !spec["selector"].is_null()
        && !selects(&spec["selector"], at(spec, &["template", "metadata", "labels"]))
    {
        let labels = at(spec, &["template", "metadata", "labels"]);
        report.invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        );
    }
}

/// Nobody but the server chooses the selector of a new job, unless the job says so.
pub(crate) fn job_create(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    let manual = spec["manualSelector"] == Value::Bool(true);
    let expected =
        json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": text(&object["metadata"], "uid") } });
    if !manual && !spec["selector"].is_null() && !same(&spec["selector"], &expected) {
        report.invalid("spec.selector", &spec["selector"], "`selector` not auto-generated");
    }
}

fn job_spec(report: &mut Report, spec: &Value, path: &str) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        report.not_negative(spec, path, key);
    }
    report.one_of(spec, path, "completionMode", &["NonIndexed", "Indexed"]);
    if text(spec, "completionMode") == "Indexed" && spec["completions"].is_null() {
        report.required(&join(path, "completions"), "when completion mode is Indexed");
    }
    let template = join(path, "template");
    pod::template(report, &spec["template"], &template);
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    if matches!(policy, "" | "Always") {
        report.required(&format!("{template}.spec.restartPolicy"), "valid values: \"OnFailure\", \"Never\"");
    } else if policy == "OnFailure" && spec["podFailurePolicy"].is_object() {
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        report.invalid_text(&format!("{template}.spec.restartPolicy"), policy, detail);
    }
}

pub(crate) fn job_update(report: &mut Report, new: &Value, old: &Value) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    // The number of completions follows the parallelism of an indexed job.
    let elastic = text(spec, "completionMode") == "Indexed" && spec["completions"] == spec["parallelism"];
    if !elastic {
        report.unchanged(spec, before, "spec", "completions");
    }
    report.unchanged(spec, before, "spec", "selector");
    let suspended = before["suspend"] == Value::Bool(true) && unset(&old["status"], "startTime");
    let (mut template, mut template_before) = (spec["template"].clone(), before["template"].clone());
    if suspended {
        // Where pods run may still be changed as long as none has started.
        for part in [&mut template, &mut template_before] {
            for key in ["nodeSelector", "tolerations", "affinity", "schedulingGates"] {
                crate::builtin::tree::remove(&mut part["spec"], key);
            }
            for key in ["containers", "initContainers"] {
                for container in crate::builtin::tree::items_mut(&mut part["spec"], key) {
                    crate::builtin::tree::remove(container, "resources");
                }
            }
            crate::builtin::tree::remove(part, "metadata");
        }
    }
    if !same(&template, &template_before) {
        let (field, value) = if same(&template["metadata"], &template_before["metadata"]) {
            ("spec.template.spec", &spec["template"]["spec"])
        } else {
            ("spec.template", &spec["template"])
        };
        report.invalid(field, value, IMMUTABLE);
    }
    report.unchanged(spec, before, "spec", "completionMode");
    report.unchanged(spec, before, "spec", "podFailurePolicy");
    report.unchanged(spec, before, "spec", "backoffLimitPerIndex");
    report.unchanged(spec, before, "spec", "managedBy");
    report.unchanged(spec, before, "spec", "successPolicy");
}

pub(crate) fn cron_job(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        report.required("spec.schedule", "");
    } else {
        if schedule.contains("TZ") {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            report.invalid_text("spec.schedule", schedule, detail);
        }
        let rest = if schedule.contains("TZ") {
            schedule.split_once(' ').map_or("", |(_, rest)| rest)
        } else {
            schedule
        };
        if let Some(problem) = crate::controllers::cron::problem(rest) {
            report.invalid_text("spec.schedule", schedule, &problem);
        }
    }
    if !spec["timeZone"].is_null() {
        let zone = text(spec, "timeZone");
        if zone.is_empty() {
            report.invalid_text("spec.timeZone", zone, "must be nil or non-empty string");
        } else if zone.eq_ignore_ascii_case("local") || jiff::tz::TimeZone::get(zone).is_err() {
            report.invalid_text("spec.timeZone", zone, &format!("unknown time zone {zone}"));
        }
    }
    report.not_negative(spec, "spec", "startingDeadlineSeconds");
    report.one_of(spec, "spec", "concurrencyPolicy", &["Allow", "Forbid", "Replace"]);
    job_spec(report, at(spec, &["jobTemplate", "spec"]), "spec.jobTemplate.spec");
    report.not_negative(spec, "spec", "successfulJobsHistoryLimit");
    report.not_negative(spec, "spec", "failedJobsHistoryLimit");
}

pub(crate) fn autoscaler(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    let minimum = spec["minReplicas"].as_i64();
    let maximum = spec["maxReplicas"].as_i64().unwrap_or_default();
    if minimum.is_some_and(|n| n < 0) {
        report.invalid("spec.minReplicas", &spec["minReplicas"], "must be greater than or equal to 0");
    }
    if minimum.is_some_and(|n| maximum < n) {
        let detail = "must be greater than or equal to `minReplicas`";
        report.invalid("spec.maxReplicas", &json!(maximum), detail);
    }
    if maximum < 1 && !unset(spec, "maxReplicas") {
        report.invalid("spec.maxReplicas", &json!(maximum), "must be greater than or equal to 1");
    }
    let target = &spec["scaleTargetRef"];
    for key in ["kind", "name"] {
        report.present(target, "spec.scaleTargetRef", key);
    }
    let core = ["Pod", "ReplicationController"].contains(&text(target, "kind"));
    if text(target, "apiVersion").is_empty() && !text(target, "kind").is_empty() && !core {
        let detail = "apiVersion must specify API group";
        report.invalid_text("spec.scaleTargetRef.apiVersion", "", detail);
    }
    for (index, metric) in items(spec, "metrics").iter().enumerate() {
        autoscaler_metric(report, metric, &format!("spec.metrics[{index}]"));
    }
    let outside =
        items(spec, "metrics").iter().any(|metric| matches!(text(metric, "type"), "Object" | "External"));
    if minimum == Some(0) && !outside {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        report.forbidden("spec.metrics", detail);
    }
    if maximum < 1 && unset(spec, "maxReplicas") {
        // A declared check, which comes after the others.
        report.required("spec.maxReplicas", "");
    }
}

fn autoscaler_metric(report: &mut Report, metric: &Value, path: &str) {
    let kinds: BTreeMap<&str, &str> = [
        ("ContainerResource", "containerResource"),
        ("External", "external"),
        ("Object", "object"),
        ("Pods", "pods"),
        ("Resource", "resource"),
    ]
    .into();
    let Some(field) = kinds.get(text(metric, "type")) else {
        if text(metric, "type").is_empty() {
            return report.required(&join(path, "type"), "must specify a metric source type");
        }
        let words: Vec<&str> = kinds.keys().copied().collect();
        return report.not_supported(&join(path, "type"), &metric["type"], &words);
    };
    let source = &metric[*field];
    let path = join(path, field);
    if !source.is_object() {
        return report.required(&path, "must populate information for the given metric source");
    }
    if matches!(*field, "resource" | "containerResource") {
        report.present(source, &path, "name");
        let target = &source["target"];
        if target["averageUtilization"].is_null() && target["averageValue"].is_null() {
            let detail = "must set either a target raw value or a target utilization";
            report.required(&format!("{path}.target.averageUtilization"), detail);
        }
    }
}

pub(crate) fn disruption_budget(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    let given = |key: &str| !spec[key].is_null();
    if given("minAvailable") && given("maxUnavailable") {
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["minAvailable"],
            spec["selector"],
            spec["maxUnavailable"],
            spec["unhealthyPodEvictionPolicy"]
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        report.add("spec", crate::CauseReason::Invalid, Some(shown), detail);
    }
    for key in ["minAvailable", "maxUnavailable"] {
        report.number_or_percent(spec, "spec", key);
        report.percent_at_most_hundred(spec, "spec", key);
    }
    report.selector(&spec["selector"], "spec.selector");
    report.one_of(spec, "spec", "unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"]);
}
