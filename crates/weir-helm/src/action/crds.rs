//! Applies the definitions under `crds/` of a chart.

use std::time::Duration;

use serde_json::Value as Json;
use weir_apply::health::{CustomChecks, Target, Wait, wait};
use weir_apply::object::ObjectRef;
use weir_apply::write::WriteOptions;

use super::{ActionError, Context};
use crate::chart::Chart;

/// How long the definitions may take to be established.
const TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// What happens to the definitions of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrdPolicy {
    /// Nothing.
    Skip,
    /// Missing ones are created.
    Create,
    /// Missing ones are created, others replaced; none is deleted.
    CreateReplace,
}

/// The definitions of a chart and its subcharts, and the names of other objects found among them.
///
/// # Errors
/// A file that does not parse.
pub fn definitions(chart: &Chart) -> Result<(Vec<Json>, Vec<String>), ActionError> {
    let mut definitions = Vec::new();
    let mut others = Vec::new();
    for file in chart.crds() {
        let extension = file.name.rsplit('.').next().unwrap_or_default();
        if !["yaml", "yml", "json"].contains(&extension) {
            continue;
        }
        let documents = weir_manifest::read_documents(&file.data, &file.name).map_err(|error| {
            ActionError::Crds(format!(
                "failed to parse CustomResourceDefinitions from {}: {error}",
                file.name
            ))
        })?;
        for document in documents {
            let reference = ObjectRef::of(&document);
            if reference.is_kind("apiextensions.k8s.io", "CustomResourceDefinition") {
                definitions.push(document);
            } else if !document.is_null() {
                others.push(format!("{reference} in {}", file.name));
            }
        }
    }
    Ok((definitions, others))
}

/// Applies the definitions of a chart as the policy says and waits until they are served; the objects.
///
/// `mark` is called on each before it is sent.
///
/// # Errors
/// A definition that is refused, or not established within a minute.
pub async fn apply_crds(
    context: &Context<'_>,
    chart: &Chart,
    policy: CrdPolicy,
    server_side: bool,
    mark: &(dyn Fn(&mut Json) + Send + Sync),
) -> Result<Vec<Json>, ActionError> {
    if policy == CrdPolicy::Skip {
        return Ok(Vec::new());
    }
    let (mut definitions, others) = definitions(chart)?;
    for other in others {
        tracing::warn!(object = other, "skipping an object in crds/ that is not a CustomResourceDefinition");
    }
    let options = WriteOptions { manager: context.manager, strict: false };
    for definition in &mut definitions {
        mark(definition);
        let reference = ObjectRef::of(definition);
        let told = |error: &dyn std::fmt::Display| {
            ActionError::Crds(format!("failed to apply CustomResourceDefinition {}: {error}", reference.name))
        };
        if server_side {
            context.cluster.apply_as(definition, true, options).await.map_err(|error| told(&error))?;
            continue;
        }
        match context.cluster.create(definition, options).await {
            Err(error) if error.reason() != "AlreadyExists" => return Err(told(&error)),
            Ok(_) => continue,
            Err(_) if policy == CrdPolicy::Create => {
                (context.log)(format!(
                    "CustomResourceDefinition {} is already present. Skipping.",
                    reference.name
                ));
                continue;
            }
            Err(_) => {}
        }
        let live = context.cluster.get(&reference).await.map_err(|error| told(&error))?;
        let mut whole = definition.clone();
        whole["metadata"]["resourceVersion"] =
            live.unwrap_or_default()["metadata"]["resourceVersion"].clone();
        context.cluster.replace(&whole, options).await.map_err(|error| told(&error))?;
    }
    if !definitions.is_empty() {
        let targets = definitions.iter().map(|item| Target::new(ObjectRef::of(item))).collect();
        let options = Wait {
            checks: &CustomChecks::default(),
            selector: None,
            timeout: TIMEOUT,
            fail_fast: false,
            poll_interval: POLL_INTERVAL,
            clock: context.clock,
        };
        wait(context.cluster, targets, &options)
            .await
            .map_err(|error| ActionError::Crds(error.to_string()))?;
    }
    Ok(definitions)
}
