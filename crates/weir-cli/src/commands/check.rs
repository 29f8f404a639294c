//! `weir check`: whether a cluster can run the controllers, and whether they run.

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use weir_api::names::label::KUSTOMIZE_NAMESPACE;

use crate::connection::Connection;
use crate::error::Error;
use crate::output;

/// The oldest supported Kubernetes.
const KUBERNETES_MIN: (u32, u32) = (1, 33);
/// The definition whose labels speak for the installation.
const SOURCES: &str = "gitrepositories.source.toolkit.fluxcd.io";
/// Label all objects of an installation carry.
const PART_OF: &str = "app.kubernetes.io/part-of=flux";

/// Arguments of `weir check`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only check the cluster, not the controllers
    #[arg(long)]
    pre: bool,
    /// Controllers that must be there; all that are installed are checked anyway
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    components: Vec<String>,
    /// More controllers that must be there
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    components_extra: Vec<String>,
    /// Pause between two looks; accepted for compatibility
    #[arg(long, value_name = "DURATION", default_value = "5s", hide = true)]
    poll_interval: weir_api::GoDuration,
}

/// Checks the cluster and the controllers, and tells each result.
///
/// # Errors
/// [`Error::CheckFailed`] if a check failed.
pub(crate) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Error> {
    output::action("checking prerequisites");
    let mut good = check_kubernetes(connection).await?;
    if arguments.pre {
        return conclude(good, "prerequisites checks passed");
    }
    let definitions = definitions(connection).await?;
    output::action("checking version in cluster");
    match definitions.iter().find(|definition| definition.name_any() == SOURCES) {
        Some(definition) => installation(definition).iter().for_each(|line| output::success(line)),
        None => good &= tell(Err(format!("{SOURCES}: not found"))),
    }
    output::action("checking controllers");
    let deployments = deployments(connection).await?;
    for deployment in &deployments {
        good &= tell(readiness(deployment));
        images(deployment).for_each(output::action);
    }
    for name in arguments.components.iter().chain(&arguments.components_extra) {
        if !deployments.iter().any(|deployment| deployment.name_any() == *name) {
            good &= tell(Err(format!("{name}: deployment not found")));
        }
    }
    output::action("checking crds");
    for definition in &definitions {
        good &= tell(stored(definition));
    }
    conclude(good, "all checks passed")
}

async fn check_kubernetes(connection: &Connection) -> Result<bool, Error> {
    let info = connection
        .client()
        .apiserver_version()
        .await
        .map_err(|source| Error::Api { action: "read the version of Kubernetes".to_owned(), source })?;
    let version = &info.git_version;
    let (major, minor) = KUBERNETES_MIN;
    let wanted = format!(">={major}.{minor}.0-0");
    Ok(tell(if is_supported(version) {
        Ok(format!("Kubernetes {} {wanted}", version.trim_start_matches('v')))
    } else {
        Err(format!("Kubernetes version {version} does not match {wanted}"))
    }))
}

/// Whether a version such as `v1.37.2` is new enough.
fn is_supported(version: &str) -> bool {
    let mut parts =
        version.trim_start_matches('v').split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= KUBERNETES_MIN,
        _ => false,
    }
}

async fn deployments(connection: &Connection) -> Result<Vec<Deployment>, Error> {
    let api: Api<Deployment> = Api::namespaced(connection.client(), &connection.namespace);
    let list = api.list(&ListParams::default().labels(PART_OF)).await.map_err(|source| Error::Api {
        action: format!("list the controllers in {} namespace", connection.namespace),
        source,
    })?;
    Ok(list.items)
}

/// Whether all replicas of the newest generation are available.
fn readiness(deployment: &Deployment) -> Result<String, String> {
    let name = deployment.name_any();
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation).unwrap_or_default();
    let updated = status.and_then(|status| status.updated_replicas).unwrap_or_default();
    let available = status.and_then(|status| status.available_replicas).unwrap_or_default();
    if observed < deployment.metadata.generation.unwrap_or_default() {
        return Err(format!("{name}: deployment not ready: its newest generation was not observed yet"));
    }
    if updated < wanted || available < wanted {
        return Err(format!("{name}: deployment not ready: {available} of {wanted} replicas available"));
    }
    Ok(format!("{name}: deployment ready"))
}

/// The definitions that belong to the installation.
async fn definitions(connection: &Connection) -> Result<Vec<CustomResourceDefinition>, Error> {
    let api: Api<CustomResourceDefinition> = Api::all(connection.client());
    let list = api
        .list(&ListParams::default().labels(PART_OF))
        .await
        .map_err(|source| Error::Api { action: "list CustomResourceDefinitions".to_owned(), source })?;
    Ok(list.items)
}

/// What the labels of a definition say about the installation it belongs to.
fn installation(definition: &CustomResourceDefinition) -> [String; 2] {
    let labels = definition.labels();
    let label = |name: &str| labels.get(name).map_or("unknown", String::as_str);
    [
        format!(
            "distribution: {}-{}",
            label("app.kubernetes.io/part-of"),
            label("app.kubernetes.io/version")
        ),
        format!("bootstrapped: {}", labels.contains_key(KUSTOMIZE_NAMESPACE)),
    ]
}

/// The version a definition is stored in, which must be known before an upgrade.
fn stored(definition: &CustomResourceDefinition) -> Result<String, String> {
    let name = definition.name_any();
    let versions = definition.status.as_ref().and_then(|status| status.stored_versions.as_ref());
    match versions.and_then(|versions| versions.last()) {
        Some(version) => Ok(format!("{name}/{version}")),
        None => Err(format!("{name}: no stored versions")),
    }
}

fn images(deployment: &Deployment) -> impl Iterator<Item = &str> {
    let containers = deployment.spec.template.spec.iter().flat_map(|pod| &pod.containers);
    containers.filter_map(|container| container.image.as_deref())
}

fn tell(result: Result<String, String>) -> bool {
    match result {
        Ok(text) => {
            output::success(&text);
            true
        }
        Err(text) => {
            output::failure(&text);
            false
        }
    }
}

fn conclude(good: bool, text: &str) -> Result<(), Error> {
    if !good {
        return Err(Error::CheckFailed);
    }
    output::success(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions() {
        #[track_caller]
        fn check(version: &str, expected: bool) {
            assert_eq!(is_supported(version), expected, "{version}");
        }
        check("v1.37.2", true);
        check("v1.33.0-rc.1", true);
        check("v1.33.5-gke.100", true);
        check("v1.32.9", false);
        check("v2.0.0", true);
        check("unknown", false);
    }

    #[test]
    fn controllers() {
        #[track_caller]
        fn check(status: &serde_json::Value, expected: Result<&str, &str>) {
            let deployment: Deployment = serde_json::from_value(json!({
                "metadata": {"name": "source-controller", "generation": 2},
                "spec": {"replicas": 1, "selector": {}, "template": {}}, "status": status,
            }))
            .unwrap();
            assert_eq!(readiness(&deployment), expected.map(str::to_owned).map_err(str::to_owned));
        }
        check(
            &json!({"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 1}),
            Ok("source-controller: deployment ready"),
        );
        check(
            &json!({"observedGeneration": 2, "updatedReplicas": 1}),
            Err("source-controller: deployment not ready: 0 of 1 replicas available"),
        );
        check(
            &json!({"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1}),
            Err("source-controller: deployment not ready: its newest generation was not observed yet"),
        );
    }

    #[test]
    fn definitions_tell_about_the_installation() {
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": {
                "name": SOURCES,
                "labels": {
                    "app.kubernetes.io/part-of": "flux", "app.kubernetes.io/version": "v2.9.0", KUSTOMIZE_NAMESPACE: "flux-system",
                },
            },
            "spec": {"group": "", "names": {"kind": "", "plural": ""}, "scope": "", "versions": []},
            "status": {"storedVersions": ["v1beta2", "v1"]},
        }))
        .unwrap();
        assert_eq!(installation(&definition), ["distribution: flux-v2.9.0", "bootstrapped: true"]);
        assert_eq!(stored(&definition), Ok(format!("{SOURCES}/v1")));
    }
}
