//! The namespace transformer.

use crate::error::{Context as _, Error, Result};
use crate::fieldspec::{Create, FieldSpec, FieldSpecs};
use crate::id::Gvk;
use crate::node::{Node, Scalar, Tag};
use crate::resources::Resources;
use crate::schema::Schema;

/// Which subjects of role bindings get the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SubjectMode {
    /// Those named `default`.
    #[default]
    DefaultOnly,
    AllServiceAccounts,
    None,
}

impl SubjectMode {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "" | "defaultOnly" => Ok(Self::DefaultOnly),
            "allServiceAccounts" => Ok(Self::AllServiceAccounts),
            "none" => Ok(Self::None),
            other => Err(Error::message(format!(
                "invalid value \"{other}\" for setRoleBindingSubjects: must be one of \"defaultOnly\", \"none\" or \"allServiceAccounts\""
            ))),
        }
    }
}

#[derive(Debug)]
pub(crate) struct NamespaceOptions {
    pub(crate) namespace: String,
    pub(crate) specs: FieldSpecs,
    pub(crate) unset_only: bool,
    pub(crate) subjects: SubjectMode,
}

impl NamespaceOptions {
    pub(crate) fn apply(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        if self.namespace.is_empty() {
            return Ok(());
        }
        let metadata = FieldSpec::new(Gvk::default(), "metadata/namespace", true);
        for resource in resources.list_mut() {
            if resource.is_empty()
                || resource.annotation("internal.config.kubernetes.io/helm-generated") == Some("true")
            {
                continue;
            }
            resource.store_previous_id(schema);
            self.apply_to(&mut resource.node, &metadata, schema)?;
            resource.settle_links();
        }
        for position in 0..resources.list().len() {
            let id = resources.list()[position].current_id(schema);
            let same = resources.with_current_id(&id, schema);
            if same.len() != 1 {
                let objects: Vec<String> = same
                    .iter()
                    .map(|position| resources.list()[*position].node.to_json().map(|value| value.to_string()))
                    .collect::<Result<_>>()?;
                return Err(Error::message(format!(
                    "namespace transformation produces ID conflict: [{}]",
                    objects.join(" ")
                )));
            }
        }
        Ok(())
    }

    fn apply_to(&self, object: &mut Node, metadata: &FieldSpec, schema: &Schema) -> Result<()> {
        let gvk = Gvk::of(object);
        let in_core = crate::id::api_version(object) == "v1";
        let is_binding = matches!(gvk.kind.as_str(), "RoleBinding" | "ClusterRoleBinding");
        if !schema.is_cluster_scoped(&gvk) {
            metadata.visit(object, Some(Create::Scalar(Tag::Unset)), &mut |node| self.set(node))?;
        }
        if is_binding {
            self.set_subjects(object)?;
        }
        for spec in &self.specs {
            let skipped = spec.path == "metadata/namespace"
                || (spec.path == "metadata/name" && !in_core)
                || (is_binding
                    && spec.path == "subjects/namespace"
                    && matches!(spec.gvk.kind.as_str(), "RoleBinding" | "ClusterRoleBinding"));
            if skipped || !gvk.is_selected_by(&spec.gvk) {
                continue;
            }
            let mut structured = false;
            spec.visit_selected(object, Some(Create::Scalar(Tag::String)), &mut |node| {
                structured |= node.as_scalar().is_none();
                self.set(node)
            })
            .map_err(|error| {
                error.within(if structured {
                    "namespace field specs must target scalar nodes"
                } else {
                    "namespace transformation failed"
                })
            })?;
        }
        Ok(())
    }

    fn set(&self, node: &mut Node) -> Result<()> {
        if self.unset_only && !node.value_text().is_empty() {
            return Ok(());
        }
        node.set_scalar(self.namespace.as_str(), Tag::String)
    }

    fn set_subjects(&self, object: &mut Node) -> Result<()> {
        let (field, wanted) = match self.subjects {
            SubjectMode::None => return Ok(()),
            SubjectMode::DefaultOnly => ("name", "default"),
            SubjectMode::AllServiceAccounts => ("kind", "ServiceAccount"),
        };
        let Some(subjects) = object.get_mut("subjects").filter(|node| !node.is_null()) else {
            return Ok(());
        };
        let Node::List(list) = subjects else {
            return Err(crate::node::wrong_kind("SequenceNode", subjects));
        };
        for subject in list {
            let selected = subject.get(field).is_some_and(|value| value.value_text() == wanted);
            let Some(map) = subject.as_map_mut().filter(|_| selected) else { continue };
            if map.get("namespace").is_none() {
                map.push("namespace", Node::Scalar(Scalar::untyped("")));
            }
            if let Some(node) = map.get_mut("namespace") {
                self.set(node)
                    .context(|| "setting namespace on (cluster)role binding subjects".to_owned())?;
            }
        }
        Ok(())
    }
}
