//! The flags of source-controller.

use clap::Parser;
use weir_runtime::ArtifactFlags;
use weir_runtime::flags::{Common, Dependencies, Jitter, ServiceAccount, Sharding, TokenCache};

/// The command line of source-controller; names and defaults are those of Flux.
#[derive(Debug, Parser)]
#[command(version, about = "Fetches sources and publishes them as artifacts.")]
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
    /// `--requeue-dependency`.
    #[command(flatten)]
    pub dependencies: Dependencies,
    /// `--default-service-account`.
    #[command(flatten)]
    pub service_account: ServiceAccount,
    /// `--token-cache-max-size` and `--token-cache-max-duration`.
    #[command(flatten)]
    pub token_cache: TokenCache,
    /// `--storage-*` and `--artifact-*`.
    #[command(flatten)]
    pub artifacts: ArtifactFlags,
    /// The largest Helm repository index in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 50 << 20)]
    pub helm_index_max_size: i64,
    /// The largest packaged Helm chart in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 10 << 20)]
    pub helm_chart_max_size: i64,
    /// The largest file in a Helm chart in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 5 << 20)]
    pub helm_chart_file_max_size: i64,
    /// How many Helm repository indexes are cached; 0 turns the cache off.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub helm_cache_max_size: i64,
    /// How long a Helm repository index is cached.
    #[arg(long, value_name = "DURATION", default_value = "15m")]
    pub helm_cache_ttl: String,
    /// How often the Helm repository index cache is cleaned.
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    pub helm_cache_purge_interval: String,
    /// SSH key exchange algorithms, most preferred first.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub ssh_kex_algos: Vec<String>,
    /// SSH host key algorithms, most preferred first.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub ssh_hostkey_algos: Vec<String>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_artifact::digest::Algorithm;

    use super::*;
    use crate::PROGRAM;

    fn parse(arguments: &[&str]) -> Result<Flags, clap::Error> {
        let arguments = std::iter::once("source-controller").chain(arguments.iter().copied());
        weir_runtime::flags::try_parse(&PROGRAM, arguments)
    }

    #[test]
    fn defaults_are_those_of_flux() {
        let flags = parse(&[]).unwrap();
        assert_eq!(flags.common.concurrent, 2);
        assert_eq!(flags.artifacts.storage_path, "/data");
        assert_eq!(flags.artifacts.storage_addr, ":9090");
        assert_eq!(flags.artifacts.artifact_retention_ttl, Duration::from_mins(1));
        assert_eq!(flags.artifacts.artifact_retention_records, 2);
        assert_eq!(flags.artifacts.artifact_digest_algo, Algorithm::Sha256);
        assert_eq!(flags.helm_index_max_size, 52_428_800);
        assert_eq!(flags.helm_chart_max_size, 10_485_760);
        assert_eq!(flags.helm_chart_file_max_size, 5_242_880);
        assert_eq!(flags.dependencies.requeue_dependency, Duration::from_secs(30));
    }

    #[test]
    fn the_stock_deployment_starts() {
        let flags = parse(&[
            "--events-addr=http://notification-controller.flux-system.svc.cluster.local./",
            "--watch-all-namespaces",
            "--log-level=info",
            "--log-encoding=json",
            "--enable-leader-election",
            "--storage-path=/data",
            "--storage-adv-addr=source-controller.$(RUNTIME_NAMESPACE).svc.cluster.local.",
            "--ssh-kex-algos=a,b",
            "--artifact-digest-algo=blake3",
        ])
        .unwrap();
        assert_eq!(flags.ssh_kex_algos, ["a", "b"]);
        assert_eq!(flags.artifacts.artifact_digest_algo, Algorithm::Blake3);
        assert!(parse(&["--artifact-digest-algo=md5"]).is_err());
        assert!(parse(&["--artifact-retention-ttl=5"]).is_err());
    }
}
