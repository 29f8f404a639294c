//! The fix-up of references once all names are final: fields that hold the old name of a resource get
//! the new one.

use std::collections::{HashMap, HashSet};

use crate::error::{Context as _, Error, Result};
use crate::fieldspec::FieldSpec;
use crate::id::{Gvk, NOT_NAMESPACED, ResourceId};
use crate::node::{Node, Scalar, Tag, Text, wrong_kind};
use crate::resource::Resource;
use crate::resources::Resources;
use crate::schema::Schema;
use crate::tables::NameReference;

/// What is known about one possible target of references, fixed before anything is rewritten.
struct Candidate {
    name: Text,
    namespace: Text,
    effective_namespace: Text,
    original_namespace: Text,
    cluster_scoped: bool,
    is_service_account: bool,
    previous: Vec<ResourceId>,
    prefixes: Vec<Text>,
    suffixes: Vec<Text>,
}

struct Index {
    candidates: Vec<Candidate>,
    /// Positions by every previous name.
    by_name: HashMap<Text, Vec<usize>>,
    /// One candidate for each way to reach those of an original namespace.
    by_original_namespace: HashMap<Text, HashMap<(Text, Text), usize>>,
}

/// Rewrites all name references.
///
/// # Errors
/// A reference fits several resources, or a field of the table holds something it must not.
pub(crate) fn fix(resources: &mut Resources, table: &[NameReference], schema: &Schema) -> Result<()> {
    let index = Index::new(resources.list(), schema);
    let rows: Vec<(&Gvk, &FieldSpec)> = table
        .iter()
        .flat_map(|reference| reference.referrers.iter().map(move |spec| (&reference.target, spec)))
        .collect();
    let mut rows_of: HashMap<Gvk, Vec<usize>> = HashMap::new();
    let mut renamed = false;
    for position in 0..resources.list().len() {
        let resource = &resources.list()[position];
        let original = resource.original_id(schema).gvk;
        let selected = rows_of.entry(original.clone()).or_insert_with(|| {
            (0..rows.len()).filter(|row| original.is_selected_by(&rows[*row].1.gvk)).collect()
        });
        let role_binding_namespaces = role_binding_namespaces(resource, schema)?;
        if selected.is_empty() {
            continue;
        }
        let current = resource.current_id(schema);
        let selected = selected.clone();
        let role_ref = role_ref(&resource.node);
        let resource = &mut resources.list_mut_same_ids()[position];
        let mut node = std::mem::replace(&mut resource.node, Node::null());
        let referrer = Referrer {
            index: &index,
            current: &current,
            prefixes: &resource.prefixes,
            suffixes: &resource.suffixes,
            role_binding_namespaces: &role_binding_namespaces,
        };
        let mut outcome = Ok(());
        for row in selected {
            let (target, spec) = rows[row];
            let row_role_ref = if spec.path.ends_with("roleRef/name") { role_ref.as_ref() } else { None };
            let fixer = Fixer { referrer: &referrer, target, role_ref: row_role_ref };
            outcome = spec
                .visit_selected(&mut node, None, &mut |field| fixer.set(field))
                .context(|| format!("updating name reference in '{}' field of '{current}'", spec.path));
            if outcome.is_err() {
                break;
            }
        }
        let resource = &mut resources.list_mut_same_ids()[position];
        resource.node = node;
        resource.settle_links();
        outcome?;
        renamed |= spec_touches_identity(&rows);
    }
    if renamed {
        resources.list_mut();
    }
    Ok(())
}

/// Whether a user's row may rewrite names themselves.
fn spec_touches_identity(rows: &[(&Gvk, &FieldSpec)]) -> bool {
    rows.iter().any(|(_, spec)| spec.path.starts_with("metadata/name"))
}

impl Index {
    fn new(list: &[Resource], schema: &Schema) -> Self {
        let mut by_name: HashMap<Text, Vec<usize>> = HashMap::new();
        let mut candidates = Vec::with_capacity(list.len());
        let mut by_original_namespace: HashMap<Text, HashMap<(Text, Text), usize>> = HashMap::new();
        for (position, resource) in list.iter().enumerate() {
            let current = resource.current_id(schema);
            let previous: Vec<ResourceId> = resource.previous_ids().collect();
            for id in &previous {
                let positions = by_name.entry(id.name.clone()).or_default();
                if positions.last() != Some(&position) {
                    positions.push(position);
                }
            }
            let original_namespace = previous
                .first()
                .map_or_else(|| current.effective_namespace().into(), |id| id.effective_namespace().into());
            let original_namespace: Text = original_namespace;
            by_original_namespace
                .entry(original_namespace.clone())
                .or_default()
                .entry((current.effective_namespace().into(), current.namespace.clone()))
                .or_insert(position);
            candidates.push(Candidate {
                effective_namespace: current.effective_namespace().into(),
                original_namespace,
                cluster_scoped: current.cluster_scoped,
                is_service_account: current.gvk.kind == "ServiceAccount",
                name: current.name,
                namespace: current.namespace,
                previous,
                prefixes: resource.prefixes.clone(),
                suffixes: resource.suffixes.clone(),
            });
        }
        Self { candidates, by_name, by_original_namespace }
    }
}

struct Referrer<'a> {
    index: &'a Index,
    current: &'a ResourceId,
    prefixes: &'a [Text],
    suffixes: &'a [Text],
    role_binding_namespaces: &'a HashSet<String>,
}

impl Referrer<'_> {
    /// Whether the candidate lies where this resource can see it at all.
    fn reaches(&self, candidate: &Candidate) -> bool {
        self.current.cluster_scoped
            || candidate.cluster_scoped
            || candidate.effective_namespace == self.current.effective_namespace()
            || self.role_binding_namespaces.contains(candidate.namespace.as_str())
    }

    fn in_same_namespace(&self, candidate: &Candidate) -> bool {
        self.current.cluster_scoped
            || candidate.cluster_scoped
            || candidate.is_service_account
            || candidate.effective_namespace == self.current.effective_namespace()
    }
}

struct Fixer<'a> {
    referrer: &'a Referrer<'a>,
    target: &'a Gvk,
    role_ref: Option<&'a Gvk>,
}

impl<'a> Fixer<'a> {
    fn set(&self, field: &mut Node) -> Result<()> {
        match field {
            Node::Scalar(scalar) if scalar.is_null() => Ok(()),
            Node::Scalar(_) => self.set_scalar(field),
            Node::Map(_) => self.set_map(field),
            Node::List(items) => {
                for item in items {
                    match item {
                        Node::Scalar(scalar) if scalar.is_null() => {}
                        Node::Scalar(_) => self.set_scalar(item)?,
                        Node::Map(_) => self.set_map(item)?,
                        Node::List(_) => return Err(wrong_kind("string or map", item)),
                    }
                }
                Ok(())
            }
        }
    }

    fn set_scalar(&self, node: &mut Node) -> Result<()> {
        let old = node.text();
        let Some(target) = self.find(old, None, |left, right| left.name == right.name)? else {
            return Ok(());
        };
        if target.name == old {
            return Ok(());
        }
        node.set_scalar(target.name.clone(), Tag::Unset)
    }

    fn set_map(&self, node: &mut Node) -> Result<()> {
        let Node::Map(map) = node else { return Ok(()) };
        let Some(name) = map.get("name") else {
            return Err(Error::message("path config error; no 'name' field in node"));
        };
        let old = Text::from(name.text());
        let namespace = map.get("namespace").map(|value| Text::from(value.text()));
        let same = |left: &Candidate, right: &Candidate| {
            left.name == right.name && left.namespace == right.namespace
        };
        let Some(target) = self.find(&old, namespace.as_deref(), same)? else { return Ok(()) };
        if target.name == old && target.namespace.is_empty() {
            return Ok(());
        }
        map.set_scalar("name", Scalar::untyped(target.name.clone()));
        if !target.namespace.is_empty() {
            map.set_scalar("namespace", Scalar::untyped(target.namespace.clone()));
        }
        Ok(())
    }

    /// The one resource the old name stands for, or `None`.
    fn find(
        &self,
        old: &str,
        namespace: Option<&str>,
        identical: impl Fn(&Candidate, &Candidate) -> bool,
    ) -> Result<Option<&'a Candidate>> {
        let referrer = self.referrer;
        let Some(positions) = referrer.index.by_name.get(old) else { return Ok(None) };
        let in_reach = |position: &&usize| referrer.reaches(&referrer.index.candidates[**position]);
        let mut found: Vec<&Candidate> =
            positions.iter().filter(in_reach).map(|position| &referrer.index.candidates[*position]).collect();
        if let Some(namespace) = namespace {
            // Original namespaces count first, over all resources, not only those of this name.
            let fits = |candidate: &Candidate, original: bool| {
                let own =
                    if original { &candidate.original_namespace } else { &candidate.effective_namespace };
                own == namespace && own != NOT_NAMESPACED
            };
            let by_original = namespace != NOT_NAMESPACED
                && referrer.index.by_original_namespace.get(namespace).is_some_and(|ways| {
                    ways.values().any(|position| referrer.reaches(&referrer.index.candidates[*position]))
                });
            found.retain(|candidate| fits(candidate, by_original));
        }
        found.retain(|candidate| {
            candidate.previous.iter().any(|id| id.gvk.is_selected_by(self.target))
                && self
                    .role_ref
                    .is_none_or(|wanted| candidate.previous.iter().any(|id| id.gvk.is_selected_by(wanted)))
                && referrer.in_same_namespace(candidate)
        });
        if found.len() != 1 {
            found.retain(|candidate| self.same_affixes(candidate, true));
            if found.len() > 1 {
                found.retain(|candidate| self.same_affixes(candidate, false));
            }
        }
        match found.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            [first, rest @ ..] if rest.iter().all(|other| identical(first, other)) => Ok(Some(first)),
            many => {
                let ids: Vec<String> = many
                    .iter()
                    .map(|candidate| {
                        let gvk =
                            candidate.previous.first().map_or_else(String::new, |id| id.gvk.to_string());
                        let namespace =
                            if candidate.namespace.is_empty() { "[noNs]" } else { &candidate.namespace };
                        format!("{gvk}/{}.{namespace}", candidate.name)
                    })
                    .collect();
                Err(Error::message(format!("found multiple possible referrals: {}", ids.join(", "))))
            }
        }
    }

    fn same_affixes(&self, candidate: &Candidate, allow_empty: bool) -> bool {
        let fits = |left: &[Text], right: &[Text]| {
            (allow_empty && (left.is_empty() || right.is_empty())) || same_ending(left, right)
        };
        fits(&candidate.prefixes, self.referrer.prefixes) && fits(&candidate.suffixes, self.referrer.suffixes)
    }
}

/// Whether the shorter list is the tail of the longer; an empty one only equals an empty one.
fn same_ending(left: &[Text], right: &[Text]) -> bool {
    let (short, long) = if left.len() < right.len() { (left, right) } else { (right, left) };
    if short.is_empty() {
        return long.is_empty();
    }
    long.ends_with(short)
}

/// The group and kind a role binding refers to.
fn role_ref(object: &Node) -> Option<Gvk> {
    let role = object.get("roleRef")?;
    Some(Gvk::new(role.get("apiGroup")?.text(), "", role.get("kind")?.text()))
}

/// Namespaces of the service accounts a role binding lists.
fn role_binding_namespaces(resource: &Resource, schema: &Schema) -> Result<HashSet<String>> {
    let mut namespaces = HashSet::new();
    if resource.kind() != "RoleBinding" {
        return Ok(namespaces);
    }
    if let Some(Node::List(subjects)) = resource.node.get("subjects") {
        for subject in subjects {
            let is_account = subject.get("kind").is_some_and(|kind| kind.text() == "ServiceAccount");
            let Some(namespace) = subject.get("namespace").filter(|_| is_account) else { continue };
            match namespace.as_scalar().filter(|scalar| !scalar.is_null()) {
                Some(scalar) => {
                    namespaces.insert(scalar.text.to_string());
                }
                None => {
                    return Err(Error::message(format!(
                        "Invalid Input: namespace is blank for resource \"{}\"",
                        resource.current_id(schema)
                    )));
                }
            }
        }
    }
    Ok(namespaces)
}
