//! The pods behind services, and the addresses of load balancers.

use serde_json::{Value, json};

use super::part::{hash, is_active, is_deleting, is_ready, name as name_of, owner_reference};
use super::{Api, ENDPOINTS, PODS, SERVICES, SLICES};
use crate::builtin::tree::{at, entries, items, same, text, unset};

pub(crate) fn look(api: &dyn Api, namespace: &str, name: &str) {
    let Some(service) = api.get(SERVICES, namespace, name) else {
        // What the garbage collector does not own goes here.
        if api.get(ENDPOINTS, namespace, name).is_some_and(|endpoints| is_ours(&endpoints)) {
            api.delete(ENDPOINTS, namespace, name, true);
        }
        return;
    };
    if is_deleting(&service) {
        return;
    }
    give_address(api, &service);
    let selector = &service["spec"]["selector"];
    if entries(&service["spec"], "selector").next().is_none()
        || text(&service["spec"], "type") == "ExternalName"
    {
        return;
    }
    let mut pods: Vec<Value> = api
        .list(PODS, namespace)
        .into_iter()
        .filter(|pod| {
            let labels = at(pod, &["metadata", "labels"]);
            let selected =
                selector.as_object().into_iter().flatten().all(|(key, value)| labels[key.as_str()] == *value);
            selected && is_active(pod) && !unset(&pod["status"], "podIP")
        })
        .collect();
    pods.sort_by(|a, b| name_of(a).cmp(name_of(b)));
    write_endpoints(api, &service, &pods);
    write_slice(api, &service, &pods);
}

fn is_ours(endpoints: &Value) -> bool {
    at(endpoints, &["metadata", "labels", "endpoints.kubernetes.io/managed-by"]) == "endpoint-controller"
}

/// The number behind a port of a service on a pod.
fn target(port: &Value, pod: &Value) -> Option<i64> {
    match &port["targetPort"] {
        Value::String(wanted) => items(&pod["spec"], "containers")
            .iter()
            .flat_map(|container| items(container, "ports"))
            .find(|known| known["name"] == *wanted && known["protocol"] == port["protocol"])
            .and_then(|known| known["containerPort"].as_i64()),
        number => number.as_i64(),
    }
}

fn ports(service: &Value, pods: &[Value], name_always: bool) -> Vec<Value> {
    items(&service["spec"], "ports")
        .iter()
        .filter_map(|port| {
            let number = pods.first().map_or_else(|| port["targetPort"].as_i64(), |pod| target(port, pod))?;
            let mut shown = json!({ "port": number, "protocol": port["protocol"] });
            if !unset(port, "name") {
                shown["name"] = port["name"].clone();
            } else if name_always {
                shown["name"] = json!("");
            }
            if !unset(port, "appProtocol") {
                shown["appProtocol"] = port["appProtocol"].clone();
            }
            Some(shown)
        })
        .collect()
}

fn target_reference(pod: &Value) -> Value {
    json!({
        "kind": "Pod", "name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"],
        "uid": pod["metadata"]["uid"]
    })
}

fn labels(service: &Value) -> Value {
    let labels = at(service, &["metadata", "labels"]).clone();
    if labels.is_object() { labels } else { json!({}) }
}

fn write_endpoints(api: &dyn Api, service: &Value, pods: &[Value]) {
    let (namespace, name) = (text(&service["metadata"], "namespace"), name_of(service));
    let publish_all = service["spec"]["publishNotReadyAddresses"] == json!(true);
    let address = |pod: &&Value| {
        json!({
            "ip": pod["status"]["podIP"], "nodeName": pod["spec"]["nodeName"], "targetRef": target_reference(pod)
        })
    };
    let ready: Vec<Value> =
        pods.iter().filter(|pod| publish_all || is_ready(pod)).map(|pod| address(&pod)).collect();
    let waiting: Vec<Value> =
        pods.iter().filter(|pod| !publish_all && !is_ready(pod)).map(|pod| address(&pod)).collect();
    let mut subset = json!({});
    if !ready.is_empty() {
        subset["addresses"] = json!(ready);
    }
    if !waiting.is_empty() {
        subset["notReadyAddresses"] = json!(waiting);
    }
    let ports = ports(service, pods, false);
    if !ports.is_empty() {
        subset["ports"] = json!(ports);
    }
    let subsets = if pods.is_empty() { Value::Null } else { json!([subset]) };
    let mut labels = labels(service);
    labels["endpoints.kubernetes.io/managed-by"] = json!("endpoint-controller");
    if let Some(current) = api.get(ENDPOINTS, namespace, name) {
        if same(&current["subsets"], &subsets) && current["metadata"]["labels"] == labels {
            return;
        }
        api.amend(ENDPOINTS, namespace, name, &|endpoints| {
            endpoints["metadata"]["labels"] = labels.clone();
            if subsets.is_null() {
                crate::builtin::tree::remove(endpoints, "subsets");
            } else {
                endpoints["subsets"] = subsets.clone();
            }
        });
        return;
    }
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "subsets": subsets
    });
    let _ = api.create(ENDPOINTS, endpoints);
}

fn write_slice(api: &dyn Api, service: &Value, pods: &[Value]) {
    let (namespace, name) = (text(&service["metadata"], "namespace"), name_of(service));
    let publish_all = service["spec"]["publishNotReadyAddresses"] == json!(true);
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|pod| {
            let ready = is_ready(pod);
            json!({
                "addresses": [pod["status"]["podIP"]],
                "conditions": { "ready": ready || publish_all, "serving": ready, "terminating": false },
                "nodeName": pod["spec"]["nodeName"],
                "targetRef": target_reference(pod)
            })
        })
        .collect();
    let ports = ports(service, pods, true);
    let mut labels = labels(service);
    labels["kubernetes.io/service-name"] = json!(name);
    labels["endpointslice.kubernetes.io/managed-by"] = json!("endpointslice-controller.k8s.io");
    if text(&service["spec"], "clusterIP") == "None" {
        labels["service.kubernetes.io/headless"] = json!("");
    }
    let slice_name = format!("{name}-{}", &hash(&json!([name, service["metadata"]["uid"]]))[..5]);
    if let Some(current) = api.get(SLICES, namespace, &slice_name) {
        let list = json!(endpoints);
        let port_list = json!(ports);
        if same(&current["endpoints"], &list)
            && same(&current["ports"], &port_list)
            && current["metadata"]["labels"] == labels
        {
            return;
        }
        api.amend(SLICES, namespace, &slice_name, &|slice| {
            slice["metadata"]["generation"] =
                json!(slice["metadata"]["generation"].as_i64().unwrap_or_default() + 1);
            slice["metadata"]["labels"] = labels.clone();
            slice["endpoints"] = list.clone();
            slice["ports"] = port_list.clone();
        });
        return;
    }
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name, "generateName": format!("{name}-"), "namespace": namespace, "labels": labels,
            "ownerReferences": [owner_reference(SERVICES, service)]
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports
    });
    let _ = api.create(SLICES, slice);
}

/// A load balancer gets an address of its own, from its service's number.
fn give_address(api: &dyn Api, service: &Value) {
    let wants = text(&service["spec"], "type") == "LoadBalancer"
        && at(service, &["metadata", "annotations", "testenv.weir.dev/pending"]) != "true";
    let has = !items(at(service, &["status", "loadBalancer"]), "ingress").is_empty();
    let (namespace, name) = (text(&service["metadata"], "namespace"), name_of(service));
    if wants && !has {
        let taken: Vec<Value> = api
            .list(SERVICES, "")
            .iter()
            .flat_map(|other| items(at(other, &["status", "loadBalancer"]), "ingress").to_vec())
            .map(|ingress| ingress["ip"].clone())
            .collect();
        let free =
            (1..255).map(|number| json!(format!("198.51.100.{number}"))).find(|ip| !taken.contains(ip));
        if let Some(ip) = free {
            api.amend(SERVICES, namespace, name, &|service| {
                service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": ip, "ipMode": "VIP" }]);
            });
        }
    } else if has && text(&service["spec"], "type") != "LoadBalancer" {
        api.amend(SERVICES, namespace, name, &|service| service["status"]["loadBalancer"] = json!({}));
    }
}
