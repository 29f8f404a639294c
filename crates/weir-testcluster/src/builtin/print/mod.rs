//! Rows of tables as a real server prints them.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::data::{self, Column};
use super::tree::{at, entries, items, text, unset};
use crate::GroupVersionKind;

mod pods;
mod words;

use self::pods::pod_look;
use self::words::{
    access_modes, condition, containers, controller, endpoints, external_address, job_status, labels,
    load_balancer_address, number_or_text, selector, slice_endpoints, slice_ports, subjects, targets,
    terminating, words,
};

/// What tables of a built-in kind show. Empty for kinds that are not listed.
pub fn columns(gvk: &GroupVersionKind) -> &'static [Column] {
    data::resource(gvk).map_or(&[], |resource| &resource.columns)
}

/// The cells of one object, one for each of [`columns`].
pub fn row(gvk: &GroupVersionKind, object: &Value, now: Timestamp) -> Vec<Value> {
    let print = Print { object, now };
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => print.pod(),
        ("", "Node") => print.node(),
        ("", "Event") => {
            print.event(["involvedObject", "source", "lastTimestamp", "firstTimestamp", "message", "count"])
        }
        ("events.k8s.io", "Event") => print.event([
            "regarding",
            "deprecatedSource",
            "deprecatedLastTimestamp",
            "deprecatedFirstTimestamp",
            "note",
            "deprecatedCount",
        ]),
        _ => columns(gvk).iter().map(|column| print.cell(gvk, &column.name)).collect(),
    }
}

/// A span of time as tables show it, as in `3d4h`.
pub fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |a: i64, a_unit: char, b: i64, b_unit: char| {
        if b == 0 { format!("{a}{a_unit}") } else { format!("{a}{a_unit}{b}{b_unit}") }
    };
    if seconds < -1 {
        "<invalid>".to_owned()
    } else if seconds <= 0 {
        "0s".to_owned()
    } else if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, 'm', seconds % 60, 's')
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        pair(days, 'd', hours % 24, 'h')
    } else if hours < 24 * 365 * 2 {
        format!("{days}d")
    } else if hours < 24 * 365 * 8 {
        pair(hours / 24 / 365, 'y', (hours / 24) % 365, 'd')
    } else {
        format!("{}y", hours / 24 / 365)
    }
}

struct Print<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl Print<'_> {
    fn since(&self, time: &Value) -> String {
        match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
            Some(time) => duration(self.now.as_second() - time.as_second()),
            None => "<unknown>".to_owned(),
        }
    }

    fn name(&self) -> Value {
        at(self.object, &["metadata", "name"]).clone()
    }

    fn age(&self) -> Value {
        json!(self.since(at(self.object, &["metadata", "creationTimestamp"])))
    }

    fn number(&self, path: &[&str]) -> Value {
        json!(at(self.object, path).as_i64().unwrap_or_default())
    }

    fn word(&self, path: &[&str]) -> Value {
        json!(at(self.object, path).as_str().unwrap_or_default())
    }

    fn word_or(&self, path: &[&str], other: &str) -> Value {
        json!(at(self.object, path).as_str().filter(|text| !text.is_empty()).unwrap_or(other))
    }

    fn truth(&self, path: &[&str]) -> Value {
        json!(at(self.object, path).as_bool().unwrap_or_default())
    }

    fn cell(&self, gvk: &GroupVersionKind, column: &str) -> Value {
        let (object, spec) = (self.object, &self.object["spec"]);
        match column {
            "Name" => return self.name(),
            "Age" => return self.age(),
            "Created At" => return self.word(&["metadata", "creationTimestamp"]),
            _ => {}
        }
        match (gvk.kind.as_str(), column) {
            ("ConfigMap", "Data") => {
                json!(entries(object, "data").count() + entries(object, "binaryData").count())
            }
            ("Secret", "Type") => self.word(&["type"]),
            ("Secret", "Data") => json!(entries(object, "data").count()),
            ("Namespace", "Status") => self.word(&["status", "phase"]),
            ("Endpoints", "Endpoints") => json!(endpoints(object)),
            ("Service", _) => self.service(column),
            ("PersistentVolumeClaim" | "PersistentVolume", _) => self.volume(column),
            ("PodTemplate", "Containers") => json!(containers(&object["template"], "name")),
            ("PodTemplate", "Images") => json!(containers(&object["template"], "image")),
            ("PodTemplate", "Pod Labels") => json!(labels(at(object, &["template", "metadata", "labels"]))),
            ("ResourceQuota", "Request" | "Limit") => json!(self.quota(column == "Limit")),
            ("Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "ReplicationController", _) => {
                self.workload(&gvk.kind, column)
            }
            ("ControllerRevision", "Controller") => json!(controller(object)),
            ("ControllerRevision", "Revision") => self.number(&["revision"]),
            ("Job" | "CronJob", _) => self.batch(column),
            ("HorizontalPodAutoscaler", _) => self.autoscaler(&gvk.version, column),
            ("Ingress" | "IngressClass" | "NetworkPolicy", _) => self.network(&gvk.kind, column),
            ("EndpointSlice", "AddressType") => self.word(&["addressType"]),
            ("EndpointSlice", "Ports") => json!(slice_ports(object)),
            ("EndpointSlice", "Endpoints") => json!(slice_endpoints(object)),
            ("PodDisruptionBudget", "Min Available") => json!(number_or_text(&spec["minAvailable"], "N/A")),
            ("PodDisruptionBudget", "Max Unavailable") => {
                json!(number_or_text(&spec["maxUnavailable"], "N/A"))
            }
            ("PodDisruptionBudget", "Allowed Disruptions") => self.number(&["status", "disruptionsAllowed"]),
            ("RoleBinding" | "ClusterRoleBinding", "Role") => {
                json!(format!("{}/{}", text(&object["roleRef"], "kind"), text(&object["roleRef"], "name")))
            }
            ("RoleBinding" | "ClusterRoleBinding", _) => json!(subjects(object, column)),
            ("StorageClass", "Provisioner") => self.word(&["provisioner"]),
            ("StorageClass", "ReclaimPolicy") => self.word(&["reclaimPolicy"]),
            ("StorageClass", "VolumeBindingMode") => self.word(&["volumeBindingMode"]),
            ("StorageClass", "AllowVolumeExpansion") => self.truth(&["allowVolumeExpansion"]),
            ("CSIDriver", "AttachRequired") => self.truth(&["spec", "attachRequired"]),
            ("CSIDriver", "PodInfoOnMount") => self.truth(&["spec", "podInfoOnMount"]),
            ("CSIDriver", "StorageCapacity") => self.truth(&["spec", "storageCapacity"]),
            ("CSIDriver", "TokenRequests") => {
                let audiences: Vec<&str> =
                    items(spec, "tokenRequests").iter().map(|t| text(t, "audience")).collect();
                json!(if audiences.is_empty() { "<unset>".to_owned() } else { audiences.join(",") })
            }
            ("CSIDriver", "RequiresRepublish") => self.truth(&["spec", "requiresRepublish"]),
            ("CSIDriver", "Modes") => json!(words(&spec["volumeLifecycleModes"], "<none>")),
            ("CSINode", "Drivers") => json!(items(spec, "drivers").len()),
            ("VolumeAttachment", "Attacher") => self.word(&["spec", "attacher"]),
            ("VolumeAttachment", "PV") => self.word(&["spec", "source", "persistentVolumeName"]),
            ("VolumeAttachment", "Node") => self.word(&["spec", "nodeName"]),
            ("VolumeAttachment", "Attached") => self.truth(&["status", "attached"]),
            ("VolumeAttributesClass", "DriverName") => self.word(&["driverName"]),
            ("PriorityClass", "Value") => self.number(&["value"]),
            ("PriorityClass", "Global-Default") => self.truth(&["globalDefault"]),
            ("PriorityClass", "PreemptionPolicy") => self.word(&["preemptionPolicy"]),
            ("Lease", "Holder") => self.word(&["spec", "holderIdentity"]),
            ("RuntimeClass", "Handler") => self.word(&["handler"]),
            (_, "Webhooks") => json!(items(object, "webhooks").len()),
            ("ValidatingAdmissionPolicy", "Validations") => json!(items(spec, "validations").len()),
            ("MutatingAdmissionPolicy", "Mutations") => json!(items(spec, "mutations").len()),
            (_, "ParamKind") => {
                let kind = &spec["paramKind"];
                json!(if kind.is_object() {
                    format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind"))
                } else {
                    "<unset>".to_owned()
                })
            }
            (_, "PolicyName") => self.word(&["spec", "policyName"]),
            (_, "ParamRef") => {
                let reference = &spec["paramRef"];
                json!(match (reference.is_object(), unset(reference, "namespace")) {
                    (false, _) => "<unset>".to_owned(),
                    (true, true) => text(reference, "name").to_owned(),
                    (true, false) => format!("{}/{}", text(reference, "namespace"), text(reference, "name")),
                })
            }
            ("CustomResourceDefinition", _) => self.definition(column),
            ("APIService", "Service") => {
                let service = &spec["service"];
                json!(if service.is_object() {
                    format!("{}/{}", text(service, "namespace"), text(service, "name"))
                } else {
                    "Local".to_owned()
                })
            }
            ("APIService", "Available") => json!(self.available()),
            ("CertificateSigningRequest", _) => self.signing_request(column),
            ("ClusterTrustBundle", "SignerName") => self.word(&["spec", "signerName"]),
            ("FlowSchema" | "PriorityLevelConfiguration", _) => self.flow(column),
            _ => json!(""),
        }
    }

    fn service(&self, column: &str) -> Value {
        let (spec, status) = (&self.object["spec"], &self.object["status"]);
        match column {
            "Type" => self.word(&["spec", "type"]),
            "Cluster-IP" => {
                let address = items(spec, "clusterIPs")
                    .first()
                    .and_then(Value::as_str)
                    .unwrap_or(text(spec, "clusterIP"));
                json!(if address.is_empty() { "<none>" } else { address })
            }
            "External-IP" => json!(external_address(spec, status)),
            "Port(s)" => {
                let port = |port: &Value| {
                    if unset(port, "nodePort") {
                        format!("{}/{}", port["port"], text(port, "protocol"))
                    } else {
                        format!("{}:{}/{}", port["port"], port["nodePort"], text(port, "protocol"))
                    }
                };
                let ports: Vec<String> = items(spec, "ports").iter().map(port).collect();
                json!(if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") })
            }
            "Selector" => json!(labels(&spec["selector"])),
            _ => json!(""),
        }
    }

    fn volume(&self, column: &str) -> Value {
        let (object, spec, status) = (self.object, &self.object["spec"], &self.object["status"]);
        let claim = object["kind"] == "PersistentVolumeClaim";
        match column {
            "Status" if terminating(object) => json!("Terminating"),
            "Status" => self.word(&["status", "phase"]),
            "Volume" => self.word(&["spec", "volumeName"]),
            // Of a claim these are those of its volume.
            "Capacity" | "Access Modes" if claim && unset(spec, "volumeName") => json!(""),
            "Capacity" if claim => self.word(&["status", "capacity", "storage"]),
            "Capacity" => self.word(&["spec", "capacity", "storage"]),
            "Access Modes" => {
                let modes = if claim { items(status, "accessModes") } else { items(spec, "accessModes") };
                json!(access_modes(modes))
            }
            "Reclaim Policy" => self.word(&["spec", "persistentVolumeReclaimPolicy"]),
            "Claim" => {
                let claim = &spec["claimRef"];
                json!(if claim.is_object() {
                    format!("{}/{}", text(claim, "namespace"), text(claim, "name"))
                } else {
                    String::new()
                })
            }
            "StorageClass" => {
                let annotation =
                    text(at(object, &["metadata", "annotations"]), "volume.beta.kubernetes.io/storage-class");
                if annotation.is_empty() {
                    self.word(&["spec", "storageClassName"])
                } else {
                    json!(annotation)
                }
            }
            "VolumeAttributesClass" => self.word_or(&["spec", "volumeAttributesClassName"], "<unset>"),
            "Reason" => self.word(&["status", "reason"]),
            "VolumeMode" => self.word_or(&["spec", "volumeMode"], "<unset>"),
            _ => json!(""),
        }
    }

    fn quota(&self, limits: bool) -> String {
        let status = &self.object["status"];
        let shown: Vec<String> = entries(status, "hard")
            .filter(|(name, _)| name.starts_with("limits.") == limits)
            .map(|(name, hard)| {
                let used = status["used"][name.as_str()].as_str().unwrap_or("0");
                format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
            })
            .collect();
        shown.join(", ")
    }

    fn workload(&self, kind: &str, column: &str) -> Value {
        let (spec, status) = (&self.object["spec"], &self.object["status"]);
        let template = &spec["template"];
        let wanted = at(spec, &["replicas"]).as_i64().unwrap_or_default();
        let ready = status["readyReplicas"].as_i64().unwrap_or_default();
        match (kind, column) {
            ("Deployment" | "StatefulSet", "Ready") => json!(format!("{ready}/{wanted}")),
            ("Deployment", "Up-to-date") => self.number(&["status", "updatedReplicas"]),
            ("Deployment", "Available") => self.number(&["status", "availableReplicas"]),
            ("DaemonSet", "Desired") => self.number(&["status", "desiredNumberScheduled"]),
            ("DaemonSet", "Current") => self.number(&["status", "currentNumberScheduled"]),
            ("DaemonSet", "Ready") => self.number(&["status", "numberReady"]),
            ("DaemonSet", "Up-to-date") => self.number(&["status", "updatedNumberScheduled"]),
            ("DaemonSet", "Available") => self.number(&["status", "numberAvailable"]),
            ("DaemonSet", "Node Selector") => json!(labels(at(template, &["spec", "nodeSelector"]))),
            (_, "Desired") => json!(wanted),
            (_, "Current") => self.number(&["status", "replicas"]),
            (_, "Ready") => json!(ready),
            (_, "Containers") => json!(containers(template, "name")),
            (_, "Images") => json!(containers(template, "image")),
            ("ReplicationController", "Selector") => json!(labels(&spec["selector"])),
            (_, "Selector") => json!(selector(&spec["selector"])),
            _ => json!(""),
        }
    }

    fn batch(&self, column: &str) -> Value {
        let (object, spec, status) = (self.object, &self.object["spec"], &self.object["status"]);
        let cron = object["kind"] == "CronJob";
        let template = if cron { at(spec, &["jobTemplate", "spec", "template"]) } else { &spec["template"] };
        match column {
            "Schedule" => self.word(&["spec", "schedule"]),
            "Timezone" => self.word_or(&["spec", "timeZone"], "<none>"),
            "Suspend" => json!(match spec["suspend"].as_bool() {
                Some(true) => "True",
                Some(false) => "False",
                None => "<unset>",
            }),
            "Active" => json!(items(status, "active").len()),
            "Last Schedule" if status["lastScheduleTime"].is_null() => json!("<none>"),
            "Last Schedule" => json!(self.since(&status["lastScheduleTime"])),
            "Status" => json!(job_status(object)),
            "Completions" => {
                let succeeded = status["succeeded"].as_i64().unwrap_or_default();
                let parallelism = spec["parallelism"].as_i64().unwrap_or_default();
                json!(match spec["completions"].as_i64() {
                    Some(wanted) => format!("{succeeded}/{wanted}"),
                    None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
                    None => format!("{succeeded}/1"),
                })
            }
            "Duration" => {
                let read = |key: &str| status[key].as_str().and_then(|text| text.parse::<Timestamp>().ok());
                json!(match (read("startTime"), read("completionTime")) {
                    (None, _) => String::new(),
                    (Some(start), end) => duration(end.unwrap_or(self.now).as_second() - start.as_second()),
                })
            }
            "Containers" => json!(containers(template, "name")),
            "Images" => json!(containers(template, "image")),
            "Selector" if cron => json!(selector(at(spec, &["jobTemplate", "spec", "selector"]))),
            "Selector" => json!(selector(&spec["selector"])),
            _ => json!(""),
        }
    }

    fn autoscaler(&self, version: &str, column: &str) -> Value {
        let (spec, status) = (&self.object["spec"], &self.object["status"]);
        match column {
            "Reference" => {
                let target = &spec["scaleTargetRef"];
                json!(format!("{}/{}", text(target, "kind"), text(target, "name")))
            }
            "Targets" => json!(targets(&super::convert::to_newest(version, self.object))),
            "MinPods" => {
                json!(spec["minReplicas"].as_i64().map_or_else(|| "<unset>".to_owned(), |n| n.to_string()))
            }
            "MaxPods" => json!(spec["maxReplicas"].as_i64().unwrap_or_default()),
            "Replicas" => json!(status["currentReplicas"].as_i64().unwrap_or_default()),
            _ => json!(""),
        }
    }

    fn network(&self, kind: &str, column: &str) -> Value {
        let (object, spec) = (self.object, &self.object["spec"]);
        match (kind, column) {
            ("Ingress", "Class") => self.word_or(&["spec", "ingressClassName"], "<none>"),
            ("Ingress", "Hosts") => {
                let hosts: Vec<&str> = items(spec, "rules")
                    .iter()
                    .map(|rule| text(rule, "host"))
                    .filter(|host| !host.is_empty())
                    .collect();
                let more = hosts.len().saturating_sub(3);
                let mut shown = hosts.iter().take(3).copied().collect::<Vec<_>>().join(",");
                if shown.is_empty() {
                    shown.push('*');
                }
                if more > 0 {
                    let _ = write!(shown, " + {more} more...");
                }
                json!(shown)
            }
            ("Ingress", "Address") => json!(load_balancer_address(&object["status"])),
            ("Ingress", "Ports") => json!(if items(spec, "tls").is_empty() { "80" } else { "80, 443" }),
            ("IngressClass", "Controller") => self.word(&["spec", "controller"]),
            ("IngressClass", "Parameters") => {
                let parameters = &spec["parameters"];
                json!(match (parameters.is_object(), unset(parameters, "apiGroup")) {
                    (false, _) => "<none>".to_owned(),
                    (true, true) => format!("{}/{}", text(parameters, "kind"), text(parameters, "name")),
                    (true, false) => format!(
                        "{}.{}/{}",
                        text(parameters, "kind"),
                        text(parameters, "apiGroup"),
                        text(parameters, "name")
                    ),
                })
            }
            ("NetworkPolicy", "Pod-Selector") => json!(selector(&spec["podSelector"])),
            _ => json!(""),
        }
    }

    fn definition(&self, column: &str) -> Value {
        let spec = &self.object["spec"];
        match column {
            "Scope" => self.word(&["spec", "scope"]),
            "Versions" => {
                let version = |version: &Value| {
                    let stored = if version["storage"] == json!(true) { "(storage)" } else { "" };
                    format!("{}{stored}", text(version, "name"))
                };
                json!(items(spec, "versions").iter().map(version).collect::<Vec<_>>().join(","))
            }
            "Group" => self.word(&["spec", "group"]),
            "Kind" => self.word(&["spec", "names", "kind"]),
            "ShortNames" => json!(words(at(spec, &["names", "shortNames"]), "")),
            "Established" => {
                json!(condition(&self.object["status"], "Established").is_some_and(|c| c["status"] == "True"))
            }
            _ => json!(""),
        }
    }

    fn available(&self) -> String {
        let object = self.object;
        if !object["spec"]["service"].is_object() && condition(&object["status"], "Available").is_none() {
            return "True".to_owned();
        }
        match condition(&object["status"], "Available") {
            Some(condition) if condition["status"] == "True" => "True".to_owned(),
            Some(condition) => format!("{} ({})", text(condition, "status"), text(condition, "reason")),
            None => "Unknown".to_owned(),
        }
    }

    fn signing_request(&self, column: &str) -> Value {
        let status = &self.object["status"];
        match column {
            "SignerName" => self.word_or(&["spec", "signerName"], "<none>"),
            "Requestor" => self.word(&["spec", "username"]),
            "RequestedDuration" => json!(
                at(self.object, &["spec", "expirationSeconds"])
                    .as_i64()
                    .map_or_else(|| "<none>".to_owned(), duration)
            ),
            "Condition" => {
                let set = |kind: &str| condition(status, kind).is_some();
                let mut shown = if set("Denied") {
                    "Denied".to_owned()
                } else if set("Approved") {
                    "Approved".to_owned()
                } else {
                    "Pending".to_owned()
                };
                if set("Failed") {
                    shown.push_str(",Failed");
                }
                if !unset(status, "certificate") {
                    shown.push_str(",Issued");
                }
                json!(shown)
            }
            _ => json!(""),
        }
    }

    fn flow(&self, column: &str) -> Value {
        let spec = &self.object["spec"];
        let queuing = at(spec, &["limited", "limitResponse", "queuing"]);
        let number_or =
            |value: &Value| value.as_i64().map_or_else(|| json!("<none>"), |number| json!(number));
        match column {
            "PriorityLevel" => self.word(&["spec", "priorityLevelConfiguration", "name"]),
            "MatchingPrecedence" => self.number(&["spec", "matchingPrecedence"]),
            "DistinguisherMethod" => self.word_or(&["spec", "distinguisherMethod", "type"], "<none>"),
            "MissingPL" => {
                let status = condition(&self.object["status"], "Dangling").map(|c| text(c, "status"));
                json!(status.unwrap_or("?"))
            }
            "Type" => self.word(&["spec", "type"]),
            "NominalConcurrencyShares" => {
                let exempt = at(spec, &["exempt", "nominalConcurrencyShares"]);
                let limited = at(spec, &["limited", "nominalConcurrencyShares"]);
                number_or(if limited.is_null() { exempt } else { limited })
            }
            "Queues" => number_or(&queuing["queues"]),
            "HandSize" => number_or(&queuing["handSize"]),
            "QueueLengthLimit" => number_or(&queuing["queueLengthLimit"]),
            _ => json!(""),
        }
    }

    fn pod(&self) -> Vec<Value> {
        let (object, spec, status) = (self.object, &self.object["spec"], &self.object["status"]);
        let look = pod_look(object);
        let restarts = match look.last_restart {
            Some(time) if look.restarts > 0 => format!("{} ({} ago)", look.restarts, self.since(time)),
            _ => look.restarts.to_string(),
        };
        let gates = items(spec, "readinessGates");
        let passed = gates
            .iter()
            .filter(|gate| {
                condition(status, text(gate, "conditionType"))
                    .is_some_and(|condition| condition["status"] == "True")
            })
            .count();
        let gates = if gates.is_empty() { "<none>".to_owned() } else { format!("{passed}/{}", gates.len()) };
        let address = items(status, "podIPs").first().map_or("", |ip| text(ip, "ip"));
        let address = if address.is_empty() { text(status, "podIP") } else { address };
        let or_none = |text: &str| json!(if text.is_empty() { "<none>" } else { text });
        vec![
            self.name(),
            json!(format!("{}/{}", look.ready, look.containers)),
            json!(look.reason),
            json!(restarts),
            self.age(),
            or_none(address),
            or_none(text(spec, "nodeName")),
            or_none(text(status, "nominatedNodeName")),
            json!(gates),
        ]
    }

    fn node(&self) -> Vec<Value> {
        let (object, status) = (self.object, &self.object["status"]);
        let mut state = match condition(status, "Ready") {
            Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
            Some(condition) if condition["status"] == "False" => "NotReady".to_owned(),
            _ => "Unknown".to_owned(),
        };
        if condition(status, "Ready").is_some_and(|condition| condition["status"] == "Unknown") {
            "NotReady".clone_into(&mut state);
        }
        if object["spec"]["unschedulable"] == json!(true) {
            state.push_str(",SchedulingDisabled");
        }
        let mut roles: Vec<&str> = entries(&object["metadata"], "labels")
            .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) if !role.is_empty() => Some(role),
                _ if key == "kubernetes.io/role" => value.as_str(),
                _ => None,
            })
            .collect();
        roles.sort_unstable();
        let roles = if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") };
        let address = |kind: &str| {
            let found = items(status, "addresses").iter().find(|address| text(address, "type") == kind);
            json!(found.map_or("<none>", |address| text(address, "address")))
        };
        let info = &status["nodeInfo"];
        let known = |key: &str| json!(if unset(info, key) { "<unknown>" } else { text(info, key) });
        let kernel = match (text(info, "kernelVersion"), text(info, "architecture")) {
            ("", _) => "<unknown>".to_owned(),
            (kernel, "") => kernel.to_owned(),
            (kernel, architecture) => format!("{kernel} ({architecture})"),
        };
        vec![
            self.name(),
            json!(state),
            json!(roles),
            self.age(),
            json!(text(info, "kubeletVersion")),
            address("InternalIP"),
            address("ExternalIP"),
            known("osImage"),
            json!(kernel),
            known("containerRuntimeVersion"),
        ]
    }

    fn event(&self, [about, source, last, first, message, count]: [&str; 6]) -> Vec<Value> {
        let object = self.object;
        let subject = &object[about];
        let mut target = text(subject, "kind").to_lowercase();
        if !unset(subject, "name") {
            target.push('/');
            target.push_str(text(subject, "name"));
        }
        let component = |name: &str, host: &str| match (name.is_empty(), host.is_empty()) {
            (false, false) => format!("{name}, {host}"),
            (false, true) => name.to_owned(),
            (true, _) => host.to_owned(),
        };
        let mut from = component(text(&object[source], "component"), text(&object[source], "host"));
        if unset(&object[source], "component") {
            let reporter = if unset(object, "reportingController") {
                "reportingComponent"
            } else {
                "reportingController"
            };
            if !unset(object, reporter) {
                from = component(text(object, reporter), text(object, "reportingInstance"));
            }
        }
        let first_seen = if object[first].is_null() {
            self.since(&object["eventTime"])
        } else {
            self.since(&object[first])
        };
        let series = &object["series"];
        let last_seen = if series.is_object() {
            self.since(&series["lastObservedTime"])
        } else if object[last].is_null() {
            first_seen.clone()
        } else {
            self.since(&object[last])
        };
        let times = series["count"].as_i64().or(object[count].as_i64()).filter(|n| *n > 0).unwrap_or(1);
        vec![
            json!(last_seen),
            self.word(&["type"]),
            self.word(&["reason"]),
            json!(target),
            json!(text(subject, "fieldPath")),
            json!(from),
            json!(text(object, message).trim()),
            json!(first_seen),
            json!(times),
            self.name(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_are_short() {
        for (seconds, shown) in [
            (0, "0s"),
            (1, "1s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3600 * 3, "3h"),
            (3600 * 3 + 60, "3h1m"),
            (3600 * 47, "47h"),
            (3600 * 49, "2d1h"),
            (86400 * 9, "9d"),
            (86400 * 366 * 2, "2y2d"),
            (86400 * 365 * 9, "9y"),
            (-5, "<invalid>"),
        ] {
            assert_eq!(duration(seconds), shown, "{seconds}");
        }
    }
}
