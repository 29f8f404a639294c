//! `weir delete`: deletes objects of Flux; what they manage is deleted by their controllers.

use std::io::{self, BufRead as _, Write as _};

use clap::Args;

use super::target::Target;
use crate::connection::Connection;
use crate::error::Error;
use crate::output;

/// Arguments of `weir delete`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Do not ask
    #[arg(short, long, global = true)]
    silent: bool,
    #[command(subcommand)]
    target: Target<Name>,
}

#[derive(Debug, Args)]
struct Name {
    /// Name of the object
    name: String,
}

/// Deletes the object after a question; does not wait until it is gone.
pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<(), Error> {
    let silent = arguments.silent;
    let (kind, Name { name }) = arguments.target.split();
    connection.get(kind, &name).await?;
    if !silent && !confirmed(&format!("Are you sure you want to delete this {}", kind.human()))? {
        return Err(Error::Aborted);
    }
    output::action(&format!("deleting {} {name} in {} namespace", kind.human(), connection.namespace));
    connection.delete(kind, &name).await?;
    output::success(&format!("{} deleted", kind.human()));
    Ok(())
}

/// Asks on stderr and reads one line from stdin; everything but yes is no.
fn confirmed(question: &str) -> Result<bool, Error> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush()).map_err(Error::Write)?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|source| Error::File { path: "stdin".to_owned(), source })?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use crate::testing::Cluster;
    use serde_json::json;

    #[test]
    fn only_yes_is_yes() {
        for (answer, expected) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("no", false), ("yep", false)]
        {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn deletes_what_exists() {
        let bucket = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
            "metadata": {"name": "b", "namespace": "flux-system"}, "spec": {},
        });
        let cluster = Cluster::new(vec![bucket], |_| {});
        let arguments = |name: &str| Arguments {
            silent: true,
            target: Target::Source(super::super::target::SourceTarget::Bucket(Name {
                name: name.to_owned(),
            })),
        };
        run(&cluster.connection(), arguments("b")).await.unwrap();
        assert_eq!(cluster.writes(), ["DELETE buckets/b"]);
        let error = run(&cluster.connection(), arguments("b")).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{} object 'b' not found in \"flux-system\" namespace", Kind::Bucket.name())
        );
    }
}
