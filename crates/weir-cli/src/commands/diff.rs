//! `weir diff`: what would change, in the cluster or since an earlier build. Nothing is written.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::Value;
use weir_api::helm::HelmRelease;
use weir_apply::kubernetes::KubernetesCluster;

use super::build;
use super::simulate::change::{self, Change};
use crate::arguments::GlobalArguments;
use crate::connection::Connection;
use crate::error::Error;
use crate::kind::Kind;
use crate::output;

/// Arguments of `weir diff`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// The objects of a HelmRelease, by dry-run in the cluster, or against an earlier build
    #[command(name = "helmrelease", visible_alias = "hr")]
    HelmRelease(HelmReleaseArguments),
}

#[derive(Debug, Args)]
struct HelmReleaseArguments {
    /// Name of the HelmRelease
    name: String,
    /// The chart: a directory or an archive
    #[arg(long, value_name = "PATH")]
    chart: PathBuf,
    /// File with the HelmRelease, and with ConfigMaps and Secrets its values come from; read from the cluster when
    /// left out
    #[arg(long, value_name = "PATH")]
    helmrelease_file: Option<PathBuf>,
    /// What `weir build helmrelease` printed earlier; no cluster is asked then
    #[arg(long, value_name = "PATH", requires = "helmrelease_file")]
    against: Option<PathBuf>,
}

/// Prints the differences; fails without a message if there are any.
pub(crate) async fn run(global: &GlobalArguments, arguments: &Arguments) -> Result<(), Error> {
    let Target::HelmRelease(arguments) = &arguments.target;
    let changes = match (&arguments.against, &arguments.helmrelease_file) {
        (Some(against), Some(file)) => {
            let (object, others) = build::described_release(file, &arguments.name, &global.namespace)?;
            let chart = super::helm::load(&arguments.chart)?;
            let built =
                weir_helm_controller::offline::build(&object, chart, &others).await.map_err(Error::Helm)?;
            let path = against.display().to_string();
            let earlier = fs::read(against).map_err(|source| Error::File { path: path.clone(), source })?;
            since(&earlier, &path, &built)?
        }
        _ => in_cluster(&Connection::new(global).await?, arguments).await?,
    };
    output::data(&change::text(&changes))?;
    if changes.is_empty() { Ok(()) } else { Err(Error::Reported) }
}

/// The changes from an earlier build to this one.
fn since(earlier: &[u8], path: &str, built: &str) -> Result<Vec<Change>, Error> {
    let read = |text: &[u8], origin: &str| {
        weir_manifest::read_documents(text, origin)
            .map_err(|error| Error::Malformed { what: "file", source: Box::new(error) })
    };
    Ok(change::compare(&change::named(&read(earlier, path)?), &change::named(&read(built.as_bytes(), "")?)))
}

async fn in_cluster(connection: &Connection, arguments: &HelmReleaseArguments) -> Result<Vec<Change>, Error> {
    let (object, others) = if let Some(file) = &arguments.helmrelease_file {
        build::described_release(file, &arguments.name, &connection.namespace)?
    } else {
        let object = connection.get(Kind::HelmRelease, &arguments.name).await?;
        let object: HelmRelease = serde_json::from_value(object)
            .map_err(|error| Error::Malformed { what: "HelmRelease", source: Box::new(error) })?;
        (object, Vec::new())
    };
    let chart = super::helm::load(&arguments.chart)?;
    let cluster = Arc::new(KubernetesCluster::new(connection.client()));
    let found = weir_helm_controller::preview::changes(cluster, &object, chart, &others);
    let found = Box::pin(found).await.map_err(Error::Helm)?;
    let side =
        |pick: fn(&weir_helm_controller::preview::Change) -> Option<&Value>| -> BTreeMap<String, Value> {
            change::named(found.iter().filter_map(pick))
        };
    Ok(change::compare(&side(|change| change.before.as_ref()), &side(|change| change.after.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_since_an_earlier_build() {
        let earlier = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: one}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: hunter2, q: same}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: gone}\n";
        let now = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: two}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: hunter3, q: same}\n";
        let changes = since(earlier.as_bytes(), "old.yaml", now).unwrap();
        let text = change::text(&changes);
        let told: Vec<String> =
            changes.iter().map(|change| format!("{} {}", change.id, change.kind.word())).collect();
        assert_eq!(told, ["ConfigMap/a changed", "Secret/s changed", "Service/gone removed"]);
        assert!(text.contains("-  k: one\n+  k: two\n"), "{text}");
        assert!(
            text.contains("*** (before)") && !text.contains("hunter") && !text.contains("same"),
            "{text}"
        );
        assert_eq!(since(now.as_bytes(), "old.yaml", now).unwrap(), []);
    }
}
