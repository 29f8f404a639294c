//! Credentials of AWS, Google Cloud, Azure and GitHub: from what a process or a Secret has to what a request
//! needs.
//!
//! - [`aws`]: access keys, Signature Version 4, the token service,
//! - [`gcp`]: access tokens of service accounts, machines and federated identities,
//! - [`azure`]: access tokens of applications, machines and federated identities,
//! - [`github`]: installation tokens of GitHub Apps,
//! - [`registry`]: logins for container registries.
//!
//! Every service is a handful of signed HTTP requests, so none of the vendors' client libraries is used.
//!
//! # Invariants
//! Credentials go to the service they belong to and nowhere else; no error text shows one. Every request has a
//! deadline, and every answer a size limit.

pub mod aws;
pub mod azure;
mod environment;
pub mod gcp;
pub mod github;
mod http;
mod jwt;
pub mod registry;

use jiff::Timestamp;
use weir_base::redact::Secret;

pub use environment::Environment;
pub use http::{HttpError, Requests, form};
pub use jwt::{Signer, pem_blocks};

/// Credentials that cannot be used. The text never shows them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCredentials(pub String);

/// A token for a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// The token.
    pub secret: Secret,
    /// When it ends, if the service says so.
    pub expires_at: Option<Timestamp>,
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// What is there cannot be used.
    #[error(transparent)]
    Credentials(#[from] InvalidCredentials),
    /// The service that gives them did not.
    #[error("{what}")]
    Http {
        /// What was asked for.
        what: &'static str,
        /// What went wrong.
        #[source]
        source: HttpError,
    },
    /// A file that is named by the environment cannot be read.
    #[error("failed to read '{path}'")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

pub(crate) fn failed(what: &'static str) -> impl Fn(HttpError) -> CloudError {
    move |source| CloudError::Http { what, source }
}

/// The time a number of seconds after now.
pub(crate) fn after(now: Timestamp, seconds: i64) -> Option<Timestamp> {
    now.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests;
