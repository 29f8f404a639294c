//! What disruption budgets allow.

use serde_json::{Value, json};

use super::part::{is_active, is_ready, namespace, resolve, write_status};
use super::{Api, BUDGETS, PODS};
use crate::builtin::selects;
use crate::builtin::tree::{at, items};

pub(crate) fn look(api: &dyn Api, budget: &Value) {
    let spec = &budget["spec"];
    let selected: Vec<Value> = api
        .list(PODS, namespace(budget))
        .into_iter()
        .filter(|pod| is_active(pod) && selects(&spec["selector"], at(pod, &["metadata", "labels"])))
        .collect();
    let expected = selected.len() as i64;
    let healthy = selected.iter().filter(|pod| is_ready(pod)).count() as i64;
    let desired = if spec["maxUnavailable"].is_null() {
        resolve(&spec["minAvailable"], expected, true)
    } else {
        (expected - resolve(&spec["maxUnavailable"], expected, true)).max(0)
    };
    let allowed = if expected == 0 { 0 } else { (healthy - desired).max(0) };
    let now = api.now();
    let mut conditions = items(&budget["status"], "conditions").to_vec();
    let (status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let generation = &budget["metadata"]["generation"];
    let condition = json!({
        "type": "DisruptionAllowed", "status": status, "reason": reason, "message": "", "observedGeneration": generation
    });
    super::part::set_condition(&mut conditions, condition, now);
    let status = json!({
        "observedGeneration": generation,
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "conditions": conditions
    });
    write_status(api, BUDGETS, budget, &status);
}
