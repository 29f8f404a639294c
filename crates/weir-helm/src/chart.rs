//! Charts and how they are loaded from archives and file trees.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::Read;

use bytes::Bytes;
use serde_json::{Map, Value as Json};
use weir_base::tree::{Files, Kind};

use crate::ignore::{IgnoreError, Rules};
use crate::lock::Lock;
use crate::metadata::{Metadata, MetadataError};
use crate::values;

/// Bytes of all files of an archive together.
pub const ARCHIVE_BYTES_MAX: u64 = 100 << 20;
/// Bytes of one file.
pub const FILE_BYTES_MAX: u64 = 5 << 20;
/// Bytes of all files of an archive and of the archives in it together.
pub const NESTED_BYTES_MAX: u64 = 4 * ARCHIVE_BYTES_MAX;
/// Entries of one archive.
pub const ARCHIVE_ENTRIES_MAX: usize = 100_000;
/// Charts within charts, in levels.
pub const CHART_LEVELS_MAX: usize = 50;
const DIRECTORY_LEVELS_MAX: usize = 100;

/// A file of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The path within the chart.
    pub name: String,
    /// The content.
    pub data: Bytes,
}

/// A chart with its subcharts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chart {
    /// `Chart.yaml`
    pub metadata: Metadata,
    /// `Chart.lock`
    pub lock: Option<Lock>,
    /// Files under `templates/`.
    pub templates: Vec<File>,
    /// The default values.
    pub values: Map<String, Json>,
    /// `values.schema.json`
    pub schema: Option<Bytes>,
    /// All other files.
    pub files: Vec<File>,
    /// The text of `values.yaml`, if there is one.
    pub values_text: Option<Bytes>,
    /// The charts under `charts/`.
    pub dependencies: Vec<Chart>,
}

/// Why a chart cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChartError {
    /// The bytes are no gzip-compressed archive, or a broken one.
    #[error("chart archive cannot be read: {0}")]
    Archive(String),
    /// An entry points out of the chart.
    #[error("chart illegally contains {0}")]
    Escape(String),
    /// `Chart.yaml` lies at the top of the archive.
    #[error("chart yaml not in base directory")]
    NotInBaseDirectory,
    /// There is nothing in the archive.
    #[error("no files in chart archive")]
    Empty,
    /// The archive is too large.
    #[error("decompressed chart is larger than the maximum size {ARCHIVE_BYTES_MAX}")]
    ArchiveTooLarge,
    /// A file is too large.
    #[error("decompressed chart file \"{0}\" is larger than the maximum file size {FILE_BYTES_MAX}")]
    FileTooLarge(String),
    /// There is no `Chart.yaml`.
    #[error("Chart.yaml file is missing")]
    MetadataMissing,
    /// A file does not parse.
    #[error("cannot load {file}: {message}")]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// `Chart.yaml` breaks a rule.
    #[error(transparent)]
    Invalid(#[from] MetadataError),
    /// A subchart cannot be loaded.
    #[error("error unpacking subchart {name} in {chart}: {message}")]
    Subchart {
        /// The subchart.
        name: String,
        /// The chart it is in.
        chart: String,
        /// What is wrong.
        message: String,
    },
    /// `.helmignore` has a rule that cannot be used.
    #[error(transparent)]
    Ignore(#[from] IgnoreError),
    /// Charts or directories are nested too deeply.
    #[error("chart is nested more than {CHART_LEVELS_MAX} levels deep")]
    TooDeep,
}

/// What follows the last dot of a name.
fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// The order in which a walk meets two paths: a slash comes before everything else.
fn walk_order(left: &str, right: &str) -> Ordering {
    let rank = |byte: Option<&u8>| byte.map(|byte| (*byte != b'/', *byte));
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let same = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    rank(left.get(same)).cmp(&rank(right.get(same)))
}

fn without_bom(data: Bytes) -> Bytes {
    if data.starts_with(b"\xef\xbb\xbf") { data.slice(3..) } else { data }
}

impl Chart {
    /// Loads a `.tgz` archive.
    ///
    /// Limits: [`ARCHIVE_BYTES_MAX`], [`NESTED_BYTES_MAX`], [`FILE_BYTES_MAX`], [`ARCHIVE_ENTRIES_MAX`]. Entries must stay
    /// in the one directory the archive consists of.
    pub fn from_archive(archive: &[u8]) -> Result<Self, ChartError> {
        let mut budget = NESTED_BYTES_MAX;
        Self::from_files(unpack_within(archive, &mut budget)?, 0, &mut budget)
    }

    /// Loads the directory `root` of a tree, minding `.helmignore`.
    pub fn from_tree(tree: &dyn Files, root: &str) -> Result<Self, ChartError> {
        let join = |path: &str| {
            if root.is_empty() { path.to_owned() } else { format!("{root}/{path}") }
        };
        let rules = tree.read(&join(".helmignore")).unwrap_or_default();
        let rules = Rules::parse(&String::from_utf8_lossy(&rules))?;
        let mut files = Vec::new();
        let mut pending = vec![(String::new(), 0)];
        while let Some((directory, level)) = pending.pop() {
            if level > DIRECTORY_LEVELS_MAX {
                return Err(ChartError::TooDeep);
            }
            let full = if directory.is_empty() { root.to_owned() } else { join(&directory) };
            for entry in tree.list(&full).unwrap_or_default() {
                let path =
                    if directory.is_empty() { entry.name } else { format!("{directory}/{}", entry.name) };
                if rules.ignores(&path, entry.directory) {
                    continue;
                }
                if entry.directory {
                    pending.push((path, level + 1));
                    continue;
                }
                let full = join(&path);
                if tree.kind(&full) != Some(Kind::File) {
                    continue;
                }
                let data = tree.read(&full).unwrap_or_default();
                if data.len() as u64 > FILE_BYTES_MAX {
                    return Err(ChartError::FileTooLarge(path));
                }
                files.push(File { name: path, data: without_bom(data) });
            }
        }
        // The order of a directory walk: entry by entry, directories where their name stands.
        files.sort_by(|left, right| walk_order(&left.name, &right.name));
        Self::from_files(files, 0, &mut { NESTED_BYTES_MAX })
    }

    /// Puts a chart together from its files.
    fn from_files(files: Vec<File>, level: usize, budget: &mut u64) -> Result<Self, ChartError> {
        if level > CHART_LEVELS_MAX {
            return Err(ChartError::TooDeep);
        }
        let mut chart = Self::default();
        let bad = |file: &str, message: String| ChartError::File { file: file.to_owned(), message };
        let metadata = files.iter().find(|file| file.name == "Chart.yaml");
        if let Some(file) = metadata {
            chart.metadata = Metadata::parse(&file.data).map_err(|error| match error {
                MetadataError::Invalid(_) => ChartError::Invalid(error),
                other => bad("Chart.yaml", other.to_string()),
            })?;
            if chart.metadata.api_version.is_empty() {
                "v1".clone_into(&mut chart.metadata.api_version);
            }
        }
        let mut subcharts: BTreeMap<String, Vec<File>> = BTreeMap::new();
        for file in files {
            let first_version = chart.metadata.api_version == "v1";
            match file.name.as_str() {
                "Chart.yaml" => {}
                "Chart.lock" => chart.lock = Some(read_lock(&file)?),
                "values.yaml" => {
                    chart.values =
                        values::read_stream(&file.data).map_err(|message| bad("values.yaml", message))?;
                    chart.values_text = Some(file.data);
                }
                "values.schema.json" => chart.schema = Some(file.data),
                "requirements.yaml" => {
                    chart
                        .metadata
                        .merge(&file.data)
                        .map_err(|error| bad("requirements.yaml", error.to_string()))?;
                    if first_version {
                        chart.files.push(file);
                    }
                }
                "requirements.lock" => {
                    chart.lock = Some(read_lock(&file)?);
                    if first_version {
                        chart.files.push(file);
                    }
                }
                name if name.starts_with("templates/") => chart.templates.push(file),
                name => match name.strip_prefix("charts/") {
                    Some(_) if extension(name) == "prov" => chart.files.push(file),
                    Some(within) => {
                        let first = within.split('/').next().unwrap_or(within).to_owned();
                        let within = within.to_owned();
                        subcharts.entry(first).or_default().push(File { name: within, data: file.data });
                    }
                    None => chart.files.push(file),
                },
            }
        }
        if metadata_missing(&chart) {
            return Err(ChartError::MetadataMissing);
        }
        chart.metadata.sanitize();
        chart.metadata.validate()?;
        for (name, files) in subcharts {
            if name.starts_with(['_', '.']) {
                continue;
            }
            let fail = |message: String| ChartError::Subchart {
                name: name.clone(),
                chart: chart.metadata.name.clone(),
                message,
            };
            let loaded = if extension(&name) == "tgz" {
                match files.first() {
                    Some(file) if file.name == name => {
                        let unpacked =
                            unpack_within(&file.data, budget).map_err(|error| fail(error.to_string()))?;
                        Self::from_files(unpacked, level + 1, budget)
                    }
                    Some(file) => {
                        return Err(ChartError::Subchart {
                            name: format!("tar in {}", chart.metadata.name),
                            chart: chart.metadata.name.clone(),
                            message: format!("expected {name}, got {}", file.name),
                        });
                    }
                    None => continue,
                }
            } else {
                let inner: Vec<File> = files
                    .into_iter()
                    .filter_map(|file| {
                        let (_, inner) = file.name.split_once('/')?;
                        Some(File { name: inner.to_owned(), data: file.data })
                    })
                    .collect();
                Self::from_files(inner, level + 1, budget)
            };
            chart.dependencies.push(loaded.map_err(|error| fail(error.to_string()))?);
        }
        Ok(chart)
    }

    /// The name, or the alias it was given.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Files under `crds/` of this chart and then of its subcharts, in the order they were loaded, with their paths
    /// as the comments above rendered documents name them.
    pub fn crds_with_paths(&self) -> Vec<(String, &File)> {
        let mut found = Vec::new();
        self.add_crds("", &mut found);
        found
    }

    fn add_crds<'c>(&'c self, parent: &str, found: &mut Vec<(String, &'c File)>) {
        let base = format!("{parent}{}", self.name());
        let own = self.files.iter().filter(|file| is_crd_file(file));
        found.extend(own.map(|file| (format!("{base}/{}", file.name), file)));
        for subchart in &self.dependencies {
            subchart.add_crds(&format!("{base}/charts/"), found);
        }
    }

    /// Files under `crds/` of this chart and then of its subcharts, sorted by name within each.
    pub fn crds(&self) -> Vec<&File> {
        let mut own: Vec<&File> = self.files.iter().filter(|file| is_crd_file(file)).collect();
        own.sort_by(|left, right| left.name.cmp(&right.name));
        own.extend(self.dependencies.iter().flat_map(Self::crds));
        own
    }
}

fn is_crd_file(file: &File) -> bool {
    let extension = extension(&file.name).to_ascii_lowercase();
    file.name.starts_with("crds/") && matches!(extension.as_str(), "yaml" | "yml" | "json")
}

/// A chart without `Chart.yaml` and without anything that would have filled in its place.
fn metadata_missing(chart: &Chart) -> bool {
    chart.metadata == Metadata::default()
}

fn read_lock(file: &File) -> Result<Lock, ChartError> {
    Lock::parse(&file.data)
        .map_err(|error| ChartError::File { file: file.name.clone(), message: error.to_string() })
}

/// The files of a `.tgz` archive by their paths within the one directory it consists of.
///
/// Limits: those of [`Chart::from_archive`].
pub fn unpack(archive: &[u8]) -> Result<Vec<File>, ChartError> {
    unpack_within(archive, &mut { NESTED_BYTES_MAX })
}

/// The files of an archive. `budget` is what may still be unpacked, archives around this one included.
fn unpack_within(archive: &[u8], budget: &mut u64) -> Result<Vec<File>, ChartError> {
    let broken = |error: std::io::Error| ChartError::Archive(error.to_string());
    let mut remaining = ARCHIVE_BYTES_MAX;
    let mut files: Vec<File> = Vec::new();
    let decoder = flate2::read::GzDecoder::new(archive);
    // Headers count as well, so an archive of empty files ends too.
    let mut archive = tar::Archive::new(decoder.take(ARCHIVE_BYTES_MAX + (ARCHIVE_BYTES_MAX >> 1)));
    for (count, entry) in archive.entries().map_err(broken)?.enumerate() {
        let mut entry = entry.map_err(broken)?;
        let kind = entry.header().entry_type();
        if kind.is_dir() || kind.is_pax_global_extensions() || kind.is_pax_local_extensions() {
            continue;
        }
        if count >= ARCHIVE_ENTRIES_MAX {
            return Err(ChartError::ArchiveTooLarge);
        }
        let full = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let name = clean_name(&full)?;
        let size = entry.size();
        if size > remaining || size > *budget {
            return Err(ChartError::ArchiveTooLarge);
        }
        if size > FILE_BYTES_MAX {
            return Err(ChartError::FileTooLarge(full));
        }
        remaining -= size;
        *budget -= size;
        let mut data = Vec::with_capacity(size as usize);
        entry.read_to_end(&mut data).map_err(broken)?;
        files.push(File { name, data: without_bom(Bytes::from(data)) });
    }
    if files.is_empty() {
        return Err(ChartError::Empty);
    }
    Ok(files)
}

/// The name within the chart of an archive entry.
fn clean_name(full: &str) -> Result<String, ChartError> {
    let separator = if full.contains('\\') { '\\' } else { '/' };
    let parts: Vec<&str> = full.split(separator).collect();
    let name = parts.get(1..).map(|rest| rest.join("/")).unwrap_or_default();
    if name.starts_with('/') {
        return Err(ChartError::Escape("absolute paths".to_owned()));
    }
    let mut cleaned: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if cleaned.pop().is_none() {
                    return Err(ChartError::Escape("content outside the base directory".to_owned()));
                }
            }
            part => cleaned.push(part),
        }
    }
    if cleaned.is_empty() {
        if parts.first() == Some(&"Chart.yaml") {
            return Err(ChartError::NotInBaseDirectory);
        }
        return Err(ChartError::Escape("content outside the base directory".to_owned()));
    }
    let name = cleaned.join("/");
    let bytes = name.as_bytes();
    if bytes.len() > 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' && bytes[2] == b'/' {
        return Err(ChartError::Escape("windows drive letters".to_owned()));
    }
    if parts.first() == Some(&"Chart.yaml") {
        return Err(ChartError::NotInBaseDirectory);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::walk_order;

    #[test]
    fn files_are_in_the_order_of_a_walk() {
        let paths = ["a", "a/b", "a/b/c", "a-b", "a.b/c", "a/b-c", "", "b", "a/", "ä/b"];
        for left in paths {
            for right in paths {
                assert_eq!(walk_order(left, right), left.split('/').cmp(right.split('/')), "{left} {right}");
            }
        }
    }
}
