//! The kinds that are served now: built-in ones and those of custom resource definitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::GroupVersionKind;
use crate::builtin::{self, Subresource};
use crate::crd::CustomVersion;
use crate::error::Subject;
use crate::fields::set::FieldSet;
use crate::schema::Schema;

/// One version of one kind, as it is served.
#[expect(clippy::struct_field_names, reason = "fields are named as in discovery documents")]
pub(crate) struct Kind {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
    pub(crate) subresources: Vec<Subresource>,
    /// Where objects are, shared between versions.
    pub(crate) table: Arc<str>,
    pub(crate) storage_hash: String,
    /// The kind objects are stored as.
    pub(crate) stored_as: GroupVersionKind,
    /// `None` for built-in kinds.
    pub(crate) custom: Option<Arc<CustomVersion>>,
    /// `{"apiVersion":"…","kind":"…",`
    pub(crate) prefix: Bytes,
    /// Fields that writes of the object cannot change.
    pub(crate) reset: FieldSet,
    /// Fields that writes of the status cannot change.
    pub(crate) reset_status: FieldSet,
    empty: OnceLock<Value>,
}

impl Kind {
    fn builtin(resource: &'static builtin::Resource) -> Self {
        let gvk = resource.gvk();
        let mut reset = FieldSet::default();
        let mut reset_status = FieldSet::default();
        if resource.subresources.iter().any(|sub| sub.name == "status") {
            reset.insert_fields(&["status"]);
            reset_status.insert_fields(&["spec"]);
        }
        let stored_version =
            if resource.storage_version.is_empty() { &resource.version } else { &resource.storage_version };
        let mut stored_as = GroupVersionKind::new(&resource.group, stored_version, &resource.kind);
        let mut table: Arc<str> = format!("{}/{}", resource.group, resource.plural).into();
        if resource.group == "events.k8s.io" {
            // Both groups show the same objects.
            table = "/events".into();
            stored_as = GroupVersionKind::new("", "v1", "Event");
        }
        Self {
            prefix: prefix(&gvk),
            list_kind: format!("{}List", resource.kind),
            plural: resource.plural.clone(),
            singular: resource.singular.clone(),
            short_names: resource.short_names.clone(),
            categories: resource.categories.clone(),
            namespaced: resource.namespaced,
            verbs: resource.verbs.clone(),
            subresources: resource.subresources.clone(),
            table,
            storage_hash: resource.storage_version_hash.clone(),
            stored_as,
            custom: None,
            reset,
            reset_status,
            empty: OnceLock::new(),
            gvk,
        }
    }

    pub(crate) fn custom(version: Arc<CustomVersion>) -> Self {
        let gvk = GroupVersionKind::new(&version.group, &version.version, &version.kind);
        let verbs = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
        let mut subresources = Vec::new();
        let mut reset = FieldSet::default();
        let mut reset_status = FieldSet::default();
        let sub = |name: &str, kind: GroupVersionKind| Subresource {
            name: name.to_owned(),
            kind,
            verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
        };
        if version.has_status {
            subresources.push(sub("status", gvk.clone()));
            reset.insert_fields(&["status"]);
            reset_status.insert_fields(&["spec"]);
            reset_status.insert_fields(&["metadata"]);
            if let Some(fields) = version.schema.as_ref().and_then(|schema| schema.fields.as_ref()) {
                for name in fields.properties.keys().filter(|name| &***name != "status") {
                    reset_status.insert_fields(&[name]);
                }
            }
        }
        if version.scale.is_some() {
            subresources.push(sub("scale", GroupVersionKind::new("autoscaling", "v1", "Scale")));
        }
        Self {
            prefix: prefix(&gvk),
            plural: version.plural.clone(),
            singular: version.singular.clone(),
            list_kind: version.list_kind.clone(),
            short_names: version.short_names.clone(),
            categories: version.categories.clone(),
            namespaced: version.namespaced,
            verbs: verbs.map(str::to_owned).to_vec(),
            subresources,
            table: format!("{}/{}", version.group, version.plural).into(),
            storage_hash: String::new(),
            stored_as: gvk.clone(),
            reset,
            reset_status,
            empty: OnceLock::new(),
            custom: Some(version),
            gvk,
        }
    }

    pub(crate) fn is_builtin(&self) -> bool {
        self.custom.is_none()
    }

    /// The type, for merging.
    pub(crate) fn schema(&self) -> Option<&Schema> {
        match &self.custom {
            None => builtin::schema(&self.gvk),
            Some(version) => version.schema.as_deref(),
        }
    }

    /// An object of the kind before anybody set a field.
    pub(crate) fn empty(&self) -> &Value {
        self.empty.get_or_init(|| {
            let mut value = json!({"apiVersion": self.gvk.api_version(), "kind": self.gvk.kind});
            if self.is_builtin() {
                builtin::encode(&self.gvk, &mut value);
            }
            value
        })
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// What refusals are about: the plural.
    pub(crate) fn subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        // The one kind whose refusals name it in the singular.
        let word = if self.plural == "componentstatuses" { "componentstatus" } else { &self.plural };
        Subject { group: &self.gvk.group, word, name }
    }

    /// What refusals of fields are about: the kind.
    pub(crate) fn subject_kind<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject { group: &self.gvk.group, word: &self.gvk.kind, name }
    }

    /// As in `deployments.apps`.
    pub(crate) fn qualified(&self) -> String {
        if self.gvk.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.gvk.group)
        }
    }
}

fn prefix(gvk: &GroupVersionKind) -> Bytes {
    Bytes::from(format!("{{\"apiVersion\":{},\"kind\":{},", json!(gvk.api_version()), json!(gvk.kind)))
}

/// A group in the order of discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Preferred first.
    pub(crate) versions: Vec<String>,
}

/// All kinds that are served at a moment.
pub(crate) struct Kinds {
    by_path: HashMap<(String, String, String), Arc<Kind>>,
    by_kind: HashMap<(String, String, String), Arc<Kind>>,
    by_table: HashMap<Arc<str>, Arc<Kind>>,
    pub(crate) groups: Vec<Group>,
    /// In the order of discovery, by group and version.
    pub(crate) ordered: BTreeMap<(String, String), Vec<Arc<Kind>>>,
    /// Counts changes.
    pub(crate) generation: u64,
}

impl Kinds {
    /// The built-in kinds and these custom ones.
    pub(crate) fn new(custom: Vec<Arc<Kind>>, generation: u64) -> Self {
        static BUILTIN: OnceLock<Vec<Arc<Kind>>> = OnceLock::new();
        let builtin_kinds =
            BUILTIN.get_or_init(|| builtin::resources().iter().map(Kind::builtin).map(Arc::new).collect());
        let mut groups: Vec<Group> = builtin::groups()
            .iter()
            .map(|group| Group { name: group.name.clone(), versions: group.versions.clone() })
            .collect();
        let mut out = Self {
            by_path: HashMap::new(),
            by_kind: HashMap::new(),
            by_table: HashMap::new(),
            groups: Vec::new(),
            ordered: BTreeMap::new(),
            generation,
        };
        for kind in &custom {
            match groups.iter_mut().find(|group| group.name == kind.gvk.group) {
                Some(group) if group.versions.contains(&kind.gvk.version) => {}
                Some(group) => {
                    group.versions.push(kind.gvk.version.clone());
                    group.versions.sort_by(|a, b| version_order(b, a));
                }
                None => groups
                    .push(Group { name: kind.gvk.group.clone(), versions: vec![kind.gvk.version.clone()] }),
            }
        }
        for kind in builtin_kinds.iter().cloned().chain(custom) {
            let gvk = &kind.gvk;
            let path = (gvk.group.clone(), gvk.version.clone(), kind.plural.clone());
            let name = (gvk.group.clone(), gvk.version.clone(), gvk.kind.clone());
            out.ordered.entry((gvk.group.clone(), gvk.version.clone())).or_default().push(kind.clone());
            out.by_path.insert(path, kind.clone());
            if kind.stored_as == kind.gvk && kind.custom.as_ref().is_none_or(|version| version.stored) {
                out.by_table.insert(kind.table.clone(), kind.clone());
            } else {
                out.by_table.entry(kind.table.clone()).or_insert_with(|| kind.clone());
            }
            out.by_kind.insert(name, kind);
        }
        out.groups = groups;
        out
    }

    pub(crate) fn at(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub(crate) fn of(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.by_kind.get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
    }

    /// The kind that a table is stored as.
    pub(crate) fn of_table(&self, table: &str) -> Option<&Arc<Kind>> {
        self.by_table.get(table)
    }

    /// The kind named by an owner reference.
    pub(crate) fn of_api_version(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.of(group, version, kind)
    }

    /// Whether a version of a group is served.
    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.ordered.contains_key(&(group.to_owned(), version.to_owned()))
    }

    pub(crate) fn has_group_version(&self, api_version: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.ordered.contains_key(&(group.to_owned(), version.to_owned()))
    }
}

/// Kubernetes' order of versions: stable before beta before alpha, then by number, others by name.
pub(crate) fn version_order(a: &str, b: &str) -> std::cmp::Ordering {
    fn parse(text: &str) -> Option<(u8, u32, u32)> {
        let rest = text.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..digits].parse().ok()?;
        let rest = &rest[digits..];
        if rest.is_empty() {
            return Some((2, major, 0));
        }
        let (rank, rest) = match rest.strip_prefix("beta") {
            Some(rest) => (1, rest),
            None => (0, rest.strip_prefix("alpha")?),
        };
        Some((rank, major, rest.parse().ok()?))
    }
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Greater,
        (None, Some(_)) => std::cmp::Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_stability_and_number() {
        let mut versions = vec!["v1alpha1", "foo", "v2", "v1beta2", "v10", "v1", "v1beta1", "bar"];
        versions.sort_by(|a, b| version_order(b, a));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo"]);
    }
}
