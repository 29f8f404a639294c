//! What every object's metadata must satisfy.

use serde_json::Value;

use super::report::{Report, label_problems, qualified_name_problems, subdomain_problems};
use crate::builtin::tree::{entries, items, text};
use crate::{CauseReason, GroupVersionKind};

/// The largest sum of the sizes of all annotations.
const ANNOTATIONS_SIZE_MAX: usize = 256 * 1024;

/// Refusals of an object's metadata; names follow the rule of their kind.
pub(crate) fn check(report: &mut Report, gvk: &GroupVersionKind, object: &Value) {
    let metadata = &object["metadata"];
    let name = text(metadata, "name");
    let generate = text(metadata, "generateName");
    if !generate.is_empty() {
        // The end is replaced by random letters, so a hyphen there is fine.
        let shortened =
            generate.strip_suffix('-').map_or_else(|| generate.to_owned(), |start| format!("{start}a"));
        for problem in name_problems(gvk, &shortened) {
            report.invalid_text("metadata.generateName", generate, &problem);
        }
    }
    if name.is_empty() {
        report.required("metadata.name", "name or generateName is required");
    } else {
        for problem in name_problems(gvk, name) {
            report.invalid_text("metadata.name", name, &problem);
        }
    }
    check_common(report, metadata);
}

/// Refusals of labels, annotations, owners and finalizers, as custom resources need them too.
pub(crate) fn check_common(report: &mut Report, metadata: &Value) {
    report.labels(&metadata["labels"], "metadata.labels");
    let mut size = 0;
    for (key, value) in entries(metadata, "annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        for problem in qualified_name_problems(&key.to_lowercase()) {
            report.invalid_text("metadata.annotations", key, &problem);
        }
    }
    if size > ANNOTATIONS_SIZE_MAX {
        let detail = format!("may not be more than {ANNOTATIONS_SIZE_MAX} bytes");
        report.add("metadata.annotations", CauseReason::TooLong, None, &detail);
    }
    check_owners(report, metadata);
    for (index, finalizer) in items(metadata, "finalizers").iter().filter_map(Value::as_str).enumerate() {
        let field = format!("metadata.finalizers[{index}]");
        let problems = qualified_name_problems(finalizer);
        let known = matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion");
        for problem in &problems {
            report.invalid_text(&field, finalizer, problem);
        }
        if problems.is_empty() && !finalizer.contains('/') && !known {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            report.invalid_text(&field, finalizer, detail);
        }
    }
}

fn check_owners(report: &mut Report, metadata: &Value) {
    let mut controller: Option<&Value> = None;
    for (index, owner) in items(metadata, "ownerReferences").iter().enumerate() {
        let field = |key: &str| format!("metadata.ownerReferences[{index}].{key}");
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, key).is_empty() {
                report.required(&field(key), "must not be empty");
            }
        }
        if text(owner, "kind") == "Event" && text(owner, "apiVersion") == "v1" {
            report.invalid(
                &format!("metadata.ownerReferences[{index}]"),
                owner,
                "/v1, Kind=Event is disallowed from being an owner",
            );
        }
        if owner["controller"] == Value::Bool(true) {
            if let Some(first) = controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                    text(first, "kind"),
                    text(first, "name"),
                    text(owner, "kind"),
                    text(owner, "name")
                );
                report.invalid("metadata.ownerReferences", &metadata["ownerReferences"], &detail);
            }
            controller = Some(owner);
        }
    }
}

fn name_problems(gvk: &GroupVersionKind, name: &str) -> Vec<String> {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => label_problems(name),
        ("batch", "CronJob") => {
            let mut problems = subdomain_problems(name);
            if name.len() > 52 {
                problems.push("must be no more than 52 characters".to_owned());
            }
            problems
        }
        ("rbac.authorization.k8s.io" | "apiregistration.k8s.io", _) => path_problems(name),
        ("", "Event") | ("events.k8s.io", _) => Vec::new(),
        _ => subdomain_problems(name),
    }
}

fn path_problems(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    let bad = |c: char| name.contains(c).then(|| format!("may not contain '{c}'"));
    ['/', '%'].into_iter().filter_map(bad).collect()
}
