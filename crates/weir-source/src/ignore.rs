//! Which files of a source stay out of its artifact.
//!
//! The rules are those of Flux, a dialect of gitignore: every file is matched on its own, so that a
//! file can be taken back in although its directory is excluded, and the last matching pattern
//! decides. Patterns come from `.sourceignore` files, each bound to its directory, and from the
//! specification of the source. As soon as there is any, only the version control patterns are
//! added; without any, the default exclusions apply.

use std::io::{self, Write};

use weir_artifact::archive::{ArchiveWriter, compare_paths};
use weir_base::tree::{File, MemoryTree};

/// The name of the files that hold patterns.
pub const IGNORE_FILE: &str = ".sourceignore";

const VERSION_CONTROL: [&str; 4] = [".git/", ".gitignore", ".gitmodules", ".gitattributes"];

const DEFAULTS: [&str; 20] = [
    "*.jpg",
    "*.jpeg",
    "*.gif",
    "*.png",
    "*.wmv",
    "*.flv",
    "*.tar.gz",
    "*.zip",
    ".github/",
    ".circleci/",
    ".travis.yml",
    ".gitlab-ci.yml",
    "appveyor.yml",
    ".drone.yml",
    "cloudbuild.yaml",
    "codeship-services.yml",
    "codeship-steps.yml",
    "**/.goreleaser.yml",
    "**/.sops.yaml",
    "**/.flux.yaml",
];

/// The patterns that hold for one source, in order of rising priority.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    patterns: Vec<Pattern>,
}

impl Rules {
    /// Assembles the rules of a source.
    ///
    /// `files` are the contents of the ignore files with the directories they are in (the root is
    /// the empty path), a directory before those below it; `spec` are patterns of the specification
    /// that hold for the whole tree.
    pub fn assemble<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>, spec: Option<&str>) -> Self {
        let mut own: Vec<Pattern> = Vec::new();
        for (directory, content) in files {
            own.extend(parse_lines(content, directory));
        }
        own.extend(parse_lines(spec.unwrap_or_default(), ""));
        let mut patterns: Vec<Pattern> =
            VERSION_CONTROL.iter().map(|line| Pattern::parse(line, "")).collect();
        if own.is_empty() {
            patterns.extend(DEFAULTS.iter().map(|line| Pattern::parse(line, "")));
        } else {
            patterns.append(&mut own);
        }
        Self { patterns }
    }

    /// Only the patterns of one ignore file and of the specification, without any exclusions by default, as for
    /// buckets.
    pub fn without_defaults(file: &str, spec: Option<&str>) -> Self {
        let patterns = parse_lines(file, "").chain(parse_lines(spec.unwrap_or_default(), "")).collect();
        Self { patterns }
    }

    /// Whether the file or directory at `path` stays out.
    pub fn excludes(&self, path: &str, is_directory: bool) -> bool {
        self.patterns
            .iter()
            .rev()
            .find(|pattern| pattern.matches(path, is_directory))
            .is_some_and(|pattern| !pattern.takes_in)
    }
}

/// The rules of a tree in memory with those of the specification.
pub fn rules_of(tree: &MemoryTree, spec: Option<&str>) -> Rules {
    let mut files: Vec<(&str, std::borrow::Cow<'_, str>)> = tree
        .files()
        .filter_map(|(path, file)| {
            let directory = path.strip_suffix(IGNORE_FILE)?;
            let directory = match directory.strip_suffix('/') {
                Some(directory) => directory,
                None if directory.is_empty() => "",
                None => return None,
            };
            Some((directory, String::from_utf8_lossy(&file.data)))
        })
        .collect();
    files.sort_by(|(left, _), (right, _)| compare_paths(left.as_bytes(), right.as_bytes()));
    Rules::assemble(files.iter().map(|(directory, content)| (*directory, content.as_ref())), spec)
}

/// Writes the archive of everything in `tree` that the rules let through.
pub fn write_archive(tree: &MemoryTree, rules: &Rules, output: impl Write) -> io::Result<()> {
    let mut entries: Vec<(&str, Option<&File>)> = tree
        .directories()
        .map(|path| (path, None))
        .chain(tree.files().map(|(path, file)| (path, Some(file))))
        .filter(|(path, file)| !rules.excludes(path, file.is_none()))
        .collect();
    entries.sort_by(|(left, _), (right, _)| compare_paths(left.as_bytes(), right.as_bytes()));
    let mut archive = ArchiveWriter::new(output)?;
    for (path, file) in entries {
        match file {
            None => archive.directory(path.as_bytes())?,
            Some(file) => archive.file(path.as_bytes(), file.executable, &file.data)?,
        }
    }
    archive.finish()?;
    Ok(())
}

fn parse_lines<'a>(content: &'a str, directory: &'a str) -> impl Iterator<Item = Pattern> + 'a {
    content
        .split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(move |line| Pattern::parse(line, directory))
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    /// Only paths below this directory are matched, and relative to it.
    directory: String,
    /// `!`: matching paths are taken in, not left out.
    takes_in: bool,
    /// Trailing `/`: a file of that name does not match.
    directories_only: bool,
    shape: Shape,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// No `/`: matches any component of the path.
    Name(String),
    /// Matches from the directory of the pattern on.
    Path(Vec<String>),
}

impl Pattern {
    fn parse(line: &str, directory: &str) -> Self {
        let (takes_in, line) = match line.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let line = if line.ends_with("\\ ") { line } else { line.trim_end_matches(' ') };
        let (directories_only, line) = match line.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let shape = if line.contains('/') {
            Shape::Path(line.split('/').map(str::to_owned).collect())
        } else {
            Shape::Name(line.to_owned())
        };
        Self { directory: directory.to_owned(), takes_in, directories_only, shape }
    }

    fn matches(&self, path: &str, is_directory: bool) -> bool {
        let relative = if self.directory.is_empty() {
            path
        } else {
            match path.strip_prefix(&self.directory).and_then(|rest| rest.strip_prefix('/')) {
                Some(rest) => rest,
                None => return false,
            }
        };
        if relative.is_empty() {
            return false;
        }
        match &self.shape {
            Shape::Name(name) => self.matches_name(name, relative, is_directory),
            Shape::Path(segments) => self.matches_path(segments, relative, is_directory),
        }
    }

    fn matches_name(&self, name: &str, path: &str, is_directory: bool) -> bool {
        let mut components = path.split('/').peekable();
        while let Some(component) = components.next() {
            if glob(name, component) {
                let is_leaf = components.peek().is_none();
                return !(is_leaf && self.directories_only && !is_directory);
            }
        }
        false
    }

    /// What is left of the path when all segments have matched may be anything: a match of a
    /// directory is one of all it contains.
    fn matches_path(&self, segments: &[String], path: &str, is_directory: bool) -> bool {
        let mut components = path.split('/');
        let mut left = components.clone().count();
        let mut matched = false;
        let mut skips = false;
        for (index, segment) in segments.iter().enumerate() {
            if segment.is_empty() {
                skips = false;
                continue;
            }
            if segment == "**" {
                if index + 1 == segments.len() {
                    break;
                }
                skips = true;
                continue;
            }
            if segment.contains("**") {
                return false;
            }
            if left == 0 {
                return false;
            }
            if skips {
                // The first component that matches is taken; the path is not searched again for a
                // later one.
                skips = false;
                matched = false;
                for component in components.by_ref() {
                    left -= 1;
                    if glob(segment, component) {
                        matched = true;
                        break;
                    }
                }
            } else {
                left -= 1;
                if !components.next().is_some_and(|component| glob(segment, component)) {
                    return false;
                }
                matched = true;
            }
        }
        matched && !(self.directories_only && !is_directory && left == 0)
    }
}

/// Whether `name`, which has no `/`, matches the shell pattern: `*`, `?`, `[a-z]`, `[^a-z]` and `\`
/// escapes. A malformed pattern matches nothing.
fn glob(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut position) = (0, 0);
    // Where to resume when a later part fails: after the last `*`, one character further.
    let mut resume: Option<(usize, usize)> = None;
    loop {
        if at < pattern.len() && pattern[at] == '*' {
            at += 1;
            resume = Some((at, position));
            continue;
        }
        if at == pattern.len() && position == name.len() {
            return true;
        }
        let step = if at < pattern.len() && position < name.len() {
            match_one(&pattern[at..], name[position])
        } else {
            None
        };
        match (step, resume) {
            (Some(consumed), _) => {
                at += consumed;
                position += 1;
            }
            (None, Some((star, start))) if start < name.len() => {
                at = star;
                position = start + 1;
                resume = Some((star, position));
            }
            (None, _) => return false,
        }
    }
}

/// How many pattern characters match `character`, or `None`.
fn match_one(pattern: &[char], character: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == character).then_some(2),
        ['\\'] | [] => None,
        ['[', rest @ ..] => {
            let (negated, mut rest) = match rest {
                ['^', rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            let mut found = false;
            let mut ranges = 0;
            loop {
                if let [']', after @ ..] = rest
                    && ranges > 0
                {
                    return (found != negated).then_some(pattern.len() - after.len());
                }
                let low = class_character(&mut rest)?;
                let mut high = low;
                if let ['-', after @ ..] = rest {
                    rest = after;
                    high = class_character(&mut rest)?;
                }
                found |= (low..=high).contains(&character);
                ranges += 1;
            }
        }
        [literal, ..] => (*literal == character).then_some(1),
    }
}

/// One possibly escaped character of a class.
fn class_character(rest: &mut &[char]) -> Option<char> {
    let (character, after) = match *rest {
        ['\\', escaped, after @ ..] => (*escaped, after),
        ['-' | ']' | '\\', ..] | [] => return None,
        [character, after @ ..] => (*character, after),
    };
    *rest = after;
    Some(character)
}

#[cfg(test)]
#[path = "ignore_tests.rs"]
mod tests;
