//! `weir trace`: which objects of Flux an object of the cluster comes from.

use clap::Args;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use weir_api::names::label::{HELM_NAME, HELM_NAMESPACE, KUSTOMIZE_NAME, KUSTOMIZE_NAMESPACE};

use crate::connection::Connection;
use crate::error::{self, Error};
use crate::kind::Kind;
use crate::{output, view};

/// Owners that are followed upwards.
const OWNERS_MAX: usize = 16;

/// Arguments of `weir trace`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Objects as RESOURCE/NAME, or a resource followed by names
    #[arg(value_name = "OBJECT")]
    objects: Vec<String>,
    /// Kind of the object, together with --api-version
    #[arg(long, value_name = "KIND", requires = "api_version")]
    kind: Option<String>,
    /// API version of the object, together with --kind
    #[arg(long, value_name = "VERSION", requires = "kind")]
    api_version: Option<String>,
}

/// An object as the user named it.
#[derive(Debug, PartialEq, Eq)]
struct Requested {
    /// What is looked up at the API server.
    resource: String,
    /// What is shown.
    shown: String,
    name: String,
}

/// A label and a value.
type Line = (String, String);

/// Prints where the objects come from; what fails for one of them is told, and the rest goes on.
pub(crate) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Error> {
    for (index, requested) in requested(arguments)?.iter().enumerate() {
        if index > 0 {
            output::data("---\n")?;
        }
        match trace(connection, requested).await {
            Ok(blocks) => output::data(&render(&blocks))?,
            Err(error) => output::failure(&error::text(&error)),
        }
    }
    Ok(())
}

/// The objects the user named.
fn requested(arguments: &Arguments) -> Result<Vec<Requested>, Error> {
    let plain = |resource: &str, name: &str| Requested {
        resource: resource.to_owned(),
        shown: resource.to_owned(),
        name: name.to_owned(),
    };
    if let (Some(kind), Some(api_version)) = (&arguments.kind, &arguments.api_version) {
        let [name] = arguments.objects.as_slice() else { return Err(Error::TraceArguments) };
        let requested = plain(kind, name);
        return Ok(vec![match api_version.split_once('/') {
            Some((group, _)) => Requested { resource: format!("{kind}.{group}"), ..requested },
            None => requested,
        }]);
    }
    let requested: Option<Vec<Requested>> = match arguments.objects.as_slice() {
        [] => None,
        [resource, names @ ..] if !resource.contains('/') && !names.is_empty() => {
            Some(names.iter().map(|name| plain(resource, name)).collect())
        }
        objects => objects
            .iter()
            .map(|object| object.split_once('/').map(|(resource, name)| plain(resource, name)))
            .collect(),
    };
    requested.ok_or(Error::TraceArguments)
}

async fn trace(connection: &Connection, requested: &Requested) -> Result<Vec<Vec<Line>>, Error> {
    let Requested { resource, shown, name } = requested;
    let (found, namespaced) = connection.resource(resource).await?;
    let namespace = namespaced.then_some(connection.namespace.as_str());
    let Some(object) = connection.find(&found, namespace, name).await? else {
        let scope = if namespaced { format!("{:?}", connection.namespace) } else { "any".to_owned() };
        return Err(Error::ObjectNotFound { subject: format!("{shown}/{name}"), scope });
    };
    let mut blocks = vec![object_block(shown, &object)];
    if let Some((namespace, name)) =
        owner(connection, &object, KUSTOMIZE_NAME, KUSTOMIZE_NAMESPACE, OWNERS_MAX).await
    {
        blocks.extend(kustomization(connection, &namespace, &name).await?);
    } else if let Some((namespace, name)) =
        owner(connection, &object, HELM_NAME, HELM_NAMESPACE, OWNERS_MAX).await
    {
        blocks.extend(helm_release(connection, &namespace, &name).await?);
    } else {
        return Err(Error::Unmanaged);
    }
    Ok(blocks)
}

/// Namespace and name in the labels of an object or of one of its owners.
fn owner<'a>(
    connection: &'a Connection,
    object: &'a Value,
    name_label: &'a str,
    namespace_label: &'a str,
    left: usize,
) -> BoxFuture<'a, Option<(String, String)>> {
    async move {
        if let Some(found) = labelled(object, name_label, namespace_label) {
            return Some(found);
        }
        let owners =
            object.pointer("/metadata/ownerReferences").and_then(Value::as_array).filter(|_| left > 0)?;
        for reference in owners {
            // Reading fails if the owner is gone, or may not be seen; then nothing more is known.
            let group = view::text(reference, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
            let text = format!("{}.{group}", view::text(reference, "/kind"));
            let (resource, namespaced) = connection.resource(text.trim_end_matches('.')).await.ok()?;
            let namespace = namespaced.then(|| view::namespace(object));
            let parent =
                connection.find(&resource, namespace, view::text(reference, "/name")).await.ok()??;
            if let Some(found) = labelled(&parent, name_label, namespace_label) {
                return Some(found);
            }
            if parent.pointer("/metadata/ownerReferences").is_some() {
                return owner(connection, &parent, name_label, namespace_label, left - 1).await;
            }
        }
        None
    }
    .boxed()
}

fn labelled(object: &Value, name_label: &str, namespace_label: &str) -> Option<(String, String)> {
    let labels = object.pointer("/metadata/labels")?;
    let text = |label: &str| labels.get(label).and_then(Value::as_str);
    Some((text(namespace_label).unwrap_or_default().to_owned(), text(name_label)?.to_owned()))
}

async fn kustomization(
    connection: &Connection,
    namespace: &str,
    name: &str,
) -> Result<Vec<Vec<Line>>, Error> {
    let object = connection.in_namespace(namespace).get(Kind::Kustomization, name).await?;
    let mut blocks = vec![flux_block(Kind::Kustomization, &object)];
    blocks.extend(source_block(connection, &object, "/spec/sourceRef").await?);
    Ok(blocks)
}

async fn helm_release(connection: &Connection, namespace: &str, name: &str) -> Result<Vec<Vec<Line>>, Error> {
    let object = connection.in_namespace(namespace).get(Kind::HelmRelease, name).await?;
    let mut blocks = vec![flux_block(Kind::HelmRelease, &object)];
    if object.pointer("/spec/chartRef").is_some() && view::text(&object, "/spec/chartRef/kind") != "HelmChart"
    {
        blocks.extend(source_block(connection, &object, "/spec/chartRef").await?);
        return Ok(blocks);
    }
    let chart = match object.pointer("/spec/chartRef") {
        Some(reference) => match view::text(reference, "/namespace") {
            "" => Some((namespace, view::text(reference, "/name"))),
            namespace => Some((namespace, view::text(reference, "/name"))),
        },
        None => view::text(&object, "/status/helmChart").split_once('/'),
    };
    if let Some((namespace, name)) = chart {
        let chart = connection.in_namespace(namespace).get(Kind::HelmChart, name).await?;
        blocks.push(flux_block(Kind::HelmChart, &chart));
        blocks.extend(source_block(connection, &chart, "/spec/sourceRef").await?);
    }
    Ok(blocks)
}

/// The source an object refers to; none for kinds that are not reported.
async fn source_block(
    connection: &Connection,
    object: &Value,
    pointer: &str,
) -> Result<Option<Vec<Line>>, Error> {
    let Some(reference) = object.pointer(pointer) else { return Ok(None) };
    let Some(kind) = Kind::named(view::text(reference, "/kind")) else { return Ok(None) };
    let namespace = match view::text(reference, "/namespace") {
        "" => view::namespace(object),
        namespace => namespace,
    };
    let source = connection.in_namespace(namespace).get(kind, view::text(reference, "/name")).await?;
    Ok(Some(flux_block(kind, &source)))
}

fn object_block(shown: &str, object: &Value) -> Vec<Line> {
    let mut lines = vec![line("Object", &format!("{shown}/{}", view::name(object)))];
    push(&mut lines, "Namespace", view::namespace(object));
    lines.push(line("Status", "Managed by Flux"));
    lines
}

/// What is told about an object of Flux.
fn flux_block(kind: Kind, object: &Value) -> Vec<Line> {
    let mut lines = vec![line(kind.name(), view::name(object)), line("Namespace", view::namespace(object))];
    let artifact = view::text(object, "/status/artifact/revision");
    match kind {
        Kind::Kustomization => {
            push(&mut lines, "Target", view::text(object, "/spec/targetNamespace"));
            push(&mut lines, "Path", view::text(object, "/spec/path"));
            push(&mut lines, "Revision", view::text(object, "/status/lastAppliedRevision"));
        }
        Kind::HelmRelease => {
            let revision = match view::text(object, "/status/history/0/chartVersion") {
                "" => view::text(object, "/status/lastAttemptedRevision"),
                version => version,
            };
            push(&mut lines, "Revision", revision);
        }
        Kind::HelmChart => {
            push(&mut lines, "Chart", view::text(object, "/spec/chart"));
            push(&mut lines, "Version", view::text(object, "/spec/version"));
            push(&mut lines, "Revision", artifact);
        }
        Kind::ExternalArtifact => {
            if let Some(reference) = object.pointer("/spec/sourceRef") {
                let namespace = match view::text(reference, "/namespace") {
                    "" => view::namespace(object),
                    namespace => namespace,
                };
                let (kind, name) = (view::text(reference, "/kind"), view::text(reference, "/name"));
                push(&mut lines, "Source", &format!("{kind}/{namespace}/{name}"));
            }
            push(&mut lines, "Revision", artifact);
        }
        _ => {
            push(&mut lines, "URL", view::text(object, "/spec/url"));
            for (label, pointer) in
                [("Tag", "/spec/ref/tag"), ("Digest", "/spec/ref/digest"), ("Branch", "/spec/ref/branch")]
            {
                push(&mut lines, label, view::text(object, pointer));
            }
            push(&mut lines, "Revision", artifact);
            let metadata = object.pointer("/status/artifact/metadata");
            for (label, key) in [("Origin Revision", "revision"), ("Origin Source", "source")] {
                let value =
                    metadata.and_then(|metadata| metadata.get(format!("org.opencontainers.image.{key}")));
                push(&mut lines, label, value.and_then(Value::as_str).unwrap_or_default());
            }
        }
    }
    match view::condition(object, "Ready") {
        Some(ready) => {
            let time = view::text(ready, "/lastTransitionTime");
            let words = match view::text(ready, "/status") {
                "False" => "Last reconciliation failed at",
                _ => "Last reconciled at",
            };
            lines.push(line("Status", &format!("{words} {time}")));
            lines.push(line("Message", view::text(ready, "/message")));
        }
        None if view::is_static(kind, object) => {}
        None => lines.push(line("Status", "Unknown")),
    }
    lines
}

fn line(label: &str, value: &str) -> Line {
    (label.to_owned(), value.to_owned())
}

fn push(lines: &mut Vec<Line>, label: &str, value: &str) {
    if !value.is_empty() {
        lines.push(line(label, value));
    }
}

/// The blocks with all values in one column.
fn render(blocks: &[Vec<Line>]) -> String {
    let width = blocks.iter().flatten().map(|(label, _)| label.chars().count()).max().unwrap_or_default() + 2;
    let mut text = String::new();
    for (index, block) in blocks.iter().enumerate() {
        text.push_str(if index == 0 { "\n" } else { "---\n" });
        for (label, value) in block {
            let label = format!("{label}:");
            text.extend([&format!("{label:width$}"), value, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;
    use serde_json::json;

    #[test]
    fn objects_are_named_in_three_ways() {
        #[track_caller]
        fn check(objects: &[&str], kind: Option<(&str, &str)>, expected: Option<&[(&str, &str)]>) {
            let arguments = Arguments {
                objects: objects.iter().map(|object| (*object).to_owned()).collect(),
                kind: kind.map(|(kind, _)| kind.to_owned()),
                api_version: kind.map(|(_, version)| version.to_owned()),
            };
            let found = requested(&arguments).ok();
            let found: Option<Vec<(&str, &str)>> = found
                .as_ref()
                .map(|found| found.iter().map(|one| (one.resource.as_str(), one.name.as_str())).collect());
            assert_eq!(found.as_deref(), expected);
        }
        check(&["deploy/web"], None, Some(&[("deploy", "web")]));
        check(&["deploy/web", "svc/web"], None, Some(&[("deploy", "web"), ("svc", "web")]));
        check(&["deploy", "web", "api"], None, Some(&[("deploy", "web"), ("deploy", "api")]));
        check(&["web"], Some(("Deployment", "apps/v1")), Some(&[("Deployment.apps", "web")]));
        check(&["web"], Some(("Service", "v1")), Some(&[("Service", "web")]));
        check(&["web"], None, None);
        check(&[], None, None);
        check(&[], Some(("Deployment", "apps/v1")), None);
    }

    #[tokio::test]
    async fn a_report() {
        let ready = |status: &str| json!([{"type": "Ready", "status": status, "message": "said so", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let cluster = Cluster::new(
            vec![
                json!({
                    "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                    "metadata": {"name": "apps", "namespace": "flux-system"},
                    "spec": {"path": "./apps", "sourceRef": {"kind": "OCIRepository", "name": "fleet"}},
                    "status": {"lastAppliedRevision": "1.0.0", "conditions": ready("True")},
                }),
                json!({
                    "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
                    "metadata": {"name": "fleet", "namespace": "flux-system"},
                    "spec": {"url": "oci://registry.example/fleet", "ref": {"tag": "1.0.0"}},
                    "status": {
                        "artifact": {
                            "revision": "1.0.0@sha256:abc",
                            "metadata": {"org.opencontainers.image.source": "https://git.example/fleet"},
                        },
                        "conditions": ready("False"),
                    },
                }),
            ],
            |_| {},
        );
        let object = json!({
            "metadata": {
                "name": "web", "namespace": "apps",
                "labels": {KUSTOMIZE_NAME: "apps", KUSTOMIZE_NAMESPACE: "flux-system"},
            },
        });
        let connection = cluster.connection();
        let (namespace, name) =
            owner(&connection, &object, KUSTOMIZE_NAME, KUSTOMIZE_NAMESPACE, OWNERS_MAX).await.unwrap();
        assert_eq!(owner(&connection, &object, HELM_NAME, HELM_NAMESPACE, OWNERS_MAX).await, None);
        let mut blocks = vec![object_block("deployment", &object)];
        blocks.extend(kustomization(&connection, &namespace, &name).await.unwrap());
        insta::assert_snapshot!(render(&blocks), @r"

        Object:        deployment/web
        Namespace:     apps
        Status:        Managed by Flux
        ---
        Kustomization: apps
        Namespace:     flux-system
        Path:          ./apps
        Revision:      1.0.0
        Status:        Last reconciled at 2026-01-01T00:00:00Z
        Message:       said so
        ---
        OCIRepository: fleet
        Namespace:     flux-system
        URL:           oci://registry.example/fleet
        Tag:           1.0.0
        Revision:      1.0.0@sha256:abc
        Origin Source: https://git.example/fleet
        Status:        Last reconciliation failed at 2026-01-01T00:00:00Z
        Message:       said so
        ");
    }
}
