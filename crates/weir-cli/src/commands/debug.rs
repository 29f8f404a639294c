//! `weir debug`: what a controller sees and remembers of an object.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use serde_json::Value;

use crate::connection::Connection;
use crate::error::{Error, is_not_found};
use crate::kind::Kind;
use crate::{output, view};

/// Arguments of `weir debug`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// A Kustomization; variables may come from Secrets and are printed in clear
    #[command(visible_alias = "ks")]
    Kustomization(KustomizationArguments),
    /// A HelmRelease
    #[command(visible_alias = "hr")]
    Helmrelease(HelmReleaseArguments),
}

#[derive(Debug, Args)]
struct KustomizationArguments {
    /// Name of the object
    name: String,
    #[command(flatten)]
    shown: KustomizationPart,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct KustomizationPart {
    /// Print the status
    #[arg(long)]
    show_status: bool,
    /// Print the variables of the post-build substitution
    #[arg(long)]
    show_vars: bool,
    /// Print the history
    #[arg(long)]
    show_history: bool,
}

#[derive(Debug, Args)]
struct HelmReleaseArguments {
    /// Name of the object
    name: String,
    #[command(flatten)]
    shown: HelmReleasePart,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct HelmReleasePart {
    /// Print the status
    #[arg(long)]
    show_status: bool,
    /// Print the history
    #[arg(long)]
    show_history: bool,
}

/// Prints the wanted part.
pub(crate) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Error> {
    let (kind, name, pointer) = match &arguments.target {
        Target::Kustomization(arguments) if arguments.shown.show_vars => {
            let object = connection.get(Kind::Kustomization, &arguments.name).await?;
            return output::data(&render_variables(&variables(connection, &object).await?));
        }
        Target::Kustomization(arguments) => {
            (Kind::Kustomization, &arguments.name, part(arguments.shown.show_history))
        }
        Target::Helmrelease(arguments) => {
            (Kind::HelmRelease, &arguments.name, part(arguments.shown.show_history))
        }
    };
    let object = connection.get(kind, name).await?;
    let part = object.pointer(pointer).cloned().unwrap_or_default();
    output::data(&weir_manifest::to_yaml(&part))
}

const fn part(history: bool) -> &'static str {
    if history { "/status/history" } else { "/status" }
}

/// The variables a Kustomization substitutes: those of ConfigMaps and Secrets in their order, then its own.
pub(super) async fn variables(
    connection: &Connection,
    object: &Value,
) -> Result<BTreeMap<String, String>, Error> {
    let Some(post_build) = object.pointer("/spec/postBuild") else {
        let subject = format!("Kustomization/{}/{}", view::namespace(object), view::name(object));
        return Err(Error::FieldMissing { field: "spec.postBuild", subject });
    };
    let mut variables = BTreeMap::new();
    for reference in post_build["substituteFrom"].as_array().into_iter().flatten() {
        let (kind, name) = (view::text(reference, "/kind"), view::text(reference, "/name"));
        match read(connection, kind, name).await {
            Ok(found) => variables.extend(found),
            Err(error) if is_not_found(&error) && reference["optional"] == true => {}
            Err(source) => return Err(Error::Api { action: format!("read {kind} '{name}'"), source }),
        }
    }
    variables.extend(inline(post_build));
    Ok(variables)
}

async fn read(
    connection: &Connection,
    kind: &str,
    name: &str,
) -> Result<BTreeMap<String, String>, kube::Error> {
    if kind == "Secret" {
        let api: Api<Secret> = Api::namespaced(connection.client(), &connection.namespace);
        let data = api.get(name).await?.data.unwrap_or_default();
        Ok(data
            .into_iter()
            .map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned()))
            .collect())
    } else {
        let api: Api<ConfigMap> = Api::namespaced(connection.client(), &connection.namespace);
        Ok(api.get(name).await?.data.unwrap_or_default())
    }
}

/// The variables in the object itself, on one line each.
pub(super) fn inline(post_build: &Value) -> BTreeMap<String, String> {
    let own = post_build["substitute"].as_object().into_iter().flatten();
    own.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().replace('\n', ""))).collect()
}

fn render_variables(variables: &BTreeMap<String, String>) -> String {
    variables.iter().flat_map(|(key, value)| [key, "=", value, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;
    use serde_json::json;

    #[tokio::test]
    async fn later_variables_win() {
        let map = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "flux-system"}, "data": data});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c", "namespace": "flux-system"},
            "data": {"TOKEN": "c2VjcmV0"},
        });
        let cluster = Cluster::new(
            vec![map("a", json!({"X": "1", "Y": "1"})), map("b", json!({"Y": "2"})), secret],
            |_| {},
        );
        let object = |from: Value| {
            json!({"metadata": {"name": "apps", "namespace": "flux-system"}, "spec": {"postBuild": {
                "substitute": {"Z": "3\n4"}, "substituteFrom": from,
            }}})
        };
        let from = json!([
            {"kind": "ConfigMap", "name": "a"}, {"kind": "ConfigMap", "name": "b"}, {"kind": "Secret", "name": "c"},
            {"kind": "ConfigMap", "name": "missing", "optional": true},
        ]);
        let variables_of = |object: Value| {
            let connection = cluster.connection();
            async move { variables(&connection, &object).await }
        };
        let found = variables_of(object(from)).await.unwrap();
        assert_eq!(render_variables(&found), "TOKEN=secret\nX=1\nY=2\nZ=34\n");
        assert!(variables_of(object(json!([{"kind": "ConfigMap", "name": "missing"}]))).await.is_err());
        let error = variables_of(json!({"metadata": {"name": "apps", "namespace": "x"}})).await.unwrap_err();
        assert_eq!(error.to_string(), "'spec.postBuild' is missing in Kustomization/x/apps");
    }
}
