//! `weir get`: objects and their state as tables.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::target::ImageTarget;
use crate::connection::{Connection, Filter};
use crate::error::{self, Error};
use crate::kind::Kind;
use crate::selector::StatusSelector;
use crate::view::{self, Columns};
use crate::{output, table};

/// Arguments of `weir get`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// List the objects of all namespaces
    #[arg(short = 'A', long, global = true)]
    all_namespaces: bool,
    /// Print no header
    #[arg(long, global = true)]
    no_header: bool,
    /// Go on and print objects that change
    #[arg(short, long, global = true)]
    watch: bool,
    /// Only objects whose condition has this status, such as ready=false or ready!=true
    #[arg(long, global = true, value_name = "CONDITION", default_value = "", hide_default_value = true)]
    status_selector: String,
    /// Only objects with these labels
    #[arg(
        short = 'l',
        long,
        global = true,
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    label_selector: String,
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// Everything
    All,
    /// Sources
    #[command(subcommand, visible_alias = "source")]
    Sources(Sources),
    /// Kustomizations
    #[command(visible_aliases = ["ks", "kustomization"])]
    Kustomizations(WithSource),
    /// HelmReleases
    #[command(visible_aliases = ["hr", "helmrelease"])]
    Helmreleases(WithSource),
    /// Image scans, policies and updates
    #[command(subcommand, visible_alias = "image")]
    Images(Images),
    /// Artifact generators
    #[command(subcommand, visible_alias = "artifact")]
    Artifacts(Artifacts),
    /// Webhook receivers
    #[command(visible_alias = "receiver")]
    Receivers(Name),
    /// Alerts
    #[command(visible_alias = "alert")]
    Alerts(Name),
    /// Alert providers
    #[command(visible_alias = "alert-provider")]
    AlertProviders(Name),
}

#[derive(Debug, Subcommand)]
enum Sources {
    /// Sources of all kinds
    All,
    /// GitRepositories
    Git(Name),
    /// OCIRepositories
    Oci(Name),
    /// Buckets
    Bucket(Name),
    /// HelmRepositories
    Helm(Name),
    /// HelmCharts
    Chart(Name),
    /// ExternalArtifacts
    External(Name),
}

#[derive(Debug, Subcommand)]
enum Images {
    /// Image objects of all kinds
    All,
    #[command(flatten)]
    One(ImageTarget<Name>),
}

#[derive(Debug, Subcommand)]
enum Artifacts {
    /// ArtifactGenerators
    #[command(visible_alias = "generator")]
    Generators(Name),
}

#[derive(Debug, Args)]
struct Name {
    /// Name of the object; all objects when left out
    name: Option<String>,
}

#[derive(Debug, Args)]
struct WithSource {
    #[command(flatten)]
    name: Name,
    /// Show the source
    #[arg(long)]
    show_source: bool,
}

const SOURCES: &[Kind] = &[
    Kind::OciRepository,
    Kind::Bucket,
    Kind::GitRepository,
    Kind::HelmRepository,
    Kind::HelmChart,
    Kind::ExternalArtifact,
];
const IMAGES: &[Kind] = &[Kind::ImageRepository, Kind::ImagePolicy, Kind::ImageUpdateAutomation];
const OTHERS: &[Kind] =
    &[Kind::HelmRelease, Kind::Kustomization, Kind::Receiver, Kind::Provider, Kind::Alert];

/// Prints the tables.
pub(crate) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Error> {
    let (kind, name, source) = match &arguments.target {
        Target::All => return several(connection, arguments, &[SOURCES, IMAGES, OTHERS].concat()).await,
        Target::Sources(Sources::All) => return several(connection, arguments, SOURCES).await,
        Target::Images(Images::All) => return several(connection, arguments, IMAGES).await,
        Target::Sources(Sources::Git(name)) => (Kind::GitRepository, name, false),
        Target::Sources(Sources::Oci(name)) => (Kind::OciRepository, name, false),
        Target::Sources(Sources::Bucket(name)) => (Kind::Bucket, name, false),
        Target::Sources(Sources::Helm(name)) => (Kind::HelmRepository, name, false),
        Target::Sources(Sources::Chart(name)) => (Kind::HelmChart, name, false),
        Target::Sources(Sources::External(name)) => (Kind::ExternalArtifact, name, false),
        Target::Kustomizations(arguments) => (Kind::Kustomization, &arguments.name, arguments.show_source),
        Target::Helmreleases(arguments) => (Kind::HelmRelease, &arguments.name, arguments.show_source),
        Target::Images(Images::One(ImageTarget::Repository(name))) => (Kind::ImageRepository, name, false),
        Target::Images(Images::One(ImageTarget::Policy(name))) => (Kind::ImagePolicy, name, false),
        Target::Images(Images::One(ImageTarget::Update(name))) => (Kind::ImageUpdateAutomation, name, false),
        Target::Artifacts(Artifacts::Generators(name)) => (Kind::ArtifactGenerator, name, false),
        Target::Receivers(name) => (Kind::Receiver, name, false),
        Target::Alerts(name) => (Kind::Alert, name, false),
        Target::AlertProviders(name) => (Kind::Provider, name, false),
    };
    let filter = Filter {
        all_namespaces: arguments.all_namespaces,
        labels: &arguments.label_selector,
        name: name.name.as_deref(),
    };
    let columns = Columns { namespace: arguments.all_namespaces, kind: false, source };
    let selector = arguments.selector()?;
    if arguments.watch {
        let mut first = true;
        return connection
            .watch(kind, &filter, |object| {
                let objects = std::slice::from_ref(object);
                let text = render(kind, objects, columns, selector.as_ref(), first && !arguments.no_header);
                first = false;
                output::data(&text)
            })
            .await;
    }
    let objects = connection.list(kind, &filter).await?;
    if objects.is_empty() {
        let scope =
            if arguments.all_namespaces { "any".to_owned() } else { format!("{:?}", connection.namespace) };
        return Err(match filter.name {
            Some(name) => Error::NotFound { kind: kind.name(), name: name.to_owned(), scope },
            None => Error::NoneFound { kind: kind.name(), scope },
        });
    }
    output::data(&render(kind, &objects, columns, selector.as_ref(), !arguments.no_header))
}

/// Prints a table for each kind that has objects; what fails is told, and the rest goes on.
async fn several(connection: &Connection, arguments: &Arguments, kinds: &[Kind]) -> Result<(), Error> {
    if arguments.watch {
        return Err(Error::WatchAll("all"));
    }
    let selector = arguments.selector()?;
    let columns = Columns { namespace: arguments.all_namespaces, kind: true, source: false };
    let filter =
        Filter { all_namespaces: arguments.all_namespaces, labels: &arguments.label_selector, name: None };
    for kind in kinds {
        match connection.list_if_known(*kind, &filter).await {
            Ok(objects) if objects.is_empty() => {}
            Ok(objects) => {
                let text = render(*kind, &objects, columns, selector.as_ref(), !arguments.no_header);
                output::data(&format!("{text}\n"))?;
            }
            Err(error) => output::failure(&error::text(&error)),
        }
    }
    Ok(())
}

impl Arguments {
    fn selector(&self) -> Result<Option<StatusSelector>, Error> {
        if self.status_selector.is_empty() {
            return Ok(None);
        }
        StatusSelector::parse(&self.status_selector).map(Some)
    }
}

fn render(
    kind: Kind,
    objects: &[Value],
    columns: Columns,
    selector: Option<&StatusSelector>,
    with_header: bool,
) -> String {
    let always_ready = matches!(kind, Kind::Alert | Kind::Provider);
    let rows: Vec<Vec<String>> = objects
        .iter()
        .filter(|object| selector.is_none_or(|selector| selector.matches(object, always_ready)))
        .map(|object| view::row(kind, object, columns))
        .collect();
    let headers = if with_header { view::headers(kind, columns) } else { Vec::new() };
    table::render(&headers, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_of_the_selected_objects() {
        let object = |name: &str, ready: &str| {
            json!({
                "metadata": {"name": name, "namespace": "flux-system"},
                "status": {
                    "lastAppliedRevision": "main@sha1:0123456789abcdef0123456789abcdef01234567",
                    "conditions": [{"type": "Ready", "status": ready, "message": "Applied revision: main@sha1:0123456789abcdef0123456789abcdef01234567"}],
                },
            })
        };
        let objects = [object("apps", "True"), object("infrastructure", "False")];
        let columns = Columns { namespace: true, ..Columns::default() };
        insta::assert_snapshot!(render(Kind::Kustomization, &objects, columns, None, true).replace('\t', "→"), @r"
        NAMESPACE  →NAME          →REVISION          →SUSPENDED→READY→MESSAGE                             
        flux-system→apps          →main@sha1:01234567→False    →True →Applied revision: main@sha1:01234567→
        flux-system→infrastructure→main@sha1:01234567→False    →False→Applied revision: main@sha1:01234567→
        ");
        let selector = StatusSelector::parse("ready!=true").unwrap();
        let text = render(Kind::Kustomization, &objects, columns, Some(&selector), false);
        assert_eq!(text.lines().count(), 1);
        assert!(text.contains("infrastructure"));
    }
}
