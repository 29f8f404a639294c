//! Refusals of networking, access control, storage and the rest.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::report::{IMMUTABLE, Report, join, label_1035_problems, parse_network, subdomain_problems};
use crate::CauseReason;
use crate::builtin::tree::{entries, items, same, text, unset};

pub(crate) fn ingress(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    if items(spec, "rules").is_empty() && !spec["defaultBackend"].is_object() {
        report.invalid("spec", &Value::Null, "either `defaultBackend` or `rules` must be specified");
    }
    if spec["defaultBackend"].is_object() {
        backend(report, &spec["defaultBackend"], "spec.defaultBackend");
    }
    for (index, rule) in items(spec, "rules").iter().enumerate() {
        let path = format!("spec.rules[{index}]");
        let host = text(rule, "host");
        if !host.is_empty() {
            ingress_host(report, &join(&path, "host"), host);
        }
        if !rule["http"].is_object() {
            continue;
        }
        let paths = items(&rule["http"], "paths");
        if paths.is_empty() {
            report.required(&format!("{path}.http.paths"), "");
        }
        for (index, one) in paths.iter().enumerate() {
            ingress_path(report, one, &format!("{path}.http.paths[{index}]"));
        }
    }
    for (index, tls) in items(spec, "tls").iter().enumerate() {
        for (at, host) in items(tls, "hosts").iter().filter_map(Value::as_str).enumerate() {
            ingress_host(report, &format!("spec.tls[{index}].hosts[{at}]"), host);
        }
    }
    if !unset(spec, "ingressClassName") {
        report.subdomain("spec.ingressClassName", text(spec, "ingressClassName"));
    }
}

fn ingress_host(report: &mut Report, field: &str, host: &str) {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return report.invalid_text(field, host, "must be a DNS name, not an IP address");
    }
    let rest = host.strip_prefix("*.").unwrap_or(host);
    if host.starts_with('*') && !host.starts_with("*.") {
        let detail = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        return report.invalid_text(field, host, detail);
    }
    for problem in subdomain_problems(rest) {
        report.invalid_text(field, host, &problem);
    }
}

fn ingress_path(report: &mut Report, one: &Value, path: &str) {
    let target = text(one, "path");
    match text(one, "pathType") {
        "" => return report.required(&join(path, "pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !target.starts_with('/') {
                report.invalid_text(&join(path, "path"), target, "must be an absolute path");
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if target.contains(bad) {
                    report.invalid_text(&join(path, "path"), target, &format!("must not contain '{bad}'"));
                }
            }
            for bad in ["/..", "/."] {
                if target.ends_with(bad) {
                    report.invalid_text(&join(path, "path"), target, &format!("cannot end with '{bad}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !target.is_empty() && !target.starts_with('/') {
                report.invalid_text(&join(path, "path"), target, "must be an absolute path");
            }
        }
        _ => report.not_supported(
            &join(path, "pathType"),
            &one["pathType"],
            &["Exact", "ImplementationSpecific", "Prefix"],
        ),
    }
    backend(report, &one["backend"], &join(path, "backend"));
}

fn backend(report: &mut Report, backend: &Value, path: &str) {
    let (service, resource) = (&backend["service"], backend["resource"].is_object());
    if service.is_object() && resource {
        return report.invalid_text(path, "", "cannot set both resource and service backends");
    }
    if resource {
        return;
    }
    if !service.is_object() {
        return report.invalid_text(path, "", "resource or service backend is required");
    }
    let name = text(service, "name");
    if name.is_empty() {
        report.required(&format!("{path}.service.name"), "");
    } else {
        report.label(&format!("{path}.service.name"), name);
    }
    let port = &service["port"];
    match (unset(port, "name"), unset(port, "number")) {
        (false, false) => report.invalid_text(path, "", "cannot set both port name & port number"),
        (false, true) => report.port_name(&format!("{path}.service.port.name"), text(port, "name")),
        (true, false) => report.port(&format!("{path}.service.port.number"), &port["number"]),
        (true, true) => report.required(path, "port name or number is required"),
    }
}

pub(crate) fn ingress_class(report: &mut Report, object: &Value) {
    let controller = text(&object["spec"], "controller");
    if controller.is_empty() {
        return report.required("spec.controller", "");
    }
    if !controller.contains('/') {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        report.invalid_text("spec.controller", controller, detail);
    }
}

pub(crate) fn network_policy(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    report.selector(&spec["podSelector"], "spec.podSelector");
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(spec, direction).iter().enumerate() {
            let path = format!("spec.{direction}[{index}]");
            for (at, port) in items(rule, "ports").iter().enumerate() {
                policy_port(report, port, &format!("{path}.ports[{at}]"));
            }
            for (at, peer) in items(rule, peers).iter().enumerate() {
                policy_peer(report, peer, &format!("{path}.{peers}[{at}]"));
            }
        }
    }
    if items(spec, "policyTypes").len() > 2 {
        let detail = "may not specify more than two policyTypes";
        return report.invalid("spec.policyTypes", &spec["policyTypes"], detail);
    }
    for (index, kind) in items(spec, "policyTypes").iter().enumerate() {
        if kind != "Ingress" && kind != "Egress" {
            report.not_supported(&format!("spec.policyTypes[{index}]"), kind, &["Ingress", "Egress"]);
        }
    }
}

fn policy_port(report: &mut Report, port: &Value, path: &str) {
    report.one_of(port, path, "protocol", &["TCP", "UDP", "SCTP"]);
    if !port["port"].is_null() {
        report.port(&join(path, "port"), &port["port"]);
        if let (Some(start), Some(end)) = (port["port"].as_i64(), port["endPort"].as_i64())
            && end < start
        {
            report.invalid(
                &join(path, "endPort"),
                &port["endPort"],
                "must be greater than or equal to `port`",
            );
        }
    }
}

fn policy_peer(report: &mut Report, peer: &Value, path: &str) {
    let mut found = 0;
    for key in ["podSelector", "namespaceSelector"] {
        if peer[key].is_object() {
            found += 1;
            report.selector(&peer[key], &join(path, key));
        }
    }
    let block = &peer["ipBlock"];
    if block.is_object() {
        let path = join(path, "ipBlock");
        let cidr = text(block, "cidr");
        match parse_network(cidr) {
            None if cidr.is_empty() => report.required(&join(&path, "cidr"), ""),
            None => {
                let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                report.invalid_text(&join(&path, "cidr"), cidr, detail);
            }
            Some(outer) => {
                for (index, except) in items(block, "except").iter().filter_map(Value::as_str).enumerate() {
                    if !parse_network(except).is_some_and(|inner| within(inner, outer)) {
                        let field = format!("{path}.except[{index}]");
                        report.invalid_text(&field, except, "must be a strict subset of `cidr`");
                    }
                }
            }
        }
    }
    match (found, block.is_object()) {
        (0, false) => report.required(path, "must specify a peer"),
        (1.., true) => report.forbidden(path, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn within(inner: (std::net::IpAddr, u8), outer: (std::net::IpAddr, u8)) -> bool {
    let bits = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, true),
        std::net::IpAddr::V6(v6) => (u128::from(v6), false),
    };
    let ((a, a4), (b, b4)) = (bits(inner.0), bits(outer.0));
    let mask = if outer.1 == 0 { 0 } else { u128::MAX << (128 - u32::from(outer.1)) };
    a4 == b4 && inner.1 > outer.1 && a & mask == b & mask
}

pub(crate) fn endpoint_slice(report: &mut Report, object: &Value) {
    let kind = text(object, "addressType");
    if kind.is_empty() {
        report.required("addressType", "");
    } else {
        report.one_of(object, "", "addressType", &["FQDN", "IPv4", "IPv6"]);
    }
    for (index, endpoint) in items(object, "endpoints").iter().enumerate() {
        let path = format!("endpoints[{index}]");
        if items(endpoint, "addresses").is_empty() {
            report.required(&join(&path, "addresses"), "must contain at least 1 address");
        }
        for (at, address) in items(endpoint, "addresses").iter().filter_map(Value::as_str).enumerate() {
            if matches!(kind, "IPv4" | "IPv6") {
                report.outside_address(&format!("{path}.addresses[{at}]"), address);
            }
        }
    }
    let mut names = HashSet::new();
    for (index, port) in items(object, "ports").iter().enumerate() {
        let path = format!("ports[{index}]");
        let name = text(port, "name");
        if !name.is_empty() {
            report.label(&join(&path, "name"), name);
        }
        if !names.insert(name) {
            report.duplicate(&join(&path, "name"), name);
        }
        report.one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"]);
    }
}

pub(crate) fn role(report: &mut Report, object: &Value, namespaced: bool) {
    for (index, rule) in items(object, "rules").iter().enumerate() {
        let path = format!("rules[{index}]");
        if items(rule, "verbs").is_empty() {
            report.required(&join(&path, "verbs"), "");
        }
        let resources = !items(rule, "resources").is_empty();
        if !items(rule, "nonResourceURLs").is_empty() {
            let urls = &rule["nonResourceURLs"];
            if namespaced {
                report.invalid(
                    &join(&path, "nonResourceURLs"),
                    urls,
                    "namespaced rules cannot apply to non-resource URLs",
                );
            }
            if resources || !items(rule, "apiGroups").is_empty() || !items(rule, "resourceNames").is_empty() {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                report.invalid(&join(&path, "nonResourceURLs"), urls, detail);
            }
            continue;
        }
        if items(rule, "apiGroups").is_empty() {
            report.required(&join(&path, "apiGroups"), "resource rules must supply at least one api group");
        }
        if !resources {
            report.required(&join(&path, "resources"), "resource rules must supply at least one resource");
        }
    }
    let aggregation = &object["aggregationRule"];
    if aggregation.is_object() {
        let selectors = items(aggregation, "clusterRoleSelectors");
        if selectors.is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            report.required("aggregationRule.clusterRoleSelectors", detail);
        }
        for (index, selector) in selectors.iter().enumerate() {
            report.selector(selector, &format!("aggregationRule.clusterRoleSelectors[{index}]"));
        }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

pub(crate) fn role_binding(report: &mut Report, object: &Value, namespaced: bool) {
    let role = &object["roleRef"];
    if text(role, "apiGroup") != RBAC {
        report.not_supported("roleRef.apiGroup", &role["apiGroup"], &[RBAC]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(role, "kind")) {
        let kind = if role["kind"].is_null() { json!("") } else { role["kind"].clone() };
        report.not_supported("roleRef.kind", &kind, kinds);
    }
    for (index, subject) in items(object, "subjects").iter().enumerate() {
        let path = format!("subjects[{index}]");
        let name = text(subject, "name");
        let group = text(subject, "apiGroup");
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    report.subdomain(&join(&path, "name"), name);
                }
                if !group.is_empty() {
                    report.not_supported(&join(&path, "apiGroup"), &subject["apiGroup"], &[""]);
                }
                if !namespaced && unset(subject, "namespace") {
                    report.required(&join(&path, "namespace"), "");
                }
            }
            "User" | "Group" => {
                if group != RBAC {
                    report.not_supported(&join(&path, "apiGroup"), &subject["apiGroup"], &[RBAC]);
                }
            }
            _ => report.not_supported(
                &join(&path, "kind"),
                &subject["kind"],
                &["ServiceAccount", "User", "Group"],
            ),
        }
    }
    // The checks of names are declared ones and come after the others.
    for (index, subject) in items(object, "subjects").iter().enumerate() {
        report.present(subject, &format!("subjects[{index}]"), "name");
    }
    report.present(role, "roleRef", "name");
}

pub(crate) fn role_binding_update(report: &mut Report, new: &Value, old: &Value) {
    if !same(&new["roleRef"], &old["roleRef"]) {
        let role = &new["roleRef"];
        let shown = format!(
            "{{\"APIGroup\":{:?},\"Kind\":{:?},\"Name\":{:?}}}",
            text(role, "apiGroup"),
            text(role, "kind"),
            text(role, "name")
        );
        report.add("roleRef", CauseReason::Invalid, Some(shown), IMMUTABLE);
    }
}

pub(crate) fn storage_class(report: &mut Report, object: &Value) {
    if text(object, "provisioner").is_empty() {
        report.required("provisioner", "");
    }
    report.one_of(object, "", "reclaimPolicy", &["Delete", "Retain"]);
    report.one_of(object, "", "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]);
}

pub(crate) fn storage_class_update(report: &mut Report, new: &Value, old: &Value) {
    for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        if !same(&new[key], &old[key]) {
            // The value is not shown.
            report.invalid(key, &Value::Null, IMMUTABLE);
        }
    }
}

pub(crate) fn priority_class(report: &mut Report, object: &Value) {
    let name = text(&object["metadata"], "name");
    let system = matches!(name, "system-node-critical" | "system-cluster-critical");
    if name.starts_with("system-") && !system {
        let detail = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
        );
        report.forbidden("metadata.name", &detail);
    }
    if !system && object["value"].as_i64().is_some_and(|value| value > 1_000_000_000) {
        report.forbidden("value", "maximum allowed value of a user defined priority is 1000000000");
    }
    report.one_of(object, "", "preemptionPolicy", &["Never", "PreemptLowerPriority"]);
}

pub(crate) fn priority_class_update(report: &mut Report, new: &Value, old: &Value) {
    if new["value"].as_i64().unwrap_or_default() != old["value"].as_i64().unwrap_or_default() {
        report.forbidden("value", "may not be changed in an update.");
    }
    if !same(&new["preemptionPolicy"], &old["preemptionPolicy"]) {
        report.invalid("preemptionPolicy", &new["preemptionPolicy"], IMMUTABLE);
    }
}

pub(crate) fn lease(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    if spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
        report.invalid("spec.leaseDurationSeconds", &spec["leaseDurationSeconds"], "must be greater than 0");
    }
    if spec["leaseTransitions"].as_i64().is_some_and(|number| number < 0) {
        report.invalid(
            "spec.leaseTransitions",
            &spec["leaseTransitions"],
            "must be greater than or equal to 0",
        );
    }
}

pub(crate) fn webhooks(report: &mut Report, object: &Value) {
    let mut names = HashSet::new();
    for (index, hook) in items(object, "webhooks").iter().enumerate() {
        let path = format!("webhooks[{index}]");
        let name = text(hook, "name");
        if name.is_empty() {
            report.required(&join(&path, "name"), "");
        } else {
            let problems = subdomain_problems(name);
            for problem in &problems {
                report.invalid_text(&join(&path, "name"), name, problem);
            }
            if problems.is_empty() && name.split('.').count() < 3 {
                let detail = "should be a domain with at least three segments separated by dots";
                report.invalid_text(&join(&path, "name"), name, detail);
            }
            if !names.insert(name) {
                report.duplicate(&join(&path, "name"), name);
            }
        }
        report.one_of(hook, &path, "failurePolicy", &["Fail", "Ignore"]);
        report.one_of(hook, &path, "matchPolicy", &["Equivalent", "Exact"]);
        if hook["sideEffects"].is_null() {
            report.required(&join(&path, "sideEffects"), "must specify one of None, NoneOnDryRun");
        } else {
            report.one_of(hook, &path, "sideEffects", &["None", "NoneOnDryRun"]);
        }
        if hook["timeoutSeconds"].as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            report.invalid(&join(&path, "timeoutSeconds"), &hook["timeoutSeconds"], detail);
        }
        for key in ["namespaceSelector", "objectSelector"] {
            report.selector(&hook[key], &join(&path, key));
        }
        let config = &hook["clientConfig"];
        let (url, service) = (!config["url"].is_null(), config["service"].is_object());
        if url == service {
            report.required(&join(&path, "clientConfig"), "exactly one of url or service is required");
        } else if url && !text(config, "url").starts_with("https://") {
            let detail = format!(
                "'https' is the only allowed URL scheme; desired format: https://host[/path]: {:?}",
                text(config, "url").split("://").next().unwrap_or_default()
            );
            report.invalid_text(&format!("{path}.clientConfig.url"), text(config, "url"), &detail);
        }
        if service {
            for key in ["name", "namespace"] {
                if unset(&config["service"], key) {
                    report.required(
                        &format!("{path}.clientConfig.service.{key}"),
                        &format!("service {key} is required"),
                    );
                }
            }
        }
        if items(hook, "admissionReviewVersions").is_empty() {
            report.required(&join(&path, "admissionReviewVersions"), "must specify one of v1, v1beta1");
        }
    }
}

pub(crate) fn definition(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    let names = &spec["names"];
    let expected = format!("{}.{}", text(names, "plural"), text(spec, "group"));
    let name = text(&object["metadata"], "name");
    if name != expected {
        report.invalid_text("metadata.name", name, "must be spec.names.plural+\".\"+spec.group");
    }
    let group = text(spec, "group");
    if group.is_empty() {
        report.required("spec.group", "");
    } else {
        report.subdomain("spec.group", group);
        if !group.contains('.') {
            report.invalid_text("spec.group", group, "should be a domain with at least one dot");
        }
    }
    match text(spec, "scope") {
        "Cluster" | "Namespaced" => {}
        "" => report.required("spec.scope", ""),
        _ => report.not_supported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"]),
    }
    let versions = items(spec, "versions");
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        for problem in label_1035_problems(text(version, "name")) {
            report.invalid_text(&join(&path, "name"), text(version, "name"), &problem);
        }
    }
    for (index, version) in versions.iter().enumerate() {
        definition_schema(report, version, index, versions.len() == 1);
    }
    let stored: Vec<&str> = versions
        .iter()
        .filter(|version| version["storage"] == Value::Bool(true))
        .map(|v| text(v, "name"))
        .collect();
    if stored.len() != 1 {
        let shown: Vec<String> = versions.iter().map(shown_version).collect();
        let detail = "must have exactly one version marked as storage version";
        report.add("spec.versions", CauseReason::Invalid, Some(format!("[{}]", shown.join(","))), detail);
    }
    definition_names(report, names);
    let noted = &object["status"]["storedVersions"];
    if items(&object["status"], "storedVersions").is_empty() {
        report.invalid("status.storedVersions", &Value::Null, "must have at least one stored version");
    } else if let Some(last) = stored.last()
        && !items(&object["status"], "storedVersions").iter().any(|version| version == last)
    {
        report.invalid("status.storedVersions", noted, &format!("must have the storage version {last}"));
    }
}

fn shown_version(version: &Value) -> String {
    format!(
        "{{\"Name\":{:?},\"Served\":{},\"Storage\":{},\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
        text(version, "name"),
        version["served"] == Value::Bool(true),
        version["storage"] == Value::Bool(true)
    )
}

fn definition_names(report: &mut Report, names: &Value) {
    let mut check = |key: &str, name: &str, lower: bool| {
        let field = format!("spec.names.{key}");
        if name.is_empty() {
            return report.required(&field, "");
        }
        let lowered = name.to_lowercase();
        for problem in label_1035_problems(if lower { name } else { &lowered }) {
            report.invalid_text(&field, name, &problem);
        }
    };
    check("plural", text(names, "plural"), true);
    check("singular", text(names, "singular"), true);
    check("kind", text(names, "kind"), false);
    check("listKind", text(names, "listKind"), false);
    for (index, short) in items(names, "shortNames").iter().filter_map(Value::as_str).enumerate() {
        check(&format!("shortNames[{index}]"), short, true);
    }
    for (index, category) in items(names, "categories").iter().filter_map(Value::as_str).enumerate() {
        check(&format!("categories[{index}]"), category, true);
    }
}

fn definition_schema(report: &mut Report, version: &Value, index: usize, only: bool) {
    let schema = &version["schema"]["openAPIV3Schema"];
    let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
    if !schema.is_object() {
        return report.required(&path, "");
    }
    // One version alone is checked in its old place.
    let path = if only { "spec.validation.openAPIV3Schema".to_owned() } else { path };
    if text(schema, "type") != "object" {
        let detail = "must be object at the root";
        if text(schema, "type").is_empty() {
            report.required(&join(&path, "type"), "must not be empty at the root");
        } else {
            report.invalid(&join(&path, "type"), &schema["type"], detail);
        }
    }
    structural(report, schema, &path, 0);
}

/// Schemas are structural: each part has a type.
fn structural(report: &mut Report, schema: &Value, path: &str, depth: usize) {
    if depth > 64 {
        return;
    }
    for (name, property) in entries(schema, "properties") {
        let path = format!("{path}.properties[{name}]");
        typed(report, property, &path, "for specified object fields");
        structural(report, property, &path, depth + 1);
    }
    if schema["items"].is_object() {
        let path = join(path, "items");
        typed(report, &schema["items"], &path, "for specified array items");
        structural(report, &schema["items"], &path, depth + 1);
    } else if text(schema, "type") == "array" {
        report.required(&join(path, "items"), "must be specified");
    }
    if schema["additionalProperties"].is_object() {
        let path = join(path, "additionalProperties");
        typed(report, &schema["additionalProperties"], &path, "for specified object fields");
        structural(report, &schema["additionalProperties"], &path, depth + 1);
    }
}

fn typed(report: &mut Report, schema: &Value, path: &str, place: &str) {
    let loose = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"]
        .iter()
        .any(|key| schema[*key] == Value::Bool(true));
    if text(schema, "type").is_empty() && !loose {
        report.required(&join(path, "type"), &format!("must not be empty {place}"));
    }
}

pub(crate) fn definition_update(report: &mut Report, new: &Value, old: &Value) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    let established = items(&old["status"], "conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Established" && text(condition, "status") == "True");
    report.unchanged(spec, before, "spec", "group");
    report.unchanged(&spec["names"], &before["names"], "spec.names", "plural");
    if established {
        report.unchanged(spec, before, "spec", "scope");
        report.unchanged(&spec["names"], &before["names"], "spec.names", "kind");
    }
    for (index, version) in items(&old["status"], "storedVersions").iter().enumerate() {
        if !items(spec, "versions").iter().any(|known| known["name"] == *version) {
            let field = format!("status.storedVersions[{index}]");
            report.invalid(&field, version, "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions");
        }
    }
}

pub(crate) fn api_service(report: &mut Report, object: &Value) {
    let spec = &object["spec"];
    let expected = format!("{}.{}", text(spec, "version"), text(spec, "group"));
    let name = text(&object["metadata"], "name");
    if name != expected {
        report.invalid_text(
            "metadata.name",
            name,
            &format!("must be `spec.version+\".\"+spec.group`: {expected:?}"),
        );
    }
}

pub(crate) fn signing_request(report: &mut Report, object: &Value) {
    use base64::Engine as _;
    let request = text(&object["spec"], "request");
    let bytes = base64::engine::general_purpose::STANDARD.decode(request).unwrap_or_default();
    if !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE REQUEST-----") {
        report.invalid_text("spec.request", request, "PEM block type must be CERTIFICATE REQUEST");
    }
}

pub(crate) fn priority_level(report: &mut Report, object: &Value) {
    let response = &object["spec"]["limited"]["limitResponse"];
    let path = "spec.limited.limitResponse.queuing";
    match (text(response, "type"), response["queuing"].is_object()) {
        ("Queue", false) => report.required(path, ""),
        ("Reject", true) => report.forbidden(path, ""),
        _ => {}
    }
}
