//! `weir helm template`: prints what a chart renders to, as `helm template` does.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use clap::Args;
use weir_gotemplate::{Execution, Functions, MissingKey, Options, Set, Value};
use weir_helm::capabilities::{Capabilities, KubeVersion};
use weir_helm::chart::Chart;
use weir_helm::manifest::{self, Hook, HookEvent, Manifest, Order, SplitRule};
use weir_helm::render::{self, Limits, ReleaseInfo, RenderInput};
use weir_helm::values::{self, Mode, Table};
use weir_helm::{dependencies, requirements, schema};

use super::fetch::{self, ChartArguments, Located};
use super::{Machine, ValueArguments};
use crate::arguments::GlobalArguments;
use crate::error::Error;
use crate::output;

const NAME_BYTES_MAX: usize = 53;

/// Arguments of `weir helm template`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Name of the release, 'release-name' when left out, and the chart: a directory, an archive, REPOSITORY/CHART, or
    /// the address of an archive or in a registry
    #[arg(value_name = "NAME] [CHART", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    values: ValueArguments,
    /// Print only what these templates render to; may be a pattern and may be repeated
    #[arg(short, long, value_name = "PATH")]
    show_only: Vec<String>,
    /// Print the CRDs of the chart too
    #[arg(long)]
    include_crds: bool,
    /// Leave out hooks
    #[arg(long)]
    no_hooks: bool,
    /// Leave out tests
    #[arg(long)]
    skip_tests: bool,
    /// Render as for an upgrade
    #[arg(long)]
    is_upgrade: bool,
    /// Version of Kubernetes that templates see
    #[arg(long, value_name = "VERSION")]
    kube_version: Option<String>,
    /// More API versions that templates see
    #[arg(short, long, value_name = "VERSIONS", value_delimiter = ',')]
    api_versions: Vec<String>,
    /// Write to files in this directory
    #[arg(long, value_name = "PATH")]
    output_dir: Option<String>,
    /// Put the name of the release into the paths of written files
    #[arg(long)]
    release_name: bool,
    /// Without effect, as in helm, where a name is always there
    #[arg(short, long)]
    generate_name: bool,
    /// Template of the name of the release
    #[arg(long, value_name = "TEMPLATE")]
    name_template: Option<String>,
    /// Do not check values against the schema
    #[arg(long)]
    skip_schema_validation: bool,
    /// Update missing dependencies first
    #[arg(long)]
    dependency_update: bool,
    /// Let templates look up addresses of names
    #[arg(long)]
    enable_dns: bool,
    /// Only 'client': no cluster is asked
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: Option<String>,
    /// Refused: no cluster is asked
    #[arg(long, hide_short_help = true)]
    validate: bool,
    /// Refused: other programs are not run
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    post_renderer: Option<String>,
    /// Refused: other programs are not run
    #[arg(long, value_name = "ARGUMENT", hide_short_help = true)]
    post_renderer_args: Vec<String>,
    #[command(flatten)]
    origin: ChartArguments,
    #[command(flatten)]
    ignored: Ignored,
}

/// Flags of `helm template` that change nothing that is rendered.
#[derive(Debug, Args)]
struct Ignored {
    #[arg(long, hide = true)]
    create_namespace: bool,
    #[arg(long, hide = true, value_name = "TEXT")]
    description: Option<String>,
    #[arg(long, hide = true)]
    disable_openapi_validation: bool,
    #[arg(long, hide = true)]
    force_conflicts: bool,
    #[arg(long, hide = true, alias = "force")]
    force_replace: bool,
    #[arg(long, hide = true)]
    hide_notes: bool,
    #[arg(long, hide = true)]
    render_subchart_notes: bool,
    #[arg(short, long, hide = true, value_name = "LABELS")]
    labels: Vec<String>,
    #[arg(long, hide = true)]
    replace: bool,
    #[arg(long, hide = true, alias = "atomic")]
    rollback_on_failure: bool,
    #[arg(long, hide = true, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    server_side: Option<bool>,
    #[arg(long, hide = true)]
    skip_crds: bool,
    #[arg(long, hide = true)]
    take_ownership: bool,
    #[arg(long, hide = true, value_name = "STRATEGY", num_args = 0..=1, require_equals = true, default_missing_value = "watcher")]
    wait: Option<String>,
    #[arg(long, hide = true)]
    wait_for_jobs: bool,
}

/// What a release consists of, as far as rendering got.
#[derive(Default)]
struct Rendered {
    crds: Vec<(String, String)>,
    manifests: Vec<Manifest>,
    hooks: Vec<Hook>,
    /// All files as they are, if they are no manifests.
    invalid: String,
}

/// Renders and prints.
pub(crate) fn run(global: &GlobalArguments, arguments: &Arguments, debug: bool) -> Result<(), Error> {
    refuse(arguments)?;
    let mut capabilities = Capabilities::default();
    if let Some(version) = &arguments.kube_version {
        capabilities.kube_version = KubeVersion::parse(version)
            .map_err(|error| Error::Helm(format!("invalid kube version '{version}': {error}")))?;
    }
    capabilities.api_versions.extend(arguments.api_versions.iter().cloned());
    let (name, reference) = name_and_chart(arguments)?;
    let located = fetch::locate(&reference, &arguments.origin)?;
    let given = arguments.values.merge()?;
    let chart = loaded(&located, arguments)?;
    if !matches!(chart.metadata.kind.as_str(), "" | "application") {
        return Err(Error::Helm(format!("{} charts are not installable", chart.metadata.kind)));
    }
    if chart.metadata.deprecated {
        output::warning("this chart is deprecated");
    }
    check_name(&name)?;
    let release = ReleaseInfo {
        name: name.clone(),
        namespace: super::namespace(global),
        revision: 1,
        is_upgrade: arguments.is_upgrade,
    };
    let (rendered, failed) = render(chart, &given, &release, &capabilities, arguments)?;
    if let (Some(error), false) = (&failed, debug) {
        return Err(Error::Helm(format!("{error}\n\nUse --debug flag to render out invalid YAML")));
    }
    print(&rendered, &name, arguments)?;
    failed.map_or(Ok(()), |error| Err(Error::Helm(error)))
}

/// What would need a cluster, other programs or the network.
fn refuse(arguments: &Arguments) -> Result<(), Error> {
    let refused = |flag: &'static str, why: &str| Err(Error::Flag { flag, value: why.to_owned() });
    match arguments.dry_run.as_deref() {
        None | Some("client" | "true") => {}
        Some("server") => return refused("dry-run", "server: this command never asks a cluster"),
        Some(other) => {
            return Err(Error::Helm(format!(
                "invalid dry-run value ({other:?}). Must be \"server\" or \"client\""
            )));
        }
    }
    if arguments.validate {
        return refused("validate", "this command never asks a cluster");
    }
    if arguments.post_renderer.is_some() || !arguments.post_renderer_args.is_empty() {
        return refused("post-renderer", "this command runs no other programs");
    }
    Ok(())
}

fn name_and_chart(arguments: &Arguments) -> Result<(String, String), Error> {
    match arguments.names.as_slice() {
        [name, chart] => {
            if arguments.generate_name {
                return Err(Error::Helm("cannot set --generate-name and also specify a name".to_owned()));
            }
            if arguments.name_template.is_some() {
                return Err(Error::Helm("cannot set --name-template and also specify a name".to_owned()));
            }
            Ok((name.clone(), chart.clone()))
        }
        [chart] => match &arguments.name_template {
            Some(template) if !template.is_empty() => Ok((name_from(template)?, chart.clone())),
            _ => Ok(("release-name".to_owned(), chart.clone())),
        },
        names => Err(Error::Helm(format!(
            "expected at most two arguments, unexpected arguments: {}",
            names.get(2..).unwrap_or_default().join(", ")
        ))),
    }
}

fn name_from(template: &str) -> Result<String, Error> {
    const NAME: &str = "name-template";
    let mut set = Set::new(Functions::sprig());
    set.parse(NAME, template).map_err(|error| Error::Helm(error.to_string()))?;
    let options = Options { missing_key: MissingKey::default(), limits: Limits::default() };
    let host = Machine { resolve_names: false, lint: false };
    let text = Execution::new(set, Box::new(host), options)
        .execute(NAME, &Value::Nil)
        .map_err(|error| Error::Helm(error.to_string()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The chart with all the charts it needs.
fn loaded(located: &Located, arguments: &Arguments) -> Result<Chart, Error> {
    let chart = located.load()?;
    let Err(missing) = requirements::check_present(&chart) else { return Ok(chart) };
    if !arguments.dependency_update {
        return Err(Error::Helm(format!(
            "an error occurred while checking for chart dependencies. You may need to run 'helm dependency build' to fetch missing dependencies: {missing}"
        )));
    }
    let Located::Path(path) = located else {
        return Err(Error::Helm("only unpacked charts can be updated".to_owned()));
    };
    super::dependency::update(path)?;
    super::load(path)
        .map_err(|error| Error::Helm(format!("failed reloading chart after repo update: {error}")))
}

fn check_name(name: &str) -> Result<(), Error> {
    let fail =
        |why: &str| Err(Error::Helm(format!("release name check failed: release name {name:?}: {why}")));
    if name.is_empty() {
        return fail("no name provided");
    }
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(plain)
            && bytes.last().is_some_and(plain)
            && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
    };
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(label) {
        return fail(
            r"invalid release name, must match regex ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$ and the length must not be longer than 53",
        );
    }
    Ok(())
}

/// What the chart renders to, and why that is not all of it or not valid.
fn render(
    mut chart: Chart,
    given: &Table,
    release: &ReleaseInfo,
    capabilities: &Capabilities,
    arguments: &Arguments,
) -> Result<(Rendered, Option<String>), Error> {
    dependencies::process(&mut chart, given)
        .map_err(|error| Error::Helm(format!("chart dependencies processing failed: {error}")))?;
    let all =
        values::coalesce(&chart, given, Mode::Coalesce).map_err(|error| Error::Helm(error.to_string()))?;
    if !arguments.skip_schema_validation {
        schema::validate(&chart, &all, &schema::Documents::Missing)
            .map_err(|error| Error::Helm(error.to_string()))?;
    }
    let input = RenderInput {
        release,
        capabilities,
        host: Box::new(Machine { resolve_names: arguments.enable_dns, lint: false }),
        limits: Limits::default(),
    };
    let mut files = match render::render(&chart, &all, input) {
        Ok(files) => files,
        Err(error) => return Ok((Rendered::default(), Some(error.to_string()))),
    };
    render::take_notes(&chart, &mut files);
    let sorted = match manifest::sort(&files, SplitRule::SwallowSpace, Order::Install) {
        Ok(sorted) => sorted,
        Err(error) => {
            return Ok((
                Rendered { invalid: as_they_are(&files), ..Rendered::default() },
                Some(error.to_string()),
            ));
        }
    };
    let crds = if arguments.include_crds {
        chart
            .crds_with_paths()
            .into_iter()
            .map(|(path, file)| (path, String::from_utf8_lossy(&file.data).into_owned()))
            .collect()
    } else {
        Vec::new()
    };
    Ok((Rendered { crds, manifests: sorted.manifests, hooks: sorted.hooks, invalid: String::new() }, None))
}

fn document(path: &str, text: &str) -> String {
    format!("---\n# Source: {path}\n{text}\n")
}

fn as_they_are(files: &BTreeMap<String, String>) -> String {
    files
        .iter()
        .filter(|(_, text)| !text.trim().is_empty())
        .map(|(path, text)| document(path, text))
        .collect()
}

fn print(rendered: &Rendered, release: &str, arguments: &Arguments) -> Result<(), Error> {
    let mut text = rendered.invalid.clone();
    let mut log = String::new();
    let hooks = || {
        rendered
            .hooks
            .iter()
            .filter(|_| !arguments.no_hooks)
            .filter(|hook| !(arguments.skip_tests && hook.events.contains(&HookEvent::Test)))
    };
    if let Some(directory) = &arguments.output_dir {
        let below = if arguments.release_name { format!("{directory}/{release}") } else { directory.clone() };
        let mut written = Vec::new();
        let crds = rendered.crds.iter().map(|(path, text)| (directory, path, text));
        let manifests = rendered.manifests.iter().map(|manifest| (&below, &manifest.path, &manifest.content));
        for (directory, path, text) in crds.chain(manifests) {
            log.push_str(&write(directory, path, text, written.contains(path))?);
            written.push(path.clone());
        }
        for hook in hooks() {
            let there = Path::new(&below).join(&hook.path).exists();
            log.push_str(&write(&below, &hook.path, &hook.manifest, there)?);
        }
        "\n".clone_into(&mut text);
    } else {
        text.extend(rendered.crds.iter().map(|(path, text)| document(path, text)));
        text.push_str(&manifest::text(&rendered.manifests));
        text = format!("{}\n", text.trim());
        text.extend(hooks().map(|hook| document(&hook.path, &hook.manifest)));
    }
    if !arguments.show_only.is_empty() {
        text = manifest::show_only(&text, &arguments.show_only, SplitRule::SwallowSpace)
            .map_err(|pattern| Error::Helm(format!("could not find template {pattern} in chart")))?;
    }
    log.push_str(&text);
    output::data(&log)
}

/// Writes a document to its file; gives the line that says so.
fn write(directory: &str, path: &str, text: &str, append: bool) -> Result<String, Error> {
    let target = format!("{directory}/{path}");
    let failed = |source| Error::WriteFile { path: target.clone(), source };
    if let Some(parent) = Path::new(&target).parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    if append {
        options.append(true)
    } else {
        options.truncate(true)
    };
    let mut file = options.open(&target).map_err(failed)?;
    file.write_all(document(path, text).as_bytes()).map_err(failed)?;
    Ok(format!("wrote {target}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_releases() {
        for name in ["a", "a-b.c1", &"a".repeat(53)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "A", "a-", "-a", "a..b", "a_b", &"a".repeat(54)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn names_can_be_templates() {
        assert_eq!(name_from("{{ lower \"ABC\" }}-{{ add 1 2 }}").unwrap(), "abc-3");
        let error = name_from("{{ nope }}").unwrap_err().to_string();
        assert_eq!(error, "template: name-template:1: function \"nope\" not defined");
    }
}
