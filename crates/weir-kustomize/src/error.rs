//! Errors of a build. Their texts carry the distinctive phrases of kustomize, which people search for.

use std::borrow::Cow;

use weir_base::redact::hide_passwords;

/// The result of an engine step.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a build, a generation or a substitution failed.
///
/// `Display` prints the whole chain, outermost first, as kustomize does.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A step failed; the text says which and on what.
    #[error("{context}: {source}")]
    Within {
        /// What was attempted.
        context: String,
        /// Why it failed.
        source: Box<Error>,
    },
    /// A manifest is not YAML.
    #[error("MalformedYAMLError: yaml: {problem}")]
    MalformedYaml {
        /// The reader's message with the line.
        problem: String,
    },
    /// A manifest file is not YAML.
    #[error("MalformedYAMLError: yaml: {problem} in File: {file}")]
    MalformedYamlFile {
        /// The reader's message with the line.
        problem: String,
        /// The path as written in the kustomization.
        file: String,
    },
    /// A download answered with a status that is not success.
    #[error("HTTP Error: status code {status} ({reason})")]
    Http {
        /// The status code.
        status: u16,
        /// Its standard text.
        reason: String,
    },
    /// Fetching a repository took longer than allowed.
    #[error("{message}")]
    Timeout {
        /// What took too long.
        message: String,
    },
    /// The input cannot be built as it is.
    #[error("{message}")]
    Invalid {
        /// What is wrong, where, and what to do.
        message: String,
    },
}

impl Error {
    /// An error of the input.
    pub(crate) fn message(message: impl Into<String>) -> Self {
        Self::Invalid { message: shown(message.into()) }
    }

    /// This error with the step that met it in front.
    pub(crate) fn within(self, context: impl Into<String>) -> Self {
        Self::Within { context: shown(context.into()), source: Box::new(self) }
    }

    /// Names the file a YAML error was met in; other errors stay as they are.
    pub(crate) fn in_file(self, file: &str) -> Self {
        match self {
            Self::MalformedYaml { problem } => {
                Self::MalformedYamlFile { problem, file: shown(file.to_owned()) }
            }
            other => other,
        }
    }

    fn root(&self) -> &Self {
        match self {
            Self::Within { source, .. } => source.root(),
            other => other,
        }
    }

    pub(crate) fn is_malformed_yaml(&self) -> bool {
        matches!(self.root(), Self::MalformedYaml { .. } | Self::MalformedYamlFile { .. })
    }

    pub(crate) fn is_http(&self) -> bool {
        matches!(self.root(), Self::Http { .. })
    }

    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self.root(), Self::Timeout { .. })
    }
}

/// A text without the passwords of the URLs in it.
fn shown(text: String) -> String {
    match hide_passwords(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(shown) => shown,
    }
}

/// Adds the attempted step to an error.
pub(crate) trait Context<T> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.within(context()))
    }
}
