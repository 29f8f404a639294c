//! A place for faults in everything that changes the disk.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A step that changes the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The directory of an object is made.
    MakeDirectory,
    /// A lock file is opened.
    Lock,
    /// A temporary file is made.
    Create,
    /// Bytes go into it.
    Write,
    /// It gets its final mode.
    Protect,
    /// It gets its name.
    Publish,
    /// A link is made under a temporary name.
    Link,
    /// The link gets its name.
    PublishLink,
    /// A file goes.
    Remove,
}

impl Step {
    /// All steps, in the order of a publication.
    pub const ALL: [Self; 9] = [
        Self::MakeDirectory,
        Self::Lock,
        Self::Create,
        Self::Write,
        Self::Protect,
        Self::Publish,
        Self::Link,
        Self::PublishLink,
        Self::Remove,
    ];
}

/// Is asked before every step that changes the disk; an error takes the place of the step.
#[derive(Clone, Default)]
pub struct Probe(Option<Arc<Question>>);

type Question = dyn Fn(Step, &Path) -> io::Result<()> + Send + Sync;

impl Probe {
    /// Asks `question`, with the file the step is about.
    pub fn new(question: impl Fn(Step, &Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(question)))
    }

    pub(crate) fn ask(&self, step: Step, path: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |question| question(step, path))
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "Probe(set)" } else { "Probe" })
    }
}
