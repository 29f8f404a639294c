//! Admission: what cluster objects say about writes. Limit ranges and priority classes of pods, service accounts, and
//! admission policies.
//!
//! Nothing here costs a request that no such object concerns.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::builtin;
use crate::builtin::tree::{items, made, text};
use crate::cluster::{Inner, NAMESPACES_TABLE};
use crate::crd::cel;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::meta;
use crate::store;

const LIMIT_RANGES: &str = "/limitranges";
const PRIORITY_CLASSES: &str = "scheduling.k8s.io/priorityclasses";
const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";
const BINDINGS: &str = "admissionregistration.k8s.io/validatingadmissionpolicybindings";
const LIMITED: &str = "kubernetes.io/limit-ranger";

/// A write as admission sees it.
pub(crate) struct Request<'a> {
    pub(crate) operation: &'static str,
    pub(crate) kind: &'a Arc<Kind>,
    pub(crate) object: &'a Value,
    pub(crate) old: &'a Value,
    pub(crate) dry_run: bool,
}

impl Inner {
    /// Gives a new pod what its namespace and the cluster say, or refuses it.
    ///
    /// # Errors
    /// Its service account or priority class does not exist, or it asks for more than a limit range allows.
    pub(crate) fn admit_pod(&self, kind: &Kind, pod: &mut Value) -> Result<(), ApiError> {
        if &*kind.table != "/pods" {
            return Ok(());
        }
        let namespace = meta::text(pod, "namespace").to_owned();
        let name = match meta::text(pod, "name") {
            "" => meta::text(pod, "generateName").to_owned(),
            name => name.to_owned(),
        };
        let refuse = |cause: &str| ApiError::forbidden(kind.subject(&name), cause);
        let account = text(&pod["spec"], "serviceAccountName").to_owned();
        // The account of the namespace comes with it; whoever is faster than that is not made to wait.
        if self.controllers.is_some()
            && !matches!(account.as_str(), "" | "default")
            && self.store.get("/serviceaccounts", &store::key(&namespace, &account)).is_none()
        {
            return Err(refuse(&format!(
                "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
            )));
        }
        let class = text(&pod["spec"], "priorityClassName").to_owned();
        if !class.is_empty() {
            let Some(found) = self.store.get(PRIORITY_CLASSES, &class) else {
                return Err(refuse(&format!("no PriorityClass with name {class} was found")));
            };
            let found = found.value();
            pod["spec"]["priority"] = found["value"].clone();
            if let Some(policy) = found["preemptionPolicy"].as_str() {
                pod["spec"]["preemptionPolicy"] = json!(policy);
            }
        }
        for range in self.store.list(LIMIT_RANGES, &namespace).objects {
            let range = range.value();
            for limit in items(&range["spec"], "limits") {
                if text(limit, "type") == "Container" {
                    limit_containers(pod, limit).map_err(|cause| refuse(&cause))?;
                }
            }
        }
        Ok(())
    }

    /// Asks the admission policies.
    ///
    /// # Errors
    /// What the first policy that refuses the write says.
    pub(crate) fn admit(&self, request: &Request<'_>) -> Result<(), ApiError> {
        let bindings = self.store.list(BINDINGS, "").objects;
        if bindings.is_empty() || request.kind.gvk.group == "admissionregistration.k8s.io" {
            return Ok(());
        }
        for binding in bindings {
            let binding = binding.value();
            if !items(&binding["spec"], "validationActions").iter().any(|action| action == "Deny") {
                continue;
            }
            let policy_name = text(&binding["spec"], "policyName");
            let Some(policy) = self.store.get(POLICIES, policy_name) else { continue };
            let policy = policy.value();
            if !self.matches(&policy["spec"]["matchConstraints"], request, true)
                || !self.matches(&binding["spec"]["matchResources"], request, false)
            {
                continue;
            }
            if let Some(why) = violated(&policy, request) {
                let text = format!(
                    "ValidatingAdmissionPolicy '{policy_name}' with binding '{}' denied request: {why}",
                    meta::text(&binding, "name")
                );
                let subject = request.kind.subject(meta::text(request.object, "name"));
                let mut error = ApiError::forbidden(subject, &text);
                error.code = 422;
                error.reason = "Invalid";
                if let Some(details) = error.details.as_mut() {
                    details["causes"] = json!([{ "message": text }]);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether a write is one of those that constraints name.
    fn matches(&self, constraints: &Value, request: &Request<'_>, needs_rule: bool) -> bool {
        let rules = items(constraints, "resourceRules");
        if (needs_rule || !rules.is_empty()) && !rules.iter().any(|rule| rule_matches(rule, request)) {
            return false;
        }
        if items(constraints, "excludeResourceRules").iter().any(|rule| rule_matches(rule, request)) {
            return false;
        }
        let is_set = |selector: &Value| selector.as_object().is_some_and(|map| !map.is_empty());
        let selector = &constraints["namespaceSelector"];
        if is_set(selector) && request.kind.namespaced {
            let namespace = self.store.get(NAMESPACES_TABLE, meta::text(request.object, "namespace"));
            let labels = namespace.map(|found| found.value()["metadata"]["labels"].clone());
            if !builtin::selects(selector, &labels.unwrap_or_default()) {
                return false;
            }
        }
        let selector = &constraints["objectSelector"];
        !is_set(selector)
            || builtin::selects(selector, &request.object["metadata"]["labels"])
            || builtin::selects(selector, &request.old["metadata"]["labels"])
    }
}

fn rule_matches(rule: &Value, request: &Request<'_>) -> bool {
    let has = |key: &str, wanted: &str| items(rule, key).iter().any(|known| known == "*" || known == wanted);
    let names = items(rule, "resourceNames");
    has("apiGroups", &request.kind.gvk.group)
        && has("apiVersions", &request.kind.gvk.version)
        && has("operations", request.operation)
        && has("resources", &request.kind.plural)
        && (names.is_empty() || names.iter().any(|name| name == meta::text(request.object, "name")))
}

/// Why a policy refuses a write.
fn violated(policy: &Value, request: &Request<'_>) -> Option<String> {
    let context = json!({
        "operation": request.operation,
        "namespace": meta::text(request.object, "namespace"),
        "name": meta::text(request.object, "name"),
        "dryRun": request.dry_run,
        "kind": {
            "group": request.kind.gvk.group, "version": request.kind.gvk.version, "kind": request.kind.gvk.kind
        },
        "resource": {
            "group": request.kind.gvk.group, "version": request.kind.gvk.version, "resource": request.kind.plural
        },
    });
    let mut variables: Vec<(&str, &Value)> =
        vec![("object", request.object), ("oldObject", request.old), ("request", &context)];
    let mut named = Map::new();
    for variable in items(&policy["spec"], "variables") {
        let known = Value::Object(named.clone());
        let mut with_named = variables.clone();
        with_named.push(("variables", &known));
        if let Ok(value) = cel::evaluate(text(variable, "expression"), &with_named) {
            named.insert(text(variable, "name").to_owned(), value);
        }
    }
    let named = Value::Object(named);
    variables.push(("variables", &named));
    let holds = |expression: &str| cel::evaluate(expression, &variables).map(|value| value == json!(true));
    for condition in items(&policy["spec"], "matchConditions") {
        if matches!(holds(text(condition, "expression")), Ok(false)) {
            return None;
        }
    }
    let fails_closed = text(&policy["spec"], "failurePolicy") != "Ignore";
    for validation in items(&policy["spec"], "validations") {
        let expression = text(validation, "expression");
        match holds(expression) {
            Ok(false) => {
                let written = cel::evaluate(text(validation, "messageExpression"), &variables)
                    .ok()
                    .and_then(|value| value.as_str().map(str::to_owned));
                let message = text(validation, "message");
                return Some(written.unwrap_or_else(|| match message {
                    "" => format!("failed expression: {expression}"),
                    message => message.to_owned(),
                }));
            }
            Err(error) if fails_closed => {
                return Some(format!("expression '{expression}' resulted in error: {error}"));
            }
            Ok(true) | Err(_) => {}
        }
    }
    None
}

/// Fills in what containers leave out and refuses those beyond the limits.
fn limit_containers(pod: &mut Value, limit: &Value) -> Result<(), String> {
    let mut notes = Vec::new();
    for list in ["containers", "initContainers"] {
        let Some(containers) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else { continue };
        let word = if list == "containers" { "container" } else { "init container" };
        for container in containers {
            let name = text(container, "name").to_owned();
            let resources = made(container, "resources");
            for (field, from, what) in
                [("requests", "defaultRequest", "request"), ("limits", "default", "limit")]
            {
                for (resource, quantity) in limit[from].as_object().into_iter().flatten() {
                    let own = made(resources, field);
                    if own[resource.as_str()].is_null() {
                        own[resource.as_str()] = quantity.clone();
                        notes.push(format!("{resource} {what} for {word} {name}"));
                    }
                }
            }
            check_container(resources, limit)?;
        }
    }
    if !notes.is_empty() {
        let annotations = made(made(pod, "metadata"), "annotations");
        annotations[LIMITED] = json!(format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
    Ok(())
}

fn check_container(resources: &Value, limit: &Value) -> Result<(), String> {
    let exceeds = |value: &Value, bound: &Value| builtin::quantity_exceeds(value, bound);
    for (resource, most) in limit["max"].as_object().into_iter().flatten() {
        for (field, word) in [("limits", "limit"), ("requests", "request")] {
            let value = &resources[field][resource.as_str()];
            if exceeds(value, most) {
                return Err(format!(
                    "maximum {resource} usage per Container is {}, but {word} is {}",
                    shown(most),
                    shown(value)
                ));
            }
        }
    }
    for (resource, least) in limit["min"].as_object().into_iter().flatten() {
        for (field, word) in [("requests", "request"), ("limits", "limit")] {
            let value = &resources[field][resource.as_str()];
            if exceeds(least, value) {
                return Err(format!(
                    "minimum {resource} usage per Container is {}, but {word} is {}",
                    shown(least),
                    shown(value)
                ));
            }
        }
    }
    Ok(())
}

fn shown(quantity: &Value) -> String {
    quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_get_defaults_and_stay_within_limits() {
        let limit = json!({
            "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}, "min": {"cpu": "50m"}
        });
        let mut pod = json!({"spec": {"containers": [{"name": "c"}]}});
        limit_containers(&mut pod, &limit).unwrap();
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"][LIMITED],
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
        );
        let mut greedy =
            json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}});
        assert_eq!(
            limit_containers(&mut greedy, &limit).unwrap_err(),
            "maximum cpu usage per Container is 1, but limit is 2"
        );
        let mut small =
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}]}});
        assert_eq!(
            limit_containers(&mut small, &limit).unwrap_err(),
            "minimum cpu usage per Container is 50m, but request is 1m"
        );
    }
}
