//! Parts that several controllers share.

use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::{Api, Controllers, EVENTS, PODS, Table, Task};
use crate::builtin::tree::{at, items, made, same, text};

/// The owner that controls an object.
pub(crate) fn controller_of(object: &Value) -> Option<&Value> {
    items(&object["metadata"], "ownerReferences").iter().find(|owner| owner["controller"] == json!(true))
}

/// Whether `owner` controls an object.
pub(crate) fn is_controlled_by(object: &Value, owner: &Value) -> bool {
    controller_of(object).is_some_and(|reference| reference["uid"] == owner["metadata"]["uid"])
}

/// A reference by which an object says that it is controlled.
pub(crate) fn owner_reference(table: Table, owner: &Value) -> Value {
    json!({
        "apiVersion": table.gvk().api_version(),
        "kind": table.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true
    })
}

/// Whether somebody asked for the end of an object.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !at(object, &["metadata", "deletionTimestamp"]).is_null()
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    text(&object["metadata"], "name")
}

/// The namespace of an object.
pub(crate) fn namespace(object: &Value) -> &str {
    text(&object["metadata"], "namespace")
}

/// A time as objects show it.
pub(crate) fn shown(time: Timestamp) -> Value {
    json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A time that an object shows.
pub(crate) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// A time some seconds later.
pub(crate) fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(seconds.seconds()).unwrap_or(Timestamp::MAX)
}

/// A time some milliseconds later.
pub(crate) fn after_ms(time: Timestamp, milliseconds: i64) -> Timestamp {
    time.checked_add(milliseconds.milliseconds()).unwrap_or(Timestamp::MAX)
}

/// The number at a key; zero where there is none.
pub(crate) fn number(value: &Value, key: &str) -> i64 {
    value[key].as_i64().unwrap_or_default()
}

/// A condition of a status.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&object["status"], "conditions").iter().find(|condition| text(condition, "type") == kind)
}

/// Whether a condition of a status is true.
pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Puts a condition in place of the one of its type; the time of the transition changes with the status alone.
pub(crate) fn set_condition(conditions: &mut Vec<Value>, mut condition: Value, now: Timestamp) {
    let old = conditions.iter().position(|known| known["type"] == condition["type"]);
    let kept = old.and_then(|index| {
        (conditions[index]["status"] == condition["status"])
            .then(|| conditions[index]["lastTransitionTime"].clone())
    });
    condition["lastTransitionTime"] = kept.unwrap_or_else(|| shown(now));
    match old {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
}

/// Writes a status when it differs from what is there.
pub(crate) fn write_status(api: &dyn Api, table: Table, object: &Value, status: &Value) {
    if same(&object["status"], status) {
        return;
    }
    api.amend(table, namespace(object), name(object), &|current| current["status"] = status.clone());
}

/// A count of pods that is a number or a percentage of another.
pub(crate) fn resolve(value: &Value, total: i64, round_up: bool) -> i64 {
    match value {
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            if round_up { (percent * total + 99) / 100 } else { percent * total / 100 }
        }
        other => other.as_i64().unwrap_or_default(),
    }
}

/// A pod made from a template.
pub(crate) fn pod_from(template: &Value, owner: &Value, namespace: &str, pod_name: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "spec": template["spec"]
    });
    let metadata = made(&mut pod, "metadata");
    metadata["namespace"] = json!(namespace);
    metadata["name"] = json!(pod_name);
    metadata["ownerReferences"] = json!([owner]);
    pod
}

/// Pods of an owner that have not ended.
pub(crate) fn pods_of(api: &dyn Api, owner: &Value) -> Vec<Value> {
    api.list(PODS, namespace(owner)).into_iter().filter(|pod| is_controlled_by(pod, owner)).collect()
}

/// Whether a pod neither ended nor is about to.
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_deleting(pod) && !matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed")
}

/// Whether a pod is ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    is_true(pod, "Ready")
}

/// Whether a pod has been ready for long enough; if not, when it will have been.
pub(crate) fn is_available(pod: &Value, seconds: i64, now: Timestamp) -> Result<(), Option<Timestamp>> {
    if !is_ready(pod) {
        return Err(None);
    }
    if seconds == 0 {
        return Ok(());
    }
    let since =
        condition(pod, "Ready").and_then(|condition| time(&condition["lastTransitionTime"])).unwrap_or(now);
    let due = after(since, seconds);
    if due <= now { Ok(()) } else { Err(Some(due)) }
}

/// A short text that stands for a template, made of letters that names may have.
pub(crate) fn hash(value: &Value) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = value.to_string();
    let number =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    number.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % 27])).collect()
}

/// Writes an event about an object.
pub(crate) fn event(
    controllers: &mut Controllers,
    api: &dyn Api,
    (table, object): (Table, &Value),
    (kind, reason, message): (&str, &str, &str),
    component: &str,
) {
    let now = api.now();
    let serial = controllers.next_serial();
    let unique = format!("{:x}{serial:04x}", now.as_nanosecond());
    let namespace = if namespace(object).is_empty() { "default" } else { namespace(object) };
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": format!("{}.{unique}", name(object)), "namespace": namespace },
        "involvedObject": {
            "apiVersion": table.gvk().api_version(),
            "kind": table.kind,
            "name": object["metadata"]["name"],
            "namespace": object["metadata"].get("namespace").cloned().unwrap_or_default(),
            "resourceVersion": object["metadata"]["resourceVersion"],
            "uid": object["metadata"]["uid"]
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": { "component": component },
        "reportingComponent": component,
        "firstTimestamp": shown(now),
        "lastTimestamp": shown(now),
        "count": 1
    });
    // An event that cannot be written, as in a namespace that ends, is not missed.
    let _ = api.create(EVENTS, event);
}

/// Creates a pod and says so, or says why it could not be created.
pub(crate) fn create_pod(
    controllers: &mut Controllers,
    api: &dyn Api,
    (table, owner): (Table, &Value),
    pod: Value,
    component: &str,
) -> Result<(), String> {
    let pod_name = name(&pod).to_owned();
    let prefix = match text(&pod["metadata"], "generateName") {
        "" => pod_name.clone(),
        prefix => prefix.to_owned(),
    };
    let task = Task::of(table);
    match api.create(PODS, pod) {
        Ok(pod) => {
            if let Some(task) = task {
                controllers.succeeded(task, namespace(owner), name(owner));
            }
            let message = format!("Created pod: {}", name(&pod));
            event(controllers, api, (table, owner), ("Normal", "SuccessfulCreate", &message), component);
            Ok(())
        }
        // What a namespace holds that ends goes anyway.
        Err(error) if ends(&error) => Err(error),
        Err(error) => {
            let error = error.replace(&pod_name, &prefix);
            if let Some(task) = task {
                controllers.retry(api.now(), task, namespace(owner), name(owner));
            }
            let message = format!("Error creating: {error}");
            event(controllers, api, (table, owner), ("Warning", "FailedCreate", &message), component);
            Err(error)
        }
    }
}

/// Whether something was refused because its namespace ends.
pub(crate) fn ends(error: &str) -> bool {
    error.ends_with("because it is being terminated")
}

/// Deletes a pod and says so.
pub(crate) fn delete_pod(
    controllers: &mut Controllers,
    api: &dyn Api,
    (table, owner): (Table, &Value),
    pod: &Value,
    component: &str,
) {
    api.delete(PODS, namespace(pod), name(pod), false);
    let message = format!("Deleted pod: {}", name(pod));
    event(controllers, api, (table, owner), ("Normal", "SuccessfulDelete", &message), component);
}
