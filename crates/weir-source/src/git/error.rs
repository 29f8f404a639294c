//! What can go wrong, in the words Flux users know.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::select::SelectError;
use super::{Request, worktree};
use crate::connection::ConnectionError;

/// Why a checkout failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The client cannot be built: bad certificates, key or proxy.
    #[error("failed to create Git client")]
    Client(#[from] ConnectionError),
    /// The cache directory cannot be used.
    #[error("failed to prepare the Git cache '{}'", .path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The references could not be listed while looking for a change.
    #[error("unable to list remote for '{url}'")]
    List {
        /// The repository, without credentials.
        url: String,
        /// The failure.
        #[source]
        source: TransportError,
    },
    /// The repository could not be fetched.
    #[error("unable to clone '{url}'")]
    Clone {
        /// The repository, without credentials.
        url: String,
        /// The failure.
        #[source]
        source: TransportError,
    },
    /// The server does not know the repository.
    #[error("unable to clone: repository not found: git repository: '{url}'")]
    RepositoryNotFound {
        /// The repository, without credentials.
        url: String,
    },
    /// The branch or tag does not exist.
    #[error("unable to clone '{url}': couldn't find remote ref {reference:?}")]
    ReferenceNotFound {
        /// The repository, without credentials.
        url: String,
        /// The full name.
        reference: String,
    },
    /// The reference cannot be chosen.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The commit is not in the repository, or not a commit.
    #[error("unable to resolve commit object for '{commit}'")]
    Commit {
        /// Its id.
        commit: String,
        /// The details.
        #[source]
        source: TransportError,
    },
    /// The files of the commit cannot be listed.
    #[error("unable to read the tree of commit '{commit}'")]
    Tree {
        /// Its id.
        commit: String,
        /// The details.
        #[source]
        source: worktree::TreeError,
    },
    /// Submodules cannot be found.
    #[error(transparent)]
    Submodules(#[from] super::SubmoduleError),
    /// A submodule cannot be fetched.
    #[error("unable to fetch submodule '{path}'")]
    Submodule {
        /// Where it belongs.
        path: String,
        /// Why not.
        #[source]
        source: Box<GitError>,
    },
    /// The operation ended without a result, which only happens when the process shuts down.
    #[error("the Git operation was aborted")]
    Aborted,
}

impl GitError {
    /// The failure of a transfer, named after what it was for.
    pub(super) fn transport(request: &Request, source: TransportError) -> Self {
        let url = request.url.without_credentials().to_string();
        if request.known_revision.is_some() || request.target.always_lists() {
            Self::List { url, source }
        } else if matches!(source, TransportError::RepositoryNotFound) {
            Self::RepositoryNotFound { url }
        } else {
            Self::Clone { url, source }
        }
    }
}

/// Why an exchange with a Git server failed.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No or wrong credentials.
    #[error("authentication required{}", detail(.0))]
    AuthenticationRequired(String),
    /// The credentials do not allow it.
    #[error("authorization failed{}", detail(.0))]
    AuthorizationFailed(String),
    /// The server does not know the repository.
    #[error("repository not found")]
    RepositoryNotFound,
    /// Another answer than 200.
    #[error("unexpected client error: unexpected requesting \"{url}\" status code: {status}{}", detail(.body))]
    Status {
        /// The URL, without credentials.
        url: String,
        /// The status code.
        status: u16,
        /// The beginning of the answer.
        body: String,
    },
    /// A redirect that must not be followed.
    #[error("refused to follow the redirect of '{from}' to '{to}': {why}")]
    Redirect {
        /// Where it came from.
        from: String,
        /// Where it leads to.
        to: String,
        /// Why not.
        why: &'static str,
    },
    /// The server cannot be reached or broke off.
    #[error("failed to reach '{url}'")]
    Network {
        /// The URL, without credentials.
        url: String,
        /// The details.
        #[source]
        source: reqwest::Error,
    },
    /// The time of the operation is up.
    #[error("context deadline exceeded: the operation did not finish within {}s", .0.as_secs_f64())]
    DeadlineExceeded(Duration),
    /// More bytes than allowed.
    #[error("the answer of the server is larger than {0} bytes")]
    TooLarge(u64),
    /// The caller gave up.
    #[error("context canceled")]
    Cancelled,
    /// The connection or login over SSH failed.
    #[error("{0}")]
    Ssh(String),
    /// The server does not speak the Git protocol, or not correctly.
    #[error("{0}")]
    Protocol(String),
}

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
