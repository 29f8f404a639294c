//! Source clients: a specification and credentials in, a revision and files out.
//!
//! - [`git`]: Git repositories over HTTP(S), without a work tree and without a Git binary,
//! - [`ignore`]: which files of a source stay out of its artifact.
//!
//! Nothing here knows Kubernetes.

pub mod git;
pub mod ignore;
