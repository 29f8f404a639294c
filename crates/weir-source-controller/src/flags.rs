//! The flags of source-controller.

use std::time::Duration;

use clap::Parser;
use weir_artifact::digest::Algorithm;
use weir_runtime::flags::{Common, Dependencies, Jitter, ServiceAccount, Sharding, TokenCache};

fn go_duration(text: &str) -> Result<Duration, weir_api::duration::ParseDurationError> {
    text.parse::<weir_api::duration::GoDuration>().map(weir_api::duration::GoDuration::to_std)
}

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
        assert_eq!(flags.storage_path, "/data");
        assert_eq!(flags.storage_addr, ":9090");
        assert_eq!(flags.artifact_retention_ttl, Duration::from_mins(1));
        assert_eq!(flags.artifact_retention_records, 2);
        assert_eq!(flags.artifact_digest_algo, Algorithm::Sha256);
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
        assert_eq!(flags.artifact_digest_algo, Algorithm::Blake3);
        assert!(parse(&["--artifact-digest-algo=md5"]).is_err());
        assert!(parse(&["--artifact-retention-ttl=5"]).is_err());
    }
}
