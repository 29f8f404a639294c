//! What is done with a release: install, upgrade, roll back, uninstall, test.
//!
//! An action ends with an error or not; either way [`Storage::take_written`] tells what is on record
//! afterwards. Nothing is remembered between actions: an action that was cut off leaves a record in a
//! pending state, which the next one finds.
//!
//! # Cancellation
//! Dropping an action's future stops it between two requests. Its record stays pending.

mod apply;
mod crds;
mod hooks;
mod install;
mod merge;
mod objects;
mod rollback;
mod test;
mod uninstall;
mod upgrade;
mod wait;

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use weir_apply::cluster::ClusterError;
use weir_apply::health::{CustomChecks, WaitError};
use weir_apply::write::WriteCluster;
use weir_base::clock::Clock;

use crate::chart::Chart;
use crate::content::{Content, ContentError};
use crate::release::{Record, Status};
use crate::render::ReleaseInfo;
use crate::storage::{Storage, StorageError};
use crate::values::Table;

pub use crds::{CrdPolicy, apply_crds, definitions};
pub use install::{Install, install};
pub use objects::{ManifestObjects, read_manifest};
pub use rollback::{Rollback, rollback};
pub use test::{TestFilter, test};
pub use uninstall::{Uninstall, uninstall};
pub use upgrade::{Upgrade, upgrade};

/// What every action needs.
pub struct Context<'a> {
    /// Where the objects live.
    pub cluster: &'a dyn WriteCluster,
    /// Where the records live.
    pub storage: &'a Storage<'a>,
    /// Tells the time.
    pub clock: &'a dyn Clock,
    /// The field manager of all writes.
    pub manager: &'a str,
    /// Collects what people may want to read after a failure.
    pub log: &'a (dyn Fn(String) + Sync),
    /// What is waited for.
    pub wait: WaitRules<'a>,
}

/// How long to wait, and for what.
#[derive(Clone, Copy)]
pub struct WaitRules<'a> {
    /// The limit of each wait.
    pub timeout: Duration,
    /// What has to be ready before an action has succeeded.
    pub strategy: WaitStrategy,
    /// Whether Jobs have to complete.
    pub jobs: bool,
    /// Rules of the user for objects, with the status strategy.
    pub checks: &'a CustomChecks,
}

/// When objects count as ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStrategy {
    /// By their status conditions and the rules of built-in kinds; a failed object ends the wait.
    Status,
    /// By the rules of Helm 3.
    Legacy,
    /// Only hooks are waited for.
    HooksOnly,
}

/// A chart and values do not make a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ContentFailed(pub String);

impl From<ContentError> for ContentFailed {
    fn from(error: ContentError) -> Self {
        Self(error.to_string())
    }
}

/// Makes the content of a release once its name and revision are known.
pub type MakeContent<'a> =
    dyn Fn(ReleaseInfo, Chart, Table) -> BoxFuture<'a, Result<Content, ContentFailed>> + Send + Sync + 'a;

/// Why an action failed. The texts are those of Helm.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The records cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The chart and the values do not make a release.
    #[error(transparent)]
    Content(#[from] ContentFailed),
    /// The name of the release is in use.
    #[error("release name check failed: cannot reuse a name that is still in use")]
    NameInUse,
    /// The name cannot be one of a release.
    #[error("release name is invalid: {0}")]
    InvalidName(String),
    /// There is nothing to upgrade.
    #[error("{0:?} has no deployed releases")]
    NoDeployedRelease(String),
    /// Another action is under way, or was cut off.
    #[error("another operation (install/upgrade/rollback) is in progress")]
    Pending,
    /// The revision to roll back to is not on record.
    #[error("release has no {0} version")]
    NoSuchVersion(i64),
    /// There is no record of the release.
    #[error("uninstall: Release not loaded: {0}: release: not found")]
    NotFound(String),
    /// The release is uninstalled and its history is to be kept.
    #[error("the release named {0:?} is already deleted")]
    AlreadyDeleted(String),
    /// The manifest cannot be turned into objects.
    #[error("unable to build kubernetes objects from {whose} manifest: {message}")]
    Build {
        /// `release`, `current release`, `new release`.
        whose: &'static str,
        /// What is wrong.
        message: String,
    },
    /// Objects of others are in the way.
    #[error("unable to continue with {action}: {message}")]
    Conflict {
        /// `install` or `update`.
        action: &'static str,
        /// Which object, and why.
        message: String,
    },
    /// Objects cannot be written.
    #[error("{0}")]
    Apply(String),
    /// A request failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A hook failed.
    #[error("{stage}{message}")]
    Hook {
        /// Which hooks, as the beginning of the text.
        stage: &'static str,
        /// What is wrong.
        message: String,
    },
    /// Objects did not become ready.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// Objects did not become ready, told in other words.
    #[error("{0}")]
    NotReady(String),
    /// The definitions of a chart cannot be applied.
    #[error("failed to apply CustomResourceDefinitions: {0}")]
    Crds(String),
    /// What went wrong in the end, after the release was gone.
    #[error("uninstallation completed with {count} error(s): {message}", count = .0.len(), message = .0.join("; "))]
    Uninstall(Vec<String>),
    /// Objects cannot be deleted.
    #[error("failed to delete release: {0}")]
    DeleteFailed(String),
    /// A failed upgrade or rollback could not be cleaned up.
    #[error(
        "an error occurred while cleaning up resources. original {action} error: {original}: unable to cleanup resources: {message}"
    )]
    CleanUp {
        /// `upgrade` or `rollback`.
        action: &'static str,
        /// Why the action failed.
        original: Box<ActionError>,
        /// Why the clean-up failed.
        message: String,
    },
}

impl Context<'_> {
    /// Now, as Go prints it in records.
    fn now(&self) -> String {
        go_time(self.clock.now())
    }

    /// Writes a record whose loss must not hide a more important error.
    async fn record(&self, record: &Record) {
        if let Err(error) = self.storage.update(record).await {
            (self.log)(format!("failed to record the release: {error}"));
            tracing::warn!(release = record.name, error = %error, "failed to record the release");
        }
    }

    /// Records that an action failed.
    async fn fail(&self, record: &mut Record, title: &str, error: &ActionError) {
        record.info.status = Status::Failed;
        record.info.description = format!("{title} {:?} failed: {error}", record.name);
        self.record(record).await;
    }
}

/// A time as Go writes it in JSON: RFC 3339 with as many digits as it needs.
pub fn go_time(time: Timestamp) -> String {
    let text = time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let nanoseconds = time.subsec_nanosecond();
    if nanoseconds == 0 {
        return format!("{text}Z");
    }
    let digits = format!("{nanoseconds:09}");
    format!("{text}.{}Z", digits.trim_end_matches('0'))
}

/// Whether a text can be the name of a release.
pub fn is_release_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !label.is_empty()
            && label.bytes().all(|byte| inner(byte) || byte == b'-')
            && label.bytes().next().is_some_and(inner)
            && label.bytes().last().is_some_and(inner)
    };
    !name.is_empty() && name.len() <= 53 && name.split('.').all(label)
}

#[cfg(test)]
mod tests;
