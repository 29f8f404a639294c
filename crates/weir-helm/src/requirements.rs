//! From the dependencies a chart wants to the versions it gets.
//!
//! Pure: where versions and directories have to be looked up, a [`Catalog`] is asked.

use weir_base::version::{Constraint, Version};

use crate::chart::Chart;
use crate::lock::{self, Lock};
use crate::metadata::Dependency;

/// Where a dependency comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<'a> {
    /// It lies under `charts/` already.
    Vendored,
    /// A chart directory; relative paths start at the chart that wants it.
    Directory(&'a str),
    /// A repository in an OCI registry, the whole `oci://` address.
    Registry(&'a str),
    /// The name of a configured repository (`@name`, `alias:name`).
    Alias(&'a str),
    /// A repository with an index, normally an `https://` address.
    Repository(&'a str),
}

impl Dependency {
    /// Where it comes from.
    pub fn origin(&self) -> Origin<'_> {
        let repository = self.repository.as_str();
        if repository.is_empty() {
            Origin::Vendored
        } else if let Some(path) = repository.strip_prefix("file://") {
            Origin::Directory(path)
        } else if repository.starts_with("oci://") {
            Origin::Registry(repository)
        } else if let Some(name) = repository.strip_prefix('@').or_else(|| repository.strip_prefix("alias:"))
        {
            Origin::Alias(name)
        } else {
            Origin::Repository(repository)
        }
    }

    /// The name its chart goes by: the alias, or else the name.
    pub fn effective_name(&self) -> &str {
        if self.alias.is_empty() { &self.name } else { &self.alias }
    }
}

/// Answers what resolving has to look up.
pub trait Catalog {
    /// The version of the chart in a directory; nothing if there is no such directory.
    fn directory(&mut self, path: &str) -> Result<Option<String>, String>;
    /// The versions there are of a dependency, those to prefer first (normally the newest).
    fn versions(&mut self, dependency: &Dependency) -> Result<Vec<String>, String>;
}

/// Why dependencies cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The range of versions is none.
    #[error("dependency {name:?} has an invalid version/constraint format: {message}")]
    Constraint {
        /// The dependency.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// The directory of a dependency does not exist.
    #[error("directory {0} not found")]
    DirectoryMissing(String),
    /// A chart or a repository cannot be read.
    #[error("{0}")]
    Catalog(String),
    /// No version there is lies in the range.
    #[error(
        "can't get a valid version for {} subchart(s): {}. Make sure a matching chart version exists in the repo, or \
         change the version constraint in Chart.yaml", .0.len(), .0.join(", ")
    )]
    NoVersion(Vec<String>),
}

/// Chooses a version for every dependency; `generated` is the time the lock will carry.
///
/// `chart_path` is the directory of the chart, from which paths start. Dependencies under `charts/` keep their range,
/// as do those of a registry that has no matching version.
pub fn resolve(
    wanted: &[Dependency],
    chart_path: &str,
    catalog: &mut dyn Catalog,
    generated: &str,
) -> Result<Lock, ResolveError> {
    let mut chosen = Vec::new();
    let mut missing = Vec::new();
    for dependency in wanted {
        let range = Constraint::parse(&dependency.version).map_err(|error| ResolveError::Constraint {
            name: dependency.name.clone(),
            message: error.to_string(),
        })?;
        let mut lookup = |path: String| match catalog.directory(&path) {
            Ok(None) => Err(ResolveError::DirectoryMissing(path)),
            Ok(Some(version)) => Ok(version),
            Err(message) => Err(ResolveError::Catalog(message)),
        };
        let version = match dependency.origin() {
            Origin::Vendored => {
                // Whether the chart in there is in order is seen when it is used.
                let found = lookup(local_path(chart_path, &format!("charts/{}", dependency.name)));
                if let Err(error @ ResolveError::DirectoryMissing(_)) = found {
                    return Err(error);
                }
                Some(dependency.version.clone())
            }
            Origin::Directory(path) => {
                let version = lookup(local_path(chart_path, path))?;
                Version::parse(&version).is_ok_and(|version| range.matches(&version)).then_some(version)
            }
            Origin::Registry(_) if Version::parse(&dependency.version).is_ok() => {
                Some(dependency.version.clone())
            }
            Origin::Registry(_) => {
                let versions = catalog.versions(dependency).map_err(ResolveError::Catalog)?;
                let found = first_match(&range, versions.iter().map(String::as_str));
                Some(found.unwrap_or(&dependency.version).to_owned())
            }
            Origin::Alias(_) | Origin::Repository(_) => {
                let versions = catalog.versions(dependency).map_err(ResolveError::Catalog)?;
                first_match(&range, versions.iter().map(String::as_str)).map(str::to_owned)
            }
        };
        match version {
            Some(version) => chosen.push(Dependency {
                name: dependency.name.clone(),
                repository: dependency.repository.clone(),
                version,
                ..Dependency::default()
            }),
            None => missing.push(format!(
                "{:?} (repository {:?}, version {:?})",
                dependency.name, dependency.repository, dependency.version
            )),
        }
    }
    if !missing.is_empty() {
        return Err(ResolveError::NoVersion(missing));
    }
    Ok(Lock {
        generated: generated.to_owned(),
        digest: lock::digest(Some(wanted), Some(&chosen)),
        dependencies: Some(chosen),
    })
}

fn first_match<'v>(range: &Constraint, versions: impl IntoIterator<Item = &'v str>) -> Option<&'v str> {
    versions.into_iter().find(|version| Version::parse(version).is_ok_and(|version| range.matches(&version)))
}

/// The version of an index or tag list that a wanted version or range means.
///
/// A version that is there literally is taken; otherwise the newest in range. An empty `wanted` is the newest release.
pub fn best_match<'v>(
    wanted: &str,
    versions: impl IntoIterator<Item = &'v str>,
) -> Result<Option<&'v str>, weir_base::version::ConstraintError> {
    let range = Constraint::parse(if wanted.is_empty() { "*" } else { wanted })?;
    let mut best: Option<(Version, &str)> = None;
    for text in versions {
        if !wanted.is_empty() && text == wanted {
            return Ok(Some(text));
        }
        let Ok(version) = Version::parse(text) else { continue };
        let newer = best.as_ref().is_none_or(|(found, _)| version > *found);
        if newer && range.matches(&version) {
            best = Some((version, text));
        }
    }
    Ok(best.map(|(_, text)| text))
}

/// The path of a dependency in a directory: absolute paths stay, others start at the chart; the result is clean.
pub fn local_path(chart_path: &str, path: &str) -> String {
    let stays = path.starts_with('/') || chart_path.is_empty();
    let joined = if stays { path.to_owned() } else { format!("{chart_path}/{path}") };
    clean(&joined)
}

/// A path without `.`, `..` and double slashes where that is possible without a look at the disk.
pub fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// The dependencies whose charts are not under `charts/` yet: those of the lock if there is one, else those of
/// `Chart.yaml`. None if there are as many charts as dependencies.
pub fn missing(chart: &Chart) -> Vec<&Dependency> {
    let wanted = match &chart.lock {
        Some(lock) => lock.dependencies.as_deref(),
        None => chart.metadata.dependencies.as_deref(),
    };
    let wanted = wanted.unwrap_or_default();
    if wanted.len() == chart.dependencies.len() {
        return Vec::new();
    }
    let there = |name: &str| chart.dependencies.iter().any(|subchart| subchart.name() == name);
    wanted.iter().filter(|dependency| !there(dependency.effective_name())).collect()
}

/// Checks that all dependencies of `Chart.yaml` have a chart under `charts/`.
pub fn check_present(chart: &Chart) -> Result<(), MissingDependencies> {
    let wanted = chart.metadata.dependencies.as_deref().unwrap_or_default();
    let there = |name: &str| chart.dependencies.iter().any(|subchart| subchart.name() == name);
    let missing: Vec<String> = wanted
        .iter()
        .filter(|dependency| !there(&dependency.name))
        .map(|dependency| dependency.name.clone())
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(MissingDependencies(missing)) }
}

/// Dependencies of `Chart.yaml` without a chart under `charts/`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found in Chart.yaml, but missing in charts/ directory: {}", .0.join(", "))]
pub struct MissingDependencies(pub Vec<String>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Metadata;

    struct Shelf;

    impl Catalog for Shelf {
        fn directory(&mut self, path: &str) -> Result<Option<String>, String> {
            Ok(match path {
                "/c/charts/in" => Some("0.1.0".to_owned()),
                "/one" => Some("1.2.3".to_owned()),
                _ => None,
            })
        }

        fn versions(&mut self, dependency: &Dependency) -> Result<Vec<String>, String> {
            match dependency.name.as_str() {
                "web" => Ok(["2.0.0-rc.1", "v1.5.0", "1.4.0", "bad"].map(str::to_owned).to_vec()),
                other => Err(format!("{other} chart not found in repo {}", dependency.repository)),
            }
        }
    }

    fn run(dependencies: &str) -> Result<Vec<String>, String> {
        let text = format!("apiVersion: v2\nname: c\nversion: 1.0.0\ndependencies:\n{dependencies}");
        let metadata = Metadata::parse(text.as_bytes()).unwrap();
        let wanted = metadata.dependencies.unwrap();
        let lock =
            resolve(&wanted, "/c", &mut Shelf, "2024-01-02T03:04:05Z").map_err(|error| error.to_string())?;
        Ok(lock.dependencies.unwrap().into_iter().map(|dependency| dependency.version).collect())
    }

    #[track_caller]
    fn check(entry: &str, expected: Result<&str, &str>) {
        let outcome = run(&format!("- {{{entry}}}\n"));
        let outcome = outcome.as_ref().map(|versions| versions[0].as_str()).map_err(String::as_str);
        assert_eq!(outcome, expected, "{entry}");
    }

    #[test]
    fn versions_are_chosen_by_origin() {
        check("name: in, version: '>=0.1'", Ok(">=0.1"));
        check("name: out, version: '1'", Err("directory /c/charts/out not found"));
        check("name: one, version: 1.x, repository: 'file://../one'", Ok("1.2.3"));
        check("name: one, version: 1.x, repository: 'file:///two'", Err("directory /two not found"));
        check(
            "name: one, version: 2.x, repository: 'file://../one'",
            Err(
                "can't get a valid version for 1 subchart(s): \"one\" (repository \"file://../one\", version \"2.x\"). Make sure a matching chart version exists in the repo, or change the version constraint in Chart.yaml",
            ),
        );
        check("name: web, version: 1.x, repository: 'https://charts.example.com'", Ok("v1.5.0"));
        check("name: web, version: '>=2-0', repository: 'https://charts.example.com'", Ok("2.0.0-rc.1"));
        check("name: web, version: ~1.4.0, repository: 'oci://registry.example.com/charts'", Ok("1.4.0"));
        check("name: web, version: 9.9.9, repository: 'oci://registry.example.com/charts'", Ok("9.9.9"));
        check(
            "name: other, version: 1, repository: 'https://charts.example.com'",
            Err("other chart not found in repo https://charts.example.com"),
        );
        check(
            "name: web, version: latest, repository: 'https://charts.example.com'",
            Err(
                "dependency \"web\" has an invalid version/constraint format: improper constraint: \"latest\"",
            ),
        );
    }

    #[test]
    fn the_literal_version_goes_before_the_newest() {
        let versions = ["1.0.0", "1.2.0", "1.1.0+a", "1.3.0-rc.1"];
        assert_eq!(best_match("1.x", versions), Ok(Some("1.2.0")));
        assert_eq!(best_match("", versions), Ok(Some("1.2.0")));
        assert_eq!(best_match("1.1.0+a", versions), Ok(Some("1.1.0+a")));
        assert_eq!(best_match("2", versions), Ok(None));
        assert!(best_match("?", versions).is_err());
    }

    #[test]
    fn paths_are_cleaned() {
        for (chart, path, expected) in [
            ("/c", "../one", "/one"),
            ("c", "../../one", "../one"),
            ("c", "../", "."),
            ("c", "/a//b/./c/..", "/a/b"),
            ("", "../x", "../x"),
        ] {
            assert_eq!(local_path(chart, path), expected);
        }
    }
}
