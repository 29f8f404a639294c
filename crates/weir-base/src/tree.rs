//! File trees that live in memory: what a source produces and what the build engines read.
//!
//! Paths are relative, `/`-separated and clean (`a/b.yaml`; the root is the empty path).

use std::collections::BTreeMap;

use bytes::Bytes;

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name within its directory.
    pub name: String,
    /// Whether it is a directory.
    pub directory: bool,
}

/// What is found at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

/// Read access to a file tree.
///
/// Implemented by [`MemoryTree`]; the command line implements it on the file system of the machine.
pub trait Files: Send + Sync {
    /// What is at `path`, or `None` if there is nothing.
    fn kind(&self, path: &str) -> Option<Kind>;
    /// The content of the file at `path`, or `None` if there is no such file.
    fn read(&self, path: &str) -> Option<Bytes>;
    /// The entries of the directory at `path` sorted by name (byte order), or `None` if there is
    /// no such directory.
    fn list(&self, path: &str) -> Option<Vec<Entry>>;
    /// The path of the file or directory at `path` without symbolic links, or `None` if there is nothing.
    fn real(&self, path: &str) -> Option<String> {
        self.kind(path).map(|_| path.to_owned())
    }
}

/// A file in a [`MemoryTree`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct File {
    /// The content; cloning shares the bytes.
    pub data: Bytes,
    /// Whether any execute bit is set.
    pub executable: bool,
}

/// A file tree in memory. Directories exist by having an entry below them, or explicitly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryTree {
    files: BTreeMap<String, File>,
    directories: std::collections::BTreeSet<String>,
}

/// A path that would leave the tree, is absolute, empty or contains a NUL or backslash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path '{0}' is not a clean relative path")]
pub struct InvalidPath(pub String);

impl MemoryTree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a file and the directories above it.
    pub fn insert(&mut self, path: &str, file: File) -> Result<(), InvalidPath> {
        check_clean(path)?;
        self.add_parents(path);
        self.files.insert(path.to_owned(), file);
        Ok(())
    }

    /// Adds a directory and those above it.
    pub fn insert_directory(&mut self, path: &str) -> Result<(), InvalidPath> {
        check_clean(path)?;
        self.add_parents(path);
        self.directories.insert(path.to_owned());
        Ok(())
    }

    /// All files in path order.
    pub fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// All directories but the root, in path order.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        self.directories.iter().map(String::as_str)
    }

    /// The sum of all file sizes in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.files.values().map(|file| file.data.len() as u64).sum()
    }

    fn add_parents(&mut self, path: &str) {
        let mut end = path.len();
        while let Some(slash) = path[..end].rfind('/') {
            if !self.directories.insert(path[..slash].to_owned()) {
                break;
            }
            end = slash;
        }
    }
}

impl<P: AsRef<str>, D: Into<Bytes>> FromIterator<(P, D)> for MemoryTree {
    /// Builds a tree of non-executable files; entries whose path is not clean are left out.
    fn from_iter<I: IntoIterator<Item = (P, D)>>(entries: I) -> Self {
        let mut tree = Self::new();
        for (path, data) in entries {
            let _ = tree.insert(path.as_ref(), File { data: data.into(), executable: false });
        }
        tree
    }
}

impl Files for MemoryTree {
    fn kind(&self, path: &str) -> Option<Kind> {
        if path.is_empty() || self.directories.contains(path) {
            Some(Kind::Directory)
        } else {
            self.files.contains_key(path).then_some(Kind::File)
        }
    }

    fn read(&self, path: &str) -> Option<Bytes> {
        self.files.get(path).map(|file| file.data.clone())
    }

    fn list(&self, path: &str) -> Option<Vec<Entry>> {
        if self.kind(path) != Some(Kind::Directory) {
            return None;
        }
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let child = |full: &str| {
            full.strip_prefix(prefix.as_str())
                .filter(|rest| !rest.is_empty() && !rest.contains('/'))
                .map(str::to_owned)
        };
        let mut entries: Vec<Entry> = self
            .files
            .range(prefix.clone()..)
            .take_while(|(full, _)| full.starts_with(&prefix))
            .filter_map(|(full, _)| child(full).map(|name| Entry { name, directory: false }))
            .chain(
                self.directories
                    .range(prefix.clone()..)
                    .take_while(|full| full.starts_with(&prefix))
                    .filter_map(|full| child(full).map(|name| Entry { name, directory: true })),
            )
            .collect();
        entries.sort();
        Some(entries)
    }
}

/// A file tree with symbolic links, which are followed as long as they stay in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkedTree {
    files: MemoryTree,
    links: BTreeMap<String, String>,
}

impl LinkedTree {
    /// Following more links than this for one path leads nowhere.
    const LINKS_MAX: usize = 40;

    /// `files` with links: where each lies, and what it points to as stored in it.
    pub fn new(files: MemoryTree, links: BTreeMap<String, String>) -> Self {
        Self { files, links }
    }

    /// The sum of all file sizes in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.files.size_bytes()
    }

    /// Puts a copy of another tree at the clean path `at`; the content of files is shared.
    pub fn graft(&mut self, at: &str, other: &Self) {
        for (path, file) in other.files.files() {
            // Both parts are clean, so their union is.
            let _ = self.files.insert(&format!("{at}/{path}"), file.clone());
        }
        for path in other.files.directories() {
            let _ = self.files.insert_directory(&format!("{at}/{path}"));
        }
        self.links.extend(other.links.iter().map(|(path, to)| (format!("{at}/{path}"), to.clone())));
    }

    /// The path without links, whether or not there is something; `None` if it leads out or in circles.
    fn follow(&self, path: &str) -> Option<String> {
        let mut found = String::new();
        let mut ahead: Vec<&str> = path.rsplit('/').collect();
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            match part {
                "" | "." => {}
                ".." if found.is_empty() => return None,
                ".." => found.truncate(found.rfind('/').unwrap_or_default()),
                part => {
                    let above = found.len();
                    if above > 0 {
                        found.push('/');
                    }
                    found.push_str(part);
                    if let Some(to) = self.links.get(&found) {
                        links += 1;
                        if links > Self::LINKS_MAX || to.starts_with('/') {
                            return None;
                        }
                        ahead.extend(to.rsplit('/'));
                        found.truncate(above);
                    }
                }
            }
        }
        Some(found)
    }
}

impl Files for LinkedTree {
    fn kind(&self, path: &str) -> Option<Kind> {
        self.files.kind(&self.follow(path)?)
    }

    fn read(&self, path: &str) -> Option<Bytes> {
        self.files.read(&self.follow(path)?)
    }

    fn list(&self, path: &str) -> Option<Vec<Entry>> {
        let real = self.follow(path)?;
        let mut entries = self.files.list(&real)?;
        let prefix = if real.is_empty() { String::new() } else { format!("{real}/") };
        for (link, _) in self.links.range(prefix.clone()..).take_while(|(link, _)| link.starts_with(&prefix))
        {
            let name = &link[prefix.len()..];
            if !name.contains('/')
                && let Some(kind) = self.kind(link)
            {
                entries.push(Entry { name: name.to_owned(), directory: kind == Kind::Directory });
            }
        }
        entries.sort();
        Some(entries)
    }

    fn real(&self, path: &str) -> Option<String> {
        let real = self.follow(path)?;
        self.files.kind(&real).map(|_| real)
    }
}

/// Joins `relative` onto `base` and resolves `.` and `..`; `None` if the result would leave the root
/// or `relative` is absolute.
pub fn join(base: &str, relative: &str) -> Option<String> {
    if relative.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn check_clean(path: &str) -> Result<(), InvalidPath> {
    let clean = !path.is_empty()
        && !path.contains(['\0', '\\'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if clean { Ok(()) } else { Err(InvalidPath(path.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_files_and_directories_of_one_level() {
        let tree: MemoryTree = [("a/x.yaml", "1"), ("a/b/y.yaml", "2"), ("a.txt", "3")].into_iter().collect();
        let names =
            |path| -> Vec<String> { tree.list(path).unwrap().into_iter().map(|entry| entry.name).collect() };
        assert_eq!(names(""), ["a", "a.txt"]);
        assert_eq!(names("a"), ["b", "x.yaml"]);
        assert_eq!(tree.kind("a/b"), Some(Kind::Directory));
        assert_eq!(tree.list("a.txt"), None);
        assert_eq!(tree.read("a/b/y.yaml").as_deref(), Some(b"2".as_slice()));
    }

    #[track_caller]
    fn check_join(base: &str, relative: &str, expected: Option<&str>) {
        assert_eq!(join(base, relative).as_deref(), expected);
    }

    #[test]
    fn join_stays_inside() {
        check_join("a/b", "../c", Some("a/c"));
        check_join("", "./x//y/", Some("x/y"));
        check_join("a", "..", Some(""));
        check_join("a", "../..", None);
        check_join("a", "/etc", None);
    }

    #[test]
    fn links_are_followed_within_the_tree() {
        let files: MemoryTree = [("a/x.yaml", "1"), ("a/b/y.yaml", "2")].into_iter().collect();
        let links = [
            ("dir", "a"),
            ("a/up", "../a/b/y.yaml"),
            ("a/self", "self"),
            ("a/out", "../../etc"),
            ("a/root", "/a"),
            ("a/gone", "nothing"),
        ];
        let links = links.into_iter().map(|(path, to)| (path.to_owned(), to.to_owned())).collect();
        let tree = LinkedTree::new(files, links);
        assert_eq!(tree.read("dir/x.yaml").as_deref(), Some(b"1".as_slice()));
        assert_eq!(tree.read("dir/up").as_deref(), Some(b"2".as_slice()));
        assert_eq!(tree.real("dir/b").as_deref(), Some("a/b"));
        for path in ["a/self", "a/out", "a/root", "a/gone"] {
            assert_eq!(tree.kind(path), None, "{path}");
        }
        let names: Vec<String> = tree.list("dir").unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["b", "up", "x.yaml"]);
        let mut outer = LinkedTree::default();
        outer.graft("sub/module", &tree);
        assert_eq!(outer.read("sub/module/dir/up").as_deref(), Some(b"2".as_slice()));
        assert_eq!(outer.size_bytes(), 2);
    }

    #[test]
    fn unclean_paths_are_refused() {
        for path in ["", "/a", "a//b", "../a", "a/./b", "a\\b", "a/"] {
            assert!(MemoryTree::new().insert(path, File::default()).is_err(), "{path}");
        }
    }
}
