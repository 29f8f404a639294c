//! Flags and feature gates.

use std::time::Duration;

use clap::Parser;
use weir_apply::order::parse_custom_stage_kinds;
use weir_runtime::{FeatureGates, Program, flags};

/// No access token is kept longer than this.
const TOKEN_CACHE_DURATION_MAX: Duration = Duration::from_hours(1);

/// What is fixed about this program.
pub const PROGRAM: Program = Program {
    name: "kustomize-controller",
    version: env!("CARGO_PKG_VERSION"),
    field_manager: "gotk-kustomize-controller",
    concurrent: None,
    environment: &[],
    feature_gates: &[
        ("AdditiveCELDependencyCheck", false),
        ("CacheSecretsAndConfigMaps", false),
        ("CancelHealthCheckOnNewRevision", false),
        ("DirectSourceFetch", false),
        ("DisableConfigWatchers", false),
        ("DisableFailFastBehavior", false),
        ("DisableStatusPollerCache", true),
        ("EventDrivenReconciliation", true),
        ("ExternalArtifact", false),
        ("GroupChangeLog", false),
        ("MigrateAPIVersion", false),
        ("ObjectLevelWorkloadIdentity", false),
        ("StrictPostBuildSubstitutions", true),
    ],
};

/// Builds manifests from artifacts, applies them, and keeps the cluster that way.
#[derive(Debug, Clone, Parser)]
#[command(name = "kustomize-controller", version)]
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
    /// The number of objects of one stage that are looked at in parallel.
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub concurrent_ssa: usize,
    /// Refuse remote bases in kustomizations.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = flags::boolean)]
    pub no_remote_bases: bool,
    /// Fetch nothing that kustomizations name, files neither; for whoever runs the controller without a network.
    #[arg(skip)]
    pub offline: bool,
    /// How often a failed artifact download is repeated.
    #[arg(long, value_name = "NUMBER", default_value_t = 9)]
    pub http_retry: u32,
    /// The service account for decryption if the object names none.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub default_decryption_service_account: String,
    /// A Secret with age keys in the namespace of the controller, for objects that name none.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub sops_age_secret: String,
    /// A ConfigMap with Vault addresses and login paths in the namespace of the controller.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub sops_vault_configmap: String,
    /// The prefix of a field manager whose fields are taken over; may be repeated.
    #[arg(long, value_name = "MANAGER")]
    pub override_manager: Vec<String>,
    /// How long a Kustomization whose objects are watched is only watched before all of them are
    /// compared again.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = flags::go_duration)]
    pub full_check_interval: Duration,
    /// Kinds applied in a stage of their own: a comma list of group/Kind, or Kind in the core group.
    #[arg(long, value_name = "KINDS", default_value = "")]
    pub custom_apply_stage_kinds: String,
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
    /// Whether remote bases are refused.
    pub no_remote_bases: bool,
    /// How many objects are looked at in parallel.
    pub concurrent_ssa: usize,
    /// Prefixes of field managers to take over.
    pub override_managers: Vec<String>,
    /// Kinds of the custom stage.
    pub custom_stage_kinds: weir_apply::order::CustomStageKinds,
    /// How often everything is compared even if nothing seems to have changed.
    pub full_check_interval: Duration,
    /// The account for decryption if the object names none; empty for none.
    pub default_decryption_service_account: String,
    /// The account for remote clusters if their description names none; empty for none.
    pub default_kubeconfig_service_account: String,
    /// How many access tokens are kept.
    pub token_cache_size_max: usize,
    /// How long an access token is kept.
    pub token_cache_duration_max: Duration,
    /// Whether kubeconfigs may run commands.
    pub insecure_kubeconfig_exec: bool,
    /// Whether kubeconfigs may skip TLS verification.
    pub insecure_kubeconfig_tls: bool,
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
}

impl Settings {
    /// The settings the flags ask for.
    ///
    /// # Errors
    /// A combination of flags that cannot work.
    pub fn new(flags: &Flags, gates: FeatureGates) -> Result<Self, InvalidFlags> {
        let identities =
            [&flags.default_decryption_service_account, &flags.remote.default_kubeconfig_service_account];
        if identities.iter().any(|name| !name.is_empty()) && !gates.enabled("ObjectLevelWorkloadIdentity") {
            return Err(InvalidFlags::NoObjectLevelIdentity);
        }
        Ok(Self {
            requeue_dependency: flags.dependencies.requeue_dependency,
            no_cross_namespace_refs: flags.access.no_cross_namespace_refs,
            default_service_account: flags.service_account.default_service_account.clone(),
            no_remote_bases: flags.no_remote_bases,
            concurrent_ssa: flags.concurrent_ssa.max(1),
            override_managers: flags.override_manager.clone(),
            custom_stage_kinds: parse_custom_stage_kinds(&flags.custom_apply_stage_kinds),
            full_check_interval: flags.full_check_interval,
            default_decryption_service_account: flags.default_decryption_service_account.clone(),
            default_kubeconfig_service_account: flags.remote.default_kubeconfig_service_account.clone(),
            token_cache_size_max: flags.tokens.token_cache_max_size,
            token_cache_duration_max: flags.tokens.token_cache_max_duration.min(TOKEN_CACHE_DURATION_MAX),
            insecure_kubeconfig_exec: flags.remote.insecure_kubeconfig_exec,
            insecure_kubeconfig_tls: flags.remote.insecure_kubeconfig_tls,
            gates,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Flags {
        flags::try_parse(&PROGRAM, std::iter::once("kustomize-controller").chain(arguments.iter().copied()))
            .unwrap()
    }

    fn settings(arguments: &[&str]) -> Result<Settings, InvalidFlags> {
        let flags = parse(arguments);
        let gates = FeatureGates::parse(PROGRAM.feature_gates, &flags.common.feature_gates).unwrap();
        Settings::new(&flags, gates)
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let flags = parse(&[]);
        assert_eq!(flags.common.concurrent, 4);
        assert_eq!(flags.concurrent_ssa, 4);
        assert_eq!(flags.http_retry, 9);
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.requeue_dependency, Duration::from_secs(30));
        assert!(!settings.no_cross_namespace_refs && !settings.no_remote_bases);
        assert!(
            settings.gates.enabled("StrictPostBuildSubstitutions")
                && !settings.gates.enabled("ExternalArtifact")
        );
    }

    #[test]
    fn the_arguments_of_the_stock_deployment_are_understood() {
        parse(&[
            "--events-addr=http://notification-controller.flux-system.svc.cluster.local./",
            "--watch-all-namespaces",
            "--log-level=info",
            "--log-encoding=json",
            "--enable-leader-election",
        ]);
        let settings = settings(&[
            "--override-manager=a,b",
            "--override-manager=c",
            "--custom-apply-stage-kinds=example.com/Widget, ConfigMap",
            "--concurrent-ssa=0",
            "--no-remote-bases",
            "--no-cross-namespace-refs=true",
            "--default-service-account=default",
            "--sops-age-secret=age",
            "--http-retry=3",
            "--feature-gates=ExternalArtifact=true",
        ])
        .unwrap();
        assert_eq!(settings.override_managers, ["a,b", "c"]);
        assert_eq!(settings.custom_stage_kinds.len(), 2);
        assert_eq!(settings.concurrent_ssa, 1);
        assert!(settings.gates.enabled("ExternalArtifact"));
    }

    #[test]
    fn default_identities_need_their_gate() {
        assert_eq!(
            settings(&["--default-decryption-service-account=x"]).unwrap_err(),
            InvalidFlags::NoObjectLevelIdentity
        );
        assert!(
            settings(&[
                "--default-kubeconfig-service-account=x",
                "--feature-gates=ObjectLevelWorkloadIdentity=true"
            ])
            .is_ok()
        );
    }
}
