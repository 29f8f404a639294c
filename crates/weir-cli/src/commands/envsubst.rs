//! `weir envsubst`: replaces variables in text from stdin with those of the environment.

use std::io::{self, Read as _};

use clap::Args;

use crate::error::Error;
use crate::output;

/// Arguments of `weir envsubst`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Fail if a variable is not set and has no default
    #[arg(long)]
    strict: bool,
}

/// Reads stdin to its end and prints the text with variables replaced.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let mut text = String::new();
    io::stdin()
        .lock()
        .read_to_string(&mut text)
        .map_err(|source| Error::File { path: "stdin".to_owned(), source })?;
    output::data(&substitute(&text, arguments.strict, &|name| std::env::var(name).ok())?)
}

/// The text with variables replaced, line by line, so that an error names the line.
fn substitute(text: &str, strict: bool, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, Error> {
    let mut result = String::with_capacity(text.len());
    for (index, line) in text.lines().enumerate() {
        let line = weir_kustomize::substitute_text(line, lookup, strict)
            .map_err(|source| Error::Substitute { line: index + 1, source })?;
        result.extend([line.as_str(), "\n"]);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, strict: bool, expected: Result<&str, &str>) {
        let lookup = |name: &str| (name == "REGION").then(|| "eu".to_owned());
        let result = substitute(text, strict, &lookup).map_err(|error| error.to_string());
        assert_eq!(result.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn replaces_what_is_set() {
        check("a: ${REGION}", false, Ok("a: eu\n"));
        check("a: ${ZONE:=a}-${ZONE}\nb: $${REGION}\n", false, Ok("a: a-\nb: ${REGION}\n"));
        check("", false, Ok(""));
    }

    #[test]
    fn strict_refuses_what_is_not_set() {
        let lookup = |_: &str| None;
        let error = substitute("a: b\nc: ${ZONE}", true, &lookup).unwrap_err().to_string();
        assert_eq!(error, "failed to substitute variables in line 2");
        check("a: ${ZONE:=a}", true, Ok("a: a\n"));
    }
}
