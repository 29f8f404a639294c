//! What the source holds from revision to revision, and what it should lead to.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::world::{NAMESPACE, path_of};

/// The Kustomization that brings definitions and namespaces; others may depend on it.
pub(crate) const BASE: &str = "base";
/// Objects that move from one Kustomization to another.
const SHARED: usize = 2;

/// One Kustomization of the fleet.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) depends_on: Vec<String>,
    pub(crate) wait: bool,
}

impl Member {
    pub(crate) fn object(&self, suspended: bool) -> Value {
        let depends: Vec<Value> = self.depends_on.iter().map(|name| json!({"name": name})).collect();
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {
                "interval": "1m", "retryInterval": "10s", "timeout": "30s", "prune": true, "wait": self.wait,
                "path": format!("./{}", self.name), "suspend": suspended, "dependsOn": depends,
                "sourceRef": {"kind": "GitRepository", "name": "fleet"},
            },
        })
    }
}

/// The objects of every Kustomization in one revision, by path in the API.
pub(crate) type Content = BTreeMap<String, BTreeMap<String, Value>>;

pub(crate) struct Fleet {
    pub(crate) members: Vec<Member>,
    /// Oldest first.
    pub(crate) revisions: Vec<Content>,
}

impl Fleet {
    pub(crate) fn new(random: &mut StdRng) -> Self {
        let mut members =
            vec![Member { name: BASE.to_owned(), depends_on: Vec::new(), wait: random.random_bool(0.5) }];
        for number in 0..random.random_range(2..=4) {
            let mut depends_on = BTreeSet::from([BASE.to_owned()]);
            if number > 0 && random.random_bool(0.5) {
                depends_on.insert(format!("app{}", random.random_range(0..number)));
            }
            members.push(Member {
                name: format!("app{number}"),
                depends_on: depends_on.into_iter().collect(),
                wait: random.random_bool(0.6),
            });
        }
        Self { members, revisions: Vec::new() }
    }

    /// A member on which nobody depends.
    pub(crate) fn leaf(&self) -> &Member {
        let needed: BTreeSet<&String> = self.members.iter().flat_map(|member| &member.depends_on).collect();
        let leaf = self.members.iter().find(|member| !needed.contains(&member.name));
        leaf.expect("dependencies point backwards, so the last member is a leaf")
    }

    /// Commits something new; the files.
    pub(crate) fn commit(&mut self, random: &mut StdRng) -> BTreeMap<String, String> {
        let mut content = Content::new();
        let mut objects: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for member in &self.members {
            objects.insert(
                member.name.clone(),
                if member.name == BASE { base() } else { app(&member.name, random) },
            );
        }
        for number in 0..SHARED {
            let owner = random.random_range(1..self.members.len());
            let value = random.random_range(0..3_u32).to_string();
            let shared = config(&format!("shared{number}"), &json!({"value": value}));
            objects.entry(self.members[owner].name.clone()).or_default().push(shared);
        }
        let mut files = BTreeMap::new();
        for (name, objects) in objects {
            let text: Vec<String> = objects.iter().map(ToString::to_string).collect();
            // A directory without manifests is a good revision too.
            files.insert(format!("{name}/README.md"), name.clone());
            if !objects.is_empty() {
                files.insert(format!("{name}/objects.yaml"), text.join("\n---\n"));
            }
            content.insert(name, objects.into_iter().map(|object| (path_of(&object), object)).collect());
        }
        self.revisions.push(content);
        files
    }
}

fn base() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
                }],
            },
        }),
    ]
}

fn config(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "apps"}, "data": data})
}

fn app(owner: &str, random: &mut StdRng) -> Vec<Value> {
    let mut objects = Vec::new();
    if random.random_ratio(1, 12) {
        return objects;
    }
    for number in 0..4 {
        if random.random_bool(0.25) {
            continue;
        }
        let value = random.random_range(0..3_u32).to_string();
        let name = format!("{owner}-{number}");
        objects.push(match number {
            0 => config(&name, &json!({"value": value, "kept": "yes"})),
            1 => json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "team"},
                "data": {"value": "eA==", "more": if value == "0" { "eQ==" } else { "eg==" }}}),
            2 => json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "team"},
                "spec": {"size": value}}),
            _ => json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "apps"},
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"containers": [{"name": "web", "image": format!("example.com/web:{value}")}]},
                    },
                },
            }),
        });
    }
    objects
}
