//! What all kinds that publish artifacts have in common.

pub(crate) mod secrets;
pub(crate) mod status;
pub(crate) mod storage;
pub(crate) mod verify;

use weir_api::condition::Summary;
use weir_api::{Artifact, FluxObject};
use weir_runtime::Classify;

/// A kind that publishes an artifact.
pub(crate) trait Source: FluxObject {
    /// How its conditions make up `Ready`.
    const SUMMARY: Summary<'static>;
    /// Conditions whose end is told as a recovery.
    const FAILURES: &'static [&'static str];

    /// The published artifact.
    fn artifact(&self) -> Option<&Artifact>;
    /// The published artifact, to change its address.
    fn artifact_mut(&mut self) -> Option<&mut Artifact>;
    /// Forgets the artifact and what points to it.
    fn forget_artifact(&mut self);
    /// The message of `ArtifactInStorage`.
    fn stored_message(revision: &str) -> String;
}

/// An error of a source, as the status shows it.
pub(crate) trait SourceError: Classify {
    /// The condition that is true while this error stands.
    fn condition(&self) -> Option<&'static str>;
    /// Whether it is told to people besides the condition.
    fn is_event(&self) -> bool;

    /// Conditions that no longer stand because the run got this far.
    fn ends(&self) -> &'static [&'static str] {
        &[]
    }

    /// The condition that is false while this error stands.
    fn negates(&self) -> Option<&'static str> {
        None
    }

    /// The reason of the condition that is false, where it differs from that of the event.
    fn shown_false(&self) -> Option<&'static str> {
        None
    }

    /// The reason and message of the condition, where they differ from those of the event.
    fn shown(&self, reason: &str, message: &str) -> (String, String) {
        (reason.to_owned(), message.to_owned())
    }
}
