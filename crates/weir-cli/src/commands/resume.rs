//! `weir resume`: goes on with the reconciliation of suspended objects.

use clap::Args;
use futures::future::join_all;
use serde_json::json;

use super::target::{Names, Target};
use crate::connection::{Connection, Filter};
use crate::error::{self, Error};
use crate::kind::Kind;
use crate::{output, view, wait};

/// Arguments of `weir resume`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    target: Target<Resume>,
}

#[derive(Debug, Args)]
struct Resume {
    #[command(flatten)]
    names: Names,
    /// Wait until the objects are ready; always done for a single name
    #[arg(long)]
    wait: bool,
}

/// Resumes the objects and waits for them if wanted.
///
/// # Errors
/// [`Error::Reported`] if one of the awaited objects did not become ready.
pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<(), Error> {
    let (kind, arguments) = arguments.target.split();
    resume(connection, kind, &arguments.names, arguments.wait).await
}

async fn resume(connection: &Connection, kind: Kind, names: &Names, wait: bool) -> Result<(), Error> {
    let resumed = if names.names.is_empty() {
        if !names.all {
            return Err(Error::NameRequired { kind: kind.human() });
        }
        let objects = connection.list(kind, &Filter::default()).await?;
        if objects.is_empty() {
            return Err(Error::NothingToDo);
        }
        let names: Vec<&str> = objects.iter().map(view::name).collect();
        resume_all(connection, kind, &names).await?
    } else {
        resume_all(connection, kind, &names.distinct()).await?
    };
    if wait || names.names.len() == 1 { await_all(connection, kind, resumed).await } else { Ok(()) }
}

/// Resumes the objects that exist, and returns their names.
async fn resume_all(connection: &Connection, kind: Kind, names: &[&str]) -> Result<Vec<String>, Error> {
    let namespace = &connection.namespace;
    let mut resumed = Vec::new();
    for name in names {
        match connection.get(kind, name).await {
            Err(Error::NotFound { .. }) => {
                output::failure(&format!("{} {name} not found in {namespace} namespace", kind.name()));
                continue;
            }
            other => other?,
        };
        output::action(&format!("resuming {} {name} in {namespace} namespace", kind.human()));
        match connection.patch(kind, name, &json!({"spec": {"suspend": null}})).await {
            Ok(_) => {
                output::success(&format!("{} resumed", kind.human()));
                resumed.push((*name).to_owned());
            }
            Err(error) => output::failure(&format!(
                "{} {name} resume failed in {namespace} namespace: {}",
                kind.name(),
                error::text(&error)
            )),
        }
    }
    Ok(resumed)
}

async fn await_all(connection: &Connection, kind: Kind, mut names: Vec<String>) -> Result<(), Error> {
    names.sort();
    for _ in &names {
        output::waiting(&format!("waiting for {} reconciliation", kind.name()));
    }
    let results = join_all(
        names
            .iter()
            .map(async |name| wait::until(connection, kind, name, |object| wait::ready(kind, object)).await),
    )
    .await;
    let mut failed = false;
    for (name, result) in names.iter().zip(results) {
        match result {
            Ok(object) => {
                output::success(&format!("{} {name} reconciliation completed", kind.name()));
                output::success(&view::success(kind, &object));
            }
            Err(error) => {
                failed = true;
                let cause = match error {
                    Error::ReconcileFailed { message, .. } => message,
                    other => error::text(&other),
                };
                output::failure(&format!("{} {name} reconciliation failed: {cause}", kind.name()));
            }
        }
    }
    if failed { Err(Error::Reported) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;
    use serde_json::Value;

    fn bucket(name: &str) -> Value {
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
            "metadata": {"name": name, "namespace": "flux-system", "generation": 1}, "spec": {"suspend": true},
        })
    }

    /// A controller that works on everything that is not suspended.
    fn work(object: &mut Value) {
        if object.pointer("/spec/suspend").is_none() {
            let good = view::name(object) != "bad";
            let condition = if good { ("Ready", "True") } else { ("Stalled", "True") };
            object["status"] = json!({
                "observedGeneration": 1,
                "conditions": [
                    {"type": condition.0, "status": condition.1, "message": "said", "observedGeneration": 1},
                    {"type": "Ready", "status": if good { "True" } else { "False" }, "observedGeneration": 1},
                ],
            });
        }
    }

    #[tokio::test]
    async fn resumes_and_waits() {
        async fn check(names: &[&str], all: bool, wait: bool, expected: Option<&str>, writes: &[&str]) {
            let cluster = Cluster::new(vec![bucket("bad"), bucket("good")], work);
            let names = Names { names: names.iter().map(|name| (*name).to_owned()).collect(), all };
            let result = resume(&cluster.connection(), Kind::Bucket, &names, wait).await;
            assert_eq!(result.err().map(|error| error.to_string()).as_deref(), expected);
            assert_eq!(cluster.writes(), writes);
        }
        check(&["good"], false, false, None, &["PATCH buckets/good"]).await;
        check(&["bad"], false, false, Some("failed"), &["PATCH buckets/bad"]).await;
        check(&["bad", "good"], false, false, None, &["PATCH buckets/bad", "PATCH buckets/good"]).await;
        check(&[], true, true, Some("failed"), &["PATCH buckets/bad", "PATCH buckets/good"]).await;
        check(&["missing"], false, false, None, &[]).await;
        check(&[], false, false, Some("source bucket name is required"), &[]).await;
    }
}
