//! Errors of parsing and executing, with the texts Go gives them.

use std::fmt;

/// A template did not parse: `template: name:line: message`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template: {name}:{line}: {message}")]
pub struct ParseError {
    /// The template name.
    pub name: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// Executing a template failed. The text is complete, as Go prints it, causes included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The text; that of the cause follows if `continues`. Errors of deep recursion are nested thousands of
    /// levels deep, and would take very much memory if each had the texts of all below it.
    text: String,
    cause: Option<Box<Error>>,
    continues: bool,
    executing: bool,
}

impl Error {
    /// An error without a cause.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: None, continues: false, executing: false }
    }

    /// An error whose text already contains that of its cause.
    pub fn wrapping(text: impl Into<String>, cause: Error) -> Self {
        Self::nested(text.into(), Some(cause), false)
    }

    pub(crate) fn executing(text: String, cause: Option<Error>) -> Self {
        Self::nested(text, cause, true)
    }

    fn nested(mut text: String, cause: Option<Error>, executing: bool) -> Self {
        let mut continues = false;
        if let Some(own) = cause.as_ref().and_then(|cause| text.strip_suffix(&cause.text())) {
            text.truncate(own.len());
            text.shrink_to_fit();
            continues = true;
        }
        Self { text, cause: cause.map(Box::new), continues, executing }
    }

    /// The whole text.
    pub fn text(&self) -> String {
        let mut out = self.text.clone();
        let mut error = self;
        while let Some(cause) = error.cause.as_deref().filter(|_| error.continues) {
            out.push_str(&cause.text);
            error = cause;
        }
        out
    }

    /// The error this one wraps; its text is part of this one's.
    pub fn cause(&self) -> Option<&Error> {
        self.cause.as_deref()
    }

    /// Whether the error arose while executing a template (Go's `template.ExecError`), here or in
    /// a cause.
    pub fn is_executing(&self) -> bool {
        self.executing || self.cause.as_deref().is_some_and(Self::is_executing)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text())
    }
}

impl std::error::Error for Error {}

/// Why a function failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The function returned or raised an error; the executor adds where.
    Failed(Error),
    /// A limit of the execution was reached; ends everything, whatever the caller does.
    Limit(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Failed(Error::new(text))
    }
}

impl From<&str> for Fault {
    fn from(text: &str) -> Self {
        Self::Failed(Error::new(text))
    }
}
