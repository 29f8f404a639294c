//! `weir suspend`: stops the reconciliation of objects.

use clap::Args;
use serde_json::json;

use super::target::{Names, Target};
use crate::connection::{Connection, Filter};
use crate::error::{self, Error};
use crate::kind::Kind;
use crate::{output, view};

/// Arguments of `weir suspend`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    target: Target<Names>,
}

/// Suspends the objects; what fails for one of several names is told, and the rest goes on.
pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<(), Error> {
    let (kind, names) = arguments.target.split();
    suspend(connection, kind, &names).await
}

async fn suspend(connection: &Connection, kind: Kind, names: &Names) -> Result<(), Error> {
    if names.names.is_empty() {
        if !names.all {
            return Err(Error::NameRequired { kind: kind.human() });
        }
        let objects = connection.list(kind, &Filter::default()).await?;
        if objects.is_empty() {
            return Err(Error::NothingToDo);
        }
        for object in &objects {
            suspend_one(connection, kind, view::name(object)).await?;
        }
        return Ok(());
    }
    for name in names.distinct() {
        match connection.get(kind, name).await {
            Ok(_) => {
                if let Err(error) = suspend_one(connection, kind, name).await {
                    let namespace = &connection.namespace;
                    let cause = error::text(&error);
                    output::failure(&format!(
                        "failed suspending {} {name} in {namespace} namespace: {cause}",
                        kind.name()
                    ));
                }
            }
            Err(Error::NotFound { .. }) => {
                output::failure(&format!(
                    "{} {name} not found in {} namespace",
                    kind.name(),
                    connection.namespace
                ));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn suspend_one(connection: &Connection, kind: Kind, name: &str) -> Result<(), Error> {
    output::action(&format!("suspending {} {name} in {} namespace", kind.human(), connection.namespace));
    connection.patch(kind, name, &json!({"spec": {"suspend": true}})).await?;
    output::success(&format!("{} suspended", kind.human()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;
    use serde_json::Value;

    fn objects() -> Vec<Value> {
        ["a", "b"]
            .map(|name| {
                json!({
                    "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
                    "metadata": {"name": name, "namespace": "flux-system"}, "spec": {},
                })
            })
            .to_vec()
    }

    #[tokio::test]
    async fn suspends_what_is_named_and_skips_the_rest() {
        #[track_caller]
        fn check(cluster: &Cluster, result: Result<(), Error>, error: Option<&str>, writes: &[&str]) {
            assert_eq!(result.err().map(|error| error.to_string()).as_deref(), error);
            assert_eq!(cluster.writes(), writes);
        }
        async fn run(cluster: &Cluster, names: &[&str], all: bool) -> Result<(), Error> {
            let names = Names { names: names.iter().map(|name| (*name).to_owned()).collect(), all };
            suspend(&cluster.connection(), Kind::Bucket, &names).await
        }
        let cluster = Cluster::new(objects(), |_| {});
        check(&cluster, run(&cluster, &["b", "missing", "b"], false).await, None, &["PATCH buckets/b"]);
        assert_eq!(cluster.object("b").pointer("/spec/suspend"), Some(&json!(true)));
        let cluster = Cluster::new(objects(), |_| {});
        check(&cluster, run(&cluster, &[], true).await, None, &["PATCH buckets/a", "PATCH buckets/b"]);
        let cluster = Cluster::new(vec![], |_| {});
        check(&cluster, run(&cluster, &[], true).await, Some("no objects found"), &[]);
        check(&cluster, run(&cluster, &[], false).await, Some("source bucket name is required"), &[]);
    }
}
