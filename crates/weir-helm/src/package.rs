//! Charts as `.tgz` archives, written the way Helm packages them.
//!
//! An archive holds `Chart.yaml` written anew from what was read, `Chart.lock` likewise, `values.yaml` and the
//! schema as they are, the templates, all other files, and then the subcharts the same way below `charts/`.
//! There are no entries for directories and no provenance file.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, GzBuilder};

use crate::chart::Chart;
use crate::metadata::{Metadata, MetadataError};

/// What Helm puts into the header of its archives, so that they are recognised without being unpacked.
const GZIP_EXTRA: &[u8] = b"+aHR0cHM6Ly95b3V0dS5iZS96OVV6MWljandyTQo=";
const GZIP_COMMENT: &str = "Helm";
/// The operating system is not told.
const GZIP_SYSTEM_UNKNOWN: u8 = 255;
const BLOCK_BYTES: usize = 512;
const NAME_BYTES_MAX: usize = 100;
const PREFIX_BYTES_MAX: usize = 155;

/// Why a chart cannot be packaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackageError {
    /// `Chart.yaml` breaks a rule.
    #[error("chart validation: {0}")]
    Invalid(#[from] MetadataError),
    /// The name would be a path.
    #[error("{0:?} is not a valid chart name")]
    Name(String),
    /// The schema is not JSON.
    #[error("invalid JSON in values.schema.json")]
    Schema,
    /// A file is larger than an archive can say.
    #[error("cannot write {0} to the archive: {1}")]
    Entry(String, String),
}

/// The name of the archive of a chart: `name-version.tgz`.
pub fn file_name(chart: &Chart) -> String {
    format!("{}-{}.tgz", chart.metadata.name, chart.metadata.version)
}

/// The bytes of the archive of a chart with all its subcharts.
///
/// `modified` gives the time of each entry in seconds since 1970 from its path within the archive
/// (`name/templates/a.yaml`); the same chart and times make the same bytes.
pub fn archive(chart: &Chart, modified: &dyn Fn(&str) -> u64) -> Result<Bytes, PackageError> {
    chart.metadata.validate()?;
    let zip = GzBuilder::new()
        .extra(GZIP_EXTRA)
        .comment(GZIP_COMMENT)
        .operating_system(GZIP_SYSTEM_UNKNOWN)
        .write(Vec::new(), Compression::default());
    let mut writer = Writer { out: zip, modified };
    writer.chart(chart, "")?;
    let out = writer.out.write_all(&[0; 2 * BLOCK_BYTES]).and_then(|()| writer.out.finish());
    out.map(Bytes::from).map_err(|error| PackageError::Entry(file_name(chart), error.to_string()))
}

/// The text of `Chart.yaml`.
pub fn metadata_text(metadata: &Metadata) -> String {
    weir_manifest::to_yaml(&serde_json::to_value(metadata).unwrap_or_default())
}

struct Writer<'a> {
    out: flate2::write::GzEncoder<Vec<u8>>,
    modified: &'a dyn Fn(&str) -> u64,
}

impl Writer<'_> {
    fn chart(&mut self, chart: &Chart, parent: &str) -> Result<(), PackageError> {
        let metadata = &chart.metadata;
        if metadata.name.is_empty() || metadata.name.contains('/') || matches!(&*metadata.name, "." | "..") {
            return Err(PackageError::Name(metadata.name.clone()));
        }
        let base = format!("{parent}{}", metadata.name);
        // Dependencies of the first chart version live in `requirements.yaml`.
        let text = if metadata.api_version == "v1" {
            metadata_text(&Metadata { dependencies: None, ..metadata.clone() })
        } else {
            metadata_text(metadata)
        };
        self.file(&format!("{base}/Chart.yaml"), text.as_bytes())?;
        if let Some(lock) = chart.lock.as_ref().filter(|_| metadata.api_version == "v2") {
            self.file(&format!("{base}/Chart.lock"), lock.to_yaml().as_bytes())?;
        }
        if let Some(values) = &chart.values_text {
            self.file(&format!("{base}/values.yaml"), values)?;
        }
        if let Some(schema) = &chart.schema {
            serde_json::from_slice::<serde::de::IgnoredAny>(schema).map_err(|_| PackageError::Schema)?;
            self.file(&format!("{base}/values.schema.json"), schema)?;
        }
        for file in chart.templates.iter().chain(&chart.files) {
            self.file(&format!("{base}/{}", file.name), &file.data)?;
        }
        for subchart in &chart.dependencies {
            self.chart(subchart, &format!("{base}/charts/"))?;
        }
        Ok(())
    }

    fn file(&mut self, path: &str, data: &[u8]) -> Result<(), PackageError> {
        let modified = (self.modified)(path);
        let mut write = || -> std::io::Result<()> {
            if let Some((prefix, name)) = split_path(path) {
                self.header(prefix, name.as_bytes(), data.len(), modified, tar::EntryType::Regular)?;
            } else {
                // The path goes into a record before the entry.
                let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
                let record = pax_record("path", path);
                let name = ascii(&format!("{directory}/PaxHeaders.0/{file}"));
                let name = shortened(&name);
                self.header("", name, record.len(), 0, tar::EntryType::XHeader)?;
                self.content(record.as_bytes())?;
                let name = ascii(path);
                let name = &name[..name.len().min(NAME_BYTES_MAX)];
                self.header("", name, data.len(), modified, tar::EntryType::Regular)?;
            }
            self.content(data)
        };
        write().map_err(|error| PackageError::Entry(path.to_owned(), error.to_string()))
    }

    fn header(
        &mut self,
        prefix: &str,
        name: &[u8],
        size: usize,
        modified: u64,
        kind: tar::EntryType,
    ) -> std::io::Result<()> {
        let mut header = tar::Header::new_ustar();
        if let Some(ustar) = header.as_ustar_mut() {
            ustar.name[..name.len()].copy_from_slice(name);
            ustar.prefix[..prefix.len()].copy_from_slice(prefix.as_bytes());
        }
        header.set_entry_type(kind);
        header.set_mode(if kind == tar::EntryType::XHeader { 0 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        if kind != tar::EntryType::XHeader {
            header.set_device_major(0)?;
            header.set_device_minor(0)?;
        }
        header.set_size(size as u64);
        header.set_mtime(modified);
        // Six digits, then a NUL and a blank, as the format wants it.
        header.as_mut_bytes()[148..156].fill(b' ');
        let sum: u32 = header.as_bytes().iter().map(|byte| u32::from(*byte)).sum();
        header.as_mut_bytes()[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.out.write_all(header.as_bytes())
    }

    fn content(&mut self, data: &[u8]) -> std::io::Result<()> {
        self.out.write_all(data)?;
        let padding = data.len().next_multiple_of(BLOCK_BYTES) - data.len();
        self.out.write_all(&[0; BLOCK_BYTES][..padding])
    }
}

/// A path as prefix and name of a header; nothing if it does not fit there.
fn split_path(path: &str) -> Option<(&str, &str)> {
    if !path.is_ascii() {
        return None;
    }
    if path.len() <= NAME_BYTES_MAX {
        return Some(("", path));
    }
    let head = &path[..path.len().min(PREFIX_BYTES_MAX + 1)];
    let slash = head.rfind('/').filter(|slash| *slash > 0)?;
    let (prefix, name) = (&path[..slash], &path[slash + 1..]);
    (!name.is_empty() && name.len() <= NAME_BYTES_MAX && prefix.len() <= PREFIX_BYTES_MAX)
        .then_some((prefix, name))
}

fn ascii(text: &str) -> Vec<u8> {
    text.bytes().filter(u8::is_ascii).collect()
}

fn shortened(name: &[u8]) -> &[u8] {
    let mut name = &name[..name.len().min(NAME_BYTES_MAX)];
    while let Some(rest) = name.strip_suffix(b"/") {
        name = rest;
    }
    name
}

/// `<length> <key>=<value>` and a line break, the length counting itself.
fn pax_record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    loop {
        let next = rest.len() + length.to_string().len();
        if next == length {
            return format!("{length}{rest}");
        }
        length = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        assert_eq!(pax_record("path", "a"), "9 path=a\n");
        assert_eq!(pax_record("path", "ab"), "11 path=ab\n");
        assert_eq!(pax_record("path", "abc"), "12 path=abc\n");
    }

    #[test]
    fn long_paths_are_split_at_a_slash() {
        assert_eq!(split_path("a/b"), Some(("", "a/b")));
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(90));
        assert_eq!(split_path(&long), Some((&long[..90], &long[91..])));
        assert_eq!(split_path(&format!("{}/{}", "d".repeat(10), "f".repeat(120))), None);
        assert_eq!(split_path("ü/b"), None);
    }
}
