//! Where the chart of a release comes from, and what it is called. Pure.

use serde_json::{Value as Json, json};
use weir_api::condition::{self, Condition};
use weir_api::helm::{ChartReferenceKind, HelmChartTemplate, HelmRelease};
use weir_api::names::{condition as types, label};
use weir_api::{Artifact, FluxObject};
use weir_base::version::Version;
use weir_helm::chart::Chart;

use crate::spec;

/// The kind of an object that gives a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SourceKind {
    HelmChart,
    OCIRepository,
    ExternalArtifact,
}

impl SourceKind {
    /// The kind as written in objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HelmChart => "HelmChart",
            Self::OCIRepository => "OCIRepository",
            Self::ExternalArtifact => "ExternalArtifact",
        }
    }
}

/// The object a release takes its chart from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceName {
    /// Its kind.
    pub kind: SourceKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl SourceName {
    /// `Kind/namespace/name`
    pub fn key(&self) -> String {
        format!("{}/{}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// The object the spec refers to; with a template, the HelmChart it makes.
pub fn source_name(object: &HelmRelease) -> Option<SourceName> {
    if let Some(reference) = &object.spec.chart_ref {
        let kind = match reference.kind {
            ChartReferenceKind::OCIRepository => SourceKind::OCIRepository,
            ChartReferenceKind::HelmChart => SourceKind::HelmChart,
            ChartReferenceKind::ExternalArtifact => SourceKind::ExternalArtifact,
        };
        let namespace = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        return Some(SourceName {
            kind,
            namespace: namespace.unwrap_or(spec::namespace(object)).to_owned(),
            name: reference.name.clone(),
        });
    }
    let template = object.spec.chart.as_ref()?;
    Some(SourceName {
        kind: SourceKind::HelmChart,
        namespace: template_namespace(object, template).to_owned(),
        name: template_name(object),
    })
}

/// The name of the HelmChart of a template.
pub fn template_name(object: &HelmRelease) -> String {
    format!("{}-{}", spec::namespace(object), spec::name(object))
}

/// The namespace of the HelmChart of a template: that of its source.
pub fn template_namespace<'a>(object: &'a HelmRelease, template: &'a HelmChartTemplate) -> &'a str {
    let namespace = template.spec.source_ref.namespace.as_deref();
    namespace.filter(|namespace| !namespace.is_empty()).unwrap_or(spec::namespace(object))
}

/// The HelmChart of a template.
pub fn from_template(object: &HelmRelease, template: &HelmChartTemplate) -> Json {
    let spec = &template.spec;
    let mut metadata = serde_json::to_value(&template.metadata).unwrap_or_default();
    if !metadata.is_object() {
        metadata = json!({});
    }
    metadata["name"] = template_name(object).into();
    metadata["namespace"] = template_namespace(object, template).into();
    metadata["labels"][label::HELM_NAME] = self::spec::name(object).into();
    metadata["labels"][label::HELM_NAMESPACE] = self::spec::namespace(object).into();
    let mut chart = json!({
        "chart": spec.chart,
        "interval": spec.interval.unwrap_or(object.spec.interval).to_string(),
        "reconcileStrategy": spec.reconcile_strategy.as_str(),
        "sourceRef": {"kind": spec.source_ref.kind.as_str(), "name": spec.source_ref.name},
        "version": spec.version,
    });
    if !spec.values_files.is_empty() {
        chart["valuesFiles"] = json!(spec.values_files);
    }
    if spec.ignore_missing_values_files {
        chart["ignoreMissingValuesFiles"] = true.into();
    }
    if let Some(verify) = &spec.verify {
        chart["verify"] = serde_json::to_value(verify).unwrap_or_default();
    }
    json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "HelmChart",
        "metadata": metadata,
        "spec": chart,
    })
}

/// What of a source matters to a release.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// Its artifact.
    pub artifact: Option<Artifact>,
    /// Its generation.
    pub generation: i64,
    /// The generation it was reconciled at; `None` where that does not matter.
    pub observed_generation: Option<i64>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

impl Source {
    /// What of a source matters.
    pub fn of<K: FluxObject>(source: &K, artifact: Option<&Artifact>) -> Self {
        Self {
            artifact: artifact.cloned(),
            generation: source.generation(),
            observed_generation: source.observed_generation(),
            conditions: source.conditions().to_vec(),
        }
    }

    /// The artifact, if the source is ready; otherwise why not. One that failed last, but has an artifact of
    /// its current spec, is good enough.
    ///
    /// # Errors
    /// Why it is not ready.
    pub fn ready(&self, name: &SourceName) -> Result<&Artifact, String> {
        let not = |why: &str| {
            let (kind, namespace, name) = (name.kind.as_str(), &name.namespace, &name.name);
            format!("{kind} '{namespace}/{name}' is not ready: {why}")
        };
        if name.kind != SourceKind::ExternalArtifact {
            if let Some(observed) = self.observed_generation
                && observed != self.generation
            {
                let ready = condition::get(&self.conditions, types::READY);
                let failed = ready.filter(|_| condition::is_false(&self.conditions, types::READY));
                let message = failed.map(|ready| ready.message.as_str());
                return Err(not(message.unwrap_or("latest generation of object has not been reconciled")));
            }
            if condition::is_stalled(&self.conditions) {
                let stalled = condition::get(&self.conditions, types::STALLED);
                return Err(not(stalled.map(|stalled| stalled.message.as_str()).unwrap_or_default()));
            }
        }
        self.artifact.as_ref().ok_or_else(|| not("does not have an artifact"))
    }
}

/// The digest an artifact of a registry is known by goes into the version of the chart.
///
/// Gives the digest to be put on record, or nothing if the source has none.
///
/// # Errors
/// A revision that is none, or that is not of this chart.
pub fn track_digest(
    chart: &mut Chart,
    kind: SourceKind,
    revision: &str,
    keep_version: bool,
) -> Result<Option<String>, String> {
    let tracked = match kind {
        SourceKind::HelmChart => false,
        SourceKind::OCIRepository => true,
        SourceKind::ExternalArtifact => revision.contains(':'),
    };
    if !tracked {
        return Ok(None);
    }
    let given = chart.metadata.version.clone();
    let version = Version::parse(&given).map_err(|error| error.to_string())?;
    let tagged = revision
        .split_once('@')
        .and_then(|(tag, digest)| Some((tag, digest, Version::parse(&tag.replace('_', "+")).ok()?)));
    let digest = match tagged {
        Some((tag, digest, of_tag)) => {
            if of_tag.cmp(&version).is_ne() {
                return Err(format!("artifact revision {tag} does not match chart version {given}"));
            }
            digest
        }
        None => revision,
    };
    let invalid = || format!("invalid artifact revision {revision}");
    let hex = match digest.split(':').collect::<Vec<_>>()[..] {
        [_, hex] if hex.len() >= 12 && hex.is_char_boundary(12) => &hex[..12],
        _ => return Err(invalid()),
    };
    if !keep_version {
        let canonical = version.to_string();
        let base = canonical.split('+').next().unwrap_or_default();
        chart.metadata.version = format!("{base}+{hex}");
    }
    Ok(Some(digest.to_owned()))
}

#[cfg(test)]
mod tests;
