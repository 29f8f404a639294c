//! Minimal writes of status and finalizers.
//!
//! A write carries only what changed since the state the run started from, so fields this program
//! does not know are never touched. Conditions go with an optimistic lock: if someone else wrote in
//! between, their conditions of other types are kept.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use rand::RngExt as _;
use serde_json::{Map, Value, json};

use weir_api::patch::merge_patch;

use crate::Object;

/// How often a status write is tried when others write at the same time.
const CONFLICT_ATTEMPTS_MAX: u32 = 5;
/// The wait after the first conflict; up to twice as long with jitter.
const CONFLICT_WAIT: Duration = Duration::from_millis(100);

/// A status or finalizer could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The API server refused or did not answer.
    #[error("failed to patch {what} of {kind}/{key}")]
    Api {
        /// `status` or `finalizers`.
        what: &'static str,
        /// The kind of the object.
        kind: String,
        /// The object.
        key: crate::ObjectKey,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// Others kept writing at the same time.
    #[error("failed to patch {what} of {kind}/{key}: gave up after {CONFLICT_ATTEMPTS_MAX} conflicts")]
    Conflict {
        /// `status` or `finalizers`.
        what: &'static str,
        /// The kind of the object.
        kind: String,
        /// The object.
        key: crate::ObjectKey,
    },
    /// The object cannot be represented as JSON.
    #[error("failed to serialise {kind}/{key}")]
    Serialise {
        /// The kind of the object.
        kind: String,
        /// The object.
        key: crate::ObjectKey,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The object is gone.
    #[error("{kind}/{key} not found")]
    Gone {
        /// The kind of the object.
        kind: String,
        /// The object.
        key: crate::ObjectKey,
    },
}

/// The status of an object as JSON; null if it has none.
pub(crate) fn status_of<K: Object>(object: &K) -> Result<Value, PatchError> {
    let mut value = serde_json::to_value(object).map_err(|source| PatchError::Serialise {
        kind: K::kind(&()).into_owned(),
        key: crate::ObjectKey::of(object),
        source,
    })?;
    Ok(value.get_mut("status").map(Value::take).unwrap_or_default())
}

fn conditions(status: &Value) -> &[Value] {
    status.get("conditions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn type_of(condition: &Value) -> &str {
    condition.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn find<'a>(list: &'a [Value], type_: &str) -> Option<&'a Value> {
    list.iter().find(|condition| type_of(condition) == type_)
}

/// The conditions to write: what changed from `base` to `ours`, on top of `latest`.
///
/// Owned types always take our value. A foreign type takes our value only if this run changed it.
fn merge_conditions(base: &[Value], ours: &[Value], latest: &[Value], owned: &[&str]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for condition in ours.iter().chain(latest) {
        let type_ = type_of(condition);
        if find(&merged, type_).is_some() {
            continue;
        }
        let our_value = find(ours, type_);
        let chosen = if owned.contains(&type_) || our_value != find(base, type_) {
            our_value
        } else {
            find(latest, type_)
        };
        merged.extend(chosen.cloned());
    }
    sorted(merged)
}

/// Stalled, Reconciling, Ready, then the others, the newest generation first.
fn sorted(mut list: Vec<Value>) -> Vec<Value> {
    list.sort_by(|a, b| {
        let generation = |value: &Value| value.get("observedGeneration").and_then(Value::as_i64).unwrap_or(0);
        rank(type_of(a))
            .cmp(&rank(type_of(b)))
            .then_with(|| generation(b).cmp(&generation(a)))
            .then_with(|| type_of(a).cmp(type_of(b)))
    });
    list
}

fn rank(type_: &str) -> u8 {
    match type_ {
        "Stalled" => 0,
        "Reconciling" => 1,
        "Ready" => 2,
        _ => 3,
    }
}

/// The patch body that brings `latest` from `base` to `ours`; `None` if there is nothing to write.
fn status_patch(base: &Value, ours: &Value, latest: &Value, owned: &[&str]) -> Option<Value> {
    let without_conditions = |status: &Value| {
        let mut status = status.clone();
        if let Some(map) = status.as_object_mut() {
            map.remove("conditions");
        }
        status
    };
    let (base_rest, ours_rest) = (without_conditions(base), without_conditions(ours));
    let nothing = Value::Object(Map::new());
    let or_nothing = |value: Value| {
        if value.is_null() { nothing.clone() } else { value }
    };
    let mut patch =
        merge_patch(&or_nothing(base_rest), &or_nothing(ours_rest)).unwrap_or_else(|| nothing.clone());
    let merged = merge_conditions(conditions(base), conditions(ours), conditions(latest), owned);
    // An order that someone else chose is no reason to write.
    if merged != sorted(conditions(latest).to_vec())
        && let Some(map) = patch.as_object_mut()
    {
        let merged = if merged.is_empty() { Value::Null } else { Value::Array(merged) };
        map.insert("conditions".to_owned(), merged);
    }
    patch.as_object().is_some_and(|map| !map.is_empty()).then_some(patch)
}

/// What has been written so far.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    /// Our own view when it was last written; what differs from it is new.
    base: Value,
    /// What the API server holds, with what others wrote.
    latest: Value,
    resource_version: Option<String>,
}

impl Published {
    pub(crate) fn of<K: Object>(object: &K) -> Result<Self, PatchError> {
        let status = status_of(object)?;
        Ok(Self {
            base: status.clone(),
            latest: status,
            resource_version: object.meta().resource_version.clone(),
        })
    }
}

/// Writes to the objects of one kind under one field manager.
#[derive(Clone)]
pub(crate) struct Patcher {
    pub(crate) client: kube::Client,
    pub(crate) field_manager: String,
    pub(crate) owned_conditions: &'static [&'static str],
}

impl Patcher {
    fn api<K: Object>(&self, key: &crate::ObjectKey) -> Api<K> {
        Api::namespaced(self.client.clone(), key.namespace())
    }

    fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.field_manager.clone()), ..PatchParams::default() }
    }

    /// Writes what differs between `published` and the status of `working`. Returns the object as
    /// the API server now has it, or `None` if nothing had to be written.
    ///
    /// # Errors
    /// [`PatchError`]; a conflict is tried again with the newest conditions up to five times.
    pub(crate) async fn status<K: Object>(
        &self,
        key: &crate::ObjectKey,
        published: &mut Published,
        working: &K,
    ) -> Result<Option<K>, PatchError> {
        let ours = status_of(working)?;
        let api = self.api::<K>(key);
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            let Some(status) = status_patch(&published.base, &ours, &published.latest, self.owned_conditions)
            else {
                return Ok(None);
            };
            let body = json!({
                "metadata": {"resourceVersion": published.resource_version},
                "status": status,
            });
            match api.patch_status(key.name(), &self.params(), &Patch::Merge(&body)).await {
                Ok(written) => {
                    *published = Published { base: ours, ..Published::of(&written)? };
                    return Ok(Some(written));
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    pause(attempt).await;
                    let fresh: K =
                        api.get(key.name()).await.map_err(|source| failed::<K>("status", key, source))?;
                    if fresh.meta().uid != working.meta().uid {
                        return Err(gone::<K>(key));
                    }
                    published.latest = status_of(&fresh)?;
                    published.resource_version.clone_from(&fresh.meta().resource_version);
                }
                Err(source) => return Err(failed::<K>("status", key, source)),
            }
        }
        Err(PatchError::Conflict { what: "status", kind: K::kind(&()).into_owned(), key: key.clone() })
    }

    /// Adds or removes a finalizer and leaves all others as they are. Returns the object as the API
    /// server now has it, or `None` if nothing had to be written.
    pub(crate) async fn finalizer<K: Object>(
        &self,
        object: &K,
        finalizer: &str,
        present: bool,
    ) -> Result<Option<K>, PatchError> {
        let key = crate::ObjectKey::of(object);
        let api = self.api::<K>(&key);
        let mut version = object.meta().resource_version.clone();
        let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
        for attempt in 0..CONFLICT_ATTEMPTS_MAX {
            if finalizers.iter().any(|held| held == finalizer) == present {
                return Ok(None);
            }
            if present {
                finalizers.push(finalizer.to_owned());
            } else {
                finalizers.retain(|held| held != finalizer);
            }
            let body = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
            match api.patch(key.name(), &self.params(), &Patch::Merge(&body)).await {
                Ok(written) => return Ok(Some(written)),
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    pause(attempt).await;
                    let fresh: K = api
                        .get(key.name())
                        .await
                        .map_err(|source| failed::<K>("finalizers", &key, source))?;
                    if fresh.meta().uid != object.meta().uid {
                        return Err(gone::<K>(&key));
                    }
                    version.clone_from(&fresh.meta().resource_version);
                    finalizers = fresh.meta().finalizers.clone().unwrap_or_default();
                }
                Err(source) => return Err(failed::<K>("finalizers", &key, source)),
            }
        }
        Err(PatchError::Conflict { what: "finalizers", kind: K::kind(&()).into_owned(), key })
    }
}

async fn pause(attempt: u32) {
    let jitter = rand::rng().random_range(1.0..2.0);
    tokio::time::sleep(CONFLICT_WAIT.mul_f64(jitter) * 2_u32.pow(attempt)).await;
}

fn failed<K: Object>(what: &'static str, key: &crate::ObjectKey, source: kube::Error) -> PatchError {
    match source {
        kube::Error::Api(status) if status.code == 404 => gone::<K>(key),
        source => PatchError::Api {
            what,
            kind: K::kind(&()).into_owned(),
            key: key.clone(),
            source: Box::new(source),
        },
    }
}

fn gone<K: Object>(key: &crate::ObjectKey) -> PatchError {
    PatchError::Gone { kind: K::kind(&()).into_owned(), key: key.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: &str) -> Value {
        json!({"type": type_, "status": status, "observedGeneration": 1})
    }

    #[test]
    fn foreign_conditions_survive_and_owned_ones_win() {
        let base = [condition("Ready", "Unknown"), condition("Foreign", "True")];
        let ours = [condition("Ready", "True"), condition("Foreign", "True")];
        let latest = [condition("Ready", "False"), condition("Foreign", "False"), condition("New", "True")];
        assert_eq!(
            merge_conditions(&base, &ours, &latest, &["Ready"]),
            [condition("Ready", "True"), condition("Foreign", "False"), condition("New", "True")]
        );
    }

    #[test]
    fn an_owned_condition_we_removed_goes_and_the_order_is_fixed() {
        let base = [condition("Reconciling", "True"), condition("Ready", "Unknown")];
        let ours = [condition("Ready", "False"), condition("Stalled", "True")];
        assert_eq!(
            merge_conditions(&base, &ours, &base, &["Ready", "Reconciling", "Stalled"]),
            [condition("Stalled", "True"), condition("Ready", "False")]
        );
    }

    #[test]
    fn nothing_is_written_when_nothing_changed() {
        let status = json!({"observedGeneration": 1, "conditions": [condition("Ready", "True")]});
        assert_eq!(status_patch(&status, &status, &status, &["Ready"]), None);
        assert_eq!(status_patch(&Value::Null, &Value::Null, &Value::Null, &["Ready"]), None);
    }

    #[test]
    fn a_status_that_did_not_exist_is_written_whole() {
        let ours = json!({"observedGeneration": 1, "conditions": [condition("Ready", "True")]});
        assert_eq!(status_patch(&Value::Null, &ours, &Value::Null, &["Ready"]), Some(ours));
    }
}
