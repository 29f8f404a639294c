//! Copies from the trees of sources into the tree of an artifact. Pure, and confined to these trees.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};
use weir_api::extensions::{CopyOperation, CopyStrategy};
use weir_artifact::archive::compare_paths;
use weir_artifact::unpack::{Limits, Symlinks, UnpackError, unpack};
use weir_base::tree::{File, Files as _, InvalidPath, Kind, MemoryTree, join};
use weir_manifest::ReadOptions;

use crate::glob::{PatternError, Recursive, is_pattern, matches_flat};

/// What an archive may unpack to.
const UNPACKED_BYTES_MAX: u64 = 100 << 20;

/// The trees of the sources by alias.
pub(crate) type Sources = BTreeMap<String, Arc<MemoryTree>>;

/// Why a copy failed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A copy of several, by what it copies where.
    #[error("failed to apply copy operation from '{from}' to '{to}'")]
    Operation {
        /// What it copies.
        from: String,
        /// Where to.
        to: String,
        /// What went wrong.
        #[source]
        source: Box<CopyError>,
    },
    /// What to copy is not of the form `@alias/pattern`.
    #[error("invalid copy source '{0}': source format must be '@alias/pattern'")]
    From(String),
    /// Where to copy is outside of the artifact.
    #[error("invalid copy destination '{to}': {why}")]
    To {
        /// Where to.
        to: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no such source.
    #[error("source alias '{0}' not found")]
    Alias(String),
    /// What is left out is no pattern.
    #[error("invalid exclude pattern '{pattern}'")]
    Exclude {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        #[source]
        source: PatternError,
    },
    /// What to copy is no pattern.
    #[error("invalid glob pattern '{pattern}'")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        #[source]
        source: PatternError,
    },
    /// There is nothing at the path.
    #[error("source '{0}' does not exist")]
    Missing(String),
    /// The path leads out of the source.
    #[error("source '{0}' leads out of the source directory")]
    Outside(String),
    /// Nothing matches.
    #[error("no files match pattern '{pattern}' in source '{alias}'")]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// The source.
        alias: String,
    },
    /// All that matches is left out.
    #[error("all files matching pattern '{pattern}' in source '{alias}' were excluded")]
    AllExcluded {
        /// The pattern.
        pattern: String,
        /// The source.
        alias: String,
    },
    /// A directory cannot be extracted.
    #[error("extract strategy is not supported for directories, got '{0}'")]
    ExtractDirectory(String),
    /// Only archives can be extracted.
    #[error("extract strategy requires tarball file (.tar.gz or .tgz), got '{0}'")]
    NotArchive(String),
    /// An archive cannot be extracted.
    #[error("failed to extract tarball '{path}'")]
    Extract {
        /// The archive.
        path: String,
        /// What is wrong with it.
        #[source]
        source: UnpackError,
    },
    /// A file is where a directory should be, or the reverse.
    #[error("failed to write '{0}': a file and a directory have the same path")]
    Conflict(String),
    /// A name that no artifact can have.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// A file to merge is not a map in YAML.
    #[error("failed to merge '{path}': cannot unmarshal YAML document")]
    Merge {
        /// The file.
        path: String,
        /// What is wrong with it, if it is not only something else than a map.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// Applies copies in their order.
pub(crate) fn apply(operations: &[CopyOperation], sources: &Sources) -> Result<MemoryTree, CopyError> {
    let mut staging = MemoryTree::new();
    for operation in operations {
        apply_one(operation, sources, &mut staging).map_err(|source| CopyError::Operation {
            from: operation.from.clone(),
            to: operation.to.clone(),
            source: Box::new(source),
        })?;
    }
    Ok(staging)
}

/// The alias and the path of `@alias/path`.
pub(crate) fn split_alias(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('@')?.split_once('/')
}

fn apply_one(
    operation: &CopyOperation,
    sources: &Sources,
    staging: &mut MemoryTree,
) -> Result<(), CopyError> {
    let (alias, pattern) =
        split_alias(&operation.from).ok_or_else(|| CopyError::From(operation.from.clone()))?;
    let to = destination(&operation.to)?;
    let tree = sources.get(alias).ok_or_else(|| CopyError::Alias(alias.to_owned()))?;
    let excludes = operation.exclude.iter().map(|pattern| {
        let failed = |source| CopyError::Exclude { pattern: pattern.clone(), source };
        Ok(Exclude { matcher: Recursive::new(pattern).map_err(failed)?, by_name: !pattern.contains('/') })
    });
    let excludes = excludes.collect::<Result<Vec<_>, CopyError>>()?;
    let strategy = operation.strategy.unwrap_or(CopyStrategy::Overwrite);
    let files = tree.files().collect();
    let mut copy = Copy { tree, files, staging, excludes, strategy, base: String::new() };
    if is_pattern(pattern) {
        copy.base = literal_prefix(pattern);
        copy.matching(alias, pattern, &to)
    } else {
        copy.single(pattern, &to, operation.to.ends_with('/'))
    }
}

/// The path within the artifact; the root is empty.
fn destination(to: &str) -> Result<String, CopyError> {
    let refused = |why| CopyError::To { to: to.to_owned(), why };
    let path =
        to.strip_prefix("@artifact/").ok_or_else(|| refused("destination must start with '@artifact/'"))?;
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(refused("destination path must stay within the artifact root"));
    }
    join("", path).ok_or_else(|| refused("destination path must stay within the artifact root"))
}

/// The directories in front of the first one with a pattern.
fn literal_prefix(pattern: &str) -> String {
    let parts: Vec<&str> = pattern.split('/').take_while(|part| !is_pattern(part)).collect();
    join("", &parts.join("/")).unwrap_or_default()
}

struct Exclude {
    matcher: Recursive,
    /// A pattern without directories holds in all of them.
    by_name: bool,
}

struct Copy<'a> {
    tree: &'a MemoryTree,
    files: BTreeMap<&'a str, &'a File>,
    staging: &'a mut MemoryTree,
    excludes: Vec<Exclude>,
    strategy: CopyStrategy,
    /// What is left out is also looked for relative to this directory.
    base: String,
}

impl Copy<'_> {
    fn single(&mut self, pattern: &str, to: &str, into_directory: bool) -> Result<(), CopyError> {
        let shown =
            || if pattern.is_empty() { ".".to_owned() } else { pattern.trim_end_matches('/').to_owned() };
        let path = join("", pattern).ok_or_else(|| CopyError::Outside(shown()))?;
        let name = path.rsplit('/').next().unwrap_or_default();
        match self.tree.kind(&path) {
            None => Err(CopyError::Missing(shown())),
            Some(Kind::Directory) if self.strategy == CopyStrategy::Extract => {
                Err(CopyError::ExtractDirectory(shown()))
            }
            Some(Kind::Directory) => {
                self.base.clone_from(&path);
                self.directory(&path, &below(to, name))
            }
            Some(Kind::File) if self.is_excluded(&path) => Ok(()),
            Some(Kind::File) if self.strategy == CopyStrategy::Extract => {
                if !is_archive(&path) {
                    return Err(CopyError::NotArchive(shown()));
                }
                self.extract(&path, to)
            }
            Some(Kind::File) => {
                let is_directory = self.staging.kind(to) == Some(Kind::Directory);
                let target = if into_directory || is_directory { below(to, name) } else { to.to_owned() };
                self.file(&path, &target)
            }
        }
    }

    fn matching(&mut self, alias: &str, pattern: &str, to: &str) -> Result<(), CopyError> {
        let failed = |source| CopyError::Pattern { pattern: pattern.to_owned(), source };
        let recursive = match self.strategy {
            CopyStrategy::Extract => Some(Recursive::new(pattern).map_err(failed)?),
            CopyStrategy::Overwrite | CopyStrategy::Merge => None,
        };
        let mut found = Vec::new();
        for path in self.tree.directories().chain(self.tree.files().map(|(path, _)| path)) {
            let matches = match &recursive {
                Some(recursive) => recursive.matches(path),
                None => matches_flat(pattern, path).map_err(failed)?,
            };
            if matches {
                found.push(path.to_owned());
            }
        }
        let named = || (pattern.to_owned(), alias.to_owned());
        if found.is_empty() {
            // A broken pattern is told apart from one without matches.
            matches_flat(pattern, "").map_err(failed)?;
            let (pattern, alias) = named();
            return Err(CopyError::NoMatch { pattern, alias });
        }
        found.retain(|path| !self.is_excluded(path));
        if found.is_empty() {
            let (pattern, alias) = named();
            return Err(CopyError::AllExcluded { pattern, alias });
        }
        found.sort_by(|left, right| compare_paths(left.as_bytes(), right.as_bytes()));
        for path in found {
            if self.strategy == CopyStrategy::Extract {
                if is_archive(&path) && self.tree.kind(&path) == Some(Kind::File) {
                    self.extract(&path, to)?;
                }
                continue;
            }
            let stripped = pattern
                .strip_suffix("/**")
                .and_then(|directory| path.strip_prefix(directory)?.strip_prefix('/'))
                .unwrap_or(&path);
            let target = below(to, stripped);
            match self.tree.kind(&path) {
                Some(Kind::Directory) => self.directory(&path, &target)?,
                Some(Kind::File) => self.file(&path, &target)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Copies a directory with what is below it; files are overwritten.
    fn directory(&mut self, path: &str, target: &str) -> Result<(), CopyError> {
        self.make_directory(target)?;
        for entry in self.tree.list(path).unwrap_or_default() {
            let (from, to) = (below(path, &entry.name), below(target, &entry.name));
            if self.is_excluded(&from) {
                continue;
            }
            if entry.directory {
                self.directory(&from, &to)?;
            } else {
                self.write(&from, &to)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &str, target: &str) -> Result<(), CopyError> {
        if self.strategy == CopyStrategy::Merge
            && let Some(there) = self.staging.read(target)
        {
            let mut merged = documents(target, &there)?;
            let over = documents(path, &self.tree.read(path).unwrap_or_default())?;
            merge(&mut merged, over);
            let data = Bytes::from(weir_manifest::to_yaml(&Value::Object(merged)));
            self.staging.insert(target, File { data, executable: false })?;
            return Ok(());
        }
        self.write(path, target)
    }

    fn write(&mut self, path: &str, target: &str) -> Result<(), CopyError> {
        let found = self.files.get(path).map(|file| (*file).clone());
        self.put(target, found.ok_or_else(|| CopyError::Missing(path.to_owned()))?)
    }

    fn put(&mut self, target: &str, file: File) -> Result<(), CopyError> {
        if self.staging.kind(target) == Some(Kind::Directory) || self.is_below_file(target) {
            return Err(CopyError::Conflict(target.to_owned()));
        }
        Ok(self.staging.insert(target, file)?)
    }

    fn make_directory(&mut self, target: &str) -> Result<(), CopyError> {
        if self.staging.kind(target) == Some(Kind::File) || self.is_below_file(target) {
            return Err(CopyError::Conflict(target.to_owned()));
        }
        if !target.is_empty() {
            self.staging.insert_directory(target)?;
        }
        Ok(())
    }

    fn is_below_file(&self, target: &str) -> bool {
        target.match_indices('/').any(|(slash, _)| self.staging.kind(&target[..slash]) == Some(Kind::File))
    }

    /// Unpacks an archive; its own layout is kept.
    fn extract(&mut self, path: &str, to: &str) -> Result<(), CopyError> {
        let data = self.tree.read(path).unwrap_or_default();
        let limits = Limits { unpacked_bytes_max: UNPACKED_BYTES_MAX, ..Limits::default() };
        let unpacked = unpack(&data, limits, Symlinks::Refuse)
            .map_err(|source| CopyError::Extract { path: path.to_owned(), source })?;
        self.make_directory(to)?;
        for directory in unpacked.directories() {
            self.make_directory(&below(to, directory))?;
        }
        for (name, file) in unpacked.files() {
            self.put(&below(to, name), file.clone())?;
        }
        Ok(())
    }

    fn is_excluded(&self, path: &str) -> bool {
        let relative = if self.base.is_empty() {
            None
        } else {
            path.strip_prefix(&self.base).and_then(|rest| rest.strip_prefix('/'))
        };
        let name = path.rsplit('/').next().unwrap_or_default();
        self.excludes.iter().any(|exclude| {
            exclude.matcher.matches(path)
                || relative.is_some_and(|relative| exclude.matcher.matches(relative))
                || exclude.by_name && exclude.matcher.matches(name)
        })
    }
}

fn below(directory: &str, name: &str) -> String {
    match (directory.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (_, true) => directory.to_owned(),
        _ => format!("{directory}/{name}"),
    }
}

fn is_archive(path: &str) -> bool {
    let path = path.to_lowercase();
    [".tar.gz", ".tgz"].iter().any(|extension| path.ends_with(extension))
}

/// All documents of a file merged into one.
fn documents(path: &str, data: &[u8]) -> Result<Map<String, Value>, CopyError> {
    let failed = |source| CopyError::Merge { path: path.to_owned(), source };
    let mut merged = Map::new();
    let documents = weir_manifest::read_documents_with(data, path, ReadOptions::default())
        .map_err(|error| failed(Some(Box::new(error) as Box<dyn std::error::Error + Send + Sync>)))?;
    for document in documents {
        match document {
            Value::Object(map) => merge(&mut merged, map),
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(failed(None));
            }
        }
    }
    Ok(merged)
}

/// Maps are merged, everything else is replaced.
fn merge(base: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(base)), Value::Object(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
