//! The dependencies that are not under `charts/`: found in the source, or fetched.

use weir_base::tree::{Files, Kind, MemoryTree};
use weir_base::version::{Constraint, Version};
use weir_helm::chart::Chart;
use weir_helm::metadata::Dependency;
use weir_helm::requirements::{self, Origin};

use super::build::clean;
use super::error::{Cause, DependencyError};
use super::remote::Remotes;

/// Adds what is missing to the chart at `path` of a source and returns how many charts that were.
pub(super) async fn add_missing(
    remotes: &Remotes,
    namespace: &str,
    tree: &MemoryTree,
    path: &str,
    chart: &mut Chart,
) -> Result<usize, Cause> {
    let missing: Vec<Dependency> = requirements::missing(chart).into_iter().cloned().collect();
    for dependency in &missing {
        let failed = |place| {
            move |source| Cause::Dependency {
                place,
                name: dependency.effective_name().to_owned(),
                source: Box::new(source),
            }
        };
        let mut added = match local_path(dependency, path) {
            Some(local) => add_local(dependency, &local, tree).map_err(failed("local"))?,
            None => fetch(remotes, namespace, dependency).await.map_err(failed("remote"))?,
        };
        if !dependency.alias.is_empty() {
            dependency.alias.clone_into(&mut added.metadata.name);
        }
        chart.dependencies.push(added);
    }
    Ok(missing.len())
}

/// Where a dependency of the chart at `path` is in the source, if it is there.
fn local_path(dependency: &Dependency, path: &str) -> Option<String> {
    match dependency.origin() {
        Origin::Vendored => Some(clean(&format!("{path}/charts/{}", dependency.name))),
        Origin::Directory(relative) => Some(clean(&format!("{path}/{relative}"))),
        Origin::Registry(_) | Origin::Alias(_) | Origin::Repository(_) => None,
    }
}

fn add_local(dependency: &Dependency, path: &str, tree: &MemoryTree) -> Result<Chart, DependencyError> {
    let (found, reference) = (format!("/{path}"), dependency.repository.clone());
    let Some(kind) = tree.kind(path) else { return Err(DependencyError::NoChart { found, reference }) };
    let range = Constraint::parse(&dependency.version)
        .map_err(|source| DependencyError::Range { range: dependency.version.clone(), source })?;
    let chart = match kind {
        Kind::Directory => Chart::from_tree(tree, path),
        Kind::File => Chart::from_archive(&tree.read(path).unwrap_or_default()),
    };
    let chart =
        chart.map_err(|source| DependencyError::Load { found, reference, source: Box::new(source) })?;
    if !range.matches(&Version::parse(&chart.metadata.version)?) {
        return Err(DependencyError::NotInRange(dependency.version.clone()));
    }
    Ok(chart)
}

async fn fetch(
    remotes: &Remotes,
    namespace: &str,
    dependency: &Dependency,
) -> Result<Chart, DependencyError> {
    let url = &dependency.repository;
    if let Origin::Alias(_) = dependency.origin() {
        return Err(DependencyError::Alias);
    }
    let remote = remotes
        .of_url(url, namespace, &dependency.name)
        .await
        .map_err(|source| DependencyError::Repository { url: url.clone(), source: Box::new(source) })?;
    let found =
        remote.find(&dependency.name, &dependency.version).await.map_err(|source| DependencyError::Find {
            name: dependency.name.clone(),
            range: dependency.version.clone(),
            url: url.clone(),
            source: Box::new(source),
        })?;
    let version = found.version.clone();
    let bytes = remote
        .download(&found, None)
        .await
        .map_err(|source| DependencyError::Download { version: version.clone(), source: Box::new(source) })?;
    Chart::from_archive(&bytes)
        .map_err(|source| DependencyError::LoadDownloaded { version, source: Box::new(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(repository: &str, version: &str) -> Dependency {
        Dependency {
            name: "lib".to_owned(),
            version: version.to_owned(),
            repository: repository.to_owned(),
            ..Dependency::default()
        }
    }

    #[test]
    fn places_in_the_source() {
        for (repository, expected) in [
            ("", Some("charts/app/charts/lib")),
            ("file://../lib", Some("charts/lib")),
            ("file://../../../../lib", Some("lib")),
            ("https://example.com", None),
            ("oci://example.com", None),
            ("@stable", None),
        ] {
            let found = local_path(&dependency(repository, "1.x"), "charts/app");
            assert_eq!(found.as_deref(), expected, "{repository}");
        }
    }

    #[test]
    fn charts_of_the_source_must_fit() {
        let tree: MemoryTree = [
            ("lib/Chart.yaml", "apiVersion: v2\nname: lib\nversion: 1.4.0\n"),
            ("bad/Chart.yaml", "apiVersion: v2\nname: lib\n"),
        ]
        .into_iter()
        .map(|(path, text)| (path, bytes::Bytes::from(text)))
        .collect();
        let add = |path: &str, range: &str| {
            add_local(&dependency("file://../lib", range), path, &tree)
                .map(|chart| chart.metadata.version)
                .map_err(|error| weir_base::error::chain(&error))
        };
        assert_eq!(add("lib", "1.x").as_deref(), Ok("1.4.0"));
        assert_eq!(add("lib", "2.x").unwrap_err(), "can't get a valid version for constraint '2.x'");
        assert_eq!(
            add("lib", "a b").unwrap_err(),
            "invalid version/constraint format 'a b': improper constraint: \"a b\""
        );
        assert_eq!(add("no", "1.x").unwrap_err(), "no chart found at '/no' (reference 'file://../lib')");
        assert!(
            add("bad", "1.x")
                .unwrap_err()
                .starts_with("failed to load chart from '/bad' (reference 'file://../lib'): ")
        );
    }
}
