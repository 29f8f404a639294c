//! The recordings of a real server, made by `hack/record/apiserver`: object in, stored object, table row or refusal out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::tree::{at, items, items_mut, made, text};
use super::*;
use crate::{Cause, GroupVersionKind};

const FILES: &[(&str, &str)] = &[
    ("apps", include_str!("../../tests/recorded/apps.jsonl")),
    ("batch", include_str!("../../tests/recorded/batch.jsonl")),
    ("cluster", include_str!("../../tests/recorded/cluster.jsonl")),
    ("core", include_str!("../../tests/recorded/core.jsonl")),
    ("network", include_str!("../../tests/recorded/network.jsonl")),
    ("pods", include_str!("../../tests/recorded/pods.jsonl")),
];

/// Cases that differ on purpose or not yet, each with its reason after the name.
const DIFFERENT: &str = include_str!("../../tests/recorded/different.txt");

const CREATED: &str = "2001-01-01T00:00:00Z";
/// The recordings were made on that day; they hold ages of things of 2020.
const RECORDED: &str = "2026-11-30T18:34:30Z";
const UID: &str = "00000000-0000-0000-0000-000000000000";

fn gvk_of(object: &Value) -> GroupVersionKind {
    let (group, version) =
        text(object, "apiVersion").split_once('/').unwrap_or(("", text(object, "apiVersion")));
    GroupVersionKind::new(group, version, text(object, "kind"))
}

/// What this crate makes of a case: the code and the object or the message.
fn answer(case: &Value) -> (u64, Value) {
    let mut object = case["in"].clone();
    let gvk = gvk_of(&object);
    let subresource = text(case, "subresource");
    if let Err(message) = decode(&gvk, &mut object) {
        return (400, json!(message));
    }
    let old = case.get("old");
    let metadata = made(&mut object, "metadata");
    metadata["uid"] = json!(UID);
    metadata["creationTimestamp"] = json!(CREATED);
    if let (None, Some(prefix)) = (metadata.get("name"), metadata["generateName"].as_str()) {
        metadata["name"] = json!(format!("{prefix}abcde"));
    }
    set_defaults(&gvk, &mut object);
    let causes = match old {
        None => {
            prepare_create(&gvk, &mut object);
            let mut causes = validate_metadata(&gvk, &object);
            causes.extend(validate_create(&gvk, &object));
            if causes.is_empty() && gvk.kind == "Service" {
                causes = Services::new().allocate(&mut object, None).err().unwrap_or_default();
            }
            causes
        }
        Some(old) => {
            prepare_update(&gvk, &mut object, old, subresource);
            if subresource == "status" {
                validate_status(&gvk, &object)
            } else {
                let mut causes = Vec::new();
                if gvk.kind == "Service" {
                    let mut services = Services::new();
                    services.hold(old);
                    causes = services.allocate(&mut object, Some(old)).err().unwrap_or_default();
                }
                let mut more = validate_metadata(&gvk, &object);
                more.extend(validate_update(&gvk, &object, old));
                if more.is_empty() { causes } else { more }
            }
        }
    };
    if causes.is_empty() {
        return (if old.is_some() { 200 } else { 201 }, object);
    }
    (422, json!(message(&gvk, text(&object["metadata"], "name"), &causes)))
}

fn message(gvk: &GroupVersionKind, name: &str, causes: &[Cause]) -> String {
    let dot = if gvk.group.is_empty() || gvk.group == "events.k8s.io" {
        String::new()
    } else {
        format!(".{}", gvk.group)
    };
    let mut texts: Vec<String> = Vec::new();
    for cause in causes.iter().map(ToString::to_string) {
        if !texts.contains(&cause) {
            texts.push(cause);
        }
    }
    let all = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
    format!("{}{dot} {name:?} is invalid: {all}", gvk.kind)
}

/// Hides what differs from run to run.
fn mask(value: &mut Value, given: &Value) {
    if let Some(metadata) = value.get_mut("metadata") {
        super::tree::remove(metadata, "uid");
        super::tree::remove(metadata, "resourceVersion");
        super::tree::remove(metadata, "managedFields");
    }
    if value["kind"] == "Service" {
        let chosen = at(given, &["spec", "clusterIP"]).clone();
        let spec = made(value, "spec");
        if spec["clusterIP"].is_string() && spec["clusterIP"] != chosen {
            spec["clusterIP"] = json!("an address");
            spec["clusterIPs"] = json!(["an address"]);
        }
        if spec["healthCheckNodePort"].is_number() {
            spec["healthCheckNodePort"] = json!("a port");
        }
        let before: Vec<Value> = items(&given["spec"], "ports").to_vec();
        for (index, port) in items_mut(spec, "ports").enumerate() {
            if port["nodePort"].is_number()
                && before.get(index).is_none_or(|b| b["nodePort"] != port["nodePort"])
            {
                port["nodePort"] = json!("a port");
            }
        }
    }
    if value["kind"] == "PersistentVolume" && value["status"]["lastPhaseTransitionTime"].is_string() {
        value["status"]["lastPhaseTransitionTime"] = json!("a time");
    }
    if value["kind"] == "APIService" && items(&value["status"], "conditions").len() == 1 {
        value["status"]["conditions"][0]["lastTransitionTime"] = json!("a time");
    }
    hide_generated(value);
}

fn hide_generated(value: &mut Value) {
    match value {
        Value::String(text) => *text = hide(text),
        Value::Array(items) => items.iter_mut().for_each(hide_generated),
        Value::Object(fields) => fields.values_mut().for_each(hide_generated),
        _ => {}
    }
}

/// Replaces uids, and the endings of generated names.
fn hide(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some(start) = text.find("kube-api-access-") {
        text.truncate(start + 16);
    }
    if text.starts_with("web-") && text.len() == 9 {
        text.truncate(4);
    }
    let bytes: Vec<char> = text.chars().collect();
    let is_uid = |window: &[char]| {
        window.iter().enumerate().all(|(index, c)| {
            if matches!(index, 8 | 13 | 18 | 23) {
                *c == '-'
            } else {
                c.is_ascii_hexdigit() && !c.is_ascii_uppercase()
            }
        })
    };
    let mut hidden = String::new();
    let mut index = 0;
    while index < bytes.len() {
        if index + 36 <= bytes.len() && is_uid(&bytes[index..index + 36]) {
            hidden.push_str("UID");
            index += 36;
        } else {
            hidden.push(bytes[index]);
            index += 1;
        }
    }
    // Differences of structures are printed by the real server alone.
    hidden.split("\n@@").next().unwrap_or_default().trim_end().to_owned()
}

fn differences(case: &Value) -> Option<String> {
    let code = case["code"].as_u64().unwrap_or_default();
    if code == 403 {
        // Refused for what else there is in the cluster, which these functions do not see.
        return None;
    }
    let (got_code, mut got) = answer(case);
    let mut want = if code < 300 { case["out"].clone() } else { case["out"]["message"].clone() };
    mask(&mut got, &case["in"]);
    mask(&mut want, &case["in"]);
    let mut report = String::new();
    if got_code != code && !(got_code == 200 && code == 201) {
        let _ = writeln!(report, "  code {got_code} instead of {code}");
    }
    compare(&got, &want, "", &mut report);
    if let Some(cells) = case.get("cells") {
        let mut shown = case["out"].clone();
        made(&mut shown, "metadata")["creationTimestamp"] = json!(RECORDED);
        if case["out"]["kind"] == "Service" && text(&case["out"]["spec"], "clusterIP").starts_with("10.") {
            // Each dry run gets another address.
            shown["spec"]["clusterIPs"] = json!([cells[2]]);
        }
        let got = json!(row(&gvk_of(&shown), &shown, RECORDED.parse().unwrap()));
        let (mut got, mut want) = (got, cells.clone());
        for cells in [&mut got, &mut want] {
            hide_generated(cells);
            for cell in cells.as_array_mut().into_iter().flatten() {
                if let Value::String(text) = cell {
                    if matches!(text.as_str(), "1s" | "2s") {
                        *text = "0s".to_owned();
                    }
                    if text.starts_with("2026-") {
                        *text = "a time".to_owned();
                    }
                    if case["out"]["kind"] == "Service" {
                        *text = text
                            .split('/')
                            .next()
                            .unwrap_or_default()
                            .split(':')
                            .next()
                            .unwrap_or_default()
                            .to_owned();
                    }
                }
            }
        }
        compare(&got, &want, "cells", &mut report);
    }
    (!report.is_empty()).then_some(report)
}

fn compare(got: &Value, want: &Value, path: &str, report: &mut String) {
    match (got, want) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let (got, want) = (a.get(key), b.get(key));
                match (got, want) {
                    (Some(got), Some(want)) => compare(got, want, &format!("{path}.{key}"), report),
                    (Some(got), None) => _ = writeln!(report, "  {path}.{key}: {got} instead of nothing"),
                    (None, Some(want)) => _ = writeln!(report, "  {path}.{key}: nothing instead of {want}"),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (got, want)) in a.iter().zip(b).enumerate() {
                compare(got, want, &format!("{path}[{index}]"), report);
            }
        }
        _ if got != want => _ = writeln!(report, "  {path}:\n    got  {got}\n    want {want}"),
        _ => {}
    }
}

#[test]
fn the_recorded_answers_are_given() {
    let allowed: BTreeMap<&str, &str> = DIFFERENT
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(" | ").unwrap_or((line, "")))
        .collect();
    let mut report = String::new();
    let (mut total, mut failed) = (0, 0);
    for (file, lines) in FILES {
        for line in lines.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let name = format!("{file}/{}", text(&case, "case"));
            total += 1;
            match (differences(&case), allowed.get(name.as_str())) {
                (Some(found), None) => {
                    failed += 1;
                    let _ = writeln!(report, "{name}\n{found}");
                }
                (None, Some(_)) => {
                    failed += 1;
                    let _ = writeln!(report, "{name}: agrees; remove it from different.txt");
                }
                _ => {}
            }
        }
    }
    assert!(total > 500, "{total} cases");
    assert!(failed == 0, "{failed} of {total} cases differ:\n{report}");
}

#[test]
fn a_stored_object_stays_as_it_is() {
    for (_, lines) in FILES {
        for line in lines.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            if case["code"].as_u64().is_some_and(|code| code >= 300) {
                continue;
            }
            let mut object = case["out"].clone();
            let gvk = gvk_of(&object);
            assert_eq!(decode(&gvk, &mut object), Ok(Vec::new()), "{}", case["case"]);
            set_defaults(&gvk, &mut object);
            assert_eq!(object, case["out"], "{}", case["case"]);
        }
    }
}

#[test]
fn fields_nobody_knows_are_named() {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a", "nmae": "b" },
        "spec": { "template": { "spec": { "containers": [{ "name": "a", "imge": "b" }] } } }
    });
    let unknown = decode(&gvk_of(&object), &mut object).unwrap();
    assert_eq!(unknown, ["metadata.nmae", "spec.template.spec.containers[0].imge"]);
    assert_eq!(object["metadata"], json!({ "name": "a" }));
}
