//! Kinds as sub-commands, for commands that work alike on many kinds.

use clap::{Args, Subcommand};

use crate::kind::Kind;

/// A kind that can be suspended, and what to do with it.
#[derive(Debug, Subcommand)]
pub(crate) enum Target<A: Args> {
    /// Kustomizations
    #[command(visible_alias = "ks")]
    Kustomization(A),
    /// HelmReleases
    #[command(visible_alias = "hr")]
    Helmrelease(A),
    /// Sources
    #[command(subcommand, visible_alias = "sources")]
    Source(SourceTarget<A>),
    /// Image scans, policies and updates
    #[command(subcommand, visible_alias = "images")]
    Image(ImageTarget<A>),
    /// Webhook receivers
    Receiver(A),
    /// Alerts
    Alert(A),
    /// Alert providers
    AlertProvider(A),
}

/// A kind of source.
#[derive(Debug, Subcommand)]
pub(crate) enum SourceTarget<A: Args> {
    /// GitRepositories
    Git(A),
    /// OCIRepositories
    Oci(A),
    /// Buckets
    Bucket(A),
    /// HelmRepositories
    Helm(A),
    /// HelmCharts
    Chart(A),
}

/// A kind that serves image updates.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageTarget<A: Args> {
    /// ImageRepositories
    Repository(A),
    /// ImagePolicies
    Policy(A),
    /// ImageUpdateAutomations
    Update(A),
}

impl<A: Args> Target<A> {
    /// The kind and its arguments.
    pub(crate) fn split(self) -> (Kind, A) {
        match self {
            Self::Kustomization(arguments) => (Kind::Kustomization, arguments),
            Self::Helmrelease(arguments) => (Kind::HelmRelease, arguments),
            Self::Source(target) => target.split(),
            Self::Image(target) => target.split(),
            Self::Receiver(arguments) => (Kind::Receiver, arguments),
            Self::Alert(arguments) => (Kind::Alert, arguments),
            Self::AlertProvider(arguments) => (Kind::Provider, arguments),
        }
    }
}

impl<A: Args> SourceTarget<A> {
    /// The kind and its arguments.
    pub(crate) fn split(self) -> (Kind, A) {
        match self {
            Self::Git(arguments) => (Kind::GitRepository, arguments),
            Self::Oci(arguments) => (Kind::OciRepository, arguments),
            Self::Bucket(arguments) => (Kind::Bucket, arguments),
            Self::Helm(arguments) => (Kind::HelmRepository, arguments),
            Self::Chart(arguments) => (Kind::HelmChart, arguments),
        }
    }
}

impl<A: Args> ImageTarget<A> {
    /// The kind and its arguments.
    pub(crate) fn split(self) -> (Kind, A) {
        match self {
            Self::Repository(arguments) => (Kind::ImageRepository, arguments),
            Self::Policy(arguments) => (Kind::ImagePolicy, arguments),
            Self::Update(arguments) => (Kind::ImageUpdateAutomation, arguments),
        }
    }
}

/// Names of objects, or all of a namespace.
#[derive(Debug, Clone, Args)]
pub(crate) struct Names {
    /// Names of the objects
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// All objects of the kind in the namespace
    #[arg(long)]
    pub(crate) all: bool,
}

impl Names {
    /// The names without repetitions, in the given order.
    pub(crate) fn distinct(&self) -> Vec<&str> {
        let mut distinct: Vec<&str> = Vec::new();
        for name in &self.names {
            if !distinct.contains(&name.as_str()) {
                distinct.push(name);
            }
        }
        distinct
    }
}
