//! The list of what an owner has applied: its format, and what has gone stale.

use std::collections::HashSet;

use weir_manifest::ObjectId;

use crate::change::{Action, ChangeSet};
use crate::object::ObjectRef;

/// One entry of `status.inventory`: `<namespace>_<name>_<group>_<kind>` and the API version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InventoryEntry {
    /// The identity of the object.
    pub id: String,
    /// The API version without its group.
    pub version: String,
}

impl InventoryEntry {
    /// The entry of an object.
    pub fn of(object: &ObjectRef) -> Self {
        let identity = ObjectId {
            group: object.group.clone(),
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        };
        Self { id: identity.inventory_id(), version: object.version.clone() }
    }

    /// The object an entry names.
    ///
    /// # Errors
    /// When the identity does not have four parts.
    pub fn object(&self) -> Result<ObjectRef, InvalidId> {
        let parsed = ObjectId::from_inventory_id(&self.id);
        let identity = parsed
            .filter(|identity| !identity.name.is_empty() && !identity.kind.is_empty())
            .ok_or_else(|| InvalidId(self.id.clone()))?;
        Ok(ObjectRef {
            group: identity.group,
            version: self.version.clone(),
            kind: identity.kind,
            namespace: identity.namespace,
            name: identity.name,
        })
    }
}

/// An inventory identity that does not name an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse inventory entry '{0}', want <namespace>_<name>_<group>_<kind>")]
pub struct InvalidId(pub String);

/// What an owner has applied, in apply order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    /// The objects, without duplicates.
    pub objects: Vec<ObjectRef>,
}

impl Inventory {
    /// The inventory of a complete run: every entry of the change set, whatever its action.
    pub fn of_changes(changes: &ChangeSet) -> Self {
        let mut inventory = Self::default();
        for entry in &changes.entries {
            if entry.action != Action::Deleted {
                inventory.add(&entry.object);
            }
        }
        inventory
    }

    /// The inventory stored as entries; those that cannot be read are returned too.
    pub fn parse<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Self, Vec<InvalidId>) {
        let mut inventory = Self::default();
        let mut invalid = Vec::new();
        for (id, version) in entries {
            let entry = InventoryEntry { id: id.to_owned(), version: version.to_owned() };
            match entry.object() {
                Ok(object) => inventory.add(&object),
                Err(error) => invalid.push(error),
            }
        }
        (inventory, invalid)
    }

    /// The entries to store.
    pub fn entries(&self) -> Vec<InventoryEntry> {
        self.objects.iter().map(InventoryEntry::of).collect()
    }

    /// Appends an object unless one with its identity is there; a new version replaces the old one.
    pub fn add(&mut self, object: &ObjectRef) {
        match self.objects.iter_mut().find(|known| known.identity() == object.identity()) {
            Some(known) => known.version.clone_from(&object.version),
            None => self.objects.push(object.clone()),
        }
    }

    /// This inventory followed by those objects of `other` it lacks.
    ///
    /// Used when a run failed half-way: what was applied before stays known, what was known stays.
    #[must_use]
    pub fn merged(mut self, other: &ChangeSet) -> Self {
        for entry in &other.entries {
            if !matches!(entry.action, Action::Deleted | Action::Unknown) {
                self.add(&entry.object);
            }
        }
        self
    }

    /// The objects of this inventory that `new` lacks; a changed version alone is not stale.
    pub fn stale(&self, new: &Self) -> Vec<ObjectRef> {
        let kept: HashSet<_> = new.objects.iter().map(ObjectRef::identity).collect();
        self.objects.iter().filter(|object| !kept.contains(&object.identity())).cloned().collect()
    }

    /// Whether an object with this identity is listed.
    pub fn contains(&self, object: &ObjectRef) -> bool {
        self.objects.iter().any(|known| known.identity() == object.identity())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(namespace: &str, name: &str, group: &str, kind: &str) -> ObjectRef {
        ObjectRef {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[track_caller]
    fn check(object: &ObjectRef, id: &str) {
        let entry = InventoryEntry::of(object);
        assert_eq!(entry.id, id);
        assert_eq!(entry.object().as_ref(), Ok(object));
    }

    #[test]
    fn ids_have_the_reference_format() {
        check(&object("default", "podinfo", "", "Service"), "default_podinfo__Service");
        check(&object("", "flux-system", "", "Namespace"), "_flux-system__Namespace");
        check(&object("apps", "web", "apps", "Deployment"), "apps_web_apps_Deployment");
        check(
            &object("", "system:node", "rbac.authorization.k8s.io", "ClusterRole"),
            "_system__node_rbac.authorization.k8s.io_ClusterRole",
        );
    }

    #[test]
    fn broken_ids_are_reported() {
        for id in ["", "a", "a_b", "a_b_c", "a__g_K", "a_b_c_"] {
            let entry = InventoryEntry { id: id.into(), version: "v1".into() };
            assert!(entry.object().is_err(), "{id}");
        }
    }

    #[test]
    fn a_new_version_is_not_stale_but_a_new_group_is() {
        let old = Inventory {
            objects: vec![
                object("a", "x", "apps", "Deployment"),
                object("a", "y", "extensions", "Ingress"),
                object("a", "z", "", "ConfigMap"),
            ],
        };
        let mut new = Inventory::default();
        new.add(&ObjectRef { version: "v2".into(), ..object("a", "x", "apps", "Deployment") });
        new.add(&object("a", "y", "networking.k8s.io", "Ingress"));
        assert_eq!(
            old.stale(&new),
            [object("a", "y", "extensions", "Ingress"), object("a", "z", "", "ConfigMap")]
        );
    }

    #[test]
    fn a_partial_run_forgets_nothing() {
        let old = Inventory { objects: vec![object("a", "x", "", "ConfigMap")] };
        let mut partial = ChangeSet::default();
        partial.push(object("a", "new", "", "Secret"), Action::Created);
        partial.push(object("a", "x", "", "ConfigMap"), Action::Unchanged);
        partial.push(object("a", "u", "", "Secret"), Action::Unknown);
        let merged = old.merged(&partial);
        assert_eq!(merged.objects, [object("a", "x", "", "ConfigMap"), object("a", "new", "", "Secret")]);
    }

    proptest! {
        #[test]
        fn format_then_parse_is_identity(
            namespace in "[a-z][a-z0-9-]{0,8}|",
            name in "[a-z][a-z0-9.-]{0,12}",
            group in "[a-z]{1,5}\\.[a-z]{2,3}|",
            kind in "[A-Z][A-Za-z]{0,10}",
        ) {
            let object = object(&namespace, &name, &group, &kind);
            prop_assert_eq!(InventoryEntry::of(&object).object(), Ok(object));
        }

        #[test]
        fn stale_is_a_part_of_the_old(old in prop::collection::vec("[a-d]", 0..6), new in prop::collection::vec("[a-d]", 0..6)) {
            let inventory = |names: &[String]| {
                let mut inventory = Inventory::default();
                for name in names {
                    inventory.add(&object("n", name, "", "ConfigMap"));
                }
                inventory
            };
            let (old, new) = (inventory(&old), inventory(&new));
            for stale in old.stale(&new) {
                prop_assert!(old.contains(&stale) && !new.contains(&stale));
            }
        }
    }
}
