//! Reproducible archives: the same tree always gives the same bytes.
//!
//! The tar stream is byte for byte the one Flux writes: the root directory as `.`, then a
//! depth-first walk with base names in byte order, fixed modes (directories 0750, files 0600,
//! executables 0700), no owners, no times, USTAR headers with a PAX `path` record only for names
//! that do not fit. The gzip member has no name and no time. The compressed bytes depend on the
//! deflate implementation, so digests are stable here but differ from those of Flux.

use std::cmp::Ordering;
use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use weir_base::tree::MemoryTree;

const BLOCK_BYTES: usize = 512;
const NAME_BYTES_MAX: usize = 100;
const PREFIX_BYTES_MAX: usize = 155;
/// The largest size eleven octal digits can hold.
const FILE_BYTES_MAX: u64 = 0o77_777_777_777;

/// Writes one archive entry after the other in the order they are given.
///
/// Callers order entries with [`compare_paths`].
#[derive(Debug)]
pub struct ArchiveWriter<W: Write> {
    output: GzEncoder<W>,
}

impl<W: Write> ArchiveWriter<W> {
    /// Starts an archive; the root directory entry is written at once.
    pub fn new(output: W) -> io::Result<Self> {
        let mut writer = Self { output: GzBuilder::new().write(output, Compression::new(6)) };
        writer.directory(b".")?;
        Ok(writer)
    }

    /// Adds a directory.
    pub fn directory(&mut self, path: &[u8]) -> io::Result<()> {
        write_header(&mut self.output, path, 0o750, 0, b'5')
    }

    /// Adds a regular file.
    pub fn file(&mut self, path: &[u8], executable: bool, data: &[u8]) -> io::Result<()> {
        let mode = if executable { 0o700 } else { 0o600 };
        write_header(&mut self.output, path, mode, data.len() as u64, b'0')?;
        self.output.write_all(data)?;
        write_padding(&mut self.output, data.len())
    }

    /// Ends the archive and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.write_all(&[0; 2 * BLOCK_BYTES])?;
        self.output.finish()
    }
}

/// The archive of a whole tree, kept in memory.
pub fn archive_tree(tree: &MemoryTree) -> io::Result<Bytes> {
    let mut entries: Vec<(&str, Option<&weir_base::tree::File>)> = tree
        .directories()
        .map(|path| (path, None))
        .chain(tree.files().map(|(path, file)| (path, Some(file))))
        .collect();
    entries.sort_by(|(left, _), (right, _)| compare_paths(left.as_bytes(), right.as_bytes()));
    let mut writer = ArchiveWriter::new(Vec::new())?;
    for (path, file) in entries {
        match file {
            None => writer.directory(path.as_bytes())?,
            Some(file) => writer.file(path.as_bytes(), file.executable, &file.data)?,
        }
    }
    writer.finish().map(Bytes::from)
}

/// The order of entries in an archive: a directory before its content, siblings by base name.
pub fn compare_paths(left: &[u8], right: &[u8]) -> Ordering {
    left.split(|byte| *byte == b'/').cmp(right.split(|byte| *byte == b'/'))
}

fn write_header(output: &mut impl Write, path: &[u8], mode: u32, size: u64, kind: u8) -> io::Result<()> {
    if size > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("file '{}' of {size} bytes is too large", String::from_utf8_lossy(path)),
        ));
    }
    let fits = fit_name(path);
    let (prefix, name) = if let Some(parts) = fits {
        parts
    } else {
        write_long_name(output, path)?;
        (&path[..0], path)
    };
    let mut block = Block::new(name, mode, size, kind);
    block.put(345, PREFIX_BYTES_MAX, prefix);
    block.octal(329, 8, 0);
    block.octal(337, 8, 0);
    output.write_all(&block.finish())
}

/// The PAX extension header that carries a name USTAR cannot hold.
fn write_long_name(output: &mut impl Write, path: &[u8]) -> io::Result<()> {
    let record = pax_record(b"path", path);
    let (directory, base) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..=slash], &path[slash + 1..]),
        None => (&path[..0], path),
    };
    let mut name = directory.to_vec();
    name.extend_from_slice(b"PaxHeaders.0/");
    name.extend_from_slice(base);
    let mut name = ascii_only(&name);
    name.truncate(NAME_BYTES_MAX);
    while name.last() == Some(&b'/') {
        name.pop();
    }
    output.write_all(&Block::new(&name, 0, record.len() as u64, b'x').finish())?;
    output.write_all(&record)?;
    write_padding(output, record.len())
}

/// How a name is stored in a USTAR header, as (prefix, name), if it can be.
fn fit_name(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if !path.is_ascii() || path.contains(&0) {
        return None;
    }
    if path.len() <= NAME_BYTES_MAX {
        return Some((&path[..0], path));
    }
    let searched = &path[..path.len().min(PREFIX_BYTES_MAX + 1)];
    let slash = searched.iter().rposition(|byte| *byte == b'/').filter(|slash| *slash > 0)?;
    let (prefix, name) = (&path[..slash], &path[slash + 1..]);
    (!name.is_empty() && name.len() <= NAME_BYTES_MAX).then_some((prefix, name))
}

fn ascii_only(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|byte| byte.is_ascii() && *byte != 0).collect()
}

/// `<length> <key>=<value>\n`, where the length counts itself.
fn pax_record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + rest.to_string().len();
    length = rest + length.to_string().len();
    let mut record = length.to_string().into_bytes();
    record.push(b' ');
    record.extend_from_slice(key);
    record.push(b'=');
    record.extend_from_slice(value);
    record.push(b'\n');
    record
}

fn write_padding(output: &mut impl Write, length: usize) -> io::Result<()> {
    let padding = length.next_multiple_of(BLOCK_BYTES) - length;
    output.write_all(&[0; BLOCK_BYTES][..padding])
}

struct Block([u8; BLOCK_BYTES]);

impl Block {
    fn new(name: &[u8], mode: u32, size: u64, kind: u8) -> Self {
        let mut block = Self([0; BLOCK_BYTES]);
        let name = ascii_only(name);
        block.put(0, NAME_BYTES_MAX, &name);
        if name.len() > NAME_BYTES_MAX && name[NAME_BYTES_MAX - 1] == b'/' {
            // A cut-off name must not look like that of a directory.
            let kept = name[..NAME_BYTES_MAX].iter().rposition(|byte| *byte != b'/');
            block.0[kept.map_or(0, |last| last + 1)] = 0;
        }
        block.octal(100, 8, u64::from(mode));
        block.octal(108, 8, 0);
        block.octal(116, 8, 0);
        block.octal(124, 12, size);
        block.octal(136, 12, 0);
        block.put(156, 1, &[kind]);
        block.put(257, 8, b"ustar\x0000");
        block
    }

    fn put(&mut self, offset: usize, length_max: usize, value: &[u8]) {
        let length = value.len().min(length_max);
        self.0[offset..offset + length].copy_from_slice(&value[..length]);
    }

    fn octal(&mut self, offset: usize, length: usize, value: u64) {
        self.put(offset, length, format!("{value:0width$o}", width = length - 1).as_bytes());
    }

    fn finish(mut self) -> [u8; BLOCK_BYTES] {
        self.put(148, 8, b"        ");
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        self.octal(148, 7, sum);
        self.0[154] = 0;
        self.0
    }
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
