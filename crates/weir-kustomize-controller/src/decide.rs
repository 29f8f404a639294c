//! What follows from a Kustomization and from what was observed. Pure.

use std::time::Duration;

use serde_json::Value;
use weir_api::kustomize::{
    DeletionPolicy, Kustomization, KustomizationSourceKind, KustomizationSpec, SubstituteStrategy,
};
use weir_api::names::condition as types;
use weir_api::{Artifact, FluxObject, GoDuration, condition};
use weir_apply::expression::{Expression, ExpressionError, Numbers, Output};
use weir_apply::health::{CustomChecks, Source as CheckSource};
use weir_apply::ignore::{Rule, Target as IgnoreTarget};
use weir_apply::inventory::Inventory;
use weir_apply::object::ObjectRef;
use weir_apply::policy::Owner;

use crate::error::{Cause, Facts};
use crate::settings::Settings;
use weir_runtime::FeatureGates;

/// The API group of Kustomizations and prefix of all keys on managed objects.
pub const GROUP: &str = "kustomize.toolkit.fluxcd.io";
/// The shortest effective timeout.
const TIMEOUT_MIN: Duration = Duration::from_secs(30);
/// The artifact metadata that names the revision of its origin.
const ORIGIN_REVISION: &str = "org.opencontainers.image.revision";

/// A duration as Go prints it.
pub fn go(duration: Duration) -> String {
    GoDuration::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
}

/// How long health checks and terminations may take: `timeout`, else the interval less 30 seconds;
/// never less than 30 seconds.
pub fn timeout(spec: &KustomizationSpec) -> Duration {
    let wanted =
        spec.timeout.map_or_else(|| spec.interval.to_std().saturating_sub(TIMEOUT_MIN), GoDuration::to_std);
    wanted.max(TIMEOUT_MIN)
}

/// How long after a failure the next attempt is made.
pub fn retry_interval(spec: &KustomizationSpec) -> Duration {
    spec.retry_interval.unwrap_or(spec.interval).to_std()
}

/// Whether the managed objects are deleted with the Kustomization.
pub fn deletes_objects(spec: &KustomizationSpec) -> bool {
    if spec.suspend {
        return false;
    }
    match spec.deletion_policy.unwrap_or(DeletionPolicy::MirrorPrune) {
        DeletionPolicy::MirrorPrune => spec.prune,
        DeletionPolicy::Delete | DeletionPolicy::WaitForTermination => true,
        DeletionPolicy::Orphan => false,
    }
}

/// Whether variables are substituted even when there are none.
pub fn always_substitutes(spec: &KustomizationSpec) -> bool {
    let strategy = spec.post_build.as_ref().and_then(|post_build| post_build.substitute_strategy);
    strategy == Some(SubstituteStrategy::Always)
}

/// The account impersonated for the managed objects; empty for none.
pub fn service_account<'a>(spec: &'a KustomizationSpec, settings: &'a Settings) -> &'a str {
    match spec.service_account_name.as_deref() {
        Some(name) if !name.is_empty() => name,
        _ => &settings.default_service_account,
    }
}

/// The labels that mark what a Kustomization has applied.
pub fn owner(object: &Kustomization) -> Owner {
    Owner {
        group: GROUP.to_owned(),
        name: object.metadata.name.clone().unwrap_or_default(),
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
    }
}

/// Where the source is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SourceName {
    /// The kind.
    pub kind: &'static str,
    /// The plural name and group, for messages.
    pub resource: &'static str,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// `Kind/name`, or `Kind/namespace/name` if the spec names a namespace.
    pub reference: String,
}

/// The source a Kustomization is built from.
pub fn source_name(object: &Kustomization) -> SourceName {
    let reference = &object.spec.source_ref;
    let (kind, resource) = match reference.kind {
        KustomizationSourceKind::GitRepository => {
            ("GitRepository", "gitrepositories.source.toolkit.fluxcd.io")
        }
        KustomizationSourceKind::OCIRepository => {
            ("OCIRepository", "ocirepositories.source.toolkit.fluxcd.io")
        }
        KustomizationSourceKind::Bucket => ("Bucket", "buckets.source.toolkit.fluxcd.io"),
        KustomizationSourceKind::ExternalArtifact => {
            ("ExternalArtifact", "externalartifacts.source.toolkit.fluxcd.io")
        }
    };
    let named = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let own = object.metadata.namespace.as_deref().unwrap_or_default();
    SourceName {
        kind,
        resource,
        namespace: named.unwrap_or(own).to_owned(),
        name: reference.name.clone(),
        reference: match named {
            Some(namespace) => format!("{kind}/{namespace}/{}", reference.name),
            None => format!("{kind}/{}", reference.name),
        },
    }
}

/// Whether the source may be used.
///
/// # Errors
/// [`Cause::AccessDenied`].
pub fn check_access(object: &Kustomization, source: &SourceName, settings: &Settings) -> Result<(), Cause> {
    let denied = |why| {
        let source_name = format!("{}/{}/{}", source.kind, source.namespace, source.name);
        Err(Cause::AccessDenied { source_name, why })
    };
    if settings.no_cross_namespace_refs
        && Some(source.namespace.as_str()) != object.metadata.namespace.as_deref()
    {
        return denied("cross-namespace references have been blocked");
    }
    if source.kind == "ExternalArtifact" && !settings.gates.enabled("ExternalArtifact") {
        return denied("ExternalArtifact feature gate is disabled");
    }
    Ok(())
}

/// What is known about a run from its artifact.
pub fn facts(artifact: &Artifact) -> Facts {
    Facts {
        revision: artifact.revision.clone(),
        origin_revision: artifact.metadata.get(ORIGIN_REVISION).cloned().unwrap_or_default(),
        digest: None,
    }
}

/// Compiles the custom health checks.
///
/// # Errors
/// [`Cause::InvalidExpression`].
pub fn health_checks(spec: &KustomizationSpec, impersonates: bool) -> Result<CustomChecks, Cause> {
    let sources = spec.health_check_exprs.iter().map(|check| CheckSource {
        api_version: &check.api_version,
        kind: check.kind.as_deref().unwrap_or_default(),
        current: &check.current,
        in_progress: check.in_progress.as_deref().unwrap_or_default(),
        failed: check.failed.as_deref().unwrap_or_default(),
    });
    let mut checks =
        CustomChecks::compile(sources).map_err(|error| Cause::InvalidExpression(error.to_string()))?;
    checks.before_jobs = impersonates;
    Ok(checks)
}

/// The ignore rules of the spec.
pub fn ignore_rules(spec: &KustomizationSpec) -> Vec<Rule> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    spec.ignore
        .iter()
        .map(|rule| Rule {
            paths: rule.paths.clone(),
            target: rule.target.as_ref().map(|target| IgnoreTarget {
                group: text(&target.group),
                version: text(&target.version),
                kind: text(&target.kind),
                name: text(&target.name),
                namespace: text(&target.namespace),
                label_selector: text(&target.label_selector),
                annotation_selector: text(&target.annotation_selector),
            }),
        })
        .collect()
}

/// The inventory in the status; entries that cannot be read are left out.
pub fn inventory(object: &Kustomization) -> Inventory {
    let entries = object.status.as_ref().and_then(|status| status.inventory.as_ref());
    let entries = entries.into_iter().flat_map(|inventory| &inventory.entries);
    let (inventory, invalid) = Inventory::parse(entries.map(|entry| (entry.id.as_str(), entry.v.as_str())));
    for error in invalid {
        tracing::debug!(error = %error, "ignoring an inventory entry");
    }
    inventory
}

/// Whether every step of the run is shown in the status: something is new, was asked for, or is not
/// in order. Otherwise the run only speaks up when it finds something to do.
pub fn shows_progress(object: &Kustomization, artifact: &Artifact) -> bool {
    let Some(status) = &object.status else { return true };
    let requested = object.requested_at();
    !condition::is_ready(&status.conditions)
        || status.observed_generation != object.generation()
        || status.last_applied_revision.as_deref() != Some(artifact.revision.as_str())
        || status.last_attempted_revision.as_deref() != Some(artifact.revision.as_str())
        || (requested.is_some() && requested != status.last_handled_reconcile_at.as_deref())
}

/// A dependency as it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Dependency {
    /// The name as in the spec.
    pub name: String,
    /// `namespace/name`.
    pub full_name: String,
    /// The object, or why it could not be read.
    pub found: Result<Box<Kustomization>, String>,
    /// The expression that decides about it.
    pub ready_expression: Option<String>,
}

/// Whether every dependency is ready.
///
/// # Errors
/// [`Cause::Dependency`] for the first that is not; [`Cause::InvalidExpression`].
pub fn check_dependencies(
    object: &Kustomization,
    dependencies: &[Dependency],
    revision: &str,
    gates: &FeatureGates,
) -> Result<(), Cause> {
    for dependency in dependencies {
        let full_name = &dependency.full_name;
        let found = match &dependency.found {
            Ok(found) => found,
            Err(error) => {
                return Err(Cause::Dependency(format!("dependency '{full_name}' not found: {error}")));
            }
        };
        if let Some(source) = &dependency.ready_expression {
            let expression =
                Expression::compile(source, Output::Boolean, &["self", "dep"]).map_err(|error| {
                    Cause::InvalidExpression(format!(
                        "failed to evaluate dependency {}: {error}",
                        dependency.name
                    ))
                })?;
            if !is_ready_by_expression(&expression, object, found)? {
                return Err(Cause::Dependency(format!(
                    "dependency '{full_name}' is not ready according to readyExpr eval"
                )));
            }
            if !gates.enabled("AdditiveCELDependencyCheck") {
                continue;
            }
        }
        let not_ready = || Cause::Dependency(format!("dependency '{full_name}' is not ready"));
        let conditions = found.conditions();
        if conditions.is_empty() || found.observed_generation() != Some(found.generation()) {
            return Err(not_ready());
        }
        if !condition::is_true(conditions, types::READY) {
            return Err(not_ready());
        }
        let applied = found.status.as_ref().and_then(|status| status.last_applied_revision.as_deref());
        if is_same_source(object, found) && applied != Some(revision) {
            return Err(Cause::Dependency(format!("dependency '{full_name}' revision is not up to date")));
        }
    }
    Ok(())
}

fn is_ready_by_expression(
    expression: &Expression,
    object: &Kustomization,
    dependency: &Kustomization,
) -> Result<bool, Cause> {
    let value = |object: &Kustomization| {
        serde_json::to_value(object).map_err(|error| Cause::Dependency(error.to_string()))
    };
    let (own, other): (Value, Value) = (value(object)?, value(dependency)?);
    match expression.evaluate([("self", &own), ("dep", &other)], Numbers::Doubles) {
        Ok(ready) => Ok(ready),
        Err(error @ ExpressionError::NotBoolean { .. }) => Err(Cause::InvalidExpression(error.to_string())),
        Err(error) => Err(Cause::Dependency(error.to_string())),
    }
}

fn is_same_source(left: &Kustomization, right: &Kustomization) -> bool {
    let (left, right) = (source_name(left), source_name(right));
    (left.kind, left.namespace, left.name) == (right.kind, right.namespace, right.name)
}

/// The objects of `spec.healthChecks`.
pub fn listed_checks(spec: &KustomizationSpec) -> Vec<ObjectRef> {
    spec.health_checks
        .iter()
        .map(|check| {
            let api_version =
                check.api_version.as_deref().filter(|text| !text.is_empty()).unwrap_or("apps/v1");
            let (group, version) = weir_apply::object::split_api_version(api_version);
            ObjectRef {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: check.kind.clone(),
                namespace: check.namespace.clone().unwrap_or_default(),
                name: check.name.clone(),
            }
        })
        .collect()
}

/// Whether a health check is about the Kustomization itself.
pub fn is_self(object: &Kustomization, target: &ObjectRef) -> bool {
    target.kind == "Kustomization"
        && Some(target.name.as_str()) == object.metadata.name.as_deref()
        && Some(target.namespace.as_str()) == object.metadata.namespace.as_deref()
}

#[cfg(test)]
mod tests;
