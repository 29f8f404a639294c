//! Deleting: finalizers, grace, preconditions, propagation.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::body;
use crate::call::Call;
use crate::cluster::Inner;
use crate::error::{ApiError, Subject};
use crate::kinds::Kind;
use crate::meta;
use crate::reply::{Content, List, Reply};
use crate::rules;
use crate::status::{Cause, CauseReason};
use crate::store::{self, Clash, Stored};
use crate::write::to_bytes;

const TRIES_MAX: usize = 16;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Holds a definition until its objects are gone.
pub(crate) const CUSTOM_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
const POD_GRACE_SECONDS: i64 = 30;

/// Kinds whose deletion is answered with the object instead of a `Status`.
const ANSWERS_OBJECT: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "services"),
    ("", "serviceaccounts"),
    ("", "persistentvolumes"),
    ("", "persistentvolumeclaims"),
    ("", "podtemplates"),
    ("", "resourcequotas"),
    ("", "namespaces"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "volumeattachments"),
];

/// What happens to dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a deletion.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) propagation: Option<Propagation>,
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) dry_run: bool,
}

impl Options {
    /// From the body, or else the query.
    pub(crate) fn read(call: &Call) -> Result<Self, ApiError> {
        let body = if call.body.is_empty() {
            json!({})
        } else {
            body::read_object(&call.content_type, &call.body, "")?.value
        };
        let query =
            |name: &str| Some(call.query.get(name)).filter(|text| !text.is_empty()).map(str::to_owned);
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let refuse = |field: &str, value: &str, detail: &str| {
            let cause = Cause {
                field: field.to_owned(),
                reason: if detail.starts_with("supported") {
                    CauseReason::NotSupported
                } else {
                    CauseReason::Invalid
                },
                value: Some(json!(value).to_string()),
                detail: detail.to_owned(),
            };
            ApiError::invalid(Subject { group: "meta.k8s.io", word: "DeleteOptions", name: "" }, &[cause])
        };
        let policy = text(&body["propagationPolicy"]).or_else(|| query("propagationPolicy"));
        let orphan =
            body["orphanDependents"].as_bool().or_else(|| query("orphanDependents").map(|t| t == "true"));
        if let (Some(policy), Some(_)) = (&policy, orphan) {
            return Err(refuse(
                "propagationPolicy",
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match (policy.as_deref(), orphan) {
            (None, None) => None,
            (None, Some(true)) | (Some("Orphan"), _) => Some(Propagation::Orphan),
            (None, Some(false)) | (Some("Background"), _) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some(other), _) => {
                return Err(refuse(
                    "propagationPolicy",
                    other,
                    "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                ));
            }
        };
        if let Some(list) = body["dryRun"].as_array().filter(|list| list.iter().any(|word| word != "All")) {
            let cause = Cause {
                field: "dryRun".to_owned(),
                reason: CauseReason::NotSupported,
                value: Some(Value::Array(list.clone()).to_string()),
                detail: "supported values: \"All\"".to_owned(),
            };
            let subject = Subject { group: "meta.k8s.io", word: "DeleteOptions", name: "" };
            return Err(ApiError::invalid(subject, &[cause]));
        }
        let dry = body["dryRun"].as_array().is_some_and(|list| list.contains(&json!("All")));
        Ok(Self {
            propagation,
            grace_seconds: body["gracePeriodSeconds"]
                .as_i64()
                .or_else(|| query("gracePeriodSeconds").and_then(|text| text.parse().ok())),
            uid: text(&body["preconditions"]["uid"]),
            revision: text(&body["preconditions"]["resourceVersion"]),
            dry_run: dry || call.is_dry_run(),
        })
    }
}

/// What became of the object.
pub(crate) enum Outcome {
    /// It is gone; its last state.
    Gone(Value),
    /// It waits for finalizers or its grace period.
    Waits(Value),
}

impl Inner {
    /// Deletes the object of a request.
    pub(crate) fn delete(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let options = Options::read(call)?;
        let name = &call.target.name;
        let answers_object = ANSWERS_OBJECT.contains(&(kind.gvk.group.as_str(), kind.plural.as_str()));
        match self.delete_object(kind, &call.target.namespace, name, &options)? {
            Outcome::Gone(object) if !answers_object => {
                let mut details =
                    json!({"name": name, "kind": kind.plural, "uid": object["metadata"]["uid"]});
                if !kind.gvk.group.is_empty() {
                    details["group"] = json!(kind.gvk.group);
                }
                Ok(Reply::value(
                    200,
                    json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                    }),
                ))
            }
            Outcome::Gone(object) | Outcome::Waits(object) => {
                let json = to_bytes(&object);
                Ok(Reply { code: 200, content: Content::Object { kind: kind.clone(), json } })
            }
        }
    }

    /// Deletes all objects that a request selects.
    pub(crate) fn delete_collection(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let options = Options::read(call)?;
        let filter = self.filter(call, kind)?;
        let listing = self.store.list(&kind.table, &filter.namespace);
        let objects: Vec<Arc<Stored>> =
            listing.objects.into_iter().filter(|object| filter.matches(self, kind, object)).collect();
        for object in &objects {
            match self.delete_object(kind, &object.namespace, &object.name, &options) {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
        let revision = self.store.revision();
        let list = List { kind: kind.clone(), objects, revision, next: String::new(), remaining: None };
        Ok(Reply { code: 200, content: Content::List(list) })
    }

    /// Deletes an object, or marks it so.
    pub(crate) fn delete_object(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        options: &Options,
    ) -> Result<Outcome, ApiError> {
        let key = store::key(namespace, name);
        for _ in 0..TRIES_MAX {
            let stored =
                self.store.get(&kind.table, &key).ok_or_else(|| ApiError::not_found(kind.subject(name)))?;
            let mut object = self.value_as(kind, &stored);
            check_preconditions(kind, &object, name, options)?;
            if rules::is_namespace(kind) && matches!(name, "default" | "kube-system" | "kube-public") {
                return Err(ApiError::forbidden(kind.subject(name), "this namespace may not be deleted"));
            }
            let before = object.clone();
            let waits = self.mark(kind, &mut object, options);
            if options.dry_run {
                return Ok(if waits { Outcome::Waits(object) } else { Outcome::Gone(object) });
            }
            if !waits {
                match self.store.remove(&kind.table, &key, stored.revision) {
                    Ok(event) => {
                        let mut object = self.value_as(kind, &event.object);
                        self.after(&event, &kind.table);
                        if &*kind.table == "/pods" {
                            // The answer shows the pod as it was marked before it went.
                            if !object["metadata"]["deletionTimestamp"].is_string() {
                                meta::set(&mut object, "deletionTimestamp", json!(self.now()));
                            }
                            meta::set(&mut object, "deletionGracePeriodSeconds", json!(0));
                        }
                        return Ok(Outcome::Gone(object));
                    }
                    Err(Clash::Missing) => return Err(ApiError::not_found(kind.subject(name))),
                    Err(_) => continue,
                }
            }
            if object == before {
                return Ok(Outcome::Waits(object));
            }
            match self.store.put(&kind.table, &key, Some(stored.revision), self.to_stored(kind, object)) {
                Ok(event) => {
                    let object = self.value_as(kind, &event.object);
                    self.after(&event, &kind.table);
                    return Ok(Outcome::Waits(object));
                }
                Err(Clash::Missing) => return Err(ApiError::not_found(kind.subject(name))),
                Err(_) => {}
            }
        }
        Err(ApiError::modified(kind.subject(name)))
    }

    /// Marks the object as being deleted; `false` when nothing holds it.
    fn mark(&self, kind: &Kind, object: &mut Value, options: &Options) -> bool {
        let mut finalizers = meta::finalizers(object);
        let has = |finalizers: &[String], name: &str| finalizers.iter().any(|own| own == name);
        match options.propagation {
            Some(Propagation::Orphan) => {
                finalizers.retain(|name| name != FOREGROUND);
                if !has(&finalizers, ORPHAN) {
                    finalizers.push(ORPHAN.to_owned());
                }
            }
            Some(Propagation::Foreground) => {
                finalizers.retain(|name| name != ORPHAN);
                if !has(&finalizers, FOREGROUND) {
                    finalizers.push(FOREGROUND.to_owned());
                }
            }
            Some(Propagation::Background) => {
                finalizers.retain(|name| name != ORPHAN && name != FOREGROUND);
            }
            None => {}
        }
        meta::set_finalizers(object, &finalizers);
        let is_pod = kind.plural == "pods" && kind.gvk.group.is_empty();
        let mut grace = if is_pod { pod_grace(object, options.grace_seconds) } else { 0 };
        let is_namespace = rules::is_namespace(kind);
        if rules::is_definition(kind) && !object["metadata"]["deletionTimestamp"].is_string() {
            finalizers.push(CUSTOM_CLEANUP.to_owned());
            meta::set_finalizers(object, &finalizers);
            let condition = json!({
                "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
                "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
                "lastTransitionTime": self.now(),
            });
            let mut list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            list.push(condition);
            object["status"]["conditions"] = json!(list);
        }
        if is_namespace {
            object["status"]["phase"] = json!("Terminating");
        }
        let holds = !finalizers.is_empty()
            || is_namespace && !crate::crd::schema::texts(&object["spec"]["finalizers"]).is_empty();
        let marked = object["metadata"]["deletionTimestamp"].is_string();
        if marked {
            let left = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
            grace = grace.min(left);
            if grace == left {
                return holds || left > 0;
            }
            meta::set(object, "deletionGracePeriodSeconds", json!(grace));
            return holds || grace > 0;
        }
        if !holds && grace == 0 {
            return false;
        }
        let when = self.timestamp() + jiff::SignedDuration::from_secs(grace);
        meta::set(object, "deletionTimestamp", json!(when.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
        if !is_namespace {
            meta::set(object, "deletionGracePeriodSeconds", json!(grace));
        }
        if let Some(generation) =
            object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0)
        {
            meta::set(object, "generation", json!(generation + 1));
        }
        true
    }
}

/// How long a pod may take to end.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() || ended {
        return 0;
    }
    asked
        .or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(POD_GRACE_SECONDS)
        .max(0)
}

fn check_preconditions(kind: &Kind, object: &Value, name: &str, options: &Options) -> Result<(), ApiError> {
    for (label, wanted, field, end) in [
        ("UID", &options.uid, "uid", "The object might have been deleted and then recreated"),
        ("ResourceVersion", &options.revision, "resourceVersion", "The object might have been modified"),
    ] {
        let found = meta::text(object, field);
        if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != found) {
            let cause = format!(
                "the {label} in the precondition ({wanted}) does not match the {label} in record ({found}). {end}"
            );
            return Err(ApiError::conflict(kind.subject_kind(name), &cause));
        }
    }
    Ok(())
}
