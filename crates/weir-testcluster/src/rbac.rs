//! What roles allow.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::auth::Identity;
use crate::cluster::Inner;

const GROUP: &str = "rbac.authorization.k8s.io";
const TABLES: &[&str] = &[
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/clusterrolebindings",
];

/// What somebody wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// A path that is no resource; everything but the verb is empty then.
    pub(crate) path: String,
}

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) paths: Vec<String>,
}

impl Rule {
    fn read(value: &Value) -> Self {
        let list = |name: &str| crate::crd::schema::texts(&value[name]);
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// Whether the rule allows the action.
    pub(crate) fn allows(&self, action: &Action) -> bool {
        let has = |list: &[String], word: &str| list.iter().any(|own| own == "*" || own == word);
        if !has(&self.verbs, &action.verb) {
            return false;
        }
        if !action.path.is_empty() {
            return self.paths.iter().any(|path| match path.strip_suffix('*') {
                Some(prefix) => action.path.starts_with(prefix),
                None => *path == action.path,
            });
        }
        let combined = format!("{}/{}", action.resource, action.subresource);
        let resource = self.resources.iter().any(|own| {
            if own == "*" {
                return true;
            }
            if action.subresource.is_empty() {
                *own == action.resource
            } else {
                *own == combined || own.strip_prefix("*/").is_some_and(|sub| sub == action.subresource)
            }
        });
        has(&self.groups, &action.group)
            && resource
            && (self.names.is_empty() || self.names.contains(&action.name))
    }
}

#[derive(Debug, Clone, Default)]
struct Binding {
    namespace: String,
    subjects: Vec<(String, String, String)>,
    rules: Vec<Rule>,
}

impl Binding {
    fn is_for(&self, who: &Identity) -> bool {
        self.subjects.iter().any(|(kind, namespace, name)| match kind.as_str() {
            "User" => *name == who.user,
            "Group" => who.is_in(name),
            "ServiceAccount" => who.user == format!("system:serviceaccount:{namespace}:{name}"),
            _ => false,
        })
    }
}

/// All bindings at a moment.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    bindings: Vec<Binding>,
}

impl Policy {
    fn read(cluster: &Inner) -> Self {
        let list = |table: &str| -> Vec<Value> {
            cluster.store.list(table, "").objects.iter().map(|object| object.value()).collect()
        };
        let mut cluster_roles: HashMap<String, Value> = list(TABLES[2])
            .into_iter()
            .map(|role| (role["metadata"]["name"].as_str().unwrap_or_default().to_owned(), role))
            .collect();
        let aggregated: Vec<(String, Vec<Value>)> = cluster_roles
            .iter()
            .filter_map(|(name, role)| {
                let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array()?;
                let fits = |other: &Value| {
                    selectors.iter().any(|selector| {
                        selector["matchLabels"].as_object().is_some_and(|labels| {
                            labels.iter().all(|(key, value)| other["metadata"]["labels"][key] == *value)
                        })
                    })
                };
                let rules = cluster_roles.values().filter(|other| fits(other));
                Some((
                    name.clone(),
                    rules.flat_map(|other| other["rules"].as_array().cloned().unwrap_or_default()).collect(),
                ))
            })
            .collect();
        for (name, rules) in aggregated {
            if let Some(role) = cluster_roles.get_mut(&name) {
                role["rules"] = Value::Array(rules);
            }
        }
        let roles: HashMap<(String, String), Value> = list(TABLES[0])
            .into_iter()
            .map(|role| {
                let text = |name: &str| role["metadata"][name].as_str().unwrap_or_default().to_owned();
                ((text("namespace"), text("name")), role)
            })
            .collect();
        let rules = |role: Option<&Value>| -> Vec<Rule> {
            role.and_then(|role| role["rules"].as_array()).into_iter().flatten().map(Rule::read).collect()
        };
        let bindings = list(TABLES[1]).into_iter().chain(list(TABLES[3])).map(|binding| {
            let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let name = binding["roleRef"]["name"].as_str().unwrap_or_default().to_owned();
            let role = if binding["roleRef"]["kind"] == "Role" {
                roles.get(&(namespace.clone(), name))
            } else {
                cluster_roles.get(&name)
            };
            let subjects = binding["subjects"].as_array().into_iter().flatten().map(|subject| {
                let text = |name: &str| subject[name].as_str().unwrap_or_default().to_owned();
                (text("kind"), text("namespace"), text("name"))
            });
            Binding { subjects: subjects.collect(), rules: rules(role), namespace }
        });
        Self { bindings: bindings.collect() }
    }

    /// The rules of somebody: for the cluster, and for one namespace.
    pub(crate) fn rules<'p>(
        &'p self,
        who: &'p Identity,
        namespace: &'p str,
    ) -> impl Iterator<Item = &'p Rule> {
        self.bindings
            .iter()
            .filter(move |binding| {
                (binding.namespace.is_empty() || binding.namespace == namespace) && binding.is_for(who)
            })
            .flat_map(|binding| &binding.rules)
    }

    /// Whether somebody may do something.
    pub(crate) fn allows(&self, who: &Identity, action: &Action) -> bool {
        who.is_in("system:masters") || self.rules(who, &action.namespace).any(|rule| rule.allows(action))
    }
}

impl Inner {
    /// The policy of the roles there are now.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let changed = self.store.last_change(TABLES);
        let mut known = self.policy.lock();
        if let Some((at, policy)) = &*known
            && *at == changed
        {
            return policy.clone();
        }
        let policy = Arc::new(Policy::read(self));
        *known = Some((changed, policy.clone()));
        policy
    }

    /// Whether somebody may do something; without enforcement everybody may.
    pub(crate) fn may(&self, who: &Identity, action: &Action) -> bool {
        !self.rbac || self.policy().allows(who, action)
    }
}

/// What a refusal says after `is forbidden: `.
pub(crate) fn refusal(who: &Identity, action: &Action) -> String {
    if !action.path.is_empty() {
        return format!("User {:?} cannot {} path {:?}", who.user, action.verb, action.path);
    }
    let resource = if action.subresource.is_empty() {
        action.resource.clone()
    } else {
        format!("{}/{}", action.resource, action.subresource)
    };
    let scope = if action.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", action.namespace)
    };
    format!(
        "User {:?} cannot {} resource {resource:?} in API group {:?} {scope}",
        who.user, action.verb, action.group
    )
}

/// The roles that every cluster has.
pub(crate) fn bootstrap() -> Vec<Value> {
    let role = |name: &str, rules: Value| {
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
            "metadata": {
                "name": name,
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            },
            "rules": rules,
        })
    };
    let binding = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {
                "name": name,
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            },
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group}],
        })
    };
    let read = json!(["get", "list", "watch"]);
    let write = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    let core = json!([
        "configmaps",
        "endpoints",
        "events",
        "persistentvolumeclaims",
        "pods",
        "pods/log",
        "pods/status",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "serviceaccounts",
        "services",
        "namespaces",
        "limitranges",
        "resourcequotas",
    ]);
    let writable = json!([
        "configmaps",
        "endpoints",
        "events",
        "persistentvolumeclaims",
        "pods",
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "pods/eviction",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "serviceaccounts",
        "serviceaccounts/token",
        "services",
        "services/proxy",
    ]);
    let others = json!(["apps", "autoscaling", "batch", "discovery.k8s.io", "networking.k8s.io", "policy"]);
    let view = json!([
        {"apiGroups": [""], "resources": core, "verbs": read},
        {"apiGroups": others, "resources": ["*"], "verbs": read},
    ]);
    let edit = json!([
        {"apiGroups": [""], "resources": core, "verbs": read},
        {"apiGroups": [""], "resources": writable, "verbs": write},
        {"apiGroups": others, "resources": ["*"], "verbs": write},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": write},
    ]);
    let mut admin = edit.clone();
    if let Some(rules) = admin.as_array_mut() {
        rules.push(json!({"apiGroups": [GROUP], "resources": ["rolebindings", "roles"], "verbs": write}));
        rules.push(json!({"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]}));
    }
    let paths = json!([
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/"
    ]);
    vec![
        role(
            "cluster-admin",
            json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]},
            ]),
        ),
        role("admin", admin),
        role("edit", edit),
        role("view", view),
        role("system:discovery", json!([{"nonResourceURLs": paths, "verbs": ["get"]}])),
        role(
            "system:public-info-viewer",
            json!([{"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]}]),
        ),
        role(
            "system:basic-user",
            json!([
                {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]},
                {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
            ]),
        ),
        binding("cluster-admin", "cluster-admin", "system:masters"),
        binding("system:discovery", "system:discovery", "system:authenticated"),
        binding("system:basic-user", "system:basic-user", "system:authenticated"),
        binding("system:public-info-viewer", "system:public-info-viewer", "system:unauthenticated"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(verb: &str, resource: &str, subresource: &str, name: &str) -> Action {
        Action {
            verb: verb.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..Action::default()
        }
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn check(rule: Value, action: &Action, expected: bool) {
        assert_eq!(Rule::read(&rule).allows(action), expected, "{rule} {action:?}");
    }

    #[test]
    fn rules() {
        let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        check(pods.clone(), &action("get", "pods", "", "a"), true);
        check(pods.clone(), &action("list", "pods", "", ""), false);
        check(pods, &action("get", "pods", "status", "a"), false);
        let status = json!({"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["*"]});
        check(status, &action("update", "pods", "status", "a"), true);
        let named =
            json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get"]});
        check(named.clone(), &action("get", "secrets", "", "a"), true);
        check(named, &action("get", "secrets", "", "b"), false);
        let path = json!({"nonResourceURLs": ["/apis/*"], "verbs": ["get"]});
        check(path, &Action { verb: "get".into(), path: "/apis/apps".into(), ..Action::default() }, true);
    }

    #[test]
    fn refusals() {
        let who = Identity::service_account("a", "b");
        let mut wanted = action("patch", "deployments", "", "x");
        wanted.group = "apps".into();
        wanted.namespace = "prod".into();
        assert_eq!(
            refusal(&who, &wanted),
            "User \"system:serviceaccount:a:b\" cannot patch resource \"deployments\" in API group \"apps\" in the namespace \"prod\""
        );
    }
}
