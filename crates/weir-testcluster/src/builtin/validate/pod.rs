//! Refusals of pods and pod templates.

use std::collections::HashSet;

use serde_json::Value;

use super::report::{NOT_NEGATIVE, Report, join, label_problems, qualified_name_problems};
use crate::CauseReason;
use crate::builtin::pod::frozen;
use crate::builtin::quantity::Quantity;
use crate::builtin::tree::{items, same, text, unset};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Refusals of a pod's specification at `path`.
pub(crate) fn spec(report: &mut Report, spec: &Value, path: &str) {
    let volumes = volumes(report, spec, path);
    if items(spec, "containers").is_empty() {
        report.required(&join(path, "containers"), "");
    }
    let mut names = HashSet::new();
    let mut host_ports = HashSet::new();
    for (index, one) in items(spec, "containers").iter().enumerate() {
        let path = format!("{path}.containers[{index}]");
        container(report, one, &path, &volumes, &mut names);
        for (at, port) in items(one, "ports").iter().enumerate() {
            if !unset(port, "hostPort") {
                let key = format!("{}/{}/{}", text(port, "protocol"), text(port, "hostIP"), port["hostPort"]);
                if !host_ports.insert(key.clone()) {
                    report.duplicate(&format!("{path}.ports[{at}].hostPort"), &key);
                }
            }
        }
    }
    for (index, one) in items(spec, "initContainers").iter().enumerate() {
        let path = format!("{path}.initContainers[{index}]");
        container(report, one, &path, &volumes, &mut names);
        if text(one, "restartPolicy") != "Always" {
            for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if one[key].is_object() {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    report.forbidden(&join(&path, key), detail);
                }
            }
        }
    }
    report.one_of(spec, path, "restartPolicy", &["Always", "OnFailure", "Never"]);
    report.one_of(spec, path, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    report.labels(&spec["nodeSelector"], &join(path, "nodeSelector"));
    security(report, &spec["securityContext"], &join(path, "securityContext"));
    affinity(report, &spec["affinity"], &join(path, "affinity"));
    if text(spec, "dnsPolicy") == "None" {
        if !spec["dnsConfig"].is_object() {
            report.required(&join(path, "dnsConfig"), "must provide `dnsConfig` when `dnsPolicy` is None");
        } else if items(&spec["dnsConfig"], "nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            report.required(&join(path, "dnsConfig.nameservers"), detail);
        }
    }
    spread(report, spec, path);
    if !text(spec, "serviceAccountName").is_empty() {
        report.subdomain(&join(path, "serviceAccountName"), text(spec, "serviceAccountName"));
    }
    if !text(spec, "nodeName").is_empty() {
        report.subdomain(&join(path, "nodeName"), text(spec, "nodeName"));
    }
    if spec["activeDeadlineSeconds"]
        .as_i64()
        .is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds))
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        report.invalid(&join(path, "activeDeadlineSeconds"), &spec["activeDeadlineSeconds"], detail);
    }
    for key in ["hostname", "subdomain"] {
        if !text(spec, key).is_empty() {
            report.label(&join(path, key), text(spec, key));
        }
    }
    tolerations(report, spec, path);
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        report.address(&format!("{path}.hostAliases[{index}].ip"), text(alias, "ip"));
        for (at, name) in items(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            report.subdomain(&format!("{path}.hostAliases[{index}].hostnames[{at}]"), name);
        }
    }
}

/// Refusals of a template's labels, annotations and pod at `path`.
pub(crate) fn template(report: &mut Report, template: &Value, path: &str) {
    template_metadata(report, template, path);
    spec(report, &template["spec"], &join(path, "spec"));
}

/// Refusals of a template's labels and annotations.
pub(crate) fn template_metadata(report: &mut Report, template: &Value, path: &str) {
    let metadata = &template["metadata"];
    report.labels(&metadata["labels"], &join(path, "labels"));
    for (key, _) in crate::builtin::tree::entries(metadata, "annotations") {
        for problem in qualified_name_problems(&key.to_lowercase()) {
            report.invalid_text(&join(path, "annotations"), key, &problem);
        }
    }
}

fn volumes(report: &mut Report, spec: &Value, path: &str) -> HashSet<String> {
    let mut names = HashSet::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = format!("{path}.volumes[{index}]");
        let name = text(volume, "name");
        source(report, volume, &path);
        if name.is_empty() {
            report.required(&join(&path, "name"), "");
        } else {
            let problems = label_problems(name);
            for problem in &problems {
                report.invalid_text(&join(&path, "name"), name, problem);
            }
            if !names.insert(name.to_owned()) {
                report.duplicate(&join(&path, "name"), name);
            }
        }
    }
    names
}

const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "flocker",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
    "projected",
    "ephemeral",
    "csi",
    "image",
];

fn source(report: &mut Report, volume: &Value, path: &str) {
    let mut found = 0;
    for key in SOURCES.iter().filter(|key| volume[**key].is_object()) {
        found += 1;
        let path = join(path, key);
        if found > 1 {
            report.forbidden(&path, "may not specify more than 1 volume type");
            continue;
        }
        let source = &volume[*key];
        match *key {
            "hostPath" => host_path(report, source, &path),
            "secret" => {
                report.present(source, &path, "secretName");
                files(report, source, &path);
            }
            "configMap" => {
                report.present(source, &path, "name");
                files(report, source, &path);
            }
            "persistentVolumeClaim" => {
                report.present(source, &path, "claimName");
            }
            "nfs" => nfs(report, source, &path),
            "csi" => {
                report.present(source, &path, "driver");
            }
            _ => {}
        }
    }
    if found == 0 {
        report.required(path, "must specify a volume type");
    }
}

pub(crate) fn nfs(report: &mut Report, source: &Value, path: &str) {
    report.present(source, path, "server");
    report.present(source, path, "path");
    if !text(source, "path").starts_with('/') {
        report.invalid_text(&join(path, "path"), text(source, "path"), "must be an absolute path");
    }
}

pub(crate) fn host_path(report: &mut Report, source: &Value, path: &str) {
    if report.present(source, path, "path") {
        no_back_steps(report, &join(path, "path"), text(source, "path"));
    }
    report.one_of(
        source,
        path,
        "type",
        &[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ],
    );
}

fn files(report: &mut Report, source: &Value, path: &str) {
    let mode = |report: &mut Report, value: &Value, field: String| {
        if value.as_i64().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
            report.invalid(&field, value, "must be a number between 0 and 0777 (octal), both inclusive");
        }
    };
    mode(report, &source["defaultMode"], join(path, "defaultMode"));
    for (index, item) in items(source, "items").iter().enumerate() {
        let path = format!("{path}.items[{index}]");
        report.present(item, &path, "key");
        if report.present(item, &path, "path") {
            let file = text(item, "path");
            if file.starts_with('/') {
                report.invalid_text(&join(&path, "path"), file, "must be a relative path");
            }
            no_back_steps(report, &join(&path, "path"), file);
        }
        mode(report, &item["mode"], join(&path, "mode"));
    }
}

fn no_back_steps(report: &mut Report, field: &str, path: &str) {
    if path.split('/').any(|part| part == "..") {
        report.invalid_text(field, path, "must not contain '..'");
    }
}

fn container(
    report: &mut Report,
    one: &Value,
    path: &str,
    volumes: &HashSet<String>,
    names: &mut HashSet<String>,
) {
    let name = text(one, "name");
    if report.present(one, path, "name") {
        report.label(&join(path, "name"), name);
        if !names.insert(name.to_owned()) {
            report.duplicate(&join(path, "name"), name);
        }
    }
    if report.present(one, path, "image") && text(one, "image").trim() != text(one, "image") {
        let detail = "must not have leading or trailing whitespace";
        report.invalid_text(&join(path, "image"), text(one, "image"), detail);
    }
    report.one_of(one, path, "terminationMessagePolicy", &["FallbackToLogsOnError", "File"]);
    ports(report, one, path);
    environment(report, one, path);
    mounts(report, one, path, volumes);
    report.one_of(one, path, "imagePullPolicy", &["Always", "IfNotPresent", "Never"]);
    if let Some(lifecycle) = one.get("lifecycle") {
        for key in ["postStart", "preStop"] {
            if lifecycle[key].is_object() {
                handler(report, &lifecycle[key], &format!("{path}.lifecycle.{key}"));
            }
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if one[key].is_object() {
            probe(report, &one[key], &join(path, key), key != "readinessProbe");
        }
    }
    resources(report, &one["resources"], &join(path, "resources"));
    container_security(report, &one["securityContext"], &join(path, "securityContext"));
}

fn ports(report: &mut Report, one: &Value, path: &str) {
    let mut names = HashSet::new();
    for (index, port) in items(one, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = text(port, "name");
        if !name.is_empty() {
            let before = report.causes.len();
            report.port_name(&join(&path, "name"), name);
            if report.causes.len() == before && !names.insert(name) {
                report.duplicate(&join(&path, "name"), name);
            }
        }
        if unset(port, "containerPort") {
            report.required(&join(&path, "containerPort"), "");
        } else {
            report.port(&join(&path, "containerPort"), &port["containerPort"]);
        }
        if !unset(port, "hostPort") {
            report.port(&join(&path, "hostPort"), &port["hostPort"]);
        }
        report.one_of(port, &path, "protocol", PROTOCOLS);
    }
}

fn environment(report: &mut Report, one: &Value, path: &str) {
    for (index, variable) in items(one, "env").iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        let name = text(variable, "name");
        if name.is_empty() {
            report.required(&join(&path, "name"), "");
        } else if name.contains('=') {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            report.invalid_text(&join(&path, "name"), name, detail);
        }
        let source = &variable["valueFrom"];
        if !source.is_object() {
            continue;
        }
        let path = join(&path, "valueFrom");
        let given: Vec<&str> =
            ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"]
                .into_iter()
                .filter(|key| source[*key].is_object())
                .collect();
        for key in &given {
            let reference = &source[*key];
            let path = join(&path, key);
            match *key {
                "fieldRef" => field_reference(report, reference, &path),
                "configMapKeyRef" | "secretKeyRef" => {
                    report.subdomain(&join(&path, "name"), text(reference, "name"));
                    report.present(reference, &path, "key");
                }
                _ => {}
            }
        }
        if given.is_empty() {
            report.invalid_text(
                &path,
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            );
        } else if !text(variable, "value").is_empty() {
            report.invalid_text(&path, "", "may not be specified when `value` is not empty");
        } else if given.len() > 1 {
            report.invalid_text(&path, "", "may not have more than one field specified at a time");
        }
    }
}

fn field_reference(report: &mut Report, reference: &Value, path: &str) {
    const FIELDS: &[&str] = &[
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let field = text(reference, "fieldPath");
    let subscript = (field.starts_with("metadata.annotations['") || field.starts_with("metadata.labels['"))
        && field.ends_with("']");
    if field.is_empty() {
        report.required(&join(path, "fieldPath"), "");
    } else if !subscript && !FIELDS.contains(&field) {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        report.invalid_text(&join(path, "fieldPath"), field, &detail);
    }
}

fn mounts(report: &mut Report, one: &Value, path: &str, volumes: &HashSet<String>) {
    let mut paths = HashSet::new();
    for (index, mount) in items(one, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let name = text(mount, "name");
        if name.is_empty() {
            report.required(&join(&path, "name"), "");
        } else if !volumes.contains(name) {
            report.add(&join(&path, "name"), CauseReason::NotFound, Some(format!("{name:?}")), "");
        }
        let target = text(mount, "mountPath");
        if target.is_empty() {
            report.required(&join(&path, "mountPath"), "");
        } else if !paths.insert(target) {
            report.invalid_text(&join(&path, "mountPath"), target, "must be unique");
        }
        let below = text(mount, "subPath");
        if below.starts_with('/') {
            report.invalid_text(&join(&path, "subPath"), below, "must be a relative path");
        }
        no_back_steps(report, &join(&path, "subPath"), below);
    }
}

fn handler(report: &mut Report, handler: &Value, path: &str) {
    let mut found = 0;
    for key in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let one = &handler[key];
        if !one.is_object() {
            continue;
        }
        found += 1;
        let path = join(path, key);
        if found > 1 {
            report.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        match key {
            "exec" if items(one, "command").is_empty() => report.required(&join(&path, "command"), ""),
            "httpGet" => {
                report.present(one, &path, "path");
                report.port(&join(&path, "port"), &one["port"]);
                report.one_of(one, &path, "scheme", &["HTTP", "HTTPS"]);
            }
            "tcpSocket" | "grpc" => report.port(&join(&path, "port"), &one["port"]),
            _ => {}
        }
    }
    if found == 0 {
        report.required(path, "must specify a handler type");
    }
}

fn probe(report: &mut Report, probe: &Value, path: &str, once: bool) {
    handler(report, probe, path);
    for key in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        report.not_negative(probe, path, key);
    }
    if once && probe["successThreshold"].as_i64().is_some_and(|n| n != 1) {
        report.invalid(&join(path, "successThreshold"), &probe["successThreshold"], "must be 1");
    }
}

/// Refusals of a container's amounts.
pub(crate) fn resources(report: &mut Report, resources: &Value, path: &str) {
    let read = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    for kind in ["limits", "requests"] {
        for (name, amount) in crate::builtin::tree::entries(resources, kind) {
            let field = format!("{path}.{kind}[{name}]");
            resource_name(report, name, &field);
            let Some(quantity) = read(amount) else { continue };
            if quantity.is_negative() {
                report.invalid(&field, amount, NOT_NEGATIVE);
            }
            if name.contains('/') && !quantity.is_whole() {
                report.invalid(&field, amount, "must be an integer");
            }
            if kind == "requests"
                && let Some(limit) = read(&resources["limits"][name.as_str()])
            {
                let extended = name.contains('/') || name.starts_with("hugepages-");
                if extended && quantity != limit {
                    let detail = format!("must be equal to {name} limit of {limit}");
                    report.invalid(&format!("{path}.requests"), amount, &detail);
                } else if quantity > limit {
                    let detail = format!("must be less than or equal to {name} limit of {limit}");
                    report.invalid(&format!("{path}.requests"), amount, &detail);
                }
            }
        }
    }
}

fn resource_name(report: &mut Report, name: &str, field: &str) {
    for problem in qualified_name_problems(name) {
        report.invalid_text(field, name, &problem);
    }
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !name.contains('/') && !known {
        let anywhere = matches!(
            name,
            "storage" | "pods" | "services" | "secrets" | "configmaps" | "persistentvolumeclaims"
        );
        if !anywhere {
            report.invalid_text(field, name, "must be a standard resource type or fully qualified");
        }
        report.invalid_text(field, name, "must be a standard resource for containers");
    }
}

fn container_security(report: &mut Report, context: &Value, path: &str) {
    let forbids = context["allowPrivilegeEscalation"] == Value::Bool(false);
    if forbids && context["privileged"] == Value::Bool(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        report.invalid(path, context, detail);
    }
    numbers(report, context, path, &["runAsUser", "runAsGroup"]);
    profile(report, context, path);
}

fn numbers(report: &mut Report, context: &Value, path: &str, keys: &[&str]) {
    for key in keys {
        if context[*key].as_i64().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
            report.invalid(&join(path, key), &context[*key], "must be between 0 and 2147483647, inclusive");
        }
    }
}

fn security(report: &mut Report, context: &Value, path: &str) {
    numbers(report, context, path, &["fsGroup", "runAsUser", "runAsGroup"]);
    profile(report, context, path);
}

fn profile(report: &mut Report, context: &Value, path: &str) {
    let profile = &context["seccompProfile"];
    if profile.is_object() {
        let path = join(path, "seccompProfile");
        report.one_of(profile, &path, "type", &["Localhost", "RuntimeDefault", "Unconfined"]);
    }
}

fn affinity(report: &mut Report, affinity: &Value, path: &str) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let node = &affinity["nodeAffinity"][REQUIRED];
    if node.is_object() && items(node, "nodeSelectorTerms").is_empty() {
        let field = format!("{path}.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
        report.required(&field, "must have at least one node selector term");
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in items(&affinity[kind], REQUIRED).iter().enumerate() {
            pod_term(report, term, &format!("{path}.{kind}.{REQUIRED}[{index}]"));
        }
        for (index, term) in items(&affinity[kind], PREFERRED).iter().enumerate() {
            let path = format!("{path}.{kind}.{PREFERRED}[{index}]");
            if !term["weight"].as_i64().is_some_and(|weight| (1..=100).contains(&weight)) {
                report.invalid(&join(&path, "weight"), &term["weight"], "must be in the range 1-100");
            }
            pod_term(report, &term["podAffinityTerm"], &join(&path, "podAffinityTerm"));
        }
    }
}

fn pod_term(report: &mut Report, term: &Value, path: &str) {
    report.selector(&term["labelSelector"], &join(path, "labelSelector"));
    let key = text(term, "topologyKey");
    if key.is_empty() {
        report.required(&join(path, "topologyKey"), "can not be empty");
    }
    for problem in qualified_name_problems(key) {
        report.invalid_text(&join(path, "topologyKey"), key, &problem);
    }
}

fn spread(report: &mut Report, spec: &Value, path: &str) {
    for (index, one) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{index}]");
        if one["maxSkew"].as_i64().is_none_or(|skew| skew <= 0) {
            report.invalid(&join(&path, "maxSkew"), &one["maxSkew"], "must be greater than zero");
        }
        let key = text(one, "topologyKey");
        if key.is_empty() {
            report.required(&join(&path, "topologyKey"), "can not be empty");
        } else {
            for problem in qualified_name_problems(key) {
                report.invalid_text(&join(&path, "topologyKey"), key, &problem);
            }
        }
        report.one_of(one, &path, "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]);
        report.selector(&one["labelSelector"], &join(&path, "labelSelector"));
    }
}

fn tolerations(report: &mut Report, spec: &Value, path: &str) {
    for (index, toleration) in items(spec, "tolerations").iter().enumerate() {
        let path = format!("{path}.tolerations[{index}]");
        let key = text(toleration, "key");
        let operator = text(toleration, "operator");
        if !key.is_empty() {
            for problem in qualified_name_problems(key) {
                report.invalid_text(&join(&path, "key"), key, &problem);
            }
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            report.invalid_text(&join(&path, "operator"), operator, detail);
        }
        if !toleration["tolerationSeconds"].is_null() && text(toleration, "effect") != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            report.invalid_text(&join(&path, "effect"), text(toleration, "effect"), detail);
        }
        match operator {
            "Equal" | "" => {
                for problem in super::report::label_value_problems(text(toleration, "value")) {
                    report.invalid_text(&join(&path, "operator"), text(toleration, "value"), &problem);
                }
            }
            "Exists" => {
                if !text(toleration, "value").is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    report.invalid_text(&join(&path, "operator"), text(toleration, "value"), detail);
                }
            }
            _ => {
                report.not_supported(&join(&path, "operator"), &toleration["operator"], &["Equal", "Exists"]);
            }
        }
        if !text(toleration, "effect").is_empty() {
            report.one_of(toleration, &path, "effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

/// Refusals of a changed pod.
pub(crate) fn update(report: &mut Report, new: &Value, old: &Value) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    for key in ["containers", "initContainers"] {
        if items(spec, key).len() != items(before, key).len() {
            return report.forbidden(&format!("spec.{key}"), "pod updates may not add or remove containers");
        }
    }
    let (deadline, deadline_before) =
        (spec["activeDeadlineSeconds"].as_i64(), before["activeDeadlineSeconds"].as_i64());
    match (deadline, deadline_before) {
        (Some(now), Some(then)) if now > then => {
            let detail = "must be less than or equal to previous value";
            report.invalid("spec.activeDeadlineSeconds", &spec["activeDeadlineSeconds"], detail);
        }
        (None, Some(_)) => {
            report.invalid(
                "spec.activeDeadlineSeconds",
                &Value::Null,
                "must not update from a positive integer to nil value",
            );
        }
        _ => {}
    }
    if !same(&frozen(spec, before), before) {
        report.forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        );
    }
}
