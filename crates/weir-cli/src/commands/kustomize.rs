//! `weir kustomize build`: builds a kustomization offline, as `kubectl kustomize` does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use weir_artifact::disk::DiskTree;
use weir_kustomize::{LoadRestriction, Options, build_with, is_cluster_scoped};
use weir_manifest::to_yaml;

use crate::error::Error;
use crate::{output, remote};

/// Arguments of `weir kustomize`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Kustomize,
}

#[derive(Debug, Subcommand)]
enum Kustomize {
    /// Print the objects of the kustomization in a directory
    Build(Build),
}

#[derive(Debug, Args)]
struct Build {
    /// Directory with the kustomization
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Write to this file, or to a file for each object if it is a directory
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Which files kustomizations may read
    #[arg(long, value_enum, value_name = "RULE", default_value_t = Restrictor::RootOnly)]
    load_restrictor: Restrictor,
    /// Refused: external plugins are not run
    #[arg(long, hide_short_help = true)]
    enable_alpha_plugins: bool,
    /// Refused: charts are not inflated in kustomizations
    #[arg(long, hide_short_help = true)]
    enable_helm: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Restrictor {
    /// Files in or below the directory of the kustomization
    #[value(name = "LoadRestrictionsRootOnly")]
    RootOnly,
    /// Any file
    #[value(name = "LoadRestrictionsNone")]
    None,
}

/// Builds and prints.
pub(crate) async fn run(arguments: &Arguments) -> Result<(), Error> {
    let Kustomize::Build(arguments) = &arguments.command;
    for (given, flag, why) in [
        (
            arguments.enable_alpha_plugins,
            "enable-alpha-plugins",
            "external plugins and functions are never run",
        ),
        (
            arguments.enable_helm,
            "enable-helm",
            "charts are not inflated in kustomizations; use a HelmRelease",
        ),
    ] {
        if given {
            return Err(Error::Refused { flag, why });
        }
    }
    let directory = DiskTree::directory(&arguments.directory)
        .ok_or_else(|| Error::Directory { path: arguments.directory.display().to_string() })?;
    let load_restriction = match arguments.load_restrictor {
        Restrictor::RootOnly => LoadRestriction::RootOnly,
        Restrictor::None => LoadRestriction::None,
    };
    let options = Options { load_restriction, ..Options::command_line() };
    let built = remote::with_session(move |remote| {
        build_with(&DiskTree::whole(), &directory, &options, remote).map_err(Error::Build)
    })
    .await?;
    match &arguments.output {
        None => output::data(&built.to_yaml()),
        Some(path) if path.is_dir() => write_each(&built.objects, path),
        Some(path) => write(path, &built.to_yaml()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|source| Error::WriteFile { path: path.display().to_string(), source })
}

/// Writes a file for each object, named as kustomize names them.
fn write_each(objects: &[Value], directory: &Path) -> Result<(), Error> {
    let namespaces: BTreeSet<String> = objects.iter().filter_map(effective_namespace).collect();
    for object in objects {
        let name = file_name(object, namespaces.len() > 1);
        write(&directory.join(name), &to_yaml(object))?;
    }
    Ok(())
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// `None` for cluster-scoped objects.
fn effective_namespace(object: &Value) -> Option<String> {
    if is_cluster_scoped(object) {
        return None;
    }
    let namespace = text(object, "/metadata/namespace");
    Some(if namespace.is_empty() { "default" } else { namespace }.to_lowercase())
}

fn file_name(object: &Value, several_namespaces: bool) -> String {
    let namespace = effective_namespace(object).filter(|_| several_namespaces);
    let (group, version) = weir_manifest::split_api_version(text(object, "/apiVersion"));
    let parts = [group, version, text(object, "/kind"), text(object, "/metadata/name")];
    let own = parts.iter().filter(|part| !part.is_empty()).map(|part| part.to_lowercase());
    let parts: Vec<String> = namespace.into_iter().chain(own).collect();
    // A name cannot lead out of the directory.
    format!("{}.yaml", parts.join("_").replace('/', "_"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::file_name;

    #[test]
    fn files_are_named_after_their_objects() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "Team"},
        });
        assert_eq!(file_name(&deployment, false), "apps_v1_deployment_web.yaml");
        assert_eq!(file_name(&deployment, true), "team_apps_v1_deployment_web.yaml");
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "../a/b"},
        });
        assert_eq!(file_name(&role, true), "rbac.authorization.k8s.io_v1_clusterrole_.._a_b.yaml");
    }
}
