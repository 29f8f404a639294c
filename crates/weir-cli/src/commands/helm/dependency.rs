//! `weir helm dependency`: the charts a chart needs, as `helm dependency` handles them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sha2::{Digest as _, Sha256};
use url::Url;
use weir_base::clock::{Clock as _, SystemClock};
use weir_base::version::{Constraint, Version};
use weir_helm::chart::Chart;
use weir_helm::lock::{self, Lock};
use weir_helm::metadata::Dependency;
use weir_helm::package;
use weir_helm::requirements::{self, Catalog, Origin};
use weir_source::helm::ChartVersion;

use super::fetch::{self, Registry, RegistryArguments};
use super::go_error;
use super::repositories::Repositories;
use crate::error::{self, Error};
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
    /// Use the indexes 'helm repo update' has stored instead of fetching them
    #[arg(long)]
    skip_refresh: bool,
    #[command(flatten)]
    registry: RegistryArguments,
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
        Command::Build(reference) => Manager::of(reference)?.build(),
        Command::Update(reference) => Manager::of(reference)?.update(),
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
    skip_refresh: bool,
    registry: Registry,
    known: Repositories,
    /// The indexes that are needed, by the address of the repository.
    indexes: BTreeMap<String, Result<String, String>>,
}

/// Where versions of charts are looked up.
struct Shelf<'m> {
    indexes: &'m BTreeMap<String, Result<String, String>>,
    registry: &'m Registry,
}

impl Catalog for Shelf<'_> {
    fn directory(&mut self, path: &str) -> Result<Option<String>, String> {
        if !Path::new(path).exists() {
            return Ok(None);
        }
        super::load_directory(Path::new(path)).map(|chart| Some(chart.metadata.version))
    }

    fn versions(&mut self, dependency: &Dependency) -> Result<Vec<String>, String> {
        if let Origin::Registry(repository) = dependency.origin() {
            let place = format!("{repository}/{}", dependency.name);
            return fetch::blocking(fetch::tags(&place, self.registry)).map_err(|error| {
                format!(
                    "could not retrieve list of tags for repository {repository}: {}",
                    error::text(&error)
                )
            });
        }
        let versions = entries(self.indexes, dependency)?;
        Ok(versions.into_iter().map(|version| version.version).collect())
    }
}

/// All versions of a chart in the index of its repository.
fn entries(
    indexes: &BTreeMap<String, Result<String, String>>,
    dependency: &Dependency,
) -> Result<Vec<ChartVersion>, String> {
    let not_found = || format!("{} chart not found in repo {}", dependency.name, dependency.repository);
    let index = indexes.get(&dependency.repository).ok_or_else(not_found)?.as_ref().map_err(Clone::clone)?;
    fetch::versions_of(index, &dependency.name).map_err(|_| not_found())
}

/// The name under which the index of a repository without a name is stored.
fn unmanaged_name(repository: &str) -> String {
    format!("helm-manager-{}", hex::encode(Sha256::digest(repository)))
}

fn helm(error: &dyn std::fmt::Display) -> Error {
    Error::Helm(error.to_string())
}

impl Manager {
    fn of(reference: &Reference) -> Result<Self, Error> {
        let mut manager = Self::new(Path::new(&reference.chart), false)?;
        manager.skip_refresh = reference.skip_refresh;
        manager.registry = reference.registry.registry();
        Ok(manager)
    }

    fn new(chart: &Path, quiet: bool) -> Result<Self, Error> {
        let path = requirements::clean(&chart.display().to_string());
        let metadata = fs::metadata(&path).map_err(|error| {
            Error::Helm(format!("could not find {path}: {}", go_error("stat", &path, &error)))
        })?;
        if !metadata.is_dir() {
            return Err(helm(&"only unpacked charts can be updated"));
        }
        let chart = super::load_directory(Path::new(&path)).map_err(Error::Helm)?;
        Ok(Self {
            chart,
            path,
            quiet,
            skip_refresh: false,
            registry: Registry::default(),
            known: Repositories::read()?,
            indexes: BTreeMap::new(),
        })
    }

    fn say(&self, line: &str) -> Result<(), Error> {
        if self.quiet { Ok(()) } else { output::data(&format!("{line}\n")) }
    }

    fn build(&mut self) -> Result<(), Error> {
        let Some(lock) = self.chart.lock.clone() else { return self.update() };
        let mut metadata = self.chart.metadata.clone();
        self.name_repositories(metadata.dependencies.as_deref_mut().unwrap_or_default())?;
        // Older versions of Helm made the digest of the names, not of what they stand for.
        let checked = lock.check(&metadata);
        if metadata.api_version == "v1" {
            checked.or_else(|_| lock.check(&self.chart.metadata))
        } else {
            checked
        }
        .map_err(|error| helm(&error))?;
        let mut locked = lock.dependencies.unwrap_or_default();
        self.read_indexes(&locked)?;
        self.fill(&mut locked)
    }

    fn update(&mut self) -> Result<(), Error> {
        let Some(mut wanted) = self.chart.metadata.dependencies.clone() else { return Ok(()) };
        self.name_repositories(&mut wanted)?;
        self.read_indexes(&wanted)?;
        let now = SystemClock.now().to_string();
        let mut shelf = Shelf { indexes: &self.indexes, registry: &self.registry };
        let lock =
            requirements::resolve(&wanted, &self.path, &mut shelf, &now).map_err(|error| helm(&error))?;
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

    /// Puts addresses in the place of names of repositories. Directories that dependencies name must exist.
    fn name_repositories(&self, dependencies: &mut [Dependency]) -> Result<(), Error> {
        let mut missing = Vec::new();
        for dependency in dependencies {
            match dependency.origin() {
                Origin::Vendored | Origin::Registry(_) => {}
                Origin::Directory(path) => {
                    let path = requirements::local_path(&self.path, path);
                    if !Path::new(&path).exists() {
                        return Err(Error::Helm(format!("directory {path} not found")));
                    }
                }
                Origin::Alias(name) => match self.known.named(name).map(|known| known.url.clone()) {
                    Some(url) => dependency.repository = url,
                    None => missing.push(dependency.repository.clone()),
                },
                Origin::Repository(address) => {
                    if self.known.at(address).is_none() && Url::parse(address).is_err() {
                        missing.push(address.to_owned());
                    }
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut text = format!(
            "no repository definition for {}. Please add them via 'helm repo add'",
            missing.join(", ")
        );
        let is_address =
            |name: &String| name.contains("//") || name.starts_with('@') || name.starts_with("alias:");
        if !missing.iter().all(is_address) {
            text.push_str(
                "\nNote that repositories must be URLs or aliases. For example, to refer to the \"example\"\n\
                 repository, use \"https://charts.example.com/\" or \"@example\" instead of\n\
                 \"example\". Don't forget to add the repo, too ('helm repo add').",
            );
        }
        Err(Error::Helm(text))
    }

    /// Fetches the indexes of all repositories that are needed, or takes the stored ones.
    fn read_indexes(&mut self, dependencies: &[Dependency]) -> Result<(), Error> {
        let mut addresses: Vec<String> = Vec::new();
        for dependency in dependencies {
            if let Origin::Repository(address) = dependency.origin()
                && !addresses.iter().any(|other| other == address)
            {
                addresses.push(address.to_owned());
            }
        }
        let (managed, unmanaged): (Vec<String>, Vec<String>) =
            addresses.into_iter().partition(|address| self.known.at(address).is_some());
        if !unmanaged.is_empty() && !self.skip_refresh {
            self.say("Getting updates for unmanaged Helm repositories...")?;
        }
        for address in &unmanaged {
            self.read_index(address)?;
        }
        if !managed.is_empty() && !self.skip_refresh {
            self.say("Hang tight while we grab the latest from your chart repositories...")?;
        }
        for address in &managed {
            self.read_index(address)?;
        }
        if !managed.is_empty() && !self.skip_refresh {
            self.say("Update Complete. ⎈Happy Helming!⎈")?;
        }
        Ok(())
    }

    fn read_index(&mut self, address: &str) -> Result<(), Error> {
        let known = self.known.at(address);
        let name = known.map_or_else(|| unmanaged_name(address), |known| known.name.clone());
        let mut index = None;
        if !self.skip_refresh {
            let shown = known.map_or(address, |known| known.name.as_str());
            let login = known.map(|known| known.login.clone()).unwrap_or_default();
            match fetch::blocking(fetch::index(address, &login)) {
                Ok(fetched) => {
                    self.say(&format!("...Successfully got an update from the {shown:?} chart repository"))?;
                    index = Some(fetched);
                }
                Err(error) => {
                    let also = if known.is_some() { format!(" ({address})") } else { String::new() };
                    self.say(&format!(
                        "...Unable to get an update from the {shown:?} chart repository{also}:\n\t{error}"
                    ))?;
                }
            }
        }
        let index = index.map_or_else(
            || {
                fetch::cached(&name).map_err(|cause| {
                    format!("no cached repository for {name} found. (try 'helm repo update'): {cause}")
                })
            },
            Ok,
        );
        self.indexes.insert(address.to_owned(), index);
        Ok(())
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

    /// Puts all charts into `charts/` and removes those of earlier versions. Nothing is written if one is missing.
    fn fill(&self, dependencies: &mut [Dependency]) -> Result<(), Error> {
        let charts = Path::new(&self.path).join("charts");
        if charts.exists() && !charts.is_dir() {
            return Err(Error::Helm(format!("{:?} is not a directory", charts.display().to_string())));
        }
        self.say(&format!("Saving {} charts", dependencies.len()))?;
        let mut archives: Vec<(String, bytes::Bytes)> = Vec::new();
        let mut fetched: Vec<String> = Vec::new();
        for dependency in dependencies.iter_mut() {
            match self.archive(dependency, &charts, &mut fetched) {
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
        fetched: &mut Vec<String>,
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
            Origin::Registry(repository) => {
                let address = format!("{repository}/{name}");
                let version = &dependency.version;
                if !self.announce(dependency, &format!("{address}:{version}"), fetched)? {
                    return Ok(None);
                }
                let archive = fetch::blocking(fetch::from_registry(&address, version, &self.registry, false));
                let (archive, _, file) = archive.map_err(|error| could_not_download(&address, &error))?;
                Ok(Some((file, archive)))
            }
            Origin::Alias(_) | Origin::Repository(_) => {
                let address = self.chart_address(dependency).map_err(Failure::Save)?;
                if !self.announce(dependency, &address, fetched)? {
                    return Ok(None);
                }
                let repository = dependency.repository.as_str();
                let login = self.known.at(repository).map(|known| known.login.clone()).unwrap_or_default();
                let archive = fetch::blocking(fetch::download(repository, &login, &address))
                    .map_err(|error| could_not_download(&address, &error))?;
                let path = address.split(['?', '#']).next().unwrap_or_default();
                let file = path.rsplit('/').next().filter(|file| !file.is_empty()).unwrap_or("chart.tgz");
                Ok(Some((file.to_owned(), archive)))
            }
        }
    }

    /// Says what is fetched; `false` if it has been fetched before.
    fn announce(
        &self,
        dependency: &Dependency,
        address: &str,
        fetched: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let again = fetched.iter().any(|other| other == address);
        let verb = if again { "Already downloaded" } else { "Downloading" };
        self.say(&format!("{verb} {} from repo {}", dependency.name, dependency.repository))
            .map_err(|error| Failure::Fatal(error.to_string()))?;
        fetched.push(address.to_owned());
        Ok(!again)
    }

    /// Where the chosen version of a dependency can be fetched.
    fn chart_address(&self, dependency: &Dependency) -> Result<String, String> {
        let fail = |why: &str| format!("could not find : {why}");
        let versions = entries(&self.indexes, dependency).map_err(|_| fail("entry not found"))?;
        let wanted = Version::parse(&dependency.version).ok();
        let same = |version: &ChartVersion| match (&wanted, Version::parse(&version.version)) {
            (Some(wanted), Ok(version)) => version.cmp(wanted).is_eq(),
            (Some(_), Err(_)) => false,
            (None, _) => version.version == dependency.version,
        };
        let has_address =
            |version: &&ChartVersion| version.urls.as_ref().is_some_and(|urls| !urls.is_empty());
        let found = versions.iter().filter(has_address).find(|version| same(version));
        let found = found.ok_or_else(|| fail("no matching version"))?;
        fetch::first_address(&dependency.repository, found).ok_or_else(|| fail("no matching version"))
    }
}

fn could_not_download(address: &str, error: &Error) -> Failure {
    Failure::Save(format!("could not download {address}: {}", error::text(error)))
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
