//! `weir helm package`: makes archives of chart directories, as `helm package` does.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use weir_base::version::Version;
use weir_helm::chart::Chart;
use weir_helm::{package, requirements};

use super::{go_error, provenance};
use crate::error::Error;
use crate::output;

/// Arguments of `weir helm package`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directories of charts
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<String>,
    /// Version to put into Chart.yaml
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// appVersion to put into Chart.yaml
    #[arg(long, value_name = "VERSION")]
    app_version: Option<String>,
    /// Directory to write to
    #[arg(short, long, value_name = "PATH", default_value = ".")]
    destination: String,
    /// Update the dependencies first
    #[arg(short = 'u', long)]
    dependency_update: bool,
    /// Sign the archives with a key of OpenPGP
    #[arg(long)]
    sign: bool,
    /// Name of the key to sign with, or a part of it
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// File with the secret keys
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
    /// File with the passphrase of the key, or - for stdin
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<String>,
}

/// Packages and says where the archives are.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let key = arguments.key.as_deref().unwrap_or_default();
    if arguments.sign && key.is_empty() {
        return Err(Error::Helm("--key is required for signing a package".to_owned()));
    }
    if arguments.sign && arguments.keyring.as_ref().is_some_and(|keyring| keyring.as_os_str().is_empty()) {
        return Err(Error::Helm("--keyring is required for signing a package".to_owned()));
    }
    for path in &arguments.paths {
        fs::metadata(path).map_err(|error| Error::Helm(go_error("stat", path, &error)))?;
        let directory = Path::new(path);
        if arguments.dependency_update {
            super::dependency::update_quietly(directory)?;
        }
        let mut chart = super::load_directory(directory).map_err(Error::Helm)?;
        if let Some(version) = &arguments.version {
            chart.metadata.version.clone_from(version);
        }
        Version::parse(&chart.metadata.version).map_err(|error| Error::Helm(error.to_string()))?;
        if let Some(version) = &arguments.app_version {
            chart.metadata.app_version.clone_from(version);
        }
        requirements::check_present(&chart).map_err(|error| Error::Helm(error.to_string()))?;
        let destination = if arguments.destination == "." {
            std::path::absolute(".").map_err(|source| Error::File { path: ".".to_owned(), source })?
        } else {
            Path::new(&arguments.destination).to_path_buf()
        };
        let name = save(&chart, directory, &destination)?;
        if arguments.sign {
            sign(arguments, key, &chart, &destination.join(&name))?;
        }
        let shown = requirements::clean(&destination.join(name).display().to_string());
        output::data(&format!("Successfully packaged chart and saved it to: {shown}\n"))?;
    }
    Ok(())
}

/// Writes the file with the signature beside an archive.
fn sign(arguments: &Arguments, key: &str, chart: &Chart, archive: &Path) -> Result<(), Error> {
    let path = archive.display().to_string();
    let bytes = fs::read(archive).map_err(|source| Error::File { path: path.clone(), source })?;
    let name = archive.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let text = provenance::sign(
        &bytes,
        &name,
        &package::metadata_text(&chart.metadata),
        key,
        arguments.keyring.as_deref(),
        arguments.passphrase_file.as_deref(),
    )?;
    let beside = format!("{path}.prov");
    fs::write(&beside, text).map_err(|source| Error::WriteFile { path: beside.clone(), source })
}

/// Writes the archive of a chart that lies in `directory`; gives its name.
pub(super) fn save(chart: &Chart, directory: &Path, destination: &Path) -> Result<String, Error> {
    let archive =
        archive(chart, directory).map_err(|error| Error::Helm(format!("failed to save: {error}")))?;
    let name = package::file_name(chart);
    let target = destination.join(&name);
    let failed = |source| Error::WriteFile { path: target.display().to_string(), source };
    fs::create_dir_all(destination).map_err(failed)?;
    fs::write(&target, archive).map_err(failed)?;
    Ok(name)
}

/// The bytes of the archive, its entries dated like the files in `directory`.
pub(super) fn archive(chart: &Chart, directory: &Path) -> Result<bytes::Bytes, package::PackageError> {
    let fallback = modified(&directory.join("Chart.yaml")).unwrap_or_default();
    let lock = chart.lock.as_ref().and_then(|lock| lock.generated.parse::<jiff::Timestamp>().ok());
    package::archive(chart, &|path| {
        let within = path.split_once('/').map_or(path, |(_, within)| within);
        if within == "Chart.lock"
            && let Some(time) = lock
        {
            return u64::try_from(time.as_second()).unwrap_or_default();
        }
        modified(&directory.join(within)).unwrap_or(fallback)
    })
}

/// When a file was changed, in seconds since 1970, rounded as Go's archive writer does.
fn modified(path: &Path) -> Option<u64> {
    let time: SystemTime = fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    let since: Duration = time.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs() + u64::from(since.subsec_millis() >= 500))
}
