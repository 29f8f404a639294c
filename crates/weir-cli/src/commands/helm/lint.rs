//! `weir helm lint`: checks charts, as `helm lint` does.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use weir_base::tree::{Files, MemoryTree};
use weir_helm::capabilities::KubeVersion;
use weir_helm::chart;
use weir_helm::lint::{self, Finding, LintInput, Severity};
use weir_helm::schema::Documents;
use weir_helm::values::Table;

use super::{Machine, ValueArguments, go_error, tree};
use crate::arguments::GlobalArguments;
use crate::error::Error;
use crate::output;

/// Arguments of `weir helm lint`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directories or archives of charts
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<String>,
    #[command(flatten)]
    values: ValueArguments,
    /// Fail on warnings too
    #[arg(long)]
    strict: bool,
    /// Check the charts below charts/ as well
    #[arg(long)]
    with_subcharts: bool,
    /// Print only warnings and errors
    #[arg(long)]
    quiet: bool,
    /// Do not check values against the schema
    #[arg(long)]
    skip_schema_validation: bool,
    /// Version of Kubernetes that templates see
    #[arg(long, value_name = "VERSION")]
    kube_version: Option<String>,
}

/// Checks and prints what was found; fails if it is bad.
pub(crate) fn run(global: &GlobalArguments, arguments: &Arguments) -> Result<(), Error> {
    let kube_version = match &arguments.kube_version {
        None => None,
        Some(version) => Some(
            KubeVersion::parse(version)
                .map_err(|error| Error::Helm(format!("invalid kube version '{version}': {error}")))?,
        ),
    };
    let mut paths = arguments.paths.clone();
    if arguments.with_subcharts {
        for path in &arguments.paths {
            add_subcharts(&Path::new(path).join("charts"), &mut paths);
        }
    }
    let namespace = super::namespace(global);
    let values = arguments.values.merge()?;
    let tolerated = if arguments.strict { Severity::Info } else { Severity::Warning };
    let (mut text, mut failed, mut noted) = (String::new(), 0, 0);
    for path in &paths {
        let found = check(path, &values, &namespace, kube_version.as_ref(), arguments.skip_schema_validation);
        let bad = match &found {
            Ok(findings) => findings.iter().any(|finding| finding.severity > tolerated),
            Err(_) => true,
        };
        let noteworthy = match &found {
            Ok(findings) => findings.iter().any(|finding| finding.severity > Severity::Info),
            Err(_) => true,
        };
        noted += usize::from(noteworthy);
        failed += usize::from(bad);
        if arguments.quiet && !noteworthy {
            continue;
        }
        text.extend(["==> Linting ", path.as_str(), "\n"]);
        match found {
            Err(error) => text.extend(["Error ", error.as_str(), "\n"]),
            Ok(findings) => text.extend(
                findings
                    .iter()
                    .filter(|finding| !arguments.quiet || finding.severity > Severity::Info)
                    .map(|finding| format!("{finding}\n")),
            ),
        }
        text.push('\n');
    }
    let summary = format!("{} chart(s) linted, {failed} chart(s) failed", paths.len());
    if failed == 0 && (!arguments.quiet || noted > 0) {
        text.extend([summary.as_str(), "\n"]);
    }
    output::data(&text)?;
    if failed > 0 { Err(Error::Helm(summary)) } else { Ok(()) }
}

fn check(
    path: &str,
    values: &Table,
    namespace: &str,
    kube_version: Option<&KubeVersion>,
    skip_schema: bool,
) -> Result<Vec<Finding>, String> {
    let input = |chart_directory| LintInput {
        values,
        namespace,
        kube_version,
        skip_schema,
        documents: &Documents::Missing,
        chart_directory,
        host: Box::new(Machine { resolve_names: false, lint: true }),
    };
    if is_archive(path) {
        let data = fs::read(path)
            .map_err(|error| format!("unable to open tarball: {}", go_error("open", path, &error)))?;
        let files = chart::unpack(&data).map_err(|error| format!("unable to extract tarball: {error}"))?;
        let archive: MemoryTree = files.into_iter().map(|file| (file.name, file.data)).collect();
        if archive.read("Chart.yaml").is_none() {
            return Err("unable to check Chart.yaml file in chart: there is none in the archive".to_owned());
        }
        return Ok(lint::lint(&archive, "", input(path)));
    }
    let file = Path::new(path).join("Chart.yaml");
    fs::metadata(&file).map_err(|error| {
        format!("unable to check Chart.yaml file in chart: {}", go_error("stat", &clean(&file), &error))
    })?;
    let directory = std::path::absolute(path).map_err(|error| go_error("stat", path, &error))?;
    let directory = clean(&directory);
    Ok(lint::lint(&tree::Machine, directory.trim_matches('/'), input(&directory)))
}

fn is_archive(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "tgz")
        || path.strip_suffix(".tar.gz").is_some()
}

fn clean(path: &Path) -> String {
    weir_helm::requirements::clean(&path.display().to_string())
}

/// Charts and archives below a directory, in the order of their paths.
fn add_subcharts(directory: &Path, paths: &mut Vec<String>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for entry in entries {
        let shown = entry.display().to_string();
        if entry.is_dir() {
            add_subcharts(&entry, paths);
        } else if entry.file_name().is_some_and(|name| name == "Chart.yaml") {
            paths.push(directory.display().to_string());
        } else if is_archive(&shown) {
            paths.push(shown);
        }
    }
}
