//! Refusals of the core group's kinds but pods.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::pod;
use super::report::{IMMUTABLE, PORT_RANGE, Report, join, qualified_name_problems};
use crate::CauseReason;
use crate::builtin::quantity::Quantity;
use crate::builtin::tree::{at, entries, items, same, text, unset};

const DATA_SIZE_MAX: usize = 1024 * 1024;

pub(crate) fn service(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    if items(spec, "ports").is_empty() && !headless && kind != "ExternalName" {
        report.required("spec.ports", "");
    }
    if kind == "ExternalName" {
        for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec.get(key).is_some_and(|value| !value.is_null()) {
                report.forbidden(&join("spec", key), "may not be set for ExternalName services");
            }
        }
        let name = text(spec, "externalName").trim_end_matches('.');
        if name.is_empty() {
            report.required("spec.externalName", "");
        } else {
            report.subdomain("spec.externalName", name);
        }
    }
    service_ports(report, spec);
    report.labels(&spec["selector"], "spec.selector");
    report.one_of(spec, "spec", "sessionAffinity", &["ClientIP", "None"]);
    for (index, address) in cluster_addresses(spec).iter().enumerate() {
        if *address != "None" && !address.is_empty() {
            report.address(&format!("spec.clusterIPs[{index}]"), address);
        }
    }
    for (index, address) in items(spec, "externalIPs").iter().filter_map(Value::as_str).enumerate() {
        report.outside_address(&format!("spec.externalIPs[{index}]"), address);
    }
    report.one_of(spec, "spec", "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    if kind == "ClusterIP" {
        for (index, port) in items(spec, "ports").iter().enumerate() {
            if !unset(port, "nodePort") {
                let detail = "may not be used when `type` is 'ClusterIP'";
                report.forbidden(&format!("spec.ports[{index}].nodePort"), detail);
            }
        }
    }
    if !items(spec, "loadBalancerSourceRanges").is_empty() {
        if kind == "LoadBalancer" {
            for (index, range) in
                items(spec, "loadBalancerSourceRanges").iter().filter_map(Value::as_str).enumerate()
            {
                if super::report::parse_network(range.trim()).is_none() {
                    let field = format!("spec.loadBalancerSourceRanges[{index}]");
                    report.invalid_text(
                        &field,
                        range,
                        "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                    );
                }
            }
        } else {
            report
                .forbidden("spec.LoadBalancerSourceRanges", "may only be used when `type` is 'LoadBalancer'");
        }
    }
    if kind == "LoadBalancer" || kind == "NodePort" {
        report.one_of(spec, "spec", "externalTrafficPolicy", &["Cluster", "Local"]);
    }
    report.one_of(spec, "spec", "internalTrafficPolicy", &["Cluster", "Local"]);
    report.one_of(spec, "spec", "ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    report.one_of(spec, "spec", "trafficDistribution", &["PreferClose", "PreferSameNode", "PreferSameZone"]);
}

fn cluster_addresses(spec: &Value) -> Vec<&str> {
    let listed: Vec<&str> = items(spec, "clusterIPs").iter().filter_map(Value::as_str).collect();
    if listed.is_empty() && !unset(spec, "clusterIP") { vec![text(spec, "clusterIP")] } else { listed }
}

fn service_ports(report: &mut Report, spec: &Value) {
    let ports = items(spec, "ports");
    let headless = text(spec, "clusterIP") == "None";
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                report.required(&join(&path, "name"), "");
            }
        } else {
            report.label(&join(&path, "name"), name);
            if !names.insert(name) {
                report.duplicate(&join(&path, "name"), name);
            }
        }
        if !port["port"].as_i64().is_some_and(|number| (1..=65535).contains(&number)) {
            let number = if port["port"].is_null() { json!(0) } else { port["port"].clone() };
            report.invalid(&join(&path, "port"), &number, PORT_RANGE);
        }
        report.one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"]);
        let target = if port["targetPort"].is_null() { json!(0) } else { port["targetPort"].clone() };
        report.port(&join(&path, "targetPort"), &target);
        if headless && !target.is_string() && !same(&target, &port["port"]) && !unset(port, "nodePort") {
            report.invalid(
                &join(&path, "targetPort"),
                &target,
                "must be equal to the value of 'port' when clusterIP = None",
            );
        }
    }
    let mut seen = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let key = (text(port, "protocol"), port["port"].as_i64());
        if !seen.insert(key) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{:?},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                text(port, "protocol"),
                port["port"]
            );
            report.add(&format!("spec.ports[{index}]"), CauseReason::Duplicate, Some(shown), "");
        }
    }
}

pub(crate) fn service_update(report: &mut Report, new: &Value, old: &Value) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    if text(before, "type") == "ExternalName" || text(spec, "type") == "ExternalName" {
        return;
    }
    let first = |spec: &Value| cluster_addresses(spec).first().map(|address| (*address).to_owned());
    if let (Some(now), Some(then)) = (first(spec), first(before))
        && now != then
        && !then.is_empty()
    {
        report.invalid("spec.clusterIPs[0]", &json!([now]), "may not change once set");
    }
}

pub(crate) fn service_status(report: &mut Report, object: &Value) {
    let ingress = items(at(object, &["status", "loadBalancer"]), "ingress");
    if !ingress.is_empty() && text(&object["spec"], "type") != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        return report.forbidden("status.loadBalancer.ingress", detail);
    }
    load_balancer_status(report, object);
}

pub(crate) fn load_balancer_status(report: &mut Report, object: &Value) {
    for (index, one) in items(at(object, &["status", "loadBalancer"]), "ingress").iter().enumerate() {
        let path = format!("status.loadBalancer.ingress[{index}]");
        if !text(one, "ip").is_empty() {
            report.address(&join(&path, "ip"), text(one, "ip"));
        }
        if !text(one, "hostname").is_empty() {
            report.subdomain(&join(&path, "hostname"), text(one, "hostname"));
        }
    }
}

pub(crate) fn config_map(report: &mut Report, object: &Value) {
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        let field = format!("data[{key}]");
        for problem in super::report::config_key_problems(key) {
            report.invalid_text(&field, key, &problem);
        }
        if !object["binaryData"][key.as_str()].is_null() {
            report.invalid_text(&field, key, "duplicate of key present in binaryData");
        }
        size += value.as_str().map_or(0, str::len);
    }
    report.config_keys(object, "binaryData");
    size += entries(object, "binaryData")
        .map(|(_, value)| value.as_str().map_or(0, str::len) / 4 * 3)
        .sum::<usize>();
    if size > DATA_SIZE_MAX {
        report.add("", CauseReason::TooLong, None, &format!("may not be more than {DATA_SIZE_MAX} bytes"));
    }
}

/// Refusals of a changed ConfigMap or Secret that may not change any more.
pub(crate) fn immutable_update(report: &mut Report, new: &Value, old: &Value) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if old["immutable"] != Value::Bool(true) {
        return;
    }
    if new["immutable"] != Value::Bool(true) {
        report.forbidden("immutable", DETAIL);
    }
    for key in ["data", "binaryData"] {
        if !same(&new[key], &old[key]) {
            report.forbidden(key, DETAIL);
        }
    }
}

pub(crate) fn secret(report: &mut Report, object: &Value) {
    report.config_keys(object, "data");
    let size: usize =
        entries(object, "data").map(|(_, value)| value.as_str().map_or(0, str::len) / 4 * 3).sum();
    if size > DATA_SIZE_MAX {
        report.add(
            "data",
            CauseReason::TooLong,
            None,
            &format!("may not be more than {DATA_SIZE_MAX} bytes"),
        );
    }
    let data = &object["data"];
    let needs = |report: &mut Report, keys: &[&str]| {
        for key in keys.iter().filter(|key| data[**key].is_null()) {
            report.required(&format!("data[{key}]"), "");
        }
    };
    match text(object, "type") {
        "kubernetes.io/tls" => needs(report, &["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => needs(report, &["ssh-privatekey"]),
        "kubernetes.io/basic-auth" if data["username"].is_null() && data["password"].is_null() => {
            needs(report, &["username", "password"]);
        }
        "kubernetes.io/dockerconfigjson" => docker_config(report, data, ".dockerconfigjson"),
        "kubernetes.io/dockercfg" => docker_config(report, data, ".dockercfg"),
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if unset(at(object, &["metadata", "annotations"]), key) {
                report.required(&format!("metadata.annotations[{key}]"), "");
            }
        }
        _ => {}
    }
}

fn docker_config(report: &mut Report, data: &Value, key: &str) {
    use base64::Engine as _;
    let field = format!("data[{key}]");
    let Some(text) = data[key].as_str() else { return report.required(&field, "") };
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<Value>(&bytes) {
        // The decoder of a real server words its complaint another way.
        report.invalid_text(&field, "<secret contents redacted>", &error.to_string());
    }
}

pub(crate) fn secret_update(report: &mut Report, new: &Value, old: &Value) {
    if !same(&new["type"], &old["type"]) {
        report.invalid("type", &new["type"], IMMUTABLE);
    }
    immutable_update(report, new, old);
}

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(crate) fn claim(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    if items(spec, "accessModes").is_empty() {
        report.required("spec.accessModes", "at least 1 access mode is required");
    }
    report.selector(&spec["selector"], "spec.selector");
    access_modes(report, spec);
    let size = at(spec, &["resources", "requests", "storage"]);
    match size.as_str().and_then(|text| Quantity::parse(text).ok()) {
        None => report.required("spec.resources[storage]", ""),
        Some(size_read) if size_read.is_zero() || size_read.is_negative() => {
            report.invalid("spec.resources[storage]", size, "must be greater than zero");
        }
        Some(_) => {}
    }
    if !unset(spec, "storageClassName") {
        report.subdomain("spec.storageClassName", text(spec, "storageClassName"));
    }
    report.one_of(spec, "spec", "volumeMode", &["Block", "Filesystem"]);
}

fn access_modes(report: &mut Report, spec: &Value) {
    for mode in items(spec, "accessModes") {
        if !mode.as_str().is_some_and(|mode| MODES.contains(&mode)) {
            report.not_supported("spec.accessModes", mode, MODES);
        }
    }
}

pub(crate) fn claim_update(report: &mut Report, new: &Value, old: &Value) {
    let (mut spec, before) = (new["spec"].clone(), &old["spec"]);
    let bound = text(&old["status"], "phase") == "Bound";
    if bound {
        if let Some(requests) = spec.get_mut("resources").and_then(|resources| resources.get_mut("requests"))
        {
            let read = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
            let was = at(before, &["resources", "requests", "storage"]);
            let smaller =
                matches!((read(&requests["storage"]), read(was)), (Some(now), Some(then)) if now < then);
            if smaller {
                let detail = "field can not be less than status.capacity";
                report.forbidden("spec.resources.requests.storage", detail);
            }
            *requests = at(before, &["resources", "requests"]).clone();
        }
        crate::builtin::tree::copy(&mut spec, before, "volumeAttributesClassName");
    }
    if unset(before, "volumeName") {
        crate::builtin::tree::copy(&mut spec, before, "volumeName");
    }
    if before["storageClassName"].is_null() {
        crate::builtin::tree::copy(&mut spec, before, "storageClassName");
    }
    if !same(&spec, before) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        report.forbidden("spec", detail);
    }
}

const VOLUME_SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(crate) fn volume(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    if items(spec, "accessModes").is_empty() {
        report.required("spec.accessModes", "");
    }
    access_modes(report, spec);
    if entries(spec, "capacity").next().is_none() {
        report.required("spec.capacity", "");
    }
    if at(spec, &["capacity", "storage"]).is_null() {
        report.not_supported("spec.capacity", &spec["capacity"], &["storage"]);
    }
    report.one_of(spec, "spec", "persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"]);
    let mut found = 0;
    for key in VOLUME_SOURCES.iter().filter(|key| spec[**key].is_object()) {
        found += 1;
        let path = join("spec", key);
        match *key {
            _ if found > 1 => report.forbidden(&path, "may not specify more than 1 volume type"),
            "hostPath" => pod::host_path(report, &spec[*key], &path),
            "nfs" => pod::nfs(report, &spec[*key], &path),
            _ => {}
        }
    }
    if found == 0 {
        report.required("spec", "must specify a volume type");
    }
    report.one_of(spec, "spec", "volumeMode", &["Block", "Filesystem"]);
}

pub(crate) fn volume_update(report: &mut Report, new: &Value, old: &Value) {
    if VOLUME_SOURCES.iter().any(|key| !same(&new["spec"][*key], &old["spec"][*key])) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        report.forbidden("spec.persistentvolumesource", detail);
    }
    report.unchanged(&new["spec"], &old["spec"], "spec", "volumeMode");
}

pub(crate) fn endpoints(report: &mut Report, object: &Value) {
    for (index, subset) in items(object, "subsets").iter().enumerate() {
        let path = format!("subsets[{index}]");
        if items(subset, "addresses").is_empty() && items(subset, "notReadyAddresses").is_empty() {
            report.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for key in ["addresses", "notReadyAddresses"] {
            for (at, address) in items(subset, key).iter().enumerate() {
                let field = format!("{path}.{key}[{at}].ip");
                let ip = text(address, "ip");
                if ip.parse::<std::net::IpAddr>().is_err() {
                    report.invalid_text(&field, ip, super::report::ADDRESS);
                    report.invalid_text(&field, ip, "must be a valid IP address");
                } else {
                    report.outside_address(&field, ip);
                }
            }
        }
        for (at, port) in items(subset, "ports").iter().enumerate() {
            let path = format!("{path}.ports[{at}]");
            if text(port, "name").is_empty() {
                if items(subset, "ports").len() > 1 {
                    report.required(&join(&path, "name"), "");
                }
            } else {
                report.label(&join(&path, "name"), text(port, "name"));
            }
            report.port(&join(&path, "port"), &port["port"]);
            report.one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"]);
        }
    }
}

pub(crate) fn limit_range(report: &mut Report, object: &Value) {
    let read = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    for (index, limit) in items(&object["spec"], "limits").iter().enumerate() {
        let path = format!("spec.limits[{index}]");
        let mut names: Vec<&String> = ["max", "min", "default", "defaultRequest"]
            .iter()
            .flat_map(|key| entries(limit, key))
            .map(|(name, _)| name)
            .collect();
        names.sort();
        names.dedup();
        for name in names {
            let get = |key: &str| read(&limit[key][name.as_str()]);
            let mut greater = |field: &str,
                               words: (&str, &str),
                               low: Option<Quantity>,
                               high: Option<Quantity>,
                               shown: Option<Quantity>| {
                if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
                    && low > high
                {
                    let detail = format!("{} value {low} is greater than {} value {high}", words.0, words.1);
                    report.invalid_text(&format!("{path}.{field}[{name}]"), &shown.to_string(), &detail);
                }
            };
            let (min, max, default, request) =
                (get("min"), get("max"), get("default"), get("defaultRequest"));
            greater("min", ("min", "max"), min, max, min);
            greater("defaultRequest", ("min", "default request"), min, request, request);
            greater("defaultRequest", ("default request", "max"), request, max, request);
            greater("defaultRequest", ("default request", "default"), request, default, request);
            greater("default", ("min", "default"), min, default, min);
            greater("default", ("default", "max"), default, max, default);
        }
    }
}

pub(crate) fn quota(report: &mut Report, object: &Value) {
    for (name, amount) in entries(&object["spec"], "hard") {
        let field = format!("spec.hard[{name}]");
        for problem in qualified_name_problems(name) {
            report.invalid_text(&field, name, &problem);
        }
        let known = name.contains('/')
            || matches!(
                name.as_str(),
                "cpu"
                    | "memory"
                    | "ephemeral-storage"
                    | "storage"
                    | "pods"
                    | "services"
                    | "replicationcontrollers"
                    | "resourcequotas"
                    | "secrets"
                    | "configmaps"
                    | "persistentvolumeclaims"
            )
            || ["requests.", "limits.", "services.", "hugepages-"]
                .iter()
                .any(|start| name.starts_with(start));
        if !known {
            report.invalid_text(&field, name, "must be a standard resource type or fully qualified");
            report.invalid_text(&field, name, "must be a standard resource for quota");
        }
        if amount.as_str().and_then(|text| Quantity::parse(text).ok()).is_some_and(Quantity::is_negative) {
            report.invalid(&field, amount, super::report::NOT_NEGATIVE);
        }
    }
}

pub(crate) fn event(report: &mut Report, object: &Value) {
    let namespace = text(&object["metadata"], "namespace");
    let involved = text(&object["involvedObject"], "namespace");
    let cluster_wide = involved.is_empty() && (namespace == "default" || namespace == "kube-system");
    if involved != namespace && !cluster_wide {
        report.invalid_text("involvedObject.namespace", involved, "does not match event.namespace");
    }
}

pub(crate) fn new_event(report: &mut Report, object: &Value) {
    if object["eventTime"].is_null() {
        report.required("eventTime", "");
    }
    for key in ["reportingController", "reportingInstance", "action", "reason"] {
        report.present(object, "", key);
    }
    if !matches!(text(object, "type"), "Normal" | "Warning") {
        report.invalid_text("type", "", &format!("has invalid value: {}", text(object, "type")));
    }
}
