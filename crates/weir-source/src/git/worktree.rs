//! The files of a commit, read from the object database when they are needed.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use bytes::Bytes;
use gix::ObjectId;
use gix::objs::FindExt as _;
use gix::objs::tree::EntryKind;
use weir_artifact::archive::{ArchiveWriter, compare_paths};
use weir_base::tree::{File, Files as _, Kind, LinkedTree, MemoryTree, join};

use super::cache::Lease;
use crate::ignore::{IGNORE_FILE, Rules};

/// Deeper trees are refused.
const DEPTH_MAX: usize = 256;

/// Why a tree cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// An object is missing or broken.
    #[error("failed to read object of '{path}': {text}")]
    Object {
        /// The file or directory.
        path: String,
        /// What the object database says.
        text: String,
    },
    /// More files and directories than allowed.
    #[error("the tree has more than {0} entries")]
    TooManyEntries(usize),
    /// Directories in directories beyond reason.
    #[error("directory '{0}' is too deep")]
    TooDeep(String),
    /// A name no work tree can have.
    #[error("invalid path '{0}'")]
    InvalidPath(String),
    /// More than may be held in memory.
    #[error("the files are larger than {0} bytes")]
    TooLarge(u64),
}

/// Why an archive was not written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive cannot be written.
    #[error("failed to write the archive")]
    Write(#[from] io::Error),
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] TreeError),
}

/// Why an artifact cannot be included.
#[derive(Debug, thiserror::Error)]
pub enum IncludeError {
    /// The target would be outside the tree.
    #[error("path calculation for include failed: '{0}' is outside the repository")]
    IllegalPath(String),
    /// The artifact does not have what is to be included.
    #[error("path '{0}' does not exist in the included artifact")]
    NotFound(String),
    /// There is something at the target already.
    #[error("target '{0}' exists and is not an empty directory")]
    Occupied(String),
}

/// The files and directories of a checkout.
pub struct Worktree {
    objects: gix::odb::Handle,
    nodes: BTreeMap<Path, Node>,
    /// Submodules: their commits by path.
    links: BTreeMap<String, ObjectId>,
    /// Where the files of submodules are read from.
    attached: Vec<Worktree>,
    /// Keeps the objects where they are.
    _lease: Option<Lease>,
}

/// A path ordered as archives are.
#[derive(Clone, PartialEq, Eq)]
struct Path(Vec<u8>);

impl Ord for Path {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        compare_paths(&self.0, &other.0)
    }
}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Path {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[derive(Clone)]
enum Node {
    Directory,
    /// A link: there for existence checks, never archived.
    Link(Content),
    File {
        content: Content,
        executable: bool,
    },
}

#[derive(Clone)]
enum Content {
    Object(ObjectId),
    Data(Bytes),
    /// In the submodule of this number.
    Attached(usize, Box<Content>),
}

impl fmt::Debug for Worktree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Worktree({} entries)", self.nodes.len())
    }
}

impl Worktree {
    pub(super) fn of_tree(
        objects: gix::odb::Handle,
        root: ObjectId,
        entries_max: usize,
        lease: Option<Lease>,
    ) -> Result<Self, TreeError> {
        let (mut nodes, mut links) = (BTreeMap::new(), BTreeMap::new());
        let mut waiting = vec![(Vec::new(), root, 0)];
        let mut buffer = Vec::new();
        while let Some((directory, id, depth)) = waiting.pop() {
            let shown = || String::from_utf8_lossy(&directory).into_owned();
            if depth > DEPTH_MAX {
                return Err(TreeError::TooDeep(shown()));
            }
            let tree = objects
                .find_tree(&id, &mut buffer)
                .map_err(|error| TreeError::Object { path: shown(), text: error.to_string() })?;
            for entry in tree.entries {
                let mut path = directory.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(entry.filename);
                if !is_valid_name(entry.filename) {
                    return Err(TreeError::InvalidPath(Path(path).text()));
                }
                let node = match entry.mode.kind() {
                    EntryKind::Tree => {
                        waiting.push((path.clone(), entry.oid.to_owned(), depth + 1));
                        Node::Directory
                    }
                    // A submodule that is not fetched is an empty directory.
                    EntryKind::Commit => {
                        links.insert(Path(path.clone()).text(), entry.oid.to_owned());
                        Node::Directory
                    }
                    EntryKind::Link => Node::Link(Content::Object(entry.oid.to_owned())),
                    kind @ (EntryKind::Blob | EntryKind::BlobExecutable) => Node::File {
                        content: Content::Object(entry.oid.to_owned()),
                        executable: kind == EntryKind::BlobExecutable,
                    },
                };
                nodes.insert(Path(path), node);
                if nodes.len() > entries_max {
                    return Err(TreeError::TooManyEntries(entries_max));
                }
            }
        }
        Ok(Self { objects, nodes, links, attached: Vec::new(), _lease: lease })
    }

    /// The paths of the submodules with the commits they stand at. Their directories are empty.
    pub fn submodules(&self) -> Vec<(String, String)> {
        self.links.iter().map(|(path, commit)| (path.clone(), commit.to_string())).collect()
    }

    /// All files and links in memory. Blocks.
    ///
    /// Errors: together they are larger than `bytes_max`, or an object is missing. Paths that are not UTF-8 are left
    /// out.
    pub fn into_tree(self, bytes_max: u64) -> Result<LinkedTree, TreeError> {
        let mut tree = MemoryTree::new();
        let mut links = BTreeMap::new();
        let mut left = bytes_max;
        for (path, node) in &self.nodes {
            let Ok(text) = std::str::from_utf8(&path.0) else { continue };
            let invalid = |_| TreeError::InvalidPath(text.to_owned());
            match node {
                Node::Directory => tree.insert_directory(text).map_err(invalid)?,
                Node::Link(content) => {
                    let target = self.read(text, content)?;
                    links.insert(text.to_owned(), String::from_utf8_lossy(&target).into_owned());
                }
                Node::File { content, executable } => {
                    let data = self.read(text, content)?;
                    left = left.checked_sub(data.len() as u64).ok_or(TreeError::TooLarge(bytes_max))?;
                    tree.insert(text, File { data, executable: *executable }).map_err(invalid)?;
                }
            }
        }
        Ok(LinkedTree::new(tree, links))
    }

    /// The commits of submodules by their paths.
    pub(super) fn links(&self) -> &BTreeMap<String, ObjectId> {
        &self.links
    }

    /// The text of a file, if there is one.
    pub(super) fn text(&self, path: &str) -> Result<Option<String>, TreeError> {
        match self.nodes.get(&Path(path.into())) {
            Some(Node::File { content, .. }) => {
                self.read(path, content).map(|data| Some(String::from_utf8_lossy(&data).into_owned()))
            }
            _ => Ok(None),
        }
    }

    /// Puts the files of a submodule in their place.
    pub(super) fn attach(&mut self, path: &str, mut other: Self) {
        let number = self.attached.len();
        for (below, node) in std::mem::take(&mut other.nodes) {
            let mut full = path.as_bytes().to_vec();
            full.push(b'/');
            full.extend_from_slice(&below.0);
            let attached = |content| Content::Attached(number, Box::new(content));
            let node = match node {
                Node::Directory => Node::Directory,
                Node::Link(content) => Node::Link(attached(content)),
                Node::File { content, executable } => Node::File { content: attached(content), executable },
            };
            self.nodes.insert(Path(full), node);
        }
        self.attached.push(other);
    }

    /// How many files and directories there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is anything at `path`.
    pub fn contains(&self, path: &str) -> bool {
        join("", path).is_some_and(|path| path.is_empty() || self.nodes.contains_key(&Path(path.into())))
    }

    /// Keeps only files whose path begins with one of `prefixes`, with their directories. As in
    /// Flux, `deploy` also keeps `deploy-old/x`.
    pub fn keep_only(&mut self, prefixes: &[String]) {
        let prefixes: Vec<&[u8]> =
            prefixes.iter().map(|prefix| prefix.strip_prefix("./").unwrap_or(prefix).as_bytes()).collect();
        let kept: BTreeMap<Path, Node> = std::mem::take(&mut self.nodes)
            .into_iter()
            .filter(|(path, node)| {
                !matches!(node, Node::Directory) && prefixes.iter().any(|prefix| path.0.starts_with(prefix))
            })
            .collect();
        for (path, node) in kept {
            self.add_parents(&path.0);
            self.nodes.insert(path, node);
        }
    }

    /// Places the file or directory at `from` of another tree at `to`.
    pub fn include(&mut self, other: &MemoryTree, from: &str, to: &str) -> Result<(), IncludeError> {
        let illegal = |path: &str| IncludeError::IllegalPath(path.to_owned());
        // Absolute paths are taken from the root of the tree.
        let target = join("", to.trim_start_matches('/')).ok_or_else(|| illegal(to))?;
        let source = join("", from.trim_start_matches('/')).ok_or_else(|| illegal(from))?;
        let kind = other.kind(&source).ok_or_else(|| IncludeError::NotFound(from.to_owned()))?;
        if self.is_occupied(&target, kind) {
            return Err(IncludeError::Occupied(to.to_owned()));
        }
        self.add_parents(target.as_bytes());
        let mut waiting = vec![(source, target)];
        while let Some((source, target)) = waiting.pop() {
            if let Some(entries) = other.list(&source) {
                if !target.is_empty() {
                    self.nodes.insert(Path(target.clone().into()), Node::Directory);
                }
                let below = |directory: &str, name: &str| match directory {
                    "" => name.to_owned(),
                    directory => format!("{directory}/{name}"),
                };
                for entry in entries {
                    waiting.push((below(&source, &entry.name), below(&target, &entry.name)));
                }
                continue;
            }
            let executable =
                other.files().find(|(path, _)| *path == source).is_some_and(|(_, file)| file.executable);
            let data = other.read(&source).unwrap_or_default();
            let node = Node::File { content: Content::Data(data), executable };
            self.nodes.insert(Path(target.into()), node);
        }
        Ok(())
    }

    /// The ignore rules of this tree with those of the specification.
    pub fn rules(&self, spec: Option<&str>) -> Result<Rules, TreeError> {
        let mut files = Vec::new();
        for (path, node) in &self.nodes {
            let text = path.text();
            let directory = match text.strip_suffix(IGNORE_FILE) {
                Some("") => "",
                Some(directory) if directory.ends_with('/') => directory.trim_end_matches('/'),
                _ => continue,
            };
            if let Node::File { content, .. } = node {
                let data = self.read(&text, content)?;
                let content = String::from_utf8_lossy(&data).into_owned();
                files.push((directory.to_owned(), content));
            }
        }
        // The root first, then depth first: the order of the directories, not of the files in them.
        files.sort_by(|(left, _), (right, _)| compare_paths(left.as_bytes(), right.as_bytes()));
        Ok(Rules::assemble(
            files.iter().map(|(directory, content)| (directory.as_str(), content.as_str())),
            spec,
        ))
    }

    /// Writes the archive of everything the rules let through. Links are left out. Blocks.
    pub fn write_archive(&self, rules: &Rules, output: impl Write) -> Result<(), ArchiveError> {
        let mut archive = ArchiveWriter::new(output)?;
        for (path, node) in &self.nodes {
            let text = path.text();
            match node {
                Node::Link(_) => {}
                Node::Directory => {
                    if !rules.excludes(&text, true) {
                        archive.directory(&path.0)?;
                    }
                }
                Node::File { content, executable } => {
                    if !rules.excludes(&text, false) {
                        archive.file(&path.0, *executable, &self.read(&text, content)?)?;
                    }
                }
            }
        }
        archive.finish()?;
        Ok(())
    }

    fn read(&self, path: &str, content: &Content) -> Result<Bytes, TreeError> {
        let id = match content {
            Content::Data(data) => return Ok(data.clone()),
            Content::Attached(number, content) => {
                let missing =
                    || TreeError::Object { path: path.to_owned(), text: "no such submodule".to_owned() };
                return self.attached.get(*number).ok_or_else(missing)?.read(path, content);
            }
            Content::Object(id) => id,
        };
        let mut buffer = Vec::new();
        self.objects
            .find_blob(id, &mut buffer)
            .map_err(|error| TreeError::Object { path: path.to_owned(), text: error.to_string() })?;
        Ok(Bytes::from(buffer))
    }

    fn add_parents(&mut self, path: &[u8]) {
        for (end, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            self.nodes.entry(Path(path[..end].to_vec())).or_insert(Node::Directory);
        }
    }

    /// Whether something cannot be moved to `target`: a file replaces a file, a directory an empty
    /// directory.
    fn is_occupied(&self, target: &str, kind: Kind) -> bool {
        if target.is_empty() {
            return !(kind == Kind::Directory && self.nodes.is_empty());
        }
        let blocked_above = target.match_indices('/').any(|(slash, _)| {
            !matches!(self.nodes.get(&Path(target[..slash].into())), None | Some(Node::Directory))
        });
        let blocked_at = match self.nodes.get(&Path(target.into())) {
            None => false,
            Some(Node::Directory) => {
                let below = format!("{target}/");
                kind == Kind::File || self.nodes.keys().any(|path| path.0.starts_with(below.as_bytes()))
            }
            Some(Node::Link(_) | Node::File { .. }) => kind == Kind::Directory,
        };
        blocked_above || blocked_at
    }
}

/// What Git itself refuses to check out.
fn is_valid_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && !name.eq_ignore_ascii_case(b".git")
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}
