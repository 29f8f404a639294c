//! Which object a manifest describes.

use std::fmt;

use serde_json::Value;

/// An object's identity in a cluster, without its version: API group, kind, namespace and name.
///
/// The core group and the namespace of cluster-scoped objects are empty. Ordered by group, kind, namespace, name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ObjectId {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectId {
    /// The identity a manifest states; fields it lacks are empty.
    pub fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, _) = split_api_version(object["apiVersion"].as_str().unwrap_or_default());
        Self {
            group: group.to_owned(),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        }
    }

    /// `Kind/namespace/name`, or `Kind/name` for cluster-scoped objects: how Flux names objects in messages.
    ///
    /// `Display` prints the same.
    pub fn subject(&self) -> String {
        self.to_string()
    }

    /// `namespace_name_group_kind`: the id of the object in an inventory.
    ///
    /// Names of RBAC objects may contain colons, which are written as `__`.
    pub fn inventory_id(&self) -> String {
        let Self { group, kind, namespace, name } = self;
        if self.is_rbac() {
            format!("{namespace}_{}_{group}_{kind}", name.replace(':', "__"))
        } else {
            format!("{namespace}_{name}_{group}_{kind}")
        }
    }

    /// The identity behind an inventory id; none if it does not have four parts.
    pub fn from_inventory_id(id: &str) -> Option<Self> {
        let (namespace, rest) = id.split_once('_')?;
        let (rest, kind) = rest.rsplit_once('_')?;
        let (name, group) = rest.rsplit_once('_')?;
        Some(Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.replace("__", ":"),
        })
    }

    fn is_rbac(&self) -> bool {
        self.group == "rbac.authorization.k8s.io"
            && matches!(self.kind.as_str(), "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding")
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.kind, self.name)
        } else {
            write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// Group and version of an `apiVersion`; the group is empty for the core group (`v1`).
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(group: &str, kind: &str, namespace: &str, name: &str) -> ObjectId {
        let [group, kind, namespace, name] = [group, kind, namespace, name].map(str::to_owned);
        ObjectId { group, kind, namespace, name }
    }

    #[test]
    fn a_manifest_states_its_identity() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "a", "name": "b"}});
        assert_eq!(ObjectId::of(&object), id("apps", "Deployment", "a", "b"));
        assert_eq!(ObjectId::of(&json!({"apiVersion": "v1", "kind": "List"})), id("", "List", "", ""));
        assert_eq!(ObjectId::of(&json!(3)), ObjectId::default());
    }

    #[track_caller]
    fn check_inventory(object: &ObjectId, text: &str) {
        assert_eq!(object.inventory_id(), text);
        assert_eq!(ObjectId::from_inventory_id(text).as_ref(), Some(object));
    }

    #[test]
    fn inventory_ids_are_those_of_flux() {
        check_inventory(&id("", "Service", "default", "podinfo"), "default_podinfo__Service");
        check_inventory(&id("", "Namespace", "", "flux-system"), "_flux-system__Namespace");
        check_inventory(&id("apps", "Deployment", "apps", "web"), "apps_web_apps_Deployment");
        let rbac = "rbac.authorization.k8s.io";
        check_inventory(
            &id(rbac, "ClusterRole", "", "system:node:x"),
            "_system__node__x_rbac.authorization.k8s.io_ClusterRole",
        );
        check_inventory(
            &id(rbac, "Role", "kube-system", "a:b"),
            "kube-system_a__b_rbac.authorization.k8s.io_Role",
        );
        for broken in ["", "a", "a_b", "a_b_c"] {
            assert_eq!(ObjectId::from_inventory_id(broken), None, "{broken}");
        }
    }

    #[test]
    fn subjects_leave_out_the_namespace_of_cluster_scoped_objects() {
        assert_eq!(id("apps", "Deployment", "a", "b").subject(), "Deployment/a/b");
        assert_eq!(id("", "Namespace", "", "b").to_string(), "Namespace/b");
    }
}
