//! What is served: groups, versions and resources.

use serde_json::{Value, json};

use crate::kinds::{Group, Kind, Kinds};

/// `/api`
pub(crate) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// One group, as in `/apis/apps`.
pub(crate) fn group(group: &Group) -> Value {
    let version =
        |version: &String| json!({"groupVersion": group_version(&group.name, version), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({
        "name": group.name,
        "versions": versions,
        "preferredVersion": versions.first().cloned().unwrap_or_default(),
    })
}

/// `/apis`
pub(crate) fn groups(kinds: &Kinds) -> Value {
    let list: Vec<Value> = kinds.groups.iter().filter(|g| !g.name.is_empty()).map(group).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
}

/// The resources of a group and version, as in `/apis/apps/v1`.
pub(crate) fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let list = kinds.ordered.get(&(group.to_owned(), version.to_owned()))?;
    let mut out = Vec::new();
    for kind in list {
        out.push(resource(kind));
        for sub in &kind.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, sub.name),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub.kind.kind,
                "verbs": sub.verbs,
            });
            if !sub.kind.version.is_empty()
                && (sub.kind.group.as_str(), sub.kind.version.as_str()) != (group, version)
            {
                entry["group"] = json!(sub.kind.group);
                entry["version"] = json!(sub.kind.version);
            }
            out.push(entry);
        }
    }
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version(group, version),
        "resources": out,
    }))
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.gvk.kind,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    if !kind.storage_hash.is_empty() {
        entry["storageVersionHash"] = json!(kind.storage_hash);
    }
    entry
}

/// All groups of `/api` or `/apis` in one document.
pub(crate) fn aggregated(kinds: &Kinds, core: bool) -> Value {
    let items: Vec<Value> = kinds
        .groups
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let list = kinds.ordered.get(&(group.name.clone(), version.clone()));
                    let resources: Vec<Value> =
                        list.into_iter().flatten().map(|kind| aggregated_resource(kind)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let mut metadata = json!({});
            if !core {
                metadata["name"] = json!(group.name);
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(kind: &Kind) -> Value {
    // Built-in kinds leave out the group and version that they are listed under.
    let home =
        if kind.is_builtin() { ("", "") } else { (kind.gvk.group.as_str(), kind.gvk.version.as_str()) };
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|sub| {
            let own = sub.kind.version.is_empty()
                || (&sub.kind.group, &sub.kind.version) == (&kind.gvk.group, &kind.gvk.version);
            let (group, version) =
                if own { home } else { (sub.kind.group.as_str(), sub.kind.version.as_str()) };
            json!({
                "subresource": sub.name,
                "responseKind": {"group": group, "version": version, "kind": sub.kind.kind},
                "verbs": sub.verbs,
            })
        })
        .collect();
    let mut out = json!({
        "resource": kind.plural,
        "responseKind": {"group": home.0, "version": home.1, "kind": kind.gvk.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        out["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        out["categories"] = json!(kind.categories);
    }
    if !subresources.is_empty() {
        out["subresources"] = json!(subresources);
    }
    out
}
