//! The flags of source-watcher.

use std::time::Duration;

use clap::Parser;
use weir_artifact::digest::Algorithm;
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
    /// The directory artifacts are stored in; it must exist.
    #[arg(long, value_name = "DIRECTORY", default_value = "/data")]
    pub storage_path: String,
    /// The address the artifact file server binds to.
    #[arg(long, value_name = "ADDRESS", default_value = ":9090")]
    pub storage_addr: String,
    /// The host in artifact URLs; derived from --storage-addr if empty.
    #[arg(long, value_name = "HOST", default_value = "")]
    pub storage_adv_addr: String,
    /// How long artifacts are kept after they were written, the current ones aside.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = go_duration)]
    pub artifact_retention_ttl: Duration,
    /// How many artifacts younger than the retention time are kept per source.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    pub artifact_retention_records: usize,
    /// The algorithm of artifact digests: sha1, sha256, sha384, sha512 or blake3.
    #[arg(long, value_name = "ALGORITHM", default_value = "sha256", value_parser = str::parse::<Algorithm>)]
    pub artifact_digest_algo: Algorithm,
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
        assert_eq!(flags.storage_path, "/data");
        assert!(!flags.access.no_cross_namespace_refs);
    }
}
