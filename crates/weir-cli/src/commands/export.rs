//! `weir export`: objects as YAML, without what only the cluster they live in cares about.

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Secret;
use kube::core::ApiResource;
use serde_json::{Map, Value, json};

use super::target::ImageTarget;
use crate::connection::{Connection, Filter};
use crate::error::Error;
use crate::kind::Kind;
use crate::{output, view};

/// Arguments of `weir export`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// Kustomizations
    #[command(visible_alias = "ks")]
    Kustomization(Export),
    /// HelmReleases
    #[command(visible_alias = "hr")]
    Helmrelease(Export),
    /// Sources
    #[command(subcommand)]
    Source(Source),
    /// Image scans, policies and updates
    #[command(subcommand)]
    Image(ImageTarget<Export>),
    /// Artifact generators
    #[command(subcommand)]
    Artifact(Artifact),
    /// Webhook receivers
    Receiver(Export),
    /// Alerts
    Alert(Export),
    /// Alert providers
    AlertProvider(Export),
}

#[derive(Debug, Subcommand)]
enum Source {
    /// GitRepositories
    Git(WithCredentials),
    /// OCIRepositories
    Oci(WithCredentials),
    /// Buckets
    Bucket(WithCredentials),
    /// HelmRepositories
    Helm(WithCredentials),
    /// HelmCharts
    Chart(Export),
    /// ExternalArtifacts
    External(Export),
}

#[derive(Debug, Subcommand)]
enum Artifact {
    /// ArtifactGenerators
    Generator(Export),
}

#[derive(Debug, Args)]
struct Export {
    /// Name of the object
    name: Option<String>,
    /// All objects of the kind in the namespace
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
struct WithCredentials {
    #[command(flatten)]
    export: Export,
    /// Also print the Secrets the objects refer to
    #[arg(long)]
    with_credentials: bool,
}

/// Prints the objects as a YAML stream.
pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<(), Error> {
    let (kind, export, with_credentials) = arguments.split();
    let objects = match &export.name {
        Some(name) if !export.all => vec![connection.get(kind, name).await?],
        None if !export.all => return Err(Error::NameRequired { kind: kind.human() }),
        _ => connection.list(kind, &Filter::default()).await?,
    };
    if objects.is_empty() {
        return Err(Error::NoneFound { kind: kind.name(), scope: format!("{:?}", connection.namespace) });
    }
    let mut text = String::new();
    for object in &objects {
        text.push_str(&document(object));
        if with_credentials && let Some(secret) = credentials(connection, object).await? {
            text.push_str(&document(&secret));
        }
    }
    output::data(&text)
}

impl Arguments {
    fn split(self) -> (Kind, Export, bool) {
        match self.target {
            Target::Kustomization(export) => (Kind::Kustomization, export, false),
            Target::Helmrelease(export) => (Kind::HelmRelease, export, false),
            Target::Source(Source::Git(WithCredentials { export, with_credentials })) => {
                (Kind::GitRepository, export, with_credentials)
            }
            Target::Source(Source::Oci(WithCredentials { export, with_credentials })) => {
                (Kind::OciRepository, export, with_credentials)
            }
            Target::Source(Source::Bucket(WithCredentials { export, with_credentials })) => {
                (Kind::Bucket, export, with_credentials)
            }
            Target::Source(Source::Helm(WithCredentials { export, with_credentials })) => {
                (Kind::HelmRepository, export, with_credentials)
            }
            Target::Source(Source::Chart(export)) => (Kind::HelmChart, export, false),
            Target::Source(Source::External(export)) => (Kind::ExternalArtifact, export, false),
            Target::Image(target) => {
                let (kind, export) = target.split();
                (kind, export, false)
            }
            Target::Artifact(Artifact::Generator(export)) => (Kind::ArtifactGenerator, export, false),
            Target::Receiver(export) => (Kind::Receiver, export, false),
            Target::Alert(export) => (Kind::Alert, export, false),
            Target::AlertProvider(export) => (Kind::Provider, export, false),
        }
    }
}

/// The Secret with the credentials of a source; none if it names none.
async fn credentials(connection: &Connection, object: &Value) -> Result<Option<Value>, Error> {
    let name = view::text(object, "/spec/secretRef/name");
    if name.is_empty() {
        return Ok(None);
    }
    let resource = ApiResource::erase::<Secret>(&());
    match connection.find(&resource, Some(&connection.namespace), name).await? {
        Some(secret) => Ok(Some(secret)),
        None => Err(Error::NotFound {
            kind: "Secret",
            name: name.to_owned(),
            scope: format!("{:?}", connection.namespace),
        }),
    }
}

fn document(object: &Value) -> String {
    format!("---\n{}", weir_manifest::to_yaml(&portable(object)))
}

/// The object without status and without what the API server wrote.
fn portable(object: &Value) -> Value {
    let mut metadata = Map::new();
    for key in ["name", "namespace", "labels", "annotations"] {
        if let Some(value) = object["metadata"].get(key) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    let mut portable = json!({"metadata": metadata});
    for key in ["apiVersion", "kind", "spec", "type", "data", "immutable"] {
        if let Some(value) = object.get(key) {
            portable[key] = value.clone();
        }
    }
    portable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_applied_elsewhere() {
        let object = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {
                "name": "fleet", "namespace": "flux-system", "labels": {"team": "web"}, "uid": "1", "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [], "resourceVersion": "7",
                "finalizers": ["finalizers.fluxcd.io"],
            },
            "spec": {"interval": "1m0s", "url": "https://git.example/fleet"},
            "status": {"observedGeneration": 3},
        });
        insta::assert_snapshot!(document(&object), @r"
        ---
        apiVersion: source.toolkit.fluxcd.io/v1
        kind: GitRepository
        metadata:
          labels:
            team: web
          name: fleet
          namespace: flux-system
        spec:
          interval: 1m0s
          url: https://git.example/fleet
        ");
    }
}
