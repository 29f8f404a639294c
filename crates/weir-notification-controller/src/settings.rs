//! Flags and feature gates.

use std::time::Duration;

use clap::Parser;
use weir_runtime::{FeatureGates, Program, flags};

/// What is fixed about this program.
pub const PROGRAM: Program = Program {
    name: "notification-controller",
    version: env!("CARGO_PKG_VERSION"),
    field_manager: "notification-controller",
    concurrent: None,
    environment: &[],
    feature_gates: &[
        ("CacheSecretsAndConfigMaps", false),
        ("DisableConfigWatchers", false),
        ("ObjectLevelWorkloadIdentity", false),
    ],
};

/// Sends events where people see them, and reconciles objects when webhooks arrive.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "notification-controller",
    version,
    // Elsewhere this is where events are posted to; here it is where they arrive.
    mut_arg("events_addr", |flag| flag
        .default_value(":9090")
        .value_name("ADDRESS")
        .help("The address the events receiver binds to"))
)]
pub struct Flags {
    /// Flags of every controller.
    #[command(flatten)]
    pub common: flags::Common,
    /// Access rules.
    #[command(flatten)]
    pub access: flags::AccessControl,
    /// The identity of providers that name no service account.
    #[command(flatten)]
    pub service_account: flags::ServiceAccount,
    /// Access tokens.
    #[command(flatten)]
    pub tokens: flags::TokenCache,
    /// The address the webhook receiver binds to.
    #[arg(long = "receiverAddr", value_name = "ADDRESS", default_value = ":9292")]
    pub receiver_addr: String,
    /// How long repeated events are held back.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flags::go_duration)]
    pub rate_limit_interval: Duration,
    /// Name the full path of requests in the metrics.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = flags::boolean)]
    pub export_http_path_metrics: bool,
}

/// What the controller does with the flags.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where events arrive.
    pub events_addr: String,
    /// Where webhooks arrive.
    pub receiver_addr: String,
    /// How long repeated events are held back.
    pub rate_limit_interval: Duration,
    /// Whether metrics name the full path of requests.
    pub export_http_path_metrics: bool,
    /// Whether references to other namespaces are refused.
    pub no_cross_namespace_refs: bool,
    /// The service account of providers that name none; empty for the controller's own identity.
    pub default_service_account: String,
    /// The number of cached access tokens; 0 turns the cache off.
    pub token_cache_max_size: usize,
    /// The longest time a token is cached.
    pub token_cache_max_duration: Duration,
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
        let account = &flags.service_account.default_service_account;
        if !account.is_empty() && !gates.enabled("ObjectLevelWorkloadIdentity") {
            return Err(InvalidFlags::NoObjectLevelIdentity);
        }
        Ok(Self {
            events_addr: flags.common.events_addr.clone(),
            receiver_addr: flags.receiver_addr.clone(),
            rate_limit_interval: flags.rate_limit_interval,
            export_http_path_metrics: flags.export_http_path_metrics,
            no_cross_namespace_refs: flags.access.no_cross_namespace_refs,
            default_service_account: account.clone(),
            token_cache_max_size: flags.tokens.token_cache_max_size,
            token_cache_max_duration: flags.tokens.token_cache_max_duration.min(Duration::from_hours(1)),
            gates,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Flags, clap::Error> {
        let arguments = std::iter::once("notification-controller").chain(arguments.iter().copied());
        flags::try_parse(&PROGRAM, arguments)
    }

    fn settings(arguments: &[&str]) -> Result<Settings, InvalidFlags> {
        let flags = parse(arguments).unwrap();
        let gates = FeatureGates::parse(PROGRAM.feature_gates, &flags.common.feature_gates).unwrap();
        Settings::new(&flags, gates)
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let settings = settings(&[]).unwrap();
        assert_eq!((settings.events_addr.as_str(), settings.receiver_addr.as_str()), (":9090", ":9292"));
        assert_eq!(settings.rate_limit_interval, Duration::from_mins(5));
        assert!(!settings.export_http_path_metrics && !settings.no_cross_namespace_refs);
        assert_eq!(settings.token_cache_max_duration, Duration::from_hours(1));
        assert!(settings.gates.iter().all(|(_, on)| !on));
    }

    #[test]
    fn the_arguments_of_the_stock_deployment_are_understood() {
        let settings = settings(&[
            "--watch-all-namespaces",
            "--log-level=info",
            "--log-encoding=json",
            "--enable-leader-election",
            "--events-addr=:9091",
            "--receiverAddr=127.0.0.1:9393",
            "--rate-limit-interval=1m30s",
            "--export-http-path-metrics",
            "--no-cross-namespace-refs=true",
            "--feature-gates=ObjectLevelWorkloadIdentity=true",
            "--default-service-account=notifier",
            "--token-cache-max-size=0",
            "--token-cache-max-duration=3h",
        ]);
        let settings = settings.unwrap();
        assert_eq!(
            (settings.events_addr.as_str(), settings.receiver_addr.as_str()),
            (":9091", "127.0.0.1:9393")
        );
        assert_eq!(settings.rate_limit_interval, Duration::from_secs(90));
        assert!(settings.export_http_path_metrics && settings.no_cross_namespace_refs);
        assert_eq!(settings.token_cache_max_duration, Duration::from_hours(1), "at most an hour");
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let refused = settings(&["--default-service-account=x"]).unwrap_err();
        assert_eq!(refused, InvalidFlags::NoObjectLevelIdentity);
        // Flags the other controllers have.
        for flag in
            ["--watch-label-selector=a=b", "--interval-jitter-percentage=5", "--requeue-dependency=5s"]
        {
            assert!(parse(&[flag]).is_err(), "{flag}");
        }
    }

    #[test]
    fn help_is_what_people_read() {
        let mut command = flags::command::<Flags>(&PROGRAM).term_width(100);
        insta::assert_snapshot!(command.render_long_help().to_string());
    }
}
