//! What an object asks for with labels and annotations: skip, merge, force, keep.

use serde_json::Value;

use crate::object;

/// The keys and names one owner group uses on the objects it applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Prefix of every key, such as `kustomize.toolkit.fluxcd.io`.
    pub group: String,
    /// Name of the owning object.
    pub name: String,
    /// Namespace of the owning object.
    pub namespace: String,
}

impl Owner {
    /// The label key that carries the owner's name.
    pub fn name_label(&self) -> String {
        format!("{}/name", self.group)
    }

    /// The label key that carries the owner's namespace.
    pub fn namespace_label(&self) -> String {
        format!("{}/namespace", self.group)
    }

    /// A label selector for everything this owner has applied.
    pub fn selector(&self) -> String {
        format!("{}={},{}={}", self.name_label(), self.name, self.namespace_label(), self.namespace)
    }

    /// Sets the owner labels on an object.
    pub fn mark(&self, object: &mut Value) {
        let (name, namespace) = (self.name_label(), self.namespace_label());
        object::set_metadata(
            object,
            "labels",
            [(name.as_str(), self.name.as_str()), (namespace.as_str(), self.namespace.as_str())],
        );
    }

    /// Whether a live object carries exactly this owner's labels.
    pub fn owns(&self, live: &Value) -> bool {
        object::label(live, &self.name_label()) == Some(self.name.as_str())
            && object::label(live, &self.namespace_label()) == Some(self.namespace.as_str())
    }
}

/// Whether label or annotation `<group>/<key>` of `object` has `value`, ignoring case.
pub fn asks(object: &Value, group: &str, key: &str, value: &str) -> bool {
    let full_key = format!("{group}/{key}");
    let matches = |found: Option<&str>| found.is_some_and(|found| found.eq_ignore_ascii_case(value));
    matches(object::label(object, &full_key)) || matches(object::annotation(object, &full_key))
}

/// Whether applying `desired` over `live` is to be skipped.
pub fn skips_apply(group: &str, desired: &Value, live: Option<&Value>) -> bool {
    let either = |key, value| {
        asks(desired, group, key, value) || live.is_some_and(|live| asks(live, group, key, value))
    };
    either("reconcile", "disabled")
        || either("ssa", "Ignore")
        || (live.is_some() && asks(desired, group, "ssa", "IfNotPresent"))
}

/// Whether fields set by other managers are to be left as they are.
pub fn merges(group: &str, desired: &Value, live: &Value) -> bool {
    asks(desired, group, "ssa", "Merge") || asks(live, group, "ssa", "Merge")
}

/// Whether the object itself allows its recreation.
pub fn forces(group: &str, desired: &Value, live: &Value) -> bool {
    asks(desired, group, "force", "enabled") || asks(live, group, "force", "enabled")
}

/// Whether a live object is protected from deletion by pruning.
pub fn keeps(group: &str, live: &Value) -> bool {
    asks(live, group, "prune", "disabled")
        || asks(live, group, "reconcile", "disabled")
        || asks(live, group, "ssa", "Ignore")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GROUP: &str = "kustomize.toolkit.fluxcd.io";

    fn labelled(key: &str, value: &str) -> Value {
        json!({"metadata": {"labels": {format!("{GROUP}/{key}"): value}}})
    }

    fn annotated(key: &str, value: &str) -> Value {
        json!({"metadata": {"annotations": {format!("{GROUP}/{key}"): value}}})
    }

    #[track_caller]
    fn check_skip(desired: &Value, live: Option<&Value>, expected: bool) {
        assert_eq!(skips_apply(GROUP, desired, live), expected, "desired {desired} live {live:?}");
    }

    #[test]
    fn skipping() {
        let plain = json!({"metadata": {}});
        check_skip(&plain, None, false);
        check_skip(&plain, Some(&plain), false);
        check_skip(&annotated("reconcile", "Disabled"), None, true);
        check_skip(&plain, Some(&labelled("reconcile", "disabled")), true);
        check_skip(&annotated("ssa", "ignore"), None, true);
        check_skip(&plain, Some(&annotated("ssa", "Ignore")), true);
        check_skip(&annotated("ssa", "IfNotPresent"), None, false);
        check_skip(&annotated("ssa", "ifnotpresent"), Some(&plain), true);
        check_skip(&plain, Some(&annotated("ssa", "IfNotPresent")), false);
        check_skip(&annotated("ssa", "Merge"), Some(&plain), false);
    }

    #[test]
    fn keeping_looks_at_labels_and_annotations() {
        for kept in [
            labelled("prune", "disabled"),
            annotated("prune", "DISABLED"),
            labelled("reconcile", "disabled"),
            annotated("ssa", "Ignore"),
        ] {
            assert!(keeps(GROUP, &kept), "{kept}");
        }
        for pruned in [labelled("prune", "enabled"), annotated("ssa", "IfNotPresent"), json!({})] {
            assert!(!keeps(GROUP, &pruned), "{pruned}");
        }
    }

    #[test]
    fn ownership_needs_both_labels() {
        let owner = Owner { group: GROUP.into(), name: "apps".into(), namespace: "flux-system".into() };
        let mut object = json!({"metadata": {"name": "x"}});
        assert!(!owner.owns(&object));
        owner.mark(&mut object);
        assert!(owner.owns(&object));
        let other = Owner { namespace: "other".into(), ..owner };
        assert!(!other.owns(&object));
    }
}
