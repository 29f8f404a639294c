//! `weir envsubst`: substitutes environment variables as the kustomize-controller substitutes variables.

use std::io::Read as _;

use clap::Args;
use weir_kustomize::substitute_text;

use crate::error::Error;
use crate::output;

/// Arguments of `weir envsubst`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Fail if a variable without default is not set
    #[arg(long)]
    strict: bool,
}

/// Reads text from stdin and prints it with its expressions replaced.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|source| Error::File { path: "stdin".to_owned(), source })?;
    let lookup = |name: &str| std::env::var(name).ok();
    let replaced = substitute_text(&text, &lookup, arguments.strict).map_err(Error::Substitution)?;
    output::data(&replaced)
}
