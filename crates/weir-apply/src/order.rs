//! In which order objects are applied: stages, and the rank of kinds within one.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;
use weir_manifest::apply_rank;

use crate::object::ObjectRef;

/// The apply order of two objects: kind rank, group, kind, namespace, name. Pruning uses its reverse.
pub fn apply_order(left: &ObjectRef, right: &ObjectRef) -> Ordering {
    let key = |object: &ObjectRef| apply_rank(&object.kind);
    key(left)
        .cmp(&key(right))
        .then_with(|| left.group.cmp(&right.group))
        .then_with(|| left.kind.cmp(&right.kind))
        .then_with(|| left.namespace.cmp(&right.namespace))
        .then_with(|| left.name.cmp(&right.name))
}

/// Which stage a set of objects belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StageKind {
    /// CRDs, Namespaces and ClusterRoles: awaited before anything else.
    Definitions,
    /// Every kind whose name ends in `Class`: awaited too.
    Classes,
    /// Kinds the operator named; not awaited.
    Custom,
    /// Everything else.
    Rest,
}

impl StageKind {
    /// Whether the next stage waits until the objects of this one are ready.
    pub fn is_awaited(self) -> bool {
        match self {
            Self::Definitions | Self::Classes => true,
            Self::Custom | Self::Rest => false,
        }
    }
}

/// Objects applied together, sorted in apply order.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Which stage this is.
    pub kind: StageKind,
    /// Its objects in apply order.
    pub objects: Vec<Value>,
}

/// Group and kind of the objects that form the custom stage.
pub type CustomStageKinds = BTreeSet<(String, String)>;

/// Parses `--custom-apply-stage-kinds`: a comma list of `group/Kind`, or `Kind` in the core group.
pub fn parse_custom_stage_kinds(list: &str) -> CustomStageKinds {
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| {
            let (group, kind) = item.split_once('/').unwrap_or(("", item));
            (group.trim().to_owned(), kind.trim().to_owned())
        })
        .collect()
}

/// Splits objects into non-empty stages, each sorted in apply order.
pub fn stages(objects: Vec<Value>, custom: &CustomStageKinds) -> Vec<Stage> {
    let mut keyed: Vec<(StageKind, ObjectRef, Value)> = objects
        .into_iter()
        .map(|object| {
            let reference = ObjectRef::of(&object);
            (stage_of(&reference, custom), reference, object)
        })
        .collect();
    keyed.sort_by(|left, right| left.0.cmp(&right.0).then_with(|| apply_order(&left.1, &right.1)));
    let mut stages: Vec<Stage> = Vec::new();
    for (kind, _, object) in keyed {
        match stages.last_mut() {
            Some(stage) if stage.kind == kind => stage.objects.push(object),
            _ => stages.push(Stage { kind, objects: vec![object] }),
        }
    }
    stages
}

fn stage_of(object: &ObjectRef, custom: &CustomStageKinds) -> StageKind {
    let definition = object.is_kind("apiextensions.k8s.io", "CustomResourceDefinition")
        || object.is_kind("", "Namespace")
        || object.is_kind("rbac.authorization.k8s.io", "ClusterRole");
    if definition {
        StageKind::Definitions
    } else if object.kind.ends_with("Class") {
        StageKind::Classes
    } else if custom.contains(&(object.group.clone(), object.kind.clone())) {
        StageKind::Custom
    } else {
        StageKind::Rest
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
    }

    #[track_caller]
    fn check(custom: &str, objects: Vec<Value>, expected: &[(StageKind, &[&str])]) {
        let stages = stages(objects, &parse_custom_stage_kinds(custom));
        let got: Vec<(StageKind, Vec<String>)> = stages
            .iter()
            .map(|stage| {
                (stage.kind, stage.objects.iter().map(|object| ObjectRef::of(object).to_string()).collect())
            })
            .collect();
        let expected: Vec<(StageKind, Vec<String>)> = expected
            .iter()
            .map(|(kind, subjects)| (*kind, subjects.iter().map(ToString::to_string).collect()))
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn definitions_come_first_and_webhooks_last() {
        check(
            "",
            vec![
                object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "w"),
                object("example.com/v1", "Widget", "w"),
                object("v1", "ConfigMap", "b"),
                object("v1", "ConfigMap", "a"),
                object("apps/v1", "Deployment", "web"),
                object("storage.k8s.io/v1", "StorageClass", "fast"),
                object("rbac.authorization.k8s.io/v1", "ClusterRole", "r"),
                object("v1", "Namespace", "n"),
                object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com"),
            ],
            &[
                (
                    StageKind::Definitions,
                    &["CustomResourceDefinition/widgets.example.com", "Namespace/n", "ClusterRole/r"],
                ),
                (StageKind::Classes, &["StorageClass/fast"]),
                (
                    StageKind::Rest,
                    &[
                        "ConfigMap/a",
                        "ConfigMap/b",
                        "Deployment/web",
                        "Widget/w",
                        "ValidatingWebhookConfiguration/w",
                    ],
                ),
            ],
        );
    }

    #[test]
    fn any_kind_ending_in_class_is_a_class_and_custom_kinds_have_their_own_stage() {
        check(
            "v1/ConfigMap, ConfigMap, example.com/Widget, example.com/WidgetClass",
            vec![
                object("v1", "Service", "s"),
                object("example.com/v1", "Widget", "w"),
                object("v1", "ConfigMap", "c"),
                object("example.com/v1", "WidgetClass", "k"),
            ],
            &[
                (StageKind::Classes, &["WidgetClass/k"]),
                (StageKind::Custom, &["ConfigMap/c", "Widget/w"]),
                (StageKind::Rest, &["Service/s"]),
            ],
        );
    }

    #[test]
    fn a_namespace_of_another_group_is_no_definition() {
        check("", vec![object("example.com/v1", "Namespace", "n")], &[(StageKind::Rest, &["Namespace/n"])]);
    }
}
