//! Flags and feature gates.

use std::time::Duration;

use clap::Parser;
use weir_runtime::{FeatureGates, Program, flags};

use crate::digest::Algorithm;

/// What is fixed about this program.
pub const PROGRAM: Program = Program {
    name: "helm-controller",
    version: env!("CARGO_PKG_VERSION"),
    field_manager: "helm-controller",
    concurrent: None,
    environment: &[],
    feature_gates: &[
        ("AdditiveCELDependencyCheck", false),
        ("AdoptLegacyReleases", false),
        ("AllowDNSLookups", false),
        ("CacheSecretsAndConfigMaps", false),
        ("CancelHealthCheckOnNewRevision", false),
        ("CorrectDrift", false),
        ("DefaultToRetryOnFailure", false),
        ("DetectDrift", false),
        ("DirectSourceFetch", false),
        ("DisableChartDigestTracking", false),
        ("DisableConfigWatchers", false),
        ("EventDrivenReconciliation", true),
        ("ExplainFailures", true),
        ("ExternalArtifact", false),
        ("OOMWatch", false),
        ("ObjectLevelWorkloadIdentity", false),
        ("RecoverExhaustedReleases", false),
        ("UseHelm3Defaults", false),
    ],
};

/// Installs Helm charts, upgrades them, and keeps them that way.
#[derive(Debug, Clone, Parser)]
#[command(name = "helm-controller", version)]
pub struct Flags {
    /// Flags of every controller.
    #[command(flatten)]
    pub common: flags::Common,
    /// Sharding.
    #[command(flatten)]
    pub sharding: flags::Sharding,
    /// Interval jitter.
    #[command(flatten)]
    pub jitter: flags::Jitter,
    /// Dependencies.
    #[command(flatten)]
    pub dependencies: flags::Dependencies,
    /// Access rules.
    #[command(flatten)]
    pub access: flags::AccessControl,
    /// Remote clusters.
    #[command(flatten)]
    pub remote: flags::RemoteClusters,
    /// Impersonation.
    #[command(flatten)]
    pub service_account: flags::ServiceAccount,
    /// Access tokens.
    #[command(flatten)]
    pub tokens: flags::TokenCache,
    /// Fetch nothing that schemas of charts refer to, which then allows anything; for whoever runs the controller
    /// without a network.
    #[arg(skip)]
    pub offline: bool,
    /// How often a failed artifact download is repeated.
    #[arg(long, value_name = "NUMBER", default_value_t = 9)]
    pub http_retry: u32,
    /// The limit of one artifact download.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = flags::go_duration)]
    pub http_timeout: Duration,
    /// The algorithm of the digests of release snapshots: sha256, sha384, sha512, sha1 or blake3.
    #[arg(long, value_name = "ALGORITHM", default_value = "sha256", value_parser = Algorithm::parse)]
    pub snapshot_digest_algo: Algorithm,
    /// The name of a field manager whose fields drift detection takes over; may be repeated.
    #[arg(long, value_name = "MANAGER")]
    pub override_manager: Vec<String>,
    /// The share of the memory limit, in percent, at which the process ends gracefully.
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub oom_watch_memory_threshold: u8,
    /// How often the memory in use is looked at; at least 50ms.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = flags::go_duration)]
    pub oom_watch_interval: Duration,
    /// The file with the memory limit; found by itself if empty.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub oom_watch_max_memory_path: String,
    /// The file with the memory in use; found by itself if empty.
    #[arg(long, value_name = "PATH", default_value = "")]
    pub oom_watch_current_memory_path: String,
}

/// What the controller does with the flags.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The wait between two looks at a dependency or a missing artifact.
    pub requeue_dependency: Duration,
    /// Whether sources in other namespaces are refused.
    pub no_cross_namespace_refs: bool,
    /// Impersonated if the object names no account; empty for none.
    pub default_service_account: String,
    /// The algorithm of snapshot digests.
    pub digest_algorithm: Algorithm,
    /// Field managers whose fields drift detection takes over.
    pub override_managers: Vec<String>,
    /// Whether kubeconfigs may run commands.
    pub insecure_kubeconfig_exec: bool,
    /// Whether kubeconfigs may skip TLS verification.
    pub insecure_kubeconfig_tls: bool,
    /// Logs in to clusters that a ConfigMap describes if the ConfigMap names no account; empty for the controller.
    pub default_kubeconfig_service_account: String,
    /// How many access tokens are kept.
    pub token_cache_size_max: usize,
    /// For how long at most.
    pub token_cache_duration_max: Duration,
    /// Whether documents that schemas of charts refer to are not fetched and allow anything.
    pub offline: bool,
    /// The feature gates.
    pub gates: FeatureGates,
}

/// A combination of flags that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFlags {
    /// Object-level identities are switched off.
    #[error(
        "cannot set default service accounts when the feature gate ObjectLevelWorkloadIdentity is not enabled"
    )]
    NoObjectLevelIdentity,
    /// The memory in use would be looked at too often.
    #[error("--oom-watch-interval must be at least 50ms")]
    OomInterval,
}

impl Settings {
    /// The settings the flags ask for.
    ///
    /// # Errors
    /// A combination of flags that cannot work.
    pub fn new(flags: &Flags, gates: FeatureGates) -> Result<Self, InvalidFlags> {
        if !flags.remote.default_kubeconfig_service_account.is_empty()
            && !gates.enabled("ObjectLevelWorkloadIdentity")
        {
            return Err(InvalidFlags::NoObjectLevelIdentity);
        }
        if flags.oom_watch_interval < Duration::from_millis(50) {
            return Err(InvalidFlags::OomInterval);
        }
        Ok(Self {
            requeue_dependency: flags.dependencies.requeue_dependency,
            no_cross_namespace_refs: flags.access.no_cross_namespace_refs,
            default_service_account: flags.service_account.default_service_account.clone(),
            digest_algorithm: flags.snapshot_digest_algo,
            override_managers: flags.override_manager.clone(),
            insecure_kubeconfig_exec: flags.remote.insecure_kubeconfig_exec,
            insecure_kubeconfig_tls: flags.remote.insecure_kubeconfig_tls,
            default_kubeconfig_service_account: flags.remote.default_kubeconfig_service_account.clone(),
            token_cache_size_max: flags.tokens.token_cache_max_size,
            token_cache_duration_max: flags.tokens.token_cache_max_duration,
            offline: flags.offline,
            gates,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(arguments: &[&str]) -> Result<Settings, InvalidFlags> {
        let arguments = std::iter::once("helm-controller").chain(arguments.iter().copied());
        let flags: Flags = flags::try_parse(&PROGRAM, arguments).unwrap();
        let gates = FeatureGates::parse(PROGRAM.feature_gates, &flags.common.feature_gates).unwrap();
        Settings::new(&flags, gates)
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.requeue_dependency, Duration::from_secs(30));
        assert_eq!(settings.digest_algorithm, Algorithm::Sha256);
        assert!(
            !settings.gates.enabled("ExternalArtifact")
                && settings.gates.enabled("EventDrivenReconciliation")
        );
    }

    #[test]
    fn the_arguments_of_the_stock_deployment_are_understood() {
        let settings = settings(&[
            "--events-addr=http://notification-controller.flux-system.svc.cluster.local./",
            "--watch-all-namespaces",
            "--log-level=info",
            "--log-encoding=json",
            "--enable-leader-election",
            "--snapshot-digest-algo=blake3",
            "--override-manager=kubectl",
            "--oom-watch-memory-threshold=90",
            "--no-cross-namespace-refs",
            "--feature-gates=OOMWatch=true,AllowDNSLookups=true",
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.digest_algorithm, Algorithm::Blake3);
        assert!(settings.no_cross_namespace_refs && settings.gates.enabled("AllowDNSLookups"));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let refused = settings(&["--oom-watch-interval=10ms"]).unwrap_err();
        assert_eq!(refused, InvalidFlags::OomInterval);
        let refused = settings(&["--default-kubeconfig-service-account=x"]).unwrap_err();
        assert_eq!(refused, InvalidFlags::NoObjectLevelIdentity);
    }
}
