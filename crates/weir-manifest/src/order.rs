//! In which order objects are applied, installed and printed: the kind lists of Flux, Helm and kustomize.

use std::cmp::Ordering;

use crate::object::ObjectId;

/// What must exist before other objects can use it, in Flux's server-side apply.
const APPLY_FIRST: &[&str] = &[
    "CustomResourceDefinition",
    "Namespace",
    "ClusterRole",
    "ClusterClass",
    "RuntimeClass",
    "PriorityClass",
    "StorageClass",
    "VolumeSnapshotClass",
    "IngressClass",
    "GatewayClass",
    "ClusterRoleBinding",
    "ResourceQuota",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "Secret",
    "Service",
    "LimitRange",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

/// What would hinder other objects if it came before them.
const WEBHOOKS: &[&str] = &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The kinds Helm installs before all others, in this order; webhooks included.
const HELM_INSTALL: &[&str] = &[
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// The kinds that kustomize's `legacy` sort order puts first when `legacySortOptions` is not given.
pub const KUSTOMIZE_ORDER_FIRST: &[&str] = &[
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

/// The kinds that kustomize's `legacy` sort order puts last when `legacySortOptions` is not given.
pub const KUSTOMIZE_ORDER_LAST: &[&str] = WEBHOOKS;

/// Where Flux applies a kind: negative before, positive after the kinds without a place of their own (0).
pub fn apply_rank(kind: &str) -> isize {
    rank(kind, APPLY_FIRST, WEBHOOKS)
}

/// The order in which Flux applies the objects of one stage, and in reverse deletes them.
///
/// By rank of the kind, then group, kind, namespace and name.
pub fn apply_order(left: &ObjectId, right: &ObjectId) -> Ordering {
    apply_rank(&left.kind).cmp(&apply_rank(&right.kind)).then_with(|| left.cmp(right))
}

/// Where kustomize's `legacy` order puts a kind, given its two lists; a kind in both belongs to the last.
pub fn kustomize_legacy_rank<T: AsRef<str>>(kind: &str, first: &[T], last: &[T]) -> isize {
    rank(kind, first, last)
}

fn rank<T: AsRef<str>>(kind: &str, first: &[T], last: &[T]) -> isize {
    let place = |list: &[T]| list.iter().rposition(|known| known.as_ref() == kind).map(|at| at as isize);
    match (place(last), place(first)) {
        (Some(at), _) => at + 1,
        (None, Some(at)) => at - first.len() as isize,
        (None, None) => 0,
    }
}

/// The order in which Helm installs kinds; use it with a stable sort. Kinds it does not know come last, by name.
pub fn helm_install_order(left: &str, right: &str) -> Ordering {
    compare_known_first(left, right, helm_install_place)
}

/// The order in which Helm deletes kinds: webhooks first, then the install order in reverse; unknown kinds last.
pub fn helm_uninstall_order(left: &str, right: &str) -> Ordering {
    compare_known_first(left, right, |kind| {
        let webhooks = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
        match webhooks.iter().position(|webhook| *webhook == kind) {
            Some(place) => Some(place),
            None => helm_install_place(kind).map(|place| HELM_INSTALL.len() - place),
        }
    })
}

fn helm_install_place(kind: &str) -> Option<usize> {
    HELM_INSTALL.iter().position(|known| *known == kind)
}

fn compare_known_first(left: &str, right: &str, place: impl Fn(&str) -> Option<usize>) -> Ordering {
    match (place(left), place(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => left.cmp(right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<'a>(mut kinds: Vec<&'a str>, order: fn(&str, &str) -> Ordering, expected: &[&'a str]) {
        kinds.sort_by(|left, right| order(left, right));
        assert_eq!(kinds, expected);
    }

    #[test]
    fn flux_applies_definitions_first_and_webhooks_last() {
        check(
            vec![
                "Widget",
                "ValidatingWebhookConfiguration",
                "Deployment",
                "Namespace",
                "CustomResourceDefinition",
            ],
            |left, right| apply_rank(left).cmp(&apply_rank(right)),
            &[
                "CustomResourceDefinition",
                "Namespace",
                "Deployment",
                "Widget",
                "ValidatingWebhookConfiguration",
            ],
        );
    }

    #[test]
    fn objects_of_one_rank_are_ordered_by_group_kind_namespace_and_name() {
        let id = |group: &str, kind: &str, name: &str| ObjectId {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
        };
        let mut ids = vec![id("b", "X", "1"), id("a", "Y", "2"), id("a", "Y", "1"), id("", "Service", "z")];
        ids.sort_by(apply_order);
        assert_eq!(ids, [id("", "Service", "z"), id("a", "Y", "1"), id("a", "Y", "2"), id("b", "X", "1")]);
    }

    #[test]
    fn helm_installs_and_uninstalls_in_opposite_orders() {
        let kinds = vec!["Widget", "APIService", "Apple", "MutatingWebhookConfiguration", "Namespace", "Pod"];
        let install = ["Namespace", "Pod", "APIService", "MutatingWebhookConfiguration", "Apple", "Widget"];
        check(kinds.clone(), helm_install_order, &install);
        let uninstall = ["MutatingWebhookConfiguration", "APIService", "Pod", "Namespace", "Apple", "Widget"];
        check(kinds, helm_uninstall_order, &uninstall);
    }

    #[test]
    fn the_last_list_of_kustomize_wins() {
        assert_eq!(kustomize_legacy_rank("A", &["A", "B"], &["C", "A"]), 2);
        assert_eq!(kustomize_legacy_rank("B", &["A", "B"], &["C", "A"]), -1);
        assert_eq!(kustomize_legacy_rank("Z", &["A", "B"], &["C", "A"]), 0);
        assert_eq!(kustomize_legacy_rank("Namespace", KUSTOMIZE_ORDER_FIRST, KUSTOMIZE_ORDER_LAST), -22);
    }
}
