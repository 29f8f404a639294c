//! Command line flags that controllers share, as groups to flatten into a controller's own.
//!
//! Names, defaults and spellings are the reference's: `--x=y` and `--x y`, bare booleans, Go
//! durations. Parse with [`parse`], which knows the few defaults that differ per controller.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches};

use weir_api::GoDuration;

use crate::Program;

/// The value parser of boolean flags. A Go boolean: `1`, `t`, `true`, `0`, `f`, `false` in the usual capitalisations.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("invalid boolean '{text}'")),
    }
}

/// The value parser of duration flags: what Go's `time.ParseDuration` takes, but not below zero.
pub fn go_duration(text: &str) -> Result<Duration, String> {
    let duration: GoDuration =
        text.parse().map_err(|error: weir_api::duration::ParseDurationError| error.to_string())?;
    if duration < GoDuration::ZERO {
        return Err(format!("negative duration '{text}'"));
    }
    Ok(duration.to_std())
}

/// The flags of every controller.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// The address the metric endpoint binds to.
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub metrics_addr: String,
    /// The address the health endpoint binds to.
    #[arg(long, value_name = "ADDRESS", default_value = ":9440")]
    pub health_addr: String,
    /// The address of the events receiver; empty for Kubernetes events only.
    #[arg(long, value_name = "URL", default_value = "")]
    pub events_addr: String,
    /// The number of concurrent reconciles per kind.
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub concurrent: usize,
    /// The requests per second to the Kubernetes API; ignored if the server does priority and fairness.
    #[arg(long, value_name = "NUMBER", default_value_t = 50.0)]
    pub kube_api_qps: f32,
    /// The burst of requests to the Kubernetes API; ignored if the server does priority and fairness.
    #[arg(long, value_name = "NUMBER", default_value_t = 300)]
    pub kube_api_burst: u32,
    /// Log verbosity: trace, debug, info or error.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Log encoding: json or console.
    #[arg(long, value_name = "ENCODING", default_value = "json")]
    pub log_encoding: String,
    /// Ensure that only one instance is active.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = boolean)]
    pub enable_leader_election: bool,
    /// Give up the lease on shutdown, so that another instance takes over at once.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_parser = boolean)]
    pub leader_election_release_on_cancel: bool,
    /// How long others wait before they take a lease that is not renewed.
    #[arg(long, value_name = "DURATION", default_value = "35s", value_parser = go_duration)]
    pub leader_election_lease_duration: Duration,
    /// How long the leader tries to renew the lease before it gives up.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = go_duration)]
    pub leader_election_renew_deadline: Duration,
    /// The time between two tries to acquire or renew the lease.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = go_duration)]
    pub leader_election_retry_period: Duration,
    /// The first delay before a failed object is tried again.
    #[arg(long, value_name = "DURATION", default_value = "750ms", value_parser = go_duration)]
    pub min_retry_delay: Duration,
    /// The longest delay before a failed object is tried again.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = go_duration)]
    pub max_retry_delay: Duration,
    /// Feature gates: `Name=true,Other=false`; may be repeated.
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Vec<String>,
    /// Watch all namespaces; otherwise only the one this process runs in.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_parser = boolean)]
    pub watch_all_namespaces: bool,
    /// Watch only ConfigMaps and Secrets with matching labels; empty for all.
    #[arg(long, value_name = "SELECTOR", default_value = "reconcile.fluxcd.io/watch=Enabled")]
    pub watch_configs_label_selector: String,
}

/// `--watch-label-selector`, of all controllers but notification-controller.
#[derive(Debug, Clone, Args)]
pub struct Sharding {
    /// Watch only objects of the controller's own kinds with matching labels.
    #[arg(long, value_name = "SELECTOR", default_value = "")]
    pub watch_label_selector: String,
}

/// `--interval-jitter-percentage`.
#[derive(Debug, Clone, Args)]
pub struct Jitter {
    /// Percentage by which intervals vary, so that objects do not all run at the same time.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..100))]
    pub interval_jitter_percentage: u8,
}

/// `--requeue-dependency`.
#[derive(Debug, Clone, Args)]
pub struct Dependencies {
    /// The time between two looks at a dependency that is not ready.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = go_duration)]
    pub requeue_dependency: Duration,
}

/// `--no-cross-namespace-refs`.
#[derive(Debug, Clone, Args)]
pub struct AccessControl {
    /// Refuse references to objects in other namespaces.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = boolean)]
    pub no_cross_namespace_refs: bool,
}

/// `--insecure-kubeconfig-exec` and `--insecure-kubeconfig-tls`.
#[derive(Debug, Clone, Args)]
pub struct RemoteClusters {
    /// Allow exec commands in kubeconfigs of remote clusters.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = boolean)]
    pub insecure_kubeconfig_exec: bool,
    /// Allow kubeconfigs of remote clusters to skip TLS verification.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = boolean)]
    pub insecure_kubeconfig_tls: bool,
    /// The service account for remote cluster authentication if the kubeconfig names none.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub default_kubeconfig_service_account: String,
}

/// `--default-service-account`.
#[derive(Debug, Clone, Args)]
pub struct ServiceAccount {
    /// The service account used for objects that name none.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub default_service_account: String,
}

/// `--token-cache-max-size` and `--token-cache-max-duration`.
#[derive(Debug, Clone, Args)]
pub struct TokenCache {
    /// The number of cached access tokens; 0 turns the cache off.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub token_cache_max_size: usize,
    /// The longest time a token is cached, at most one hour.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = go_duration)]
    pub token_cache_max_duration: Duration,
}

/// The command of a controller with the defaults of `program`; also what the flag reference is made
/// from.
pub fn command<A: CommandFactory>(program: &Program) -> clap::Command {
    let mut command = A::command().name(program.name).args_override_self(true);
    if let Some(concurrent) = program.concurrent {
        command = command.mut_arg("concurrent", |arg| arg.default_value(concurrent));
    }
    for (flag, variable) in program.environment {
        command = command.mut_arg(*flag, |arg| arg.env(*variable));
    }
    command
}

/// Parses the command line of a controller; prints help or the mistake and ends the process if
/// that is what it comes to.
pub fn parse<A: CommandFactory + FromArgMatches>(program: &Program) -> A {
    try_parse(program, std::env::args_os()).unwrap_or_else(|error| error.exit())
}

/// Parses a given command line; the first argument is the program name.
///
/// # Errors
/// A flag that does not exist or a value that does not parse.
pub fn try_parse<A: CommandFactory + FromArgMatches>(
    program: &Program,
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<A, clap::Error> {
    let mut command = command::<A>(program);
    let matches = command.try_get_matches_from_mut(arguments)?;
    A::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Example {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        jitter: Jitter,
        #[command(flatten)]
        sharding: Sharding,
    }

    const PROGRAM: Program = Program {
        name: "example-controller",
        concurrent: Some("2"),
        environment: &[],
        feature_gates: &[],
        field_manager: "example-controller",
        version: "0.0.0",
    };

    fn check(arguments: &[&str]) -> Result<Example, clap::Error> {
        try_parse(&PROGRAM, std::iter::once("example-controller").chain(arguments.iter().copied()))
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let example = check(&[]).unwrap();
        assert_eq!(example.common.concurrent, 2);
        assert_eq!(example.common.metrics_addr, ":8080");
        assert_eq!(example.common.min_retry_delay, Duration::from_millis(750));
        assert_eq!(example.common.max_retry_delay, Duration::from_mins(15));
        assert!(example.common.watch_all_namespaces);
        assert!(!example.common.enable_leader_election);
        assert!(example.common.leader_election_release_on_cancel);
        assert_eq!(example.jitter.interval_jitter_percentage, 5);
    }

    #[test]
    fn go_spellings_are_understood() {
        let example = check(&[
            "--watch-all-namespaces=false",
            "--enable-leader-election",
            "--log-level=debug",
            "--concurrent",
            "7",
            "--min-retry-delay=1m30s",
            "--watch-label-selector=!sharding.fluxcd.io/key",
            "--feature-gates=A=true,B=false",
            "--feature-gates",
            "C=true",
        ])
        .unwrap();
        assert!(!example.common.watch_all_namespaces);
        assert!(example.common.enable_leader_election);
        assert_eq!(example.common.log_level, "debug");
        assert_eq!(example.common.concurrent, 7);
        assert_eq!(example.common.min_retry_delay, Duration::from_secs(90));
        assert_eq!(example.sharding.watch_label_selector, "!sharding.fluxcd.io/key");
        assert_eq!(example.common.feature_gates, ["A=true,B=false", "C=true"]);
    }

    #[test]
    fn a_boolean_flag_does_not_swallow_the_next_argument() {
        let example = check(&["--enable-leader-election", "--concurrent=3"]).unwrap();
        assert!(example.common.enable_leader_election);
        assert_eq!(example.common.concurrent, 3);
        assert!(check(&["--enable-leader-election", "false"]).is_err());
    }

    #[test]
    fn the_last_value_of_a_repeated_flag_counts() {
        assert_eq!(check(&["--concurrent=3", "--concurrent=5"]).unwrap().common.concurrent, 5);
    }

    #[test]
    fn mistakes_are_refused() {
        for arguments in [
            ["--no-such-flag"],
            ["--interval-jitter-percentage=100"],
            ["--min-retry-delay=5"],
            ["--min-retry-delay=-5s"],
            ["--watch-all-namespaces=maybe"],
        ] {
            assert!(check(&arguments).is_err(), "{arguments:?}");
        }
    }
}
