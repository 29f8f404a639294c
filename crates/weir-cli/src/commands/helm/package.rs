//! `weir helm package`: makes archives of chart directories, as `helm package` does.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use weir_base::version::Version;
use weir_helm::chart::Chart;
use weir_helm::{package, requirements};

use super::go_error;
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
    /// Refused: archives are not signed
    #[arg(long, hide_short_help = true)]
    sign: bool,
}

/// Packages and says where the archives are.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    if arguments.sign {
        return Err(Error::Flag { flag: "sign", value: "archives are not signed".to_owned() });
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
        let shown = requirements::clean(&destination.join(name).display().to_string());
        output::data(&format!("Successfully packaged chart and saved it to: {shown}\n"))?;
    }
    Ok(())
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
