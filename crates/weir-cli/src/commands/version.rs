//! `weir version`: the versions of the command and of the controllers.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Map, Value};

use crate::arguments::GlobalArguments;
use crate::connection::Connection;
use crate::error::{self, Error};
use crate::output;

/// Label all objects of an installation carry.
const PART_OF: &str = "app.kubernetes.io/part-of=flux";
/// Label with the version of an installation.
const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// Arguments of `weir version`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print only the version of this command
    #[arg(long)]
    client: bool,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

/// Prints the versions.
pub(crate) async fn run(global: &GlobalArguments, arguments: &Arguments) -> Result<(), Error> {
    let mut versions = BTreeMap::new();
    versions.insert("weir".to_owned(), format!("v{}", env!("CARGO_PKG_VERSION")));
    if !arguments.client {
        let connection = Connection::new(global).await?;
        let api: Api<Deployment> = Api::namespaced(connection.client(), &connection.namespace);
        let deployments =
            api.list(&ListParams::default().labels(PART_OF)).await.map_err(|source| Error::Api {
                action: format!("list the controllers in {} namespace", connection.namespace),
                source,
            });
        match deployments {
            Ok(deployments) => versions.extend(deployments.iter().flat_map(of_deployment)),
            Err(error) => output::warning(&error::text(&error)),
        }
    }
    output::data(&render(&versions, arguments.output))
}

/// The version of the controller, and of the distribution it belongs to.
fn of_deployment(deployment: &Deployment) -> Vec<(String, String)> {
    let containers = deployment.spec.template.spec.iter().flat_map(|pod| &pod.containers);
    let mut versions: Vec<(String, String)> = containers
        .filter_map(|container| container.image.as_deref().and_then(split_image))
        .map(|(name, tag)| (name.to_owned(), tag.to_owned()))
        .collect();
    if let Some(version) = deployment.labels().get(VERSION_LABEL) {
        versions.push(("distribution".to_owned(), version.clone()));
    }
    versions
}

/// The last part of the name of an image, and its tag with the digest, if there is one.
fn split_image(image: &str) -> Option<(&str, &str)> {
    let last = image.rsplit('/').next()?;
    let end = last.find(['@', ':'])?;
    Some((&last[..end], &last[end + 1..]))
}

fn render(versions: &BTreeMap<String, String>, format: Format) -> String {
    let map: Map<String, Value> =
        versions.iter().map(|(name, version)| (name.clone(), Value::from(version.as_str()))).collect();
    match format {
        Format::Yaml => weir_manifest::to_yaml(&Value::Object(map)),
        Format::Json => format!("{:#}\n", Value::Object(map)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images() {
        #[track_caller]
        fn check(image: &str, expected: Option<(&str, &str)>) {
            assert_eq!(split_image(image), expected);
        }
        check("registry.example:5000/weir/source-controller:v1.9.0", Some(("source-controller", "v1.9.0")));
        check(
            "registry.example/source-controller:v1.9.0@sha256:abc",
            Some(("source-controller", "v1.9.0@sha256:abc")),
        );
        check("source-controller@sha256:abc", Some(("source-controller", "sha256:abc")));
        check("source-controller", None);
    }

    #[test]
    fn formats() {
        let versions = BTreeMap::from([("weir".to_owned(), "v1.0.0".to_owned())]);
        assert_eq!(render(&versions, Format::Yaml), "weir: v1.0.0\n");
        assert_eq!(render(&versions, Format::Json), "{\n  \"weir\": \"v1.0.0\"\n}\n");
    }
}
