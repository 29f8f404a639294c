//! Why a YAML text could not be read, and where.

use std::fmt;

/// A YAML text that could not be read: what is wrong, in which file, on which line and column.
///
/// `Display` gives one line a person can act on: `apps/web.yaml:3:7: mapping values are not allowed in this context`.
/// [`Error::reference_text`] gives the words of the Go libraries, whose line numbers are sometimes one too small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub(crate) origin: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) problem: String,
    pub(crate) reference_line: Option<usize>,
    pub(crate) kind: ErrorKind,
}

/// What sort of mistake a YAML text contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are not text, or contain control characters.
    Encoding,
    /// The text is not YAML.
    Syntax,
    /// The text is YAML but has no meaning as a manifest: unknown alias, impossible tag or key, duplicate key.
    Content,
    /// The text exceeds a limit: size, depth, or alias expansion.
    Limit,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, problem: impl Into<String>) -> Self {
        Self {
            origin: String::new(),
            line: 0,
            column: 0,
            problem: problem.into(),
            reference_line: None,
            kind,
        }
    }

    pub(crate) fn at(mut self, line: usize, column: usize) -> Self {
        self.line = line;
        self.column = column;
        self
    }

    pub(crate) fn reference_line(mut self, line: Option<usize>) -> Self {
        self.reference_line = line;
        self
    }

    pub(crate) fn in_origin(mut self, origin: &str) -> Self {
        origin.clone_into(&mut self.origin);
        self
    }

    /// The file or other origin the text came from; empty if none was given.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The line of the mistake, counted from 1; 0 if the mistake has no place.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column of the mistake in characters, counted from 1; 0 if the mistake has no place.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong, without the place.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What sort of mistake it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message the Go YAML libraries print for the same mistake: `yaml: line 3: could not find expected ':'`.
    ///
    /// Their line is relative to the text given to them and is, for some mistakes, the line before the true one.
    /// Mistakes found after YAML was understood, such as an infinite number, have no `yaml:` prefix there either.
    pub fn reference_text(&self) -> String {
        if self.problem.starts_with("json: ") || self.problem.starts_with("unsupported map key") {
            return self.problem.clone();
        }
        match self.reference_line {
            Some(line) => format!("yaml: line {line}: {}", self.problem),
            None => format!("yaml: {}", self.problem),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.origin.is_empty(), self.line) {
            (true, 0) => write!(f, "{}", self.problem),
            (true, line) => write!(f, "line {line}, column {}: {}", self.column, self.problem),
            (false, 0) => write!(f, "{}: {}", self.origin, self.problem),
            (false, line) => write!(f, "{}:{line}:{}: {}", self.origin, self.column, self.problem),
        }
    }
}

impl std::error::Error for Error {}
