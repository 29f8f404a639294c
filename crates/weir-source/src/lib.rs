//! Source clients: a specification and credentials in, a revision and files out.
//!
//! - [`bases`]: the remote files and repositories of kustomizations,
//! - [`git`]: Git repositories over HTTP(S), without a work tree and without a Git binary,
//! - [`oci`]: artifacts in container registries,
//! - [`helm`]: chart repositories,
//! - [`ignore`]: which files of a source stay out of its artifact,
//! - [`connection`]: own certificates and proxies.
//!
//! Nothing here knows Kubernetes.

pub mod bases;
pub mod connection;
pub mod git;
pub mod helm;
pub mod ignore;
pub mod oci;
