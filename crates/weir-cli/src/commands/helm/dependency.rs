//! `weir helm dependency`: the charts a chart needs, as `helm dependency` handles them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use weir_base::clock::{Clock as _, SystemClock};
use weir_base::version::{Constraint, Version};
use weir_helm::chart::Chart;
use weir_helm::lock::{self, Lock};
use weir_helm::metadata::Dependency;
use weir_helm::package;
use weir_helm::requirements::{self, Catalog, Origin};

use super::go_error;
use crate::error::Error;
use crate::output;

/// Arguments of `weir helm dependency`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fill charts/ with what Chart.lock says
    Build(Reference),
    /// Print the dependencies and whether they are there
    #[command(visible_alias = "ls")]
    List(List),
    /// Choose versions, fill charts/ and write Chart.lock
    #[command(visible_alias = "up")]
    Update(Reference),
}

#[derive(Debug, Args)]
struct Reference {
    /// Directory of the chart
    #[arg(value_name = "CHART", default_value = ".")]
    chart: String,
    /// Without effect: no indexes are kept
    #[arg(long, hide = true)]
    skip_refresh: bool,
}

#[derive(Debug, Args)]
struct List {
    /// Directory or archive of the chart
    #[arg(value_name = "CHART", default_value = ".")]
    chart: String,
    /// Widest column of the table
    #[arg(long, value_name = "CHARACTERS", default_value_t = 80)]
    max_col_width: usize,
}

/// Runs the sub-command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    match &arguments.command {
        Command::Build(reference) => {
            let mut manager = Manager::new(Path::new(&reference.chart), false)?;
            manager.build()
        }
        Command::Update(reference) => update(Path::new(&reference.chart)),
        Command::List(arguments) => list(arguments),
    }
}

/// Chooses versions and fills `charts/`, saying so.
pub(super) fn update(chart: &Path) -> Result<(), Error> {
    Manager::new(chart, false)?.update()
}

/// The same without a word.
pub(super) fn update_quietly(chart: &Path) -> Result<(), Error> {
    Manager::new(chart, true)?.update()
}

struct Manager {
    chart: Chart,
    path: String,
    quiet: bool,
}

/// Charts in directories of this machine.
struct Directories;

impl Catalog for Directories {
    fn directory(&mut self, path: &str) -> Result<Option<String>, String> {
        if !Path::new(path).exists() {
            return Ok(None);
        }
        super::load_directory(Path::new(path)).map(|chart| Some(chart.metadata.version))
    }

    fn versions(&mut self, dependency: &Dependency) -> Result<Vec<String>, String> {
        Err(unreachable_repository(dependency))
    }
}

fn unreachable_repository(dependency: &Dependency) -> String {
    format!(
        "dependency {:?} comes from {:?}; only charts of this machine (file://, charts/) are handled",
        dependency.name, dependency.repository
    )
}

fn helm(error: &dyn std::fmt::Display) -> Error {
    Error::Helm(error.to_string())
}

impl Manager {
    fn new(chart: &Path, quiet: bool) -> Result<Self, Error> {
        let path = requirements::clean(&chart.display().to_string());
        let metadata = fs::metadata(&path).map_err(|error| {
            Error::Helm(format!("could not find {path}: {}", go_error("stat", &path, &error)))
        })?;
        if !metadata.is_dir() {
            return Err(helm(&"only unpacked charts can be updated"));
        }
        let chart = super::load_directory(Path::new(&path)).map_err(Error::Helm)?;
        Ok(Self { chart, path, quiet })
    }

    fn say(&self, line: &str) -> Result<(), Error> {
        if self.quiet { Ok(()) } else { output::data(&format!("{line}\n")) }
    }

    fn build(&mut self) -> Result<(), Error> {
        let Some(lock) = self.chart.lock.clone() else { return self.update() };
        self.check_directories(self.chart.metadata.dependencies.as_deref().unwrap_or_default())?;
        lock.check(&self.chart.metadata).map_err(|error| helm(&error))?;
        let mut locked = lock.dependencies.unwrap_or_default();
        self.fill(&mut locked)
    }

    fn update(&mut self) -> Result<(), Error> {
        let Some(wanted) = self.chart.metadata.dependencies.clone() else { return Ok(()) };
        self.check_directories(&wanted)?;
        let now = SystemClock.now().to_string();
        let lock = requirements::resolve(&wanted, &self.path, &mut Directories, &now)
            .map_err(|error| helm(&error))?;
        let mut chosen = lock.dependencies.unwrap_or_default();
        self.fill(&mut chosen)?;
        let lock = Lock {
            digest: lock::digest(Some(&wanted), Some(&chosen)),
            generated: lock.generated,
            dependencies: Some(chosen),
        };
        if self.chart.lock.as_ref().is_some_and(|old| old.digest == lock.digest) {
            return Ok(());
        }
        self.write_lock(&lock)
    }

    fn write_lock(&self, lock: &Lock) -> Result<(), Error> {
        let name = if self.chart.metadata.api_version == "v1" { "requirements.lock" } else { "Chart.lock" };
        let target = Path::new(&self.path).join(name);
        if let Ok(link) = fs::read_link(&target) {
            return Err(Error::Helm(format!(
                "the {name} file is a symlink to {:?}",
                link.display().to_string()
            )));
        }
        fs::write(&target, lock.to_yaml())
            .map_err(|source| Error::WriteFile { path: target.display().to_string(), source })
    }

    /// Directories that dependencies name must exist.
    fn check_directories(&self, dependencies: &[Dependency]) -> Result<(), Error> {
        for dependency in dependencies {
            if let Origin::Directory(path) = dependency.origin() {
                let path = requirements::local_path(&self.path, path);
                if !Path::new(&path).exists() {
                    return Err(Error::Helm(format!("directory {path} not found")));
                }
            }
        }
        Ok(())
    }

    /// Puts all charts into `charts/` and removes those of earlier versions. Nothing is written if one is missing.
    fn fill(&self, dependencies: &mut [Dependency]) -> Result<(), Error> {
        let charts = Path::new(&self.path).join("charts");
        if charts.exists() && !charts.is_dir() {
            return Err(Error::Helm(format!("{:?} is not a directory", charts.display().to_string())));
        }
        self.say(&format!("Saving {} charts", dependencies.len()))?;
        let mut archives: Vec<(String, bytes::Bytes)> = Vec::new();
        for dependency in dependencies.iter_mut() {
            match self.archive(dependency, &charts) {
                Ok(archive) => archives.extend(archive),
                Err(Failure::Fatal(error)) => return Err(Error::Helm(error)),
                Err(Failure::Save(error)) => {
                    self.say(&format!("Save error occurred:  {error}"))?;
                    return Err(Error::Helm(error));
                }
            }
        }
        let failed = |path: &Path, source| Error::WriteFile { path: path.display().to_string(), source };
        fs::create_dir_all(&charts).map_err(|source| failed(&charts, source))?;
        let before = files(&charts);
        for (name, archive) in &archives {
            let target = charts.join(name);
            let unfinished = charts.join(format!(".{name}.{}", std::process::id()));
            fs::write(&unfinished, archive)
                .and_then(|()| fs::rename(&unfinished, &target))
                .map_err(|source| failed(&target, source))?;
        }
        self.say("Deleting outdated charts")?;
        let vendored =
            |name: &str| dependencies.iter().any(|one| one.origin() == Origin::Vendored && one.name == name);
        for file in before {
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if archives.iter().any(|(new, _)| *new == name) {
                continue;
            }
            match super::load_archive(&file) {
                Err(error) => self
                    .say(&format!("Could not verify {} for deletion: {error} (Skipping)", file.display()))?,
                Ok(chart) if vendored(chart.name()) => {}
                Ok(_) => fs::remove_file(&file).map_err(|source| failed(&file, source))?,
            }
        }
        Ok(())
    }

    /// The archive of a dependency, whose version becomes that of its chart; nothing if it is in `charts/` already.
    fn archive(
        &self,
        dependency: &mut Dependency,
        charts: &Path,
    ) -> Result<Option<(String, bytes::Bytes)>, Failure> {
        let name = dependency.name.clone();
        let bad_range = |error: &dyn std::fmt::Display| {
            format!("dependency {name} has an invalid version/constraint format: {error}")
        };
        match dependency.origin() {
            Origin::Vendored => {
                self.say(&format!(
                    "Dependency {name} did not declare a repository. Assuming it exists in the charts directory"
                )).map_err(|error| Failure::Fatal(error.to_string()))?;
                let path = charts.join(&name);
                let chart = super::load_directory(&path).map_err(|error| {
                    Failure::Fatal(format!("unable to load chart '{}': {error}", path.display()))
                })?;
                let range = Constraint::parse(&dependency.version)
                    .map_err(|error| Failure::Fatal(bad_range(&error)))?;
                let found = &chart.metadata.version;
                if Version::parse(found).is_ok_and(|version| range.matches(&version)) {
                    Ok(None)
                } else {
                    Err(Failure::Save(format!(
                        "dependency {name} at version {found} does not satisfy the constraint {}",
                        dependency.version
                    )))
                }
            }
            Origin::Directory(path) => {
                let path = PathBuf::from(requirements::local_path(&self.path, path));
                let chart = super::load_directory(&path).map_err(Failure::Save)?;
                let range = Constraint::parse(&dependency.version)
                    .map_err(|error| Failure::Save(bad_range(&error)))?;
                let found = chart.metadata.version.clone();
                if !Version::parse(&found).is_ok_and(|version| range.matches(&version)) {
                    return Err(Failure::Save(format!("can't get a valid version for dependency {name}")));
                }
                let archive = super::package::archive(&chart, &path)
                    .map_err(|error| Failure::Save(error.to_string()))?;
                dependency.version = found;
                Ok(Some((package::file_name(&chart), archive)))
            }
            Origin::Registry(_) | Origin::Alias(_) | Origin::Repository(_) => {
                Err(Failure::Save(unreachable_repository(dependency)))
            }
        }
    }
}

enum Failure {
    /// Ends the command.
    Fatal(String),
    /// A dependency cannot be saved, which is said before.
    Save(String),
}

/// The files in a directory by name.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

fn list(arguments: &List) -> Result<(), Error> {
    let path = Path::new(&arguments.chart);
    fs::metadata(path).map_err(|error| Error::Helm(go_error("stat", &arguments.chart, &error)))?;
    let chart = super::load(path)?;
    let charts = requirements::clean(&path.join("charts").display().to_string());
    let Some(dependencies) = &chart.metadata.dependencies else {
        return output::data(&format!("WARNING: no dependencies at {charts}\n"));
    };
    let mut rows = vec![["NAME", "VERSION", "REPOSITORY", "STATUS"].map(str::to_owned)];
    for dependency in dependencies {
        rows.push([
            dependency.name.clone(),
            dependency.version.clone(),
            dependency.repository.clone(),
            status(Path::new(&charts), dependency, &chart).to_owned(),
        ]);
    }
    let mut text = table(&rows, arguments.max_col_width);
    text.push_str("\n\n");
    text.push_str(&unlisted(&charts, dependencies));
    output::data(&text)
}

/// Columns padded to their widest cell, longer cells cut.
fn table(rows: &[[String; 4]], width_max: usize) -> String {
    let width = |cell: &String| cell.chars().count();
    let widths: Vec<usize> = (0..4)
        .map(|column| rows.iter().map(|row| width(&row[column]).min(width_max)).max().unwrap_or_default())
        .collect();
    let cell = |text: &String, wanted: usize| {
        let have = width(text);
        if have > wanted {
            let kept: String = text.chars().take(wanted.saturating_sub(3)).collect();
            format!("{kept}...")
        } else {
            format!("{text}{}", " ".repeat(wanted - have))
        }
    };
    let line = |row: &[String; 4]| {
        row.iter().zip(&widths).map(|(text, width)| cell(text, *width)).collect::<Vec<_>>().join("\t")
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn fits(dependency: &Dependency, version: &str) -> Option<&'static str> {
    if dependency.version == version {
        return None;
    }
    match (Constraint::parse(&dependency.version), Version::parse(version)) {
        (Ok(range), Ok(version)) if range.matches(&version) => None,
        (Ok(_), Ok(_)) => Some("wrong version"),
        _ => Some("invalid version"),
    }
}

/// Whether a dependency is there: archives go before directories.
fn status(charts: &Path, dependency: &Dependency, parent: &Chart) -> &'static str {
    let prefix = format!("{}-", dependency.name);
    let rest = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        Some(name.strip_suffix(".tgz")?.strip_prefix(&prefix)?.to_owned())
    };
    let archives: Vec<PathBuf> = files(charts).into_iter().filter(|path| rest(path).is_some()).collect();
    let versioned: Vec<PathBuf> = archives
        .iter()
        .filter(|path| rest(path).is_some_and(|version| Version::parse_complete(&version).is_ok()))
        .cloned()
        .collect();
    let archive = match (archives.as_slice(), versioned.as_slice()) {
        ([archive], _) | ([_, _, ..], [archive]) => Some(archive),
        ([_, _, ..], [_, _, ..]) => return "too many matches",
        _ => None,
    };
    if let Some(archive) = archive {
        let Ok(chart) = super::load_archive(archive) else { return "corrupt" };
        if chart.name() != dependency.name {
            return "misnamed";
        }
        return fits(dependency, &chart.metadata.version).unwrap_or("ok");
    }
    match parent.dependencies.iter().rev().find(|chart| chart.name() == dependency.name) {
        None => "missing",
        Some(chart) => fits(dependency, &chart.metadata.version).unwrap_or("unpacked"),
    }
}

/// Warnings about what lies in `charts/` without being a dependency.
fn unlisted(charts: &str, dependencies: &[Dependency]) -> String {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(charts).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    let mut text = String::new();
    for entry in entries {
        if !entry.is_dir() && entry.extension().is_none_or(|extension| extension != "tgz") {
            continue;
        }
        let shown = entry.display().to_string();
        let problem = match super::load(&entry) {
            Err(_) => "is not a chart",
            Ok(chart) if dependencies.iter().any(|one| one.name == chart.name()) => continue,
            Ok(_) => "is not in Chart.yaml",
        };
        text.extend([format!("WARNING: {shown:?} {problem}.\n")]);
    }
    text
}
