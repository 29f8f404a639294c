//! Parts of cells: names, lists and addresses as tables write them.

use serde_json::{Value, json};

use super::super::quantity::Quantity;
use super::super::tree::{at, entries, items, text, unset};

pub(super) fn terminating(object: &Value) -> bool {
    !at(object, &["metadata", "deletionTimestamp"]).is_null()
}

pub(super) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    items(status, "conditions").iter().find(|condition| text(condition, "type") == kind)
}

pub(super) fn labels(map: &Value) -> String {
    let shown: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if shown.is_empty() { "<none>".to_owned() } else { shown.join(",") }
}

/// A label selector in the notation of command lines.
pub(crate) fn selector(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = entries(selector, "matchLabels")
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<&str> = items(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key.to_owned(), shown));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    if parts.is_empty() {
        "<none>".to_owned()
    } else {
        parts.into_iter().map(|(_, s)| s).collect::<Vec<_>>().join(",")
    }
}

pub(super) fn containers(template: &Value, key: &str) -> String {
    items(&template["spec"], "containers").iter().map(|one| text(one, key)).collect::<Vec<_>>().join(",")
}

pub(super) fn words(list: &Value, none: &str) -> String {
    let words: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if words.is_empty() { none.to_owned() } else { words.join(",") }
}

pub(super) fn number_or_text(value: &Value, none: &str) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => none.to_owned(),
        other => other.to_string(),
    }
}

pub(super) fn controller(object: &Value) -> String {
    items(&object["metadata"], "ownerReferences")
        .iter()
        .find(|owner| owner["controller"] == json!(true))
        .map_or_else(
            || "<none>".to_owned(),
            |owner| {
                let group = text(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
                let kind = text(owner, "kind").to_lowercase();
                let dot = if group.is_empty() { "" } else { "." };
                format!("{kind}{dot}{group}/{}", text(owner, "name"))
            },
        )
}

pub(super) fn load_balancer_address(status: &Value) -> String {
    let mut shown: Vec<&str> = Vec::new();
    for one in items(&status["loadBalancer"], "ingress") {
        let address = if unset(one, "ip") { text(one, "hostname") } else { text(one, "ip") };
        if !shown.contains(&address) && !address.is_empty() {
            shown.push(address);
        }
    }
    shown.join(",")
}

pub(super) fn external_address(spec: &Value, status: &Value) -> String {
    let fixed: Vec<&str> = items(spec, "externalIPs").iter().filter_map(Value::as_str).collect();
    match text(spec, "type") {
        "ExternalName" => text(spec, "externalName").to_owned(),
        "LoadBalancer" => {
            let address = load_balancer_address(status);
            match (address.is_empty(), fixed.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (true, false) => fixed.join(","),
                (false, true) => address,
                (false, false) => format!("{address},{}", fixed.join(",")),
            }
        }
        _ if fixed.is_empty() => "<none>".to_owned(),
        _ => fixed.join(","),
    }
}

pub(super) fn access_modes(modes: &[Value]) -> String {
    let has = |mode: &str| modes.iter().any(|known| known == mode);
    [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .iter()
    .filter(|(mode, _)| has(mode))
    .map(|(_, short)| *short)
    .collect::<Vec<_>>()
    .join(",")
}

/// The first three of a list, and how many more there are.
pub(super) fn first_three(shown: &[String]) -> String {
    if shown.is_empty() {
        return "<none>".to_owned();
    }
    let more = shown.len().saturating_sub(3);
    let first = shown.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    if more > 0 { format!("{first} + {more} more...") } else { first }
}

pub(super) fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in items(object, "subsets") {
        let ports = items(subset, "ports");
        if ports.is_empty() {
            all.extend(items(subset, "addresses").iter().map(|address| text(address, "ip").to_owned()));
        }
        for port in ports {
            let join = |address: &Value| format!("{}:{}", text(address, "ip"), port["port"]);
            all.extend(items(subset, "addresses").iter().map(join));
        }
    }
    first_three(&all)
}

pub(super) fn slice_ports(object: &Value) -> String {
    if items(object, "ports").is_empty() {
        return "<unset>".to_owned();
    }
    let shown: Vec<String> =
        items(object, "ports").iter().map(|port| number_or_text(&port["port"], "*")).collect();
    first_three(&shown)
}

pub(super) fn slice_endpoints(object: &Value) -> String {
    let all: Vec<String> = items(object, "endpoints")
        .iter()
        .flat_map(|endpoint| items(endpoint, "addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if all.is_empty() { "<unset>".to_owned() } else { first_three(&all) }
}

pub(super) fn subjects(object: &Value, column: &str) -> String {
    let kind = match column {
        "Users" => "User",
        "Groups" => "Group",
        _ => "ServiceAccount",
    };
    items(object, "subjects")
        .iter()
        .filter(|subject| text(subject, "kind") == kind)
        .map(|subject| match kind {
            "ServiceAccount" if !unset(subject, "namespace") => {
                format!("{}/{}", text(subject, "namespace"), text(subject, "name"))
            }
            _ => text(subject, "name").to_owned(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

pub(super) fn job_status(object: &Value) -> &'static str {
    let status = &object["status"];
    let set = |kind: &str| condition(status, kind).is_some_and(|condition| condition["status"] == "True");
    if set("Complete") {
        "Complete"
    } else if set("Failed") {
        "Failed"
    } else if terminating(object) {
        "Terminating"
    } else if set("Suspended") {
        "Suspended"
    } else if set("FailureTarget") {
        "FailureTarget"
    } else if set("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

pub(super) fn targets(object: &Value) -> String {
    let (metrics, current) = (items(&object["spec"], "metrics"), items(&object["status"], "currentMetrics"));
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let value = |value: &Value| value.as_str().and_then(|t| Quantity::parse(t).ok()).map(|q| q.to_string());
    let mut shown = Vec::new();
    for (index, metric) in metrics.iter().enumerate() {
        let (key, label) = match text(metric, "type") {
            "External" => ("external", String::new()),
            "Pods" => ("pods", String::new()),
            "Object" => ("object", String::new()),
            "Resource" => ("resource", format!("{}: ", text(&metric["resource"], "name"))),
            "ContainerResource" => {
                ("containerResource", format!("{}: ", text(&metric["containerResource"], "name")))
            }
            _ => {
                shown.push("<unknown type>".to_owned());
                continue;
            }
        };
        let target = &metric[key]["target"];
        let now = current.get(index).map_or(&Value::Null, |current| &current[key]["current"]);
        let (wanted, is) = if let Some(utilization) = target["averageUtilization"].as_i64() {
            (format!("{utilization}%"), now["averageUtilization"].as_i64().map(|n| format!("{n}%")))
        } else if let Some(average) = value(&target["averageValue"]) {
            let marked = matches!(key, "external" | "object");
            (if marked { format!("{average} (avg)") } else { average }, value(&now["averageValue"]))
        } else {
            (value(&target["value"]).unwrap_or_else(|| "<auto>".to_owned()), value(&now["value"]))
        };
        shown.push(format!("{label}{}/{wanted}", is.unwrap_or_else(|| "<unknown>".to_owned())));
    }
    let more = shown.len().saturating_sub(2);
    let first = shown.iter().take(2).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} + {more} more...") } else { first }
}
