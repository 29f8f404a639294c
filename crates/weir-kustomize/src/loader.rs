//! Where a kustomization reads from: its directory, what it may read outside of it, and remote content.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use weir_base::tree::{Files, Kind, join};

use crate::error::{Context as _, Error, Result};
use crate::remote::{Download, Remote, RemoteError, RepoSpec, is_remote_file};
use crate::{LoadRestriction, Options};

const NOT_A_DIRECTORY: &str = "must build at directory: not a valid directory";

#[derive(Clone)]
enum Tree<'a> {
    Local(&'a dyn Files),
    Cloned(Arc<dyn Files>),
}

impl Tree<'_> {
    fn files(&self) -> &dyn Files {
        match self {
            Self::Local(files) => *files,
            Self::Cloned(files) => files.as_ref(),
        }
    }
}

/// The root of one kustomization on the chain from the outermost one.
pub(crate) struct Loader<'a> {
    tree: Tree<'a>,
    root: String,
    /// What the tree's root is called in errors.
    tree_name: String,
    root_only: bool,
    /// The repository this chain entered last.
    repository: Option<Rc<RepoSpec>>,
    /// Whether this root itself is what a repository URL named.
    is_clone_root: bool,
    parent: Option<Rc<Loader<'a>>>,
    remote: &'a dyn Remote,
}

impl<'a> Loader<'a> {
    /// The loader of the outermost kustomization.
    pub(crate) fn new(
        files: &'a dyn Files,
        root: &str,
        options: &Options,
        remote: &'a dyn Remote,
    ) -> Result<Rc<Self>> {
        let root = root.trim_matches('/');
        let root = join("", root).unwrap_or_default();
        let loader = Self {
            tree: Tree::Local(files),
            root: files.real(&root).unwrap_or(root),
            tree_name: options.tree_name.trim_end_matches('/').to_owned(),
            root_only: options.load_restriction == LoadRestriction::RootOnly,
            repository: None,
            is_clone_root: false,
            parent: None,
            remote,
        };
        loader.confirm_directory(&loader.root)?;
        Ok(Rc::new(loader))
    }

    /// The directory as shown in errors.
    pub(crate) fn shown_root(&self) -> String {
        self.shown(&self.root)
    }

    /// The last part of the directory's path.
    pub(crate) fn directory_name(&self) -> &str {
        self.root.rsplit('/').next().unwrap_or_default()
    }

    fn shown(&self, path: &str) -> String {
        if path.is_empty() && !self.tree_name.is_empty() {
            self.tree_name.clone()
        } else {
            format!("{}/{path}", self.tree_name)
        }
    }

    fn confirm_directory(&self, path: &str) -> Result<()> {
        match self.tree.files().kind(path) {
            Some(Kind::Directory) => Ok(()),
            Some(Kind::File) => Err(Error::message(format!(
                "must build at directory: '{}': file is not directory",
                self.shown(path)
            ))),
            None => Err(self.missing(path).within(NOT_A_DIRECTORY)),
        }
    }

    fn missing(&self, path: &str) -> Error {
        let shown = self.shown(path);
        Error::message(format!("evalsymlink failure on '{shown}' : lstat {shown}: no such file or directory"))
    }

    /// The path within the tree, or the error of leaving it.
    fn resolve(&self, path: &str, operation: &str) -> Result<String> {
        let inside = match path.strip_prefix('/') {
            // Absolute paths are those of the machine; the tree's name says where it lies.
            Some(_) => path
                .strip_prefix(self.tree_name.as_str())
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))
                .and_then(|rest| join("", rest.trim_start_matches('/'))),
            None => join(&self.root, path),
        };
        inside.ok_or_else(|| {
            let shown = if path.starts_with('/') {
                path.to_owned()
            } else {
                format!("/{}", crate::origin::join(&self.shown_root(), path))
            };
            let tree = if self.tree_name.is_empty() { "/" } else { &self.tree_name };
            Error::message(format!(
                "fs-security-constraint {operation} {shown}: path '{shown}' is not in or below '{tree}'"
            ))
        })
    }

    /// The content of a file, local or remote.
    pub(crate) fn load(&self, path: &str) -> Result<Bytes> {
        if is_remote_file(path) {
            return self.download(path);
        }
        let inside = self.resolve(path, "read")?;
        let files = self.tree.files();
        let kind = files.kind(&inside);
        if self.root_only {
            match kind {
                None => return Err(self.missing(&inside)),
                Some(Kind::Directory) => {
                    return Err(Error::message(format!("'{}' must resolve to a file", self.shown(&inside))));
                }
                Some(Kind::File) if !is_below(&files.real(&inside).unwrap_or_default(), &self.root) => {
                    return Err(Error::message(format!(
                        "security; file '{}' is not in or below '{}'",
                        self.shown(&inside),
                        self.shown_root()
                    )));
                }
                Some(Kind::File) => {}
            }
        }
        match kind {
            Some(Kind::Directory) => {
                Err(Error::message(format!("read {}: is a directory", self.shown(&inside))))
            }
            _ => files.read(&inside).ok_or_else(|| {
                Error::message(format!("open {}: no such file or directory", self.shown(&inside)))
            }),
        }
    }

    fn download(&self, url: &str) -> Result<Bytes> {
        match self.remote.file(url).map_err(remote_error)? {
            Download::Content(content) => Ok(content),
            Download::Status(..) if RepoSpec::parse(url).is_some() => {
                Err(Error::message("URL is a git repository"))
            }
            Download::Status(status, reason) => Err(Error::Http { status, reason }),
        }
    }

    /// The loader of a directory or repository this kustomization refers to.
    pub(crate) fn enter(self: &Rc<Self>, path: &str) -> Result<Rc<Self>> {
        if path.is_empty() {
            return Err(Error::message("new root cannot be empty"));
        }
        if let Some(spec) = RepoSpec::parse(path) {
            return self.enter_repository(spec);
        }
        if path.starts_with('/') {
            return Err(Error::message(format!("new root '{path}' cannot be absolute")));
        }
        let root = self.resolve(path, "abs").map_err(|error| match &self.repository {
            Some(repository) => Error::message(format!(
                "security; bases in kustomizations found in cloned git repos must be within the repo, but base '{path}' is outside '{}'",
                repository.clone_url
            )),
            None => error.within(NOT_A_DIRECTORY),
        })?;
        self.confirm_directory(&root)?;
        // Roots are what links lead to; everything in a kustomization is relative to that.
        let root = self.tree.files().real(&root).unwrap_or(root);
        self.check_cycle(&root)?;
        Ok(Rc::new(Self {
            tree: self.tree.clone(),
            root,
            tree_name: self.tree_name.clone(),
            root_only: self.root_only,
            repository: self.repository.clone(),
            is_clone_root: false,
            parent: Some(Rc::clone(self)),
            remote: self.remote,
        }))
    }

    fn enter_repository(self: &Rc<Self>, spec: RepoSpec) -> Result<Rc<Self>> {
        let mut visited = Some(self);
        while let Some(loader) = visited {
            if let Some(repository) = loader.repository.as_deref().filter(|_| loader.is_clone_root)
                && repository.raw.starts_with(&spec.raw)
            {
                return Err(Error::message(format!(
                    "cycle detected: URI '{}' referenced by previous URI '{}'",
                    spec.raw, repository.raw
                )));
            }
            visited = loader.parent.as_ref();
        }
        let files = self.remote.repository(&spec).map_err(remote_error)?;
        let loader = Self {
            root: files.real(&spec.path).unwrap_or_else(|| spec.path.clone()),
            tree: Tree::Cloned(files),
            tree_name: format!("/{}", spec.clone_url),
            root_only: true,
            repository: Some(Rc::new(spec)),
            is_clone_root: true,
            parent: Some(Rc::clone(self)),
            remote: self.remote,
        };
        match loader.tree.files().kind(&loader.root) {
            Some(Kind::Directory) => Ok(Rc::new(loader)),
            Some(Kind::File) => Err(Error::message(format!(
                "'{}' refers to file '{}'; expecting directory",
                loader.shown_root(),
                loader.directory_name()
            ))),
            None => Err(loader.missing(&loader.root)).context(|| NOT_A_DIRECTORY.to_owned()),
        }
    }

    /// A new root must not be one of the visited ones or lie above one.
    fn check_cycle(&self, candidate: &str) -> Result<()> {
        let mut visited = Some(self);
        while let Some(loader) = visited {
            if is_below(&loader.root, candidate) {
                return Err(Error::message(format!(
                    "cycle detected: candidate root '{}' contains visited root '{}'",
                    self.shown(candidate),
                    self.shown(&loader.root)
                )));
            }
            if loader.is_clone_root {
                break;
            }
            visited = loader.parent.as_deref();
        }
        Ok(())
    }
}

fn remote_error(error: RemoteError) -> Error {
    if error.timeout { Error::Timeout { message: error.message } } else { Error::message(error.message) }
}

fn is_below(path: &str, root: &str) -> bool {
    root.is_empty() || path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}
