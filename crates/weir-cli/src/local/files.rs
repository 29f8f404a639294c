//! The files of a fleet: from a directory, or the example that comes with the program.

use std::collections::BTreeMap;
use std::path::Path;

use super::LocalError;
use crate::error::Error;

/// The largest file that is taken.
const FILE_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// The most files that are taken.
const FILES_MAX: usize = 20_000;

/// A file of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) content: Vec<u8>,
    pub(crate) executable: bool,
}

/// Files by path, with slashes and relative to the fleet.
pub(crate) type Files = BTreeMap<String, File>;

macro_rules! embedded {
    ($root:literal: $($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $root, "/", $path)))),+]
    };
}

const EXAMPLE: &[(&str, &str)] = embedded!("examples/fleet":
    "apps/base/guestbook/frontend.yaml",
    "apps/base/guestbook/kustomization.yaml",
    "apps/base/guestbook/redis.yaml",
    "apps/base/podinfo/autoscaler.yaml",
    "apps/base/podinfo/deployment.yaml",
    "apps/base/podinfo/ingress.yaml",
    "apps/base/podinfo/kustomization.yaml",
    "apps/base/podinfo/service.yaml",
    "apps/local/guestbook/kustomization.yaml",
    "apps/local/podinfo/kustomization.yaml",
    "apps/local/reports/cronjob.yaml",
    "apps/local/reports/job.yaml",
    "clusters/local/apps.yaml",
    "clusters/local/infrastructure.yaml",
    "clusters/local/tenants.yaml",
    "infrastructure/base/kustomization.yaml",
    "infrastructure/base/namespaces.yaml",
    "infrastructure/base/priorities.yaml",
    "infrastructure/base/roles.yaml",
    "infrastructure/configs/backups.yaml",
    "infrastructure/configs/kustomization.yaml",
    "infrastructure/configs/network-policies.yaml",
    "infrastructure/configs/quotas.yaml",
    "infrastructure/crds/backups.yaml",
    "README.md",
    "tenants/base/access.yaml",
    "tenants/base/kustomization.yaml",
    "tenants/base/network-policy.yaml",
    "tenants/data/kustomization.yaml",
    "tenants/data/namespace.yaml",
    "tenants/frontend/kustomization.yaml",
    "tenants/frontend/namespace.yaml",
    "tenants/kustomization.yaml",
);

/// The definitions of all kinds.
pub(crate) const DEFINITIONS: &[(&str, &str)] = embedded!("crds":
    "alerts.notification.toolkit.fluxcd.io.yaml",
    "artifactgenerators.source.extensions.fluxcd.io.yaml",
    "buckets.source.toolkit.fluxcd.io.yaml",
    "externalartifacts.source.toolkit.fluxcd.io.yaml",
    "fluxinstances.fluxcd.controlplane.io.yaml",
    "fluxreports.fluxcd.controlplane.io.yaml",
    "gitrepositories.source.toolkit.fluxcd.io.yaml",
    "helmcharts.source.toolkit.fluxcd.io.yaml",
    "helmreleases.helm.toolkit.fluxcd.io.yaml",
    "helmrepositories.source.toolkit.fluxcd.io.yaml",
    "imagepolicies.image.toolkit.fluxcd.io.yaml",
    "imagerepositories.image.toolkit.fluxcd.io.yaml",
    "imageupdateautomations.image.toolkit.fluxcd.io.yaml",
    "kustomizations.kustomize.toolkit.fluxcd.io.yaml",
    "ocirepositories.source.toolkit.fluxcd.io.yaml",
    "providers.notification.toolkit.fluxcd.io.yaml",
    "receivers.notification.toolkit.fluxcd.io.yaml",
    "resourcesetinputproviders.fluxcd.controlplane.io.yaml",
    "resourcesets.fluxcd.controlplane.io.yaml",
);

/// The example fleet.
pub(crate) fn example() -> Files {
    EXAMPLE
        .iter()
        .map(|(path, text)| {
            ((*path).to_owned(), File { content: text.as_bytes().to_vec(), executable: false })
        })
        .collect()
}

/// All files of a directory but those of hidden folders, links and what is too large.
///
/// # Errors
/// The directory cannot be read, has no files, or has more than 20,000.
pub(crate) fn read(directory: &Path) -> Result<Files, Error> {
    let mut files = Files::new();
    walk(directory, "", &mut files)
        .map_err(|source| Error::File { path: directory.display().to_string(), source })?;
    if files.is_empty() {
        return Err(LocalError::NoFiles(directory.to_owned()).into());
    }
    if files.len() > FILES_MAX {
        return Err(LocalError::TooManyFiles { path: directory.to_owned(), limit: FILES_MAX }.into());
    }
    Ok(files)
}

fn walk(directory: &Path, prefix: &str, files: &mut Files) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (kind, metadata) = (entry.file_type()?, entry.metadata()?);
        let path = format!("{prefix}{name}");
        if kind.is_dir() && !name.starts_with('.') && files.len() <= FILES_MAX {
            walk(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() && metadata.len() <= FILE_BYTES_MAX {
            use std::os::unix::fs::PermissionsExt as _;
            let executable = metadata.permissions().mode() & 0o111 != 0;
            files.insert(path, File { content: std::fs::read(entry.path())?, executable });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_files_are_those_of_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(example(), read(&root.join("examples/fleet")).unwrap());
        let definitions = read(&root.join("crds")).unwrap();
        let names: Vec<&str> = DEFINITIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, definitions.keys().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn a_directory_without_files_is_refused() {
        let error = read(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"));
    }
}
