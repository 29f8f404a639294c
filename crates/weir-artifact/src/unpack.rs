//! Archives into memory, within limits.

use std::io::{self, BufReader, Read};

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use weir_base::tree::{File, Files as _, InvalidPath, MemoryTree};

const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// What an archive may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The sum of all file sizes.
    pub unpacked_bytes_max: u64,
    /// The number of entries of any type.
    pub entries_max: u64,
}

impl Default for Limits {
    /// 1 GiB in half a million entries.
    fn default() -> Self {
        Self { unpacked_bytes_max: 1 << 30, entries_max: 500_000 }
    }
}

/// What to do with symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symlinks {
    /// Leave them out, as for artifacts and OCI layers.
    Skip,
    /// Refuse the archive.
    Refuse,
}

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// Not a gzip stream, or a broken one; or not a tar stream.
    #[error("failed to read the archive")]
    Read(#[source] io::Error),
    /// An entry name that is empty, absolute, or would leave the root.
    #[error("tar contained invalid name error \"{0}\"")]
    InvalidName(String),
    /// The files are larger than allowed in sum.
    #[error("tar \"{name}\" is bigger than max archive size of {bytes_max} bytes")]
    TooLarge {
        /// The entry at which the limit was passed.
        name: String,
        /// The limit.
        bytes_max: u64,
    },
    /// More entries than allowed.
    #[error("tar contains more than {0} entries")]
    TooManyEntries(u64),
    /// A link, device or other special file.
    #[error("tar file entry {name} contained unsupported file type {kind}")]
    UnsupportedType {
        /// The entry.
        name: String,
        /// What it is.
        kind: &'static str,
    },
    /// A file where another entry needs a directory, or the reverse.
    #[error("tar contained both a file and a directory named \"{0}\"")]
    Conflict(String),
}

impl From<InvalidPath> for UnpackError {
    fn from(error: InvalidPath) -> Self {
        Self::InvalidName(error.0)
    }
}

/// Unpacks a `tar.gz` archive.
///
/// Never reads more than the limits allow, whatever the headers claim.
pub fn unpack(archive: &[u8], limits: Limits, symlinks: Symlinks) -> Result<MemoryTree, UnpackError> {
    let stream_bytes_max = limits
        .unpacked_bytes_max
        .saturating_add(limits.entries_max.saturating_mul(4096))
        .saturating_add(1 << 20);
    let stream = Bounded { input: GzDecoder::new(archive), left_bytes: stream_bytes_max };
    // The tar reader asks for single blocks.
    let mut reader = tar::Archive::new(BufReader::with_capacity(64 << 10, stream));
    let mut tree = MemoryTree::new();
    let mut total_bytes = 0_u64;
    let mut count = 0_u64;
    // Raw entries: extension headers are read here, so that their size is bounded too.
    let mut long_name: Option<Vec<u8>> = None;
    for entry in reader.entries().map_err(UnpackError::Read)?.raw(true) {
        let mut entry = entry.map_err(UnpackError::Read)?;
        count += 1;
        if count > limits.entries_max {
            return Err(UnpackError::TooManyEntries(limits.entries_max));
        }
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() {
            let mut name = read_extension(&mut entry)?;
            name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
            long_name = Some(name);
            continue;
        }
        if kind.is_pax_local_extensions() {
            if let Some(name) = pax_path(&read_extension(&mut entry)?)? {
                long_name = Some(name);
            }
            continue;
        }
        if kind.is_pax_global_extensions() || kind.is_gnu_longlink() {
            read_extension(&mut entry)?;
            continue;
        }
        let name = match long_name.take() {
            Some(name) => String::from_utf8_lossy(&name).into_owned(),
            None => String::from_utf8_lossy(&entry.path_bytes()).into_owned(),
        };
        let size = entry.size();
        total_bytes = total_bytes.saturating_add(size);
        if total_bytes > limits.unpacked_bytes_max {
            return Err(UnpackError::TooLarge { name, bytes_max: limits.unpacked_bytes_max });
        }
        let Some(path) = clean_name(&name)? else {
            continue;
        };
        if kind.is_dir() {
            if conflicts(&tree, &path, true) {
                return Err(UnpackError::Conflict(path));
            }
            tree.insert_directory(&path)?;
        } else if kind.is_file() || kind.is_contiguous() {
            if conflicts(&tree, &path, false) {
                return Err(UnpackError::Conflict(path));
            }
            // The header may lie about the size: grow with what is really there.
            let mut data = Vec::with_capacity(size.min(1 << 20) as usize);
            entry.read_to_end(&mut data).map_err(UnpackError::Read)?;
            if data.len() as u64 != size {
                return Err(UnpackError::Read(io::ErrorKind::UnexpectedEof.into()));
            }
            let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
            data.shrink_to_fit();
            tree.insert(&path, File { data: Bytes::from(data), executable })?;
        } else if kind.is_symlink() && symlinks == Symlinks::Skip {
            // Left out.
        } else {
            return Err(UnpackError::UnsupportedType { name, kind: describe(kind) });
        }
    }
    // To the end, so that a cut-off or altered stream is noticed.
    io::copy(&mut reader.into_inner(), &mut io::sink()).map_err(UnpackError::Read)?;
    Ok(tree)
}

/// The content of an extension header.
fn read_extension(entry: &mut impl Read) -> Result<Vec<u8>, UnpackError> {
    let mut data = Vec::new();
    entry.take(EXTENSION_BYTES_MAX + 1).read_to_end(&mut data).map_err(UnpackError::Read)?;
    if data.len() as u64 > EXTENSION_BYTES_MAX {
        return Err(UnpackError::Read(io::Error::new(
            io::ErrorKind::InvalidData,
            "an extension header is too large",
        )));
    }
    Ok(data)
}

/// The `path` record of a PAX header. A `size` record is refused: it is only needed for files
/// larger than any limit.
fn pax_path(data: &[u8]) -> Result<Option<Vec<u8>>, UnpackError> {
    let mut path = None;
    for record in tar::PaxExtensions::new(data) {
        let record = record.map_err(UnpackError::Read)?;
        match record.key_bytes() {
            b"path" => path = Some(record.value_bytes().to_vec()),
            b"size" => {
                return Err(UnpackError::Read(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "file sizes in extension headers are not supported",
                )));
            }
            _ => {}
        }
    }
    Ok(path)
}

/// The path an entry name stands for; `None` for the root itself.
fn clean_name(name: &str) -> Result<Option<String>, UnpackError> {
    let invalid = || UnpackError::InvalidName(name.to_owned());
    if name.is_empty() || name.starts_with('/') || name.contains(['\\', '\0']) {
        return Err(invalid());
    }
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(invalid()),
            part => parts.push(part),
        }
    }
    Ok((!parts.is_empty()).then(|| parts.join("/")))
}

fn conflicts(tree: &MemoryTree, path: &str, directory: bool) -> bool {
    use weir_base::tree::Kind;
    let at_path = match tree.kind(path) {
        Some(Kind::File) => directory,
        Some(Kind::Directory) => !directory,
        None => false,
    };
    at_path || path.match_indices('/').any(|(slash, _)| tree.kind(&path[..slash]) == Some(Kind::File))
}

fn describe(kind: tar::EntryType) -> &'static str {
    match kind {
        tar::EntryType::Link => "hard link",
        tar::EntryType::Symlink => "symbolic link",
        tar::EntryType::Char => "character device",
        tar::EntryType::Block => "block device",
        tar::EntryType::Fifo => "named pipe",
        _ => "unknown",
    }
}

/// Fails once more than the given number of bytes was read.
struct Bounded<R> {
    input: R,
    left_bytes: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.left_bytes = self.left_bytes.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the archive unpacks to more than allowed")
        })?;
        Ok(read)
    }
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
