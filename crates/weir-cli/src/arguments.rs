//! The command line: global flags and the tree of sub-commands.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use weir_api::GoDuration;

use crate::commands::{
    build, check, debug, delete, dev, diff, envsubst, events, export, get, helm, kustomize, logs, reconcile,
    resume, simulate, stats, suspend, trace, tree, version,
};

/// Looks at, triggers and suspends what the controllers do.
#[derive(Debug, Parser)]
#[command(name = "weir", version, disable_version_flag = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Sub-commands, each in its own file below `commands`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print objects and their state
    Get(get::Arguments),
    /// Reconcile an object now and wait for the result
    Reconcile(reconcile::Arguments),
    /// Stop the reconciliation of objects
    Suspend(suspend::Arguments),
    /// Go on with the reconciliation of suspended objects
    Resume(resume::Arguments),
    /// Delete objects
    Delete(delete::Arguments),
    /// Print which objects of Flux an object comes from
    Trace(trace::Arguments),
    /// Print what a controller sees and remembers of an object
    Debug(debug::Arguments),
    /// Print what the controllers log
    Logs(logs::Arguments),
    /// Print the objects that an object manages
    Tree(tree::Arguments),
    /// Print the events of objects
    Events(events::Arguments),
    /// Print counts of objects and the size of artifacts
    Stats(stats::Arguments),
    /// Print objects as YAML, ready to be applied elsewhere
    Export(export::Arguments),
    /// Run a cluster and the controllers here, over a fleet in a directory
    Dev(dev::Arguments),
    /// Run the controllers over a repository on a cluster in memory, and report what happens
    Simulate(simulate::Arguments),
    /// Print what a controller would apply, made from local files
    Build(build::Arguments),
    /// Print what would change in the cluster, or since an earlier build
    Diff(diff::Arguments),
    /// Build kustomizations offline
    Kustomize(kustomize::Arguments),
    /// Render, check, show and package Helm charts offline
    Helm(helm::Arguments),
    /// Replace variables in text from stdin with those of the environment
    Envsubst(envsubst::Arguments),
    /// Check whether the cluster can run the controllers, and whether they run
    Check(check::Arguments),
    /// Print the version of this command and of the controllers
    Version(version::Arguments),
}

/// Flags of every sub-command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global flags")]
pub(crate) struct GlobalArguments {
    /// Print the version
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,
    /// Namespace of the objects; the environment variable FLUX_SYSTEM_NAMESPACE replaces the default
    #[arg(short, long, global = true, value_name = "NAME", default_value = "flux-system")]
    pub(crate) namespace: String,
    /// Whether --namespace was on the command line.
    #[arg(skip)]
    pub(crate) namespace_given: bool,
    /// Use the namespace of the kubeconfig context when --namespace is not given
    #[arg(long, global = true)]
    pub(crate) ns_follows_kube_context: bool,
    /// Longest time for the operation
    #[arg(long, global = true, value_name = "DURATION", default_value = "5m0s")]
    pub(crate) timeout: GoDuration,
    /// Print more
    #[arg(long, global = true)]
    pub(crate) verbose: bool,
    /// Path of the kubeconfig file
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) user: Option<String>,
    /// Address of the API server
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    pub(crate) server: Option<String>,
    /// Bearer token for the API server
    #[arg(long, global = true, value_name = "TOKEN", hide_short_help = true)]
    pub(crate) token: Option<String>,
    /// Name the certificate of the API server must have
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) tls_server_name: Option<String>,
    /// Do not verify the certificate of the API server
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) insecure_skip_tls_verify: bool,
    /// File with the certificate authority of the API server
    #[arg(long, global = true, value_name = "PATH", hide_short_help = true)]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// File with the client certificate
    #[arg(long, global = true, value_name = "PATH", hide_short_help = true)]
    pub(crate) client_certificate: Option<PathBuf>,
    /// File with the client key
    #[arg(long, global = true, value_name = "PATH", hide_short_help = true)]
    pub(crate) client_key: Option<PathBuf>,
    /// User to act as
    #[arg(long = "as", global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) impersonate: Option<String>,
    /// Group to act as; may be repeated
    #[arg(long = "as-group", global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) impersonate_groups: Vec<String>,
    /// User id to act as
    #[arg(long = "as-uid", global = true, value_name = "UID", hide_short_help = true)]
    pub(crate) impersonate_uid: Option<String>,
    /// Requests per second; accepted for compatibility
    #[arg(long, global = true, value_name = "NUMBER", default_value_t = 50.0, hide = true)]
    kube_api_qps: f64,
    /// Largest burst of requests; accepted for compatibility
    #[arg(long, global = true, value_name = "NUMBER", default_value_t = 300, hide = true)]
    kube_api_burst: i64,
}

impl Arguments {
    /// Reads the command line of the process.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut matches = Self::command().try_get_matches()?;
        let namespace_given = matches.value_source("namespace") == Some(ValueSource::CommandLine);
        let mut arguments = Self::from_arg_matches_mut(&mut matches)?;
        arguments.global.namespace_given = namespace_given;
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn help_of_every_command() {
        #[track_caller]
        fn visit(command: &clap::Command, path: &str, text: &mut String) {
            let help =
                command.clone().bin_name(path).term_width(100).disable_help_subcommand(true).render_help();
            text.extend(["=== ", path, "\n", &help.to_string(), "\n"]);
            for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
                visit(inner, &format!("{path} {}", inner.get_name()), text);
            }
        }
        // Global flags are shown once, at the root.
        let root = Arguments::command();
        let mut text = format!("=== weir\n{}\n", root.clone().term_width(100).render_help());
        for inner in root.get_subcommands() {
            visit(inner, &format!("weir {}", inner.get_name()), &mut text);
        }
        insta::assert_snapshot!("help", text);
    }
}
