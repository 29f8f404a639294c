//! What follows from writes: garbage collection, the end of namespaces, definitions coming and going.
//!
//! A real cluster has controllers for this. Here it happens right after the write, in order, so that tests need not
//! wait.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{DEFINITIONS, Inner, NAMESPACES_TABLE};
use crate::crd::definition;
use crate::delete::{CUSTOM_CLEANUP, Options, Propagation};
use crate::kinds::Kind;
use crate::meta;
use crate::store::{Change, Event, Place, Stored};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";

/// Something to do after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    /// Look after the dependents of an owner that is gone.
    Orphaned { uid: String },
    /// Look whether the owners of an object still are.
    CheckOwners(Place),
    /// Look whether an object that is being deleted can go on.
    Deleting(Place),
    /// Empty a namespace, and end it.
    EndNamespace(String),
    /// Bring a definition into service, or out of it.
    Definition(String),
    /// Serve what the definitions say.
    RefreshKinds,
    /// Write the rules of roles that are made of others.
    AggregateRoles,
}

impl Inner {
    /// What follows from an event.
    pub(crate) fn consequences(&self, event: &Event, table: &Arc<str>) -> Vec<Task> {
        let object = &event.object;
        let mut out = Vec::new();
        let place = || (table.clone(), object.key());
        if event.change == Change::Deleted {
            out.push(Task::Orphaned { uid: object.uid.to_string() });
            if let Some((group, plural)) = table.split_once('/').filter(|(group, _)| !group.is_empty()) {
                let definition = format!("{plural}.{group}");
                if self.store.get(DEFINITIONS, &definition).is_some_and(|found| found.deleting) {
                    out.push(Task::Definition(definition));
                }
            }
            for owner in &object.owners {
                if let Some(place) = self.store.place(&owner.uid) {
                    out.push(Task::Deleting(place));
                }
            }
            if !object.namespace.is_empty() && self.is_ending(&object.namespace) {
                out.push(Task::EndNamespace(object.namespace.to_string()));
            }
        } else {
            let owners_changed =
                event.previous.as_ref().is_none_or(|previous| previous.owners != object.owners);
            if owners_changed && !object.owners.is_empty() {
                out.push(Task::CheckOwners(place()));
            }
            if let (Some(previous), true) = (&event.previous, owners_changed) {
                for owner in &previous.owners {
                    if let Some(place) = self.store.place(&owner.uid) {
                        out.push(Task::Deleting(place));
                    }
                }
            }
            if object.deleting {
                out.push(Task::Deleting(place()));
                if &**table == NAMESPACES_TABLE {
                    out.push(Task::EndNamespace(object.name.to_string()));
                }
            }
        }
        if &**table == CLUSTER_ROLES {
            out.push(Task::AggregateRoles);
        }
        if &**table == DEFINITIONS {
            out.push(Task::Definition(object.name.to_string()));
            out.push(Task::RefreshKinds);
        }
        out
    }

    fn is_ending(&self, namespace: &str) -> bool {
        self.store.get(NAMESPACES_TABLE, namespace).is_some_and(|found| found.deleting)
    }

    /// Does one task; what it writes brings its own tasks.
    pub(crate) fn run(&self, task: Task) -> Vec<Task> {
        match task {
            Task::Orphaned { uid } => {
                self.store.dependents(&uid).into_iter().map(Task::CheckOwners).collect()
            }
            Task::CheckOwners(place) => {
                self.check_owners(&place);
                Vec::new()
            }
            Task::Deleting(place) => {
                self.go_on_deleting(&place);
                Vec::new()
            }
            Task::EndNamespace(name) => {
                self.end_namespace(&name);
                Vec::new()
            }
            Task::Definition(name) => {
                self.look_at_definition(&name);
                Vec::new()
            }
            Task::AggregateRoles => {
                self.aggregate_roles();
                Vec::new()
            }
            Task::RefreshKinds => {
                self.refresh_kinds();
                Vec::new()
            }
        }
    }

    fn at(&self, place: &Place) -> Option<(Arc<Kind>, Arc<Stored>)> {
        let kind = self.kinds().of_table(&place.0)?.clone();
        Some((kind, self.store.get(&place.0, &place.1)?))
    }

    /// Deletes an object whose owners are all gone; drops references to gone owners when others remain.
    fn check_owners(&self, place: &Place) {
        let Some((kind, object)) = self.at(place) else { return };
        let kinds = self.kinds();
        let mut solid = 0;
        let mut waiting = false;
        let mut dangling = Vec::new();
        for owner in &object.owners {
            let Some(owner_kind) = kinds.of_api_version(&owner.api_version, &owner.kind) else {
                // Nobody knows whether an owner of an unknown kind is there.
                solid += 1;
                continue;
            };
            let found = self.store.place(&owner.uid).and_then(|place| self.store.get(&place.0, &place.1));
            // An owner in another namespace does not count.
            let found = found.filter(|found| {
                (!owner_kind.namespaced || found.namespace == object.namespace) && *found.name == *owner.name
            });
            match found {
                Some(found)
                    if found.deleting && found.finalizers.iter().any(|name| &**name == FOREGROUND) =>
                {
                    waiting = true;
                }
                Some(_) => solid += 1,
                None => dangling.push(owner.uid.clone()),
            }
        }
        if solid > 0 {
            if !dangling.is_empty() {
                self.amend(&kind, &object, |value| drop_owners(value, &dangling));
            }
            return;
        }
        if dangling.is_empty() && !waiting {
            return;
        }
        if object.deleting && !waiting {
            return;
        }
        let propagation = if waiting && !self.store.dependents(&object.uid).is_empty() {
            Propagation::Foreground
        } else if object.finalizers.iter().any(|name| &**name == ORPHAN) {
            Propagation::Orphan
        } else if object.finalizers.iter().any(|name| &**name == FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        let options = Options {
            propagation: Some(propagation),
            uid: Some(object.uid.to_string()),
            ..Options::default()
        };
        let _ = self.delete_object(&kind, &object.namespace, &object.name, &options);
    }

    /// Serves the finalizers of the garbage collector.
    fn go_on_deleting(&self, place: &Place) {
        let Some((kind, object)) = self.at(place) else { return };
        if !object.deleting {
            return;
        }
        let has = |name: &str| object.finalizers.iter().any(|own| &**own == name);
        if has(ORPHAN) {
            for dependent in self.store.dependents(&object.uid) {
                if let Some((kind, found)) = self.at(&dependent) {
                    let gone = vec![object.uid.to_string()];
                    self.amend(&kind, &found, |value| drop_owners(value, &gone));
                }
            }
            self.amend(&kind, &object, |value| drop_finalizer(value, ORPHAN));
        } else if has(FOREGROUND) {
            let mut blocked = false;
            for dependent in self.store.dependents(&object.uid) {
                let Some((_, found)) = self.at(&dependent) else { continue };
                if !found.deleting {
                    self.check_owners(&dependent);
                }
                let still = self.store.get(&dependent.0, &dependent.1);
                blocked |= still.is_some_and(|still| {
                    still.owners.iter().any(|owner| *owner.uid == *object.uid && owner.blocks)
                });
            }
            if !blocked {
                self.amend(&kind, &object, |value| drop_finalizer(value, FOREGROUND));
            }
        } else if has(CUSTOM_CLEANUP) {
            self.look_at_definition(&object.name);
        }
    }

    /// Deletes what is in a namespace, and the namespace when nothing is left.
    fn end_namespace(&self, name: &str) {
        let kinds = self.kinds();
        let Some(kind) = kinds.at("", "v1", "namespaces") else { return };
        let Some(namespace) = self.store.get(NAMESPACES_TABLE, name).filter(|found| found.deleting) else {
            return;
        };
        for (table, object) in self.store.in_namespace(name) {
            if object.deleting {
                continue;
            }
            if let Some(kind) = kinds.of_table(&table) {
                let options = Options { propagation: Some(Propagation::Background), ..Options::default() };
                let _ = self.delete_object(kind, name, &object.name, &options);
            }
        }
        let left = self.store.in_namespace(name);
        if left.is_empty() {
            self.amend(kind, &namespace, |value| {
                if let Some(spec) = value["spec"].as_object_mut() {
                    spec.remove("finalizers");
                }
            });
            return;
        }
        let now = self.now();
        let waiting: Vec<String> =
            left.iter().flat_map(|(_, o)| o.finalizers.iter().map(ToString::to_string)).collect();
        let mut finalizers = waiting.clone();
        finalizers.sort();
        finalizers.dedup();
        let mut counts: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
        for (table, _) in &left {
            let name = kinds.of_table(table).map_or_else(
                || table.to_string(),
                |kind| {
                    if kind.gvk.group.is_empty() { format!("{}.", kind.plural) } else { kind.qualified() }
                },
            );
            *counts.entry(name).or_default() += 1;
        }
        let remaining: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} has {count} resource instances")).collect();
        let held: Vec<String> = finalizers
            .iter()
            .map(|name| {
                let count = waiting.iter().filter(|other| *other == name).count();
                format!("{name} in {count} resource instances")
            })
            .collect();
        let condition = |kind: &str, set: bool, good: &str, bad: &str, good_text: &str, text: String| {
            json!({
                "type": kind,
                "status": if set { "True" } else { "False" },
                "reason": if set { bad } else { good },
                "message": if set { text } else { good_text.to_owned() },
                "lastTransitionTime": now,
            })
        };
        let mut conditions = vec![
            condition(
                "NamespaceDeletionDiscoveryFailure",
                false,
                "ResourcesDiscovered",
                "",
                "All resources successfully discovered",
                String::new(),
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                "ParsedGroupVersions",
                "",
                "All legacy kube types successfully parsed",
                String::new(),
            ),
            condition(
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                "",
                "All content successfully deleted, may be waiting on finalization",
                String::new(),
            ),
            condition(
                "NamespaceContentRemaining",
                true,
                "ContentRemoved",
                "SomeResourcesRemain",
                "All content successfully removed",
                format!("Some resources are remaining: {}", remaining.join(", ")),
            ),
            condition(
                "NamespaceFinalizersRemaining",
                !held.is_empty(),
                "ContentHasNoFinalizers",
                "SomeFinalizersRemain",
                "All content-preserving finalizers finished",
                format!("Some content in the namespace has finalizers remaining: {}", held.join(", ")),
            ),
        ];
        let current = self.value_as(kind, &namespace);
        for fresh in &mut conditions {
            let old = current["status"]["conditions"].as_array().into_iter().flatten();
            if let Some(old) =
                old.into_iter().find(|old| old["type"] == fresh["type"] && old["status"] == fresh["status"])
            {
                fresh["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
        }
        let conditions = json!(conditions);
        if current["status"]["conditions"] != conditions {
            self.amend(kind, &namespace, |value| value["status"]["conditions"] = conditions.clone());
        }
    }

    /// Roles with an aggregation rule have the rules of all roles it selects.
    fn aggregate_roles(&self) {
        let kinds = self.kinds();
        let Some(kind) = kinds.of_table(CLUSTER_ROLES) else { return };
        let roles = self.store.list(CLUSTER_ROLES, "").objects;
        let values: Vec<Value> = roles.iter().map(|role| role.value()).collect();
        for (stored, role) in roles.iter().zip(&values) {
            let Some(selectors) = role["aggregationRule"]["clusterRoleSelectors"].as_array() else {
                continue;
            };
            let fits = |other: &Value| {
                selectors.iter().any(|selector| {
                    selector["matchLabels"].as_object().is_some_and(|labels| {
                        labels.iter().all(|(key, value)| other["metadata"]["labels"][key] == *value)
                    })
                })
            };
            let mut rules: Vec<Value> = Vec::new();
            for other in values.iter().filter(|other| fits(other) && *other != role) {
                for rule in other["rules"].as_array().into_iter().flatten() {
                    if !rules.contains(rule) {
                        rules.push(rule.clone());
                    }
                }
            }
            let rules = if rules.is_empty() { Value::Null } else { Value::Array(rules) };
            if role["rules"] != rules {
                self.amend(kind, stored, |value| value["rules"] = rules.clone());
            }
        }
    }

    /// Accepts the names of a definition; deletes its objects when it goes.
    fn look_at_definition(&self, name: &str) {
        let kinds = self.kinds();
        let Some(kind) = kinds.at("apiextensions.k8s.io", "v1", "customresourcedefinitions") else { return };
        let Some(stored) = self.store.get(DEFINITIONS, name) else { return };
        let value = self.value_as(kind, &stored);
        let table = format!(
            "{}/{}",
            value["spec"]["group"].as_str().unwrap_or_default(),
            value["spec"]["names"]["plural"].as_str().unwrap_or_default()
        );
        if stored.deleting {
            if !stored.finalizers.iter().any(|own| &**own == CUSTOM_CLEANUP) {
                return;
            }
            if let Some(instances) = kinds.of_table(&table) {
                for object in self.store.list(&table, "").objects {
                    let _ =
                        self.delete_object(instances, &object.namespace, &object.name, &Options::default());
                }
            }
            if self.store.list(&table, "").objects.is_empty() {
                self.amend(kind, &stored, |value| drop_finalizer(value, CUSTOM_CLEANUP));
            } else {
                self.amend(kind, &stored, |value| {
                    for condition in value["status"]["conditions"].as_array_mut().into_iter().flatten() {
                        if condition["type"] == "Terminating" {
                            condition["reason"] = json!("InstanceDeletionInProgress");
                            condition["message"] = json!("CustomResource deletion is in progress");
                        }
                    }
                });
            }
            return;
        }
        let taken = self.taken_names(&value);
        let now = self.now();
        let mut after = value.clone();
        let changed = definition::establish(
            &mut after,
            taken.as_ref().map(|(reason, why)| (*reason, why.as_str())),
            &now,
        );
        if changed {
            self.amend(kind, &stored, |value| {
                value["status"] = after["status"].clone();
            });
        }
    }

    /// Why the names of a definition are not free.
    fn taken_names(&self, value: &Value) -> Option<(&'static str, String)> {
        let group = value["spec"]["group"].as_str()?;
        let own = value["metadata"]["name"].as_str()?;
        let names = &value["spec"]["names"];
        for other in self.store.list(DEFINITIONS, "").objects {
            let other = other.value();
            if other["metadata"]["name"] == own || other["spec"]["group"] != group {
                continue;
            }
            let accepted = &other["status"]["acceptedNames"];
            let used = |word: &Value| {
                ["plural", "singular", "kind", "listKind"].iter().any(|field| accepted[*field] == *word)
                    || accepted["shortNames"].as_array().is_some_and(|list| list.contains(word))
            };
            for (field, reason) in
                [("listKind", "ListKindConflict"), ("kind", "KindConflict"), ("singular", "SingularConflict")]
            {
                if names[field].is_string() && used(&names[field]) {
                    return Some((reason, format!("{} is already in use", names[field])));
                }
            }
            for short in names["shortNames"].as_array().into_iter().flatten() {
                if used(short) {
                    return Some(("ShortNamesConflict", format!("{short} is already in use")));
                }
            }
        }
        None
    }

    /// Changes an object for the server itself; one that nothing holds any more goes.
    pub(crate) fn amend(&self, kind: &Arc<Kind>, stored: &Stored, change: impl Fn(&mut Value)) {
        let key = stored.key();
        let mut current = self.store.get(&kind.table, &key);
        while let Some(stored) = current {
            let mut value = self.value_as(kind, &stored);
            let before = value.clone();
            change(&mut value);
            if kind.is_builtin() {
                crate::builtin::encode(&kind.gvk, &mut value);
            }
            if value == before && !stored.deleting {
                return;
            }
            let held = !meta::finalizers(&value).is_empty()
                || value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() > 0
                || crate::rules::is_namespace(kind)
                    && !crate::crd::schema::texts(&value["spec"]["finalizers"]).is_empty();
            let written = if stored.deleting && !held {
                self.store.remove(&kind.table, &key, stored.revision)
            } else if value == before {
                return;
            } else {
                self.store.put(&kind.table, &key, Some(stored.revision), self.to_stored(kind, value))
            };
            match written {
                Ok(event) => {
                    self.after(&event, &kind.table);
                    return;
                }
                Err(_) => current = self.store.get(&kind.table, &key),
            }
        }
    }
}

fn drop_owners(value: &mut Value, gone: &[String]) {
    if let Some(owners) = value["metadata"]["ownerReferences"].as_array_mut() {
        owners.retain(|owner| !gone.iter().any(|uid| owner["uid"] == **uid));
        if owners.is_empty() {
            meta::set_or_remove(value, "ownerReferences", None);
        }
    }
}

fn drop_finalizer(value: &mut Value, name: &str) {
    let mut finalizers = meta::finalizers(value);
    finalizers.retain(|own| own != name);
    meta::set_finalizers(value, &finalizers);
}
