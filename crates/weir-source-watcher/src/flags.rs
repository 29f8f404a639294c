//! The flags of source-watcher.

use std::time::Duration;

use clap::Parser;
use weir_runtime::ArtifactFlags;
use weir_runtime::flags::{AccessControl, Common, Jitter, Sharding, go_duration};

/// The command line of source-watcher; names and defaults are those of Flux.
#[derive(Debug, Parser)]
#[command(version, about = "Composes artifacts from other sources.")]
pub struct Flags {
    /// Flags of all controllers.
    #[command(flatten)]
    pub common: Common,
    /// `--watch-label-selector`.
    #[command(flatten)]
    pub sharding: Sharding,
    /// `--interval-jitter-percentage`.
    #[command(flatten)]
    pub jitter: Jitter,
    /// `--no-cross-namespace-refs`.
    #[command(flatten)]
    pub access: AccessControl,
    /// The time between two looks at a source that is not available.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = go_duration)]
    pub requeue_dependency: Duration,
    /// How often a failed download is repeated.
    #[arg(long, value_name = "NUMBER", default_value_t = 9)]
    pub http_retry: u32,
    /// The longest time of a reconciliation.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_duration)]
    pub reconciliation_timeout: Duration,
    /// `--storage-*` and `--artifact-*`.
    #[command(flatten)]
    pub artifacts: ArtifactFlags,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROGRAM;

    #[test]
    fn defaults_are_those_of_flux() {
        let flags: Flags = weir_runtime::flags::try_parse(&PROGRAM, ["source-watcher"]).unwrap();
        assert_eq!(flags.common.concurrent, 10);
        assert_eq!(flags.http_retry, 9);
        assert_eq!(flags.reconciliation_timeout, Duration::from_mins(10));
        assert_eq!(flags.requeue_dependency, Duration::from_secs(5));
        assert_eq!(flags.artifacts.storage_path, "/data");
        assert!(!flags.access.no_cross_namespace_refs);
    }
}
