//! Addresses and ports of services: the one part of defaulting that needs to know the other services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::prepare::keep_node_ports;
use super::tree::{at, items, items_mut, made, remove, text, unset};
use crate::{Cause, CauseReason};

/// The addresses and ports that services hold.
#[derive(Debug, Clone, Default)]
pub struct Services {
    addresses: BTreeSet<u32>,
    node_ports: BTreeSet<u16>,
}

/// 10.96.0.0/16, as a real cluster's default.
const NETWORK: u32 = 0x0a60_0000;
const NETWORK_SIZE: u32 = 1 << 16;
/// New addresses come from behind the part that is kept for those who choose theirs.
const FIRST_FREE: u32 = 256;
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
const FIRST_FREE_PORT: u16 = 30086;

impl Services {
    /// Nothing is held yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes what a stored service holds, for a server that starts from a snapshot.
    pub fn hold(&mut self, service: &Value) {
        self.addresses.extend(address_of(service));
        self.node_ports.extend(node_ports_of(service));
    }

    /// Gives back what a deleted service held.
    pub fn release(&mut self, service: &Value) {
        if let Some(address) = address_of(service) {
            self.addresses.remove(&address);
        }
        for port in node_ports_of(service) {
            self.node_ports.remove(&port);
        }
    }

    /// Gives a new or changed service its addresses and ports, and notes them unless it is a dry run: then `self` is a
    /// clone that is thrown away.
    ///
    /// # Errors
    /// The chosen address or port is taken or outside of what the cluster has.
    pub fn allocate(&mut self, service: &mut Value, old: Option<&Value>) -> Result<(), Vec<Cause>> {
        if let Some(old) = old {
            keep(service, old);
            check_address_stays(service, old)?;
            self.release(old);
        }
        let result = self.allocate_fresh(service);
        if result.is_err()
            && let Some(old) = old
        {
            self.hold(old);
        }
        result
    }

    fn allocate_fresh(&mut self, service: &mut Value) -> Result<(), Vec<Cause>> {
        let spec = made(service, "spec");
        if spec["type"] == "ExternalName" {
            return Ok(());
        }
        if unset(spec, "clusterIP")
            && let Some(first) = items(spec, "clusterIPs").first().cloned()
        {
            spec["clusterIP"] = first;
        }
        if unset(spec, "clusterIP") {
            let free =
                (FIRST_FREE..NETWORK_SIZE - 1).map(|n| NETWORK + n).find(|a| !self.addresses.contains(a));
            let Some(free) = free else {
                return Err(vec![cause(
                    "spec.clusterIPs",
                    CauseReason::Internal,
                    None,
                    "no address is free",
                )]);
            };
            self.addresses.insert(free);
            spec["clusterIP"] = json!(std::net::Ipv4Addr::from(free).to_string());
        } else if let Ok(chosen) = text(spec, "clusterIP").parse::<std::net::Ipv4Addr>() {
            let number = u32::from(chosen);
            let shown = json!([spec["clusterIP"]]).to_string();
            if number & !(NETWORK_SIZE - 1) != NETWORK {
                let detail = "failed to allocate IP ".to_owned()
                    + &format!(
                        "{chosen}: the provided IP ({chosen}) is not in the valid range. The range of valid IPs is 10.96.0.0/16"
                    );
                return Err(vec![cause("spec.clusterIPs", CauseReason::Invalid, Some(shown), &detail)]);
            }
            if !self.addresses.insert(number) {
                let detail = format!("failed to allocate IP {chosen}: provided IP is already allocated");
                return Err(vec![cause("spec.clusterIPs", CauseReason::Invalid, Some(shown), &detail)]);
            }
        }
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
        if spec["ipFamilyPolicy"].is_null() {
            spec["ipFamilyPolicy"] = json!("SingleStack");
        }
        if items(spec, "ipFamilies").is_empty() {
            spec["ipFamilies"] = json!(["IPv4"]);
        }
        self.allocate_ports(service)
    }

    fn allocate_ports(&mut self, service: &mut Value) -> Result<(), Vec<Cause>> {
        let spec = made(service, "spec");
        let wanted = match text(spec, "type") {
            "NodePort" => true,
            "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != json!(false),
            _ => false,
        };
        let kind = text(spec, "type").to_owned();
        let local = kind == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
        for (index, port) in items_mut(spec, "ports").enumerate() {
            if unset(port, "nodePort") {
                if wanted {
                    port["nodePort"] = json!(self.free_port()?);
                }
            } else if let Some(number) = port["nodePort"].as_u64().and_then(|n| u16::try_from(n).ok()) {
                let field = format!("spec.ports[{index}].nodePort");
                let shown = Some(number.to_string());
                if !NODE_PORTS.contains(&number) {
                    let detail =
                        "provided port is not in the valid range. The range of valid ports is 30000-32767";
                    return Err(vec![cause(&field, CauseReason::Invalid, shown, detail)]);
                }
                // Ports of one service may share a number when their protocols differ.
                if !self.node_ports.insert(number) && old_protocol_conflict(&*port) {
                    let detail = "provided port is already allocated";
                    return Err(vec![cause(&field, CauseReason::Invalid, shown, detail)]);
                }
            }
        }
        if local && unset(spec, "healthCheckNodePort") {
            spec["healthCheckNodePort"] = json!(self.free_port()?);
        }
        Ok(())
    }

    fn free_port(&mut self) -> Result<u16, Vec<Cause>> {
        let free = (FIRST_FREE_PORT..=*NODE_PORTS.end()).find(|port| !self.node_ports.contains(port));
        let Some(port) = free else {
            return Err(vec![cause("spec.ports", CauseReason::Internal, None, "no port is free")]);
        };
        self.node_ports.insert(port);
        Ok(port)
    }
}

fn old_protocol_conflict(port: &Value) -> bool {
    text(port, "protocol") == "TCP"
}

/// What an update leaves out stays as it was, where the type still has it.
fn keep(service: &mut Value, old: &Value) {
    let kind = text(&service["spec"], "type").to_owned();
    let old_spec = &old["spec"];
    if kind == "ExternalName" {
        let spec = made(service, "spec");
        let was_other = old_spec["type"] != "ExternalName";
        if was_other && (unset(spec, "clusterIP") || spec["clusterIP"] == old_spec["clusterIP"]) {
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
                remove(spec, key);
            }
        }
        return;
    }
    if old_spec["type"] == "ExternalName" {
        return;
    }
    let spec = made(service, "spec");
    if unset(spec, "clusterIP") && items(spec, "clusterIPs").is_empty() {
        spec["clusterIP"] = old_spec["clusterIP"].clone();
        spec["clusterIPs"] = old_spec["clusterIPs"].clone();
    }
    let nodes = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    if nodes(&kind) && nodes(text(old_spec, "type")) {
        keep_node_ports(service, old);
    } else if !nodes(&kind) && nodes(text(old_spec, "type")) {
        let before: Vec<Value> =
            items(old_spec, "ports").iter().map(|port| port["nodePort"].clone()).collect();
        for port in items_mut(made(service, "spec"), "ports") {
            if before.contains(&port["nodePort"]) {
                remove(port, "nodePort");
            }
        }
    }
    let spec = made(service, "spec");
    if kind == "LoadBalancer"
        && text(old_spec, "type") == "LoadBalancer"
        && unset(spec, "healthCheckNodePort")
    {
        super::tree::copy(spec, old_spec, "healthCheckNodePort");
    }
    if kind != "LoadBalancer"
        && text(old_spec, "type") == "LoadBalancer"
        && spec["allocateLoadBalancerNodePorts"] == old_spec["allocateLoadBalancerNodePorts"]
    {
        remove(spec, "allocateLoadBalancerNodePorts");
    }
}

/// A service keeps the address it has, unless its type changes to or from one without.
fn check_address_stays(service: &Value, old: &Value) -> Result<(), Vec<Cause>> {
    let (spec, old_spec) = (&service["spec"], &old["spec"]);
    let is_external = |spec: &Value| spec["type"] == "ExternalName";
    let kept = unset(old_spec, "clusterIP") || spec["clusterIP"] == old_spec["clusterIP"];
    if kept || is_external(spec) || is_external(old_spec) {
        return Ok(());
    }
    let shown = Some(json!([spec["clusterIP"]]).to_string());
    Err(vec![cause("spec.clusterIPs[0]", CauseReason::Invalid, shown, "may not change once set")])
}

fn cause(field: &str, reason: CauseReason, value: Option<String>, detail: &str) -> Cause {
    Cause { field: field.to_owned(), reason, value, detail: detail.to_owned() }
}

fn address_of(service: &Value) -> Option<u32> {
    text(&service["spec"], "clusterIP").parse::<std::net::Ipv4Addr>().ok().map(u32::from)
}

fn node_ports_of(service: &Value) -> impl Iterator<Item = u16> {
    let spec = at(service, &["spec"]);
    items(spec, "ports")
        .iter()
        .map(|port| &port["nodePort"])
        .chain(std::iter::once(&spec["healthCheckNodePort"]))
        .filter_map(Value::as_u64)
        .filter_map(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" }, "spec": spec })
    }

    #[test]
    fn addresses_are_given_once_and_come_back() {
        let mut held = Services::new();
        let (mut a, mut b) =
            (service(&json!({ "type": "ClusterIP" })), service(&json!({ "type": "ClusterIP" })));
        held.allocate(&mut a, None).unwrap();
        held.allocate(&mut b, None).unwrap();
        assert_eq!(a["spec"]["clusterIP"], "10.96.1.0");
        assert_eq!(b["spec"]["clusterIP"], "10.96.1.1");
        let mut taken = service(&json!({ "type": "ClusterIP", "clusterIP": "10.96.1.0" }));
        assert!(held.allocate(&mut taken, None).unwrap_err()[0].detail.ends_with("already allocated"));
        held.release(&a);
        held.allocate(&mut taken, None).unwrap();
    }

    #[test]
    fn a_node_port_stays_through_updates() {
        let mut held = Services::new();
        let mut old = service(&json!({ "type": "NodePort", "ports": [{ "port": 80, "protocol": "TCP" }] }));
        held.allocate(&mut old, None).unwrap();
        let number = old["spec"]["ports"][0]["nodePort"].clone();
        assert_eq!(number, json!(30086));
        let mut new = service(&json!({ "type": "NodePort", "ports": [{ "port": 80, "protocol": "TCP" }] }));
        held.allocate(&mut new, Some(&old)).unwrap();
        assert_eq!(new["spec"], old["spec"]);
        let mut moved = service(&json!({ "type": "NodePort", "clusterIP": "10.96.9.9" }));
        let refused = held.allocate(&mut moved, Some(&old)).unwrap_err();
        assert_eq!(refused[0].detail, "may not change once set");
        let mut outside = service(&json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 80 }] }));
        assert!(held.allocate(&mut outside, None).is_err());
    }
}
