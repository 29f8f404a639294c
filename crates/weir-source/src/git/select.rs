//! From a reference in a specification to a commit: pure.

use gix::ObjectId;
use weir_base::version::{Constraint, ConstraintError, Version};

/// A reference as users write it. All fields are optional; [`Target::new`] knows which one wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reference {
    /// A branch.
    pub branch: Option<String>,
    /// A tag.
    pub tag: Option<String>,
    /// A range of tags.
    pub semver: Option<String>,
    /// A full reference name.
    pub name: Option<String>,
    /// A commit id.
    pub commit: Option<String>,
}

/// What is to be checked out.
#[derive(Debug, Clone)]
pub enum Target {
    /// The tip of a branch.
    Branch(String),
    /// A tag.
    Tag(String),
    /// The highest version among the tags that satisfies a constraint.
    Semver {
        /// The constraint as written.
        expression: String,
        /// The constraint.
        constraint: Constraint,
    },
    /// Any reference by its full name.
    Name(String),
    /// What `git fetch` takes as a name: looked up as it is, then below `refs/`, as tag, and as branch.
    Any(String),
    /// A commit.
    Commit {
        /// Its id.
        id: ObjectId,
        /// What stands before the `@` in the revision: a branch or reference name.
        label: Option<String>,
        /// The branch it belongs to.
        branch: Option<String>,
    },
}

/// Why no commit can be chosen.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The version range is malformed.
    #[error("semver parse error")]
    Semver(#[source] ConstraintError),
    /// No tag satisfies the range.
    #[error("no match found for semver: {0}")]
    NoVersion(String),
    /// The commit id is not one.
    #[error("unable to resolve commit object for '{0}': object not found")]
    InvalidCommit(String),
    /// The reference name is not one.
    #[error("ref {0} is invalid; Git refs cannot begin or end with a slash '/'")]
    InvalidName(String),
    /// The reference name does not exist.
    #[error("unable to resolve ref '{0}' to a specific commit")]
    NameNotFound(String),
    /// The branch or tag does not exist.
    #[error("couldn't find remote ref {0:?}")]
    NotFound(String),
}

/// A reference a server has listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: String,
    /// What it points to, with tags followed to the end.
    pub(super) object: ObjectId,
    /// The tag object, for annotated tags.
    pub(super) tag: Option<ObjectId>,
}

/// A commit and how its revision is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) commit: ObjectId,
    pub(super) label: Option<String>,
}

impl Chosen {
    pub(super) fn revision(&self) -> String {
        match &self.label {
            Some(label) => format!("{label}@sha1:{}", self.commit),
            None => format!("sha1:{}", self.commit),
        }
    }
}

/// The outcome of a choice.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    One(Chosen),
    /// Versions that differ only in build metadata: the newest commit wins.
    Newest(Vec<Chosen>),
}

const PEELED: &str = "^{}";

impl Target {
    /// What a reference stands for: a commit wins over a name, then tag, version range and branch.
    /// Without any, it is the branch `master`.
    pub fn new(reference: &Reference) -> Result<Self, SelectError> {
        let given = |field: &Option<String>| field.clone().filter(|value| !value.is_empty());
        if let Some(commit) = given(&reference.commit) {
            let id = ObjectId::from_hex(commit.as_bytes()).map_err(|_| SelectError::InvalidCommit(commit))?;
            let branch = given(&reference.branch);
            let label = given(&reference.name).or_else(|| branch.clone());
            return Ok(Self::Commit { id, label, branch });
        }
        if let Some(name) = given(&reference.name) {
            if name.starts_with('/') || name.ends_with('/') {
                return Err(SelectError::InvalidName(name));
            }
            return Ok(Self::Name(name));
        }
        if let Some(tag) = given(&reference.tag) {
            return Ok(Self::Tag(tag));
        }
        if let Some(expression) = given(&reference.semver) {
            let constraint = Constraint::parse(&expression).map_err(SelectError::Semver)?;
            return Ok(Self::Semver { expression, constraint });
        }
        Ok(Self::Branch(given(&reference.branch).unwrap_or_else(|| "master".to_owned())))
    }

    /// What `git fetch` makes of a text: the id of a commit in full, or [`Target::Any`].
    pub fn fetched(text: &str) -> Self {
        match ObjectId::from_hex(text.as_bytes()) {
            Ok(id) => Self::Commit { id, label: None, branch: None },
            Err(_) => Self::Any(text.to_owned()),
        }
    }

    /// The full names [`Target::Any`] may stand for, the first that exists wins.
    pub(super) fn fetched_names(name: &str) -> [String; 4] {
        ["", "refs/", "refs/tags/", "refs/heads/"].map(|prefix| format!("{prefix}{name}"))
    }

    /// This commit, wherever it is.
    pub(super) fn commit(id: ObjectId) -> Self {
        Self::Commit { id, label: None, branch: None }
    }

    /// Whether errors speak of listing rather than of cloning.
    pub(super) fn always_lists(&self) -> bool {
        matches!(self, Self::Name(_))
    }

    /// The reference names (or beginnings of them) the server is asked for.
    pub(super) fn prefixes(&self) -> Vec<String> {
        match self {
            Self::Branch(branch) | Self::Commit { branch: Some(branch), .. } => {
                vec![format!("refs/heads/{branch}")]
            }
            Self::Tag(tag) => vec![format!("refs/tags/{tag}")],
            Self::Semver { .. } => vec!["refs/tags/".to_owned()],
            Self::Name(name) => vec![name.strip_suffix(PEELED).unwrap_or(name).to_owned()],
            Self::Any(name) => Self::fetched_names(name).to_vec(),
            Self::Commit { branch: None, .. } => vec!["HEAD".to_owned()],
        }
    }

    /// Chooses among what the server has listed.
    pub(super) fn choose(&self, listed: &[Listed]) -> Result<Choice, SelectError> {
        let find = |name: &str| listed.iter().find(|one| one.name == name);
        let one = |commit, label| Ok(Choice::One(Chosen { commit, label }));
        match self {
            Self::Branch(branch) => {
                let name = format!("refs/heads/{branch}");
                let found = find(&name).ok_or(SelectError::NotFound(name))?;
                one(found.object, Some(branch.clone()))
            }
            Self::Tag(tag) => {
                let name = format!("refs/tags/{tag}");
                let found = find(&name).ok_or(SelectError::NotFound(name))?;
                one(found.object, Some(tag.clone()))
            }
            Self::Name(name) => {
                let plain = name.strip_suffix(PEELED).unwrap_or(name);
                let found = find(plain)
                    // `^{}` names what an annotated tag points to and nothing else.
                    .filter(|found| plain.len() == name.len() || found.tag.is_some())
                    .ok_or_else(|| SelectError::NameNotFound(name.clone()))?;
                one(found.object, Some(name.clone()))
            }
            Self::Any(name) => {
                let names = Self::fetched_names(name);
                let found = names.iter().find_map(|name| find(name));
                one(found.ok_or_else(|| SelectError::NotFound(name.clone()))?.object, Some(name.clone()))
            }
            Self::Commit { id, label, branch } => {
                if let Some(branch) = branch {
                    let name = format!("refs/heads/{branch}");
                    find(&name).ok_or(SelectError::NotFound(name))?;
                }
                one(*id, label.clone())
            }
            Self::Semver { expression, constraint } => {
                let mut matching: Vec<(Version, Chosen)> = listed
                    .iter()
                    .filter_map(|one| {
                        let tag = one.name.strip_prefix("refs/tags/")?;
                        let version = Version::parse_complete(tag).ok()?;
                        let chosen = Chosen { commit: one.object, label: Some(tag.to_owned()) };
                        constraint.matches(&version).then_some((version, chosen))
                    })
                    .collect();
                matching.sort_by(|(left, _), (right, _)| left.cmp(right));
                let Some((highest, chosen)) = matching.pop() else {
                    return Err(SelectError::NoVersion(expression.clone()));
                };
                let mut equal = vec![chosen];
                while let Some((_, chosen)) = matching.pop_if(|(version, _)| *version == highest) {
                    equal.push(chosen);
                }
                // From the first to the last listed.
                equal.reverse();
                match equal.len() {
                    1 => Ok(Choice::One(equal.remove(0))),
                    _ => Ok(Choice::Newest(equal)),
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
